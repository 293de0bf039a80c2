//! One memory shared by the disks of a machine: each byte goes to the disk where it saves most.
//!
//! Each disk reports what it uses, and the value of the byte that it would give up first
//! ([`MemoryUse::price`]). Memory that no disk holds is free for all. Once nothing is free, a disk that is
//! short of memory takes it from the one with the lowest price, a little at each report, until prices are
//! about equal.

use alloc::collections::BTreeMap;

use seekless_base::{Bytes, Nanos};

use crate::memory::{BUDGET_MIN, FREED_AT_ONCE, REPORT_EVERY};

/// A disk that has not reported for this long holds nothing: its bytes are left to the kernel.
const ASLEEP_AFTER: Nanos = Nanos(5 * REPORT_EVERY.0);

/// Prices within this factor of one another count as equal, because they are as uncertain as the rates of
/// readers.
const EQUAL_WITHIN: f64 = 1.25;

/// A disk's report of its memory.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MemoryUse {
    /// Bytes in memory or in flight.
    pub occupied: u64,
    /// Value of the bytes that are used last: seconds of waiting clients that one of them saves each second.
    pub price: f64,
    /// Whether bytes have left lately to make room.
    pub is_short: bool,
}

#[derive(Clone, Copy, Debug)]
struct Part {
    bytes: u64,
    memory_use: MemoryUse,
    reported: Nanos,
}

impl Part {
    /// Bytes that other disks cannot have.
    fn taken(&self) -> u64 {
        if self.memory_use.is_short { self.bytes } else { self.memory_use.occupied.min(self.bytes) }
    }
}

/// The memory of all disks. `K` identifies a disk.
#[derive(Clone, Debug)]
pub struct Pool<K> {
    parts: BTreeMap<K, Part>,
}

impl<K> Default for Pool<K> {
    fn default() -> Pool<K> {
        Pool { parts: BTreeMap::new() }
    }
}

impl<K: Copy + Ord> Pool<K> {
    /// Takes in a disk's report. Returns its share of `limit` from now on; a disk alone has all.
    pub fn report(&mut self, now: Nanos, disk: K, limit: Bytes, memory_use: MemoryUse) -> Bytes {
        self.parts.retain(|&other, part| other == disk || now.since(part.reported) < ASLEEP_AFTER);
        let awake = self.parts.len().max(1) as u64;
        let others: u64 = self.parts.iter().filter(|(k, _)| **k != disk).map(|(_, p)| p.taken()).sum();
        let first = Part { bytes: limit.0.saturating_sub(others), memory_use, reported: now };
        let own = self.parts.entry(disk).or_insert(first);
        (own.memory_use, own.reported) = (memory_use, now);
        let free = limit.0.saturating_sub(others).saturating_sub(own.taken());
        // If several disks could grow, this one takes half until the next report of another.
        own.bytes = own.taken().saturating_add(if awake > 1 { free / 2 } else { free });
        let own = *own;
        let step = (limit.0 as f64 * FREED_AT_ONCE) as u64;
        if memory_use.is_short && free < step {
            let others = self.parts.iter_mut().filter(|(k, _)| **k != disk).map(|(_, part)| part);
            let cheapest = others
                .filter(|p| {
                    p.memory_use.price * EQUAL_WITHIN < own.memory_use.price && p.taken() > BUDGET_MIN.0
                })
                .min_by(|a, b| a.memory_use.price.total_cmp(&b.memory_use.price));
            if let Some(cheapest) = cheapest {
                let given = step.min(cheapest.taken() - BUDGET_MIN.0);
                cheapest.bytes = cheapest.taken() - given;
                if let Some(own) = self.parts.get_mut(&disk) {
                    own.bytes += given;
                }
            }
        }
        self.parts.get(&disk).map_or(limit, |own| Bytes(own.bytes.min(limit.0)).max(BUDGET_MIN))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const G: u64 = 1 << 30;

    /// Two disks report in turn, using `memory_use` of their shares. Returns the final share of each.
    fn settle(pool: &mut Pool<u8>, periods: u64, memory_use: impl Fn(u8, u64) -> MemoryUse) -> [u64; 2] {
        let mut bytes = [0; 2];
        for period in 0..periods {
            for disk in 0..2 {
                let now = Nanos(period * REPORT_EVERY.0);
                let memory_use = memory_use(disk, bytes[disk as usize]);
                bytes[disk as usize] = pool.report(now, disk, Bytes(G), memory_use).0;
                if period > 2 {
                    assert!(bytes.iter().sum::<u64>() <= G + G / 32, "{bytes:?}");
                }
            }
        }
        bytes
    }

    #[test]
    fn a_disk_alone_has_everything() {
        let mut pool = Pool::default();
        for occupied in [0, G / 2, G] {
            let memory_use = MemoryUse { occupied, price: 1.0, is_short: occupied == G };
            assert_eq!(pool.report(Nanos::ZERO, 1, Bytes(G), memory_use), Bytes(G));
        }
    }

    #[test]
    fn one_that_was_read_once_gives_up_what_it_holds_to_one_that_is_busy() {
        let mut pool = Pool::default();
        // The other disk filled all memory first, and its readers have left.
        pool.report(Nanos::ZERO, 1, Bytes(G), MemoryUse { occupied: G, price: 0.0, is_short: false });
        let bytes = settle(&mut pool, 100, |disk, has| match disk {
            0 => MemoryUse { occupied: has, price: 1.0, is_short: true },
            _ => MemoryUse { occupied: if has > 0 { has } else { G }, price: 0.0, is_short: has > 0 },
        });
        assert!(bytes[0] > G / 20 * 19, "{bytes:?}");
    }

    #[test]
    fn of_two_that_are_busy_the_one_that_gains_more_has_more_until_they_gain_alike() {
        let worth = |disk: u8| if disk == 0 { 3.0 } else { 1.0 };
        // Twice the memory, half the price.
        let bytes = settle(&mut Pool::default(), 300, |disk, has| MemoryUse {
            occupied: has,
            price: worth(disk) / has.max(1) as f64,
            is_short: true,
        });
        let ratio = bytes[0] as f64 / bytes[1] as f64;
        assert!((3.0 / 1.5..3.0 * 1.5).contains(&ratio), "{bytes:?}");
        assert!(bytes.iter().sum::<u64>() > G / 10 * 9, "nothing lies idle: {bytes:?}");
    }

    #[test]
    fn one_that_sleeps_leaves_its_memory_to_the_others() {
        let mut pool = Pool::default();
        let full = MemoryUse { occupied: G / 2, price: 1.0, is_short: true };
        pool.report(Nanos::ZERO, 0, Bytes(G), full);
        pool.report(Nanos::ZERO, 1, Bytes(G), full);
        let later = Nanos(ASLEEP_AFTER.0);
        assert_eq!(pool.report(later, 1, Bytes(G), full), Bytes(G));
    }
}
