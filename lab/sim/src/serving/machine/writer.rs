//! Programs beside the load that write, and the kernel's side of their writes: dirty pages, writeback, the
//! journal.
//!
//! A program writes a file from end to end, over and over, and may call `fsync` after a number of bytes. It
//! keeps to its rate over the whole run: what was delayed, it writes as soon as it may. A recorder is several
//! programs: cameras, whose data arrive at their rate and are lost if a camera's buffer is full
//! ([`seekless_model::workload::recorder`]), and a journal, of which a page is overwritten and synced by
//! `fdatasync` at an interval. Pages are in the page cache, and are dirty until they are written back:
//!
//! - While more than 10 % of memory is dirty, the flusher writes back. It also does so if a page has been
//!   dirty for 30 s, which it checks every 5 s (`dirty_background_ratio`, `dirty_expire_centisecs`,
//!   `dirty_writeback_centisecs`). It writes 4 MiB of a file at a time (`MIN_WRITEBACK_PAGES`), in the
//!   largest requests, and has at most [`Disk::writes_max`](super::Disk::writes_max) of them at once.
//! - A program that writes waits above the middle of 10 % and 20 % (`dirty_ratio`), which keeps it at the
//!   rate of writeback (`balance_dirty_pages`). How the kernel spreads that wait is not modelled.
//! - `fsync` writes back the whole file, waits for it, and commits: blocks of the journal, a flush of the
//!   drive's write cache, the commit record, a flush (jbd2 with barriers, and drives without FUA, which
//!   libata leaves off). A drive without a write cache has no flushes. Programs that reach their commit while
//!   another one is in progress share the next one. `fdatasync` of existing bytes needs only the file's
//!   writeback and a flush.
//!
//! Documentation: `admin-guide/sysctl/vm.rst`, `block/writeback_cache_control.rst`,
//! `filesystems/ext4/journal.rst` of Linux.

use std::collections::VecDeque;

use hdrhistogram::Histogram;
use seekless_base::Nanos;
use seekless_model::workload::recorder::{CALL, Camera, Segments};
use seekless_policy::{Event, WRITES_BELIEVED, Writes};

use super::{Ev, Machine};
use crate::serving::cache::PAGE;
use crate::serving::disk::{Waiter, WriteStep};
use crate::serving::record::{RecorderReport, WriterReport};

/// Bytes that writeback takes of a file at a time (`MIN_WRITEBACK_PAGES`).
const CHUNK: u64 = 4 << 20;
/// Share of memory from which on the flusher writes back (`dirty_background_ratio`).
const BACKGROUND: u64 = 10;
/// Share of memory that may be dirty (`dirty_ratio`).
const HARD: u64 = 20;
/// Age at which dirty pages are written back (`dirty_expire_centisecs`).
const EXPIRE: Nanos = Nanos::from_secs(30);
/// How often the flusher looks for such (`dirty_writeback_centisecs`).
const LOOK: Nanos = Nanos::from_secs(5);
/// Blocks of the journal that a commit writes before its record: descriptor, inode, bitmap, group descriptor.
const JOURNAL_BLOCKS: u64 = 4;
/// Blocks of the journal, which is written around (64 MiB, as mkfs.ext4 makes it on a small disk).
const JOURNAL: u64 = 16_384;
/// The daemon's times (`seekless_engine`, `writes`): between two looks at what waits to be written, and the
/// same while pieces wait for writes; between two reports of progress.
const SEE: Nanos = Nanos::from_millis(5);
const SEE_IN_TURN: Nanos = Nanos::from_millis(1);
const PROGRESS: Nanos = Nanos::from_millis(20);
/// Threads of writeback, one a disk, and of the programs.
const FLUSHER_THREAD: u32 = 3_000_000;
const WRITER_THREAD: u32 = 3_500_000;
/// Longest fsync told apart, microseconds: an hour.
const FSYNC_MAX_US: u64 = 3_600_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// A call is planned.
    Writes,
    /// Too much is dirty.
    Throttled,
    /// In `fsync`: its file is written back.
    Syncs,
    /// In `fsync`: it waits for a commit, or its `fdatasync` for a flush.
    Commits,
}

/// What a program is.
#[derive(Clone, Debug)]
enum Kind {
    Plain,
    Camera(Camera),
    /// It writes and syncs a block every so often.
    Journal(Nanos),
}

/// A program that writes.
pub(super) struct Writer {
    disk: u32,
    kind: Kind,
    /// Bytes a second.
    rate: f64,
    /// Plain: bytes after which it syncs.
    sync_every: Option<u64>,
    /// Number of its file in the page cache, and among the disk's files; its size.
    file: u32,
    local: usize,
    size: u64,
    phase: Phase,
    /// Bytes written by calls since the start; a camera has its own account.
    written: u64,
    /// When it began.
    start: Nanos,
    unsynced: u64,
    /// Dirty ranges of its file, in order of writing, and their bytes.
    dirty: VecDeque<(u64, u64)>,
    dirty_bytes: u64,
    /// Since when the oldest of them is dirty.
    dirty_since: Nanos,
    /// Bytes under writeback.
    in_flight: u64,
    /// Writeback goes on until less than the background share is dirty, or nothing.
    flushes: bool,
    all: bool,
    sync_began: Nanos,
    /// After the warm-up.
    counted: u64,
    fsyncs: Histogram<u64>,
}

/// What the programs of a disk share.
#[derive(Debug, Default)]
pub(super) struct Writing {
    /// The program that has the next turn of writeback.
    turn: usize,
    /// Where the file system's journal goes on.
    journal_at: u64,
    /// The commit under way, and the programs that wait for it, or for the next one.
    commit: Option<Commit>,
    committing: Vec<u32>,
    waiting: Vec<u32>,
    /// What the engine was told last, and when; and bytes written since.
    told: (Writes, Nanos),
    untold: u64,
}

/// What a commit waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Commit {
    /// The journal's blocks are written.
    Blocks,
    /// They are flushed.
    Flush,
    /// The commit record is written.
    Record,
    /// And flushed.
    Last,
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_max(FSYNC_MAX_US, 3).expect("constant bounds are valid")
}

impl Writer {
    /// The thread whose requests write back its file, and whether the program waits for them.
    fn sync_thread(&self, number: u32) -> (u32, bool) {
        match self.phase {
            Phase::Writes | Phase::Throttled => (FLUSHER_THREAD + self.disk, false),
            Phase::Syncs | Phase::Commits => (WRITER_THREAD + number, true),
        }
    }

    /// Bytes of its next call.
    fn call(&self) -> u64 {
        match &self.kind {
            Kind::Plain => CALL.min(self.size - self.written % self.size),
            // Its file is of whole segments.
            Kind::Camera(camera) => camera.call(),
            Kind::Journal(_) => PAGE,
        }
    }

    /// When its next call is due.
    fn due(&self) -> Nanos {
        match &self.kind {
            Kind::Plain => self.start + Nanos::from_secs_f64(self.written as f64 / self.rate.max(1.0)),
            Kind::Camera(camera) => camera.due(),
            Kind::Journal(every) => Nanos(self.sync_began.0 / every.0.max(1) * every.0 + every.0),
        }
    }

    /// Where in its file the next call writes.
    fn at(&self) -> u64 {
        let position = if let Kind::Camera(camera) = &self.kind { camera.position() } else { self.written };
        position % self.size
    }

    /// So many bytes were written. `true`: it syncs now.
    fn wrote(&mut self, bytes: u64) -> bool {
        self.written += bytes;
        self.unsynced += bytes;
        match &mut self.kind {
            Kind::Plain => self.sync_every.is_some_and(|every| self.unsynced >= every),
            Kind::Camera(camera) => camera.wrote(bytes),
            Kind::Journal(_) => true,
        }
    }

    fn is_in_sync(&self) -> bool {
        matches!(self.phase, Phase::Syncs | Phase::Commits)
    }
}

impl Machine<'_> {
    pub(super) fn begin_writers(&mut self) {
        let Some(load) = self.config.writer else { return };
        let files = self.catalogue.videos().len();
        let sizes = load.files();
        for disk in 0..self.disks.len() as u32 {
            let cameras = load.cameras(self.config.warmup..self.config.length).into_iter().map(Kind::Camera);
            let kinds: Vec<Kind> = match load.recorder {
                None => vec![Kind::Plain],
                Some(recorder) => cameras.chain([Kind::Journal(recorder.journal)]).collect(),
            };
            for (number, (&size, kind)) in sizes.iter().zip(kinds).enumerate() {
                let writer = Writer {
                    disk,
                    kind,
                    rate: load.rate,
                    sync_every: load.sync_every.map(|every| every.0),
                    file: (files * self.disks.len() + sizes.len() * disk as usize + number) as u32,
                    local: files + number,
                    size,
                    phase: Phase::Writes,
                    written: 0,
                    start: self.now,
                    unsynced: 0,
                    dirty: VecDeque::new(),
                    dirty_bytes: 0,
                    dirty_since: Nanos::ZERO,
                    in_flight: 0,
                    flushes: false,
                    all: false,
                    sync_began: Nanos::ZERO,
                    counted: 0,
                    fsyncs: histogram(),
                };
                let first = writer.due();
                self.writers.push(writer);
                self.plan(first, Ev::Write(self.writers.len() as u32 - 1));
            }
            self.writing.push(Writing::default());
            self.plan(self.now + LOOK, Ev::Flusher(disk));
            if !self.engines.is_empty() {
                self.plan(self.now + SEE, Ev::SeeWrites(disk));
            }
        }
    }

    fn dirty(&self) -> u64 {
        self.writers.iter().map(|w| w.dirty_bytes + w.in_flight).sum()
    }

    fn share_of_memory(&self, percent: u64) -> u64 {
        self.config.memory.0 / 100 * percent
    }

    /// A program's next call.
    pub(super) fn write(&mut self, number: u32) {
        if self.lose(number) {
            return;
        }
        let disk = self.writers[number as usize].disk;
        let freerun = self.share_of_memory((BACKGROUND + HARD) / 2);
        if self.dirty() >= freerun {
            self.writers[number as usize].phase = Phase::Throttled;
            return self.write_back(disk);
        }
        let (now, measures) = (self.now, self.record.measures(self.now));
        let w = &mut self.writers[number as usize];
        w.phase = Phase::Writes;
        let (from, len) = (w.at(), w.call());
        match w.dirty.back_mut() {
            Some(last) if last.1 == from => last.1 += len,
            _ => w.dirty.push_back((from, from + len)),
        }
        w.dirty_since = if w.dirty_bytes == 0 { now } else { w.dirty_since };
        w.dirty_bytes += len;
        let syncs = w.wrote(len);
        w.counted += if measures { len } else { 0 };
        let (file, due) = (w.file, w.due());
        let (first, last) = (from / PAGE, (from + len).div_ceil(PAGE));
        self.cache.insert(file, first, last, true);
        self.cache.ready(file, first, last);
        self.cache.touch(file, first, last);
        if syncs {
            return self.sync(number);
        }
        let copied = now + self.config.costs.call + Nanos((len >> 10) * self.config.costs.copy_ns_per_kib);
        self.plan(due.max(copied), Ev::Write(number));
        if self.dirty() > self.share_of_memory(BACKGROUND) {
            self.write_back(disk);
        }
    }

    /// A camera loses what has come and does not fit into its buffer. `true`: a segment has ended by it, and
    /// what there is of it is synced.
    fn lose(&mut self, number: u32) -> bool {
        let now = self.now;
        let w = &mut self.writers[number as usize];
        let Kind::Camera(camera) = &mut w.kind else { return false };
        while camera.lose(now) {
            if w.unsynced > 0 {
                self.sync(number);
                return true;
            }
            camera.end_segment(now);
        }
        false
    }

    fn sync(&mut self, number: u32) {
        let now = self.now;
        let w = &mut self.writers[number as usize];
        (w.phase, w.unsynced, w.sync_began) = (Phase::Syncs, 0, now);
        let disk = w.disk;
        self.write_back(disk);
        self.file_written(number);
    }

    /// The flusher looks for pages that have been dirty for long.
    pub(super) fn flusher(&mut self, disk: u32) {
        let now = self.now;
        self.plan(now + LOOK, Ev::Flusher(disk));
        let mut old = false;
        for w in self.writers.iter_mut().filter(|w| w.disk == disk && w.dirty_bytes > 0) {
            w.all |= w.dirty_since + EXPIRE <= now;
            old |= w.all;
        }
        if old {
            self.write_back(disk);
        }
    }

    /// Writes back what is dirty, as far as the queue takes it, of each program in turn.
    fn write_back(&mut self, disk: u32) {
        let over = self.dirty() > self.share_of_memory(BACKGROUND);
        let now = self.now;
        let (all, shared, d) =
            (&mut self.writers, &mut self.writing[disk as usize], &mut self.disks[disk as usize]);
        for w in all.iter_mut().filter(|w| w.disk == disk) {
            w.flushes |= over;
        }
        let mut idle = 0;
        while idle < all.len() && (d.writes() as usize) < d.writes_max() {
            let number = shared.turn % all.len();
            shared.turn = number + 1;
            let w = &mut all[number];
            let wanted = w.flushes || w.all || w.phase == Phase::Syncs;
            let Some(range) = w.dirty.front_mut().filter(|_| wanted && w.disk == disk) else {
                idle += 1;
                continue;
            };
            idle = 0;
            let (from, to) = (range.0, range.1.min(range.0 + CHUNK));
            range.0 = to;
            if range.0 == range.1 {
                w.dirty.pop_front();
            }
            w.dirty_bytes -= to - from;
            w.in_flight += to - from;
            w.dirty_since = now;
            w.all &= w.dirty_bytes > 0;
            let waiter = Waiter::Writer(number as u32, WriteStep::Data);
            d.write(now, w.local, (from, to), w.sync_thread(number as u32), waiter);
        }
        self.pump(disk);
    }

    /// A request of a program is done.
    pub(super) fn written(&mut self, number: u32, what: WriteStep, bytes: u64) {
        let w = &mut self.writers[number as usize];
        let disk = w.disk;
        match what {
            WriteStep::Data => {
                w.in_flight = w.in_flight.saturating_sub(bytes);
                if self.dirty() <= self.share_of_memory(BACKGROUND) {
                    self.writers.iter_mut().filter(|w| w.disk == disk).for_each(|w| w.flushes = false);
                }
                self.write_back(disk);
                for number in 0..self.writers.len() as u32 {
                    let w = &mut self.writers[number as usize];
                    if w.disk == disk && w.phase == Phase::Throttled {
                        w.phase = Phase::Writes;
                        self.plan(self.now, Ev::Write(number));
                    }
                }
                self.file_written(number);
            }
            WriteStep::Commit => self.commit_on(disk),
            WriteStep::Flush => self.synced(number),
        }
    }

    /// Goes on with a sync, if its file is written back.
    fn file_written(&mut self, number: u32) {
        let now = self.now;
        let w = &mut self.writers[number as usize];
        if w.phase != Phase::Syncs || w.dirty_bytes + w.in_flight > 0 {
            return;
        }
        w.phase = Phase::Commits;
        let disk = w.disk;
        if matches!(w.kind, Kind::Journal(_)) {
            let waiter = Waiter::Writer(number, WriteStep::Flush);
            match self.disks[disk as usize].flush(now, WRITER_THREAD + number, waiter) {
                true => self.pump(disk),
                false => self.synced(number),
            }
            return;
        }
        let shared = &mut self.writing[disk as usize];
        shared.waiting.push(number);
        if shared.commit.is_none() {
            self.begin_commit(disk);
        }
    }

    /// Programs that wait have a commit.
    fn begin_commit(&mut self, disk: u32) {
        let shared = &mut self.writing[disk as usize];
        shared.committing = std::mem::take(&mut shared.waiting);
        if !shared.committing.is_empty() {
            self.write_journal(disk, Commit::Blocks, JOURNAL_BLOCKS);
        }
    }

    fn write_journal(&mut self, disk: u32, step: Commit, blocks: u64) {
        let shared = &mut self.writing[disk as usize];
        let Some(&first) = shared.committing.first() else { return };
        shared.commit = Some(step);
        let block = shared.journal_at % (JOURNAL - JOURNAL_BLOCKS);
        shared.journal_at = block + blocks;
        let waiter = Waiter::Writer(first, WriteStep::Commit);
        self.disks[disk as usize].write_journal(self.now, (block, blocks), WRITER_THREAD + first, waiter);
        self.pump(disk);
    }

    /// The next step of a commit.
    fn commit_on(&mut self, disk: u32) {
        let now = self.now;
        loop {
            let shared = &mut self.writing[disk as usize];
            let Some(&first) = shared.committing.first() else { return };
            let next = match shared.commit {
                None => return,
                Some(Commit::Blocks) => Commit::Flush,
                Some(Commit::Flush) => return self.write_journal(disk, Commit::Record, 1),
                Some(Commit::Record) => Commit::Last,
                Some(Commit::Last) => {
                    shared.commit = None;
                    for number in std::mem::take(&mut shared.committing) {
                        self.synced(number);
                    }
                    if self.writing[disk as usize].commit.is_none() {
                        self.begin_commit(disk);
                    }
                    return;
                }
            };
            shared.commit = Some(next);
            let waiter = Waiter::Writer(first, WriteStep::Commit);
            if self.disks[disk as usize].flush(now, WRITER_THREAD + first, waiter) {
                return self.pump(disk);
            }
        }
    }

    /// A program returns from `fsync`.
    fn synced(&mut self, number: u32) {
        let (now, measures) = (self.now, self.record.measures(self.now));
        let w = &mut self.writers[number as usize];
        w.phase = Phase::Writes;
        if measures {
            w.fsyncs.saturating_record((now.since(w.sync_began).0 / 1000).max(1));
        }
        if let Kind::Camera(camera) = &mut w.kind {
            camera.end_segment(now);
        }
        let due = w.due();
        self.plan(due.max(now + self.config.costs.wake), Ev::Write(number));
    }

    /// The engine's driver looks at what waits to be written, as the daemon does.
    pub(super) fn see_writes(&mut self, disk: u32) {
        let (now, e) = (self.now, self.engine_of(disk));
        let (queued, in_flight) = self.engines[e as usize].policy.load();
        let in_turn = queued > 0 && in_flight == 0;
        self.plan(now + if in_turn { SEE_IN_TURN } else { SEE }, Ev::SeeWrites(disk));
        let (waiting, bytes) = self.disks[disk as usize].look_at_writes();
        let seen = &mut self.writing[disk as usize];
        seen.untold += bytes;
        let (told, at) = seen.told;
        let changed = (waiting > 0) != (told.waiting > 0);
        let progress = seen.untold > 0 && now >= at + PROGRESS;
        if changed || progress || (waiting > 0 && now >= at + Nanos(WRITES_BELIEVED.0 / 2)) {
            let writes = Writes { waiting, bytes: std::mem::take(&mut seen.untold) };
            seen.told = (writes, now);
            self.tell(e, Event::Writes(writes));
        }
    }

    /// What the writers had since the warm-up.
    pub(super) fn writer_report(&self, write_ns: u64) -> Option<WriterReport> {
        let load = self.config.writer?;
        let (now, seconds) = (self.now, self.now.since(self.config.warmup).as_secs_f64().max(1e-9));
        let (mut fsyncs, mut journal, mut segments) = (histogram(), histogram(), Segments::default());
        for w in &self.writers {
            // The one under way counts for as long as it has taken: nothing that hangs may look short.
            let all = if matches!(w.kind, Kind::Journal(_)) { &mut journal } else { &mut fsyncs };
            *all += &w.fsyncs;
            if w.is_in_sync() {
                all.saturating_record((now.since(w.sync_began).0 / 1000).max(1));
            }
            if let Kind::Camera(camera) = &w.kind {
                segments += camera.segments(now);
            }
        }
        let ms = |all: &Histogram<u64>, q| {
            if all.is_empty() { 0.0 } else { all.value_at_quantile(q) as f64 / 1e3 }
        };
        let cameras = self.writers.iter().filter(|w| !matches!(w.kind, Kind::Journal(_)));
        let mb_per_s = cameras.map(|w| w.counted).sum::<u64>() as f64 / 1e6 / seconds;
        let asked = load.rate / 1e6 * self.disks.len() as f64;
        Some(WriterReport {
            mb_per_s,
            asked_mb_per_s: asked,
            of_asked: mb_per_s / asked.max(1e-9),
            fsyncs: fsyncs.len(),
            fsync_p50_ms: ms(&fsyncs, 0.5),
            fsync_p99_ms: ms(&fsyncs, 0.99),
            fsync_max_ms: ms(&fsyncs, 1.0),
            disk_share: write_ns as f64 / 1e9 / seconds / self.disks.len().max(1) as f64,
            recorder: load.recorder.map(|_| RecorderReport {
                segments: segments.all,
                late: segments.late,
                lost: segments.lost,
                missed: segments.missed(),
                fdatasyncs: journal.len(),
                fdatasync_p50_ms: ms(&journal, 0.5),
                fdatasync_p99_ms: ms(&journal, 0.99),
            }),
        })
    }
}
