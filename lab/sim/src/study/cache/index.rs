//! Hash index from block number to slot, a *group* of eight neighbouring blocks at a time.
//!
//! Every replayed block is looked up, entered and taken out again at each level, so this is the hottest loop
//! of the simulator. Replayed traffic is sequential and prefetching makes it more so. Hashed one by one,
//! eight neighbours are eight entries that crowd each other (every probe walks through whole runs); as one
//! group they are one entry, and its eight slots lie in 40 bytes. The table holds group numbers of 32 bits
//! only and grows with the groups in use, so that for sequential traffic it stays in the processor's first
//! cache. Open addressing, linear probing, at most half full.

/// 2^64 divided by the golden ratio (Knuth, The Art of Computer Programming 3, section 6.4).
const FIBONACCI: u64 = 0x9E37_79B9_7F4A_7C15;
/// Eight blocks a group: more save little, and cost what a block alone in its group cannot share.
const GROUP_BITS: u32 = 3;
const GROUP_BLOCKS: usize = 1 << GROUP_BITS;
/// No slot, and no group.
const NIL: u32 = u32::MAX;
/// Number of a group that holds nothing: no block has it, since a group's number is its blocks' without the
/// low bits.
const NO_NUMBER: u64 = u64::MAX;
/// Places of an empty table, as a power of two.
const TABLE_MIN_BITS: u32 = 4;

/// Neighbouring blocks and the slots of those that are indexed.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    /// Block number of its first block, divided by [`GROUP_BLOCKS`].
    number: u64,
    slots: [u32; GROUP_BLOCKS],
}

impl Group {
    /// A group of which no block is indexed.
    const fn empty(number: u64) -> Group {
        Group { number, slots: [NIL; GROUP_BLOCKS] }
    }
}

impl Default for Group {
    fn default() -> Group {
        Group::empty(NO_NUMBER)
    }
}

/// Where the index keeps the slot of a block, as long as it is there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IndexSlot {
    group: u32,
    within: u8,
}

/// Block number to slot. Slot numbers are below `u32::MAX`.
#[derive(Clone, Debug)]
pub(crate) struct Index {
    groups: Vec<Group>,
    /// First group without a block; its first slot is the number of the next such.
    free: u32,
    /// Group that the last block was added to: the next one is its neighbour more often than not.
    recent: u32,
    /// Groups by the hash of their number; [`NIL`] where there is none. A power of two of them.
    table: Vec<u32>,
    /// Right shift that leaves as many bits of a hash as the table has places.
    shift: u32,
}

#[inline]
fn split(block: u64) -> (u64, usize) {
    (block >> GROUP_BITS, block as usize % GROUP_BLOCKS)
}

#[inline]
fn some(slot: u32) -> Option<u32> {
    (slot != NIL).then_some(slot)
}

impl Index {
    /// Room for `slots` entries.
    pub(crate) fn with_slots(slots: usize) -> Index {
        Index {
            groups: Vec::with_capacity(slots),
            free: NIL,
            recent: NIL,
            table: vec![NIL; 1 << TABLE_MIN_BITS],
            shift: u64::BITS - TABLE_MIN_BITS,
        }
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        self.groups.capacity() * size_of::<Group>() + self.table.len() * size_of::<u32>()
    }

    #[inline]
    fn home(&self, number: u64) -> usize {
        (number.wrapping_mul(FIBONACCI) >> self.shift) as usize
    }

    #[inline]
    fn after(&self, at: usize) -> usize {
        (at + 1) & (self.table.len() - 1)
    }

    /// Where in the table a group is, or the empty place where it would be.
    #[inline]
    fn find(&self, number: u64) -> usize {
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
        let group = self.groups.get(self.table[self.find(number)] as usize)?;
        some(group.slots[within])
    }

    /// The slot of `block`, which `near` knows if the last one asked for was in the same group and nothing
    /// was added or taken out since.
    #[inline]
    pub(crate) fn get_near(&self, block: u64, near: &mut Group) -> Option<u32> {
        let (number, within) = split(block);
        if near.number != number {
            self.look_up(number, near);
        }
        some(near.slots[within])
    }

    /// Out of line, so that what is done for every block is short.
    #[inline(never)]
    fn look_up(&self, number: u64, near: &mut Group) {
        let group = self.groups.get(self.table[self.find(number)] as usize);
        *near = group.cloned().unwrap_or(Group::empty(number));
    }

    /// The block kept there.
    #[inline]
    pub(crate) fn block(&self, place: IndexSlot) -> u64 {
        (self.groups[place.group as usize].number << GROUP_BITS) | u64::from(place.within)
    }

    /// Adds a block that is not there yet.
    #[inline]
    pub(crate) fn insert(&mut self, block: u64, slot: u32) -> IndexSlot {
        let (number, within) = split(block);
        if self.groups.get(self.recent as usize).is_none_or(|group| group.number != number) {
            self.recent = self.group(number);
        }
        self.groups[self.recent as usize].slots[within] = slot;
        IndexSlot { group: self.recent, within: within as u8 }
    }

    /// Takes out the block kept there.
    #[inline]
    pub(crate) fn remove(&mut self, place: IndexSlot) {
        let slots = &mut self.groups[place.group as usize].slots;
        // Counted before the slot is written: the processor would wait for a write that it reads back at
        // another width.
        let held = slots.iter().filter(|slot| **slot != NIL).count();
        slots[usize::from(place.within)] = NIL;
        if held == 1 {
            self.remove_group(place.group);
        }
    }

    /// The group of that number, which is made if it is not there.
    #[inline(never)]
    fn group(&mut self, number: u64) -> u32 {
        let at = self.find(number);
        if self.table[at] != NIL {
            return self.table[at];
        }
        let group = self.free;
        if group == NIL {
            self.groups.push(Group::empty(number));
            self.table[at] = self.groups.len() as u32 - 1;
            if self.groups.len() * 2 > self.table.len() {
                self.grow();
            }
            return self.groups.len() as u32 - 1;
        }
        let emptied = core::mem::replace(&mut self.groups[group as usize], Group::empty(number));
        self.free = emptied.slots[0];
        self.table[at] = group;
        group
    }

    #[inline(never)]
    fn remove_group(&mut self, group: u32) {
        let emptied = &mut self.groups[group as usize];
        let number = core::mem::replace(&mut emptied.number, NO_NUMBER);
        emptied.slots[0] = core::mem::replace(&mut self.free, group);
        // The number is gone already, so it is looked for by the group.
        let mut at = self.home(number);
        while self.table[at] != group {
            at = self.after(at);
        }
        self.close(at);
    }

    fn grow(&mut self) {
        let doubled = vec![NIL; self.table.len() * 2];
        self.shift -= 1;
        for group in core::mem::replace(&mut self.table, doubled).into_iter().filter(|group| *group != NIL) {
            let at = self.find(self.groups[group as usize].number);
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
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// An index under random insertions and removals is an ordered map: as it grows, as groups empty, as
        /// probes collide.
        #[test]
        fn behaves_like_an_ordered_map(keys in proptest::collection::vec(0_u64..320, 0..1000)) {
            let block_of = |key: u64| (key / 16) << 40 | (key % 16);
            let mut index = Index::with_slots(320);
            let mut model = BTreeMap::new();
            for (slot, key) in (0..).zip(keys) {
                let block = block_of(key);
                match model.remove(&block) {
                    Some((_, place)) => index.remove(place),
                    None => {
                        model.insert(block, (slot, index.insert(block, slot)));
                    }
                }
            }
            let mut near = Group::default();
            for block in (0..320).map(block_of) {
                let expected = model.get(&block).map(|(slot, _)| *slot);
                prop_assert_eq!(index.get(block), expected);
                prop_assert_eq!(index.get_near(block, &mut near), expected);
            }
            for (block, (_, place)) in &model {
                prop_assert_eq!(index.block(*place), *block);
            }
            let groups: std::collections::BTreeSet<u64> = model.keys().map(|block| split(*block).0).collect();
            prop_assert_eq!(index.table.iter().filter(|group| **group != NIL).count(), groups.len());
            prop_assert!(index.groups.len() <= 40 && index.table.len() >= 2 * index.groups.len());
        }
    }
}
