//! The page: headline, checks, plots, tables, notes, the machine.

use std::fmt::Write;

use seekless_units::{Exit, Fault};

use super::{Entry, entries, number, plot};
use crate::metric::{self, Metric};
use crate::results::Results;

/// Colours, type and table lines; nothing is loaded from anywhere.
const STYLE: &str = "body{font:15px/1.45 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem;color:#222}\
h1{font-size:1.5rem;margin-bottom:.2rem}h2{font-size:1.1rem;margin-top:2rem}.sub{color:#666}\
table{border-collapse:collapse;margin:.6rem 0}th,td{padding:.25rem .7rem;border-bottom:1px solid #ddd;text-align:right}\
th:first-child,td:first-child{text-align:left}.pass{color:#0a7d32;font-weight:600}.fail{color:#b3261e;font-weight:600}\
svg{max-width:100%;height:auto}li{margin:.2rem 0}.scroll{overflow-x:auto}";

/// The whole page.
///
/// # Errors
/// [`Exit::Failed`] when a plot cannot be drawn.
pub fn render(results: &Results) -> Result<String, Fault> {
    let scenario = &results.scenario;
    let mut page = String::new();
    head(&mut page, results);
    checks(&mut page, results);
    notes(&mut page, results);
    for name in &scenario.metrics {
        let Ok(metric) = metric::find(name) else { continue };
        let values = entries(results, name);
        let values: Vec<Entry> =
            values.into_iter().filter(|e| e.ours.is_some() || e.published.is_some()).collect();
        if values.is_empty() {
            continue;
        }
        let unit = if metric.unit.is_empty() { String::new() } else { format!(", {}", metric.unit) };
        let _ = write!(page, "<h2>{}{unit}</h2><p class=sub>{}</p>", escape(name), escape(metric.meaning));
        page += &plot::metric(results, name, &values)
            .map_err(|e| Fault::new(Exit::Failed, format!("plot of {name}: {e}")))?;
        table(&mut page, metric, &values);
    }
    let mut names: Vec<&String> = results.rows.iter().flat_map(|r| r.cdfs.keys()).collect();
    names.sort();
    names.dedup();
    for name in names {
        let title = match name.as_str() {
            "call_ms" => "Time of the server's read calls (ms): share of calls",
            "sequence_kib" => "Length of contiguous sequences read from disk (KiB): share of bytes",
            "request_ms" => "Time of requests from their intended start (ms): share of requests",
            other => other,
        };
        let _ = write!(page, "<h2>{}</h2>", escape(title));
        page += &plot::cdf(results, name)
            .map_err(|e| Fault::new(Exit::Failed, format!("plot of {name}: {e}")))?;
    }
    rows(&mut page, results);
    foot(&mut page, results);
    Ok(page)
}

/// Several runs as one page: a table of all by paper, the checks that do not hold with where they are explained, then each
/// run's own page folded below its line.
///
/// # Errors
/// Those of [`render`].
pub fn render_all(title: &str, all: &[Results], left_out: &[(String, String)]) -> Result<String, Fault> {
    let (held, checks) =
        all.iter().flat_map(|r| &r.checks).fold((0, 0), |(h, n), c| (h + u32::from(c.pass), n + 1));
    let quick = if all.iter().any(|r| r.quick) { ", shortened (--quick)" } else { "" };
    let seconds: f64 = all.iter().map(|r| r.environment.elapsed_s).sum();
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=en><head><meta charset=utf-8><title>{title}</title><style>{STYLE}</style></head><body>\
         <h1>{title}</h1><p class=sub>{held} of {checks} checks hold in {} scenarios{quick}; {} s</p>\
         <p>Every figure below comes from the simulator: clients, server, page cache, kernel and drive are modelled, the policy is the \
         daemon's own code. &quot;Here&quot; is our value, &quot;Published&quot; what the paper's text or tables print. A check \
         states a conclusion of the paper, or a target of this project; one that does not hold is left as it is, and \
         the notes of its scenario say why. Throughput is in MB/s of 1,000,000 bytes.</p>",
        all.len(),
        number(seconds),
        title = escape(title),
    );
    for paper in papers(all) {
        let heading = paper.map_or_else(|| "Benchmarks of this project".to_string(), escape);
        let _ = write!(
            page,
            "<h2>{heading}</h2><table><tr><th>Scenario</th><th>Figure</th><th>What is compared</th><th>Checks that hold</th></tr>"
        );
        for results in all.iter().filter(|r| r.scenario.paper.as_deref() == paper) {
            let held = results.checks.iter().filter(|c| c.pass).count();
            let class = if results.pass { "pass" } else { "fail" };
            let _ = write!(
                page,
                "<tr><td><a href=\"#{name}\">{name}</a></td><td>{}</td><td>{}</td><td class={class}>{held} of {}</td></tr>",
                escape(results.scenario.figure.as_deref().unwrap_or_default()),
                escape(&results.scenario.title),
                results.checks.len(),
                name = escape(&results.name),
            );
        }
        page += "</table>";
    }
    failures(&mut page, all);
    if !left_out.is_empty() {
        page += "<h2>Not in this report</h2><ul>";
        for (name, why) in left_out {
            let _ = write!(page, "<li>{} runs live only: {}</li>", escape(name), escape(why));
        }
        page += "</ul>";
    }
    for results in all {
        let whole = render(results)?;
        let body = whole.split_once("<body>").and_then(|(_, rest)| rest.rsplit_once("</body>"));
        let open = if results.pass { "" } else { " open" };
        let _ = write!(
            page,
            "<hr><details id=\"{name}\"{open}><summary>{name}: {}</summary>{}</details>",
            escape(&results.scenario.title),
            body.map_or("", |(body, _)| body),
            name = escape(&results.name),
        );
    }
    // A link into a folded part opens it.
    page += "<script>const open=()=>{const d=document.getElementById(location.hash.slice(1));if(d)d.open=true};\
             addEventListener('hashchange',open);open()</script></body></html>\n";
    Ok(page)
}

/// The papers the runs belong to, in order of first mention; our own benchmarks last.
fn papers(all: &[Results]) -> Vec<Option<&str>> {
    let mut papers: Vec<Option<&str>> = Vec::new();
    for results in all {
        let paper = results.scenario.paper.as_deref();
        if !papers.contains(&paper) {
            papers.push(paper);
        }
    }
    papers.sort_by_key(Option::is_none);
    papers
}

/// Every check that does not hold.
fn failures(page: &mut String, all: &[Results]) {
    if all.iter().all(|r| r.pass) {
        return;
    }
    *page += "<h2>What does not hold</h2><table><tr><th>Scenario</th><th>Check</th><th>Value</th><th>Target</th></tr>";
    for results in all {
        for check in results.checks.iter().filter(|c| !c.pass) {
            let _ = write!(
                page,
                "<tr><td><a href=\"#{name}\">{name}</a></td><td>{}</td><td>{}</td><td>{} {}</td></tr>",
                escape(&check.name),
                check.value.map_or("not measured".into(), number),
                escape(&check.comparison),
                number(check.target),
                name = escape(&results.name),
            );
        }
    }
    *page += "</table>";
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
        "<!DOCTYPE html>\n<html lang=en><head><meta charset=utf-8><title>{name}</title><style>{STYLE}</style></head><body>\
         <h1>{title}</h1><p class=sub>{name} &middot; {from} &middot; {driver}{quick}</p><p class={class}>{verdict}</p>",
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
    *page += "<h2>Checks</h2><div class=scroll><table><tr><th>What must hold</th><th>Metric</th><th>Value</th><th>Target</th><th></th></tr>";
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
    }
    *page += "</table></div>";
}

fn table(page: &mut String, metric: &Metric, entries: &[Entry]) {
    let published = entries.iter().any(|e| e.published.is_some());
    let base = entries.iter().find_map(|e| e.ours).filter(|b| *b != 0.0);
    let unit = escape(metric.unit);
    let _ = write!(
        page,
        "<div class=scroll><table><tr><th>Arm</th><th>Here {unit}</th><th>Range</th><th>To first</th>"
    );
    if published {
        let _ = write!(page, "<th>Published {unit}</th><th>Source</th>");
    }
    *page += "</tr>";
    for entry in entries {
        let range = entry.spread.filter(|(low, high)| low != high);
        let _ = write!(
            page,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td>",
            escape(&entry.label),
            entry.ours.map_or("-".into(), number),
            range.map_or(String::new(), |(low, high)| format!("{} to {}", number(low), number(high))),
            entry.ours.zip(base).map_or(String::new(), |(v, b)| format!("{:.2}", v / b)),
        );
        if published {
            let _ = write!(
                page,
                "<td>{}</td><td>{}</td>",
                entry.published.map_or(String::new(), number),
                escape(entry.source.as_deref().unwrap_or_default())
            );
        }
        *page += "</tr>";
    }
    *page += "</table></div>";
}

/// Every row with every metric, folded away.
fn rows(page: &mut String, results: &Results) {
    let mut names: Vec<&String> = results.rows.iter().flat_map(|r| r.metrics.keys()).collect();
    names.sort();
    names.dedup();
    *page += "<h2>Every run</h2><details><summary>All metrics, in the order things were run</summary><div class=scroll><table><tr><th>Arm</th><th>Repetition</th>";
    for name in &names {
        let _ = write!(page, "<th>{}</th>", escape(name));
    }
    *page += "</tr>";
    for row in &results.rows {
        let label = row.x.as_ref().map_or(row.arm.clone(), |x| format!("{} @ {x}", row.arm));
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
        *page += "<h2>Notes</h2><ul>";
        for note in scenario.notes.iter().chain(&results.remarks) {
            let _ = write!(page, "<li>{}</li>", escape(note));
        }
        *page += "</ul>";
    }
}

fn foot(page: &mut String, results: &Results) {
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
        "<h2>Setting</h2><table><tr><td>Disks</td><td>{}</td></tr><tr><td>Memory limit</td><td>{}</td></tr>\
         <tr><td>Library a disk</td><td>{} MB</td></tr><tr><td>Repetitions</td><td>{}</td></tr>\
         <tr><td>Machine</td><td>{} x {}, {} MB, Linux {}</td></tr><tr><td>Servers</td><td>{}</td></tr>\
         <tr><td>Seekless</td><td>{}</td></tr><tr><td>Took</td><td>{} s</td></tr></table></body></html>",
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
    page.push('\n');
}

/// Text as HTML.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
