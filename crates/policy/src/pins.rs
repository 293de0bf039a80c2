//! In which order pinned ranges are renewed.
//!
//! The kernel takes first what was not touched twice, and that is what was fetched and waits for its client.
//! So the driver pins a piece when it has arrived: it makes its pages active. Pages do not stay active. The
//! kernel takes those off that list which came to it longest ago. So pinned ranges are renewed in turn, a
//! byte for each byte that is pinned: once, on the mean, while a piece waits for its reader.
//!
//! Which ranges are pinned stands in [`crate::Extents`]; here is only whose turn it is.

use alloc::collections::VecDeque;

use crate::FileId;
use crate::engine::RANGES_MAX;

/// Whose turn it is.
#[derive(Debug, Default)]
pub(crate) struct Pins {
    /// File, start and end, the one pinned or renewed longest ago first. Parts of them may not be pinned any
    /// more.
    turns: VecDeque<(FileId, u64, u64)>,
    /// Bytes pinned, less those renewed.
    credit: u64,
}

impl Pins {
    /// A range was pinned, or renewed.
    pub(crate) fn pinned(&mut self, file: FileId, start: u64, end: u64) {
        // A range that is pinned alone has nothing to renew.
        if !self.turns.is_empty() {
            self.credit = self.credit.saturating_add(end - start);
        }
        if self.turns.len() < RANGES_MAX {
            self.turns.push_back((file, start, end));
        }
    }

    /// The next range to look at: what of it is still pinned is renewed. `still` says how many bytes that is.
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
