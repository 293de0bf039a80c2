//! `seekless-lab vdisk`: the command line.

mod down;
mod list;
mod populate;
mod running;
mod up;

use std::io::Write;

use clap::{Args, Subcommand};
use seekless_base::{Exit, Fault};
use seekless_output::JsonOption;
use serde::Serialize;

use crate::config::DiskConfig;
use crate::message::fault_to_json;
use crate::{supervisor, worker};

/// A hard disk made of software: a block device, or a directory, that takes as long as a real drive.
#[derive(Debug, Args)]
pub struct VdiskArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make a disk, with a file system on it, and mount it
    Up(Box<up::UpArgs>),
    /// Take a disk down and remove everything of it
    Down(down::DownArgs),
    /// Show all disks
    List(list::ListArgs),
    /// Show what a disk has done since its start or the last reset
    Stats(running::StatsArgs),
    /// Make a disk fail, hang or slow down, or repair it
    Fault(running::FaultArgs),
    /// Start or end a trace of a disk's commands
    Trace(running::TraceArgs),
    /// Fill a disk with files whose content follows from path and offset
    Populate(populate::PopulateArgs),
    /// List the drive models
    Drives(list::DrivesArgs),
    /// Supervise a disk (started by `up`)
    #[command(hide = true)]
    Supervise(InnerArgs),
    /// Serve a disk's bytes (started by the supervisor)
    #[command(hide = true)]
    Worker(InnerArgs),
    /// Clean up a disk whose supervisor died (started by its worker)
    #[command(hide = true)]
    Clean(down::DownArgs),
}

#[derive(Debug, Args)]
struct InnerArgs {
    /// A disk's configuration as JSON
    config: String,
}

/// The disk that a command is about.
#[derive(Debug, Args)]
struct DiskArgs {
    /// Name of the disk
    #[arg(long)]
    name: String,
    #[command(flatten)]
    json: JsonArgs,
}

/// Where a command's JSON goes.
#[derive(Debug, Args)]
struct JsonArgs {
    #[command(flatten)]
    json: JsonOption,
}

impl JsonArgs {
    /// Writes `value` if JSON was asked for, else prints `text`.
    fn show(&self, value: &impl Serialize, text: impl FnOnce() -> String) -> Result<(), Fault> {
        let Some(path) = self.json.path() else { return seekless_output::print(text()) };
        if seekless_output::is_stdout(path) {
            return seekless_output::json(path, value);
        }
        // As for every path of these commands, the exit status says whether it is missing or not permitted.
        let written = seekless_output::replace(path, seekless_output::pretty(value)?);
        written.map_err(|e| crate::state::cannot("write", path, &e))
    }
}

/// Runs one `seekless-lab vdisk` command.
///
/// # Errors
/// What a person has to know, in one line, with the exit status; nothing is left behind then.
pub fn run(args: VdiskArgs) -> Result<Exit, Fault> {
    match args.command {
        Command::Up(args) => up::run(&args),
        Command::Down(args) => down::run(&args),
        Command::List(args) => list::run(&args),
        Command::Stats(args) => running::stats(&args),
        Command::Fault(args) => running::fault(&args),
        Command::Trace(args) => running::trace(&args),
        Command::Populate(args) => populate::run(&args),
        Command::Drives(args) => list::drives(&args),
        Command::Supervise(args) => {
            // A session of its own: the end of the terminal does not end the disk.
            let _ = rustix::process::setsid();
            inner(&args, |config| {
                supervisor::run(config, |record| {
                    tell(&serde_json::to_value(record).unwrap_or_default());
                })
            })
        }
        Command::Worker(args) => inner(&args, worker::run),
        Command::Clean(args) => down::clean(&args),
    }
}

/// Runs a child whose first words go to the process that started it, as JSON, faults included.
fn inner(args: &InnerArgs, run: impl FnOnce(&DiskConfig) -> Result<Exit, Fault>) -> Result<Exit, Fault> {
    let config: DiskConfig = serde_json::from_str(&args.config)
        .map_err(|e| Fault::usage(format!("--config is not a disk's configuration: {e}")))?;
    run(&config).inspect_err(|fault| tell(&fault_to_json(fault)))
}

/// A line to the process that started us; it may have stopped listening.
fn tell(value: &serde_json::Value) {
    let mut out = std::io::stdout();
    let _ = writeln!(out, "{value}").and_then(|()| out.flush());
}
