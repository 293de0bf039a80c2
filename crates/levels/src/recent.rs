//! A bounded set of block numbers in least-recently-used order: PFC's bypass and readmore queues, and what a
//! page cache may hold.
//!
//! It holds numbers only, no data (PFC, section 3.2). "Least recently inserted or re-accessed blocks are
//! evicted when the queue is full."

use core::num::NonZeroUsize;

use lru::LruCache;

/// Bounded LRU set of block numbers; `None` if it has no room for any.
#[derive(Clone, Debug)]
pub struct RecentBlocks(Option<LruCache<u64, ()>>);

impl RecentBlocks {
    /// A set of at most `capacity` numbers; with 0 it stays empty.
    pub fn new(capacity: usize) -> RecentBlocks {
        RecentBlocks(NonZeroUsize::new(capacity).map(LruCache::sparse))
    }

    /// Whether a block is in the set. Changes nothing.
    #[inline]
    pub fn holds(&self, block: u64) -> bool {
        self.0.as_ref().is_some_and(|blocks| blocks.contains(&block))
    }

    /// Whether a block is in the set. With `refresh` it counts as re-accessed and becomes the most recent.
    #[inline]
    pub fn contains(&mut self, block: u64, refresh: bool) -> bool {
        match &mut self.0 {
            Some(blocks) if refresh => blocks.promote(&block),
            _ => self.holds(block),
        }
    }

    /// Adds a block. One that is there already becomes the most recent if `refresh`, otherwise stays where it
    /// is. Returns whether it was there.
    #[inline]
    pub fn insert(&mut self, block: u64, refresh: bool) -> bool {
        let there = self.contains(block, refresh);
        if let Some(blocks) = self.0.as_mut().filter(|_| !there) {
            blocks.put(block, ());
        }
        there
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Behaves like a plain list of numbers, newest last.
        #[test]
        fn behaves_like_a_plain_list(
            capacity in 0_usize..9,
            ops in proptest::collection::vec((any::<bool>(), any::<bool>(), 0_u64..20), 0..300),
        ) {
            let mut recent = RecentBlocks::new(capacity);
            let mut model: Vec<u64> = Vec::new();
            for (inserts, refresh, block) in ops {
                let at = model.iter().position(|b| *b == block);
                prop_assert_eq!(recent.holds(block), at.is_some());
                let found = if inserts { recent.insert(block, refresh) } else { recent.contains(block, refresh) };
                prop_assert_eq!(found, at.is_some());
                match at {
                    Some(at) if refresh => {
                        model.remove(at);
                        model.push(block);
                    }
                    None if inserts && capacity > 0 => {
                        if model.len() == capacity {
                            model.remove(0);
                        }
                        model.push(block);
                    }
                    _ => {}
                }
            }
        }
    }
}
