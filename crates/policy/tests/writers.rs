//! What the engine leaves to writes, on a disk whose scheduler prefers reads.

mod common;

use common::closed_loop::ClosedLoop;
use common::{Logged, replay};
use proptest::prelude::*;
use seekless_base::{Bytes, Lba, Nanos};
use seekless_policy::{
    Action, AheadConfig, Config, Demand, Event, FileId, IoPriority, Request, RequestId, SMALL_READS,
    WRITES_BELIEVED, Writes,
};

const K: u64 = 1 << 10;
const M: u64 = 1 << 20;
const MS: u64 = 1_000_000;

/// Of the modelled disk: bytes a second, and time of a switch.
const RATE: u64 = 100 * M;
const SWITCH: Nanos = Nanos::from_millis(15);

/// How often the driver looks.
const LOOK: Nanos = Nanos::from_millis(5);

/// A disk with closed-loop readers and one writer.
struct Disk {
    reads: ClosedLoop,
    /// Time of writing that is still to do, and how often as much is added; the time done.
    to_write: Nanos,
    written: Nanos,
    /// Whether reads in flight and writes share the disk equally; else writes get nothing beside reads.
    shares: bool,
    /// The longest time that a write waited.
    waits_since: Option<Nanos>,
    longest_wait: Nanos,
}

impl Disk {
    fn new(writers: Option<f64>, readers: usize) -> Disk {
        Disk::of(writers, readers, Bytes::mib(4))
    }

    fn of(writers: Option<f64>, readers: usize, prefetch: Bytes) -> Disk {
        let config = Config {
            prefetch,
            read_max: Bytes::mib(32),
            writers,
            small_in_flight: 32,
            ahead: Some(AheadConfig::default()),
            ..Config::default()
        };
        let takes = |len| SWITCH + Nanos::from_secs_f64(len as f64 / RATE as f64);
        Disk {
            reads: ClosedLoop::new(config, &vec![IoPriority::NORMAL; readers], takes),
            to_write: Nanos::ZERO,
            written: Nanos::ZERO,
            shares: false,
            waits_since: None,
            longest_wait: Nanos::ZERO,
        }
    }

    fn report(&mut self, bytes: u64) {
        let waiting = u64::from(self.to_write > Nanos::ZERO);
        self.reads.logged.handle(Event::Writes(Writes { waiting, bytes }));
        self.reads.act();
    }

    /// Lets a millisecond pass.
    fn pass(&mut self) {
        let step = Nanos(MS);
        let waits = self.to_write > Nanos::ZERO;
        let part = match (waits, self.reads.left().is_none(), self.shares) {
            (false, ..) => Nanos::ZERO,
            (_, true, _) => step,
            (_, false, true) => Nanos(step.0 / 2),
            (_, false, false) => Nanos::ZERO,
        };
        let (before, now) = (self.to_write, self.reads.logged.now);
        self.written += part.min(self.to_write);
        self.to_write = self.to_write.since(part);
        if part > Nanos::ZERO || !waits {
            self.waits_since = None;
        } else {
            let since = *self.waits_since.get_or_insert(now);
            self.longest_wait = self.longest_wait.max(now + step - since);
        }
        self.reads.pass(step, step - part);
        let looks = self.reads.logged.now.0.is_multiple_of(LOOK.0);
        if (before > Nanos::ZERO) != (self.to_write > Nanos::ZERO) || (waits && looks) {
            self.report(part.0 / 10);
        }
    }

    /// Runs this long; a writer adds `each` every `every`.
    fn run(&mut self, seconds: u64, each: Nanos, every: Nanos) {
        self.reads.act();
        let end = self.reads.logged.now + Nanos::from_secs(seconds);
        let mut due = self.reads.logged.now;
        while self.reads.logged.now < end {
            if self.reads.logged.now >= due && each > Nanos::ZERO {
                due = self.reads.logged.now + every;
                self.to_write += each;
                self.report(0);
            }
            self.pass();
        }
    }

    fn saturate(&mut self, seconds: u64) {
        self.run(seconds, Nanos::from_secs(seconds), Nanos::from_secs(seconds));
    }
}

#[test]
fn a_writer_that_never_stops_has_its_share_and_no_more() {
    for share in [0.1, 0.25, 0.5, 0.9] {
        let mut disk = Disk::new(Some(share), 20);
        disk.saturate(60);
        let part = disk.written.as_secs_f64() / 60.0;
        assert!((0.98..1.15).contains(&(part / share)), "{part} of {share}");
        let stats = disk.reads.logged.engine.stats().writers;
        let counted = stats.disk_time.as_secs_f64() / stats.busy.as_secs_f64();
        assert!((counted / part - 1.0).abs() < 0.05, "{counted} is counted of {part}");
        assert!(stats.held_back > 0);
        replay(&disk.reads.logged.log);
    }
}

#[test]
fn without_the_rule_such_a_writer_starves() {
    let mut disk = Disk::new(None, 20);
    disk.saturate(20);
    assert!(disk.written < Nanos::from_millis(200), "{:?}", disk.written);
}

#[test]
fn what_writers_get_beside_reads_comes_on_top() {
    // The scheduler gives half of the time of each piece to the writes, which have a turn as long after it.
    let mut disk = Disk::new(Some(0.5), 20);
    disk.shares = true;
    disk.saturate(60);
    let part = disk.written.as_secs_f64() / 60.0;
    assert!((0.7..0.8).contains(&part), "{part}");
}

#[test]
fn a_write_waits_for_one_piece_and_gets_all_that_it_asks_for() {
    let mut disk = Disk::new(Some(0.5), 50);
    disk.run(60, Nanos::from_millis(40), Nanos::from_millis(200));
    // A piece, with the tail of a file of less than half of one; or small reads in flight together.
    let takes = |switches: u64, bytes: u64| {
        Nanos(switches * SWITCH.0) + Nanos::from_secs_f64(bytes as f64 / RATE as f64)
    };
    let longest = takes(1, 6 * M).max(takes(4, SMALL_READS));
    assert!(disk.longest_wait <= longest + LOOK, "{:?} of {longest:?}", disk.longest_wait);
    assert!(disk.to_write <= Nanos::from_millis(80), "{:?} is left", disk.to_write);
    assert!(disk.reads.in_flight_max <= 4, "{} at once", disk.reads.in_flight_max);
    // The readers have nearly all of the rest.
    let alone = Disk::new(Some(0.5), 50);
    let [beside, alone] = [disk, {
        let mut alone = alone;
        alone.run(60, Nanos::ZERO, Nanos::ZERO);
        alone
    }]
    .map(|disk| disk.reads.bytes as f64);
    assert!(beside / alone > 0.9 * 0.8, "{}", beside / alone);
}

#[test]
fn small_reads_go_one_by_one_beside_writes() {
    let mut s = Logged::new(Config { small_in_flight: 32, ..Config::default() });
    s.handle(Event::Writes(Writes { waiting: 3, ..Writes::default() }));
    for ino in 0..8u64 {
        s.handle(Event::Request(Request {
            id: RequestId(ino),
            file: FileId { dev: 1, ino },
            from: 0,
            offset: 0,
            len: 0,
            file_size: 64 * K,
            lba: Some(Lba(ino * 1000)),
            demand: Demand::default(),
        }));
    }
    let reads =
        |s: &mut Logged| std::iter::from_fn(|| s.poll()).filter(|a| matches!(a, Action::Read { .. })).count();
    assert_eq!(reads(&mut s), 1);
    // Nothing waits any more.
    s.handle(Event::Writes(Writes::default()));
    assert_eq!(reads(&mut s), 7);
}

#[test]
fn a_report_that_is_not_repeated_withholds_nothing_for_long() {
    let mut disk = Disk::new(Some(0.9), 5);
    disk.reads.act();
    disk.reads.logged.handle(Event::Writes(Writes { waiting: 1, bytes: 0 }));
    let end = disk.reads.logged.now + WRITES_BELIEVED + Nanos::from_millis(200);
    while disk.reads.logged.now < end {
        disk.pass();
    }
    let before = disk.reads.bytes;
    disk.run(5, Nanos::ZERO, Nanos::ZERO);
    let mut alone = Disk::new(None, 5);
    alone.run(5, Nanos::ZERO, Nanos::ZERO);
    assert!(
        disk.reads.bytes - before >= alone.reads.bytes / 10 * 9,
        "{} of {}",
        disk.reads.bytes - before,
        alone.reads.bytes
    );
    assert_eq!(disk.reads.logged.engine.stats().writers.waiting, 0);
}

#[test]
fn a_writer_that_is_owed_nothing_gets_what_reads_leave() {
    let mut disk = Disk::new(Some(0.0), 20);
    disk.saturate(10);
    assert_eq!(disk.reads.logged.engine.stats().writers.held_back, 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever the load, the rule changes nothing where nobody writes.
    #[test]
    fn nothing_changes_where_nobody_writes(readers in 1..30usize, share in 0.0..0.9f64, seconds in 1..6u64) {
        let mut with = Disk::new(Some(share), readers);
        let mut without = Disk::new(None, readers);
        for disk in [&mut with, &mut without] {
            disk.run(seconds, Nanos::ZERO, Nanos::ZERO);
        }
        // All but the settings.
        prop_assert_eq!(&with.reads.logged.log[1..], &without.reads.logged.log[1..]);
    }

    /// No writer has less than its share while it waits, nor waits for more than a piece, whatever it asks
    /// for and when.
    #[test]
    fn no_writer_is_starved(
        readers in 1..40usize,
        share in 0.1..0.9f64,
        each_ms in 1..400u64,
        every_ms in 1..800u64,
        shares in any::<bool>(),
    ) {
        let mut disk = Disk::new(Some(share), readers);
        disk.shares = shares;
        disk.run(20, Nanos::from_millis(each_ms), Nanos::from_millis(every_ms));
        let asked = Nanos::from_millis(20_000u64.div_ceil(every_ms) * each_ms);
        let due = asked.as_secs_f64().min(20.0 * share) - each_ms as f64 / 1e3;
        prop_assert!(disk.written.as_secs_f64() >= 0.95 * due - 0.1, "{:?} of {due} s", disk.written);
        replay(&disk.reads.logged.log);
    }
}
