//! The configuration file: reads it and checks it against the options of the commands.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use clap::builder::{Resettable, ValueRange};
use clap::{Arg, ArgAction, Command};
use rustix::fs::OFlags;
use seekless_base::{Exit, Fault};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::{moved, usage};

/// Maximum size of the file. The options of all commands with comments take a few KiB; a file a hundred times
/// as large is something else.
const BYTES_MAX: u64 = 1 << 20;

/// The section for every command that has such an option.
pub(crate) const ALL: &str = "all";

/// Options that name the file, or that end the command.
const NEVER: [&str; 3] = ["config", "help", "version"];

/// The folders of a command: the only argument without a name that has a key. Not in [`ALL`].
const DIRS: &str = "dirs";

/// Commands without a section.
const NO_SECTION: [&str; 2] = ["config", "help"];

/// A value in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Switch(bool),
    One(String),
    Many(Vec<String>),
}

impl Value {
    /// As a value on the command line: a list is joined by commas.
    fn text(&self) -> String {
        match self {
            Value::Switch(on) => on.to_string(),
            Value::One(one) => one.clone(),
            Value::Many(all) => all.join(","),
        }
    }
}

/// One line of the file.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    /// The command's words; empty for [`ALL`].
    pub(crate) section: Vec<String>,
    pub(crate) key: String,
    pub(crate) value: Value,
    /// Counted from 1.
    pub(crate) line: usize,
}

/// A file without a mistake.
#[derive(Debug)]
pub(crate) struct File {
    pub(crate) path: PathBuf,
    pub(crate) settings: Vec<Setting>,
}

impl File {
    /// Reads and checks a file; `program` is built ([`Command::build`]). A missing file is empty, unless it
    /// `must` exist.
    ///
    /// # Errors
    /// It cannot be read, other users may write to it, or a line is wrong.
    pub(crate) fn read(path: &Path, must: bool, program: &Command) -> Result<Option<File>, Fault> {
        let Some(text) = text(path, must)? else { return Ok(None) };
        let reader = Reader { path, text: &text };
        let mut settings = reader.settings(program)?;
        settings.sort_by_key(|setting| setting.line);
        let file = File { path: path.to_path_buf(), settings };
        file.check(program)?;
        Ok(Some(file))
    }

    /// `/etc/seekless.toml:3`
    pub(crate) fn place(&self, setting: &Setting) -> String {
        place(&self.path, setting.line)
    }

    /// Checks that every option accepts its value, and that no two contradict each other.
    fn check(&self, program: &Command) -> Result<(), Fault> {
        for (at, command) in sections(program) {
            let name = name(program, &at);
            let of: Vec<(&Setting, &Arg)> = self
                .settings
                .iter()
                .filter(|s| s.section.is_empty() || s.section == at)
                .filter_map(|s| option(command, &s.key).map(|arg| (s, arg)))
                .collect();
            for (setting, arg) in &of {
                words(arg, &setting.value).and_then(|words| taken(arg, &words)).map_err(|why| {
                    let of = if setting.section.is_empty() { format!(" (`{name}`)") } else { String::new() };
                    fault(&self.place(setting), &shown(setting), &format!("{why}{of}"))
                })?;
            }
            for (setting, arg) in of.iter().filter(|(s, arg)| is_given(arg, &s.value)) {
                let against = |(other, its): &&(&Setting, &Arg)| {
                    other.section == setting.section
                        && other.line < setting.line
                        && is_given(its, &other.value)
                        && contradict(command, arg, its)
                };
                if let Some((other, _)) = of.iter().find(against) {
                    let (key, line) = (&other.key, other.line);
                    return Err(fault(
                        &self.place(setting),
                        &shown(setting),
                        &format!("contradicts {key} in line {line}; leave one of them out"),
                    ));
                }
            }
        }
        Ok(())
    }
}

fn place(path: &Path, line: usize) -> String {
    format!("{}:{line}", path.display())
}

/// `daemon.budget`
fn shown(setting: &Setting) -> String {
    let section = if setting.section.is_empty() { ALL.to_string() } else { setting.section.join(".") };
    format!("{section}.{}", setting.key)
}

/// A mistake in the file.
fn fault(place: &str, key: &str, why: &str) -> Fault {
    Fault::usage(format!("{place}: {key}: {why}"))
}

/// The text of a file that only root or its user may write.
fn text(path: &Path, must: bool) -> Result<Option<String>, Fault> {
    let shown = path.display();
    let unread = |error: std::io::Error| {
        let message =
            format!("{shown}: {error}; let this user read it, or set SEEKLESS_CONFIG= to read none");
        let exit = if error.kind() == ErrorKind::PermissionDenied { Exit::Permission } else { Exit::Failed };
        Fault::new(exit, message)
    };
    // A FIFO without a writer must not stop us; it is refused below.
    let options = OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path);
    let mut file = match options {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound && !must => return Ok(None),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(Fault::missing(format!("{shown}: there is no such configuration file")));
        }
        Err(error) => return Err(unread(error)),
    };
    let meta = file.metadata().map_err(unread)?;
    if !meta.is_file() {
        return Err(Fault::usage(format!("{shown}: not a regular file; name a configuration file")));
    }
    let user = rustix::process::geteuid().as_raw();
    if ![0, user].contains(&meta.uid()) {
        return Err(Fault::usage(format!(
            "{shown}: it belongs to user {}; chown it to root, or to the user that runs this",
            meta.uid()
        )));
    }
    if meta.mode() & 0o022 != 0 {
        return Err(Fault::usage(format!(
            "{shown}: other users may write to it (mode {:o}); chmod go-w it",
            meta.mode() & 0o777
        )));
    }
    let mut bytes = Vec::new();
    file.by_ref().take(BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unread)?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(Fault::usage(format!("{shown}: it is longer than 1 MiB, so it is no configuration")));
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Some(text)),
        Err(error) => {
            let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            Err(Fault::usage(format!("{}: the text is not UTF-8", place(path, line_of(good)))))
        }
    }
}

/// The number of the line after these bytes.
fn line_of(before: &[u8]) -> usize {
    1 + before.iter().filter(|byte| **byte == b'\n').count()
}

/// A text with line numbers.
struct Reader<'a> {
    path: &'a Path,
    text: &'a str,
}

impl Reader<'_> {
    fn line(&self, at: usize) -> usize {
        line_of(&self.text.as_bytes()[..at.min(self.text.len())])
    }

    fn place(&self, at: usize) -> String {
        place(self.path, self.line(at))
    }

    fn settings(&self, program: &Command) -> Result<Vec<Setting>, Fault> {
        let table = DeTable::parse(self.text).map_err(|error| {
            let said = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
            let at = error.span().map_or(0, |span| span.start);
            Fault::usage(format!("{}: not TOML: {said}", self.place(at)))
        })?;
        let mut all = Vec::new();
        for (key, value) in in_order(table.get_ref()) {
            let name = key.get_ref().as_ref();
            let at = self.place(key.span().start);
            let DeValue::Table(section) = value.get_ref() else {
                return Err(fault(
                    &at,
                    name,
                    "it is in no section; write it below [all], or below a command's, as [daemon]",
                ));
            };
            if name == ALL {
                self.section(&[], None, section, program, &mut all)?;
            } else if let Some(command) = below(program, name) {
                self.section(&[name.to_string()], Some(command), section, program, &mut all)?;
            } else {
                return Err(fault(
                    &at,
                    name,
                    "there is no such section; write [all], or a command's, as [daemon]",
                ));
            }
        }
        Ok(all)
    }

    /// Adds the lines of a section. `command`: `None` for [`ALL`].
    fn section(
        &self,
        path: &[String],
        command: Option<&Command>,
        table: &DeTable<'_>,
        program: &Command,
        all: &mut Vec<Setting>,
    ) -> Result<(), Fault> {
        for (key, value) in in_order(table) {
            let name = key.get_ref().as_ref();
            let at = key.span().start;
            if let (DeValue::Table(section), Some(command)) =
                (value.get_ref(), command.and_then(|command| below(command, name)))
            {
                let path = [path, &[name.to_string()]].concat();
                self.section(&path, Some(command), section, program, all)?;
                continue;
            }
            let section = if path.is_empty() { ALL.to_string() } else { path.join(".") };
            let commands = sections(program).into_iter().map(|(_, command)| command);
            let moved = command.map_or_else(
                || commands.into_iter().find_map(|command| moved::find(command, name)),
                |command| moved::find(command, name),
            );
            if let Some(moved) = moved {
                moved.warn(&format!("{}: {section}.{name}: ", self.place(at)));
                if let Some(value) = of_toml(value.get_ref()).filter(|_| moved.effective) {
                    let value = Value::Many(vec![format!("{name}={}", value.text())]);
                    let (key, line) = (moved.now.to_string(), self.line(at));
                    all.push(Setting { section: path.to_vec(), key, value, line });
                }
                continue;
            }
            let whole = format!("{section}.{name}");
            let known = match command {
                Some(command) => option(command, name).is_some(),
                None => {
                    name != DIRS
                        && sections(program).iter().any(|(_, command)| option(command, name).is_some())
                }
            };
            if !known {
                let (place, of) = (self.place(at), path.join(" "));
                return Err(if path.is_empty() {
                    fault(&place, &whole, "no command has such an option; seekless config --show lists all")
                } else {
                    fault(
                        &place,
                        &whole,
                        &format!("seekless {of} has no such option; seekless config --show {of} lists all"),
                    )
                });
            }
            let value = of_toml(value.get_ref()).ok_or_else(|| {
                fault(
                    &self.place(at),
                    &whole,
                    "wrong type; write a string, a number, true or false, or a list",
                )
            })?;
            all.push(Setting { section: path.to_vec(), key: name.to_string(), value, line: self.line(at) });
        }
        Ok(())
    }
}

/// Entries in the order of the file, so that the first mistake is reported.
fn in_order<'t, 'i>(
    table: &'t DeTable<'i>,
) -> Vec<(&'t Spanned<std::borrow::Cow<'i, str>>, &'t Spanned<DeValue<'i>>)> {
    let mut all: Vec<_> = table.iter().collect();
    all.sort_by_key(|(key, _)| key.span().start);
    all
}

fn of_toml(value: &DeValue<'_>) -> Option<Value> {
    let one = |value: &DeValue<'_>| match value {
        DeValue::String(text) => Some(text.to_string()),
        // Permission bits keep their `0o`.
        DeValue::Integer(number) => {
            Some(number.to_string().replace('_', "").trim_start_matches('+').to_string())
        }
        DeValue::Float(number) => Some(number.as_str().replace('_', "").trim_start_matches('+').to_string()),
        _ => None,
    };
    match value {
        DeValue::Boolean(on) => Some(Value::Switch(*on)),
        DeValue::Array(all) => {
            all.iter().map(|item| one(item.get_ref())).collect::<Option<_>>().map(Value::Many)
        }
        other => one(other).map(Value::One),
    }
}

/// A command of `command` that may have a section.
fn below<'c>(command: &'c Command, name: &str) -> Option<&'c Command> {
    command.get_subcommands().find(|c| c.get_name() == name && has_section(c))
}

fn has_section(command: &Command) -> bool {
    !command.is_hide_set() && !NO_SECTION.contains(&command.get_name())
}

/// Every command that may have a section, with its words.
pub(crate) fn sections(program: &Command) -> Vec<(Vec<String>, &Command)> {
    fn add<'c>(at: &[String], command: &'c Command, all: &mut Vec<(Vec<String>, &'c Command)>) {
        for below in command.get_subcommands().filter(|c| has_section(c)) {
            let path = [at, &[below.get_name().to_string()]].concat();
            all.push((path.clone(), below));
            add(&path, below, all);
        }
    }
    let mut all = Vec::new();
    add(&[], program, &mut all);
    all
}

fn name(program: &Command, path: &[String]) -> String {
    format!("{} {}", program.get_name(), path.join(" "))
}

/// The key of an option in the file: its long name. The folders of a command have a key too.
pub(crate) fn key(arg: &Arg) -> Option<String> {
    if arg.is_hide_set() || NEVER.contains(&arg.get_id().as_str()) {
        return None;
    }
    match arg.get_long() {
        Some(long) => Some(long.to_string()),
        None => (arg.is_positional() && arg.get_id() == DIRS).then(|| DIRS.to_string()),
    }
}

/// The option of a command with this key.
pub(crate) fn option<'c>(command: &'c Command, wanted: &str) -> Option<&'c Arg> {
    command.get_arguments().find(|arg| key(arg).is_some_and(|key| key == wanted))
}

/// Whether one of two options of a command excludes the other.
pub(crate) fn contradict(command: &Command, one: &Arg, other: &Arg) -> bool {
    let forbids =
        |a: &Arg, b: &Arg| command.get_arg_conflicts_with(a).iter().any(|c| c.get_id() == b.get_id());
    one.get_id() != other.get_id() && (forbids(one, other) || forbids(other, one))
}

/// Whether a value is anything but `false` or an empty list.
fn is_given(arg: &Arg, value: &Value) -> bool {
    words(arg, value).is_ok_and(|words| !words.is_empty())
}

fn values(arg: &Arg) -> ValueRange {
    arg.get_num_args().unwrap_or(ValueRange::SINGLE)
}

/// The words of a command line with the same meaning.
///
/// # Errors
/// The option takes no value of this type; the text says what to write.
pub(crate) fn words(arg: &Arg, value: &Value) -> Result<Vec<String>, String> {
    let takes = arg.get_action().takes_values();
    let long = arg.get_long();
    let word = |value: &String| long.map_or_else(|| value.clone(), |long| format!("--{long}={value}"));
    let whole = |all: &[String]| match all.iter().find(|value| long.is_none() && value.starts_with('-')) {
        Some(value) => Err(format!("{value} would be an option; write ./{value}")),
        None => Ok(all.iter().map(word).collect()),
    };
    match value {
        Value::Switch(on) if !takes || values(arg).min_values() == 0 => {
            Ok(long.filter(|_| *on).map(|long| format!("--{long}")).into_iter().collect())
        }
        Value::Switch(_) => Err("wrong type; write a value in quotes or a number, not true or false".into()),
        _ if !takes => Err("wrong type; write true or false".into()),
        Value::Many(_) if !matches!(arg.get_action(), ArgAction::Append) => {
            Err("wrong type; write one value, not a list".into())
        }
        Value::One(one) => whole(std::slice::from_ref(one)),
        Value::Many(all) => whole(all),
    }
}

/// Checks that the option's own parser accepts these words.
fn taken(arg: &Arg, words: &[String]) -> Result<(), String> {
    // Without the part about options that are not in these words.
    let alone = arg
        .clone()
        .required(false)
        .global(false)
        .conflicts_with(Resettable::Reset)
        .requires(Resettable::Reset)
        .required_unless_present(Resettable::Reset);
    let command = Command::new("x").disable_help_flag(true).arg(alone);
    let line = std::iter::once("x").chain(words.iter().map(String::as_str));
    command.try_get_matches_from(line).map(|_| ()).map_err(|error| usage::said(&error.to_string()))
}
