//! ARC (Megiddo and Modha, "ARC: A Self-Tuning, Low Overhead Replacement Cache", FAST 2003, figure 4).
//!
//! T1 holds blocks seen once recently, T2 those seen at least twice; B1 and B2 remember the numbers of blocks
//! that left T1 and T2. A hit in B1 says T1 was too short and raises its target p, a hit in B2 lowers it. Not
//! in the PFC paper: here as a check of the simulator against an independent library, and as a stronger L2
//! than LRU.
//!
//! Ours, because the paper has no prefetching: a prefetched block enters T1 and its first use only refreshes
//! it there (it has been asked for once, not twice); prefetches do not move p.

use super::store::{Store, flag};
use super::{
    Evicted, LIST_FIRST_OUT, LIST_GHOST_1 as B1, LIST_GHOST_2 as B2, LIST_MAIN as T1, LIST_SECOND as T2,
    Origin,
};

#[derive(Clone, Debug, Default)]
pub(super) struct ArcState {
    /// Target length of T1, blocks.
    p: f64,
}

pub(super) fn hit(store: &mut Store, slot: u32) {
    let first_use = store.node(slot).flags & flag::UNUSED != 0;
    store.move_to_head(slot, if first_use { T1 } else { T2 });
}

impl ArcState {
    pub(super) fn insert(
        &mut self,
        store: &mut Store,
        c: usize,
        block: u64,
        origin: Origin,
    ) -> (u32, Option<Evicted>) {
        let asked = origin != Origin::Prefetch;
        if let Some(ghost) = store.find(block) {
            let in_b2 = store.node(ghost).list == B2;
            let (b1, b2) = (store.len(B1) as f64, store.len(B2) as f64);
            if asked {
                self.p = if in_b2 {
                    (self.p - (b1 / b2).max(1.0)).max(0.0)
                } else {
                    (self.p + (b2 / b1).max(1.0)).min(c as f64)
                };
            }
            let evicted = self.replace(store, c, in_b2);
            store.remove(ghost);
            return (store.insert(block, if asked { T2 } else { T1 }), evicted);
        }
        let (t1, t2, b1, b2) =
            (store.len(T1) + store.len(LIST_FIRST_OUT), store.len(T2), store.len(B1), store.len(B2));
        let mut evicted = None;
        if t1 + b1 >= c {
            if t1 < c {
                if let Some(oldest) = store.tail(B1) {
                    store.remove(oldest);
                }
                evicted = self.replace(store, c, false);
            } else if let Some(oldest) = store.tail(LIST_FIRST_OUT).or_else(|| store.victim(T1)) {
                evicted = Some(store.evict(oldest));
            }
        } else if t1 + t2 + b1 + b2 >= c {
            if t1 + t2 + b1 + b2 >= 2 * c
                && let Some(oldest) = store.tail(B2)
            {
                store.remove(oldest);
            }
            evicted = self.replace(store, c, false);
        }
        (store.insert(block, T1), evicted)
    }

    /// Moves the least recently used block of T1 or T2 to its ghost list, if the cache is full.
    fn replace(&mut self, store: &mut Store, c: usize, for_b2: bool) -> Option<Evicted> {
        if store.len(T1) + store.len(T2) + store.len(LIST_FIRST_OUT) < c {
            return None;
        }
        if let Some(demoted) = store.tail(LIST_FIRST_OUT) {
            return Some(store.evict(demoted));
        }
        let t1 = store.len(T1) as f64;
        let from_t1 = t1 >= 1.0 && (t1 > self.p || (for_b2 && t1 == self.p));
        let (from, ghost) = if from_t1 || store.len(T2) == 0 { (T1, B1) } else { (T2, B2) };
        let victim = store.victim(from)?;
        let evicted = store.evicted(victim);
        store.move_to_head(victim, ghost);
        store.node_mut(victim).flags = 0;
        Some(evicted)
    }
}
