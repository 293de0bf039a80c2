//! `seekless-lab sim replay`: a decision log again, as it was and as it might have been.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use seekless_base::{Bytes, Exit, Fault};
use seekless_model::drive::catalogue;
use seekless_model::with::{WithOption, parsed_some};
use seekless_output::JsonOption;
use seekless_policy::{AheadConfig, Config, Mode, OrderKind, Sizing};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::replay::load::{Load, Outcomes, loads};
use crate::replay::whatif::{Circumstances, run as run_load};
use crate::replay::{Log, exact};

/// Without --with the log is only run again as it was. With it its load is also run in the simulator, under
/// the recorded settings and under those that --with changes.
#[derive(Args, Clone, Debug)]
pub(super) struct ReplayArgs {
    /// Log of `seekless daemon --decisions`, plain or compressed; without --with also `-`, standard input
    log: PathBuf,
    #[command(flatten)]
    with: WithOption,
    #[command(flatten)]
    json: JsonOption,
}

/// What `--with` changes. None: as recorded.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
struct Changes {
    /// off, track, serialise, prefetch or both.
    #[serde(deserialize_with = "parsed_some")]
    mode: Option<Mode>,
    /// How far reads are extended.
    prefetch: Option<Bytes>,
    /// Order of the queue: fifo or sweep.
    #[serde(deserialize_with = "parsed_some")]
    order: Option<OrderKind>,
    /// Whether it reads ahead of need: on or off.
    ahead: Option<String>,
    /// Size of the page cache; otherwise 1GiB, with the memory reports of the log.
    memory: Option<Bytes>,
    /// Model of the disks; in the simulation of what was recorded wd-red-1tb.
    drive: Option<String>,
}

/// The memory simulated if none is given.
const MEMORY: Bytes = Bytes::gib(1);

/// One disk in the simulator: settings as recorded, and as changed.
struct WhatIf {
    load: Load,
    recorded: Outcomes,
    changed: Outcomes,
}

fn changed(changes: &Changes, recorded: &Config) -> Config {
    let mut config = recorded.clone();
    config.mode = changes.mode.unwrap_or(config.mode);
    config.order = changes.order.unwrap_or(config.order);
    if let Some(size) = changes.prefetch {
        config.prefetch = size;
        config.sizing = Sizing::Fixed;
    }
    match changes.ahead.as_deref() {
        Some("on") if config.ahead.is_none() => config.ahead = Some(AheadConfig::default()),
        Some("off") => config.ahead = None,
        _ => {}
    }
    config.normalised()
}

fn what_if(log: &Path, changes: &Changes) -> Result<Vec<WhatIf>, Fault> {
    let named = |name: &str| catalogue::find(name).map_err(|why| Fault::usage(why.to_string()));
    if changes.memory.is_some_and(|m| m < Bytes::mib(1)) {
        return Err(Fault::usage("--with memory must be at least 1MiB"));
    }
    if changes.ahead.as_deref().is_some_and(|word| !["on", "off"].contains(&word)) {
        return Err(Fault::usage("--with ahead is on or off"));
    }
    if changes.prefetch.is_some_and(|p| !(4096..=(1 << 30)).contains(&p.0)) {
        return Err(Fault::usage("--with prefetch must be 4KiB to 1GiB"));
    }
    // As recorded: on the drive of the default, as nobody knows the model of a real one.
    let before = named("wd-red-1tb")?;
    let after = named(changes.drive.as_deref().unwrap_or("wd-red-1tb"))?;
    let all = loads(&mut Log::open(log)?)?;
    let share = |memory: Bytes| Bytes(memory.0 / all.len().max(1) as u64);
    let recorded_memory = share(MEMORY);
    let memory = share(changes.memory.unwrap_or(MEMORY));
    let one = |load: &Load| {
        let recorded = Circumstances {
            config: load.config.clone(),
            memory: recorded_memory,
            recorded_memory: true,
            drive: before.clone(),
        };
        let changed = Circumstances {
            config: changed(changes, &load.config),
            memory,
            recorded_memory: changes.memory.is_none(),
            drive: after.clone(),
        };
        WhatIf { recorded: run_load(load, &recorded), changed: run_load(load, &changed), load: load.clone() }
    };
    Ok(all.iter().map(one).collect())
}

pub(super) fn run(args: &ReplayArgs) -> Result<Exit, Fault> {
    let changes: Changes = args.with.settings()?;
    if !args.with.is_empty() && args.log == Path::new("-") {
        return Err(Fault::usage("a log that is read twice cannot come from standard input"));
    }
    let mut log = Log::open(&args.log)?;
    let disks = exact::run(&mut log)?;
    let what_if = if args.with.is_empty() { vec![] } else { what_if(&args.log, &changes)? };
    let agrees = disks.iter().all(|d| d.differs.is_none());
    let exit = if agrees { Exit::Ok } else { Exit::Failed };
    seekless_output::give(args.json.path(), &as_json(&log, &disks, &what_if), || {
        as_text(&log, &disks, &what_if)
    })?;
    Ok(exit)
}

fn outcomes(o: &Outcomes) -> Value {
    json!({
        "reads": o.reads, "waited": o.waited, "wait_mean_ms": o.wait_ms.0, "wait_p95_ms": o.wait_ms.1,
        "disk_reads": o.disk_reads, "disk_bytes": o.disk_bytes, "written_bytes": o.written_bytes, "disk_busy": o.busy, "span_s": o.span_s,
    })
}

fn as_json(log: &Log, disks: &[exact::Disk], what_if: &[WhatIf]) -> Value {
    let exact: Vec<Value> = disks
        .iter()
        .map(|d| {
            json!({ "name": d.name, "events": d.events, "actions": d.actions, "agrees": d.differs.is_none(),
                    "differs": d.differs })
        })
        .collect();
    let what_if: Vec<Value> = what_if
        .iter()
        .map(|w| {
            json!({ "name": w.load.name, "then": outcomes(&w.load.then), "simulated_as_recorded": outcomes(&w.recorded),
                    "simulated_as_changed": outcomes(&w.changed) })
        })
        .collect();
    json!({
        "lines": log.number, "left_out": log.left_out, "ended": log.ended,
        "agrees": disks.iter().all(|d| d.differs.is_none()), "disks": exact, "what_if": what_if,
    })
}

fn as_text(log: &Log, disks: &[exact::Disk], what_if: &[WhatIf]) -> String {
    let mut text = String::new();
    for d in disks {
        let verdict = match &d.differs {
            None => "the same again".to_owned(),
            Some(differs) => format!("DIFFERS at {differs}"),
        };
        let _ = writeln!(text, "{}: {} events, {} actions: {verdict}", d.name, d.events, d.actions);
    }
    if !log.ended {
        text.push_str("the log has no last line: its daemon was killed or still runs\n");
    } else if log.left_out > 0 {
        let _ =
            writeln!(text, "{} lines at the end were left out when the log reached its bound", log.left_out);
    }
    if what_if.is_empty() {
        return text;
    }
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::UTF8_FULL_CONDENSED);
    table.set_header([
        "disk",
        "",
        "reads",
        "waited",
        "mean ms",
        "p95 ms",
        "disk reads",
        "of KiB",
        "MB/s",
        "busy",
    ]);
    for w in what_if {
        let rows = [("then", &w.load.then), ("simulated", &w.recorded), ("what if", &w.changed)];
        for (name, o) in rows {
            table.add_row([
                w.load.name.clone(),
                name.to_owned(),
                o.reads.to_string(),
                o.waited.to_string(),
                format!("{:.1}", o.wait_ms.0),
                format!("{:.1}", o.wait_ms.1),
                o.disk_reads.to_string(),
                format!("{:.0}", o.disk_bytes as f64 / o.disk_reads.max(1) as f64 / 1024.0),
                format!("{:.1}", o.disk_bytes as f64 / 1e6 / o.span_s.max(1e-9)),
                o.busy.map_or("-".into(), |b| format!("{:.0} %", b * 100.0)),
            ]);
        }
    }
    let _ = writeln!(text, "{table}");
    text
}
