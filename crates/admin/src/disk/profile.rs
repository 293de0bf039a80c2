//! `seekless disk profile`.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use seekless_base::{Bytes, Exit, Fault, Lba, Nanos, SECTOR_BYTES, share};
use seekless_output::JsonOption;
use seekless_policy::profile::{DiskProfile, StoredProfile};
use seekless_policy::sizing::competitive::Competitive;
use serde::Serialize;

use crate::disk::measure::{Manners, Measured, measure};
use crate::disk::resolve::resolve;
use crate::disk::store;

#[derive(Args, Debug)]
pub(crate) struct ProfileArgs {
    /// Block device, or a folder or file on the disk
    #[arg(value_name = "DEV|DIR")]
    pub(crate) target: PathBuf,
    #[command(flatten)]
    pub(crate) json: JsonOption,
    /// Part of the disk's time to take while others use it, 1% to 100%; an idle disk is measured without
    /// pause
    #[arg(long, default_value = "10%", value_parser = parse_share)]
    pub(crate) share: f64,
    /// Give up after this time, for example 90s or 20m
    #[arg(long, default_value = "20m", value_parser = parse_duration)]
    pub(crate) duration: Duration,
    /// Do not store the profile
    #[arg(long)]
    pub(crate) no_store: bool,
    /// Moved to `seekless-lab against`
    #[arg(long, value_name = "DRIVE", hide = true)]
    pub(crate) against: Option<String>,
}

/// What `--json` prints.
#[derive(Serialize)]
struct ProfileReport {
    /// Kernel name of the disk.
    name: String,
    /// Its lasting name.
    disk: String,
    label: String,
    device: PathBuf,
    /// Where the profile is kept.
    stored: Option<PathBuf>,
    reads: u64,
    disturbed: u64,
    /// Time the disk worked for the measurement.
    busy_s: f64,
    /// Time it took.
    wall_s: f64,
    summary: Summary,
    profile: DiskProfile,
}

/// The figures people ask for first.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Summary {
    capacity_bytes: u64,
    /// Turns a minute.
    rpm: Option<f64>,
    rotation_ms: Option<f64>,
    overhead_ms: f64,
    /// Between independent places.
    mean_seek_ms: f64,
    short_seek_ms: f64,
    third_stroke_seek_ms: f64,
    full_stroke_seek_ms: f64,
    outer_mb_per_s: f64,
    middle_mb_per_s: f64,
    inner_mb_per_s: f64,
    mean_mb_per_s: f64,
    /// Of \[C\], at the middle of the disk, for seeks between independent places.
    competitive_depth_bytes: u64,
}

impl Summary {
    pub(crate) fn of(profile: &DiskProfile) -> Summary {
        let sectors = profile.sectors;
        let rate = |lba| profile.rate_at(Lba(lba)) / 1e6;
        Summary {
            capacity_bytes: sectors.saturating_mul(SECTOR_BYTES),
            rpm: profile.rotation.map(|turn| 60.0 / turn.as_secs_f64()),
            rotation_ms: profile.rotation.map(|turn| turn.as_millis_f64()),
            overhead_ms: profile.overhead.as_millis_f64(),
            mean_seek_ms: profile.mean_seek().as_millis_f64(),
            short_seek_ms: profile.seeks.first().map_or(0.0, |p| p.time.as_millis_f64()),
            third_stroke_seek_ms: profile.seek_over(1.0 / 3.0).as_millis_f64(),
            full_stroke_seek_ms: profile.seek_over(1.0).as_millis_f64(),
            outer_mb_per_s: rate(0),
            middle_mb_per_s: rate(sectors / 2),
            inner_mb_per_s: rate(sectors),
            mean_mb_per_s: profile.mean_rate() / 1e6,
            competitive_depth_bytes: Competitive::new(profile.clone(), Bytes::gib(1))
                .depth(Lba(sectors / 2))
                .0,
        }
    }
}

pub(crate) fn run(args: &ProfileArgs) -> Result<Exit, Fault> {
    if let Some(drive) = &args.against {
        return Err(Fault::usage(format!(
            "--against {drive}: models of drives are in the laboratory now; write the profile with --json FILE \
             and give it to `seekless-lab against {drive} FILE`"
        )));
    }
    let target = resolve(&args.target)?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))
            .map_err(|e| Fault::failed(format!("cannot catch signals: {e}")))?;
    }
    // Hides itself where standard error is no terminal.
    let bar = ProgressBar::new(1000);
    if let Ok(style) = ProgressStyle::with_template("{msg:32} [{bar:40}] {percent:>3} %  {elapsed}") {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.enable_steady_tick(Duration::from_millis(250));
    let manners = Manners { share: args.share, duration: args.duration };
    let measured = measure(&target, manners, &stop, &mut |part, phase, others| {
        bar.set_position((part * 1000.0) as u64);
        let note = if others { " (disk in use)" } else { "" };
        bar.set_message(format!("{}{note}", phase.name()));
    });
    bar.finish_and_clear();
    let Measured { profile, reads, disturbed, busy, wall } = measured?;

    let (id, label) = (&target.identity.id, target.label());
    let (stored_at, stored) = if args.no_store {
        (None, StoredProfile::new(id, &label, store::now(), profile))
    } else {
        let (path, stored) = store::save(id, &label, profile)?;
        (Some(path), stored)
    };
    let report = ProfileReport {
        name: target.name.clone(),
        disk: id.clone(),
        label,
        device: target.device(),
        stored: stored_at,
        reads,
        disturbed,
        busy_s: busy.as_secs_f64(),
        wall_s: wall.as_secs_f64(),
        summary: Summary::of(&stored.profile),
        profile: stored.profile,
    };
    seekless_output::json_or(args.json.path(), &report, || text(&report)).map(|()| Exit::Ok)
}

fn text(report: &ProfileReport) -> String {
    let s = &report.summary;
    let rotation = match (s.rotation_ms, s.rpm) {
        (Some(ms), Some(rpm)) => format!("{ms:.3} ms a turn ({rpm:.0} rpm)"),
        _ => "none seen: seek times below contain every wait".to_string(),
    };
    let mut text = format!(
        "{}\n  rotation          {rotation}\n  command overhead  {:.3} ms\n  seek              {:.2} ms mean, {:.2} \
         shortest, {:.2} a third of the stroke, {:.2} full stroke\n  transfer          {:.1} MB/s outside, {:.1} \
         middle, {:.1} inside, {:.1} mean\n  competitive depth {} KiB (what it transfers while it would seek)\n  {} \
         reads, {:.1} s of the disk's time in {:.1} s; {} disturbed by others\n",
        report.label,
        s.overhead_ms,
        s.mean_seek_ms,
        s.short_seek_ms,
        s.third_stroke_seek_ms,
        s.full_stroke_seek_ms,
        s.outer_mb_per_s,
        s.middle_mb_per_s,
        s.inner_mb_per_s,
        s.mean_mb_per_s,
        s.competitive_depth_bytes / 1024,
        report.reads,
        report.busy_s,
        report.wall_s,
        report.disturbed,
    );
    if let Some(path) = &report.stored {
        text += &format!("  profile           {}\n", path.display());
    }
    text
}

fn parse_share(text: &str) -> Result<f64, String> {
    let part = share(text)?;
    if part >= 0.01 { Ok(part) } else { Err("write 1% to 100%".into()) }
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    let time = text.parse::<Nanos>().map_err(|e| e.to_string())?;
    let fits = (Nanos::from_secs(10)..=Nanos::from_secs(86_400)).contains(&time);
    if fits { Ok(time.into()) } else { Err("write 10s to 24h".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_durations() {
        assert_eq!((parse_share("10%"), parse_share("0.1")), (Ok(0.1), Ok(0.1)));
        assert_eq!(parse_duration("2m"), Ok(Duration::from_secs(120)));
        for wrong in ["10", "0%", "0.001", "101%", "x%", "NaN%"] {
            assert!(parse_share(wrong).is_err(), "{wrong}");
        }
        for wrong in ["s", "1s", "9", "99h", "5 furlongs", "99999999999999999999s"] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
    }
}
