//! How much may lie in memory fetched and not yet read, of one disk, when nobody says: a share of what the page cache holds.
//!
//! Two thirds of the page cache at most: the rest is for what has been read and may be read again, for pages on their way,
//! and for the kernel's own slack. That is a guess about a cache shared with others, so it is corrected by what is
//! observed, as a congestion window is: when bytes are found gone before their reader came, the share shrinks by a fifth
//! at once; while none are, it comes back quickly to nine tenths of where that happened, and beyond only slowly, as CUBIC
//! does (Ha, Rhee and Xu 2008). Without that memory it would run into the same wall every minute, and a twentieth of all that
//! is read would be evicted unread.

use seekless_units::Bytes;

/// How often the driver asks.
pub const EVERY_S: u64 = 2;

/// No smaller, or a disk could not even have one piece for each of a handful of readers.
pub const LEAST: Bytes = Bytes::mib(8);

/// Evicted bytes within one period that mean something, as a part of the ceiling. One page too few in a thousand pieces is noise.
const NOISE: u64 = 2000;

/// Growth a period below nine tenths of the wall, and from there on.
const FAST: f64 = 0.02;
const SLOW: f64 = 0.001;

/// The share of one disk.
#[derive(Clone, Copy, Debug)]
pub struct BudgetShare {
    share: f64,
    /// Share at which bytes were last found gone.
    wall: f64,
    evicted_before: u64,
}

impl Default for BudgetShare {
    fn default() -> BudgetShare {
        BudgetShare { share: 1.0, wall: 1.0, evicted_before: 0 }
    }
}

impl BudgetShare {
    /// The budget from now on. `limit`: bytes the page cache may hold; `evicted`: bytes so far that were gone before they
    /// were read although what had been read was given back ([`crate::Stats::bytes_evicted_over_budget`]); `disks`: how many share the memory; `waits`: tasks wait for memory. Called every [`EVERY_S`] seconds.
    pub fn within(&mut self, limit: Bytes, evicted: u64, disks: usize, waits: bool) -> Bytes {
        let ceiling = limit.0 / 3 * 2 / disks.max(1) as u64;
        let pressed = waits || evicted.saturating_sub(self.evicted_before) > ceiling / NOISE;
        self.evicted_before = evicted;
        if pressed {
            self.wall = self.share;
            self.share *= 0.8;
        } else {
            self.share += if self.share < 0.9 * self.wall { FAST } else { SLOW };
        }
        self.share = self.share.clamp(0.05, 1.0);
        Bytes((ceiling as f64 * self.share) as u64).max(LEAST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_gives_way_fast_and_comes_back_to_the_wall_and_slowly_beyond() {
        let mut share = BudgetShare::default();
        let limit = Bytes(3 << 29);
        assert_eq!(share.within(limit, 0, 1, false), Bytes::gib(1));
        let shrunk = share.within(limit, 64 << 20, 1, false);
        assert!(shrunk < Bytes((1 << 30) / 5 * 4 + 4096), "{shrunk}");
        let mut calm =
            |periods: u32| (0..periods).fold(Bytes(0), |_, _| share.within(limit, 64 << 20, 1, false));
        let nine_tenths = 9 * ((1u64 << 30) / 10);
        assert!(calm(6) >= Bytes(nine_tenths), "back within a dozen seconds");
        assert!(calm(20) < Bytes(nine_tenths + (1 << 30) / 20), "and then slowly");
        assert_eq!(calm(200), Bytes::gib(1));
        assert!(share.within(limit, 64 << 20, 1, true) < Bytes::gib(1), "others wait for memory");
        (0..300).for_each(|_| drop(share.within(limit, 64 << 20, 2, false)));
        assert_eq!(share.within(limit, 64 << 20, 2, false), Bytes(1 << 29), "two disks share");
        assert_eq!(share.within(Bytes::mib(1), 64 << 20, 1, false), LEAST);
    }

    #[test]
    fn endless_pressure_leaves_a_twentieth() {
        let mut share = BudgetShare::default();
        let last = (1..100).fold(Bytes(0), |_, i| share.within(Bytes::gib(3), i << 30, 1, false));
        assert_eq!(last, Bytes((2u64 << 30) / 20));
    }
}
