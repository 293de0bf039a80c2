//! The engine of one disk: everything that is decided about it, and nothing that is done.
//!
//! ```text
//!  Request, Access --> streams (what is read where, how fast) --> pieces, in time --> Spindle --> Read
//!                                                                                          (order)
//!  Found, Progress, Done --> extents (what is in memory, and why) --> Pin, Renew, Unpin, Drop, Probe
//!  MemoryLimit, evictions --> memory (the budget)
//! ```
//!
//! | file | idea |
//! | --- | --- |
//! | `engine/misses.rs` | what becomes of a request |
//! | `engine/follow.rs` | streams: where they got to, when their next piece is due |
//! | `engine/lengths.rs` | how long a piece is: size, bitrates, share of memory |
//! | `engine/file_sets.rs` | what file sets wait for, or have in memory and not taken |
//! | `engine/resident.rs` | what is in memory: arrivals, evictions, pins, what is given back |
//! | `engine/foresight.rs` | memory by next use: what leaves when it is full |

mod file_sets;
mod follow;
mod foresight;
mod lengths;
mod misses;
mod resident;

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use seekless_units::{Bytes, Nanos};

use crate::config::IN_FLIGHT_MAX;
use crate::drops::Drops;
use crate::extents::Extents;
use crate::files::Files;
use crate::holes::Holes;
use crate::memory::{Memory, Seen};
use crate::piece::Joins;
use crate::pins::Pins;
use crate::service::ServiceModel;
use crate::spindle::Spindle;
use crate::{Action, Config, Event, FileId, PrefetchSize, Reason, Sizing, Stats, StreamId, Verdict};
use file_sets::Awaited;
use follow::Following;
pub use misses::LEFT_ALONE;
use seekless_profile::{DiskProfile, LoadTrial};
use seekless_sizing::controller::DiskClock;
use seekless_sizing::{AsAsked, start_size};
use seekless_successors::DiskOrder;

/// Most ranges of bytes that are kept in one list: those of the map of extents, hints that wait for the
/// driver, ranges to be renewed, ranges to be given back again. Beyond, the oldest range or the newest hint
/// is left out. The map has room for four ranges of each stream, where that is more: 10 MB in the worst case.
pub(crate) const RANGES_MAX: usize = 16_384;

/// The engine of one disk. The crate's documentation has the contract of its driver.
pub struct DiskEngine {
    config: Config,
    now: Nanos,
    spindle: Spindle,
    size: Box<dyn PrefetchSize + Send>,
    extents: Extents<FileId>,
    memory: Memory,
    files: Files,
    /// Empty where it reads on a miss only.
    following: Following,
    /// What file sets have asked for and not taken.
    awaited: Awaited,
    /// Of small files that were missed.
    disk_order: DiskOrder,
    pins: Pins,
    drops: Drops,
    /// For the driver, beside answers and reads.
    hints: VecDeque<Action>,
    /// The stream whose memory was probed last.
    probed: Option<StreamId>,
    /// How many pieces the device bears at once, where that is not known.
    trial: Option<LoadTrial>,
    /// Nothing is read ahead of need ([`Event::Rest`]).
    rests: bool,
    clock: DiskClock,
    /// When the sizing algorithm next hears of what happened.
    next_look: Nanos,
    /// What reads cost.
    service: ServiceModel,
    stats: Stats,
}

impl DiskEngine {
    /// The engine of an idle disk. Values of `config` outside their range are brought into it.
    pub fn new(config: Config) -> DiskEngine {
        let mut config = config.normalised();
        // An unmeasured disk of any size: distances are then parts of this one.
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
        let bitrate = config.bitrate.filter(|_| config.follows());
        let service = ServiceModel::new(&profile, config.profile.is_some(), size.full(None, 0.0));
        DiskEngine {
            now: Nanos::ZERO,
            spindle: Spindle::new(&config),
            size,
            extents: Extents::new(RANGES_MAX),
            memory,
            files: Files::new(config.open_after_use(), files_max),
            following: Following::new(ahead, bitrate, profile.mean_depth()),
            awaited: Awaited::default(),
            disk_order: DiskOrder::default(),
            pins: Pins::default(),
            drops: Drops::default(),
            hints: VecDeque::new(),
            probed: None,
            trial: (config.find_in_flight && config.mode.serialises()).then(LoadTrial::default),
            rests: false,
            clock: DiskClock::default(),
            next_look: Nanos::ZERO,
            service,
            stats: Stats::default(),
            config,
        }
    }

    /// The settings in force.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Takes in what happened. `now` must not run backwards; if it does, it counts as no time having passed.
    pub fn handle(&mut self, now: Nanos, event: Event) {
        self.now = self.now.max(now);
        self.clock.pass(self.now);
        self.spindle.pass(self.now);
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
            Event::ReadByKernel { file, offset, len } => {
                self.left_to_client(file, offset, offset.saturating_add(len));
            }
            Event::Release { file, offset, len } => self.release(file, offset, offset.saturating_add(len)),
            Event::Took { request, read } => self.took(request, read),
            Event::Bitrate { file, bytes_per_s } => self.files.told_bitrate(file, bytes_per_s),
            Event::MemoryLimit(limit) if self.rests => self.memory.machine(limit),
            Event::MemoryLimit(limit) => {
                let seen = Seen {
                    reads: self.stats.reads,
                    bytes_read: self.stats.bytes_read,
                    blocked: self.spindle.blocked_time(),
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
            Event::Cancel(id) => self.spindle.answer(self.now, id, Verdict::Pass(Reason::Cancelled)),
            Event::Found { read, from, upto } => self.found(read, from, upto),
            Event::Gone { read, from, upto } => self.gone(read, from, upto),
            Event::Progress { read, upto } => self.progress(read, upto),
            Event::Done { read, outcome } => self.done(read, outcome),
            Event::Hole { .. } | Event::Tick => {}
        }
        self.spindle.give_up(&self.config, self.now);
        self.settle();
        self.expire_streams();
        self.confirm_taken();
        self.drop_again();
        self.note_evictions();
        self.make_room();
        self.read_ahead();
        self.close_files();
        let (queued, in_flight) = self.spindle.load();
        self.clock.state(in_flight, queued);
        self.look_at_size();
    }

    /// The next thing to do, `None` when there is nothing to do until the next event.
    pub fn poll_action(&mut self) -> Option<Action> {
        if let Some((request, verdict)) = self.spindle.next_answer() {
            return Some(Action::Answer { request, verdict });
        }
        if let Some(hint) = self.hints.pop_front() {
            return Some(hint);
        }
        let joins = self.joins();
        let piece = self.spindle.next_read(&self.config, self.now, joins)?;
        let (id, file, offset, len, lba) = (piece.id, piece.file, piece.start, piece.len(), piece.lba);
        self.stats.reads += 1;
        self.stats.bytes_read += len;
        self.size.submitted(lba, len);
        self.extents.read_submitted(file, offset, offset + len);
        let (queued, in_flight) = self.spindle.load();
        self.clock.state(in_flight, queued);
        self.stats.in_flight_max = self.stats.in_flight_max.max(in_flight);
        Some(Action::Read { id, file, offset, len, lba })
    }

    /// When to send [`Event::Tick`] if nothing else happens before.
    pub fn next_deadline(&self) -> Option<Nanos> {
        let stream_over = self.following.table.next_expiry();
        // While nothing happens, or nothing is learnt from it, no size changes.
        let idle = self.spindle.load() == (0, 0) && stream_over.is_none();
        let size = self.size.next_deadline().filter(|_| !idle && !self.rests);
        let due = [
            self.spindle.next_expiry(),
            stream_over,
            size,
            self.next_piece_due(),
            self.following.next_taken(),
            self.drops.next_ripe(),
            self.files.next_expiry(),
        ];
        due.into_iter().flatten().min()
    }

    /// Counters, and the state of now.
    pub fn stats(&self) -> Stats {
        let mut stats = self.stats.clone();
        stats.waiting = self.spindle.blocked();
        (stats.queued, stats.in_flight) = self.spindle.load();
        stats.at_once = self.at_once();
        stats.ledger = self.extents.totals();
        stats.disk_time = self.clock.disk_time();
        stats.size = self.size.report();
        stats.pinned_ranges = self.extents.pinned_ranges();
        stats.file_sets.disk_time = self.spindle.time_of_file_sets();
        stats.file_sets.bytes_untaken = self.awaited.bytes();
        if self.config.follows() {
            stats.streams = self.following.table.len();
            stats.bytes_unread = self.following.table.unread().saturating_add(self.awaited.bytes());
            stats.memory = self.memory.report(self.extents.occupied());
            stats.budget = self.memory.budget();
            stats.gives_back = self.memory.is_short();
        }
        stats
    }

    /// Reads in flight.
    pub fn in_flight(&self) -> usize {
        self.spindle.load().1
    }

    /// Begins or ends leaving the disk to its readers.
    fn leave_to_readers(&mut self, rests: bool) {
        match (self.rests, rests) {
            (false, true) => self.spindle.let_go(self.now),
            (true, false) => self.memory.answer_for_all(self.now),
            _ => {}
        }
        self.rests = rests;
    }

    /// From now on each part of the device has so many pieces at once.
    fn bears(&mut self, pieces: usize) {
        self.config.in_flight = pieces.clamp(1, IN_FLIGHT_MAX);
    }

    /// Pieces that each part of the device bears at once, as far as is known.
    fn at_once(&self) -> usize {
        self.trial.as_ref().map_or(self.config.in_flight, LoadTrial::found)
    }

    /// What may join reads of the kernel's: a piece for each client that it reads for now. A piece is one of
    /// as many that wait for the disk, so fewer come too late, and more hinder one another. The next miss
    /// waits behind them: together they are no more than the disk transfers in the slack of a stream.
    fn joins(&self) -> Joins {
        if !self.config.follows() {
            return Joins { pieces: 1, bytes: u64::MAX };
        }
        let bytes = self.service.transfers_in(self.following.config.slack).0;
        Joins { pieces: self.following.by_kernel.len().min(IN_FLIGHT_MAX), bytes }
    }

    /// Pieces that the whole device bears at once.
    fn spindles(&self) -> usize {
        self.at_once() * (self.config.parts.len() + 1)
    }

    /// A hint for the driver; left out when it does not keep up.
    fn hint(&mut self, action: Action) -> bool {
        let room = self.hints.len() < RANGES_MAX;
        if room {
            self.hints.push_back(action);
        }
        room
    }

    fn opened(&mut self, file: FileId) {
        // Closed a moment ago, and the driver has not heard of it.
        if !self.files.is_open(file) {
            self.hints.retain(|action| *action != Action::Close { file });
        }
        let spindle = &self.spindle;
        if let Some(other) = self.files.opened(self.now, file, |file| spindle.uses(file)) {
            self.close(other);
        }
    }

    fn close_files(&mut self) {
        while let Some(file) = self.files.expire(self.now, |file| self.spindle.uses(file)) {
            self.close(file);
        }
    }

    /// Where files have holes.
    fn holes(&self) -> &Holes {
        self.following.table.holes()
    }

    /// The driver is to let go of a file. What was fetched of it may leave memory with its blocks, which is
    /// no eviction.
    fn leave(&mut self, file: FileId) {
        if !self.files.is_open(file) {
            return;
        }
        self.spindle.leave(self.now, file);
        self.settle();
        self.files.leave(self.now, file);
        for stream in self.not_coming(file, 0, u64::MAX) {
            self.line_up(stream);
        }
        self.extents.abandon_uncounted(file, 0, u64::MAX, &[]);
    }

    /// The driver closes a file. What is pinned of it goes first.
    fn close(&mut self, file: FileId) {
        self.following.table.change_holes(file, |holes| holes.forget(file));
        self.forget_awaited(file);
        self.unpin(file, 0, u64::MAX, false);
        self.unpin_forgotten();
        self.hints.push_back(Action::Close { file });
    }

    /// Bytes in memory, in flight or queued ahead of need that no client has read; and those queued that
    /// clients are blocked on.
    fn unread(&self) -> (u64, u64) {
        let fetched = self.following.table.unread().saturating_add(self.awaited.bytes());
        let queued = self.spindle.queued_for_blocked();
        (fetched.saturating_sub(queued), queued)
    }

    /// What the budget bounds: bytes that no client has read, those that are still to come as full as they
    /// will be.
    fn budgeted(&self) -> u64 {
        let (unread, queued) = self.unread();
        unread.saturating_add(self.memory.filled(queued))
    }
}
