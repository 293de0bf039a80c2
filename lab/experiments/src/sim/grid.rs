//! The best of a grid of settings: every combination runs at full length under one load, and the one that
//! serves most is measured under other loads.
//!
//! Closed loops are judged by MB/s, sessions by MB/s at the highest rate without failures, found by bisection
//! for each combination. The best of many that differ by chance looks too good under the load by which it was
//! chosen, so that load is used for nothing else.

use serde_json::Value;

use super::translate;
use crate::scenario::{Arm, GridSearch, Point, Scenario};

/// One combination of settings.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    /// Values of the knobs, in the grid's order.
    pub(super) words: Vec<String>,
    /// The arm with these settings.
    pub(super) arm: Arm,
    /// Its command line under the load by which it is chosen; no repetition has that load.
    pub(super) line: Vec<String>,
}

/// Every combination of `best`'s grid for the arm of `point`.
///
/// # Errors
/// A knob does not take a value; or no combination fits this server.
pub(super) fn candidates(
    scenario: &Scenario,
    point: &Point,
    best: &GridSearch,
) -> Result<Vec<Candidate>, String> {
    let one = |(words, arm): (Vec<String>, Arm)| {
        let turned = Point { arm: arm.clone(), ..point.clone() };
        let line = translate::arguments(scenario, &turned, scenario.repetitions);
        Candidate { words, arm, line }
    };
    let all: Vec<_> = best.candidates(&point.arm, &point.load)?.into_iter().map(one).collect();
    match all.is_empty() {
        true => Err(format!("arm `{}`: nothing of its grid fits this server", point.arm.name)),
        false => Ok(all),
    }
}

/// The best answer; of equal ones the first.
pub(super) fn best<'a>(answers: impl IntoIterator<Item = &'a Value>) -> usize {
    let scores = answers.into_iter().map(score).enumerate();
    scores.reduce(|best, next| if next.1 > best.1 { next } else { best }).map_or(0, |(i, _)| i)
}

/// MB/s by which a machine is judged.
pub(super) fn score(answer: &Value) -> f64 {
    let number = |path: &str| answer.pointer(path).and_then(Value::as_f64);
    match answer.pointer("/load/kind").and_then(Value::as_str) {
        // If no rate held, nothing is served without failures.
        Some("search") => number("/load/max_mb_per_s").unwrap_or(0.0),
        _ => number("/load/measured/mb_per_s").unwrap_or(0.0),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::scenario;

    #[test]
    fn every_combination_that_a_server_has_is_run_once() {
        let (_, scenario) = scenario::find("any-disk").unwrap();
        for point in scenario.points().into_iter().filter(|p| p.arm.name == "tuned kernel") {
            let grid = point.arm.best.clone().unwrap();
            let mut lines: Vec<_> =
                candidates(&scenario, &point, &grid).unwrap().into_iter().map(|c| c.line).collect();
            let each = point.arm.server.unwrap().variants().len();
            // None is measured under the load by which it was chosen.
            for repetition in 0..scenario.repetitions {
                let measured = translate::arguments(&scenario, &point, repetition);
                let seed = |line: &[String]| line.iter().skip_while(|w| *w != "--seed").nth(1).cloned();
                assert!(lines.iter().all(|line| seed(line).is_some() && seed(line) != seed(&measured)));
            }
            lines.sort();
            lines.dedup();
            assert_eq!(lines.len(), 8 * 3 * each, "{:?}", point.arm.server);
        }
    }

    #[test]
    fn a_grid_that_fits_no_server_is_said() {
        let (_, scenario) = scenario::find("any-disk").unwrap();
        let mut point = scenario.points().into_iter().find(|p| p.arm.best.is_some()).unwrap();
        let grid: GridSearch = toml::from_str("grid = [{ knob = 'variant', values = ['threads'] }]").unwrap();
        point.arm.server = Some(scenario::ServerKind::Lighttpd);
        assert!(candidates(&scenario, &point, &grid).unwrap_err().contains("nothing of its grid"));
    }

    #[test]
    fn the_best_is_what_serves_most_without_failures() {
        let closed = |mb_s: f64| json!({ "load": { "kind": "closed", "measured": { "mb_per_s": mb_s } } });
        assert_eq!(best(&[closed(3.0), closed(5.0), closed(5.0), closed(1.0)]), 1);
        // The throughput at a failing rate does not count.
        let search = |max: Option<f64>| json!({ "load": { "kind": "search", "max_mb_per_s": max, "measured": { "mb_per_s": 99.0 } } });
        assert_eq!(best(&[search(None), search(Some(2.0)), search(Some(4.0)), search(None)]), 2);
        assert_eq!(best(&[search(None)]), 0);
    }
}
