//! The engine of one disk: it takes every decision about the disk, and carries out none.
//!
//! ```text
//!  Request, Access --> streams (what is read where, how fast) --> pieces, in time --> DiskQueue --> Read
//!                                                                                          (order)
//!  Found, Progress, Done --> extents (what is in memory, and why) --> Drop, Probe
//!  MemoryLimit, evictions --> memory (the budget)
//! ```
//!
//! | file | idea |
//! | --- | --- |
//! | `engine/misses.rs` | requests: pieces, waits, answers |
//! | `engine/by_kernel.rs` | reads of the kernel's: what is read directly behind them |
//! | `engine/follow.rs` | streams: their positions, when their next piece is due |
//! | `engine/lengths.rs` | length of a piece: size, bitrates, share of memory |
//! | `engine/file_sets.rs` | file sets: ranges requested, and ranges in memory and not taken |
//! | `engine/resident.rs` | memory: arrivals, evictions, bytes dropped |
//! | `engine/foresight.rs` | memory by next use: what leaves when memory is full |
//! | `engine/quiet.rs` | long reads and long pauses, for a disk that may stop |

mod by_kernel;
mod file_sets;
mod follow;
mod foresight;
mod lengths;
mod misses;
mod quiet;
mod resident;

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use seekless_base::{Bytes, Nanos};

use crate::config::IN_FLIGHT_MAX;
use crate::disk_order::DiskOrder;
use crate::disk_queue::DiskQueue;
use crate::drops::Drops;
use crate::extents::Extents;
use crate::files::Files;
use crate::holes::Holes;
use crate::memory::{Memory, Seen};
use crate::profile::{DiskProfile, LoadTrial};
use crate::service::ServiceModel;
use crate::sizing::controller::DiskClock;
use crate::sizing::{AsAsked, start_size};
use crate::writers::Writers;
use crate::{Action, Config, Event, FileId, PrefetchSize, Reason, Sizing, Stats, StreamId, Verdict};
use file_sets::Awaited;
use follow::Following;
pub use misses::LEFT_ALONE;
use quiet::Quiet;

/// Bound on the ranges in one list: the map of extents, hints for the driver, ranges to give back again.
/// Beyond it the oldest range or the newest hint is dropped. The map has room for four ranges of each stream
/// if that is more: 10 MB in the worst case.
pub(crate) const RANGES_MAX: usize = 16_384;

/// The engine of one disk. The crate's documentation states the contract of its driver.
pub struct DiskEngine {
    config: Config,
    now: Nanos,
    queue: DiskQueue,
    size: Box<dyn PrefetchSize + Send>,
    extents: Extents<FileId>,
    memory: Memory,
    files: Files,
    /// Empty if the engine reads on a miss only.
    following: Following,
    /// Ranges that file sets have requested and not taken.
    awaited: Awaited,
    /// Whether small files are missed in disk order.
    disk_order: DiskOrder,
    drops: Drops,
    /// Hints for the driver; answers and reads are kept elsewhere.
    hints: VecDeque<Action>,
    /// The stream whose memory was probed last.
    probed: Option<StreamId>,
    /// Finds by trial how many pieces the device takes at once; `None` if that is known.
    trial: Option<LoadTrial>,
    /// While set, nothing is read ahead ([`Event::Rest`]).
    rests: bool,
    clock: DiskClock,
    /// When the sizing algorithm is next updated.
    next_look: Nanos,
    /// What a read costs on this disk.
    service: ServiceModel,
    quiet: Quiet,
    stats: Stats,
}

impl DiskEngine {
    /// A new engine for an idle disk. Values of `config` out of range are brought into it.
    pub fn new(config: Config) -> DiskEngine {
        let mut config = config.normalised();
        // The profile of an unmeasured disk of any size: its distances become shares of this size.
        let profile = config.profile.clone().unwrap_or_else(|| DiskProfile::assumed(1 << 31));
        let ahead = config.ahead.clone().filter(|_| config.follows()).unwrap_or_default();
        let memory = Memory::new(&ahead, config.memory, config.constants);
        if let Sizing::Auto(params) = &mut config.sizing {
            let model = || start_size(Bytes(memory.budget()), params);
            params.start_size = config.start_size.unwrap_or_else(model);
        }
        let size: Box<dyn PrefetchSize + Send> = match config.mode.prefetches() {
            true => {
                config.sizing.build(config.prefetch, config.read_max, &config.scale, config.profile.as_ref())
            }
            false => Box::new(AsAsked),
        };
        let files_max = if config.follows() { ahead.files_max } else { config.queue_max };
        let service = ServiceModel::new(&profile, size.full(None, 0.0));
        DiskEngine {
            now: Nanos::ZERO,
            queue: DiskQueue::new(&config),
            size,
            extents: Extents::new(RANGES_MAX),
            memory,
            files: Files::new(config.open_after_use(), files_max),
            following: Following::new(ahead, config.bitrate, profile.mean_depth()),
            awaited: Awaited::default(),
            disk_order: DiskOrder::default(),
            drops: Drops::default(),
            hints: VecDeque::new(),
            probed: None,
            trial: (config.find_in_flight && config.mode.serialises()).then(LoadTrial::default),
            rests: false,
            clock: DiskClock::default(),
            next_look: Nanos::ZERO,
            service,
            quiet: Quiet::default(),
            stats: Stats::default(),
            config,
        }
    }

    /// The settings in force.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Takes in an event. `now` must not run backwards; an earlier time counts as no time passed.
    pub fn handle(&mut self, now: Nanos, event: Event) {
        self.now = self.now.max(now);
        self.clock.pass(self.now);
        self.queue.pass(self.now, !self.following.by_kernel.is_empty());
        self.extents.ranges_max = RANGES_MAX.max(4 * self.following.table.len());
        match event {
            Event::Request(request) => self.request(request),
            Event::Opened { file } => self.opened(file),
            Event::Leave { file } => self.leave(file),
            Event::Hole { file, from, upto } if self.files.is_open(file) => {
                self.following.table.change_holes(file, |holes| holes.add(file, from, upto));
            }
            Event::Written { file, from, upto } => {
                self.following.table.change_holes(file, |holes| holes.remove(file, from, upto));
            }
            Event::Access(access) => self.access(access),
            Event::Missing { file, offset, len } => {
                self.found_missing(file, offset, offset.saturating_add(len));
            }
            Event::ReadByKernel(read) => self.read_by_kernel(read),
            Event::Took { request, read } => self.took(request, read),
            Event::Bitrate { file, bytes_per_s } => self.files.told_bitrate(file, bytes_per_s),
            Event::MemoryLimit(limit) if self.rests => self.memory.machine(limit),
            Event::MemoryLimit(limit) => {
                let seen = Seen {
                    reads: self.stats.reads,
                    bytes_read: self.stats.bytes_read,
                    blocked: self.queue.blocked_time,
                };
                let streams = self.following.table.len();
                self.memory.limit(self.now, limit, seen, self.unread().0, streams);
                self.probe();
            }
            Event::Rest(rests) => self.leave_to_readers(rests),
            Event::InFlight(pieces) => {
                self.trial = None;
                self.bears(pieces);
            }
            Event::Writes(writes) => self.queue.writes(self.now, writes),
            Event::Cancel(id) => self.queue.answer(self.now, id, Verdict::Pass(Reason::Cancelled)),
            Event::Found { read, from, upto } => self.found(read, from, upto),
            Event::Progress { read, upto } => self.progress(read, upto),
            Event::Done { read, outcome } => self.done(read, outcome),
            Event::Hole { .. } | Event::Tick => {}
        }
        self.queue.give_up(&self.config, self.now);
        self.settle();
        self.expire_streams();
        self.confirm_taken();
        self.drop_again();
        self.note_evictions();
        self.extents.forget_beyond_bound();
        self.make_room();
        self.read_ahead();
        self.close_files();
        let (queued, in_flight) = self.queue.load();
        self.clock.state(in_flight, queued);
        self.look_at_size();
    }

    /// The next action, `None` if there is nothing to do until the next event.
    pub fn poll_action(&mut self) -> Option<Action> {
        if let Some((request, verdict)) = self.queue.next_answer() {
            return Some(Action::Answer { request, verdict });
        }
        if let Some(hint) = self.hints.pop_front() {
            return Some(hint);
        }
        let joins = self.joins();
        let piece = self.queue.next_read(&self.config, self.now, joins)?;
        let (id, file, offset, len, lba) = (piece.id, piece.file, piece.start, piece.len(), piece.lba);
        self.stats.reads += 1;
        self.stats.bytes_read += len;
        self.size.submitted(lba, len);
        self.extents.read_submitted(file, offset, offset + len);
        let (queued, in_flight) = self.queue.load();
        self.clock.state(in_flight, queued);
        self.quiet.began(self.now, id, in_flight);
        self.stats.in_flight_max = self.stats.in_flight_max.max(in_flight);
        Some(Action::Read { id, file, offset, len, lba })
    }

    /// When to send [`Event::Tick`] if no other event comes first.
    pub fn next_deadline(&self) -> Option<Nanos> {
        let stream_over = self.following.table.next_expiry();
        // Without reads, or while nothing is learnt from them, no size changes.
        let idle = self.queue.load() == (0, 0) && stream_over.is_none();
        let size = self.size.next_deadline().filter(|_| !idle && !self.rests);
        let due = [
            self.queue.next_expiry(),
            self.queue.writers_turn_ends(),
            stream_over,
            size,
            self.next_piece_due(),
            self.following.next_taken(),
            self.drops.next_ripe(),
            self.files.next_expiry(),
        ];
        due.into_iter().flatten().min()
    }

    /// Counters and current state.
    pub fn stats(&self) -> Stats {
        let mut stats = self.stats.clone();
        stats.waiting = self.queue.blocked();
        (stats.queued, stats.in_flight) = self.queue.load();
        stats.at_once = self.at_once();
        stats.ledger = self.extents.totals();
        stats.disk_time = self.clock.disk_time();
        stats.size = self.size.report();
        (stats.pauses, stats.spin_ups) = (self.quiet.pauses, self.quiet.spin_ups);
        stats.file_sets.disk_time = self.queue.time_of_file_sets();
        stats.writers = self.queue.writers.as_ref().map(Writers::stats).unwrap_or_default();
        stats.file_sets.bytes_untaken = self.awaited.bytes;
        if self.config.follows() {
            stats.streams = self.following.table.len();
            stats.bytes_unread = self.following.table.unread().saturating_add(self.awaited.bytes);
            stats.memory = self.memory.report(self.extents.occupied());
            stats.budget = self.memory.budget();
            stats.gives_back = self.memory.is_short();
        }
        stats
    }

    /// Number of reads in flight.
    pub fn in_flight(&self) -> usize {
        self.queue.load().1
    }

    /// Number of queued pieces, and of reads in flight.
    pub fn load(&self) -> (usize, usize) {
        self.queue.load()
    }

    /// Starts or stops leaving the disk to its readers ([`Event::Rest`]).
    fn leave_to_readers(&mut self, rests: bool) {
        match (self.rests, rests) {
            (false, true) => self.queue.pass_all(self.now),
            (true, false) => self.memory.answer_for_all(self.now),
            _ => {}
        }
        self.rests = rests;
    }

    /// Sets the number of pieces in flight on each part of the device.
    fn bears(&mut self, pieces: usize) {
        self.config.in_flight = pieces.clamp(1, IN_FLIGHT_MAX);
    }

    /// Pieces in flight on each part of the device, as far as is known.
    fn at_once(&self) -> usize {
        self.trial.as_ref().map_or(self.config.in_flight, LoadTrial::found)
    }

    /// Most reads that join the kernel's own: one for each client that the kernel reads for now, and at least
    /// one. A piece is one among as many that wait for the disk. With fewer, pieces come too late; with more,
    /// they hinder one another.
    fn joins(&self) -> usize {
        if self.config.follows() { self.following.by_kernel.len().clamp(1, IN_FLIGHT_MAX) } else { 1 }
    }

    /// Pieces in flight on the whole device.
    fn spindles(&self) -> usize {
        self.at_once() * (self.config.parts.len() + 1)
    }

    /// Queues a hint for the driver. Returns `false` and drops it if the driver does not keep up.
    fn hint(&mut self, action: Action) -> bool {
        let room = self.hints.len() < RANGES_MAX;
        if room {
            self.hints.push_back(action);
        }
        room
    }

    fn opened(&mut self, file: FileId) {
        // The file was closed a moment ago and the driver has not polled that yet.
        if !self.files.is_open(file) {
            self.hints.retain(|action| *action != Action::Close { file });
        }
        let queue = &self.queue;
        if let Some(other) = self.files.opened(self.now, file, |file| queue.uses(file)) {
            self.close(other);
        }
    }

    fn close_files(&mut self) {
        while let Some(file) = self.files.expire(self.now, |file| self.queue.uses(file)) {
            self.close(file);
        }
    }

    /// The holes of open files.
    fn holes(&self) -> &Holes {
        self.following.table.holes()
    }

    /// The driver is to close a file. Its bytes may leave memory together with its blocks, which does not
    /// count as eviction.
    fn leave(&mut self, file: FileId) {
        if !self.files.is_open(file) {
            return;
        }
        self.queue.leave(file);
        self.settle();
        self.files.leave(self.now, file);
        for stream in self.cancel_expected(file, 0, u64::MAX) {
            self.line_up(stream);
        }
        self.extents.abandon_uncounted(file, 0, u64::MAX, &[]);
    }

    /// Tells the driver to close a file.
    fn close(&mut self, file: FileId) {
        self.following.table.change_holes(file, |holes| holes.forget(file));
        self.forget_awaited(file);
        self.hints.push_back(Action::Close { file });
    }

    /// Bytes that no client has read, in memory, in flight or queued ahead; and queued bytes that block
    /// clients.
    fn unread(&self) -> (u64, u64) {
        let fetched = self.following.table.unread().saturating_add(self.awaited.bytes);
        let queued = self.queue.queued_for_blocked();
        (fetched.saturating_sub(queued), queued)
    }

    /// The bytes that the budget bounds: unread bytes, plus queued bytes that are expected to lie unread.
    fn budgeted(&self) -> u64 {
        let (unread, queued) = self.unread();
        unread.saturating_add(self.memory.filled(queued))
    }
}
