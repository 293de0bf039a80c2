//! An arm of `seekless disk profile`: a whole drive in software, measured as any disk is, held against its
//! model.

use std::time::Duration;

use seekless_units::{Exit, Fault};
use serde_json::Value;

use super::{Bench, disk};
use crate::process::run_json;
use crate::results::Row;
use crate::scenario::Point;
use crate::tools;

/// A disk left alone takes under two minutes; one disturbed by others may take longer.
const PATIENCE: Duration = Duration::from_secs(360);

/// Runs one arm and fills its row.
pub(crate) fn run(bench: &mut Bench<'_>, point: &Point, row: &mut Row) -> Result<(), Fault> {
    let drive = point.arm.drive.as_deref().unwrap_or_default();
    let disk = disk::bare(bench.scratch, drive, row.position)?;
    let device = disk.device.clone().unwrap_or_default();
    let mut command =
        tools::command(&["disk", "profile", &device, "--no-store", "--against", drive, "--json"])?;
    command.args(["--duration", "5m", "--plot"]).arg(bench.scratch.path().join("profile.html"));
    let answer = run_json("disk profile", command, PATIENCE, bench.scratch.path())?;
    let against =
        answer.get("against").ok_or_else(|| Fault::new(Exit::Failed, "disk profile: no comparison"))?;
    for (name, from, path, times) in [
        ("profile_off_percent", against, "/worst_off", 100.0),
        ("profile_turn_off_percent", against, "/turn_off", 100.0),
        ("profile_rate_off_percent", against, "/rate_off", 100.0),
        ("profile_seek_off_percent", against, "/seek_off", 100.0),
        ("profile_overhead_ms", &answer, "/summary/overhead_ms", 1.0),
        ("profile_overhead_model_ms", against, "/overhead_model_ms", 1.0),
        ("profile_s", &answer, "/wall_s", 1.0),
    ] {
        if let Some(value) = from.pointer(path).and_then(Value::as_f64) {
            row.metrics.insert(name.into(), value * times);
        }
    }
    row.raw.insert("profile".into(), answer);
    Ok(())
}
