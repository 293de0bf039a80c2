//! The blocks in memory: a bounded number, the one used longest ago leaves first, one being sent never.

use hashbrown::HashMap;
use lru::LruCache;

use super::ContentId;

pub(super) type Key = (ContentId, u64);

/// Bounded block memory.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    capacity: u64,
    /// The number of clients that each block is being sent to.
    held: HashMap<Key, u32>,
    /// Not pinned, by last use.
    idle: LruCache<Key, ()>,
    /// Room promised to reads under way.
    reserved: u64,
}

impl Memory {
    pub(super) fn new(capacity: u64) -> Memory {
        Memory { capacity: capacity.max(1), held: HashMap::new(), idle: LruCache::unbounded(), reserved: 0 }
    }

    pub(super) fn contains(&self, key: Key) -> bool {
        self.held.contains_key(&key)
    }

    /// Blocks held or promised.
    pub(super) fn in_use(&self) -> u64 {
        self.held.len() as u64 + self.reserved
    }

    /// Whether a block more can be read, if need be by dropping one.
    pub(super) fn has_room(&self) -> bool {
        self.in_use() < self.capacity || (self.in_use() == self.capacity && !self.idle.is_empty())
    }

    /// Sets how many blocks there may be, at least one.
    pub(super) fn resize(&mut self, capacity: u64) {
        self.capacity = capacity.max(1);
    }

    /// A block to be dropped because there are too many, the one used longest ago first.
    pub(super) fn shrink(&mut self) -> Option<Key> {
        if self.in_use() <= self.capacity {
            return None;
        }
        self.drop_oldest()
    }

    /// The idle block used longest ago is held no longer.
    fn drop_oldest(&mut self) -> Option<Key> {
        let (key, ()) = self.idle.pop_lru()?;
        self.held.remove(&key);
        Some(key)
    }

    /// Promises room for one block, dropping the block used longest ago if that is necessary.
    pub(super) fn reserve(&mut self) -> Option<Key> {
        let full = self.in_use() >= self.capacity;
        let dropped = if full { self.drop_oldest() } else { None };
        self.reserved += 1;
        dropped
    }

    /// A promised block that did not come.
    pub(super) fn release(&mut self) {
        self.reserved = self.reserved.saturating_sub(1);
    }

    /// A promised block that came.
    pub(super) fn fill(&mut self, key: Key) {
        self.release();
        self.held.insert(key, 0);
        self.idle.put(key, ());
    }

    /// A client is to be sent this block; `false` if it is not here.
    pub(super) fn pin(&mut self, key: Key) -> bool {
        let Some(pins) = self.held.get_mut(&key) else { return false };
        *pins += 1;
        self.idle.pop(&key);
        true
    }

    /// It is not any more.
    pub(super) fn unpin(&mut self, key: Key) {
        let Some(pins) = self.held.get_mut(&key) else { return };
        *pins = pins.saturating_sub(1);
        if *pins == 0 && !self.idle.contains(&key) {
            self.idle.put(key, ());
        }
    }
}
