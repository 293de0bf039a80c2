//! The disk queue, case by case: the papers' modes, attaching, early answers, overlap, giving up.

use seekless_base::{Bytes, Lba, Nanos};
use seekless_policy::{
    Access, Action, AheadConfig, Config, Demand, DiskEngine, Event, FileId, IN_FLIGHT_MAX, KernelRead,
    LongestWait, Mode, OrderKind, Outcome, ReadId, Reason, Request, RequestId, Taken, Verdict,
};

const M: u64 = 1 << 20;
const K: u64 = 1 << 10;

fn request(id: u64, ino: u64, offset: u64, len: u64) -> Event {
    let file = FileId { dev: 8, ino };
    Event::Request(Request {
        id: RequestId(id),
        file,
        from: offset,
        offset,
        len,
        file_size: 64 * M,
        lba: Some(Lba(ino * 100_000)),
        demand: Demand::default(),
    })
}

/// A request with a deadline and a bitrate.
fn demanding(id: u64, ino: u64, offset: u64, demand: Demand) -> Event {
    match request(id, ino, offset, 512 * K) {
        Event::Request(request) => Event::Request(Request { demand, ..request }),
        other => other,
    }
}

fn actions(engine: &mut DiskEngine) -> Vec<Action> {
    std::iter::from_fn(|| engine.poll_action()).collect()
}

/// The reads submitted now: (inode, offset, length).
fn reads(engine: &mut DiskEngine) -> Vec<(ReadId, u64, u64, u64)> {
    let read = |a| match a {
        Action::Read { id, file, offset, len, .. } => Some((id, file.ino, offset, len)),
        _ => None,
    };
    actions(engine).into_iter().filter_map(read).collect()
}

fn answers(engine: &mut DiskEngine) -> Vec<(u64, Verdict)> {
    let answer = |a| match a {
        Action::Answer { request, verdict } => Some((request.0, verdict)),
        _ => None,
    };
    actions(engine).into_iter().filter_map(answer).collect()
}

fn serial(mode: Mode) -> DiskEngine {
    DiskEngine::new(Config { mode, reads_in_flight: 1, order: OrderKind::Fifo, ..Config::default() })
}

#[test]
fn off_and_track_pass_everything() {
    for mode in [Mode::Off, Mode::Track] {
        let mut s = serial(mode);
        s.handle(Nanos(1), request(1, 1, 0, M));
        let said = actions(&mut s);
        let passed = Action::Answer { request: RequestId(1), verdict: Verdict::Pass(Reason::Mode) };
        assert_eq!(
            said,
            [passed, Action::Close { file: FileId { dev: 8, ino: 1 } }],
            "and nothing keeps the file open"
        );
        assert_eq!(s.stats().passed[Reason::Mode.index()], 1);
    }
}

#[test]
fn modes_differ_in_length_and_number() {
    for (mode, expected) in [
        (Mode::Serialise, vec![(1, 512 * K)]),
        (Mode::Both, vec![(1, 2 * M)]),
        (Mode::Prefetch, vec![(1, 2 * M), (2, 2 * M)]),
    ] {
        let mut s = serial(mode);
        s.handle(Nanos(1), request(1, 1, 4 * M, 512 * K));
        s.handle(Nanos(1), request(2, 2, 4 * M, 512 * K));
        let got: Vec<_> = reads(&mut s).into_iter().map(|(_, ino, _, len)| (ino, len)).collect();
        assert_eq!(got, expected, "{mode:?}");
    }
}

#[test]
fn what_was_withdrawn_is_not_evicted() {
    let ahead = Some(seekless_policy::AheadConfig::default());
    let config = Config { mode: Mode::Both, reads_in_flight: 1, ahead, ..Config::default() };
    let mut s = DiskEngine::new(config.clone());
    // The disk reads another file for so long that the second request is given up, and its piece withdrawn.
    s.handle(Nanos(1), request(1, 1, 0, 512 * K));
    let [(read, ..)] = reads(&mut s)[..] else { panic!() };
    s.handle(Nanos(2), request(2, 2, 0, 512 * K));
    let late = Nanos(3) + config.wait_max;
    s.handle(late, Event::Done { read, outcome: Outcome::Ok });
    let said: Vec<_> = actions(&mut s);
    assert!(said.iter().any(|a| matches!(
        a,
        Action::Answer { request: RequestId(2), verdict: Verdict::Pass(Reason::TooLate) }
    )));
    // Its client reads for itself and requests more. No eviction is counted, because nothing was fetched.
    s.handle(late + Nanos(1), request(3, 2, 512 * K, 512 * K));
    assert_eq!(s.stats().bytes_evicted_unused, 0);
    let again = reads(&mut s);
    assert!(again.iter().any(|&(_, ino, offset, _)| (ino, offset) == (2, 512 * K)), "{again:?}");
}

/// Answers to requests in line for a disk, each with its second. The disk ends a read after this many
/// seconds, or never. Meanwhile it brings in a page a second (`trickles`) or nothing.
fn given_up(ends_after: Option<u64>, trickles: bool) -> Vec<(u64, u64, Verdict)> {
    let (wait_max, stall_max) = (Nanos::from_secs(55), Nanos::from_secs(30));
    let config =
        Config { reads_in_flight: 1, order: OrderKind::Fifo, wait_max, stall_max, ..Config::default() };
    let mut s = DiskEngine::new(config);
    // Idle for an hour before.
    let begin = Nanos::from_secs(3600);
    for id in 1..=9 {
        s.handle(begin, request(id, id, 0, 512 * K));
    }
    let (mut answers, mut reading) = (Vec::new(), None);
    for second in 0..=100 {
        let now = begin + Nanos::from_secs(second);
        let ended = ends_after.filter(|&t| second > 0 && second % t == 0).and_then(|_| reading.take());
        let event = match (ended, reading) {
            (Some(read), _) => Event::Done { read, outcome: Outcome::Ok },
            (None, Some(read)) if trickles => Event::Progress { read, upto: second * 4096 },
            _ => Event::Tick,
        };
        s.handle(now, event);
        for action in actions(&mut s) {
            match action {
                Action::Answer { request, verdict } => answers.push((second, request.0, verdict)),
                Action::Read { id, .. } => reading = Some(id),
                _ => {}
            }
        }
        assert!(s.next_deadline().is_none_or(|at| at > now), "nothing is put off without end");
    }
    answers
}

#[test]
fn who_waits_for_a_disk_that_comes_on_waits_longer_than_for_one_that_hangs() {
    let late = Verdict::Pass(Reason::TooLate);
    let hung: Vec<_> = (1..=9).map(|id| (30, id, late)).collect();
    assert_eq!(given_up(None, false), hung);
    // One read in ten seconds: five are served, the others are given up after 55 s and not after 30.
    let mut slow: Vec<_> = (1..=5).map(|id| (10 * id, id, Verdict::Resident)).collect();
    slow.extend((6..=9).map(|id| (55, id, late)));
    assert_eq!(given_up(Some(10), false), slow);
    // The first takes too long: all are given up before it ends.
    assert_eq!(given_up(Some(40), false), hung);
    // It progresses, but not far enough.
    let trickled: Vec<_> = (1..=9).map(|id| (55, id, late)).collect();
    assert_eq!(given_up(None, true), trickled);
}

#[test]
fn a_request_covered_by_a_read_attaches_to_it() {
    let mut s = serial(Mode::Both);
    s.handle(Nanos(1), request(1, 1, 0, 512 * K));
    let [(read, _, 0, len)] = reads(&mut s)[..] else { panic!() };
    assert_eq!(len, 2 * M);
    s.handle(Nanos(2), request(2, 1, M, 512 * K));
    assert_eq!(actions(&mut s), []);
    s.handle(Nanos(3), Event::Progress { read, upto: M });
    assert_eq!(answers(&mut s), [(1, Verdict::Resident)]);
    s.handle(Nanos(3), request(3, 1, 512 * K, 256 * K));
    assert_eq!(answers(&mut s), [(3, Verdict::Resident)], "arrived already");
    s.handle(Nanos(4), Event::Done { read, outcome: Outcome::Ok });
    assert_eq!(answers(&mut s), [(2, Verdict::Resident)]);
    assert_eq!((s.stats().reads, s.stats().attached), (1, 2));
}

#[test]
fn a_partly_covered_request_reads_only_the_rest() {
    let mut s = serial(Mode::Both);
    s.handle(Nanos(1), request(1, 1, 0, 512 * K));
    let [(first, ..)] = reads(&mut s)[..] else { panic!() };
    s.handle(Nanos(2), request(2, 1, 2 * M - 256 * K, 512 * K));
    s.handle(Nanos(3), Event::Done { read: first, outcome: Outcome::Ok });
    assert_eq!(s.poll_action(), Some(Action::Answer { request: RequestId(1), verdict: Verdict::Resident }));
    let [(second, _, offset, len)] = reads(&mut s)[..] else { panic!() };
    assert_eq!((offset, len), (2 * M, 2 * M));
    s.handle(Nanos(4), Event::Progress { read: second, upto: 2 * M + 256 * K });
    assert_eq!(answers(&mut s), [(2, Verdict::Resident)]);
}

#[test]
fn the_paper_answers_at_the_end_of_the_read() {
    let mut s = DiskEngine::new(Config { answer_early: false, ..Config::default() });
    s.handle(Nanos(1), request(1, 1, 0, 64 * K));
    let [(read, ..)] = reads(&mut s)[..] else { panic!() };
    s.handle(Nanos(2), Event::Progress { read, upto: M });
    assert_eq!(answers(&mut s), []);
    s.handle(Nanos(3), Event::Done { read, outcome: Outcome::Ok });
    assert_eq!(answers(&mut s), [(1, Verdict::Resident)]);
}

#[test]
fn the_next_read_is_submitted_when_the_last_is_nearly_done() {
    let config = Config { reads_in_flight: 2, overlap: Bytes::kib(256), ..Config::default() };
    let mut s = DiskEngine::new(config);
    for i in 1..=3 {
        s.handle(Nanos(1), request(i, i, 0, 64 * K));
    }
    let [(read, ..)] = reads(&mut s)[..] else { panic!("one read at first") };
    s.handle(Nanos(2), Event::Progress { read, upto: 2 * M - 257 * K });
    assert_eq!(reads(&mut s), []);
    s.handle(Nanos(2), Event::Progress { read, upto: 2 * M - 256 * K });
    assert_eq!(reads(&mut s).len(), 1);
    assert_eq!(reads(&mut s), [], "not a third");
}

/// A request for bytes at this sector.
fn request_at(id: u64, lba: u64) -> Event {
    let Event::Request(request) = request(id, id, 0, 64 * K) else { unreachable!() };
    Event::Request(Request { lba: Some(Lba(lba)), ..request })
}

/// The kernel reads the head of a file at sector 1000 times its number.
fn kernel_read(ino: u64, file_size: u64) -> Event {
    let read = KernelRead::new(FileId { dev: 8, ino }, 0..64 * K, 0, file_size);
    Event::ReadByKernel(KernelRead { lba: Some(Lba(ino * 1000 + 128)), ..read })
}

#[test]
fn a_set_of_spindles_has_a_piece_for_each_in_sweep_order() {
    let mut s = DiskEngine::new(Config { in_flight: 3, ..Config::default() });
    for (id, lba) in [(1, 500), (2, 100), (3, 300), (4, 400), (5, 200)] {
        s.handle(Nanos(1), request_at(id, lba));
    }
    let under_way = reads(&mut s);
    assert_eq!(under_way.iter().map(|r| r.1).collect::<Vec<_>>(), [2, 5, 3]);
    // The next read follows whichever ends first; nearly done is not enough.
    s.handle(Nanos(2), Event::Progress { read: under_way[0].0, upto: 2 * M - 4 * K });
    assert_eq!(reads(&mut s), []);
    s.handle(Nanos(3), Event::Done { read: under_way[1].0, outcome: Outcome::Ok });
    assert_eq!(reads(&mut s).iter().map(|r| r.1).collect::<Vec<_>>(), [4]);
    // The device was found to be one spindle after all: reads in flight end first.
    s.handle(Nanos(4), Event::InFlight(0));
    assert_eq!(s.config().in_flight, 1);
    for read in [under_way[0].0, under_way[2].0] {
        s.handle(Nanos(5), Event::Done { read, outcome: Outcome::Ok });
        assert_eq!(reads(&mut s), []);
    }
}

#[test]
fn each_part_of_a_device_with_heads_of_its_own_has_its_own_queue() {
    let parts = vec![Lba(1000), Lba(2000)];
    let mut s = DiskEngine::new(Config { parts, ..Config::default() });
    for (id, lba) in [(1, 100), (2, 50), (3, 1500), (4, 1100), (5, 2000), (6, 60)] {
        s.handle(Nanos(1), request_at(id, lba));
    }
    let under_way = reads(&mut s);
    assert_eq!(under_way.iter().map(|r| r.1).collect::<Vec<_>>(), [2, 4, 5], "each part's lowest");
    s.handle(Nanos(2), Event::Done { read: under_way[0].0, outcome: Outcome::Ok });
    assert_eq!(reads(&mut s).iter().map(|r| r.1).collect::<Vec<_>>(), [6], "its own next");
    s.handle(Nanos(3), Event::Done { read: under_way[2].0, outcome: Outcome::Ok });
    assert_eq!(reads(&mut s), [], "the last part has nothing more");
    s.handle(Nanos(3), Event::Done { read: under_way[1].0, outcome: Outcome::Ok });
    assert_eq!(reads(&mut s).iter().map(|r| r.1).collect::<Vec<_>>(), [3]);
}

#[test]
fn what_joins_a_read_of_the_kernels_does_not_wait_in_line() {
    let ahead = Some(AheadConfig::default());
    let mut s = DiskEngine::new(Config { ahead, reads_in_flight: 1, ..Config::default() });
    let joins_kernel = |ino| kernel_read(ino, 64 * M);
    s.handle(Nanos(1), request_at(1, 500));
    s.handle(Nanos(1), request_at(2, 600));
    let first = reads(&mut s);
    assert_eq!(first.len(), 1, "one at a time");
    s.handle(Nanos(2), joins_kernel(3));
    assert_eq!(reads(&mut s).iter().map(|r| r.1).collect::<Vec<_>>(), [3], "one for its client");
    // Its client goes on: the kernel reads for no other client.
    let file = FileId { dev: 8, ino: 3 };
    let read = Access { file, offset: 0, len: 4096, file_size: 64 * M, lba: None, taken: Taken::All };
    s.handle(Nanos(2), Event::Access(read));
    for id in 4..=5 + IN_FLIGHT_MAX as u64 {
        s.handle(Nanos(2), joins_kernel(id));
    }
    let joined: Vec<u64> = reads(&mut s).iter().map(|r| r.1).collect();
    assert_eq!(joined, (4..3 + IN_FLIGHT_MAX as u64).collect::<Vec<_>>(), "as many in all, and no more");
    s.handle(Nanos(3), Event::Done { read: first[0].0, outcome: Outcome::Ok });
    assert_eq!(reads(&mut s)[0].1, 2, "those in line go on");
}

/// Clients that the kernel reads for wait for one another: together they bound the lengths of pieces.
#[test]
fn what_joins_is_as_long_as_the_longest_wait_allows() {
    let longest = Nanos::from_secs(2);
    let ahead = Some(AheadConfig { longest_wait: LongestWait::Bound(longest), ..AheadConfig::default() });
    let prefetch = Bytes::mib(32);
    let mut s = DiskEngine::new(Config { ahead, prefetch, read_max: prefetch, ..Config::default() });
    for ino in 1..=40 {
        s.handle(Nanos(2), kernel_read(ino, 1 << 30));
    }
    let joined: Vec<u64> = std::iter::from_fn(|| s.poll_action())
        .filter_map(|action| if let Action::Read { len, .. } = action { Some(len) } else { None })
        .collect();
    assert_eq!(joined.len(), 40, "{joined:?}");
    assert!(joined.is_sorted_by(|a, b| a >= b) && joined[39] < joined[0] / 3, "{joined:?}");
}

#[test]
fn settings_that_name_no_set_are_those_of_one_spindle() {
    let mut value = serde_json::json!({});
    let read: Config = serde_json::from_value(value.clone()).unwrap();
    assert_eq!((read.in_flight, read.parts.len(), read.flights_max()), (1, 0, 1));
    value["in_flight"] = 4.into();
    value["parts"] = serde_json::json!([7, 0, 7, 3]);
    let read = serde_json::from_value::<Config>(value).unwrap().normalised();
    assert_eq!((read.in_flight, read.parts.clone(), read.flights_max()), (4, vec![Lba(3), Lba(7)], 12));
    assert_eq!(Config { in_flight: 0, ..Config::default() }.normalised().in_flight, 1);
}

#[test]
fn a_failed_read_passes_those_it_did_not_reach() {
    let mut s = serial(Mode::Both);
    s.handle(Nanos(1), request(1, 1, 0, 512 * K));
    s.handle(Nanos(1), request(2, 1, M, 512 * K));
    let [(read, ..)] = reads(&mut s)[..] else { panic!() };
    s.handle(Nanos(2), Event::Progress { read, upto: 512 * K });
    s.handle(Nanos(2), Event::Done { read, outcome: Outcome::Failed });
    assert_eq!(answers(&mut s), [(1, Verdict::Resident), (2, Verdict::Pass(Reason::Failed))]);
}

#[test]
fn what_nobody_wants_any_more_is_not_read() {
    let mut s = serial(Mode::Both);
    for i in 1..=3 {
        s.handle(Nanos(1), request(i, i, 0, M));
    }
    let [(read, 1, ..)] = reads(&mut s)[..] else { panic!() };
    s.handle(Nanos(2), Event::Cancel(RequestId(2)));
    s.handle(Nanos(3), Event::Done { read, outcome: Outcome::Ok });
    let next: Vec<u64> = reads(&mut s).into_iter().map(|(_, ino, ..)| ino).collect();
    assert_eq!(next, [3]);
    assert_eq!(s.stats().dropped, 1);
}

#[test]
fn a_hung_disk_holds_nobody_for_ever() {
    let mut s = serial(Mode::Both);
    s.handle(Nanos::from_secs(1), request(1, 1, 0, M));
    s.handle(Nanos::from_secs(2), request(2, 2, 0, M));
    let [(read, ..)] = reads(&mut s)[..] else { panic!() };
    assert_eq!(s.next_deadline(), Some(Nanos::from_secs(31)));
    s.handle(Nanos::from_secs(31), Event::Tick);
    assert_eq!(answers(&mut s), [(1, Verdict::Pass(Reason::TooLate))]);
    s.handle(Nanos::from_secs(32), Event::Tick);
    assert_eq!(answers(&mut s), [(2, Verdict::Pass(Reason::TooLate))]);
    assert_eq!(reads(&mut s), [], "the hung read still holds the disk");
    s.handle(Nanos::from_secs(40), request(3, 3, 0, M));
    assert_eq!(answers(&mut s), [(3, Verdict::Pass(Reason::TooLate))], "not each for half a minute");
    s.handle(Nanos::from_secs(41), Event::Done { read, outcome: Outcome::Ok });
    // An idle disk does not hang.
    s.handle(Nanos::from_secs(200), request(4, 4, 0, M));
    assert_eq!(reads(&mut s).len(), 1);
    s.handle(Nanos::from_secs(201), request(5, 5, 0, M));
    assert_eq!((answers(&mut s), s.next_deadline()), (vec![], Some(Nanos::from_secs(230))));
}

#[test]
fn a_full_queue_passes_at_once() {
    let mut s = DiskEngine::new(Config { queue_max: 2, ..Config::default() });
    for i in 1..=3 {
        s.handle(Nanos(1), request(i, i, 0, M));
    }
    assert_eq!(answers(&mut s), [(3, Verdict::Pass(Reason::QueueFull))]);
}

#[test]
fn small_reads_are_in_flight_together_and_a_long_one_keeps_its_turn() {
    let mut s = DiskEngine::new(Config { mode: Mode::Serialise, small_in_flight: 3, ..Config::default() });
    for (id, len) in [(1, 64 * K), (2, 1024 * K), (3, 1536 * K), (4, 64 * K), (5, 64 * K)] {
        s.handle(Nanos(1), request(id, id, 0, len));
    }
    let first = reads(&mut s);
    assert_eq!(first.iter().map(|r| r.1).collect::<Vec<_>>(), [1, 2], "those behind wait for the long one");
    s.handle(Nanos(2), Event::Done { read: first[0].0, outcome: Outcome::Ok });
    assert_eq!(reads(&mut s), []);
    s.handle(Nanos(3), Event::Done { read: first[1].0, outcome: Outcome::Ok });
    let [(long, 3, ..)] = reads(&mut s)[..] else { panic!("alone") };
    s.handle(Nanos(4), Event::Done { read: long, outcome: Outcome::Ok });
    assert_eq!(reads(&mut s).iter().map(|r| r.1).collect::<Vec<_>>(), [4, 5]);
}

#[test]
fn a_long_read_that_keeps_its_turn_holds_up_no_other_part() {
    let parts = vec![Lba(1000)];
    let mut s =
        DiskEngine::new(Config { mode: Mode::Serialise, small_in_flight: 3, parts, ..Config::default() });
    for (id, lba, len) in [(1, 100, 64 * K), (2, 200, 1536 * K), (3, 1500, 64 * K)] {
        let Event::Request(request) = request_at(id, lba) else { unreachable!() };
        s.handle(Nanos(1), Event::Request(Request { len, ..request }));
    }
    assert_eq!(reads(&mut s).iter().map(|r| r.1).collect::<Vec<_>>(), [1, 3]);
}

#[test]
fn the_turn_of_a_file_set_holds_up_no_part_on_which_it_has_nothing() {
    let (parts, share) = (vec![Lba(1000)], 1.0);
    let mut s = DiskEngine::new(Config { mode: Mode::Serialise, parts, share, ..Config::default() });
    for (id, lba, file_set) in [(1, 100, true), (2, 200, true), (3, 1500, false), (4, 1600, false)] {
        let Event::Request(request) = request_at(id, lba) else { unreachable!() };
        let demand = Demand { file_set, ..Demand::default() };
        s.handle(Nanos(1), Event::Request(Request { demand, ..request }));
    }
    let first = reads(&mut s);
    assert_eq!(first.iter().map(|r| r.1).collect::<Vec<_>>(), [1, 3]);
    // Half of the time is less than the file set's share: its turn begins.
    s.handle(Nanos::from_secs(1), Event::Done { read: first[1].0, outcome: Outcome::Ok });
    assert_eq!(reads(&mut s).iter().map(|r| r.1).collect::<Vec<_>>(), [4]);
}

#[test]
fn a_bitrate_told_with_a_request_sizes_its_piece() {
    let played_at = |bitrate| Demand { bitrate, ..Demand::default() };
    let first_piece = |bitrate| {
        let scale = seekless_policy::sizing::bitrate::BitrateRule::SquareRoot;
        let ahead = Some(seekless_policy::AheadConfig::default());
        let mut s = DiskEngine::new(Config {
            prefetch: Bytes::mib(4),
            scale,
            ahead,
            reads_in_flight: 1,
            ..Config::default()
        });
        // The highest bitrate is 1 MB/s, known once its reader has read.
        s.handle(Nanos(1), demanding(0, 9, 0, played_at(Some(1_000_000))));
        let [(read, ..)] = reads(&mut s)[..] else { panic!("one read") };
        s.handle(Nanos(2), Event::Done { read, outcome: Outcome::Ok });
        let file = FileId { dev: 8, ino: 9 };
        let access =
            Access { file, offset: 0, len: 512 * K, file_size: 64 * M, lba: None, taken: Taken::All };
        s.handle(Nanos::from_secs(1), Event::Access(access));
        s.handle(Nanos::from_secs(2), demanding(1, 1, 0, played_at(bitrate)));
        let [(_, 1, 0, len)] = reads(&mut s)[..] else { panic!("one read of the other") };
        len
    };
    assert_eq!(first_piece(None), 2 * M, "half of the whole size, as of any stream that begins");
    assert_eq!(first_piece(Some(62_500)), 512 * K, "a sixteenth of the bitrate, a quarter of the size");
}

/// A mapping covers all of its file, and its miss lies far behind the start.
#[test]
fn streams_of_the_longest_files_there_can_be_are_counted() {
    let mut s = DiskEngine::new(Config { ahead: Some(AheadConfig::default()), ..Config::default() });
    let (offset, file_size) = (u64::MAX / 4, u64::MAX / 2);
    for id in 1..8 {
        let Event::Request(request) = request_at(id, id * 1000) else { unreachable!() };
        s.handle(Nanos(1), Event::Request(Request { from: 0, offset, file_size, ..request }));
        assert!(s.stats().bytes_unread >= offset);
    }
}
