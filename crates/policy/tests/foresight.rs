//! Memory by next use, case by case: what leaves when it is full, what stays, and what is learnt about the
//! size of memory.

use seekless_base::{Bytes, Nanos};
use seekless_policy::{
    Access, Action, AheadConfig, Config, DiskEngine, Event, FileId, LongestWait, MemoryLimit, Outcome, Taken,
};

const M: u64 = 1 << 20;
const K: u64 = 1 << 10;
/// Size of every file.
const SIZE: u64 = 256 * M;
/// Size of memory.
const CAPACITY: u64 = 64 * M;

/// An engine with little memory whose reads end at once.
struct Bench {
    engine: DiskEngine,
    now: Nanos,
    /// Everything given back: milliseconds, file, start and end.
    dropped: Vec<(u64, u64, u64, u64)>,
}

impl Bench {
    fn new(bytes: u64) -> Bench {
        let memory = MemoryLimit { bytes: Bytes(bytes), tasks_wait: false };
        let ahead = AheadConfig { longest_wait: LongestWait::Off, ..AheadConfig::default() };
        let config = Config { prefetch: Bytes::mib(1), memory, ahead: Some(ahead), ..Config::default() };
        Bench { engine: DiskEngine::new(config), now: Nanos::ZERO, dropped: Vec::new() }
    }

    fn tell(&mut self, event: Event) {
        self.engine.handle(self.now, event);
        while let Some(action) = self.engine.poll_action() {
            match action {
                Action::Drop { file, offset, len } => {
                    self.dropped.push((self.now.0 / 1_000_000, file.ino, offset, offset + len));
                }
                Action::Read { id, .. } => {
                    self.engine.handle(self.now, Event::Done { read: id, outcome: Outcome::Ok });
                }
                _ => {}
            }
        }
    }

    /// Reads bytes; those in memory already are read there.
    fn read(&mut self, ino: u64, from: u64, upto: u64) {
        self.begun(ino, from, upto, Taken::All);
    }

    fn begun(&mut self, ino: u64, from: u64, upto: u64, taken: Taken) {
        let file = FileId { dev: 8, ino };
        self.tell(Event::Opened { file });
        let access = Access { file, offset: from, len: upto - from, file_size: SIZE, lba: None, taken };
        self.tell(Event::Access(access));
    }

    /// A viewer of 1 MiB a second at each of these places reads on for this many seconds.
    fn play(&mut self, places: &mut [(u64, u64)], seconds: u64) {
        for _ in 0..seconds {
            self.now += Nanos::from_secs(1);
            for (ino, at) in places.iter_mut() {
                self.read(*ino, *at, *at + M);
                *at += M;
            }
        }
    }

    /// Sends every tick that the engine requests until then.
    fn wait(&mut self, until: Nanos) {
        while let Some(at) = self.engine.next_deadline().filter(|&at| at < until) {
            self.now = at;
            self.tell(Event::Tick);
        }
        self.now = until;
    }

    fn report(&mut self, bytes: u64) {
        self.tell(Event::MemoryLimit(MemoryLimit { bytes: Bytes(bytes), tasks_wait: false }));
    }
}

#[test]
fn nothing_leaves_while_memory_is_not_full() {
    let mut b = Bench::new(CAPACITY);
    b.play(&mut [(1, 0)], 50);
    assert_eq!((b.dropped.len(), b.engine.stats().gives_back), (0, false));
    b.play(&mut [(1, 50 * M)], 30);
    assert!(!b.dropped.is_empty() && b.engine.stats().gives_back);
    // A little more than was needed.
    let dropped = b.engine.stats().bytes_dropped;
    assert!((16 * M..=24 * M).contains(&dropped), "{}", dropped / M);
}

#[test]
fn what_no_reader_is_behind_leaves_before_what_one_comes_for() {
    let mut b = Bench::new(CAPACITY);
    // Another reader follows ten seconds behind the first in file 1; none does in file 2.
    let mut places = [(1, 10 * M), (1, 0), (2, 0)];
    b.play(&mut places, 40);
    assert!(!b.dropped.is_empty());
    assert!(b.dropped.iter().all(|&(_, ino, start, _)| ino == 2 || start < 30 * M), "{:?}", b.dropped);
    let of_second: u64 = b.dropped.iter().filter(|d| d.1 == 2).map(|d| d.3 - d.2).sum();
    assert!(of_second > 16 * M, "{:?}", b.dropped);
}

#[test]
fn of_what_readers_come_for_the_last_to_be_used_leaves_first() {
    let mut b = Bench::new(CAPACITY);
    // Gaps of 5 and of 60 MiB, together more than memory has.
    let mut places = [(1, 5 * M), (1, 0), (2, 60 * M), (2, 0)];
    b.play(&mut places, 60);
    // The last reader reads a MiB a second: bytes before it have a reader to come.
    let to_come = |ino| {
        let dropped = b.dropped.iter().filter(move |d| d.1 == ino && d.2 >= d.0 / 1_000 * M);
        dropped.map(|d| d.3 - d.2).sum::<u64>()
    };
    assert_eq!(to_come(1), 0);
    assert!(to_come(2) > 4 * M);
}

#[test]
fn what_is_fetched_and_unread_stays() {
    let mut b = Bench::new(16 * M);
    let mut places: Vec<(u64, u64)> = (1..=8).map(|ino| (ino, 0)).collect();
    for _ in 0..30 {
        b.play(&mut places, 1);
        for &(_, ino, start, end) in &b.dropped {
            let at = places[ino as usize - 1].1;
            assert!(end <= at || start >= at + 64 * M, "{start}..{end} of {ino}, whose reader is at {at}");
        }
        b.dropped.clear();
    }
    assert_eq!(b.engine.stats().ledger.wasted, 0);
}

#[test]
fn the_head_of_a_file_that_is_begun_again_and_again_stays() {
    let mut b = Bench::new(CAPACITY);
    let mut long = [(9, 0)];
    for round in 0..20 {
        // A client reads a little of file 1 and leaves; another reads on and on.
        for i in 0..4 {
            b.read(1, i * M, (i + 1) * M);
        }
        b.play(&mut long, 8);
        assert!(round < 2 || b.dropped.iter().all(|d| d.1 != 1), "round {round}: {:?}", b.dropped);
        if round < 2 {
            b.dropped.clear();
        }
    }
    assert!(b.dropped.iter().filter(|d| d.1 == 9).map(|d| d.3 - d.2).sum::<u64>() > 64 * M);
}

/// A reported read still holds its last pages in a socket.
#[test]
fn what_was_in_a_socket_the_first_time_is_given_back_again() {
    let mut b = Bench::new(CAPACITY);
    let mut place = [(1, 0)];
    while b.dropped.is_empty() {
        b.play(&mut place, 1);
    }
    let first = std::mem::take(&mut b.dropped);
    b.wait(b.now + Nanos::from_secs(15));
    for after in [2_000, 10_000] {
        for &(at, ino, start, end) in &first {
            assert!(
                b.dropped.contains(&(at + after, ino, start, end)),
                "{after} ms after {at}: {:?}",
                b.dropped
            );
        }
    }
    let bytes: u64 = first.iter().map(|d| d.3 - d.2).sum();
    assert_eq!(b.engine.stats().bytes_dropped, bytes, "each byte counts once");
}

#[test]
fn what_may_not_have_been_taken_yet_stays() {
    let mut b = Bench::new(8 * M);
    // Each sendfile covers 4 MiB, of which the socket takes one.
    for i in 0..64 {
        b.now += Nanos::from_secs(1);
        b.begun(1, i * M, i * M + 4 * M, Taken::Unknown);
        for (_, _, _, end) in b.dropped.drain(..) {
            assert!(end + 128 * K <= i * M, "up to {} KiB at {i} MiB", end / K);
        }
    }
    assert!(b.engine.stats().bytes_dropped > 40 * M);
}

#[test]
fn files_that_are_closed_are_left_to_the_kernel() {
    let mut b = Bench::new(CAPACITY);
    for ino in 1..=6 {
        b.play(&mut [(ino, 0)], 10);
        b.wait(b.now + Nanos::from_secs(60));
    }
    // All closed, and together nearly all of memory: the next reader needs no drop of them.
    b.play(&mut [(7, 0)], 50);
    assert!(b.dropped.iter().all(|d| d.1 == 7), "{:?}", b.dropped);
}

#[test]
fn what_is_found_gone_that_was_to_be_kept_makes_memory_smaller_by_a_tenth_once() {
    let mut b = Bench::new(CAPACITY);
    let mut places = [(1, 0), (2, 0)];
    b.play(&mut places, 10);
    b.report(CAPACITY);
    let all = b.engine.stats().memory.capacity_bytes;
    assert_eq!(all, CAPACITY);
    // Another process evicts everything, and a second reader finds out.
    for i in 0..10 {
        let file = FileId { dev: 8, ino: 1 };
        b.tell(Event::Missing { file, offset: i * M, len: M });
    }
    b.report(CAPACITY);
    let tenth_less = b.engine.stats().memory.capacity_bytes;
    assert!(tenth_less.abs_diff(all / 10 * 9) < K, "{tenth_less}");
    b.tell(Event::Missing { file: FileId { dev: 8, ino: 2 }, offset: 0, len: 8 * M });
    b.report(CAPACITY);
    let after = b.engine.stats().memory.capacity_bytes;
    assert!((tenth_less..all).contains(&after), "it was gone before that was answered: {after}");
    // The memory returns.
    for _ in 0..200 {
        b.now += Nanos::from_secs(2);
        b.report(CAPACITY);
    }
    assert_eq!(b.engine.stats().memory.capacity_bytes, all);
}

/// The servers are in a cgroup of their own that the limit does not include.
#[test]
fn what_was_read_since_bytes_came_that_are_gone_says_how_much_memory_there_is() {
    let mut b = Bench::new(1 << 30);
    let mut paused = [(1, 0)];
    b.play(&mut paused, 4);
    let at = paused[0].1;
    let read_before = b.engine.stats().bytes_read;
    let mut plays = [(2, 0)];
    for _ in 0..12 {
        b.play(&mut plays, 2);
        b.report(1 << 30);
    }
    let since = b.engine.stats().bytes_read - read_before;
    assert!(since > 20 * M);
    b.tell(Event::Missing { file: FileId { dev: 8, ino: 1 }, offset: at, len: 16 * M });
    assert!(b.engine.stats().bytes_evicted_unused > M, "{:?}", b.engine.stats());
    b.report(1 << 30);
    let capacity = b.engine.stats().memory.capacity_bytes;
    // Exact to within a period, plus the bytes read before the first.
    assert!((since / 2..64 * M).contains(&capacity), "{} of {} MiB", capacity / M, since / M);
}

#[test]
fn a_page_that_is_gone_soon_says_little_beside_many_that_had_been_read() {
    let mut b = Bench::new(1 << 30);
    let mut plays = [(1, 0), (2, 0)];
    for _ in 0..12 {
        b.play(&mut plays, 2);
        b.report(1 << 30);
    }
    let file = |ino| FileId { dev: 8, ino };
    b.tell(Event::Missing { file: file(1), offset: 4 * M, len: 16 * M });
    assert_eq!(b.engine.stats().bytes_evicted_unused, 0);
    b.tell(Event::Missing { file: file(2), offset: plays[1].1, len: 4 * K });
    // The piece around it is read again.
    let soon = b.engine.stats().bytes_evicted_unused;
    assert!((1..=2 * M).contains(&soon), "{soon}");
    b.report(1 << 30);
    let capacity = b.engine.stats().memory.capacity_bytes;
    assert!((750 * M..950 * M).contains(&capacity), "{} MiB", capacity / M);
}

#[test]
fn nonsense_leaves_little_memory_and_no_less() {
    for bytes in [0, 1, u64::MAX] {
        let mut b = Bench::new(bytes);
        b.play(&mut [(1, 0), (1, 5 * M)], 40);
        b.report(bytes);
        let report = b.engine.stats().memory;
        assert!(report.capacity_bytes >= 8 * M && report.budget_bytes <= report.capacity_bytes.max(8 * M));
    }
}
