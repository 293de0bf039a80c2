//! Clients: what each requests next, and when.

use std::cell::RefCell;
use std::rc::Rc;

use seekless_base::Nanos;
use seekless_base::wants::parts;
use seekless_model::workload::catalogue::Catalogue;
use seekless_model::workload::closed::{ClosedReader, RangeRequest};
use seekless_model::workload::handler::{Requests, Step};
use seekless_model::workload::session::{Due, Session};
use seekless_model::workload::sources::Comparison;

use super::config::ProgramWork;

/// The client of a request.
pub(crate) enum Kind<'a> {
    /// The next range when the last is complete. The connections of one reader share its ranges.
    Closed(Rc<RefCell<ClosedReader<'a>>>),
    /// The next request to a handler when the last is answered.
    Handler(Box<Requests<'a>>),
    /// The next file of a batch, then of the next batch of the list, until all are read.
    Tree(Program),
    /// The next two files of a pair of trees, until all are compared.
    Diff(Comparison),
    /// The clients that a balancer sends to this node.
    Balanced,
    /// A viewer.
    Session {
        session: Session,
        /// The segment to request next.
        next: u32,
        /// Whether it counts.
        measured: bool,
    },
}

/// A list of files that programs take in batches.
pub(crate) struct Batches {
    /// Files that were not taken, the last first.
    pub(crate) left: Vec<u32>,
    pub(crate) batch: usize,
}

/// Bytes that a program reads before it processes them (the checksum programs of GNU coreutils).
const READ_AT_ONCE: u64 = 32 << 10;

/// One of the programs.
pub(crate) struct Program {
    pub(crate) list: Rc<RefCell<Batches>>,
    /// The rest of its batch, the last first.
    pub(crate) batch: Vec<u32>,
    pub(crate) work: ProgramWork,
}

impl Program {
    /// The next file, from its first byte to its last.
    fn next(&mut self, catalogue: &Catalogue) -> Option<Vec<Step>> {
        let mut before = self.work.file;
        if self.batch.is_empty() {
            let mut list = self.list.borrow_mut();
            let from = list.left.len().saturating_sub(list.batch);
            self.batch = list.left.split_off(from);
            before += self.work.start;
        }
        let video = self.batch.pop()?;
        let size = catalogue.video(video).size.0;
        let mut steps = Vec::new();
        if before > Nanos::ZERO {
            steps.push(Step::Think(before));
        }
        let read = |offset, len| Step::Read { open: 0, range: RangeRequest { video, offset, len } };
        match self.work.rate {
            None => steps.push(read(0, size)),
            Some(rate) => {
                for part in parts(0, size, READ_AT_ONCE) {
                    let len = part.end - part.start;
                    steps.extend([
                        read(part.start, len),
                        Step::Think(Nanos::from_secs_f64(len as f64 / rate)),
                    ]);
                }
            }
        }
        Some(steps)
    }
}

/// One client.
pub(crate) struct Client<'a> {
    pub(crate) kind: Kind<'a>,
    pub(crate) disk: u32,
    /// When the current request was due.
    pub(crate) due: Nanos,
    /// Delay each way.
    pub(crate) delay: Nanos,
}

impl Client<'_> {
    /// The server's work for the next request, and when it is due, if there is one; `done`: when the previous
    /// one was complete.
    pub(crate) fn next(&mut self, catalogue: &Catalogue, done: Nanos) -> Option<(Nanos, Vec<Step>)> {
        let one = |range: RangeRequest| vec![Step::Read { open: 0, range }];
        match &mut self.kind {
            Kind::Closed(reader) => reader.borrow_mut().next().map(|r| (done, one(r))),
            Kind::Balanced => None,
            Kind::Tree(program) => program.next(catalogue).map(|steps| (done, steps)),
            Kind::Diff(comparison) => {
                comparison.next(|file| catalogue.video(file).size.0).map(|steps| (done, steps))
            }
            Kind::Handler(requests) => requests.next().map(|steps| (done, steps)),
            Kind::Session { session, next, .. } => {
                if *next >= session.end {
                    return None;
                }
                let i = *next;
                *next += 1;
                let due = match session.due(i) {
                    Due::At(at) => at,
                    Due::AfterPrevious => done,
                };
                Some((due, one(session.range(i, catalogue))))
            }
        }
    }
}

/// A client's link: bytes leave the socket one after the other at its rate.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Link {
    /// Nanoseconds for each byte; 0: no limit.
    pub(crate) ns_per_byte: f64,
    /// When the last byte in the socket will have left.
    pub(crate) free_at: Nanos,
}

impl Link {
    pub(crate) fn new(bits_per_s: Option<u64>) -> Link {
        Link { ns_per_byte: bits_per_s.map_or(0.0, |b| 8e9 / b.max(1) as f64), free_at: Nanos::ZERO }
    }

    /// Bytes still in the socket.
    pub(crate) fn held(&self, now: Nanos) -> u64 {
        if self.ns_per_byte == 0.0 { 0 } else { (self.free_at.since(now).0 as f64 / self.ns_per_byte) as u64 }
    }

    pub(crate) fn take(&mut self, now: Nanos, bytes: u64) {
        self.free_at = self.free_at.max(now) + Nanos((bytes as f64 * self.ns_per_byte) as u64);
    }

    /// When at most `bytes` will be left.
    pub(crate) fn down_to(&self, bytes: u64) -> Nanos {
        self.free_at - Nanos((bytes as f64 * self.ns_per_byte) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seekless_model::workload::tree::TreeFile;

    #[test]
    fn a_program_starts_for_each_batch_and_works_on_what_it_reads() {
        let files = [10_000u64, 70_000, 1].map(|size| TreeFile { path: format!("d/{size}"), size });
        let catalogue = Catalogue::of_tree(files.to_vec(), 1).unwrap();
        let list = Rc::new(RefCell::new(Batches { left: vec![2, 1, 0], batch: 2 }));
        let (start, file, rate) = (Nanos::from_micros(3_000), Nanos::from_micros(20), Some(1e6));
        let mut program = Program { list, batch: Vec::new(), work: ProgramWork { start, file, rate } };
        let think = |us| Step::Think(Nanos::from_micros(us));
        let read = |video, offset, len| Step::Read { open: 0, range: RangeRequest { video, offset, len } };
        let first = [think(3_020), read(0, 0, 10_000), think(10_000)];
        let second = [
            think(20),
            read(1, 0, 32_768),
            think(32_768),
            read(1, 32_768, 32_768),
            think(32_768),
            read(1, 65_536, 4_464),
            think(4_464),
        ];
        assert_eq!(program.next(&catalogue).unwrap(), first);
        assert_eq!(program.next(&catalogue).unwrap(), second);
        assert_eq!(program.next(&catalogue).unwrap()[0], think(3_020), "another batch");
        assert_eq!(program.next(&catalogue), None);
        program.list.borrow_mut().left = vec![1];
        program.work = ProgramWork::default();
        assert_eq!(program.next(&catalogue).unwrap(), [read(1, 0, 70_000)]);
    }
}
