//! The measuring procedure against every drive of the catalogue, in virtual time: it must find the model's
//! own parameters within 5 %.

mod common;

use common::{HOST, Measured, measure, try_measure};
use seekless_base::Nanos;
use seekless_experiments::against::{WITHIN, compare};
use seekless_model::drive::catalogue;
use seekless_policy::profile::{Procedure, ProcedureOptions, Timing, Unmeasurable};

fn check(name: &str) {
    let spec = catalogue::get(name).unwrap();
    let Measured { profile, reads, busy, wall } = measure(&spec, |_, t| t);
    profile.check().unwrap();
    let worst = compare(&profile, &spec, 0.0);
    println!("{name}: {reads} reads, {busy} busy, {wall} in all, overhead {}", profile.overhead);
    for figure in worst.iter().take(4) {
        println!("  {:5.2} %  {}: {:.4}", figure.off * 100.0, figure.what, figure.measured);
    }
    assert!(wall < Nanos::from_secs(120), "{name} takes {wall}");
    assert!(worst[0].off <= WITHIN, "{name}: {}", worst[0].what);
}

#[test]
fn every_drive_is_found_within_5_percent() {
    let mut bad = Vec::new();
    for name in catalogue::names() {
        if std::panic::catch_unwind(|| check(name)).is_err() {
            bad.push(name);
        }
    }
    assert!(bad.is_empty(), "off by more than 5 %: {bad:?}");
}

/// A cheap, repeatable source of numbers from 0 to 1.
fn noise(n: u64) -> f64 {
    let mut x = n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x ^= x >> 31;
    x = x.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    ((x ^ (x >> 29)) >> 11) as f64 / (1u64 << 53) as f64
}

#[test]
fn a_late_host_and_other_users_are_borne() {
    for name in ["wd-red-1tb", "modern-20tb-7200"] {
        let spec = catalogue::get(name).unwrap();
        // Every read is noticed up to 60 us late, one in fifty half a millisecond; every tenth is disturbed
        // and took anything up to 30 ms longer.
        let measured = measure(&spec, |n, timing| {
            let rare = if noise(n + 1_000_000) < 0.02 { 500_000.0 } else { 0.0 };
            let disturbed = noise(n + 2_000_000) < 0.1;
            let wait = if disturbed { 30e6 * noise(n + 3_000_000) } else { 0.0 };
            let late = Nanos((60_000.0 * noise(n) + rare + wait) as u64);
            Timing { completed: timing.completed + late, disturbed, ..timing }
        });
        let worst = compare(&measured.profile, &spec, 0.03);
        println!("{name}: {} reads, worst {:.1} % {}", measured.reads, worst[0].off * 100.0, worst[0].what);
        assert!(worst[0].off <= 0.1, "{name}: {}", worst[0].what);
    }
}

#[test]
fn a_host_that_is_hopelessly_late_says_so() {
    let spec = catalogue::get("wd-red-1tb").unwrap();
    let outcome = try_measure(&spec, |n, timing| {
        // The turn is seen first, on a calm machine; then it becomes busy.
        let late = if n > 36 { 20e6 * noise(n) } else { 0.0 };
        Timing { completed: timing.completed + Nanos(late as u64), ..timing }
    });
    assert_eq!(outcome.unwrap_err(), Unmeasurable::LateHost);
}

#[test]
fn a_disk_that_does_not_turn_has_no_rotation() {
    let options = ProcedureOptions { sectors: 1 << 30, block: 8, seed: 1 };
    for base in [80_000u64, 900_000] {
        let mut procedure = Procedure::new(options).unwrap();
        let (mut now, mut n) = (Nanos::ZERO, 0);
        while let Some(read) = procedure.next(now) {
            let issued = (now + HOST).max(read.not_before);
            n += 1;
            let took = base as f64 * (0.8 + 0.4 * noise(n)) + f64::from(read.sectors) * 512.0 / 0.5;
            now = issued + Nanos(took as u64);
            procedure.done(Timing { issued, completed: now, disturbed: false });
        }
        let profile = procedure.finish().unwrap();
        profile.check().unwrap();
        assert_eq!(profile.rotation, None);
        assert!(profile.seek_over(1.0) < Nanos(base), "{}", profile.seek_over(1.0));
        assert!((profile.mean_rate() / 1e6 - 450.0).abs() < 150.0, "{}", profile.mean_rate() / 1e6);
    }
}

#[test]
fn a_failing_or_hopelessly_busy_disk_ends_in_one_line() {
    let options = ProcedureOptions { sectors: 1 << 30, block: 1, seed: 1 };
    let mut failing = Procedure::new(options).unwrap();
    let mut busy = Procedure::new(options).unwrap();
    let mut now = Nanos::ZERO;
    let mut reads = 0;
    while let Some(read) = failing.next(now) {
        let issued = now.max(read.not_before);
        now = issued + Nanos::from_millis(9);
        failing.failed(Timing { issued, completed: now, disturbed: false });
        reads += 1;
    }
    assert_eq!(failing.finish().unwrap_err(), Unmeasurable::Errors);
    assert!(reads < 100);
    while let Some(read) = busy.next(now) {
        let issued = now.max(read.not_before);
        now = issued + Nanos::from_millis(9);
        busy.done(Timing { issued, completed: now, disturbed: true });
        reads += 1;
    }
    assert_eq!(busy.finish().unwrap_err(), Unmeasurable::TooBusy);
    assert!(reads < 50_000, "{reads}");
    assert_eq!(
        Procedure::new(ProcedureOptions { sectors: 1000, ..options }).unwrap_err(),
        Unmeasurable::TooSmall
    );
}
