//! How much may lie in memory fetched and not yet read, of one disk, when nobody says: a share of what the page cache holds.
//!
//! Two thirds of the page cache at most, and where what is read ahead is held ([`crate::hold`]) no more than can be: the rest is for what
//! has been read and may be read again, for pages on their way, and for the kernel's own slack. (Four fifths carry 3 to 6 % more simulated
//! sessions of SD in 2 GiB and up to 1.6 % of what is requested is evicted unread there instead of 0.6; in 8 GiB they gain nothing.) That is a guess about a cache shared with others, so it is corrected by what is
//! observed, as a congestion window is: when more than 3 in a thousand of the bytes read are found gone before their reader came, the
//! share shrinks by a tenth at once; while less is, it comes back quickly to nine tenths of where that happened, and
//! beyond only slowly, as CUBIC does (Ha, Rhee and Xu 2008): without that memory it would run into the same wall every
//! minute. Not anything at all: pieces half as long cost far more than the few bytes they save. How much is evicted rests on how
//! often it comes to the wall more than on this share: at twice that slow pace 0.9 to 1.6 % of what is requested was evicted unread in the
//! tightest simulated cell (7200 rpm, SD and HD mixed, 2 GiB), and 0.4 to 0.8 % at this, for as many sessions. Evictions
//! count only while what has been read is being given back ([`crate::DropBehind`]), which comes first and costs less.

use seekless_units::Bytes;

use crate::Stats;

/// How often the driver asks.
pub const EVERY_S: u64 = 2;

/// No smaller, or a disk could not even have one piece for each of a handful of readers.
pub const LEAST: Bytes = Bytes::mib(8);

/// Part of what was read that may be evicted before its use.
const EVICTED_SHARE: f64 = 0.003;

/// What is left of a period's counts in the next: they are looked at over about ten seconds, because a single piece that
/// is gone is several hundredths of what is read in one period.
const REMEMBERED: f64 = 0.8;

/// What is left of the share when it was too much.
const SHRUNK: f64 = 0.9;

/// Growth a period below nine tenths of the wall, and from there on.
const FAST: f64 = 0.02;
const SLOW: f64 = 0.001;

/// How many of `bytes` of page cache can be on the active list: the kernel takes pages off it (mm/vmscan.c, `inactive_is_low`) when there are more
/// of them than of inactive ones, and from a GiB on more than the root of ten times the GiB as many. What is held beyond that
/// is inactive again, and goes as if it were not held.
pub fn active_most(bytes: u64) -> u64 {
    let ratio = (10 * (bytes >> 30)).isqrt().max(1);
    bytes / (ratio + 1) * ratio
}

/// Most that the budget of one of so many disks is of a page cache of `limit` bytes. `held`: what is read ahead is held, on a list of active
/// pages.
pub fn most(limit: Bytes, disks: usize, held: bool) -> Bytes {
    let share = limit.0 / 3 * 2;
    let most = if held { share.min(active_most(limit.0)) } else { share };
    Bytes(most / disks.max(1) as u64).max(LEAST)
}

/// The share of one disk.
#[derive(Clone, Copy, Debug)]
pub struct BudgetShare {
    share: f64,
    /// Share at which too much was last found gone.
    wall: f64,
    /// Bytes so far, as of the last period: evicted before use, and read.
    before: (u64, u64),
    /// Of the last periods, the older the less.
    evicted: f64,
    read: f64,
}

impl Default for BudgetShare {
    fn default() -> BudgetShare {
        BudgetShare { share: 1.0, wall: 1.0, before: (0, 0), evicted: 0.0, read: 0.0 }
    }
}

impl BudgetShare {
    /// The budget from now on, no more than `most` ([`most`]). `stats`: of the disk's spindle; `waits`: tasks wait for memory. Called
    /// every [`EVERY_S`] seconds.
    pub fn within(&mut self, most: Bytes, stats: &Stats, waits: bool) -> Bytes {
        self.next(most, (stats.bytes_evicted_over_budget, stats.bytes_read), waits)
    }

    fn next(&mut self, most: Bytes, so_far: (u64, u64), waits: bool) -> Bytes {
        let since = |now: u64, before: u64| now.saturating_sub(before) as f64;
        self.evicted = self.evicted * REMEMBERED + since(so_far.0, self.before.0);
        self.read = self.read * REMEMBERED + since(so_far.1, self.before.1);
        self.before = so_far;
        let evictions = self.evicted > self.read * EVICTED_SHARE;
        if evictions {
            // Answered once; what comes after it shows whether it was enough.
            self.evicted = 0.0;
        }
        if evictions || waits {
            self.wall = self.share;
            self.share *= SHRUNK;
        } else {
            self.share += if self.share < 0.9 * self.wall { FAST } else { SLOW };
        }
        self.share = self.share.clamp(0.05, 1.0);
        Bytes((most.0 as f64 * self.share) as u64).max(LEAST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: Bytes = Bytes::gib(1);

    #[test]
    fn a_little_is_nothing_and_more_shrinks_it_at_once() {
        let mut share = BudgetShare::default();
        let read = |period: u64| period << 28;
        assert_eq!(share.next(FULL, (0, read(1)), false), FULL);
        assert_eq!(share.next(FULL, (1 << 20, read(2)), false), FULL, "2 in a thousand");
        let shrunk = share.next(FULL, (64 << 20, read(3)), false);
        assert!(shrunk < Bytes((1 << 30) / 10 * 9 + 4096), "{shrunk}");
        let grown = share.next(FULL, (64 << 20, read(4)), false);
        assert!(grown > shrunk && grown < FULL);
    }

    #[test]
    fn the_active_list_is_half_of_a_small_cache_and_most_of_a_large_one() {
        let (mib, gib) = (1 << 20, 1 << 30);
        assert_eq!(active_most(768 * mib), 384 * mib);
        assert_eq!(active_most(gib - 1), gib / 2 - 1);
        assert_eq!(active_most(gib), gib / 4 * 3);
        assert_eq!(active_most(10 * gib), 10 * gib / 11 * 10);
    }

    #[test]
    fn no_more_than_the_active_list_is_held() {
        assert_eq!(most(Bytes::mib(768), 1, true), Bytes::mib(384));
        assert_eq!(most(Bytes::mib(768), 2, true), Bytes::mib(192));
        assert_eq!(most(Bytes::mib(768), 1, false), Bytes::mib(512));
        assert_eq!(most(Bytes::mib(4), 1, true), LEAST);
        assert_eq!(most(Bytes::gib(3), 1, true), Bytes::gib(2), "the share decides from a GiB on");
    }

    #[test]
    fn it_comes_back_to_the_wall_and_slowly_beyond() {
        let mut share = BudgetShare::default();
        // Shrunk five times in a row: the last wall is where it was before the last.
        let mut period = 0;
        let mut step = |share: &mut BudgetShare, evicted: u64| {
            period += 1;
            share.next(FULL, (evicted, period << 28), false)
        };
        let walls: alloc::vec::Vec<Bytes> = (1..=5).map(|i| step(&mut share, i << 27)).collect();
        let wall = walls[3];
        let back = (0..3).fold(Bytes(0), |_, _| step(&mut share, 5 << 27));
        assert!(back.0 as f64 >= 0.9 * wall.0 as f64, "{back} of {wall}");
        let beyond = (0..20).fold(Bytes(0), |_, _| step(&mut share, 5 << 27));
        assert!((beyond.0 as f64) < 1.05 * wall.0 as f64, "{beyond} of {wall}");
        assert_eq!((0..400).fold(Bytes(0), |_, _| step(&mut share, 5 << 27)), FULL);
    }

    #[test]
    fn others_that_wait_and_endless_pressure() {
        let mut share = BudgetShare::default();
        assert!(share.next(FULL, (0, 1 << 28), true) < FULL, "others wait for memory");
        let last = (1..100u64).fold(Bytes(0), |_, i| share.next(Bytes::gib(2), (i << 30, i << 31), false));
        assert_eq!(last, Bytes((2u64 << 30) / 20), "endless pressure leaves a twentieth");
    }
}
