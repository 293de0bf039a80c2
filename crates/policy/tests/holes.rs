//! Holes, which no disk delivers, and files that the driver is to close.

use seekless_base::{Bytes, Lba, Nanos};
use seekless_policy::{
    Access, Action, AheadConfig, Config, Demand, DiskEngine, Event, FileId, IoPriority, KernelRead, Outcome,
    ReadId, Request, RequestId, Taken, Verdict,
};

const M: u64 = 1 << 20;
const K: u64 = 1 << 10;
const SIZE: u64 = 256 * M;
const FILE: FileId = FileId { dev: 8, ino: 3 };

fn engine() -> DiskEngine {
    DiskEngine::new(Config {
        prefetch: Bytes::mib(4),
        ahead: Some(AheadConfig::default()),
        ..Config::default()
    })
}

fn ms(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}

fn hole(s: &mut DiskEngine, from: u64, upto: u64) {
    s.handle(ms(0), Event::Opened { file: FILE });
    s.handle(ms(0), Event::Hole { file: FILE, from, upto });
}

fn miss(id: u64, offset: u64, len: u64, demand: Demand) -> Event {
    let (id, lba) = (RequestId(id), Some(Lba(offset / 512)));
    Event::Request(Request { id, file: FILE, from: offset, offset, len, file_size: SIZE, lba, demand })
}

fn access(offset: u64, len: u64) -> Event {
    let lba = Some(Lba(offset / 512));
    Event::Access(Access { file: FILE, offset, len, file_size: SIZE, lba, taken: Taken::All })
}

/// Actions so far; every read is completed at once.
#[derive(Debug, Default, PartialEq)]
struct Out {
    reads: Vec<(u64, u64)>,
    answers: Vec<(u64, Verdict)>,
    closed: bool,
}

fn out(s: &mut DiskEngine, now: Nanos) -> Out {
    let mut out = Out::default();
    while let Some(action) = s.poll_action() {
        match action {
            Action::Read { id, offset, len, .. } => {
                out.reads.push((offset, offset + len));
                s.handle(now, Event::Done { read: id, outcome: Outcome::Ok });
            }
            Action::Answer { request, verdict } => out.answers.push((request.0, verdict)),
            Action::Close { file } => out.closed |= file == FILE,
            _ => {}
        }
    }
    out
}

/// Reads a file through in calls of 128 KiB. Returns the reads, and the maximum number of bytes that waited
/// in memory.
fn read_through(s: &mut DiskEngine, upto: u64) -> (Vec<(u64, u64)>, u64) {
    let (mut reads, mut unread) = (Vec::new(), 0);
    for (i, at) in (0..upto).step_by(128 << 10).enumerate() {
        let now = ms(10 * i as u64);
        s.handle(now, Event::Tick);
        reads.extend(out(s, now).reads);
        let covered = reads.iter().any(|&(from, to)| from <= at && at < to);
        if !covered {
            s.handle(now, miss(i as u64, at, 128 * K, Demand::default()));
            let said = out(s, now);
            assert!(matches!(said.answers[..], [(_, Verdict::Resident)]), "{at}: {said:?}");
            reads.extend(said.reads);
        }
        s.handle(now, access(at, 128 * K));
        reads.extend(out(s, now).reads);
        unread = unread.max(s.stats().bytes_unread);
    }
    reads.sort_unstable();
    (reads, unread)
}

#[test]
fn a_file_that_is_one_hole_is_answered_and_never_read() {
    let mut s = engine();
    hole(&mut s, 0, u64::MAX);
    let (reads, unread) = read_through(&mut s, 64 * M);
    assert_eq!((reads, unread), (vec![], 0));
    let stats = s.stats();
    assert_eq!((stats.reads, stats.bytes_read, stats.ledger.disk), (0, 0, 0));
    assert_eq!(stats.bytes_evicted_unused + stats.bytes_wasted, 0);
}

#[test]
fn of_a_file_with_holes_the_data_is_read_once_and_ahead() {
    let mut s = engine();
    for i in [1, 3, 5] {
        hole(&mut s, i * 12 * M, (i + 1) * 12 * M);
    }
    hole(&mut s, 84 * M, u64::MAX);
    let (reads, unread) = read_through(&mut s, 96 * M);
    assert!(reads.windows(2).all(|pair| pair[0].1 <= pair[1].0), "no byte twice: {reads:?}");
    let in_data = |&(from, upto): &(u64, u64)| {
        (from / (12 * M)).is_multiple_of(2) && from / (12 * M) == (upto - 1) / (12 * M)
    };
    assert!(reads.iter().all(in_data), "{reads:?}");
    assert_eq!(reads.iter().map(|(from, upto)| upto - from).sum::<u64>(), 48 * M);
    assert!(s.stats().ahead > 8, "{:?}", s.stats());
    assert!(unread <= 12 * M, "holes are no part of what waits: {unread}");
    assert_eq!(s.stats().ledger.disk, 48 * M);
}

#[test]
fn a_request_over_a_hole_waits_for_its_data_alone() {
    let mut s = engine();
    hole(&mut s, M, 2 * M);
    s.handle(ms(1), miss(1, 512 * K, 2 * M, Demand { file_set: true, ..Demand::default() }));
    let said = out(&mut s, ms(1));
    let mut reads = said.reads;
    reads.sort_unstable();
    assert_eq!(reads, [(512 * K, M), (2 * M, 2 * M + 512 * K)]);
    assert_eq!(said.answers, [(1, Verdict::Resident)]);
}

#[test]
fn what_was_written_since_is_read() {
    let mut s = engine();
    hole(&mut s, 0, 16 * M);
    s.handle(ms(1), Event::Written { file: FILE, from: 0, upto: 8 * M });
    s.handle(ms(1), miss(1, 0, M, Demand::default()));
    let said = out(&mut s, ms(1));
    assert!(said.reads[0].0 == 0 && said.reads[0].1 >= M && said.reads[0].1 <= 8 * M, "{said:?}");
}

#[test]
fn what_the_kernel_reads_of_a_hole_is_not_counted() {
    let mut s = engine();
    hole(&mut s, 0, 16 * M);
    s.handle(ms(1), Event::Opened { file: FILE });
    s.handle(ms(1), Event::ReadByKernel(KernelRead::new(FILE, 0..M, 0, SIZE)));
    s.handle(ms(2), access(0, M));
    assert_eq!(s.stats().ledger.disk, 0);
}

/// A stream in the middle of its file. Returns its read in flight.
fn streaming(s: &mut DiskEngine) -> ReadId {
    s.handle(ms(0), miss(1, 0, 512 * K, Demand::default()));
    out(s, ms(0));
    for i in 0..3 {
        s.handle(ms(1 + i), access(i * 512 * K, 512 * K));
    }
    let read = std::iter::from_fn(|| s.poll_action()).find_map(|action| match action {
        Action::Read { id, .. } => Some(id),
        _ => None,
    });
    read.expect("something is read ahead")
}

#[test]
fn a_file_that_is_left_is_closed_when_its_read_is_over_and_nothing_more_is_read() {
    let mut s = engine();
    let read = streaming(&mut s);
    s.handle(ms(10), Event::Leave { file: FILE });
    assert_eq!(out(&mut s, ms(10)), Out::default(), "a read of it is under way");
    // Its reader goes on meanwhile, as far as is reported.
    s.handle(ms(11), access(3 * 512 * K, 512 * K));
    s.handle(ms(12), Event::Done { read, outcome: Outcome::Ok });
    assert_eq!(out(&mut s, ms(12)), Out { closed: true, ..Out::default() });
    s.handle(ms(13), access(4 * 512 * K, 512 * K));
    assert_eq!(out(&mut s, ms(13)), Out::default(), "it is closed");
    let stats = s.stats();
    assert_eq!((stats.bytes_unread, stats.queued, stats.bytes_evicted_unused), (0, 0, 0), "{stats:?}");
    assert_eq!(s.next_deadline().map(|at| at > ms(1000)), Some(true), "nothing is to be done soon");
}

#[test]
fn a_client_that_waits_is_served_all_the_same_and_who_is_not_there_is_not() {
    let mut s = engine();
    s.handle(ms(0), Event::Opened { file: FILE });
    let other = FileId { dev: 8, ino: 4 };
    // The disk is busy with another file, so these wait in line.
    let busy = Request {
        id: RequestId(9),
        file: other,
        from: 0,
        offset: 0,
        len: M,
        file_size: SIZE,
        lba: None,
        demand: Demand::default(),
    };
    s.handle(ms(0), Event::Request(busy));
    let Some(Action::Read { id, .. }) = s.poll_action() else { panic!("the disk is idle") };
    let idle = KernelRead { io: IoPriority::IDLE, ..KernelRead::new(FILE, 0..64 * K, 0, SIZE) };
    s.handle(ms(1), Event::ReadByKernel(idle));
    assert_eq!(s.stats().queued, 1, "what lies behind it waits in line");
    s.handle(ms(1), miss(2, 32 * M, 64 * K, Demand::default()));
    s.handle(ms(2), Event::Leave { file: FILE });
    s.handle(ms(3), Event::Done { read: id, outcome: Outcome::Ok });
    let said = out(&mut s, ms(3));
    assert_eq!(said.answers, [(9, Verdict::Resident), (2, Verdict::Resident)]);
    assert!(said.closed && said.reads.iter().all(|&(from, _)| from >= 32 * M), "{said:?}");
}

#[test]
fn a_file_that_is_opened_again_is_followed_again() {
    let mut s = engine();
    let read = streaming(&mut s);
    s.handle(ms(10), Event::Leave { file: FILE });
    s.handle(ms(11), Event::Done { read, outcome: Outcome::Ok });
    assert!(out(&mut s, ms(11)).closed);
    let mut reads = Vec::new();
    for i in 3..40 {
        let now = ms(10 * i);
        s.handle(now, miss(i, i * 512 * K, 512 * K, Demand::default()));
        reads.extend(out(&mut s, now).reads);
        s.handle(now, access(i * 512 * K, 512 * K));
        reads.extend(out(&mut s, now).reads);
    }
    assert!(s.stats().ahead > 2 && !reads.is_empty(), "{reads:?}");
}
