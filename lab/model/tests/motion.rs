//! The second model against its data sheet and against what no disk can do.

use proptest::prelude::*;
use seekless_base::{Bytes, Lba, Nanos};
use seekless_model::platter::{Command, DataSheet, Done, Platter};

fn sheet() -> DataSheet {
    DataSheet {
        rpm: 7200.0,
        sectors: 1 << 31,
        outer_mb_per_s: 180.0,
        inner_mb_per_s: 90.0,
        track_ms: 1.0,
        average_ms: 8.5,
        full_ms: 18.0,
        buffer: Bytes::mib(32),
        queue: 32,
        command_ms: 0.2,
        bus_mb_per_s: 300.0,
    }
}

fn read(id: u64, lba: u64, sectors: u32) -> Command {
    Command { id, write: false, lba: Lba(lba), sectors }
}

/// One command at a time, each at the end of the one before.
fn serial(disk: &mut Platter, commands: impl IntoIterator<Item = Command>) -> Vec<Done> {
    let mut now = Nanos::ZERO;
    let mut all = Vec::new();
    for command in commands {
        assert!(disk.submit(now, command));
        let done = loop {
            now = now.max(disk.next_event().unwrap());
            if let Some(done) = disk.poll(now) {
                break done;
            }
        };
        all.push(done);
    }
    all
}

#[test]
fn a_long_read_runs_at_the_rates_of_the_data_sheet() {
    for (at, rate) in [(0, 180.0), ((1u64 << 31) - (1 << 18) - 1, 90.0)] {
        let mut disk = Platter::new(&sheet()).unwrap();
        let done = serial(&mut disk, (0..512).map(|i| read(i, at + i * 512, 512)));
        let ns = (done[511].finished - done[0].finished).0 as f64;
        let got = 511.0 * 512.0 * 512.0 * 1e3 / ns;
        assert!((got / rate - 1.0).abs() < 0.02, "{got} of {rate} MB/s at {at}");
    }
}

#[test]
fn random_reads_take_an_average_seek_and_half_a_turn() {
    let mut disk = Platter::new(&sheet()).unwrap();
    let mut x = 1u64;
    let places = (0..4000).map(|i| {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        read(i, x >> 33, 8)
    });
    let done = serial(&mut disk, places);
    let mean = |part: fn(&Done) -> Nanos| done.iter().map(|d| part(d).0 as f64).sum::<f64>() / 4e9;
    // The mean over all distances lies below the seek over the mean distance: the curve is concave.
    assert!((7.0..=8.7).contains(&mean(|d| d.seek)), "{} ms", mean(|d| d.seek));
    assert!((mean(|d| d.rotation) - 60e3 / 7200.0 / 2.0).abs() < 0.2, "{} ms", mean(|d| d.rotation));
}

#[test]
fn what_was_read_ahead_comes_from_the_buffer() {
    let mut disk = Platter::new(&sheet()).unwrap();
    assert!(disk.submit(Nanos::ZERO, read(0, 1000, 256)));
    let first = disk.next_event().unwrap();
    assert!(disk.poll(first).is_some());
    let later = first + Nanos::from_millis_f64(20.0);
    assert!(disk.submit(later, read(1, 1256, 256)));
    let at = disk.next_event().unwrap();
    let second = disk.poll(at).unwrap();
    assert!(second.from_buffer && second.seek == Nanos::ZERO, "{second:?}");
}

#[test]
fn a_queue_is_served_faster_than_in_order_of_arrival() {
    let mut x = 7u64;
    let places: Vec<u64> = (0..320)
        .map(|_| {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            x >> 33
        })
        .collect();
    let one = serial(&mut Platter::new(&sheet()).unwrap(), (0..320).map(|i| read(i, places[i as usize], 8)));
    let mut disk = Platter::new(&sheet()).unwrap();
    let (mut next, mut ended, mut now) = (0, 0, Nanos::ZERO);
    while ended < 320 {
        while next < 320 && disk.submit(now, read(next, places[next as usize], 8)) {
            next += 1;
        }
        now = now.max(disk.next_event().unwrap());
        ended += u64::from(disk.poll(now).is_some());
    }
    assert!(now.0 as f64 * 1.5 < one[319].finished.0 as f64, "{now} and {}", one[319].finished);
}

#[test]
fn a_whole_track_is_read_from_where_the_heads_land() {
    let turn = 60e9 / 7200.0;
    // Around the place where a track has as many sectors as are read. The first of these is one whole track.
    for lba in (0..200).map(|i| 173_031_528 + i * 97) {
        let done = serial(&mut Platter::new(&sheet()).unwrap(), [read(0, lba, 2809)])[0];
        assert!(done.rotation.0 as f64 <= turn, "{done:?}");
        assert_eq!(done.command + done.seek + done.rotation + done.transfer, done.finished - done.started);
    }
}

#[test]
fn figures_out_of_range_are_named() {
    let wrong = DataSheet { inner_mb_per_s: 200.0, ..sheet() };
    assert!(Platter::new(&wrong).unwrap_err().contains("inner_mb_per_s"));
    assert!(Platter::new(&DataSheet { rpm: f64::NAN, ..sheet() }).unwrap_err().contains("rpm"));
}

proptest! {
    #[test]
    fn every_command_ends_once_and_no_sooner_than_it_can(
        commands in prop::collection::vec((0..1u64 << 31, 1..4096u32, 0..30_000_000u64, prop::bool::ANY), 1..60),
    ) {
        let mut disk = Platter::new(&sheet()).unwrap();
        let mut now = Nanos::ZERO;
        let mut seen = vec![false; commands.len()];
        let mut end = |done: Done| {
            assert!(!std::mem::replace(&mut seen[done.asked.id as usize], true), "twice");
            assert!(done.arrived <= done.started && done.started <= done.finished);
            let parts = done.command + done.seek + done.rotation + done.transfer;
            assert_eq!(parts, done.finished - done.started);
            assert!(done.rotation.0 as f64 <= 60e9 / 7200.0 + 1.0);
        };
        for (i, &(lba, sectors, pause, write)) in commands.iter().enumerate() {
            now += Nanos(pause);
            let command = Command { id: i as u64, write, lba: Lba(lba), sectors };
            while !disk.submit(now, command) {
                now = now.max(disk.next_event().unwrap());
                while let Some(done) = disk.poll(now) { end(done); }
            }
            while let Some(done) = disk.poll(now) { end(done); }
        }
        while disk.queue_len() > 0 {
            now = now.max(disk.next_event().unwrap());
            while let Some(done) = disk.poll(now) { end(done); }
        }
        prop_assert!(seen.iter().all(|s| *s));
    }

    #[test]
    fn polling_late_changes_nothing_of_what_the_disk_did(
        places in prop::collection::vec(0..1u64 << 31, 1..24), late in 0..50_000_000u64,
    ) {
        let run = |late: u64| {
            let mut disk = Platter::new(&sheet()).unwrap();
            for (i, &lba) in places.iter().enumerate() {
                assert!(disk.submit(Nanos::ZERO, read(i as u64, lba, 256)));
            }
            let mut all = Vec::new();
            while let Some(at) = disk.next_event() {
                while let Some(done) = disk.poll(at + Nanos(late)) { all.push(done); }
            }
            all
        };
        prop_assert_eq!(run(0), run(late));
    }
}
