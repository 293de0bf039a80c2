//! Compares a measured profile with the model of its drive: how good the measurement is where the truth is
//! known.
//!
//! It compares the turn, the transfer rate at 41 places, seek times from three places over distances of all
//! magnitudes, the full stroke, and the overhead of a command. The overhead of a software disk includes the
//! way through kernel and FUSE, which no drive has: it is shown, and judged only by a caller that knows the
//! length of that way.
//!
//! `seekless-lab against DRIVE FILE` compares the file that `seekless disk profile --json FILE` wrote.

use std::path::PathBuf;

use clap::Args;
use comfy_table::{Table, presets};
use seekless_base::{Exit, Fault, Lba, Nanos};
use seekless_model::drive::{Drive, DriveSpec, catalogue};
use seekless_output::{JsonOption, input};
use seekless_policy::profile::DiskProfile;
use serde::Serialize;
use serde_json::Value;

/// `seekless-lab against`.
#[derive(Args, Debug)]
pub struct AgainstArgs {
    /// A drive of the catalogue (`seekless-lab vdisk drives`), as large as the disk that was measured
    drive: String,
    /// What `seekless disk profile --json FILE` wrote
    profile: PathBuf,
    #[command(flatten)]
    json: JsonOption,
}

/// A profile is as good as its model if every figure is within this part of it.
pub const WITHIN: f64 = 0.05;

/// The kind of a figure.
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

/// A measured figure and its model's.
#[derive(Clone, Debug, Serialize)]
pub struct ComparedFigure {
    /// Its kind.
    pub kind: FigureKind,
    /// Its name.
    pub what: String,
    /// The measured value, in the unit of its kind.
    pub measured: f64,
    /// The model's value.
    pub model: f64,
    /// Difference as a part of the model's value.
    pub off: f64,
}

/// Maximum time of the passage of a sector: smaller differences cannot be measured.
const SECTOR_MS: f64 = 0.03;

fn off(measured: f64, model: f64) -> f64 {
    (measured - model).abs() / model
}

/// By how much a curve falls that should rise. The tables of the old drives were taken from real ones and are
/// not smooth (the Ultrastar 18ES: 9 cylinders 1.749 ms, 10 cylinders 1.020 ms, 12 cylinders 1.823 ms); a
/// curve that never falls can only go through their middle. Zero for every drive with a smooth curve.
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

/// Every figure, the largest difference first. `path_ms` is the time of a command on its way to the drive and
/// back.
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
        // Some models step from zone to zone by 10 %; a measured curve cannot know the edge of a zone more
        // precisely than the distance between two places. The nearest rate within 1 % of the disk counts.
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
            // Addresses closer than this may be on one cylinder: there is almost no seek.
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
            // The amount by which the model contradicts itself is subtracted.
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

/// The profile compared with the model of a drive.
#[derive(Debug, Serialize)]
pub struct Against {
    /// Name of the drive.
    pub drive: String,
    /// The largest difference of turn, rates and seeks, as a part.
    pub worst_off: f64,
    /// The largest difference of the time of a turn, as a part.
    pub turn_off: f64,
    /// The largest difference of a transfer rate.
    pub rate_off: f64,
    /// The largest difference of a seek time.
    pub seek_off: f64,
    /// The drive's own overhead. The measured one includes the way to the drive, so it is not judged.
    pub overhead_model_ms: f64,
    /// All figures, the largest difference first.
    pub figures: Vec<ComparedFigure>,
}

impl Against {
    /// Compares a profile with the drive of this name.
    pub fn new(profile: &DiskProfile, spec: &DriveSpec, drive: &str) -> Against {
        let path_ms = profile.overhead.as_millis_f64() - spec.electronics.read_miss_ms;
        let mut figures = compare(profile, spec, path_ms);
        figures.retain(|f| f.kind != FigureKind::Overhead);
        let worst = |kind| figures.iter().filter(|f| kind == f.kind).map(|f| f.off).fold(0.0, f64::max);
        let (turn_off, rate_off, seek_off) =
            (worst(FigureKind::Turn), worst(FigureKind::Rate), worst(FigureKind::Seek));
        Against {
            drive: drive.to_string(),
            worst_off: turn_off.max(rate_off).max(seek_off),
            turn_off,
            rate_off,
            seek_off,
            overhead_model_ms: spec.electronics.read_miss_ms,
            figures,
        }
    }

    /// Every eighth rate and every third seek, and the five with the largest differences: what fits a screen.
    fn table(&self) -> String {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        table.set_header(["", "measured", "model", "off"]);
        let mut shown: Vec<&ComparedFigure> = self.figures.iter().take(5).collect();
        for (kind, each) in [(FigureKind::Turn, 1), (FigureKind::Rate, 8), (FigureKind::Seek, 3)] {
            shown.extend(self.figures.iter().filter(|f| f.kind == kind).step_by(each));
        }
        for f in shown {
            table.add_row([
                f.what.clone(),
                format!("{:.3}", f.measured),
                format!("{:.3}", f.model),
                format!("{:.1} %", f.off * 100.0),
            ]);
        }
        format!("against the model of {} (the five furthest off first):\n{table}\n", self.drive)
    }
}

/// Compares a profile in the JSON of `seekless disk profile` with the model of a drive.
///
/// # Errors
/// `Usage`: no such drive, no profile, or one that no disk can have.
pub fn of_report(drive: &str, report: &Value) -> Result<Against, Fault> {
    let spec = catalogue::get(drive).ok_or_else(|| {
        Fault::usage(format!("{drive}: no such drive; `seekless-lab vdisk drives` lists them"))
    })?;
    let profile = report.get("profile").cloned().unwrap_or_default();
    let profile: DiskProfile = serde_json::from_value(profile)
        .map_err(|e| Fault::usage(format!("it is not what `seekless disk profile --json` writes: {e}")))?;
    profile.check().map_err(|why| Fault::usage(format!("it is no profile of a disk: {why}")))?;
    Ok(Against::new(&profile, &spec, drive))
}

/// `seekless-lab against`.
///
/// # Errors
/// As [`of_report`]; the file cannot be read.
pub fn run(args: &AgainstArgs) -> Result<Exit, Fault> {
    let text = input::text(&args.profile)?;
    let named = |e: Fault| Fault::new(e.exit, format!("{}: {}", args.profile.display(), e.message));
    let report = serde_json::from_str(&text).map_err(|e| {
        named(Fault::usage(format!("it is no JSON: {e}; write it with `seekless disk profile --json`")))
    })?;
    let against = of_report(&args.drive, &report).map_err(named)?;
    seekless_output::give(args.json.path(), &against, || against.table())?;
    Ok(if against.worst_off > WITHIN { Exit::Failed } else { Exit::Ok })
}
