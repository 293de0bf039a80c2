//! Options of the previous release. Each works for one more release, on the command line and in the
//! configuration file, with one line that says what to write instead.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::OnceLock;

use clap::{ArgAction, Command};

use crate::config::takes_the_next;

/// An option that was removed or renamed.
#[derive(Clone, Copy, Debug)]
pub struct MovedOption {
    /// Its long name.
    pub name: &'static str,
    /// Whether it took a value; without one it was a switch.
    pub takes_value: bool,
    /// The option that replaces it and takes `NAME=VALUE`.
    pub now: &'static str,
    /// Whether it had an effect; an option without one is dropped.
    pub effective: bool,
}

/// The moved options of this program.
static MOVED: OnceLock<Vec<MovedOption>> = OnceLock::new();

pub(crate) fn keep(moved: Vec<MovedOption>) {
    let _ = MOVED.set(moved);
}

/// The moved option called `name`, if `command` has its replacement and no option of that name.
pub(crate) fn find(command: &Command, name: &str) -> Option<MovedOption> {
    let has = |long: &str| command.get_arguments().any(|arg| arg.get_long() == Some(long));
    let moved = MOVED.get()?.iter().find(|moved| moved.name == name)?;
    (!has(name) && has(moved.now)).then_some(*moved)
}

impl MovedOption {
    /// What to write instead.
    fn advice(&self) -> String {
        match self.effective {
            true => format!("--{} is now --{} {}=...", self.name, self.now, self.name),
            false => format!("--{} has no effect; leave it out", self.name),
        }
    }

    /// Prints the warning. `place`: its place in a file, if it is in one.
    pub(crate) fn warn(&self, place: &str) {
        let advice = self.advice();
        seekless_output::eprintln!("seekless: {place}{advice}; the next release refuses it");
    }
}

/// The command line with each moved option replaced, and a warning for each.
pub(crate) fn rewritten(program: &Command, words: Vec<OsString>) -> Vec<OsString> {
    let mut program = program.clone();
    program.build();
    let mut command = &program;
    let mut all = Vec::new();
    let mut words = words.into_iter();
    all.extend(words.next());
    while let Some(word) = words.next() {
        let text = word.to_string_lossy().into_owned();
        if let Some(below) = command.find_subcommand(&text) {
            command = below;
        } else if word == "--" || (!text.starts_with('-') && has_words_of_another(command)) {
            all.push(word);
            break;
        } else if takes_the_next(command, &text) {
            all.push(word);
            all.extend(words.next());
            continue;
        } else if let Some((name, given)) = long(word.as_bytes())
            && let Some(moved) = find(command, &name)
        {
            moved.warn("");
            let next = moved.takes_value && given.is_none();
            let value = given.or_else(|| next.then(|| words.next().unwrap_or_default().into_vec()));
            if moved.effective {
                let value = value.unwrap_or_else(|| b"true".to_vec());
                let option = format!("--{}={name}=", moved.now);
                all.push(OsString::from_vec([option.as_bytes(), &value].concat()));
            }
            continue;
        }
        all.push(word);
    }
    all.extend(words);
    all
}

/// `--name`, `--name=value`.
fn long(word: &[u8]) -> Option<(String, Option<Vec<u8>>)> {
    let word = word.strip_prefix(b"--")?;
    let mut parts = word.splitn(2, |byte| *byte == b'=');
    let name = String::from_utf8(parts.next()?.to_vec()).ok()?;
    Some((name, parts.next().map(<[u8]>::to_vec)))
}

/// Whether a word that is not an option begins the command line of another program.
fn has_words_of_another(command: &Command) -> bool {
    command.get_positionals().any(|arg| {
        arg.is_trailing_var_arg_set() && matches!(arg.get_action(), ArgAction::Append | ArgAction::Set)
    })
}

#[cfg(test)]
mod tests {
    use clap::Arg;

    use super::*;

    fn program() -> Command {
        keep(vec![
            MovedOption { name: "busy", takes_value: true, now: "parameter", effective: true },
            MovedOption { name: "late", takes_value: false, now: "parameter", effective: true },
            MovedOption { name: "drop", takes_value: true, now: "parameter", effective: false },
        ]);
        let parameter = || Arg::new("parameter").long("parameter").action(ArgAction::Append);
        let other = Arg::new("cmd").action(ArgAction::Append).trailing_var_arg(true);
        let budget = || Arg::new("budget").long("budget");
        Command::new("x")
            .subcommand(Command::new("run").arg(parameter()).arg(budget()).arg(other))
            .subcommand(Command::new("daemon").arg(parameter()).arg(budget()))
            .subcommand(Command::new("get").arg(Arg::new("busy").long("busy")))
    }

    #[test]
    fn an_option_that_moved_works_once_more_and_words_of_another_program_stay() {
        for (given, now) in [
            ("x daemon --busy 0.5 --budget 1", "x daemon --parameter=busy=0.5 --budget 1"),
            ("x daemon --busy=0.5 --late", "x daemon --parameter=busy=0.5 --parameter=late=true"),
            ("x daemon --drop soon --budget --late", "x daemon --budget --late"),
            ("x run --late --budget 1 prog --busy 3", "x run --parameter=late=true --budget 1 prog --busy 3"),
            ("x run -- --busy 3", "x run -- --busy 3"),
            ("x get --busy 3", "x get --busy 3"),
            ("x get --drop 3", "x get --drop 3"),
        ] {
            let words = given.split(' ').map(OsString::from).collect();
            let all: Vec<OsString> = now.split(' ').map(OsString::from).collect();
            assert_eq!(rewritten(&program(), words), all, "{given}");
        }
    }
}
