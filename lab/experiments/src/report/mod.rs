//! The report of a run: one HTML file that needs nothing else, drawn from `results.json` alone.

mod all;
mod html;
mod kernels;
pub(crate) mod machines;
pub mod pages;
mod plot;
pub(crate) mod sensitivity;
pub mod statements;
mod table;
mod works;

use std::path::{Path, PathBuf};

use seekless_base::Fault;

use crate::results::Results;

pub use all::{render_all, totals};
pub use html::render;
pub use table::{bar_chart, comparison, outcomes};

/// Writes `report.html` beside the results in `dir`.
///
/// # Errors
/// Those of reading the results and writing the report.
pub fn write(dir: &Path) -> Result<PathBuf, Fault> {
    let results = Results::read(&dir.join("results.json"))?;
    let path = dir.join("report.html");
    seekless_output::whole(&path, render(&results)?)?;
    Ok(path)
}

/// One line of a comparison: what, our value, the paper's.
#[derive(Clone, Debug, PartialEq)]
pub struct ComparisonEntry {
    /// The arm.
    pub arm: String,
    /// The axis value, where there is one.
    pub x: Option<String>,
    /// Median over repetitions.
    pub ours: Option<f64>,
    /// Smallest and largest over repetitions.
    pub spread: Option<(f64, f64)>,
    /// Published value.
    pub published: Option<f64>,
    /// Where that was printed.
    pub source: Option<String>,
}

impl ComparisonEntry {
    /// Arm, with the axis value where there is one.
    pub fn label(&self) -> String {
        label(&self.arm, self.x.as_deref())
    }
}

fn label(arm: &str, x: Option<&str>) -> String {
    x.map_or(arm.to_owned(), |x| format!("{arm} @ {x}"))
}

/// Every arm (at every axis value) with a metric, in the scenario's order.
pub fn entries(results: &Results, metric: &str) -> Vec<ComparisonEntry> {
    let scenario = &results.scenario;
    scenario
        .points()
        .into_iter()
        .map(|point| {
            let arm = &point.arm.name;
            let values: Vec<f64> = results
                .rows
                .iter()
                .filter(|r| r.arm == *arm && r.x == point.x)
                .filter_map(|r| r.metrics.get(metric).copied())
                .collect();
            let published = scenario.published.iter().find(|p| {
                p.arm == *arm
                    && p.x == point.x
                    && p.metric.as_deref().unwrap_or(scenario.main_metric()) == metric
            });
            ComparisonEntry {
                arm: arm.clone(),
                x: point.x.clone(),
                ours: results.median(arm, point.x.as_deref(), metric),
                spread: values.iter().copied().reduce(f64::min).zip(values.iter().copied().reduce(f64::max)),
                published: published.map(|p| p.value),
                source: published.map(|p| p.source.clone()),
            }
        })
        .collect()
}

/// A number as people want to read it: three significant figures, no exponent.
pub fn number(value: f64) -> String {
    let magnitude = value.abs();
    if !value.is_finite() {
        return "-".into();
    }
    let places = match magnitude {
        m if m >= 100.0 => 0,
        m if m >= 10.0 => 1,
        m if m >= 0.1 || m == 0.0 => 2,
        _ => 4,
    };
    // The sum of no values is -0.
    let text = format!("{:.places$}", value + 0.0);
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_string() } else { text }
}

#[cfg(test)]
pub(crate) mod tests {
    use seekless_base::Exit;

    use super::*;
    use crate::environment::Environment;
    use crate::results::{Row, SCHEMA};
    use crate::scenario;

    /// Invented rows for a scenario: every metric at every point, and a distribution.
    pub(crate) fn made_up(name: &str) -> Results {
        let (name, scenario) = scenario::find(name).unwrap();
        let mut rows = Vec::new();
        for (position, point) in scenario.points().into_iter().enumerate() {
            let mut row = Row {
                arm: point.arm.name,
                x: point.x,
                position: u32::try_from(position).unwrap(),
                ..Row::default()
            };
            for metric in &scenario.metrics {
                row.metrics.insert(metric.clone(), 10.0 + position as f64);
            }
            row.cdfs.insert("call_ms".into(), vec![(0.01, 0.2), (1.0, 0.5), (30.0, 1.0)]);
            rows.push(row);
        }
        let mut results = Results {
            schema: SCHEMA,
            name,
            driver: "live".into(),
            quick: false,
            complete: true,
            pass: false,
            rows,
            checks: Vec::new(),
            remarks: vec!["<b>not bold</b>".into()],
            environment: Environment::here(),
            scenario,
        };
        results.judge();
        results
    }

    #[test]
    fn every_scenario_renders_whole_and_self_contained() {
        for (name, _) in scenario::all() {
            let results = made_up(name);
            let html = render(&results).unwrap();
            assert!(html.starts_with("<!DOCTYPE html>") && html.trim_end().ends_with("</html>"));
            assert!(html.contains("<svg") || results.rows.len() > plot::BARS_MAX, "{name} shows nothing");
            assert_eq!(html.matches("<svg").count(), html.matches("</svg>").count());
            assert!(!html.contains("src=") && !html.contains("href=\"http"), "{name} loads something");
            assert!(html.contains("&lt;b&gt;not bold&lt;/b&gt;"));
            for outcome in &results.checks {
                assert!(html.contains(&crate::chart::escape(&outcome.name)), "{name}: {}", outcome.name);
            }
            for published in &results.scenario.published {
                assert!(html.contains(&number(published.value)), "{name}: {}", published.value);
            }
            assert!(comparison(&results, 200).contains(&results.scenario.arms[0].name), "{name}");
            assert!(outcomes(&results, 200).contains(&results.scenario.checks[0].name[..10]));
        }
    }

    #[test]
    fn the_page_of_all_has_what_does_not_hold_and_causes_that_are_known() {
        let mut results = made_up("circus-fig12");
        for row in &mut results.rows {
            row.metrics.values_mut().for_each(|value| *value = 0.0);
        }
        results.judge();
        let causes = results.checks.iter().filter(|c| !c.pass && c.deviation.is_some()).count();
        let failed = results.checks.iter().filter(|c| !c.pass).count();
        assert!(0 < causes && causes < failed);
        let all = [results];
        let page = render_all("All", &all, &[("soak".into(), "runs live only".into())], None).unwrap();
        let top = page.split("<details").next().unwrap();
        assert_eq!(top.matches("class=why").count(), causes);
        assert!(page.contains("<li>soak: runs live only</li>"));
        assert_eq!(totals(&all, &[]).matches("does not hold").count(), failed);
    }

    #[test]
    fn results_read_back_as_written() {
        let dir = tempfile::tempdir().unwrap();
        let results = made_up("libception-closed-sizes");
        results.write(&dir.path().join("results.json")).unwrap();
        let html = std::fs::read_to_string(write(dir.path()).unwrap()).unwrap();
        assert_eq!(html, render(&results).unwrap());
        let mut newer = results;
        newer.schema += 1;
        newer.write(&dir.path().join("results.json")).unwrap();
        assert_eq!(write(dir.path()).unwrap_err().exit, Exit::Usage);
        assert_eq!(write(&dir.path().join("nowhere")).unwrap_err().exit, Exit::Missing);
    }

    #[test]
    fn an_interrupted_run_renders_too() {
        let mut results = made_up("closed-loop");
        results.rows.truncate(1);
        results.complete = false;
        results.judge();
        assert!(!results.pass);
        assert!(render(&results).unwrap().contains("not complete"));
        results.rows.clear();
        render(&results).unwrap();
    }

    #[test]
    fn numbers_are_short() {
        for (value, text) in [
            (123.456, "123"),
            (1200.0, "1200"),
            (16.52, "16.5"),
            (4.5, "4.5"),
            (0.0, "0"),
            (-0.0, "0"),
            (0.00312, "0.0031"),
        ] {
            assert_eq!(number(value), text);
        }
    }
}
