//! Blocks in a slab, threaded on up to [`LISTS`] recency lists, found through the hash [`Index`].
//!
//! One allocation when the cache is made and none afterwards; moving a block between lists rewrites four
//! 32-bit links. Recency lists run from the most recently used end (head) to the least (tail). What a list
//! means (SEQ, RANDOM, a ghost list) is the replacement policy's business.

use super::Evicted;
use super::index::{Group, Index, IndexSlot};

/// No slot.
pub(crate) const NIL: u32 = u32::MAX;
/// Lists a store can hold: two for each policy, two ghost lists (ARC), one that is evicted first (DU).
pub(crate) const LISTS: usize = 5;

/// Where a block came from and what happened to it since.
pub(crate) mod flag {
    /// Brought in by a prefetcher and not asked for yet.
    pub(crate) const UNUSED: u8 = 1;
    /// Reaching this block starts the next prefetch (SARC, AMP).
    pub(crate) const TRIGGER: u8 = 2;
    /// Last block of a set, the blocks that one read brought (AMP). Its note holds the stream's p and g.
    pub(crate) const SET_END: u8 = 4;
    // 8 is SARC's: the block belongs on SEQ.
    /// It reached the end of its list unused and was put at the head once more (AMP).
    pub(crate) const OLD: u8 = 16;
    /// First block of a set that was fetched without anybody waiting (AMP).
    pub(crate) const SET_START: u8 = 32;
}

/// Which unused prefetched blocks get a second chance at the head of their list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SecondChance {
    /// None.
    #[default]
    None,
    /// The last block of a set.
    SetEnd,
    /// Every block.
    Any,
}

/// One cached block. 32 bytes.
#[derive(Clone, Debug)]
pub(crate) struct CachedBlock {
    place: IndexSlot,
    prev: u32,
    next: u32,
    /// Which fetch brings it, 0 once it is here.
    pub(crate) tag: u32,
    /// When it was last put at the head of a list, counted in such movements (wraps; only differences
    /// matter).
    pub(crate) stamp: u32,
    /// What the prefetcher notes on it, [`NIL`] if nothing. AMP: p and g on the last block of a set, on the
    /// others the distance to it. SARC: the sequential detect counter.
    pub(crate) note: u32,
    pub(crate) flags: u8,
    pub(crate) list: u8,
}

#[derive(Clone, Copy, Debug)]
struct List {
    head: u32,
    tail: u32,
    len: u32,
}

/// The slab, its lists and its index.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    nodes: Vec<CachedBlock>,
    /// First slot without a block, threaded on through `next`.
    free: u32,
    lists: [List; LISTS],
    index: Index,
    clock: u32,
    pub(crate) second_chance: SecondChance,
    /// Blocks given a second chance since the owner last asked.
    pub(crate) spared: Vec<u64>,
}

impl Store {
    /// Room for `slots` blocks, ghosts included.
    pub(crate) fn with_slots(slots: usize) -> Store {
        Store {
            nodes: Vec::with_capacity(slots),
            free: NIL,
            lists: [List { head: NIL, tail: NIL, len: 0 }; LISTS],
            index: Index::with_slots(slots),
            clock: 0,
            second_chance: SecondChance::None,
            spared: Vec::new(),
        }
    }

    /// Bytes held by slab and index.
    pub(crate) fn bytes(&self) -> usize {
        self.nodes.capacity() * size_of::<CachedBlock>() + self.index.bytes()
    }

    #[inline]
    pub(crate) fn find(&self, block: u64) -> Option<u32> {
        self.index.get(block)
    }

    #[inline]
    pub(crate) fn find_near(&self, block: u64, near: &mut Group) -> Option<u32> {
        self.index.get_near(block, near)
    }

    #[inline]
    pub(crate) fn node(&self, slot: u32) -> &CachedBlock {
        &self.nodes[slot as usize]
    }

    #[inline]
    pub(crate) fn node_mut(&mut self, slot: u32) -> &mut CachedBlock {
        &mut self.nodes[slot as usize]
    }

    pub(crate) fn len(&self, list: u8) -> usize {
        self.lists[list as usize].len as usize
    }

    /// The slot of a list that is to leave: the least recently used one, after those with a second chance
    /// have had it. Each has it once, so this ends.
    #[inline]
    pub(crate) fn victim(&mut self, list: u8) -> Option<u32> {
        if self.second_chance != SecondChance::None {
            self.spare(list);
        }
        self.tail(list)
    }

    fn spare(&mut self, list: u8) {
        while let Some(slot) = self.tail(list) {
            let flags = self.node(slot).flags;
            let unused = flags & (flag::UNUSED | flag::OLD) == flag::UNUSED;
            if !unused || (self.second_chance == SecondChance::SetEnd && flags & flag::SET_END == 0) {
                return;
            }
            let node = self.node_mut(slot);
            node.flags = (node.flags | flag::OLD) & !flag::TRIGGER;
            self.move_to_head(slot, list);
            let block = self.index.block(self.node(slot).place);
            self.spared.push(block);
        }
    }

    /// Least recently used slot of a list.
    #[inline]
    pub(crate) fn tail(&self, list: u8) -> Option<u32> {
        let slot = self.lists[list as usize].tail;
        (slot != NIL).then_some(slot)
    }

    /// Most recently used slot of a list.
    #[inline]
    pub(crate) fn head(&self, list: u8) -> Option<u32> {
        let slot = self.lists[list as usize].head;
        (slot != NIL).then_some(slot)
    }

    /// Movements since the slot was last put at the head of a list.
    pub(crate) fn age(&self, slot: u32) -> u32 {
        self.clock.wrapping_sub(self.nodes[slot as usize].stamp)
    }

    #[inline]
    fn unlink(&mut self, slot: u32) {
        let CachedBlock { prev, next, list, .. } = self.nodes[slot as usize];
        let l = &mut self.lists[list as usize];
        l.len -= 1;
        if prev == NIL {
            l.head = next;
        } else {
            self.nodes[prev as usize].next = next;
        }
        if next == NIL {
            self.lists[list as usize].tail = prev;
        } else {
            self.nodes[next as usize].prev = prev;
        }
    }

    #[inline]
    fn link_head(&mut self, slot: u32, list: u8) {
        let l = &mut self.lists[list as usize];
        let old = l.head;
        l.head = slot;
        l.len += 1;
        if old == NIL {
            l.tail = slot;
        } else {
            self.nodes[old as usize].prev = slot;
        }
        self.clock = self.clock.wrapping_add(1);
        let clock = self.clock;
        let node = &mut self.nodes[slot as usize];
        node.prev = NIL;
        node.next = old;
        node.list = list;
        node.stamp = clock;
    }

    /// Moves a slot to the head of `list`, from wherever it is.
    #[inline]
    pub(crate) fn move_to_head(&mut self, slot: u32, list: u8) {
        if self.lists[list as usize].head == slot {
            self.clock = self.clock.wrapping_add(1);
            self.nodes[slot as usize].stamp = self.clock;
            return;
        }
        self.unlink(slot);
        self.link_head(slot, list);
    }

    /// Adds a block that is not here, at the head of `list`.
    #[inline]
    pub(crate) fn insert(&mut self, block: u64, list: u8) -> u32 {
        let slot = if self.free == NIL { self.nodes.len() as u32 } else { self.free };
        let place = self.index.insert(block, slot);
        let node = CachedBlock { place, prev: NIL, next: NIL, tag: 0, stamp: 0, note: NIL, flags: 0, list };
        if self.free == NIL {
            self.nodes.push(node);
        } else {
            self.free = core::mem::replace(&mut self.nodes[slot as usize], node).next;
        }
        self.link_head(slot, list);
        slot
    }

    /// Takes a slot out altogether.
    #[inline]
    pub(crate) fn remove(&mut self, slot: u32) {
        self.unlink(slot);
        let node = &mut self.nodes[slot as usize];
        node.next = core::mem::replace(&mut self.free, slot);
        self.index.remove(node.place);
    }

    /// What leaves the cache if the block of this slot does.
    #[inline]
    pub(crate) fn evicted(&self, slot: u32) -> Evicted {
        let node = &self.nodes[slot as usize];
        Evicted { block: self.index.block(node.place), unused: node.flags & flag::UNUSED != 0 }
    }

    /// Takes a slot out altogether and tells what leaves with it.
    #[inline]
    pub(crate) fn evict(&mut self, slot: u32) -> Evicted {
        let evicted = self.evicted(slot);
        self.remove(slot);
        evicted
    }

    /// Blocks of a list, most recently used first.
    pub(crate) fn iter(&self, list: u8) -> impl Iterator<Item = &CachedBlock> {
        let mut at = self.lists[list as usize].head;
        core::iter::from_fn(move || {
            if at == NIL {
                return None;
            }
            let node = &self.nodes[at as usize];
            at = node.next;
            Some(node)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        /// A store under random inserts, moves and removals is the same as a plain list of block numbers.
        #[test]
        fn behaves_like_a_plain_list(ops in proptest::collection::vec((0u8..3, 0u64..40), 0..400)) {
            let mut store = Store::with_slots(40);
            let mut model: VecDeque<u64> = VecDeque::new();
            for (op, key) in ops {
                // Blocks that share a group, or low bits with others.
                let block = ((key % 5) << 32) | (key / 5);
                match (op, store.find(block)) {
                    (0, None) => { store.insert(block, 0); model.push_front(block); }
                    (1, Some(slot)) => {
                        store.move_to_head(slot, 0);
                        model.retain(|b| *b != block);
                        model.push_front(block);
                    }
                    (2, Some(slot)) => { store.remove(slot); model.retain(|b| *b != block); }
                    _ => {}
                }
                prop_assert_eq!(store.find(block).is_some(), model.contains(&block));
                prop_assert_eq!(store.iter(0).map(|n| store.index.block(n.place)).collect::<VecDeque<_>>(), model.clone());
                prop_assert_eq!(store.tail(0).map(|slot| store.evicted(slot).block), model.back().copied());
            }
        }
    }
}
