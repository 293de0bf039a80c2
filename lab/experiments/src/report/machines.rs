//! Drawn machines: one line each, and what they show together.
//!
//! The first arm with Seekless is held against each arm without; response times are those of an arm at
//! another's load. Of several repetitions the median counts, of ratios that of the ratios.

use std::fmt::Write;

use crate::chart::escape;
use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};

use super::number;
use crate::check::Statistic;
use crate::results::{Results, Row};
use crate::scenario::{Arm, Knob};

/// The arms of a comparison.
struct Arms<'a> {
    ours: &'a Arm,
    /// Without Seekless.
    others: Vec<&'a Arm>,
    /// Further ones with Seekless that are judged by throughput.
    variants: Vec<&'a Arm>,
    /// An arm at another's load, and that one.
    latency: Option<(&'a Arm, &'a str)>,
}

impl<'a> Arms<'a> {
    fn of(results: &'a Results) -> Option<Arms<'a>> {
        let axis = results.scenario.axis.as_ref().filter(|_| results.scenario.sim.constants.is_none())?;
        let arms = &results.scenario.arms;
        let ours = arms.iter().find(|a| a.mode.is_some() && axis.knobs.contains(&Knob::Machine))?;
        let with = |a: &&Arm| a.mode.is_some() && a.name != ours.name && a.load_of.is_none();
        let at_load = arms.iter().find_map(|a| Some((a, a.load_of.as_deref()?)));
        Some(Arms {
            ours,
            others: arms.iter().filter(|a| a.mode.is_none()).collect(),
            variants: arms.iter().filter(with).collect(),
            latency: at_load,
        })
    }
}

/// Every repetition of an arm at a machine.
fn rows<'a>(results: &'a Results, arm: &'a str, x: &'a str) -> impl Iterator<Item = &'a Row> {
    results.rows.iter().filter(move |r| r.arm == arm && r.x.as_deref() == Some(x))
}

/// The median of its repetitions.
fn median(results: &Results, arm: &str, x: &str, metric: &str) -> Option<f64> {
    let values = rows(results, arm, x).filter_map(|r| r.metrics.get(metric).copied());
    Statistic::Median.join(values.collect())
}

fn text(results: &Results, arm: &str, x: &str, metric: &str) -> String {
    median(results, arm, x, metric).map_or("-".into(), number)
}

/// Header and one line a machine; nothing where machines are not drawn.
fn lines(results: &Results) -> Option<(Vec<String>, Vec<Vec<String>>)> {
    let arms = Arms::of(results)?;
    let main = results.scenario.main_metric();
    let mut header: Vec<String> = ["machine", "MiB", "a client", "depths"].map(String::from).to_vec();
    let all = arms.others.iter().chain([&arms.ours]).chain(&arms.variants);
    header.extend(all.clone().map(|a| a.name.clone()));
    header.extend(arms.others.iter().map(|a| format!("/ {}", a.name)));
    if let Some((_, other)) = arms.latency {
        header.extend([format!("p99 {other}"), format!("p99 {}", arms.ours.name)]);
    }
    header.extend(["media", "evicted", "settings"].map(String::from));
    let mut table = Vec::new();
    for x in results.scenario.axis.iter().flat_map(|a| &a.values) {
        let ours = |metric| text(results, &arms.ours.name, x, metric);
        let mut line = vec![x.clone()];
        line.extend(["memory_mib", "memory_per_client_mib", "depths_per_client"].map(ours));
        line.extend(all.clone().map(|a| text(results, &a.name, x, main)));
        line.extend(arms.others.iter().map(|a| ratio(results, arms.ours, a, x).map_or("-".into(), number)));
        if let Some((at_load, other)) = arms.latency {
            line.extend([other, at_load.name.as_str()].map(|arm| text(results, arm, x, "p99_ms")));
        }
        line.extend(["media_share", "evicted_share"].map(ours));
        let settings = arms.others.iter().filter(|a| a.best.is_some());
        let words =
            settings.filter_map(|a| rows(results, &a.name, x).next()?.raw.get("settings")?.as_array());
        line.push(words.flatten().filter_map(|w| w.as_str()).collect::<Vec<_>>().join(" "));
        table.push(line);
    }
    Some((header, table))
}

fn ratio(results: &Results, ours: &Arm, other: &Arm, x: &str) -> Option<f64> {
    let main = results.scenario.main_metric();
    let ratios = rows(results, &ours.name, x).filter_map(|row| {
        let same = rows(results, &other.name, x).find(|o| o.repetition == row.repetition)?;
        Some(row.metrics.get(main)? / same.metrics.get(main)?).filter(|r| r.is_finite())
    });
    Statistic::Median.join(ratios.collect())
}

/// One sentence a comparison: least, median, how many below one.
pub(crate) fn summary(results: &Results) -> Vec<String> {
    let Some(arms) = Arms::of(results) else { return Vec::new() };
    let values: Vec<&String> = results.scenario.axis.iter().flat_map(|a| &a.values).collect();
    let mut said = Vec::new();
    let ample =
        |x: &str| median(results, &arms.ours.name, x, "memory_per_client_mib").is_some_and(|mib| mib >= 2.0);
    for other in &arms.others {
        let of = |all: bool| -> Vec<f64> {
            let chosen = values.iter().filter(|x| all || ample(x));
            chosen.filter_map(|x| ratio(results, arms.ours, other, x)).collect()
        };
        for (all, whom) in [(true, ""), (false, " with at least 2 MiB of memory a client")] {
            let ratios = of(all);
            let (Some(least), Some(median)) =
                (Statistic::Min.join(ratios.clone()), Statistic::Median.join(ratios.clone()))
            else {
                continue;
            };
            said.push(format!(
                "{} to {}: least {}, median {}, below 1 in {} of {} machines{whom}",
                arms.ours.name,
                other.name,
                number(least),
                number(median),
                ratios.iter().filter(|r| **r < 1.0).count(),
                ratios.len()
            ));
        }
        // What no ratio can be had of: the other served nothing without failures.
        let none = values
            .iter()
            .filter(|x| median(results, &other.name, x, results.scenario.main_metric()) == Some(0.0));
        let none: Vec<&str> = none.map(|x| x.as_str()).collect();
        if !none.is_empty() {
            said.push(format!("{} held no rate on {}: no ratio", other.name, none.join(", ")));
        }
    }
    for other in arms.others.iter().filter(|a| a.best.is_some()) {
        let room = |x: &&String| {
            let room = 1.0 / median(results, &other.name, x, "media_share")?;
            Some((room, ratio(results, arms.ours, other, x)?))
        };
        let (rooms, ratios): (Vec<f64>, Vec<f64>) = values.iter().copied().filter_map(|x| room(&x)).unzip();
        let counted = rooms.len();
        let middle = |all: Vec<f64>| Statistic::Median.join(all);
        if let (Some(room), Some(reached)) = (middle(rooms), middle(ratios)) {
            said.push(format!(
                "closed loops: on a disk that never seeks the reads of {} would be served {} times as fast in the \
                 median; {} serves {} times as much ({counted} machines)",
                other.name,
                number(room),
                arms.ours.name,
                number(reached)
            ));
        }
    }
    if let Some((at_load, other)) = arms.latency {
        let p99 = |arm: &str, x: &str| median(results, arm, x, "p99_ms");
        let pairs: Vec<(f64, f64)> =
            values.iter().filter_map(|x| Some((p99(&at_load.name, x)?, p99(other, x)?))).collect();
        let worse = pairs.iter().filter(|(ours, theirs)| ours > theirs).count();
        said.push(format!("p99 worse than {other}'s at its load on {worse} of {} machines", pairs.len()));
    }
    said
}

/// The table for a terminal; nothing where machines are not drawn.
pub(super) fn table(results: &Results) -> Option<String> {
    let (header, lines) = lines(results)?;
    let mut table = Table::new();
    table.load_style(NOTHING);
    let columns = header.len();
    table.set_header(header);
    lines.into_iter().for_each(|line| {
        table.add_row(line);
    });
    for column in 1..columns - 1 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let mut text = format!("{table}\n\n");
    for (x, what) in machines(results) {
        let _ = writeln!(text, "{x}: {what}");
    }
    Some(text)
}

/// The same as HTML.
pub(super) fn html(page: &mut String, results: &Results) {
    let Some((header, lines)) = lines(results) else { return };
    *page += "<h3>Machines</h3><div class=scroll><table><tr>";
    for name in header {
        let _ = write!(page, "<th>{}</th>", escape(&name));
    }
    *page += "</tr>";
    for line in lines {
        *page += "<tr>";
        for cell in line {
            let _ = write!(page, "<td>{}</td>", escape(&cell));
        }
        *page += "</tr>";
    }
    *page += "</table></div><ul>";
    for (x, what) in machines(results) {
        let _ = write!(page, "<li>{}: {}</li>", escape(&x), escape(&what));
    }
    *page += "</ul>";
}

/// Each machine in words.
fn machines(results: &Results) -> Vec<(String, String)> {
    let axis = results.scenario.axis.as_ref();
    let values = axis.filter(|a| a.knobs.contains(&Knob::Machine)).into_iter().flat_map(|a| &a.values);
    let one = |x: &String| Some((x.clone(), x.parse::<crate::scenario::Machine>().ok()?.text()));
    values.filter_map(one).collect()
}
