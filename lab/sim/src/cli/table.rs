//! `seekless-lab sim pfc-table`: the 96 cases.

use std::fmt::Write as _;

use crate::study::coordinate::Coordination;
use clap::{Args, Parser};
use seekless_base::{Exit, Fault};
use seekless_model::drive::catalogue;
use seekless_model::load_options::DriveOption;
use seekless_model::workload::generate::Kind;
use seekless_output::JsonOption;
use serde_json::{Value, json};

use super::RUNS;
use super::coordinator;
use super::trace::{DRIVE, GeneratedOptions};
use crate::study::twolevel::study::{
    APPLICATIONS, CaseRow, Choices, PREFETCHERS, Plan, Study, rank_correlation,
};

#[derive(Args, Clone, Debug)]
pub(super) struct TableArgs {
    #[command(flatten)]
    table: TableOptions,
    /// Another table, by its options; a run that several tables need is made once, and the result is a list
    /// (may be repeated)
    #[arg(long, value_name = "OPTIONS", allow_hyphen_values = true, value_parser = another)]
    and: Vec<TableOptions>,
    #[command(flatten)]
    json: JsonOption,
}

/// The options of a table, in one word.
#[derive(Parser)]
#[command(no_binary_name = true)]
struct Another {
    #[command(flatten)]
    table: TableOptions,
}

fn another(options: &str) -> Result<TableOptions, String> {
    let first_line = |e: clap::Error| {
        let text = e.to_string();
        let line = text.lines().next().unwrap_or_default();
        line.strip_prefix("error: ").unwrap_or(line).to_string()
    };
    Another::try_parse_from(options.split_whitespace()).map(|a| a.table).map_err(first_line)
}

/// Which table.
#[derive(Args, Clone, Debug)]
struct TableOptions {
    #[command(flatten)]
    generated: GeneratedOptions,
    /// Coordinators to compare with none
    #[arg(long, default_value = "du,pfc,steer", value_name = "NAMES")]
    coordinate: String,
    /// Only the cases of one trace: oltp, websearch or multi
    #[arg(long)]
    trace: Option<String>,
    /// Requests under way at once of the trace that has no times, Multi; the default is one for each of its
    /// three applications
    #[arg(long, default_value_t = APPLICATIONS, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    clients: u32,
    /// Draw what PFC does not state (request rates, scans, SARC's p, ...) by the seed, from the ranges of
    /// docs/CHOSEN.md
    #[arg(long, conflicts_with = "clients")]
    drawn: bool,
    #[command(flatten)]
    below: DriveOption,
}

/// A table to be made: its options, the names of its coordinators, what it runs.
struct Table {
    options: TableOptions,
    names: Vec<String>,
    study: Study,
    choices: Choices,
}

fn table(args: TableOptions) -> Result<Table, Fault> {
    if !(args.generated.scale > 0.0 && args.generated.scale <= 10.0) {
        return Err(Fault::usage(format!(
            "--scale {} is out of range; write more than 0 and at most 10",
            args.generated.scale
        )));
    }
    let choices = match args.drawn {
        true => Choices::drawn(args.generated.from.seed),
        false => Choices { clients: args.clients, ..Choices::default() },
    };
    let only = match &args.trace {
        None => None,
        Some(name) => Some(Kind::from_name(name).ok_or_else(|| {
            let names = Kind::ALL.map(Kind::name).join(", ");
            Fault::usage(format!("no trace is called `{name}`; there are {names}"))
        })?),
    };
    let drive = catalogue::find(args.below.name(DRIVE)).map_err(|why| Fault::usage(why.to_string()))?;
    let mut names = vec!["none".to_owned()];
    let mut coordinators = vec![Coordination::None];
    for name in args.coordinate.split(',').map(str::trim).filter(|n| *n != "none") {
        coordinators.push(coordinator::parse(name)?);
        names.push(name.to_owned());
    }
    let study =
        Study { scale: args.generated.scale, seed: args.generated.from.seed, coordinators, drive, only };
    Ok(Table { options: args, names, study, choices })
}

pub(super) fn run(args: TableArgs) -> Result<Exit, Fault> {
    let several = !args.and.is_empty();
    let tables = [args.table].into_iter().chain(args.and).map(table).collect::<Result<Vec<_>, _>>()?;
    let plan = Plan::of(tables.iter().map(|t| (&t.study, &t.choices)));
    let pool = rayon::ThreadPoolBuilder::new()
        .build()
        .map_err(|e| Fault::failed(format!("threads cannot be started: {e}")))?;
    let bar = seekless_output::bar(plan.runs() as u64, RUNS);
    let rows = pool.install(|| plan.run(|| bar.inc(1)))?;
    bar.finish_and_clear();
    let with_rows = || tables.iter().zip(&rows);
    let mut all: Vec<Value> = with_rows().map(|(t, rows)| as_json(&t.options, &t.names, rows)).collect();
    let value = if several { all.into() } else { all.remove(0) };
    let text = || with_rows().map(|(t, rows)| as_text(&t.names, rows)).collect::<Vec<_>>().join("\n");
    seekless_output::give(args.json.path(), &value, text)?;
    Ok(Exit::Ok)
}

/// How one coordinator did over all rows.
struct Sum {
    improved: usize,
    mean_gain: f64,
    beats_du: Option<usize>,
    more: usize,
    fewer: usize,
    largest: f64,
    smallest: f64,
    rank_correlation: f64,
    l1_hits: f64,
    order_kept: f64,
}

fn sum(names: &[String], rows: &[CaseRow], i: usize) -> Sum {
    let du = names.iter().position(|n| n == "du");
    let printed: Vec<(f64, f64)> =
        rows.iter().filter_map(|r| Some((r.case.published()?, r.gain(i)))).collect();
    Sum {
        improved: rows.iter().filter(|r| r.gain(i) > 0.0).count(),
        mean_gain: rows.iter().map(|r| r.gain(i)).sum::<f64>() / rows.len().max(1) as f64,
        beats_du: du.filter(|d| *d != i).map(|d| rows.iter().filter(|r| r.gain(i) > r.gain(d)).count()),
        more: rows.iter().filter(|r| r.cells[i].l2_prefetched > r.cells[0].l2_prefetched).count(),
        fewer: rows.iter().filter(|r| r.cells[i].l2_prefetched < r.cells[0].l2_prefetched).count(),
        largest: rows.iter().map(|r| r.gain(i)).fold(f64::MIN, f64::max),
        smallest: rows.iter().map(|r| r.gain(i)).fold(f64::MAX, f64::min),
        rank_correlation: rank_correlation(&printed),
        l1_hits: median(
            rows.iter()
                .map(|r| r.cells[i].l1_hit_ratio / r.cells[0].l1_hit_ratio.max(f64::MIN_POSITIVE))
                .collect(),
        ),
        order_kept: order_kept(rows, i),
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match (values.len() / 2, values.len() % 2) {
        (_, _) if values.is_empty() => 0.0,
        (middle, 1) => values[middle],
        (middle, _) => (values[middle - 1] + values[middle]) / 2.0,
    }
}

/// How well the order of the prefetchers by response time is kept, as a rank correlation: the median over the
/// cases of the paper's figure 4, which has the large L1.
fn order_kept(rows: &[CaseRow], i: usize) -> f64 {
    let mut cases: Vec<(&CaseRow, Vec<(f64, f64)>)> = Vec::new();
    for row in rows.iter().filter(|r| r.case.l1 == 'H') {
        let pair = (row.cells[0].mean_ms, row.cells[i].mean_ms);
        let same = |other: &CaseRow| (other.case.trace, other.case.ratio) == (row.case.trace, row.case.ratio);
        match cases.iter_mut().find(|(other, _)| same(other)) {
            Some((_, pairs)) => pairs.push(pair),
            None => cases.push((row, vec![pair])),
        }
    }
    median(cases.iter().map(|(_, pairs)| rank_correlation(pairs)).collect())
}

fn as_json(args: &TableOptions, names: &[String], rows: &[CaseRow]) -> Value {
    let cases: Vec<Value> = rows
        .iter()
        .map(|row| {
            let by: serde_json::Map<String, Value> = names
                .iter()
                .enumerate()
                .map(|(i, name)| {
                    let c = &row.cells[i];
                    let cell = json!({
                        "mean_ms": c.mean_ms,
                        "improvement_percent": row.gain(i),
                        "l1_hit_ratio": c.l1_hit_ratio,
                        "l2_hit_ratio": c.l2_hit_ratio,
                        "l2_unused": c.l2_unused,
                        "l2_prefetched": c.l2_prefetched,
                        "disk_requests": c.disk_requests,
                        "disk_blocks": c.disk_blocks,
                        "disk_busy": c.disk_busy,
                    });
                    (name.clone(), cell)
                })
                .collect();
            json!({
                "trace": row.case.trace.name(),
                "prefetcher": PREFETCHERS[row.case.prefetcher],
                "l1": row.case.l1.to_string(),
                "l1_blocks": row.case.l1_blocks,
                "l2_ratio": row.case.ratio,
                "l2_blocks": row.case.l2_blocks,
                "published_pfc_percent": row.case.published(),
                "coordinators": by,
            })
        })
        .collect();
    let summary: serde_json::Map<String, Value> = names
        .iter()
        .enumerate()
        .skip(1)
        .map(|(i, name)| {
            let s = sum(names, rows, i);
            let value = json!({
                "cases": rows.len(),
                "improved": s.improved,
                "mean_improvement_percent": s.mean_gain,
                "better_than_du": s.beats_du,
                "l2_prefetches_more": s.more,
                "l2_prefetches_fewer": s.fewer,
                "largest_improvement_percent": s.largest,
                "smallest_improvement_percent": s.smallest,
                "rank_correlation": s.rank_correlation,
                "l1_hit_ratio_over_none": s.l1_hits,
                "order_kept": s.order_kept,
            });
            (name.clone(), value)
        })
        .collect();
    json!({
        "scale": args.generated.scale, "seed": args.generated.from.seed, "drawn": args.drawn, "drive": args.below.name(DRIVE), "summary": summary,
        "combinations": combinations(names, rows), "cases": cases,
    })
}

/// Each trace with each prefetcher: means over its pairs of cache sizes, as the paper's figures 6 and 7 show
/// them.
fn combinations(names: &[String], rows: &[CaseRow]) -> Vec<Value> {
    let mut all = Vec::new();
    for trace in Kind::ALL {
        for (prefetcher, name) in PREFETCHERS.iter().enumerate() {
            let of: Vec<&CaseRow> =
                rows.iter().filter(|r| r.case.trace == trace && r.case.prefetcher == prefetcher).collect();
            if of.is_empty() {
                continue;
            }
            let mean =
                |value: &dyn Fn(&CaseRow) -> f64| of.iter().map(|r| value(r)).sum::<f64>() / of.len() as f64;
            let by: serde_json::Map<String, Value> = names
                .iter()
                .enumerate()
                .map(|(i, coordinator)| {
                    let value = json!({
                        "mean_ms": mean(&|r| r.cells[i].mean_ms),
                        "improvement_percent": mean(&|r| r.gain(i)),
                        "l2_hit_ratio": mean(&|r| r.cells[i].l2_hit_ratio),
                    });
                    (coordinator.clone(), value)
                })
                .collect();
            all.push(json!({ "trace": trace.name(), "prefetcher": name, "coordinators": by }));
        }
    }
    all
}

fn as_text(names: &[String], rows: &[CaseRow]) -> String {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::UTF8_FULL_CONDENSED);
    let mut header = vec!["case".to_owned(), "none, ms".to_owned()];
    header.extend(names.iter().skip(1).map(|n| format!("{n}, %")));
    header.push("paper, %".into());
    table.set_header(header);
    for row in rows {
        let mut line = vec![row.case.name(), format!("{:.3}", row.cells[0].mean_ms)];
        line.extend((1..names.len()).map(|i| format!("{:+.2}", row.gain(i))));
        line.push(row.case.published().map_or(String::new(), |p| format!("{p:+.2}")));
        table.add_row(line);
    }
    let mut text = format!("{table}\n");
    for (i, name) in names.iter().enumerate().skip(1) {
        let s = sum(names, rows, i);
        let _ = write!(
            text,
            "{name}: better in {} of {} cases, mean improvement {:.2} %, L2 fetches more ahead in {}",
            s.improved,
            rows.len(),
            s.mean_gain,
            s.more
        );
        if let Some(beats) = s.beats_du {
            let _ = write!(text, ", better than du in {beats}");
        }
        text.push('\n');
    }
    text
}
