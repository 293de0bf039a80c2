//! What must hold of file sets: the order, the bounds, and that nobody starves.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;
use seekless_base::{FileId, Lba};
use seekless_policy::filesets::{
    Action, FileSets, IN_LINE_BYTES_MAX, IN_LINE_MAX, Outcome, RANGES_MAX, Range, RangeId, Refused, SETS_MAX,
    STEP_MAX, SetId, StepId, side_by_side,
};

const M: u64 = 1 << 20;

fn range(place: u64, len: u64) -> Range {
    Range { file: FileId { dev: 1, ino: place }, offset: 0, len, place: Some(Lba(place)), lane: 0 }
}

/// A driver whose disk serves what is in line first come, first served.
struct Bench {
    sets: FileSets,
    line: VecDeque<(StepId, SetId, RangeId, u64)>,
    /// Steps that were asked for, and their bytes; those that are held.
    asked: BTreeMap<StepId, u64>,
    held: BTreeSet<StepId>,
    ready: Vec<(SetId, RangeId, bool)>,
    /// Places in the order in which they were asked for.
    places: Vec<u64>,
}

impl Bench {
    fn new() -> Bench {
        Bench {
            sets: FileSets::new(),
            line: VecDeque::new(),
            asked: BTreeMap::new(),
            held: BTreeSet::new(),
            ready: Vec::new(),
            places: Vec::new(),
        }
    }

    fn with(sets: u64, window: u64) -> Bench {
        let mut bench = Bench::new();
        bench.sets.room(0, u64::MAX);
        (0..sets).for_each(|set| assert_eq!(bench.sets.open(SetId(set), window), Ok(window)));
        bench
    }

    fn act(&mut self) {
        while let Some(action) = self.sets.poll() {
            match action {
                Action::Ask { step, set, range, len, place, .. } => {
                    assert!((1..=STEP_MAX).contains(&len));
                    assert!(self.asked.insert(step, len).is_none(), "a name is not used twice");
                    self.line.push_back((step, set, range, len));
                    self.places.extend(place.map(|lba| lba.0));
                }
                Action::Cancel { step } => assert!(self.asked.contains_key(&step)),
                Action::Took { step, .. } => assert!(self.held.remove(&step), "held, and let go of once"),
                Action::Ready { set, range, came, .. } => {
                    assert!(!self.ready.iter().any(|r| (r.0, r.1) == (set, range)), "ready once");
                    self.ready.push((set, range, came));
                }
            }
        }
        assert!(self.line.len() <= IN_LINE_MAX);
        assert!(self.line.iter().map(|l| l.3).sum::<u64>() <= IN_LINE_BYTES_MAX);
    }

    fn add(&mut self, set: u64, id: u32, range: Range) -> Result<(), Refused> {
        let added = self.sets.add(SetId(set), RangeId(id), range);
        self.act();
        added
    }

    /// The disk serves the nth of what is in line.
    fn serve(&mut self, nth: usize, outcome: Outcome) {
        let Some((step, ..)) = self.line.remove(nth % self.line.len().max(1)) else { return };
        if outcome == Outcome::Fetched {
            self.held.insert(step);
        }
        self.sets.answered(step, outcome);
        self.act();
    }

    fn take(&mut self, nth: usize, read: bool) {
        if self.ready.is_empty() {
            return;
        }
        let (set, range, _) = self.ready.remove(nth % self.ready.len());
        self.sets.took(set, range, read);
        self.act();
    }
}

#[test]
fn ranges_come_in_the_order_of_the_disk_across_sets() {
    let mut bench = Bench::with(2, 100 * M);
    // The first goes out at once; what comes while it is under way is one sweep.
    for (id, place) in [500, 100, 900, 300, 700].into_iter().enumerate() {
        bench.add(id as u64 % 2, id as u32, range(place, 4 * M)).unwrap();
    }
    while !bench.line.is_empty() {
        bench.serve(0, Outcome::Fetched);
    }
    let mut rising = bench.places.clone();
    rising.sort_unstable();
    assert_eq!(rising, [100, 300, 500, 700, 900]);
    // In line were four: what was added before one of them left was ordered as far as it was known.
    let turns = bench.places.windows(2).filter(|pair| pair[1] < pair[0]).count();
    assert!(turns <= 2, "{:?}", bench.places);
}

#[test]
fn a_sweep_rises_and_turns_once() {
    let mut bench = Bench::with(1, 1_000 * M);
    for id in 0..200u32 {
        bench.add(0, id, range(u64::from(id) * 7_919 % 1_000, 4 * M)).unwrap();
    }
    let first = bench.places.len();
    while !bench.line.is_empty() {
        bench.serve(0, Outcome::Fetched);
    }
    assert_eq!(bench.ready.len(), 200);
    let turns = bench.places[first..].windows(2).filter(|pair| pair[1] < pair[0]).count();
    assert!(turns <= 2, "one sweep from the head on, and one more to its beginning: {turns}");
}

#[test]
fn a_long_range_goes_in_steps_and_is_ready_after_the_last() {
    let mut bench = Bench::with(1, 100 * M);
    bench.add(0, 1, Range { offset: M, ..range(0, 10 * M) }).unwrap();
    assert_eq!(bench.asked.values().sum::<u64>(), 10 * M);
    assert_eq!(bench.asked.values().copied().collect::<Vec<_>>(), [3 * M, 4 * M, 3 * M]);
    bench.serve(2, Outcome::Fetched);
    bench.serve(0, Outcome::There);
    assert!(bench.ready.is_empty());
    bench.serve(0, Outcome::Fetched);
    assert_eq!(bench.ready, [(SetId(0), RangeId(1), true)]);
    bench.take(0, true);
    assert!(bench.held.is_empty());
}

#[test]
fn the_rest_of_a_range_that_failed_is_not_read() {
    let mut bench = Bench::with(1, 100 * M);
    bench.add(0, 1, range(0, 60 * M)).unwrap();
    bench.serve(0, Outcome::Passed);
    while !bench.line.is_empty() {
        bench.serve(0, Outcome::Fetched);
    }
    assert_eq!(bench.ready, [(SetId(0), RangeId(1), false)]);
    assert!(bench.asked.values().sum::<u64>() <= IN_LINE_BYTES_MAX, "no more than was in line");
}

#[test]
fn the_window_is_kept_and_a_range_beyond_it_is_cut() {
    let mut bench = Bench::with(1, 8 * M);
    for id in 0..6 {
        bench.add(0, id, range(id.into(), 3 * M)).unwrap();
    }
    assert_eq!(bench.line.len(), 2, "a third has no room");
    bench.serve(0, Outcome::Fetched);
    bench.serve(0, Outcome::Fetched);
    assert!(bench.line.is_empty(), "none is taken");
    bench.take(0, true);
    assert_eq!(bench.line.len(), 1);
    let mut small = Bench::with(1, M);
    small.add(0, 1, range(1, 50 * M)).unwrap();
    assert_eq!(small.asked.values().sum::<u64>(), M);
}

#[test]
fn the_oldest_range_has_room_although_the_window_is_full() {
    let mut bench = Bench::with(1, 2 * M);
    // The oldest lies behind all others.
    for (id, place) in [(1, 100), (2, 200), (3, 300), (4, 50)] {
        bench.add(0, id, range(place, M)).unwrap();
    }
    bench.serve(0, Outcome::Fetched);
    bench.serve(0, Outcome::Fetched);
    assert_eq!(bench.ready.len(), 2);
    let (set, first, _) = bench.ready[0];
    assert_eq!(first, RangeId(1));
    bench.sets.took(set, first, true);
    bench.act();
    bench.ready.remove(0);
    assert_eq!(bench.places, [100, 200, 300]);
    // Its reader takes nothing before the oldest that is left has come.
    bench.sets.room(0, 0);
    bench.act();
    bench.serve(0, Outcome::Fetched);
    bench.sets.took(set, RangeId(2), true);
    bench.act();
    bench.sets.took(set, RangeId(3), true);
    bench.act();
    assert_eq!(bench.places, [100, 200, 300, 50]);
}

#[test]
fn without_room_a_set_has_one_range_at_a_time() {
    let mut bench = Bench::with(2, 8 * M);
    bench.sets.room(0, 0);
    for id in 0..4 {
        bench.add(u64::from(id % 2), id, range(id.into(), M)).unwrap();
    }
    assert_eq!(bench.line.len(), 2);
    for _ in 0..2 {
        while !bench.line.is_empty() {
            bench.serve(0, Outcome::Fetched);
        }
        assert_eq!(bench.ready.len(), 2);
        bench.take(0, true);
        bench.take(0, true);
    }
    assert_eq!(bench.sets.counts().ranges, 0);
}

#[test]
fn a_reader_that_takes_nothing_stops_its_own_set_alone() {
    let mut bench = Bench::with(2, 8 * M);
    for id in 0..100 {
        bench.add(0, id, range(id.into(), M)).unwrap();
    }
    for id in 0..100 {
        bench.add(1, id, range(500 + u64::from(id), M)).unwrap();
    }
    let mut taken = 0;
    for _ in 0..1_000 {
        bench.serve(0, Outcome::Fetched);
        if let Some(nth) = bench.ready.iter().position(|r| r.0 == SetId(1)) {
            bench.take(nth, true);
            taken += 1;
        }
    }
    assert_eq!(taken, 100);
    assert_eq!(bench.sets.counts().ranges, 100);
}

#[test]
fn ranges_that_are_always_ahead_of_the_heads_keep_none_waiting() {
    let mut bench = Bench::with(2, 64 * M);
    bench.add(0, 0, range(1_000, 4 * M)).unwrap();
    bench.add(1, 0, range(1, 4 * M)).unwrap();
    // The one set goes on where the disk is; the other's only range lies behind.
    for id in 1..100 {
        bench.add(0, id, range(1_000 + 8 * u64::from(id), 4 * M)).unwrap();
        bench.serve(0, Outcome::Fetched);
        if bench.ready.iter().any(|r| r.0 == SetId(1)) {
            return;
        }
        while bench.ready.len() > 2 {
            bench.take(0, true);
        }
    }
    panic!("the range behind the heads was never served");
}

#[test]
fn every_lane_has_a_line_of_its_own() {
    let mut bench = Bench::with(1, 1_000 * M);
    bench.sets.room(1, u64::MAX);
    for id in 0..100 {
        let lane = id / 50;
        bench.sets.add(SetId(0), RangeId(id), Range { lane, ..range(id.into(), M) }).unwrap();
    }
    let mut lanes = [0, 0];
    while let Some(action) = bench.sets.poll() {
        if let Action::Ask { range, .. } = action {
            lanes[range.0 as usize / 50] += 1;
        }
    }
    assert!(lanes.iter().all(|&steps| steps >= 4), "{lanes:?}");
}

#[test]
fn a_small_window_keeps_every_lane_busy() {
    let mut bench = Bench::with(1, 4 * M);
    bench.sets.room(1, u64::MAX);
    let lane_of = |id: u32| id % 2;
    let add = |bench: &mut Bench, id: u32| {
        bench.add(0, id, Range { lane: lane_of(id), ..range(id.into(), M) }).unwrap();
    };
    (0..20).for_each(|id| add(&mut bench, id));
    for id in 20..100 {
        let steps = |lane| bench.line.iter().filter(|step| lane_of(step.2.0) == lane).count();
        assert_eq!((steps(0), steps(1)), (2, 2), "four in the window, two for each");
        // Each lane serves its own in turn.
        let first = bench.line.iter().position(|step| lane_of(step.2.0) == lane_of(id)).unwrap();
        bench.serve(first, Outcome::Fetched);
        bench.take(0, true);
        add(&mut bench, id);
    }
}

#[test]
fn a_sweep_of_one_lane_begins_none_at_another() {
    let mut bench = Bench::with(1, 1_000 * M);
    bench.sets.room(1, u64::MAX);
    // Five steps are in line at lane 0; of the others a sweep begins with the next.
    for id in 0..8 {
        bench.add(0, id, range(100 + u64::from(id), 3 * M)).unwrap();
    }
    bench.serve(0, Outcome::Fetched);
    // Ahead of the heads, and added while the sweep is under way.
    bench.add(0, 8, range(106, 3 * M)).unwrap();
    bench.add(0, 9, Range { lane: 1, ..range(1, M / 2) }).unwrap();
    while !bench.line.is_empty() {
        bench.serve(0, Outcome::Fetched);
    }
    let at = |place: u64| bench.places.iter().rposition(|&other| other == place).unwrap();
    assert!(at(107) < at(106), "what comes during a sweep waits for the next: {:?}", bench.places);
}

proptest! {
    #[test]
    fn lanes_side_by_side_lose_nothing_keep_their_order_and_are_even(
        items in prop::collection::vec((0..4usize, 1..100u64), 0..200)
    ) {
        let numbered: Vec<(usize, usize, u64)> =
            items.iter().enumerate().map(|(i, &(lane, bytes))| (i, lane, bytes)).collect();
        let merged: Vec<_> = side_by_side(numbered.clone(), |item| item.1, |item| item.2).collect();
        let of = |list: &[(usize, usize, u64)], lane| -> Vec<usize> {
            list.iter().filter(|item| item.1 == lane).map(|item| item.0).collect()
        };
        (0..4).for_each(|lane| assert_eq!(of(&merged, lane), of(&numbered, lane)));
        let (mut sums, mut left) = ([0u64; 4], [0, 1, 2, 3].map(|lane| of(&numbered, lane).len()));
        for &(_, lane, bytes) in &merged {
            let behind = (0..4).filter(|&other| left[other] > 0).map(|other| sums[other]).min();
            prop_assert_eq!(behind, Some(sums[lane]), "the lane that is behind comes next");
            sums[lane] += bytes;
            left[lane] -= 1;
        }
    }
}

#[test]
fn bounds_are_told() {
    let mut sets = FileSets::new();
    for set in 0..SETS_MAX as u64 {
        sets.open(SetId(set), 0).unwrap();
    }
    assert_eq!(sets.open(SetId(99), M), Err(Refused::Full));
    assert_eq!(sets.open(SetId(0), M), Err(Refused::Duplicate));
    let none = Range { len: 0, ..range(1, 1) };
    assert_eq!(sets.add(SetId(0), RangeId(0), none), Err(Refused::Range));
    let beyond = Range { offset: u64::MAX, ..range(1, 1) };
    assert_eq!(sets.add(SetId(0), RangeId(0), beyond), Err(Refused::Range));
    assert_eq!(sets.add(SetId(99), RangeId(0), range(1, 1)), Err(Refused::Unknown));
    for id in 0..RANGES_MAX as u32 {
        sets.add(SetId(0), RangeId(id), range(id.into(), u64::from(id) + 1)).unwrap();
    }
    assert_eq!(sets.add(SetId(0), RangeId(0), range(1, 1)), Err(Refused::Duplicate));
    assert_eq!(sets.add(SetId(0), RangeId(9_999), range(1, 1)), Err(Refused::Full));
    sets.close(SetId(0));
    sets.close(SetId(0));
    assert_eq!(sets.counts().sets, SETS_MAX - 1);
}

#[derive(Clone, Debug)]
enum Do {
    Open(u64, u64),
    Add { set: u64, id: u32, place: Option<u64>, offset: u64, len: u64, lane: u32 },
    Serve(usize, u8),
    Take(usize, bool),
    TakeAny(u64, u32, bool),
    Close(u64),
    Room(u32, u64),
    Unknown(u64),
}

fn step() -> impl Strategy<Value = Do> {
    let size = || prop_oneof![6 => 0..12 * M, 2 => 0..20_000u64, 1 => any::<u64>()];
    prop_oneof![
        1 => (0..20u64, size()).prop_map(|(set, window)| Do::Open(set, window)),
        12 => (0..4u64, 0..40u32, proptest::option::of(0..50u64), size(), size(), 0..3u32).prop_map(
            |(set, id, place, offset, len, lane)| Do::Add { set, id, place, offset, len, lane }
        ),
        12 => (any::<usize>(), 0..8u8).prop_map(|(nth, how)| Do::Serve(nth, how)),
        8 => (any::<usize>(), any::<bool>()).prop_map(|(nth, read)| Do::Take(nth, read)),
        1 => (0..4u64, 0..40u32, any::<bool>()).prop_map(|(set, id, read)| Do::TakeAny(set, id, read)),
        1 => (0..4u64).prop_map(Do::Close),
        1 => (0..3u32, size()).prop_map(|(lane, bytes)| Do::Room(lane, bytes)),
        1 => any::<u64>().prop_map(Do::Unknown),
    ]
}

proptest! {
    /// Whatever is said: bounds hold, and once readers take what is ready, every range is ready or taken, and
    /// nothing is held.
    #[test]
    fn nothing_is_lost_and_nothing_is_held_twice(steps in prop::collection::vec(step(), 0..300)) {
        let mut bench = Bench::new();
        bench.sets.open(SetId(0), 8 * M).unwrap();
        bench.sets.open(SetId(1), M).unwrap();
        for step in steps {
            match step {
                Do::Open(set, window) => {
                    let _ = bench.sets.open(SetId(set), window);
                }
                Do::Add { set, id, place, offset, len, lane } => {
                    let file = FileId { dev: 1, ino: u64::from(id) };
                    let range = Range { file, offset, len, place: place.map(Lba), lane };
                    let _ = bench.sets.add(SetId(set), RangeId(id), range);
                }
                Do::Serve(nth, how) => {
                    let outcome = match how {
                        0 => Outcome::Passed,
                        1 => Outcome::There,
                        _ => Outcome::Fetched,
                    };
                    if let Some((step, ..)) = bench.line.remove(nth % bench.line.len().max(1)) {
                        if outcome == Outcome::Fetched {
                            bench.held.insert(step);
                        }
                        bench.sets.answered(step, outcome);
                    }
                }
                Do::Take(nth, read) if !bench.ready.is_empty() => {
                    let (set, range, _) = bench.ready.remove(nth % bench.ready.len());
                    bench.sets.took(set, range, read);
                }
                Do::Take(..) => {}
                Do::TakeAny(set, id, read) => {
                    bench.ready.retain(|r| (r.0, r.1) != (SetId(set), RangeId(id)));
                    bench.sets.took(SetId(set), RangeId(id), read);
                }
                Do::Close(set) => {
                    bench.ready.retain(|r| r.0 != SetId(set));
                    bench.sets.close(SetId(set));
                }
                Do::Room(lane, bytes) => bench.sets.room(lane, bytes),
                Do::Unknown(step) => bench.sets.answered(StepId(step | 1 << 63), Outcome::Fetched),
            }
            drain(&mut bench);
            let counts = bench.sets.counts();
            prop_assert!(counts.sets <= SETS_MAX && counts.ranges <= counts.sets * RANGES_MAX);
            prop_assert_eq!(counts.steps, bench.line.len());
            prop_assert!(counts.steps <= 3 * IN_LINE_MAX);
        }
        // Readers take what is ready, and the disk serves: everything comes to its end.
        for _ in 0..100_000 {
            if let Some((step, ..)) = bench.line.pop_front() {
                bench.held.insert(step);
                bench.sets.answered(step, Outcome::Fetched);
            } else if let Some((set, range, _)) = bench.ready.pop() {
                bench.sets.took(set, range, true);
            } else {
                break;
            }
            drain(&mut bench);
        }
        let counts = bench.sets.counts();
        prop_assert_eq!((counts.ranges, counts.bytes, counts.steps), (0, 0, 0));
        prop_assert!(bench.held.is_empty());
    }
}

/// What there is to do, where three lanes have lines of their own.
fn drain(bench: &mut Bench) {
    while let Some(action) = bench.sets.poll() {
        match action {
            Action::Ask { step, set, range, len, .. } => {
                assert!(bench.asked.insert(step, len).is_none());
                bench.line.push_back((step, set, range, len));
            }
            Action::Cancel { step } => assert!(bench.asked.contains_key(&step)),
            Action::Took { step, .. } => assert!(bench.held.remove(&step)),
            Action::Ready { set, range, came, .. } => {
                assert!(!bench.ready.iter().any(|r| (r.0, r.1) == (set, range)));
                bench.ready.push((set, range, came));
            }
        }
    }
}
