//! SARC's two lists (Gill and Modha, "SARC: Sequential Prefetching in Adaptive Replacement Cache", USENIX
//! 2005).
//!
//! Sequential blocks live on SEQ, all others on RANDOM; each list is LRU. The space is divided so that one
//! more block would save as many misses on either list (equal marginal utility):
//!
//! - RANDOM: a hit in its bottom of dL blocks is a miss that those blocks saved: utility 1/dL an interval,
//!   where the interval is the time between two such hits.
//! - SEQ: with s sequential misses in that interval and L blocks on SEQ, utility 2s/L (their section on SEQ).
//!
//! So `ratio` = 2 s dL / L is compared with 1; the wished length of SEQ moves by `adapt`/2, with `adapt` =
//! ratio - 1 kept within -1..1, at each replacement. Hits in the bottom of SEQ while the ratio is large say
//! that even prefetched blocks are about to be lost before use: `adapt` is 1 then. While one of the lists is
//! shorter than dL the older of the two LRU ends leaves.
//!
//! Taken from the paper: all of the above, the bottom by time stamps, `largeRatio` = 20. The constant of
//! proportionality of dL, left open in the paper's algorithm ("a small constant fraction"), is 2 % of the
//! cache here. Ours: the initial wish is the length SEQ has at the first replacement, and demoted blocks (DU)
//! leave first.

use super::store::Store;
use super::{Evicted, LIST_FIRST_OUT, LIST_MAIN as RANDOM, LIST_SECOND as SEQ, Origin};

/// "RANDOM bottom" as a part of the cache.
const BOTTOM_SHARE: f64 = 0.02;
/// Above this ratio a hit in the bottom of SEQ asks for more space at once.
const LARGE_RATIO: f64 = 20.0;
/// Node flag: belongs on SEQ (remembered while the block is demoted).
const ON_SEQ: u8 = 8;

#[derive(Clone, Debug)]
pub(super) struct SarcState {
    /// dL, blocks; at least one.
    bottom_len: f64,
    desired_seq_len: f64,
    adapt: f64,
    seq_misses: u64,
}

impl SarcState {
    pub(super) fn new(capacity: usize) -> SarcState {
        SarcState {
            bottom_len: (capacity as f64 * BOTTOM_SHARE).max(1.0),
            desired_seq_len: 0.0,
            adapt: 0.0,
            seq_misses: 0,
        }
    }

    pub(super) fn desired_seq_len(&self) -> f64 {
        self.desired_seq_len
    }

    fn ratio(&self, store: &Store) -> f64 {
        2.0 * self.seq_misses as f64 * self.bottom_len / store.len(SEQ).max(1) as f64
    }

    /// Whether a slot lies among the oldest dL of its list, judged by time stamps as in the paper.
    fn in_bottom(&self, store: &Store, slot: u32, list: u8) -> bool {
        let (Some(head), Some(tail)) = (store.head(list), store.tail(list)) else { return false };
        let oldest = store.node(tail).stamp;
        let span = store.node(head).stamp.wrapping_sub(oldest);
        let age = store.node(slot).stamp.wrapping_sub(oldest);
        f64::from(age) <= self.bottom_len / store.len(list) as f64 * f64::from(span)
    }

    pub(super) fn hit(&mut self, store: &mut Store, slot: u32) {
        let node = store.node(slot);
        let home = if node.flags & ON_SEQ != 0 { SEQ } else { RANDOM };
        if node.list == RANDOM && self.in_bottom(store, slot, RANDOM) {
            self.adapt = (self.ratio(store) - 1.0).clamp(-1.0, 1.0);
            self.seq_misses = 0;
        } else if node.list == SEQ && self.ratio(store) > LARGE_RATIO && self.in_bottom(store, slot, SEQ) {
            self.adapt = 1.0;
        }
        store.move_to_head(slot, home);
    }

    pub(super) fn insert(
        &mut self,
        store: &mut Store,
        capacity: usize,
        block: u64,
        origin: Origin,
    ) -> (u32, Option<Evicted>) {
        if origin == Origin::Sequential {
            self.seq_misses += 1;
        }
        let held = store.len(RANDOM) + store.len(SEQ) + store.len(LIST_FIRST_OUT);
        let evicted = if held >= capacity { self.replace(store) } else { None };
        let (list, flags) = if origin == Origin::Random { (RANDOM, 0) } else { (SEQ, ON_SEQ) };
        let slot = store.insert(block, list);
        store.node_mut(slot).flags = flags;
        (slot, evicted)
    }

    fn replace(&mut self, store: &mut Store) -> Option<Evicted> {
        if let Some(demoted) = store.tail(LIST_FIRST_OUT) {
            return Some(store.evict(demoted));
        }
        let (random, seq) = (store.tail(RANDOM), store.tail(SEQ));
        let (random_len, seq_len) = (store.len(RANDOM) as f64, store.len(SEQ) as f64);
        let list = match (random, seq) {
            (None, None) => return None,
            (Some(_), None) => RANDOM,
            (None, Some(_)) => SEQ,
            (Some(random), Some(seq)) => {
                let from_seq = if seq_len < self.bottom_len || random_len < self.bottom_len {
                    store.age(seq) > store.age(random)
                } else {
                    seq_len > self.desired_seq_len
                };
                if from_seq { SEQ } else { RANDOM }
            }
        };
        let victim = store.victim(list)?;
        let evicted = store.evict(victim);
        if self.desired_seq_len > 0.0 {
            self.desired_seq_len = (self.desired_seq_len + self.adapt / 2.0).max(0.0);
        } else {
            self.desired_seq_len = seq_len;
        }
        Some(evicted)
    }
}
