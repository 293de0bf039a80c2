//! How much may lie in memory fetched and not yet read, of one disk.
//!
//! Two thirds of what the page cache may hold at most: the rest is for what has been read and may be read again, for
//! pages on their way, and for the kernel's own slack (it reclaims before a limit is reached). That is a guess about
//! a cache we share with others, so it is corrected by what is observed: when bytes are found gone before their reader
//! came, the budget shrinks by a fifth at once, and while none are, it grows back slowly - as a congestion window does.
//! Where the kernel accounts for pressure (PSI), tasks that wait for memory shrink it as well: others may be short before we
//! are, and what we fetch is what their pages are evicted for.

use std::time::{Duration, Instant};

use seekless_kernel::memory::{page_cache_limit, pressure};
use seekless_units::Bytes;

/// How often the limit is read and the budget may change.
const EVERY: Duration = Duration::from_secs(2);

/// No smaller, or a disk could not even have one piece for each of a handful of readers.
const LEAST: u64 = 8 << 20;

/// Where the limit cannot be read.
const UNKNOWN: u64 = 512 << 20;

/// Part of the last ten seconds that some task waited for memory, from which on memory is short. A page cache that is full of
/// files read once shows a per cent or two.
const PRESSURE: f64 = 0.1;

/// The budget of one disk.
pub(crate) struct Budget {
    /// What the user fixed; `None`: from the limit and what is observed.
    fixed: Option<Bytes>,
    /// Share of the ceiling, from observed evictions. 0 to 1.
    share: f64,
    evicted_before: u64,
    next: Instant,
}

impl Budget {
    pub(crate) fn new(fixed: Option<Bytes>, now: Instant) -> Budget {
        Budget { fixed, share: 1.0, evicted_before: 0, next: now }
    }

    /// When to ask again.
    pub(crate) fn next(&self) -> Instant {
        self.next
    }

    /// The budget from now on, if it is time to say. `evicted`: bytes so far that were gone before they were read;
    /// `disks`: how many disks share the memory.
    pub(crate) fn due(&mut self, now: Instant, evicted: u64, disks: usize) -> Option<Bytes> {
        if now < self.next {
            return None;
        }
        self.next = now + EVERY;
        if let Some(fixed) = self.fixed {
            return Some(fixed);
        }
        let limit = page_cache_limit().unwrap_or(UNKNOWN);
        let waits = pressure().is_some_and(|part| part >= PRESSURE);
        Some(self.within(limit, evicted, disks, waits))
    }

    fn within(&mut self, limit: u64, evicted: u64, disks: usize, waits: bool) -> Bytes {
        let ceiling = limit / 3 * 2 / disks.max(1) as u64;
        // One page too few in a thousand pieces is noise; a thousandth of the budget in one period is not.
        let pressed = waits || evicted.saturating_sub(self.evicted_before) > ceiling / 1000;
        self.evicted_before = evicted;
        self.share = if pressed { self.share * 0.8 } else { self.share + 0.02 }.clamp(0.05, 1.0);
        Bytes(((ceiling as f64 * self.share) as u64).max(LEAST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_gives_way_fast_and_comes_back_slowly() {
        let now = Instant::now();
        let mut budget = Budget::new(None, now);
        let limit = 3 << 29;
        assert_eq!(budget.within(limit, 0, 1, false), Bytes(1 << 30));
        let shrunk = budget.within(limit, 64 << 20, 1, false);
        assert!(shrunk < Bytes((1 << 30) / 5 * 4 + 4096), "{shrunk}");
        let grown = budget.within(limit, 64 << 20, 1, false);
        assert!(grown > shrunk && grown < Bytes(1 << 30));
        for _ in 0..20 {
            budget.within(limit, 64 << 20, 1, false);
        }
        let waits = budget.within(limit, 64 << 20, 1, true);
        assert!(waits < Bytes(1 << 30), "others wait for memory");
        for _ in 0..20 {
            budget.within(limit, 64 << 20, 1, false);
        }
        assert_eq!(budget.within(limit, 64 << 20, 2, false), Bytes(1 << 29), "two disks share");
        assert_eq!(budget.within(1 << 20, 64 << 20, 1, false), Bytes(LEAST));
    }

    #[test]
    fn a_fixed_budget_stays() {
        let now = Instant::now();
        let mut budget = Budget::new(Some(Bytes::mib(100)), now);
        assert_eq!(budget.due(now, 0, 1), Some(Bytes::mib(100)));
        assert_eq!(budget.due(now, 1 << 40, 1), None, "not yet");
        assert_eq!(budget.due(now + EVERY, 1 << 40, 1), Some(Bytes::mib(100)));
    }
}
