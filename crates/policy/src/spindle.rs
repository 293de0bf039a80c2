//! The state machine of one disk.
//!
//! ```text
//! Request --> queue of pieces --> in flight --> Progress, Done --> Answer Resident
//!    |             (order)     (serialised)              \-------> Answer Pass(Failed)
//!    |-> covered by a piece: wait on it
//!    `-> no room, nothing to read, mode reads nothing: Answer Pass
//! ```

mod drops;
mod sizing;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use drops::Drops;
use seekless_units::{Bytes, Lba, Nanos};
use sizing::Manner;

use crate::account::Account;
use crate::ahead::{Ahead, KEEP_BEHIND, Pressure, TAKEN_AFTER};
use crate::piece::{Delivered, Flight, Piece, Plan, Waiter, Wanted, lba_at};
use crate::{
    Access, Action, AheadConfig, AsAsked, Config, Demand, Event, Fifo, FileId, Heeds, Mode, Order, OrderKind,
    Outcome, PAGE, Place, PrefetchSize, Queued, ReadId, Reason, Request, RequestId, Stats, Stream, StreamId,
    Streams, Sweep, Taken, Verdict,
};

/// How long a read takes, before the first one ended: 2 MiB from a drive of the papers.
const SERVICE_AT_FIRST: Nanos = Nanos::from_millis(30);

/// So many pieces are in line at most that nobody is blocked on: who is blocked, and that is whoever comes new, waits for a sweep over
/// them. With sixteen the sweep seeks about as little as with a hundred (0.8 against 0.6 ms a command for 8 GiB of memory).
const QUEUE_AHEAD: usize = 16;

/// No piece is queued earlier than this before its stream runs dry.
const EARLY_MOST: Nanos = Nanos::from_secs(20);

/// A request not yet answered.
#[derive(Debug)]
struct Waiting {
    since: Nanos,
    /// Its entry in [`Spindle::expiry`].
    looked_at: Nanos,
    /// Pieces it still waits on; never empty.
    pieces: Vec<ReadId>,
    /// What it wants: file, start, end.
    range: (FileId, u64, u64),
}

/// Decides what one disk reads next. See the crate's documentation for the loop around it.
pub struct Spindle {
    config: Config,
    size: Box<dyn PrefetchSize + Send>,
    order: Box<dyn Order + Send>,
    now: Nanos,
    /// In order of arrival.
    queue: Vec<Piece>,
    flights: Vec<Flight>,
    waiting: BTreeMap<RequestId, Waiting>,
    /// When each waiting request is looked at: it may be given up then.
    expiry: BTreeSet<(Nanos, RequestId)>,
    /// When a read last came on.
    came_on: Nanos,
    answers: VecDeque<(RequestId, Verdict)>,
    drops: Drops,
    streams: Option<Following>,
    account: Account,
    /// When the sizing algorithm hears of what happened next.
    next_look: Nanos,
    next_read: u64,
    stats: Stats,
}

/// Streams by a time of theirs: at most one entry a stream.
#[derive(Default)]
struct ByDeadline {
    in_order: BTreeSet<(Nanos, StreamId)>,
    deadlines: BTreeMap<StreamId, Nanos>,
}

impl ByDeadline {
    fn insert(&mut self, deadline: Nanos, stream: StreamId) {
        if let Some(before) = self.deadlines.insert(stream, deadline) {
            self.in_order.remove(&(before, stream));
        }
        self.in_order.insert((deadline, stream));
    }

    fn remove(&mut self, stream: StreamId) {
        if let Some(deadline) = self.deadlines.remove(&stream) {
            self.in_order.remove(&(deadline, stream));
        }
    }

    fn first(&self) -> Option<(Nanos, StreamId)> {
        self.in_order.first().copied()
    }

    fn deadline(&self, stream: StreamId) -> Option<Nanos> {
        self.deadlines.get(&stream).copied()
    }
}

/// What is kept to read ahead of need.
struct Following {
    config: AheadConfig,
    table: Streams,
    /// Streams whose next piece is not queued yet, by when they run dry.
    upcoming: ByDeadline,
    /// Streams of which it is not known how much of their last read they took, by when they have taken all of it.
    taking: ByDeadline,
    pressure: Pressure,
    /// Moving average of the time a read takes.
    service: Nanos,
    /// What files' headers said, bytes a second. Of files with a stream only.
    bitrates: BTreeMap<FileId, u64>,
    /// When the highest bitrate was last looked for, and what it was.
    ranked: Nanos,
    highest: f64,
    /// Bytes requested when it was, and what the mean stream requests a second of late.
    requested: u64,
    pace: f64,
    /// When the budget last shrank for good.
    shrunk: Nanos,
}

impl Following {
    /// A stream is over: no piece of it is to come.
    fn forget(&mut self, stream: StreamId) {
        self.upcoming.remove(stream);
        self.taking.remove(stream);
    }
}

impl Spindle {
    /// An idle disk. Values of `config` outside their range are brought into it.
    pub fn new(config: Config) -> Spindle {
        let config = config.normalised();
        let size: Box<dyn PrefetchSize + Send> = match config.mode.prefetches() {
            true => {
                let profile = config.profile.as_ref();
                config.sizing.build(config.prefetch, config.read_max, &config.scale, profile)
            }
            false => Box::new(AsAsked),
        };
        let order: Box<dyn Order + Send> = match config.order {
            OrderKind::Fifo => Box::new(Fifo),
            OrderKind::Sweep => Box::new(Sweep::new()),
        };
        let bitrate = config.bitrate.unwrap_or(0) as f64;
        let streams = config.ahead.clone().filter(|_| config.mode == Mode::Both).map(|config| Following {
            table: Streams::new(config.streams.clone()),
            config,
            upcoming: ByDeadline::default(),
            taking: ByDeadline::default(),
            pressure: Pressure::default(),
            service: SERVICE_AT_FIRST,
            bitrates: BTreeMap::new(),
            ranked: Nanos::ZERO,
            highest: bitrate,
            requested: 0,
            pace: 0.0,
            shrunk: Nanos::ZERO,
        });
        Spindle {
            config,
            size,
            order,
            now: Nanos::ZERO,
            queue: Vec::new(),
            flights: Vec::new(),
            waiting: BTreeMap::new(),
            expiry: BTreeSet::new(),
            came_on: Nanos::ZERO,
            answers: VecDeque::new(),
            drops: Drops::default(),
            streams,
            account: Account::new(),
            next_look: Nanos::ZERO,
            next_read: 0,
            stats: Stats::default(),
        }
    }

    /// The settings in force.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Takes in what happened. `now` must not run backwards; if it does, it counts as no time having passed.
    pub fn handle(&mut self, now: Nanos, event: Event) {
        self.now = self.now.max(now);
        self.account.pass(self.now);
        match event {
            Event::Request(request) => self.request(request),
            Event::Access(access) => self.access(access),
            Event::Missing { file, offset, len } => {
                self.found_missing(file, offset, offset.saturating_add(len))
            }
            Event::Release { file, offset, len } => self.release(file, offset, offset.saturating_add(len)),
            Event::Bitrate { file, bytes_per_s } => self.told_bitrate(file, bytes_per_s),
            Event::Budget(budget) => self.budget(budget.0),
            Event::Cancel(id) => self.answer(id, Verdict::Pass(Reason::Cancelled)),
            Event::Found { read, from, upto } => {
                if let Some(flight) = self.flights.iter_mut().find(|f| f.piece.id == read) {
                    flight.found(from, upto);
                }
            }
            Event::Progress { read, upto } => self.progress(read, upto),
            Event::Done { read, outcome } => self.done(read, outcome),
            Event::Tick => {}
        }
        self.give_up();
        self.expire_streams();
        self.have_taken_all();
        self.give_back_again();
        self.read_ahead();
        self.account.state(self.flights.len(), self.queue.len());
        self.look_at_size();
    }

    /// The next thing to do, `None` when there is nothing to do until the next event.
    pub fn poll_action(&mut self) -> Option<Action> {
        if let Some((request, verdict)) = self.answers.pop_front() {
            return Some(Action::Answer { request, verdict });
        }
        if let Some((file, start, end)) = self.drops.pop(self.now) {
            self.account.ledger().given_back(file, start, end);
            return Some(Action::Drop { file, offset: start, len: end - start });
        }
        if self.queue.is_empty() || !self.may_submit() {
            return None;
        }
        let mut places = self
            .queue
            .iter()
            .map(|p| Queued { place: Place { lba: p.lba, file: p.file, offset: p.start }, due: p.due });
        let pick = self.order.pick(self.now, &mut places).min(self.queue.len() - 1);
        let piece = self.queue.remove(pick);
        let action = Action::Read {
            id: piece.id,
            file: piece.file,
            offset: piece.start,
            len: piece.end - piece.start,
            lba: piece.lba,
        };
        self.stats.reads += 1;
        self.stats.bytes_read += piece.end - piece.start;
        self.size.submitted(piece.lba, piece.end - piece.start);
        self.flights.push(Flight::new(piece, self.now));
        self.account.state(self.flights.len(), self.queue.len());
        self.stats.in_flight_max = self.stats.in_flight_max.max(self.flights.len());
        Some(action)
    }

    /// When to send [`Event::Tick`] if nothing else happens before.
    pub fn next_deadline(&self) -> Option<Nanos> {
        let give_up = self.expiry.first().map(|&(at, _)| at);
        let stream_over = self.streams.as_ref().and_then(|s| s.table.next_expiry());
        // While nothing happens there is nothing to learn from.
        let idle = self.queue.is_empty() && self.flights.is_empty() && stream_over.is_none();
        let size = self.size.next_deadline().filter(|_| !idle);
        let following = self.streams.as_ref();
        // What is due already was tried, and has to wait for room.
        let before_dry = |time: Nanos| {
            following.and_then(|f| Some(f.upcoming.first()?.0.since(time))).filter(|&at| at > self.now)
        };
        let next_piece = before_dry(EARLY_MOST).or_else(|| before_dry(self.lead()));
        let taken = following.and_then(|f| Some(f.taking.first()?.0));
        [give_up, stream_over, size, next_piece, taken, self.drops.next_again()].into_iter().flatten().min()
    }

    /// Counters, and the state of now.
    pub fn stats(&self) -> Stats {
        let mut stats = self.stats.clone();
        stats.waiting = self.waiting.len();
        stats.queued = self.queue.len();
        stats.in_flight = self.flights.len();
        stats.ledger = self.account.totals();
        stats.disk_time = self.account.disk_time();
        stats.size = self.size.report();
        if let Some(following) = &self.streams {
            stats.streams = following.table.len();
            stats.bytes_unread = following.table.unread();
            stats.budget = following.config.budget.0;
            stats.gives_back = following.config.gives_back(following.pressure.is_short(self.now));
        }
        stats
    }

    /// Whether another read may join those in flight.
    fn may_submit(&self) -> bool {
        if !self.config.mode.serialises() {
            return self.flights.len() < self.config.queue_max;
        }
        let missing: u64 = self.flights.iter().map(Flight::missing).sum();
        self.flights.is_empty()
            || (self.flights.len() < self.config.reads_in_flight && missing <= self.config.overlap.0)
    }

    fn request(&mut self, request: Request) {
        self.stats.requests += 1;
        if let Err(reason) = self.admit(&request) {
            let verdict = Verdict::Pass(reason);
            self.stats.answered(verdict);
            self.answers.push_back((request.id, verdict));
        }
    }

    /// Lays the request over the pieces; an error leaves everything as it was.
    fn admit(&mut self, request: &Request) -> Result<(), Reason> {
        if matches!(self.config.mode, Mode::Off | Mode::Track) {
            return Err(Reason::Mode);
        }
        let read_max = self.config.read_max.0;
        let wanted = Wanted::of(request, read_max).ok_or(Reason::BeyondEnd)?;
        if self.waiting.contains_key(&request.id) {
            return Err(Reason::Duplicate);
        }
        if self.waiting.len() >= self.config.queue_max {
            return Err(Reason::QueueFull);
        }
        let existing = self.pieces_of(request.file);
        let stream = self.follow_miss(request, wanted, &existing);
        let counted_on =
            stream.and_then(|id| Some(self.streams.as_ref()?.table.get(id)?.counted_on)).unwrap_or(0);
        if let Some(bytes_per_s) = request.demand.bitrate {
            self.told_bitrate(request.file, bytes_per_s);
        }
        let manner = self.manner(stream, wanted);
        if manner == Manner::Alone
            && existing.iter().all(|&(_, start, end)| end <= wanted.start || wanted.end <= start)
        {
            return Err(Reason::Random);
        }
        let len = match self.piece_max(stream) {
            Some(_) if manner == Manner::AsAsked => 0,
            Some(len) => len.min(self.room_before_fetched(stream, wanted.start)),
            None => self.size.on_miss(request, wanted.end - wanted.start),
        };
        let plan = Plan::lay(wanted, existing, len, read_max);
        if self.queue.len() + plan.create.len() > self.config.queue_max {
            return Err(Reason::QueueFull);
        }
        self.stats.bytes_wanted += wanted.end - wanted.start;
        self.stats.attached += u64::from(plan.create.is_empty());

        let due = self.due(request.demand);
        let mut pieces = Vec::with_capacity(plan.attach.len() + plan.create.len());
        for (id, upto) in plan.attach {
            if self.attach(id, Waiter { request: request.id, upto }, due) {
                pieces.push(id);
            }
        }
        for (start, end, upto) in plan.create {
            let id = ReadId(self.next_read);
            self.next_read += 1;
            let waiters = alloc::vec![Waiter { request: request.id, upto }];
            let lba: Option<Lba> = lba_at(request, start);
            let file = request.file;
            self.queue.push(Piece { id, file, start, end, lba, due, counted_on, ahead_for: None, waiters });
            self.fetched(stream, end);
            pieces.push(id);
        }
        let here_already = pieces.is_empty();
        let range = (request.file, wanted.start, wanted.end);
        let looked_at = self.now + self.config.wait_max.min(self.config.stall_max);
        self.waiting.insert(request.id, Waiting { since: self.now, looked_at, pieces, range });
        self.expiry.insert((looked_at, request.id));
        self.stats.waiting_max = self.stats.waiting_max.max(self.waiting.len());
        if here_already {
            self.answer(request.id, Verdict::Resident);
        }
        if let Some(stream) = stream {
            self.line_up(stream);
        }
        Ok(())
    }

    /// Id, start and end of every piece of a file.
    fn pieces_of(&self, file: FileId) -> Vec<(ReadId, u64, u64)> {
        let in_flight = self.flights.iter().map(|f| &f.piece);
        self.queue
            .iter()
            .chain(in_flight)
            .filter(|p| p.file == file)
            .map(|p| (p.id, p.start, p.end))
            .collect()
    }

    /// When a piece becomes urgent that somebody waits for: so long before his deadline as a read takes.
    fn due(&self, demand: Demand) -> Nanos {
        let Some(deadline) = demand.deadline else { return self.now + self.config.age_max };
        let service = self.streams.as_ref().map_or(SERVICE_AT_FIRST, |following| following.service);
        Nanos(deadline.0.saturating_sub(service.0)).min(self.now + self.config.wait_max)
    }

    /// Adds a waiter to a piece; `false` if what it waits for is in memory already.
    fn attach(&mut self, id: ReadId, waiter: Waiter, due: Nanos) -> bool {
        if let Some(piece) = self.queue.iter_mut().find(|p| p.id == id) {
            piece.waiters.push(waiter);
            piece.due = piece.due.min(due);
            return true;
        }
        match self.flights.iter_mut().find(|f| f.piece.id == id) {
            Some(flight) if !self.config.answer_early || flight.resident < waiter.upto => {
                flight.piece.waiters.push(waiter);
                true
            }
            _ => false,
        }
    }

    fn progress(&mut self, read: ReadId, upto: u64) {
        let Some(flight) = self.flights.iter_mut().find(|f| f.piece.id == read) else { return };
        flight.reported = true;
        flight.resident = upto.clamp(flight.resident, flight.piece.end);
        self.came_on = self.now;
        let resident = flight.resident;
        let (file, delivered) = (flight.piece.file, flight.delivered(resident));
        let arrived: Vec<Waiter> = match self.config.answer_early {
            true => flight.piece.waiters.extract_if(.., |w| w.upto <= resident).collect(),
            false => Vec::new(),
        };
        self.enter(file, &delivered);
        self.satisfied(read, &arrived);
    }

    fn done(&mut self, read: ReadId, outcome: Outcome) {
        let Some(i) = self.flights.iter().position(|f| f.piece.id == read) else { return };
        let mut flight = self.flights.remove(i);
        let resident = match outcome {
            Outcome::Ok => {
                self.came_on = self.now;
                let took = self.now - flight.submitted;
                self.stats.service.record(took);
                if let Some(following) = &mut self.streams {
                    // An eighth of the news: settles within a dozen reads, shrugs off one slow one.
                    following.service = Nanos((following.service.0 * 7 + took.0) / 8);
                }
                flight.piece.end
            }
            Outcome::Failed => {
                self.stats.reads_failed += 1;
                self.not_coming(flight.piece.file, flight.resident);
                flight.resident
            }
        };
        self.enter(flight.piece.file, &flight.delivered(resident));
        let (arrived, lost): (Vec<Waiter>, Vec<Waiter>) =
            flight.piece.waiters.into_iter().partition(|w| w.upto <= resident);
        self.satisfied(read, &arrived);
        for waiter in lost {
            self.answer(waiter.request, Verdict::Pass(Reason::Failed));
        }
    }

    /// These waiters need nothing more of this read.
    fn satisfied(&mut self, read: ReadId, waiters: &[Waiter]) {
        for waiter in waiters {
            let Some(waiting) = self.waiting.get_mut(&waiter.request) else { continue };
            waiting.pieces.retain(|&id| id != read);
            if waiting.pieces.is_empty() {
                self.answer(waiter.request, Verdict::Resident);
            }
        }
    }

    /// The bytes of a file from `from` on that were under way will not come: the read failed, or was withdrawn. No stream counts
    /// on them any more.
    fn not_coming(&mut self, file: FileId, from: u64) {
        let Some(following) = &mut self.streams else { return };
        let counting: Vec<StreamId> = following
            .table
            .of_file(file)
            .filter(|(_, s)| s.position <= from && s.fetched > from)
            .map(|(id, _)| id)
            .collect();
        for stream in counting {
            following.table.lost(stream, from);
        }
    }

    /// Lets those go who waited for too long, or whose disk does not come on. Who waits behind others looks again.
    fn give_up(&mut self) {
        let mut late = BTreeSet::new();
        while let Some(&(at, id)) = self.expiry.first()
            && at <= self.now
        {
            self.expiry.pop_first();
            let Some(waiting) = self.waiting.get_mut(&id) else { continue };
            let last = waiting.since + self.config.wait_max;
            let next = last.min(self.came_on + self.config.stall_max);
            if next <= self.now {
                late.insert(id);
                continue;
            }
            waiting.looked_at = next;
            self.expiry.insert((next, id));
        }
        // After a stall these are all that waited: the queue is gone through once for them.
        if !late.is_empty() {
            self.withdraw(&late);
        }
        for id in late {
            self.answer(id, Verdict::Pass(Reason::TooLate));
        }
    }

    /// Takes these requests off their pieces. Queued pieces nobody else waits for go.
    fn withdraw(&mut self, ids: &BTreeSet<RequestId>) {
        for flight in &mut self.flights {
            flight.piece.waiters.retain(|w| !ids.contains(&w.request));
        }
        let left = |p: &mut Piece| {
            let before = p.waiters.len();
            p.waiters.retain(|w| !ids.contains(&w.request));
            p.waiters.is_empty() && before > 0 && p.ahead_for.is_none()
        };
        let withdrawn: Vec<Piece> = self.queue.extract_if(.., left).collect();
        self.stats.dropped += withdrawn.len() as u64;
        for piece in withdrawn {
            // Never read, so nobody finds it gone: it is not evicted.
            self.not_coming(piece.file, piece.start);
        }
        for id in ids {
            if let Some(waiting) = self.waiting.get_mut(id) {
                waiting.pieces.clear();
            }
        }
    }

    /// Ends a waiting request; ignored if there is none of this name.
    fn answer(&mut self, id: RequestId, verdict: Verdict) {
        if self.waiting.get(&id).is_some_and(|waiting| !waiting.pieces.is_empty()) {
            self.withdraw(&BTreeSet::from([id]));
        }
        let Some(waiting) = self.waiting.remove(&id) else { return };
        self.expiry.remove(&(waiting.looked_at, id));
        if verdict == Verdict::Resident {
            self.stats.wait.record(self.now - waiting.since);
            if !self.config.hears_hits() {
                // Nobody reports the read that follows.
                let (file, start, end) = waiting.range;
                self.account.ledger().used(file, start, end);
            }
        }
        self.stats.answered(verdict);
        self.answers.push_back((id, verdict));
    }

    /// Notes where a stream got to, and whether its next piece is due.
    fn access(&mut self, access: Access) {
        self.stats.accesses += 1;
        let Access { file, offset, len, file_size, lba, taken } = access;
        if !self.config.hears_hits() {
            return;
        }
        let end = offset.saturating_add(len).min(file_size.max(offset));
        // What of it is being read has arrived, whether it was reported or not.
        let touched = |f: &&mut Flight| f.piece.file == file && offset < f.piece.end && end > f.piece.start;
        let flights = self.flights.iter_mut().filter(touched);
        let delivered: Vec<Delivered> = flights.flat_map(|f| f.delivered_unreported(end)).collect();
        self.enter(file, &delivered);
        self.account.ledger().used(file, offset, end);
        let Some(stream) = self.observe(file, offset, len, file_size) else { return };
        if let Some(following) = &mut self.streams {
            following.table.locate(stream, offset, lba);
            match taken {
                Taken::All => following.taking.remove(stream),
                Taken::Unknown => following.taking.insert(self.now + TAKEN_AFTER, stream),
            }
        }
        self.rank_bitrates();
        self.has_passed(stream, if taken == Taken::All { end } else { offset });
        self.line_up(stream);
    }

    /// A stream has read everything before `upto`.
    fn has_passed(&mut self, stream: StreamId, upto: u64) {
        if let Some(following) = &mut self.streams {
            following.table.passed(stream, upto);
        }
        self.pass_behind(stream);
        self.end_if_done(stream);
    }

    /// Reads that were begun and not gone on with have taken all they named. But doors that hear of reads before they are done hear of whole
    /// pages: the next one may begin in the last of them, unless the file ends there.
    fn have_taken_all(&mut self) {
        while let Some(following) = &mut self.streams
            && let Some((at, id)) = following.taking.first()
            && at <= self.now
        {
            following.taking.remove(id);
            let Some(stream) = following.table.get(id) else { continue };
            let upto = match stream.position < stream.file_size {
                true => stream.position.saturating_sub(PAGE),
                false => stream.position,
            };
            self.has_passed(id, upto);
        }
    }

    /// Notes a read that is about to miss; what it reads is reported when it is done. Where its stream counted on what is neither queued
    /// nor in flight, it does no longer; how much of it was evicted shows when it is read again.
    fn follow_miss(
        &mut self,
        request: &Request,
        wanted: Wanted,
        existing: &[(ReadId, u64, u64)],
    ) -> Option<StreamId> {
        let expected = self.counting_on(request.file, wanted.start);
        let coming = existing.iter().any(|&(_, start, end)| start <= wanted.start && wanted.start < end);
        let from = request.from.min(request.offset);
        let stream = self.observe(request.file, from, 0, request.file_size)?;
        let following = self.streams.as_mut()?;
        following.table.locate(stream, request.offset, request.lba);
        if coming {
            return Some(stream);
        }
        // One page is known to be missing, also where nothing is read now.
        let known = wanted.start + PAGE;
        if expected.contains(&stream) {
            following.table.lost(stream, wanted.start);
            self.evicted(request.file, wanted.start, known);
        }
        self.account.ledger().missing(self.now, request.file, wanted.start, known);
        Some(stream)
    }

    /// Longest piece for a stream; `None` when streams are not followed.
    fn piece_max(&self, stream: Option<StreamId>) -> Option<u64> {
        let following = self.streams.as_ref()?;
        let stream = following.table.get(stream?)?;
        let len = self.piece_len(following, stream);
        Some(following.config.piece_max_blocked(&following.table, stream, len))
    }

    /// Bytes from `start` to where memory is thought to hold what comes, for this stream or another of the file: none where
    /// a reader missed what was given back behind him.
    fn room_before_fetched(&self, stream: Option<StreamId>, start: u64) -> u64 {
        let (Some(following), Some(id)) = (&self.streams, stream) else { return u64::MAX };
        let own = following.table.get(id).map_or(0, |s| s.fetched);
        if own > start.next_multiple_of(PAGE) {
            return 0;
        }
        following.table.next_fetched(id, start).map_or(u64::MAX, |next| next - start)
    }

    fn fetched(&mut self, stream: Option<StreamId>, upto: u64) {
        if let (Some(following), Some(stream)) = (&mut self.streams, stream) {
            following.table.fetched(stream, upto);
        }
    }

    /// Puts a stream in line for its next piece, or takes it out.
    fn line_up(&mut self, stream: StreamId) {
        let Some(following) = &mut self.streams else { return };
        following.table.share(stream);
        let Some(following) = &self.streams else { return };
        let dry = following.table.get(stream).and_then(|reader| {
            following.config.runs_dry(self.now, reader, self.piece_len(following, reader))
        });
        let Some(following) = &mut self.streams else { return };
        match dry {
            Some(dry) => following.upcoming.insert(dry, stream),
            None => following.upcoming.remove(stream),
        }
    }

    /// Queued pieces nobody is blocked on.
    fn ahead_in_line(&self) -> usize {
        self.queue.iter().filter(|p| p.waiters.is_empty()).count()
    }

    /// How long before a stream runs dry its next piece is due: the disk has to get through what is in line.
    fn lead(&self) -> Nanos {
        let Some(following) = &self.streams else { return Nanos::ZERO };
        let in_line = (self.queue.len() + self.flights.len()) as u64;
        let backlog = Nanos(following.service.0.saturating_mul(in_line));
        backlog + backlog + following.config.slack
    }

    /// The stream whose next piece is queued first: the one that runs dry first. Where a piece is what a switch is worth and somebody
    /// is blocked, one whose piece goes on where another ends that is being read, or is to be for somebody blocked. Any other
    /// would make those who are blocked wait for a switch before it is known whether its reader comes so far.
    fn next_ahead(&self) -> Option<StreamId> {
        let following = self.streams.as_ref()?;
        let blocked = || self.queue.iter().filter(|p| !p.waiters.is_empty());
        if self.size.heeds() < Heeds::Lengths || blocked().next().is_none() {
            return following.upcoming.first().map(|(_, stream)| stream);
        }
        self.flights.iter().map(|f| &f.piece).chain(blocked()).find_map(|piece| {
            let mut readers = following.table.of_file(piece.file);
            let goes_on =
                readers.find(|&(id, s)| s.fetched == piece.end && following.upcoming.deadline(id).is_some());
            goes_on.map(|(id, _)| id)
        })
    }

    /// Queues the next pieces of streams: those due and, while the queue is short and memory plentiful, others.
    fn read_ahead(&mut self) {
        while self.ahead_in_line() < QUEUE_AHEAD
            && let Some(stream) = self.next_ahead()
        {
            // Others may have fetched for it since.
            self.line_up(stream);
            if self.next_ahead() != Some(stream) {
                continue;
            }
            let Some(following) = &self.streams else { return };
            let Some(dry) = following.upcoming.deadline(stream) else { return };
            let Some(reader) = following.table.get(stream) else { return };
            let len = self.piece_len(following, reader);
            let due = dry.since(self.now) <= self.lead();
            let early = dry.since(self.now) <= EARLY_MOST
                && self.queue.len() < QUEUE_AHEAD
                && following.config.may_be_early(&following.table, len.full);
            if !due && !early {
                return;
            }
            let Some(ahead) = following.config.next_piece(&following.table, stream, len, dry) else {
                self.stats.held_back += 1;
                return;
            };
            if !self.queue_ahead(stream, ahead) {
                return;
            }
            // One early piece at a time: the next when it reads again.
            if !due && let Some(following) = &mut self.streams {
                following.upcoming.remove(stream);
            }
        }
    }

    /// Queues the parts of a piece that no other piece brings in; `false` if the queue is at its bound.
    fn queue_ahead(&mut self, stream: StreamId, ahead: Ahead) -> bool {
        let Some(following) = &mut self.streams else { return false };
        let Some(reader) = following.table.get(stream) else { return false };
        let (file, counted_on) = (reader.file, reader.counted_on);
        let size = (ahead.end - ahead.start).min(self.config.read_max.0);
        let request = Request {
            id: RequestId(u64::MAX),
            file,
            from: ahead.start,
            offset: ahead.start,
            len: size,
            file_size: ahead.end,
            lba: reader.address_of(ahead.start),
            demand: Demand::default(),
        };
        let Some(wanted) = Wanted::of(&request, self.config.read_max.0) else { return false };
        let plan = Plan::lay(wanted, self.pieces_of(file), 0, self.config.read_max.0);
        if self.queue.len() + plan.create.len() > self.config.queue_max {
            return false;
        }
        for (start, end, _) in plan.create {
            let id = ReadId(self.next_read);
            self.next_read += 1;
            self.stats.ahead += 1;
            self.queue.push(Piece {
                id,
                file,
                start,
                end,
                lba: lba_at(&request, start),
                due: ahead.deadline,
                counted_on,
                ahead_for: Some(stream),
                waiters: Vec::new(),
            });
        }
        self.fetched(Some(stream), wanted.end);
        true
    }

    /// Gives back what a stream and everybody behind it have passed.
    fn pass_behind(&mut self, stream: StreamId) {
        let Some(following) = &mut self.streams else { return };
        let short = following.pressure.is_short(self.now);
        let Some((start, end)) = following.config.passed(&following.table, stream, short) else { return };
        let Some(file) = following.table.get(stream).map(|s| s.file) else { return };
        following.table.dropped(stream, end);
        self.give_back(file, start, end);
    }

    /// Gives back what a stream that is over leaves in memory for nobody.
    fn leave_behind(&mut self, over: &Stream) {
        let Some(following) = &self.streams else { return };
        let short = following.pressure.is_short(self.now);
        if let Some((start, end)) = following.config.left_behind(&following.table, over, short) {
            self.give_back(over.file, start, end);
        }
    }

    fn give_back(&mut self, file: FileId, start: u64, end: u64) {
        if self.drops.push(file, start, end) {
            self.stats.bytes_dropped = self.stats.bytes_dropped.saturating_add(end - start);
        }
    }

    /// Gives back once more what may not have left memory the time before.
    fn give_back_again(&mut self) {
        while let Some(drop) = self.drops.ripe(self.now) {
            if !self.is_expected(drop.file, drop.start, drop.end) {
                self.drops.push_again(drop);
            }
        }
    }

    /// Gives back what a cache above has now, in whole pages, unless somebody else comes for it.
    fn release(&mut self, file: FileId, start: u64, end: u64) {
        let end = end.min(i64::MAX as u64) / PAGE * PAGE;
        let start = start.min(end).next_multiple_of(PAGE);
        if start < end && !self.is_expected(file, start, end) {
            self.give_back(file, start, end);
        }
    }

    /// Whether somebody is to come for these bytes, or may be: without streams nobody knows.
    pub fn is_expected(&self, file: FileId, start: u64, end: u64) -> bool {
        let Some(following) = &self.streams else { return true };
        following.table.of_file(file).any(|(_, stream)| stream.passed < end)
            || self.is_under_way(file, start, end)
    }

    /// Up to where in `[start, end)` nobody is still to come for what was fetched on his behalf, or may read a little of it again; `end`
    /// where nobody is at all.
    pub fn passed_by_all(&self, file: FileId, start: u64, end: u64) -> u64 {
        let readers = self.streams.iter().flat_map(|following| following.table.of_file(file));
        let awaiting =
            readers.filter(|(_, s)| s.fetched > start).map(|(_, s)| s.passed.saturating_sub(KEEP_BEHIND));
        awaiting.min().map_or(end, |behind| behind.max(start).min(end))
    }

    /// Whether a queued piece or one in flight touches these bytes.
    fn is_under_way(&self, file: FileId, start: u64, end: u64) -> bool {
        self.pieces_of(file).iter().any(|&(_, from, to)| from < end && start < to)
    }

    /// Forgets a stream that has read its file to the end.
    fn end_if_done(&mut self, stream: StreamId) {
        let Some(following) = &mut self.streams else { return };
        if following.table.get(stream).is_some_and(Stream::at_end) {
            following.forget(stream);
            let over = following.table.end(stream);
            self.closed(over);
        }
    }

    fn budget(&mut self, bytes: u64) {
        if let Some(following) = &mut self.streams {
            // A tenth less is an answer to evictions; a little less is what another process took.
            if bytes < following.config.budget.0 / 20 * 19 {
                following.shrunk = self.now;
            }
            following.config.budget = Bytes(bytes.max(PAGE));
            if !following.config.has_to_spare(&following.table) {
                following.pressure.none_to_spare(self.now);
            }
        }
    }

    fn expire_streams(&mut self) {
        while let Some(following) = &mut self.streams {
            let Some((id, over)) = following.table.expire(self.now) else { break };
            following.forget(id);
            self.stats.bytes_wasted += over.unread();
            self.leave_behind(&over);
            self.closed(Some(over));
            // Its queued pieces would be read for nobody.
            let before = self.queue.len();
            self.queue.retain(|p| p.ahead_for != Some(id) || !p.waiters.is_empty());
            self.stats.dropped += (before - self.queue.len()) as u64;
        }
    }
}
