//! What is pinned in memory from its arrival until its streams have passed it, and when it is unpinned.

mod common;

use common::Logged;
use seekless_base::{Bytes, Nanos};
use seekless_policy::{
    Access, Action, AheadConfig, Config, Demand, Event, FileId, MemoryLimit, Outcome, ReadId, Request,
    RequestId, StreamConfig, Taken,
};

const M: u64 = 1 << 20;
const K: u64 = 1 << 10;
/// The distance that stays pinned behind a stream.
const KEEP: u64 = 128 * K;
const FILE: FileId = FileId { dev: 8, ino: 1 };
const OTHER: FileId = FileId { dev: 8, ino: 2 };

/// A disk that completes each read at once.
struct Disk {
    logged: Logged,
    requests: u64,
    /// (start, end, cold) of what was unpinned, in order.
    unpinned: Vec<(u64, u64, bool)>,
    pinned_bytes: u64,
    renewed_bytes: u64,
}

impl Disk {
    fn new(ahead: AheadConfig) -> Disk {
        let config =
            Config { prefetch: Bytes::mib(4), reads_in_flight: 1, ahead: Some(ahead), ..Config::default() };
        Disk {
            logged: Logged::new(config),
            requests: 0,
            unpinned: Vec::new(),
            pinned_bytes: 0,
            renewed_bytes: 0,
        }
    }

    /// Nothing is given back: only pins decide.
    fn plain() -> Disk {
        Disk::new(AheadConfig::default())
    }

    fn at(&mut self, ms: u64) -> &mut Disk {
        self.logged.now = Nanos::from_millis(ms);
        self
    }

    fn tick(&mut self) {
        self.logged.handle(Event::Tick);
        self.run();
    }

    /// Polls up to the next read, which is begun.
    fn next_read(&mut self) -> Option<(ReadId, u64, u64)> {
        while let Some(action) = self.logged.poll() {
            match action {
                Action::Read { id, offset, len, .. } => return Some((id, offset, offset + len)),
                Action::Unpin { offset, len, cold, .. } => self.unpinned.push((offset, offset + len, cold)),
                Action::Pin { len, .. } => self.pinned_bytes += len,
                Action::Renew { len, .. } => self.renewed_bytes += len,
                _ => {}
            }
        }
        None
    }

    fn run(&mut self) {
        while let Some((read, ..)) = self.next_read() {
            self.logged.handle(Event::Done { read, outcome: Outcome::Ok });
        }
    }

    fn ask(&mut self, file: FileId, offset: u64, len: u64) {
        self.requests += 1;
        self.logged.handle(Event::Request(Request {
            id: RequestId(self.requests),
            file,
            from: offset,
            offset,
            len,
            file_size: 256 * M,
            lba: None,
            demand: Demand::default(),
        }));
    }

    fn miss(&mut self, file: FileId, offset: u64, len: u64) {
        self.ask(file, offset, len);
        self.run();
    }

    fn read(&mut self, file: FileId, offset: u64, upto: u64) {
        let (len, file_size) = (upto - offset, 256 * M);
        let access = Access { file, offset, len, file_size, lba: None, taken: Taken::All };
        self.logged.handle(Event::Access(access));
        self.run();
    }

    /// The pinned ranges of a file.
    fn pinned(&self, file: FileId) -> Vec<(u64, u64)> {
        self.logged.model.pinned.within(file, 0, u64::MAX)
    }

    fn first_pinned(&self) -> Option<u64> {
        self.pinned(FILE).first().map(|&(from, _)| from)
    }

    fn unpinned(&mut self) -> Vec<(u64, u64, bool)> {
        std::mem::take(&mut self.unpinned)
    }
}

#[test]
fn a_stream_lets_go_of_what_it_has_passed_a_step_at_a_time() {
    let mut d = Disk::plain();
    d.miss(FILE, 0, 512 * K);
    assert_eq!(d.pinned(FILE), [(0, 2 * M)], "all that arrived");
    d.read(FILE, 0, KEEP);
    assert_eq!(d.first_pinned(), Some(0), "a server may read a little of it again");
    d.read(FILE, KEEP, M);
    assert_eq!((d.first_pinned(), d.unpinned()), (Some(M - KEEP), vec![(0, M - KEEP, true)]));
    d.read(FILE, M, M + KEEP / 2);
    assert_eq!(d.first_pinned(), Some(M - KEEP), "less than a step");
    d.read(FILE, M + KEEP / 2, M + KEEP);
    assert_eq!((d.first_pinned(), d.unpinned()), (Some(M), vec![(M - KEEP, M, true)]));
}

#[test]
fn the_last_of_a_piece_goes_with_the_next_read() {
    let mut d = Disk::plain();
    d.miss(FILE, 0, 512 * K);
    for at in 0..8 {
        d.at(500 * at).read(FILE, at * 256 * K, (at + 1) * 256 * K);
    }
    assert_eq!(d.first_pinned(), Some(2 * M - KEEP));
    assert!(d.pinned(FILE).last().unwrap().1 > 2 * M, "the next piece has arrived");
    d.at(4000).read(FILE, 2 * M, 2 * M + 512 * K);
    assert_eq!(d.first_pinned(), Some(2 * M + 512 * K - KEEP));
}

#[test]
fn what_a_slower_stream_counts_on_stays_until_it_has_passed_or_left() {
    let mut d = Disk::plain();
    d.miss(FILE, 0, 512 * K);
    d.read(FILE, 0, 512 * K);
    // A second client begins, and expects the bytes that were fetched for the first.
    d.at(1).miss(FILE, 0, 64 * K);
    d.at(2).read(FILE, 0, 64 * K);
    for i in 1..12 {
        d.at(500 * i).read(FILE, i * 512 * K, (i + 1) * 512 * K);
        d.at(500 * i + 1).read(FILE, i * 64 * K, (i + 1) * 64 * K);
    }
    assert_eq!(d.logged.engine.stats().streams, 2);
    let slower = 12 * 64 * K - KEEP;
    assert!(d.first_pinned().unwrap() <= slower);
    assert!(d.unpinned().iter().all(|&(_, upto, cold)| upto <= slower && cold), "behind both");
    // It leaves. The bytes it expected go, up to the position of the other.
    for i in 12..=80 {
        d.at(500 * i).read(FILE, i * 512 * K, (i + 1) * 512 * K);
    }
    assert_eq!((d.logged.engine.stats().streams, d.first_pinned()), (1, Some(81 * 512 * K - KEEP)));
    assert!(d.unpinned().iter().all(|&(.., cold)| cold), "no other stream is to come there");
}

#[test]
fn what_a_stream_far_behind_may_come_to_is_let_go_of_but_not_cold() {
    let mut d = Disk::plain();
    d.miss(FILE, 0, 64 * K);
    d.miss(FILE, 64 * M, 512 * K);
    d.unpinned();
    // The client far behind does not expect the bytes that were fetched for this one.
    for i in 0..8 {
        d.at(500 * i).read(FILE, 64 * M + i * 512 * K, 64 * M + (i + 1) * 512 * K);
    }
    let unpinned = d.unpinned();
    assert!(
        unpinned.len() > 3 && unpinned.iter().all(|&(from, _, cold)| from >= 64 * M && !cold),
        "{unpinned:?}"
    );
}

#[test]
fn what_was_read_on_its_way_is_not_pinned_and_what_failed_is_not_either() {
    let mut d = Disk::plain();
    d.ask(FILE, 0, 512 * K);
    let (read, _, end) = d.next_read().unwrap();
    d.logged.handle(Event::Progress { read, upto: M });
    let access = Access { file: FILE, offset: 0, len: M, file_size: 256 * M, lba: None, taken: Taken::All };
    d.logged.handle(Event::Access(access));
    d.logged.handle(Event::Done { read, outcome: Outcome::Ok });
    d.run();
    assert_eq!(d.pinned(FILE)[0], (M - KEEP, end));
    let mut d = Disk::plain();
    d.ask(FILE, 0, 512 * K);
    let (read, ..) = d.next_read().unwrap();
    d.logged.handle(Event::Progress { read, upto: M });
    d.logged.handle(Event::Done { read, outcome: Outcome::Failed });
    assert_eq!((d.next_read(), d.pinned(FILE)), (None, vec![]));
}

#[test]
fn what_was_found_in_memory_is_pinned_with_what_arrived() {
    let mut d = Disk::plain();
    d.ask(FILE, 0, 512 * K);
    let (read, ..) = d.next_read().unwrap();
    d.logged.handle(Event::Found { read, from: 256 * K, upto: 2 * M });
    d.logged.handle(Event::Done { read, outcome: Outcome::Ok });
    d.run();
    assert_eq!(d.pinned(FILE), [(0, 2 * M)]);
}

#[test]
fn a_hole_is_unpinned_and_what_is_read_again_there_is_pinned_again() {
    let mut d = Disk::plain();
    d.miss(FILE, 0, 512 * K);
    d.read(FILE, 0, 512 * K);
    d.unpinned();
    d.logged.handle(Event::Missing { file: FILE, offset: M + 5, len: 4096 });
    d.run();
    assert_eq!(d.unpinned(), [(M, M + 8 * K, false)], "whole pages");
    assert!(d.pinned(FILE).contains(&(512 * K - KEEP, M)), "{:?}", d.pinned(FILE));
    d.at(500).miss(FILE, M, 64 * K);
    assert!(d.logged.model.pinned.covers(FILE, 512 * K - KEEP, 2 * M));
    // A client that misses a pinned page has shown that it was evicted.
    d.unpinned();
    d.at(501).miss(FILE, 2 * M - 64 * K, 64 * K);
    assert_eq!(d.unpinned()[0], (2 * M - 64 * K, 2 * M - 60 * K, false));
    assert!(d.logged.model.pinned.covers(FILE, 2 * M - 64 * K, 2 * M));
}

#[test]
fn what_is_given_back_is_unpinned_before() {
    let mut d = Disk::new(AheadConfig::default());
    d.logged.handle(Event::MemoryLimit(MemoryLimit { bytes: Bytes::mib(16), tasks_wait: false }));
    d.miss(FILE, 0, 512 * K);
    for i in 0..64 {
        d.at(500 * i).read(FILE, i * 512 * K, (i + 1) * 512 * K);
    }
    let dropped = d.logged.engine.stats().bytes_dropped;
    assert!(dropped > 12 * M && d.first_pinned().is_some(), "the model checks each drop");
}

#[test]
fn pinned_bytes_are_renewed_in_turn_as_much_as_is_pinned() {
    let mut d = Disk::plain();
    for step in 0..60u64 {
        for ino in 1..=8 {
            let file = FileId { dev: 8, ino };
            d.at(step * 1000 + ino);
            if step == 0 {
                d.miss(file, 0, 512 * K);
            }
            d.read(file, step * 512 * K, (step + 1) * 512 * K);
        }
    }
    let (pinned, renewed) = (d.pinned_bytes, d.renewed_bytes);
    assert!(pinned > 8 * 25 * M, "{pinned}");
    assert!((pinned / 2..=pinned).contains(&renewed), "{renewed} of {pinned}");
}

#[test]
fn viewers_who_come_and_leave_keep_nothing_pinned() {
    let mut d = Disk::plain();
    // One client reads all the time, so that the file stays open.
    d.miss(FILE, 128 * M, 64 * K);
    for i in 0..200u64 {
        d.at(1000 * i).read(FILE, 128 * M + i * 64 * K, 128 * M + (i + 1) * 64 * K);
        if i < 150 {
            // Each client reads to an end of its own, at the end of a piece or within one, and leaves.
            let at = (i % 7) * 8 * M;
            let upto = at + 512 * K + (i % 3) * 256 * K + (i % 2) * 4 * K;
            d.at(1000 * i + 1).miss(FILE, at, 512 * K);
            d.at(1000 * i + 2).read(FILE, at, upto);
        }
    }
    let stats = d.logged.engine.stats();
    assert_eq!(stats.streams, 1);
    let pinned = d.pinned(FILE);
    assert!(pinned.iter().all(|&(from, _)| from >= 128 * M), "{pinned:?}");
    assert!(stats.pinned_ranges <= 4, "{}", stats.pinned_ranges);
}

#[test]
fn what_a_stream_that_stopped_at_the_end_of_a_piece_kept_behind_itself_goes_with_it() {
    let mut d = Disk::plain();
    d.miss(OTHER, 0, 64 * K);
    d.miss(FILE, 64 * M, 512 * K);
    let (_, end) = d.pinned(FILE)[0];
    d.read(FILE, 64 * M, end);
    assert_eq!(d.pinned(FILE), [(end - KEEP, end)]);
    // Another client begins far from there, which keeps the file open.
    d.at(20_000).miss(FILE, 0, 64 * K);
    d.at(40_000).tick();
    assert!(d.logged.model.open.contains(&FILE));
    assert!(!d.logged.model.pinned.touches(FILE, 64 * M, 128 * M), "{:?}", d.pinned(FILE));
}

#[test]
fn a_file_is_unpinned_and_closed_for_another_and_not_read_ahead_of_until_it_is_opened_again() {
    let mut d = Disk::new(AheadConfig { files_max: 1, ..AheadConfig::default() });
    d.miss(FILE, 0, 512 * K);
    d.read(FILE, 0, 512 * K);
    d.read(FILE, 512 * K, M);
    assert!(!d.pinned(FILE).is_empty());
    d.at(10).miss(OTHER, 0, 512 * K);
    assert!(!d.logged.model.open.contains(&FILE) && d.pinned(FILE).is_empty());
    // Its stream would run dry. Nothing of it is read, as the model checks, and its accesses are ignored.
    let reads = d.logged.engine.stats().reads;
    d.at(1500).read(FILE, M, 2 * M);
    for ms in [2000, 3000, 8000] {
        d.at(ms).tick();
    }
    assert_eq!(d.logged.engine.stats().reads, reads);
    d.logged.handle(Event::Opened { file: FILE });
    for i in 0..8 {
        d.at(8500 + 500 * i).read(FILE, 2 * M + i * 512 * K, 2 * M + (i + 1) * 512 * K);
    }
    assert!(d.logged.engine.stats().reads > reads && !d.pinned(FILE).is_empty());
}

#[test]
fn what_the_map_of_ranges_has_no_room_for_is_unpinned() {
    let mut d = Disk::plain();
    d.miss(FILE, 0, 512 * K);
    // One page is now in two ranges. The model of the driver takes nothing but whole pages.
    d.read(FILE, 0, 1000);
    assert_eq!(d.pinned(FILE), [(0, 2 * M)]);
    d.logged.handle(Event::Opened { file: OTHER });
    d.unpinned();
    // Reads of single pages, none adjacent to another: a range for each.
    for i in 0..40_000 {
        let (file, offset, len) = (OTHER, i * 8 * K, 4 * K);
        let access = Access { file, offset, len, file_size: 1 << 40, lba: None, taken: Taken::All };
        d.logged.handle(Event::Access(access));
        d.run();
    }
    let whole = vec![(0, 4 * K, false), (4 * K, 2 * M, false)];
    assert_eq!((d.pinned(FILE), d.unpinned()), (vec![], whole));
}

/// Each stream has a range behind itself and one ahead.
#[test]
fn as_many_streams_as_are_followed_keep_what_is_pinned_for_them() {
    let streams = StreamConfig::default().streams_max as u64;
    let budget = Some(Bytes::gib(64));
    let mut d = Disk::new(AheadConfig { budget, ..AheadConfig::default() });
    for i in 0..streams {
        let (file, at) = (FileId { dev: 8, ino: i % 512 }, i / 512 * 8 * M);
        d.miss(file, at, 64 * K);
        d.read(file, at, at + 64 * K);
    }
    let stats = d.logged.engine.stats();
    assert_eq!((stats.streams as u64, stats.ledger.forgotten_fresh), (streams, 0));
    assert_eq!(d.unpinned(), []);
}

#[test]
fn without_hold_nothing_is_pinned() {
    let mut d = Disk::new(AheadConfig { hold: false, ..AheadConfig::default() });
    d.miss(FILE, 0, 512 * K);
    for i in 0..8 {
        d.at(500 * i).read(FILE, i * 512 * K, (i + 1) * 512 * K);
    }
    assert_eq!((d.pinned_bytes, d.logged.engine.stats().pinned_ranges), (0, 0));
}
