//! A measured profile against the model of its drive: how good the measurement is, where the truth is known.
//!
//! Turn, transfer rate at 41 places, seek times from three places over distances of all magnitudes, the full stroke, and
//! the overhead of a command. The overhead of a virtual disk contains the way through kernel and FUSE, which no drive has:
//! it is shown, and judged only by one that knows the length of that way.

use seekless_drive::{Drive, DriveSpec};
use seekless_profile::DiskProfile;
use seekless_units::{Lba, Nanos};
use serde::Serialize;

/// A profile is as good as its model if every figure is within this part of it.
pub const WITHIN: f64 = 0.05;

/// What kind of figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FigureKind {
    /// Time of a turn, ms.
    Turn,
    /// Transfer rate at a place, MB/s.
    Rate,
    /// Seek time over a distance, ms.
    Seek,
    /// Command overhead, ms.
    Overhead,
}

/// One figure beside its model.
#[derive(Clone, Debug, Serialize)]
pub struct ComparedFigure {
    /// What kind.
    pub kind: FigureKind,
    /// Which.
    pub what: String,
    /// As measured, in the unit of its kind.
    pub measured: f64,
    /// As the model has it.
    pub model: f64,
    /// Difference as a part of the model's.
    pub off: f64,
}

/// The passage of a sector, at the most: less than that cannot be told from nothing.
const SECTOR_MS: f64 = 0.03;

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

/// Every figure, the one furthest off first. `path_ms` is what a command takes on its way to the drive and back.
pub fn compare(profile: &DiskProfile, spec: &DriveSpec, path_ms: f64) -> Vec<ComparedFigure> {
    let drive = Drive::new(spec);
    let mut figures: Vec<ComparedFigure> = Vec::new();
    let mut put = |kind, what: String, measured: f64, model: f64| {
        figures.push(ComparedFigure { kind, what, measured, model, off: off(measured, model) });
    };
    put(
        FigureKind::Turn,
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
        let nearest = around.min_by(|a, b| (a - found).abs().total_cmp(&(b - found).abs())).unwrap_or(found);
        put(FigureKind::Rate, format!("rate at {i}/40, MB/s"), found, nearest);
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
            put(FigureKind::Seek, format!("seek from {place} over {distance:.0} sectors, ms"), found, model);
        }
    }
    let full = drive.seek_time(Lba(0), Lba(sectors - 1)).as_millis_f64();
    let found = profile.seek_time(Lba(0), Lba(sectors - 1)).as_millis_f64();
    put(FigureKind::Seek, "full stroke, ms".into(), found, full);
    let miss = spec.electronics.read_miss_ms + path_ms;
    let overhead = profile.overhead.as_millis_f64();
    let excess = ((overhead - miss).abs() - SECTOR_MS).max(0.0);
    put(FigureKind::Overhead, "overhead, ms".into(), miss.max(0.001) + excess, miss.max(0.001));
    figures.sort_by(|a, b| b.off.total_cmp(&a.off));
    figures
}
