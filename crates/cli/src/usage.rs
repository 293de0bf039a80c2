//! The command line as clap reads it. A wrong one is one line, as every other error.

use std::ffi::OsString;

use clap::builder::ValueRange;
use clap::error::ErrorKind;
use clap::{Arg, ArgMatches, Command};

/// Errors of the standard library for malformed numbers, and our text for each.
const NUMBERS: [(&str, &str); 5] = [
    ("invalid digit found in string", "write a whole number without a sign"),
    ("cannot parse integer from empty string", "write a whole number"),
    ("number too large to fit in target type", "write a smaller number"),
    ("invalid float literal", "write a number"),
    ("cannot parse float from empty string", "write a number"),
];

/// The parsed command line, or the error with its line. Help and version have no line: clap prints them.
pub(crate) fn matches(
    command: Command,
    words: Vec<OsString>,
) -> Result<ArgMatches, (clap::Error, Option<String>)> {
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
fn with_negative_values(command: Command) -> Command {
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

/// One line out of clap's paragraphs, without those that every error has.
fn line(text: &str, path: &str) -> String {
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
    format!("{line}; see `{path} --help`")
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::Seekless;

    fn said(words: &str) -> String {
        let words = words.split(' ').map(OsString::from).collect();
        matches(Seekless::command(), words).unwrap_err().1.expect("an error, not help")
    }

    #[test]
    fn each_mistake_is_one_line_with_what_to_write() {
        for (words, part) in [
            ("seekless plan --memory -5", "for '--memory <SIZE>': `-5` is not a size"),
            ("seekless plan --memory -5MiB", "unexpected argument '-5' found; values are not negative; see"),
            ("seekless plan --memory 5parsecs", "the unit is unknown; write for example 2MiB"),
            ("seekless plan --disks -1", "write a whole number without a sign; see `seekless plan --help`"),
            ("seekless plan --memry 5", "a similar argument exists: '--memory'; see `seekless plan --help`"),
            ("seekless sim trace run x", "--levels <LEVELS>; see `seekless sim trace run --help`"),
            ("seekless lab compare a", "<SIMULATED>; see `seekless lab compare --help`"),
            ("seekless order --by colour", "[possible values: address, inode, listed]"),
            ("seekless nosuch", "unrecognized subcommand 'nosuch'; see `seekless --help`"),
        ] {
            let line = said(words);
            assert!(line.contains(part) && !line.contains('\n') && !line.contains("error:"), "{line}");
        }
    }

    #[test]
    fn help_is_no_mistake_and_flags_that_are_digits_stay_flags() {
        let of = |words: &str| matches(Seekless::command(), words.split(' ').map(OsString::from).collect());
        assert_eq!(of("seekless --help").unwrap_err().1, None);
        assert_eq!(of("seekless sim").unwrap_err().1, None);
        let order = of("seekless order a -0").unwrap();
        let (_, order) = order.subcommand().unwrap();
        assert!(order.get_flag("null"));
    }

    #[test]
    fn the_command_line_is_consistent() {
        with_negative_values(Seekless::command()).debug_assert();
    }
}
