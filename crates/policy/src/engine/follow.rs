//! Streams: where they got to, and when their next piece is due.
//!
//! A stream is fetched in pieces. While it reads one, the next is queued as soon as what is left would last
//! only as long as the disk may take to come round to it: the trigger. Streams are served in the order in
//! which they run dry.
//!
//! - The *budget* bounds the fetched and unread bytes of the whole disk. Over it, streams are held back and
//!   served in the same order; a blocked client is served all the same.
//! - *Early* pieces: a disk with nothing better to do, and memory to spare, fetches for the streams that run
//!   dry next. Clients that came together would run dry together.
//!
//! What another stream of the same file has in memory ahead of itself is not fetched again: a stream counts
//! on it, and its pieces end where that begins.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use seekless_units::{Bytes, Nanos};

use super::DiskEngine;
use super::lengths::PieceLen;
use crate::by_time::ByTime;
use crate::constants::time;
use crate::piece::{Plan, Turn, Wanted, address};
use crate::spindle::NewPiece;
use crate::stream::TIME_CONSTANT_S;
use crate::{Access, AheadConfig, EndEvidence, FileId, PAGE, Stream, StreamId, Streams, Taken};

/// What is kept to read ahead of need.
pub(super) struct Following {
    pub(super) config: AheadConfig,
    pub(super) table: Streams,
    /// Streams whose next piece is not queued yet, by when they run dry.
    upcoming: ByTime<StreamId>,
    /// Streams of which it is not known how much of their last read they took, by when they have taken all of
    /// it.
    taking: ByTime<StreamId>,
    /// Streams whose client the kernel reads for now, as far as it was heard.
    pub(super) by_kernel: BTreeSet<StreamId>,
    /// When the highest bitrate was last looked for, and what it was, bytes a second.
    pub(super) ranked: Nanos,
    pub(super) highest_bitrate: f64,
    /// What a stream reads on the mean, bytes a second, as of then.
    pub(super) mean_rate: f64,
    /// Streams that were not known to have stopped then.
    pub(super) active: usize,
}

impl Following {
    pub(super) fn new(config: AheadConfig, bitrate: Option<u64>, depth: Bytes) -> Following {
        Following {
            table: Streams::new(config.streams.clone(), depth).with_slack(config.slack),
            config,
            upcoming: ByTime::default(),
            taking: ByTime::default(),
            by_kernel: BTreeSet::new(),
            ranked: Nanos::ZERO,
            highest_bitrate: bitrate.unwrap_or(0) as f64,
            mean_rate: 0.0,
            active: 0,
        }
    }

    /// When a stream has taken all of its last read.
    pub(super) fn next_taken(&self) -> Option<Nanos> {
        Some(self.taking.first()?.0)
    }

    /// A stream is over: no piece of it is to come.
    fn forget(&mut self, stream: StreamId) {
        self.upcoming.remove(stream);
        self.taking.remove(stream);
        self.by_kernel.remove(&stream);
    }
}

/// Where the next page begins, at the offset itself or after it.
pub(super) fn next_page(offset: u64) -> u64 {
    offset.min(i64::MAX as u64).next_multiple_of(PAGE)
}

impl DiskEngine {
    /// Notes where a stream got to, and whether its next piece is due.
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
        following.by_kernel.remove(&stream);
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
        self.unpin_passed(file, offset, end);
        self.line_up(stream);
    }

    /// The stream an access belongs to, moved on; `None` where streams are not followed. A stream that made
    /// room for it is over.
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

    /// Reads whose end was not reported, and that nothing followed, have taken all they named. But doors that
    /// hear of reads before they are done hear of whole pages: the next one may begin in the last of them,
    /// unless the file ends there.
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

    /// Forgets a stream that has read its file to the end.
    fn end_if_done(&mut self, stream: StreamId) {
        if self.following.table.get(stream).is_some_and(Stream::at_end) {
            self.following.forget(stream);
            if let Some(over) = self.following.table.end(stream) {
                self.stream_ended(&over);
            }
        }
    }

    pub(super) fn expire_streams(&mut self) {
        let spindle = &self.spindle;
        let waits = |s: &Stream| spindle.is_under_way(s.file, s.position, s.position.saturating_add(PAGE));
        self.following.table.note_stopped(self.now, waits);
        while let Some((id, over)) = self.following.table.expire(self.now) {
            self.following.forget(id);
            self.stats.bytes_wasted += self.following.table.unread_of(&over);
            self.stream_ended(&over);
            self.spindle.forget_stream(id);
            self.settle();
        }
    }

    pub(super) fn fetched(&mut self, stream: Option<StreamId>, upto: u64) {
        if let Some(stream) = stream {
            self.following.table.fetched(stream, upto);
        }
    }

    /// Puts a stream in line for its next piece, or takes it out. When it runs dry, and what is said of the
    /// piece.
    pub(super) fn line_up(&mut self, stream: StreamId) -> Option<(Nanos, PieceLen)> {
        self.following.table.share(stream);
        let next = self.following.table.get(stream).and_then(|reader| self.runs_dry(reader));
        match next {
            Some((dry, _)) => self.following.upcoming.set(stream, dry),
            None => self.following.upcoming.remove(stream),
        }
        next
    }

    /// When a stream runs dry, as of its last read: what it asks for in one go it uses in the time until the
    /// next. With that, what the sizing algorithm says of its next piece. `None` while there is nothing to
    /// read ahead for it: it is quiet, not sequential, fetched to its end, before bytes that could not be
    /// read, or has two pieces ahead of it (how fast it reads is not known from its first burst), or half of
    /// one where nothing says how far it goes. Nor is there while its file is closed, which happens to files
    /// in use when there are too many.
    fn runs_dry(&self, stream: &Stream) -> Option<(Nanos, PieceLen)> {
        let quiet = self.now.since(stream.last) > time(self.config.constants.quiet_s);
        let next = self.next_start(stream);
        let fetched = next >= next_page(stream.file_size);
        let sequential = stream.is_sequential(&self.following.config.streams);
        let readable = self.files.stays(stream.file) && !stream.meets_failure();
        if quiet || fetched || !sequential || !readable {
            return None;
        }
        let len = self.piece_len(stream);
        // What lies behind a hole is not far ahead of it either.
        let hole = next.saturating_sub(next_page(stream.fetched));
        let ahead = stream.unread().saturating_add(hole);
        let enough = match self.starts_slowly(stream) {
            true => ahead >= len.full / 2,
            false => ahead >= len.full.saturating_mul(2),
        };
        (!enough && len.full >= PAGE).then(|| (stream.runs_dry(stream.last, len.bitrate), len))
    }

    /// Where the next piece of a stream begins. Rounded up: a page that is partly fetched is fetched.
    fn next_start(&self, stream: &Stream) -> u64 {
        self.holes().data_from(stream.file, next_page(stream.fetched))
    }

    /// How long before a stream runs dry its next piece is due: the disk has to get through what is in line,
    /// as many at a time as it is given.
    fn lead(&self) -> Nanos {
        let (queued, in_flight) = self.spindle.load();
        let pieces = (queued + in_flight) as u64;
        let backlog = Nanos(self.service.mean().0.saturating_mul(pieces) / self.spindles() as u64);
        backlog + backlog + self.following.config.slack
    }

    /// When the next piece may be queued. What is due already was tried and has to wait for room.
    pub(super) fn next_piece_due(&self) -> Option<Nanos> {
        if self.rests {
            return None;
        }
        let (dry, _) = self.following.upcoming.first()?;
        let at = |before: Nanos| Some(dry.since(before)).filter(|&at| at > self.now);
        at(time(TIME_CONSTANT_S)).or_else(|| at(self.lead()))
    }

    /// The stream whose next piece is queued first: the one that runs dry first. Where a piece is what a
    /// switch is worth and a call is blocked, it is one whose piece goes on where another ends that is being
    /// read, or on which a call is blocked. Any other would make the blocked call wait for a switch before it
    /// is known whether its client comes so far.
    fn next_ahead(&self) -> Option<StreamId> {
        let following = &self.following;
        let (_, first) = following.upcoming.first()?;
        if self.size.end_evidence() < EndEvidence::Lengths || !self.spindle.is_anybody_blocked() {
            return Some(first);
        }
        self.spindle.urgent().find_map(|piece| {
            let mut streams = following.table.of_file(piece.file);
            let goes_on =
                streams.find(|&(id, s)| s.fetched == piece.end && following.upcoming.time(id).is_some());
            goes_on.map(|(id, _)| id)
        })
    }

    /// Queues the next pieces of streams: those due and, while the queue is short and memory plentiful,
    /// others.
    pub(super) fn read_ahead(&mut self) {
        let most = if self.rests { 0 } else { self.config.constants.queue_ahead as usize };
        while let Some(stream) = self.next_ahead()
            && self.spindle.queued_ahead() < most
        {
            // Others may have fetched for it since.
            let Some((dry, len)) = self.line_up(stream) else { continue };
            if self.next_ahead() != Some(stream) {
                continue;
            }
            let due = dry.since(self.now) <= self.lead();
            let early = dry.since(self.now) <= time(TIME_CONSTANT_S)
                && self.spindle.load().0 < most
                && len.full <= self.share()
                && self.memory.has_to_spare(self.budgeted());
            if !due && !early {
                return;
            }
            let Some(piece) = self.next_piece(stream, len) else {
                self.stats.held_back += 1;
                return;
            };
            if !self.queue_ahead(stream, piece) {
                return;
            }
            // One early piece at a time: the next when it reads again.
            if !due {
                self.following.upcoming.remove(stream);
            }
        }
    }

    /// Start and end of a stream's next piece, in whole pages. `None` if the budget has no room.
    fn next_piece(&self, id: StreamId, len: PieceLen) -> Option<(u64, u64)> {
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
        // Where the whole piece finds no room half of it will do.
        let room = self.memory.budget().saturating_sub(self.budgeted()) / PAGE * PAGE;
        let least = end.checked_sub(start)?.min(len / 2);
        let end = end.min(start.saturating_add(room));
        (room >= least.max(1)).then_some((start, end))
    }

    /// Queues the parts of a piece that no other piece brings in; `false` if the queue is at its bound.
    fn queue_ahead(&mut self, stream: StreamId, (start, end): (u64, u64)) -> bool {
        let Some(reader) = self.following.table.get(stream) else { return false };
        let file = reader.file;
        let (anchor, read_max) = (reader.anchor, self.config.read_max.0);
        let Some(wanted) = Wanted::of(start, (end - start).min(read_max), end, read_max) else {
            return false;
        };
        let plan = Plan::lay(wanted, self.spindle.pieces_of(file), 0, read_max);
        if !self.spindle.has_room(&self.config, plan.create.len()) {
            return false;
        }
        for (start, end, _) in plan.create {
            self.stats.ahead += 1;
            let (lba, turn) = (anchor.map(|anchor| address(anchor, start)), Turn::AHEAD);
            let piece = NewPiece { file, start, end, lba, turn, ahead_for: Some(stream) };
            self.spindle.queue(piece, Vec::new());
        }
        self.fetched(Some(stream), wanted.end);
        true
    }

    /// The streams that count on the byte at `offset` being in memory.
    pub(super) fn counting_on(&self, file: FileId, offset: u64) -> Vec<StreamId> {
        // What lies before a stream's position had been read: another client begins close behind, or this one
        // reads again.
        let counting =
            self.following.table.of_file(file).filter(|(_, s)| (s.position..s.fetched).contains(&offset));
        counting.map(|(id, _)| id).collect()
    }
}
