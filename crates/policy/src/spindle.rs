//! The queue of one disk: pieces wait in it, a few at a time are read, and every request is answered once.
//!
//! ```text
//! Request --> queue of pieces --> in flight --> Progress, Done --> Answer Resident
//!    |             (order)     (serialised)              \-------> Answer Pass(Failed)
//!    `-> covered by a piece: wait on it
//! ```
//!
//! A request that waits for bytes is *blocked* on pieces. A piece nobody is blocked on was queued ahead of need. Libception \[L\]
//! 3.2.2 calls this part Reception's DiskIODaemon. What to read and how far is the engine's business.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use seekless_units::{Lba, Nanos};

use crate::piece::{Flight, Piece, Plan, Waiter};
use crate::{
    Config, Fifo, FileId, Order, OrderKind, Outcome, Place, Queued, ReadId, Reason, RequestId, Stats,
    StreamId, Sweep, Verdict,
};

/// A request not yet answered.
#[derive(Debug)]
struct Blocked {
    since: Nanos,
    /// Its entry in [`Spindle::expiry`].
    looked_at: Nanos,
    /// Pieces it still waits on; never empty.
    pieces: Vec<ReadId>,
    /// What it wants: file, start, end.
    range: (FileId, u64, u64),
}

/// A piece to queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewPiece {
    pub(crate) file: FileId,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) lba: Option<Lba>,
    pub(crate) due: Nanos,
    /// The stream it is fetched ahead for.
    pub(crate) ahead_for: Option<StreamId>,
}

/// A request that was answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answered {
    pub(crate) verdict: Verdict,
    /// What it wanted: file, start, end.
    pub(crate) range: (FileId, u64, u64),
}

/// The queue of one disk.
pub(crate) struct Spindle {
    serialises: bool,
    answer_early: bool,
    /// See [`Config::in_flight`], [`Config::reads_in_flight`].
    in_flight: usize,
    reads_in_flight: usize,
    overlap: u64,
    /// See [`Config::parts`].
    parts: Vec<Lba>,
    queue_max: usize,
    wait_max: Nanos,
    stall_max: Nanos,
    /// One for each part of the device.
    orders: Vec<Box<dyn Order + Send>>,
    /// In order of arrival.
    queue: Vec<Piece>,
    flights: Vec<Flight>,
    /// Pieces of each file that has any, queued or in flight.
    pieces: BTreeMap<FileId, usize>,
    blocked: BTreeMap<RequestId, Blocked>,
    /// When each blocked request is looked at: it may be given up then.
    expiry: BTreeSet<(Nanos, RequestId)>,
    /// When a read last made progress.
    last_progress: Nanos,
    answers: VecDeque<(RequestId, Verdict)>,
    next_read: u64,
}

impl Spindle {
    pub(crate) fn new(config: &Config) -> Spindle {
        let order = |_| -> Box<dyn Order + Send> {
            match config.order {
                OrderKind::Fifo => Box::new(Fifo),
                OrderKind::Sweep => Box::new(Sweep::new()),
            }
        };
        Spindle {
            serialises: config.mode.serialises(),
            answer_early: config.answer_early,
            in_flight: config.in_flight,
            reads_in_flight: config.reads_in_flight,
            overlap: config.overlap.0,
            queue_max: config.queue_max,
            wait_max: config.wait_max,
            stall_max: config.stall_max,
            parts: config.parts.clone(),
            orders: (0..=config.parts.len()).map(order).collect(),
            queue: Vec::new(),
            flights: Vec::new(),
            pieces: BTreeMap::new(),
            blocked: BTreeMap::new(),
            expiry: BTreeSet::new(),
            last_progress: Nanos::ZERO,
            answers: VecDeque::new(),
            next_read: 0,
        }
    }

    /// From now on each part of the device has so many pieces at once; those under way beyond that end first.
    pub(crate) fn in_flight(&mut self, pieces: usize) {
        self.in_flight = pieces;
    }

    /// Pieces queued, and reads in flight.
    pub(crate) fn load(&self) -> (usize, usize) {
        (self.queue.len(), self.flights.len())
    }

    /// Queued pieces nobody is blocked on.
    pub(crate) fn queued_ahead(&self) -> usize {
        self.queue.iter().filter(|p| p.waiters.is_empty()).count()
    }

    /// The pieces somebody is blocked on, and those in flight: file and end.
    pub(crate) fn urgent(&self) -> impl Iterator<Item = &Piece> {
        self.flights.iter().map(|f| &f.piece).chain(self.queue.iter().filter(|p| !p.waiters.is_empty()))
    }

    /// Whether somebody is blocked on a queued piece.
    pub(crate) fn is_anybody_blocked(&self) -> bool {
        self.queue.iter().any(|p| !p.waiters.is_empty())
    }

    /// Whether a request of this name waits.
    pub(crate) fn is_blocked(&self, id: RequestId) -> bool {
        self.blocked.contains_key(&id)
    }

    pub(crate) fn blocked(&self) -> usize {
        self.blocked.len()
    }

    /// Whether this many more pieces fit.
    pub(crate) fn has_room(&self, pieces: usize) -> bool {
        self.queue.len() + pieces <= self.queue_max
    }

    /// Whether another request may wait.
    pub(crate) fn may_block(&self) -> bool {
        self.blocked.len() < self.queue_max
    }

    /// Id, start and end of every piece of a file.
    pub(crate) fn pieces_of(&self, file: FileId) -> Vec<(ReadId, u64, u64)> {
        let all = self.queue.iter().chain(self.flights.iter().map(|f| &f.piece));
        all.filter(|p| p.file == file).map(|p| (p.id, p.start, p.end)).collect()
    }

    /// Whether a piece, queued or in flight, touches this range.
    pub(crate) fn is_under_way(&self, file: FileId, start: u64, end: u64) -> bool {
        let mut all = self.queue.iter().chain(self.flights.iter().map(|f| &f.piece));
        all.any(|p| p.file == file && p.start < end && start < p.end)
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

    /// Queues a piece ahead of need.
    pub(crate) fn queue_ahead(&mut self, piece: NewPiece) {
        self.push(piece, Vec::new());
    }

    fn push(&mut self, new: NewPiece, waiters: Vec<Waiter>) -> ReadId {
        let NewPiece { file, start, end, lba, due, ahead_for } = new;
        let id = ReadId(self.next_read);
        self.next_read += 1;
        *self.pieces.entry(file).or_insert(0) += 1;
        self.queue.push(Piece { id, file, start, end, lba, due, ahead_for, waiters });
        id
    }

    /// Blocks a request on the pieces of a plan; `piece` makes a new one of its start and end. `false` if everything is in
    /// memory already, or on its way to be answered.
    pub(crate) fn block(
        &mut self,
        now: Nanos,
        request: RequestId,
        range: (FileId, u64, u64),
        plan: Plan,
        due: Nanos,
        piece: impl Fn(u64, u64) -> NewPiece,
    ) -> bool {
        let mut pieces = Vec::with_capacity(plan.attach.len() + plan.create.len());
        for (id, upto) in plan.attach {
            if self.attach(id, Waiter { request, upto }, due) {
                pieces.push(id);
            }
        }
        for (start, end, upto) in plan.create {
            pieces.push(self.push(piece(start, end), alloc::vec![Waiter { request, upto }]));
        }
        let waits = !pieces.is_empty();
        let looked_at = now + self.wait_max.min(self.stall_max);
        self.blocked.insert(request, Blocked { since: now, looked_at, pieces, range });
        self.expiry.insert((looked_at, request));
        waits
    }

    /// Adds a waiter to a piece; `false` if what it waits for is in memory already.
    fn attach(&mut self, id: ReadId, waiter: Waiter, due: Nanos) -> bool {
        if let Some(piece) = self.queue.iter_mut().find(|p| p.id == id) {
            piece.waiters.push(waiter);
            piece.due = piece.due.min(due);
            return true;
        }
        match self.flights.iter_mut().find(|f| f.piece.id == id) {
            Some(flight) if !self.answer_early || flight.resident < waiter.upto => {
                flight.piece.waiters.push(waiter);
                true
            }
            _ => false,
        }
    }

    /// The next piece to read, if another read may join those in flight.
    pub(crate) fn next_read(&mut self, now: Nanos) -> Option<&Piece> {
        let part = self.part_with_room()?;
        let place = |p: &Piece| Place { lba: p.lba, file: p.file, offset: p.start };
        let queued = |p: &Piece| Queued { id: p.id, place: place(p), due: p.due };
        let pick = if self.parts.is_empty() {
            self.orders[part].pick(now, &mut self.queue.iter().map(queued)).min(self.queue.len() - 1)
        } else {
            let of_part = |&i: &usize| self.part_of(self.queue[i].lba) == part;
            let own: Vec<usize> = (0..self.queue.len()).filter(of_part).collect();
            let mut places = own.iter().map(|&i| queued(&self.queue[i]));
            own[self.orders[part].pick(now, &mut places).min(own.len() - 1)]
        };
        self.flights.push(Flight::new(self.queue.remove(pick), now));
        self.flights.last().map(|f| &f.piece)
    }

    /// The part of the device that holds an address. Unknown ones count as the first part's.
    fn part_of(&self, lba: Option<Lba>) -> usize {
        lba.map_or(0, |lba| self.parts.partition_point(|&start| start <= lba))
    }

    /// The part of the device that takes the next read: of those with room, the one whose piece was queued first.
    fn part_with_room(&self) -> Option<usize> {
        if self.parts.is_empty() {
            return Some(0).filter(|_| !self.queue.is_empty() && self.may_submit(0));
        }
        let mut full = alloc::vec![None; self.orders.len()];
        let parts = self.queue.iter().map(|p| self.part_of(p.lba));
        let mut roomy = parts.filter(|&part| !*full[part].get_or_insert_with(|| !self.may_submit(part)));
        roomy.next()
    }

    fn may_submit(&self, part: usize) -> bool {
        if !self.serialises {
            return self.flights.len() < self.queue_max;
        }
        let of_part =
            self.flights.iter().filter(|f| self.parts.is_empty() || self.part_of(f.piece.lba) == part);
        let (count, missing) = of_part.fold((0, 0), |(n, sum), f| (n + 1, sum + f.missing()));
        let overlap = self.overlap.saturating_mul(self.in_flight as u64);
        count < self.in_flight || (count + 1 < self.in_flight + self.reads_in_flight && missing <= overlap)
    }

    /// A read in flight.
    pub(crate) fn flight(&self, read: ReadId) -> Option<&Flight> {
        self.flights.iter().find(|f| f.piece.id == read)
    }

    /// Everything before `upto` has been brought in by a read. Returns what of it is new: file, start, end and when the read was
    /// submitted.
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

    /// Answers those who needed no more of a read than has come. In the paper's way that is at its end.
    pub(crate) fn answer_satisfied(&mut self, now: Nanos, read: ReadId, stats: &mut Stats) -> Vec<Answered> {
        let Some(flight) = self.flights.iter_mut().find(|f| f.piece.id == read) else { return Vec::new() };
        if !self.answer_early {
            return Vec::new();
        }
        let resident = flight.resident;
        let arrived: Vec<Waiter> = flight.piece.waiters.extract_if(.., |w| w.upto <= resident).collect();
        self.satisfied(now, read, &arrived, stats)
    }

    /// A read is over: who waited for it is answered.
    pub(crate) fn done(
        &mut self,
        now: Nanos,
        read: ReadId,
        outcome: Outcome,
        stats: &mut Stats,
    ) -> Option<(Flight, Vec<Answered>)> {
        let at = self.flights.iter().position(|f| f.piece.id == read)?;
        let flight = self.flights.remove(at);
        self.piece_left(flight.piece.file);
        let resident = match outcome {
            Outcome::Ok => {
                self.last_progress = now;
                flight.piece.end
            }
            Outcome::Failed => flight.resident,
        };
        let (arrived, lost): (Vec<Waiter>, Vec<Waiter>) =
            flight.piece.waiters.iter().partition(|w| w.upto <= resident);
        let mut answered = self.satisfied(now, read, &arrived, stats);
        for waiter in lost {
            answered.extend(self.answer(now, waiter.request, Verdict::Pass(Reason::Failed), stats).0);
        }
        Some((flight, answered))
    }

    /// These waiters need nothing more of this read.
    fn satisfied(
        &mut self,
        now: Nanos,
        read: ReadId,
        waiters: &[Waiter],
        stats: &mut Stats,
    ) -> Vec<Answered> {
        let mut answered = Vec::new();
        for waiter in waiters {
            let Some(blocked) = self.blocked.get_mut(&waiter.request) else { continue };
            blocked.pieces.retain(|&id| id != read);
            if blocked.pieces.is_empty() {
                answered.extend(self.answer(now, waiter.request, Verdict::Resident, stats).0);
            }
        }
        answered
    }

    /// Gives up requests that waited for too long, or whose disk makes no progress. Returns the pieces withdrawn with them.
    pub(crate) fn give_up(&mut self, now: Nanos, stats: &mut Stats) -> Vec<Piece> {
        let mut late = BTreeSet::new();
        while let Some(&(at, id)) = self.expiry.first()
            && at <= now
        {
            self.expiry.pop_first();
            let Some(blocked) = self.blocked.get_mut(&id) else { continue };
            let last = blocked.since + self.wait_max;
            let next = last.min(self.last_progress + self.stall_max);
            if next <= now {
                late.insert(id);
                continue;
            }
            blocked.looked_at = next;
            self.expiry.insert((next, id));
        }
        if late.is_empty() {
            return Vec::new();
        }
        // After a stall these are all that waited: the queue is gone through once for them.
        let withdrawn = self.withdraw(&late, stats);
        for id in late {
            self.answer(now, id, Verdict::Pass(Reason::TooLate), stats);
        }
        withdrawn
    }

    /// When [`Spindle::give_up`] has something to do.
    pub(crate) fn next_expiry(&self) -> Option<Nanos> {
        Some(self.expiry.first()?.0)
    }

    /// Takes these requests off their pieces. Queued pieces that nobody else is blocked on and no stream reads ahead for go.
    fn withdraw(&mut self, ids: &BTreeSet<RequestId>, stats: &mut Stats) -> Vec<Piece> {
        for flight in &mut self.flights {
            flight.piece.waiters.retain(|w| !ids.contains(&w.request));
        }
        let left = |p: &mut Piece| {
            let before = p.waiters.len();
            p.waiters.retain(|w| !ids.contains(&w.request));
            p.waiters.is_empty() && before > 0 && p.ahead_for.is_none()
        };
        let withdrawn: Vec<Piece> = self.queue.extract_if(.., left).collect();
        stats.dropped += withdrawn.len() as u64;
        withdrawn.iter().for_each(|piece| self.piece_left(piece.file));
        for id in ids {
            if let Some(blocked) = self.blocked.get_mut(id) {
                blocked.pieces.clear();
            }
        }
        withdrawn
    }

    /// A stream is over: its queued pieces would be read for no client. Returns them.
    pub(crate) fn forget_stream(&mut self, stream: StreamId, stats: &mut Stats) -> Vec<Piece> {
        let over = |p: &mut Piece| p.ahead_for == Some(stream) && p.waiters.is_empty();
        let over: Vec<Piece> = self.queue.extract_if(.., over).collect();
        stats.dropped += over.len() as u64;
        over.iter().for_each(|piece| self.piece_left(piece.file));
        over
    }

    /// Ends a blocked request; ignored if there is none of this name. Returns it, and the pieces withdrawn with it.
    pub(crate) fn answer(
        &mut self,
        now: Nanos,
        id: RequestId,
        verdict: Verdict,
        stats: &mut Stats,
    ) -> (Option<Answered>, Vec<Piece>) {
        let waits = self.blocked.get(&id).is_some_and(|blocked| !blocked.pieces.is_empty());
        let withdrawn = if waits { self.withdraw(&BTreeSet::from([id]), stats) } else { Vec::new() };
        let Some(blocked) = self.blocked.remove(&id) else { return (None, withdrawn) };
        self.expiry.remove(&(blocked.looked_at, id));
        if verdict == Verdict::Resident {
            stats.wait.record(now - blocked.since);
        }
        self.say(id, verdict, stats);
        (Some(Answered { verdict, range: blocked.range }), withdrawn)
    }

    /// Puts an answer in line.
    pub(crate) fn say(&mut self, id: RequestId, verdict: Verdict, stats: &mut Stats) {
        stats.answered(verdict);
        self.answers.push_back((id, verdict));
    }

    /// The next answer to give.
    pub(crate) fn next_answer(&mut self) -> Option<(RequestId, Verdict)> {
        self.answers.pop_front()
    }
}
