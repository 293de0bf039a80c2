//! `seekless config`: checks a file, and shows which options are in force and where they come from.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::Path;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, Command};
use seekless_base::{Exit, Fault};
use seekless_output::JsonOption;
use serde_json::{Value, json};

use super::file::{self, File};
use super::{Configured, chosen, configured, innermost, variable};
use crate::usage;

/// Check the configuration file, or show the options in force.
#[derive(Args, Clone, Debug)]
pub struct ConfigArgs {
    /// Check FILE, or the file that would be read; one line with file, line and key if it is wrong
    #[arg(long, num_args = 0..=1, default_missing_value = "", value_name = "FILE", conflicts_with = "show")]
    check: Option<OsString>,
    /// Show every option of COMMAND, its value, and where that comes from; without COMMAND, of all commands
    #[arg(long, num_args = 0.., value_name = "COMMAND")]
    show: Option<Vec<String>>,
    #[command(flatten)]
    json: JsonOption,
    /// With --show COMMAND: a command line of it, to be taken into account
    #[arg(last = true, value_name = "OPTIONS")]
    words: Vec<OsString>,
}

/// One option in force.
struct Shown {
    command: String,
    option: String,
    value: Option<String>,
    from: String,
    /// The default that help states for an option without a value, if it is determined at run time.
    default: Option<String>,
}

impl ConfigArgs {
    /// `seekless config`. `config`: the file of `--config`, if it is given.
    ///
    /// # Errors
    /// The file is wrong, there is no such command, or its words are wrong.
    pub fn run(self, program: &Command, config: Option<OsString>) -> Result<Exit, Fault> {
        match (self.check.as_ref(), self.show.as_ref()) {
            (Some(file), _) => {
                self.checked(program, if file.is_empty() { config } else { Some(file.clone()) })
            }
            (None, Some(path)) => self.shown(program, path, config),
            (None, None) => {
                let what = "write --show for the options in force, or --check for mistakes in the file";
                Err(Fault::usage(what))
            }
        }
    }

    fn checked(&self, program: &Command, config: Option<OsString>) -> Result<Exit, Fault> {
        let mut program = program.clone();
        program.build();
        let chosen = chosen(config.as_deref());
        let read = chosen.as_ref().map(|(path, must)| File::read(path, *must, &program)).transpose()?;
        let count = read.flatten().map(|file| file.settings.len());
        let path = chosen.as_ref().map(|(path, _)| path.display().to_string());
        if let Some(to) = self.json.path() {
            let text = seekless_output::pretty(
                &json!({"file": path, "exists": count.is_some(), "settings": count}),
            )?;
            return seekless_output::write(to, text).map(|()| Exit::Ok);
        }
        let line = match (path, count) {
            (None, _) => "no configuration file is read\n".to_string(),
            (Some(path), None) => format!("{path}: there is no such file; the defaults apply\n"),
            (Some(path), Some(count)) => format!("{path}: no mistake, settings: {count}\n"),
        };
        seekless_output::print(line).map(|()| Exit::Ok)
    }

    fn shown(&self, program: &Command, path: &[String], config: Option<OsString>) -> Result<Exit, Fault> {
        let mut built = program.clone();
        built.build();
        let sections = file::sections(&built);
        let of: Vec<&(Vec<String>, &Command)> = sections
            .iter()
            .filter(|(at, command)| at == path || (path.is_empty() && has_options(command)))
            .collect();
        if of.is_empty() {
            let path = path.join(" ");
            return Err(Fault::usage(format!(
                "--show {path}: there is no such command with options; see seekless --help"
            )));
        }
        if path.is_empty() && !self.words.is_empty() {
            return Err(Fault::usage(
                "words behind -- are those of one command; name it: --show COMMAND -- OPTIONS",
            ));
        }
        let mut all = Vec::new();
        for (at, command) in of {
            all.extend(self.options(program, at, command, config.as_deref().map(Path::new))?);
        }
        if let Some(to) = self.json.path() {
            let of = |shown: &Shown| json!({"command": shown.command, "option": shown.option, "value": shown.value, "from": shown.from});
            let text = seekless_output::pretty(&Value::from(all.iter().map(of).collect::<Vec<_>>()))?;
            return seekless_output::write(to, text).map(|()| Exit::Ok);
        }
        seekless_output::print(table(&all)).map(|()| Exit::Ok)
    }

    fn options(
        &self,
        program: &Command,
        at: &[String],
        command: &Command,
        config: Option<&Path>,
    ) -> Result<Vec<Shown>, Fault> {
        let mut words: Vec<OsString> = vec![program.get_name().into()];
        if let Some(config) = config {
            words.extend(["--config".into(), config.into()]);
        }
        words.extend(at.iter().map(OsString::from));
        words.extend(self.words.iter().cloned());
        let configured = configured(program, words)?;
        let given = match usage::matches(program.clone(), configured.words.clone()) {
            Ok(given) => Some(given),
            // This is only an example: it may lack folders, or the command that `run` runs.
            Err((error, _)) if error.kind() == ErrorKind::MissingRequiredArgument => {
                program.clone().ignore_errors(true).try_get_matches_from(&configured.words).ok()
            }
            Err((_, Some(line))) => return Err(Fault::usage(configured.located(line))),
            Err((_, None)) => None,
        };
        let Some(given) = given else { return Ok(Vec::new()) };
        let (_, given) = innermost(&given);
        let of = command.get_arguments().filter_map(|arg| file::key(arg).map(|key| (arg, key)));
        Ok(of.map(|(arg, key)| shown(at, arg, key, given, &configured)).collect())
    }
}

fn has_options(command: &Command) -> bool {
    command.get_arguments().any(|arg| file::key(arg).is_some())
}

/// One option: its value, and where that comes from.
fn shown(at: &[String], arg: &Arg, key: String, given: &ArgMatches, configured: &Configured) -> Shown {
    let id = arg.get_id().as_str();
    let source = given.value_source(id);
    let of_file = configured.from.iter().find(|from| from.id == id);
    let (mut value, from) = match (source, of_file) {
        (Some(ValueSource::CommandLine), Some(from)) => (value(arg, given), from.place.clone()),
        (Some(ValueSource::CommandLine), None) => (value(arg, given), "command line".to_string()),
        _ => match variable(&key) {
            Some((name, value)) => {
                (Some(value.to_string_lossy().into_owned()), format!("environment ({name})"))
            }
            None => (value(arg, given), "default".to_string()),
        },
    };
    // For a switch that is off, its text alone says nothing.
    value = value.filter(|value| !value.is_empty());
    let default = (value.is_none() && from == "default").then(|| default_in_help(arg)).flatten();
    Shown { command: at.join(" "), option: key, value, from, default }
}

/// `X` of the `[default: X]` in an option's help.
fn default_in_help(arg: &Arg) -> Option<String> {
    let help = arg.get_help()?.to_string();
    let (_, rest) = help.split_once("[default: ")?;
    Some(rest.split_once(']')?.0.to_string())
}

fn value(arg: &Arg, given: &ArgMatches) -> Option<String> {
    let id = arg.get_id().as_str();
    if !arg.get_action().takes_values() {
        return given.try_get_one::<bool>(id).ok().flatten().map(bool::to_string);
    }
    let raw = given.get_raw(id)?;
    Some(raw.map(|value| value.to_string_lossy().into_owned()).collect::<Vec<_>>().join(", "))
}

/// Aligned columns, a heading a command.
fn table(all: &[Shown]) -> String {
    let width = |of: fn(&Shown) -> usize| all.iter().map(of).max().unwrap_or(0);
    let option = width(|shown| shown.option.len());
    let value = width(|shown| shown.value.as_deref().unwrap_or("-").len());
    let (mut text, mut command) = (String::new(), None);
    for shown in all {
        if command != Some(&shown.command) {
            if command.is_some() {
                text.push('\n');
            }
            let _ = writeln!(text, "[{}]", shown.command.replace(' ', "."));
            command = Some(&shown.command);
        }
        let of = shown.value.as_deref().unwrap_or("-");
        let default = shown.default.as_ref().map_or(String::new(), |default| format!(": {default}"));
        let _ = writeln!(text, "{:option$}  {of:value$}  {}{default}", shown.option, shown.from);
    }
    text
}
