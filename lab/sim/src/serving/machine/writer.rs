//! A program beside the load that writes, and the kernel's side of its writes: dirty pages, writeback, the
//! journal.
//!
//! The program writes a file from end to end, over and over, as a recorder does; after every so many bytes it
//! may call `fsync`. It keeps to its rate over the whole run: what it was late with, it writes as soon as it
//! may. Its pages take part in the page cache, and are dirty until they are written back:
//!
//! - While more than 10 % of memory is dirty, the flusher writes back; so it does where a page has been dirty
//!   for 30 s, at which it looks every 5 s (`dirty_background_ratio`, `dirty_expire_centisecs`,
//!   `dirty_writeback_centisecs`). It writes 4 MiB of a file at a time (`MIN_WRITEBACK_PAGES`), in the
//!   largest requests, and has no more of them at once than [`Disk::writes_max`](super::Disk::writes_max).
//! - A program that writes waits above the middle of 10 % and 20 % (`dirty_ratio`), which keeps it at the
//!   rate of writeback (`balance_dirty_pages`). How the kernel spreads that wait is not modelled.
//! - `fsync` writes back all of the file, waits for it, and commits: blocks of the journal, a flush of the
//!   drive's write cache, the commit record, a flush (jbd2 with barriers, and drives that take no FUA, as
//!   libata leaves it off). A drive without a write cache has no flushes.
//!
//! Documentation: `admin-guide/sysctl/vm.rst`, `block/writeback_cache_control.rst`,
//! `filesystems/ext4/journal.rst` of Linux.

use hdrhistogram::Histogram;
use seekless_base::Nanos;
use seekless_policy::{Event, WRITES_BELIEVED, Writes};

use super::{Ev, Machine};
use crate::serving::cache::PAGE;
use crate::serving::config::WriterLoad;
use crate::serving::disk::{Waiter, Written};
use crate::serving::record::WriterReport;

/// Bytes of one call of the program. With half, twice the events; with double, the same writeback.
const CALL: u64 = 128 << 10;
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
/// same while pieces wait for writes; how long after a flush programs count as waiting for their writes;
/// between two reports of progress.
const SEE: Nanos = Nanos::from_millis(5);
const SEE_IN_TURN: Nanos = Nanos::from_millis(1);
const SYNCED: Nanos = Nanos::from_secs(2);
const PROGRESS: Nanos = Nanos::from_millis(20);
/// Threads of writeback, and of the programs, one a disk.
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
    /// The journal's blocks are written.
    Journal,
    /// They are flushed.
    Flush,
    /// The commit record is written.
    Record,
    /// And flushed.
    Committed,
}

/// The writer of a disk.
pub(super) struct Writer {
    load: WriterLoad,
    /// Number of its file in the page cache, and among the disk's files.
    file: u32,
    local: usize,
    phase: Phase,
    /// Bytes written by calls since the start.
    written: u64,
    /// When it began.
    start: Nanos,
    unsynced: u64,
    /// Dirty ranges of its file, in order of writing, and their bytes.
    dirty: std::collections::VecDeque<(u64, u64)>,
    dirty_bytes: u64,
    /// Since when the oldest of them is dirty.
    dirty_since: Nanos,
    /// Bytes under writeback.
    in_flight: u64,
    /// Writeback goes on until less than the background share is dirty, or nothing.
    flushes: bool,
    all: bool,
    journal_at: u64,
    sync_began: Nanos,
    /// When the engine's driver saw a flush last.
    flushed: Option<Nanos>,
    /// What the engine was told last, and when; and bytes written since.
    told: (Writes, Nanos),
    untold: u64,
    /// After the warm-up.
    counted: u64,
    fsyncs: Histogram<u64>,
}

impl Writer {
    fn sync_thread(&self, disk: u32) -> (u32, bool) {
        match self.phase {
            Phase::Writes | Phase::Throttled => (FLUSHER_THREAD + disk, false),
            _ => (WRITER_THREAD + disk, true),
        }
    }
}

impl Machine<'_> {
    pub(super) fn begin_writers(&mut self) {
        let Some(load) = self.config.writer else { return };
        let files = self.catalogue.videos().len();
        for disk in 0..self.disks.len() as u32 {
            self.writers.push(Writer {
                load,
                file: (files * self.disks.len()) as u32 + disk,
                local: files,
                phase: Phase::Writes,
                written: 0,
                start: self.now,
                unsynced: 0,
                dirty: std::collections::VecDeque::new(),
                dirty_bytes: 0,
                dirty_since: Nanos::ZERO,
                in_flight: 0,
                flushes: false,
                all: false,
                journal_at: 0,
                sync_began: Nanos::ZERO,
                flushed: None,
                told: (Writes::default(), Nanos::ZERO),
                untold: 0,
                counted: 0,
                fsyncs: Histogram::new_with_max(FSYNC_MAX_US, 3).expect("constant bounds are valid"),
            });
            self.plan(self.now, Ev::Write(disk));
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

    /// The program's next call.
    pub(super) fn write(&mut self, disk: u32) {
        let freerun = self.share_of_memory((BACKGROUND + HARD) / 2);
        if self.dirty() >= freerun {
            self.writers[disk as usize].phase = Phase::Throttled;
            return self.write_back(disk);
        }
        let (now, measures) = (self.now, self.record.measures(self.now));
        let w = &mut self.writers[disk as usize];
        w.phase = Phase::Writes;
        let size = w.load.file.0;
        let from = w.written % size;
        let len = CALL.min(size - from);
        match w.dirty.back_mut() {
            Some(last) if last.1 == from => last.1 += len,
            _ => w.dirty.push_back((from, from + len)),
        }
        w.dirty_since = if w.dirty_bytes == 0 { now } else { w.dirty_since };
        w.dirty_bytes += len;
        w.written += len;
        w.unsynced += len;
        w.counted += if measures { len } else { 0 };
        let (file, syncs) = (w.file, w.load.sync_every.is_some_and(|every| w.unsynced >= every.0));
        let due = w.start + Nanos::from_secs_f64(w.written as f64 / w.load.rate.max(1.0));
        let (first, last) = (from / PAGE, (from + len).div_ceil(PAGE));
        self.cache.insert(file, first, last, true);
        self.cache.ready(file, first, last);
        self.cache.touch(file, first, last);
        let copied = now + self.config.costs.call + Nanos((len >> 10) * self.config.costs.copy_ns_per_kib);
        if syncs {
            let w = &mut self.writers[disk as usize];
            (w.phase, w.unsynced, w.sync_began) = (Phase::Syncs, 0, now);
            self.write_back(disk);
            return self.sync_on(disk);
        }
        self.plan(due.max(copied), Ev::Write(disk));
        if self.dirty() > self.share_of_memory(BACKGROUND) {
            self.write_back(disk);
        }
    }

    /// The flusher looks for pages that have been dirty for long.
    pub(super) fn flusher(&mut self, disk: u32) {
        let now = self.now;
        self.plan(now + LOOK, Ev::Flusher(disk));
        let w = &mut self.writers[disk as usize];
        if w.dirty_bytes > 0 && w.dirty_since + EXPIRE <= now {
            w.all = true;
            self.write_back(disk);
        }
    }

    /// Writes back what is dirty, as far as the queue takes it.
    fn write_back(&mut self, disk: u32) {
        let over = self.dirty() > self.share_of_memory(BACKGROUND);
        let w = &mut self.writers[disk as usize];
        w.flushes |= over;
        while w.dirty_bytes > 0 && (w.flushes || w.all || w.phase == Phase::Syncs) {
            let d = &mut self.disks[disk as usize];
            if d.writes() as usize >= d.writes_max() {
                break;
            }
            let Some(range) = w.dirty.front_mut() else { break };
            let (from, to) = (range.0, range.1.min(range.0 + CHUNK));
            range.0 = to;
            if range.0 == range.1 {
                w.dirty.pop_front();
            }
            w.dirty_bytes -= to - from;
            w.in_flight += to - from;
            w.dirty_since = self.now;
            let waiter = Waiter::Writer(disk, Written::Data);
            d.write(self.now, w.local, (from, to), w.sync_thread(disk), waiter);
        }
        w.all &= w.dirty_bytes > 0;
        self.pump(disk);
    }

    /// A request of the writer is done.
    pub(super) fn written(&mut self, disk: u32, what: Written, bytes: u64) {
        if what == Written::Data {
            let w = &mut self.writers[disk as usize];
            w.in_flight = w.in_flight.saturating_sub(bytes);
            if self.dirty() <= self.share_of_memory(BACKGROUND) {
                self.writers[disk as usize].flushes = false;
            }
            self.write_back(disk);
            if self.writers[disk as usize].phase == Phase::Throttled {
                self.writers[disk as usize].phase = Phase::Writes;
                self.plan(self.now, Ev::Write(disk));
            }
        }
        self.sync_on(disk);
    }

    /// The next step of an fsync, if the one before is done.
    fn sync_on(&mut self, disk: u32) {
        let now = self.now;
        loop {
            let w = &mut self.writers[disk as usize];
            let thread = WRITER_THREAD + disk;
            let waiter = Waiter::Writer(disk, Written::Commit);
            match w.phase {
                Phase::Writes | Phase::Throttled => return,
                Phase::Syncs if w.dirty_bytes + w.in_flight > 0 => return,
                Phase::Syncs | Phase::Flush => {
                    let record = w.phase == Phase::Flush;
                    let blocks = if record { 1 } else { JOURNAL_BLOCKS };
                    w.phase = if record { Phase::Record } else { Phase::Journal };
                    let block = w.journal_at % (JOURNAL - JOURNAL_BLOCKS);
                    w.journal_at = block + blocks;
                    self.disks[disk as usize].write_journal(now, (block, blocks), thread, waiter);
                    return self.pump(disk);
                }
                Phase::Journal | Phase::Record => {
                    let record = w.phase == Phase::Record;
                    w.phase = if record { Phase::Committed } else { Phase::Flush };
                    if self.disks[disk as usize].flush(now, thread, waiter) {
                        return self.pump(disk);
                    }
                }
                Phase::Committed => break,
            }
        }
        let measures = self.record.measures(self.now);
        let w = &mut self.writers[disk as usize];
        w.phase = Phase::Writes;
        if measures {
            w.fsyncs.saturating_record((now.since(w.sync_began).0 / 1000).max(1));
        }
        let due = w.start + Nanos::from_secs_f64(w.written as f64 / w.load.rate.max(1.0));
        self.plan(due.max(now + self.config.costs.wake), Ev::Write(disk));
    }

    /// The engine's driver looks at what waits to be written, as the daemon does.
    pub(super) fn see_writes(&mut self, disk: u32) {
        let (now, e) = (self.now, self.engine_of(disk));
        let (queued, in_flight) = self.engines[e as usize].policy.load();
        let in_turn = queued > 0 && in_flight == 0;
        self.plan(now + if in_turn { SEE_IN_TURN } else { SEE }, Ev::SeeWrites(disk));
        let (waiting, bytes, flushed) = self.disks[disk as usize].look_at_writes();
        let w = &mut self.writers[disk as usize];
        w.untold += bytes;
        w.flushed = if flushed { Some(now) } else { w.flushed };
        let synced = w.flushed.is_some_and(|at| now < at + SYNCED);
        let (told, at) = w.told;
        let changed = (waiting > 0, synced) != (told.waiting > 0, told.synced);
        let progress = w.untold > 0 && now >= at + PROGRESS;
        if changed || progress || (waiting > 0 && now >= at + Nanos(WRITES_BELIEVED.0 / 2)) {
            let writes = Writes { waiting, synced, bytes: std::mem::take(&mut w.untold) };
            w.told = (writes, now);
            self.tell(e, Event::Writes(writes));
        }
    }

    /// What the writers had since the warm-up.
    pub(super) fn writer_report(&self, write_ns: u64) -> Option<WriterReport> {
        let load = self.config.writer?;
        let seconds = self.now.since(self.config.warmup).as_secs_f64().max(1e-9);
        let mut fsyncs = Histogram::<u64>::new_with_max(FSYNC_MAX_US, 3).expect("constant bounds are valid");
        for w in &self.writers {
            // The one under way counts for as long as it has taken: nothing that hangs may look short.
            fsyncs += &w.fsyncs;
            if !matches!(w.phase, Phase::Writes | Phase::Throttled) {
                fsyncs.saturating_record((self.now.since(w.sync_began).0 / 1000).max(1));
            }
        }
        let ms = |q: f64| if fsyncs.is_empty() { 0.0 } else { fsyncs.value_at_quantile(q) as f64 / 1e3 };
        let mb_per_s = self.writers.iter().map(|w| w.counted).sum::<u64>() as f64 / 1e6 / seconds;
        let asked = load.rate / 1e6 * self.writers.len() as f64;
        Some(WriterReport {
            mb_per_s,
            asked_mb_per_s: asked,
            of_asked: mb_per_s / asked.max(1e-9),
            fsyncs: fsyncs.len(),
            fsync_p50_ms: ms(0.5),
            fsync_p99_ms: ms(0.99),
            fsync_max_ms: ms(1.0),
            disk_share: write_ns as f64 / 1e9 / seconds / self.writers.len().max(1) as f64,
        })
    }
}
