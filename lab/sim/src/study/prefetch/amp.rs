//! AMP (Gill and Bathen, "AMP: Adaptive Multi-stream Prefetching in a Shared Cache", FAST 2007, section III-C
//! and figures 3 and 4): degree p and trigger distance g adapt, for each stream on its own.
//!
//! The best p of a stream is its request rate times the time a block lives in the cache: the last block of a
//! larger set reaches the end of the cache unused, a smaller set wastes requests. AMP finds it without
//! measuring either. It has no table of streams: p and g are noted on the last block of each *set*, the
//! blocks that one read brought.
//!
//! 1. Lines 20 to 23: a miss fetches p blocks together with it, p being noted on the block before it.
//! 2. Lines 27 to 30: a hit on the *tagged* block of a set takes the tag off and fetches p blocks after the
//!    end of that set, for which nobody waits, p being noted on its last block.
//! 3. Lines 31 to 35: a hit on the last block of a set raises p by the size of the request, unless that block
//!    is *old*.
//! 4. Lines 41 and 49: when p is above the asynchronous prefetch threshold (APT, 4), the block at distance g
//!    from the end of the set is tagged. g is APT / 2 after a miss; a set fetched by rule 2 inherits g and p
//!    from the set before.
//! 5. Line 47: g grows by one when the first block of a set fetched by rule 2 is waited for while it is on
//!    its way.
//! 6. Lines 53 to 57: an unused last block of a set that reaches the end of the cache is put at its head once
//!    more and is old from then on. That lowers p by one, and g with it. An old block leaves when it comes to
//!    the end again.
//!
//! Rules 3 and 6 change the newest set of the sequence: that after the block's own, if there is one.
//!
//! # Sources and choices
//!
//! The paper's text is public, its two figures are pictures. Where the text alone leaves a choice, the
//! reading of an independent implementation (AMP.c of libCacheSim, which follows the figures) was compared.
//! docs/PFC.md lists the choices and where they could be others. The limits are ours: p is at
//! most [`AmpParams::degree_max`]. Line 47 is carried out when the waiting read comes, not when the fetch
//! completes; the reads concerned are the same.

use super::{BlockRun, LevelAccess, Notes, PrefetchPlan, SetNote};
use crate::study::cache::{Cache, Hit, SecondChance};

/// Parameters of AMP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AmpParams {
    /// p noted on a read that continues nothing, blocks; `None`: the size of that read.
    pub degree_start: Option<u32>,
    /// Largest p, blocks; 1 to 4096. Ours.
    pub degree_max: u32,
    /// APT: p above which sets are tagged, blocks. The paper's is 4.
    pub asynchronous_threshold: u32,
    /// Which unused blocks rule 6 is about. The text speaks of the last block of a set; libCacheSim spares
    /// every block.
    pub second_chance: SecondChance,
}

impl Default for AmpParams {
    fn default() -> AmpParams {
        AmpParams {
            degree_start: None,
            degree_max: 256,
            asynchronous_threshold: 4,
            second_chance: SecondChance::SetEnd,
        }
    }
}

/// State of AMP: none but its parameters; what it knows is noted on the cached blocks.
#[derive(Clone, Debug)]
pub struct Amp {
    start: Option<u16>,
    most: u16,
    threshold: u16,
    second_chance: SecondChance,
}

fn blocks(value: u32) -> u16 {
    value.clamp(1, 4096) as u16
}

impl Amp {
    /// A prefetcher with these parameters.
    pub fn new(params: AmpParams) -> Amp {
        let most = blocks(params.degree_max);
        Amp {
            start: params.degree_start.map(|start| blocks(start).min(most)),
            most,
            threshold: params.asynchronous_threshold.min(4096) as u16,
            second_chance: params.second_chance,
        }
    }

    /// Which unused blocks the cache is to spare once.
    pub fn second_chance(&self) -> SecondChance {
        self.second_chance
    }

    fn capped(&self, degree: u64) -> u16 {
        degree.min(self.most.into()) as u16
    }

    /// Rules 3 and 5, for each block as it is hit by a request of `len` blocks.
    pub(super) fn hit(&mut self, block: u64, hit: &Hit, len: u64, cache: &mut Cache) {
        if hit.set_end && !hit.old {
            let end = last_in_sequence(block, cache);
            if let Some((p, g)) = cache.degree_of(end) {
                cache.set_degree(end, (self.capped(u64::from(p) + len), g));
            }
        }
        if hit.set_start
            && hit.first_use
            && hit.fetch != 0
            && let Some(end) = cache.set_end_of(block)
            && let Some((p, g)) = cache.degree_of(end)
            && g + 1 < p
        {
            cache.set_degree(end, (p, g + 1));
            if cache.take_trigger(end - u64::from(g)) {
                cache.mark_trigger(end - u64::from(g) - 1);
            }
        }
    }

    /// Rules 1 and 2.
    pub(super) fn access(&mut self, access: &LevelAccess, cache: &Cache) -> PrefetchPlan {
        if let Some(tagged) = access.trigger
            && let Some(end) = cache.set_end_of(tagged)
            && let Some((p, g)) = cache.degree_of(end)
        {
            let set = SetNote {
                first: end + 1,
                last: access.last,
                degree: p.max(g + 1).min(self.most),
                trigger_distance: g,
                alone: end >= access.last,
            };
            return plan(true, access.last, end + u64::from(p), set);
        }
        let Some(missing) = access.first_miss else { return PrefetchPlan::default() };
        let before = missing.checked_sub(1).filter(|block| cache.contains(*block));
        let ahead = before.and_then(|block| cache.degree_of(block)).map_or(0, |(p, _)| p);
        let degree = match ahead {
            0 => self.start.unwrap_or(self.capped(access.len())),
            p => p,
        };
        let trigger_distance = if degree > self.threshold { (self.threshold / 2).min(degree - 1) } else { 0 };
        let set = SetNote { first: missing, last: access.last, degree, trigger_distance, alone: false };
        plan(before.is_some(), access.last, access.last + u64::from(ahead), set)
    }

    /// The set of a plan is in the cache, up to `last`: notes p and g on it, and tags it by rule 4.
    pub(super) fn entered(&self, set: &SetNote, last: u64, cache: &mut Cache) {
        cache.note_set(set.first, last, (set.degree, set.trigger_distance), set.alone);
        let tagged = last.saturating_sub(set.trigger_distance.into());
        // A set cut short by the end of its file may be shorter than g.
        if set.degree > self.threshold && tagged >= set.first {
            cache.mark_trigger(tagged);
        }
    }

    /// Rule 6: a block was put at the head of the cache once more.
    pub(super) fn spared(&self, block: u64, cache: &mut Cache) {
        let Some(end) = cache.set_end_of(block) else { return };
        if cache.degree_of(end).is_none() {
            return;
        }
        let end = last_in_sequence(end, cache);
        if let Some((p, g)) = cache.degree_of(end) {
            let p = p.saturating_sub(1).max(1);
            cache.set_degree(end, (p, g.saturating_sub(1).min(p - 1)));
        }
    }
}

/// The plan to fetch from behind `asked` up to `to`.
fn plan(sequential: bool, asked: u64, to: u64, set: SetNote) -> PrefetchPlan {
    let first = (asked + 1).max(set.first);
    let run = (to >= first).then_some(BlockRun { first, last: to, trigger: None });
    PrefetchPlan { sequential, run, notes: Notes::Set(set) }
}

/// Last block of the newest set that continues the one which ends with `end`.
fn last_in_sequence(end: u64, cache: &Cache) -> u64 {
    cache.set_end_of(end + 1).filter(|next| cache.degree_of(*next).is_some()).unwrap_or(end)
}
