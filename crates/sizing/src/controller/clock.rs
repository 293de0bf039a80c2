//! What the disk did with its time, and what happened since the sizing algorithm last heard of it.

use seekless_ledger::Totals;
use seekless_units::{Bytes, Nanos};

use super::Observation;

/// The time of one disk.
#[derive(Clone, Copy, Debug, Default)]
pub struct DiskClock {
    seen: Nanos,
    reading: bool,
    busy: bool,
    /// At least one read in flight, so far.
    disk_time: Nanos,
    /// At least one read queued or in flight, so far.
    busy_time: Nanos,
    /// The state at the last observation.
    told: (Nanos, Nanos, Totals),
}

impl DiskClock {
    /// Time with at least one read in flight.
    pub fn disk_time(&self) -> Nanos {
        self.disk_time
    }

    /// Time passed in the state of [`DiskClock::state`].
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

    /// From now on so many reads are in flight and so many pieces queued.
    pub fn state(&mut self, in_flight: usize, queued: usize) {
        self.reading = in_flight > 0;
        self.busy = self.reading || queued > 0;
    }

    /// What happened since the last call; `bitrate` is that of the streams the size is for.
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
