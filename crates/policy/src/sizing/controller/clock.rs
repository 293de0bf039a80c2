//! How the disk spent its time, and what happened since the last observation of the sizing algorithm.

use seekless_base::{Bytes, Nanos};

use super::Observation;
use crate::ledger::Totals;

/// The time account of one disk.
#[derive(Clone, Copy, Debug, Default)]
pub struct DiskClock {
    seen: Nanos,
    reading: bool,
    busy: bool,
    /// Total time with at least one read in flight.
    disk_time: Nanos,
    /// Total time with at least one read queued or in flight.
    busy_time: Nanos,
    /// The values at the last observation.
    told: (Nanos, Nanos, Totals),
}

impl DiskClock {
    /// Time with at least one read in flight.
    pub fn disk_time(&self) -> Nanos {
        self.disk_time
    }

    /// Accounts for the time until `now` in the state set by [`DiskClock::state`].
    pub fn pass(&mut self, now: Nanos) {
        let passed = now.since(self.seen);
        self.seen = self.seen.max(now);
        if self.reading {
            self.disk_time += passed;
        }
        if self.busy {
            self.busy_time += passed;
        }
    }

    /// Sets the number of reads in flight and of queued pieces from now on.
    pub fn state(&mut self, in_flight: usize, queued: usize) {
        self.reading = in_flight > 0;
        self.busy = self.reading || queued > 0;
    }

    /// What happened since the last call. `bitrate` is the bitrate of the streams that the size is for.
    pub fn observation(&mut self, totals: Totals, bitrate: f64) -> Observation {
        let (disk_time, busy_time, before) = self.told;
        let since = totals - before;
        self.told = (self.disk_time, self.busy_time, totals);
        Observation {
            disk_time: self.disk_time.since(disk_time),
            disk_bytes: Bytes(since.disk),
            requested: Bytes(since.requested),
            busy: self.busy_time.since(busy_time),
            evicted: Bytes(since.evicted_unused),
            eviction_time: since.eviction_time().unwrap_or(Nanos::ZERO),
            bitrate,
        }
    }
}
