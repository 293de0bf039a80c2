//! The best of a grid of settings: every combination runs at full length, and the best by what it serves is taken.
//!
//! Closed loops are judged by MB/s, sessions by MB/s at the highest rate that holds, found by a bisection for each
//! combination. A run takes a fraction of a second, so nothing is left out. The best of many that differ by chance is a little
//! too high; that is to the advantage of the arm that is searched.

use serde_json::Value;

use super::translate;
use crate::scenario::{Best, Point, Scenario};

/// One combination of settings.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    /// Values of the knobs, in the grid's order.
    pub(super) words: Vec<String>,
    /// Its command line.
    pub(super) line: Vec<String>,
}

/// Every combination of `best`'s grid for the arm of `point`.
///
/// # Errors
/// A value that its knob does not take; a grid in which nothing fits this server.
pub(super) fn candidates(
    scenario: &Scenario,
    point: &Point,
    repetition: u32,
    best: &Best,
) -> Result<Vec<Candidate>, String> {
    let one = |(words, arm)| {
        let line = translate::arguments(scenario, &Point { arm, ..point.clone() }, repetition);
        Candidate { words, line }
    };
    let all: Vec<_> = best.candidates(&point.arm, &point.load)?.into_iter().map(one).collect();
    match all.is_empty() {
        true => Err(format!("arm `{}`: nothing of its grid fits this server", point.arm.name)),
        false => Ok(all),
    }
}

/// The best of some answers; of equal ones the first.
pub(super) fn best<'a>(answers: impl IntoIterator<Item = &'a Value>) -> usize {
    let scores = answers.into_iter().map(score).enumerate();
    scores.reduce(|best, next| if next.1 > best.1 { next } else { best }).map_or(0, |(i, _)| i)
}

/// MB/s by which a machine is judged.
pub(super) fn score(answer: &Value) -> f64 {
    let number = |path: &str| answer.pointer(path).and_then(Value::as_f64);
    match answer.pointer("/load/kind").and_then(Value::as_str) {
        // Where no rate held, nothing is served without failures.
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
                candidates(&scenario, &point, 0, &grid).unwrap().into_iter().map(|c| c.line).collect();
            let each = point.arm.server.unwrap().variants().len();
            lines.sort();
            lines.dedup();
            assert_eq!(lines.len(), 8 * 3 * each, "{:?}", point.arm.server);
        }
    }

    #[test]
    fn a_grid_that_fits_no_server_is_said() {
        let (_, scenario) = scenario::find("any-disk").unwrap();
        let mut point = scenario.points().into_iter().find(|p| p.arm.best.is_some()).unwrap();
        let grid: Best = toml::from_str("grid = [{ knob = 'variant', values = ['threads'] }]").unwrap();
        point.arm.server = Some(scenario::ServerKind::Lighttpd);
        assert!(candidates(&scenario, &point, 0, &grid).unwrap_err().contains("nothing of its grid"));
    }

    #[test]
    fn the_best_is_what_serves_most_without_failures() {
        let closed = |mb_s: f64| json!({ "load": { "kind": "closed", "measured": { "mb_per_s": mb_s } } });
        assert_eq!(best(&[closed(3.0), closed(5.0), closed(5.0), closed(1.0)]), 1);
        // What a failing rate delivers counts for nothing.
        let search = |max: Option<f64>| json!({ "load": { "kind": "search", "max_mb_per_s": max, "measured": { "mb_per_s": 99.0 } } });
        assert_eq!(best(&[search(None), search(Some(2.0)), search(Some(4.0)), search(None)]), 2);
        assert_eq!(best(&[search(None)]), 0);
    }
}
