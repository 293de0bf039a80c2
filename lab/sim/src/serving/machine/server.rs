//! The server's side of the loop: threads, calls, the shim's look at them, the kernel's read-ahead, sockets.

use seekless_base::Nanos;
use seekless_base::wants::{SERVE_LOOK_MAX, Want, pages as pages_of, passes};
use seekless_model::workload::handler::Step;
use seekless_policy::Mode;

use super::{Ev, Machine, Phase};
use crate::serving::cache::{PAGE, PageState};
use crate::serving::config::{Door, How};
use crate::serving::disk::{Pages, Waiter};
use crate::serving::readahead::{self, Bounds, Growth, Window};

/// Mean time until a report in the shims' ring is taken out: half of the daemon's 5 ms.
const RING: Nanos = Nanos::from_micros(2_500);
/// What ext4 reads of an inode table with an inode that is missing: the 32 blocks around it
/// (`inode_readahead_blks`), all asked for at once.
const INODES_AHEAD: u64 = 32 * PAGE;
/// A socket asks for more once a third of its buffer is free (`sk_stream_is_writeable`).
const WRITABLE: u64 = 3;
/// On FreeBSD, after a `sendfile` that found it full, half of it (`sendfile` sets the low-water mark).
const WRITABLE_FREEBSD: u64 = 2;

impl Machine<'_> {
    pub(super) fn arrived(&mut self, c: u32, serial: u32) {
        let k = &mut self.connections[c as usize];
        if k.dead || k.serial != serial {
            return;
        }
        k.phase = Phase::Queued;
        let pool = k.pool;
        self.pools[pool as usize].ready(c);
        self.dispatch(pool);
    }

    pub(super) fn writable(&mut self, c: u32) {
        let k = &mut self.connections[c as usize];
        if k.phase != Phase::Full {
            return;
        }
        k.phase = Phase::Queued;
        let pool = k.pool;
        self.pools[pool as usize].ready(c);
        self.dispatch(pool);
    }

    pub(super) fn dispatch(&mut self, pool: u32) {
        while let Some((c, thread)) = self.pools[pool as usize].next() {
            let k = &mut self.connections[c as usize];
            k.phase = Phase::Running;
            k.thread = thread;
            k.turn_start = k.at;
            self.go_on(c);
        }
    }

    /// With a thread in hand: on with the range, the next step, or the end of the request.
    pub(super) fn go_on(&mut self, c: u32) {
        let k = &mut self.connections[c as usize];
        if k.at < k.end || k.dead {
            return self.call(c);
        }
        match k.steps.next() {
            Some(Step::Read { open, range }) => {
                self.aim(c, open, range);
                self.call(c);
            }
            Some(Step::Think(time)) => self.plan(self.now + time, Ev::Thought(c)),
            None => {
                self.sent(c);
                self.leave(c, Phase::Idle);
            }
        }
    }

    /// Gives the thread back.
    pub(super) fn leave(&mut self, c: u32, phase: Phase) {
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
    pub(super) fn call(&mut self, c: u32) {
        let server = &self.config.server;
        let k = &mut self.connections[c as usize];
        if k.dead {
            return self.leave(c, Phase::Idle);
        }
        k.call_start = k.at;
        k.call_end = k.end.min(k.at.saturating_add(server.call));
        if server.within_socket && k.link.ns_per_byte > 0.0 {
            let room = self.config.socket.0.saturating_sub(k.link.held(self.now));
            if room < PAGE.min(k.end - k.at) {
                return self.socket_full(c);
            }
            k.call_end = k.call_end.min(k.at + room);
        }
        k.call_began = self.now;
        k.page = k.at / PAGE;
        k.unit_end = k.at;
        k.pread = None;
        let (local, at, last) = (k.local, k.at, k.size.div_ceil(PAGE));
        if self.is_metadata(local) {
            let from = at / INODES_AHEAD * INODES_AHEAD / PAGE;
            self.bring(c, from, last.min(from + INODES_AHEAD / PAGE));
            return self.read(c);
        }
        let Some(engine) = self.config.engine.as_ref().filter(|e| e.blocks(server.how)) else {
            return self.read(c);
        };
        if self.is_left_alone(c) {
            return self.read(c);
        }
        let k = &mut self.connections[c as usize];
        k.look_end = k.call_end;
        if engine.divides(server.how) {
            let continued = k.host_call.filter(|&(serial, next, _)| (serial, next) == (k.serial, k.at));
            let host_end = continued.map_or(k.call_end, |(.., end)| end);
            k.call_end = host_end.min(k.at + SERVE_LOOK_MAX);
            k.look_end = if continued.is_some() { k.call_end } else { host_end };
            k.host_call = Some((k.serial, k.call_end, host_end)).filter(|_| k.call_end < host_end);
        }
        let file = k.file;
        let Some(want) = self.looked_at(c) else { return self.read(c) };
        let pages = want.pages();
        if self.cache.first_absent(file, pages.start, pages.end) == pages.end {
            return match engine.door {
                // To the watcher and back.
                Door::Watch => self.plan(self.now + Nanos(2 * self.config.costs.wake.0), Ev::Answer(c)),
                Door::Shim | Door::Observe => self.read(c),
            };
        }
        if engine.policy.mode == Mode::Prefetch {
            if engine.preads {
                let end = want.enlarged(engine.policy.prefetch.0).end();
                let k = &mut self.connections[c as usize];
                k.pread = Some(k.call_end);
                (k.call_end, k.unit_end, k.reach) = (end, end, end);
                return self.read(c);
            }
            for part in passes(want.enlarged(engine.policy.prefetch.0)) {
                let pages = pages_of(part.start, part.end);
                // The kernel cuts the call.
                let bounds = self.bounds(c, pages.start);
                let cut = pages.start + bounds.read_ahead.max(bounds.request);
                self.bring(c, pages.start, pages.end.min(cut));
            }
            return self.read(c);
        }
        self.plan(self.now + self.config.costs.wake, Ev::Ask(c));
    }

    /// The process of a connection: its own where each has a thread of its own.
    pub(super) fn process_of(&self, c: u32) -> u32 {
        match self.config.server.threads {
            Some(_) => self.connections[c as usize].pool,
            None => c,
        }
    }

    /// Whether the shim in a connection's process neither asks nor reports for now.
    fn is_left_alone(&self, c: u32) -> bool {
        let e = self.engine_of(self.clients[c as usize].disk);
        self.left_alone.get(&(self.process_of(c), e)).is_some_and(|&until| self.now < until)
    }

    /// What a shim looks at of the call under way.
    pub(super) fn looked_at(&self, c: u32) -> Option<Want> {
        let k = &self.connections[c as usize];
        Some(Want::of(k.at, k.look_end - k.at, k.size)?.looked_at(self.config.server.how.kind()))
    }

    /// Reads on from the connection's page to the end of a unit; blocks, or hands the unit over.
    pub(super) fn read(&mut self, c: u32) {
        let k = &mut self.connections[c as usize];
        if k.dead {
            return self.leave(c, Phase::Idle);
        }
        if k.unit_end == k.at {
            // A new unit.
            let mut end = k.call_end.min(k.at + self.config.server.unit);
            k.reach = k.call_end;
            if k.link.ns_per_byte > 0.0 {
                let room = self.config.socket.0.saturating_sub(k.link.held(self.now));
                if room < PAGE.min(k.end - k.at) {
                    return self.socket_full(c);
                }
                end = end.min(k.at + room);
                k.reach = k.reach.min(k.at + room);
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
        if let Some(call_end) = k.pread.take() {
            // What the shim read is in memory: the call itself.
            (k.call_end, k.unit_end) = (call_end, k.at);
            return self.read(c);
        }
        let (from, to) = (k.at / PAGE, k.unit_end.div_ceil(PAGE));
        let end = k.unit_end;
        k.ra().read_upto(end);
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
        if self.config.engine.as_ref().is_some_and(|engine| engine.door == Door::Observe) {
            // The page cache tells of pages as they are taken, a call or a map.
            self.reported(c, end - bytes, bytes);
        }
        self.plan(self.now + took, Ev::Unit(c));
    }

    /// Looks through the unit's pages, starting reads as the kernel does. `false`: the thread waits for one.
    pub(super) fn pages_ready(&mut self, c: u32) -> bool {
        let k = &self.connections[c as usize];
        let (file, disk) = (k.file, self.clients[c as usize].disk);
        let last = k.unit_end.div_ceil(PAGE);
        let (map, random) = (self.config.server.how == How::Map, self.config.server.random);
        let early = self.config.kernel.algorithm == readahead::Kind::OnDemand3;
        if let Some(growth) = self.config.kernel.algorithm.growth() {
            return self.pages_ready_then(c, growth);
        }
        if self.config.kernel.algorithm == readahead::Kind::Cluster {
            return self.pages_ready_clustered(c);
        }
        loop {
            let page = self.connections[c as usize].page;
            let stop = self.cache.first_not_ready(file, page, last);
            if let Some(marked) = self.cache.first_marked(file, page, (stop + 1).min(last)) {
                let mark = self.cache.take_mark(file, marked);
                self.connections[c as usize].page = marked;
                let bounds = self.bounds(c, marked);
                let asked = match map {
                    true => bounds.read_ahead,
                    // The whole of what `sendfile` has still to send.
                    false if early => self.connections[c as usize].call_end.div_ceil(PAGE) - marked,
                    false => last.saturating_sub(mark.start),
                };
                let ra = self.connections[c as usize].ra();
                let window = match early {
                    true => ra.reached_then(&self.cache, file, marked, asked, bounds),
                    false => ra.reached(&self.cache, file, mark, asked, bounds),
                };
                if let Some(window) = window {
                    self.bring_window(c, window, true);
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
            let bounds = self.bounds(c, stop);
            let call = self.connections[c as usize].call_end.div_ceil(PAGE);
            let ra = self.connections[c as usize].ra();
            let window = if random {
                Window { start: stop, pages: if map { 1 } else { last - stop }, mark: None }
            } else if map {
                ra.faulted(stop, bounds)
            } else if early {
                ra.missing_then(&self.cache, file, stop, call - stop, bounds)
            } else {
                ra.missing(&self.cache, file, stop, last - stop, bounds)
            };
            self.bring_window(c, window, false);
            if self.cache.state(file, stop) == PageState::Absent {
                self.reported_missing(c, stop, stop + 1);
                self.bring(c, stop, stop + 1);
            }
        }
    }

    /// The same on FreeBSD: a transaction at a time.
    fn pages_ready_clustered(&mut self, c: u32) -> bool {
        let disk = self.clients[c as usize].disk;
        let k = &self.connections[c as usize];
        let (file, last, reach) = (k.file, k.unit_end.div_ceil(PAGE), k.reach.div_ceil(PAGE));
        let stop = self.cache.first_not_ready(file, k.page, last);
        self.connections[c as usize].page = stop;
        if stop == last {
            return true;
        }
        if self.cache.state(file, stop) == PageState::Absent {
            let cluster = self.config.kernel.max_command.0 / PAGE;
            let window = readahead::clustered(&self.cache, file, stop, reach, cluster);
            self.bring_window(c, window, false);
        }
        let waits = self.disks[disk as usize].wait(file, stop, Waiter::Connection(c));
        debug_assert!(waits, "a page on its way is brought by some request");
        false
    }

    /// The same with the read-ahead of the first 2.6 kernels, which hears of each page before it is looked
    /// at.
    fn pages_ready_then(&mut self, c: u32, growth: Growth) -> bool {
        let disk = self.clients[c as usize].disk;
        let k = &self.connections[c as usize];
        let (file, from, last) = (k.file, k.page, k.unit_end.div_ceil(PAGE));
        for page in from..last {
            self.connections[c as usize].page = page;
            let most = self.bounds(c, page).read_ahead;
            let window = self.connections[c as usize].two_windows().reads(page, most, growth);
            if let Some(window) = window {
                self.bring_window(c, window, false);
            }
            if self.cache.state(file, page) == PageState::Absent {
                self.connections[c as usize].two_windows().missed();
                self.bring(c, page, page + 1);
            }
            if self.cache.state(file, page) == PageState::Coming {
                let waits = self.disks[disk as usize].wait(file, page, Waiter::Connection(c));
                debug_assert!(waits, "a page on its way is brought by some request");
                return false;
            }
        }
        true
    }

    /// The bounds of the kernel's read-ahead at a page of the connection's file.
    fn bounds(&self, c: u32, page: u64) -> Bounds {
        let k = &self.connections[c as usize];
        let depth =
            self.disks[self.clients[c as usize].disk as usize].competitive_depth(k.local, page * PAGE);
        Bounds {
            read_ahead: depth.unwrap_or(self.config.kernel.read_ahead).0 / PAGE,
            request: (self.config.kernel.max_request.0 / PAGE).max(1),
        }
    }

    pub(super) fn bring_window(&mut self, c: u32, window: Window, later: bool) {
        let k = &self.connections[c as usize];
        let (file, local, thread, whole) = (k.file, k.local, k.thread, k.size.div_ceil(PAGE));
        let to = (window.start + window.pages).min(whole);
        let mark =
            window.mark.filter(|m| m.start < to && self.cache.state(file, m.start) == PageState::Absent);
        let disk = self.clients[c as usize].disk;
        // The first window of a stream comes page by page, later ones in folios of ever larger order (not in
        // 3.x).
        let large = later && self.config.kernel.algorithm == readahead::Kind::OnDemand;
        self.reported_missing(c, self.cache.first_absent(file, window.start.min(to), to), to);
        self.submit(disk, file, local, window.start.min(to), to, (thread, large));
        if let Some(mark) = mark {
            self.cache.mark(file, mark);
        }
    }

    /// Asks the disk for what is absent of `[from, to)`.
    pub(super) fn bring(&mut self, c: u32, from: u64, to: u64) {
        let k = &self.connections[c as usize];
        let (file, local, thread) = (k.file, k.local, k.thread);
        let disk = self.clients[c as usize].disk;
        self.submit(disk, file, local, from, to, (thread, false));
    }

    pub(super) fn submit(&mut self, disk: u32, file: u32, local: usize, from: u64, to: u64, by: (u32, bool)) {
        let mut at = from;
        let mut any = false;
        loop {
            let start = self.cache.first_absent(file, at, to);
            if start >= to {
                break;
            }
            let end = self.cache.first_present(file, start, to);
            let (thread, large) = by;
            self.cache.insert(file, start, end, large);
            let pages = Pages { file, from: start, to: end };
            self.disks[disk as usize].submit(self.now, local, pages, thread, large);
            any = true;
            at = end;
        }
        if any {
            self.pump(disk);
        }
    }

    /// A unit is handed over: on to the next, the next call, the next client, or done.
    pub(super) fn handed_over(&mut self, c: u32) {
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
        if !done && turn_over {
            let pool = self.connections[c as usize].pool;
            self.pools[pool as usize].ready(c);
            self.leave(c, Phase::Queued);
        } else {
            self.go_on(c);
        }
    }

    pub(super) fn socket_full(&mut self, c: u32) {
        let socket = self.config.socket.0;
        let k = &self.connections[c as usize];
        let freebsd = self.config.kernel.algorithm == readahead::Kind::Cluster;
        let part = if freebsd { WRITABLE_FREEBSD } else { WRITABLE };
        let at = k.link.down_to(socket - socket / part);
        let moved = k.at > k.call_start;
        if moved {
            self.call_ends(c);
        }
        self.plan(at.max(self.now + Nanos(1)), Ev::Writable(c));
        self.leave(c, Phase::Full);
    }

    /// A call returns: its time is counted, and the shim reports it.
    pub(super) fn call_ends(&mut self, c: u32) {
        let k = &self.connections[c as usize];
        self.record.call(k.call_began, self.now);
        let (local, offset, len) = (k.local, k.call_start, k.at - k.call_start);
        let hears = self.config.engine.as_ref().is_some_and(|engine| engine.blocks(self.config.server.how));
        if hears && !self.is_metadata(local) && !self.is_left_alone(c) {
            self.reported(c, offset, len);
        }
    }

    /// The engine is to hear of a read.
    fn reported(&mut self, c: u32, offset: u64, len: u64) {
        let Some(engine) = self.config.engine.as_ref().filter(|e| e.acts()) else { return };
        if !engine.policy.mode.serialises() || len == 0 || !engine.policy.hears_hits() {
            return;
        }
        let file = self.connections[c as usize].file;
        let e = self.engine_of(self.clients[c as usize].disk);
        if self.reports[e as usize].is_empty() && self.misses[e as usize].is_empty() {
            self.plan(self.now + RING, Ev::Ring(e));
        }
        self.reports[e as usize].push((file, offset, len));
    }

    /// The kernel reads these pages, because one is missing or ahead of the reader. The page cache tells of
    /// it.
    fn reported_missing(&mut self, c: u32, from: u64, to: u64) {
        let observes = self.config.engine.as_ref().is_some_and(|e| e.acts() && e.door == Door::Observe);
        if !observes || from >= to {
            return;
        }
        let (file, disk) = (self.connections[c as usize].file, self.clients[c as usize].disk);
        let e = self.engine_of(disk);
        if self.reports[e as usize].is_empty() && self.misses[e as usize].is_empty() {
            self.plan(self.now + RING, Ev::Ring(e));
        }
        self.misses[e as usize].push((file, from * PAGE..to * PAGE));
    }

    /// The last byte has gone into the socket.
    pub(super) fn sent(&mut self, c: u32) {
        let costs = &self.config.costs;
        let k = &self.connections[c as usize];
        let bytes = k.answer;
        self.network_free = self.network_free.max(self.now) + Nanos(costs.network_ns_per_kib * bytes / 1024);
        if let Some(node) = &mut self.node {
            node.sent(c, bytes);
        }
        let left = self.network_free.max(k.link.free_at.max(self.now)) + costs.network;
        let (serial, delay) = (k.serial, self.clients[c as usize].delay);
        self.plan(left + delay, Ev::Complete(c, serial));
    }
}
