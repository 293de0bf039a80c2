//! `seekless-lab plan`.

mod by_formula;
mod by_log;

use std::path::PathBuf;

use clap::Args;
use seekless_base::{Bytes, Exit, Fault};
use seekless_model::drive::{DriveSpec, catalogue};
use seekless_model::load_options::{DriveOption, LenientOption, SeedOption};
use seekless_model::with::WithOption;
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
    #[command(flatten)]
    drive: DriveOption,
    /// With --log: number of disks
    #[arg(long, default_value_t = 1, value_name = "N")]
    disks: u64,
    /// Memory of the machine for page cache, buffers and read-ahead
    #[arg(long, default_value = "8GiB", value_name = "SIZE")]
    memory: Bytes,
    /// With --log: rate to plan for, such as 500MB/s or 10Gb/s [default: twice the log's busiest minute]
    #[arg(long, value_name = "RATE", requires = "log")]
    rate: Option<String>,
    /// Without --log: rate of the server's link
    #[arg(long, default_value = "1Gb/s", value_name = "RATE", conflicts_with = "log")]
    link: String,
    /// Without --log: rate of a client
    #[arg(long, default_value = "10Mb/s", value_name = "RATE", conflicts_with = "log")]
    client: String,
    /// Without --log: size of the data
    #[arg(long, default_value = "64GiB", value_name = "SIZE", conflicts_with = "log")]
    data: Bytes,
    #[command(flatten)]
    with: WithOption,
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

/// The drive, if none is named.
const DRIVE: &str = "wd-red-1tb";

fn usage(message: impl Into<String>) -> Fault {
    Fault::usage(message)
}

fn drive(args: &PlanArgs) -> Result<DriveSpec, Fault> {
    catalogue::find(args.drive.name(DRIVE)).map_err(|why| usage(why.to_string()))
}

/// Reads `500MB/s` or `10Gb/s`, bytes a second.
fn rate(option: &str, text: &str) -> Result<f64, Fault> {
    let units =
        [("kB/s", 1e3), ("MB/s", 1e6), ("GB/s", 1e9), ("kb/s", 125.0), ("Mb/s", 125e3), ("Gb/s", 125e6)];
    let found = units
        .iter()
        .find_map(|(unit, factor)| Some(text.strip_suffix(unit)?.trim().parse::<f64>().ok()? * factor));
    found.filter(|r| (1e3..=1e13).contains(r)).ok_or_else(|| {
        usage(format!("{option} `{text}` is no rate; write for example 500MB/s (bytes) or 10Gb/s (bits)"))
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
