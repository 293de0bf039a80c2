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

use seekless_base::{Lba, Nanos, part_of};

use crate::by_time::ByTime;
use crate::piece::{Flight, Piece, Plan, Priority, Waiter};
use crate::queue::Queue;
use crate::service::FirstBytes;
use crate::share::{Share, TURN};
use crate::writers::Writers;
use crate::{
    Config, FileId, OrderKind, Outcome, Place, Queued, ReadId, Reason, RequestId, SMALL_READS, StreamId,
    Sweep, Verdict, Writes,
};

/// A request not yet answered.
#[derive(Debug)]
pub(crate) struct Blocked {
    pub(crate) since: Nanos,
    /// Pieces it still waits on; not empty once it is queued.
    pub(crate) pieces: Vec<ReadId>,
    /// What it wants: file, start, end.
    pub(crate) range: (FileId, u64, u64),
}

/// A new piece, not yet in the queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewPiece {
    pub(crate) file: FileId,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) lba: Option<Lba>,
    pub(crate) priority: Priority,
    /// The stream it is fetched ahead for.
    pub(crate) ahead_for: Option<StreamId>,
}

/// A request that waited and was answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answered {
    pub(crate) verdict: Verdict,
    /// What it wanted: file, start, end.
    pub(crate) range: (FileId, u64, u64),
    /// Time from the request to its answer.
    pub(crate) waited: Nanos,
}

/// The queue of one disk.
pub(crate) struct DiskQueue {
    /// One sweep for each part of the device.
    sweeps: Vec<Sweep>,
    queue: Queue,
    flights: Vec<Flight>,
    /// Number of pieces queued or in flight, by file. Files without any have no entry.
    pieces: BTreeMap<FileId, usize>,
    blocked: BTreeMap<RequestId, Blocked>,
    /// When each blocked request may be given up.
    expiry: ByTime<RequestId>,
    /// File sets' share of the disk's time.
    share: Share,
    /// What is left to writes; `None` if nothing is.
    pub(crate) writers: Option<Writers>,
    /// Time of the last call to [`DiskQueue::pass`]; below, the time that had passed by then with a client
    /// blocked.
    passed: Nanos,
    /// Total time with at least one client blocked.
    pub(crate) blocked_time: Nanos,
    /// When a read last made progress.
    last_progress: Nanos,
    answers: VecDeque<(RequestId, Verdict)>,
    /// Requests answered since [`DiskQueue::take_answered`].
    answered: Vec<Answered>,
    /// Pieces that left the queue unread, since [`DiskQueue::take_withdrawn`].
    withdrawn: Vec<Piece>,
    next_read: u64,
}

/// Index of the part of the device that holds an address. Unknown addresses count as the first part's.
fn part_at(config: &Config, lba: Option<Lba>) -> usize {
    lba.map_or(0, |lba| part_of(&config.parts, lba))
}

impl DiskQueue {
    pub(crate) fn new(config: &Config) -> DiskQueue {
        DiskQueue {
            sweeps: alloc::vec![Sweep::default(); config.parts.len() + 1],
            queue: Queue::default(),
            flights: Vec::new(),
            pieces: BTreeMap::new(),
            blocked: BTreeMap::new(),
            expiry: ByTime::default(),
            share: Share::new(config.share, TURN),
            writers: Writers::new(config.writers.filter(|_| config.mode.serialises())),
            passed: Nanos::ZERO,
            blocked_time: Nanos::ZERO,
            last_progress: Nanos::ZERO,
            answers: VecDeque::new(),
            answered: Vec::new(),
            withdrawn: Vec::new(),
            next_read: 0,
        }
    }

    /// Number of queued pieces, and of reads in flight.
    pub(crate) fn load(&self) -> (usize, usize) {
        (self.queue.len(), self.flights.len())
    }

    /// Accounts for the time since the last call. `by_kernel`: a client waited for the kernel meanwhile.
    pub(crate) fn pass(&mut self, now: Nanos, by_kernel: bool) {
        let of_sets = self.flights.iter().filter(|f| f.piece.priority.file_set).count();
        let since = now.since(core::mem::replace(&mut self.passed, now));
        if by_kernel || !self.blocked.is_empty() {
            self.blocked_time += since;
        }
        self.share.pass(now, of_sets, self.flights.len(), self.queue.counts.for_file_sets > 0);
        if let Some(writers) = &mut self.writers {
            writers.pass(now, self.flights.len());
        }
    }

    /// What waits to be written has changed.
    pub(crate) fn writes(&mut self, now: Nanos, writes: Writes) {
        let Some(writers) = &mut self.writers else { return };
        writers.report(now, writes);
        for flight in &mut self.flights {
            flight.written_before.get_or_insert(writers.bytes);
        }
    }

    /// Whether something was written beside a piece.
    pub(crate) fn was_written_beside(&self, read: ReadId) -> bool {
        let before = self.flight(read).and_then(|flight| flight.written_before);
        before.zip(self.writers.as_ref()).is_some_and(|(before, writers)| writers.bytes > before)
    }

    /// Whether something waits to be written.
    pub(crate) fn do_writes_wait(&self) -> bool {
        self.writers.as_ref().is_some_and(Writers::waits)
    }

    /// When the writers' turn ends, if pieces wait for that.
    pub(crate) fn writers_turn_ends(&self) -> Option<Nanos> {
        self.writers.as_ref().and_then(Writers::turn_ends).filter(|_| !self.queue.is_empty())
    }

    /// Time that the disk has spent on file sets.
    pub(crate) fn time_of_file_sets(&self) -> Nanos {
        self.share.spent()
    }

    /// Number of queued pieces that nobody awaits yet.
    pub(crate) fn queued_ahead(&self) -> usize {
        self.queue.counts.ahead
    }

    /// Bytes of queued pieces that block clients. None of these bytes is in memory yet.
    pub(crate) fn queued_for_blocked(&self) -> u64 {
        self.queue.counts.blocking_bytes
    }

    /// The pieces that block a request, and those in flight.
    pub(crate) fn urgent(&self) -> impl Iterator<Item = &Piece> {
        self.flights.iter().map(|f| &f.piece).chain(self.queue.iter().filter(|p| p.blocks_client()))
    }

    /// Number of pieces that block clients, with all reads in flight.
    pub(crate) fn turns(&self) -> usize {
        self.queue.counts.for_clients + self.flights.len()
    }

    /// Whether a queued piece is for a reader whose I/O priority is not the default.
    pub(crate) fn is_weighed(&self) -> bool {
        self.queue.counts.weighed > 0
    }

    /// The largest weight of the clients that wait, without those of the idle class; 0 if there are none.
    pub(crate) fn heaviest(&self) -> u32 {
        let waiting = self.pieces().filter(|piece| piece.blocks_client() && !piece.priority.io.idle);
        waiting.map(|piece| piece.priority.io.weight).max().unwrap_or(0)
    }

    /// Whether a queued piece blocks a client.
    pub(crate) fn is_anybody_blocked(&self) -> bool {
        self.queue.counts.for_clients > 0
    }

    pub(crate) fn is_blocked(&self, id: RequestId) -> bool {
        self.blocked.contains_key(&id)
    }

    pub(crate) fn blocked(&self) -> usize {
        self.blocked.len()
    }

    /// Whether the queue has room for this many more pieces.
    pub(crate) fn has_room(&self, config: &Config, pieces: usize) -> bool {
        self.queue.len() + pieces <= config.queue_max
    }

    /// Whether another request may block.
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

    /// All pieces: the queued ones, then those in flight.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = &Piece> {
        self.queue.iter().chain(self.flights.iter().map(|f| &f.piece))
    }

    /// Whether a piece, queued or in flight, touches this range.
    pub(crate) fn is_under_way(&self, file: FileId, start: u64, end: u64) -> bool {
        self.uses(file) && self.pieces().any(|p| p.file == file && p.start < end && start < p.end)
    }

    /// Whether a piece of the file is queued or in flight.
    pub(crate) fn uses(&self, file: FileId) -> bool {
        self.pieces.contains_key(&file)
    }

    /// Counts one piece of the file less: it was withdrawn, or its read ended.
    fn piece_left(&mut self, file: FileId) {
        if let Some(pieces) = self.pieces.get_mut(&file) {
            *pieces -= 1;
            if *pieces == 0 {
                self.pieces.remove(&file);
            }
        }
    }

    /// Queues a piece for these waiters. `waiters` is empty for read-ahead.
    pub(crate) fn enqueue(&mut self, new: NewPiece, waiters: Vec<Waiter>) -> ReadId {
        let NewPiece { file, start, end, lba, priority, ahead_for } = new;
        let id = ReadId(self.next_read);
        self.next_read += 1;
        *self.pieces.entry(file).or_insert(0) += 1;
        self.queue.push(Piece { id, file, start, end, lba, priority, ahead_for, waiters });
        id
    }

    /// Blocks a request on the pieces of a plan. `piece` makes a new piece from its start and end. Returns
    /// `false` if the request has nothing to wait for.
    pub(crate) fn block(
        &mut self,
        config: &Config,
        request: RequestId,
        mut blocked: Blocked,
        plan: Plan,
        priority: Priority,
        piece: impl Fn(u64, u64) -> NewPiece,
    ) -> bool {
        for (id, upto) in plan.attach {
            if self.attach(config, id, Waiter { request, upto }, priority) {
                blocked.pieces.push(id);
            }
        }
        for (start, end, upto) in plan.create {
            blocked.pieces.push(self.enqueue(piece(start, end), alloc::vec![Waiter { request, upto }]));
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

    /// Adds a waiter to a piece. Returns `false` if the bytes it waits for are in memory already.
    fn attach(&mut self, config: &Config, id: ReadId, waiter: Waiter, priority: Priority) -> bool {
        if let Some(at) = self.queue.iter().position(|p| p.id == id) {
            self.queue.change(at, |piece| {
                piece.waiters.push(waiter);
                piece.priority = piece.priority.or(priority);
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

    /// Gives a piece this priority too, if it is queued still.
    pub(crate) fn raise(&mut self, id: ReadId, priority: Priority) {
        if let Some(at) = self.queue.iter().position(|piece| piece.id == id) {
            self.queue.change(at, |piece| piece.priority = piece.priority.or(priority));
        }
    }

    /// Takes the next piece to read out of the queue. At most `joins` pieces join the kernel's own
    /// reads.
    pub(crate) fn next_read(&mut self, config: &Config, now: Nanos, joins: usize) -> Option<&Piece> {
        if let Some(writers) = self.writers.as_mut().filter(|writers| writers.is_turn()) {
            if !self.queue.is_empty() {
                writers.hold();
            }
            return None;
        }
        let joining = self.next_along(config, joins);
        let pick = joining.or_else(|| self.next_in_line(config, now))?;
        let mut piece = self.queue.remove(pick);
        // Charge the read to the file sets during their turn, even if a client waits for it too.
        piece.priority.file_set |= piece.priority.for_file_set && self.share.turn && joining.is_none();
        self.flights.push(Flight::new(piece, now, joining.is_some()));
        self.flights.last().map(|f| &f.piece)
    }

    /// The next piece that may join a read of the kernel's.
    fn next_along(&self, config: &Config, joins: usize) -> Option<usize> {
        if !config.mode.serialises() || self.queue.counts.joins_kernel == 0 {
            return None;
        }
        let joined = self.flights.iter().filter(|f| f.joined).count();
        let joins = if self.do_writes_wait() { 1usize.saturating_sub(self.flights.len()) } else { joins };
        // One of the idle class waits in line like any other. Those that nobody will want soon join one at a
        // time.
        let joins_now = |piece: &Piece| {
            let Priority { due, joins_kernel, io, .. } = piece.priority;
            joins_kernel && !io.idle && (joined == 0 || due < Nanos::MAX)
        };
        if joined < joins { self.queue.iter().position(joins_now) } else { None }
    }

    /// The next piece in line on a part of the device that has room for a read. Among several such parts, the
    /// part of the oldest queued piece comes first.
    fn next_in_line(&mut self, config: &Config, now: Nanos) -> Option<usize> {
        // Called after every event; the queue is empty most of the time.
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

    /// The next piece of a part, in the order of the queue; `None` if the part has no room for it.
    fn next_of_part(&mut self, config: &Config, now: Nanos, part: usize) -> Option<usize> {
        let own = |&i: &usize| part_at(config, self.queue[i].lba) == part;
        let mut own: Vec<usize> = (0..self.queue.len()).filter(own).collect();
        // File sets have had less than their share: prefer their pieces, if there are any.
        let for_file_set = |i: &usize| self.queue[*i].priority.for_file_set;
        if self.share.turn && own.iter().any(for_file_set) {
            own.retain(for_file_set);
        }
        let queued = |&i: &usize| {
            let Piece { id, lba, file, start, priority, .. } = self.queue[i];
            Queued {
                id,
                place: Place { lba, file, offset: start },
                due: priority.due,
                idle: priority.io.idle,
            }
        };
        let mut sweep = self.sweeps[part];
        let next = match config.order {
            OrderKind::Fifo => own[0],
            OrderKind::Sweep => own[sweep.pick(now, own.iter().map(queued))],
        };
        // A piece that is too long keeps its turn until there is room for it.
        if self.queue[next].len() > self.room(config, part) {
            return None;
        }
        self.sweeps[part] = sweep;
        Some(next)
    }

    /// Maximum length of the next read of a part, in bytes; 0 if no further read may start now.
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
        let alone = self.do_writes_wait();
        match count < config.in_flight || (follows && !alone) {
            true => u64::MAX,
            // One at a time beside writes.
            false if alone => 0,
            // The drive orders small reads by itself, and none of them takes long.
            false if count < config.small_in_flight && longest <= SMALL_READS / 4 => {
                (SMALL_READS / 4).min(SMALL_READS.saturating_sub(missing))
            }
            false => 0,
        }
    }

    pub(crate) fn flight(&self, read: ReadId) -> Option<&Flight> {
        self.flights.iter().find(|f| f.piece.id == read)
    }

    /// Records that a read has brought in all bytes before `upto`. Returns the new bytes (file, start, end)
    /// and the time at which the read was submitted.
    pub(crate) fn progress(
        &mut self,
        now: Nanos,
        read: ReadId,
        upto: u64,
    ) -> Option<(FileId, u64, u64, Nanos)> {
        let flight = self.flights.iter_mut().find(|f| f.piece.id == read)?;
        let before = flight.resident;
        flight.resident = upto.clamp(before, flight.piece.end);
        let came = flight.resident - flight.piece.start;
        FirstBytes::note(&mut flight.first_bytes, now.since(flight.submitted), came);
        self.last_progress = now;
        Some((flight.piece.file, before, flight.resident, flight.submitted))
    }

    /// Answers requests whose bytes have arrived. Without `answer_early`, requests are answered at the end of
    /// the read instead.
    pub(crate) fn answer_satisfied(&mut self, config: &Config, now: Nanos, read: ReadId) {
        let Some(flight) = self.flights.iter_mut().find(|f| f.piece.id == read) else { return };
        if config.answer_early {
            let resident = flight.resident;
            let arrived = flight.piece.waiters.extract_if(.., |w| w.upto <= resident).collect();
            self.satisfied(now, read, arrived);
        }
    }

    /// Ends a read and answers the requests that wait for it.
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

    /// These waiters need nothing more from this read.
    fn satisfied(&mut self, now: Nanos, read: ReadId, waiters: Vec<Waiter>) {
        for Waiter { request, .. } in waiters {
            let Some(blocked) = self.blocked.get_mut(&request) else { continue };
            blocked.pieces.retain(|&id| id != read);
            if blocked.pieces.is_empty() {
                self.answer(now, request, Verdict::Resident);
            }
        }
    }

    /// Whether the reads in flight have made no progress for `stall_max`. Clients do not wait in that case.
    fn hangs(&self, config: &Config, now: Nanos) -> bool {
        let oldest = self.flights.iter().map(|f| f.submitted).min();
        oldest.is_some_and(|submitted| now.since(submitted.max(self.last_progress)) >= config.stall_max)
    }

    /// Gives up requests that have waited for too long, or while the disk makes no progress.
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
        // After a stall this covers every waiting request, so withdraw them in one pass over the queue.
        self.withdraw(&late);
        for id in late {
            self.answer(now, id, Verdict::Pass(Reason::TooLate));
        }
    }

    /// When [`DiskQueue::give_up`] must be called next.
    pub(crate) fn next_expiry(&self) -> Option<Nanos> {
        Some(self.expiry.first()?.0)
    }

    /// Removes these requests from their pieces. Withdraws queued pieces that then block no request, unless
    /// they were queued ahead for a stream.
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
            let left = piece.waiters.is_empty() && before > 0;
            if left {
                piece.priority.due = Nanos::MAX;
            }
            left && piece.ahead_for.is_none()
        });
    }

    /// Answers every waiting request, so that its client reads for itself, and withdraws every queued piece.
    pub(crate) fn pass_all(&mut self, now: Nanos) {
        let all: BTreeSet<RequestId> = self.blocked.keys().copied().collect();
        self.withdraw(&all);
        self.withdraw_pieces(|_| true);
        for id in all {
            self.answer(now, id, Verdict::Pass(Reason::Mode));
        }
    }

    /// A stream has ended: withdraws its queued pieces that block no request.
    pub(crate) fn forget_stream(&mut self, stream: StreamId) {
        self.withdraw_pieces(|piece| piece.ahead_for == Some(stream) && piece.waiters.is_empty());
    }

    /// Withdraws queued pieces of a file that no client waits for.
    pub(crate) fn leave(&mut self, file: FileId) {
        if !self.uses(file) {
            return;
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

    /// Answers a blocked request. Ignored if no request of this id is blocked.
    pub(crate) fn answer(&mut self, now: Nanos, id: RequestId, verdict: Verdict) {
        if self.blocked.get(&id).is_some_and(|blocked| !blocked.pieces.is_empty()) {
            self.withdraw(&BTreeSet::from([id]));
        }
        let Some(Blocked { since, range, .. }) = self.blocked.remove(&id) else { return };
        self.expiry.remove(id);
        self.answered.push(Answered { verdict, range, waited: now - since });
        self.say(id, verdict);
    }

    /// Queues an answer for the driver.
    pub(crate) fn say(&mut self, id: RequestId, verdict: Verdict) {
        self.answers.push_back((id, verdict));
    }

    /// Takes the requests that were answered after a wait.
    pub(crate) fn take_answered(&mut self) -> Vec<Answered> {
        core::mem::take(&mut self.answered)
    }

    /// Takes the pieces that were withdrawn unread.
    pub(crate) fn take_withdrawn(&mut self) -> Vec<Piece> {
        core::mem::take(&mut self.withdrawn)
    }

    /// The next answer to deliver.
    pub(crate) fn next_answer(&mut self) -> Option<(RequestId, Verdict)> {
        self.answers.pop_front()
    }
}
