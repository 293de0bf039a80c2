//! A disk that reads one piece after the other, and readers that each read on as soon as they have their
//! bytes.

use seekless_base::{Lba, Nanos};
use seekless_policy::{
    Access, Action, Config, Demand, Event, FileId, IoPriority, Outcome, ReadId, Request, RequestId, Taken,
};

use super::Logged;

/// Bytes that a reader asks for at a time.
pub(crate) const STEP: u64 = 1 << 20;

/// Readers of a file each, far apart on the disk.
pub(crate) struct ClosedLoop {
    pub(crate) logged: Logged,
    /// Where each reader is, and its priority.
    pub(crate) readers: Vec<(u64, IoPriority)>,
    /// Pieces read for each reader, and its longest wait.
    pub(crate) pieces: Vec<u64>,
    pub(crate) longest: Vec<Nanos>,
    /// Bytes of the pieces, and most of them in flight at once.
    pub(crate) bytes: u64,
    pub(crate) in_flight_max: usize,
    /// Pieces in flight, with the time that the disk still needs for each.
    flights: Vec<(Nanos, ReadId)>,
    takes: fn(u64) -> Nanos,
    waiting: Vec<(RequestId, usize, Nanos)>,
    next: u64,
}

impl ClosedLoop {
    /// All readers wait for their first bytes. `takes`: the disk's time for a piece of that length.
    pub(crate) fn new(config: Config, readers: &[IoPriority], takes: fn(u64) -> Nanos) -> ClosedLoop {
        let mut disk = ClosedLoop {
            logged: Logged::new(config),
            readers: readers.iter().map(|&io| (0, io)).collect(),
            pieces: vec![0; readers.len()],
            longest: vec![Nanos::ZERO; readers.len()],
            bytes: 0,
            in_flight_max: 0,
            flights: Vec::new(),
            takes,
            waiting: Vec::new(),
            next: 0,
        };
        (0..readers.len()).for_each(|reader| disk.ask(reader));
        disk
    }

    pub(crate) fn ask(&mut self, reader: usize) {
        let (offset, io) = self.readers[reader];
        self.next += 1;
        let id = RequestId(self.next);
        self.waiting.push((id, reader, self.logged.now));
        self.logged.handle(Event::Request(Request {
            id,
            file: FileId { dev: 8, ino: reader as u64 },
            from: offset,
            offset,
            len: STEP,
            file_size: 1 << 40,
            lba: Some(Lba(reader as u64 * 100_000_000 + offset / 512)),
            demand: Demand { io, ..Demand::default() },
        }));
    }

    /// Carries out what the engine wants.
    pub(crate) fn act(&mut self) {
        while let Some(action) = self.logged.poll() {
            match action {
                Action::Read { id, file, len, .. } => {
                    self.flights.push(((self.takes)(len), id));
                    self.in_flight_max = self.in_flight_max.max(self.flights.len());
                    self.pieces[file.ino as usize] += 1;
                    self.bytes += len;
                }
                Action::Answer { request, .. } => {
                    let at = self.waiting.iter().position(|w| w.0 == request).expect("asked");
                    let (_, reader, since) = self.waiting.remove(at);
                    self.longest[reader] = self.longest[reader].max(self.logged.now - since);
                    let (offset, _) = self.readers[reader];
                    self.readers[reader].0 += STEP;
                    let file = FileId { dev: 8, ino: reader as u64 };
                    let taken = Taken::All;
                    let access = Access { file, offset, len: STEP, file_size: 1 << 40, lba: None, taken };
                    self.logged.handle(Event::Access(access));
                    self.ask(reader);
                }
                _ => {}
            }
        }
    }

    /// The disk's time for what it reads now, if it reads.
    pub(crate) fn left(&self) -> Option<Nanos> {
        self.flights.first().map(|flight| flight.0)
    }

    /// Lets time pass, of which the disk reads during `reads`; none while nothing is in flight.
    pub(crate) fn pass(&mut self, step: Nanos, reads: Nanos) {
        self.logged.now += step;
        if let Some(first) = self.flights.first_mut() {
            first.0 = first.0.since(reads);
            if first.0 == Nanos::ZERO {
                let (_, read) = self.flights.remove(0);
                self.logged.handle(Event::Done { read, outcome: Outcome::Ok });
            }
        } else if self.logged.engine.next_deadline().is_some_and(|at| at <= self.logged.now) {
            self.logged.handle(Event::Tick);
        }
        self.act();
    }
}
