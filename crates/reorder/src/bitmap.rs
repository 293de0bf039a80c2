//! A client's block map: which blocks have been given to it.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

const WORD: u64 = 64;

/// One bit a block of a file; set once the block is given (queued or sent) or not wanted.
#[derive(Clone, Debug)]
pub(super) struct BlockMap {
    words: Vec<u64>,
    blocks: u64,
    /// Blocks not given yet.
    pub(super) missing: u64,
}

impl BlockMap {
    /// All `blocks` missing.
    pub(super) fn missing_all(blocks: u64) -> BlockMap {
        let mut words = vec![0; blocks.div_ceil(WORD) as usize];
        if let Some(last) = words.last_mut().filter(|_| !blocks.is_multiple_of(WORD)) {
            *last = u64::MAX << (blocks % WORD);
        }
        BlockMap { words, blocks, missing: blocks }
    }

    /// None missing but those of the ranges, as far as they lie within the file.
    pub(super) fn missing_only(blocks: u64, ranges: &[Range<u64>]) -> BlockMap {
        let words = vec![u64::MAX; blocks.div_ceil(WORD) as usize];
        let mut map = BlockMap { words, blocks, missing: 0 };
        for range in ranges {
            for block in range.start.min(blocks)..range.end.min(blocks) {
                if map.is_given(block) {
                    map.words[(block / WORD) as usize] &= !(1 << (block % WORD));
                    map.missing += 1;
                }
            }
        }
        map
    }

    /// Whether a block was given or is not wanted; true beyond the end.
    pub(super) fn is_given(&self, block: u64) -> bool {
        block >= self.blocks || self.words[(block / WORD) as usize] >> (block % WORD) & 1 == 1
    }

    /// Marks a block as given.
    pub(super) fn give(&mut self, block: u64) {
        if !self.is_given(block) {
            self.words[(block / WORD) as usize] |= 1 << (block % WORD);
            self.missing -= 1;
        }
    }

    /// The first missing block from `from` on, going on at the beginning after the end.
    pub(super) fn next_missing(&self, from: u64) -> Option<u64> {
        if self.missing == 0 {
            return None;
        }
        let start = (from / WORD) as usize;
        let first = self.words[start] | ((1 << (from % WORD)) - 1);
        if first != u64::MAX {
            return Some(start as u64 * WORD + u64::from(first.trailing_ones()));
        }
        let count = self.words.len();
        (1..=count).map(|i| (start + i) % count).find(|i| self.words[*i] != u64::MAX).map(|i| {
            // Back at the first word, only its lower part can be missing.
            i as u64 * WORD + u64::from(self.words[i].trailing_ones())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against the obvious loop, over sizes around the word's.
    #[test]
    fn finds_what_a_plain_loop_finds() {
        for blocks in [1, 2, 63, 64, 65, 127, 128, 129, 200] {
            let mut map = BlockMap::missing_all(blocks);
            let mut seed = blocks;
            while map.missing > 0 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let from = (seed >> 33) % blocks;
                let expected = (0..blocks).map(|i| (from + i) % blocks).find(|b| !map.is_given(*b));
                assert_eq!(map.next_missing(from), expected);
                map.give((seed >> 40) % blocks);
            }
            assert_eq!(map.next_missing(0), None);
        }
    }

    #[test]
    fn ranges_are_cut_and_counted_once() {
        let map = BlockMap::missing_only(100, &[10..20, 15..25, 90..1000, 7..7]);
        assert_eq!(map.missing, 15 + 10);
        assert_eq!(map.next_missing(0), Some(10));
        assert_eq!(map.next_missing(25), Some(90));
        assert_eq!(map.next_missing(99), Some(99));
        assert!(map.is_given(100));
        assert_eq!(BlockMap::missing_only(0, &[]).missing, 0);
    }
}
