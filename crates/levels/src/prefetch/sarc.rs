//! SARC's prefetching (Gill and Modha, USENIX 2005): a fixed degree p and a fixed trigger distance g.
//!
//! A miss whose preceding block is cached is sequential: p blocks are fetched after it, together with it. The block g
//! before the end of a prefetched set is marked; reaching it fetches the next p blocks without anybody waiting.
//! The cache that belongs to it is `cache::Replacement::Sarc`.
//!
//! The SARC paper works in tracks of a disk array and counts adjacent tracks up to a threshold of two; here a request
//! of any length whose predecessor is cached meets that threshold. PFC does not say which p and g it used. The
//! defaults are assumed: p = 24, between RA's 4 and Linux's 32, and g = 8, so that a third of a set hides the
//! fetch of the next. docs/PFC.md says how they were chosen.

use super::{BlockRun, LevelAccess, PrefetchPlan};
use crate::cache::Cache;

/// Parameters of SARC's prefetching.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SarcParams {
    /// p: blocks a set.
    pub degree: u32,
    /// g: distance of the marked block from the end of its set, blocks; below `degree`.
    pub trigger_distance: u32,
}

impl Default for SarcParams {
    fn default() -> SarcParams {
        SarcParams { degree: 24, trigger_distance: 8 }
    }
}

/// State of SARC's prefetching: none but its parameters; what it knows is written on the cached blocks.
#[derive(Clone, Debug)]
pub struct Sarc {
    degree: u64,
    trigger_distance: u64,
}

impl Sarc {
    /// A prefetcher with these parameters; g is kept below p.
    pub fn new(params: SarcParams) -> Sarc {
        let degree = params.degree.max(1);
        Sarc { degree: degree.into(), trigger_distance: params.trigger_distance.min(degree - 1).into() }
    }

    pub(super) fn access(&mut self, access: &LevelAccess, cache: &Cache) -> PrefetchPlan {
        let sequential_miss =
            access.first_miss.is_some_and(|block| precedes_cached(access.first, block, cache));
        let first = if let Some((marked, _)) = access.trigger {
            (marked + self.trigger_distance + 1).max(access.last + 1)
        } else if sequential_miss {
            access.last + 1
        } else {
            return PrefetchPlan { sequential: sequential_miss, run: None, stream: None };
        };
        let last = first + self.degree - 1;
        let run = BlockRun { first, last, trigger: Some(last - self.trigger_distance), stream: None };
        PrefetchPlan { sequential: true, run: Some(run), stream: None }
    }
}

/// Whether the block before the missing one is cached: before the request, or (a request of which the beginning was
/// hit) within it.
pub(super) fn precedes_cached(first: u64, missing: u64, cache: &Cache) -> bool {
    missing > first || first.checked_sub(1).is_some_and(|before| cache.contains(before))
}
