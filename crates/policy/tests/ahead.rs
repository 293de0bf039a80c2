//! Reading ahead of need, case by case: triggers, deadlines, budget, share, persistence.

use seekless_base::{Bytes, Lba, Nanos};
use seekless_policy::KernelRead;
use seekless_policy::profile::DiskProfile;
use seekless_policy::sizing::competitive::Start;
use seekless_policy::sizing::controller::Params;
use seekless_policy::{
    Access, Action, AheadConfig, Config, Demand, DiskEngine, Event, FileId, MemoryLimit, Outcome, ReadId,
    Reason, Request, RequestId, Sizing, StreamConfig, Taken, Verdict,
};

const M: u64 = 1 << 20;
const K: u64 = 1 << 10;

fn file(ino: u64) -> FileId {
    FileId { dev: 8, ino }
}

fn access(ino: u64, offset: u64, len: u64) -> Event {
    let lba = Some(Lba(ino * 1_000_000 + offset / 512));
    Event::Access(Access { file: file(ino), offset, len, file_size: 64 * M, lba, taken: Taken::All })
}

/// The driver has this file open from now on. A miss implies this too.
fn open(s: &mut DiskEngine, now: Nanos, ino: u64) {
    s.handle(now, Event::Opened { file: file(ino) });
}

fn miss(id: u64, ino: u64, offset: u64, len: u64) -> Event {
    let lba = Some(Lba(ino * 1_000_000 + offset / 512));
    Event::Request(Request {
        id: RequestId(id),
        file: file(ino),
        from: offset,
        offset,
        len,
        file_size: 64 * M,
        lba,
        demand: Demand::default(),
    })
}

fn engine(ahead: AheadConfig) -> DiskEngine {
    DiskEngine::new(Config {
        prefetch: Bytes::mib(4),
        reads_in_flight: 1,
        ahead: Some(ahead),
        ..Config::default()
    })
}

fn ms(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}

/// The next read submitted. Hints and answers before it are skipped.
fn next_read(s: &mut DiskEngine) -> Option<(ReadId, u64, u64)> {
    std::iter::from_fn(|| s.poll_action()).find_map(|action| match action {
        Action::Read { id, offset, len, .. } => Some((id, offset, len)),
        _ => None,
    })
}

/// Every read due now, completed at once: (inode, offset, length).
fn serve(s: &mut DiskEngine, now: Nanos) -> Vec<(u64, u64, u64)> {
    let mut reads = Vec::new();
    while let Some(action) = s.poll_action() {
        if let Action::Read { id, file, offset, len, .. } = action {
            reads.push((file.ino, offset, len));
            s.handle(now, Event::Done { read: id, outcome: Outcome::Ok });
        }
    }
    reads
}

/// A client misses the first half megabyte of a file, and reads it once it has arrived.
fn head_read(s: &mut DiskEngine, missed: Nanos, read: Nanos, id: u64, ino: u64) {
    s.handle(missed, miss(id, ino, 0, 512 * K));
    serve(s, missed);
    s.handle(read, access(ino, 0, 512 * K));
}

/// A reader of 1 MB/s that misses once and then only hits, up to `until` bytes. Returns the reads it caused.
fn steady_reader(s: &mut DiskEngine, ino: u64, until: u64) -> Vec<(u64, u64, u64)> {
    s.handle(ms(0), miss(ino, ino, 0, 512 * K));
    let mut reads = serve(s, ms(0));
    for i in 0..until / (512 * K) {
        let now = ms(i * 500);
        s.handle(now, access(ino, i * 512 * K, 512 * K));
        reads.extend(serve(s, now));
    }
    reads
}

fn read_by_kernel(ino: u64, offset: u64, upto: u64) -> Event {
    Event::ReadByKernel(KernelRead::new(file(ino), offset..upto, 0, 64 * M))
}

#[test]
fn a_window_that_the_kernel_reads_ahead_is_fetched_and_the_next_piece_lies_behind_it() {
    let mut s = engine(AheadConfig::default());
    let fetched_by = [1, 2, 3].map(|ino| {
        let reads = steady_reader(&mut s, ino, 8 * M);
        reads.iter().filter(|read| read.0 == ino).map(|(_, offset, len)| offset + len).max().unwrap()
    });
    s.handle(ms(9000), miss(4, 4, 0, 512 * K));
    assert!(next_read(&mut s).is_some(), "the disk is busy from now on");
    for ino in [2, 3] {
        s.handle(ms(9000), access(ino, 8 * M, 4 * M));
    }
    let unread = |s: &DiskEngine| s.stats().bytes_unread;
    let before = unread(&s);
    s.handle(ms(9001), read_by_kernel(1, 60 * M, 62 * M));
    assert_eq!((next_read(&mut s), unread(&s)), (None, before), "far from every reader");
    s.handle(ms(9001), read_by_kernel(1, 7 * M, 30 * M));
    assert_eq!(next_read(&mut s), None, "around its reader");
    assert!(unread(&s) > before + 10 * M, "it counts as fetched all the same");
    // The pieces of the others that are queued there go on behind the window, one at a time.
    s.handle(ms(9002), read_by_kernel(2, fetched_by[1], fetched_by[1] + M));
    let (joined, offset, len) = next_read(&mut s).expect("it does not wait in line");
    assert!(offset == fetched_by[1] && len > M, "{offset} {len}");
    s.handle(ms(9002), read_by_kernel(3, fetched_by[2], fetched_by[2] + M));
    assert_eq!(next_read(&mut s), None, "no client waits for it");
    s.handle(ms(9003), Event::Done { read: joined, outcome: Outcome::Ok });
    assert_eq!(next_read(&mut s).map(|read| read.1), Some(fetched_by[2]));
}

#[test]
fn one_miss_is_enough_for_a_whole_file() {
    let mut s = engine(AheadConfig::default());
    let reads = steady_reader(&mut s, 1, 32 * M);
    // Persistence: half of the full size, then no more than what was read so far, then the full size.
    assert_eq!(reads[0], (1, 0, 2 * M));
    assert!(reads.iter().all(|&(_, _, len)| len <= 4 * M));
    assert!(reads.iter().filter(|&&(_, _, len)| len == 4 * M).count() >= 5, "{reads:?}");
    // Contiguous, without a gap or an overlap.
    for pair in reads.windows(2) {
        assert_eq!(pair[0].1 + pair[0].2, pair[1].1);
    }
    let stats = s.stats();
    assert_eq!((stats.requests, stats.bytes_evicted_unused), (1, 0));
    assert_eq!(stats.ahead as usize, reads.len() - 1);
}

/// A disk that is gone fails every read at once. Reading ahead again and again would keep its driver busy and
/// block all others.
#[test]
fn what_could_not_be_read_is_not_read_ahead_again_before_its_client_comes_to_it() {
    // A viewer of 0.5 Mb/s.
    let mut s = engine(AheadConfig::default());
    head_read(&mut s, ms(0), ms(0), 1, 1);
    let (mut failed, mut now) = (Vec::new(), ms(0));
    for i in 8..32 {
        now = ms(i * 1_000);
        s.handle(now, access(1, i * 64 * K, 64 * K));
        while let Some((read, start, _)) = next_read(&mut s) {
            failed.push(start);
            assert_eq!(failed, [2 * M]);
            s.handle(now, Event::Done { read, outcome: Outcome::Failed });
        }
    }
    assert_eq!(failed, [2 * M]);
    // It has read that place for itself, and goes on.
    s.handle(now, access(1, 2 * M, 64 * K));
    assert_eq!(next_read(&mut s).map(|(_, start, _)| start), Some(2 * M + 64 * K));
}

/// The automatic size, at the position where all others left: a client known to be sequential is served all
/// the same. Otherwise, if it went on, it would wait for the disk outside the queue, and again at its next
/// read.
#[test]
fn a_viewer_who_may_be_at_his_end_is_not_left_alone() {
    let mut s = DiskEngine::new(Config {
        sizing: Sizing::Auto(Params::default()),
        read_max: Bytes::mib(32),
        reads_in_flight: 1,
        ahead: Some(AheadConfig::default()),
        ..Config::default()
    });
    let mut now = ms(0);
    let mut view = |s: &mut DiskEngine, ino: u64, until: u64| {
        s.handle(now, miss(ino, ino, 0, 512 * K));
        serve(s, now);
        for at in (0..until).step_by(512 << 10) {
            s.handle(now, access(ino, at, 512 * K));
            serve(s, now);
            now += ms(500);
        }
        now
    };
    for ino in 1..=40 {
        let end = view(&mut s, ino, 8 * M);
        s.handle(end + Nanos::from_secs(60), Event::Tick);
    }
    let now = view(&mut s, 100, 15 * M / 2);
    // Evicted since; the client requests it once more.
    s.handle(now, miss(200, 100, 15 * M / 2, 512 * K));
    let mut answers = Vec::new();
    while let Some(action) = s.poll_action() {
        match action {
            Action::Answer { verdict, .. } => answers.push(verdict),
            Action::Read { id, .. } => s.handle(now, Event::Done { read: id, outcome: Outcome::Ok }),
            _ => {}
        }
    }
    assert_eq!(answers, [Verdict::Resident], "half of those who came so far went no further");
}

#[test]
fn random_readers_are_left_alone() {
    let mut s = engine(AheadConfig::default());
    open(&mut s, ms(0), 1);
    for i in 0..50u64 {
        s.handle(ms(i), access(1, i * 37 % 60 * M, 64 * K));
    }
    assert_eq!(serve(&mut s, ms(50)), []);
    assert_eq!(s.stats().ahead, 0);
}

#[test]
fn small_files_in_the_order_of_the_disk_are_left_to_their_readers() {
    let small = |id: u64, sector: u64, demand: Demand| {
        let (file, lba) = (file(id), Some(Lba(sector)));
        Event::Request(Request {
            id: RequestId(id),
            file,
            from: 0,
            offset: 0,
            len: 8 * K,
            file_size: 8 * K,
            lba,
            demand,
        })
    };
    let passed = |s: &DiskEngine| s.stats().passed[Reason::DiskOrder.index()];
    let in_order = |ahead: Option<AheadConfig>, step: u64, demand: Demand| {
        let mut s = DiskEngine::new(Config { ahead, ..Config::default() });
        for i in 0..40u64 {
            s.handle(ms(i), small(i + 1, 1_000_000 + i * step % 100_003, demand));
            serve(&mut s, ms(i));
        }
        s
    };
    let ahead = || Some(AheadConfig::default());
    let mut s = in_order(ahead(), 16, Demand::default());
    let (of_40, now) = (passed(&s), ms(50));
    assert!((30..40).contains(&of_40), "the first few show it: {of_40}");
    assert_eq!(passed(&in_order(ahead(), 70_001, Demand::default())), 0, "anywhere");
    assert_eq!(passed(&in_order(None, 16, Demand::default())), 0, "on a miss, as the papers have it");
    let demand = Demand { file_set: true, ..Demand::default() };
    assert_eq!(passed(&in_order(ahead(), 16, demand)), 0, "a set of files");
    // While a stream waits for the disk, all reads are ordered.
    s.handle(now, miss(100, 100, 0, 512 * K));
    s.handle(now, small(101, 1_000_000 + 40 * 16, Demand::default()));
    assert_eq!(passed(&s), of_40);
    assert_eq!(serve(&mut s, now).len(), 2);
    s.handle(now, small(102, 1_000_000 + 41 * 16, Demand::default()));
    assert_eq!(passed(&s), of_40 + 1);
}

#[test]
fn the_automatic_size_leaves_short_requests_alone_and_reads_long_ones_as_they_are() {
    let miss_in_the_middle = |ended: u64, len: u64| {
        let sizing = Sizing::Auto(Params::default());
        let profile = Some(DiskProfile::assumed(1 << 31));
        let ahead = Some(AheadConfig::default());
        let mut s = DiskEngine::new(Config { sizing, profile, ahead, ..Config::default() });
        // Each read one range and left.
        (1..=ended).for_each(|ino| {
            open(&mut s, ms(ino), ino);
            s.handle(ms(ino), access(ino, 8 * M, 128 * K));
        });
        let now = Nanos::from_secs(60);
        s.handle(now, Event::Tick);
        s.handle(now, miss(1, 101, 8 * M, len));
        let passed = s.stats().passed[Reason::Random.index()] == 1;
        let read = serve(&mut s, now).first().map(|&(_, _, len)| len);
        assert_eq!(passed, read.is_none());
        read
    };
    for ended in [0, 40] {
        assert_eq!(miss_in_the_middle(ended, 128 * K), None, "{ended}");
    }
    assert_eq!(
        miss_in_the_middle(40, 132 * K),
        Some(132 * K),
        "in one go, and no further: he is most likely at his end"
    );
    let further = miss_in_the_middle(0, 132 * K).unwrap();
    assert!(further > 132 * K, "nobody knows how far readers go: {further}");
}

#[test]
fn who_goes_no_further_reads_for_himself_unless_he_takes_the_whole_file() {
    let sizing = Sizing::Competitive(Start::Depth);
    let ahead = Some(AheadConfig::default());
    let mut s = DiskEngine::new(Config { sizing, ahead, ..Config::default() });
    for ino in 1..=40 {
        open(&mut s, ms(ino), ino);
        s.handle(ms(ino), access(ino, 0, 64 * K));
    }
    // All of them have ended.
    let now = Nanos::from_secs(60);
    s.handle(now, Event::Tick);
    let mut verdict_and_read = |request| {
        s.handle(now, request);
        let actions: Vec<_> = std::iter::from_fn(|| s.poll_action()).collect();
        let passed = actions
            .iter()
            .any(|a| matches!(a, Action::Answer { verdict: Verdict::Pass(Reason::Random), .. }));
        let read = actions.iter().any(|a| matches!(a, Action::Read { .. }));
        (passed, read)
    };
    assert_eq!(verdict_and_read(miss(1, 101, 0, 64 * K)), (true, false));
    let Event::Request(request) = miss(2, 102, 0, 64 * K) else { unreachable!() };
    let whole = Event::Request(Request { file_size: 60 * K, ..request });
    assert_eq!(verdict_and_read(whole), (false, true));
}

#[test]
fn while_somebody_is_blocked_a_depth_ahead_of_need_costs_no_switch() {
    let sizing = Sizing::Competitive(Start::Depth);
    let mut s = DiskEngine::new(Config { sizing, ahead: Some(AheadConfig::default()), ..Config::default() });
    s.handle(ms(0), miss(1, 1, 0, 64 * K));
    let depth = serve(&mut s, ms(1))[0].2;
    s.handle(ms(2), miss(2, 2, 0, 64 * K));
    s.handle(ms(2), access(1, 0, 64 * K));
    s.handle(ms(2), access(1, 64 * K, 64 * K));
    assert_eq!(s.stats().queued, 1, "another is blocked: nothing for one who is not");
    s.handle(ms(3), access(1, 128 * K, depth - 128 * K));
    s.handle(ms(3), miss(3, 1, depth, 64 * K));
    assert_eq!(s.stats().queued, 3, "his piece when he is, and what goes on behind it");
    assert_eq!(serve(&mut s, ms(4)).len(), 3);
    s.handle(ms(5), access(2, 0, 64 * K));
    s.handle(ms(5), access(2, 64 * K, depth - 128 * K));
    let reads = serve(&mut s, ms(6));
    assert!(matches!(reads[..], [(2, start, _), ..] if start == depth), "nobody is blocked: {reads:?}");
}

#[test]
fn the_budget_holds_back_and_room_reminds() {
    let ahead = AheadConfig { budget: Some(Bytes::mib(6)), ..AheadConfig::default() };
    let mut s = engine(ahead);
    let mut highest = 0;
    let mut fetched = [0; 5];
    for step in 0..60u64 {
        for ino in 1..=4 {
            let now = ms(step * 500 + ino);
            let (from, to) = (step * 512 * K, (step + 1) * 512 * K);
            if fetched[ino as usize] < to {
                s.handle(now, miss(step * 8 + ino, ino, from, 512 * K));
            }
            for pass in 0..2 {
                serve(&mut s, now).iter().for_each(|&(ino, offset, len)| {
                    fetched[ino as usize] = fetched[ino as usize].max(offset + len);
                });
                if pass == 0 {
                    s.handle(now, access(ino, from, 512 * K));
                }
            }
            assert!(fetched[ino as usize] >= to, "{ino} was not served at step {step}");
            highest = highest.max(s.stats().bytes_unread);
        }
    }
    let stats = s.stats();
    // A blocked reader is served over the budget, by one share at most.
    assert!(highest <= 6 * M + 2 * 6 * M / 4, "{highest} bytes lay unread");
    assert!(stats.held_back > 0, "the budget was never felt");
}

#[test]
fn what_no_request_waits_for_is_read_after_what_requests_wait_for() {
    let mut s = engine(AheadConfig { slack: ms(0), ..AheadConfig::default() });
    // The head goes to a high address, and the disk is busy there.
    s.handle(ms(0), miss(1, 9, 0, 64 * K));
    let (busy, ..) = next_read(&mut s).expect("the disk is busy");
    // A stream behind the head reads 4 KiB every 40 ms, so that 1 MiB lasts for ten seconds.
    open(&mut s, ms(0), 1);
    let mut now = ms(0);
    for i in 0..200u64 {
        now = ms(i * 40);
        s.handle(now, access(1, i * 4 * K, 4 * K));
    }
    let queued = s.stats();
    assert_eq!(
        (queued.ahead, queued.queued),
        (2, 2),
        "its pieces for the next twenty seconds are queued once"
    );
    // Plenty of work ahead of the head.
    for i in 0..20 {
        s.handle(now, miss(100 + i, 20 + i, 0, 64 * K));
    }
    let mut order = Vec::new();
    let mut read: ReadId = busy;
    for _ in 0..22 {
        s.handle(now + ms(2_000), Event::Done { read, outcome: Outcome::Ok });
        while let Some(action) = s.poll_action() {
            if let Action::Read { id, file, .. } = action {
                order.push(file.ino);
                read = id;
            }
        }
    }
    let expected: Vec<u64> = (20..40).chain([1, 1]).collect();
    assert_eq!(order, expected, "no client stands still for it yet");
}

#[test]
fn behind_a_long_queue_only_what_is_needed_soon_is_queued() {
    let mut s = engine(AheadConfig::default());
    // Twenty blocked readers in line: too many to read early.
    (0..20).for_each(|i| s.handle(ms(0), miss(i, 100 + i, 0, 64 * K)));
    // 2 MiB are in memory for the first stream's reader, enough for twenty seconds.
    s.handle(ms(0), miss(50, 1, 0, 64 * K));
    let before = s.stats().ahead;
    for i in 0..20u64 {
        s.handle(ms(i * 500), access(1, i * 50 * K, 50 * K));
    }
    assert_eq!(s.stats().ahead, before, "it has enough for ten seconds more");
    for i in 20..38u64 {
        s.handle(ms(i * 500), access(1, i * 50 * K, 50 * K));
    }
    assert!(s.stats().ahead > before, "for less than three");
}

#[test]
fn only_so_many_pieces_are_in_line_that_nobody_is_blocked_on() {
    let mut s = engine(AheadConfig { slack: ms(100_000), ..AheadConfig::default() });
    for i in 0..40u64 {
        s.handle(ms(0), miss(i, 100 + i, 0, 64 * K));
    }
    for i in 0..40u64 {
        s.handle(ms(10), access(100 + i, 0, 64 * K));
        s.handle(ms(20), access(100 + i, 64 * K, 64 * K));
    }
    assert_eq!((s.stats().ahead, s.stats().queued), (16, 56), "who comes new waits behind them");
}

#[test]
fn an_idle_disk_reads_early_for_readers_that_are_there() {
    let mut s = engine(AheadConfig::default());
    let mut fetched = 0;
    // 512 KiB every five seconds.
    for i in 0..6u64 {
        let now = ms(i * 5_000);
        let (from, to) = (i * 512 * K, (i + 1) * 512 * K);
        if fetched < to {
            s.handle(now, miss(i, 1, from, 512 * K));
            serve(&mut s, now).iter().for_each(|&(_, offset, len)| fetched = fetched.max(offset + len));
        }
        s.handle(now, access(1, from, 512 * K));
        serve(&mut s, now).iter().for_each(|&(_, offset, len)| fetched = fetched.max(offset + len));
    }
    // The engine asks to be woken, and reads before the reader returns.
    let at = s.next_deadline().unwrap();
    assert!((ms(25_000)..ms(37_000)).contains(&at), "{at:?}");
    s.handle(at, Event::Tick);
    assert_eq!(serve(&mut s, at), [(1, fetched, 3 * M)]);
    // A reader that has been silent for more than twelve seconds may have left.
    let late = ms(38_000);
    s.handle(late, Event::Tick);
    assert_eq!(serve(&mut s, late), []);
}

#[test]
fn what_another_reader_has_ahead_of_him_is_not_read_again() {
    let mut s = engine(AheadConfig::default());
    s.handle(ms(0), miss(1, 1, 4 * M, 512 * K));
    let first = serve(&mut s, ms(0));
    s.handle(ms(1), access(1, 4 * M, 512 * K));
    let end = first.iter().map(|&(_, offset, len)| offset + len).max().unwrap();
    assert!(end > 5 * M, "{first:?}");
    // Another client reaches the first one's position: its piece ends there.
    s.handle(ms(100), miss(2, 1, 4 * M - 512 * K, 256 * K));
    assert_eq!(serve(&mut s, ms(100)), [(1, 4 * M - 512 * K, M)]);
}

#[test]
fn bytes_gone_before_their_reader_came_are_counted() {
    let mut s = engine(AheadConfig::default());
    head_read(&mut s, ms(0), ms(1), 1, 1);
    // 2 MiB were fetched; all but the first half megabyte are missing when their reader returns.
    s.handle(ms(500), miss(2, 1, 512 * K, 512 * K));
    serve(&mut s, ms(500));
    assert_eq!(s.stats().bytes_evicted_unused, 3 * 512 * K);
    // The bytes that a stream has not read count as wasted when it ends.
    let unread = s.stats().bytes_unread;
    assert!(unread > 0);
    s.handle(ms(60_000), Event::Tick);
    assert_eq!((s.stats().bytes_wasted, s.stats().bytes_unread), (unread, 0));
}

#[test]
fn a_disk_that_is_left_to_its_readers_reads_nothing_ahead_and_learns_nothing_of_memory() {
    let mut s = engine(AheadConfig::default());
    steady_reader(&mut s, 1, 4 * M);
    // Waiting requests are answered at once. The read in flight goes on.
    s.handle(ms(3_900), miss(8, 3, 0, 512 * K));
    let (under_way, ..) = next_read(&mut s).unwrap();
    s.handle(ms(3_900), miss(9, 4, 0, 512 * K));
    s.handle(ms(4_000), Event::Rest(true));
    let answers: Vec<_> = std::iter::from_fn(|| s.poll_action())
        .filter(|action| matches!(action, Action::Answer { .. } | Action::Read { .. }))
        .collect();
    let pass = |id| Action::Answer { request: RequestId(id), verdict: Verdict::Pass(Reason::Mode) };
    assert_eq!(answers, [pass(8), pass(9)]);
    s.handle(ms(4_000), Event::Done { read: under_way, outcome: Outcome::Ok });
    let (budget, reads) = (s.stats().budget, s.stats().reads);
    // The client goes on past everything that was fetched, while all of it is evicted.
    for half_second in 8..100 {
        let now = ms(half_second * 500);
        s.handle(now, access(1, half_second * 512 * K, 512 * K));
        s.handle(now, Event::Missing { file: file(1), offset: (half_second + 1) * 512 * K, len: 16 * M });
        assert!(serve(&mut s, now).is_empty(), "at {now:?}");
        s.handle(now, Event::MemoryLimit(MemoryLimit { tasks_wait: true, ..MemoryLimit::default() }));
    }
    // A request that arrives meanwhile is still served.
    s.handle(ms(49_900), miss(7, 2, 0, 512 * K));
    assert_eq!(serve(&mut s, ms(49_900)).iter().map(|read| read.0).collect::<Vec<_>>(), [2]);
    assert_eq!(
        (s.stats().budget, s.stats().reads, s.stats().streams),
        (budget, reads + 1, 2),
        "those of 3 and 4 are over"
    );
    assert!(s.stats().bytes_evicted_unused > 0 && !s.stats().gives_back);
    // Afterwards the client is known, and its data is read ahead from its position.
    s.handle(ms(50_000), Event::Rest(false));
    let ahead = serve(&mut s, ms(50_000));
    assert_eq!(ahead.first().map(|&(ino, offset, _)| (ino, offset)), Some((1, 50 * M)), "{ahead:?}");
    // Bytes fetched before and found missing now say nothing about memory.
    s.handle(ms(50_001), Event::MemoryLimit(MemoryLimit::default()));
    assert!(!s.stats().gives_back);
}

#[test]
fn a_page_that_is_gone_is_a_page_however_much_lies_behind_it() {
    let mut s = engine(AheadConfig::default());
    head_read(&mut s, ms(0), ms(1), 1, 1);
    s.handle(ms(500), miss(2, 1, 512 * K, 512 * K));
    assert_eq!(s.stats().bytes_evicted_unused, 4 * K, "all that is known");
    let (id, offset, len) = next_read(&mut s).expect("it is read again");
    assert!(offset == 512 * K && offset + len >= 2 * M);
    s.handle(ms(501), Event::Found { read: id, from: 520 * K, upto: M });
    s.handle(ms(501), Event::Found { read: id, from: M + 8 * K, upto: offset + len });
    s.handle(ms(520), Event::Done { read: id, outcome: Outcome::Ok });
    let stats = s.stats();
    assert_eq!((stats.bytes_evicted_unused, stats.ledger.evicted_unused), (16 * K, 16 * K));
    assert_eq!(stats.ledger.disk, 2 * M + 16 * K);
}

#[test]
fn what_is_missed_and_not_read_is_known_to_be_gone_as_far_as_it_is_known() {
    let mut s = engine(AheadConfig::default());
    head_read(&mut s, ms(0), ms(1), 1, 1);
    s.handle(ms(500), miss(2, 1, 512 * K, 512 * K));
    s.handle(ms(501), Event::Cancel(RequestId(2)));
    assert_eq!((s.stats().queued, s.stats().bytes_evicted_unused), (0, 4 * K));
    s.handle(ms(502), miss(3, 1, 512 * K, 512 * K));
    serve(&mut s, ms(502));
    assert_eq!(s.stats().bytes_evicted_unused, 3 * 512 * K, "each byte once");
}

#[test]
fn what_is_read_before_anything_is_reported_may_have_been_there() {
    let mut s = engine(AheadConfig::default());
    head_read(&mut s, ms(0), ms(1), 1, 1);
    s.handle(ms(500), miss(2, 1, 512 * K, 512 * K));
    let (id, ..) = next_read(&mut s).expect("it is read again");
    s.handle(ms(500), access(1, M, 512 * K));
    s.handle(ms(501), Event::Found { read: id, from: 516 * K, upto: 2 * M });
    s.handle(ms(520), Event::Done { read: id, outcome: Outcome::Ok });
    assert_eq!(s.stats().bytes_evicted_unused, 4 * K);
}

#[test]
fn what_a_viewer_left_who_is_gone_nobody_counted_on() {
    let mut s = engine(AheadConfig::default());
    s.handle(ms(0), miss(1, 1, 8 * M, 512 * K));
    serve(&mut s, ms(0));
    s.handle(ms(1), access(1, 8 * M, 512 * K));
    // A client far behind will read what the first one left, so it is not wasted.
    for i in 1..6 {
        let at = Nanos::from_secs(10 * i);
        s.handle(at, access(1, i * 4 * K, 4 * K));
        serve(&mut s, at);
    }
    assert_eq!(s.stats().streams, 1);
    s.handle(Nanos::from_secs(60), miss(2, 1, 8 * M + 512 * K, 512 * K));
    serve(&mut s, Nanos::from_secs(60));
    let (unused, t) = (s.stats().bytes_evicted_unused, s.stats().ledger);
    assert_eq!(
        (unused, t.evicted_unused, t.wasted),
        (0, 0, 3 * 512 * K),
        "wasted when its viewer left, and once"
    );
}

#[test]
fn a_viewer_who_begins_close_behind_another_is_no_eviction() {
    let mut s = engine(AheadConfig::default());
    steady_reader(&mut s, 1, 2 * M);
    // The head of the file has been evicted, as it may be once read; another client begins there.
    s.handle(ms(2_000), miss(2, 1, M, 512 * K));
    serve(&mut s, ms(2_000));
    assert_eq!(s.stats().bytes_evicted_unused, 0);
    // Bytes fetched for the first client and not read: that is one eviction.
    s.handle(ms(2_100), miss(3, 1, 2 * M, 512 * K));
    serve(&mut s, ms(2_100));
    assert!(s.stats().bytes_evicted_unused > 0);
}

/// A read that the door reports before it is done.
fn begun(ino: u64, offset: u64, len: u64) -> Event {
    let Event::Access(access) = access(ino, offset, len) else { unreachable!() };
    Event::Access(Access { taken: Taken::Unknown, ..access })
}

#[test]
fn a_file_is_not_at_its_end_before_its_end_is_taken() {
    let mut s = engine(AheadConfig::default());
    open(&mut s, ms(0), 1);
    s.handle(ms(0), begun(1, 62 * M, 2 * M));
    s.handle(ms(10), begun(1, 62 * M + 256 * K, 2 * M - 256 * K));
    assert_eq!(s.stats().streams, 1);
    // At its rate it takes the rest at once; a client's jitter is one second.
    s.handle(ms(1_009), Event::Tick);
    assert_eq!(s.stats().streams, 1);
    s.handle(ms(1_010), Event::Tick);
    assert_eq!(s.stats().streams, 0);
}

/// README.md, docs/DAEMON.md and docs/OBSERVE.md state how long an unmount may have to wait.
#[test]
fn a_file_is_closed_41_seconds_after_its_last_read() {
    let mut s = DiskEngine::new(Config { ahead: Some(AheadConfig::default()), ..Config::default() });
    let read_at = Nanos::from_secs(100);
    open(&mut s, read_at, 1);
    s.handle(read_at, access(1, 0, 128 * K));
    let mut now = read_at;
    loop {
        while let Some(action) = s.poll_action() {
            if action == (Action::Close { file: file(1) }) {
                assert_eq!(now, read_at + Nanos::from_secs(41));
                return;
            }
        }
        now = s.next_deadline().expect("an open file has its time");
        s.handle(now, Event::Tick);
    }
}

#[test]
fn a_file_is_closed_for_another_and_not_read_ahead_of_until_it_is_opened_again() {
    let mut s = engine(AheadConfig { files_max: 1, ..AheadConfig::default() });
    head_read(&mut s, ms(0), ms(0), 1, 1);
    s.handle(ms(0), access(1, 512 * K, 512 * K));
    serve(&mut s, ms(0));
    s.handle(ms(10), miss(2, 2, 0, 512 * K));
    let mut closed = false;
    while let Some(action) = s.poll_action() {
        closed |= action == Action::Close { file: file(1) };
        if let Action::Read { id, .. } = action {
            s.handle(ms(10), Event::Done { read: id, outcome: Outcome::Ok });
        }
    }
    assert!(closed);
    // Its stream would run dry. Nothing of it is read, and its accesses are ignored.
    s.handle(ms(1500), access(1, M, M));
    for at in [1500, 2000, 3000, 8000] {
        s.handle(ms(at), Event::Tick);
        assert!(serve(&mut s, ms(at)).iter().all(|&(ino, ..)| ino != 1), "at {at} ms");
    }
    open(&mut s, ms(8000), 1);
    let mut reads = Vec::new();
    for i in 0..8 {
        let now = ms(8500 + 500 * i);
        s.handle(now, access(1, 2 * M + i * 512 * K, 512 * K));
        reads.extend(serve(&mut s, now));
    }
    assert!(reads.iter().any(|&(ino, ..)| ino == 1), "{reads:?}");
}

/// Each stream has a range behind itself and one ahead.
#[test]
fn the_map_has_room_for_what_as_many_streams_as_are_followed_have_ahead() {
    let streams = StreamConfig::default().streams_max as u64;
    let mut s = engine(AheadConfig { budget: Some(Bytes::gib(64)), ..AheadConfig::default() });
    for i in 0..streams {
        let (ino, at) = (i % 2048, i / 2048 * 8 * M);
        s.handle(ms(0), miss(i, ino, at, 64 * K));
        serve(&mut s, ms(0));
        s.handle(ms(0), access(ino, at, 64 * K));
        serve(&mut s, ms(0));
    }
    let stats = s.stats();
    assert_eq!((stats.streams as u64, stats.ledger.forgotten_fresh), (streams, 0));
}
