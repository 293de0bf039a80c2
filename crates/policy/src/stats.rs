//! The counters of one disk's engine.

use seekless_base::Nanos;

use crate::memory::MemoryReport;
use crate::{Histogram, Reason, SizeReport, Totals, Verdict, WriterStats};

/// What file sets got of a disk ([`crate::Demand::file_set`]). Counters, except values marked "now".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileSetStats {
    /// Requests that were admitted.
    pub requests: u64,
    /// Bytes that were brought in and that their readers took.
    pub bytes_taken: u64,
    /// Bytes that were requested and that no reader took.
    pub bytes_left: u64,
    /// Time that the disk spent on them; reads in flight together share it equally.
    pub disk_time: Nanos,
    /// Bytes requested and not taken now.
    pub bytes_untaken: u64,
}

/// Counters since the engine was made. Monotone, except values marked "now".
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stats {
    /// Requests that came in.
    pub requests: u64,
    /// Requests that needed no read of their own, because a queued or running one covered them.
    pub attached: u64,
    /// Requests answered `Resident`.
    pub resident: u64,
    /// Requests answered `Pass`, by [`Reason::index`].
    pub passed: [u64; Reason::ALL.len()],
    /// Bytes the requests asked for, after cutting to the file's end and the bound.
    pub bytes_wanted: u64,
    /// Reads submitted.
    pub reads: u64,
    /// Bytes of all reads submitted.
    pub bytes_read: u64,
    /// Reads that failed.
    pub reads_failed: u64,
    /// Pieces withdrawn before they were read, because no request waited for them any more.
    pub dropped: u64,
    /// Reads that were reported by doors.
    pub accesses: u64,
    /// Pieces queued ahead of need.
    pub ahead: u64,
    /// Times that the piece needed next found no room in the budget.
    pub held_back: u64,
    /// Bytes that were prefetched, not dropped, and evicted before their client read them. Bytes left
    /// behind by a client that is gone do not count here; [`Stats::ledger`] counts them when another client
    /// reads them.
    pub bytes_evicted_unused: u64,
    /// Bytes fetched for streams that ended before they read them. Bytes that several streams expected count
    /// for each of them (the ledger counts them once).
    pub bytes_wasted: u64,
    /// Bytes dropped because other bytes are used sooner.
    pub bytes_dropped: u64,
    /// What became of every byte.
    pub ledger: Totals,
    /// Time with at least one read in flight.
    pub disk_time: Nanos,
    /// The prefetch size now.
    pub size: SizeReport,
    /// Streams known now.
    pub streams: usize,
    /// Bytes fetched and not yet read now, of all streams.
    pub bytes_unread: u64,
    /// Maximum of fetched and unread bytes now.
    pub budget: u64,
    /// The memory of the disk now, and what bounds the budget.
    pub memory: MemoryReport,
    /// Whether memory is short now: bytes have left lately to make room.
    pub gives_back: bool,
    /// Requests waiting now.
    pub waiting: usize,
    /// Most requests that ever waited at once.
    pub waiting_max: usize,
    /// Pieces queued now, not yet submitted.
    pub queued: usize,
    /// Reads in flight now.
    pub in_flight: usize,
    /// Pieces in flight on each part of the device, as far as is known now.
    pub at_once: usize,
    /// Most reads ever in flight at once.
    pub in_flight_max: usize,
    /// Reads that began after a pause of ten seconds or more.
    pub pauses: u64,
    /// Of these, the reads that took as long as a disk takes to spin up.
    pub spin_ups: u64,
    /// What file sets got.
    pub file_sets: FileSetStats,
    /// What writers got.
    pub writers: WriterStats,
    /// Time from request to answer, of requests answered `Resident`.
    pub wait: Histogram,
    /// Time from submission to end, of reads that ended well. Reads in flight together overlap.
    pub service: Histogram,
}

impl Stats {
    /// Whether every hit must be reported. While memory is short, a client whose reads are not reported
    /// counts as gone, and the bytes it needs are dropped. So hits must be known before memory becomes
    /// short: from a quarter of the budget, or three quarters of the memory, on.
    pub fn needs_every_hit(&self) -> bool {
        let MemoryReport { occupied_bytes, capacity_bytes, .. } = self.memory;
        let may_be_short = occupied_bytes > capacity_bytes / 4 * 3;
        self.gives_back || may_be_short || self.bytes_unread > self.budget / 4
    }

    /// Counts one answer.
    pub(crate) fn answered(&mut self, verdict: Verdict) {
        match verdict {
            Verdict::Resident => self.resident += 1,
            Verdict::Pass(reason) => self.passed[reason.index()] += 1,
        }
    }

    /// Answers given, of every kind.
    pub fn answers(&self) -> u64 {
        self.resident + self.passed.iter().sum::<u64>()
    }
}
