//! Caches of fixed-size blocks, and their replacement policies.
//!
//! A [`Cache`] holds block numbers, not data. For each block it knows whether it has arrived or is being read
//! ([`Cache::ready`]), whether it was prefetched and not requested yet (so that its eviction counts as an
//! unused prefetch), and, for prefetchers that keep notes on blocks (SARC, AMP), a number and marks.
//!
//! Replacement policies, one in each file: [`Replacement::Lru`], [`Replacement::Sarc`] (two lists, SEQ and
//! RANDOM), [`Replacement::Arc`]. DU ("demote") is not a policy but an order to a cache, [`Cache::demote`]: a
//! demoted block leaves before all others, whatever the policy.
//!
//! Space is reserved when a block is requested, as in a page cache, not when it arrives. A block that is
//! being read may be evicted like any other (a cache smaller than the blocks in flight must still work); its
//! fetch then ends without leaving anything in the cache.

mod arc;
mod index;
mod sarc;
pub(crate) mod store;

use core::fmt;
use core::ops::RangeInclusive;

pub use store::SecondChance;
use store::{NIL, Store, flag};

use arc::ArcState;
use sarc::SarcState;

/// LRU's only list, SARC's RANDOM, ARC's T1.
pub(crate) const LIST_MAIN: u8 = 0;
/// SARC's SEQ, ARC's T2.
pub(crate) const LIST_SECOND: u8 = 1;
/// ARC's ghost list B1.
pub(crate) const LIST_GHOST_1: u8 = 2;
/// ARC's ghost list B2.
pub(crate) const LIST_GHOST_2: u8 = 3;
/// Blocks a coordinator marked as next to leave.
pub(crate) const LIST_FIRST_OUT: u8 = 4;

/// Most blocks one cache may have: 8 TiB of 4 KiB blocks. Slot numbers are 32 bits.
pub const CAPACITY_BLOCKS_MAX: u64 = 1 << 31;

/// Which block leaves first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replacement {
    /// Least recently used.
    Lru,
    /// SARC's two lists (Gill and Modha, USENIX 2005).
    Sarc,
    /// Adaptive replacement cache (Megiddo and Modha, FAST 2003).
    Arc,
}

/// Why a block is brought in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Asked for; part of no detected sequence.
    Random,
    /// Asked for; the prefetcher took the request for part of a sequential run.
    Sequential,
    /// Fetched ahead of any request.
    Prefetch,
}

/// What had to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Evicted {
    /// Its number.
    pub block: u64,
    /// It was prefetched and never asked for.
    pub unused: bool,
}

/// Place of a block inside a cache; valid until the next insertion or removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot(pub(crate) u32);

/// What was found out about the neighbours of the block looked up last. Like [`Slot`], valid until the next
/// insertion or removal.
#[derive(Clone, Debug, Default)]
pub struct Near(index::Group);

/// What a prefetcher noted on a block, and how it is used, at the moment it is hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hit {
    /// It was prefetched and this is its first use.
    pub first_use: bool,
    /// It carried the mark that starts the next prefetch; the mark is gone now.
    pub trigger: bool,
    /// It is the last block of the set one read brought.
    pub set_end: bool,
    /// It is the first block of a set that was fetched without anybody waiting.
    pub set_start: bool,
    /// It had been put at the head of its list once more, unused.
    pub old: bool,
    /// The fetch that is still bringing it, 0 if it is here.
    pub fetch: u32,
}

/// A cache of no blocks, or of more than [`CAPACITY_BLOCKS_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadCapacity(pub u64);

impl fmt::Display for BadCapacity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a cache of {} blocks is impossible; it holds 1 to {CAPACITY_BLOCKS_MAX}", self.0)
    }
}

impl core::error::Error for BadCapacity {}

#[derive(Clone, Debug)]
enum Policy {
    Lru,
    Sarc(SarcState),
    Arc(ArcState),
}

/// A cache of block numbers with a fixed capacity.
#[derive(Clone, Debug)]
pub struct Cache {
    store: Store,
    capacity: usize,
    policy: Policy,
}

impl Cache {
    /// A cache of `capacity` blocks.
    pub fn new(replacement: Replacement, capacity: u64) -> Result<Cache, BadCapacity> {
        if capacity == 0 || capacity > CAPACITY_BLOCKS_MAX {
            return Err(BadCapacity(capacity));
        }
        let capacity = capacity as usize;
        let (policy, slots) = match replacement {
            Replacement::Lru => (Policy::Lru, capacity),
            Replacement::Sarc => (Policy::Sarc(SarcState::new(capacity)), capacity),
            Replacement::Arc => (Policy::Arc(ArcState::default()), 2 * capacity),
        };
        Ok(Cache { store: Store::with_slots(slots), capacity, policy })
    }

    /// Blocks it can hold.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Blocks it holds, those on their way included.
    pub fn len(&self) -> usize {
        self.store.len(LIST_MAIN) + self.store.len(LIST_SECOND) + self.store.len(LIST_FIRST_OUT)
    }

    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Memory it holds, in bytes: room for its capacity, and the index as far as it has grown.
    pub fn memory_bytes(&self) -> usize {
        self.store.bytes()
    }

    /// Where a block is, if it is here or on its way. Changes nothing.
    #[inline]
    pub fn find(&self, block: u64) -> Option<Slot> {
        self.held(self.store.find(block)?)
    }

    /// The same, for blocks asked for one after the other: `near` spares looking up neighbours.
    #[inline]
    pub fn find_near(&self, block: u64, near: &mut Near) -> Option<Slot> {
        self.held(self.store.find_near(block, &mut near.0)?)
    }

    /// Only ARC remembers blocks it does not hold.
    #[inline]
    fn held(&self, slot: u32) -> Option<Slot> {
        let ghost = matches!(self.policy, Policy::Arc(_))
            && matches!(self.store.node(slot).list, LIST_GHOST_1 | LIST_GHOST_2);
        (!ghost).then_some(Slot(slot))
    }

    /// Whether a block is here or on its way. Changes nothing.
    #[inline]
    pub fn contains(&self, block: u64) -> bool {
        self.find(block).is_some()
    }

    /// Unused prefetched blocks that reach the end of a list get a second chance at its head.
    pub fn set_second_chance(&mut self, which: SecondChance) {
        self.store.second_chance = which;
    }

    /// A block that was given a second chance, once for each.
    #[inline]
    pub fn take_spared(&mut self) -> Option<u64> {
        self.store.spared.pop()
    }

    /// The fetch that is bringing the block in `slot`, 0 if it is here.
    #[inline]
    pub fn fetch_of(&self, slot: Slot) -> u32 {
        self.store.node(slot.0).tag
    }

    /// A request reached this block: it is recently used now.
    #[inline]
    pub fn hit(&mut self, slot: Slot) -> Hit {
        let slot = slot.0;
        match &mut self.policy {
            Policy::Lru => self.store.move_to_head(slot, LIST_MAIN),
            Policy::Sarc(sarc) => sarc.hit(&mut self.store, slot),
            Policy::Arc(_) => arc::hit(&mut self.store, slot),
        }
        let node = self.store.node_mut(slot);
        let flags = node.flags;
        node.flags &= !(flag::UNUSED | flag::TRIGGER);
        Hit {
            first_use: flags & flag::UNUSED != 0,
            trigger: flags & flag::TRIGGER != 0,
            set_end: flags & flag::SET_END != 0,
            set_start: flags & flag::SET_START != 0,
            old: flags & flag::OLD != 0,
            fetch: node.tag,
        }
    }

    /// Brings in a block that is not here, as recently used; `fetch` is the non-zero number of the fetch that
    /// brings it, or 0 if it is here at once. Returns its place and what had to leave for it.
    #[inline]
    pub fn insert(&mut self, block: u64, origin: Origin, fetch: u32) -> (Slot, Option<Evicted>) {
        debug_assert!(!self.contains(block), "block {block} is already cached");
        let (slot, evicted) = match &mut self.policy {
            Policy::Lru => {
                let evicted = if self.store.len(LIST_MAIN) + self.store.len(LIST_FIRST_OUT) >= self.capacity {
                    let victim = self.store.tail(LIST_FIRST_OUT).or_else(|| self.store.victim(LIST_MAIN));
                    victim.map(|victim| self.store.evict(victim))
                } else {
                    None
                };
                (self.store.insert(block, LIST_MAIN), evicted)
            }
            Policy::Sarc(sarc) => sarc.insert(&mut self.store, self.capacity, block, origin),
            Policy::Arc(arc) => arc.insert(&mut self.store, self.capacity, block, origin),
        };
        let node = self.store.node_mut(slot);
        node.tag = fetch;
        node.flags |= if origin == Origin::Prefetch { flag::UNUSED } else { 0 };
        (Slot(slot), evicted)
    }

    /// Notes that `first..=last` is the set of blocks that one read brought, its p (`degree`) and its g;
    /// `alone` if nobody waits for it. Of those that are here each block knows the last, and the last knows p
    /// and g (AMP).
    pub fn note_set(&mut self, first: u64, last: u64, (degree, trigger_distance): (u16, u16), alone: bool) {
        let mut near = Near::default();
        for block in first..=last {
            let Some(slot) = self.find_near(block, &mut near) else { continue };
            let node = self.store.node_mut(slot.0);
            node.flags &= !(flag::SET_END | flag::SET_START);
            node.note = (last - block).min(u64::from(NIL - 1)) as u32;
            if alone && block == first {
                node.flags |= flag::SET_START;
            }
        }
        if let Some(slot) = self.find(last) {
            self.store.node_mut(slot.0).flags |= flag::SET_END;
            self.set_degree(last, (degree, trigger_distance));
        }
    }

    /// Last block of the set a cached block was read in, if one was noted.
    #[inline]
    pub fn set_end_of(&self, block: u64) -> Option<u64> {
        let node = self.store.node(self.find(block)?.0);
        match node.note {
            NIL => None,
            _ if node.flags & flag::SET_END != 0 => Some(block),
            distance => Some(block + u64::from(distance)),
        }
    }

    /// p and g noted on the last block of a set; `None` if `block` is not cached or not the last of its set.
    #[inline]
    pub fn degree_of(&self, block: u64) -> Option<(u16, u16)> {
        let node = self.store.node(self.find(block)?.0);
        (node.flags & flag::SET_END != 0).then_some(((node.note >> 16) as u16, node.note as u16))
    }

    /// Changes p and g of the set that ends with `last`. Nothing happens if that is not cached or not the
    /// last of a set.
    pub fn set_degree(&mut self, last: u64, (degree, trigger_distance): (u16, u16)) {
        if let Some(slot) = self.find(last) {
            let node = self.store.node_mut(slot.0);
            if node.flags & flag::SET_END != 0 {
                node.note = u32::from(degree) << 16 | u32::from(trigger_distance);
            }
        }
    }

    /// The number that [`Cache::set_counter`] noted on a cached block.
    #[inline]
    pub fn counter_of(&self, block: u64) -> Option<u32> {
        let note = self.store.node(self.find(block)?.0).note;
        (note != NIL).then_some(note)
    }

    /// Notes a number below `u32::MAX` on a cached block (SARC's sequential detect counter).
    #[inline]
    pub fn set_counter(&mut self, slot: Slot, counter: u32) {
        self.store.node_mut(slot.0).note = counter.min(NIL - 1);
    }

    /// Puts the mark on a block that starts the next prefetch. Nothing happens if the block is not here.
    pub fn mark_trigger(&mut self, block: u64) {
        if let Some(slot) = self.find(block) {
            self.store.node_mut(slot.0).flags |= flag::TRIGGER;
        }
    }

    /// Takes the starting mark off a block. Returns whether it was there.
    pub fn take_trigger(&mut self, block: u64) -> bool {
        let Some(slot) = self.find(block) else { return false };
        let node = self.store.node_mut(slot.0);
        let marked = node.flags & flag::TRIGGER != 0;
        node.flags &= !flag::TRIGGER;
        marked
    }

    /// A prefetched block was looked at by a part that does not want it (a coordinator): it is still unused.
    pub fn mark_unused(&mut self, slot: Slot) {
        self.store.node_mut(slot.0).flags |= flag::UNUSED;
    }

    /// Blocks have arrived: those of them that `fetch` was indeed bringing.
    #[inline]
    pub fn ready(&mut self, blocks: RangeInclusive<u64>, fetch: u32) {
        let mut near = Near::default();
        for block in blocks {
            if let Some(slot) = self.find_near(block, &mut near) {
                let node = self.store.node_mut(slot.0);
                if node.tag == fetch {
                    node.tag = 0;
                }
            }
        }
    }

    /// DU: this block leaves before all that are not demoted (in the order they were demoted).
    pub fn demote(&mut self, slot: Slot) {
        self.store.move_to_head(slot.0, LIST_FIRST_OUT);
    }

    /// A silent use: the block was read past this cache's policy, which hears nothing of it; only the unused
    /// mark goes, because the block was of use. Returns whether it had been prefetched and not used so far,
    /// and its fetch.
    pub fn silent_use(&mut self, slot: Slot) -> (bool, u32) {
        let node = self.store.node_mut(slot.0);
        let first_use = node.flags & flag::UNUSED != 0;
        node.flags &= !flag::UNUSED;
        (first_use, node.tag)
    }

    /// Blocks held that were prefetched and not asked for.
    pub fn unused(&self) -> u64 {
        [LIST_MAIN, LIST_SECOND, LIST_FIRST_OUT]
            .iter()
            .map(|list| self.store.iter(*list).filter(|n| n.flags & flag::UNUSED != 0).count() as u64)
            .sum()
    }

    /// SARC's wish for the length of SEQ, in blocks; `None` for other policies. For tests and plots.
    pub fn desired_seq_len(&self) -> Option<f64> {
        match &self.policy {
            Policy::Sarc(sarc) => Some(sarc.desired_seq_len()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
