//! The event loop: clients, server, page cache, engines and disks on one clock.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use seekless_policy::{Access, Action, Event, FileId, Mode, Outcome, ReadId, Request, Verdict};
use seekless_units::{Nanos, SECTOR_BYTES};
use seekless_workload::catalogue::Catalogue;
use seekless_workload::closed::{ClosedReader, ClosedSpec, RangeRequest};
use seekless_workload::session::{Rate, SessionSpec, Sessions};

use super::cache::{PAGE, PageCache, PageState};
use super::client::{Client, Kind, Link};
use super::config::{Config, How, Load};
use super::disk::{Disk, Pages, Waiter};
use super::engine::{BUDGET_EVERY, Engine, Reading};
use super::readahead::{self, Bounds, OnDemand, Window};
use super::record::{Recorder, Report};
use super::server::Pool;
use seekless_policy::prefetch::linux::LinuxParams;
use seekless_policy::prefetch::{Access as BlockAccess, Algorithm, Prefetcher};

/// A shim looks this far ahead of a call that sends (its `SEND_BYTES_MAX`).
const LOOK_SEND: u64 = 2 << 20;
/// Step of a shim's own read-ahead in mode `prefetch` (its `READAHEAD_STEP_BYTES`).
const SHIM_STEP: u64 = 128 << 10;
/// Progress of a read is told every so many pages (the daemon's `REPORT_STEP`).
const REPORT_PAGES: u64 = (256 << 10) / PAGE;
/// Mean time until a report in the shims' ring is taken out: half of the daemon's 5 ms.
const RING: Nanos = Nanos::from_micros(2_500);
/// Thread number of an engine's reads.
const ENGINE_THREAD: u32 = 2_000_000;
/// A socket asks for more once a third of its buffer is free (`sk_stream_is_writeable`).
const WRITABLE: u64 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Ev {
    /// A disk may have something done; number of the look planned last.
    Look(u32, u64),
    /// A waiter wakes up.
    WakeConnection(u32),
    WakeRead(u32, u64),
    /// A thread has handed a unit over.
    Unit(u32),
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
    Budget(u32),
    /// The warm-up is over.
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
    /// Which request of this client; answers to an older one are stale.
    serial: u32,
    file: u32,
    local: usize,
    size: u64,
    /// The request is for `[start, end)`; everything before `at` is in the socket.
    start: u64,
    at: u64,
    end: u64,
    call_start: u64,
    call_end: u64,
    call_began: Nanos,
    turn_start: u64,
    /// Next page the call looks at.
    page: u64,
    unit_end: u64,
    ra: OnDemand,
    link: Link,
    dead: bool,
}

struct Machine<'a> {
    config: &'a Config,
    catalogue: &'a Catalogue,
    now: Nanos,
    heap: BinaryHeap<Reverse<(Nanos, u64, Ev)>>,
    planned: u64,
    events: u64,
    cache: PageCache,
    old_kernel: Prefetcher,
    no_cache: seekless_policy::cache::Cache,
    disks: Vec<Disk>,
    looks: Vec<u64>,
    engines: Vec<Engine>,
    reports: Vec<Vec<(u32, u64, u64)>>,
    ticks: Vec<Nanos>,
    pools: Vec<Pool>,
    clients: Vec<Client<'a>>,
    connections: Vec<Connection>,
    free: Vec<u32>,
    sessions: Vec<Sessions<'a>>,
    live: u64,
    network_free: Nanos,
    bounds: Bounds,
    record: Recorder,
    cache_before: super::cache::Counts,
}

/// Simulates one run.
///
/// # Errors
/// The library does not fit the disk.
pub fn run(config: &Config, catalogue: &Catalogue) -> Result<Report, String> {
    let closed: Vec<ClosedSpec> = match &config.load {
        Load::Closed { spec, .. } => (0..config.disks.len())
            .map(|i| ClosedSpec { seed: spec.seed + i as u64, ..spec.clone() })
            .collect(),
        Load::Sessions { .. } => Vec::new(),
    };
    let session_specs: Vec<SessionSpec> = match &config.load {
        Load::Sessions { per_s, sessions, classes, warm_start, seed, .. } => (0..config.disks.len())
            .map(|i| SessionSpec {
                rate: Rate::Constant { per_s: *per_s },
                sessions: *sessions,
                warm_start: *warm_start,
                classes: classes.clone(),
                seed: seed + i as u64,
            })
            .collect(),
        Load::Closed { .. } => Vec::new(),
    };
    let mut machine = Machine::new(config, catalogue)?;
    machine.begin(&closed, &session_specs);
    machine.go();
    Ok(machine.report())
}

impl<'a> Machine<'a> {
    fn new(config: &'a Config, catalogue: &'a Catalogue) -> Result<Machine<'a>, String> {
        let sizes = || catalogue.videos().iter().map(|v| v.size.0);
        let all = config.disks.iter().flat_map(|_| sizes());
        let kernel = &config.kernel;
        let disks =
            config.disks.iter().map(|d| Disk::new(d, kernel, sizes())).collect::<Result<Vec<_>, String>>()?;
        let engines: Vec<Engine> = match &config.engine {
            Some(e) => (0..if e.single_queue { 1 } else { disks.len() }).map(|_| Engine::new(e)).collect(),
            None => Vec::new(),
        };
        let params =
            LinuxParams { group_max: (kernel.read_ahead.0 / PAGE).max(1) as u32, ..LinuxParams::default() };
        Ok(Machine {
            config,
            catalogue,
            now: Nanos::ZERO,
            heap: BinaryHeap::new(),
            planned: 0,
            events: 0,
            cache: PageCache::new(kernel.replacement, config.memory.0, all),
            old_kernel: Prefetcher::new(Algorithm::Linux(params)),
            no_cache: seekless_policy::cache::Cache::new(seekless_policy::cache::Replacement::Lru, 1)
                .map_err(|e| e.to_string())?,
            looks: vec![0; disks.len()],
            reports: vec![Vec::new(); engines.len()],
            ticks: vec![Nanos::MAX; engines.len()],
            disks,
            engines,
            pools: (0..config.server.pools.max(1)).map(|i| Pool::new(i, config.server.threads)).collect(),
            clients: Vec::new(),
            connections: Vec::new(),
            free: Vec::new(),
            sessions: Vec::new(),
            live: 0,
            network_free: Nanos::ZERO,
            bounds: Bounds {
                read_ahead: kernel.read_ahead.0 / PAGE,
                request: (kernel.max_request.0 / PAGE).max(1),
            },
            record: Recorder::new(config.warmup),
            cache_before: super::cache::Counts::default(),
        })
    }

    fn plan(&mut self, at: Nanos, what: Ev) {
        self.planned += 1;
        self.heap.push(Reverse((at.max(self.now), self.planned, what)));
    }

    fn begin(&mut self, closed: &[ClosedSpec], sessions: &'a [SessionSpec]) {
        self.plan(self.config.warmup, Ev::Zero);
        for e in 0..self.engines.len() as u32 {
            self.plan(BUDGET_EVERY, Ev::Budget(e));
        }
        if let Load::Closed { clients, .. } = &self.config.load {
            for (disk, spec) in closed.iter().enumerate() {
                for number in 0..*clients {
                    let reader = Box::new(ClosedReader::new(self.catalogue, spec, number));
                    let c = self.admit(Kind::Closed(reader), disk as u32, Nanos::ZERO, None);
                    self.next_request(c, Nanos::ZERO);
                }
            }
        }
        for (disk, spec) in sessions.iter().enumerate() {
            self.sessions.push(Sessions::new(self.catalogue, spec));
            self.next_session(disk as u32);
        }
    }

    fn go(&mut self) {
        while let Some(Reverse((at, _, event))) = self.heap.pop() {
            if at > self.config.length {
                break;
            }
            self.now = at;
            self.events += 1;
            self.handle(event);
        }
        self.now = self.config.length;
    }

    fn report(mut self) -> Report {
        let now = self.now;
        let disks = self.disks.iter_mut().map(|d| d.stats(now)).collect();
        let engines = self.engines.iter().map(|e| e.spindle.stats()).collect();
        let (c, b) = (self.cache.counts(), self.cache_before);
        let cache = super::cache::Counts {
            inserted: c.inserted - b.inserted,
            hits: c.hits - b.hits,
            misses: c.misses - b.misses,
            evicted_used: c.evicted_used - b.evicted_used,
            evicted_unused: c.evicted_unused - b.evicted_unused,
            dropped: c.dropped - b.dropped,
        };
        let sessions = matches!(self.config.load, Load::Sessions { .. });
        Report::of(&self.record, self.config.length, disks, engines, cache, self.events, sessions)
    }

    fn handle(&mut self, event: Ev) {
        match event {
            Ev::Look(disk, number) if self.looks[disk as usize] == number => self.look(disk),
            Ev::Look(..) => {}
            Ev::WakeConnection(c) => self.read(c),
            Ev::WakeRead(e, id) => self.read_on(e, ReadId(id)),
            Ev::Unit(c) => self.handed_over(c),
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
            Ev::Budget(e) => {
                let (limit, engines) = (self.config.memory.0, self.engines.len());
                let budget = self.engines[e as usize].budget(limit, engines);
                self.tell(e, Event::Budget(seekless_units::Bytes(budget)));
                self.plan(self.now + BUDGET_EVERY, Ev::Budget(e));
            }
            Ev::Zero => {
                for disk in &mut self.disks {
                    disk.reset(self.now);
                }
                self.cache_before = self.cache.counts();
            }
        }
    }

    // ---- clients

    fn admit(&mut self, kind: Kind<'a>, disk: u32, delay: Nanos, link: Option<u64>) -> u32 {
        let client = Client { kind, disk, due: Nanos::ZERO, delay };
        let connection = Connection {
            phase: Phase::Idle,
            pool: 0,
            thread: 0,
            serial: 0,
            file: 0,
            local: 0,
            size: 0,
            start: 0,
            at: 0,
            end: 0,
            call_start: 0,
            call_end: 0,
            call_began: Nanos::ZERO,
            turn_start: 0,
            page: 0,
            unit_end: 0,
            ra: OnDemand::default(),
            link: Link::new(link),
            dead: false,
        };
        let c = match self.free.pop() {
            Some(c) => {
                // A name used before: answers to its former holder stay stale.
                let serial = self.connections[c as usize].serial;
                self.clients[c as usize] = client;
                self.connections[c as usize] = Connection { serial, ..connection };
                c
            }
            None => {
                self.clients.push(client);
                self.connections.push(connection);
                (self.clients.len() - 1) as u32
            }
        };
        self.connections[c as usize].pool = c % self.pools.len() as u32;
        self.live += 1;
        self.record.sessions.at_once_max = self.record.sessions.at_once_max.max(self.live);
        c
    }

    fn next_session(&mut self, disk: u32) {
        let Load::Sessions { classes, .. } = &self.config.load else { return };
        let Some(session) = self.sessions[disk as usize].next() else { return };
        if session.start > self.config.length {
            return;
        }
        let class = &classes[session.class as usize];
        let kind = Kind::Session { session, next: session.first, measured: false };
        // Known from now on, though it asks for nothing before its start.
        let c = self.admit(kind, disk, class.delay, class.link_bits_per_s);
        self.live -= 1;
        self.connections[c as usize].dead = false;
        self.clients[c as usize].due = session.start;
        self.plan(session.start, Ev::Session(disk));
        self.plan(session.start, Ev::Due(c));
    }

    /// A session begins: count it and plan the next.
    fn session(&mut self, disk: u32) {
        self.record.sessions.started += 1;
        self.live += 1;
        self.record.sessions.at_once_max = self.record.sessions.at_once_max.max(self.live);
        self.next_session(disk);
    }

    /// Plans what a client asks for next; `done`: when it had the last.
    fn next_request(&mut self, c: u32, done: Nanos) {
        match self.clients[c as usize].kind {
            Kind::Closed(_) => {
                self.clients[c as usize].due = done;
                self.plan(done, Ev::Due(c));
            }
            Kind::Session { session, next, .. } => {
                if next >= session.end {
                    self.record.sessions.completed += 1;
                    self.retire(c);
                    return;
                }
                let due = match session.due(next) {
                    seekless_workload::session::Due::At(at) => at,
                    seekless_workload::session::Due::AfterPrevious => done,
                };
                self.clients[c as usize].due = due;
                // A segment that is due while the one before still comes waits for it.
                self.plan(due.max(done), Ev::Due(c));
            }
        }
    }

    fn due(&mut self, c: u32) {
        let catalogue = self.catalogue;
        let client = &mut self.clients[c as usize];
        let due = client.due;
        let Some((_, range)) = client.next(catalogue, due) else { return };
        if let Kind::Session { measured, .. } = &mut client.kind
            && !*measured
            && self.record.measures(due)
        {
            *measured = true;
            self.record.sessions.measured += 1;
        }
        self.record.offered += u64::from(self.record.measures(due));
        let (disk, delay) = (client.disk, client.delay);
        self.aim(c, disk, range);
        let serial = self.connections[c as usize].serial;
        if let Load::Sessions { timeout, .. } = self.config.load {
            self.plan(due + timeout, Ev::Timeout(c, serial));
        }
        self.plan(self.now + delay, Ev::Arrived(c, serial));
    }

    /// The connection's next request. The server opens the file for it: the kernel's read-ahead knows nothing yet.
    fn aim(&mut self, c: u32, disk: u32, range: RangeRequest) {
        let files = self.catalogue.videos().len() as u32;
        let size = self.catalogue.video(range.video).size.0;
        let k = &mut self.connections[c as usize];
        k.serial = k.serial.wrapping_add(1);
        k.file = disk * files + range.video;
        k.local = range.video as usize;
        k.size = size;
        k.start = range.offset;
        k.at = range.offset;
        k.end = range.offset + range.len;
        k.turn_start = range.offset;
        k.ra = OnDemand::default();
    }

    fn complete(&mut self, c: u32, serial: u32) {
        if self.connections[c as usize].serial != serial || self.connections[c as usize].dead {
            return;
        }
        // Whatever is planned for this request from now on is stale.
        self.connections[c as usize].serial = serial.wrapping_add(1);
        self.record.answered(self.clients[c as usize].due, self.now);
        self.next_request(c, self.now);
    }

    fn timeout(&mut self, c: u32, serial: u32) {
        if self.connections[c as usize].serial != serial || self.connections[c as usize].dead {
            return;
        }
        let measured = matches!(self.clients[c as usize].kind, Kind::Session { measured: true, .. });
        self.record.sessions.failed += 1;
        self.record.sessions.failed_measured += u64::from(measured);
        self.record.failures += u64::from(measured);
        self.retire(c);
    }

    /// A client goes away. Its place is free once no thread and no queue knows it.
    fn retire(&mut self, c: u32) {
        self.live -= 1;
        let k = &mut self.connections[c as usize];
        k.dead = true;
        k.serial = k.serial.wrapping_add(1);
        if k.phase == Phase::Idle {
            self.free.push(c);
        }
    }

    // ---- server

    fn arrived(&mut self, c: u32, serial: u32) {
        let k = &mut self.connections[c as usize];
        if k.dead || k.serial != serial {
            return;
        }
        k.phase = Phase::Queued;
        let pool = k.pool;
        self.pools[pool as usize].ready(c);
        self.dispatch(pool);
    }

    fn writable(&mut self, c: u32) {
        let k = &mut self.connections[c as usize];
        if k.phase != Phase::Full {
            return;
        }
        k.phase = Phase::Queued;
        let pool = k.pool;
        self.pools[pool as usize].ready(c);
        self.dispatch(pool);
    }

    fn dispatch(&mut self, pool: u32) {
        while let Some((c, thread)) = self.pools[pool as usize].next() {
            let k = &mut self.connections[c as usize];
            k.phase = Phase::Running;
            k.thread = thread;
            k.turn_start = k.at;
            self.call(c);
        }
    }

    /// Gives the thread back.
    fn leave(&mut self, c: u32, phase: Phase) {
        let k = &mut self.connections[c as usize];
        k.phase = phase;
        let (pool, thread) = (k.pool, k.thread);
        if k.dead && phase == Phase::Idle {
            self.free.push(c);
        }
        self.pools[pool as usize].release(thread);
        self.dispatch(pool);
    }

    /// A call begins.
    fn call(&mut self, c: u32) {
        let server = &self.config.server;
        let k = &mut self.connections[c as usize];
        if k.dead {
            return self.leave(c, Phase::Idle);
        }
        k.call_start = k.at;
        k.call_end = k.end.min(k.at.saturating_add(server.call));
        k.call_began = self.now;
        k.page = k.at / PAGE;
        k.unit_end = k.at;
        let Some(engine) = self.config.engine.as_ref().filter(|e| e.acts() && server.how != How::Map) else {
            return self.read(c);
        };
        let look = match server.how {
            How::Send => k.call_end.min(k.at + LOOK_SEND),
            _ => k.call_end,
        };
        let (file, at, size, local, thread) = (k.file, k.at, k.size, k.local, k.thread);
        let upto = look.div_ceil(PAGE);
        if self.cache.first_absent(file, at / PAGE, upto) == upto {
            return self.read(c);
        }
        if engine.spindle.mode == Mode::Prefetch {
            let end = at + (look - at).max(engine.spindle.prefetch.0).min(size - at);
            let mut from = at;
            while from < end {
                let to = (from + SHIM_STEP).min(end);
                self.bring(c, file, local, from / PAGE, to.div_ceil(PAGE), thread);
                from = to;
            }
            return self.read(c);
        }
        self.plan(self.now + self.config.costs.wake, Ev::Ask(c));
    }

    /// Reads on from the connection's page to the end of a unit; blocks, or hands the unit over.
    fn read(&mut self, c: u32) {
        let k = &mut self.connections[c as usize];
        if k.dead {
            return self.leave(c, Phase::Idle);
        }
        if k.unit_end == k.at {
            // A new unit.
            let mut end = k.call_end.min(k.at + self.config.server.unit);
            if k.link.ns_per_byte > 0.0 {
                let room = self.config.socket.0.saturating_sub(k.link.held(self.now));
                if room < PAGE.min(k.end - k.at) {
                    return self.socket_full(c);
                }
                end = end.min(k.at + room);
            }
            k.unit_end = end;
            k.page = k.at / PAGE;
            let (file, from, to) = (k.file, k.page, end.div_ceil(PAGE));
            let there = self.cache.present_pages(file, from, to);
            self.cache.looked_up(there, to - from - there);
        }
        if !self.pages_ready(c) {
            return;
        }
        let k = &mut self.connections[c as usize];
        let (from, to) = (k.at / PAGE, k.unit_end.div_ceil(PAGE));
        k.ra.read_upto(to - 1);
        let bytes = k.unit_end - k.at;
        let first = k.at == k.call_start;
        k.link.take(self.now, bytes);
        k.at = k.unit_end;
        let file = k.file;
        self.cache.touch(file, from, to);
        let costs = &self.config.costs;
        let copy = Nanos(costs.copy_ns_per_kib * bytes / 1024);
        let took = copy + if first { costs.call } else { Nanos::ZERO };
        self.record.handed_over(self.now, bytes);
        self.plan(self.now + took, Ev::Unit(c));
    }

    /// Looks through the unit's pages, starting reads as the kernel does. `false`: the thread waits for one.
    fn pages_ready(&mut self, c: u32) -> bool {
        let k = &self.connections[c as usize];
        let (file, local, thread, disk) = (k.file, k.local, k.thread, self.clients[c as usize].disk);
        let last = k.unit_end.div_ceil(PAGE);
        let whole = k.size.div_ceil(PAGE);
        let map = self.config.server.how == How::Map;
        let old = self.config.kernel.algorithm == readahead::Kind::Linux26;
        if old && k.page == k.at / PAGE {
            self.old_readahead(c, last);
        }
        loop {
            let page = self.connections[c as usize].page;
            let stop = self.cache.first_not_ready(file, page, last);
            if let Some(marked) = self.cache.first_marked(file, page, (stop + 1).min(last)) {
                self.cache.set_mark(file, marked, false);
                self.connections[c as usize].page = marked;
                let asked = if map { self.bounds.read_ahead } else { last - marked };
                let mut ra = self.connections[c as usize].ra;
                let window = ra.reached(&self.cache, file, marked, asked, self.bounds);
                self.connections[c as usize].ra = ra;
                if let Some(window) = window {
                    self.bring_window(c, file, local, window, whole, thread, true);
                }
                continue;
            }
            self.connections[c as usize].page = stop;
            if stop == last {
                return true;
            }
            if self.cache.state(file, stop) == PageState::Coming {
                let waits = self.disks[disk as usize].wait(file, stop, Waiter::Connection(c));
                debug_assert!(waits, "a page on its way is brought by some request");
                return false;
            }
            if !old {
                let mut ra = self.connections[c as usize].ra;
                let window = if map {
                    ra.faulted(stop, self.bounds)
                } else {
                    ra.missing(&self.cache, file, stop, last - stop, self.bounds)
                };
                self.connections[c as usize].ra = ra;
                self.bring_window(c, file, local, window, whole, thread, false);
            }
            if self.cache.state(file, stop) == PageState::Absent {
                self.bring(c, file, local, stop, if old { last } else { stop + 1 }, thread);
            }
        }
    }

    /// Read-ahead of Linux 2.6.0 to 2.6.22: told of each unit, once.
    fn old_readahead(&mut self, c: u32, last: u64) {
        let k = &self.connections[c as usize];
        let (file, local, thread, whole) = (k.file, k.local, k.thread, k.size.div_ceil(PAGE));
        let access = BlockAccess::new(file, k.page, last - 1);
        let plan = self.old_kernel.access(&access, &self.no_cache);
        if let Some(run) = plan.run {
            self.bring(c, file, local, run.first.min(whole), (run.last + 1).min(whole), thread);
        }
    }

    fn bring_window(
        &mut self,
        c: u32,
        file: u32,
        local: usize,
        window: Window,
        whole: u64,
        thread: u32,
        later: bool,
    ) {
        let to = (window.start + window.pages).min(whole);
        let mark = window.mark.filter(|&m| m < to && self.cache.state(file, m) == PageState::Absent);
        let disk = self.clients[c as usize].disk;
        // The first window of a stream comes page by page, later ones in folios of ever larger order.
        self.submit(disk, file, local, window.start.min(to), to, (thread, later));
        if let Some(mark) = mark {
            self.cache.set_mark(file, mark, true);
        }
    }

    /// Asks the disk for what is absent of `[from, to)`.
    fn bring(&mut self, c: u32, file: u32, local: usize, from: u64, to: u64, thread: u32) {
        let disk = self.clients[c as usize].disk;
        self.submit(disk, file, local, from, to, (thread, false));
    }

    fn submit(&mut self, disk: u32, file: u32, local: usize, from: u64, to: u64, by: (u32, bool)) {
        let mut at = from;
        let mut any = false;
        loop {
            let start = self.cache.first_absent(file, at, to);
            if start >= to {
                break;
            }
            let end = self.cache.first_present(file, start, to);
            self.cache.insert(file, start, end);
            let pages = Pages { file, from: start, to: end };
            let (thread, large) = by;
            self.disks[disk as usize].submit(self.now, local, pages, thread, large);
            any = true;
            at = end;
        }
        if any {
            self.pump(disk);
        }
    }

    /// A unit is handed over: on to the next, the next call, the next client, or done.
    fn handed_over(&mut self, c: u32) {
        let k = &self.connections[c as usize];
        if k.dead {
            return self.leave(c, Phase::Idle);
        }
        let (done, call_over) = (k.at == k.end, k.at == k.call_end);
        let turn_over = k.at - k.turn_start >= self.config.server.turn;
        if !call_over {
            return self.read(c);
        }
        self.call_ends(c);
        if done {
            self.sent(c);
            self.leave(c, Phase::Idle);
        } else if turn_over {
            let pool = self.connections[c as usize].pool;
            self.pools[pool as usize].ready(c);
            self.leave(c, Phase::Queued);
        } else {
            self.call(c);
        }
    }

    fn socket_full(&mut self, c: u32) {
        let socket = self.config.socket.0;
        let k = &self.connections[c as usize];
        let at = k.link.down_to(socket - socket / WRITABLE);
        let moved = k.at > k.call_start;
        if moved {
            self.call_ends(c);
        }
        self.plan(at.max(self.now + Nanos(1)), Ev::Writable(c));
        self.leave(c, Phase::Full);
    }

    /// A call returns: its time is counted, and the shim reports it.
    fn call_ends(&mut self, c: u32) {
        let k = &self.connections[c as usize];
        self.record.call(k.call_began, self.now);
        let (file, offset, len) = (k.file, k.call_start, k.at - k.call_start);
        let Some(engine) = &self.config.engine else { return };
        let reports = engine.acts() && engine.spindle.mode.serialises() && self.config.server.how != How::Map;
        if !reports || len == 0 || engine.spindle.ahead.is_none() {
            return;
        }
        let e = self.engine_of(self.clients[c as usize].disk);
        if self.reports[e as usize].is_empty() {
            self.plan(self.now + RING, Ev::Ring(e));
        }
        self.reports[e as usize].push((file, offset, len));
    }

    /// The last byte has gone into the socket.
    fn sent(&mut self, c: u32) {
        let costs = &self.config.costs;
        let k = &self.connections[c as usize];
        let bytes = k.end - k.start;
        self.network_free = self.network_free.max(self.now) + Nanos(costs.network_ns_per_kib * bytes / 1024);
        let left = self.network_free.max(k.link.free_at.max(self.now)) + costs.network;
        let (serial, delay) = (k.serial, self.clients[c as usize].delay);
        self.plan(left + delay, Ev::Complete(c, serial));
    }

    // ---- disks

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
            for p in &request.pages {
                self.cache.ready(p.file, p.from, p.to);
            }
            let at = self.now + self.config.costs.wake;
            for waiter in request.waiters {
                self.plan(
                    at,
                    match waiter {
                        Waiter::Connection(c) => Ev::WakeConnection(c),
                        Waiter::Read(e, id) => Ev::WakeRead(e, id),
                    },
                );
            }
        }
        self.pump(disk);
    }

    // ---- engines

    fn engine_of(&self, disk: u32) -> u32 {
        if self.engines.len() == 1 { 0 } else { disk }
    }

    fn place(&self, file: u32) -> (u32, usize) {
        let files = self.catalogue.videos().len() as u32;
        (file / files, (file % files) as usize)
    }

    fn file_id(&self, file: u32) -> FileId {
        FileId { dev: u64::from(self.place(file).0), ino: u64::from(file) }
    }

    /// A shim's question arrives: what is there already, and what is not goes to the spindle.
    fn ask(&mut self, c: u32) {
        let k = &self.connections[c as usize];
        if k.dead {
            return self.leave(c, Phase::Idle);
        }
        let Some(engine) = &self.config.engine else { return };
        let config = &engine.spindle;
        let (file, local, at, size) = (k.file, k.local, k.at, k.size);
        let send = self.config.server.how == How::Send;
        let look = if send { (k.call_end - at).min(LOOK_SEND) } else { k.call_end - at };
        let wanted = if config.mode.prefetches() && send {
            look.min(config.prefetch.0)
        } else {
            look.min(config.read_max.0)
        };
        let reach = wanted.max(config.prefetch.0).min(size - at);
        let upto = (at + reach).div_ceil(PAGE);
        let absent = self.cache.first_absent(file, at / PAGE, upto);
        let resident = if absent == upto { reach } else { (absent * PAGE).max(at) - at };
        if resident >= wanted {
            return self.plan(self.now + self.config.costs.wake, Ev::Answer(c));
        }
        let e = self.engine_of(self.clients[c as usize].disk);
        let (now, id) = (self.now, self.engines[e as usize].request_id(c));
        self.engines[e as usize].keep(now, file);
        let disk = self.clients[c as usize].disk as usize;
        let request = Request {
            id,
            file: self.file_id(file),
            offset: at + resident,
            len: wanted - resident,
            file_size: size,
            lba: Some(self.disks[disk].lba(local, at + resident)),
        };
        self.tell(e, Event::Request(request));
    }

    fn ring(&mut self, e: u32) {
        for (file, offset, len) in std::mem::take(&mut self.reports[e as usize]) {
            if !self.engines[e as usize].heard(self.now, file) {
                continue;
            }
            let (disk, local) = self.place(file);
            let access = Access {
                file: self.file_id(file),
                offset,
                len,
                file_size: self.catalogue.video(local as u32).size.0,
                lba: Some(self.disks[disk as usize].lba(local, offset)),
            };
            self.engines[e as usize].spindle.handle(self.now, Event::Access(access));
        }
        self.act(e);
    }

    fn tell(&mut self, e: u32, event: Event) {
        self.engines[e as usize].spindle.handle(self.now, event);
        self.act(e);
    }

    fn act(&mut self, e: u32) {
        while let Some(action) = self.engines[e as usize].spindle.poll_action() {
            match action {
                Action::Answer { request, verdict } => {
                    let waiting = self.engines[e as usize].pending.remove(&request);
                    debug_assert!(!matches!(verdict, Verdict::Pass(seekless_policy::Reason::Duplicate)));
                    if let Some(c) = waiting {
                        self.plan(self.now + self.config.costs.wake, Ev::Answer(c));
                    }
                }
                Action::Drop { file, offset, len } => {
                    self.cache.drop_range(file.ino as u32, offset / PAGE, (offset + len) / PAGE);
                }
                Action::Read { id, file, offset, len, .. } => {
                    let (start, end) = (offset / PAGE, (offset + len).div_ceil(PAGE));
                    let reading = Reading {
                        file: file.ino as u32,
                        start,
                        end,
                        at: start,
                        reported: start,
                        submitted: start,
                        second_try: false,
                    };
                    self.engines[e as usize].reads.insert(id, reading);
                    self.plan(self.now + self.config.costs.wake, Ev::Read(e, id.0));
                }
            }
        }
        let deadline = self.engines[e as usize].spindle.next_deadline();
        if let Some(at) = deadline.filter(|&at| at < self.ticks[e as usize]) {
            self.ticks[e as usize] = at;
            self.engines[e as usize].tick += 1;
            let number = self.engines[e as usize].tick;
            self.plan(at, Ev::Tick(e, number));
        }
    }

    fn read_begins(&mut self, e: u32, id: ReadId) {
        self.submit_reading(e, id);
        self.read_on(e, id);
    }

    /// Submits what may be with the disk now.
    fn submit_reading(&mut self, e: u32, id: ReadId) {
        let window =
            self.config.engine.as_ref().and_then(|c| c.window).map_or(u64::MAX, |w| (w.0 / PAGE).max(1));
        let Some(&r) = self.engines[e as usize].reads.get(&id) else { return };
        let (disk, local) = self.place(r.file);
        let whole = self.catalogue.video(local as u32).size.0.div_ceil(PAGE);
        let upto = r.end.min(whole).min(r.at.saturating_add(window));
        let from = r.submitted.max(r.at);
        if from < upto {
            self.engines[e as usize].reads.insert(id, Reading { submitted: upto, ..r });
            self.submit(disk, r.file, local, from, upto, (ENGINE_THREAD + e, false));
        }
    }

    /// How far a read has come; waits for the first page that is not there.
    fn read_on(&mut self, e: u32, id: ReadId) {
        while let Some(&r) = self.engines[e as usize].reads.get(&id) {
            let at = self.cache.first_not_ready(r.file, r.at, r.end);
            let told = r.start + (at - r.start) / REPORT_PAGES * REPORT_PAGES;
            self.engines[e as usize].reads.insert(id, Reading { at, reported: told.max(r.reported), ..r });
            if at == r.end {
                self.engines[e as usize].reads.remove(&id);
                return self.tell(e, Event::Done { read: id, outcome: Outcome::Ok });
            }
            if told > r.reported {
                self.tell(e, Event::Progress { read: id, upto: told * PAGE });
            }
            self.submit_reading(e, id);
            let Some(&reading) = self.engines[e as usize].reads.get(&id) else { return };
            match self.cache.state(r.file, at) {
                PageState::Coming => {
                    let disk = self.place(r.file).0;
                    let waits = self.disks[disk as usize].wait(r.file, at, Waiter::Read(e, id.0));
                    debug_assert!(waits, "a page on its way is brought by some request");
                    return;
                }
                PageState::Absent if !r.second_try => {
                    let again = Reading { second_try: true, submitted: at, ..reading };
                    self.engines[e as usize].reads.insert(id, again);
                }
                // Evicted faster than it comes: given up, as the daemon counts its lost pages.
                PageState::Absent => {
                    self.engines[e as usize].reads.insert(id, Reading { at: at + 1, ..reading });
                }
                PageState::Ready => {}
            }
        }
    }
}

const _: () = assert!(PAGE == seekless_policy::PAGE && PAGE.is_multiple_of(SECTOR_BYTES));
