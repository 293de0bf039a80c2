//! Requests: each is laid over the pieces, waits for them, and is answered once.

use alloc::vec::Vec;

use seekless_base::wants::PIECE;
use seekless_base::{Lba, Nanos, SECTOR_BYTES};

use super::DiskEngine;
use crate::disk_queue::{Answered, Blocked, NewPiece};
use crate::piece::{Plan, Priority, Wanted, address};
use crate::sizing::Miss;
use crate::{
    Demand, EndEvidence, FileId, IoPriority, Mode, PAGE, Reason, Request, Stream, StreamId, Verdict,
};

/// How long a program that reads small files in disk order is left alone. At half, asking takes twice as much
/// of its time. At double, a stream that begins meanwhile competes with unordered reads for twice as long.
pub const LEFT_ALONE: Nanos = Nanos::from_millis(100);

/// How a miss is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MissAction {
    /// Read the range and what follows.
    ReadAhead,
    /// Read only the range.
    ReadAsAsked,
    /// Pass: the client reads for itself.
    PassThrough,
}

/// Where a client goes on after a miss, as far as is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It ends with this read.
    Here,
    /// It reads further.
    Beyond,
    /// It does not count as sequential, and nothing says how far such clients read.
    Unknown,
}

/// A byte that a reader misses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Missed {
    pub(super) file: FileId,
    /// Where its read began.
    pub(super) from: u64,
    pub(super) offset: u64,
    pub(super) file_size: u64,
    /// Disk address of `offset`, if known.
    pub(super) lba: Option<Lba>,
}

impl Missed {
    fn by(request: &Request) -> Missed {
        let Request { file, from, offset, file_size, lba, .. } = *request;
        Missed { file, from, offset, file_size, lba }
    }
}

/// The part of a request that is served; `None` if it lies beyond the end of its file.
fn wanted(request: &Request, read_max: u64) -> Option<Wanted> {
    Wanted::of(request.offset, request.len, request.file_size, read_max)
}

impl DiskEngine {
    pub(super) fn request(&mut self, request: Request) {
        self.stats.requests += 1;
        self.opened(request.file);
        if let Err(reason) = self.admit(&request) {
            self.queue.say(request.id, Verdict::Pass(reason));
            self.stats.answered(Verdict::Pass(reason));
            if let Some(wanted) = wanted(&request, self.config.read_max.0) {
                self.left_to_client(request.file, wanted.start, wanted.end);
            }
        }
    }

    /// Records that a client reads these bytes itself.
    pub(super) fn left_to_client(&mut self, file: FileId, start: u64, end: u64) {
        if self.config.hears_hits() {
            for (start, end) in self.holes().data(file, start, end) {
                self.extents.left_to_client(file, start, end);
            }
        }
    }

    /// Lays the request over the pieces. On an error nothing is queued.
    fn admit(&mut self, request: &Request) -> Result<(), Reason> {
        if matches!(self.config.mode, Mode::Off | Mode::Track) {
            return Err(Reason::Mode);
        }
        let read_max = self.config.read_max.0;
        let wanted = wanted(request, read_max).ok_or(Reason::BeyondEnd)?;
        if self.queue.is_blocked(request.id) {
            return Err(Reason::Duplicate);
        }
        if !self.queue.may_block(&self.config) {
            return Err(Reason::QueueFull);
        }
        if self.holes().cover(request.file, wanted.start, wanted.end) {
            if !request.demand.file_set {
                self.follow_miss(Missed::by(request), wanted.start);
            }
            self.stats.answered(Verdict::Resident);
            self.stats.wait.record(Nanos::ZERO);
            self.queue.say(request.id, Verdict::Resident);
            return Ok(());
        }
        if self.passes_in_disk_order(request) {
            return Err(Reason::DiskOrder);
        }
        let Demand { file_set, random, .. } = request.demand;
        // A file set has no stream.
        let stream = match file_set {
            true => None,
            false => {
                self.files.told_random(request.file, random);
                self.follow_miss(Missed::by(request), wanted.start)
            }
        };
        if let Some(stream) = stream {
            self.following.table.told_priority(stream, request.demand.io);
        }
        if let Some(bytes_per_s) = request.demand.bitrate {
            self.files.told_bitrate(request.file, bytes_per_s);
        }
        if !self.config.follows() {
            // No streams whose bitrates could be ranked.
            let bitrate = self.told_of(request.file).unwrap_or(0);
            let highest = &mut self.following.highest_bitrate;
            *highest = highest.max(bitrate as f64);
        }
        let action = self.miss_action(stream, wanted, request.from);
        let under_way = || self.queue.is_under_way(request.file, wanted.start, wanted.end);
        if action == MissAction::PassThrough && !under_way() {
            return Err(Reason::Random);
        }
        let as_asked = file_set || (random && stream.is_none()) || action == MissAction::ReadAsAsked;
        let len = if as_asked { 0 } else { self.miss_len(stream, Missed::by(request), wanted) };
        let holes = self.holes();
        let plan = Plan::lay(wanted, self.queue.pieces_of(request.file), len, read_max);
        let plan = plan.without_holes(|start, end| holes.data(request.file, start, end));
        if !self.queue.has_room(&self.config, plan.create.len()) {
            return Err(Reason::QueueFull);
        }
        self.stats.bytes_wanted += wanted.end - wanted.start;
        self.stats.attached += u64::from(plan.create.is_empty());
        let due = self.due(request.demand);
        let io = request.demand.io;
        let priority = Priority { due, joins_kernel: false, file_set, for_file_set: file_set, io };
        let fetched: Vec<u64> = plan.create.iter().map(|&(_, end, _)| end).collect();
        let range = (request.file, wanted.start, wanted.end);
        let piece = |start, end| NewPiece {
            file: request.file,
            start,
            end,
            lba: request.lba.map(|lba| address((request.offset, lba), start)),
            priority,
            ahead_for: None,
        };
        let blocked = Blocked { since: self.now, pieces: Vec::new(), range };
        let waits = self.queue.block(&self.config, request.id, blocked, plan, priority, piece);
        for end in fetched {
            self.fetched(stream, end);
        }
        if file_set {
            self.awaits(request.id, range);
        }
        self.stats.waiting_max = self.stats.waiting_max.max(self.queue.blocked());
        if !waits {
            self.queue.answer(self.now, request.id, Verdict::Resident);
        }
        if let Some(stream) = stream {
            self.line_up(stream);
        }
        Ok(())
    }

    /// Records a read of a small file. Returns `true` if it should pass: the readers are already in disk
    /// order, and the disk has nothing else to do.
    fn passes_in_disk_order(&mut self, request: &Request) -> bool {
        let (Some(Lba(from)), 0) = (request.lba, request.offset) else { return false };
        let apart = request.demand.file_set || self.queue.uses(request.file);
        if !self.config.follows() || apart || request.file_size > PIECE {
            return false;
        }
        let sectors = request.file_size.div_ceil(SECTOR_BYTES);
        self.disk_order.at(from, from.saturating_add(sectors));
        let alone = self.disk_order.is_certain() && self.queue.pieces().all(|piece| piece.len() <= PIECE);
        if alone {
            self.disk_order.passed_in_disk_order();
        }
        alone
    }

    /// When a piece that a request waits for is due: at once, or later if the client's I/O priority is low.
    fn due(&self, demand: Demand) -> Nanos {
        match demand.file_set {
            true => Nanos::MAX,
            false => self.now + self.waits_for_others(demand.io),
        }
    }

    /// How much later than those of others a piece for a reader of this priority is due.
    pub(super) fn waits_for_others(&self, io: IoPriority) -> Nanos {
        if io == IoPriority::NORMAL && !self.queue.is_weighed() {
            return Nanos::ZERO;
        }
        let sweep = self.service.mean().0.saturating_mul(self.queue.turns() as u64) / self.spindles() as u64;
        io.waits(self.queue.heaviest(), Nanos(sweep))
    }

    /// A miss that reaches the end of its file never passes: no piece could go beyond it.
    fn miss_action(&self, stream: Option<StreamId>, wanted: Wanted, from: u64) -> MissAction {
        let Some(stream) = stream.and_then(|id| self.following.table.get(id)) else {
            return MissAction::ReadAhead;
        };
        if wanted.end >= wanted.file_end {
            return MissAction::ReadAhead;
        }
        let len = wanted.end - wanted.start;
        // If a read no longer than the kernel's own read-ahead passes, it costs two seeks at most.
        let long = (self.size.end_evidence() == EndEvidence::Ends || stream.random) && len > PIECE;
        match self.expect_end(stream, wanted, from, len) {
            End::Beyond => MissAction::ReadAhead,
            End::Here if long => MissAction::ReadAsAsked,
            End::Unknown if long => MissAction::ReadAhead,
            End::Here | End::Unknown => MissAction::PassThrough,
        }
    }

    /// Whether a client ends with a miss of which it will read the first `asked` bytes for certain. At the
    /// head of a file a client counts as sequential from its first read, as in Linux, unless those that came
    /// as far read no further. A client that announced random reads never counts as sequential.
    pub(super) fn expect_end(&self, stream: &Stream, wanted: Wanted, from: u64, asked: u64) -> End {
        let from_head = stream.first == 0 && stream.consumed == 0;
        let sequential = from_head || stream.is_sequential();
        let len = wanted.end - wanted.start;
        let rest = self.median_rest(stream);
        // Lengths are known to within a quarter.
        let short = rest.is_some_and(|rest| rest <= len.saturating_add(len / 4));
        let unknown = match self.size.end_evidence() {
            EndEvidence::Ignored => false,
            // Applies until it is known how far clients read.
            EndEvidence::Ends => !sequential && rest.is_none(),
            EndEvidence::Lengths => !sequential,
        };
        match self.ends_with_first(stream, wanted.start.saturating_add(asked), from, asked).unwrap_or(short) {
            true => End::Here,
            false if unknown => End::Unknown,
            false => End::Beyond,
        }
    }

    /// Whether the first read of a stream, from `from` to `upto`, should be served without reading ahead:
    /// whether the bytes read in vain for those that end with such a read take the disk longer than a switch
    /// for each of the others. `None` if not known, or if it is not the first.
    fn ends_with_first(&self, stream: &Stream, upto: u64, from: u64, asked: u64) -> Option<bool> {
        if self.size.end_evidence() != EndEvidence::Ends {
            return None;
        }
        let went_on = self.following.table.went_on(stream, upto.saturating_sub(from))?;
        let piece = self.piece_max(stream, self.piece_len(stream, stream.position));
        let in_vain = f64::from(went_on.no) * piece.saturating_sub(asked) as f64;
        Some(in_vain > f64::from(went_on.yes) * self.service.depth().0 as f64)
    }

    /// Records a read that is about to miss, in the page at `start`; the read itself is reported when it is
    /// done. If its stream expected bytes there that are neither queued nor in flight, they were evicted.
    pub(super) fn follow_miss(&mut self, missed: Missed, start: u64) -> Option<StreamId> {
        let Missed { file, from, offset, file_size, lba } = missed;
        let expected = self.counting_on(file, start);
        // A hole is never in memory, so none of its pages was evicted.
        let coming =
            self.queue.is_under_way(file, start, start + 1) || self.holes().data_from(file, start) > start;
        let stream = self.observe(file, from.min(offset), 0, file_size)?;
        self.following.table.locate(stream, offset, lba);
        if coming {
            return Some(stream);
        }
        if expected.contains(&stream) {
            self.following.table.lost(stream, start);
        }
        // One page is known to be missing, even if nothing is read now.
        self.extents.missing(self.now, file, start, start + PAGE);
        Some(stream)
    }

    /// How long a piece for a miss may be.
    pub(super) fn miss_len(&mut self, stream: Option<StreamId>, missed: Missed, wanted: Wanted) -> u64 {
        let Missed { file, offset, lba, .. } = missed;
        match self.piece_max_blocked(stream) {
            Some(len) => len.min(self.room_before_fetched(stream, wanted.start)),
            None => {
                let bitrate = self.told_of(file).unwrap_or(0);
                self.size.on_miss(Miss { file, offset, lba, len: wanted.end - wanted.start, bitrate })
            }
        }
    }

    /// Processes the requests that were answered and the pieces that were withdrawn since the last call.
    pub(super) fn settle(&mut self) {
        // Withdrawn pieces were never fetched, so they do not count as evicted; no stream expects them any
        // more.
        for piece in self.queue.take_withdrawn() {
            self.stats.dropped += 1;
            self.cancel_expected(piece.file, piece.start, piece.start + 1);
            self.files.released(self.now, piece.file);
        }
        for Answered { verdict, range: (file, start, end), waited } in self.queue.take_answered() {
            self.stats.answered(verdict);
            if verdict == Verdict::Resident {
                self.stats.wait.record(waited);
                // If accesses are not reported, an answer stands for the read that follows it.
                if !self.config.hears_hits() {
                    self.extents.used(file, start, end);
                }
            }
        }
    }

    /// Cancels expected data of a file from `start` on, for each stream that expected some of the bytes
    /// before `end`. Returns these streams.
    pub(super) fn cancel_expected(&mut self, file: FileId, start: u64, end: u64) -> Vec<StreamId> {
        let table = &mut self.following.table;
        let counting = table.of_file(file).filter(|(_, s)| s.fetched > start && s.position < end);
        let counting: Vec<StreamId> = counting.map(|(id, _)| id).collect();
        counting.iter().for_each(|&id| table.lost(id, start));
        counting
    }

    /// Maximum length of a piece for a blocked client; `None` if streams are not followed. The budget does
    /// not delay it, but halves it when exceeded.
    fn piece_max_blocked(&self, stream: Option<StreamId>) -> Option<u64> {
        let stream: &Stream = self.following.table.get(stream?)?;
        let piece = self.piece_max(stream, self.piece_len(stream, stream.position));
        let most = self.memory.budget() as f64 * self.config.constants.blocked_over_budget;
        match self.budgeted().saturating_add(piece) as f64 <= most {
            true => Some(piece),
            false => Some(piece.min(self.share() / 2).max(PAGE) / PAGE * PAGE),
        }
    }

    /// Bytes from `start` to the next bytes that are thought to be in memory, for this stream or another of
    /// the file. 0 if the stream had fetched `start` already: its client missed bytes that were dropped.
    fn room_before_fetched(&self, stream: Option<StreamId>, start: u64) -> u64 {
        let Some(id) = stream else { return u64::MAX };
        let own = self.following.table.get(id).map_or(0, |s| s.fetched);
        // A stream may begin within a page.
        if own / PAGE * PAGE > start.next_multiple_of(PAGE) {
            return 0;
        }
        self.following.table.next_fetched(id, start).map_or(u64::MAX, |next| next - start)
    }
}
