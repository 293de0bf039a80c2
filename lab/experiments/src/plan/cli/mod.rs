//! `seekless-lab plan`.

mod by_formula;
mod by_log;

use std::path::PathBuf;

use clap::Args;
use seekless_base::{Bytes, Exit, Fault};
use seekless_model::drive::{DriveSpec, catalogue};
use seekless_model::load_options::{LenientOption, SeedOption};
use seekless_output::{HtmlOption, JsonOption};

/// What a site needs: from its access log with --log, else by the capacity model of Circus for a link full of
/// clients.
#[derive(Args, Clone, Debug)]
pub struct PlanArgs {
    /// Access log in common or combined format, plain or compressed (gzip, xz, zstd); `-` means standard
    /// input
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    #[command(flatten)]
    lines: LenientOption,
    /// With --log: compute an exact miss-ratio curve instead of a sampled one; takes 150 bytes of memory for
    /// each --part
    #[arg(long, requires = "log")]
    exact: bool,
    /// With --log: size of the parts of files that are followed
    #[arg(long, default_value = "256KiB", value_name = "SIZE")]
    part: Bytes,
    /// Model of the disks, of `seekless-lab vdisk drives`
    #[arg(long, default_value = "wd-red-1tb", value_name = "NAME")]
    drive: String,
    /// With --log: number of disks
    #[arg(long, default_value_t = 1, value_name = "N")]
    disks: u64,
    /// Memory of the machine for page cache, buffers and read-ahead
    #[arg(long, default_value = "8GiB", value_name = "SIZE")]
    memory: Bytes,
    /// With --log: rate to plan for, such as 500MB/s or 10Gb/s [default: twice the log's busiest minute]
    #[arg(long, value_name = "RATE", requires = "log")]
    rate: Option<String>,
    /// With --log: concurrent streams for which the drive is measured, 1 to 10000
    #[arg(long, default_value_t = 100, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    streams: u32,
    /// Without --log: rate of the server's link
    #[arg(long, default_value = "1Gb/s", value_name = "RATE", conflicts_with = "log")]
    link: String,
    /// Without --log: rate of a client
    #[arg(long, default_value = "10Mb/s", value_name = "RATE", conflicts_with = "log")]
    client: String,
    /// Without --log: size of the data
    #[arg(long, default_value = "64GiB", value_name = "SIZE", conflicts_with = "log")]
    data: Bytes,
    /// Without --log: block size
    #[arg(long, default_value = "256KiB", value_name = "SIZE", conflicts_with = "log")]
    block: Bytes,
    /// Without --log: positioning time of the disk in milliseconds, instead of the drive's own
    #[arg(long, value_name = "MS", conflicts_with = "log")]
    position: Option<f64>,
    /// Without --log: sequential rate of the disk, instead of the drive's own
    #[arg(long, value_name = "RATE", conflicts_with = "log")]
    sequential: Option<String>,
    /// Without --log: only the formulas, no simulation beside them
    #[arg(long, conflicts_with = "log")]
    formula_only: bool,
    #[command(flatten)]
    from: SeedOption,
    #[command(flatten)]
    page: HtmlOption,
    #[command(flatten)]
    json: JsonOption,
}

/// Runs `seekless-lab plan`.
///
/// # Errors
/// One line that says what is wrong and how to mend it.
pub fn run(args: PlanArgs) -> Result<Exit, Fault> {
    match &args.log {
        Some(log) => by_log::run(&args, log),
        None => by_formula::run(&args),
    }
}

fn usage(message: impl Into<String>) -> Fault {
    Fault::new(Exit::Usage, message)
}

fn drive(args: &PlanArgs) -> Result<DriveSpec, Fault> {
    catalogue::find(&args.drive).map_err(|why| usage(why.to_string()))
}

/// Reads `500MB/s` or `10Gb/s`, bytes a second.
fn rate(option: &str, text: &str) -> Result<f64, Fault> {
    let units =
        [("kB/s", 1e3), ("MB/s", 1e6), ("GB/s", 1e9), ("kb/s", 125.0), ("Mb/s", 125e3), ("Gb/s", 125e6)];
    let found = units
        .iter()
        .find_map(|(unit, factor)| Some(text.strip_suffix(unit)?.trim().parse::<f64>().ok()? * factor));
    found.filter(|r| (1e3..=1e13).contains(r)).ok_or_else(|| {
        usage(format!("--{option} `{text}` is no rate; write for example 500MB/s (bytes) or 10Gb/s (bits)"))
    })
}

fn table(rows: &[Vec<String>]) -> String {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::UTF8_FULL_CONDENSED);
    if let Some((head, rest)) = rows.split_first() {
        table.set_header(head);
        rest.iter().for_each(|row| {
            table.add_row(row);
        });
    }
    format!("{table}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_bits_or_bytes_and_nothing_in_between() {
        assert_eq!(rate("rate", "500MB/s").unwrap(), 5e8);
        assert_eq!(rate("rate", "1 Gb/s").unwrap(), 1.25e8);
        for bad in ["", "500", "MB/s", "-5MB/s", "1Mbit", "nanGB/s", "9e99GB/s"] {
            assert_eq!(rate("rate", bad).unwrap_err().exit, Exit::Usage, "{bad}");
        }
    }
}
