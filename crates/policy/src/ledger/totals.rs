//! The account of a disk in sums (\[A\] sections 3 and 6, Table 1).

use core::ops::Sub;

use seekless_base::Nanos;
use serde::{Deserialize, Serialize};

/// All sums so far, in bytes unless said otherwise. Differences of two are those of the time between them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Asked for by readers.
    pub requested: u64,
    /// Read from the disk, prefetched or not.
    pub disk: u64,
    /// Read from the disk ahead of use.
    pub prefetched: u64,
    /// Prefetched and then used for the first time.
    pub first_use: u64,
    /// Used when they were in memory for another reason than an unused prefetch: cache hits.
    pub cached: u64,
    /// Of `cached`: bytes the ledger did not know of.
    pub cached_unknown: u64,
    /// Read from the disk by the reader itself.
    pub passed: u64,
    /// Prefetched and evicted before use.
    pub evicted_unused: u64,
    /// Sum over those bytes of the microseconds they had been in memory.
    pub evicted_byte_micros: u128,
    /// Evicted after use.
    pub evicted_used: u64,
    /// Prefetched, and all clients gone. A later client that uses them after all takes them out again.
    pub wasted: u64,
    /// Wasted as the paper counts: when a reader stops, everything unused past its position, though other
    /// readers of the file may still come to it.
    pub wasted_approx: u64,
    /// Forgotten for want of room, not used yet: each was used, evicted or wasted later; which is not known.
    pub forgotten_fresh: u64,
    /// Forgotten for want of room, used before.
    pub forgotten_used: u64,
}

impl Sub for Totals {
    type Output = Totals;
    fn sub(self, old: Totals) -> Totals {
        let d = u64::saturating_sub;
        Totals {
            requested: d(self.requested, old.requested),
            disk: d(self.disk, old.disk),
            prefetched: d(self.prefetched, old.prefetched),
            first_use: d(self.first_use, old.first_use),
            cached: d(self.cached, old.cached),
            cached_unknown: d(self.cached_unknown, old.cached_unknown),
            passed: d(self.passed, old.passed),
            evicted_unused: d(self.evicted_unused, old.evicted_unused),
            evicted_byte_micros: self.evicted_byte_micros.saturating_sub(old.evicted_byte_micros),
            evicted_used: d(self.evicted_used, old.evicted_used),
            wasted: d(self.wasted, old.wasted),
            wasted_approx: d(self.wasted_approx, old.wasted_approx),
            forgotten_fresh: d(self.forgotten_fresh, old.forgotten_fresh),
            forgotten_used: d(self.forgotten_used, old.forgotten_used),
        }
    }
}

/// A row of \[A\]'s Table 1: parts of the requested bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ratios {
    /// Disk / Requested.
    pub disk: f64,
    /// Cached / Requested, counted byte by byte.
    pub cached: f64,
    /// Cached / Requested as the paper approximates it: requested less (disk less evicted and wasted). Can be
    /// negative, as in the paper.
    pub cached_approx: f64,
    /// Evicted / Requested: before use.
    pub evicted: f64,
    /// Wasted / Requested, counted byte by byte.
    pub wasted: f64,
    /// Wasted / Requested as the paper counts it.
    pub wasted_approx: f64,
}

impl Totals {
    /// The row of Table 1; zeros while nothing was requested.
    pub fn ratios(&self) -> Ratios {
        if self.requested == 0 {
            return Ratios::default();
        }
        let part = |bytes: u64| bytes as f64 / self.requested as f64;
        let (disk, evicted) = (part(self.disk), part(self.evicted_unused));
        let wasted_approx = part(self.wasted_approx);
        Ratios {
            disk,
            cached: part(self.cached),
            cached_approx: 1.0 - (disk - evicted - wasted_approx),
            evicted,
            wasted: part(self.wasted),
            wasted_approx,
        }
    }

    /// Mean time that bytes evicted before use had been in memory: the paper's prefetch eviction time.
    pub fn eviction_time(&self) -> Option<Nanos> {
        let mean = self.evicted_byte_micros.checked_div(u128::from(self.evicted_unused))?;
        Some(Nanos::from_micros(u64::try_from(mean).unwrap_or(u64::MAX)))
    }
}

/// Sums stop at the largest number instead of overflowing.
pub fn add(sum: &mut u64, bytes: u64) {
    *sum = sum.saturating_add(bytes);
}
