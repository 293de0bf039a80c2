//! Drives drawn from a seed: valid, in their ranges, as good as measured ones, and the same for ever.

mod common;

use proptest::prelude::*;
use seekless_base::{Lba, Nanos};
use seekless_model::drive::draw::draw;
use seekless_model::drive::{Drive, Order};

/// Every figure that [`seekless_model::drive::draw`] promises a range for.
fn in_range(seed: u64, index: u64) {
    let spec = draw(seed, index);
    let what = format!("{}: {}", spec.name, spec.label);
    spec.check().unwrap_or_else(|why| panic!("{what}: {why}"));
    let rpm = (60e9 / spec.rotation_period().0 as f64).round() as u32;
    assert!([5400, 5900, 7200, 10_000, 15_000].contains(&rpm), "{what}");
    let last = Lba(spec.sectors() - 1);
    let (outer, inner) = (spec.media_rate(Lba(0)) / 1e6, spec.media_rate(last) / 1e6);
    assert!((59.0..=291.0).contains(&outer), "{what}: {outer}");
    assert!((0.44..=0.72).contains(&(inner / outer)), "{what}: {outer} {inner}");
    let published = &spec.published;
    assert!((outer / published.outer_mb_per_s.unwrap() - 1.0).abs() < 0.03, "{what}: {outer}");

    // The curve rises, from the shortest seek to the longest.
    let far = spec.cylinders() - 1;
    let distances: Vec<u32> = (0..=40).map(|i| ((f64::from(far)).powf(f64::from(i) / 40.0)) as u32).collect();
    let times: Vec<f64> = distances.iter().map(|&d| spec.seek_time_over(d).as_millis_f64()).collect();
    assert!(times.is_sorted(), "{what}: {times:?}");
    let average = published.average_seek_ms.unwrap();
    assert!((0.2..=2.0).contains(&times[0]) && (2.8..=14.0).contains(&average), "{what}: {times:?}");
    assert!((1.8..=2.7).contains(&(times[40] / average)), "{what}: {} of {average}", times[40]);
    // Independent places, evenly spread over the cylinders.
    let steps = 400;
    let mean: f64 = (0..steps)
        .map(|i| {
            let u = (f64::from(i) + 0.5) / f64::from(steps);
            2.0 * (1.0 - u) * spec.seek_time_over((u * f64::from(far)) as u32).as_millis_f64()
        })
        .sum::<f64>()
        / f64::from(steps);
    assert!((mean / average - 1.0).abs() < 0.02, "{what}: {mean} of {average}");

    let b = &spec.buffer;
    let bytes = u64::from(b.segments) * u64::from(b.segment_sectors) * 512;
    assert!(bytes.is_power_of_two() && (2 << 20..=512 << 20).contains(&bytes), "{what}: {bytes}");
    assert!(
        b.look_ahead_sectors <= b.segment_sectors && b.minimum_fetch_sectors <= b.look_ahead_sectors,
        "{what}"
    );
    assert!([1, 4, 16, 32].contains(&spec.queue.depth), "{what}");
    assert!(spec.queue.depth > 1 || b.look_ahead_sectors > 0, "{what}: loses a turn at every command");
    assert!(spec.electronics.bus_mb_per_s > outer, "{what}");
    assert!(spec.capacity().0 > 4 << 30, "{what}: {} hold no library", spec.capacity());
}

#[test]
fn thousands_of_drawn_drives_are_in_range() {
    for seed in 0..4 {
        (0..1000).for_each(|index| in_range(seed, index));
    }
    // The smallest that was met: a little below 8 GiB.
    in_range(7131371474048351394, 2591336105523411905);
}

#[test]
fn a_seed_draws_every_kind() {
    let all: Vec<_> = (0..200).map(|i| draw(1, i)).collect();
    let share = |is: &dyn Fn(&seekless_model::drive::DriveSpec) -> bool| {
        all.iter().filter(|d| is(d)).count() as f64 / all.len() as f64
    };
    for rpm in [5400.0, 5900.0, 7200.0, 10_000.0, 15_000.0] {
        let found = share(&|d| (60e9 / d.rotation_period().0 as f64 - rpm).abs() < 1.0);
        assert!((0.1..0.3).contains(&found), "{rpm}: {found}");
    }
    for depth in [1, 4, 16, 32] {
        let found = share(&|d| d.queue.depth == depth);
        assert!((0.15..0.35).contains(&found), "{depth}: {found}");
    }
    assert!((0.1..0.4).contains(&share(&|d| d.queue.order == Order::Fifo)));
    assert!((0.02..0.2).contains(&share(&|d| d.buffer.look_ahead_sectors == 0)));
}

#[test]
fn a_drawn_drive_never_changes() {
    let facts = |seed, index| {
        let d = draw(seed, index);
        let last = Lba(d.sectors() - 1);
        (
            d.rotation_period().0,
            d.sectors(),
            d.media_rate(Lba(0)) as u64,
            d.media_rate(last) as u64,
            d.seek_time_over(d.cylinders() / 3).0,
            (d.buffer.segments, d.buffer.segment_sectors, d.buffer.look_ahead_sectors),
            d.queue.depth,
        )
    };
    assert_eq!([facts(1, 0), facts(1, 1), facts(2, 0), facts(u64::MAX, u64::MAX)], GOLDEN);
}

type Facts = (u64, u64, u64, u64, u64, (u32, u32, u32), u32);
const GOLDEN: [Facts; 4] = [
    (6_000_000, 67_079_228, 86_963_832, 44_778_128, 4_919_850, (8, 512, 512), 32),
    (8_333_333, 887_345_662, 98_651_715, 68_198_113, 11_296_348, (8, 1024, 1024), 16),
    (10_169_492, 8_195_951_538, 195_650_287, 130_790_303, 8_863_964, (16, 32_768, 32_768), 4),
    (6_000_000, 251_820_736, 81_295_724, 52_108_241, 4_201_028, (32, 128, 128), 16),
];

proptest! {
    #[test]
    fn any_drawn_drive_is_in_range(seed: u64, index: u64) {
        in_range(seed, index);
    }

    #[test]
    fn a_drawn_drive_streams_at_its_media_rate(seed: u64, index in 0..1000u64) {
        // One command as long as a second's worth: no gap to fall into.
        let spec = draw(seed, index);
        let sectors = 65_536;
        let mut drive = Drive::new(&spec);
        common::one(&mut drive, Nanos::ZERO, common::read(0, 0, 8));
        let now = Nanos::from_secs(1);
        let done = common::one(&mut drive, now, common::read(1, 1_000_000, sectors));
        let s = (done.service.transfer).as_secs_f64();
        let rate = f64::from(sectors) * 512.0 / s;
        let media = spec.media_rate(Lba(1_000_000));
        prop_assert!((rate / media - 1.0).abs() < 0.05, "{}: {rate} of {media}", spec.label);
    }
}
