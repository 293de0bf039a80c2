//! The blocks in memory: a bounded number, the one used longest ago leaves first, one being sent never.

use alloc::collections::BTreeMap;

use super::ContentId;
use crate::recency::{Recency, Turn};

pub(super) type Key = (ContentId, u64);

#[derive(Clone, Copy, Debug)]
struct Held {
    /// Clients it is being sent to.
    pins: u32,
    /// Its place in `idle` while no client holds it.
    idle: Option<Turn>,
}

/// Bounded block memory.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    capacity: u64,
    held: BTreeMap<Key, Held>,
    /// Not pinned, by last use.
    idle: Recency<Key>,
    /// Room promised to reads under way.
    reserved: u64,
}

impl Memory {
    pub(super) fn new(capacity: u64) -> Memory {
        Memory { capacity: capacity.max(1), held: BTreeMap::new(), idle: Recency::default(), reserved: 0 }
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
        let key = self.idle.pop_oldest()?;
        self.held.remove(&key);
        Some(key)
    }

    /// Promises room for one block, dropping the block used longest ago if that is necessary.
    pub(super) fn reserve(&mut self) -> Option<Key> {
        let mut dropped = None;
        if self.in_use() >= self.capacity
            && let Some(key) = self.idle.pop_oldest()
        {
            self.held.remove(&key);
            dropped = Some(key);
        }
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
        self.held.insert(key, Held { pins: 0, idle: Some(self.idle.add(key)) });
    }

    /// A client is being sent this block, which must be here.
    pub(super) fn pin(&mut self, key: Key) {
        if let Some(held) = self.held.get_mut(&key) {
            if let Some(turn) = held.idle.take() {
                self.idle.remove(turn);
            }
            held.pins += 1;
        }
    }

    /// It is not any more.
    pub(super) fn unpin(&mut self, key: Key) {
        let Some(held) = self.held.get_mut(&key) else { return };
        held.pins = held.pins.saturating_sub(1);
        if held.pins == 0 && held.idle.is_none() {
            held.idle = Some(self.idle.add(key));
        }
    }
}
