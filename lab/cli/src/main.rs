//! The program that a planner or a researcher installs: `seekless-lab`.
//!
//! It joins the laboratory's own parsers; what both programs do around their commands is in the crate
//! `program`.

mod bitrates;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use seekless_base::Fault;
use seekless_program::{EXIT_STATUS, LogOptions, MovedOption, PageCommand};

/// Plan, simulate and measure what Seekless gains, on disks made of software.
#[derive(Debug, Parser)]
#[command(name = "seekless-lab", version, arg_required_else_help = true, after_help = EXIT_STATUS)]
struct SeeklessLab {
    #[command(flatten)]
    log: LogOptions,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show on this machine what Seekless gains, in a few minutes
    Demo(seekless_experiments::cli::DemoArgs),
    /// Plan disks and memory for a site, from its access log or by formula
    Plan(Box<seekless_experiments::plan::cli::PlanArgs>),
    /// Write a table of bitrates from the headers of media files, for `--bitrates` of `seekless`
    Bitrates(bitrates::cli::BitratesArgs),
    /// Simulate in virtual time: a file server on hard disks, cache levels, downloads in any order
    Sim(seekless_sim::cli::SimArgs),
    /// Make hard disks of software
    Vdisk(seekless_vdisk::cli::VdiskArgs),
    /// Load a server with real clients and verify every byte
    Load(seekless_load::cli::LoadArgs),
    #[command(flatten)]
    Experiment(seekless_experiments::cli::LabCommand),
    #[command(flatten)]
    Pages(PageCommand),
}

/// The commands as `--help` groups them.
const GROUPS: [(&str, &[&str]); 3] = [
    ("Show and plan", &["demo", "plan", "bitrates"]),
    ("Experiments", &["list", "run", "report", "compare", "record", "docs", "statements", "against"]),
    ("Parts", &["sim", "vdisk", "load"]),
];

/// The parser as the program shows it.
fn program() -> clap::Command {
    seekless_program::grouped(seekless_program::pointed(SeeklessLab::command(), false), &GROUPS)
}

/// Options of the release before.
fn moved() -> Vec<MovedOption> {
    let of = |name| MovedOption {
        name,
        takes_value: !["exact", "formula-only", "pack"].contains(&name),
        now: "with",
        effective: true,
    };
    let cache_levels = ["block", "timing", "time-stretch", "clients"];
    let planner = ["exact", "part", "streams", "position", "sequential", "formula-only"];
    let downloads = ["files", "size", "memory", "time", "until"];
    let log = ["mode", "prefetch", "order", "ahead", "drive"];
    let disk = ["model", "spread", "spread-chunk", "queue-depth", "backing", "file-size", "into", "pack"];
    let rates = ["sessions", "trials", "ramp-over", "step", "runs", "precision"];
    let all = [&cache_levels[..], &planner, &downloads, &log, &disk, &rates].concat();
    let ignored = [MovedOption { now: "parameter", effective: false, ..of("hold") }];
    all.into_iter().map(of).chain(ignored).collect()
}

fn main() -> ExitCode {
    seekless_program::run(
        "seekless-lab",
        program(),
        moved(),
        |lab: &SeeklessLab| lab.log.log_format,
        dispatch,
    )
}

fn dispatch(lab: SeeklessLab) -> Result<ExitCode, Fault> {
    let exit = match lab.command {
        Command::Demo(args) => seekless_experiments::cli::run_demo(args),
        Command::Plan(args) => seekless_experiments::plan::cli::run(*args),
        Command::Bitrates(args) => bitrates::cli::run(&args),
        Command::Sim(args) => seekless_sim::cli::run(args),
        Command::Vdisk(args) => seekless_vdisk::cli::run(args),
        Command::Load(args) => seekless_load::cli::run(args),
        Command::Experiment(command) => seekless_experiments::cli::run(command),
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
            ("seekless-lab plan --memory -5", "for '--memory <SIZE>': `-5` is not a size"),
            (
                "seekless-lab plan --memory -5MiB",
                "unexpected argument '-5' found; values are not negative; see",
            ),
            ("seekless-lab plan --memory 5parsecs", "the unit is unknown; write for example 2MiB"),
            (
                "seekless-lab plan --disks -1",
                "write a whole number without a sign; see `seekless-lab plan --help`",
            ),
            (
                "seekless-lab plan --memry 5",
                "a similar argument exists: '--memory'; see `seekless-lab plan --help`",
            ),
            ("seekless-lab sim trace run x", "--levels <LEVELS>; see `seekless-lab sim trace run --help`"),
            ("seekless-lab compare a", "<SIMULATED>; see `seekless-lab compare --help`"),
            ("seekless-lab nosuch", "unrecognized subcommand 'nosuch'; see `seekless-lab --help`"),
        ] {
            let line = said(words);
            assert!(line.contains(part) && !line.contains('\n') && !line.contains("error:"), "{line}");
        }
    }

    #[test]
    fn help_of_the_simulator_shows_forty_options_at_most() {
        let mut program = program();
        program.build();
        let sim = program.find_subcommand("sim").unwrap();
        let mut serve = sim.find_subcommand("serve").unwrap().clone();
        let help = serve.render_long_help().to_string();
        let shown =
            help.lines().map(str::trim_start).filter(|l| l.starts_with("--") || l.starts_with("-h, --"));
        assert!(shown.count() <= 40, "{help}");
        assert!(help.contains("`man seekless-lab-sim-serve` describes every option."), "{help}");
    }

    #[test]
    fn the_command_line_is_consistent() {
        usage::with_negative_values(program()).debug_assert();
    }
}
