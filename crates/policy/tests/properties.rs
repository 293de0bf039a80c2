//! What must hold for any sequence of events: nothing lost, nothing answered twice, every bound kept.

mod common;

use std::collections::BTreeSet;

use common::strategies::{amount, config, demand, taken, writes};
use common::{Flight, Logged, replay};
use proptest::prelude::*;
use seekless_base::{Bytes, Lba, Nanos};
use seekless_policy::{
    Access, Action, Config, Demand, DiskEngine, Event, FileId, IoPriority, KernelRead, MemoryLimit, Outcome,
    PAGE, ReadId, Request, RequestId, Taken, Writes,
};

/// One step of a test. Numbers are reduced to what exists at that moment.
#[derive(Clone, Debug)]
enum Step {
    Request { file: u64, offset: u64, len: u64, file_size: u64, lba: Option<u64>, demand: Demand },
    Access { file: u64, offset: u64, len: u64, file_size: u64, taken: Taken },
    Opened { file: u64 },
    Memory { bytes: u64, tasks_wait: bool },
    Missing { file: u64, offset: u64, len: u64 },
    ByKernel { file: u64, offset: u64, len: u64, file_size: u64, lba: Option<u64>, io: IoPriority },
    Hole { file: u64, from: u64, upto: u64, written: bool },
    Leave { file: u64 },
    Writes(Writes),
    Bitrate { file: u64, bytes_per_s: u64 },
    RequestAgain { nth: usize },
    Cancel { nth: usize },
    Took { nth: usize, read: bool },
    Progress { nth: usize, share: u64 },
    ProgressAbsurd { nth: usize, upto: u64 },
    Done { nth: usize, ok: bool },
    Found { nth: usize, share: u64 },
    FoundAbsurd { nth: usize, from: u64, upto: u64 },
    DoneUnknown,
    Wait { ms: u64 },
    Poll { times: usize },
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
        2 => (0..3u64).prop_map(|file| Step::Opened { file }),
        1 => (amount(), any::<bool>())
            .prop_map(|(bytes, tasks_wait)| Step::Memory { bytes, tasks_wait }),
        1 => (0..3u64, 0..(60 * PAGE), 0..(60 * PAGE))
            .prop_map(|(file, offset, len)| Step::Missing { file, offset, len }),
        2 => ((0..3u64, amount(), amount(), amount()), proptest::option::of(0..1_000_000u64), demand())
            .prop_map(|((file, offset, len, file_size), lba, Demand { io, .. })| {
                Step::ByKernel { file, offset, len, file_size, lba, io }
            }),
        2 => (0..3u64, amount(), amount(), any::<bool>())
            .prop_map(|(file, from, upto, written)| Step::Hole { file, from, upto, written }),
        1 => (0..3u64).prop_map(|file| Step::Leave { file }),
        2 => writes().prop_map(Step::Writes),
        1 => (0..3u64, amount()).prop_map(|(file, bytes_per_s)| Step::Bitrate { file, bytes_per_s }),
        1 => any::<usize>().prop_map(|nth| Step::RequestAgain { nth }),
        2 => any::<usize>().prop_map(|nth| Step::Cancel { nth }),
        3 => (any::<usize>(), any::<bool>()).prop_map(|(nth, read)| Step::Took { nth, read }),
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

/// An engine whose driver sends senseless events.
struct Bench {
    logged: Logged,
    asked: Vec<Request>,
    /// Maximum of bytes that may have been in memory before a read brought them.
    found: u64,
}

impl Bench {
    fn new(config: Config) -> Bench {
        Bench { logged: Logged::new(config), asked: Vec::new(), found: 0 }
    }

    fn handle(&mut self, event: Event) {
        self.logged.handle(event);
    }

    fn nth_flight(&self, nth: usize) -> Option<(ReadId, Flight)> {
        let flights = &self.logged.model.flights;
        flights.iter().nth(nth % flights.len().max(1)).map(|(id, f)| (*id, *f))
    }

    fn finish(&mut self, read: ReadId, ok: bool) {
        let outcome = if ok { Outcome::Ok } else { Outcome::Failed };
        self.handle(Event::Done { read, outcome });
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Request { file, offset, len, file_size, lba, demand } => {
                let id = RequestId(self.asked.len() as u64);
                let file = FileId { dev: 1, ino: file };
                // Any of the bytes before may be in memory; a `from` behind `offset` is senseless.
                let from = offset.saturating_sub(file_size % (3 * PAGE)).saturating_add(len % (3 * PAGE));
                let request = Request { id, file, from, offset, len, file_size, lba: lba.map(Lba), demand };
                self.asked.push(request);
                self.handle(Event::Request(request));
            }
            Step::Access { file, offset, len, file_size, taken } => {
                let file = FileId { dev: 1, ino: file };
                self.handle(Event::Access(Access { file, offset, len, file_size, lba: None, taken }));
            }
            Step::Opened { file } => self.handle(Event::Opened { file: FileId { dev: 1, ino: file } }),
            Step::Memory { bytes, tasks_wait } => {
                self.handle(Event::MemoryLimit(MemoryLimit { bytes: Bytes(bytes), tasks_wait }));
            }
            Step::Missing { file, offset, len } => {
                self.handle(Event::Missing { file: FileId { dev: 1, ino: file }, offset, len });
            }
            Step::ByKernel { file, offset, len, file_size, lba, io } => {
                let (file, lba) = (FileId { dev: 1, ino: file }, lba.map(Lba));
                let read = KernelRead { file, offset, len, file_size, lba, io };
                self.handle(Event::ReadByKernel(read));
            }
            Step::Hole { file, from, upto, written } => {
                let file = FileId { dev: 1, ino: file };
                self.handle(match written {
                    false => Event::Hole { file, from, upto },
                    true => Event::Written { file, from, upto },
                });
            }
            Step::Writes(writes) => self.handle(Event::Writes(writes)),
            Step::Leave { file } => self.handle(Event::Leave { file: FileId { dev: 1, ino: file } }),
            Step::Bitrate { file, bytes_per_s } => {
                self.handle(Event::Bitrate { file: FileId { dev: 1, ino: file }, bytes_per_s });
            }
            Step::RequestAgain { nth } => {
                // Only an unanswered request, so that the id is in use.
                let blocked: Vec<Request> = self.logged.model.blocked().copied().collect();
                if let Some(&request) = blocked.get(nth % blocked.len().max(1))
                    && self.logged.engine.stats().waiting == blocked.len()
                {
                    self.handle(Event::Request(request));
                }
            }
            Step::Took { nth, read } => {
                let request = RequestId((nth % (self.asked.len() + 1)) as u64);
                self.handle(Event::Took { request, read });
            }
            Step::Cancel { nth } => {
                let id = RequestId((nth % (self.asked.len() + 1)) as u64);
                self.handle(Event::Cancel(id));
            }
            Step::Progress { nth, share } => {
                if let Some((read, flight)) = self.nth_flight(nth) {
                    let upto = flight.start + (flight.end - flight.start) / 100 * share;
                    self.handle(Event::Progress { read, upto });
                }
            }
            Step::ProgressAbsurd { nth, upto } => {
                if let Some((read, _)) = self.nth_flight(nth) {
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
                    let at = |share| flight.start + (flight.end - flight.start) / 100 * share;
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
                self.logged.now += Nanos::from_millis(ms);
                self.handle(Event::Tick);
            }
            Step::Poll { times } => {
                for _ in 0..times {
                    self.logged.poll();
                }
            }
        }
    }

    fn poll_all(&mut self) {
        while self.logged.poll().is_some() {}
    }

    /// Ends every read and checks that nothing is left.
    fn drain(&mut self) {
        loop {
            self.poll_all();
            if let Some((read, _)) = self.nth_flight(0) {
                self.finish(read, true);
                continue;
            }
            // It may be the writers' turn.
            let queued = self.logged.engine.load().0 > 0;
            let Some(at) = self.logged.engine.next_deadline().filter(|_| queued) else { break };
            self.logged.now = at;
            self.handle(Event::Tick);
        }
        // Streams end by silence, and the bytes they leave are given back several times; then nothing keeps
        // the engine awake.
        self.logged.now += Nanos::from_secs(100);
        let rest = self.logged.now + Nanos::from_secs(11);
        self.handle(Event::Tick);
        self.poll_all();
        while let Some(at) = self.logged.engine.next_deadline() {
            assert!(at < rest, "awake at {at:?}, to rest from {rest:?}");
            self.logged.now = at;
            self.handle(Event::Tick);
            self.poll_all();
        }
        let Logged { engine, model, .. } = &self.logged;
        model.check_at_rest(engine);
        let (stats, arrived) = (engine.stats(), model.arrived);
        // More than was reported only if a client read bytes that a read had not reported yet. Less only by
        // bytes that were in memory before, as was reported or as a client that read them first showed.
        let read_first = stats.ledger.cached.saturating_add(stats.ledger.first_use);
        let there = self.found.saturating_add(read_first);
        assert!(arrived <= stats.ledger.disk.saturating_add(there), "{arrived} {stats:?}");
    }
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
        replay(&bench.logged.log);
    }

    /// A batch is what was queued when it began; it is served in one sweep from the head's position.
    #[test]
    fn each_sweep_serves_what_was_queued_when_it_began(
        lbas in proptest::collection::vec(0..1_000_000u64, 1..80),
        served_between in proptest::collection::vec(0..4usize, 80),
    ) {
        let mut engine = DiskEngine::new(Config { reads_in_flight: 1, ..Config::default() });
        let mut batch = BTreeSet::<(u64, u64)>::new();
        let mut later = batch.clone();
        let mut head = (0, 0);
        let mut served = 0;
        let mut serve = |engine: &mut DiskEngine, later: &mut BTreeSet<(u64, u64)>| {
            while let Some(action) = engine.poll_action() {
                let Action::Read { id, file, lba, .. } = action else { continue };
                if batch.is_empty() {
                    batch = core::mem::take(later);
                }
                let next = *batch.range(head..).next().or(batch.first()).unwrap();
                assert_eq!((lba.unwrap().0, file.ino), next, "the head was at {head:?}");
                batch.remove(&next);
                head = next;
                engine.handle(Nanos(1), Event::Done { read: id, outcome: Outcome::Ok });
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
            later.insert((lba, ino));
            engine.handle(Nanos::ZERO, Event::Request(request));
            for _ in 0..n {
                serve(&mut engine, &mut later);
            }
        }
        while serve(&mut engine, &mut later) {}
        prop_assert_eq!(served, lbas.len());
    }
}
