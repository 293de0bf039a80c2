//! How much may lie in memory fetched and not yet read, of one disk.
//!
//! Two thirds of what the page cache may hold at most: the rest is for what has been read and may be read again, for
//! pages on their way, and for the kernel's own slack (it reclaims before a limit is reached). That is a guess about
//! a cache we share with others, so it is corrected by what is observed: when more than a hundredth of what is read is found
//! gone before its reader came, the budget shrinks by a tenth at once, and while less is, it grows back slowly - as a
//! congestion window does. A hundredth, and not anything at all: on the session workload half the budget was given up for
//! 0.7 % of the bytes, and pieces half as long cost far more than those were worth.
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

/// Part of what was read that may be evicted before its use.
const EVICTED_SHARE: f64 = 0.01;

/// What is left of a period's counts in the next: they are looked at over about ten seconds, because a single piece that
/// is gone is several hundredths of what is read in one period.
const REMEMBERED: f64 = 0.8;

/// Part of the last ten seconds that some task waited for memory, from which on memory is short. A page cache that is full of
/// files read once shows a per cent or two.
const PRESSURE: f64 = 0.1;

/// The budget of one disk.
pub(crate) struct Budget {
    /// What the user fixed; `None`: from the limit and what is observed.
    fixed: Option<Bytes>,
    /// Share of the ceiling, from observed evictions. 0 to 1.
    share: f64,
    /// Bytes so far, as of the last period: evicted before use, and read.
    before: (u64, u64),
    /// Of the last periods, the older the less.
    evicted: f64,
    read: f64,
    next: Instant,
}

impl Budget {
    pub(crate) fn new(fixed: Option<Bytes>, now: Instant) -> Budget {
        Budget { fixed, share: 1.0, before: (0, 0), evicted: 0.0, read: 0.0, next: now }
    }

    /// When to ask again.
    pub(crate) fn next(&self) -> Instant {
        self.next
    }

    /// The budget from now on, if it is time to say. `evicted`, `read`: bytes so far that were gone before they were used, and
    /// that came from the disk; `disks`: how many disks share the memory.
    pub(crate) fn due(&mut self, now: Instant, evicted: u64, read: u64, disks: usize) -> Option<Bytes> {
        if now < self.next {
            return None;
        }
        self.next = now + EVERY;
        if let Some(fixed) = self.fixed {
            return Some(fixed);
        }
        let limit = page_cache_limit().unwrap_or(UNKNOWN);
        let waits = pressure().is_some_and(|part| part >= PRESSURE);
        Some(self.within(limit, (evicted, read), disks, waits))
    }

    fn within(&mut self, limit: u64, so_far: (u64, u64), disks: usize, waits: bool) -> Bytes {
        let ceiling = limit / 3 * 2 / disks.max(1) as u64;
        let since = |now: u64, before: u64| now.saturating_sub(before) as f64;
        self.evicted = self.evicted * REMEMBERED + since(so_far.0, self.before.0);
        self.read = self.read * REMEMBERED + since(so_far.1, self.before.1);
        self.before = so_far;
        let evictions = self.evicted > self.read * EVICTED_SHARE;
        if evictions {
            // Answered once; what comes after it shows whether it was enough.
            self.evicted = 0.0;
        }
        let pressed = waits || evictions;
        self.share = if pressed { self.share * 0.9 } else { self.share + 0.02 }.clamp(0.05, 1.0);
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
        let full = Bytes(1 << 30);
        assert_eq!(budget.within(limit, (0, 1 << 28), 1, false), full);
        let read = |period: u64| period << 28;
        assert_eq!(
            budget.within(limit, (2 << 20, read(2)), 1, false),
            full,
            "less than a hundredth of what is read"
        );
        let shrunk = budget.within(limit, (64 << 20, read(3)), 1, false);
        assert!(shrunk < Bytes((1 << 30) / 10 * 9 + 4096), "{shrunk}");
        let grown = budget.within(limit, (64 << 20, read(4)), 1, false);
        assert!(grown > shrunk && grown < full);
        for period in 5..25 {
            budget.within(limit, (64 << 20, read(period)), 1, false);
        }
        let waits = budget.within(limit, (64 << 20, read(25)), 1, true);
        assert!(waits < full, "others wait for memory: {waits}");
        for period in 26..46 {
            budget.within(limit, (64 << 20, read(period)), 1, false);
        }
        assert_eq!(budget.within(limit, (64 << 20, read(46)), 2, false), Bytes(1 << 29), "two disks share");
        assert_eq!(budget.within(1 << 20, (64 << 20, read(47)), 1, false), Bytes(LEAST));
    }

    #[test]
    fn a_fixed_budget_stays() {
        let now = Instant::now();
        let mut budget = Budget::new(Some(Bytes::mib(100)), now);
        assert_eq!(budget.due(now, 0, 0, 1), Some(Bytes::mib(100)));
        assert_eq!(budget.due(now, 1 << 40, 0, 1), None, "not yet");
        assert_eq!(budget.due(now + EVERY, 1 << 40, 0, 1), Some(Bytes::mib(100)));
    }
}
