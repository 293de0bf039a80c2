//! What must hold for any sequence of events: nothing lost, nothing answered twice, every bound kept.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use seekless_policy::bitrate::BitrateRule;
use seekless_policy::competitive::Start;
use seekless_policy::controller::{AdjustBy, Params};
use seekless_policy::record::{Entry, Line};
use seekless_policy::{
    Access, Action, AheadConfig, Config, Demand, DiskEngine, DropBehind, Event, FileId, Mode, OrderKind,
    Outcome, PAGE, ReadId, Reason, Request, RequestId, Sizing, StreamConfig, Taken, Verdict,
};
use seekless_units::{Bytes, Lba, Nanos};

/// One thing a test does to a spindle. Numbers are reduced to what exists at that moment.
#[derive(Clone, Debug)]
enum Step {
    Request { file: u64, offset: u64, len: u64, file_size: u64, lba: Option<u64>, demand: Demand },
    Access { file: u64, offset: u64, len: u64, file_size: u64, taken: Taken },
    Budget { bytes: u64 },
    Missing { file: u64, offset: u64, len: u64 },
    Release { file: u64, offset: u64, len: u64 },
    Bitrate { file: u64, bytes_per_s: u64 },
    RequestAgain { nth: usize },
    Cancel { nth: usize },
    Progress { nth: usize, share: u64 },
    ProgressAbsurd { nth: usize, upto: u64 },
    Done { nth: usize, ok: bool },
    Found { nth: usize, share: u64 },
    FoundAbsurd { nth: usize, from: u64, upto: u64 },
    DoneUnknown,
    Wait { ms: u64 },
    Poll { times: usize },
}

/// Sizes and offsets: mostly near each other so that they overlap, some absurd.
fn amount() -> impl Strategy<Value = u64> {
    prop_oneof![
        8 => 0..(64 * PAGE),
        4 => (0..64u64).prop_map(|p| p * PAGE),
        2 => 0..(1u64 << 40),
        1 => Just(u64::MAX),
        1 => Just(i64::MAX as u64),
        1 => any::<u64>(),
    ]
}

fn demand() -> impl Strategy<Value = Demand> {
    (proptest::option::of(amount().prop_map(Nanos)), proptest::option::of(amount()))
        .prop_map(|(deadline, bitrate)| Demand { deadline, bitrate })
}

fn taken() -> impl Strategy<Value = Taken> {
    proptest::sample::select(vec![Taken::All, Taken::Unknown])
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..3u64, amount(), amount(), amount(), proptest::option::of(0..1_000_000u64), demand())
            .prop_map(|(file, offset, len, file_size, lba, demand)| {
                Step::Request { file, offset, len, file_size, lba, demand }
            }),
        3 => (0..2u64, 0..(40 * PAGE), 0..(20 * PAGE), demand())
            .prop_map(|(file, offset, len, demand)| {
                Step::Request { file, offset, len, file_size: 64 * PAGE, lba: None, demand }
            }),
        4 => ((0..3u64, 0..(40 * PAGE), 0..(20 * PAGE)), taken())
            .prop_map(|((file, offset, len), taken)| Step::Access { file, offset, len, file_size: 64 * PAGE, taken }),
        1 => ((0..3u64, amount(), amount(), amount()), taken())
            .prop_map(|((file, offset, len, file_size), taken)| Step::Access { file, offset, len, file_size, taken }),
        1 => amount().prop_map(|bytes| Step::Budget { bytes }),
        1 => (0..3u64, 0..(60 * PAGE), 0..(60 * PAGE))
            .prop_map(|(file, offset, len)| Step::Missing { file, offset, len }),
        1 => (0..3u64, 0..(60 * PAGE), amount())
            .prop_map(|(file, offset, len)| Step::Release { file, offset, len }),
        1 => (0..3u64, amount()).prop_map(|(file, bytes_per_s)| Step::Bitrate { file, bytes_per_s }),
        1 => any::<usize>().prop_map(|nth| Step::RequestAgain { nth }),
        2 => any::<usize>().prop_map(|nth| Step::Cancel { nth }),
        3 => (any::<usize>(), 0..=100u64).prop_map(|(nth, share)| Step::Progress { nth, share }),
        1 => (any::<usize>(), 0..=100u64).prop_map(|(nth, share)| Step::Found { nth, share }),
        1 => (any::<usize>(), amount(), amount()).prop_map(|(nth, from, upto)| Step::FoundAbsurd { nth, from, upto }),
        1 => (any::<usize>(), any::<u64>()).prop_map(|(nth, upto)| Step::ProgressAbsurd { nth, upto }),
        4 => (any::<usize>(), any::<bool>()).prop_map(|(nth, ok)| Step::Done { nth, ok }),
        1 => Just(Step::DoneUnknown),
        2 => (0..4_000u64).prop_map(|ms| Step::Wait { ms }),
        6 => (1..5usize).prop_map(|times| Step::Poll { times }),
    ]
}

fn ahead() -> impl Strategy<Value = Option<AheadConfig>> {
    let drop = proptest::sample::select(vec![DropBehind::Never, DropBehind::Pressure, DropBehind::Always]);
    let some = (0..6usize, 0..100u64, 0..200u64, drop).prop_map(|(streams_max, gap, budget, drop_behind)| {
        AheadConfig {
            streams: StreamConfig { streams_max, gap: Bytes(gap * 500), ..StreamConfig::default() },
            budget: Bytes(budget * 3_000),
            slack: Nanos::from_secs(1),
            drop_behind,
        }
    });
    proptest::option::of(some)
}

fn sizing() -> impl Strategy<Value = (Sizing, BitrateRule, Option<u64>)> {
    let params =
        (0..200u64, 0..50u64, 0..4_000u64, any::<bool>()).prop_map(|(start, step, interval_ms, model)| {
            Sizing::Auto(Params {
                start_size: Bytes(start * 3_000),
                step_size: Bytes(step * 5_000),
                adjust_interval: Nanos::from_millis(interval_ms),
                adjust_busy: 0.1,
                adjust_by: if model { AdjustBy::Model } else { AdjustBy::Gradient },
                ..Params::default()
            })
        });
    let sizing = prop_oneof![
        2 => Just(Sizing::Fixed),
        2 => params,
        1 => Just(Sizing::Competitive(Start::Depth)),
        1 => Just(Sizing::Competitive(Start::Slow)),
    ];
    let rules = vec![
        BitrateRule::Same,
        BitrateRule::SquareRoot,
        BitrateRule::Linear,
        BitrateRule::Factors(vec![(1e4, 0.3), (1e6, f64::NAN)]),
    ];
    (sizing, proptest::sample::select(rules), proptest::option::of(any::<u64>()))
}

fn config() -> impl Strategy<Value = Config> {
    let mode = proptest::sample::select(Mode::ALL.to_vec());
    let order = proptest::sample::select(OrderKind::ALL.to_vec());
    (
        mode,
        order,
        0..64u64,
        0..80u64,
        0..4usize,
        0..40u64,
        0..12usize,
        (any::<[bool; 2]>(), sizing()),
        ahead(),
    )
        .prop_map(
            |(mode, order, prefetch, read_max, reads_in_flight, overlap, queue_max, rest, ahead)| {
                let ([answer_early, scale_by_observed], (sizing, scale, bitrate)) = rest;
                Config {
                    sizing,
                    scale,
                    scale_by_observed,
                    bitrate,
                    profile: None,
                    ahead,
                    mode,
                    order,
                    prefetch: Bytes(prefetch * 3_000),
                    read_max: Bytes(read_max * 5_000),
                    reads_in_flight,
                    overlap: Bytes(overlap * PAGE),
                    queue_max,
                    answer_early,
                    age_max: Nanos::from_secs(2),
                    wait_max: Nanos::from_secs(10),
                    stall_max: Nanos::from_secs(6),
                }
            },
        )
}

/// A read the spindle asked for, as the test's disk sees it.
#[derive(Clone, Copy, Debug)]
struct Flight {
    file: FileId,
    offset: u64,
    len: u64,
    resident: u64,
}

/// A spindle and everything known about it from outside.
struct Bench {
    spindle: DiskEngine,
    now: Nanos,
    asked: Vec<Request>,
    unanswered: BTreeSet<RequestId>,
    duplicates: u64,
    flights: BTreeMap<ReadId, Flight>,
    seen: BTreeSet<ReadId>,
    /// Bytes in memory, by file: what reads reported, as `[start, end)`.
    memory: BTreeMap<FileId, Vec<(u64, u64)>>,
    /// Sum of the bytes reads reported.
    arrived: u64,
    /// Most of those that may have been in memory before.
    found: u64,
    /// The decision log.
    log: Vec<String>,
}

impl Bench {
    fn new(config: Config) -> Bench {
        let spindle = DiskEngine::new(config);
        let entry = Entry::Disk { name: "sda".into(), config: Box::new(spindle.config().clone()) };
        let begin = Line { disk: 0, at: Nanos::ZERO, entry };
        Bench {
            spindle,
            now: Nanos::ZERO,
            asked: Vec::new(),
            unanswered: BTreeSet::new(),
            duplicates: 0,
            flights: BTreeMap::new(),
            seen: BTreeSet::new(),
            memory: BTreeMap::new(),
            arrived: 0,
            found: 0,
            log: vec![begin.to_string()],
        }
    }

    fn handle(&mut self, event: Event) {
        self.log.push(Line { disk: 0, at: self.now, entry: Entry::Event(event) }.to_string());
        self.spindle.handle(self.now, event);
        let stats = self.spindle.stats();
        let config = self.spindle.config();
        assert!(
            stats.waiting <= config.queue_max && stats.queued <= config.queue_max,
            "queue bound: {stats:?}"
        );
        assert!(self.spindle.next_deadline().is_none_or(|at| at > self.now), "a deadline in the past");
    }

    fn poll(&mut self) -> bool {
        let Some(action) = self.spindle.poll_action() else { return false };
        self.log.push(Line { disk: 0, at: self.now, entry: Entry::Action(action) }.to_string());
        match action {
            Action::Read { id, file, offset, len, .. } => self.check_read(id, file, offset, len),
            Action::Answer { request, verdict } => self.check_answer(request, verdict),
            Action::Drop { offset, len, .. } => {
                assert!(len > 0 && offset % PAGE == 0 && len % PAGE == 0, "drop {offset}+{len}");
                assert!(self.spindle.config().ahead.is_some(), "only streams are dropped behind");
            }
        }
        true
    }

    fn check_read(&mut self, id: ReadId, file: FileId, offset: u64, len: u64) {
        let config = self.spindle.config();
        assert!(self.seen.insert(id), "a read's name came twice");
        assert!(len >= 1 && len <= config.read_max.0, "length {len}");
        assert_eq!(offset % PAGE, 0);
        assert!(offset.checked_add(len).is_some_and(|end| end <= (i64::MAX as u64).next_multiple_of(PAGE)));
        let missing: u64 = self.flights.values().map(|f| f.offset + f.len - f.resident).sum();
        if config.mode.serialises() {
            assert!(self.flights.len() < config.reads_in_flight, "too many reads in flight");
            assert!(self.flights.is_empty() || missing <= config.overlap.0, "submitted too early");
        } else {
            assert_eq!(config.mode, Mode::Prefetch, "modes off and track read nothing");
            assert!(self.flights.len() < config.queue_max);
        }
        let overlaps = |f: &Flight| f.file == file && f.offset < offset + len && offset < f.offset + f.len;
        assert!(!self.flights.values().any(overlaps), "the same bytes are read twice at once");
        self.flights.insert(id, Flight { file, offset, len, resident: offset });
    }

    fn check_answer(&mut self, id: RequestId, verdict: Verdict) {
        if verdict == Verdict::Pass(Reason::Duplicate) {
            assert!(self.duplicates > 0, "no duplicate was sent");
            self.duplicates -= 1;
            return;
        }
        assert!(self.unanswered.remove(&id), "{id:?} answered twice, or never asked: {verdict:?}");
        if verdict == Verdict::Resident {
            let request = self.asked[id.0 as usize];
            self.check_in_memory(&request);
        }
    }

    /// Everything a request may count on was reported as read.
    fn check_in_memory(&self, request: &Request) {
        let read_max = self.spindle.config().read_max.0;
        let size = request.file_size.min(i64::MAX as u64);
        let len = if request.len == 0 { u64::MAX } else { request.len };
        let start = request.offset / PAGE * PAGE;
        let end = request.offset.saturating_add(len).min(size).min(start.saturating_add(read_max));
        let mut parts = self.memory.get(&request.file).cloned().unwrap_or_default();
        parts.sort_unstable();
        let mut cursor = start;
        for (from, to) in parts {
            if from <= cursor {
                cursor = cursor.max(to);
            }
        }
        assert!(cursor >= end, "answered resident up to {end} with memory up to {cursor}");
    }

    fn arrived(&mut self, id: ReadId, upto: u64) {
        let Some(flight) = self.flights.get_mut(&id) else { return };
        let before = flight.resident;
        flight.resident = upto.clamp(flight.resident, flight.offset + flight.len);
        self.arrived += flight.resident - before;
        let part = (flight.offset, flight.resident);
        self.memory.entry(flight.file).or_default().push(part);
    }

    fn nth_flight(&self, nth: usize) -> Option<(ReadId, Flight)> {
        self.flights.iter().nth(nth % self.flights.len().max(1)).map(|(id, f)| (*id, *f))
    }

    fn finish(&mut self, read: ReadId, ok: bool) {
        if ok {
            self.arrived(read, u64::MAX);
        }
        self.flights.remove(&read);
        let outcome = if ok { Outcome::Ok } else { Outcome::Failed };
        self.handle(Event::Done { read, outcome });
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Request { file, offset, len, file_size, lba, demand } => {
                let id = RequestId(self.asked.len() as u64);
                let file = FileId { dev: 1, ino: file };
                // Any part of what lies before may be in memory; what lies behind is no sense.
                let from = offset.saturating_sub(file_size % (3 * PAGE)).saturating_add(len % (3 * PAGE));
                let request = Request { id, file, from, offset, len, file_size, lba: lba.map(Lba), demand };
                self.asked.push(request);
                self.unanswered.insert(id);
                self.handle(Event::Request(request));
            }
            Step::Access { file, offset, len, file_size, taken } => {
                let file = FileId { dev: 1, ino: file };
                self.handle(Event::Access(Access { file, offset, len, file_size, lba: None, taken }));
            }
            Step::Budget { bytes } => self.handle(Event::Budget(Bytes(bytes))),
            Step::Missing { file, offset, len } => {
                self.handle(Event::Missing { file: FileId { dev: 1, ino: file }, offset, len });
            }
            Step::Release { file, offset, len } => {
                self.handle(Event::Release { file: FileId { dev: 1, ino: file }, offset, len });
            }
            Step::Bitrate { file, bytes_per_s } => {
                self.handle(Event::Bitrate { file: FileId { dev: 1, ino: file }, bytes_per_s });
            }
            Step::RequestAgain { nth } => {
                // Only one that the spindle still holds, so that the name is in use.
                let held = self.spindle.stats().waiting == self.unanswered.len();
                let id = self.unanswered.iter().nth(nth % self.unanswered.len().max(1)).copied();
                if let (true, Some(id)) = (held, id) {
                    self.duplicates += 1;
                    self.handle(Event::Request(self.asked[id.0 as usize]));
                }
            }
            Step::Cancel { nth } => {
                let id = RequestId((nth % (self.asked.len() + 1)) as u64);
                self.handle(Event::Cancel(id));
            }
            Step::Progress { nth, share } => {
                if let Some((read, flight)) = self.nth_flight(nth) {
                    let upto = flight.offset + flight.len / 100 * share;
                    self.arrived(read, upto);
                    self.handle(Event::Progress { read, upto });
                }
            }
            Step::ProgressAbsurd { nth, upto } => {
                if let Some((read, _)) = self.nth_flight(nth) {
                    self.arrived(read, upto);
                    self.handle(Event::Progress { read, upto });
                }
            }
            Step::FoundAbsurd { nth, from, upto } => {
                if let Some((read, _)) = self.nth_flight(nth) {
                    self.found = self.found.saturating_add(upto.saturating_sub(from));
                    self.handle(Event::Found { read, from, upto });
                }
            }
            Step::Found { nth, share } => {
                if let Some((read, flight)) = self.nth_flight(nth) {
                    let at = |share| flight.offset + flight.len / 100 * share;
                    let (from, upto) = (at(share / 2), at(share));
                    self.found = self.found.saturating_add(upto - from);
                    self.handle(Event::Found { read, from, upto });
                }
            }
            Step::Done { nth, ok } => {
                if let Some((read, _)) = self.nth_flight(nth) {
                    self.finish(read, ok);
                }
            }
            Step::DoneUnknown => {
                self.handle(Event::Done { read: ReadId(u64::MAX), outcome: Outcome::Ok });
                self.handle(Event::Progress { read: ReadId(u64::MAX), upto: 7 });
            }
            Step::Wait { ms } => {
                self.now += Nanos::from_millis(ms);
                self.handle(Event::Tick);
            }
            Step::Poll { times } => {
                for _ in 0..times {
                    self.poll();
                }
            }
        }
    }

    /// Ends every read; afterwards nothing may be left.
    fn drain(&mut self) {
        loop {
            while self.poll() {}
            let Some(&read) = self.flights.keys().next() else { break };
            self.finish(read, true);
        }
        // Streams end by silence, and what they leave is given back more than once; then nothing keeps the spindle awake.
        self.now += Nanos::from_secs(100);
        let rest = self.now + Nanos::from_secs(11);
        self.handle(Event::Tick);
        while self.poll() {}
        while let Some(at) = self.spindle.next_deadline() {
            assert!(at < rest, "awake at {at:?}, to rest from {rest:?}");
            self.now = at;
            self.handle(Event::Tick);
            while self.poll() {}
        }
        assert!(self.flights.is_empty());
        assert!(self.unanswered.is_empty(), "never answered: {:?}", self.unanswered);
        let stats = self.spindle.stats();
        assert_eq!((stats.waiting, stats.queued, stats.in_flight), (0, 0, 0));
        assert_eq!(stats.answers(), stats.requests);
        assert_eq!(stats.wait.count(), stats.resident);
        assert_eq!((stats.streams, stats.bytes_unread), (0, 0));
        let t = stats.ledger;
        // More than was reported only where somebody read what a read had not reported yet.
        // Less only by what was there before.
        assert!(self.arrived <= t.disk.saturating_add(self.found), "{} {stats:?}", self.arrived);
        assert!(stats.bytes_evicted_unused <= t.evicted_unused, "{stats:?}");
        assert!(t.disk <= stats.bytes_read, "{stats:?}");
        assert!(t.first_use + t.evicted_unused + t.wasted + t.forgotten_fresh <= t.prefetched, "{t:?}");
        // Sums stop at the largest number; the steps have lengths of that kind.
        assert_eq!(t.first_use.saturating_add(t.cached).saturating_add(t.passed), t.requested, "{t:?}");
    }
}

/// Feeds a log's events to a fresh spindle: the actions must be those of the log.
fn replay(log: &[String]) {
    let mut spindle = None;
    for text in log {
        let line: Line = text.parse().unwrap();
        assert_eq!(&line.to_string(), text);
        match (line.entry, &mut spindle) {
            (Entry::Disk { config, .. }, slot) => *slot = Some(DiskEngine::new(*config)),
            (Entry::Event(event), Some(spindle)) => spindle.handle(line.at, event),
            (Entry::Action(action), Some(spindle)) => assert_eq!(spindle.poll_action(), Some(action)),
            _ => panic!("{text}"),
        }
    }
    assert_eq!(spindle.and_then(|mut s| s.poll_action()), None);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_lost_answered_twice_or_out_of_bounds(
        config in config(),
        steps in proptest::collection::vec(step(), 0..120),
    ) {
        let mut bench = Bench::new(config);
        for step in steps {
            bench.step(step);
        }
        bench.drain();
        replay(&bench.log);
    }

    /// Between two turns addresses rise, and it turns only when nothing is left ahead.
    #[test]
    fn the_sweep_is_monotone_between_turns(
        lbas in proptest::collection::vec(0..1_000_000u64, 1..80),
        served_between in proptest::collection::vec(0..4usize, 80),
    ) {
        let never = Nanos::MAX;
        let config = Config { reads_in_flight: 1, age_max: never, ..Config::default() };
        let mut spindle = DiskEngine::new(config);
        let mut queued: BTreeSet<(u64, u64)> = BTreeSet::new();
        let mut head = (0, 0);
        let mut served = 0;
        let mut serve = |spindle: &mut DiskEngine, queued: &mut BTreeSet<(u64, u64)>| {
            while let Some(action) = spindle.poll_action() {
                let Action::Read { id, file, lba, .. } = action else { continue };
                let place = (lba.unwrap().0, file.ino);
                assert!(queued.remove(&place));
                if place < head {
                    assert!(queued.range(head..).next().is_none(), "turned with work ahead of {head:?}");
                    assert!(queued.range(..place).next().is_none(), "turned, but not to the lowest");
                } else {
                    assert!(queued.range(head..place).next().is_none(), "skipped a nearer piece");
                }
                head = place;
                spindle.handle(Nanos(1), Event::Done { read: id, outcome: Outcome::Ok });
                served += 1;
                return true;
            }
            false
        };
        for (i, (&lba, &n)) in lbas.iter().zip(&served_between).enumerate() {
            let ino = i as u64;
            let file = FileId { dev: 1, ino };
            let request =
                Request { id: RequestId(ino), file, from: 0, offset: 0, len: PAGE, file_size: 1 << 30, lba: Some(Lba(lba)), demand: Demand::default() };
            queued.insert((lba, ino));
            spindle.handle(Nanos::ZERO, Event::Request(request));
            for _ in 0..n {
                serve(&mut spindle, &mut queued);
            }
        }
        while serve(&mut spindle, &mut queued) {}
        prop_assert_eq!(served, lbas.len());
    }
}
