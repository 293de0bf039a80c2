//! The order in which pinned ranges are renewed.
//!
//! The kernel evicts pages first that were touched only once, such as prefetched pages that wait for their
//! client. So the driver pins a piece when it has arrived, which makes its pages active. Pages do not stay
//! active: the kernel deactivates those first that have been on the active list longest. So pinned ranges are
//! renewed in turn, one byte for each byte that is pinned. On average a piece is renewed once while it waits
//! for its reader.
//!
//! [`crate::Extents`] knows which ranges are pinned; this module only keeps their order.

use alloc::collections::VecDeque;

use crate::FileId;
use crate::engine::RANGES_MAX;

/// The order of renewal.
#[derive(Debug, Default)]
pub(crate) struct Pins {
    /// File, start and end, the range pinned or renewed longest ago first. Parts of a range may have been
    /// unpinned since.
    turns: VecDeque<(FileId, u64, u64)>,
    /// Bytes pinned minus bytes renewed.
    credit: u64,
}

impl Pins {
    /// Adds a range that was pinned or renewed.
    pub(crate) fn pinned(&mut self, file: FileId, start: u64, end: u64) {
        // If no other range is pinned, there is nothing to renew.
        if !self.turns.is_empty() {
            self.credit = self.credit.saturating_add(end - start);
        }
        if self.turns.len() < RANGES_MAX {
            self.turns.push_back((file, start, end));
        }
    }

    /// The next range to examine; the caller renews what is still pinned of it. `still` returns the number of
    /// bytes of a range that are still pinned.
    pub(crate) fn next(&mut self, still: impl Fn(FileId, u64, u64) -> u64) -> Option<(FileId, u64, u64)> {
        while let Some(&(file, start, end)) = self.turns.front() {
            let bytes = still(file, start, end);
            if bytes > self.credit {
                return None;
            }
            self.turns.pop_front();
            if bytes > 0 {
                self.credit -= bytes;
                if self.turns.len() < RANGES_MAX {
                    self.turns.push_back((file, start, end));
                }
                return Some((file, start, end));
            }
        }
        self.credit = 0;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: FileId = FileId { dev: 1, ino: 2 };
    const M: u64 = 1 << 20;

    #[test]
    fn a_byte_is_renewed_for_each_that_is_pinned() {
        let mut pins = Pins::default();
        let all = |_, start, end| end - start;
        pins.pinned(FILE, 0, M);
        assert_eq!(pins.next(all), None, "nothing was pinned since");
        pins.pinned(FILE, M, 2 * M);
        assert_eq!(pins.next(all), Some((FILE, 0, M)));
        assert_eq!(pins.next(all), None);
        pins.pinned(FILE, 2 * M, 3 * M);
        assert_eq!(pins.next(all), Some((FILE, M, 2 * M)), "in turn");
    }

    #[test]
    fn what_is_no_longer_pinned_leaves_the_round() {
        let mut pins = Pins::default();
        for i in 0..4 {
            pins.pinned(FILE, i * M, (i + 1) * M);
        }
        let last_only = |_, start, end| if start == 3 * M { end - start } else { 0 };
        assert_eq!(pins.next(last_only), Some((FILE, 3 * M, 4 * M)));
        assert_eq!(pins.next(|_, _, _| 0), None);
        assert_eq!(pins.turns.len(), 0);
    }

    #[test]
    fn turns_are_bounded() {
        let mut pins = Pins::default();
        (0..2 * RANGES_MAX as u64).for_each(|i| pins.pinned(FILE, i * M, (i + 1) * M));
        assert_eq!(pins.turns.len(), RANGES_MAX);
    }
}
