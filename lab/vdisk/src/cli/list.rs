//! `seekless-lab vdisk list` and `drives`.

use clap::Args;
use seekless_base::{Bytes, Exit, Fault, Lba};
use seekless_model::drive::catalogue;
use serde_json::{Value, json};

use super::JsonArgs;
use crate::state::DiskDir;

#[derive(Debug, Args)]
pub(super) struct ListArgs {
    #[command(flatten)]
    json: JsonArgs,
}

pub(super) fn run(args: &ListArgs) -> Result<Exit, Fault> {
    let mut rows: Vec<Value> = Vec::new();
    let mut text = String::new();
    for dir in DiskDir::all()? {
        let state = if dir.running() { "up" } else { "stale" };
        let Some(record) = dir.record() else {
            rows.push(json!({ "name": dir.name(), "state": state }));
            text += &format!("{:<16} {state}\n", dir.name());
            continue;
        };
        let place =
            |p: &Option<std::path::PathBuf>| p.as_ref().map_or("-".into(), |p| p.display().to_string());
        text += &format!(
            "{:<16} {state:<6} {:<18} {:>8}  {:<12} {}\n",
            dir.name(),
            record.config.drive,
            record.config.size.to_string(),
            place(&record.device),
            place(&record.config.mount)
        );
        let mut row = serde_json::to_value(&record).unwrap_or_default();
        row["state"] = state.into();
        rows.push(row);
    }
    args.json.show(&rows, || if text.is_empty() { "no disks\n".into() } else { text })?;
    Ok(Exit::Ok)
}

#[derive(Debug, Args)]
pub(super) struct DrivesArgs {
    #[command(flatten)]
    json: JsonArgs,
}

pub(super) fn drives(args: &DrivesArgs) -> Result<Exit, Fault> {
    let (mut rows, mut text) = (Vec::new(), String::new());
    for spec in catalogue::names().filter_map(catalogue::get) {
        let capacity = spec.capacity();
        let rate =
            |share: f64| spec.media_rate(Lba((spec.sectors().saturating_sub(1) as f64 * share) as u64)) / 1e6;
        let (outer, inner) = (rate(0.0), rate(1.0));
        let size = format!("{:.1} GB", Bytes(capacity.0).as_mb() / 1e3);
        text += &format!("{:<20} {size:>11}  {outer:>5.0} to {inner:>3.0} MB/s  {}\n", spec.name, spec.label);
        rows.push(json!({
            "name": spec.name, "label": spec.label, "bytes": capacity, "outer_mb_per_s": outer,
            "inner_mb_per_s": inner, "rotation_ms": spec.rotation_period().as_millis_f64(),
            "queue_depth": spec.queue.depth, "source": spec.source,
        }));
    }
    args.json.show(&rows, || text)?;
    Ok(Exit::Ok)
}
