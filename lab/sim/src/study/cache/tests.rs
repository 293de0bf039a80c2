//! Golden runs worked out by hand, and what must hold for any sequence.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

/// Misses of a run of single-block requests without prefetching.
fn misses(replacement: Replacement, capacity: u64, blocks: &[u64]) -> Vec<u64> {
    let mut cache = Cache::new(replacement, capacity).unwrap();
    blocks
        .iter()
        .copied()
        .filter(|block| match cache.find(*block) {
            Some(slot) => {
                cache.hit(slot);
                false
            }
            None => {
                cache.insert(*block, Origin::Random, 0);
                true
            }
        })
        .collect()
}

#[test]
fn lru_by_hand() {
    // 1 2 3 | 1 hits | 4 evicts 2 | 2 evicts 3 | 1 hits | 3 evicts 4.
    assert_eq!(misses(Replacement::Lru, 3, &[1, 2, 3, 1, 4, 2, 1, 3]), [1, 2, 3, 4, 2, 3]);
}

#[test]
fn arc_by_hand() {
    // c = 2. 1, 2 fill T1; 1 hits and moves to T2; 3 makes 2 a ghost (T1 was longer than p = 0); 2 is a ghost
    // hit: p = 1, T1 = {3} is not longer than p, so T2's 1 becomes a ghost; 1 is a ghost hit of B2: p = 0,
    // T1's 3 leaves.
    assert_eq!(misses(Replacement::Arc, 2, &[1, 2, 1, 3, 2, 1, 2]), [1, 2, 3, 2, 1]);
}

#[test]
fn demoted_blocks_leave_first_in_their_order() {
    for replacement in [Replacement::Lru, Replacement::Sarc, Replacement::Arc] {
        let mut cache = Cache::new(replacement, 4).unwrap();
        for block in 1..=4 {
            cache.insert(block, Origin::Random, 0);
        }
        for block in [3, 2] {
            let slot = cache.find(block).unwrap();
            cache.demote(slot);
        }
        let out: Vec<u64> =
            (5..=7).filter_map(|block| cache.insert(block, Origin::Random, 0).1.map(|e| e.block)).collect();
        assert_eq!(out, [3, 2, 1], "{replacement:?}");
    }
}

#[test]
fn a_demoted_block_that_is_hit_is_no_longer_demoted() {
    let mut cache = Cache::new(Replacement::Lru, 2).unwrap();
    cache.insert(1, Origin::Random, 0);
    cache.insert(2, Origin::Random, 0);
    let slot = cache.find(2).unwrap();
    cache.demote(slot);
    cache.hit(slot);
    assert_eq!(cache.insert(3, Origin::Random, 0).1.map(|e| e.block), Some(1));
}

#[test]
fn unused_prefetches_are_known_as_such() {
    let mut cache = Cache::new(Replacement::Lru, 2).unwrap();
    cache.insert(1, Origin::Prefetch, 0);
    cache.insert(2, Origin::Prefetch, 0);
    assert_eq!(cache.unused(), 2);
    let slot = cache.find(2).unwrap();
    assert!(cache.hit(slot).first_use);
    assert!(!cache.hit(slot).first_use);
    let evicted = cache.insert(3, Origin::Random, 0).1.unwrap();
    assert_eq!((evicted.block, evicted.unused), (1, true));
    let evicted = cache.insert(4, Origin::Random, 0).1.unwrap();
    assert_eq!((evicted.block, evicted.unused), (2, false));
}

#[test]
fn blocks_on_their_way_arrive_only_with_their_own_fetch() {
    let mut cache = Cache::new(Replacement::Lru, 2).unwrap();
    let (slot, _) = cache.insert(1, Origin::Random, 7);
    cache.ready(1..=1, 8);
    assert_eq!(cache.fetch_of(slot), 7);
    cache.ready(1..=1, 7);
    assert_eq!(cache.fetch_of(slot), 0);
}

#[test]
fn impossible_capacities_are_refused() {
    for capacity in [0, CAPACITY_BLOCKS_MAX + 1] {
        assert_eq!(Cache::new(Replacement::Lru, capacity).unwrap_err(), BadCapacity(capacity));
    }
}

#[test]
fn sarc_gives_space_to_the_list_that_earns_it() {
    // Random blocks that are met again within the cache, and a sequential run that never is: RANDOM's bottom
    // gets hits, SEQ has few misses, so SEQ is to shrink.
    let mut cache = Cache::new(Replacement::Sarc, 100).unwrap();
    let (mut next, mut late_misses) = (1_000_000, 0);
    for round in 0..200 {
        for block in 0..60_u64 {
            match cache.find(block) {
                Some(slot) => {
                    cache.hit(slot);
                }
                None => {
                    cache.insert(block, Origin::Random, 0);
                    late_misses += u32::from(round >= 100);
                }
            }
        }
        for _ in 0..5 {
            cache.insert(next, Origin::Prefetch, 0);
            next += 1;
        }
    }
    // An LRU of 100 would keep all 60 as well, but one of 60 would miss every time; SEQ never needs more than
    // the rest.
    assert!(late_misses < 60 * 100 / 20, "{late_misses} of 6000");
    assert!(cache.desired_seq_len().unwrap() <= 40.0);
}

#[test]
fn memory_is_under_100_bytes_a_block() {
    for replacement in [Replacement::Lru, Replacement::Sarc] {
        // Just above a power of two, where the index is largest for its use, and blocks so far apart that
        // none shares a group.
        let blocks = (1 << 16) + 1;
        let mut cache = Cache::new(replacement, blocks).unwrap();
        for block in 0..2 * blocks {
            cache.insert(block * 1000, Origin::Random, 0);
        }
        assert_eq!(cache.len() as u64, blocks);
        assert!(cache.memory_bytes() < 100 * blocks as usize, "{}", cache.memory_bytes());
    }
}

proptest! {
    /// LRU is what a plain list of block numbers does.
    #[test]
    fn lru_is_lru(capacity in 1_usize..20, blocks in proptest::collection::vec(0_u64..40, 0..300)) {
        let mut list: VecDeque<u64> = VecDeque::new();
        let expected: Vec<u64> = blocks.iter().copied().filter(|block| {
            let at = list.iter().position(|b| b == block);
            if let Some(at) = at {
                list.remove(at);
            } else if list.len() == capacity {
                list.pop_back();
            }
            list.push_front(*block);
            at.is_none()
        }).collect();
        prop_assert_eq!(misses(Replacement::Lru, capacity as u64, &blocks), expected);
    }

    /// Whatever is asked of it, a cache never holds more than its capacity, evicts only what it held, and
    /// knows how many prefetched blocks went unused.
    #[test]
    fn bounds_hold(
        which in 0_usize..3,
        capacity in 1_u64..16,
        ops in proptest::collection::vec((0_u64..40, 0_u8..4), 0..400),
    ) {
        let replacement = [Replacement::Lru, Replacement::Sarc, Replacement::Arc][which];
        let mut cache = Cache::new(replacement, capacity).unwrap();
        let mut held: Vec<u64> = Vec::new();
        let (mut prefetched, mut used, mut unused) = (0_u64, 0_u64, 0_u64);
        for (block, op) in ops {
            prop_assert_eq!(cache.contains(block), held.contains(&block));
            match cache.find(block) {
                Some(slot) if op == 3 => cache.demote(slot),
                Some(slot) => used += u64::from(cache.hit(slot).first_use),
                None => {
                    let origin = [Origin::Random, Origin::Sequential, Origin::Prefetch, Origin::Prefetch][op as usize];
                    prefetched += u64::from(origin == Origin::Prefetch);
                    let (_, evicted) = cache.insert(block, origin, 0);
                    held.push(block);
                    if let Some(evicted) = evicted {
                        let at = held.iter().position(|b| *b == evicted.block);
                        prop_assert!(at.is_some_and(|at| at + 1 < held.len()), "evicted {:?}", evicted);
                        held.swap_remove(at.unwrap());
                        unused += u64::from(evicted.unused);
                    }
                }
            }
            prop_assert!(cache.len() as u64 <= capacity);
            prop_assert_eq!(cache.len(), held.len());
        }
        prop_assert_eq!(prefetched, used + unused + cache.unused());
    }
}
