//! The blocks in memory: a bounded number, the one used longest ago leaves first, one being sent never.

use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;

use seekless_policy::recency::{Recency, Turn};

use super::ContentId;

pub(super) type Key = (ContentId, u64);

#[derive(Clone, Copy, Debug)]
struct Held {
    /// Clients it is being sent to.
    pins: u32,
    /// Its place in `idle` while no client holds it.
    idle: Option<Turn>,
}

/// Blocks of a group. Clients ask for neighbours, and groups of them are found faster than blocks would be:
/// there are fewer. With half as many and with double, simulated downloads of one file and of 16 take the
/// same time and memory.
const GROUP_BLOCKS: u64 = 16;

/// Neighbouring blocks of a file, of which at least one is held.
#[derive(Clone, Debug, Default)]
struct Group {
    blocks: [Option<Held>; GROUP_BLOCKS as usize],
    held: u64,
}

/// The group of a block, and its place there.
fn split((content, block): Key) -> (Key, usize) {
    ((content, block / GROUP_BLOCKS), (block % GROUP_BLOCKS) as usize)
}

/// Bounded block memory.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    capacity: u64,
    /// By content and number.
    groups: BTreeMap<Key, Group>,
    /// Blocks of them.
    held: u64,
    /// Not pinned, by last use.
    idle: Recency<Key>,
    /// Room promised to reads under way.
    reserved: u64,
}

impl Memory {
    pub(super) fn new(capacity: u64) -> Memory {
        Memory {
            capacity: capacity.max(1),
            groups: BTreeMap::new(),
            held: 0,
            idle: Recency::default(),
            reserved: 0,
        }
    }

    pub(super) fn contains(&self, key: Key) -> bool {
        let (group, place) = split(key);
        self.groups.get(&group).is_some_and(|g| g.blocks[place].is_some())
    }

    /// Blocks held or promised.
    pub(super) fn in_use(&self) -> u64 {
        self.held + self.reserved
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
        let key = self.idle.pop_oldest()?;
        let (number, place) = split(key);
        if let Entry::Occupied(mut entry) = self.groups.entry(number)
            && entry.get_mut().blocks[place].take().is_some()
        {
            let group = entry.get_mut();
            group.held -= 1;
            if group.held == 0 {
                entry.remove();
            }
            self.held -= 1;
        }
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
        let (group, place) = split(key);
        let group = self.groups.entry(group).or_default();
        let held = Held { pins: 0, idle: Some(self.idle.add(key)) };
        if group.blocks[place].replace(held).is_none() {
            group.held += 1;
            self.held += 1;
        }
    }

    /// A client is to be sent this block; `false` if it is not here.
    pub(super) fn pin(&mut self, key: Key) -> bool {
        let (group, place) = split(key);
        let group = self.groups.get_mut(&group);
        let Some(held) = group.and_then(|group| group.blocks[place].as_mut()) else { return false };
        if let Some(turn) = held.idle.take() {
            self.idle.remove(turn);
        }
        held.pins += 1;
        true
    }

    /// It is not any more.
    pub(super) fn unpin(&mut self, key: Key) {
        let (group, place) = split(key);
        let group = self.groups.get_mut(&group);
        let Some(held) = group.and_then(|group| group.blocks[place].as_mut()) else { return };
        held.pins = held.pins.saturating_sub(1);
        if held.pins == 0 && held.idle.is_none() {
            held.idle = Some(self.idle.add(key));
        }
    }
}
