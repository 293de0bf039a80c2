//! The configuration file: options that are set once, for every start of a command.
//!
//! A section has the options of a command, by their long names; `[all]` has those of every command that knows
//! them. The words of the file are put into the command line before it is parsed, except for options that the
//! command line or the environment gives. So a value of the file is parsed, checked and reported as if it
//! stood on the command line, and a command cannot tell the two apart.
//!
//! ```toml
//! [all]
//! budget = "8GiB"
//!
//! [daemon]
//! metrics = "127.0.0.1:9633"
//! include-ssd = true
//! keep-metadata = ["/srv/mail", "/srv/www"]
//! ```
//!
//! A program reads a file if it flattens [`ConfigOptions`] into its parser.

mod file;
mod show;

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, Command};
use seekless_base::Fault;

use crate::LAST;
use file::{File, Setting};

pub use show::ConfigArgs;

/// The file that is read where no other is named.
pub const DEFAULT_FILE: &str = "/etc/seekless.toml";

/// Names another file; empty: none is read. Programs that start this one for themselves set it to that.
pub const VARIABLE: &str = "SEEKLESS_CONFIG";

/// Options that a variable gives too, unless it is empty.
const VARIABLES: [(&str, &str); 2] = [("socket", "SEEKLESS_SOCKET"), ("shim", "SEEKLESS_SHIM")];

/// Which file is read.
#[derive(Args, Clone, Debug)]
pub struct ConfigOptions {
    /// Configuration file with the options that the command line does not give; an empty name means none
    /// [default: $SEEKLESS_CONFIG, else /etc/seekless.toml where it is there]
    #[arg(long, global = true, value_name = "FILE", hide_short_help = true, display_order = LAST)]
    pub config: Option<OsString>,
}

/// The words of this process with those of the file.
static IN_FORCE: OnceLock<Vec<OsString>> = OnceLock::new();

/// The command line in force, without the program's name: that of this process, with the words of the
/// configuration file and without `--config`. A process that is started with the same options gets these, and
/// an empty [`VARIABLE`].
pub fn words_in_force() -> Vec<OsString> {
    let words = IN_FORCE.get().cloned().unwrap_or_else(|| env::args_os().collect());
    without_config(words.into_iter().skip(1))
}

fn without_config(mut words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut all = Vec::new();
    while let Some(word) = words.next() {
        if word == "--config" {
            words.next();
        } else if !word.to_string_lossy().starts_with("--config=") {
            let last = word == "--";
            all.push(word);
            if last {
                break;
            }
        }
    }
    all.extend(words);
    all
}

/// A command line, and the options in it that come from a file.
#[derive(Debug, Default)]
pub(crate) struct Configured {
    pub(crate) words: Vec<OsString>,
    from: Vec<FromFile>,
}

/// An option that a file gives.
#[derive(Clone, Debug)]
struct FromFile {
    /// Its identifier in clap.
    id: String,
    key: String,
    words: Vec<String>,
    /// `/etc/seekless.toml:3`
    place: String,
}

impl Configured {
    /// Keeps the words for [`words_in_force`].
    pub(crate) fn keep(&self) {
        let _ = IN_FORCE.set(self.words.clone());
    }

    /// A message about the command line, with the places of those options that a file gives.
    pub(crate) fn located(&self, message: String) -> String {
        let whole = |rest: &str| !rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '-');
        let named = |from: &&FromFile| {
            let option = format!("--{}", from.key);
            message.match_indices(&option).any(|(at, _)| whole(&message[at + option.len()..]))
        };
        let places: Vec<String> =
            self.from.iter().filter(named).map(|from| format!("--{}: {}", from.key, from.place)).collect();
        if places.is_empty() { message } else { format!("{message} ({})", places.join(", ")) }
    }
}

/// The command line with the words of the file that it or the environment names. A wrong command line is
/// returned unchanged, so that its own error is reported; so is one whose command has no section.
///
/// # Errors
/// The file cannot be used.
pub(crate) fn configured(program: &Command, words: Vec<OsString>) -> Result<Configured, Fault> {
    let unchanged = |words| Ok(Configured { words, from: Vec::new() });
    if !program.get_arguments().any(|arg| arg.get_id() == "config") {
        return unchanged(words);
    }
    let Ok(given) = program.clone().ignore_errors(true).try_get_matches_from(&words) else {
        return unchanged(words);
    };
    let mut program = program.clone();
    program.build();
    let (path, given) = innermost(&given);
    let Some((_, command)) = file::sections(&program).into_iter().find(|(at, _)| *at == path) else {
        return unchanged(words);
    };
    let named = given.try_get_one::<OsString>("config").ok().flatten();
    let Some((name, must)) = chosen(named.map(OsString::as_os_str)) else { return unchanged(words) };
    let Some(file) = File::read(&name, must, &program)? else { return unchanged(words) };
    let from = in_force(&file, &path, command, given);
    Ok(Configured { words: spliced(&program, &path, words, &from), from })
}

/// The file to read, and whether it must exist. `None`: the name is empty.
fn chosen(named: Option<&OsStr>) -> Option<(PathBuf, bool)> {
    match named.map(OsStr::to_os_string).or_else(|| env::var_os(VARIABLE)) {
        Some(name) if name.is_empty() => None,
        Some(name) => Some((PathBuf::from(name), true)),
        None => Some((Path::new(DEFAULT_FILE).to_path_buf(), false)),
    }
}

/// The words of the requested command, and its own arguments.
fn innermost(given: &ArgMatches) -> (Vec<String>, &ArgMatches) {
    let (mut at, mut path) = (given, Vec::new());
    while let Some((name, below)) = at.subcommand() {
        path.push(name.to_string());
        at = below;
    }
    (path, at)
}

/// Whether the command line gives this option.
fn is_on_command_line(given: &ArgMatches, arg: &Arg) -> bool {
    given.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine)
}

/// The variable that gives this option.
fn variable(key: &str) -> Option<(&'static str, OsString)> {
    let (_, name) = VARIABLES.into_iter().find(|(option, _)| *option == key)?;
    env::var_os(name).filter(|value| !value.is_empty()).map(|value| (name, value))
}

/// The options that the file gives to this command: its section before `[all]`, and none that contradicts the
/// command line.
fn in_force(file: &File, path: &[String], command: &Command, given: &ArgMatches) -> Vec<FromFile> {
    let typed: Vec<&Arg> = command.get_arguments().filter(|arg| is_on_command_line(given, arg)).collect();
    let of = |section: &[String]| -> Vec<(&Setting, &Arg)> {
        let of = file.settings.iter().filter(|setting| setting.section == section);
        of.filter_map(|setting| file::option(command, &setting.key).map(|arg| (setting, arg))).collect()
    };
    let own = if path.is_empty() { Vec::new() } else { of(path) };
    let common = of(&[]);
    let given_to = |(setting, arg): (&Setting, &Arg)| {
        let words = file::words(arg, &setting.value).unwrap_or_default();
        let (id, key) = (arg.get_id().to_string(), setting.key.clone());
        (!words.is_empty()).then(|| FromFile { id, key, words, place: file.place(setting) })
    };
    let weaker = |arg: &Arg| {
        own.iter().any(|(setting, its)| {
            let on = file::words(its, &setting.value).is_ok_and(|words| !words.is_empty());
            its.get_id() == arg.get_id() || (on && file::contradict(command, arg, its))
        })
    };
    let free = |arg: &Arg, key: &str| {
        let against = |other: &&Arg| other.get_id() == arg.get_id() || file::contradict(command, arg, other);
        !typed.iter().any(against) && variable(key).is_none()
    };
    let common = common.into_iter().filter(|(_, arg)| !weaker(arg));
    let all = own.iter().copied().chain(common);
    all.filter(|(setting, arg)| free(arg, &setting.key)).filter_map(given_to).collect()
}

/// The words of the file, inserted behind the word that names the command.
fn spliced(program: &Command, path: &[String], words: Vec<OsString>, from: &[FromFile]) -> Vec<OsString> {
    let (mut at, mut command) = (1, program);
    for name in path {
        while at < words.len() {
            let word = words[at].to_string_lossy().into_owned();
            at += 1;
            if let Some(below) = command.find_subcommand(&word).filter(|below| below.get_name() == name) {
                command = below;
                break;
            }
            at += usize::from(takes_the_next(command, &word));
        }
    }
    let mut all = words;
    let rest = all.split_off(at.min(all.len()));
    // Folders, which have no name, go last, because an option before them may or may not take a value.
    let (named, unnamed): (Vec<&FromFile>, Vec<&FromFile>) =
        from.iter().partition(|from| from.words.iter().all(|word| word.starts_with("--")));
    let words = named.into_iter().chain(unnamed).flat_map(|from| &from.words);
    all.extend(words.map(OsString::from));
    all.extend(rest);
    all
}

/// Whether the word behind this one is its value.
pub(crate) fn takes_the_next(command: &Command, word: &str) -> bool {
    let Some(long) = word.strip_prefix("--").filter(|long| !long.contains('=')) else { return false };
    let arg = command.get_arguments().find(|arg| arg.get_long() == Some(long));
    arg.is_some_and(|arg| {
        let least = arg.get_num_args().map_or(1, |values| values.min_values());
        arg.get_action().takes_values() && least > 0
    })
}

#[cfg(test)]
mod tests {
    use clap::ArgAction;

    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn a_process_that_goes_on_reads_no_file() {
        let of = |line| without_config(words(line).into_iter());
        assert_eq!(of("--config x watch /srv --config=y --json"), words("watch /srv --json"));
        assert_eq!(of("watch -- --config x"), words("watch -- --config x"));
        assert!(of("--config").is_empty());
    }

    #[test]
    fn the_words_of_the_file_stand_behind_the_name_of_the_command() {
        let tune = Command::new("tune").arg(Arg::new("dirs").action(ArgAction::Append));
        let program = Command::new("x")
            .arg(Arg::new("log").long("log").global(true))
            .arg(Arg::new("quiet").long("quiet").action(ArgAction::SetTrue))
            .subcommand(Command::new("disk").subcommand(tune));
        let given = |key: &str, words: &[&str]| FromFile {
            id: key.into(),
            key: key.into(),
            words: words.iter().map(ToString::to_string).collect(),
            place: "f:1".into(),
        };
        let from = [given("dirs", &["/a"]), given("json", &["--json"])];
        let path = ["disk".to_string(), "tune".to_string()];
        for (line, spliced) in [
            ("x disk tune", "x disk tune --json /a"),
            ("x --log disk disk tune --y", "x --log disk disk tune --json /a --y"),
            (
                "x --log=disk --quiet disk --log tune tune y",
                "x --log=disk --quiet disk --log tune tune --json /a y",
            ),
        ] {
            let mut program = program.clone();
            program.build();
            assert_eq!(super::spliced(&program, &path, words(line), &from), words(spliced));
        }
    }

    #[test]
    fn a_message_says_where_an_option_of_the_file_stands() {
        let from = FromFile {
            id: "budget".into(),
            key: "budget".into(),
            words: vec!["--budget=1".into()],
            place: "f:3".into(),
        };
        let configured = Configured { words: Vec::new(), from: vec![from] };
        let located = |message: &str| configured.located(message.into());
        assert_eq!(located("--budget 1 is small"), "--budget 1 is small (--budget: f:3)");
        assert_eq!(located("--budget-max 1 is small"), "--budget-max 1 is small");
    }
}
