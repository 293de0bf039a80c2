//! A live run beside the simulation of the same scenario: how well reality was predicted.

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{ContentArrangement, Table};
use seekless_base::Fault;
use serde::Serialize;

use crate::report::number;
use crate::results::Results;

/// How far a prediction may be off, as a share: throughput, and the 95th percentile of latency.
const LIMITS: [(&str, f64); 2] = [("mb_s", 0.10), ("p95_ms", 0.15)];

/// One arm at one axis value.
#[derive(Clone, Debug, Serialize)]
pub struct ComparedCell {
    /// The arm, with its axis value.
    pub label: String,
    /// The metric.
    pub metric: &'static str,
    /// Median over the live repetitions.
    pub live: f64,
    /// Median over the simulated repetitions.
    pub simulated: f64,
    /// Simulated over live, less one.
    pub off: f64,
    /// Whether that is within the limit.
    pub within: bool,
}

/// Compares every arm both have.
///
/// # Errors
/// `Exit::Usage`: the two are not a live and a simulated run of one scenario, or have no arm in common.
pub fn compare(a: &Results, b: &Results) -> Result<Vec<ComparedCell>, Fault> {
    let (live, simulated) = match (a.driver.as_str(), b.driver.as_str()) {
        ("live", "sim") => (a, b),
        ("sim", "live") => (b, a),
        (one, other) => {
            return Err(Fault::usage(format!(
                "compare a live run with a simulated one; these are {one} and {other}"
            )));
        }
    };
    if live.name != simulated.name {
        return Err(Fault::usage(format!(
            "these are runs of two scenarios, `{}` and `{}`",
            live.name, simulated.name
        )));
    }
    let mut lines = Vec::new();
    for point in live.scenario.points() {
        let x = point.x.as_deref();
        for (metric, limit) in LIMITS {
            let value = |r: &Results| r.median(&point.arm.name, x, metric).filter(|v| *v > 0.0);
            let (Some(l), Some(s)) = (value(live), value(simulated)) else { continue };
            let off = s / l - 1.0;
            let label = x.map_or(point.arm.name.clone(), |x| format!("{} @ {x}", point.arm.name));
            lines.push(ComparedCell {
                label,
                metric,
                live: l,
                simulated: s,
                off,
                within: off.abs() <= limit,
            });
        }
    }
    if lines.is_empty() {
        return Err(Fault::usage("the two runs have no arm with mb_s or p95_ms in common"));
    }
    Ok(lines)
}

/// The lines as a table, and how many are within.
pub fn text(lines: &[ComparedCell], width: u16) -> String {
    let mut table = Table::new();
    table
        .load_style(UTF8_FULL_CONDENSED)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(width);
    table.set_header(["arm", "metric", "live", "simulated", "off", ""]);
    for line in lines {
        table.add_row([
            line.label.clone(),
            line.metric.to_string(),
            number(line.live),
            number(line.simulated),
            format!("{:+.1} %", line.off * 100.0),
            if line.within { "within".into() } else { "OUTSIDE".to_string() },
        ]);
    }
    let within = lines.iter().filter(|l| l.within).count();
    format!("{table}\n{within} of {} predictions within the limits\n", lines.len())
}

#[cfg(test)]
mod tests {
    use seekless_base::Exit;

    use super::*;
    use crate::environment::Environment;
    use crate::results::{Row, SCHEMA};
    use crate::scenario;

    fn results(driver: &str, mb: f64, p95: f64) -> Results {
        let (name, scenario) = scenario::find("closed-loop").unwrap();
        let row = Row {
            arm: scenario.arms[0].name.clone(),
            metrics: [("mb_s".to_string(), mb), ("p95_ms".to_string(), p95)].into(),
            ..Row::default()
        };
        Results {
            schema: SCHEMA,
            name,
            driver: driver.into(),
            quick: false,
            complete: true,
            pass: true,
            rows: vec![row],
            checks: Vec::new(),
            remarks: Vec::new(),
            environment: Environment::here(),
            scenario,
        }
    }

    #[test]
    fn predictions_are_judged_by_their_limits() {
        let lines = compare(&results("sim", 109.0, 120.0), &results("live", 100.0, 100.0)).unwrap();
        assert_eq!(lines.iter().map(|l| l.within).collect::<Vec<_>>(), [true, false]);
        assert!(text(&lines, 100).contains("1 of 2"));
        let same = compare(&results("live", 1.0, 1.0), &results("live", 1.0, 1.0));
        assert_eq!(same.unwrap_err().exit, Exit::Usage);
    }
}
