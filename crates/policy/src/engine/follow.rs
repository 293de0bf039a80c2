//! Streams: their positions, and when their next piece is due.
//!
//! A stream is fetched in pieces. While it reads one, the next is queued at the trigger: as soon as what is
//! left would last only as long as the disk may take to come round to it. Streams are served in the order in
//! which they run dry.
//!
//! - The *budget* bounds the fetched and unread bytes of the whole disk. Over it, streams are held back and
//!   served in the same order; a blocked client is served all the same.
//! - *Early* pieces: a disk with nothing better to do, and memory to spare, fetches for the streams that run
//!   dry next. Otherwise clients that came together would run dry together.
//!
//! Bytes that another stream of the same file has in memory ahead of itself are not fetched again: a stream
//! counts on them, and its pieces end where they begin.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use seekless_base::{Bytes, Lba, Nanos};

use super::DiskEngine;
use super::lengths::PieceLen;
use crate::by_time::ByTime;
use crate::constants::time;
use crate::disk_queue::NewPiece;
use crate::piece::{Plan, Priority, Wanted, address};
use crate::stream::TIME_CONSTANT_S;
use crate::{Access, AheadConfig, EndEvidence, FileId, PAGE, Stream, StreamId, Streams, Taken};

/// The state that reading ahead needs.
pub(super) struct Following {
    pub(super) config: AheadConfig,
    pub(super) table: Streams,
    /// Streams whose next piece is not queued yet, by the time at which they run dry.
    upcoming: ByTime<StreamId>,
    /// Streams whose last read is unconfirmed, by the time at which they have taken all of it.
    taking: ByTime<StreamId>,
    /// Streams that the kernel reads for now, as far as was reported, and since when.
    pub(super) by_kernel: BTreeMap<StreamId, Nanos>,
    /// When the highest bitrate was last computed; below, its value in bytes a second.
    pub(super) ranked: Nanos,
    pub(super) highest_bitrate: f64,
    /// Mean rate of a stream at that time, bytes a second.
    pub(super) mean_rate: f64,
    /// Number of streams at that time that were not known to have stopped.
    pub(super) active: usize,
}

impl Following {
    pub(super) fn new(config: AheadConfig, bitrate: Option<u64>, depth: Bytes) -> Following {
        Following {
            table: Streams::new(config.streams.clone(), depth).with_slack(config.slack),
            config,
            upcoming: ByTime::default(),
            taking: ByTime::default(),
            by_kernel: BTreeMap::new(),
            ranked: Nanos::ZERO,
            highest_bitrate: bitrate.unwrap_or(0) as f64,
            mean_rate: 0.0,
            active: 0,
        }
    }

    /// When the next stream has taken all of its last read.
    pub(super) fn next_taken(&self) -> Option<Nanos> {
        Some(self.taking.first()?.0)
    }

    /// A stream has ended: removes it from all lists.
    fn forget(&mut self, stream: StreamId) {
        self.upcoming.remove(stream);
        self.taking.remove(stream);
        self.by_kernel.remove(&stream);
    }
}

/// The offset rounded up to a page.
pub(super) fn next_page(offset: u64) -> u64 {
    offset.min(i64::MAX as u64).next_multiple_of(PAGE)
}

impl DiskEngine {
    /// Records an access: the new position of its stream, and when its next piece is due.
    pub(super) fn access(&mut self, access: Access) {
        let Access { file, offset, len, file_size, lba, taken } = access;
        if !self.config.hears_hits() || !self.files.used(self.now, file) {
            return;
        }
        self.stats.accesses += 1;
        let end = offset.saturating_add(len).min(file_size.max(offset));
        self.extents.used(file, offset, end);
        if end == file_size {
            self.extents.beyond_end(file, end, next_page(end));
        }
        let Some(stream) = self.observe(file, offset, len, file_size) else { return };
        let following = &mut self.following;
        following.table.locate(stream, offset, lba);
        if let Some(since) = following.by_kernel.remove(&stream) {
            following.table.waited(self.now, self.now.since(since));
        }
        match taken {
            Taken::All => following.taking.remove(stream),
            Taken::Unknown => {
                let taking = following.table.get(stream).map_or(Nanos::MAX, |s| s.takes(self.now, len));
                let longest = time(self.config.constants.quiet_s);
                let after = taking.max(following.config.slack).min(longest);
                following.taking.set(stream, self.now + after);
            }
        }
        self.rank_bitrates();
        self.has_passed(stream, if taken == Taken::All { end } else { offset });
        self.line_up(stream);
    }

    /// Moves the stream of an access on, and returns it; `None` if streams are not followed. If the table was
    /// full, the stream that made room has ended.
    pub(super) fn observe(
        &mut self,
        file: FileId,
        offset: u64,
        len: u64,
        file_size: u64,
    ) -> Option<StreamId> {
        if !self.config.follows() {
            return None;
        }
        let (stream, forgotten) = self.following.table.observe(self.now, file, offset, len, file_size);
        if let Some((id, over)) = forgotten {
            self.following.forget(id);
            self.stream_ended(&over);
        }
        self.following.table.advised(stream, self.files.is_random(file));
        Some(stream)
    }

    /// A stream has read everything before `upto`.
    fn has_passed(&mut self, stream: StreamId, upto: u64) {
        self.following.table.passed(stream, upto);
        self.end_if_done(stream);
    }

    /// Confirms reads whose end was not reported and that no other read followed: they have taken their whole
    /// range. Doors that report reads before they are done report whole pages: the next read may begin in the
    /// last of these pages, unless the file ends there.
    pub(super) fn confirm_taken(&mut self) {
        while let Some(id) = self.following.taking.pop_due(self.now) {
            let Some(stream) = self.following.table.get(id) else { continue };
            let upto = match stream.position < stream.file_size {
                true => stream.position.saturating_sub(PAGE),
                false => stream.position,
            };
            self.has_passed(id, upto);
        }
    }

    /// Ends a stream that has read all it is to read.
    fn end_if_done(&mut self, stream: StreamId) {
        if self.following.table.get(stream).is_some_and(Stream::is_done) {
            self.following.forget(stream);
            if let Some(over) = self.following.table.end(stream) {
                self.stream_ended(&over);
            }
        }
    }

    pub(super) fn expire_streams(&mut self) {
        let queue = &self.queue;
        let waits = |s: &Stream| queue.is_under_way(s.file, s.position, s.position.saturating_add(PAGE));
        self.following.table.note_stopped(self.now, waits);
        while let Some((id, over)) = self.following.table.expire(self.now) {
            self.following.forget(id);
            self.stats.bytes_wasted += self.following.table.unread_of(&over);
            self.stream_ended(&over);
            self.queue.forget_stream(id);
            self.settle();
        }
    }

    pub(super) fn fetched(&mut self, stream: Option<StreamId>, upto: u64) {
        if let Some(stream) = stream {
            self.following.table.fetched(stream, upto);
        }
    }

    /// Puts a stream in line for its next piece, or takes it out. Returns when it runs dry, and the length of
    /// the piece.
    pub(super) fn line_up(&mut self, stream: StreamId) -> Option<(Nanos, PieceLen)> {
        self.following.table.share(stream);
        let next = self.following.table.get(stream).and_then(|reader| self.runs_dry(reader));
        match next {
            Some((dry, _)) => self.following.upcoming.set(stream, dry),
            None => self.following.upcoming.remove(stream),
        }
        next
    }

    /// When a stream runs dry, counted from its last read (it uses the bytes of one request in the time until
    /// the next), and the length of its next piece. `None` while there is nothing to read ahead for it: if it
    /// is quiet, not sequential, fetched to its end, or in front of bytes that could not be read; if it has
    /// two pieces ahead of it, because its rate is not known from its first burst; or half a piece, where
    /// nothing says how far it reads. `None` also while its file is closed, which happens to files in use
    /// when too many are open.
    fn runs_dry(&self, stream: &Stream) -> Option<(Nanos, PieceLen)> {
        let quiet = self.now.since(stream.last) > time(self.config.constants.quiet_s);
        let next = self.next_start(stream);
        let fetched = next >= next_page(stream.file_size);
        let sequential = stream.is_sequential();
        let readable = self.files.stays(stream.file) && !stream.meets_failure();
        // Behind everything else: others wait, and its piece would take a place among those read ahead.
        let behind = stream.io.idle && self.queue.load().0 > 0;
        if quiet || fetched || !sequential || !readable || behind {
            return None;
        }
        // Whoever announced random reads is not read ahead of while nothing is known of how far it reads: it
        // is only ever given as much as it has read.
        if stream.random && self.following.table.is_unknown(stream) {
            return None;
        }
        let len = self.piece_len(stream, stream.position.saturating_sub(1));
        // Bytes behind a hole are not far ahead of the stream either.
        let hole = next.saturating_sub(next_page(stream.fetched));
        let ahead = stream.unread().saturating_add(hole);
        let enough = match self.quiet_ahead(stream, &len) {
            // Between long reads every stream is in line: the first that runs dry wakes the disk.
            Some(most) => self.quiet.bursting && ahead >= most,
            None if self.starts_slowly(stream) => ahead >= len.full / 2,
            None => ahead >= len.full.saturating_mul(2),
        };
        (!enough && len.full >= PAGE).then(|| (stream.runs_dry(stream.last, len.bitrate), len))
    }

    /// Start of the stream's next piece, rounded up to a page: a partly fetched page counts as fetched.
    fn next_start(&self, stream: &Stream) -> u64 {
        self.holes().data_from(stream.file, next_page(stream.fetched))
    }

    /// How long before a stream runs dry its next piece is due: the time for the disk to work through its
    /// queue, with as many reads at a time as it takes.
    fn lead(&self) -> Nanos {
        let (queued, in_flight) = self.queue.load();
        let pieces = (queued + in_flight) as u64;
        let backlog = Nanos(self.service.mean().0.saturating_mul(pieces) / self.spindles() as u64);
        backlog + backlog + self.following.config.slack + self.wake_up_time()
    }

    /// When the next piece may be queued. Streams that are due already have been tried and wait for room.
    pub(super) fn next_piece_due(&self) -> Option<Nanos> {
        if self.rests {
            return None;
        }
        let (dry, _) = self.following.upcoming.first()?;
        let at = |before: Nanos| Some(dry.since(before)).filter(|&at| at > self.now);
        let early = if self.is_quiet() { None } else { at(time(TIME_CONSTANT_S)) };
        early.or_else(|| at(self.lead()))
    }

    /// The stream whose next piece is queued first: the one that runs dry first. If the sizing algorithm
    /// uses [`EndEvidence::Lengths`] and a call is blocked, only a stream whose piece continues one that is
    /// being read, or on which a call is blocked. Any other piece would make the blocked call wait for a
    /// switch before it is known whether its client reads that far.
    fn next_ahead(&self) -> Option<StreamId> {
        let following = &self.following;
        let (_, first) = following.upcoming.first()?;
        if self.size.end_evidence() < EndEvidence::Lengths || !self.queue.is_anybody_blocked() {
            return Some(first);
        }
        self.queue.urgent().find_map(|piece| {
            let mut streams = following.table.of_file(piece.file);
            let continuing =
                streams.find(|&(id, s)| s.fetched == piece.end && following.upcoming.time(id).is_some());
            continuing.map(|(id, _)| id)
        })
    }

    /// Queues the next pieces of streams: those that are due and, while the queue is short and memory
    /// plentiful, others.
    pub(super) fn read_ahead(&mut self) {
        let most = if self.rests { 0 } else { self.config.constants.queue_ahead as usize };
        let quiet = self.is_quiet();
        while let Some(stream) = self.next_ahead()
            && self.queue.queued_ahead() < most
        {
            // Another stream may have fetched for it since.
            let Some((dry, len)) = self.line_up(stream) else { continue };
            if self.next_ahead() != Some(stream) {
                continue;
            }
            let due = dry.since(self.now) <= self.lead();
            let soon = match quiet {
                true => self.quiet.bursting,
                false => dry.since(self.now) <= time(TIME_CONSTANT_S) && len.full <= self.share(),
            };
            let early = soon
                && !self.queue.do_writes_wait()
                && self.queue.load().0 < most
                && self.memory.has_to_spare(self.budgeted());
            if !due && !early {
                return self.end_burst();
            }
            let Some(piece) = self.next_piece(stream, len) else {
                self.stats.held_back += 1;
                return self.end_burst();
            };
            if !self.queue_ahead(stream, piece, Priority::AHEAD) {
                return;
            }
            // One early piece at a time: the next when the stream reads again.
            if !due && !quiet {
                self.following.upcoming.remove(stream);
            }
        }
        self.end_burst();
    }

    /// Start and end of a stream's next piece, in whole pages. `None` if the budget has no room.
    pub(super) fn next_piece(&self, id: StreamId, len: PieceLen) -> Option<(u64, u64)> {
        let streams = &self.following.table;
        let stream = streams.get(id)?;
        let start = self.next_start(stream);
        let len = self.piece_max(stream, len);
        let end = start.saturating_add(len).min(next_page(stream.file_size));
        let end = self.holes().next(stream.file, start).map_or(end, |hole| end.min(hole));
        let end = match streams.next_fetched(id, start) {
            Some(next) => end.min(next.max(start + PAGE) / PAGE * PAGE),
            None => end,
        };
        // If the budget has no room for the whole piece, half is enough.
        let room = self.memory.budget().saturating_sub(self.budgeted()) / PAGE * PAGE;
        let least = end.checked_sub(start)?.min(len / 2);
        let end = end.min(start.saturating_add(room));
        (room >= least.max(1)).then_some((start, end))
    }

    /// Queues the parts of a piece that no other piece brings in. Returns `false` if the queue is full.
    pub(super) fn queue_ahead(
        &mut self,
        stream: StreamId,
        (start, end): (u64, u64),
        priority: Priority,
    ) -> bool {
        let Some(reader) = self.following.table.get(stream) else { return false };
        let file = reader.file;
        let (anchor, read_max, io) = (reader.anchor, self.config.read_max.0, reader.io);
        let Some(wanted) = Wanted::of(start, (end - start).min(read_max), end, read_max) else {
            return false;
        };
        let Plan { create, .. } = Plan::lay(wanted, self.queue.pieces_of(file), 0, read_max);
        let queued = self.enqueue_ahead(file, create, anchor, Priority { io, ..priority }, Some(stream));
        if queued {
            self.fetched(Some(stream), wanted.end);
        }
        queued
    }

    /// Queues the new pieces of a plan, for no request. `anchor` is a place in the file and its address.
    /// Returns `false` if the queue is full.
    pub(super) fn enqueue_ahead(
        &mut self,
        file: FileId,
        create: Vec<(u64, u64, u64)>,
        anchor: Option<(u64, Lba)>,
        priority: Priority,
        ahead_for: Option<StreamId>,
    ) -> bool {
        let room = self.queue.has_room(&self.config, create.len());
        for (start, end, _) in create.into_iter().filter(|_| room) {
            self.stats.ahead += 1;
            let lba = anchor.map(|anchor| address(anchor, start));
            self.queue.enqueue(NewPiece { file, start, end, lba, priority, ahead_for }, Vec::new());
        }
        room
    }

    /// The streams that expect the byte at `offset` to be in memory.
    pub(super) fn counting_on(&self, file: FileId, offset: u64) -> Vec<StreamId> {
        // Bytes before a stream's position had been read: another client begins close behind, or this one
        // reads again.
        let counting =
            self.following.table.of_file(file).filter(|(_, s)| (s.position..s.fetched).contains(&offset));
        counting.map(|(id, _)| id).collect()
    }
}
