//! What a report draws: bars where arms or words are compared, lines over sizes, cumulative distributions.

use crate::chart::{Axis, Bar, Bars, Chart, Colour, Mark, Scale, Series, WIDTH, colour};
use seekless_base::Fault;

use super::{ComparisonEntry, label, number};
use crate::metric::Metric;
use crate::results::{Results, Row};
use crate::scenario;

/// More bars than this are no picture: the table beside says it better.
pub(super) const BARS_MAX: usize = 40;
/// Width of a letter under an axis, about.
const LETTER: usize = 8;

/// A metric: lines when the axis is a size or a count and the metric varies along it, bars otherwise.
pub(super) fn metric(
    results: &Results,
    metric: &Metric,
    entries: &[ComparisonEntry],
) -> Result<String, Fault> {
    match &results.scenario.axis {
        Some(axis) if is_scale(axis) && entries.iter().any(|e| e.x.is_some()) => lines(results, metric, axis),
        _ if entries.len() > BARS_MAX => Ok(String::new()),
        _ => bars(results, metric, entries),
    }
}

/// Whether the values are quantities, more than two, that have room beside each other.
fn is_scale(axis: &scenario::Axis) -> bool {
    let quantity = |v: &String| v.starts_with(|c: char| c.is_ascii_digit()) && !v.contains(' ');
    let letters: usize = axis.values.iter().map(|v| v.len() + 1).sum();
    axis.values.len() > 2 && axis.values.iter().all(quantity) && letters * LETTER < WIDTH as usize
}

/// One bar an entry, in its arm's colour.
fn bars(results: &Results, metric: &Metric, entries: &[ComparisonEntry]) -> Result<String, Fault> {
    let one = |entry: &ComparisonEntry| Bar {
        label: entry.label(),
        value: entry.ours,
        spread: entry.spread,
        published: entry.published,
        colour: colour(results.scenario.arms.iter().position(|a| a.name == entry.arm).unwrap_or(0)),
    };
    Bars { title: metric.unit, label: &number, bars: entries.iter().map(one).collect() }.svg()
}

/// One line an arm over the axis values, dashed where published; fixed arms as level lines.
fn lines(results: &Results, metric: &Metric, axis: &scenario::Axis) -> Result<String, Fault> {
    Chart {
        x: Axis::new(&axis.label, Scale::Linear, &number),
        y: Axis::new(metric.unit, Scale::Linear, &number),
        words: &axis.values,
        series: series(results, metric.name, &axis.values),
    }
    .html()
}

/// What there is to draw: each arm, and what is published of it.
fn series(results: &Results, metric: &str, values: &[String]) -> Vec<Series> {
    let scenario = &results.scenario;
    let last = values.len() as f64 - 1.0;
    let place = |x: &str| values.iter().position(|v| v == x).map(|i| i as f64);
    let mut series = Vec::new();
    for (i, arm) in scenario.arms.iter().enumerate() {
        let ours: Vec<(f64, f64)> = match arm.fixed {
            true => results.median(&arm.name, None, metric).map_or(vec![], |y| vec![(0.0, y), (last, y)]),
            false => values
                .iter()
                .filter_map(|x| Some((place(x)?, results.median(&arm.name, Some(x), metric)?)))
                .collect(),
        };
        let paper: Vec<(f64, f64)> = scenario
            .published
            .iter()
            .filter(|p| p.arm == arm.name && p.metric.as_deref().unwrap_or(scenario.main_metric()) == metric)
            .flat_map(|p| match &p.x {
                Some(x) => place(x).map(|x| (x, p.value)).into_iter().collect::<Vec<_>>(),
                None => vec![(0.0, p.value), (last, p.value)],
            })
            .collect();
        let colour: Colour = colour(i);
        let both = [
            Series { name: arm.name.clone(), points: ours, colour, mark: Mark::DottedLine },
            Series { name: format!("{}, published", arm.name), points: paper, colour, mark: Mark::Dashed },
        ];
        // An arm without this metric has no place in the key either.
        series.extend(both.into_iter().filter(|s| !s.points.is_empty()));
    }
    series
}

/// Cumulative distributions of the first repetition, one line an arm, over a logarithmic axis.
pub(super) fn cdf(results: &Results, name: &str) -> Result<String, Fault> {
    let first = |r: &&Row| r.repetition == 0 && r.cdfs.contains_key(name);
    let rows: Vec<&Row> = results.rows.iter().filter(first).collect();
    if rows.len() > BARS_MAX {
        return Ok(String::new());
    }
    let one = |(i, row): (usize, &Row)| Series {
        name: label(&row.arm, row.x.as_deref()),
        points: row.cdfs[name].clone(),
        colour: colour(i),
        mark: Mark::Line,
    };
    Chart {
        x: Axis::new("", Scale::Log10, &number),
        y: Axis::new("", Scale::Linear, &number),
        words: &[],
        series: rows.into_iter().enumerate().map(one).collect(),
    }
    .html()
}
