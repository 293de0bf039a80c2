//! `seekless-lab sim replay`: a decision log again, as it was and as it might have been.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use seekless_base::{Bytes, Exit, Fault};
use seekless_model::drive::catalogue;
use seekless_output::JsonOption;
use seekless_policy::{AheadConfig, Config, Mode, OrderKind, Sizing};
use serde_json::{Value, json};

use crate::replay::load::{Load, Outcomes, loads};
use crate::replay::whatif::{Circumstances, run as run_load};
use crate::replay::{Log, exact};

/// Without options the log is only run again as it was. With one or more of --mode to --drive its load is
/// also run in the simulator, under the recorded settings and under the changed ones.
#[derive(Args, Clone, Debug)]
pub(super) struct ReplayArgs {
    /// Log of `seekless daemon --decisions`, plain or compressed; without what-if options also `-`, standard
    /// input
    log: PathBuf,
    /// What if the mode were: off, track, serialise, prefetch, both
    #[arg(long)]
    mode: Option<Mode>,
    /// What if reads were extended this far
    #[arg(long, value_name = "SIZE")]
    prefetch: Option<Bytes>,
    /// What if the queue were served in this order: fifo or sweep
    #[arg(long)]
    order: Option<OrderKind>,
    /// What if it read ahead of need (on), or not (off)
    #[arg(long, value_name = "on|off", value_parser = ["on", "off"])]
    ahead: Option<String>,
    /// What if the page cache had this size [default: 1GiB, with the memory reports of the log]
    #[arg(long, value_name = "SIZE")]
    memory: Option<Bytes>,
    /// What if the disks were of this model [default of the simulation: wd-red-1tb]
    #[arg(long, value_name = "NAME")]
    drive: Option<String>,
    #[command(flatten)]
    json: JsonOption,
}

/// The memory simulated if none is given.
const MEMORY: Bytes = Bytes::gib(1);

/// One disk in the simulator: settings as recorded, and as changed.
struct WhatIf {
    load: Load,
    recorded: Outcomes,
    changed: Outcomes,
}

fn asks_what_if(args: &ReplayArgs) -> bool {
    args.mode.is_some()
        || args.prefetch.is_some()
        || args.order.is_some()
        || args.ahead.is_some()
        || args.memory.is_some()
        || args.drive.is_some()
}

fn changed(args: &ReplayArgs, recorded: &Config) -> Config {
    let mut config = recorded.clone();
    config.mode = args.mode.unwrap_or(config.mode);
    config.order = args.order.unwrap_or(config.order);
    if let Some(size) = args.prefetch {
        config.prefetch = size;
        config.sizing = Sizing::Fixed;
    }
    match args.ahead.as_deref() {
        Some("on") if config.ahead.is_none() => config.ahead = Some(AheadConfig::default()),
        Some("off") => config.ahead = None,
        _ => {}
    }
    config.normalised()
}

fn what_if(args: &ReplayArgs) -> Result<Vec<WhatIf>, Fault> {
    let usage = |m: String| Fault::new(Exit::Usage, m);
    let named = |name: &str| catalogue::find(name).map_err(|why| usage(why.to_string()));
    if args.memory.is_some_and(|m| m < Bytes::mib(1)) {
        return Err(usage("--memory must be at least 1MiB".into()));
    }
    if args.prefetch.is_some_and(|p| !(4096..=(1 << 30)).contains(&p.0)) {
        return Err(usage("--prefetch must be 4KiB to 1GiB".into()));
    }
    // As recorded: on the drive of the default, as nobody knows the model of a real one.
    let before = named("wd-red-1tb")?;
    let after = named(args.drive.as_deref().unwrap_or("wd-red-1tb"))?;
    let all = loads(&mut Log::open(&args.log)?)?;
    let share = |memory: Bytes| Bytes(memory.0 / all.len().max(1) as u64);
    let recorded_memory = share(MEMORY);
    let memory = share(args.memory.unwrap_or(MEMORY));
    let one = |load: &Load| {
        let recorded = Circumstances {
            config: load.config.clone(),
            memory: recorded_memory,
            recorded_memory: true,
            drive: before.clone(),
        };
        let changed = Circumstances {
            config: changed(args, &load.config),
            memory,
            recorded_memory: args.memory.is_none(),
            drive: after.clone(),
        };
        WhatIf { recorded: run_load(load, &recorded), changed: run_load(load, &changed), load: load.clone() }
    };
    Ok(all.iter().map(one).collect())
}

pub(super) fn run(args: &ReplayArgs) -> Result<Exit, Fault> {
    if asks_what_if(args) && args.log == Path::new("-") {
        return Err(Fault::new(Exit::Usage, "a log that is read twice cannot come from standard input"));
    }
    let mut log = Log::open(&args.log)?;
    let disks = exact::run(&mut log)?;
    let what_if = if asks_what_if(args) { what_if(args)? } else { vec![] };
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
