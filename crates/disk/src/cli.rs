//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use seekless_units::{Exit, Fault};

use crate::{list, profile, tune};

/// Disks: list them, measure them, tune the kernel for them
#[derive(Args, Debug)]
pub struct DiskArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// The disks of this machine, how they are set, and whether they have been measured
    List(ListArgs),
    /// Measure a disk: seek times, rotation, transfer rates, command overhead
    ///
    /// Reads only, past the page cache. Takes less than two minutes of the disk's time. While others use the disk it
    /// keeps to a share of its time and measures again what they disturbed. Processors are kept from sleeping meanwhile;
    /// in a virtual machine a thread of the lowest priority on each does that.
    Profile(ProfileArgs),
    /// Set read-ahead, command size, scheduler and queue depth by the disk's profile; without an option only say what
    /// would be set and what it is expected to give
    Tune(TuneArgs),
}

#[derive(Args, Debug)]
pub(crate) struct ListArgs {
    /// Print JSON, to FILE or, without FILE or with `-`, to standard output
    #[arg(long, num_args = 0..=1, default_missing_value = "-", value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct ProfileArgs {
    /// A block device, or a directory or file on the disk
    #[arg(value_name = "DEV|DIR")]
    pub(crate) target: PathBuf,
    /// Print JSON, to FILE or, without FILE or with `-`, to standard output
    #[arg(long, num_args = 0..=1, default_missing_value = "-", value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Part of the disk's time to take while others use it, 1% to 100%; an idle disk is measured without pause
    #[arg(long, default_value = "10%", value_parser = parse_share)]
    pub(crate) share: f64,
    /// Give up after this long, for example 90s or 20m
    #[arg(long, default_value = "20m", value_parser = parse_duration)]
    pub(crate) duration: Duration,
    /// Write the plot here instead of beside the stored profile
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<PathBuf>,
    /// Do not store the profile
    #[arg(long)]
    pub(crate) no_store: bool,
    /// Hold it against the model of this drive (`seekless vdisk drives`), for a virtual disk as large as that drive
    #[arg(long, value_name = "DRIVE")]
    pub(crate) against: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct TuneArgs {
    /// A block device, or a directory or file on the disk; all disks that turn if left out
    #[arg(value_name = "DEV|DIR")]
    pub(crate) target: Option<PathBuf>,
    /// Set it now; what was set before is kept for --revert
    #[arg(long, conflicts_with = "revert")]
    pub(crate) apply: bool,
    /// Put back exactly what was set before --apply, and take away the rule of --persist
    #[arg(long, conflicts_with = "persist")]
    pub(crate) revert: bool,
    /// Write a udev rule so that it is set again after a restart
    #[arg(long)]
    pub(crate) persist: bool,
    /// Sequential readers to expect at once
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) streams: u32,
    /// Where udev rules go
    #[arg(long, default_value = "/etc/udev/rules.d", hide = true)]
    pub(crate) udev_dir: PathBuf,
    /// Where the devices are
    #[arg(long, default_value = "/sys/block", hide = true)]
    pub(crate) sys_block: PathBuf,
    /// Print JSON, to FILE or, without FILE or with `-`, to standard output
    #[arg(long, num_args = 0..=1, default_missing_value = "-", value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
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

fn parse_share(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').ok_or("write a percentage, for example 10%")?;
    let percent: f64 = number.trim().parse().map_err(|_| "write a percentage, for example 10%")?;
    if (1.0..=100.0).contains(&percent) {
        Ok(percent / 100.0)
    } else {
        Err("it lies within 1% and 100%".into())
    }
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || "write for example 90s, 20m or 1h".to_string();
    let split = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
    let number: u64 = text[..split].parse().map_err(|_| wrong())?;
    let unit = match text[split..].trim() {
        "s" => 1,
        "m" | "min" => 60,
        "h" => 3600,
        _ => return Err(wrong()),
    };
    let seconds = number.checked_mul(unit).filter(|s| (10..=86_400).contains(s));
    seconds.map(Duration::from_secs).ok_or_else(|| "it lies within 10s and 24h".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_durations() {
        assert_eq!(parse_share("10%"), Ok(0.1));
        assert_eq!(parse_duration("2m"), Ok(Duration::from_secs(120)));
        for wrong in ["10", "0%", "101%", "x%", "NaN%"] {
            assert!(parse_share(wrong).is_err(), "{wrong}");
        }
        for wrong in ["10", "s", "1s", "99h", "5 furlongs", "99999999999999999999s"] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
    }
}
