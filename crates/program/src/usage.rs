//! The command line as clap parses it. An error is one line, like every other.

use std::ffi::OsString;

use clap::builder::ValueRange;
use clap::error::ErrorKind;
use clap::{Arg, ArgMatches, Command};

/// Errors of the standard library for malformed numbers, and the texts that replace them.
const NUMBERS: [(&str, &str); 5] = [
    ("invalid digit found in string", "write a whole number without a sign"),
    ("cannot parse integer from empty string", "write a whole number"),
    ("number too large to fit in target type", "write a smaller number"),
    ("invalid float literal", "write a number"),
    ("cannot parse float from empty string", "write a number"),
];

/// The parsed command line, or the error with its line. Help and version have no line, because clap prints
/// them.
///
/// # Errors
/// The words are not a command line of `command`.
pub fn matches(command: Command, words: Vec<OsString>) -> Result<ArgMatches, (clap::Error, Option<String>)> {
    let mut command = with_negative_values(command);
    let told = words.clone();
    command.try_get_matches_from_mut(words).map_err(|error| {
        let asked = matches!(
            error.kind(),
            ErrorKind::DisplayHelp
                | ErrorKind::DisplayVersion
                | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
        );
        let line = (!asked).then(|| line(&error.to_string(), &path(&command, &told)));
        (error, line)
    })
}

/// Takes `-5` behind an option as its value, so that the option's own parser rejects it.
pub fn with_negative_values(command: Command) -> Command {
    let negative = |arg: Arg| {
        let always = arg.get_num_args().unwrap_or(ValueRange::SINGLE).min_values() > 0;
        let takes = !arg.is_positional() && arg.get_action().takes_values() && always;
        if takes { arg.allow_negative_numbers(true) } else { arg }
    };
    command.mut_args(negative).mut_subcommands(with_negative_values)
}

/// The command that these words name, with those above it.
fn path(command: &Command, words: &[OsString]) -> String {
    let (mut at, mut path) = (command, command.get_name().to_string());
    for word in words.iter().skip(1).filter_map(|word| word.to_str()) {
        if let Some(below) = at.find_subcommand(word) {
            path = format!("{path} {}", below.get_name());
            at = below;
        }
    }
    path
}

/// One line, with a pointer to the help.
fn line(text: &str, path: &str) -> String {
    format!("{}; see `{path} --help`", said(text))
}

/// One line made of clap's paragraphs, without those that every error has.
pub(crate) fn said(text: &str) -> String {
    let text = text.trim_start_matches("error: ");
    let all = text.split("\n\n").map(|paragraph| paragraph.split_whitespace().collect::<Vec<_>>().join(" "));
    let said = all.filter(|p| !p.is_empty() && !p.starts_with("Usage: ") && !p.starts_with("For more "));
    let mut said: Vec<String> = said.map(|p| p.trim_start_matches("tip: ").to_string()).collect();
    // Clap reads a negative number with a unit, `-5MiB`, as flags.
    let below_zero = |rest: &str| rest.starts_with(|c: char| c.is_ascii_digit());
    if text.strip_prefix("unexpected argument '-").is_some_and(below_zero) {
        said.truncate(1);
        said.push("values are not negative".to_string());
    }
    let mut line = said.join("; ");
    for (theirs, ours) in NUMBERS {
        line = line.replace(theirs, ours);
    }
    range_to_write(&line).unwrap_or(line)
}

/// Turns clap's `...: 0 is not in 1..=64` into what to write.
fn range_to_write(line: &str) -> Option<String> {
    let (before, range) = line.rsplit_once(" is not in ")?;
    let (least, most) = range.split_once("..=")?;
    let (option, _) = before.rsplit_once(": ")?;
    Some(format!("{option}: write {least} to {most}"))
}
