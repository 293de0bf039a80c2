//! One disk: requests from the page cache, the block layer's queue, the drive.

use std::collections::VecDeque;

use seekless_base::{Bytes, Lba, Nanos, SECTOR_BYTES};
use seekless_model::drive::set::{DriveSet, SpindleStats};
use seekless_model::drive::{Command, Completion, Op};
use seekless_policy::profile::DiskProfile;
use seekless_policy::sizing::competitive::{Competitive, SeekEstimate};
use serde::Serialize;

use super::cache::PAGE;
use super::config::{DiffLoad, DiskConfig, KernelConfig, Load, Standby, TreeLoad};
use super::layout::Layout;
use super::profile_of;
use super::scheduler::{Pick, Scheduler, Waiting};

/// The part that is notified when a request is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiter {
    /// A connection whose thread is blocked.
    Connection(u32),
    /// A read of an engine: engine and read.
    Read(u32, u64),
    /// A read past the page cache.
    Past(u64),
    /// A program that writes.
    Writer(u32, WriteStep),
}

/// The purpose of a writer's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteStep {
    /// Bytes of its file.
    Data,
    /// Blocks of the journal, or a flush of the drive's cache, of a commit.
    Commit,
    /// A flush of the drive's cache that is not part of a commit.
    Flush,
}

/// Pages of a file, `[from, to)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pages {
    pub(crate) file: u32,
    pub(crate) from: u64,
    pub(crate) to: u64,
}

/// A request of the block layer.
#[derive(Debug)]
pub(crate) struct Request {
    op: Op,
    /// Whether a program waits for it (`REQ_SYNC`): all reads, and the writes of an fsync.
    sync: bool,
    lba: u64,
    sectors: u64,
    pub(crate) pages: Vec<Pages>,
    pub(crate) waiters: Vec<Waiter>,
    thread: u32,
    since: Nanos,
}

impl Request {
    pub(crate) fn reads(&self) -> bool {
        self.op == Op::Read
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.sectors * SECTOR_BYTES
    }
}

/// Counters with the names of the live disk's statistics.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DiskStats {
    /// Bytes of reads completed.
    pub read_bytes: u64,
    /// The same for writes; with a write cache, those that it has accepted.
    pub write_bytes: u64,
    /// Read commands completed.
    pub reads: u64,
    /// Write commands completed.
    pub writes: u64,
    /// Flushes of the drive's cache completed.
    pub flushes: u64,
    /// Time in which the heads moved to what was written, and wrote it.
    pub write_ns: u64,
    /// Commands that did not begin where the previous one ended.
    pub seeks: u64,
    /// Commands for which the heads moved to another cylinder.
    pub head_moves: u64,
    /// Commands served from the track buffer.
    pub buffer_hits: u64,
    /// Time with at least one command present.
    pub busy_ns: u64,
    /// Time since the counters were zero.
    pub elapsed_ns: u64,
    /// Commands that came after a second or more without any.
    pub accesses: u64,
    /// Commands for which the drive had to spin up.
    pub spin_ups: u64,
    /// Time in which it was spinning: all, without a standby timer.
    pub awake_ns: u64,
    /// Sums of the parts of service time.
    pub overhead_ns: u64,
    /// Time moving the heads.
    pub seek_ns: u64,
    /// Time waiting for the sector to come round.
    pub rotation_ns: u64,
    /// Time transferring.
    pub transfer_ns: u64,
    /// Sum over commands of completion minus arrival.
    pub response_ns: u64,
    /// Bytes read in contiguous sequences of at most 128 KiB.
    pub seq_bytes_le_128k: u64,
    /// Of at most 384 KiB.
    pub seq_bytes_le_384k: u64,
    /// Of at most 576 KiB.
    pub seq_bytes_le_576k: u64,
    /// Of less than 1792 KiB.
    pub seq_bytes_lt_1792k: u64,
    /// Of more than 1920 KiB.
    pub seq_bytes_gt_1920k: u64,
    /// The counters of each spindle of a set, in the drives' own time; empty for a single drive.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<SpindleStats>,
}

/// A disk of the machine.
pub(crate) struct Disk {
    drives: DriveSet,
    layout: Layout,
    /// First sector of the journal.
    journal: u64,
    caches_writes: bool,
    scheduler: Scheduler,
    depth: usize,
    requests_max: usize,
    sectors_max: u64,
    /// The same for pages allocated one by one.
    single_max: u64,
    merges: bool,
    /// The block layer hands the drive one request after the other; when it can hand over the next.
    next_send: Nanos,
    send: Nanos,
    requests: Vec<Option<Request>>,
    free: Vec<u32>,
    /// In the scheduler, in order of arrival.
    waiting: Vec<u32>,
    views: Vec<Waiting>,
    /// Beyond the scheduler's capacity.
    outside: VecDeque<u32>,
    /// Flushes go to the drive before anything that waits.
    flushes: VecDeque<u32>,
    /// Number of write requests that are not done.
    writes: usize,
    /// Bytes written since the last check ([`Disk::look_at_writes`]).
    written: u64,
    /// In the drive.
    sent: Vec<u32>,
    stats: DiskStats,
    /// The drive's time for writes when the counters were reset.
    write_time_before: Nanos,
    zero: Nanos,
    busy_since: Option<Nanos>,
    standby: Option<Standby>,
    /// When the last command ended.
    idle_since: Nanos,
    head: u64,
    sequence: u64,
    /// The bound of the kernel's read-ahead, if it is not fixed.
    competitive: Option<Competitive>,
    profile: DiskProfile,
    /// Mean time between two independent places.
    switch: Nanos,
    /// Factor of the drive's clock.
    speedup: f64,
}

/// A request that waits from `now` on.
fn request(op: Op, sync: bool, lba: u64, sectors: u64, thread: u32, now: Nanos) -> Request {
    Request { op, sync, lba, sectors, pages: Vec::new(), waiters: Vec::new(), thread, since: now }
}

/// Maximum competitive read-ahead: eight times what the fastest drives of the catalogue transfer in a switch.
const DEPTH_MAX: Bytes = Bytes::mib(32);

/// Pause after which a command counts as another access to the disk.
const ACCESS_AFTER: Nanos = Nanos::from_secs(1);

impl Disk {
    pub(crate) fn new(
        config: &DiskConfig,
        kernel: &KernelConfig,
        sizes: impl Iterator<Item = u64>,
        load: &Load,
    ) -> Result<Disk, String> {
        let drives = DriveSet::new(&config.drive, config.set).map_err(|e| e.to_string())?;
        let profile = profile_of(&config.drive, &config.set);
        let (sectors, stripe) = (drives.sectors(), config.set.stripe());
        Ok(Disk {
            layout: match load {
                Load::Tree(TreeLoad { fresh: true, folders, .. }) => {
                    let order: Vec<u32> = (0..folders.folder_of.len() as u32).collect();
                    Layout::written(sizes, &order, config.size.0, sectors, stripe)?
                }
                Load::Tree(_) => Layout::aged(sizes, config.size.0, sectors, stripe)?,
                Load::Diff(DiffLoad { forest, .. }) => {
                    Layout::written(sizes, &forest.written(), config.size.0, sectors, stripe)?
                }
                _ => Layout::new(sizes, config.size.0, sectors, stripe)?,
            },
            journal: sectors / 2,
            caches_writes: config.drive.buffer.write_cache_sectors > 0,
            depth: drives.accepts(),
            drives,
            scheduler: Scheduler::new(kernel.scheduler),
            requests_max: kernel.requests.max(1),
            sectors_max: (kernel.max_request.min(kernel.max_command).0 / SECTOR_BYTES)
                .max(PAGE / SECTOR_BYTES),
            single_max: kernel.segments.max(1) * (PAGE / SECTOR_BYTES),
            // Without a scheduler no request waits where it could be merged: a submitter that finds no free
            // tag sleeps.
            merges: kernel.scheduler != super::scheduler::Kind::None,
            next_send: Nanos::ZERO,
            send: kernel.send,
            requests: Vec::new(),
            free: Vec::new(),
            waiting: Vec::new(),
            views: Vec::new(),
            outside: VecDeque::new(),
            flushes: VecDeque::new(),
            writes: 0,
            written: 0,
            sent: Vec::new(),
            stats: DiskStats::default(),
            write_time_before: Nanos::ZERO,
            zero: Nanos::ZERO,
            busy_since: None,
            standby: kernel.standby,
            idle_since: Nanos::ZERO,
            head: u64::MAX,
            sequence: 0,
            // As in the paper: the seek time of the mean distance. Seekless's own depth uses the mean time.
            competitive: kernel.competitive.then(|| {
                Competitive::new(profile.clone(), DEPTH_MAX).with_seek_estimate(SeekEstimate::MeanDistance)
            }),
            switch: profile.mean_switch(),
            profile,
            speedup: config.speedup,
        })
    }

    /// A moment, or a time, on the drive's clock.
    fn its(&self, ours: Nanos) -> Nanos {
        if self.speedup == 1.0 { ours } else { Nanos((ours.0 as f64 * self.speedup) as u64) }
    }

    /// The inverse, and not too early.
    fn ours(&self, its: Nanos) -> Nanos {
        if self.speedup == 1.0 { its } else { Nanos((its.0 as f64 / self.speedup) as u64 + 1) }
    }

    /// The bytes of a switch at this place of a file, if the kernel reads ahead by it.
    pub(crate) fn competitive_depth(&self, file: usize, offset: u64) -> Option<Bytes> {
        self.competitive.as_ref().map(|c| c.depth(self.lba(file, offset)))
    }

    /// `C_min` of \[C\] section 2 (its equation 1): time for this many bytes of a file in one go, from
    /// anywhere.
    pub(crate) fn least_time(&self, file: usize, offset: u64, bytes: u64) -> Nanos {
        let rate = self.profile.rate_at(self.lba(file, offset));
        self.switch + Nanos::from_secs_f64(bytes as f64 / rate)
    }

    /// Address of a byte of a file of this disk.
    pub(crate) fn lba(&self, file: usize, offset: u64) -> Lba {
        self.layout.lba(file, offset)
    }

    /// Requests pages of the disk's file `local`, known to the cache as `pages.file`.
    pub(crate) fn submit(&mut self, now: Nanos, local: usize, pages: Pages, thread: u32, large: bool) {
        let most = if large { self.sectors_max } else { self.sectors_max.min(self.single_max) };
        for run in self.layout.runs(local, pages.from * PAGE, pages.to * PAGE) {
            let mut offset = run.offset;
            let end = run.offset + run.len;
            while offset < end {
                let len = (end - offset).min(most * SECTOR_BYTES);
                let lba = run.lba.0 + (offset - run.offset) / SECTOR_BYTES;
                let part = Pages { file: pages.file, from: offset / PAGE, to: (offset + len).div_ceil(PAGE) };
                self.enter(now, request(Op::Read, true, lba, len.div_ceil(SECTOR_BYTES), thread, now), part);
                offset += len;
            }
        }
    }

    /// Writes a range of the disk's file `local` from the page cache, whose pages are in large folios.
    /// `waiter` is notified of each request.
    pub(crate) fn write(
        &mut self,
        now: Nanos,
        local: usize,
        (from, to): (u64, u64),
        (thread, sync): (u32, bool),
        waiter: Waiter,
    ) {
        for run in self.layout.runs(local, from, to) {
            let mut offset = run.offset;
            let end = run.offset + run.len;
            while offset < end {
                let len = (end - offset).min(self.sectors_max * SECTOR_BYTES);
                let lba = run.lba.0 + (offset - run.offset) / SECTOR_BYTES;
                let mut r = request(Op::Write, sync, lba, len.div_ceil(SECTOR_BYTES), thread, now);
                r.waiters.push(waiter);
                self.writes += 1;
                self.enter(now, r, Pages { file: u32::MAX, from: 0, to: 0 });
                offset += len;
            }
        }
    }

    /// Writes blocks of the journal, which ext4 puts in the middle of the disk.
    pub(crate) fn write_journal(
        &mut self,
        now: Nanos,
        (block, blocks): (u64, u64),
        thread: u32,
        waiter: Waiter,
    ) {
        let lba = self.journal + block * (PAGE / SECTOR_BYTES);
        let mut r = request(Op::Write, true, lba, blocks * (PAGE / SECTOR_BYTES), thread, now);
        r.waiters.push(waiter);
        self.writes += 1;
        self.enter(now, r, Pages { file: u32::MAX, from: 0, to: 0 });
    }

    /// Lets the drive empty its write cache; does nothing and returns `false` without one: then acknowledged
    /// writes are on its medium.
    pub(crate) fn flush(&mut self, now: Nanos, thread: u32, waiter: Waiter) -> bool {
        if !self.caches_writes {
            return false;
        }
        if self.busy_since.is_none() {
            self.ends_pause(now);
            self.busy_since = Some(now);
        }
        let mut r = request(Op::Flush, true, 0, 1, thread, now);
        r.waiters.push(waiter);
        let id = self.keep(r);
        self.flushes.push_back(id);
        self.writes += 1;
        true
    }

    /// Write requests and flushes that wait or are in the drive.
    pub(crate) fn writes(&self) -> u64 {
        self.writes as u64
    }

    /// Maximum number of write requests of writeback: three quarters of the queue, as mq-deadline's
    /// `async_depth` leaves the rest to reads.
    pub(crate) fn writes_max(&self) -> usize {
        (self.requests_max * 3 / 4).max(1)
    }

    /// The values in `/sys/block`: writes and flushes that the drive has, and bytes written since the last
    /// check.
    pub(crate) fn look_at_writes(&mut self) -> (u64, u64) {
        let sent = self.sent.iter().filter(|&&id| !self.request(id).reads()).count();
        (sent as u64, std::mem::take(&mut self.written))
    }

    fn enter(&mut self, now: Nanos, new: Request, pages: Pages) {
        let Request { op, sync, lba, sectors, .. } = new;
        if self.busy_since.is_none() {
            self.ends_pause(now);
            self.busy_since = Some(now);
        }
        // Behind a request that was not dispatched yet.
        let outside = self.outside.iter().map(|id| self.view(*id));
        let candidates = self.views.iter().copied().chain(outside);
        let behind = candidates.take_while(|_| self.merges).position(|view| {
            let same = (view.write, view.sync) == (op == Op::Write, sync);
            same && view.end == lba && view.end - view.lba + sectors <= self.sectors_max
        });
        if let Some(i) = behind {
            let id =
                if i < self.waiting.len() { self.waiting[i] } else { self.outside[i - self.waiting.len()] };
            if let Some(view) = self.views.get_mut(i) {
                view.end += sectors;
            }
            let request = self.requests[id as usize].as_mut().expect("a waiting request exists");
            request.sectors += sectors;
            request.pages.push(pages);
            self.writes -= usize::from(op == Op::Write);
            return;
        }
        let id = self.keep(Request { pages: vec![pages], ..new });
        self.scheduler.arrived(now, &self.view(id));
        if self.waiting.len() < self.requests_max {
            self.admit(id);
        } else {
            self.outside.push_back(id);
        }
    }

    fn keep(&mut self, request: Request) -> u32 {
        match self.free.pop() {
            Some(id) => {
                self.requests[id as usize] = Some(request);
                id
            }
            None => {
                self.requests.push(Some(request));
                (self.requests.len() - 1) as u32
            }
        }
    }

    fn admit(&mut self, id: u32) {
        self.waiting.push(id);
        self.views.push(self.view(id));
    }

    fn view(&self, id: u32) -> Waiting {
        let r = self.request(id);
        let (write, sync) = (r.op == Op::Write, r.sync);
        Waiting { lba: r.lba, end: r.lba + r.sectors, thread: r.thread, since: r.since, write, sync }
    }

    fn request(&self, id: u32) -> &Request {
        self.requests[id as usize].as_ref().expect("an id in a queue names a request")
    }

    /// Registers a waiter for the request that reads a page. Returns `false` if there is none.
    pub(crate) fn wait(&mut self, file: u32, page: u64, waiter: Waiter) -> bool {
        let all = self.sent.iter().chain(&self.waiting).chain(&self.outside).copied();
        let brings = |id: &u32| {
            self.request(*id).pages.iter().any(|p| p.file == file && p.from <= page && page < p.to)
        };
        let Some(id) = { all }.find(brings) else { return false };
        let request = self.requests[id as usize].as_mut().expect("just found");
        if !request.waiters.contains(&waiter) {
            request.waiters.push(waiter);
        }
        true
    }

    /// Dispatches requests to the drive. Returns when to check again.
    pub(crate) fn pump(&mut self, now: Nanos) -> Option<Nanos> {
        let mut idle_until = None;
        while self.drives.queue_len() < self.depth {
            if let Some(id) = self.flushes.pop_front() {
                let flush = Command { id: u64::from(id), op: Op::Flush, lba: Lba(0), sectors: 1 };
                if self.drives.submit(self.its(now), flush).is_err() {
                    self.flushes.push_front(id);
                    break;
                }
                self.sent.push(id);
                continue;
            }
            if now < self.next_send {
                if !self.waiting.is_empty() {
                    idle_until = Some(self.next_send);
                }
                break;
            }
            match self.scheduler.pick(now, &self.views, self.sent.len()) {
                Pick::Idle => break,
                Pick::Wait(until) => {
                    idle_until = Some(until);
                    break;
                }
                Pick::Take(i) => {
                    let id = self.waiting.remove(i);
                    self.views.remove(i);
                    let r = self.request(id);
                    let command =
                        Command { id: u64::from(id), op: r.op, lba: Lba(r.lba), sectors: r.sectors as u32 };
                    if self.drives.submit(self.its(now), command).is_err() {
                        // It cannot fail, because there was room.
                        self.outside.push_front(id);
                        break;
                    }
                    if let Some(competitive) = self.competitive.as_mut().filter(|_| command.op == Op::Read) {
                        competitive.observe(command.lba, Bytes(u64::from(command.sectors) * SECTOR_BYTES));
                    }
                    self.sent.push(id);
                    self.next_send = now + self.send;
                    if let Some(next) = self.outside.pop_front() {
                        self.admit(next);
                    }
                }
            }
        }
        let done = if self.sent.is_empty() { None } else { self.drives.next_event() };
        let done = done.map(|at| self.ours(at));
        [done, idle_until].into_iter().flatten().min()
    }

    /// The next request that is done by `now`.
    pub(crate) fn collect(&mut self, now: Nanos) -> Option<Request> {
        let mut done = self.drives.poll(self.its(now))?.done;
        done.finished = self.ours(done.finished).min(now);
        let id = done.id as u32;
        self.sent.retain(|&s| s != id);
        self.free.push(id);
        let request = self.requests[id as usize].take().expect("the drive hands back what it was given");
        self.writes -= usize::from(request.op != Op::Read);
        self.account(&done, request.since);
        self.scheduler.done(now, request.thread);
        if self.sent.is_empty()
            && self.waiting.is_empty()
            && self.outside.is_empty()
            && self.flushes.is_empty()
        {
            self.end_busy(done.finished);
        }
        Some(request)
    }

    /// Time in which an idle disk was spinning since the last command, as of `now`.
    fn awake_idle(&self, now: Nanos) -> Nanos {
        let stops = self.standby.map_or(Nanos::MAX, |standby| self.idle_since + standby.after);
        now.min(stops).since(self.idle_since.max(self.zero))
    }

    /// A command comes after a pause. If the drive has stopped, it accepts none until it spins.
    fn ends_pause(&mut self, now: Nanos) {
        let idle = now.since(self.idle_since);
        self.stats.awake_ns += self.awake_idle(now).0;
        self.stats.accesses += u64::from(idle >= ACCESS_AFTER);
        if let Some(standby) = self.standby.filter(|standby| idle >= standby.after) {
            self.stats.spin_ups += 1;
            self.next_send = self.next_send.max(now + standby.spin_up);
        }
    }

    fn end_busy(&mut self, now: Nanos) {
        self.idle_since = now;
        if let Some(since) = self.busy_since.take() {
            self.stats.busy_ns += now.since(since.max(self.zero)).0;
        }
    }

    fn account(&mut self, done: &Completion, since: Nanos) {
        let s = &mut self.stats;
        let bytes = u64::from(done.sectors) * SECTOR_BYTES;
        match done.op {
            Op::Read => (s.reads, s.read_bytes) = (s.reads + 1, s.read_bytes + bytes),
            Op::Write => {
                (s.writes, s.write_bytes) = (s.writes + 1, s.write_bytes + bytes);
                self.written += bytes;
            }
            Op::Flush => {
                s.flushes += 1;
                return;
            }
        }
        if self.head == done.lba.0 {
            self.sequence += bytes;
        } else {
            s.seeks += 1;
            self.end_sequence();
            self.sequence = bytes;
        }
        let s = &mut self.stats;
        self.head = done.lba.0 + u64::from(done.sectors);
        s.head_moves += u64::from(done.service.seek > Nanos::ZERO);
        s.buffer_hits += u64::from(done.service.from_buffer);
        s.response_ns += done.finished.since(since).0;
        let ours = |time: Nanos| (time.0 as f64 / self.speedup) as u64;
        s.overhead_ns += ours(done.service.overhead);
        s.seek_ns += ours(done.service.seek);
        s.rotation_ns += ours(done.service.rotation);
        s.transfer_ns += ours(done.service.transfer);
    }

    fn end_sequence(&mut self) {
        let (n, s) = (self.sequence, &mut self.stats);
        s.seq_bytes_le_128k += if n <= 128 << 10 { n } else { 0 };
        s.seq_bytes_le_384k += if n <= 384 << 10 { n } else { 0 };
        s.seq_bytes_le_576k += if n <= 576 << 10 { n } else { 0 };
        s.seq_bytes_lt_1792k += if n < 1792 << 10 { n } else { 0 };
        s.seq_bytes_gt_1920k += if n > 1920 << 10 { n } else { 0 };
    }

    /// The counters at `now`.
    pub(crate) fn stats(&mut self, now: Nanos) -> DiskStats {
        self.end_sequence();
        self.sequence = 0;
        let mut stats = self.stats.clone();
        let write_time = self.drives.write_time() - self.write_time_before;
        stats.write_ns = (write_time.0 as f64 / self.speedup) as u64;
        if !self.drives.layout().spec().is_single() {
            stats.members = self.drives.stats(self.its(now));
        }
        match self.busy_since {
            Some(since) => stats.busy_ns += now.since(since.max(self.zero)).0,
            None => stats.awake_ns += self.awake_idle(now).0,
        }
        stats.awake_ns += stats.busy_ns;
        stats.elapsed_ns = now.since(self.zero).0;
        stats
    }

    /// Sets the counters to zero.
    pub(crate) fn reset(&mut self, now: Nanos) {
        self.stats = DiskStats::default();
        self.drives.reset_stats(self.its(now));
        self.write_time_before = self.drives.write_time();
        self.zero = now;
        self.sequence = 0;
    }
}
