//! Golden runs worked out by hand, conservation laws, and determinism of the event loop.

use crate::study::cache::Replacement;
use crate::study::coordinate::Coordination;
use crate::study::coordinate::steer::SteerParams;
use crate::study::prefetch::Algorithm;
use crate::study::prefetch::linux::{LinuxParams, LinuxRule};
use proptest::prelude::*;
use seekless_base::Nanos;
use seekless_levels::coordinate::pfc::{LargeRequest, PfcParams};

use super::study;
use super::*;

fn level(replacement: Replacement, prefetch: Algorithm, capacity_blocks: u64) -> LevelSpec {
    LevelSpec { replacement, prefetch, coordination: Coordination::None, capacity_blocks }
}

fn system(levels: Vec<LevelSpec>, drive: Option<&str>) -> SystemSpec {
    SystemSpec {
        levels,
        network: Network::PFC,
        drive: drive.map(|name| seekless_model::drive::catalogue::get(name).unwrap()),
        devices: 0,
        block_bytes: 4096,
        timing: Pacing::Closed { clients: 1 },
    }
}

fn request(first: u64, last: u64) -> BlockRequest {
    BlockRequest { at: Nanos::ZERO, context: 0, first, last, limit: (1 << DEVICE_SHIFT) - 1 }
}

fn play(spec: &SystemSpec, requests: &[BlockRequest]) -> RunOutcome {
    let mut engine = Simulation::new(spec).unwrap();
    for r in requests {
        engine.request(r);
    }
    engine.finish()
}

/// Reads and writes of single blocks.
fn play_ops(spec: &SystemSpec, ops: &[(char, u64)]) -> RunOutcome {
    let mut engine = Simulation::new(spec).unwrap();
    for &(op, block) in ops {
        let request = request(block, block);
        if op == 'w' { engine.write(&request) } else { engine.request(&request) }
    }
    engine.finish()
}

fn ra() -> Algorithm {
    Algorithm::Ra(Default::default())
}

#[test]
fn one_level_without_prefetching_by_hand() {
    let spec = system(vec![level(Replacement::Lru, Algorithm::None, 3)], None);
    let requests: Vec<_> = [1, 2, 3, 1, 4, 2, 1, 3].map(|b| request(b, b)).into();
    let outcome = play(&spec, &requests);
    let l1 = outcome.levels[0];
    assert_eq!((l1.hits, l1.misses, l1.prefetched, l1.unused), (2, 6, 0, 0));
    assert_eq!((outcome.disk.requests, outcome.disk.blocks), (6, 6));
    assert_eq!(
        outcome.response_mean_ns, 0.0,
        "nothing below takes time, and there is no network below one level"
    );
}

#[test]
fn two_levels_of_read_ahead_by_hand() {
    let spec = system(vec![level(Replacement::Lru, ra(), 100), level(Replacement::Lru, ra(), 100)], None);
    // L1 misses 0 and asks for 0..=4; L2 misses 0..=4 and asks the disk for 0..=8, in one request.
    // 1 is a hit; L1 asks for 5: a hit at L2, which asks for 9. And so on with 2: 6, 10.
    let outcome = play(&spec, &[request(0, 0), request(1, 1), request(2, 2)]);
    let (l1, l2) = (outcome.levels[0], outcome.levels[1]);
    assert_eq!((l1.blocks, l1.hits, l1.misses, l1.prefetched, l1.unused), (3, 2, 1, 6, 4));
    assert_eq!((l2.requests, l2.blocks, l2.hits, l2.misses, l2.prefetched, l2.unused), (3, 7, 2, 5, 6, 4));
    assert_eq!((outcome.disk.requests, outcome.disk.blocks), (3, 11));
    // One exchange of five blocks: 6 ms + 5 x 0.03 ms, for the first of three requests.
    assert!((outcome.response_mean_ns - 6.15e6 / 3.0).abs() < 1.0, "{}", outcome.response_mean_ns);
}

#[test]
fn pfc_bypasses_the_native_side_by_hand() {
    let mut spec = system(vec![level(Replacement::Lru, ra(), 100), level(Replacement::Lru, ra(), 100)], None);
    spec.levels[1].coordination = Coordination::Pfc(PfcParams::default());
    let outcome = play(&spec, &[request(0, 0), request(1, 1), request(2, 2)]);
    let l2 = outcome.levels[1];
    // 0..=4 is its own average, so large: straight to the disk, nothing kept at L2, nothing fetched ahead. 5
    // and 6, of one block, are less than half of the average so far (6/2 and 7/3), so not large:
    // bypass_length is 5 already, which is cut to the request; 5 lies in the readmore window [4, 9] and not
    // in L2: readmore 3, 6..=8 go to the native side as a request, which adds 9..=12. 6 is found silently,
    // and 6 and 7, the blocks [end, end + size], are stocked: L2 is bold enough, the request bypasses whole
    // and nothing more is read.
    assert_eq!((l2.blocks, l2.bypassed, l2.silent_hits, l2.hits, l2.misses), (7, 6, 1, 0, 0));
    assert_eq!((l2.readmore, l2.prefetched), (3, 4));
    assert_eq!(outcome.disk.blocks, 6 + 3 + 4);
}

#[test]
fn only_linux_stops_at_the_end_of_a_file_and_it_does_at_both_levels() {
    let ahead = |prefetch| {
        let spec = system(
            vec![level(Replacement::Lru, prefetch, 100), level(Replacement::Lru, prefetch, 100)],
            None,
        );
        // A file of 40 blocks, read to its end in requests of two.
        let of_file = |i: u64| BlockRequest { limit: 39, ..request(2 * i, 2 * i + 1) };
        let requests: Vec<_> = (0..20).map(of_file).collect();
        let outcome = play(&spec, &requests);
        outcome.levels[0].prefetched + outcome.levels[0].misses
    };
    // What the upper level has asked for in the end: the file, or what lies behind it as well.
    assert_eq!(ahead(Algorithm::Linux(Default::default())), 40);
    for blind in [ra(), Algorithm::Sarc(Default::default()), Algorithm::Amp(Default::default())] {
        assert!(ahead(blind) > 40, "{blind:?}");
    }
    let both = |prefetch| {
        let spec = system(
            vec![level(Replacement::Lru, prefetch, 100), level(Replacement::Lru, prefetch, 100)],
            None,
        );
        let outcome = play(&spec, &[BlockRequest { limit: 1, ..request(0, 0) }]);
        [outcome.levels[0].prefetched, outcome.levels[1].prefetched]
    };
    assert_eq!(both(Algorithm::Linux(Default::default())), [1, 0]);
    assert_eq!(both(ra()), [4, 4], "RA reads on at both");
}

#[test]
fn only_linux_tells_files_apart() {
    for (prefetch, tells) in [
        (Algorithm::Linux(Default::default()), true),
        (ra(), false),
        (Algorithm::Sarc(Default::default()), false),
        (Algorithm::Amp(Default::default()), false),
    ] {
        assert_eq!(prefetch.knows_files(), tells, "{prefetch:?}");
        let counts = |files: u32| {
            let levels = vec![level(Replacement::Lru, prefetch, 50), level(Replacement::Lru, prefetch, 50)];
            // The same addresses, as one file or as requests of several.
            let requests: Vec<_> = (0..60)
                .map(|i| BlockRequest {
                    context: i % files,
                    ..request(u64::from(i) * 2, u64::from(i) * 2 + 1)
                })
                .collect();
            play(&system(levels, None), &requests).levels
        };
        assert_eq!(counts(1) == counts(3), !tells, "{prefetch:?}");
    }
}

#[test]
fn so_many_requests_are_under_way_as_there_are_clients() {
    let mut spec = system(vec![level(Replacement::Lru, Algorithm::None, 10)], Some("cheetah-9lp"));
    let queue_max = |clients, spec: &mut SystemSpec| {
        spec.timing = Pacing::Closed { clients };
        play(spec, &(0..50).map(|i| request(i * 10_000, i * 10_000)).collect::<Vec<_>>()).disk.queue_max
    };
    // One is with the drive, the others wait in front of it; the one that came is counted before it is
    // started.
    assert_eq!(queue_max(1, &mut spec), 1);
    assert_eq!(queue_max(3, &mut spec), 2);
}

/// PFC figures 1(b) and 1(c), section 1: the upper level fetches four blocks at a time, the lower one four
/// more, and the lower cache is the smaller. Three random blocks come between.
fn figure_1(coordination: Coordination) -> RunOutcome {
    let mut lower = level(Replacement::Lru, ra(), 6);
    lower.coordination = coordination;
    let upper = level(Replacement::Lru, Algorithm::None, 100);
    // The random blocks are the last of other devices: nothing is behind them that could be fetched ahead.
    let random = |device: u64| {
        let block = (device << DEVICE_SHIFT) | ((1 << DEVICE_SHIFT) - 1);
        BlockRequest { limit: block, ..request(block, block) }
    };
    let requests = [request(1, 4), random(1), random(2), random(3), request(5, 8), request(9, 12)];
    play(&system(vec![upper, lower], None), &requests)
}

#[test]
fn figure_1_uncoordinated_levels_lose_block_5_and_fetch_13_to_16() {
    let outcome = figure_1(Coordination::None);
    let lower = outcome.levels[1];
    // (i) 1..=4 asked for, 5..=8 ahead; room for 6: 3..=8. (ii) three random blocks push out 3, 4 and 5.
    // (iii) 5 misses at both levels, 6..=8 hit, 9..=12 ahead. 9..=12 hit, and 13..=16 are fetched for a run
    // that is over.
    assert_eq!((lower.misses, lower.hits), (4 + 3 + 1, 3 + 4));
    assert_eq!(lower.prefetched, 12, "5..=8, 9..=12, 13..=16");
    // 5 left unused; 13..=16 are never asked for.
    assert_eq!(lower.unused, 5);
    assert_eq!(outcome.disk.blocks, 20);
}

#[test]
fn figure_1_with_pfc_keeps_nothing_twice_and_fetches_nothing_in_vain() {
    let outcome = figure_1(Coordination::Pfc(PfcParams::default()));
    let lower = outcome.levels[1];
    // 1..=4 is longer than half the average, as are the single blocks (averages 2.5, 2, 1.75) and the two
    // runs after them.
    assert_eq!((lower.bypassed, lower.misses, lower.prefetched, lower.readmore), (15, 0, 0, 0));
    assert_eq!(outcome.disk.blocks, 15, "what was asked for and no more");
}

#[test]
fn a_miss_that_waits_for_its_own_blocks_sends_two_requests_and_is_answered_by_the_first() {
    let run = |waiting| {
        let spec = system(
            vec![level(Replacement::Lru, ra(), 100), level(Replacement::Lru, Algorithm::None, 100)],
            Some("cheetah-9lp"),
        );
        let rules = ServiceRules { waiting };
        let mut engine = Simulation::with_rules(&spec, rules).unwrap();
        engine.request(&request(1000, 1000));
        engine.finish()
    };
    let [whole, own, apart] = [Waiting::Whole, Waiting::Own, Waiting::DemandFirst].map(run);
    assert_eq!([&whole, &own, &apart].map(|o| o.levels[1].requests), [1, 2, 2]);
    assert_eq!([&whole, &own, &apart].map(|o| o.disk.blocks), [5, 5, 5]);
    assert!(own.response_mean_ns < whole.response_mean_ns);
    assert_eq!(own.response_mean_ns, apart.response_mean_ns, "an idle disk joins nothing");
}

#[test]
fn late_hits_wait_for_the_block_on_its_way() {
    let mut spec = system(vec![level(Replacement::Lru, ra(), 100)], Some("cheetah-9lp"));
    spec.timing = Pacing::Trace { stretch: 1.0 };
    let at = |us, block| BlockRequest { at: Nanos::from_micros(us), ..request(block, block) };
    let outcome = play(&spec, &[at(0, 1000), at(10, 1001)]);
    assert_eq!((outcome.levels[0].late_hits, outcome.levels[0].misses), (1, 1));
    assert_eq!(outcome.response_us.len(), 2);
    let (min, max) = (outcome.response_us.min(), outcome.response_us.max());
    assert!(min > 100 && max - min <= 2 * max / 100 + 20, "both end with the same disk request: {min} {max}");
}

#[test]
fn writes_go_to_the_disk_and_stay_in_every_level_by_hand() {
    let level = |n| level(Replacement::Lru, Algorithm::None, n);
    let spec = system(vec![level(2), level(3)], None);
    // L1 has 1, 2; the read of 3 takes the place of 1, which L2 still has. The write of 4 takes that of 2 in
    // L1 and of 1 in L2; the read of 4 is a hit, those of 2 and 1 are misses of L1, and the last of L2 too.
    let ops = [('w', 1), ('w', 2), ('r', 3), ('w', 4), ('r', 4), ('r', 2), ('r', 1)];
    let outcome = play_ops(&spec, &ops);
    let counts: Vec<_> = outcome.levels.iter().map(|l| (l.requests, l.hits, l.misses)).collect();
    assert_eq!(counts, [(4, 1, 3), (3, 1, 2)]);
    assert_eq!((outcome.requests, outcome.writes.requests, outcome.writes.blocks), (4, 3, 3));
    let disk = outcome.disk;
    assert_eq!((disk.requests, disk.blocks, disk.writes, disk.written), (2, 2, 3, 3));
    // One exchange of one block: 6.03 ms. The disk takes no time.
    assert_eq!((outcome.writes.response_us.min(), outcome.writes.response_us.max()), (6_028, 6_031));
}

#[test]
fn a_write_cache_answers_at_once_and_is_emptied_later() {
    let ops: Vec<(char, u64)> = (0..20).map(|i| ('w', 1_000 * (i * 7 % 20))).collect();
    let run = |cached: bool, timing| {
        let mut spec = system(vec![level(Replacement::Lru, Algorithm::None, 100)], Some("wd-red-1tb"));
        if let Some(drive) = spec.drive.as_mut().filter(|_| !cached) {
            drive.buffer.write_cache_sectors = 0;
        }
        spec.timing = timing;
        play_ops(&spec, &ops)
    };
    let one_by_one = Pacing::Closed { clients: 1 };
    let (cached, through) = (run(true, one_by_one), run(false, one_by_one));
    assert_eq!((cached.disk.writes, through.disk.writes), (20, 20));
    assert!(cached.writes.response_us.max() < 1_000, "{}", cached.writes.response_us.max());
    assert!(through.writes.response_us.mean() > 4_000.0, "a seek and half a turn each");
}

#[test]
fn demand_first_answers_sooner_and_reads_the_same() {
    let run = |coordination| {
        let sarc = Algorithm::Sarc(Default::default());
        let mut spec = system(
            vec![level(Replacement::Lru, Algorithm::None, 10), level(Replacement::Lru, sarc, 1000)],
            Some("cheetah-9lp"),
        );
        spec.levels[1].coordination = coordination;
        play(&spec, &(0..400).map(|b| request(b * 2, b * 2 + 1)).collect::<Vec<_>>())
    };
    let plain = run(Coordination::None);
    let steer = run(Coordination::Steer(SteerParams { trials: false, ..SteerParams::default() }));
    assert_eq!(plain.disk.blocks, steer.disk.blocks);
    assert_eq!(plain.levels[1].misses, steer.levels[1].misses);
    assert!(steer.response_mean_ns < plain.response_mean_ns);
}

#[test]
fn three_levels_pass_requests_on() {
    let level = |n| level(Replacement::Lru, Algorithm::None, n);
    let spec = system(vec![level(1), level(2), level(4)], None);
    let requests: Vec<_> = [1, 2, 3, 4, 1, 4, 3].map(|b| request(b, b)).into();
    let outcome = play(&spec, &requests);
    let misses: Vec<u64> = outcome.levels.iter().map(|l| l.misses).collect();
    // L1 holds one block: all miss. L2 holds two: 4 is met again after 1. L3 holds all four: 1 and 3 again.
    assert_eq!(misses, [7, 6, 4]);
}

#[test]
fn a_generated_trace_gives_the_same_counts_forever() {
    let trace = study::requests(seekless_model::workload::generate::Kind::Oltp, 0.002, 1);
    for (rule, golden) in [
        (LinuxRule::NewestGroup, [[4019, 869, 2242, 183], [2655, 456, 268, 6]]),
        (LinuxRule::Window, [[4167, 721, 2546, 272], [2799, 468, 271, 2]]),
    ] {
        let linux = Algorithm::Linux(LinuxParams { rule, ..LinuxParams::default() });
        let levels = vec![level(Replacement::Lru, linux, 100), level(Replacement::Lru, linux, 200)];
        let outcome = play(&system(levels, None), &trace);
        let counts: Vec<[u64; 4]> =
            outcome.levels.iter().map(|l| [l.hits, l.misses, l.prefetched, l.unused]).collect();
        assert_eq!(counts, golden, "{rule:?}, requests {}", outcome.requests);
    }
}

#[test]
fn the_96_cases_are_the_papers() {
    let cases = study::cases(1.0);
    assert_eq!(cases.len(), 96);
    assert_eq!(cases.iter().filter(|c| c.published().is_some()).count(), 48);
    let name = |i: usize| cases[i].name();
    assert_eq!((name(0), name(95)), ("oltp 200%-H amp".into(), "multi 5%-L linux".into()));
    let sizes: Vec<u64> = cases.iter().map(|c| c.l2_blocks).collect();
    assert_eq!(
        (cases[0].l1_blocks, sizes[0]),
        (6457, 12_914),
        "5 % of 529 MB in 4 KiB blocks, and twice that"
    );
}

#[test]
fn one_thread_or_two_give_the_same_table() {
    let table = |threads| {
        let study = study::Study {
            scale: 0.002,
            seed: 3,
            coordinators: vec![
                Coordination::None,
                Coordination::Du,
                Coordination::Pfc(PfcParams::default()),
                Coordination::Steer(SteerParams::default()),
            ],
            drive: seekless_model::drive::catalogue::get("cheetah-9lp").unwrap(),
            only: Some(seekless_model::workload::generate::Kind::Multi),
        };
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        format!("{:?}", pool.install(|| study::run(&study, || {})).unwrap())
    };
    assert_eq!(table(1), table(2));
}

fn any_level() -> impl Strategy<Value = LevelSpec> {
    let cache = prop_oneof![Just(Replacement::Lru), Just(Replacement::Sarc), Just(Replacement::Arc)];
    let prefetch = prop_oneof![
        Just(Algorithm::None),
        Just(ra()),
        Just(Algorithm::Linux(Default::default())),
        Just(Algorithm::Sarc(Default::default())),
        Just(Algorithm::Amp(Default::default())),
    ];
    let coordination = prop_oneof![
        Just(Coordination::None),
        Just(Coordination::Du),
        Just(Coordination::Pfc(PfcParams::default())),
        Just(Coordination::Pfc(PfcParams {
            large_request: LargeRequest::OneAndHalf,
            ..PfcParams::default()
        })),
        Just(Coordination::Steer(SteerParams { trial_min: 8, keep_min: 1, ..SteerParams::default() })),
    ];
    (cache, prefetch, coordination, 1_u64..50).prop_map(
        |(replacement, prefetch, coordination, capacity_blocks)| LevelSpec {
            replacement,
            prefetch,
            coordination,
            capacity_blocks,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    /// Any stack of levels on any requests: every request is answered exactly once, every block is counted
    /// exactly once, what one level sends the next receives, and no prefetched block is used more often than
    /// it was fetched.
    #[test]
    fn nothing_is_lost_or_counted_twice(
        levels in proptest::collection::vec(any_level(), 1..4),
        requests in proptest::collection::vec((0_u64..300, 1_u64..20, 0_u32..3, 0_u64..20_000), 1..150),
        written in proptest::collection::vec(proptest::bool::weighted(0.3), 150),
        closed: bool,
        drive: bool,
    ) {
        let mut spec = system(levels, drive.then_some("cheetah-9lp"));
        if !closed {
            spec.timing = Pacing::Trace { stretch: 1.0 };
        }
        let mut at = 0;
        let requests: Vec<BlockRequest> = requests.into_iter().map(|(first, len, context, gap_us)| {
            at += gap_us;
            BlockRequest { at: Nanos::from_micros(at), context, ..request(first, first + len - 1) }
        }).collect();
        let mut engine = Simulation::new(&spec).unwrap();
        let mut all = [(0, 0); 2];
        for (request, &write) in requests.iter().zip(&written) {
            if write { engine.write(request) } else { engine.request(request) }
            let (number, blocks) = &mut all[usize::from(write)];
            (*number, *blocks) = (*number + 1, *blocks + request.last - request.first + 1);
        }
        let outcome = engine.finish();
        prop_assert_eq!((outcome.requests, outcome.levels[0].blocks), all[0]);
        prop_assert_eq!((outcome.writes.requests, outcome.writes.blocks), all[1]);
        prop_assert_eq!(outcome.disk.written, all[1].1);
        prop_assert!(outcome.disk.writes <= all[1].0);
        for pair in outcome.levels.windows(2) {
            prop_assert_eq!(pair[0].fetches, pair[1].requests);
            prop_assert_eq!(pair[0].misses + pair[0].bypassed + pair[0].prefetched + pair[0].readmore, pair[1].blocks);
        }
        for l in &outcome.levels {
            prop_assert_eq!(l.hits + l.silent_hits + l.misses + l.bypassed, l.blocks);
            prop_assert!(l.late_hits <= l.hits);
            prop_assert!(l.unused <= l.prefetched + l.readmore);
        }
        let last = outcome.levels.last().unwrap();
        prop_assert_eq!(outcome.disk.blocks, last.misses + last.bypassed + last.prefetched + last.readmore);
        prop_assert!(outcome.disk.requests <= last.fetches);
    }
}
