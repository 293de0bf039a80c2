//! A download server in virtual time: one disk, one machine with bounded memory, one network link, clients
//! behind links of their own. The study of Circus \[X\], in which the server chooses the order of blocks.
//!
//! The server is [`seekless_reorder`], unchanged; the disk is [`seekless_model::drive`]; the network is
//! [`link`]. Download requests arrive as a Poisson process. System load is the sum of the clients' requests
//! over the rate of the server's link: the mean time between requests is file size / (load x link rate)
//! (\[X\] 4.2).
//!
//! The sequential server differs only in the order: its clients get a file from the first to the last block,
//! with one block read ahead, from the same memory, with the same least-recently-used replacement.
//!
//! Must not know: kernel, wire, command lines, the serving simulator, or any application.

pub mod conclusions;
pub mod figures;
pub mod link;
mod server;
#[cfg(test)]
mod tests;

use rayon::prelude::*;
use seekless_base::{Bytes, Nanos};
use seekless_model::drive::DriveSpec;
use seekless_reorder::{Config, Selection};

pub use server::run;

/// Clients with one kind of connection.
#[derive(Clone, Debug, PartialEq)]
pub struct Class {
    /// Name for tables.
    pub name: String,
    /// Link rate, bytes a second.
    pub rate: f64,
    /// Share of all requests, 0 to 1.
    pub share: f64,
}

/// The three links of the paper, bits a second (\[X\] 4.3): T1, 10 Mbit/s ("10T") and T3.
pub const LINKS: [(&str, f64); 3] = [("T1", 1.544e6), ("10T", 10e6), ("T3", 44.736e6)];

/// The queue of a sequential server: the block being sent and one read ahead.
pub const SEQUENTIAL_QUEUE: usize = 2;

/// One experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    /// The disk.
    pub drive: DriveSpec,
    /// The server's parameters; its memory is set from the fields below.
    pub server: Config,
    /// Memory for blocks and for the server's cost of each client.
    pub memory: Bytes,
    /// Memory that the server uses for each client, taken from that for blocks.
    pub per_client: Bytes,
    /// Number of files on the disk, requested with equal probability, at least 1.
    pub files: u64,
    /// Size of each.
    pub size: Bytes,
    /// Offered load over the server's link rate, above 0.
    pub load: f64,
    /// Rate of the server's link, bytes a second.
    pub link_rate: f64,
    /// The clients; shares add up to 1.
    pub classes: Vec<Class>,
    /// Round-trip time to every client.
    pub round_trip: Nanos,
    /// Share of packets lost, 0 to below 1.
    pub loss: f64,
    /// Time before measurement starts; `None`: the longest undisturbed download.
    pub warm_up: Option<Nanos>,
    /// Time measured.
    pub time: Nanos,
    /// Seed of arrivals, classes and files.
    pub seed: u64,
}

impl Setup {
    /// The same experiment with a sequential server.
    #[must_use]
    pub fn sequential(&self) -> Setup {
        let mut setup = self.clone();
        setup.server.selection = Selection::Sequential;
        setup.server.queue = SEQUENTIAL_QUEUE;
        setup
    }

    /// Whether another experiment must give the same result: without loss, delay has no effect
    /// ([`link::goodput`]).
    pub fn gives_the_same(&self, other: &Setup) -> bool {
        let round_trip = if self.loss > 0.0 { self.round_trip } else { other.round_trip };
        Setup { round_trip, ..self.clone() } == *other
    }

    /// Bytes a second that the clients request.
    pub fn offered(&self) -> f64 {
        self.load * self.link_rate
    }

    /// Memory for blocks with this many clients; at least one active region, because a server that pages
    /// would stop.
    pub fn block_memory(&self, clients: usize) -> Bytes {
        let taken = Bytes(self.per_client.0.saturating_mul(clients as u64));
        Bytes((self.memory - taken).0.max(self.server.region.0))
    }

    /// Rate of a client's connection, bytes a second.
    pub fn goodput(&self, class: &Class) -> f64 {
        link::goodput(class.rate, self.round_trip, self.loss)
    }

    /// Time of a class's download if only its link limits it.
    pub fn undisturbed(&self, class: &Class) -> Nanos {
        Nanos::from_secs_f64(self.size.0 as f64 / self.goodput(class))
    }
}

/// The results of one class.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClassReport {
    /// Downloads that ended while measuring.
    pub downloads: u64,
    /// Their mean time, seconds.
    pub mean_s: f64,
    /// 95th percentile, seconds.
    pub p95_s: f64,
}

/// The results.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CircusReport {
    /// Delivered to clients, bytes a second.
    pub network: f64,
    /// Read from the disk, bytes a second.
    pub disk: f64,
    /// Share of the time in which the disk had something to do.
    pub disk_busy: f64,
    /// Reads a second.
    pub reads: f64,
    /// By class, in the order of the setup.
    pub classes: Vec<ClassReport>,
    /// Downloads that ended while measuring.
    pub downloads: u64,
    /// Mean time of these, seconds.
    pub download_s: f64,
    /// Mean number of downloads in progress over the measured time.
    pub concurrent: f64,
    /// Share of blocks chosen outside of the active region.
    pub outside: f64,
    /// Share of blocks that had been in memory and were evicted before their turn.
    pub stale: f64,
}

impl CircusReport {
    /// Disk over network throughput (\[X\] 4.2).
    pub fn miss_ratio(&self) -> f64 {
        if self.network > 0.0 { self.disk / self.network } else { 0.0 }
    }
}

/// The same experiment with several seeds.
#[derive(Clone, Debug)]
pub struct Trials {
    /// One report a seed.
    pub reports: Vec<CircusReport>,
}

/// Runs `trials` seeds from the setup's own on, on all threads of the pool.
pub fn trials(setup: &Setup, trials: u64) -> Trials {
    let reports = (0..trials.max(1))
        .into_par_iter()
        .map(|i| run(&Setup { seed: setup.seed.wrapping_add(i), ..setup.clone() }))
        .collect();
    Trials { reports }
}

/// Runs seeds until the 95 % interval of the network throughput is within `share` of its mean on either side
/// (\[X\] 4.3: 5 %), at least two and at most `most`.
pub fn trials_until(setup: &Setup, share: f64, most: u64) -> Trials {
    let mut all = trials(setup, most.min(2));
    let wide = |all: &Trials| {
        all.half_length(|r| r.network).is_none_or(|half| half > share * all.mean(|r| r.network))
    };
    while (all.reports.len() as u64) < most && wide(&all) {
        let seed = setup.seed.wrapping_add(all.reports.len() as u64);
        all.reports.push(run(&Setup { seed, ..setup.clone() }));
    }
    all
}

impl Trials {
    /// Mean of a value over the trials.
    pub fn mean(&self, of: impl Fn(&CircusReport) -> f64) -> f64 {
        self.reports.iter().map(of).sum::<f64>() / self.reports.len() as f64
    }

    /// Half-length of the 95 % confidence interval of the mean; `None` for a single trial.
    pub fn half_length(&self, of: impl Fn(&CircusReport) -> f64) -> Option<f64> {
        /// Student's t, two-sided 95 %, for 1 to 9 degrees of freedom; beyond that, 2.26 is an upper bound.
        const T: [f64; 9] = [12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26];
        let n = self.reports.len();
        let t = T[n.checked_sub(2)?.min(T.len() - 1)];
        let mean = self.mean(&of);
        let variance = self.reports.iter().map(|r| (of(r) - mean).powi(2)).sum::<f64>() / (n as f64 - 1.0);
        Some(t * (variance / n as f64).sqrt())
    }
}
