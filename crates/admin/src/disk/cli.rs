//! The command line.

use clap::{Args, Subcommand};
use seekless_base::{Exit, Fault};

use crate::disk::list::ListArgs;
use crate::disk::profile::ProfileArgs;
use crate::disk::tune::TuneArgs;
use crate::disk::{list, profile, tune};

/// Disks: list them, measure them, tune the kernel for them
#[derive(Args, Debug)]
pub struct DiskArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// List the disks of this machine, their settings, and whether they have been measured
    List(ListArgs),
    /// Measure a disk: seek times, rotation, transfer rates, command overhead
    ///
    /// It only reads, past the page cache, for less than two minutes of the disk's time. While others use the
    /// disk it takes --share of the time and measures again what they disturbed. It keeps processors from
    /// sleeping meanwhile; in a virtual machine a thread of the lowest priority on each processor does that.
    Profile(ProfileArgs),
    /// Set read-ahead, command size, scheduler and queue depth by a disk's profile; without an option only
    /// show what would be set and what it should give
    Tune(TuneArgs),
}

/// Carries out a `disk` command.
///
/// # Errors
/// One line for the user, with the exit status.
pub fn run(args: DiskArgs) -> Result<Exit, Fault> {
    match args.command {
        Command::List(args) => list::run(&args),
        Command::Profile(args) => profile::run(&args),
        Command::Tune(args) => tune::run(&args),
    }
}
