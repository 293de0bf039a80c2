//! What a spindle keeps account of: the [`Ledger`] of every byte, and the disk's time.
//!
//! Bytes count as fetched when a read reports them, or when somebody reads them while it is still under way. Bytes count as
//! used when a read is reported; where hits are not reported, when a request is answered.

use seekless_units::{Bytes, Nanos};

use crate::FileId;
use crate::controller::Observation;
use crate::ledger::{Ledger, Totals};

/// Ranges the ledger keeps: four for each of [`crate::StreamConfig::streams_max`], about 2.5 MB in the worst case.
const RANGES_MAX: usize = 16_384;

/// The account of one disk.
#[derive(Debug)]
pub(crate) struct Account {
    ledger: Ledger<FileId>,
    seen: Nanos,
    reading: bool,
    busy: bool,
    /// At least one read in flight, so far.
    disk_time: Nanos,
    /// At least one read queued or in flight, so far.
    busy_time: Nanos,
    told: Told,
}

/// State at the last observation.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    disk_time: Nanos,
    busy_time: Nanos,
    totals: Totals,
}

impl Account {
    pub(crate) fn new() -> Account {
        Account {
            ledger: Ledger::new(RANGES_MAX),
            seen: Nanos::ZERO,
            reading: false,
            busy: false,
            disk_time: Nanos::ZERO,
            busy_time: Nanos::ZERO,
            told: Told::default(),
        }
    }

    /// The ledger's own entries: opened, closed, missing, passed.
    pub(crate) fn ledger(&mut self) -> &mut Ledger<FileId> {
        &mut self.ledger
    }

    /// [`Ledger::unused_in`].
    pub(crate) fn unused_in(&self, file: FileId, start: u64, end: u64, since: Nanos) -> u64 {
        self.ledger.unused_in(file, start, end, since)
    }

    pub(crate) fn totals(&self) -> Totals {
        self.ledger.totals()
    }

    pub(crate) fn disk_time(&self) -> Nanos {
        self.disk_time
    }

    /// Time passed in the state of [`Account::state`].
    pub(crate) fn pass(&mut self, now: Nanos) {
        let passed = now.since(self.seen);
        self.seen = self.seen.max(now);
        if self.reading {
            self.disk_time += passed;
        }
        if self.busy {
            self.busy_time += passed;
        }
    }

    /// From now on so many reads are in flight and so many pieces queued.
    pub(crate) fn state(&mut self, in_flight: usize, queued: usize) {
        self.reading = in_flight > 0;
        self.busy = self.reading || queued > 0;
    }

    /// What happened since the last call; `bitrate` is that of the streams the size is for.
    pub(crate) fn observation(&mut self, bitrate: f64) -> Observation {
        let totals = self.totals();
        let since = totals - self.told.totals;
        let seen = Observation {
            disk_time: self.disk_time.since(self.told.disk_time),
            disk_bytes: Bytes(since.disk),
            requested: Bytes(since.requested),
            busy: self.busy_time.since(self.told.busy_time),
            evicted: Bytes(since.evicted_unused),
            eviction_time: since.eviction_time().unwrap_or(Nanos::ZERO),
            bitrate,
        };
        self.told = Told { disk_time: self.disk_time, busy_time: self.busy_time, totals };
        seen
    }
}
