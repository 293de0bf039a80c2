//! The measuring procedure in virtual time, and a measured profile against the model of its drive.
// Each test and example uses its part.
#![allow(dead_code)]

use seekless_drive::{Command, Drive, DriveSpec, Op};
use seekless_policy::profile::{DiskProfile, Procedure, ProcedureOptions, Timing, Unmeasurable};
use seekless_units::{Lba, Nanos};

/// Host and bus time a command takes beside the drive's own, and the passage of a sector, at the most.
const PATH_MS: f64 = 0.03;

fn off(measured: f64, model: f64) -> f64 {
    (measured - model).abs() / model
}

/// By how much a curve falls that should rise. The tables of the old drives were taken from real ones and are not
/// smooth (the Ultrastar 18ES: 9 cylinders 1.749 ms, 10 cylinders 1.020 ms, 12 cylinders 1.823 ms); a curve that
/// never falls can only go through their middle. Zero for every drive with a smooth curve.
fn jag(rising: &[f64]) -> f64 {
    let mut highest = 0.0f64;
    let mut fall = 0.0f64;
    for &value in rising {
        highest = highest.max(value);
        fall = fall.max(highest - value);
    }
    fall / 2.0
}

fn middle(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Time between a completion and the next command at the earliest: the host's system call.
pub(crate) const HOST: Nanos = Nanos::from_micros(20);

#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) profile: DiskProfile,
    pub(crate) reads: u64,
    pub(crate) busy: Nanos,
    pub(crate) wall: Nanos,
}

/// Runs the procedure on a model. `spoil` may change what each read's timing is said to be.
pub(crate) fn measure(spec: &DriveSpec, spoil: impl FnMut(u64, Timing) -> Timing) -> Measured {
    try_measure(spec, spoil).unwrap()
}

/// The same, where it may not come to a profile.
pub(crate) fn try_measure(
    spec: &DriveSpec,
    mut spoil: impl FnMut(u64, Timing) -> Timing,
) -> Result<Measured, Unmeasurable> {
    let mut drive = Drive::new(spec);
    let options = ProcedureOptions { sectors: drive.sectors(), block: 1, seed: 7 };
    let mut procedure = Procedure::new(options).unwrap();
    let (mut now, mut reads, mut busy) = (Nanos::from_secs(1), 0, Nanos::ZERO);
    while let Some(read) = procedure.next(now) {
        let issued = (now + HOST).max(read.not_before);
        let command = Command { id: 0, op: Op::Read, lba: read.lba, sectors: read.sectors };
        drive.submit(issued, command).unwrap();
        let completed = drive.next_completion().unwrap();
        drive.poll(completed).unwrap();
        let timing = spoil(reads, Timing { issued, completed, disturbed: false });
        procedure.done(timing);
        now = timing.completed;
        reads += 1;
        busy += completed.since(issued);
    }
    Ok(Measured { profile: procedure.finish()?, reads, busy, wall: now })
}

/// How far each figure is off, as a part, and what it is; the worst first. `path_ms` is what a command takes on its
/// way to the drive and back.
pub(crate) fn compare(profile: &DiskProfile, spec: &DriveSpec, path_ms: f64) -> Vec<(f64, String)> {
    let drive = Drive::new(spec);
    let mut worst: Vec<(f64, String)> = Vec::new();
    let mut compare = |what: String, measured: f64, model: f64| {
        worst.push((off(measured, model), format!("{what}: {measured:.4} for {model:.4}")));
    };
    compare(
        "turn, ms".into(),
        profile.rotation.map_or(0.0, |turn| turn.as_millis_f64()),
        drive.rotation_period().as_millis_f64(),
    );
    for i in 0..=40 {
        let lba = Lba((drive.sectors() - 1) / 40 * i);
        // Some models step from zone to zone by 10 %; a measured curve cannot know on which side of the edge a place
        // lies to less than the distance between two places. The nearest rate within 1 % of the disk counts.
        let found = profile.rate_at(lba) / 1e6;
        let around = (0..=20).map(|j| {
            let shift = drive.sectors() / 1000 * j;
            let at = (lba.0 + shift).saturating_sub(drive.sectors() / 100).min(drive.sectors() - 1);
            drive.media_rate(Lba(at)) / 1e6
        });
        let nearest = around.min_by(|a, b| (a - found).abs().total_cmp(&(b - found).abs())).unwrap();
        compare(format!("rate at {i}/40, MB/s"), found, nearest);
    }
    // Seeks from three places over distances of all magnitudes, by address.
    let sectors = drive.sectors();
    for place in [0.02, 0.31, 0.55] {
        for exponent in 0..14 {
            let distance = sectors as f64 * 0.44 / f64::from(1 << exponent);
            // Addresses closer than this may lie on one cylinder: no seek to speak of.
            if distance < 6.0 * sectors as f64 / f64::from(spec.cylinders()) {
                continue;
            }
            let from = (sectors as f64 * place) as u64;
            let around = |seek: &dyn Fn(Lba) -> Nanos| -> Vec<f64> {
                let to = |i: i32| Lba(from + (distance * (1.0 + f64::from(i) / 50.0)) as u64);
                (-20..=20).map(|i| seek(to(i)).as_millis_f64()).collect()
            };
            let mut model = around(&|to| drive.seek_time(Lba(from), to));
            let mut found = around(&|to| profile.seek_time(Lba(from), to));
            let below = |i: i32| Lba(from + (distance * f64::from(i) / 50.0) as u64);
            let jag = jag(&(12..=70)
                .map(|i| drive.seek_time(Lba(from), below(i)).as_millis_f64())
                .collect::<Vec<_>>());
            let (model, found) = (middle(&mut model), middle(&mut found));
            // What the model contradicts itself by is taken off.
            let found = if found > model { (found - jag).max(model) } else { (found + jag).min(model) };
            compare(format!("seek from {place} over {distance:.0} sectors, ms"), found, model);
        }
    }
    let full = drive.seek_time(Lba(0), Lba(sectors - 1)).as_millis_f64();
    compare("full stroke, ms".into(), profile.seek_time(Lba(0), Lba(sectors - 1)).as_millis_f64(), full);
    let miss = spec.electronics.read_miss_ms + path_ms;
    let overhead = profile.overhead.as_millis_f64();
    // Less than the passage of a sector cannot be told from nothing.
    let excess = ((overhead - miss).abs() - PATH_MS).max(0.0);
    compare("overhead, ms".into(), miss.max(0.001) + excess, miss.max(0.001));
    worst.sort_by(|a, b| b.0.total_cmp(&a.0));
    worst
}
