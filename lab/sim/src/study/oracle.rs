//! The bound of all caches: offline-optimal replacement (Belady, "A study of replacement algorithms for a
//! virtual-storage computer", IBM Systems Journal 1966).
//!
//! If the whole future is known, the block to evict is the one whose next request comes last. No policy of
//! the same size has fewer misses; additional misses of LRU or ARC are what replacement could still gain.

use std::collections::{BinaryHeap, HashMap};

use crate::study::cache::{BadCapacity, Cache, Origin, Replacement};

/// Maximum number of block requests of an oracle, which holds the whole trace, 16 bytes each.
pub const REQUESTS_MAX: usize = 1 << 28;

/// Misses of a cache of `capacity` blocks on single-block requests, from the `from`th request on.
///
/// # Errors
///
/// An impossible capacity.
pub fn misses(
    replacement: Replacement,
    blocks: &[u64],
    capacity: usize,
    from: usize,
) -> Result<u64, BadCapacity> {
    let mut cache = Cache::new(replacement, capacity as u64)?;
    let mut misses = 0;
    for (i, block) in blocks.iter().enumerate() {
        match cache.find(*block) {
            Some(slot) => {
                cache.hit(slot);
            }
            None => {
                cache.insert(*block, Origin::Random, 0);
                misses += u64::from(i >= from);
            }
        }
    }
    Ok(misses)
}

/// Misses of the optimal cache of `capacity` blocks on single-block requests, from the `from`th request on.
pub fn optimal_misses(blocks: &[u64], capacity: usize, from: usize) -> u64 {
    // Blocks by small numbers, and when each request's block is asked for next; never is later than all.
    let mut numbers: HashMap<u64, u32> = HashMap::new();
    let mut seen: Vec<usize> = Vec::new();
    let mut requests = vec![(0, usize::MAX); blocks.len()];
    for (i, block) in blocks.iter().enumerate().rev() {
        let number = *numbers.entry(*block).or_insert(seen.len() as u32);
        match seen.get_mut(number as usize) {
            Some(later) => requests[i] = (number, std::mem::replace(later, i)),
            None => {
                requests[i] = (number, usize::MAX);
                seen.push(i);
            }
        }
    }
    // For each block in the cache, when it is asked for next.
    let mut held: Vec<Option<usize>> = vec![None; seen.len()];
    let mut count = 0;
    // What was held is not taken out: it is recognised by a time that is no longer the block's.
    let mut by_next: BinaryHeap<(usize, u32)> = BinaryHeap::new();
    let mut misses = 0;
    for (i, &(block, next)) in requests.iter().enumerate() {
        if held[block as usize].is_none() {
            misses += u64::from(i >= from);
            if capacity == 0 {
                continue;
            }
            while count >= capacity {
                let Some((at, victim)) = by_next.pop() else { break };
                if held[victim as usize] == Some(at) {
                    held[victim as usize] = None;
                    count -= 1;
                }
            }
            count += 1;
        }
        held[block as usize] = Some(next);
        by_next.push((next, block));
    }
    misses
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn by_hand() {
        // 1 2 3 miss; 3 replaces 2 (asked for later than 1); 1 hits; 2 misses for 3 or 1, either never asked
        // for again but 3.
        assert_eq!(optimal_misses(&[1, 2, 3, 1, 2, 3], 2, 0), 4);
        assert_eq!(optimal_misses(&[1, 2, 3, 1, 2, 3], 3, 0), 3);
        assert_eq!(optimal_misses(&[1, 2, 3, 1, 2, 3], 2, 3), 1, "of the second round");
        assert_eq!(optimal_misses(&[], 3, 0), 0);
    }

    /// The minimum number of misses, by trying every choice of victim.
    fn exhaustive(blocks: &[u64], held: &[u64], capacity: usize) -> u64 {
        let Some((block, rest)) = blocks.split_first() else { return 0 };
        if held.contains(block) {
            return exhaustive(rest, held, capacity);
        }
        if held.len() < capacity {
            return 1 + exhaustive(rest, &[held, &[*block]].concat(), capacity);
        }
        (0..held.len())
            .map(|i| {
                let mut kept = held.to_vec();
                kept[i] = *block;
                1 + exhaustive(rest, &kept, capacity)
            })
            .min()
            .unwrap_or(0)
    }

    proptest! {
        #[test]
        fn nothing_beats_it(blocks in proptest::collection::vec(0_u64..30, 0..300), capacity in 1_usize..20) {
            let best = optimal_misses(&blocks, capacity, 0);
            for replacement in [Replacement::Lru, Replacement::Arc, Replacement::Sarc] {
                prop_assert!(best <= misses(replacement, &blocks, capacity, 0).unwrap());
            }
        }

        #[test]
        fn it_is_the_best_of_all_choices(blocks in proptest::collection::vec(0_u64..5, 0..12), capacity in 1_usize..4) {
            prop_assert_eq!(optimal_misses(&blocks, capacity, 0), exhaustive(&blocks, &[], capacity));
        }
    }
}
