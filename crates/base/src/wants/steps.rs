//! The steps in which a caller looks at what it wants, or asks for it.

use core::ops::Range;

use crate::wants::{PAGE, PIECE, READ_LOOK_MAX, Want};

/// What each call of a pass asks for, bytes. The kernel silently cuts a read-ahead call at the larger of its
/// read-ahead size and the device's largest transfer, which its caller does not know. The first pass makes
/// few large commands where it may: 64 threads that each ask for 2 MiB in pieces of 128 KiB have them mixed
/// in the disk's queue, at a seek each. The later passes ask for what the cut left out; what is there already
/// costs nothing.
const PASSES: [u64; 3] = [READ_LOOK_MAX, 1 << 20, PIECE];

/// `[from, upto)` in consecutive parts of `step` bytes, the last one shorter. A step of 0 counts as 1.
pub fn parts(from: u64, upto: u64, step: u64) -> impl Iterator<Item = Range<u64>> {
    let mut from = from;
    core::iter::from_fn(move || {
        let part = from..upto.min(from.saturating_add(step.max(1)));
        from = part.end;
        (part.start < part.end).then_some(part)
    })
}

/// The calls by which a process reads a range for itself (mode `prefetch`), in their order. No more than
/// [`READ_LOOK_MAX`] bytes of it.
pub fn passes(want: Want) -> impl Iterator<Item = Range<u64>> {
    let want = want.at_most(READ_LOOK_MAX);
    PASSES.into_iter().flat_map(move |step| parts(want.offset(), want.end(), step))
}

impl Want {
    /// Numbers of the pieces ([`PIECE`]) that it touches.
    pub const fn pieces(self) -> Range<u64> {
        self.offset() / PIECE..(self.end() - 1) / PIECE + 1
    }

    /// Numbers of the pieces that are known to be in memory when it is: those that end within it, or with
    /// their file. The piece that its first byte is in counts although its beginning is not known.
    pub fn known_pieces(self) -> Range<u64> {
        let end =
            if self.end() == self.file_bytes() { self.end().div_ceil(PIECE) } else { self.end() / PIECE };
        self.offset() / PIECE..end
    }
}

/// How many of `prefix` bytes from `offset`, pages of which are in memory or on their way, have been read:
/// the page of one byte in every [`PIECE`], and of the last, is looked at. Reads complete in file order, so
/// pages between two that are ready are ready too, nearly always. At the first look that fails, what counts
/// ends before the page of the look before it.
pub fn ready_prefix(offset: u64, prefix: u64, is_ready: impl Fn(u64) -> bool) -> u64 {
    let Some(last) = prefix.checked_sub(1).and_then(|more| offset.checked_add(more)) else { return 0 };
    let mut at = offset;
    loop {
        if !is_ready(at) {
            let sure = at.saturating_sub(PIECE).max(offset) / PAGE * PAGE;
            return sure.saturating_sub(offset);
        }
        if at == last {
            return prefix;
        }
        at = at.saturating_add(PIECE).min(last);
    }
}

#[cfg(test)]
mod tests {
    extern crate alloc;

    use alloc::vec::Vec;

    use super::*;
    use proptest::prelude::*;

    const M: u64 = 1 << 20;

    fn want(offset: u64, len: u64, size: u64) -> Want {
        Want::of(offset, len, size).unwrap()
    }

    #[test]
    fn each_pass_covers_the_range_in_smaller_steps() {
        let all: Vec<_> = passes(want(5, 2 * M, u64::MAX)).collect();
        assert_eq!(all[0], 5..2 * M + 5, "one call where the kernel does not cut it");
        assert_eq!(all[1..3], [5..M + 5, M + 5..2 * M + 5]);
        assert_eq!((all.len(), all[3].clone()), (1 + 2 + 16, 5..PIECE + 5));
        let most: Vec<_> = passes(want(0, u64::MAX, u64::MAX)).collect();
        assert_eq!(most[0], 0..READ_LOOK_MAX, "whatever the daemon says");
    }

    #[test]
    fn a_piece_is_known_when_it_ends_within_or_with_the_file() {
        let size = 10 * PIECE + 5;
        assert_eq!(want(100, 2 * PIECE, size).pieces(), 0..3);
        assert_eq!(want(100, 2 * PIECE, size).known_pieces(), 0..2);
        assert_eq!(want(10 * PIECE, 5, size).known_pieces(), 10..11);
        assert_eq!(want(0, PIECE, size).pieces(), 0..1);
        assert!(want(0, 1, size).known_pieces().is_empty());
    }

    #[test]
    fn a_look_that_fails_takes_the_piece_before_it_along() {
        let upto = |end: u64| move |at: u64| at < end;
        assert_eq!(ready_prefix(5, 4 * PIECE, upto(u64::MAX)), 4 * PIECE);
        assert_eq!(ready_prefix(5, 4 * PIECE, upto(5)), 0);
        assert_eq!(ready_prefix(5, 4 * PIECE, upto(PIECE)), 0, "of the first look one page is known");
        let twice = ready_prefix(5, 4 * PIECE, upto(2 * PIECE));
        assert_eq!(twice, PIECE - 5, "up to the page of the look before");
        assert_eq!(ready_prefix(0, 0, |_| panic!("nothing to look at")), 0);
        assert_eq!(ready_prefix(7, 1, |at| at == 7), 1);
    }

    proptest! {
        #[test]
        fn parts_are_consecutive_and_whole(from in 0u64..1 << 40, len in 0u64..1 << 24, step in 0u64..1 << 22) {
            const MANY: usize = 5_000;
            let found: Vec<_> = parts(from, from + len, step).take(MANY).collect();
            let ends = found.iter().fold(from, |at, part| if part.start == at { part.end } else { u64::MAX });
            prop_assert!(found.len() == MANY || ends == from + len);
            prop_assert!(found.iter().all(|part| (1..=step.max(1)).contains(&(part.end - part.start))));
        }

        #[test]
        fn what_is_ready_was_looked_at(offset in 0u64..1 << 40, prefix in 1u64..1 << 24, hole in 0u64..1 << 24) {
            let hole = offset + hole;
            let ready = ready_prefix(offset, prefix, |at| at < hole);
            prop_assert!(ready <= prefix && (ready == prefix || offset + ready <= hole.next_multiple_of(PAGE)));
        }
    }
}
