//! File sets beside streams and misses: what is read for them and when, and which bytes count.

mod common;

use std::collections::BTreeMap;

use common::Logged;
use seekless_base::{Bytes, Lba, Nanos};
use seekless_policy::{
    Action, AheadConfig, Config, Demand, Event, FileId, OrderKind, Outcome, ReadId, Request, RequestId,
    Verdict,
};

const M: u64 = 1 << 20;
const K: u64 = 1 << 10;

fn file(ino: u64) -> FileId {
    FileId { dev: 8, ino }
}

/// A disk that takes `read_ms` for every read.
struct Disk {
    logged: Logged,
    read_ms: u64,
    flight: Option<(Nanos, ReadId, u64)>,
    next: u64,
    answers: Vec<(u64, Verdict)>,
    /// Inodes in the order they were read.
    read: Vec<u64>,
}

impl Disk {
    fn new(share: f64) -> Disk {
        let ahead = AheadConfig::default();
        let config = Config {
            prefetch: Bytes::mib(1),
            order: OrderKind::Sweep,
            share,
            ahead: Some(ahead),
            ..Config::default()
        };
        Disk {
            logged: Logged::new(config),
            read_ms: 20,
            flight: None,
            next: 0,
            answers: Vec::new(),
            read: Vec::new(),
        }
    }

    fn ask(&mut self, ino: u64, offset: u64, len: u64, file_set: bool) -> RequestId {
        self.next += 1;
        let id = RequestId(self.next);
        self.logged.handle(Event::Request(Request {
            id,
            file: file(ino),
            from: offset,
            offset,
            len,
            file_size: 64 * M,
            lba: Some(Lba(ino * 1_000_000 + offset / 512)),
            demand: Demand { file_set, ..Demand::default() },
        }));
        self.act();
        id
    }

    fn act(&mut self) {
        while let Some(action) = self.logged.poll() {
            match action {
                Action::Read { id, file, .. } => {
                    assert!(self.flight.is_none(), "one at a time");
                    self.flight = Some((self.logged.now + Nanos::from_millis(self.read_ms), id, file.ino));
                    self.read.push(file.ino);
                }
                Action::Answer { request, verdict } => self.answers.push((request.0, verdict)),
                _ => {}
            }
        }
    }

    /// Runs to the end of the current read; `None` if the disk is idle.
    fn step(&mut self) -> Option<u64> {
        let (end, read, ino) = self.flight.take()?;
        self.logged.now = end;
        self.logged.handle(Event::Done { read, outcome: Outcome::Ok });
        self.act();
        Some(ino)
    }

    fn run(&mut self) {
        while self.step().is_some() {}
    }

    fn took(&mut self, request: RequestId, read: bool) {
        self.logged.handle(Event::Took { request, read });
        self.act();
    }

    fn untaken(&self) -> u64 {
        self.logged.engine.stats().file_sets.bytes_untaken
    }
}

#[test]
fn a_range_is_read_as_asked_and_counts_until_it_is_taken() {
    let mut disk = Disk::new(0.1);
    let first = disk.ask(1, 0, 64 * K, true);
    let second = disk.ask(1, M, 64 * K, true);
    disk.run();
    assert_eq!(disk.answers, [(first.0, Verdict::Resident), (second.0, Verdict::Resident)]);
    let stats = disk.logged.engine.stats();
    assert_eq!(stats.bytes_read, 128 * K, "nothing is read ahead of a file set");
    assert_eq!((stats.file_sets.bytes_untaken, stats.bytes_unread), (128 * K, 128 * K));
    disk.took(first, true);
    assert_eq!(disk.untaken(), 64 * K);
    disk.took(second, false);
    let stats = disk.logged.engine.stats();
    assert_eq!((stats.file_sets.bytes_taken, stats.file_sets.bytes_left), (64 * K, 64 * K));
    assert_eq!((stats.ledger.first_use, stats.ledger.wasted), (64 * K, 64 * K));
    assert_eq!(stats.file_sets.bytes_untaken, 0);
    // The file is closed, because a file set reads each file once.
    disk.logged.model.check_at_rest(&disk.logged.engine);
    disk.took(first, true);
    assert_eq!(disk.logged.engine.stats().file_sets.bytes_taken, 64 * K, "taken once");
}

#[test]
fn two_file_sets_that_want_the_same_bytes_each_take_them() {
    let mut disk = Disk::new(0.1);
    let (first, second) = (disk.ask(1, 0, 64 * K, true), disk.ask(1, 0, 64 * K, true));
    disk.run();
    assert_eq!(disk.logged.engine.stats().bytes_read, 64 * K, "read once");
    disk.took(first, true);
    assert_eq!(disk.untaken(), 64 * K, "the other has not taken it");
    disk.took(second, true);
    assert_eq!(disk.untaken(), 0);
}

#[test]
fn file_sets_take_what_others_leave_and_a_client_makes_their_piece_urgent() {
    let mut disk = Disk::new(0.0);
    disk.ask(50, 0, 64 * K, false);
    for ino in [60, 61, 62] {
        disk.ask(ino, 0, 64 * K, true);
    }
    disk.ask(10, 0, 64 * K, false);
    disk.ask(62, 0, 64 * K, false);
    disk.run();
    assert_eq!(disk.read, [50, 62, 10, 60, 61], "clients first, in a sweep; then the file set's rest");
    let stats = disk.logged.engine.stats();
    assert_eq!(stats.file_sets.disk_time, Nanos::from_millis(40), "what a client waited for is not its");
}

#[test]
fn beside_clients_that_never_rest_a_file_set_has_its_share_and_no_more() {
    for share in [0.05, 0.1, 0.2] {
        let mut disk = Disk::new(share);
        let mut of_inode: BTreeMap<u64, u64> = BTreeMap::new();
        for client in 0..40u64 {
            disk.ask(100 + client, 0, 512 * K, false);
        }
        let mut fresh = 10_000;
        let mut of_set = Vec::new();
        for _ in 0..8 {
            fresh += 1;
            of_set.push(disk.ask(fresh, 0, 512 * K, true));
        }
        let mut reads = 0;
        while reads < 5_000 {
            let Some(ino) = disk.step() else { panic!("the disk is idle at {reads}") };
            reads += 1;
            fresh += 1;
            if ino > 10_000 {
                of_set.push(disk.ask(fresh, 0, 512 * K, true));
                let done = of_set.remove(0);
                disk.took(done, true);
            } else {
                // It seeks, so that no read is ahead of it.
                let at = of_inode.entry(ino).or_default();
                *at = (*at + 7 * M) % (56 * M);
                let at = *at;
                disk.ask(ino, at, 512 * K, false);
            }
        }
        let stats = disk.logged.engine.stats();
        let part = stats.file_sets.disk_time.as_secs_f64() / stats.disk_time.as_secs_f64();
        assert!(part > share * 0.95 && part < share * 1.3, "{part} of {share}");
    }
}

#[test]
fn a_file_set_alone_has_the_disk() {
    let mut disk = Disk::new(0.1);
    let asked: Vec<RequestId> = (1..20).map(|ino| disk.ask(ino, 0, M, true)).collect();
    disk.run();
    assert_eq!(disk.answers.len(), asked.len());
    let stats = disk.logged.engine.stats();
    assert_eq!(stats.file_sets.disk_time, stats.disk_time);
    assert!(disk.read.is_sorted());
}

#[test]
fn a_range_that_is_never_taken_is_let_go_of_with_its_file() {
    let mut disk = Disk::new(0.1);
    disk.ask(1, 0, 64 * K, true);
    disk.run();
    assert_eq!(disk.untaken(), 64 * K);
    while let Some(at) = disk.logged.engine.next_deadline() {
        disk.logged.now = at;
        disk.logged.handle(Event::Tick);
        disk.act();
    }
    assert!(disk.logged.now < Nanos::from_secs(120), "{:?}", disk.logged.now);
    disk.logged.model.check_at_rest(&disk.logged.engine);
    assert_eq!(disk.logged.engine.stats().file_sets.bytes_left, 64 * K);
}

/// The report that the bytes were taken was lost, and the id is free again.
#[test]
fn a_name_used_again_stands_for_its_last_range() {
    let mut disk = Disk::new(0.1);
    let first = disk.ask(1, 0, 4 * K, true);
    disk.run();
    disk.next = first.0 - 1;
    assert_eq!(disk.ask(2, 0, 64 * K, true), first);
    disk.run();
    assert_eq!(disk.logged.engine.stats().file_sets.bytes_untaken, 64 * K);
    disk.took(first, true);
    let stats = disk.logged.engine.stats();
    assert_eq!((stats.file_sets.bytes_untaken, stats.bytes_unread), (0, 0));
    while let Some(at) = disk.logged.engine.next_deadline() {
        disk.logged.now = at;
        disk.logged.handle(Event::Tick);
        disk.act();
    }
    disk.logged.model.check_at_rest(&disk.logged.engine);
}
