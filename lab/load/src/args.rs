//! Command-line arguments that several commands share, and the readers of times, rates and links.

use std::path::PathBuf;

use clap::Args;
use seekless_base::{Bytes, Exit, Fault, Nanos, share};
use seekless_model::workload::catalogue::{Catalogue, CatalogueSpec, Content};
use seekless_model::workload::session::ClientClass;

use crate::run::RunSettings;
use crate::target::TargetServer;

/// Which library the server serves. The same arguments always give the same library.
#[derive(Args, Clone, Debug)]
pub struct CatalogueArgs {
    /// Number of videos [default: as many as fill --library, or 20000]
    #[arg(long, value_name = "N")]
    pub videos: Option<u32>,
    /// Size of the whole library, such as 7.4GB
    #[arg(long, value_name = "SIZE")]
    pub library: Option<Bytes>,
    /// Make every file this large instead of drawing durations
    #[arg(long, value_name = "SIZE")]
    pub file_size: Option<Bytes>,
    /// Kind of files: videos, clips, index or mirror
    #[arg(long, value_name = "KIND", default_value = "videos")]
    pub content: Content,
    /// Share of HD (2095 kb/s) videos, 0 to 1; the rest is SD (419 kb/s)
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = share)]
    pub hd_share: f64,
    /// Zipf exponent of the popularity
    #[arg(long, value_name = "EXPONENT", default_value_t = 0.8)]
    pub zipf: f64,
    /// Seed of the library (not of the requests)
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    pub catalogue_seed: u64,
    /// Read the library from a manifest (lines `size path`) instead of drawing one
    #[arg(long, value_name = "FILE", conflicts_with_all = ["videos", "library", "file_size", "content", "hd_share"])]
    pub manifest: Option<PathBuf>,
}

impl CatalogueArgs {
    /// The specification these arguments stand for (without the manifest).
    pub fn spec(&self) -> CatalogueSpec {
        CatalogueSpec {
            videos: self.videos,
            size: self.library,
            file_size: self.file_size,
            content: self.content,
            hd_share: self.hd_share,
            zipf: self.zipf,
            seed: self.catalogue_seed,
        }
    }

    /// The library.
    ///
    /// # Errors
    /// A value out of range, or a manifest that cannot be read (usage, missing).
    pub fn catalogue(&self) -> Result<Catalogue, Fault> {
        match &self.manifest {
            None => Catalogue::new(&self.spec()).map_err(|e| Fault::new(Exit::Usage, e.to_string())),
            Some(path) => Catalogue::from_manifest(
                seekless_output::input::text(path)?.as_bytes(),
                self.zipf,
                self.catalogue_seed,
            )
            .map_err(|e| Fault::new(Exit::Usage, format!("{}: {e}", path.display()))),
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
    /// Seed of the requests
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    pub seed: u64,
    /// Worker threads; one carries several GB/s
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub threads: u32,
    /// Do not compare the bytes received (for libraries that are not ours)
    #[arg(long)]
    pub no_verify: bool,
    /// Receive buffer of clients without a link [default: the system's]
    #[arg(long, value_name = "SIZE")]
    pub receive_buffer: Option<Bytes>,
    /// Show no progress, even on a terminal
    #[arg(long)]
    pub quiet: bool,
    /// Write the result as JSON to FILE, or to standard output
    #[arg(long, num_args = 0..=1, default_missing_value = "-", value_name = "FILE")]
    pub json: Option<PathBuf>,
}

impl RunArgs {
    /// The settings of a run of `length` (warm-up included; none: until the work is done) with these classes.
    ///
    /// # Errors
    /// A wrong URL, nobody there, a warm-up as long as the run.
    pub fn settings(&self, length: Option<Nanos>, classes: &[ClientClass]) -> Result<RunSettings, Fault> {
        if length.is_some_and(|l| l <= self.warmup) {
            let l = length.unwrap_or_default();
            return Err(Fault::new(
                Exit::Usage,
                format!("the warm-up of {} leaves nothing of a run of {l}; give a longer run", self.warmup),
            ));
        }
        let target = TargetServer::parse(&self.url, self.cacert.as_deref())?;
        target.probe()?;
        Ok(RunSettings {
            target,
            verify: !self.no_verify,
            receive_buffer: self.receive_buffer.map(|b| u32::try_from(b.0).unwrap_or(u32::MAX)),
            speedup: self.speedup,
            threads: self.threads,
            warmup: self.warmup,
            length,
            classes: classes.iter().map(|c| c.name.clone()).collect(),
            progress: !self.quiet,
        })
    }
}

/// The clients' lines.
#[derive(Args, Clone, Debug)]
pub struct LineArgs {
    /// Link rates of the clients, such as 3.5Mb/s,10Mb/s (equal shares; a rate named twice has two), or
    /// `none` for no limit
    #[arg(long, value_name = "RATES", value_delimiter = ',', default_value = "3.5Mb/s,10Mb/s")]
    pub link: Vec<String>,
    /// Delay each way
    #[arg(long, value_name = "TIME", default_value = "50ms")]
    pub delay: Nanos,
}

/// What sessions are, for the commands that run some.
#[derive(Args, Clone, Debug)]
pub(crate) struct SessionArgs {
    #[command(flatten)]
    pub(crate) catalogue: CatalogueArgs,
    #[command(flatten)]
    pub(crate) run: RunArgs,
    #[command(flatten)]
    pub(crate) line: LineArgs,
    /// Longest time of a segment from when it was due
    #[arg(long, value_name = "TIME", default_value = "10s")]
    pub(crate) timeout: Nanos,
    /// Most sessions at once; a further one fails at once
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    pub(crate) max_clients: u64,
    /// Start without viewers, instead of with those of a long-running server
    #[arg(long)]
    pub(crate) cold_start: bool,
}

impl LineArgs {
    /// The classes of clients these lines make.
    ///
    /// # Errors
    /// A rate that is none (usage).
    pub fn classes(&self) -> Result<Vec<ClientClass>, Fault> {
        classes(&self.link, self.delay)
    }
}

/// One class a link rate, with equal shares; a rate that is named twice has two.
///
/// # Errors
/// A rate that is none (usage).
pub fn classes(links: &[String], delay: Nanos) -> Result<Vec<ClientClass>, Fault> {
    let mut classes: Vec<ClientClass> = Vec::new();
    for name in links.iter().map(|text| text.trim()) {
        if let Some(again) = classes.iter_mut().find(|class| class.name == name) {
            again.share += 1.0;
            continue;
        }
        let link_bits_per_s = link_rate(name).map_err(|e| Fault::new(Exit::Usage, format!("--link: {e}")))?;
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
