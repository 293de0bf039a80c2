//! Readers of different I/O priorities on one disk.

mod common;

use common::{Logged, replay};
use proptest::prelude::*;
use seekless_base::{Bytes, Lba, Nanos};
use seekless_policy::{
    Access, Action, AheadConfig, Config, Demand, Event, FileId, IDLE_WAIT, IoPriority, OrderKind, Outcome,
    ReadId, Request, RequestId, Taken,
};

const M: u64 = 1 << 20;

/// A disk that takes 50 ms for a piece, and readers that read on at once.
struct Disk {
    logged: Logged,
    flight: Option<(Nanos, ReadId, usize)>,
    readers: Vec<(u64, IoPriority)>,
    waiting: Vec<(RequestId, usize, Nanos)>,
    next: u64,
    /// Pieces read for each reader, and its longest wait.
    pieces: Vec<u64>,
    longest: Vec<Nanos>,
}

impl Disk {
    fn new(readers: &[IoPriority]) -> Disk {
        let config = Config {
            prefetch: Bytes::mib(1),
            order: OrderKind::Sweep,
            ahead: Some(AheadConfig::default()),
            ..Config::default()
        };
        let mut disk = Disk {
            logged: Logged::new(config),
            flight: None,
            readers: readers.iter().map(|&io| (0, io)).collect(),
            waiting: Vec::new(),
            next: 0,
            pieces: vec![0; readers.len()],
            longest: vec![Nanos::ZERO; readers.len()],
        };
        (0..readers.len()).for_each(|reader| disk.ask(reader));
        disk
    }

    fn ask(&mut self, reader: usize) {
        let (offset, io) = self.readers[reader];
        self.next += 1;
        let id = RequestId(self.next);
        self.waiting.push((id, reader, self.logged.now));
        self.logged.handle(Event::Request(Request {
            id,
            file: FileId { dev: 8, ino: reader as u64 },
            from: offset,
            offset,
            len: M,
            file_size: 1 << 40,
            lba: Some(Lba(reader as u64 * 10_000_000 + offset / 512)),
            demand: Demand { io, ..Demand::default() },
        }));
    }

    fn act(&mut self) {
        while let Some(action) = self.logged.poll() {
            match action {
                Action::Read { id, file, .. } => {
                    let reader = file.ino as usize;
                    self.flight = Some((self.logged.now + Nanos::from_millis(50), id, reader));
                    self.pieces[reader] += 1;
                }
                Action::Answer { request, .. } => {
                    let at = self.waiting.iter().position(|w| w.0 == request).expect("asked");
                    let (_, reader, since) = self.waiting.remove(at);
                    self.longest[reader] = self.longest[reader].max(self.logged.now - since);
                    let (offset, _) = self.readers[reader];
                    self.readers[reader].0 += M;
                    let file = FileId { dev: 8, ino: reader as u64 };
                    let taken = Taken::All;
                    let access = Access { file, offset, len: M, file_size: 1 << 40, lba: None, taken };
                    self.logged.handle(Event::Access(access));
                    self.ask(reader);
                }
                _ => {}
            }
        }
    }

    fn run(mut self, seconds: u64) -> Disk {
        self.act();
        let end = self.logged.now + Nanos::from_secs(seconds);
        while self.logged.now < end {
            match self.flight.take() {
                Some((at, read, _)) => {
                    self.logged.now = at;
                    self.logged.handle(Event::Done { read, outcome: Outcome::Ok });
                }
                None => {
                    self.logged.now = self.logged.engine.next_deadline().expect("readers wait");
                    self.logged.handle(Event::Tick);
                }
            }
            self.act();
        }
        self
    }
}

const NORMAL: IoPriority = IoPriority::NORMAL;

#[test]
fn an_idle_reader_alone_has_the_disk_to_itself() {
    let disk = Disk::new(&[IoPriority::IDLE]).run(20);
    assert!(disk.pieces[0] >= 399, "{}", disk.pieces[0]);
}

#[test]
fn an_idle_reader_gets_a_piece_now_and_then_beside_a_saturated_disk() {
    let disk = Disk::new(&[NORMAL, NORMAL, NORMAL, NORMAL, IoPriority::IDLE]).run(100);
    let (idle, others) = (disk.pieces[4], disk.pieces[..4].iter().sum::<u64>());
    assert!((8..=12).contains(&idle), "{idle} of {others}");
    // At most the sweep over all others, after the time at which it is due.
    assert!(disk.longest[4] <= IDLE_WAIT + Nanos::from_millis(600), "{:?}", disk.longest[4]);
    replay(&disk.logged.log);
}

#[test]
fn levels_weigh_as_they_do_in_the_kernel() {
    let low = IoPriority::best_effort(7);
    let disk = Disk::new(&[NORMAL, NORMAL, NORMAL, low, NORMAL]).run(200);
    let ratio = disk.pieces[0] as f64 / disk.pieces[3] as f64;
    assert!((3.0..5.5).contains(&ratio), "{:?}", disk.pieces);
    // Alone, all of a low level have what all of the default have.
    let disk = Disk::new(&[low; 5]).run(20);
    assert!(disk.pieces.iter().sum::<u64>() >= 399, "{:?}", disk.pieces);
    assert!(disk.pieces.iter().all(|&n| n >= 70), "{:?}", disk.pieces);
}

#[test]
fn a_reader_of_higher_priority_lifts_the_piece_that_it_waits_for() {
    let mut disk = Disk::new(&[NORMAL, NORMAL, NORMAL, IoPriority::IDLE]);
    disk.act();
    // Another process reads the same bytes of the same file.
    disk.readers[3].1 = NORMAL;
    disk.ask(3);
    let disk = disk.run(1);
    assert!(disk.longest[3] <= Nanos::from_millis(400), "{:?}", disk.longest[3]);
}

fn any_priority() -> impl Strategy<Value = IoPriority> {
    let weight = prop_oneof![Just(100), 1..1_000u32];
    (prop::bool::weighted(0.3), weight).prop_map(|(idle, weight)| IoPriority { idle, weight })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Whatever the priorities, no reader waits for longer than the bound and a sweep or two.
    #[test]
    fn nobody_starves(readers in proptest::collection::vec(any_priority(), 1..12)) {
        let disk = Disk::new(&readers).run(60);
        let sweeps = Nanos::from_millis(50 * 3 * readers.len() as u64 + 500);
        for longest in &disk.longest {
            prop_assert!(*longest <= IDLE_WAIT + sweeps, "{:?} of {readers:?}", disk.longest);
        }
        replay(&disk.logged.log);
    }

    /// While others wait, no piece of the idle class is read before it is due.
    #[test]
    fn the_idle_class_never_comes_before_others(normal in 1..8usize, idle in 1..8usize) {
        let mut readers = vec![NORMAL; normal];
        readers.extend(vec![IoPriority::IDLE; idle]);
        let disk = Disk::new(&readers).run(9);
        // One piece may have been chosen while nobody else waited.
        let early: u64 = disk.pieces[normal..].iter().sum();
        prop_assert!(normal == 1 || early <= 1, "{:?}", disk.pieces);
    }

    /// Weights of which all are equal change nothing.
    #[test]
    fn equal_weights_change_nothing(readers in 1..10usize, weight in 1..500u32) {
        let pieces = |io| Disk::new(&vec![io; readers]).run(5).pieces;
        prop_assert_eq!(pieces(NORMAL), pieces(IoPriority { idle: false, weight }));
    }
}
