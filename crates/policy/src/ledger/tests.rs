use super::*;
use alloc::collections::BTreeMap;
use proptest::prelude::*;

fn at(s: u64) -> Nanos {
    Nanos::from_secs(s)
}

#[test]
fn a_prefetch_used_in_full_costs_nothing() {
    let mut l = Ledger::new(100);
    l.opened(1);
    l.fetched(at(0), 1, 0, 1000);
    l.used(1, 0, 400);
    l.used(1, 400, 1000);
    l.used(1, 0, 100);
    l.closed(1, 1000);
    let t = l.totals();
    assert_eq!(
        (t.requested, t.disk, t.first_use, t.cached, t.wasted, t.evicted_unused),
        (1100, 1000, 1000, 100, 0, 0)
    );
    assert_eq!(l.ranges(), 1, "used ranges join");
}

#[test]
fn eviction_before_use_and_its_time() {
    let mut l = Ledger::new(100);
    l.fetched(at(10), 1, 0, 1000);
    l.used(1, 0, 300);
    l.missing(at(70), 1, 0, 1000);
    let t = l.totals();
    assert_eq!((t.evicted_unused, t.evicted_used), (700, 300));
    assert_eq!(t.eviction_time(), Some(at(60)));
    assert_eq!(l.ranges(), 0);
    // Fetched again without anybody having noticed that it went.
    l.fetched(at(80), 1, 0, 100);
    l.fetched(at(100), 1, 50, 150);
    assert_eq!(l.totals().evicted_unused, 750);
}

#[test]
fn unused_bytes_of_a_range_by_when_they_came() {
    let mut l = Ledger::new(100);
    l.fetched(at(10), 1, 0, 1000);
    l.fetched(at(20), 1, 1000, 2000);
    l.used(1, 0, 300);
    let unused = |l: &Ledger<_>, since: u64| {
        (
            l.unused_in(1, 0, 2000, at(since)),
            l.unused_in(1, 500, 1500, at(since)),
            l.unused_in(2, 0, 2000, at(since)),
        )
    };
    assert_eq!(unused(&l, 0), (1700, 1000, 0));
    assert_eq!(unused(&l, 11), (1000, 500, 0));
    assert_eq!(unused(&l, 20), (1000, 500, 0));
    assert_eq!(unused(&l, 21), (0, 0, 0));
    l.missing(at(30), 1, 400, 1200);
    assert_eq!(unused(&l, 0), (900, 300, 0));
    assert_eq!(l.unused_in(1, 1200, 1200, at(0)), 0);
}

#[test]
fn waste_is_exact_beside_the_papers_count() {
    let mut l = Ledger::new(100);
    l.opened(1);
    l.opened(1);
    l.fetched(at(0), 1, 0, 1000);
    l.used(1, 0, 200);
    l.closed(1, 200);
    // The paper has wasted 800 now; the other reader still may use them.
    assert_eq!((l.totals().wasted_approx, l.totals().wasted), (800, 0));
    l.used(1, 200, 600);
    l.closed(1, 600);
    assert_eq!((l.totals().wasted_approx, l.totals().wasted), (1200, 400));
    // Somebody comes back for them after all.
    l.opened(1);
    l.used(1, 600, 700);
    assert_eq!((l.totals().wasted, l.totals().first_use), (300, 700));
    l.closed(7, 0);
}

#[test]
fn table_1_of_the_paper() {
    // Row of 6 MB: disk 1.62, evicted 0.52, wasted 0.12 give cached 0.02 by its formula.
    let t = Totals { requested: 100, disk: 162, evicted_unused: 52, wasted_approx: 12, ..Totals::default() };
    let r = t.ratios();
    assert!((r.cached_approx - 0.02).abs() < 1e-9);
    // Row of 12 MB: negative.
    let t = Totals { requested: 100, disk: 263, evicted_unused: 134, wasted_approx: 20, ..Totals::default() };
    assert!((t.ratios().cached_approx + 0.09).abs() < 1e-9);
    assert_eq!(Totals::default().ratios(), Ratios::default());
}

#[test]
fn what_is_forgotten_is_told() {
    let mut l = Ledger::new(4);
    for i in 0..10 {
        l.fetched(at(i), i, 0, 100);
    }
    assert_eq!((l.ranges(), l.totals().forgotten_fresh), (4, 600));
    l.used(0, 0, 100);
    assert_eq!(l.totals().cached_unknown, 100);
}

/// The same account byte by byte.
#[derive(Default)]
struct Naive {
    bytes: BTreeMap<(u8, u64), State>,
    readers: BTreeMap<u8, u32>,
    totals: Totals,
}

impl Naive {
    fn missing(&mut self, now: Nanos, file: u8, start: u64, end: u64) {
        for b in start..end {
            match self.bytes.remove(&(file, b)) {
                Some(State::Fresh(since)) => {
                    self.totals.evicted_unused += 1;
                    self.totals.evicted_byte_micros += u128::from(now.since(since).0 / 1000);
                }
                Some(State::Used) => self.totals.evicted_used += 1,
                _ => {}
            }
        }
    }

    fn apply(&mut self, now: Nanos, op: u8, file: u8, start: u64, end: u64) {
        let n = end - start;
        match op {
            0 => {
                self.missing(now, file, start, end);
                self.totals.disk += n;
                self.totals.prefetched += n;
                self.bytes.extend((start..end).map(|b| ((file, b), State::Fresh(now))));
            }
            1 => {
                self.totals.requested += n;
                for b in start..end {
                    match self.bytes.insert((file, b), State::Used) {
                        Some(State::Fresh(_)) => self.totals.first_use += 1,
                        Some(State::Abandoned) => {
                            self.totals.wasted -= 1;
                            self.totals.first_use += 1;
                        }
                        Some(State::Used) => self.totals.cached += 1,
                        None => {
                            self.totals.cached += 1;
                            self.totals.cached_unknown += 1;
                        }
                    }
                }
            }
            2 => {
                self.missing(now, file, start, end);
                self.totals.requested += n;
                self.totals.disk += n;
                self.totals.passed += n;
                self.bytes.extend((start..end).map(|b| ((file, b), State::Used)));
            }
            3 => self.missing(now, file, start, end),
            4 => *self.readers.entry(file).or_insert(0) += 1,
            _ => {
                let Some(count) = self.readers.get_mut(&file).filter(|c| **c > 0) else { return };
                *count -= 1;
                let last = *count == 0;
                for (&(f, b), state) in &mut self.bytes {
                    if f == file && matches!(state, State::Fresh(_)) {
                        self.totals.wasted_approx += u64::from(b >= start);
                        if last {
                            self.totals.wasted += 1;
                            *state = State::Abandoned;
                        }
                    }
                }
            }
        }
    }
}

fn apply(l: &mut Ledger<u8>, now: Nanos, op: u8, file: u8, start: u64, end: u64) {
    match op {
        0 => l.fetched(now, file, start, end),
        1 => l.used(file, start, end),
        2 => l.passed(now, file, start, end),
        3 => l.missing(now, file, start, end),
        4 => l.opened(file),
        _ => l.closed(file, start),
    }
}

proptest! {
    #[test]
    fn as_counted_byte_by_byte(
        ops in proptest::collection::vec((0u8..6, 0u8..3, 0u64..60, 0u64..40), 1..120),
    ) {
        let mut ledger = Ledger::new(10_000);
        let mut naive = Naive::default();
        for (second, (op, file, start, len)) in ops.into_iter().enumerate() {
            let now = at(second as u64);
            apply(&mut ledger, now, op, file, start, start + len);
            naive.apply(now, op, file, start, start + len);
            prop_assert_eq!(ledger.totals(), naive.totals);
            let t = ledger.totals();
            // Every prefetched byte is accounted for, and every requested one.
            prop_assert_eq!(t.prefetched, t.first_use + t.evicted_unused + t.wasted + ledger.unused());
            prop_assert_eq!(t.requested, t.first_use + t.cached + t.passed);
            prop_assert_eq!(ledger.ages.len(), ledger.extents.len());
        }
    }

    #[test]
    fn bounded_and_consistent_when_it_forgets(
        ops in proptest::collection::vec((0u8..6, 0u8..20, any::<u64>(), 0u64..1 << 40), 1..200),
        ranges_max in 0usize..12,
    ) {
        let mut ledger = Ledger::new(ranges_max);
        for (second, (op, file, start, len)) in ops.into_iter().enumerate() {
            apply(&mut ledger, at(second as u64), op, file, start, start.saturating_add(len));
            prop_assert!(ledger.ranges() <= ranges_max.max(4));
            prop_assert!(ledger.readers.len() <= ranges_max.max(4));
            prop_assert_eq!(ledger.ages.len(), ledger.extents.len());
            let t = ledger.totals();
            prop_assert!(t.prefetched >= t.first_use.saturating_sub(t.forgotten_used) + t.evicted_unused);
        }
    }
}

#[test]
fn what_is_given_back_unused_is_wasted_and_not_evicted() {
    let mut l = Ledger::new(100);
    l.opened(1);
    l.opened(1);
    l.fetched(at(0), 1, 0, 4000);
    l.used(1, 0, 1000);
    l.closed(1, 1000);
    l.given_back(1, 0, 3000);
    let t = l.totals();
    assert_eq!((t.wasted, t.evicted_used, t.evicted_unused), (2000, 1000, 0));
    l.closed(1, 1000);
    assert_eq!(l.totals().wasted, 3000, "the rest with the last reader, and nothing twice");
}
