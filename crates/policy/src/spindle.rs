//! The queue of one disk: pieces wait in it, a few at a time are read, and every request is answered once.
//!
//! ```text
//! Request --> queue of pieces --> in flight --> Progress, Done --> Answer Resident
//!    |             (order)     (serialised)              \-------> Answer Pass(Failed)
//!    `-> covered by a piece: wait on it
//! ```
//!
//! A request that waits for bytes is *blocked* on pieces. A piece that blocks no request was queued ahead of
//! need. Libception \[L\] 3.2.2 calls this part Reception's DiskIODaemon. What to read and how far is the
//! engine's business.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use seekless_units::{Lba, Nanos, part_of};
use seekless_wants::PIECE;

use crate::by_time::ByTime;
use crate::piece::{Flight, Joins, Piece, Plan, Turn, Waiter};
use crate::queue::Queue;
use crate::share::Share;
use crate::{
    Config, FileId, OrderKind, Outcome, Place, Queued, ReadId, Reason, RequestId, StreamId, Sweep, Verdict,
};

/// A request not yet answered.
#[derive(Debug)]
pub(crate) struct Blocked {
    pub(crate) since: Nanos,
    /// Pieces it still waits on; not empty once it is queued.
    pub(crate) pieces: Vec<ReadId>,
    /// What it wants: file, start, end.
    pub(crate) range: (FileId, u64, u64),
    /// Its answer reaches a client.
    pub(crate) for_client: bool,
}

/// A piece to queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewPiece {
    pub(crate) file: FileId,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) lba: Option<Lba>,
    pub(crate) turn: Turn,
    /// The stream it is fetched ahead for.
    pub(crate) ahead_for: Option<StreamId>,
}

/// A request that waited, and was answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answered {
    pub(crate) verdict: Verdict,
    /// What it wanted: file, start, end.
    pub(crate) range: (FileId, u64, u64),
    /// For how long.
    pub(crate) waited: Nanos,
}

/// The queue of one disk.
pub(crate) struct Spindle {
    /// One for each part of the device.
    sweeps: Vec<Sweep>,
    queue: Queue,
    flights: Vec<Flight>,
    /// Pieces of each file that has any, queued or in flight.
    pieces: BTreeMap<FileId, usize>,
    blocked: BTreeMap<RequestId, Blocked>,
    /// When each blocked request is looked at: it may be given up then.
    expiry: ByTime<RequestId>,
    /// The part of the disk's time that file sets have.
    share: Share,
    /// When time last passed, and how much of it passed with a client blocked.
    passed: Nanos,
    blocked_time: Nanos,
    /// When a read last made progress.
    last_progress: Nanos,
    answers: VecDeque<(RequestId, Verdict)>,
    /// Since [`Spindle::take_answered`].
    answered: Vec<Answered>,
    /// Pieces that left the queue unread, since [`Spindle::take_withdrawn`].
    withdrawn: Vec<Piece>,
    next_read: u64,
}

/// The part of the device that holds an address. Unknown ones count as the first part's.
fn part_at(config: &Config, lba: Option<Lba>) -> usize {
    lba.map_or(0, |lba| part_of(&config.parts, lba))
}

impl Spindle {
    pub(crate) fn new(config: &Config) -> Spindle {
        Spindle {
            sweeps: alloc::vec![Sweep::default(); config.parts.len() + 1],
            queue: Queue::default(),
            flights: Vec::new(),
            pieces: BTreeMap::new(),
            blocked: BTreeMap::new(),
            expiry: ByTime::default(),
            share: Share::new(config.share),
            passed: Nanos::ZERO,
            blocked_time: Nanos::ZERO,
            last_progress: Nanos::ZERO,
            answers: VecDeque::new(),
            answered: Vec::new(),
            withdrawn: Vec::new(),
            next_read: 0,
        }
    }

    /// Pieces queued, and reads in flight.
    pub(crate) fn load(&self) -> (usize, usize) {
        (self.queue.len(), self.flights.len())
    }

    /// Time passes.
    pub(crate) fn pass(&mut self, now: Nanos) {
        let of_sets = self.flights.iter().filter(|f| f.piece.turn.file_set).count();
        let since = now.since(core::mem::replace(&mut self.passed, now));
        if !self.blocked.is_empty() {
            self.blocked_time += since;
        }
        self.share.pass(now, of_sets, self.flights.len(), self.queue.counts().for_file_sets > 0);
    }

    /// Time that has passed with a request blocked.
    pub(crate) fn blocked_time(&self) -> Nanos {
        self.blocked_time
    }

    /// Time that the disk has spent on file sets.
    pub(crate) fn time_of_file_sets(&self) -> Nanos {
        self.share.spent()
    }

    /// Queued pieces that block no request.
    pub(crate) fn queued_ahead(&self) -> usize {
        self.queue.counts().ahead
    }

    /// Bytes of queued pieces that clients are blocked on. Nothing of them is in memory yet.
    pub(crate) fn queued_for_blocked(&self) -> u64 {
        self.queue.counts().blocking_bytes
    }

    /// The pieces that block a request, and those in flight.
    pub(crate) fn urgent(&self) -> impl Iterator<Item = &Piece> {
        self.flights.iter().map(|f| &f.piece).chain(self.queue.iter().filter(|p| p.blocks_client()))
    }

    /// Pieces that clients are blocked on.
    pub(crate) fn turns(&self) -> usize {
        self.queue.counts().for_clients + self.flights.len()
    }

    /// Whether a queued piece blocks a request.
    pub(crate) fn is_anybody_blocked(&self) -> bool {
        self.queue.counts().for_clients > 0
    }

    /// Whether a request of this name waits.
    pub(crate) fn is_blocked(&self, id: RequestId) -> bool {
        self.blocked.contains_key(&id)
    }

    pub(crate) fn blocked(&self) -> usize {
        self.blocked.len()
    }

    /// Whether this many more pieces fit.
    pub(crate) fn has_room(&self, config: &Config, pieces: usize) -> bool {
        self.queue.len() + pieces <= config.queue_max
    }

    /// Whether another request may wait.
    pub(crate) fn may_block(&self, config: &Config) -> bool {
        self.blocked.len() < config.queue_max
    }

    /// Id, start and end of every piece of a file.
    pub(crate) fn pieces_of(&self, file: FileId) -> Vec<(ReadId, u64, u64)> {
        if !self.uses(file) {
            return Vec::new();
        }
        self.pieces().filter(|p| p.file == file).map(|p| (p.id, p.start, p.end)).collect()
    }

    /// Those queued, and those in flight.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = &Piece> {
        self.queue.iter().chain(self.flights.iter().map(|f| &f.piece))
    }

    /// Whether a piece, queued or in flight, touches this range.
    pub(crate) fn is_under_way(&self, file: FileId, start: u64, end: u64) -> bool {
        self.uses(file) && self.pieces().any(|p| p.file == file && p.start < end && start < p.end)
    }

    /// Whether a piece of the file is under way, or a request of it waits.
    pub(crate) fn uses(&self, file: FileId) -> bool {
        self.pieces.contains_key(&file)
    }

    /// A piece of the file left the queue unread, or its read is over.
    fn piece_left(&mut self, file: FileId) {
        if let Some(pieces) = self.pieces.get_mut(&file) {
            *pieces -= 1;
            if *pieces == 0 {
                self.pieces.remove(&file);
            }
        }
    }

    /// Queues a piece that these wait for; none of one ahead of need.
    pub(crate) fn queue(&mut self, new: NewPiece, waiters: Vec<Waiter>) -> ReadId {
        let NewPiece { file, start, end, lba, turn, ahead_for } = new;
        let id = ReadId(self.next_read);
        self.next_read += 1;
        *self.pieces.entry(file).or_insert(0) += 1;
        self.queue.push(Piece { id, file, start, end, lba, turn, ahead_for, waiters });
        id
    }

    /// Blocks a request on the pieces of a plan; `piece` makes a new one of its start and end. `false` if
    /// everything is in memory already, or on its way to be answered.
    pub(crate) fn block(
        &mut self,
        config: &Config,
        request: RequestId,
        mut blocked: Blocked,
        plan: Plan,
        turn: Turn,
        piece: impl Fn(u64, u64) -> NewPiece,
    ) -> bool {
        for (id, upto) in plan.attach {
            if self.attach(config, id, Waiter { request, upto }, turn) {
                blocked.pieces.push(id);
            }
        }
        for (start, end, upto) in plan.create {
            blocked.pieces.push(self.queue(piece(start, end), alloc::vec![Waiter { request, upto }]));
        }
        let waits = !blocked.pieces.is_empty();
        let patience = match self.hangs(config, blocked.since) {
            true => Nanos::ZERO,
            false => config.wait_max.min(config.stall_max),
        };
        self.expiry.set(request, blocked.since + patience);
        self.blocked.insert(request, blocked);
        waits
    }

    /// Adds a waiter to a piece; `false` if what it waits for is in memory already.
    fn attach(&mut self, config: &Config, id: ReadId, waiter: Waiter, turn: Turn) -> bool {
        if let Some(at) = self.queue.iter().position(|p| p.id == id) {
            self.queue.change(at, |piece| {
                piece.waiters.push(waiter);
                piece.turn = piece.turn.or(turn);
            });
            return true;
        }
        match self.flights.iter_mut().find(|f| f.piece.id == id) {
            Some(flight) if !config.answer_early || flight.resident < waiter.upto => {
                flight.piece.waiters.push(waiter);
                true
            }
            _ => false,
        }
    }

    /// The next piece to read; so much may join reads of the kernel's.
    pub(crate) fn next_read(&mut self, config: &Config, now: Nanos, joins: Joins) -> Option<&Piece> {
        let joining = self.next_along(config, joins);
        let pick = joining.or_else(|| self.next_in_line(config, now))?;
        let mut piece = self.queue.remove(pick);
        // In their turn file sets are charged for what a client waits for as well.
        piece.turn.file_set |= piece.turn.for_file_set && self.share.is_turn() && joining.is_none();
        self.flights.push(Flight::new(piece, now, joining.is_some()));
        self.flights.last().map(|f| &f.piece)
    }

    /// The next piece that joins a read of the kernel's, where so much may; the first, however long.
    fn next_along(&self, config: &Config, joins: Joins) -> Option<usize> {
        if !config.mode.serialises() || self.queue.counts().along == 0 {
            return None;
        }
        let next = self.queue.iter().position(|piece| piece.turn.along)?;
        let joined = self.flights.iter().filter(|f| f.joined);
        let (pieces, bytes) =
            joined.fold((0, self.queue[next].len()), |(n, sum), f| (n + 1, sum + f.missing()));
        (pieces < joins.pieces && (pieces == 0 || bytes <= joins.bytes)).then_some(next)
    }

    /// The next piece in line, of a part of the device whose reads in flight it may join; of several such
    /// parts, of the one whose piece was queued first.
    fn next_in_line(&mut self, config: &Config, now: Nanos) -> Option<usize> {
        // This is asked after every event, and mostly there is nothing to do.
        if self.queue.is_empty() {
            return None;
        }
        let mut free: Vec<usize> =
            (0..self.sweeps.len()).filter(|&part| self.room(config, part) > 0).collect();
        while !free.is_empty() {
            let mut parts = self.queue.iter().map(|p| part_at(config, p.lba));
            let part = parts.find(|part| free.contains(part))?;
            let next = self.next_of_part(config, now, part);
            if next.is_some() {
                return next;
            }
            free.retain(|&other| other != part);
        }
        None
    }

    /// The next of the pieces queued on a part, in the order of the queue. `None`: there is no room for it.
    fn next_of_part(&mut self, config: &Config, now: Nanos, part: usize) -> Option<usize> {
        let own = |&i: &usize| part_at(config, self.queue[i].lba) == part;
        let mut own: Vec<usize> = (0..self.queue.len()).filter(own).collect();
        // File sets have had less than their share: a piece of theirs is read next, where they have one.
        let for_file_set = |i: &usize| self.queue[*i].turn.for_file_set;
        if self.share.is_turn() && own.iter().any(for_file_set) {
            own.retain(for_file_set);
        }
        let queued = |&i: &usize| {
            let Piece { id, lba, file, start, turn, .. } = self.queue[i];
            Queued { id, place: Place { lba, file, offset: start }, due: turn.due }
        };
        let mut sweep = self.sweeps[part];
        let next = match config.order {
            OrderKind::Fifo => own[0],
            OrderKind::Sweep => own[sweep.pick(now, own.iter().map(queued))],
        };
        // One that is too long keeps its turn until there is room for it.
        if self.queue[next].len() > self.room(config, part) {
            return None;
        }
        self.sweeps[part] = sweep;
        Some(next)
    }

    /// Most bytes that the next read of a part may have; 0: none may join those in flight.
    fn room(&self, config: &Config, part: usize) -> u64 {
        if !config.mode.serialises() {
            return if self.flights.len() < config.queue_max { u64::MAX } else { 0 };
        }
        let in_line = self.flights.iter().filter(|f| !f.joined && part_at(config, f.piece.lba) == part);
        let (count, missing, longest) = in_line.fold((0, 0, 0), |(n, missing, longest), f| {
            (n + 1, missing + f.missing(), f.piece.len().max(longest))
        });
        let overlap = config.overlap.0.saturating_mul(config.in_flight as u64);
        let follows = count + 1 < config.in_flight + config.reads_in_flight && missing <= overlap;
        match count < config.in_flight || follows {
            true => u64::MAX,
            // Of small reads the drive makes its own order, and none takes long.
            false if count < config.small_in_flight && longest <= PIECE => PIECE,
            false => 0,
        }
    }

    /// A read in flight.
    pub(crate) fn flight(&self, read: ReadId) -> Option<&Flight> {
        self.flights.iter().find(|f| f.piece.id == read)
    }

    /// Everything before `upto` has been brought in by a read. Returns what of it is new: file, start, end
    /// and when the read was submitted.
    pub(crate) fn progress(
        &mut self,
        now: Nanos,
        read: ReadId,
        upto: u64,
    ) -> Option<(FileId, u64, u64, Nanos)> {
        let flight = self.flights.iter_mut().find(|f| f.piece.id == read)?;
        let before = flight.resident;
        flight.resident = upto.clamp(before, flight.piece.end);
        self.last_progress = now;
        Some((flight.piece.file, before, flight.resident, flight.submitted))
    }

    /// Answers the requests that need no more of a read than has come. With late answers that is at its end.
    pub(crate) fn answer_satisfied(&mut self, config: &Config, now: Nanos, read: ReadId) {
        let Some(flight) = self.flights.iter_mut().find(|f| f.piece.id == read) else { return };
        if config.answer_early {
            let resident = flight.resident;
            let arrived = flight.piece.waiters.extract_if(.., |w| w.upto <= resident).collect();
            self.satisfied(now, read, arrived);
        }
    }

    /// A read is over: the requests that wait for it are answered.
    pub(crate) fn done(&mut self, now: Nanos, read: ReadId, outcome: Outcome) {
        let Some(at) = self.flights.iter().position(|f| f.piece.id == read) else { return };
        let Flight { piece, resident, .. } = self.flights.remove(at);
        self.piece_left(piece.file);
        let resident = match outcome {
            Outcome::Ok => {
                self.last_progress = now;
                piece.end
            }
            Outcome::Failed => resident,
        };
        let (arrived, lost): (Vec<Waiter>, Vec<Waiter>) =
            piece.waiters.into_iter().partition(|w| w.upto <= resident);
        self.satisfied(now, read, arrived);
        for waiter in lost {
            self.answer(now, waiter.request, Verdict::Pass(Reason::Failed));
        }
    }

    /// These waiters need nothing more of this read.
    fn satisfied(&mut self, now: Nanos, read: ReadId, waiters: Vec<Waiter>) {
        for Waiter { request, .. } in waiters {
            let Some(blocked) = self.blocked.get_mut(&request) else { continue };
            blocked.pieces.retain(|&id| id != read);
            if blocked.pieces.is_empty() {
                self.answer(now, request, Verdict::Resident);
            }
        }
    }

    /// Whether the reads in flight have made no progress for `stall_max`. No client waits for them then.
    fn hangs(&self, config: &Config, now: Nanos) -> bool {
        let oldest = self.flights.iter().map(|f| f.submitted).min();
        oldest.is_some_and(|submitted| now.since(submitted.max(self.last_progress)) >= config.stall_max)
    }

    /// Gives up requests that waited for too long, or whose disk makes no progress.
    pub(crate) fn give_up(&mut self, config: &Config, now: Nanos) {
        let mut late = BTreeSet::new();
        while let Some(id) = self.expiry.pop_due(now) {
            let Some(blocked) = self.blocked.get(&id) else { continue };
            let last = blocked.since + config.wait_max;
            let next = last.min(self.last_progress + config.stall_max);
            if next <= now {
                late.insert(id);
            } else {
                self.expiry.set(id, next);
            }
        }
        if late.is_empty() {
            return;
        }
        // After a stall these are all that waited: the queue is gone through once for them.
        self.withdraw(&late);
        for id in late {
            self.answer(now, id, Verdict::Pass(Reason::TooLate));
        }
    }

    /// When [`Spindle::give_up`] has something to do.
    pub(crate) fn next_expiry(&self) -> Option<Nanos> {
        Some(self.expiry.first()?.0)
    }

    /// Takes these requests off their pieces. Queued pieces that block no other request, and that were not
    /// queued ahead for a stream, are withdrawn.
    fn withdraw(&mut self, ids: &BTreeSet<RequestId>) {
        for flight in &mut self.flights {
            flight.piece.waiters.retain(|w| !ids.contains(&w.request));
        }
        for id in ids {
            if let Some(blocked) = self.blocked.get_mut(id) {
                blocked.pieces.clear();
            }
        }
        self.withdraw_pieces(|piece| {
            let before = piece.waiters.len();
            piece.waiters.retain(|w| !ids.contains(&w.request));
            piece.waiters.is_empty() && before > 0 && piece.ahead_for.is_none()
        });
    }

    /// Answers every request that waits, so that its client reads by itself, and withdraws what is queued.
    pub(crate) fn let_go(&mut self, now: Nanos) {
        let all: BTreeSet<RequestId> = self.blocked.keys().copied().collect();
        self.withdraw(&all);
        self.withdraw_pieces(|_| true);
        for id in all {
            self.answer(now, id, Verdict::Pass(Reason::Mode));
        }
    }

    /// A stream is over: its queued pieces would be read for no client.
    pub(crate) fn forget_stream(&mut self, stream: StreamId) {
        self.withdraw_pieces(|piece| piece.ahead_for == Some(stream) && piece.waiters.is_empty());
    }

    /// Withdraws what is queued of a file and no client waits for.
    pub(crate) fn leave(&mut self, now: Nanos, file: FileId) {
        if !self.uses(file) {
            return;
        }
        let nobodys =
            self.blocked.iter().filter(|(_, blocked)| blocked.range.0 == file && !blocked.for_client);
        let nobodys: BTreeSet<RequestId> = nobodys.map(|(&id, _)| id).collect();
        self.withdraw(&nobodys);
        for id in nobodys {
            self.answer(now, id, Verdict::Pass(Reason::Cancelled));
        }
        self.withdraw_pieces(|piece| piece.file == file && piece.waiters.is_empty());
    }

    fn withdraw_pieces(&mut self, which: impl FnMut(&mut Piece) -> bool) {
        let before = self.withdrawn.len();
        self.withdrawn.extend(self.queue.extract(which));
        for i in before..self.withdrawn.len() {
            self.piece_left(self.withdrawn[i].file);
        }
    }

    /// Ends a blocked request; ignored if there is none of this name.
    pub(crate) fn answer(&mut self, now: Nanos, id: RequestId, verdict: Verdict) {
        if self.blocked.get(&id).is_some_and(|blocked| !blocked.pieces.is_empty()) {
            self.withdraw(&BTreeSet::from([id]));
        }
        let Some(Blocked { since, range, .. }) = self.blocked.remove(&id) else { return };
        self.expiry.remove(id);
        self.answered.push(Answered { verdict, range, waited: now - since });
        self.say(id, verdict);
    }

    /// Puts an answer in line.
    pub(crate) fn say(&mut self, id: RequestId, verdict: Verdict) {
        self.answers.push_back((id, verdict));
    }

    /// Requests that were answered after they had waited.
    pub(crate) fn take_answered(&mut self) -> Vec<Answered> {
        core::mem::take(&mut self.answered)
    }

    /// Pieces that left the queue unread.
    pub(crate) fn take_withdrawn(&mut self) -> Vec<Piece> {
        core::mem::take(&mut self.withdrawn)
    }

    /// The next answer to give.
    pub(crate) fn next_answer(&mut self) -> Option<(RequestId, Verdict)> {
        self.answers.pop_front()
    }
}
