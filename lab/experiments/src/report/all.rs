//! Several runs as one page: totals, a list by paper, what does not hold and why, then each run's own page
//! folded.

use std::fmt::Write;
use std::time::Duration;

use crate::chart::escape;
use seekless_base::Fault;

use super::html::{body, open, prose};
use super::number;
use crate::check::CheckOutcome;
use crate::results::Results;
use crate::scenario::Scenario;

/// How the checks of several runs came out.
struct Totals {
    checks: usize,
    held: usize,
}

impl Totals {
    fn of<'a>(all: impl IntoIterator<Item = &'a Results>) -> Totals {
        let checks: Vec<&CheckOutcome> = all.into_iter().flat_map(|r| &r.checks).collect();
        Totals { held: checks.iter().filter(|c| c.pass).count(), checks: checks.len() }
    }

    fn text(&self) -> String {
        let Totals { checks, held } = self;
        match checks - held {
            0 => format!("all {checks} checks hold"),
            failed => format!("{held} of {checks} checks hold; {failed} do not"),
        }
    }
}

/// The same for a terminal: each check that does not hold, what was left out, the totals.
pub fn totals(all: &[Results], left_out: &[(String, String)]) -> String {
    let mut text = String::new();
    for (results, check) in failed(all) {
        let value = check.value.map_or("not measured".into(), number);
        let _ = writeln!(text, "{}: does not hold: {} ({value})", results.name, check.name);
    }
    for (name, why) in left_out {
        let _ = writeln!(text, "{name} left out: {why}");
    }
    let _ = writeln!(text, "{} in {} scenarios", Totals::of(all).text(), all.len());
    text
}

fn failed(all: &[Results]) -> impl Iterator<Item = (&Results, &CheckOutcome)> {
    all.iter().flat_map(|r| r.checks.iter().filter(|c| !c.pass).map(move |c| (r, c)))
}

/// The page. `took`: from the first run's start to the last one's end, where that is known.
///
/// # Errors
/// Those of [`super::render`].
pub fn render_all(
    title: &str,
    all: &[Results],
    left_out: &[(String, String)],
    took: Option<Duration>,
) -> Result<String, Fault> {
    let mut page = open(title);
    top(&mut page, title, all, took);
    contents(&mut page, all);
    failures(&mut page, all);
    omitted(&mut page, left_out);
    for paper in papers(all) {
        let _ = write!(page, "<h2>{}</h2>", heading(paper));
        for results in of_paper(all, paper) {
            let _ = write!(
                page,
                "<details class=all id=\"{name}\"><summary>{figure}{title} <span class=sub>({name})</span></summary><div>",
                name = escape(&results.name),
                figure = results.scenario.figure.as_deref().map_or(String::new(), |f| escape(f) + ": "),
                title = escape(&results.scenario.title),
            );
            body(&mut page, results)?;
            page += "</div></details>";
        }
    }
    // A link into a folded part opens it.
    page += "<script>const open=()=>{const d=document.getElementById(location.hash.slice(1));if(d)d.open=true};\
             addEventListener('hashchange',open);open()</script></body></html>\n";
    Ok(page)
}

fn top(page: &mut String, title: &str, all: &[Results], took: Option<Duration>) {
    let quick = if all.iter().any(|r| r.quick) { ", shortened (--quick)" } else { "" };
    let cores = all.iter().map(|r| r.environment.cores).max().unwrap_or(1);
    let took = took.map_or(String::new(), |t| format!("; {:.0} s on {cores} processors", t.as_secs_f64()));
    let _ = write!(
        page,
        "<h1>{}</h1><p><b>{}</b> in {} scenarios{quick}{took}.</p>\
         <p>Every figure below comes from the simulator: clients, server, page cache, kernel and drive are modelled, the policy is \
         the daemon's own code. &quot;Published&quot; is what the paper's text or tables print (bars of a figure without \
         a printed value are not read off). A check states a conclusion of the paper, or a target of this project; one that \
         does not hold is left as it is, with its cause where a measurement shows one. Throughput is in MB/s of 1,000,000 bytes.</p>",
        escape(title),
        Totals::of(all).text(),
        all.len(),
    );
}

/// Every scenario by paper, with a link.
fn contents(page: &mut String, all: &[Results]) {
    *page += "<h2>Contents</h2><div class=scroll><table><tr><th>Figure</th><th class=words>What is compared</th><th class=words>Scenario</th><th>Checks that hold</th></tr>";
    for paper in papers(all) {
        let totals = Totals::of(of_paper(all, paper));
        let _ = write!(
            page,
            "<tr><th colspan=3>{}</th><th>{} of {}</th></tr>",
            heading(paper),
            totals.held,
            totals.checks
        );
        for results in of_paper(all, paper) {
            let totals = Totals::of([results]);
            let class = if totals.checks == totals.held { "pass" } else { "fail" };
            let _ = write!(
                page,
                "<tr><td>{}</td><td class=words>{}</td><td class=words><a href=\"#{name}\">{name}</a></td><td class={class}>{} of {}</td></tr>",
                escape(results.scenario.figure.as_deref().unwrap_or("-")),
                escape(&results.scenario.title),
                totals.held,
                totals.checks,
                name = escape(&results.name),
            );
        }
    }
    *page += "</table></div>";
}

fn heading(paper: Option<&str>) -> String {
    paper.map_or_else(|| "Benchmarks of this project".to_string(), escape)
}

/// A paper's runs, figures by number, then tables.
fn of_paper<'a>(all: &'a [Results], paper: Option<&str>) -> Vec<&'a Results> {
    let mut runs: Vec<&Results> = all.iter().filter(|r| r.scenario.paper.as_deref() == paper).collect();
    runs.sort_by_key(|r| figure_order(&r.scenario));
    runs
}

/// Figures by number, then tables, then the rest.
pub(super) fn figure_order(scenario: &Scenario) -> (bool, bool, Option<u32>) {
    let figure = scenario.figure.as_deref().unwrap_or_default();
    let number = figure.split(|c: char| !c.is_ascii_digit()).find_map(|n| n.parse().ok());
    (!figure.starts_with("Figure"), !figure.starts_with("Table"), number)
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

/// Every check that does not hold, with its cause where that is known.
fn failures(page: &mut String, all: &[Results]) {
    if all.iter().all(|r| r.pass) {
        return;
    }
    *page += "<h2>What does not hold</h2><div class=scroll><table><tr><th>Scenario</th><th class=words>Check</th><th>Value</th><th>Target</th></tr>";
    for (results, check) in failed(all) {
        let _ = write!(
            page,
            "<tr><td><a href=\"#{name}\">{name}</a></td><td class=words>{}</td><td>{}</td><td>{} {}</td></tr>\
             {}",
            escape(&check.name),
            check.value.map_or("not measured".into(), number),
            escape(&check.comparison),
            number(check.target),
            check.deviation.as_deref().map_or(String::new(), |why| {
                format!("<tr><td colspan=4 class=why>{}</td></tr>", prose(why))
            }),
            name = escape(&results.name),
        );
    }
    *page += "</table></div>";
}

fn omitted(page: &mut String, left_out: &[(String, String)]) {
    if left_out.is_empty() {
        return;
    }
    *page += "<h2>Not in this report</h2><ul>";
    for (name, why) in left_out {
        let _ = write!(page, "<li>{}: {}</li>", escape(name), escape(why));
    }
    *page += "</ul>";
}
