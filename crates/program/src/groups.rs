//! The commands of a program in groups, as `--help` shows them.

use std::fmt::Write as _;

use clap::Command;

/// The program's help with its commands below these headings, in this order. Hidden commands stay hidden.
///
/// # Panics
/// A visible command is in no group, or a group names an unknown command: a mistake in the program, which a
/// test finds.
#[must_use]
pub fn grouped(command: Command, groups: &[(&str, &[&str])]) -> Command {
    let width = groups.iter().flat_map(|(_, names)| *names).map(|name| name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for (heading, names) in groups {
        let _ = writeln!(text, "{heading}:");
        for name in *names {
            let found = command.find_subcommand(name).unwrap_or_else(|| panic!("no command {name}"));
            let about = found.get_about().map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(text, "  {name:width$}  {}", about.lines().next().unwrap_or_default());
        }
        text.push('\n');
    }
    let listed = |name: &str| groups.iter().any(|(_, names)| names.contains(&name));
    let missing = command.get_subcommands().find(|c| !c.is_hide_set() && !listed(c.get_name()));
    assert!(missing.is_none(), "{} is in no group", missing.map_or("", Command::get_name));
    command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{text}Options:\n{{options}}{{after-help}}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program() -> Command {
        let command = |name: &'static str, about: &'static str| Command::new(name).about(about);
        Command::new("p").subcommands([command("one", "First"), command("three", "Last")])
    }

    #[test]
    fn commands_stand_below_their_heading() {
        let help = grouped(program(), &[("Look", &["three"]), ("Do", &["one"])]).render_help().to_string();
        assert!(help.contains("Look:\n  three  Last\n\nDo:\n  one    First\n\nOptions:\n"), "{help}");
    }

    #[test]
    #[should_panic(expected = "three is in no group")]
    fn no_command_is_forgotten() {
        let _ = grouped(program(), &[("Do", &["one"])]);
    }
}
