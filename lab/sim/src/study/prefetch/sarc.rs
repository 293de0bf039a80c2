//! SARC's prefetching (Gill and Modha, "SARC: Sequential Prefetching in Adaptive Replacement Cache", USENIX
//! 2005, section II): a fixed degree p and a fixed trigger distance g. The cache that belongs to it is
//! `cache::Replacement::Sarc`.
//!
//! - *Detection.* Every block has a sequential detect counter. A hit or miss on a block whose counter is not
//!   set sets it: to one more than that of the block before it, at most `seqThreshold`, if that one is
//!   cached; else to 1. A block whose counter is `seqThreshold` is sequential.
//! - *Synchronous prefetching.* A miss that makes a block sequential is a *sequential miss*: p blocks are
//!   fetched after it, together with it.
//! - *Asynchronous prefetching.* The block g before the end of a fetched group is marked. Reaching it fetches
//!   the next p blocks without anybody waiting, and a new mark is set.
//!
//! # Choices
//!
//! The paper counts tracks and assumes one request for each track. The unit here is a request: its blocks
//! that were not counted yet get one count, so that a single long request is not a sequence by itself. The
//! blocks of a request that follow hits of the same request continue those. The paper leaves `seqThreshold`,
//! p and g open, and PFC does not say which it used. The defaults are assumed: a threshold of 2, p = 24,
//! between RA's 4 and Linux's 32, and g = 8, so that a third of a set hides the fetch of the next.
//! docs/PFC.md says how they were chosen.

use super::{BlockRun, LevelAccess, Notes, PrefetchPlan};
use crate::study::cache::Cache;

/// Parameters of SARC's prefetching.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SarcParams {
    /// p: blocks a set.
    pub degree: u32,
    /// g: distance of the marked block from the end of its set, blocks; below `degree`.
    pub trigger_distance: u32,
    /// `seqThreshold`: adjacent requests from which on they are sequential. At least 1: then everything is.
    pub sequential_threshold: u32,
}

impl Default for SarcParams {
    fn default() -> SarcParams {
        SarcParams { degree: 24, trigger_distance: 8, sequential_threshold: 2 }
    }
}

/// State of SARC's prefetching: none but its parameters; what it knows is written on the cached blocks.
#[derive(Clone, Debug)]
pub struct Sarc {
    degree: u64,
    trigger_distance: u64,
    threshold: u32,
}

impl Sarc {
    /// A prefetcher with these parameters; g is kept below p.
    pub fn new(params: SarcParams) -> Sarc {
        let degree = params.degree.max(1);
        Sarc {
            degree: degree.into(),
            trigger_distance: params.trigger_distance.min(degree - 1).into(),
            threshold: params.sequential_threshold.max(1),
        }
    }

    /// The counter of a block whose predecessor is what it is.
    fn count(&self, block: u64, cache: &Cache) -> u32 {
        let before = block.checked_sub(1).filter(|before| cache.contains(*before));
        let counted = before.map_or(0, |before| cache.counter_of(before).unwrap_or(0));
        (counted + 1).min(self.threshold)
    }

    pub(super) fn access(&mut self, access: &LevelAccess, cache: &mut Cache) -> PrefetchPlan {
        let counter = self.count(access.first, cache);
        let hit_last = access.first_miss.map_or(access.last + 1, |missing| missing);
        for block in access.first..hit_last {
            self.note(block, counter, cache);
        }
        let mut plan = PrefetchPlan::default();
        if let Some(missing) = access.first_miss {
            let counter = self.count(missing, cache);
            plan.sequential = counter == self.threshold;
            plan.notes = Notes::Counter { first: missing, last: access.last, counter };
        }
        let first = match access.trigger {
            Some(marked) => (marked + self.trigger_distance + 1).max(access.last + 1),
            None if plan.sequential => access.last + 1,
            None => return plan,
        };
        let last = first + self.degree - 1;
        plan.run = Some(BlockRun { first, last, trigger: Some(last - self.trigger_distance) });
        plan
    }

    /// Sets a block's counter if it is not set.
    pub(super) fn note(&self, block: u64, counter: u32, cache: &mut Cache) {
        if let Some(slot) = cache.find(block)
            && cache.counter_of(block).is_none()
        {
            cache.set_counter(slot, counter);
        }
    }
}
