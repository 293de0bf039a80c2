//! A driver that keeps its side of the contract, on a machine where everything fails that can: reads fail,
//! clients are killed, pages are evicted, memory collapses, files have extreme sizes. The engine must keep
//! its side.
//!
//! [`Machine`] is a small operating system: open files, a page cache, a disk, clients that read files, and
//! doors that report it. [`common::Model`] checks each action.

mod common;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use common::strategies::{amount, config, writes};
use common::{Logged, Ranges, replay};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use seekless_base::{Bytes, Lba, Nanos};
use seekless_policy::{
    Access, Action, AheadConfig, Config, Demand, Event, FOUND_MAX, FileId, LongestWait, MemoryLimit, Mode,
    Outcome, PAGE, ReadId, Reason, Request, RequestId, Taken, Verdict, Writes,
};

/// Number of clients at once; below, number of files.
const CLIENTS: usize = 6;
const FILES: u64 = 5;

/// Longest read of a client.
const READ_MAX: u64 = 48 * PAGE;

/// Longer than the engine's longest wait, plus idle time of a stream, open time of a file, and all attempts
/// to give bytes back.
const REST: Nanos = Nanos::from_secs(30 + 5 + 2 + 8 + 1 + 10);

/// Duration of a read at the end.
const READ_TAKES: Nanos = Nanos::from_millis(40);

/// One event on the machine. Numbers are reduced to what exists at that moment.
#[derive(Clone, Debug)]
enum Step {
    /// A client reads on.
    Read {
        client: usize,
        len: u64,
        begun: bool,
    },
    /// A client requests more than a read can be.
    ReadAbsurd {
        client: usize,
        len: u64,
    },
    /// A client seeks in its file, or to the beginning of another.
    Seek {
        client: usize,
        to: u64,
    },
    SwitchFile {
        client: usize,
        file: u64,
    },
    /// A client is killed; another begins.
    Kill {
        client: usize,
    },
    Progress {
        nth: usize,
        percent: u64,
    },
    Done {
        nth: usize,
        ok: bool,
    },
    /// The kernel evicts pages.
    Evict {
        file: u64,
        start: u64,
        len: u64,
    },
    EvictAll,
    Memory {
        bytes: u64,
        tasks_wait: bool,
    },
    /// The disk is left to its readers, or no longer.
    Rest(bool),
    /// The driver reports what waits to be written.
    Writes(Writes),
    /// A hole appears or disappears.
    Hole {
        file: u64,
        from: u64,
        len: u64,
        written: bool,
    },
    /// The driver is to close a file.
    Leave(u64),
    /// The size of a file changes.
    Resize {
        file: u64,
        size: u64,
    },
    /// Time passes. A late driver ticks once, at the end.
    Wait {
        ms: u64,
        late: bool,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let client = || 0..CLIENTS;
    let file = || 0..FILES;
    prop_oneof![
        20 => (client(), 1..READ_MAX, any::<bool>()).prop_map(|(client, len, begun)| Step::Read { client, len, begun }),
        1 => (client(), amount()).prop_map(|(client, len)| Step::ReadAbsurd { client, len }),
        1 => (client(), amount()).prop_map(|(client, to)| Step::Seek { client, to }),
        1 => (client(), file()).prop_map(|(client, file)| Step::SwitchFile { client, file }),
        2 => client().prop_map(|client| Step::Kill { client }),
        4 => (any::<usize>(), 0..=100u64).prop_map(|(nth, percent)| Step::Progress { nth, percent }),
        10 => (any::<usize>(), prop::bool::weighted(0.85)).prop_map(|(nth, ok)| Step::Done { nth, ok }),
        2 => (file(), 0..256 * PAGE, 0..128 * PAGE).prop_map(|(file, start, len)| Step::Evict { file, start, len }),
        1 => Just(Step::EvictAll),
        2 => (amount(), any::<bool>())
            .prop_map(|(bytes, tasks_wait)| Step::Memory { bytes, tasks_wait }),
        1 => any::<bool>().prop_map(Step::Rest),
        2 => writes().prop_map(Step::Writes),
        2 => (file(), 0..(64 * PAGE), 0..(2_000 * PAGE), any::<bool>())
            .prop_map(|(file, from, len, written)| Step::Hole { file, from, len, written }),
        2 => file().prop_map(Step::Leave),
        1 => (file(), amount()).prop_map(|(file, size)| Step::Resize { file, size }),
        8 => (0..1_500u64, any::<bool>()).prop_map(|(ms, late)| Step::Wait { ms, late }),
        1 => (0..60_000u64, any::<bool>()).prop_map(|(ms, late)| Step::Wait { ms, late }),
    ]
}

/// Settings, mostly with streams, where most can fail.
fn settings() -> impl Strategy<Value = Config> {
    (config(), prop::bool::weighted(0.8), 1..5usize).prop_map(|(config, streams, files_max)| match streams {
        true => {
            let ahead = AheadConfig { files_max, ..config.ahead.clone().unwrap_or_default() };
            Config { mode: Mode::Both, ahead: Some(ahead), ..config }
        }
        false => config,
    })
}

#[derive(Clone, Copy, Debug)]
struct Client {
    file: u64,
    position: u64,
    /// The request it waits for, and the end of that read.
    blocked: Option<(RequestId, u64)>,
}

struct Machine {
    logged: Logged,
    sizes: Vec<u64>,
    cache: Ranges,
    clients: Vec<Client>,
    next_request: u64,
    /// Requests of file sets whose bytes were not taken.
    of_file_sets: BTreeSet<RequestId>,
    /// Events that the driver has to report next, in order.
    reports: VecDeque<Event>,
    /// Decides whether hints are followed and reports lost.
    dice: u64,
    /// Bytes that the disk delivered; below, bytes that clients read themselves.
    delivered: u64,
    seen: BTreeMap<&'static str, u64>,
}

fn id(file: u64) -> FileId {
    FileId { dev: 1, ino: file }
}

impl Machine {
    fn new(config: Config, dice: u64) -> Machine {
        let clients =
            (0..CLIENTS as u64).map(|c| Client { file: c % FILES, position: 0, blocked: None }).collect();
        Machine {
            logged: Logged::new(config),
            sizes: vec![200 * PAGE, 64 * PAGE + 17, 1 << 40, 1, 300 * PAGE],
            cache: Ranges::default(),
            clients,
            next_request: 0,
            of_file_sets: BTreeSet::new(),
            reports: VecDeque::new(),
            dice: dice | 1,
            delivered: 0,
            seen: BTreeMap::new(),
        }
    }

    /// A number below `sides`.
    fn roll(&mut self, sides: u64) -> u64 {
        // xorshift64: Marsaglia 2003.
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        self.dice % sides
    }

    /// The loop of a driver: an event, then every action, then the events that these caused.
    fn tell(&mut self, event: Event) {
        self.reports.push_back(event);
        while let Some(event) = self.reports.pop_front() {
            self.logged.handle(event);
            while let Some(action) = self.logged.poll() {
                self.act(action);
            }
        }
    }

    fn act(&mut self, action: Action) {
        *self.seen.entry(word(&action)).or_default() += 1;
        match action {
            Action::Read { id, file, offset, len, .. } => {
                // Bytes in memory already are found when the read begins.
                let found = self.cache.within(file, offset, offset + len);
                for (from, upto) in found.into_iter().take(FOUND_MAX) {
                    self.logged.handle(Event::Found { read: id, from, upto });
                }
            }
            Action::Answer { request, verdict } => {
                // Now and then the report is lost, or the reader never takes its bytes.
                if self.of_file_sets.remove(&request) && self.roll(6) > 0 {
                    let read = verdict == Verdict::Resident && self.roll(5) > 0;
                    self.reports.push_back(Event::Took { request, read });
                }
                let Some(c) =
                    self.clients.iter().position(|c| c.blocked.is_some_and(|(id, _)| id == request))
                else {
                    assert_eq!(verdict, Verdict::Pass(Reason::Cancelled));
                    return;
                };
                let (_, end) = self.clients[c].blocked.take().unwrap();
                // A client whose request passed reads for itself, and so does one whose bytes were evicted
                // again.
                let begun = self.roll(3) == 0;
                self.client_reads(c, end, begun);
            }
            Action::Drop { file, offset, len } => {
                // A page that a socket holds stays.
                if self.roll(4) > 0 {
                    self.cache.remove(file, offset, offset + len);
                }
            }
            Action::Probe { file, offset, len } => {
                let hole = self.hole(file, offset, offset + len);
                if let Some((from, to)) = hole.filter(|_| self.roll(4) > 0) {
                    self.reports.push_back(Event::Missing { file, offset: from, len: to - from });
                }
            }
            Action::Close { .. } => {}
        }
    }

    /// The first missing range in the page cache.
    fn hole(&self, file: FileId, start: u64, end: u64) -> Option<(u64, u64)> {
        let parts = self.cache.within(file, start, end);
        let Some(&(from, to)) = parts.first() else { return Some((start, end)).filter(|_| start < end) };
        if from > start {
            return Some((start, from));
        }
        let next = parts.get(1).map_or(end, |&(from, _)| from);
        Some((to, next)).filter(|_| to < next)
    }

    fn size(&self, client: usize) -> u64 {
        self.sizes[self.clients[client].file as usize]
    }

    /// A client reads up to `end`, and brings in missing bytes itself.
    fn client_reads(&mut self, client: usize, end: u64, begun: bool) {
        let Client { file, position, .. } = self.clients[client];
        let size = self.size(client);
        let end = end.min(size);
        if position >= end {
            return;
        }
        let pages = (position / PAGE * PAGE, end.min(i64::MAX as u64).next_multiple_of(PAGE));
        self.cache.add(id(file), pages.0, pages.1);
        // A socket that takes a part; the next read begins there.
        let taken = if begun { Taken::Unknown } else { Taken::All };
        let upto = if begun { position + (end - position).div_ceil(2) } else { end };
        self.clients[client].position = if upto >= size { 0 } else { upto };
        // Now and then a report is lost, or comes through a door that has the file open.
        if self.roll(12) > 0 {
            if self.roll(4) == 0 {
                self.reports.push_back(Event::Opened { file: id(file) });
                let bytes_per_s = self.roll(1 << 22);
                self.reports.push_back(Event::Bitrate { file: id(file), bytes_per_s });
            }
            let lba = Some(Lba(file * 1_000_000 + position / 512));
            let access =
                Access { file: id(file), offset: position, len: end - position, file_size: size, lba, taken };
            self.reports.push_back(Event::Access(access));
        }
    }

    fn read(&mut self, client: usize, len: u64, begun: bool) {
        let Client { file, position, blocked } = self.clients[client];
        if blocked.is_some() {
            return;
        }
        let end = position.saturating_add(len).min(self.size(client));
        match self.hole(id(file), position / PAGE * PAGE, end) {
            None => self.client_reads(client, end, begun),
            Some((from, _)) => {
                self.ask(client, from.max(position), end.saturating_sub(from.max(position)), end)
            }
        }
        // Reports what a client did by itself.
        if let Some(first) = self.reports.pop_front() {
            self.tell_first(first);
        }
    }

    /// Sends this event before the reports that are queued already.
    fn tell_first(&mut self, event: Event) {
        let rest = std::mem::take(&mut self.reports);
        self.reports.push_back(event);
        self.reports.extend(rest);
        let event = self.reports.pop_front().unwrap();
        let rest = std::mem::take(&mut self.reports);
        self.tell(event);
        rest.into_iter().for_each(|event| self.tell(event));
    }

    fn ask(&mut self, client: usize, offset: u64, len: u64, end: u64) {
        let Client { file, position, .. } = self.clients[client];
        let request = RequestId(self.next_request);
        self.next_request += 1;
        self.clients[client].blocked = Some((request, end));
        let file_set = self.roll(4) == 0;
        if file_set {
            self.of_file_sets.insert(request);
        }
        self.tell(Event::Request(Request {
            id: request,
            file: id(file),
            from: position,
            offset,
            len,
            file_size: self.size(client),
            lba: Some(Lba(file * 1_000_000 + offset / 512)),
            demand: Demand { file_set, ..Demand::default() },
        }));
    }

    fn kill(&mut self, client: usize) {
        let file = self.roll(FILES);
        let killed =
            std::mem::replace(&mut self.clients[client], Client { file, position: 0, blocked: None });
        if let Some((request, _)) = killed.blocked {
            self.tell(Event::Cancel(request));
        }
    }

    fn nth_read(&self, nth: usize) -> Option<ReadId> {
        let flights = &self.logged.model.flights;
        flights.keys().nth(nth % flights.len().max(1)).copied()
    }

    /// Bytes that a read has brought in are in the page cache before they are reported.
    fn progress(&mut self, read: ReadId, percent: u64) -> u64 {
        let flight = self.logged.model.flights[&read];
        let upto = (flight.start + (flight.end - flight.start) / 100 * percent) / PAGE * PAGE;
        let upto = if percent == 100 { flight.end } else { upto.clamp(flight.resident, flight.end) };
        self.delivered += upto - flight.resident;
        self.cache.add(flight.file, flight.resident, upto);
        upto
    }

    fn end_read(&mut self, read: ReadId, ok: bool) {
        let outcome = if ok { Outcome::Ok } else { Outcome::Failed };
        if ok {
            self.progress(read, 100);
        }
        self.tell(Event::Done { read, outcome });
    }

    /// Time passes, with a tick whenever one is requested, or with one at the end.
    fn wait(&mut self, until: Nanos, late: bool) {
        while let Some(at) = self.logged.engine.next_deadline().filter(|&at| at <= until && !late) {
            self.logged.now = at;
            self.tell(Event::Tick);
        }
        self.logged.now = until;
        self.tell(Event::Tick);
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Read { client, len, begun } => self.read(client, len, begun),
            Step::ReadAbsurd { client, len } => {
                if self.clients[client].blocked.is_none() {
                    let (at, size) = (self.clients[client].position, self.size(client));
                    let end = at.saturating_add(READ_MAX).min(size);
                    self.ask(client, at, len, end);
                }
            }
            Step::Seek { client, to } => {
                if self.clients[client].blocked.is_none() {
                    self.clients[client].position = to.min(self.size(client).saturating_sub(1));
                }
            }
            Step::SwitchFile { client, file } => {
                if self.clients[client].blocked.is_none() {
                    self.clients[client] = Client { file, position: 0, blocked: None };
                }
            }
            Step::Kill { client } => self.kill(client),
            Step::Progress { nth, percent } => {
                if let Some(read) = self.nth_read(nth) {
                    let upto = self.progress(read, percent);
                    self.tell(Event::Progress { read, upto });
                }
            }
            Step::Done { nth, ok } => {
                if let Some(read) = self.nth_read(nth) {
                    self.end_read(read, ok);
                }
            }
            Step::Evict { file, start, len } => {
                let (start, end) = (start / PAGE * PAGE, (start + len).next_multiple_of(PAGE));
                self.cache.remove(id(file), start, end);
            }
            Step::EvictAll => self.cache = Ranges::default(),
            Step::Memory { bytes, tasks_wait } => {
                self.tell(Event::MemoryLimit(MemoryLimit { bytes: Bytes(bytes), tasks_wait }));
            }
            Step::Rest(rests) => self.tell(Event::Rest(rests)),
            Step::Writes(writes) => self.tell(Event::Writes(writes)),
            Step::Hole { file, from, len, written } => {
                let (file, upto) = (id(file), from + len);
                self.tell(Event::Opened { file });
                self.tell(match written {
                    false => Event::Hole { file, from, upto },
                    true => Event::Written { file, from, upto },
                });
            }
            Step::Leave(file) => self.tell(Event::Leave { file: id(file) }),
            Step::Resize { file, size } => {
                self.sizes[file as usize] = size;
                for client in self.clients.iter_mut().filter(|c| c.file == file && c.blocked.is_none()) {
                    client.position = client.position.min(size.saturating_sub(1));
                }
            }
            Step::Wait { ms, late } => self.wait(self.logged.now + Nanos::from_millis(ms), late),
        }
    }

    /// Every client leaves, every read ends, time passes: the engine becomes idle, and nothing is left.
    fn drain(&mut self) {
        (0..CLIENTS).for_each(|client| self.kill(client));
        let rest = self.logged.now + REST;
        // Read-ahead for a client that is gone ends with its stream.
        while let Some(at) = match self.nth_read(0) {
            Some(_) => Some(self.logged.now + READ_TAKES),
            None => self.logged.engine.next_deadline(),
        } {
            assert!(at <= rest, "awake at {at:?}, to rest by {rest:?}");
            self.wait(at, false);
            if let Some(read) = self.nth_read(0) {
                let ok = self.roll(4) > 0;
                self.end_read(read, ok);
            }
        }
        self.logged.model.check_at_rest(&self.logged.engine);
        let stats = self.logged.engine.stats();
        assert_eq!(stats.answers(), self.next_request);
        assert!(stats.bytes_wanted <= stats.requests.saturating_mul(self.logged.engine.config().read_max.0));
    }
}

const fn word(action: &Action) -> &'static str {
    match action {
        Action::Read { .. } => "read",
        Action::Drop { .. } => "drop",
        Action::Probe { .. } => "probe",
        Action::Close { .. } => "close",
        Action::Answer { .. } => "answer",
    }
}

/// The same load with common settings, long enough that every event occurs.
#[test]
fn a_long_run_under_pressure_meets_every_action_and_replays() {
    let mut runner = TestRunner::deterministic();
    let mut seen: BTreeMap<&'static str, u64> = BTreeMap::new();
    let (mut evicted, mut failed, mut late, mut gave_back, mut budgets) = (0, 0, 0, 0, BTreeSet::new());
    for longest_wait in [LongestWait::Auto, LongestWait::Off, LongestWait::Bound(Nanos::from_millis(20))] {
        let ahead = AheadConfig { files_max: 3, longest_wait, ..AheadConfig::default() };
        let memory = MemoryLimit { bytes: Bytes::mib(64), ..MemoryLimit::default() };
        let config = Config { prefetch: Bytes::kib(256), memory, ahead: Some(ahead), ..Config::default() };
        let load = proptest::collection::vec(step(), 4000);
        let mut machine = Machine::new(config, 7);
        for step in load.new_tree(&mut runner).expect("steps").current() {
            machine.step(step);
            let stats = machine.logged.engine.stats();
            gave_back += u64::from(stats.gives_back);
            budgets.insert(stats.budget);
        }
        machine.drain();
        replay(&machine.logged.log);
        machine.seen.iter().for_each(|(word, n)| *seen.entry(word).or_default() += n);
        let stats = machine.logged.engine.stats();
        evicted += stats.bytes_evicted_unused;
        failed += stats.reads_failed;
        late += stats.passed[Reason::TooLate.index()];
        // Bytes that the disk delivered are in the account exactly, except those that clients read before
        // they were reported.
        let there = stats.ledger.cached + stats.ledger.passed;
        assert!(machine.delivered <= stats.ledger.disk + there, "{} {stats:?}", machine.delivered);
    }
    let words = ["answer", "close", "drop", "probe", "read"];
    assert_eq!(seen.keys().copied().collect::<Vec<_>>(), words);
    assert!(seen.values().all(|&n| n >= 20), "{seen:?}");
    let met = [evicted, failed, late, gave_back, budgets.len() as u64];
    assert!(met.into_iter().all(|n| n >= 5), "{met:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn the_contract_holds_whatever_goes_wrong(
        config in settings(),
        steps in proptest::collection::vec(step(), 0..300),
        dice in any::<u64>(),
    ) {
        let mut machine = Machine::new(config, dice);
        for step in steps {
            machine.step(step);
        }
        machine.drain();
        replay(&machine.logged.log);
    }
}
