//! The pages of `docs/results`: what was measured last, as Markdown written from the records.
//!
//! A page is a function of the records and of the scenarios' own words, so a page edited by hand, or a
//! record without its page, shows as a difference ([`differences`]).

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use seekless_base::Fault;

use super::statements::{self, Counts, Outcome, Statement};
use super::{entries, number};
use crate::metric;
use crate::record::{Record, Recorded, folder_of_records};
use crate::results::Results;
use crate::scenario::{self, Axis, Scenario};

/// Folder of the pages in a checkout.
pub const FOLDER: &str = "docs/results";
/// Longest line of prose.
const WIDTH: usize = 110;
/// The front page of a checkout, seen from [`FOLDER`].
const FRONT: &str = "../../README.md";
/// The scenario whose live figures stand on the front page, and what of it.
const GAIN: (&str, [&str; 4]) = ("closed-loop", ["mb_s", "disk_mb_s", "p50_ms", "p99_ms"]);
/// Page of the scenarios that belong to no paper.
const OWN: &str = "Benchmarks of this project";

/// One scenario with its record.
struct Entry {
    name: &'static str,
    scenario: Scenario,
    record: Option<Record>,
}

/// Every page: file name and text.
///
/// # Errors
/// Those of reading the records.
pub fn render(records: &Path) -> Result<BTreeMap<String, String>, Fault> {
    folder_of_records(records)?;
    let mut by_page: BTreeMap<String, Vec<Entry>> = BTreeMap::new();
    for (name, text) in scenario::all() {
        let scenario = Scenario::parse(text, name)?;
        let record = Record::read(records, name)?;
        let heading = scenario.paper.clone().unwrap_or_else(|| OWN.into());
        by_page.entry(heading).or_default().push(Entry { name, scenario, record });
    }
    for scenarios in by_page.values_mut() {
        scenarios.sort_by_key(|e| super::all::figure_order(&e.scenario));
    }
    let stated = statements::all(records)?;
    let mut pages = BTreeMap::from([("README.md".to_string(), index(&by_page, &stated))]);
    for (heading, scenarios) in &by_page {
        pages.insert(file_name(heading), page(heading, scenarios, &stated));
    }
    Ok(pages)
}

/// The front page with today's figures between its marks; none where there is no such page or no mark.
fn front(records: &Path, folder: &Path) -> Result<Option<(String, String)>, Fault> {
    let Ok(mut text) = std::fs::read_to_string(folder.join(FRONT)) else { return Ok(None) };
    let link = |paper: &str| format!("[{paper}]({FOLDER}/{}#statements)", file_name(paper));
    let mut marked = fill(&mut text, "statements", &statements::table(&statements::all(records)?, link));
    let (name, metrics) = GAIN;
    let (_, scenario) = scenario::find(name)?;
    let results = Record::read(records, name)?.and_then(|record| record.results("live", &scenario));
    let mut gain = String::new();
    if let Some(results) = results {
        by_arm(&mut gain, &results, metrics);
    }
    marked |= fill(&mut text, name, gain.trim_start());
    marked |= fill(&mut text, "kernels", &super::kernels::table(records)?);
    Ok(marked.then_some((FRONT.into(), text)))
}

/// Puts `what` between the marks of this name; `false` where `text` has none.
fn fill(text: &mut String, name: &str, what: &str) -> bool {
    let (from, to) = (format!("<!-- {name}, by `seekless-lab docs` -->\n"), "<!-- end -->");
    let Some(start) = text.find(&from).map(|at| at + from.len()) else { return false };
    let Some(len) = text[start..].find(to) else { return false };
    text.replace_range(start..start + len, what);
    true
}

/// Names of pages in `folder` that are not what the records in `records` give, and of files there that are no
/// page.
///
/// # Errors
/// Those of [`render`].
pub fn differences(records: &Path, folder: &Path) -> Result<Vec<String>, Fault> {
    let mut pages = render(records)?;
    pages.extend(front(records, folder)?);
    let differs = |(name, text): &(&String, &String)| {
        std::fs::read_to_string(folder.join(name)).ok().as_deref() != Some(text.as_str())
    };
    let mut names: Vec<String> = pages.iter().filter(differs).map(|(name, _)| name.clone()).collect();
    let there = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let there = there.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.extend(there.filter(|name| !pages.contains_key(name)));
    names.sort();
    Ok(names)
}

/// Writes every page. Returns their names.
///
/// # Errors
/// Those of [`render`]; `Exit::Failed` when a page cannot be written.
pub fn write(records: &Path, folder: &Path) -> Result<Vec<String>, Fault> {
    let mut pages = render(records)?;
    pages.extend(front(records, folder)?);
    std::fs::create_dir_all(folder).map_err(|e| Fault::failed(format!("{}: {e}", folder.display())))?;
    for (name, text) in &pages {
        seekless_output::whole(&folder.join(name), text)?;
    }
    Ok(pages.into_keys().collect())
}

/// "Circus 2004" is on `circus.md`.
fn file_name(heading: &str) -> String {
    let words = heading.split_whitespace().filter(|w| w.parse::<u32>().is_err());
    match heading {
        OWN => "own.md".into(),
        _ => words.collect::<Vec<_>>().join("-").to_lowercase() + ".md",
    }
}

fn index(pages: &BTreeMap<String, Vec<Entry>>, stated: &[Statement]) -> String {
    let mut text = String::from("# Results\n\n");
    text += &wrapped(
        "The last recorded run of each scenario. `seekless-lab run NAME --sim --record` records a run, `seekless-lab docs` \
         writes these pages from the records in [`results/`](../../results). Nothing here is typed by hand. A scenario \
         runs with `sim` in the simulator, with `live` on a software disk in real time. A check states a conclusion of \
         its paper or a target of this project; one that fails stays in the table.",
    );
    text += "\n\n## What the papers state\n\n";
    text += &wrapped(
        "A sentence of a paper about an outcome is one statement: a value, which is reproduced within a fifth of it, an \
         order, a sign, or a printed bound ([STATEMENTS](../STATEMENTS.md)). Fitted is one by which a parameter was \
         chosen ([CHOSEN](../CHOSEN.md)), predicted any other that is reproduced. The rows are those of the simulator \
         where it can run the scenario, else live ones. Not decidable is what needs data that are not published, or a \
         part that is not modelled. `seekless-lab statements` prints the same.",
    );
    text += "\n\n";
    text += &statements::table(stated, |paper| format!("[{paper}]({}#statements)", file_name(paper)));
    for (heading, scenarios) in pages {
        let file = file_name(heading);
        let _ = write!(text, "\n## [{heading}]({file})\n\n");
        text += "| Figure | What is compared | Scenario | Run | Checks that hold |\n| --- | --- | --- | --- | ---: |\n";
        for entry in scenarios {
            let figure = cell(entry.scenario.figure.as_deref().unwrap_or("-"));
            let title = cell(&entry.scenario.title);
            let link = format!("[`{0}`]({file}#{0})", entry.name);
            let runs: Vec<_> = entry.record.iter().flat_map(|r| &r.runs).collect();
            if runs.is_empty() {
                let _ = writeln!(text, "| {figure} | {title} | {link} | not recorded | |");
            }
            for (driver, run) in runs {
                let results = entry.record.as_ref().and_then(|r| r.results(driver, &entry.scenario));
                let checks = results.map_or_else(Vec::new, |r| r.checks);
                let held = checks.iter().filter(|c| c.pass).count();
                let of = checks.len();
                let _ = writeln!(
                    text,
                    "| {figure} | {title} | {link} | {driver}, {} | {held} of {of} |",
                    run.date
                );
            }
        }
    }
    text
}

fn page(heading: &str, scenarios: &[Entry], stated: &[Statement]) -> String {
    let mut text = format!("# {heading}\n\n");
    text += &wrapped(
        "Written by `seekless-lab docs` from the recorded runs; see the [index](README.md). A published value stands in \
         brackets. Throughput is in MB/s of 1,000,000 bytes.",
    );
    text += "\n";
    let stated: Vec<&Statement> = stated.iter().filter(|s| s.paper == heading).collect();
    if !stated.is_empty() {
        statements_of(&mut text, &stated);
    }
    for entry in scenarios {
        section(&mut text, entry);
    }
    text
}

/// Counts, then every statement: first what is not reproduced, then what is, then what cannot be told.
fn statements_of(text: &mut String, stated: &[&Statement]) {
    let Counts { all, predicted, fitted, not_reproduced, undecided, not_run } =
        Counts::of(stated.iter().copied());
    let _ = write!(
        text,
        "\n## Statements\n\n{}\n",
        wrapped(&format!(
            "Of {all} statements {predicted} are predicted, {fitted} are fitted, {not_reproduced} are not reproduced, \
             {undecided} cannot be decided, and {not_run} have no recorded run \
             ([what counts](../STATEMENTS.md)). Several lines with one quote are parts of one statement: it is \
             reproduced if all of them hold."
        ))
    );
    for (outcome, heading) in [
        (Outcome::NotReproduced, "Not reproduced"),
        (Outcome::Reproduced, "Reproduced"),
        (Outcome::Undecided, "Not decidable"),
        (Outcome::NotRun, "Not run"),
    ] {
        let of_it: Vec<_> = stated.iter().filter(|s| s.outcome == outcome).collect();
        if of_it.is_empty() {
            continue;
        }
        let _ = write!(text, "\n### {heading}\n\n");
        if outcome == Outcome::Undecided {
            *text += "| Source | The paper states | Why it cannot be decided |\n| --- | --- | --- |\n";
        } else {
            *text += "| Source | The paper states | Here | Printed | Scenario |\n| --- | --- | ---: | ---: | --- |\n";
        }
        for Statement { scenario, name, source, value, printed, why, fitted, holds, .. } in of_it {
            let fitted = fitted.as_ref().map_or(String::new(), |by| format!(" (fitted: {by})"));
            let start = format!("| {} | {}{} |", cell(source), cell(name), cell(&fitted));
            let here = value.map_or("-".into(), number);
            let part_holds = outcome == Outcome::NotReproduced && *holds == Some(true);
            let _ = match outcome {
                Outcome::Undecided => {
                    writeln!(text, "{start} {} |", cell(why.as_deref().unwrap_or_default()))
                }
                _ => writeln!(
                    text,
                    "{start} {here}{} | {} | [`{scenario}`](#{scenario}) |",
                    if part_holds { " (holds)" } else { "" },
                    cell(printed)
                ),
            };
        }
    }
}

/// Notes and runs of a scenario.
fn section(text: &mut String, entry: &Entry) {
    let Entry { name, scenario, record } = entry;
    let figure = scenario.figure.as_deref().map_or(String::new(), |f| format!("{f}. "));
    let _ = write!(text, "\n## {name}\n\n{}\n", wrapped(&format!("{figure}{}.", scenario.title)));
    for (i, note) in scenario.notes.iter().enumerate() {
        *text += if i == 0 { "\n" } else { "" };
        let _ = writeln!(text, "{}", item(note));
    }
    let runs: Vec<_> =
        record.iter().flat_map(|record| record.runs.iter().map(move |run| (record, run))).collect();
    if runs.is_empty() {
        *text += "\nNo run is recorded.\n";
    }
    for (record, (driver, run)) in runs {
        if let Some(results) = record.results(driver, scenario) {
            run_of(text, &results, run);
        }
    }
}

/// One run: where it comes from, its tables, its checks.
fn run_of(text: &mut String, results: &Results, run: &Recorded) {
    let flag = if results.driver == "sim" { " --sim" } else { "" };
    let _ = write!(text, "\n### {} ({})\n\n", results.name, results.driver);
    *text += &wrapped(&format!(
        "`seekless-lab run {}{flag}`, version {}, {}, {}, Linux {}{}.",
        results.name,
        run.version,
        run.date,
        run.machine,
        run.kernel,
        run.servers.iter().map(|s| format!(", {s}")).collect::<String>(),
    ));
    *text += "\n";
    for remark in &run.remarks {
        let _ = writeln!(text, "\n{}", item(remark));
    }
    match &results.scenario.axis {
        // The remarks have a line for each constant.
        Some(_) if results.scenario.sim.constants.is_some() => {}
        Some(axis) if axis.is_of_servers() => *text += &super::works::page(results).unwrap_or_default(),
        Some(axis) => {
            for name in tabled(&results.scenario) {
                by_axis(text, results, axis, name);
            }
        }
        None => by_arm(text, results, results.scenario.metrics.iter().map(String::as_str)),
    }
    checks(text, results);
}

/// Metrics of a swept scenario that have a table: the main one and those with published values.
fn tabled(scenario: &Scenario) -> Vec<&str> {
    let main = scenario.main_metric();
    let published =
        |name: &&str| scenario.published.iter().any(|p| p.metric.as_deref().unwrap_or(main) == *name);
    let others = scenario.metrics.iter().map(String::as_str).filter(|name| *name != main).filter(published);
    std::iter::once(main).chain(others).collect()
}

/// A line for each axis value, a column for each arm.
fn by_axis(text: &mut String, results: &Results, axis: &Axis, name: &str) {
    let Ok(metric) = metric::find(name) else { return };
    let all = entries(results, name);
    if all.iter().all(|e| e.ours.is_none()) {
        return;
    }
    let mut arms: Vec<&str> = Vec::new();
    for entry in &all {
        if !arms.contains(&entry.arm.as_str()) {
            arms.push(&entry.arm);
        }
    }
    let unit = if metric.unit.is_empty() { String::new() } else { format!(" ({})", metric.unit) };
    let _ = write!(text, "\n{}\n\n", wrapped(&format!("`{name}`{unit}: {}.", metric.meaning)));
    let _ = writeln!(
        text,
        "| {} | {} |",
        cell(&axis.label),
        arms.iter().map(|a| cell(a)).collect::<Vec<_>>().join(" | ")
    );
    let _ = writeln!(text, "| --- |{}", " ---: |".repeat(arms.len()));
    for x in &axis.values {
        let _ = write!(text, "| {} |", cell(x));
        for arm in &arms {
            // A fixed arm has one value for all.
            let entry = all.iter().find(|e| e.arm == *arm && e.x.as_ref().is_none_or(|at| at == x));
            let _ = write!(text, " {} |", entry.map_or(String::new(), value));
        }
        *text += "\n";
    }
}

/// A line for each arm, a column for each of these metrics that was measured.
fn by_arm<'a>(text: &mut String, results: &Results, metrics: impl IntoIterator<Item = &'a str>) {
    let metrics = metrics.into_iter().filter_map(|name| metric::find(name).ok());
    let columns: Vec<_> = metrics
        .map(|m| (m, entries(results, m.name)))
        .filter(|(_, all)| all.iter().any(|e| e.ours.is_some()))
        .collect();
    let Some((_, arms)) = columns.first() else { return };
    let head = |m: &metric::Metric| match m.unit {
        "" => format!("`{}`", m.name),
        unit => format!("`{}` ({unit})", m.name),
    };
    let heads: Vec<String> = columns.iter().map(|(m, _)| head(m)).collect();
    let _ = write!(text, "\n| Arm | {} |\n| --- |{}\n", heads.join(" | "), " ---: |".repeat(columns.len()));
    for (i, arm) in arms.iter().enumerate() {
        let values: Vec<String> = columns.iter().map(|(_, all)| value(&all[i])).collect();
        let _ = writeln!(text, "| {} | {} |", cell(&arm.label()), values.join(" | "));
    }
}

/// Our median, the published value in brackets.
fn value(entry: &super::ComparisonEntry) -> String {
    let ours = entry.ours.map_or("-".into(), number);
    entry.published.map_or(ours.clone(), |published| format!("{ours} ({})", number(published)))
}

/// A line for each check, and the cause of each failure that has one.
fn checks(text: &mut String, results: &Results) {
    if results.checks.is_empty() {
        return;
    }
    *text += "\n| What must hold | Metric | Value | Target | |\n| --- | --- | ---: | ---: | --- |\n";
    for check in &results.checks {
        let _ = writeln!(
            text,
            "| {} | `{}` | {} | {} {} | {} |",
            cell(&check.name),
            check.metric,
            check.value.map_or("not measured".into(), number),
            cell(&check.comparison),
            number(check.target),
            if check.pass { "holds" } else { "**fails**" },
        );
    }
    let mut first = true;
    for (check, cause) in results.checks.iter().filter_map(|c| Some((c, c.deviation.as_ref()?))) {
        if std::mem::take(&mut first) {
            *text += "\n";
        }
        let value = check.value.map_or("not measured".into(), number);
        let _ = writeln!(text, "{}", item(&format!("\"{}\" fails with {value}. {cause}", check.name)));
    }
}

/// Text for a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

/// An item of a list.
fn item(text: &str) -> String {
    format!("- {}", wrap(text, WIDTH - 2).join("\n  "))
}

/// A paragraph.
fn wrapped(text: &str) -> String {
    wrap(text, WIDTH).join("\n")
}

fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.last_mut().expect("one line at least");
        match last.chars().count() {
            0 => *last += word,
            used if used + 1 + word.chars().count() <= width => *last += &format!(" {word}"),
            _ => lines.push(word.to_string()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record;
    use crate::report::tests::made_up;

    /// Records of two scenarios, one with a check that fails and has a known cause.
    fn records() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        record::add(dir.path(), &made_up("libception-closed-sizes")).unwrap();
        let mut failing = made_up("circus-fig12");
        for row in &mut failing.rows {
            row.metrics.values_mut().for_each(|value| *value = 0.0);
        }
        failing.judge();
        record::add(dir.path(), &failing).unwrap();
        dir
    }

    #[test]
    fn a_page_has_values_published_values_checks_and_causes() {
        let dir = records();
        let pages = render(dir.path()).unwrap();
        let libception = made_up("libception-closed-sizes");
        for published in &libception.scenario.published {
            assert!(pages["libception.md"].contains(&format!("({})", number(published.value))));
        }
        let circus = made_up("circus-fig12");
        for check in &circus.scenario.checks {
            assert!(pages["circus.md"].contains(&cell(&check.name)), "{}", check.name);
        }
        assert!(pages["circus.md"].contains("fails with 0."));
        assert!(pages["README.md"].contains("[`circus-fig12`](circus.md#circus-fig12)"));
        assert!(pages["own.md"].contains("No run is recorded."));
    }

    #[test]
    fn a_cause_is_shown_only_beside_a_check_that_fails() {
        let dir = tempfile::tempdir().unwrap();
        let (name, scenario) = scenario::find("circus-fig12").unwrap();
        let causes: Vec<&str> = scenario.checks.iter().filter_map(|c| c.deviation.as_deref()).collect();
        assert!(!causes.is_empty());
        // The check with a cause is about the 48 MB/s that the paper prints.
        for (value, shown) in [(0.0, true), (48.0, false)] {
            let mut results = made_up(&name);
            for row in &mut results.rows {
                row.metrics.values_mut().for_each(|metric| *metric = value);
            }
            results.judge();
            record::add(dir.path(), &results).unwrap();
            let page = render(dir.path()).unwrap()["circus.md"].replace("\n  ", " ");
            assert!(causes.iter().all(|cause| page.contains(cause) == shown), "at {value}");
        }
    }

    #[test]
    fn an_edited_page_and_a_stray_file_are_differences() {
        let (records, folder) = (records(), tempfile::tempdir().unwrap());
        assert!(differences(records.path(), folder.path()).unwrap().contains(&"circus.md".into()));
        write(records.path(), folder.path()).unwrap();
        assert!(differences(records.path(), folder.path()).unwrap().is_empty());
        let path = folder.path().join("circus.md");
        let text = std::fs::read_to_string(&path).unwrap().replacen("fails with 0.", "fails with 1.", 1);
        std::fs::write(&path, text).unwrap();
        std::fs::write(folder.path().join("notes.md"), "x").unwrap();
        assert_eq!(differences(records.path(), folder.path()).unwrap(), ["circus.md", "notes.md"]);
    }

    #[test]
    fn prose_is_wrapped() {
        let dir = records();
        for (name, page) in render(dir.path()).unwrap() {
            for line in page.lines().filter(|l| !l.starts_with('|')) {
                assert!(line.chars().count() <= WIDTH, "{name}: {line}");
            }
        }
    }
}
