//! The program that an operator installs: `seekless`.
//!
//! It joins the parsers of its commands; what both programs do around their commands is in the crate
//! `program`. The laboratory's commands are another program's, `seekless-lab` ([`laboratory`]).

mod laboratory;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use seekless_base::Fault;
use seekless_program::{
    ConfigArgs, ConfigOptions, EXIT_STATUS, LogOptions, MovedOption, PageCommand, words_in_force,
};

/// Serve several times more from the same hard disks, without changing the server.
#[derive(Debug, Parser)]
#[command(name = "seekless", version, arg_required_else_help = true, after_help = after_help())]
struct Seekless {
    #[command(flatten)]
    log: LogOptions,
    #[command(flatten)]
    config: ConfigOptions,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a command with the shim in front of its reads; start a daemon if none runs
    Run(seekless_daemon::cli::RunArgs),
    /// Serve shims until told to stop; `daemon status` shows what it does
    Daemon(seekless_daemon::cli::DaemonArgs),
    /// Serve every program that reads under folders, without a preload, until interrupted
    Watch(seekless_daemon::cli::WatchArgs),
    /// Read ahead for every program that reads under folders; nothing is restarted, no program waits
    Observe(seekless_daemon::cli::ObserveArgs),
    /// Show on the terminal what a running daemon does with its disks
    Top(seekless_admin::top::TopArgs),
    /// Measure for some minutes what reading ahead gains for the programs that read under folders
    Try(seekless_admin::prove::TryArgs),
    /// Measure what Seekless gains on a running server, with its own clients
    Prove(seekless_admin::prove::ProveArgs),
    /// Preload the shim into a server that systemd starts
    Enable(seekless_admin::enable::EnableArgs),
    /// Remove what `enable` wrote
    Disable(seekless_admin::enable::DisableArgs),
    /// Have a running daemon close the files of a file system, so that it can be unmounted
    Release(seekless_admin::release::ReleaseArgs),
    /// Say whether the shim is in a process, and what would help on this machine
    Doctor(seekless_admin::doctor::DoctorArgs),
    /// Serve files over HTTP, never waiting for a disk
    Serve(seekless_http::cli::ServeArgs),
    /// Download files in any order the server likes; verified, resumed after interruptions
    Get(seekless_http::cli::GetArgs),
    /// List disks, measure them, and set the kernel by what was measured
    Disk(seekless_admin::disk::cli::DiskArgs),
    /// Sort paths into the order in which their disk reads them best, and read ahead of their consumer
    Order(seekless_order::cli::OrderArgs),
    /// Write the contents of files as one tar stream, in the order in which their disk reads them best
    CatSet(seekless_order::cat::CatSetArgs),
    /// Check the configuration file, or show which options are in force and where they are set
    Config(ConfigArgs),
    #[command(flatten)]
    Laboratory(laboratory::LaboratoryCommand),
    #[command(flatten)]
    Pages(PageCommand),
}

/// The commands as `--help` groups them.
const GROUPS: [(&str, &[&str]); 4] = [
    ("Serve better", &["run", "daemon", "watch", "observe", "serve", "enable", "disable", "release"]),
    ("Look", &["top", "doctor", "disk", "config"]),
    ("Prove", &["try", "prove"]),
    ("Files", &["get", "order", "cat-set"]),
];

fn after_help() -> String {
    format!(
        "The laboratory (demo, plan, bitrates, sim, vdisk, load, experiments) is the program seekless-lab.\n\n{EXIT_STATUS}"
    )
}

/// The parser as the program shows it.
fn program() -> clap::Command {
    seekless_program::grouped(seekless_program::pointed(Seekless::command(), true), &GROUPS)
}

/// Options of the release before.
fn moved() -> Vec<MovedOption> {
    let switches = ["slow-start", "answer-late", "single-queue"];
    let of =
        |name, now, effective| MovedOption { name, takes_value: !switches.contains(&name), now, effective };
    let parameters = seekless_options::MOVED.into_iter().map(|name| of(name, "parameter", true));
    let bounds = seekless_http::cli::MOVED.into_iter().map(|name| of(name, "bound", true));
    parameters
        .chain(bounds)
        .chain([
            of("drop-behind", "parameter", false),
            of("hold", "parameter", false),
            of("next-files", "keep-metadata", false),
            of("plot", "no-store", false),
        ])
        .collect()
}

fn main() -> ExitCode {
    seekless_program::run(
        "seekless",
        program(),
        moved(),
        |seekless: &Seekless| seekless.log.log_format,
        dispatch,
    )
}

/// `run` passes on the status of the command it ran; everything else ends with one of ours.
fn dispatch(seekless: Seekless) -> Result<ExitCode, Fault> {
    let exit = match seekless.command {
        Command::Run(args) => return seekless_daemon::cli::run_run(args),
        Command::Laboratory(command) => return Err(command.start(seekless.log.log_format)),
        Command::Config(args) => args.run(&program(), seekless.config.config),
        Command::Daemon(args) => seekless_daemon::cli::run_daemon(args),
        Command::Watch(args) => seekless_daemon::cli::run_watch(args, words_in_force()),
        Command::Observe(args) => seekless_daemon::cli::run_observe(args),
        Command::Top(args) => seekless_admin::top::run_top(args),
        Command::Try(args) => seekless_admin::prove::run_try(args),
        Command::Prove(args) => seekless_admin::prove::run_prove(args),
        Command::Enable(args) => seekless_admin::enable::run_enable(args),
        Command::Disable(args) => seekless_admin::enable::run_disable(args),
        Command::Release(args) => seekless_admin::release::run_release(args),
        Command::Doctor(args) => seekless_admin::doctor::run_doctor(args),
        Command::Serve(args) => seekless_http::cli::run_serve(args),
        Command::Get(args) => seekless_http::cli::run_get(args),
        Command::Disk(args) => seekless_admin::disk::cli::run(args),
        Command::Order(args) => seekless_order::cli::run(args),
        Command::CatSet(args) => seekless_order::cat::run(args),
        Command::Pages(command) => command.run(program()),
    }?;
    Ok(ExitCode::from(exit as u8))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use seekless_program::usage;

    use super::*;

    fn said(words: &str) -> String {
        let words = words.split(' ').map(OsString::from).collect();
        usage::matches(program(), words).unwrap_err().1.expect("an error, not help")
    }

    #[test]
    fn each_mistake_is_one_line_with_what_to_write() {
        for (words, part) in [
            ("seekless daemon --budget -5", "for '--budget <SIZE>': `-5` is not a size"),
            (
                "seekless daemon --budget -5MiB",
                "unexpected argument '-5' found; values are not negative; see",
            ),
            ("seekless daemon --connections -1", "see `seekless daemon --help`"),
            (
                "seekless daemon --bugdet 5",
                "a similar argument exists: '--budget'; see `seekless daemon --help`",
            ),
            ("seekless order --by colour", "[possible values: address, inode, listed]"),
            ("seekless nosuch", "unrecognized subcommand 'nosuch'; see `seekless --help`"),
        ] {
            let line = said(words);
            assert!(line.contains(part) && !line.contains('\n') && !line.contains("error:"), "{line}");
        }
    }

    #[test]
    fn help_is_no_mistake_and_flags_that_are_digits_stay_flags() {
        let of = |words: &str| usage::matches(program(), words.split(' ').map(OsString::from).collect());
        assert_eq!(of("seekless --help").unwrap_err().1, None);
        assert_eq!(of("seekless disk").unwrap_err().1, None);
        let order = of("seekless order a -0").unwrap();
        let (_, order) = order.subcommand().unwrap();
        assert!(order.get_flag("null"));
    }

    #[test]
    fn the_words_of_a_laboratory_command_are_passed_on_as_they_are() {
        for words in [
            "sim serve --json",
            "lab run x --sim",
            "vdisk --help",
            "demo",
            "plan --memory -5",
            "load -h",
            "bitrates /srv -o x",
        ] {
            let words: Vec<&str> = words.split(' ').collect();
            let line = [&["seekless"], &words[..]].concat();
            let Command::Laboratory(command) = Seekless::try_parse_from(line).unwrap().command else {
                panic!()
            };
            let expected = if words[0] == "lab" { &words[1..] } else { &words[..] };
            assert_eq!(command.into_args(), expected);
        }
    }

    #[test]
    fn the_command_line_is_consistent() {
        usage::with_negative_values(program()).debug_assert();
    }
}
