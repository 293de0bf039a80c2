//! The event loop: clients, server, page cache, engines and disks on one clock. Each side is a file.

mod clients;
mod cluster;
mod engines;
mod events;
mod file_sets;
mod node;
mod server;
mod writer;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use seekless_base::{Bytes, Nanos, SECTOR_BYTES};
use seekless_model::workload::catalogue::Catalogue;
use seekless_model::workload::closed::{ClosedReader, ClosedSpec};
use seekless_model::workload::handler::{Items, Requests, Step};
use seekless_model::workload::session::{Rate, Session, SessionSpec, Sessions};
use seekless_policy::pool::Pool as Shared;
use seekless_policy::{Event, MemoryLimit, ReadId, RequestId, Stats};

use super::cache::{PAGE, PageCache};
use super::client::{Batches, Client, Kind, Link, Program};
use super::config::{Config, Load, Rise, SecondProgram};
use super::disk::{Disk, Waiter};
use super::engine::{Engine, REPORT_EVERY};
use super::readahead::{OnDemand, OpenFile, TwoWindows};
use super::record::{Known, Recorder, Report, Uses};
use super::server::Pool;
use events::EventQueue;
use file_sets::SetReader;
use node::{NodeState, PAST};
use writer::{Writer, Writing};

#[derive(Clone, Copy, Debug)]
enum Ev {
    /// A disk may have something done; number of the look planned last.
    Look(u32, u64),
    /// A waiter wakes up.
    WakeConnection(u32),
    WakeRead(u32, u64),
    /// A thread has handed a unit over.
    Unit(u32),
    /// A handler has thought.
    Thought(u32),
    /// A socket has room again.
    Writable(u32),
    /// A client's request is due.
    Due(u32),
    /// It reaches the server.
    Arrived(u32, u32),
    /// Its last byte reaches the client.
    Complete(u32, u32),
    /// It has taken too long.
    Timeout(u32, u32),
    /// The next session of a disk begins.
    Session(u32),
    /// A shim's question reaches the daemon, and the answer the shim.
    Ask(u32),
    Answer(u32),
    /// A worker of an engine takes a read up.
    Read(u32, u64),
    /// Reports are taken out of the ring.
    Ring(u32),
    Tick(u32, u64),
    /// A step of a disk's file set has ended: its request, and whether its bytes were read.
    StepEnded(u32, u64, bool),
    /// The reader of a disk's file set has taken a range.
    TookRange(u32, u32),
    /// The machine's memory is reported.
    Memory(u32),
    /// A download has taken a block.
    Took(u32, u64),
    /// A read past the page cache has made progress.
    Past(u64),
    /// A writer calls `write`.
    Write(u32),
    /// The flusher of a disk checks for old pages.
    Flusher(u32),
    /// The engine's driver checks what waits to be written to a disk.
    SeeWrites(u32),
    /// The warm-up has ended.
    Zero,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Nothing to send.
    Idle,
    /// In its pool's queue.
    Queued,
    /// Has a thread.
    Running,
    /// The socket is full.
    Full,
}

/// A client's connection, and the thread that serves it.
struct Connection {
    phase: Phase,
    pool: u32,
    thread: u32,
    /// Number of the request of this client; answers to an older one are ignored.
    serial: u32,
    file: u32,
    local: usize,
    size: u64,
    /// The ranges of the request after the current one.
    steps: std::vec::IntoIter<Step>,
    /// The current range ends at `end`; everything before `at` is in the socket, or was given to the handler.
    at: u64,
    end: u64,
    /// Bytes of the answer.
    answer: u64,
    /// Bytes that the request reads, and the disk time for them if all were known beforehand.
    known: Known,
    /// Whether its first byte is the first of a file.
    at_head: bool,
    call_start: u64,
    call_end: u64,
    /// The shim looks at the bytes before this; the call under way may be a part of the host's.
    look_end: u64,
    /// While the shim divides a call of the host's: the serial number of the request, where the next part
    /// begins, and where the host's call ends.
    host_call: Option<(u32, u64, u64)>,
    call_began: Nanos,
    turn_start: u64,
    /// The current call hands over no byte behind this.
    reach: u64,
    /// Next page that the call checks.
    page: u64,
    unit_end: u64,
    /// End of the current call, while the shim reads a longer range first.
    pread: Option<u64>,
    /// Open files of the request, and which of them is read now.
    files: Vec<OpenFile>,
    open: usize,
    link: Link,
    dead: bool,
}

impl Connection {
    fn ra(&mut self) -> &mut OnDemand {
        &mut self.files[self.open].on_demand
    }

    fn two_windows(&mut self) -> &mut TwoWindows {
        &mut self.files[self.open].two_windows
    }
}

struct Machine<'a> {
    config: &'a Config,
    catalogue: &'a Catalogue,
    now: Nanos,
    planned: EventQueue<Ev>,
    events: u64,
    cache: PageCache,
    disks: Vec<Disk>,
    looks: Vec<u64>,
    engines: Vec<Engine>,
    reports: Vec<Vec<(u32, u64, u64)>>,
    /// Reads of the kernel's own that the page cache has reported since, by engine: file and bytes. Only if
    /// no call waits at the door.
    misses: Vec<Vec<(u32, Range<u64>)>>,
    ticks: Vec<Nanos>,
    /// The memory that the engines share.
    memory: Shared<u32>,
    pools: Vec<Pool>,
    /// Until when the shim of a process leaves an engine's disk alone.
    left_alone: BTreeMap<(u32, u32), Nanos>,
    clients: Vec<Client<'a>>,
    connections: Vec<Connection>,
    free: Vec<u32>,
    sessions: Vec<Sessions<'a>>,
    live: u64,
    /// Programs that have not read all of theirs.
    working: u64,
    network_free: Nanos,
    node: Option<NodeState>,
    /// One a disk, where something reads beside the load.
    file_sets: Vec<SetReader>,
    /// Programs that write beside the load, and what those of each disk share.
    writers: Vec<Writer>,
    writing: Vec<Writing>,
    record: Recorder,
    cache_before: super::cache::Counts,
    /// Uses of blocks before the measurement.
    uses_before: usize,
    /// Failed sessions that end the run.
    failed_enough: u64,
}

/// Simulates one run.
///
/// # Errors
/// The library does not fit the disk.
pub fn run(config: &Config, catalogue: &Catalogue) -> Result<Report, String> {
    run_while(config, catalogue, None)
}

/// Simulates one run of sessions until `max_failed` of all that it would see, or one where that is 0, have
/// failed.
///
/// # Errors
/// Those of [`run`].
pub(super) fn run_while_good(
    config: &Config,
    catalogue: &Catalogue,
    max_failed: f64,
) -> Result<Report, String> {
    run_while(config, catalogue, Some(max_failed))
}

fn run_while(config: &Config, catalogue: &Catalogue, max_failed: Option<f64>) -> Result<Report, String> {
    let closed: Vec<ClosedSpec> = match &config.load {
        Load::Closed { spec, .. } => (0..config.disks.len())
            .map(|i| ClosedSpec { seed: spec.seed + i as u64, ..spec.clone() })
            .collect(),
        Load::Node(plan) => return cluster::run(config, plan, catalogue),
        Load::Handlers { .. } | Load::Sessions { .. } | Load::Tree(_) | Load::Diff(_) => Vec::new(),
    };
    let session_specs: Vec<SessionSpec> = match &config.load {
        Load::Sessions { per_s, rise, sessions, classes, warm_start, seed, .. } => (0..config.disks.len())
            .map(|i| SessionSpec {
                rate: match *rise {
                    None => Rate::Constant { per_s: *per_s },
                    Some(Rise { from, over }) => Rate::Steps { per_s: *per_s, from, step: Rise::STEP, over },
                },
                sessions: *sessions,
                warm_start: *warm_start,
                classes: classes.clone(),
                seed: seed + i as u64,
            })
            .collect(),
        Load::Closed { .. } | Load::Handlers { .. } | Load::Node(_) | Load::Tree(_) | Load::Diff(_) => {
            Vec::new()
        }
    };
    let mut machine = Machine::new(config, catalogue)?;
    machine.sessions = session_specs.iter().map(|s| Sessions::new(catalogue, s)).collect();
    if let Some(share) = max_failed {
        let within = |s: &Session| s.start <= config.length;
        let sessions = machine.sessions.iter().filter(|_| share > 0.0);
        let sessions: usize = sessions.map(|s| s.clone().take_while(within).count()).sum();
        machine.failed_enough = ((share * sessions as f64).ceil() as u64).max(1);
    }
    machine.begin(&closed);
    machine.go();
    Ok(machine.report())
}

impl<'a> Machine<'a> {
    fn new(config: &'a Config, catalogue: &'a Catalogue) -> Result<Machine<'a>, String> {
        let sizes = || catalogue.videos().iter().map(|v| v.size.0);
        // The files of a disk's writers come behind the library's.
        let written = || config.writer.map_or_else(Vec::new, |w| w.files());
        let of_writers = config.disks.iter().flat_map(|_| written());
        let all = config.disks.iter().flat_map(|_| sizes()).chain(of_writers);
        let kernel = &config.kernel;
        let disks = config.disks.iter().map(|d| Disk::new(d, kernel, sizes().chain(written()), &config.load));
        let disks = disks.collect::<Result<Vec<_>, String>>()?;
        let engines: Vec<Engine> = match &config.engine {
            Some(e) => {
                let engines = if e.single_queue { 1 } else { disks.len() };
                let bytes = Bytes(config.memory.0 / engines as u64);
                let memory = MemoryLimit { bytes, tasks_wait: false };
                (0..engines).map(|_| Engine::new(e.policy.clone(), memory)).collect()
            }
            None => Vec::new(),
        };
        Ok(Machine {
            config,
            catalogue,
            now: Nanos::ZERO,
            planned: EventQueue::new(),
            events: 0,
            cache: PageCache::new(kernel.replacement, config.memory.0, all),
            looks: vec![0; disks.len()],
            reports: vec![Vec::new(); engines.len()],
            misses: vec![Vec::new(); engines.len()],
            ticks: vec![Nanos::MAX; engines.len()],
            memory: Shared::default(),
            disks,
            engines,
            left_alone: BTreeMap::new(),
            pools: (0..config.server.pools.max(1)).map(|i| Pool::new(i, config.server.threads)).collect(),
            clients: Vec::new(),
            connections: Vec::new(),
            free: Vec::new(),
            sessions: Vec::new(),
            live: 0,
            working: 0,
            network_free: Nanos::ZERO,
            node: match &config.load {
                Load::Node(plan) => Some(NodeState::new(plan)),
                _ => None,
            },
            file_sets: Vec::new(),
            writers: Vec::new(),
            writing: Vec::new(),
            record: Recorder::new(config.warmup),
            cache_before: super::cache::Counts::default(),
            uses_before: 0,
            failed_enough: u64::MAX,
        })
    }

    fn plan(&mut self, at: Nanos, what: Ev) {
        self.planned.plan(at.max(self.now), what);
    }

    fn begin(&mut self, closed: &[ClosedSpec]) {
        self.plan(self.config.warmup, Ev::Zero);
        for e in 0..self.engines.len() as u32 {
            self.plan(self.now + REPORT_EVERY, Ev::Memory(e));
        }
        if let Load::Closed { clients, other_disks, link, .. } = &self.config.load {
            for (disk, spec) in (0..).zip(closed) {
                self.begin_closed(disk, other_disks.clients(disk, *clients), spec, *link);
            }
        }
        if let Load::Handlers { clients, handler, seed } = self.config.load {
            let items = Items::new(self.catalogue, handler);
            for disk in 0..self.disks.len() as u32 {
                for number in 0..clients {
                    let seed = seed + u64::from(disk);
                    let requests = Requests::new(self.catalogue, handler, items.clone(), seed, number);
                    let c = self.admit(Kind::Handler(Box::new(requests)), disk, Nanos::ZERO, None);
                    self.next_request(c, Nanos::ZERO);
                }
            }
        }
        for disk in 0..self.sessions.len() as u32 {
            self.next_session(disk);
        }
        if let Load::Diff(diff) = &self.config.load {
            for pair in 0..diff.pairs {
                let comparison = diff.forest.comparison(pair);
                self.begin_program(Kind::Diff(comparison), Nanos::ZERO);
            }
        }
        self.begin_file_sets();
        self.begin_writers();
        if let Load::Tree(tree) = &self.config.load {
            let mut left = tree.folders.taken(tree.taking, |file| self.disks[0].lba(file as usize, 0).0);
            left.reverse();
            let batches = |left| Rc::new(RefCell::new(Batches { left, batch: tree.batch.max(1) as usize }));
            if let Some(SecondProgram { after, work }) = tree.second {
                let program = Program { list: batches(left.clone()), batch: Vec::new(), work };
                self.begin_program(Kind::Tree(program), after);
            }
            let list = batches(left);
            for _ in 0..tree.programs {
                let program = Program { list: Rc::clone(&list), batch: Vec::new(), work: tree.work };
                self.begin_program(Kind::Tree(program), Nanos::ZERO);
            }
            let (clients, spec) = &tree.clients;
            self.begin_closed(0, *clients, spec, None);
        }
    }

    /// A program starts that ends when it has read all of its files.
    fn begin_program(&mut self, kind: Kind<'a>, at: Nanos) {
        let c = self.admit(kind, 0, Nanos::ZERO, None);
        self.working += 1;
        self.next_request(c, at);
    }

    /// The clients of a closed loop begin.
    fn begin_closed(&mut self, disk: u32, clients: u32, spec: &ClosedSpec, link: Option<u64>) {
        for number in 0..clients {
            let reader = Rc::new(RefCell::new(ClosedReader::new(self.catalogue, spec, number)));
            for _ in 0..spec.connections.max(1) {
                let c = self.admit(Kind::Closed(Rc::clone(&reader)), disk, Nanos::ZERO, link);
                self.next_request(c, Nanos::ZERO);
            }
        }
    }

    /// Whether a file of the catalogue is the file system's own, which no library call reads.
    fn is_metadata(&self, local: usize) -> bool {
        matches!(&self.config.load, Load::Diff(diff) if local >= diff.forest.metadata() as usize)
    }

    /// Whether the load is so many files and then over.
    fn ends(&self) -> bool {
        matches!(self.config.load, Load::Tree(_) | Load::Diff(_))
    }

    fn go(&mut self) {
        while self.next_at().is_some_and(|at| at <= self.config.length) {
            self.step();
            let all_read = self.working == 0 && self.ends();
            if all_read || self.record.sessions.failed >= self.failed_enough || self.all_over() {
                return;
            }
        }
        self.now = self.config.length;
    }

    /// Whether the load was so many sessions and the last of them is over: so is the run.
    fn all_over(&self) -> bool {
        let Load::Sessions { sessions, .. } = self.config.load else { return false };
        let all = u64::from(sessions) * self.sessions.len() as u64;
        sessions < u32::MAX && self.live == 0 && self.record.sessions.started >= all
    }

    /// When the next event is due.
    fn next_at(&self) -> Option<Nanos> {
        self.planned.next_at()
    }

    fn step(&mut self) {
        let Some((at, event)) = self.planned.pop() else { return };
        self.now = at;
        self.events += 1;
        self.handle(event);
    }

    fn report(mut self) -> Report {
        let now = self.now;
        let disks: Vec<super::DiskStats> = self.disks.iter_mut().map(|d| d.stats(now)).collect();
        let writer = self.writer_report(disks.iter().map(|d| d.write_ns).sum());
        let since = |e: &Engine| {
            let stats = e.policy.stats();
            Stats { ledger: stats.ledger - e.totals_before, ..stats }
        };
        let file_set = self.file_set_report();
        let engines = self.engines.iter().map(since).collect();
        let (c, b) = (self.cache.counts(), self.cache_before);
        let cache = super::cache::Counts {
            inserted: c.inserted - b.inserted,
            hits: c.hits - b.hits,
            misses: c.misses - b.misses,
            evicted_used: c.evicted_used - b.evicted_used,
            evicted_unused: c.evicted_unused - b.evicted_unused,
            refetched: c.refetched - b.refetched,
            dropped: c.dropped - b.dropped,
            dropped_unused: c.dropped_unused - b.dropped_unused,
        };
        let sessions = matches!(self.config.load, Load::Sessions { .. });
        let report = Report::of(&self.record, now, disks, engines, cache, self.events, sessions);
        let uses = self
            .writers
            .is_empty()
            .then(|| Uses::of(&mut self.cache, self.uses_before, self.record.bytes, &report.cache));
        Report { file_set, writer, uses, ..report }
    }

    fn handle(&mut self, event: Ev) {
        match event {
            Ev::Look(disk, number) if self.looks[disk as usize] == number => self.look(disk),
            Ev::Look(..) => {}
            Ev::WakeConnection(c) => self.read(c),
            Ev::WakeRead(e, id) => self.read_on(e, ReadId(id)),
            Ev::Unit(c) => self.handed_over(c),
            Ev::Thought(c) => self.go_on(c),
            Ev::Writable(c) => self.writable(c),
            Ev::Due(c) => self.due(c),
            Ev::Arrived(c, serial) => self.arrived(c, serial),
            Ev::Complete(c, serial) => self.complete(c, serial),
            Ev::Timeout(c, serial) => self.timeout(c, serial),
            Ev::Session(disk) => self.session(disk),
            Ev::Ask(c) => self.ask(c),
            Ev::Answer(c) => self.read(c),
            Ev::Read(e, id) => self.read_begins(e, ReadId(id)),
            Ev::Ring(e) => self.ring(e),
            Ev::Tick(e, number) => {
                if self.engines[e as usize].tick == number {
                    self.ticks[e as usize] = Nanos::MAX;
                    self.tell(e, Event::Tick);
                }
            }
            Ev::StepEnded(disk, request, came) => self.step_ended(disk, RequestId(request), came),
            Ev::TookRange(disk, range) => self.took_range(disk, range),
            Ev::Memory(e) => {
                let memory = self.memory_of(e);
                self.tell(e, Event::MemoryLimit(memory));
                if e == 0 {
                    self.record.see_size(|| self.engines[0].policy.stats().size.size);
                }
                self.file_sets_have_room(e);
                self.plan(self.now + REPORT_EVERY, Ev::Memory(e));
            }
            Ev::Took(number, block) => self.took(number, block),
            Ev::Write(number) => self.write(number),
            Ev::Flusher(disk) => self.flusher(disk),
            Ev::SeeWrites(disk) => self.see_writes(disk),
            Ev::Past(id) => self.past_on(ReadId(id)),
            Ev::Zero => {
                for disk in &mut self.disks {
                    disk.reset(self.now);
                }
                self.cache_before = self.cache.counts();
                self.uses_before = self.cache.uses().len();
                for engine in &mut self.engines {
                    let stats = engine.policy.stats();
                    engine.totals_before = stats.ledger;
                    engine.times_before = (stats.disk_time, stats.file_sets.disk_time);
                }
            }
        }
    }

    fn pump(&mut self, disk: u32) {
        let now = self.now;
        self.looks[disk as usize] += 1;
        if let Some(at) = self.disks[disk as usize].pump(now) {
            let number = self.looks[disk as usize];
            self.plan(at, Ev::Look(disk, number));
        }
    }

    fn look(&mut self, disk: u32) {
        while let Some(request) = self.disks[disk as usize].collect(self.now) {
            if let Some(node) = &mut self.node {
                node.read(request.bytes());
            }
            for p in request.pages.iter().filter(|p| p.file < PAST && request.reads()) {
                self.cache.ready(p.file, p.from, p.to);
            }
            let (at, bytes) = (self.now + self.config.costs.wake, request.bytes());
            for waiter in request.waiters {
                let event = match waiter {
                    Waiter::Connection(c) => Ev::WakeConnection(c),
                    Waiter::Read(e, id) => Ev::WakeRead(e, id),
                    Waiter::Past(id) => Ev::Past(id),
                    Waiter::Writer(number, what) => {
                        self.written(number, what, bytes);
                        continue;
                    }
                };
                self.plan(at, event);
            }
        }
        self.pump(disk);
    }
}

const _: () = assert!(PAGE.is_multiple_of(SECTOR_BYTES));
