//! Hash index from block number to slot, a *group* of eight neighbouring blocks at a time.
//!
//! Every replayed block is looked up, entered and taken out again at each level, so this is the hottest loop of the simulator.
//! Replayed traffic is sequential and prefetching makes it more so. Hashed one by one, eight neighbours are eight entries that crowd
//! each other (every probe walks through whole runs); as one group they are one entry, and its eight slots lie in 40 bytes. The
//! table holds group numbers of 32 bits only and grows with the groups in use, so that for sequential traffic it stays in
//! the processor's first cache. Open addressing, linear probing, at most half full.
use alloc::vec;
use alloc::vec::Vec;

/// 2^64 divided by the golden ratio (Knuth, The Art of Computer Programming 3, section 6.4).
const FIBONACCI: u64 = 0x9E37_79B9_7F4A_7C15;
/// Eight blocks a group: more save little, and cost what a block alone in its group cannot share.
const GROUP_BITS: u32 = 3;
const GROUP_BLOCKS: usize = 1 << GROUP_BITS;
/// No slot, and no group.
const NIL: u32 = u32::MAX;
/// Places of an empty table.
const TABLE_MIN: usize = 16;

/// Neighbouring blocks and the slots of those that are indexed.
#[derive(Clone, Debug)]
struct Group {
    /// Block number of its first block, divided by [`GROUP_BLOCKS`].
    number: u64,
    slots: [u32; GROUP_BLOCKS],
}

/// Block number to slot. Slot numbers are below `u32::MAX`.
#[derive(Clone, Debug)]
pub(crate) struct Index {
    /// Groups with at least one block, in no order.
    groups: Vec<Group>,
    /// Places in `groups`; [`NIL`] when empty. A power of two of them.
    table: Vec<u32>,
}

#[inline]
fn split(block: u64) -> (u64, usize) {
    (block >> GROUP_BITS, block as usize % GROUP_BLOCKS)
}

impl Index {
    /// Room for `slots` entries.
    pub(crate) fn with_slots(slots: usize) -> Index {
        Index { groups: Vec::with_capacity(slots), table: vec![NIL; TABLE_MIN] }
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        self.groups.capacity() * size_of::<Group>() + self.table.len() * size_of::<u32>()
    }

    #[inline]
    fn home(&self, number: u64) -> usize {
        (number.wrapping_mul(FIBONACCI) >> (64 - self.table.len().trailing_zeros())) as usize
    }

    #[inline]
    fn after(&self, at: usize) -> usize {
        (at + 1) & (self.table.len() - 1)
    }

    /// Where in the table a group is, or the empty place where it would be.
    #[inline]
    fn place(&self, number: u64) -> usize {
        let mut at = self.home(number);
        while self.table[at] != NIL && self.groups[self.table[at] as usize].number != number {
            at = self.after(at);
        }
        at
    }

    /// The slot of `block`.
    #[inline]
    pub(crate) fn get(&self, block: u64) -> Option<u32> {
        let (number, within) = split(block);
        let group = self.table[self.place(number)];
        if group == NIL {
            return None;
        }
        let slot = self.groups[group as usize].slots[within];
        (slot != NIL).then_some(slot)
    }

    /// Adds a block that is not there yet.
    #[inline]
    pub(crate) fn insert(&mut self, block: u64, slot: u32) {
        let (number, within) = split(block);
        let at = self.place(number);
        let group = match self.table[at] {
            NIL => self.add_group(number, at),
            group => group,
        };
        self.groups[group as usize].slots[within] = slot;
    }

    /// Takes a block out that is there.
    #[inline]
    pub(crate) fn remove(&mut self, block: u64) {
        let (number, within) = split(block);
        let at = self.place(number);
        let group = self.table[at];
        let slots = &mut self.groups[group as usize].slots;
        slots[within] = NIL;
        if slots.iter().all(|slot| *slot == NIL) {
            self.close(at);
            self.remove_group(group);
        }
    }

    fn add_group(&mut self, number: u64, at: usize) -> u32 {
        let group = self.groups.len() as u32;
        self.groups.push(Group { number, slots: [NIL; GROUP_BLOCKS] });
        self.table[at] = group;
        if self.groups.len() * 2 > self.table.len() {
            self.grow();
        }
        group
    }

    /// Removes a group that the table does not name any more; the last group takes its place.
    fn remove_group(&mut self, group: u32) {
        let last = self.groups.len() - 1;
        if group as usize != last {
            let at = self.place(self.groups[last].number);
            self.table[at] = group;
        }
        self.groups.swap_remove(group as usize);
    }

    fn grow(&mut self) {
        let old = core::mem::take(&mut self.table);
        self.table = vec![NIL; old.len() * 2];
        for group in old.into_iter().filter(|group| *group != NIL) {
            let at = self.place(self.groups[group as usize].number);
            self.table[at] = group;
        }
    }

    /// Empties a place of the table, and moves up what lies behind it, so that probes still find it.
    fn close(&mut self, mut gap: usize) {
        let mask = self.table.len() - 1;
        let mut at = gap;
        loop {
            at = self.after(at);
            let group = self.table[at];
            if group == NIL {
                break;
            }
            let home = self.home(self.groups[group as usize].number);
            // The entry may fill the gap unless its home lies after the gap (cyclically).
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(gap) & mask) {
                self.table[gap] = group;
                gap = at;
            }
        }
        self.table[gap] = NIL;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use proptest::prelude::*;

    proptest! {
        /// An index under random insertions and removals is an ordered map: as it grows, as groups empty, as probes collide.
        #[test]
        fn behaves_like_an_ordered_map(keys in proptest::collection::vec(0_u64..320, 0..1000)) {
            let block_of = |key: u64| (key / 16) << 40 | (key % 16);
            let mut index = Index::with_slots(320);
            let mut model = BTreeMap::new();
            for (slot, key) in (0..).zip(keys) {
                let block = block_of(key);
                if model.remove(&block).is_some() {
                    index.remove(block);
                } else {
                    index.insert(block, slot);
                    model.insert(block, slot);
                }
            }
            for block in (0..320).map(block_of) {
                prop_assert_eq!(index.get(block), model.get(&block).copied());
            }
            let groups: alloc::collections::BTreeSet<u64> = model.keys().map(|block| split(*block).0).collect();
            prop_assert_eq!(index.groups.len(), groups.len());
            prop_assert!(index.table.len() >= 2 * groups.len());
        }
    }
}
