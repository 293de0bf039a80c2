//! Readers of different I/O priorities on one disk.

mod common;

use common::closed_loop::ClosedLoop;
use common::replay;
use proptest::prelude::*;
use seekless_base::{Bytes, Nanos};
use seekless_policy::{AheadConfig, Config, IDLE_WAIT, IoPriority, OrderKind};

/// A disk that takes 50 ms for a piece.
fn disk_of(readers: &[IoPriority]) -> ClosedLoop {
    let config = Config {
        prefetch: Bytes::mib(1),
        order: OrderKind::Sweep,
        ahead: Some(AheadConfig::default()),
        ..Config::default()
    };
    ClosedLoop::new(config, readers, |_| Nanos::from_millis(50))
}

fn run(mut disk: ClosedLoop, seconds: u64) -> ClosedLoop {
    disk.act();
    let end = disk.logged.now + Nanos::from_secs(seconds);
    while disk.logged.now < end {
        let deadline = || disk.logged.engine.next_deadline().expect("readers wait") - disk.logged.now;
        let step = disk.left().unwrap_or_else(deadline);
        disk.pass(step, step);
    }
    disk
}

const NORMAL: IoPriority = IoPriority::NORMAL;

#[test]
fn an_idle_reader_alone_has_the_disk_to_itself() {
    let disk = run(disk_of(&[IoPriority::IDLE]), 20);
    assert!(disk.pieces[0] >= 399, "{}", disk.pieces[0]);
}

#[test]
fn an_idle_reader_gets_a_piece_now_and_then_beside_a_saturated_disk() {
    let disk = run(disk_of(&[NORMAL, NORMAL, NORMAL, NORMAL, IoPriority::IDLE]), 100);
    let (idle, others) = (disk.pieces[4], disk.pieces[..4].iter().sum::<u64>());
    assert!((8..=12).contains(&idle), "{idle} of {others}");
    // At most the sweep over all others, after the time at which it is due.
    assert!(disk.longest[4] <= IDLE_WAIT + Nanos::from_millis(600), "{:?}", disk.longest[4]);
    replay(&disk.logged.log);
}

#[test]
fn levels_weigh_as_they_do_in_the_kernel() {
    let low = IoPriority::best_effort(7);
    let disk = run(disk_of(&[NORMAL, NORMAL, NORMAL, low, NORMAL]), 200);
    let ratio = disk.pieces[0] as f64 / disk.pieces[3] as f64;
    assert!((3.0..5.5).contains(&ratio), "{:?}", disk.pieces);
    // Alone, all of a low level have what all of the default have.
    let disk = run(disk_of(&[low; 5]), 20);
    assert!(disk.pieces.iter().sum::<u64>() >= 399, "{:?}", disk.pieces);
    assert!(disk.pieces.iter().all(|&n| n >= 70), "{:?}", disk.pieces);
}

#[test]
fn a_reader_of_higher_priority_lifts_the_piece_that_it_waits_for() {
    let mut disk = disk_of(&[NORMAL, NORMAL, NORMAL, IoPriority::IDLE]);
    disk.act();
    // Another process reads the same bytes of the same file.
    disk.readers[3].1 = NORMAL;
    disk.ask(3);
    let disk = run(disk, 1);
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
        let disk = run(disk_of(&readers), 60);
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
        let disk = run(disk_of(&readers), 9);
        // One piece may have been chosen while nobody else waited.
        let early: u64 = disk.pieces[normal..].iter().sum();
        prop_assert!(normal == 1 || early <= 1, "{:?}", disk.pieces);
    }

    /// Weights of which all are equal change nothing.
    #[test]
    fn equal_weights_change_nothing(readers in 1..10usize, weight in 1..500u32) {
        let pieces = |io| run(disk_of(&vec![io; readers]), 5).pieces;
        prop_assert_eq!(pieces(NORMAL), pieces(IoPriority { idle: false, weight }));
    }
}
