//! The counters of a disk thread as JSON: a disk's part of `seekless daemon status --json`.
//!
//! Times are in milliseconds, sizes in bytes. Counts start with the thread unless the name says "now" or
//! "max".

use std::collections::BTreeMap;

use seekless_policy::ledger::{Ratios, Totals};
use seekless_policy::memory::MemoryReport;
use seekless_policy::{Histogram, Reason, SizeReport};
use serde::{Deserialize, Serialize};

use crate::costs::{self, FileCost, ProgramCost};
use crate::sleep::SleepReport;
use crate::snapshot::Snapshot;

/// The report of one disk queue.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DiskReport {
    /// Kernel name of the disk, or `common`.
    pub name: String,
    /// Requests that reached the queue.
    pub requests: u64,
    /// Requests covered by a read that was queued or in flight for another.
    pub attached: u64,
    /// Requests answered "resident".
    pub resident: u64,
    /// Requests answered "pass", by reason.
    pub passed: BTreeMap<String, u64>,
    /// Bytes requested.
    pub bytes_wanted: u64,
    /// Pieces read.
    pub reads: u64,
    /// Bytes of these pieces, in memory already or not; the ledger has those that came from the disk.
    pub bytes_read: u64,
    /// Pieces that failed.
    pub reads_failed: u64,
    /// Pieces withdrawn unread because no request waited for them any more.
    pub dropped: u64,
    /// Reads that doors reported, hit or miss.
    pub accesses: u64,
    /// Pieces read ahead of need.
    pub ahead: u64,
    /// Times that a piece was held back for lack of budget.
    pub held_back: u64,
    /// Bytes fetched for a stream and evicted before it read them.
    pub bytes_evicted_unused: u64,
    /// Bytes fetched for streams which ended before they read them.
    pub bytes_wasted: u64,
    /// Bytes dropped because other bytes are used sooner.
    pub bytes_dropped: u64,
    /// Streams known now.
    pub streams_now: u64,
    /// Bytes fetched and not yet read now.
    pub bytes_unread_now: u64,
    /// Maximum of bytes fetched and not yet read.
    pub budget_bytes: u64,
    /// Requests waiting now.
    pub waiting_now: u64,
    /// Most requests that ever waited at once.
    pub waiting_max: u64,
    /// Pieces queued now.
    pub queued_now: u64,
    /// Pieces in flight now.
    pub in_flight_now: u64,
    /// Most pieces ever in flight together.
    pub in_flight_max: u64,
    /// Time from a request's arrival to its answer, of those answered "resident".
    pub wait: Durations,
    /// Time from a piece's submission to its end.
    pub service: Durations,
    /// Time that the disk was idle between two pieces although one was queued.
    pub gap: Durations,
    /// Pages requested twice, because the kernel cut a read short.
    pub second_try_pages: u64,
    /// Pages that left memory before their piece was complete: dropped by their reader, or evicted.
    pub lost_pages: u64,
    /// The last read error.
    pub last_error: Option<String>,
    /// The disk's memory, and what bounds the budget.
    pub memory: MemoryReport,
    /// The current prefetch size, and what decides it.
    pub size: SizeReport,
    /// What became of every byte, as far as it was observed: evictions are noticed when memory is probed.
    pub ledger: Totals,
    /// The ledger as fractions of the requested bytes: \[A\]'s Table 1.
    pub table1: Ratios,
    /// Mean time that bytes evicted before use had been in memory; `None` if there are none.
    pub eviction_ms: Option<f64>,
    /// Time with at least one read in flight.
    pub disk_ms: f64,
    /// The measured media rate, bytes a second, mean over the disk; 0 if the disk was not measured.
    pub media_rate: f64,
    /// What file sets got of the disk.
    pub file_sets: FileSetUse,
    /// The files that cost the disk most, in all or lately; the heaviest first.
    pub files: Vec<FileCost>,
    /// The programs that cost it most.
    pub programs: Vec<ProgramCost>,
    /// Reads that began after a pause of ten seconds or more.
    pub pauses: u64,
    /// Of these, the reads that took as long as a disk takes to spin up.
    pub spin_ups: u64,
    /// Whether the disk sleeps, and how long it was awake; only with `--quiet`.
    pub sleep: Option<SleepReport>,
    /// What writers got of the disk while it was read.
    pub writers: WriterUse,
}

/// What writers got of a disk while it was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WriterUse {
    /// Write requests that wait or are in flight now.
    pub waiting_now: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Time that the disk had for writes while some waited and nothing was read.
    pub disk_ms: f64,
    /// Time in which the engine read or writes waited, of which `disk_ms` is a part.
    pub busy_ms: f64,
    /// Times that a piece was held back for writers.
    pub held_back: u64,
}

impl WriterUse {
    /// Share of the disk's time that writes had; 0 if it was not used.
    pub fn share(&self) -> f64 {
        if self.busy_ms > 0.0 { (self.disk_ms / self.busy_ms).min(1.0) } else { 0.0 }
    }
}

/// What file sets got of a disk. Their readers take ranges of files in any order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FileSetUse {
    /// Requests of file sets that reached the queue; `requests` counts them too.
    pub requests: u64,
    /// Bytes that the disk brought in for them and that their readers took.
    pub bytes_taken: u64,
    /// Bytes that were requested and that no reader took.
    pub bytes_left: u64,
    /// Bytes requested and not taken now.
    pub bytes_untaken_now: u64,
    /// Part of `disk_ms` spent on them.
    pub disk_ms: f64,
}

impl DiskReport {
    /// Time to transfer the bytes that came from the disk at the measured media rate, in seconds; at most the
    /// time that the disk was busy. The rest of that time is positioning. `None` if the disk was not
    /// measured.
    pub fn transfer_seconds(&self) -> Option<f64> {
        (self.media_rate > 0.0).then(|| (self.ledger.disk as f64 / self.media_rate).min(self.disk_ms / 1e3))
    }

    /// Times that the disk was woken up, as far as is known: seen to sleep before or, if the disk does not
    /// tell, by the time of its reads.
    pub fn spin_ups_known(&self) -> u64 {
        self.sleep.map_or(0, |sleep| sleep.spin_ups).max(self.spin_ups)
    }

    /// The report of the disk of this name. Looks up names of files.
    pub fn of(name: &str, snapshot: &Snapshot) -> DiskReport {
        let s = &snapshot.engine;
        let (files, programs) = costs::report(&snapshot.costs);
        DiskReport {
            name: name.to_string(),
            requests: s.requests,
            attached: s.attached,
            resident: s.resident,
            passed: Reason::ALL.iter().map(|r| (r.name().to_string(), s.passed[r.index()])).collect(),
            bytes_wanted: s.bytes_wanted,
            reads: s.reads,
            bytes_read: s.bytes_read,
            reads_failed: s.reads_failed,
            dropped: s.dropped,
            accesses: s.accesses,
            ahead: s.ahead,
            held_back: s.held_back,
            bytes_evicted_unused: s.bytes_evicted_unused,
            bytes_wasted: s.bytes_wasted,
            bytes_dropped: s.bytes_dropped,
            streams_now: s.streams as u64,
            bytes_unread_now: s.bytes_unread,
            budget_bytes: s.budget,
            waiting_now: s.waiting as u64,
            waiting_max: s.waiting_max as u64,
            queued_now: s.queued as u64,
            in_flight_now: s.in_flight as u64,
            in_flight_max: s.in_flight_max as u64,
            wait: Durations::of(&s.wait),
            service: Durations::of(&s.service),
            gap: Durations::of(&snapshot.gap),
            second_try_pages: snapshot.second_try_pages,
            lost_pages: snapshot.lost_pages,
            memory: s.memory.clone(),
            last_error: snapshot.last_error.clone(),
            size: s.size.clone(),
            ledger: s.ledger,
            table1: s.ledger.ratios(),
            eviction_ms: s.ledger.eviction_time().map(|t| t.as_millis_f64()),
            disk_ms: s.disk_time.as_millis_f64(),
            media_rate: snapshot.media_rate,
            file_sets: FileSetUse {
                requests: s.file_sets.requests,
                bytes_taken: s.file_sets.bytes_taken,
                bytes_left: s.file_sets.bytes_left,
                bytes_untaken_now: s.file_sets.bytes_untaken,
                disk_ms: s.file_sets.disk_time.as_millis_f64(),
            },
            files,
            programs,
            pauses: s.pauses,
            spin_ups: s.spin_ups,
            sleep: None,
            writers: WriterUse {
                waiting_now: s.writers.waiting,
                bytes: s.writers.bytes,
                disk_ms: s.writers.disk_time.as_millis_f64(),
                busy_ms: s.writers.busy.as_millis_f64(),
                held_back: s.writers.held_back,
            },
        }
    }
}

/// A distribution of durations. Quantiles are upper bounds with a resolution of a factor of two.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Durations {
    /// Number of durations.
    pub count: u64,
    /// Arithmetic mean.
    pub mean_ms: f64,
    /// Median.
    pub p50_ms: f64,
    /// 95th percentile.
    pub p95_ms: f64,
    /// 99th percentile.
    pub p99_ms: f64,
    /// The longest.
    pub max_ms: f64,
    /// Upper edge in milliseconds and count of every bucket that is not empty.
    pub buckets: Vec<(f64, u64)>,
}

impl Durations {
    pub(crate) fn of(h: &Histogram) -> Durations {
        let edge = |at: seekless_base::Nanos| at.min(h.max()).as_millis_f64();
        Durations {
            count: h.count(),
            mean_ms: h.mean().as_millis_f64(),
            p50_ms: h.quantile(0.5).as_millis_f64(),
            p95_ms: h.quantile(0.95).as_millis_f64(),
            p99_ms: h.quantile(0.99).as_millis_f64(),
            max_ms: h.max().as_millis_f64(),
            buckets: h.buckets().filter(|&(_, n)| n > 0).map(|(at, n)| (edge(at), n)).collect(),
        }
    }
}
