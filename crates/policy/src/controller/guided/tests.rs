use super::*;
use proptest::prelude::*;

const MIB: f64 = 1024.0 * 1024.0;

fn disk() -> DiskProfile {
    DiskProfile::assumed(1 << 31)
}

/// Bytes this disk transfers in a switch.
fn depth() -> f64 {
    disk().mean_depth().0 as f64
}

fn start(mib: u64) -> Guided {
    Guided::new(Params { start_size: Bytes::mib(mib), ..Params::default() }, &disk(), Nanos::ZERO)
}

/// Readers that stay, in as much memory as they like.
const ROOMY: Situation = Situation {
    room: 64 << 20,
    part: 1.0,
    ended: 300,
    used: 40.0 * MIB,
    left: 3.0 * MIB,
    pace: 0.0,
    depth: 0,
};

/// Runs for so many seconds a disk whose time for a byte depends on the size as `curve` says, with a jitter of `jitter` from
/// second to second.
fn run(
    c: &mut Guided,
    from_s: u64,
    seconds: u64,
    curve: impl Fn(f64) -> f64,
    jitter: f64,
    seen: Situation,
) -> u64 {
    for s in from_s + 1..=from_s + seconds {
        let now = Nanos::from_secs(s);
        if s % 5 == 0 {
            c.situation(now, seen);
        }
        // A fixed sequence that looks like chance.
        let chance = ((s * 7919) % 101) as f64 / 50.0 - 1.0;
        let requested = Bytes::mib(40);
        let each = curve(c.size().0 as f64 / MIB) * (1.0 + jitter * chance);
        let disk_time = Nanos::from_millis_f64(each * requested.0 as f64 / TRANSACTION.0 as f64);
        let busy = Nanos::from_millis(900);
        c.observe(
            now,
            Observation { disk_time, disk_bytes: requested, requested, busy, ..Observation::default() },
        );
        c.tick(now);
        assert!(c.next_deadline() > now);
    }
    c.target().0
}

#[test]
fn a_start_size_far_off_is_left_at_the_first_look() {
    let expected = DEPTHS * depth();
    for mib in [1, 5, 32] {
        let mut c = start(mib);
        c.situation(Nanos::from_millis(500), Situation { room: 1 << 30, part: 1.0, ..Situation::default() });
        assert!((c.size().0 as f64 / expected - 1.0).abs() < 0.01, "from {mib} MiB: {}", c.size());
    }
}

#[test]
fn memory_bounds_it_and_is_followed() {
    let mut c = start(8);
    let room = |mib: u64| Situation { room: mib << 20, ..ROOMY };
    run(&mut c, 0, 60, |_| 1.0, 0.0, room(2));
    assert_eq!(c.size(), Bytes::mib(2));
    run(&mut c, 60, 3_600, |_| 1.0, 0.0, room(2));
    assert_eq!(c.size(), Bytes::mib(2), "nothing is tried where memory is the bound");
    run(&mut c, 3_660, 60, |_| 1.0, 0.0, room(4));
    assert_eq!(c.size(), Bytes::mib(4));
}

#[test]
fn what_leavers_leave_bounds_it() {
    let mut c = start(8);
    let leaving = Situation { used: 4.0 * MIB, ..ROOMY };
    run(&mut c, 0, 30, |_| 1.0, 0.0, leaving);
    // The waste measured at one size, 8 MiB, tells of another: least where a byte's switch costs as much as its waste.
    let expected = libm::sqrt(depth() * 4.0 * MIB * 8.0 * MIB / (3.0 * MIB));
    assert!((c.target().0 as f64 / expected - 1.0).abs() < 0.01, "{} {expected}", c.target());
    run(&mut c, 30, 300, |_| 1.0, 0.0, leaving);
    assert!((c.target().0 as f64 / expected - 1.0).abs() < 0.01, "no news, no change");
    // Readers that stay: eight depths where that is a third of the room, fewer where it is more, but six at the least.
    for (depths_of_room, depths) in [(30.0, 8.0), (21.0, 7.0), (12.0, 6.0)] {
        let mut c = start(8);
        let room = (depths_of_room * depth()) as u64;
        run(&mut c, 0, 30, |_| 1.0, 0.0, Situation { room, ..ROOMY });
        assert!((c.target().0 as f64 / (depths * depth()) - 1.0).abs() < 0.01, "{}", c.target());
    }
}

#[test]
fn no_piece_lasts_longer_than_a_minute() {
    let mut c = start(8);
    run(&mut c, 0, 30, |_| 1.0, 0.0, Situation { pace: 0.1 * MIB, ..ROOMY });
    assert!((c.target().0 as f64 / (6.0 * MIB) - 1.0).abs() < 0.01, "{}", c.target());
    // But twice what the disk transfers in a switch, however slow its readers are.
    run(&mut c, 30, 30, |_| 1.0, 0.0, Situation { pace: 1.0, ..ROOMY });
    assert!((c.target().0 as f64 / (2.0 * depth()) - 1.0).abs() < 0.01, "{}", c.target());
}

#[test]
fn viewers_who_fill_their_buffers_are_taken_for_what_they_will_be() {
    let mut c = start(8);
    let bitrate = 0.1 * MIB;
    c.observe(Nanos::from_secs(1), Observation { bitrate, ..Observation::default() });
    c.situation(Nanos::from_secs(1), Situation { pace: MIB, ended: 0, ..ROOMY });
    assert!((c.target().0 as f64 / (60.0 * bitrate) - 1.0).abs() < 0.01, "{}", c.target());
}

#[test]
fn where_it_is_flat_it_stays_though_scores_fluctuate() {
    let mut c = start(8);
    let model = run(&mut c, 0, 60, |_| 1.0, 0.05, ROOMY);
    for hour in 0..6 {
        assert_eq!(run(&mut c, 60 + hour * 3_600, 3_600, |_| 1.0, 0.05, ROOMY), model, "hour {hour}");
    }
}

#[test]
fn a_clear_slope_is_followed_as_far_as_a_factor_of_two() {
    let leaving = Situation { used: 0.5 * MIB, ..ROOMY };
    for (slope, factor) in [(-0.5, 2.0), (0.5, 0.5)] {
        let mut c = start(8);
        let model = run(&mut c, 0, 60, |_| 1.0, 0.0, leaving) as f64;
        // The situation stays as it is: what is left at the size in use is a matter of the test alone.
        let end = run(&mut c, 60, 20_000, |mib| libm::pow(mib, slope), 0.02, Situation { room: 0, ..ROOMY });
        assert!((end as f64 / (model * factor) - 1.0).abs() < 0.01, "{end} from {model} at {slope}");
        assert!(model * factor < DEPTHS * depth(), "nothing larger is tried");
    }
}

#[test]
fn what_is_evicted_early_bounds_it_at_once() {
    let mut c = start(8);
    run(&mut c, 0, 30, |_| 1.0, 0.0, ROOMY);
    let now = c.interval_end();
    c.observe(
        now,
        Observation {
            requested: Bytes::mib(100),
            evicted: Bytes::mib(200),
            eviction_time: Nanos::from_secs(20),
            bitrate: 50_000.0,
            busy: Nanos::from_secs(180),
            ..Observation::default()
        },
    );
    c.tick(now);
    assert!(matches!(c.last_decision(), Some((Decision::Evicting { .. }, _))));
    assert_eq!(c.size().0, 1_000_000 / 4096 * 4096, "20 s of 50 kB/s");
}

proptest! {
    #[test]
    fn whatever_it_is_told_it_stays_in_range(
        start in 0u64..1 << 40, step in 0u64..1 << 40, most in 0u64..1 << 40,
        told in proptest::collection::vec(
            (0u64..1 << 40, any::<u64>(), -1e18f64..1e18, -1e18f64..1e18, any::<u64>(), any::<u64>(), any::<u64>()), 1..60),
    ) {
        let params = Params {
            start_size: Bytes(start), step_size: Bytes(step), size_max: Bytes(most), adjust_busy: 0.0, ..Params::default()
        };
        let mut c = Guided::new(params, &disk(), Nanos::ZERO);
        let mut now = Nanos::ZERO;
        for (passed, room, used, left, disk_time, requested, evicted) in told {
            now += Nanos(passed);
            c.situation(now, Situation { room, part: left, ended: passed as u32, used, left, pace: left, depth: 0 });
            c.observe(now, Observation {
                disk_time: Nanos(disk_time), disk_bytes: Bytes(requested), requested: Bytes(requested), busy: Nanos(disk_time),
                evicted: Bytes(evicted), eviction_time: Nanos(disk_time), bitrate: used,
            });
            c.tick(now);
            prop_assert!(c.size().0 >= 4096 && c.size().0 <= c.params.size_max.0, "{}", c.size());
        }
    }
}
