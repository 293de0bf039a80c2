//! A bounded set of block numbers in least-recently-used order: PFC's bypass and readmore queues.
//!
//! It holds numbers only, no data (PFC, section 3.2). "Least recently inserted or re-accessed blocks are evicted
//! when the queue is full."

use super::store::Store;

/// Bounded LRU set of block numbers.
#[derive(Clone, Debug)]
pub struct BlockQueue {
    store: Store,
    capacity: usize,
}

impl BlockQueue {
    /// A queue of at most `capacity` numbers; with 0 it stays empty.
    pub fn new(capacity: usize) -> BlockQueue {
        BlockQueue { store: Store::with_slots(capacity), capacity }
    }

    /// Whether a block is listed. With `refresh` it counts as re-accessed and becomes the most recent.
    #[inline]
    pub fn contains(&mut self, block: u64, refresh: bool) -> bool {
        match self.store.find(block) {
            Some(slot) => {
                if refresh {
                    self.store.move_to_head(slot, 0);
                }
                true
            }
            None => false,
        }
    }

    /// Lists a block; one listed already becomes the most recent if `refresh`, else stays where it is.
    #[inline]
    pub fn insert(&mut self, block: u64, refresh: bool) {
        if self.capacity == 0 || self.contains(block, refresh) {
            return;
        }
        if self.store.len(0) >= self.capacity
            && let Some(oldest) = self.store.tail(0)
        {
            self.store.remove(oldest);
        }
        self.store.insert(block, 0);
    }

    /// Numbers listed.
    pub fn len(&self) -> usize {
        self.store.len(0)
    }

    /// Whether nothing is listed.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Memory it takes, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.store.bytes()
    }
}
