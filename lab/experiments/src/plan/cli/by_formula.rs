//! Without a log: the capacity model, its three figures, and a simulation of the same question.

use std::fmt::Write as _;

use crate::chart::{Axis, Scale};
use seekless_base::{Bytes, Exit, Fault};
use seekless_model::drive::DriveSpec;
use seekless_output::bar;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{DRIVE, PlanArgs, drive, rate, table, usage};
use crate::plan::capacity::{DiskModel, Question, Requirement, buffers, network_over_disk};
use crate::plan::format;
use crate::plan::page::{Page, chart};
use crate::plan::simulate::{figure, sim};

/// A simulated download takes about so long, so that a simulation has many of them.
const DOWNLOAD_S: f64 = 400.0;
/// The simulated disk is offered so many times what the formula says it carries, so that it, not the clients,
/// is the limit.
const OVERLOAD: f64 = 8.0;

/// What a simulation says.
struct Simulated {
    order: &'static str,
    /// Network bytes a second of one disk and its share of the memory.
    network: f64,
    /// Its disk bytes a second.
    disk: f64,
    disks: u64,
}

/// What `--with` sets.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
struct Settings {
    /// Block size.
    block: Bytes,
    /// Positioning time of the disk in milliseconds, instead of the drive's own.
    position: Option<f64>,
    /// Sequential rate of the disk, instead of the drive's own.
    sequential: Option<String>,
    /// Only the formulas, no simulation beside them.
    formula_only: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { block: Bytes::kib(256), position: None, sequential: None, formula_only: false }
    }
}

pub(super) fn run(args: &PlanArgs) -> Result<Exit, Fault> {
    let settings: Settings = args.with.settings()?;
    let drive = drive(args)?;
    let own = DiskModel::of(&drive);
    let position_s = match settings.position {
        Some(ms) if (0.0..=1000.0).contains(&ms) => ms / 1e3,
        Some(ms) => return Err(usage(format!("--with position={ms} is not from 0 to 1000 milliseconds"))),
        None => own.position_s,
    };
    let disk = DiskModel {
        position_s,
        rate: settings.sequential.as_ref().map_or(Ok(own.rate), |r| rate("--with sequential", r))?,
    };
    let question = Question {
        link: rate("--link", &args.link)?,
        client: rate("--client", &args.client)?,
        data: args.data.0 as f64,
        memory: args.memory.0 as f64,
        block: settings.block.0 as f64,
        disk,
    };
    if question.client > question.link {
        return Err(usage(format!("--client {} is faster than --link {}", args.client, args.link)));
    }
    let block = settings.block;
    if !(4096..=(64 << 20)).contains(&block.0) || !block.0.is_power_of_two() {
        return Err(usage(format!("--with block={block} is not a power of two from 4KiB to 64MiB")));
    }
    if args.data.0 < (64 << 20) || args.memory.0 < (1 << 20) {
        return Err(usage("--data must be at least 64MiB and --memory at least 1MiB"));
    }
    let answer = question.answer();
    let changed = settings.position.is_some() || settings.sequential.is_some();
    // A disk of one's own numbers is no drive that could be simulated.
    let simulated = if settings.formula_only || changed || answer.cache.is_none() || answer.disks == 0 {
        vec![]
    } else {
        simulate(args, block.0, &question, &answer, &drive)?
    };
    let stored = args.data.0.div_ceil(drive.capacity().0);
    if let Some(path) = &args.page.html {
        page(&question, &answer, &simulated, &drive, stored)?.write(path)?;
    }
    let value = as_json(args, &question, &answer, &simulated, stored);
    seekless_output::give(args.json.path(), &value, || {
        as_text(&question, &answer, &simulated, &drive, stored)
    })?;
    Ok(Exit::Ok)
}

/// One disk with its share of data and memory, offered several times what the formula says it carries.
fn simulate(
    args: &PlanArgs,
    block: u64,
    question: &Question,
    answer: &Requirement,
    drive: &DriveSpec,
) -> Result<Vec<Simulated>, Fault> {
    let share = answer.disks.max(args.data.0.div_ceil(drive.capacity().0 / 10 * 9)) as f64;
    let size = ((question.client * DOWNLOAD_S) as u64).clamp(16 << 20, 512 << 20).min(args.data.0);
    let size = size.max(block) / block * block;
    let files = ((question.data / share / size as f64) as u64).max(1);
    let link = question.link.min(question.link / answer.disks as f64 * OVERLOAD);
    let memory = ((question.memory / share) as u64).max(block * 4);
    let bar = bar(2, "{bar:40} {pos}/{len} simulations");
    let mut results = vec![];
    for order in ["sequential", "circus"] {
        let pairs = [
            ("--drive", drive.name.clone()),
            ("--load", "100".into()),
            ("--clients", format!("{}kb/s", question.client * 8.0 / 1e3)),
            ("--order", order.into()),
            ("--with", format!("files={files},size={size}B,memory={memory}B,time=600")),
            ("--with", format!("link={},per-client=0,block={block}B", link * 8.0 / 1e6)),
            ("--seed", args.from.seed.to_string()),
        ];
        let mut arguments = vec!["circus".to_owned()];
        arguments.extend(pairs.into_iter().flat_map(|(name, value)| [name.to_owned(), value]));
        let result = sim(&arguments)?;
        let network = figure(&result, "/rows/0/network_mb_per_s")? * 1e6;
        let disk = figure(&result, "/rows/0/disk_mb_per_s")? * 1e6;
        let disks = (question.link / network.max(1.0)).ceil() as u64;
        results.push(Simulated { order, network, disk, disks });
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(results)
}

/// Figure 1: (share of the data in memory, network over disk throughput).
fn figure_1() -> Vec<(f64, f64)> {
    (0..=98).map(|i| f64::from(i) / 100.0).filter_map(|s| Some((s, network_over_disk(s)?))).collect()
}

/// Figure 2: a disk's throughput by block size, for some sequential rates and its own.
fn figure_2(disk: &DiskModel) -> Vec<(String, Vec<(f64, f64)>)> {
    let mut rates: Vec<(String, f64)> =
        [25e6, 50e6, 100e6, 200e6].iter().map(|r| (format::rate(*r), *r)).collect();
    rates.push((format!("this disk, {}", format::rate(disk.rate)), disk.rate));
    let line = |rate: f64| {
        (12..=25)
            .map(|shift| (1_u64 << shift) as f64)
            .map(|b| (b, DiskModel { rate, ..*disk }.throughput(b) / 1e6))
            .collect()
    };
    rates.into_iter().map(|(name, rate)| (name, line(rate))).collect()
}

/// Figure 3: least buffer space by client rate, for some block sizes.
fn figure_3(question: &Question) -> Vec<(String, Vec<(f64, f64)>)> {
    [64_u64, 256, 1024, 4096]
        .iter()
        .map(|kib| {
            let block = (kib << 10) as f64;
            let points = (0..=60)
                .map(|i| 56e3 / 8.0 * 10_f64.powf(f64::from(i) / 60.0 * 3.25))
                .filter(|client| *client <= question.link)
                .map(|client| (client * 8.0 / 1e6, buffers(question.link / client, block).0))
                .collect();
            (format::size(block), points)
        })
        .collect()
}

fn as_json(args: &PlanArgs, q: &Question, a: &Requirement, simulated: &[Simulated], stored: u64) -> Value {
    let answer = |a: &Requirement| {
        json!({
            "clients": a.clients,
            "buffers_bytes": [a.buffers.0, a.buffers.1],
            "cache_bytes": a.cache,
            "hit_ratio": a.hits,
            "disk_mb_per_s": a.disk / 1e6,
            "disks": a.disks,
            "disks_any_order_one_file": a.disks_any_order,
        })
    };
    let simulated: serde_json::Map<String, Value> = simulated
        .iter()
        .map(|s| {
            let value =
                json!({ "network_mb_per_s": s.network / 1e6, "disk_mb_per_s": s.disk / 1e6, "disks": s.disks });
            (s.order.to_owned(), value)
        })
        .collect();
    json!({
        "kind": "capacity",
        "question": {
            "link_mb_per_s": q.link / 1e6, "client_mb_per_s": q.client / 1e6, "data_bytes": q.data,
            "memory_bytes": q.memory, "block_bytes": q.block, "drive": args.drive.name(DRIVE),
            "position_ms": q.disk.position_s * 1e3, "sequential_mb_per_s": q.disk.rate / 1e6,
        },
        "formula": answer(a),
        "disks_to_store": stored,
        "best_block": q.best_block().map(|(block, a)| json!({ "block_bytes": block, "answer": answer(&a) })),
        "simulated": simulated,
        "figures": {
            "1_network_over_disk_by_share_cached": figure_1(),
            "2_disk_mb_per_s_by_block": figure_2(&q.disk),
            "3_buffer_bytes_by_client_mbit_per_s": figure_3(q),
        },
    })
}

fn rows(q: &Question, a: &Requirement, simulated: &[Simulated]) -> Vec<Vec<String>> {
    let mut rows = vec![vec!["".to_owned(), "one disk".into(), "disks for the link".into()]];
    let cells = |name: &str, rate: String, disks: u64| vec![name.to_owned(), rate, disks.to_string()];
    rows.push(cells("formula, random blocks", format!("{} read", format::rate(a.disk)), a.disks));
    for s in simulated {
        let name = if s.order == "circus" {
            "simulated, any order (Circus)"
        } else {
            "simulated, sequential server"
        };
        let rate = format!("{} read, {} sent", format::rate(s.disk), format::rate(s.network));
        rows.push(cells(name, rate, s.disks));
    }
    if let Some((block, best)) = q.best_block() {
        let name = format!("formula, best block {}", format::size(block));
        rows.push(cells(&name, format!("{} read", format::rate(best.disk)), best.disks));
    }
    rows
}

fn sentences(q: &Question, a: &Requirement, drive: &DriveSpec, stored: u64) -> Vec<String> {
    let mut lines = vec![format!(
        "{} of link, {:.0} clients of {}; {} of data, {} of memory, blocks of {}; {}: positioning {:.1} ms, {} sequential",
        format::rate(q.link),
        a.clients,
        format::rate(q.client),
        format::size(q.data),
        format::size(q.memory),
        format::size(q.block),
        drive.label,
        q.disk.position_s * 1e3,
        format::rate(q.disk.rate)
    )];
    let buffers = format!("buffers {} to {}", format::size(a.buffers.0), format::size(a.buffers.1));
    lines.push(match a.cache {
        Some(cache) => format!(
            "{buffers}; {} left as a cache, which answers {:.1} % of the accesses",
            format::size(cache),
            a.hits * 100.0
        ),
        None => format!("{buffers}: more than the memory; take smaller blocks or more memory"),
    });
    if stored > a.disks {
        lines.push(format!("to store the data alone takes {stored} disks"));
    }
    lines
}

fn as_text(q: &Question, a: &Requirement, simulated: &[Simulated], drive: &DriveSpec, stored: u64) -> String {
    let mut text = String::new();
    for line in sentences(q, a, drive, stored) {
        let _ = writeln!(text, "{line}");
    }
    text.push_str(&table(&rows(q, a, simulated)));
    text
}

fn page(
    q: &Question,
    a: &Requirement,
    simulated: &[Simulated],
    drive: &DriveSpec,
    stored: u64,
) -> Result<Page, Fault> {
    let mut page = Page::new("What it takes to fill a link");
    for line in sentences(q, a, drive, stored) {
        page.note(&line);
    }
    page.table(&rows(q, a, simulated));
    page.heading("What a cache is worth");
    page.note(
        "Network over disk throughput at most, by the share of the data in memory (Circus 2004, Figure 1).",
    );
    let memory = Axis::new("memory / data", Scale::Linear, &format::number);
    let gain = Axis::new("network / disk", Scale::Log10, &format::number);
    page.chart(&chart(memory, gain, vec![(String::new(), figure_1())]))?;
    page.heading("What a block size is worth");
    page.note(&format!(
        "Throughput of one disk with blocks at random places, positioning {:.1} ms (Figure 2).",
        q.disk.position_s * 1e3
    ));
    let block = Axis::new("block size", Scale::Log2, &format::size);
    let rate = Axis::new("MB/s", Scale::Linear, &format::number);
    page.chart(&chart(block, rate, figure_2(&q.disk)))?;
    page.heading("What a block size costs");
    page.note(&format!(
        "Least memory for the buffers of all clients of a {} link (Figure 3).",
        format::rate(q.link)
    ));
    let client = Axis::new("client rate, Mbit/s", Scale::Log10, &format::number);
    let buffers = Axis::new("buffers", Scale::Log2, &format::size);
    page.chart(&chart(client, buffers, figure_3(q)))?;
    Ok(page)
}
