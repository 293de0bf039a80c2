//! Golden runs worked out by hand, and what must hold for any sequence.

use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::cache::{Origin, Replacement};

/// A level without time: every fetch is there at once.
struct Level {
    cache: Cache,
    prefetcher: Prefetcher,
}

impl Level {
    fn new(algorithm: Algorithm, capacity: u64) -> Level {
        Level {
            cache: Cache::new(Replacement::Lru, capacity).unwrap(),
            prefetcher: Prefetcher::new(algorithm),
        }
    }

    fn insert(&mut self, block: u64, origin: Origin, run: Option<BlockRun>, stream: Option<u32>) {
        let (slot, evicted) = self.cache.insert(block, origin, 0);
        match run {
            Some(run) if block >= run.first => {
                self.cache.mark(slot, run.stream, run.trigger == Some(block), run.last == block);
            }
            _ => self.cache.mark(slot, stream, false, false),
        }
        if let Some(evicted) = evicted {
            self.prefetcher.evicted(&evicted);
        }
    }

    /// One request; returns what was fetched ahead, as a first and last block.
    fn request(&mut self, first: u64, last: u64) -> Option<(u64, u64)> {
        let mut access = LevelAccess::new(0, first, last);
        for block in first..=last {
            match self.cache.find(block) {
                Some(slot) => {
                    let hit = self.cache.hit(slot);
                    access.note_hit(block, hit);
                    if hit.first_use {
                        self.prefetcher.first_use();
                    }
                }
                None => access.note_miss(block),
            }
        }
        let plan = self.prefetcher.access(&access, &self.cache);
        for block in first..=last {
            if !self.cache.contains(block) {
                self.insert(block, Origin::Random, plan.run, plan.stream);
            }
        }
        let run = plan.run?;
        let new: Vec<u64> = (run.first..=run.last).filter(|block| !self.cache.contains(*block)).collect();
        for block in &new {
            self.insert(*block, Origin::Prefetch, plan.run, plan.stream);
        }
        self.prefetcher.issued(new.len() as u64);
        if let Some(trigger) = run.trigger {
            self.cache.mark_trigger(trigger);
        }
        Some((*new.first()?, *new.last()?))
    }

    fn requests(&mut self, blocks: &[u64]) -> Vec<Option<(u64, u64)>> {
        blocks.iter().map(|block| self.request(*block, *block)).collect()
    }
}

#[test]
fn ra_keeps_four_blocks_ahead() {
    let mut level = Level::new(Algorithm::Ra(Default::default()), 1000);
    let ahead = level.requests(&[10, 11, 12, 100]);
    assert_eq!(ahead, [Some((11, 14)), Some((15, 15)), Some((16, 16)), Some((101, 104))]);
}

#[test]
fn adaptive_ra_follows_what_is_used() {
    let params = ra::RaParams { adaptive: true, ..Default::default() };
    let degree = |blocks: &[u64]| {
        let mut level = Level::new(Algorithm::Ra(params), 10_000);
        level.requests(blocks);
        match level.prefetcher {
            Prefetcher::Ra(ra) => ra.degree(),
            _ => unreachable!(),
        }
    };
    assert!(degree(&(0..500).collect::<Vec<_>>()) > 8);
    assert_eq!(degree(&(0..500).map(|i| i * 1000).collect::<Vec<_>>()), 1);
}

#[test]
fn linux_doubles_while_sequential_and_starts_over_elsewhere() {
    let mut level = Level::new(Algorithm::Linux(Default::default()), 1000);
    let blocks: Vec<u64> = (0..=46).collect();
    let ahead = level.requests(&blocks);
    let started: Vec<(u64, (u64, u64))> =
        blocks.iter().zip(ahead).filter_map(|(block, run)| run.map(|run| (*block, run))).collect();
    // 0 is not sequential yet: 3 blocks. 1 is in the newest group: 6 more. 4 reaches that group: 12. And so on to 32.
    assert_eq!(
        started,
        [(0, (1, 3)), (1, (4, 9)), (4, (10, 21)), (10, (22, 45)), (22, (46, 77)), (46, (78, 109))]
    );
    assert_eq!(level.requests(&[500]), [Some((501, 503))]);
}

#[test]
fn linux_takes_a_long_request_as_its_own_prefetch() {
    let mut level = Level::new(Algorithm::Linux(Default::default()), 1000);
    assert_eq!(level.request(0, 7), Some((8, 10)));
    assert_eq!(level.request(8, 15), Some((16, 21)));
    // Within the window but before its newest group: nothing.
    assert_eq!(level.request(9, 10), None);
}

#[test]
fn sarc_fetches_p_at_a_sequential_miss_and_at_the_mark() {
    let params = sarc::SarcParams { degree: 8, trigger_distance: 4 };
    let mut level = Level::new(Algorithm::Sarc(params), 1000);
    // 10 is alone; 11 follows a cached block: 12..=19, mark at 15; reaching 15 fetches 20..=27, mark at 23.
    let ahead = level.requests(&[10, 11, 12, 13, 14, 15, 16, 50]);
    assert_eq!(ahead, [None, Some((12, 19)), None, None, None, Some((20, 27)), None, None]);
}

#[test]
fn amp_grows_with_used_up_sets_and_shrinks_with_wasted_ones() {
    let mut level = Level::new(Algorithm::Amp(Default::default()), 1000);
    // 11 follows a cached block: p = 4, 12..=15, mark at 14. 14 fetches 16..=19. 15 ends its set: p = 5. 18 is the mark of the
    // second set: 20..=24.
    let ahead = level.requests(&[10, 11, 12, 13, 14, 15, 16, 17, 18]);
    let some: Vec<_> = ahead.into_iter().flatten().collect();
    assert_eq!(some, [(12, 15), (16, 19), (20, 24)]);
    let Prefetcher::Amp(amp) = &mut level.prefetcher else { unreachable!() };
    assert_eq!(amp.streams().len(), 1);
    let before = amp.streams()[0];
    amp.evicted_unused(0);
    assert_eq!(amp.streams()[0].degree, before.degree - 1);
    for _ in 0..100 {
        amp.evicted_unused(0);
    }
    assert_eq!((amp.streams()[0].degree, amp.streams()[0].trigger_distance), (1, 0));
}

#[test]
fn amp_starts_earlier_when_somebody_waited() {
    let mut amp = amp::Amp::new(Default::default());
    let mut cache = Cache::new(Replacement::Lru, 100).unwrap();
    cache.insert(9, Origin::Random, 0);
    let mut access = LevelAccess::new(0, 10, 10);
    access.note_miss(10);
    assert_eq!(amp.access(&access, &cache).run.unwrap().trigger, Some(13));
    let waited = LevelAccess { waited: Some(0), ..LevelAccess::new(0, 11, 11) };
    amp.access(&waited, &cache);
    assert_eq!(amp.streams()[0].trigger_distance, 2);
}

fn algorithms() -> Vec<Algorithm> {
    vec![
        Algorithm::Ra(Default::default()),
        Algorithm::Ra(ra::RaParams { adaptive: true, ..Default::default() }),
        Algorithm::Linux(Default::default()),
        Algorithm::Sarc(Default::default()),
        Algorithm::Amp(amp::AmpParams { streams_max: 3, ..Default::default() }),
    ]
}

proptest! {
    /// Whatever is asked for: a run begins behind the request, ends where it should, is bounded, and its mark lies within
    /// or at the request; AMP keeps g below p.
    #[test]
    fn runs_lie_ahead_and_are_bounded(
        which in 0_usize..5,
        capacity in 1_u64..64,
        requests in proptest::collection::vec((0_u64..200, 1_u64..12, 0_u32..3), 1..300),
    ) {
        let mut level = Level::new(algorithms()[which], capacity);
        for (first, len, context) in requests {
            let last = first + len - 1;
            let mut access = LevelAccess::new(context, first, last);
            for block in first..=last {
                match level.cache.find(block) {
                    Some(slot) => access.note_hit(block, level.cache.hit(slot)),
                    None => access.note_miss(block),
                }
            }
            let plan = level.prefetcher.access(&access, &level.cache);
            if let Some(run) = plan.run {
                prop_assert!(run.first > last && run.last >= run.first && run.last - run.first < 4096);
                prop_assert!(run.trigger.is_none_or(|t| t > last - len && t <= run.last));
                for block in first..=run.last {
                    if !level.cache.contains(block) {
                        let origin = if block <= last { Origin::Random } else { Origin::Prefetch };
                        level.insert(block, origin, plan.run, plan.stream);
                    }
                }
            }
            if let Prefetcher::Amp(amp) = &level.prefetcher {
                prop_assert!(amp.streams().len() <= 3);
                prop_assert!(amp.streams().iter().all(|s| s.degree >= 1 && s.trigger_distance < s.degree));
            }
        }
    }
}
