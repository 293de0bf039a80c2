//! Which bytes of a file have arrived.
//!
//! Circus keeps a bit for each block. Other servers answer with ranges of any size, and a transfer may break
//! anywhere, so this map keeps exact ranges. Adjacent ranges are joined, and a download in the server's order
//! has few. A server that sends single bytes far apart could make the map as large as it likes, so their
//! number is bounded: at the bound a range is added only if it joins another, and other bytes count as
//! missing.

use alloc::vec::Vec;
use core::ops::Range;

use rangemap::RangeSet;

use crate::parts::range::Span;

/// Maximum number of ranges of a map, some 12 MB. A file in blocks of 1 MiB that arrive in the worst order,
/// every second one first, has as many at 512 GiB. At half of this, such a file would have blocks sent twice;
/// at double, the map takes 24 MB.
pub const RANGES_MAX: usize = 1 << 18;

/// A set of bytes of a file of known size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockMap {
    size: u64,
    ranges_max: usize,
    have: RangeSet<u64>,
    received: u64,
}

impl BlockMap {
    /// An empty map of `size` bytes, with at most [`RANGES_MAX`] ranges.
    pub fn new(size: u64) -> BlockMap {
        BlockMap::bounded(size, RANGES_MAX)
    }

    /// An empty map of `size` bytes, with at most `ranges_max` ranges (at least one).
    pub fn bounded(size: u64, ranges_max: usize) -> BlockMap {
        BlockMap { size, ranges_max: ranges_max.max(1), have: RangeSet::new(), received: 0 }
    }

    /// Size of the file.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Bytes that have arrived, each counted once.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Whether nothing is missing.
    pub fn complete(&self) -> bool {
        self.received == self.size
    }

    /// Adds a range, cut at the end of the file. A range that would be one too many is not added. Returns how
    /// many of its bytes are new.
    pub fn insert(&mut self, span: Span) -> u64 {
        let (start, end) = (span.offset, span.offset.saturating_add(span.len).min(self.size));
        if start >= end {
            return 0;
        }
        let joins = self.have.overlaps(&(start.saturating_sub(1)..end.saturating_add(1)));
        if self.have.len() >= self.ranges_max && !joins {
            return 0;
        }
        let new = self.have.gaps(&(start..end)).map(|gap| gap.end - gap.start).sum();
        self.have.insert(start..end);
        self.received += new;
        new
    }

    /// The ranges that have arrived, in order.
    pub fn spans(&self) -> impl Iterator<Item = Span> + '_ {
        self.have.iter().map(|range| span(range.clone()))
    }

    /// The first `most` ranges that are missing, in order.
    pub fn missing(&self, most: usize) -> Vec<Span> {
        match self.complete() {
            true => Vec::new(),
            false => self.have.gaps(&(0..self.size)).map(span).take(most).collect(),
        }
    }
}

fn span(range: Range<u64>) -> Span {
    Span { offset: range.start, len: range.end - range.start }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;
    use proptest::prelude::*;

    #[test]
    fn neighbours_join() {
        let mut map = BlockMap::new(100);
        let span = |offset, len| Span { offset, len };
        assert_eq!(map.missing(9), [span(0, 100)]);
        assert_eq!(map.insert(span(20, 10)), 10);
        assert_eq!(map.insert(span(40, 10)), 10);
        assert_eq!(map.insert(span(30, 10)), 10);
        assert_eq!(map.spans().collect::<Vec<_>>(), [span(20, 30)]);
        assert_eq!(map.insert(span(0, 25)), 20);
        assert_eq!(map.insert(span(10, 5)), 0);
        assert_eq!(map.missing(9), [span(50, 50)]);
        assert_eq!(map.insert(span(50, 1000)), 50);
        assert_eq!(map.insert(span(u64::MAX, 5)), 0);
        assert!(map.complete() && map.missing(9).is_empty());
        assert!(BlockMap::new(0).complete());
    }

    #[test]
    fn ranges_are_bounded_and_the_file_still_becomes_whole() {
        let mut map = BlockMap::bounded(1000, 10);
        let span = |offset, len| Span { offset, len };
        // Every second byte: ten are kept.
        let kept: u64 = (0..500).map(|i| map.insert(span(2 * i, 1))).sum();
        assert_eq!((kept, map.received(), map.spans().count()), (10, 10, 10));
        assert_eq!(map.insert(span(999, 1)), 0);
        assert_eq!(map.insert(span(1, 1)), 1, "what joins is taken");
        assert_eq!(map.insert(span(999, 1)), 1, "and makes room");
        // Requesting what is missing, a few ranges at a time, ends.
        let mut rounds = 0;
        while !map.complete() {
            for gap in map.missing(3) {
                map.insert(gap);
            }
            rounds += 1;
            assert!(rounds < 20 && map.spans().count() <= 10);
        }
    }

    proptest! {
        /// Compared with a plain array: every byte once, and gaps exactly where no byte arrived.
        #[test]
        fn every_byte_once(spans in proptest::collection::vec((0u64..220, 0u64..60), 0..40), size in 0u64..200) {
            let mut map = BlockMap::new(size);
            let mut plain = vec![false; size as usize];
            for (offset, len) in spans {
                let range = offset.min(size) as usize..(offset + len).min(size) as usize;
                let new = plain[range.clone()].iter().filter(|b| !**b).count() as u64;
                plain[range].fill(true);
                prop_assert_eq!(map.insert(Span { offset, len }), new);
                prop_assert_eq!(map.received(), plain.iter().filter(|b| **b).count() as u64);
            }
            let mut again = vec![false; size as usize];
            for span in map.spans() {
                again[span.offset as usize..span.end() as usize].fill(true);
            }
            prop_assert_eq!(&again, &plain);
            let missing = map.missing(usize::MAX);
            for span in &missing {
                prop_assert!(!plain[span.offset as usize..span.end() as usize].iter().any(|b| *b));
            }
            let total: u64 = missing.iter().map(|s| s.len).sum();
            prop_assert_eq!(total + map.received(), size);
            prop_assert_eq!(map.missing(2), missing.into_iter().take(2).collect::<Vec<_>>());
        }
    }
}
