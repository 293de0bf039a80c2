//! The files for which the host has announced random reads (`POSIX_FADV_RANDOM`, `MADV_RANDOM`).
//!
//! The kernel keeps this advice with the open file and does not expose it. The shim keeps no descriptors, so
//! it remembers the advice by file, in a small, lossy table of fingerprints. The latest advice about a file
//! counts. A lost or colliding fingerprint only causes some read-ahead that is not used, or prevents some:
//! like everything here it is a hint.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::marks::FileId;

/// Number of slots, 16 KiB. At half, some advice of a client of several thousand torrents is lost; at double,
/// the table takes twice as much memory of a process that uses it.
const SLOTS: usize = 1 << 12;

/// Number of slots in which a file may be found.
const PROBES: usize = 4;

pub(crate) struct Advice {
    /// Whether any advice is stored. The table is not touched before.
    any: AtomicBool,
    slots: [AtomicU32; SLOTS],
}

pub(crate) static ADVICE: Advice = Advice::new();

impl Advice {
    const fn new() -> Advice {
        Advice { any: AtomicBool::new(false), slots: [const { AtomicU32::new(0) }; SLOTS] }
    }

    /// The slots of a file, and its fingerprint, which is never 0.
    fn places(&self, file: FileId) -> (impl Iterator<Item = &AtomicU32>, u32) {
        let mut h = file.inode ^ file.device.rotate_left(32);
        // The finalizer of splitmix64.
        h = (h ^ h >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        h = (h ^ h >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        h ^= h >> 31;
        let first = h as usize;
        let places = (0..PROBES).filter_map(move |i| self.slots.get(first.wrapping_add(i) % SLOTS));
        (places, (h >> 32) as u32 | 1)
    }

    /// Whether any advice is stored; if not, no lookup is needed.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// Whether the host has announced random reads of this file.
    pub(crate) fn is_random(&self, file: FileId) -> bool {
        if !self.any() {
            return false;
        }
        let (mut places, print) = self.places(file);
        places.any(|slot| slot.load(Ordering::Relaxed) == print)
    }

    /// Stores the host's advice about this file.
    pub(crate) fn set(&self, file: FileId, random: bool) {
        if random == self.is_random(file) {
            return;
        }
        let (places, print) = self.places(file);
        if !random {
            for slot in places {
                let _ = slot.compare_exchange(print, 0, Ordering::Relaxed, Ordering::Relaxed);
            }
            return;
        }
        self.any.store(true, Ordering::Relaxed);
        let mut places = places.peekable();
        let Some(first) = places.peek().copied() else { return };
        let free =
            |slot: &&AtomicU32| slot.compare_exchange(0, print, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if places.find(free).is_none() {
            first.store(print, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(inode: u64) -> FileId {
        FileId { device: 0x801, inode }
    }

    #[test]
    fn the_last_word_about_a_file_holds() {
        let advice = Advice::new();
        assert!(!advice.is_random(file(1)) && !advice.any());
        advice.set(file(1), false);
        assert!(!advice.any(), "the table is not touched for nothing");
        advice.set(file(1), true);
        advice.set(file(1), true);
        assert!(advice.is_random(file(1)) && !advice.is_random(file(2)));
        advice.set(file(1), false);
        assert!(!advice.is_random(file(1)));
    }

    #[test]
    fn however_many_there_are_the_last_is_remembered() {
        let advice = Advice::new();
        for inode in 1..5 * SLOTS as u64 {
            advice.set(file(inode), true);
            assert!(advice.is_random(file(inode)), "{inode}");
        }
    }
}
