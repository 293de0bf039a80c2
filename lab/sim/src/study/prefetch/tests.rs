//! Golden runs worked out by hand, and what must hold for any sequence.

use proptest::prelude::*;

use super::*;
use crate::study::cache::{Origin, Replacement, SecondChance};

/// A level without time: every fetch is there at once, unless the test says that it is still on its way.
struct Level {
    cache: Cache,
    prefetcher: Prefetcher,
    /// Fetch number of what is inserted; 0: it is here.
    fetch: u32,
}

impl Level {
    fn new(algorithm: Algorithm, capacity: u64) -> Level {
        let prefetcher = Prefetcher::new(algorithm);
        let mut cache = Cache::new(Replacement::Lru, capacity).unwrap();
        cache.set_second_chance(prefetcher.second_chance());
        Level { cache, prefetcher, fetch: 0 }
    }

    fn insert(&mut self, block: u64, origin: Origin) {
        self.cache.insert(block, origin, self.fetch);
        self.prefetcher.replaced(&mut self.cache);
    }

    /// One request; returns what was fetched ahead, as a first and last block.
    fn request(&mut self, first: u64, last: u64) -> Option<(u64, u64)> {
        self.request_within(first, last, u64::MAX)
    }

    /// The same in a file whose last block is `limit`.
    fn request_within(&mut self, first: u64, last: u64, limit: u64) -> Option<(u64, u64)> {
        let mut access = LevelAccess::new(0, first, last);
        for block in first..=last {
            match self.cache.find(block) {
                Some(slot) => {
                    let hit = self.cache.hit(slot);
                    access.note_hit(block, &hit);
                    self.prefetcher.hit(block, &hit, access.len(), &mut self.cache);
                }
                None => access.note_miss(block),
            }
        }
        let plan = self.prefetcher.access(&access, &mut self.cache);
        for block in first..=last {
            if !self.cache.contains(block) {
                self.insert(block, if plan.sequential { Origin::Sequential } else { Origin::Random });
            }
        }
        let end = plan.run.map(|run| run.last.min(limit));
        let run = plan.run.map(|run| run.first..=run.last.min(limit)).into_iter().flatten();
        let new: Vec<u64> = run.filter(|block| !self.cache.contains(*block)).collect();
        for block in &new {
            self.insert(*block, Origin::Prefetch);
        }
        self.prefetcher.issued(new.len() as u64);
        if let Some(trigger) = plan.run.and_then(|run| run.trigger) {
            self.cache.mark_trigger(trigger);
        }
        self.prefetcher.entered(&plan, end, &mut self.cache);
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

fn linux(rule: linux::LinuxRule) -> Level {
    Level::new(Algorithm::Linux(linux::LinuxParams { rule, ..Default::default() }), 1000)
}

#[test]
fn the_kernels_linux_doubles_while_sequential_and_starts_over_elsewhere() {
    let mut level = linux(linux::LinuxRule::NewestGroup);
    let blocks: Vec<u64> = (0..=46).collect();
    let ahead = level.requests(&blocks);
    let started: Vec<(u64, (u64, u64))> =
        blocks.iter().zip(ahead).filter_map(|(block, run)| run.map(|run| (*block, run))).collect();
    // 0 is not sequential yet: 3 blocks. 1 is in the newest group: 6 more. 4 reaches that group: 12. And so
    // on to 32.
    assert_eq!(
        started,
        [(0, (1, 3)), (1, (4, 9)), (4, (10, 21)), (10, (22, 45)), (22, (46, 77)), (46, (78, 109))]
    );
    assert_eq!(level.requests(&[500]), [Some((501, 503))]);
}

#[test]
fn the_kernels_linux_takes_a_long_request_as_its_own_prefetch() {
    let mut level = linux(linux::LinuxRule::NewestGroup);
    assert_eq!(level.request(0, 7), Some((8, 10)));
    assert_eq!(level.request(8, 15), Some((16, 21)));
    // Within the window but before its newest group: nothing.
    assert_eq!(level.request(9, 10), None);
}

#[test]
fn pfcs_linux_starts_a_group_on_a_read_anywhere_in_the_window() {
    let mut level = linux(linux::LinuxRule::Window);
    // 0: a restart, 1..=3. 1 is in the window: 6 more, 4..=9. 2 is in the group before the newest, which is
    // part of the window: 12 more, 10..=21. The window is now 4..=21, and 3 is before it: a restart, whose
    // 4..=6 are cached. 4 is in that group: 7..=12 are cached. 5 is in the window: 12 more from 13 on, of
    // which 22..=24 are not cached.
    let ahead = level.requests(&[0, 1, 2, 3, 4, 5]);
    assert_eq!(ahead, [Some((1, 3)), Some((4, 9)), Some((10, 21)), None, None, Some((22, 24))]);
}

#[test]
fn pfcs_linux_window_is_its_two_groups_and_nothing_else() {
    let mut level = linux(linux::LinuxRule::Window);
    assert_eq!(level.request(10, 12), Some((13, 15)));
    // What was asked for is no part of the window: a restart whose three blocks are cached.
    assert_eq!(level.request(12, 12), None);
    // Nor is the block behind it: 16 starts over with 3, not with 6.
    assert_eq!(level.request(16, 16), Some((17, 19)));
    // A long request in the group: the next group begins behind the request.
    assert_eq!(level.request(17, 30), Some((31, 36)));
}

#[test]
fn sarc_fetches_p_at_a_sequential_miss_and_at_the_mark() {
    let params = sarc::SarcParams { degree: 8, trigger_distance: 4, ..Default::default() };
    let mut level = Level::new(Algorithm::Sarc(params), 1000);
    // 10 is alone; 11 follows a cached block: 12..=19, mark at 15; reaching 15 fetches 20..=27, mark at 23.
    let ahead = level.requests(&[10, 11, 12, 13, 14, 15, 16, 50]);
    assert_eq!(ahead, [None, Some((12, 19)), None, None, None, Some((20, 27)), None, None]);
}

#[test]
fn sarcs_counter_reaches_its_threshold_one_request_at_a_time() {
    let params = sarc::SarcParams { degree: 2, trigger_distance: 0, sequential_threshold: 3 };
    let mut level = Level::new(Algorithm::Sarc(params), 1000);
    // A request counts once, however long: 1 on 10..=13, 2 on 14, 3 on 15..=16, which is sequential.
    let ahead = [level.request(10, 13), level.request(14, 14), level.request(15, 16)];
    assert_eq!(ahead, [None, None, Some((17, 18))]);
    let counters: Vec<_> = (10..=18).map(|block| level.cache.counter_of(block)).collect();
    let (one, two, three) = (Some(1), Some(2), Some(3));
    assert_eq!(counters, [one, one, one, one, two, three, three, None, None], "prefetched: not counted yet");
    // A hit counts a block that was not counted, and a counter that is set stays.
    level.request(17, 17);
    level.request(14, 14);
    assert_eq!((level.cache.counter_of(17), level.cache.counter_of(14)), (three, two));
    // A block whose predecessor was fetched and never asked for follows a counter of 0.
    level.request(19, 19);
    assert_eq!(level.cache.counter_of(19), one);
}

#[test]
fn sarc_counts_misses_behind_hits_of_the_same_request_as_their_continuation() {
    let params = sarc::SarcParams { degree: 4, trigger_distance: 0, ..Default::default() };
    let mut level = Level::new(Algorithm::Sarc(params), 1000);
    assert_eq!(level.request(10, 11), None);
    assert_eq!(level.request(11, 13), Some((14, 17)), "12 follows 11, whose counter is 1");
}

fn amp(capacity: u64) -> Level {
    Level::new(Algorithm::Amp(Default::default()), capacity)
}

/// p and g on the last block of a set.
fn degree(level: &Level, block: u64) -> (u16, u16) {
    level.cache.degree_of(block).unwrap()
}

#[test]
fn amp_fetches_at_a_miss_what_is_noted_on_the_block_before() {
    let mut level = amp(1000);
    // Nothing is known of the block before: no prefetch, and p is the size of the request.
    assert_eq!(level.request(10, 12), None);
    assert_eq!(degree(&level, 12), (3, 0));
    // Rule 1: p = 3 from block 12. The set is 13..=18 and inherits p.
    assert_eq!(level.request(13, 15), Some((16, 18)));
    assert_eq!(degree(&level, 18), (3, 0));
    assert_eq!(level.cache.degree_of(12), Some((3, 0)), "the set before keeps its own");
    // Not after the last block of a set: the stream starts over with the size of its request.
    assert_eq!(level.request(500, 503), None);
    level.cache.note_set(500, 504, (9, 2), false);
    assert_eq!(level.cache.degree_of(503), None);
    assert_eq!(level.request(504, 505), None);
}

#[test]
fn amps_p_grows_by_the_request_at_the_last_block_of_a_set() {
    let mut level = amp(1000);
    level.request(10, 11);
    assert_eq!(level.request(12, 13), Some((14, 15)));
    // Rule 3: 15 ends the set 12..=15: p = 2 + 2.
    level.request(14, 15);
    assert_eq!(degree(&level, 15), (4, 0));
    // The next miss fetches 4 more; p is not above the threshold, nothing is tagged.
    assert_eq!(level.request(16, 17), Some((18, 21)));
    assert!(!level.cache.take_trigger(21));
    level.request(18, 21);
    assert_eq!(degree(&level, 21), (8, 0), "raised by the request's 4 blocks");
}

#[test]
fn amp_tags_a_set_once_p_is_above_the_threshold() {
    let mut level = amp(1000);
    level.request(10, 14);
    // Rule 4: p = 5 > 4, g = 4 / 2, the set is 15..=20 (one asked for, five ahead), the tag 2 before its end.
    assert_eq!(level.request(15, 15), Some((16, 20)));
    assert_eq!(degree(&level, 20), (5, 2));
    assert_eq!([16, 17].map(|block| level.request(block, block)), [None, None]);
    // Rule 2: 18 is tagged: 5 more after the set, for which nobody waits. p and g are inherited.
    assert_eq!(level.request(18, 18), Some((21, 25)));
    assert_eq!(degree(&level, 25), (5, 2));
    assert_eq!(level.request(18, 18), None, "the tag is gone");
    // Rule 3 raises the newest set's p, since that is where the next prefetch looks.
    level.request(19, 20);
    assert_eq!((degree(&level, 20), degree(&level, 25)), ((5, 2), (7, 2)));
    // 23 is tagged: 7 more.
    assert_eq!(level.request(21, 23), Some((26, 32)));
}

#[test]
fn amps_g_grows_when_the_first_block_of_an_asynchronous_set_is_waited_for() {
    let mut level = amp(1000);
    level.request(10, 15);
    assert_eq!(level.request(16, 16), Some((17, 22)));
    level.fetch = 7;
    assert_eq!(level.request(17, 20), Some((23, 28)), "20 is tagged: p = 6");
    assert_eq!(degree(&level, 28), (6, 2));
    // Any other block of the set on its way: nothing.
    level.request(24, 24);
    assert_eq!(degree(&level, 28), (6, 2));
    // Rule 5: 23 is on its way: g = 3, and the tag moves from 26 to 25.
    level.fetch = 0;
    level.request(23, 23);
    assert_eq!(degree(&level, 28), (6, 3));
    assert_eq!(level.request(26, 26), None);
    assert_eq!(level.request(25, 25), Some((29, 34)));
    assert_eq!(degree(&level, 34), (6, 3), "inherited");
    // Here already: nothing.
    level.request(29, 29);
    assert_eq!(degree(&level, 34), (6, 3));
}

#[test]
fn a_set_that_a_miss_fetched_does_not_raise_amps_g() {
    let mut level = amp(1000);
    level.request(10, 15);
    level.fetch = 7;
    assert_eq!(level.request(16, 16), Some((17, 22)));
    level.request(17, 17);
    assert_eq!(degree(&level, 22), (6, 2));
}

#[test]
fn only_the_last_block_of_a_set_gets_amps_second_chance_and_lowers_p() {
    // Room for 8. 0..=4: p = 5. 5 fetches 6..=10: eight of 0..=10 remain, 3..=10.
    let mut level = amp(8);
    level.request(0, 4);
    assert_eq!(level.request(5, 5), Some((6, 10)));
    assert_eq!(degree(&level, 10), (5, 2));
    // Seven others push out 3..=9, unused ones among them: rule 6 is not about those.
    for block in (100..114).step_by(2) {
        level.request(block, block);
    }
    assert!(!level.cache.contains(9) && level.cache.contains(10));
    assert_eq!(degree(&level, 10), (5, 2));
    // 10 is at the end: it is put at the head, old, and p and g fall by one. 100 leaves in its place.
    level.request(200, 200);
    assert_eq!(degree(&level, 10), (4, 1));
    assert!(!level.cache.contains(100));
    // An old block does not raise p when it is hit after all ...
    level.request(10, 10);
    assert_eq!(degree(&level, 10), (4, 1));
    // ... and one that is not hit leaves at the second time.
    let mut level = amp(8);
    level.request(0, 4);
    level.request(5, 5);
    for block in (100..130).step_by(2) {
        level.request(block, block);
    }
    assert!(!level.cache.contains(10));
}

#[test]
fn with_every_block_spared_each_lowers_amps_p_to_no_less_than_one() {
    let params = amp::AmpParams { second_chance: SecondChance::Any, ..Default::default() };
    let mut level = Level::new(Algorithm::Amp(params), 8);
    level.request(0, 4);
    assert_eq!(level.request(5, 5), Some((6, 10)));
    // 3, 4 and 5 leave. Then 6..=10 come to the end one after the other, each is spared, and 300 leaves.
    for block in [300, 302, 304] {
        level.request(block, block);
    }
    assert_eq!(degree(&level, 10), (5, 2));
    level.request(306, 306);
    assert_eq!(degree(&level, 10), (1, 0), "five times");
    assert!(!level.cache.contains(300) && (6..=10).all(|block| level.cache.contains(block)));
}

#[test]
fn amps_set_ends_where_its_file_does() {
    let mut level = amp(1000);
    level.request(10, 14);
    assert_eq!(level.request_within(15, 15, 17), Some((16, 17)));
    assert_eq!(degree(&level, 17), (5, 2), "the set is 15..=17");
    assert!(level.cache.take_trigger(15));
}

#[test]
fn amps_p_is_bounded() {
    let params = amp::AmpParams { degree_max: 20, ..Default::default() };
    let mut level = Level::new(Algorithm::Amp(params), 1000);
    level.request(0, 30);
    assert_eq!(degree(&level, 30), (20, 2));
    level.request(20, 30);
    assert_eq!(degree(&level, 30), (20, 2));
}

fn algorithms() -> Vec<Algorithm> {
    let amp = |second_chance| amp::AmpParams { degree_max: 30, second_chance, ..Default::default() };
    let linux = |rule| linux::LinuxParams { rule, ..Default::default() };
    vec![
        Algorithm::Ra(Default::default()),
        Algorithm::Ra(ra::RaParams { adaptive: true, ..Default::default() }),
        Algorithm::Linux(linux(linux::LinuxRule::Window)),
        Algorithm::Linux(linux(linux::LinuxRule::NewestGroup)),
        Algorithm::Sarc(Default::default()),
        Algorithm::Amp(amp(SecondChance::SetEnd)),
        Algorithm::Amp(amp(SecondChance::Any)),
    ]
}

proptest! {
    /// Whatever is asked for: a run begins behind the request, ends where it should, is bounded, and its mark
    /// lies within or at the request; AMP keeps g below p, and p within its limit.
    #[test]
    fn runs_lie_ahead_and_are_bounded(
        which in 0_usize..7,
        capacity in 1_u64..64,
        requests in proptest::collection::vec((0_u64..200, 1_u64..12, 0_u32..3), 1..300),
    ) {
        let mut level = Level::new(algorithms()[which], capacity);
        for (first, len, context) in requests {
            let last = first + len - 1;
            let mut access = LevelAccess::new(context, first, last);
            for block in first..=last {
                match level.cache.find(block) {
                    Some(slot) => {
                        let hit = level.cache.hit(slot);
                        access.note_hit(block, &hit);
                        level.prefetcher.hit(block, &hit, len, &mut level.cache);
                    }
                    None => access.note_miss(block),
                }
            }
            let plan = level.prefetcher.access(&access, &mut level.cache);
            for block in first..=last {
                if !level.cache.contains(block) {
                    level.insert(block, Origin::Random);
                }
            }
            if let Some(run) = plan.run {
                prop_assert!(run.first > last && run.last >= run.first && run.last - run.first < 4096);
                prop_assert!(run.trigger.is_none_or(|t| t >= first && t <= run.last));
                for block in run.first..=run.last {
                    if !level.cache.contains(block) {
                        level.insert(block, Origin::Prefetch);
                    }
                }
            }
            level.prefetcher.entered(&plan, plan.run.map(|run| run.last), &mut level.cache);
            prop_assert!(level.cache.len() as u64 <= capacity);
            if let Prefetcher::Amp(_) = &level.prefetcher {
                for (p, g) in (0..500).filter_map(|block| level.cache.degree_of(block)) {
                    prop_assert!(g < p && p <= 30, "p {p} g {g}");
                }
            }
        }
    }
}

/// PFC section 2.2: the Linux prefetching "maintains for each file a read-ahead group"; no other is said to.
#[test]
fn only_linux_knows_files() {
    for (algorithm, knows) in [
        (Algorithm::None, false),
        (Algorithm::Ra(Default::default()), false),
        (Algorithm::Linux(Default::default()), true),
        (Algorithm::Sarc(Default::default()), false),
        (Algorithm::Amp(Default::default()), false),
    ] {
        assert_eq!(
            (algorithm.knows_files(), Prefetcher::new(algorithm).knows_files()),
            (knows, knows),
            "{algorithm:?}"
        );
    }
}
