//! The page of one run: headline, checks, plots, tables, notes, the machine.

use std::collections::BTreeSet;
use std::fmt::Write;

use crate::chart::escape;
use seekless_base::Fault;

use super::{ComparisonEntry, entries, label, number, plot};
use crate::metric::{self, Metric};
use crate::results::Results;
use crate::scenario::{Axis, PublishedValue};

/// Colours, type and table lines; nothing is loaded from anywhere.
const STYLE: &str = "body{font:15px/1.45 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem;color:#222}\
h1{font-size:1.5rem;margin-bottom:.2rem}h2{font-size:1.25rem;margin-top:2rem}h3{font-size:1rem;margin:1.4rem 0 0}.sub{color:#666;margin:.1rem 0}\
td.pass,td.fail,td.words a{white-space:nowrap}.why{color:#555;font-style:italic;text-align:left;padding-left:1.5rem}.paper{color:#777}\
summary{cursor:pointer;margin:.4rem 0}.all>summary{font-weight:600}.all>div{border-left:3px solid #ddd;padding-left:1rem;margin-bottom:2rem}\
table{border-collapse:collapse;margin:.6rem 0}th,td{padding:.25rem .7rem;border-bottom:1px solid #ddd;text-align:right}\
th:first-child,td:first-child,th.words,td.words{text-align:left}.pass{color:#0a7d32;font-weight:600}.fail{color:#b3261e;font-weight:600}\
svg{max-width:100%;height:auto}li{margin:.2rem 0}.scroll{overflow-x:auto}";

/// The whole page of one run.
///
/// # Errors
/// [`seekless_base::Exit::Failed`] when a plot cannot be drawn.
pub fn render(results: &Results) -> Result<String, Fault> {
    let mut page = open(&results.name);
    body(&mut page, results)?;
    page += "</body></html>\n";
    Ok(page)
}

/// A page up to its first heading.
pub(super) fn open(title: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=en><head><meta charset=utf-8><title>{}</title><style>{STYLE}{}</style></head><body>",
        escape(title),
        crate::chart::STYLE
    )
}

/// What there is to say of one run: verdict and checks, the main metric, notes; the rest folded.
pub(super) fn body(page: &mut String, results: &Results) -> Result<(), Fault> {
    head(page, results);
    checks(page, results);
    super::machines::html(page, results);
    let published = |name: &str| {
        let meant =
            |p: &PublishedValue| p.metric.as_deref().unwrap_or(results.scenario.main_metric()) == name;
        results.scenario.published.iter().any(meant)
    };
    let (first, rest): (Vec<_>, Vec<_>) = results
        .scenario
        .metrics
        .iter()
        .partition(|name| *name == results.scenario.main_metric() || published(name));
    for name in first {
        figure(page, results, name)?;
    }
    notes(page, results);
    let mut more = String::new();
    for name in rest {
        figure(&mut more, results, name)?;
    }
    distributions(&mut more, results)?;
    if !more.is_empty() {
        let _ = write!(page, "<details><summary>Other metrics</summary>{more}</details>");
    }
    rows(page, results);
    setting(page, results);
    Ok(())
}

/// A metric: plot and table. Nothing where nothing is known of it.
fn figure(page: &mut String, results: &Results, name: &str) -> Result<(), Fault> {
    let Ok(metric) = metric::find(name) else { return Ok(()) };
    let mut values = entries(results, name);
    values.retain(|e| e.ours.is_some() || e.published.is_some());
    if values.is_empty() {
        return Ok(());
    }
    let unit = if metric.unit.is_empty() { String::new() } else { format!(", {}", metric.unit) };
    let meaning = capital(metric.meaning);
    let _ = write!(page, "<h3>{}{unit}</h3><p class=sub>{}</p>", escape(&meaning), escape(name));
    *page += &plot::metric(results, metric, &values)?;
    table(page, results, metric, &values);
    Ok(())
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

fn distributions(page: &mut String, results: &Results) -> Result<(), Fault> {
    let names: BTreeSet<&String> = results.rows.iter().flat_map(|r| r.cdfs.keys()).collect();
    for name in names {
        let title = match name.as_str() {
            "call_ms" => "Time of the server's read calls (ms): share of calls",
            "sequence_kib" => "Length of contiguous sequences read from disk (KiB): share of bytes",
            "request_ms" => "Time of requests from their intended start (ms): share of requests",
            other => other,
        };
        let _ = write!(page, "<h3>{}</h3>", escape(title));
        *page += &plot::cdf(results, name)?;
    }
    Ok(())
}

fn head(page: &mut String, results: &Results) {
    let scenario = &results.scenario;
    let from = match (&scenario.paper, &scenario.figure) {
        (Some(paper), Some(figure)) => format!("{paper}, {figure}"),
        (Some(paper), None) => paper.clone(),
        _ => "benchmark of this project".into(),
    };
    let (class, verdict) = match (results.complete, results.pass) {
        (false, _) => ("fail", "not complete: it was interrupted or is still running"),
        (true, true) => ("pass", "every check holds"),
        (true, false) => ("fail", "not every check holds"),
    };
    let _ = write!(
        page,
        "<h1>{title}</h1><p class=sub>{from} &middot; {name} &middot; {driver}{quick}</p><p class={class}>{verdict}</p>",
        name = escape(&results.name),
        title = escape(&scenario.title),
        from = escape(&from),
        driver = escape(&results.driver),
        quick = if results.quick { " &middot; quick" } else { "" },
    );
}

fn checks(page: &mut String, results: &Results) {
    if results.checks.is_empty() {
        return;
    }
    *page += "<div class=scroll><table><tr><th>What must hold</th><th>Metric</th><th>Value</th><th>Target</th><th></th></tr>";
    for check in &results.checks {
        let value = check.value.map_or("not measured".into(), number);
        let (class, word) = if check.pass { ("pass", "holds") } else { ("fail", "does not hold") };
        let _ = write!(
            page,
            "<tr><td>{}</td><td>{}</td><td>{value}</td><td>{} {}</td><td class={class}>{word}</td></tr>",
            escape(&check.name),
            escape(&check.metric),
            escape(&check.comparison),
            number(check.target)
        );
        if let Some(why) = &check.deviation {
            let _ = write!(page, "<tr><td colspan=5 class=why>{}</td></tr>", prose(why));
        }
    }
    *page += "</table></div>";
}

/// The values, published ones beside ours: a column an arm where there is an axis, a line an arm where there
/// is none.
fn table(page: &mut String, results: &Results, metric: &Metric, entries: &[ComparisonEntry]) {
    if let Some(axis) = &results.scenario.axis {
        let swept: Vec<ComparisonEntry> = entries.iter().filter(|e| e.x.is_some()).cloned().collect();
        if !swept.is_empty() {
            by_axis(page, axis, &swept);
        }
        let fixed: Vec<ComparisonEntry> = entries.iter().filter(|e| e.x.is_none()).cloned().collect();
        if fixed.is_empty() {
            return;
        }
        return by_arm(page, metric, &fixed);
    }
    by_arm(page, metric, entries);
}

fn by_axis(page: &mut String, axis: &Axis, entries: &[ComparisonEntry]) {
    let mut arms: Vec<&str> = entries.iter().map(|e| e.arm.as_str()).collect();
    arms.dedup();
    let _ = write!(page, "<div class=scroll><table><tr><th>{}</th>", escape(&axis.label));
    for arm in &arms {
        let _ = write!(page, "<th>{}</th>", escape(arm));
    }
    *page += "</tr>";
    for x in &axis.values {
        let _ = write!(page, "<tr><td>{}</td>", escape(x));
        for arm in &arms {
            let entry = entries.iter().find(|e| e.arm == *arm && e.x.as_ref() == Some(x));
            let _ = write!(page, "<td>{}</td>", entry.map_or(String::new(), cell));
        }
        *page += "</tr>";
    }
    *page += "</table></div>";
    let sources: BTreeSet<&str> = entries.iter().filter_map(|e| e.source.as_deref()).collect();
    if !sources.is_empty() {
        let sources: Vec<&str> = sources.into_iter().collect();
        let _ = write!(page, "<p class=sub>Published values from {}.</p>", escape(&sources.join("; ")));
    }
}

/// Our value, its range over repetitions, the published value.
fn cell(entry: &ComparisonEntry) -> String {
    let mut text = entry.ours.map_or("-".into(), number);
    if let Some((low, high)) = entry.spread.filter(|(low, high)| low != high) {
        let _ = write!(text, " <span class=sub>({} to {})</span>", number(low), number(high));
    }
    if let Some(published) = entry.published {
        let _ = write!(text, " <span class=paper>{} published</span>", number(published));
    }
    text
}

fn by_arm(page: &mut String, metric: &Metric, entries: &[ComparisonEntry]) {
    let published = entries.iter().any(|e| e.published.is_some());
    let ranged = entries.iter().any(|e| e.spread.is_some_and(|(low, high)| low != high));
    let base = entries.iter().find_map(|e| e.ours).filter(|b| *b != 0.0 && entries.len() > 1);
    let unit = escape(metric.unit);
    let head = |there: bool, text: &str| if there { format!("<th>{text}</th>") } else { String::new() };
    let _ = write!(
        page,
        "<div class=scroll><table><tr><th>Arm</th><th>Here {unit}</th>{}{}{}{}</tr>",
        head(ranged, "Range"),
        head(base.is_some(), "To first"),
        head(published, &format!("Published {unit}")),
        head(published, "Source"),
    );
    for entry in entries {
        let data = |there: bool, text: String| if there { format!("<td>{text}</td>") } else { String::new() };
        let range = entry.spread.filter(|(low, high)| low != high);
        let _ = write!(
            page,
            "<tr><td>{}</td><td>{}</td>{}{}{}{}</tr>",
            escape(&entry.label()),
            entry.ours.map_or("-".into(), number),
            data(
                ranged,
                range.map_or(String::new(), |(low, high)| format!("{} to {}", number(low), number(high)))
            ),
            data(
                base.is_some(),
                entry.ours.zip(base).map_or(String::new(), |(v, b)| format!("{:.2}", v / b))
            ),
            data(published, entry.published.map_or(String::new(), number)),
            data(published, escape(entry.source.as_deref().unwrap_or_default())),
        );
    }
    *page += "</table></div>";
}

/// Every row with every metric, folded away.
fn rows(page: &mut String, results: &Results) {
    let mut names: Vec<&String> = results.rows.iter().flat_map(|r| r.metrics.keys()).collect();
    names.sort();
    names.dedup();
    *page += "<details><summary>Every run, in the order things were run</summary><div class=scroll><table><tr><th>Arm</th><th>Repetition</th>";
    for name in &names {
        let _ = write!(page, "<th>{}</th>", escape(name));
    }
    *page += "</tr>";
    for row in &results.rows {
        let label = label(&row.arm, row.x.as_deref());
        let _ = write!(page, "<tr><td>{}</td><td>{}</td>", escape(&label), row.repetition + 1);
        for name in &names {
            let _ =
                write!(page, "<td>{}</td>", row.metrics.get(*name).copied().map_or(String::new(), number));
        }
        *page += "</tr>";
    }
    *page += "</table></div></details>";
}

/// What a reader must know to judge the figures, departures from the paper first of all.
fn notes(page: &mut String, results: &Results) {
    let scenario = &results.scenario;
    if !scenario.notes.is_empty() || !results.remarks.is_empty() {
        *page += "<h3>Notes</h3><ul>";
        for note in scenario.notes.iter().chain(&results.remarks) {
            let _ = write!(page, "<li>{}</li>", prose(note));
        }
        *page += "</ul>";
    }
}

/// Disks, memory, machine, folded away.
fn setting(page: &mut String, results: &Results) {
    let scenario = &results.scenario;
    let machine = &results.environment;
    let disks: Vec<String> = scenario
        .disks
        .iter()
        .map(|d| {
            format!(
                "{} {} {}{}",
                d.drive,
                d.size,
                d.fs,
                if d.speedup > 1.0 { format!(" x{}", d.speedup) } else { String::new() }
            )
        })
        .collect();
    let _ = write!(
        page,
        "<details><summary>Setting</summary><table><tr><td>Disks</td><td>{}</td></tr><tr><td>Memory limit</td><td>{}</td></tr>\
         <tr><td>Library a disk</td><td>{} MB</td></tr><tr><td>Repetitions</td><td>{}</td></tr>\
         <tr><td>Machine</td><td>{} x {}, {} MB, Linux {}</td></tr><tr><td>Servers</td><td>{}</td></tr>\
         <tr><td>Seekless</td><td>{}</td></tr><tr><td>Took</td><td>{} s</td></tr></table></details>",
        escape(&disks.join(", ")),
        scenario.memory,
        scenario.library_bytes().map_or("?".into(), |b| number(b.as_mb())),
        scenario.repetitions,
        machine.cores,
        escape(&machine.processor),
        machine.memory / 1_000_000,
        escape(&machine.kernel),
        escape(&machine.servers.join(", ")),
        escape(&machine.version),
        number(machine.elapsed_s),
    );
}

/// Text in which back quotes mark names and commands, as HTML.
pub(super) fn prose(text: &str) -> String {
    let parts = escape(text);
    let parts = parts.split('`').enumerate();
    parts
        .map(|(i, part)| if i % 2 == 1 { format!("<code>{part}</code>") } else { part.to_string() })
        .collect()
}
