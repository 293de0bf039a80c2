//! A model of an engine as its driver sees it, which checks the contract after each action.
//!
//! [`Model`] gets every event before the engine does, and every action after it. It panics if an action
//! breaks the contract in the crate's documentation.
#![allow(dead_code, reason = "each test uses a part")]

pub(crate) mod closed_loop;
pub(crate) mod strategies;

use std::collections::{BTreeMap, BTreeSet};

use seekless_base::Nanos;
use seekless_policy::decisions::{Entry, Line};
use seekless_policy::{
    Action, Config, DiskEngine, Event, FileId, IN_FLIGHT_MAX, Mode, Outcome, PAGE, ReadId, Reason, Request,
    RequestId, SMALL_READS, Verdict,
};

/// Ranges of bytes of files; adjacent ranges are joined.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ranges(BTreeMap<FileId, Vec<(u64, u64)>>);

impl Ranges {
    pub(crate) fn add(&mut self, file: FileId, start: u64, end: u64) {
        if start < end {
            let of_file = self.0.entry(file).or_default();
            let (mut from, mut to) = (start, end);
            of_file.retain(|&(a, b)| {
                let apart = b < start || end < a;
                if !apart {
                    (from, to) = (from.min(a), to.max(b));
                }
                apart
            });
            of_file.push((from, to));
            of_file.sort_unstable();
        }
    }

    pub(crate) fn remove(&mut self, file: FileId, start: u64, end: u64) {
        let Some(of_file) = self.0.get_mut(&file).filter(|_| start < end) else { return };
        let cut = |&(a, b): &(u64, u64)| [(a, b.min(start)), (a.max(end), b)];
        *of_file = of_file.iter().flat_map(cut).filter(|(a, b)| a < b).collect();
        if of_file.is_empty() {
            self.0.remove(&file);
        }
    }

    /// The parts of `[start, end)` in the ranges.
    pub(crate) fn within(&self, file: FileId, start: u64, end: u64) -> Vec<(u64, u64)> {
        let of_file = self.0.get(&file).into_iter().flatten();
        of_file.map(|&(a, b)| (a.max(start), b.min(end))).filter(|(a, b)| a < b).collect()
    }

    pub(crate) fn covers(&self, file: FileId, start: u64, end: u64) -> bool {
        start >= end || self.within(file, start, end) == [(start, end)]
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.0.values().flatten().map(|(a, b)| b - a).sum()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (FileId, u64, u64)> {
        self.0.iter().flat_map(|(&file, of)| of.iter().map(move |&(a, b)| (file, a, b)))
    }
}

/// A read in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flight {
    pub(crate) file: FileId,
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Bytes before this offset have been reported.
    pub(crate) resident: u64,
    /// Whether it may join a read of the kernel's, because one ended in it or before it.
    joins_kernel: bool,
}

/// An unanswered request.
#[derive(Clone, Debug)]
struct Blocked {
    request: Request,
    /// Bytes reported since by reads in flight at or after the request.
    arrived: Ranges,
}

/// What a driver knows of the engine.
#[derive(Debug)]
pub(crate) struct Model {
    config: Config,
    pub(crate) open: BTreeSet<FileId>,
    pub(crate) flights: BTreeMap<ReadId, Flight>,
    blocked: BTreeMap<RequestId, Blocked>,
    /// Files of which the kernel read, and up to where.
    read_by_kernel: Vec<(FileId, u64)>,
    /// Bytes that were in memory once, as far as the engine can know.
    seen: Ranges,
    /// Bytes that were reported as a hole once.
    holes: Ranges,
    read_names: BTreeSet<ReadId>,
    /// Requests with an id in use that were not refused yet.
    duplicates: u64,
    /// Requests answered: resident, and passed.
    pub(crate) answered: [u64; 2],
    /// Bytes that reads reported.
    pub(crate) arrived: u64,
    /// Maximum number of actions polled in a row.
    pub(crate) burst: u64,
    row: u64,
}

impl Model {
    pub(crate) fn new(config: &Config) -> Model {
        Model {
            config: config.clone(),
            open: BTreeSet::new(),
            flights: BTreeMap::new(),
            blocked: BTreeMap::new(),
            read_by_kernel: Vec::new(),
            seen: Ranges::default(),
            holes: Ranges::default(),
            read_names: BTreeSet::new(),
            duplicates: 0,
            answered: [0; 2],
            arrived: 0,
            burst: 0,
            row: 0,
        }
    }

    /// The engine is about to get this event.
    pub(crate) fn event(&mut self, event: &Event) {
        self.row = 0;
        match *event {
            Event::Request(request) => {
                self.open.insert(request.file);
                if self.blocked.contains_key(&request.id) {
                    self.duplicates += 1;
                    return;
                }
                let mut arrived = Ranges::default();
                for flight in self.flights.values() {
                    arrived.add(flight.file, flight.start, flight.resident);
                }
                self.blocked.insert(request.id, Blocked { request, arrived });
            }
            Event::Opened { file } => {
                self.open.insert(file);
            }
            Event::ReadByKernel(read) => {
                self.open.insert(read.file);
                self.seen.add(read.file, read.offset, read.end());
                self.read_by_kernel.push((read.file, read.end()));
            }
            Event::Hole { file, from, upto } => self.holes.add(file, from, upto),
            Event::Access(a) => {
                let end = a.offset.saturating_add(a.len).min(a.file_size.max(a.offset));
                self.seen.add(a.file, a.offset, end);
            }
            Event::Found { read, from, upto } => {
                if let Some(f) = self.flights.get(&read) {
                    self.seen.add(f.file, from.max(f.start), upto.min(f.end));
                }
            }
            Event::Progress { read, upto } => self.has_come(read, upto),
            Event::Done { read, outcome } => {
                if outcome == Outcome::Ok {
                    self.has_come(read, u64::MAX);
                }
                self.flights.remove(&read);
            }
            _ => {}
        }
    }

    fn has_come(&mut self, read: ReadId, upto: u64) {
        let Some(f) = self.flights.get_mut(&read) else { return };
        let before = f.resident;
        f.resident = upto.clamp(before, f.end);
        self.arrived += f.resident - before;
        let f = *f;
        self.seen.add(f.file, before, f.resident);
        for blocked in self.blocked.values_mut() {
            blocked.arrived.add(f.file, before, f.resident);
        }
    }

    /// The engine returned this action.
    pub(crate) fn action(&mut self, action: &Action) {
        self.row += 1;
        self.burst = self.burst.max(self.row);
        let whole =
            |offset: u64, len: u64| offset.is_multiple_of(PAGE) && len.is_multiple_of(PAGE) && len > 0;
        match *action {
            Action::Read { id, file, offset, len, .. } => self.read(id, file, offset, len),
            Action::Answer { request, verdict } => self.answer(request, verdict),
            Action::Drop { file, offset, len } => {
                assert!(whole(offset, len) && self.open.contains(&file), "{action:?}");
                for f in self.flights.values().filter(|f| f.file == file) {
                    // Bytes that a client read have arrived, whether that was reported or not.
                    let (from, to) = (offset.max(f.resident), (offset + len).min(f.end));
                    assert!(self.seen.covers(file, from, to), "being read: {action:?}");
                }
            }
            Action::Probe { file, offset, len } => {
                assert!(len > 0 && self.open.contains(&file), "{action:?}");
                assert!(offset.checked_add(len).is_some());
            }
            Action::Close { file } => {
                assert!(self.open.remove(&file), "not open: {action:?}");
                assert!(!self.flights.values().any(|f| f.file == file), "being read: {action:?}");
                assert!(!self.blocked.values().any(|b| b.request.file == file), "waited for: {action:?}");
            }
        }
        if self.config.ahead.is_none() || self.config.mode != Mode::Both {
            let needed = matches!(action, Action::Read { .. } | Action::Answer { .. } | Action::Close { .. });
            assert!(needed, "streams are not followed: {action:?}");
        }
    }

    fn read(&mut self, id: ReadId, file: FileId, start: u64, len: u64) {
        let config = &self.config;
        assert!(self.open.contains(&file), "not open: {file:?}");
        assert!(self.read_names.insert(id), "a read's name came twice");
        assert!(len >= 1 && len <= config.read_max.0, "length {len}");
        assert_eq!(start % PAGE, 0);
        let end = start.checked_add(len).expect("a read of bytes that can be");
        assert!(end <= (i64::MAX as u64).next_multiple_of(PAGE));
        let joins_kernel = self.read_by_kernel.iter().any(|&(of, upto)| of == file && upto < end);
        if config.mode.serialises() {
            let in_line = || self.flights.values().filter(|f| !f.joins_kernel);
            let (count, missing) = (in_line().count(), in_line().map(|f| f.end - f.resident).sum::<u64>());
            assert!(joins_kernel || count < config.flights_max(), "too many reads in flight");
            assert!(self.flights.len() < self.flights_max(), "too many in all");
            let overlap = config.overlap.0.saturating_mul(config.in_flight as u64);
            let first = count < config.in_flight || !config.parts.is_empty();
            let longest = in_line().map(|f| f.end - f.start).max().unwrap_or(0).max(len);
            let small =
                count < config.small_in_flight && longest <= SMALL_READS / 4 && missing + len <= SMALL_READS;
            assert!(joins_kernel || first || missing <= overlap || small, "submitted too early");
        } else {
            assert_eq!(config.mode, Mode::Prefetch, "modes off and track read nothing");
            assert!(self.flights.len() < config.queue_max);
        }
        let overlaps = |f: &Flight| f.file == file && f.start < end && start < f.end;
        assert!(!self.flights.values().any(overlaps), "the same bytes are read twice at once");
        self.flights.insert(id, Flight { file, start, end, resident: start, joins_kernel });
    }

    fn answer(&mut self, id: RequestId, verdict: Verdict) {
        if verdict == Verdict::Pass(Reason::Duplicate) {
            assert!(self.duplicates > 0, "no duplicate was sent");
            self.duplicates -= 1;
            return;
        }
        let blocked = self.blocked.remove(&id);
        let Blocked { request, arrived } =
            blocked.unwrap_or_else(|| panic!("{id:?} answered twice: {verdict:?}"));
        self.answered[usize::from(verdict == Verdict::Resident)] += 1;
        if verdict == Verdict::Resident {
            let size = request.file_size.min(i64::MAX as u64);
            let len = if request.len == 0 { u64::MAX } else { request.len };
            let start = request.offset / PAGE * PAGE;
            let end = request
                .offset
                .saturating_add(len)
                .min(size)
                .min(start.saturating_add(self.config.read_max.0));
            let mut there = arrived;
            for (from, upto) in self.holes.within(request.file, start, end) {
                there.add(request.file, from, upto);
            }
            assert!(there.covers(request.file, start, end), "{request:?} is resident with {there:?}");
        }
    }

    /// Unanswered requests.
    pub(crate) fn blocked(&self) -> impl Iterator<Item = &Request> {
        self.blocked.values().map(|b| &b.request)
    }

    /// Checks every bound against the engine's own report, after an event.
    pub(crate) fn check(&self, engine: &DiskEngine, now: Nanos) {
        let (stats, config) = (engine.stats(), &self.config);
        let queues = [stats.waiting, stats.queued];
        assert!(queues.into_iter().all(|q| q <= config.queue_max), "queue bound: {stats:?}");
        assert_eq!(stats.in_flight, self.flights.len());
        assert!(stats.streams <= config.ahead.as_ref().map_or(0, |a| a.streams.streams_max.max(1)));
        assert!(engine.next_deadline().is_none_or(|at| at > now), "a deadline in the past");
    }

    /// Maximum number of reads in flight, with those that join reads of the kernel's if it has read.
    fn flights_max(&self) -> usize {
        let joined = if self.read_by_kernel.is_empty() { 0 } else { IN_FLIGHT_MAX };
        self.config.flights_max() + joined
    }

    /// Checks the bounds that hold when no action is left to poll.
    fn check_polled(&self) {
        let files_max = self.config.ahead.as_ref().map_or(self.config.queue_max, |a| a.files_max);
        // Files in use stayed open; each file opened since closes one.
        let in_use = self.config.queue_max + self.config.queue_max.max(self.flights_max());
        assert!(self.open.len() <= files_max.max(1) + in_use, "{} files are open", self.open.len());
    }

    /// The clients are gone and time has passed: checks that nothing is left.
    pub(crate) fn check_at_rest(&self, engine: &DiskEngine) {
        assert!(self.flights.is_empty() && self.blocked.is_empty(), "{:?} {:?}", self.flights, self.blocked);
        assert!(self.open.is_empty(), "open for ever: {:?}", self.open);
        assert_eq!(self.duplicates, 0);
        let stats = engine.stats();
        assert_eq!((stats.waiting, stats.queued, stats.in_flight), (0, 0, 0));
        assert_eq!((stats.streams, stats.bytes_unread), (0, 0));
        assert_eq!((stats.answers(), stats.wait.count()), (stats.requests, stats.resident));
        let t = stats.ledger;
        assert!(stats.bytes_evicted_unused <= t.evicted_unused, "{stats:?}");
        assert!(t.disk <= stats.bytes_read.saturating_add(t.passed), "{stats:?}");
        let accounted = t.first_use + t.evicted_unused + t.wasted + t.forgotten_fresh;
        let follows = self.config.ahead.is_some() && self.config.mode == Mode::Both;
        assert!(accounted == t.prefetched || (accounted < t.prefetched && !follows), "{t:?}");
        // Sums saturate; some tests have lengths of that size.
        assert_eq!(t.first_use.saturating_add(t.cached).saturating_add(t.passed), t.requested, "{t:?}");
    }
}

/// An engine whose every event and action is checked and logged.
pub(crate) struct Logged {
    pub(crate) engine: DiskEngine,
    pub(crate) model: Model,
    pub(crate) now: Nanos,
    /// The decision log, line by line.
    pub(crate) log: Vec<String>,
}

impl Logged {
    pub(crate) fn new(config: Config) -> Logged {
        let engine = DiskEngine::new(config);
        let config = engine.config().clone();
        let entry = Entry::Disk { name: "sda".into(), config: Box::new(config.clone()) };
        let begin = Line { disk: 0, at: Nanos::ZERO, entry };
        Logged { engine, model: Model::new(&config), now: Nanos::ZERO, log: vec![begin.to_string()] }
    }

    pub(crate) fn handle(&mut self, event: Event) {
        self.log.push(Line { disk: 0, at: self.now, entry: Entry::Event(event) }.to_string());
        self.model.event(&event);
        self.engine.handle(self.now, event);
        // The number of pieces in flight may be found by trial.
        self.model.config.in_flight = self.engine.config().in_flight;
        self.model.check(&self.engine, self.now);
    }

    pub(crate) fn poll(&mut self) -> Option<Action> {
        let Some(action) = self.engine.poll_action() else {
            self.model.check_polled();
            return None;
        };
        self.log.push(Line { disk: 0, at: self.now, entry: Entry::Action(action) }.to_string());
        self.model.action(&action);
        Some(action)
    }
}

/// Feeds the events of a log to a fresh engine, and checks that it repeats the log action for action.
pub(crate) fn replay(log: &[String]) {
    let mut engine = None;
    for text in log {
        let line: Line = text.parse().unwrap_or_else(|wrong| panic!("{wrong}: {text}"));
        assert_eq!(&line.to_string(), text);
        match (line.entry, &mut engine) {
            (Entry::Disk { config, .. }, slot) => *slot = Some(DiskEngine::new(*config)),
            (Entry::Event(event), Some(engine)) => engine.handle(line.at, event),
            (Entry::Action(action), Some(engine)) => assert_eq!(engine.poll_action(), Some(action), "{text}"),
            _ => panic!("{text}"),
        }
    }
    let rest = engine.and_then(|mut engine| engine.poll_action());
    assert_eq!(rest, None, "the log was polled to its end");
}
