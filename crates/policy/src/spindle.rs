//! The state machine of one disk.
//!
//! ```text
//! Request --> queue of pieces --> in flight --> Progress, Done --> Answer Resident
//!    |             (order)     (serialised)              \-------> Answer Pass(Failed)
//!    |-> covered by a piece: wait on it
//!    `-> no room, nothing to read, mode reads nothing: Answer Pass
//! ```

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use seekless_units::{Lba, Nanos};

use crate::piece::{Flight, Piece, Plan, Waiter, Wanted, lba_at};
use crate::{
    Action, AsAsked, Config, Event, Fifo, FileId, Fixed, Mode, Order, OrderKind, Outcome, Place,
    PrefetchSize, ReadId, Reason, Request, RequestId, Stats, Sweep, Verdict,
};

/// A request not yet answered.
#[derive(Debug)]
struct Waiting {
    since: Nanos,
    /// Pieces it still waits on; never empty.
    pieces: Vec<ReadId>,
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
    /// When each waiting request is given up.
    expiry: BTreeSet<(Nanos, RequestId)>,
    answers: VecDeque<(RequestId, Verdict)>,
    next_read: u64,
    stats: Stats,
}

impl Spindle {
    /// An idle disk. Values of `config` outside their range are brought into it.
    pub fn new(config: Config) -> Spindle {
        let config = config.normalised();
        let size: Box<dyn PrefetchSize + Send> = match config.mode.prefetches() {
            true => Box::new(Fixed(config.prefetch)),
            false => Box::new(AsAsked),
        };
        let order: Box<dyn Order + Send> = match config.order {
            OrderKind::Fifo => Box::new(Fifo),
            OrderKind::Sweep => Box::new(Sweep::new(config.age_max)),
        };
        Spindle {
            config,
            size,
            order,
            now: Nanos::ZERO,
            queue: Vec::new(),
            flights: Vec::new(),
            waiting: BTreeMap::new(),
            expiry: BTreeSet::new(),
            answers: VecDeque::new(),
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
        match event {
            Event::Request(request) => self.request(request),
            Event::Cancel(id) => self.answer(id, Verdict::Pass(Reason::Cancelled)),
            Event::Progress { read, upto } => self.progress(read, upto),
            Event::Done { read, outcome } => self.done(read, outcome),
            Event::Tick => {}
        }
        while let Some(&(at, id)) = self.expiry.first() {
            if at > self.now {
                break;
            }
            self.answer(id, Verdict::Pass(Reason::TooLate));
        }
    }

    /// The next thing to do, `None` when there is nothing to do until the next event.
    pub fn poll_action(&mut self) -> Option<Action> {
        if let Some((request, verdict)) = self.answers.pop_front() {
            return Some(Action::Answer { request, verdict });
        }
        if self.queue.is_empty() || !self.may_submit() {
            return None;
        }
        let mut places =
            self.queue.iter().map(|p| (Place { lba: p.lba, file: p.file, offset: p.start }, p.since));
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
        self.flights.push(Flight { resident: piece.start, piece, submitted: self.now });
        self.stats.in_flight_max = self.stats.in_flight_max.max(self.flights.len());
        Some(action)
    }

    /// When to send [`Event::Tick`] if nothing else happens before.
    pub fn next_deadline(&self) -> Option<Nanos> {
        self.expiry.first().map(|&(at, _)| at)
    }

    /// Counters, and the state of now.
    pub fn stats(&self) -> Stats {
        let mut stats = self.stats.clone();
        stats.waiting = self.waiting.len();
        stats.queued = self.queue.len();
        stats.in_flight = self.flights.len();
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
        let plan = Plan::lay(request, wanted, existing, &*self.size, read_max);
        if self.queue.len() + plan.create.len() > self.config.queue_max {
            return Err(Reason::QueueFull);
        }
        self.stats.bytes_wanted += wanted.end - wanted.start;
        self.stats.attached += u64::from(plan.create.is_empty());

        let mut pieces = Vec::with_capacity(plan.attach.len() + plan.create.len());
        for (id, upto) in plan.attach {
            if self.attach(id, Waiter { request: request.id, upto }) {
                pieces.push(id);
            }
        }
        for (start, end, upto) in plan.create {
            let id = ReadId(self.next_read);
            self.next_read += 1;
            let waiters = alloc::vec![Waiter { request: request.id, upto }];
            let lba: Option<Lba> = lba_at(request, start);
            self.queue.push(Piece { id, file: request.file, start, end, lba, since: self.now, waiters });
            pieces.push(id);
        }
        let here_already = pieces.is_empty();
        self.waiting.insert(request.id, Waiting { since: self.now, pieces });
        self.expiry.insert((self.now + self.config.wait_max, request.id));
        self.stats.waiting_max = self.stats.waiting_max.max(self.waiting.len());
        if here_already {
            self.answer(request.id, Verdict::Resident);
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

    /// Adds a waiter to a piece; `false` if what it waits for is in memory already.
    fn attach(&mut self, id: ReadId, waiter: Waiter) -> bool {
        if let Some(piece) = self.queue.iter_mut().find(|p| p.id == id) {
            piece.waiters.push(waiter);
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
        flight.resident = upto.clamp(flight.resident, flight.piece.end);
        if !self.config.answer_early {
            return;
        }
        let resident = flight.resident;
        let arrived: Vec<Waiter> = flight.piece.waiters.extract_if(.., |w| w.upto <= resident).collect();
        self.satisfied(read, &arrived);
    }

    fn done(&mut self, read: ReadId, outcome: Outcome) {
        let Some(i) = self.flights.iter().position(|f| f.piece.id == read) else { return };
        let flight = self.flights.remove(i);
        let resident = match outcome {
            Outcome::Ok => {
                self.stats.service.record(self.now - flight.submitted);
                flight.piece.end
            }
            Outcome::Failed => {
                self.stats.reads_failed += 1;
                flight.resident
            }
        };
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

    /// Ends a waiting request; ignored if there is none of this name. Queued pieces nobody else waits for go.
    fn answer(&mut self, id: RequestId, verdict: Verdict) {
        let Some(waiting) = self.waiting.remove(&id) else { return };
        self.expiry.remove(&(waiting.since + self.config.wait_max, id));
        for read in waiting.pieces {
            if let Some(i) = self.queue.iter().position(|p| p.id == read) {
                self.queue[i].waiters.retain(|w| w.request != id);
                if self.queue[i].waiters.is_empty() {
                    self.queue.remove(i);
                    self.stats.dropped += 1;
                }
            } else if let Some(flight) = self.flights.iter_mut().find(|f| f.piece.id == read) {
                flight.piece.waiters.retain(|w| w.request != id);
            }
        }
        if verdict == Verdict::Resident {
            self.stats.wait.record(self.now - waiting.since);
        }
        self.stats.answered(verdict);
        self.answers.push_back((id, verdict));
    }
}
