//! Command-line arguments that several commands share, and the readers of times, rates and links.

use std::path::PathBuf;

use clap::Args;
use seekless_base::{Fault, Nanos};
use seekless_model::load_options::{LibraryOptions, SeedOption};
use seekless_model::workload::catalogue::Catalogue;
use seekless_model::workload::session::ClientClass;
use seekless_output::JsonOption;

use crate::run::RunSettings;
use crate::target::TargetServer;

/// Worker threads of a run: one carries several GB/s, more than a disk or the loopback device delivers.
const THREADS: u32 = 1;

/// Most clients at once; a further one fails at once. At half, a server that stands still for a minute under
/// the highest rate of the papers meets it; at double, the descriptors of this process may not suffice.
pub(crate) const MAX_CLIENTS: u64 = 20_000;

/// Which library the server serves.
#[derive(Args, Clone, Debug)]
pub struct CatalogueArgs {
    /// Drawn, unless a manifest is given.
    #[command(flatten)]
    pub library: LibraryOptions,
    /// Read the library from a manifest (lines `size path`) instead of drawing one
    #[arg(long, value_name = "FILE", conflicts_with_all = ["videos", "library", "file_size", "content", "hd_share"])]
    pub manifest: Option<PathBuf>,
}

impl CatalogueArgs {
    /// The library.
    ///
    /// # Errors
    /// A value out of range, or a manifest that cannot be read (usage, missing).
    pub fn catalogue(&self) -> Result<Catalogue, Fault> {
        match &self.manifest {
            None => Catalogue::new(&self.library.spec()).map_err(|e| Fault::usage(e.to_string())),
            Some(path) => Catalogue::from_manifest(
                seekless_output::input::text(path)?.as_bytes(),
                self.library.zipf,
                self.library.catalogue_seed,
            )
            .map_err(|e| Fault::usage(format!("{}: {e}", path.display()))),
        }
    }
}

/// How a run is made, whatever its load.
#[derive(Args, Clone, Debug)]
pub struct RunArgs {
    /// URL of the server, with the path of the library
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8080/")]
    pub url: String,
    /// For https: trusted certificates (PEM)
    #[arg(long, value_name = "FILE")]
    pub cacert: Option<PathBuf>,
    /// Requests due before this time are not measured
    #[arg(long, value_name = "TIME", default_value = "0s")]
    pub warmup: Nanos,
    /// Run the clients' clock K times as fast as real time, to match --speedup of a software disk
    #[arg(long, value_name = "K", default_value_t = 1.0, value_parser = positive)]
    pub speedup: f64,
    /// Of the requests.
    #[command(flatten)]
    pub from: SeedOption,
    /// Do not compare the bytes received (for libraries that are not ours)
    #[arg(long)]
    pub no_verify: bool,
    /// Show no progress, even on a terminal
    #[arg(long)]
    pub quiet: bool,
    /// Where the result goes.
    #[command(flatten)]
    pub json: JsonOption,
}

impl RunArgs {
    /// The settings of a run of `length` (warm-up included; none: until the work is done) with these classes.
    ///
    /// # Errors
    /// A wrong URL, nobody there, a warm-up as long as the run.
    pub fn settings(&self, length: Option<Nanos>, classes: &[ClientClass]) -> Result<RunSettings, Fault> {
        if length.is_some_and(|l| l <= self.warmup) {
            let l = length.unwrap_or_default();
            return Err(Fault::usage(format!(
                "the warm-up of {} leaves nothing of a run of {l}; give a longer run",
                self.warmup
            )));
        }
        let target = TargetServer::parse(&self.url, self.cacert.as_deref())?;
        target.probe()?;
        Ok(RunSettings {
            target,
            verify: !self.no_verify,
            speedup: self.speedup,
            threads: THREADS,
            warmup: self.warmup,
            length,
            classes: classes.iter().map(|c| c.name.clone()).collect(),
            progress: !self.quiet,
        })
    }
}

/// The clients' lines, and their patience.
#[derive(Args, Clone, Debug)]
pub struct LineArgs {
    /// Link rates of the clients, such as 3.5Mb/s,10Mb/s (equal shares; a rate named twice has two), or
    /// `none` for no limit [default: 3.5Mb/s,10Mb/s; downloads 10Mb/s; closed none, and one rate only]
    #[arg(long, value_name = "RATES", value_delimiter = ',')]
    link: Vec<String>,
    /// Delay each way [default: 50ms; closed and downloads 0s]
    #[arg(long, value_name = "TIME")]
    delay: Option<Nanos>,
    /// Longest time of a request, of a segment from when it was due, or of a download [default: 10s; closed
    /// 60s; downloads 3600s]
    #[arg(long, value_name = "TIME")]
    timeout: Option<Nanos>,
}

/// What a command takes where [`LineArgs`] say nothing.
pub(crate) struct LineDefaults {
    pub(crate) links: &'static [&'static str],
    pub(crate) delay: Nanos,
    pub(crate) timeout: Nanos,
}

/// Viewers: half of them on each of \[L\]'s two links.
pub(crate) const VIEWERS: LineDefaults = LineDefaults {
    links: &["3.5Mb/s", "10Mb/s"],
    delay: Nanos::from_millis(50),
    timeout: Nanos::from_secs(10),
};

/// A closed loop has no player that runs dry.
pub(crate) const CLOSED: LineDefaults =
    LineDefaults { links: &["none"], delay: Nanos::ZERO, timeout: Nanos::from_secs(60) };

/// Whole files.
pub(crate) const DOWNLOADS: LineDefaults =
    LineDefaults { links: &["10Mb/s"], delay: Nanos::ZERO, timeout: Nanos::from_secs(3600) };

/// What sessions are, for the commands that run some.
#[derive(Args, Clone, Debug)]
pub(crate) struct SessionArgs {
    #[command(flatten)]
    pub(crate) catalogue: CatalogueArgs,
    #[command(flatten)]
    pub(crate) run: RunArgs,
    #[command(flatten)]
    pub(crate) line: LineArgs,
    /// Start without viewers, instead of with those of a long-running server
    #[arg(long)]
    pub(crate) cold_start: bool,
}

impl LineArgs {
    /// The classes of clients these lines make.
    ///
    /// # Errors
    /// An invalid rate (usage).
    pub(crate) fn classes(&self, defaults: &LineDefaults) -> Result<Vec<ClientClass>, Fault> {
        let usual = || defaults.links.iter().map(ToString::to_string).collect();
        let links = if self.link.is_empty() { usual() } else { self.link.clone() };
        classes(&links, self.delay.unwrap_or(defaults.delay))
    }

    pub(crate) fn timeout(&self, defaults: &LineDefaults) -> Nanos {
        self.timeout.unwrap_or(defaults.timeout)
    }
}

/// One class a link rate, with equal shares; a rate that is named twice has two.
///
/// # Errors
/// An invalid rate (usage).
pub fn classes(links: &[String], delay: Nanos) -> Result<Vec<ClientClass>, Fault> {
    let mut classes: Vec<ClientClass> = Vec::new();
    for name in links.iter().map(|text| text.trim()) {
        if let Some(again) = classes.iter_mut().find(|class| class.name == name) {
            again.share += 1.0;
            continue;
        }
        let link_bits_per_s = link_rate(name).map_err(|e| Fault::usage(format!("--link: {e}")))?;
        classes.push(ClientClass { name: name.to_string(), link_bits_per_s, delay, share: 1.0 });
    }
    Ok(classes)
}

/// Reads `3.5Mb/s`, `500kb/s`, `1Gb/s` (bits, powers of 1000), or `none`.
///
/// # Errors
/// Text that says what to write.
pub fn link_rate(text: &str) -> Result<Option<u64>, String> {
    let text = text.trim();
    if text == "none" {
        return Ok(None);
    }
    let wrong = || format!("`{text}` is not a link rate; write for example 3.5Mb/s, 500kb/s or none");
    let bits = text.strip_suffix("b/s").or_else(|| text.strip_suffix("bit/s")).ok_or_else(wrong)?;
    let (number, factor) = match bits.char_indices().next_back() {
        Some((i, 'k')) => (&bits[..i], 1e3),
        Some((i, 'M')) => (&bits[..i], 1e6),
        Some((i, 'G')) => (&bits[..i], 1e9),
        _ => (bits, 1.0),
    };
    let rate = number.trim().parse::<f64>().map_err(|_| wrong())? * factor;
    // Below 1 kb/s a segment takes hours: surely a slip of the unit.
    if rate.is_finite() && rate >= 1e3 { Ok(Some(rate as u64)) } else { Err(wrong()) }
}

/// Reads a number above 0.
///
/// # Errors
/// Text that says so.
pub fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(v) if v.is_finite() && v > 0.0 => Ok(v),
        _ => Err(format!("`{text}` is not a number above 0")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_positive_numbers_are_read() {
        assert_eq!(link_rate("3.5Mb/s"), Ok(Some(3_500_000)));
        assert_eq!(link_rate("none"), Ok(None));
        for bad in ["3.5MB/s", "fast", "0Mb/s", "10b/s"] {
            assert!(link_rate(bad).unwrap_err().contains("3.5Mb/s"), "{bad}");
        }
        assert!(positive("0").is_err() && positive("inf").is_err() && positive("2.5") == Ok(2.5));
    }
}
