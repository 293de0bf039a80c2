//! The effect of each constant of the read path: the largest changes by half and double of it.

use seekless_policy::Constants;
use serde_json::json;

use crate::results::{Results, Row};
use crate::scenario::{FACTORS, arm_name};

/// The compared metrics: metric, name in the table, and whether it is a share already, whose difference
/// counts instead of its ratio.
const EFFECTS: [(&str, &str, bool); 3] =
    [("score_mb_s", "throughput", false), ("p99_ms", "p99", false), ("evicted_share", "evicted", true)];

/// A constant with a smaller effect does not matter for throughput.
const MATTERS: f64 = 0.01;

/// The minimum and maximum change of one metric from `base` to `arm` on any machine, in per cent.
fn change(results: &Results, base: &str, arm: &str, metric: &str, is_part: bool) -> Option<(f64, f64)> {
    let of = |row: &Row, arm: &str| (row.arm == arm).then(|| row.metrics.get(metric).copied()).flatten();
    let changes = results.rows.iter().filter_map(|row| {
        let then = of(row, arm)?;
        let same = |r: &&Row| r.x == row.x && r.repetition == row.repetition;
        let before = results.rows.iter().filter(same).find_map(|r| of(r, base))?;
        let change = if is_part { then - before } else { then / before - 1.0 };
        change.is_finite().then_some(100.0 * change)
    });
    changes.fold(None, |range: Option<(f64, f64)>, c| {
        Some(range.map_or((c, c), |(least, most)| (least.min(c), most.max(c))))
    })
}

/// One line for each constant, the largest effects on throughput first; empty if constants are not varied.
pub(crate) fn summary(results: &Results) -> Vec<String> {
    let Some(base) = &results.scenario.sim.constants else { return Vec::new() };
    let constants = json!(Constants::default());
    let mut lines: Vec<(f64, String)> = Vec::new();
    for (constant, value) in constants.as_object().into_iter().flatten() {
        let mut most = 0.0_f64;
        let mut said = Vec::new();
        for (factor, _) in FACTORS {
            let arm = arm_name(constant, factor);
            let effects = EFFECTS.iter().filter_map(|&(metric, name, is_part)| {
                let (low, high) = change(results, base, &arm, metric, is_part)?;
                if metric == EFFECTS[0].0 {
                    most = most.max(low.abs()).max(high.abs());
                }
                Some(format!("{name} {low:+.1} to {high:+.1}"))
            });
            said.push(format!("{factor}: {}", effects.collect::<Vec<_>>().join(", ")));
        }
        lines.push((most, format!("`{constant}` = {value}, change in per cent; {}", said.join("; "))));
    }
    lines.sort_by(|a, b| b.0.total_cmp(&a.0));
    let little: Vec<String> = lines.iter().filter(|l| l.0 < 100.0 * MATTERS).map(|l| l.1.clone()).collect();
    let names: Vec<&str> = little.iter().filter_map(|l| l.split('`').nth(1)).collect();
    let mut said: Vec<String> = lines.iter().map(|(_, line)| line.clone()).collect();
    said.push(match names.is_empty() {
        true => "every constant changes throughput by 1 % or more on some machine".into(),
        false => format!("less than 1 % of throughput on every machine: {}", names.join(", ")),
    });
    said
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario;

    #[test]
    fn the_largest_change_on_any_machine_is_said() {
        let blank = crate::report::tests::made_up("sensitivity");
        let base = blank.scenario.sim.constants.clone().unwrap();
        let row = |arm: &str, x: &str, mb_s: f64| Row {
            arm: arm.into(),
            x: Some(x.into()),
            metrics: [("score_mb_s".to_string(), mb_s)].into(),
            ..Row::default()
        };
        let half = arm_name("queue_ahead", "half");
        let rows = vec![
            row(&base, "1:0", 100.0),
            row(&base, "1:1", 50.0),
            row(&half, "1:0", 98.0),
            row(&half, "1:1", 51.5),
        ];
        let results = Results { rows, ..blank };
        let said = summary(&results);
        assert!(
            said[0].starts_with("`queue_ahead`") && said[0].contains("throughput -2.0 to +3.0"),
            "{said:?}"
        );
        assert!(!said.last().unwrap().contains("queue_ahead"), "{said:?}");
    }

    #[test]
    fn every_constant_has_an_arm_for_half_and_one_for_double() {
        let (_, scenario) = scenario::find("sensitivity").unwrap();
        let constants = json!(Constants::default());
        for name in constants.as_object().unwrap().keys() {
            for (factor, _) in FACTORS {
                let arm = scenario.arms.iter().find(|a| a.name == arm_name(name, factor));
                let words = &arm.unwrap_or_else(|| panic!("{name}, {factor}")).sim;
                assert!(words.iter().any(|w| w.starts_with(&format!("{name}="))), "{words:?}");
            }
        }
    }
}
