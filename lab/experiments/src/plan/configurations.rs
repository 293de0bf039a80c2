//! What one disk delivers to a server of streams: as shipped, tuned, and with Seekless.
//!
//! Measured by simulation of a closed loop: clients that each read a file of their own from start to end,
//! asking for the next range as soon as they have the last, on a library many times the memory, so that the
//! page cache answers next to nothing of itself. What a real cache answers comes from the log's own curve
//! ([`crate::plan::answer`]).

use seekless_base::{Bytes, Fault};
use seekless_model::drive::DriveSpec;

use crate::plan::simulate::{figure, sim};

/// Size of a library as a multiple of the memory: the cache answers 4 % at most.
const LIBRARY_OVER_MEMORY: u64 = 24;
/// Maximum memory that is simulated: with more, the simulation only takes longer.
const MEMORY_MAX: u64 = 4 << 30;

/// A server, its settings and one size of read-ahead.
#[derive(Clone, Debug, PartialEq)]
pub struct Configuration {
    /// Name in tables and JSON.
    pub name: &'static str,
    /// What it is.
    pub what: &'static str,
    /// What is read at once, bytes, which is also the memory a stream takes: half of the piece being sent and
    /// half of the next, on the mean.
    pub ahead: f64,
    /// Useful bytes a second one disk delivers to streams.
    pub rate: f64,
    /// The command that was run, as one would type it.
    pub command: String,
}

/// What is simulated.
#[derive(Clone, Copy, Debug)]
pub struct Streams {
    /// Streams at once on one disk.
    pub count: u32,
    /// Bytes they ask for at a time.
    pub range: Bytes,
    /// Size of a file.
    pub file: Bytes,
    /// The machine's memory.
    pub memory: Bytes,
}

/// Name, what it is, sizes read at once in KiB, arguments. The larger the size the more a disk delivers and
/// the more memory each stream takes: which is best depends on the site, so each is measured.
const CONFIGURATIONS: [(&str, &str, &[u64], &[&str]); 3] = [
    ("shipped", "nginx and Linux as they are shipped: read-ahead of 128 KiB", &[128], &[]),
    (
        "tuned",
        "the best of the kernel: larger read-ahead, mq-deadline, nginx with aio threads",
        &[512, 1024, 2048],
        &["--variant", "threads", "--scheduler", "mq-deadline"],
    ),
    (
        "seekless",
        "the same nginx with Seekless, reading ahead of need",
        &[512, 1024, 2048, 4096],
        &["--variant", "threads", "--mode", "both"],
    ),
];

/// Simulations [`measure`] takes.
pub fn simulations() -> u64 {
    CONFIGURATIONS.iter().map(|c| c.2.len() as u64).sum()
}

/// Simulates the configurations on a drive, each with every size.
///
/// # Errors
/// The simulation cannot be run.
pub fn measure(
    drive: &DriveSpec,
    streams: &Streams,
    seed: u64,
    tick: impl Fn(),
) -> Result<Vec<Configuration>, Fault> {
    let memory = streams.memory.0.clamp(64 << 20, MEMORY_MAX);
    let capacity = drive.capacity().0;
    let library = (memory * LIBRARY_OVER_MEMORY).min(capacity / 10 * 9);
    let file = streams.file.0.clamp(1 << 20, 1 << 30).min(library / 64);
    let mut configurations = vec![];
    let each = CONFIGURATIONS.iter().flat_map(|w| w.2.iter().map(move |kib| (w.0, w.1, *kib, w.3)));
    for (name, what, kib, extra) in each {
        let mut arguments: Vec<String> = ["serve", "--drive", &drive.name].map(str::to_owned).to_vec();
        let mut add = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
        // The library lies over the whole drive, whatever its own size.
        add("--size", format!("{}B", library / 10 * 11));
        add("--library", format!("{library}B"));
        add("--file-size", format!("{file}B"));
        add("--memory", format!("{memory}B"));
        add("--clients", streams.count.to_string());
        add("--range", streams.range.to_string());
        add("--seed", seed.to_string());
        // A tuned kernel gives some clients a long wait each: shorter runs would count only the lucky ones.
        add("--warmup", "20s".into());
        add("--duration", "120s".into());
        match name {
            "seekless" => add("--prefetch", format!("{kib}KiB")),
            _ => add("--read-ahead-kb", kib.to_string()),
        }
        arguments.extend(extra.iter().map(|e| (*e).to_owned()));
        let result = sim(&arguments)?;
        let rate = figure(&result, "/load/measured/mb_per_s")? * 1e6;
        // What the simulation's own cache answered is not the disk's work.
        let rate = rate * (1.0 - memory as f64 / library as f64);
        let command = format!("seekless-lab sim {}", arguments.join(" "));
        configurations.push(Configuration { name, what, ahead: (kib << 10) as f64, rate, command });
        tick();
    }
    Ok(configurations)
}
