use super::*;
use crate::ledger::Ratios;
use alloc::collections::BTreeMap;
use proptest::prelude::*;

fn at(s: u64) -> Nanos {
    Nanos::from_secs(s)
}

fn fetch<F: Copy + Ord + Hash>(map: &mut Extents<F>, now: Nanos, file: F, start: u64, end: u64) {
    map.read_submitted(file, start, end);
    map.arrived(now, now, file, start, end);
}

#[test]
fn a_prefetch_that_is_read_in_full_costs_nothing() {
    let mut map = Extents::new(100);
    fetch(&mut map, at(0), 1, 0, 1000);
    map.used(1, 0, 400);
    map.used(1, 400, 1000);
    map.used(1, 0, 100);
    map.stream_ended(1, 1000, &[]);
    let t = map.totals();
    assert_eq!(
        (t.requested, t.disk, t.first_use, t.cached, t.wasted, t.evicted_unused),
        (1100, 1000, 1000, 100, 0, 0)
    );
    assert_eq!(map.ranges(), 1, "ranges that were read join");
}

#[test]
fn the_rest_of_the_last_page_is_no_waste() {
    let mut map = Extents::new(100);
    fetch(&mut map, at(0), 1, 0, 8192);
    map.used(1, 0, 5000);
    map.beyond_end(1, 5000, 8192);
    map.stream_ended(1, 5000, &[]);
    let t = map.totals();
    assert_eq!((t.requested, t.disk, t.first_use, t.wasted, t.wasted_approx), (5000, 5000, 5000, 0, 0));
    map.beyond_end(2, 5000, 8192);
    assert_eq!(map.totals(), t, "nothing was fetched there");
}

#[test]
fn an_eviction_before_use_is_noticed_with_its_age() {
    let mut map = Extents::new(100);
    fetch(&mut map, at(10), 1, 0, 1000);
    map.used(1, 0, 300);
    map.missing(at(70), 1, 0, 1000);
    let t = map.totals();
    assert_eq!((t.evicted_unused, t.evicted_used, t.eviction_time()), (700, 300, Some(at(60))));
    let evicted = [(300, None), (700, Some(at(10)))].map(|(bytes, fetched)| Evicted { bytes, fetched });
    assert_eq!(map.take_evicted(), evicted);
    assert_eq!(map.ranges(), 0);
    // Fetched again before its eviction was noticed.
    fetch(&mut map, at(80), 1, 0, 100);
    fetch(&mut map, at(100), 1, 50, 150);
    assert_eq!(map.totals().evicted_unused, 750);
}

#[test]
fn the_disk_does_not_deliver_what_was_there() {
    let mut map = Extents::new(100);
    fetch(&mut map, at(0), 1, 0, 100);
    map.read_submitted(1, 0, 300);
    map.found(1, 0, 100);
    map.found(1, 250, 300);
    map.arrived(at(1), at(1), 1, 0, 300);
    let t = map.totals();
    assert_eq!((t.disk, t.evicted_unused), (100 + 150, 0));
    // Read before anything was reported: known bytes were in memory, unknown ones came from the disk.
    map.read_submitted(2, 0, 100);
    map.used(2, 0, 60);
    map.arrived(at(2), at(2), 2, 0, 100);
    assert_eq!((map.totals().disk, map.totals().first_use), (350, 60));
}

#[test]
fn a_failed_read_leaves_what_was_known() {
    let mut map = Extents::new(100);
    fetch(&mut map, at(0), 1, 0, 100);
    map.read_submitted(1, 0, 300);
    map.read_failed(1, 0, 300);
    assert_eq!(map.resident(1, 0, 300), [(0, 100)]);
    assert_eq!((map.ranges(), map.totals().evicted_unused), (1, 0));
}

#[test]
fn what_a_client_reads_itself_is_passed_and_no_hit() {
    let mut map = Extents::new(100);
    map.left_to_client(1, 0, 100);
    map.used(1, 0, 150);
    let t = map.totals();
    assert_eq!((t.requested, t.disk, t.passed, t.cached, t.prefetched), (150, 100, 100, 50, 0));
}

#[test]
fn waste_is_exact_beside_the_papers_count() {
    let mut map = Extents::new(100);
    fetch(&mut map, at(0), 1, 0, 1000);
    map.used(1, 0, 200);
    map.stream_ended(1, 200, &[(200, 1000)]);
    // The paper counts 800 as wasted now; the other stream may still read them.
    assert_eq!((map.totals().wasted_approx, map.totals().wasted), (800, 0));
    map.used(1, 200, 600);
    map.stream_ended(1, 600, &[]);
    assert_eq!((map.totals().wasted_approx, map.totals().wasted), (1200, 400));
    // A client returns for them after all.
    map.used(1, 600, 700);
    assert_eq!((map.totals().wasted, map.totals().first_use), (300, 700));
}

#[test]
fn what_is_given_back_unread_is_wasted_and_not_evicted() {
    let mut map = Extents::new(100);
    fetch(&mut map, at(0), 1, 0, 4000);
    map.used(1, 0, 1000);
    map.dropped(1, 0, 3000);
    let t = map.totals();
    assert_eq!((t.wasted, t.evicted_used, t.evicted_unused), (2000, 1000, 0));
    assert_eq!(map.leaving(1, 0, 4000), [(0, 3000)]);
    // Wanted again before it left memory, by a read and by a client.
    map.read_submitted(1, 0, 500);
    map.found(1, 0, 500);
    map.used(1, 500, 600);
    assert_eq!(map.leaving(1, 0, 4000), [(600, 3000)]);
    map.left(1, 0, 4000);
    assert_eq!(map.resident(1, 0, 4000), [(0, 600), (3000, 4000)]);
}

#[test]
fn what_is_found_in_memory_was_fetched_by_nobody() {
    let mut map = Extents::new(100);
    map.read_submitted(1, 0, 300);
    map.found(1, 100, 300);
    map.arrived(at(1), at(1), 1, 0, 300);
    assert_eq!(map.resident(1, 0, 300), [(0, 300)]);
    map.dropped(1, 250, 300);
    assert_eq!(map.resident(1, 0, 300), [(0, 250)], "what is to leave memory does not count");
    map.used(1, 100, 150);
    map.missing(at(2), 1, 150, 250);
    let t = map.totals();
    assert_eq!((t.disk, t.cached, t.cached_unknown, t.evicted_unused, t.evicted_used), (100, 50, 50, 0, 0));
}

#[test]
fn table_1_of_the_paper() {
    // Table row of 6 MB: disk 1.62, evicted 0.52, wasted 0.12 give cached 0.02 by the paper's formula.
    let t = Totals { requested: 100, disk: 162, evicted_unused: 52, wasted_approx: 12, ..Totals::default() };
    let r = t.ratios();
    assert!((r.cached_approx - 0.02).abs() < 1e-9);
    // Table row of 12 MB: negative.
    let t = Totals { requested: 100, disk: 263, evicted_unused: 134, wasted_approx: 20, ..Totals::default() };
    assert!((t.ratios().cached_approx + 0.09).abs() < 1e-9);
    assert_eq!(Totals::default().ratios(), Ratios::default());
}

#[test]
fn what_is_forgotten_is_told() {
    let mut map = Extents::new(4);
    for i in 0..10 {
        fetch(&mut map, at(i), i, 0, 100);
    }
    map.forget_beyond_bound();
    assert_eq!((map.ranges(), map.totals().forgotten_fresh), (4, 600));
    map.used(0, 0, 100);
    assert_eq!(map.totals().cached_unknown, 100);
}

/// The same map byte by byte.
#[derive(Default)]
struct Naive {
    bytes: BTreeMap<(u8, u64), Facts>,
    totals: Totals,
}

impl Naive {
    fn gone(&mut self, now: Nanos, state: State) {
        match state {
            State::Unread(since) => {
                self.totals.evicted_unused += 1;
                self.totals.evicted_byte_micros += u128::from(now.since(since).0 / 1000);
            }
            State::Read => self.totals.evicted_used += 1,
            _ => {}
        }
    }

    fn apply(&mut self, now: Nanos, op: u8, file: u8, start: u64, end: u64) {
        if op == 8 {
            let past = self.bytes.range((file, start)..=(file, u64::MAX));
            let unread = past.filter(|(_, f)| matches!(f.state, State::Unread(_))).count();
            self.totals.wasted_approx += unread as u64;
            for (&(f, byte), facts) in &mut self.bytes {
                let counted_on = (start..end).contains(&byte);
                if f == file && matches!(facts.state, State::Unread(_)) && !counted_on {
                    self.totals.wasted += 1;
                    facts.state = State::Abandoned;
                }
            }
            return;
        }
        for byte in start..end {
            let old = self.bytes.remove(&(file, byte));
            let new = self.byte(now, op, old);
            if let Some(facts) = new {
                self.bytes.insert((file, byte), facts);
            }
        }
    }

    fn byte(&mut self, now: Nanos, op: u8, old: Option<Facts>) -> Option<Facts> {
        let state = old.map(|f| f.state);
        let arriving = old.is_some_and(|f| f.arriving);
        match op {
            0 => Some(Facts { arriving: true, ..old.unwrap_or(Facts::of(State::Absent)) }),
            1 => match state? {
                State::Absent => Some(Facts::of(State::Found)),
                State::Leaving => Some(Facts::of(State::Read)),
                state => Some(Facts::of(state)),
            },
            2 if arriving => {
                self.gone(now, state?);
                self.totals.disk += 1;
                self.totals.prefetched += 1;
                Some(Facts::of(State::Unread(now)))
            }
            3 => {
                let t = &mut self.totals;
                t.requested += 1;
                match state {
                    Some(State::Absent) => {
                        t.disk += 1;
                        t.prefetched += u64::from(arriving);
                        t.first_use += u64::from(arriving);
                        t.passed += u64::from(!arriving);
                    }
                    Some(State::Unread(_)) => t.first_use += 1,
                    Some(State::Abandoned) => {
                        t.wasted -= 1;
                        t.first_use += 1;
                    }
                    Some(State::Read) => t.cached += 1,
                    Some(State::Leaving | State::Found) | None => {
                        t.cached += 1;
                        t.cached_unknown += 1;
                    }
                }
                Some(Facts::of(State::Read))
            }
            4 if !arriving => {
                if let Some(state) = state {
                    self.gone(now, state);
                }
                None
            }
            5 if !arriving => {
                match state {
                    Some(State::Unread(_)) => self.totals.wasted += 1,
                    Some(State::Read) => self.totals.evicted_used += 1,
                    _ => {}
                }
                Some(Facts::of(State::Leaving))
            }
            6 => match state? {
                State::Absent if arriving => None,
                _ => old.map(|f| Facts { arriving: false, ..f }),
            },
            7 if state == Some(State::Leaving) && !arriving => None,
            _ => old,
        }
    }
}

fn apply(map: &mut Extents<u8>, now: Nanos, op: u8, file: u8, start: u64, end: u64) {
    match op {
        0 => map.read_submitted(file, start, end),
        1 => map.found(file, start, end),
        2 => map.arrived(now, now, file, start, end),
        3 => map.used(file, start, end),
        4 => map.missing(now, file, start, end),
        5 => map.dropped(file, start, end),
        6 => map.read_failed(file, start, end),
        7 => map.left(file, start, end),
        _ => map.stream_ended(file, start, &[(start, end)]),
    }
}

proptest! {
    #[test]
    fn it_is_what_a_map_of_bytes_would_be(
        ops in proptest::collection::vec((0u8..9, 0u8..3, 0u64..60, 0u64..40), 1..120),
    ) {
        let mut map = Extents::new(10_000);
        let mut naive = Naive::default();
        for (second, (op, file, start, len)) in ops.into_iter().enumerate() {
            let now = at(second as u64);
            apply(&mut map, now, op, file, start, start + len);
            naive.apply(now, op, file, start, start + len);
            prop_assert_eq!(map.totals(), naive.totals);
            let bytes = map.files.iter().flat_map(|(&f, of)| of.iter().map(move |(&at, e)| (f, at, e.end, e.facts)));
            let bytes: BTreeMap<(u8, u64), Facts> =
                bytes.flat_map(|(f, from, to, facts)| (from..to).map(move |b| ((f, b), facts))).collect();
            prop_assert_eq!(&bytes, &naive.bytes);
            let t = map.totals();
            // Every prefetched byte and every requested byte is accounted for.
            prop_assert_eq!(t.prefetched, t.first_use + t.evicted_unused + t.wasted + map.unread());
            prop_assert_eq!(t.requested, t.first_use + t.cached + t.passed);
        }
    }

    #[test]
    fn it_is_bounded_and_consistent_when_it_forgets(
        ops in proptest::collection::vec((0u8..9, 0u8..20, any::<u64>(), 0u64..1 << 40), 1..200),
        ranges_max in 0usize..12,
    ) {
        let mut map = Extents::new(ranges_max);
        for (second, (op, file, start, len)) in ops.into_iter().enumerate() {
            apply(&mut map, at(second as u64), op, file, start, start.saturating_add(len));
            map.forget_beyond_bound();
            prop_assert!(map.ranges() <= ranges_max.max(4));
            let kept = || map.files.values().flat_map(BTreeMap::iter);
            prop_assert_eq!(map.ranges(), kept().count());
            for of in map.files.values() {
                prop_assert!(!of.is_empty());
                let edges: Vec<u64> = of.iter().flat_map(|(&at, e)| [at, e.end]).collect();
                prop_assert!(edges.is_sorted());
            }
        }
    }
}
