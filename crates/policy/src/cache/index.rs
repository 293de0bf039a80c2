//! Hash index from block number to slot: open addressing, linear probing, one flat array.
//!
//! Every replayed block costs one look-up a level, so this is the hottest loop of the simulator. Three choices make
//! it fast. Each entry carries 32 bits made of the block number beside the slot, so that a probe decides without touching
//! the slot itself. The place of an entry follows from these 32 bits alone, so that closing the gap of a removed one touches
//! no slot either (slots are spread over memory, and each would be a cache miss). And the hash keeps runs of eight neighbouring blocks side by side (one cache line of eight
//! entries): replayed traffic is sequential, and the next block's entry is then already in the processor's cache.
//! The table is at most half full, which keeps probes short; it never grows, since the capacity is known.
use alloc::vec;
use alloc::vec::Vec;

/// 2^64 divided by the golden ratio (Knuth, The Art of Computer Programming 3, section 6.4).
const FIBONACCI: u64 = 0x9E37_79B9_7F4A_7C15;
/// Neighbouring blocks kept side by side: eight 8-byte entries fill a 64-byte cache line.
const RUN_BITS: u32 = 3;

/// What an entry knows of its block: the low half of the number, mixed with the high half by a multiple of eight, so that
/// neighbours within a run stay neighbours.
#[inline]
fn tag(block: u64) -> u32 {
    (block as u32) ^ ((block >> 32) as u32).wrapping_mul((FIBONACCI >> 32) as u32 & !((1 << RUN_BITS) - 1))
}

/// Block number to slot. Slot numbers are below `u32::MAX`.
#[derive(Clone, Debug)]
pub(crate) struct Index {
    /// High half: [`tag`] of the block number. Low half: slot + 1, 0 when empty.
    entries: Vec<u64>,
    mask: usize,
    /// Right shift that leaves as many bits of the product as there are runs.
    shift: u32,
}

impl Index {
    /// Room for `slots` entries.
    pub(crate) fn with_slots(slots: usize) -> Index {
        let size = (slots.max(8) * 2).next_power_of_two();
        let run_count_bits = size.trailing_zeros() - RUN_BITS;
        Index { entries: vec![0; size], mask: size - 1, shift: 64 - run_count_bits }
    }

    /// Bytes one entry of capacity costs, empty places included.
    pub(crate) fn bytes(&self) -> usize {
        self.entries.len() * core::mem::size_of::<u64>()
    }

    #[inline]
    fn home(&self, tag: u32) -> usize {
        let run = u64::from(tag >> RUN_BITS).wrapping_mul(FIBONACCI) >> self.shift;
        ((run as usize) << RUN_BITS) | (tag as usize & ((1 << RUN_BITS) - 1))
    }

    /// The slot of `block`; `block_at` tells which block a slot holds (asked only when 32 bits agree).
    #[inline]
    pub(crate) fn get(&self, block: u64, block_at: impl Fn(u32) -> u64) -> Option<u32> {
        let tag = tag(block);
        let mut at = self.home(tag);
        loop {
            let entry = self.entries[at & self.mask];
            if entry == 0 {
                return None;
            }
            if (entry >> 32) as u32 == tag {
                let slot = entry as u32 - 1;
                if block_at(slot) == block {
                    return Some(slot);
                }
            }
            at += 1;
        }
    }

    /// Adds a block that is not there yet.
    #[inline]
    pub(crate) fn insert(&mut self, block: u64, slot: u32) {
        let tag = tag(block);
        let mut at = self.home(tag) & self.mask;
        while self.entries[at] != 0 {
            at = (at + 1) & self.mask;
        }
        self.entries[at] = (u64::from(tag) << 32) | u64::from(slot + 1);
    }

    /// Takes a block out and closes the gap, so that later probes still find what lies behind it.
    #[inline]
    pub(crate) fn remove(&mut self, block: u64, slot: u32) {
        let mut at = self.home(tag(block)) & self.mask;
        while self.entries[at] as u32 != slot + 1 {
            if self.entries[at] == 0 {
                return;
            }
            at = (at + 1) & self.mask;
        }
        let mut gap = at;
        loop {
            at = (at + 1) & self.mask;
            let entry = self.entries[at];
            if entry == 0 {
                break;
            }
            let home = self.home((entry >> 32) as u32) & self.mask;
            // The entry may fill the gap unless its home lies after the gap (cyclically).
            if (at.wrapping_sub(home) & self.mask) >= (at.wrapping_sub(gap) & self.mask) {
                self.entries[gap] = entry;
                gap = at;
            }
        }
        self.entries[gap] = 0;
    }
}
