//! How much may lie in memory fetched and not yet read, of one disk: [`BudgetShare`] fed from the machine.
//!
//! The limit is that of the control group, less what this process itself holds. What is read ahead is held on the kernel's active list,
//! which below a GiB is no more than half of the page cache: the budget is no larger than that list ([`most`]).
//!
//! Where the kernel accounts for pressure (PSI), tasks that wait for memory count as evictions do: others may be short
//! before we are, and what we fetch is what their pages are evicted for.

use std::time::{Duration, Instant};

use seekless_kernel::memory::{anonymous, page_cache_limit, pressure};
use seekless_policy::Stats;
use seekless_policy::budget::{BudgetShare, EVERY_S, most};
use seekless_units::Bytes;

/// How often the limit is read and the budget may change.
const EVERY: Duration = Duration::from_secs(EVERY_S);

/// Where the limit cannot be read.
const UNKNOWN: u64 = 512 << 20;

/// Part of the last ten seconds that some task waited for memory, from which on memory is short. A page cache that is full of
/// files read once shows a per cent or two.
const PRESSURE: f64 = 0.1;

/// The budget of one disk.
pub(crate) struct Budget {
    /// What the user fixed; `None`: from the limit and what is observed.
    fixed: Option<Bytes>,
    /// Whether what is read ahead is held.
    hold: bool,
    share: BudgetShare,
    next: Instant,
}

impl Budget {
    pub(crate) fn new(fixed: Option<Bytes>, hold: bool, now: Instant) -> Budget {
        Budget { fixed, hold, share: BudgetShare::default(), next: now }
    }

    /// When to ask again.
    pub(crate) fn next(&self) -> Instant {
        self.next
    }

    /// The budget from now on, if it is time to say. `stats`: of the spindle; `disks`: how many disks share the memory.
    pub(crate) fn due(&mut self, now: Instant, stats: &Stats, disks: usize) -> Option<Bytes> {
        if now < self.next {
            return None;
        }
        self.next = now + EVERY;
        if let Some(fixed) = self.fixed {
            return Some(fixed);
        }
        // What this process holds itself (a server the blocks of downloads in any order) no page can have.
        let limit = Bytes(page_cache_limit().unwrap_or(UNKNOWN)) - Bytes(anonymous().unwrap_or(0));
        let waits = pressure().is_some_and(|part| part >= PRESSURE);
        Some(self.share.within(most(limit, disks, self.hold), stats, waits))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fixed_budget_stays() {
        let now = Instant::now();
        let mut budget = Budget::new(Some(Bytes::mib(100)), true, now);
        let quiet = Stats::default();
        assert_eq!(budget.due(now, &quiet, 1), Some(Bytes::mib(100)));
        let gone = Stats { bytes_evicted_over_budget: 1 << 40, ..Stats::default() };
        assert_eq!(budget.due(now, &gone, 1), None, "not yet");
        assert_eq!(budget.due(now + EVERY, &gone, 1), Some(Bytes::mib(100)));
    }
}
