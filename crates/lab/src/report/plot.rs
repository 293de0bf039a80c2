//! Plots as SVG text: bars where arms or words are compared, lines over sizes, cumulative distributions.

use std::error::Error;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::Entry;
use super::html::escape;
use crate::metric::Metric;
use crate::results::Results;
use crate::scenario::Axis;

/// A line of a plot.
struct Series {
    name: String,
    points: Vec<(f64, f64)>,
    colour: RGBColor,
    /// Printed in the paper: drawn dashed, in its arm's colour.
    published: bool,
}
type Drawn = Result<String, Box<dyn Error>>;

/// Colour-blind safe colours (Okabe and Ito), one an arm.
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(120, 120, 120),
    RGBColor(0, 0, 0),
];
/// Published values.
const PAPER: RGBColor = RGBColor(170, 170, 170);
const WIDTH: u32 = 860;
/// More bars than this are no picture: the table beside says it better.
pub(super) const BARS_MAX: usize = 40;
/// Width of a letter under an axis, about.
const LETTER: usize = 8;

fn colour(index: usize) -> RGBColor {
    COLOURS[index % COLOURS.len()]
}

/// A metric: lines when the axis is a size or a count and the metric varies along it, bars otherwise.
pub(super) fn metric(results: &Results, metric: &Metric, entries: &[Entry]) -> Drawn {
    match &results.scenario.axis {
        Some(axis) if is_scale(axis) && entries.iter().any(|e| e.x.is_some()) => lines(results, metric, axis),
        _ if entries.len() > BARS_MAX => Ok(String::new()),
        _ => bars(results, metric, entries),
    }
}

/// Whether the values are quantities, more than two, that have room beside each other.
fn is_scale(axis: &Axis) -> bool {
    let quantity = |v: &String| v.starts_with(|c: char| c.is_ascii_digit()) && !v.contains(' ');
    let letters: usize = axis.values.iter().map(|v| v.len() + 1).sum();
    axis.values.len() > 2 && axis.values.iter().all(quantity) && letters * LETTER < WIDTH as usize
}

/// Horizontal bars, the published value thin and grey below ours.
fn bars(results: &Results, metric: &Metric, entries: &[Entry]) -> Drawn {
    let arms: Vec<&String> = results.scenario.arms.iter().map(|a| &a.name).collect();
    let published = entries.iter().any(|e| e.published.is_some());
    let step = if published { 38 } else { 28 };
    let count = u32::try_from(entries.len())?;
    let most = entries
        .iter()
        .flat_map(|e| [e.ours, e.published, e.spread.map(|s| s.1)])
        .flatten()
        .fold(0.0, f64::max)
        .max(1e-9);
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, count * step + 60)).into_drawing_area();
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&area)
            .margin_right(if published { 120 } else { 70 })
            .margin_top(8)
            .set_label_area_size(LabelAreaPosition::Left, 250)
            .set_label_area_size(LabelAreaPosition::Bottom, 40)
            .build_cartesian_2d(0.0..most, f64::from(count)..0.0)?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .disable_y_axis()
            .light_line_style(TRANSPARENT)
            .x_desc(metric.unit)
            .axis_desc_style(("sans-serif", 14))
            .label_style(("sans-serif", 13))
            .x_label_formatter(&|x| super::number(*x))
            .draw()?;
        let right = TextStyle::from(("sans-serif", 14).into_font()).pos(Pos::new(HPos::Right, VPos::Center));
        let left = TextStyle::from(("sans-serif", 13).into_font()).pos(Pos::new(HPos::Left, VPos::Center));
        for (i, entry) in entries.iter().enumerate() {
            let top = i as f64;
            let arm = arms.iter().position(|a| entry.arm == **a).unwrap_or(0);
            let bottom = top + if published { 0.58 } else { 0.8 };
            let ours = entry.ours.unwrap_or(0.0);
            chart.draw_series([Rectangle::new([(0.0, top + 0.12), (ours, bottom)], colour(arm).filled())])?;
            if let Some((low, high)) = entry.spread.filter(|(low, high)| low != high) {
                let middle = f64::midpoint(top + 0.12, bottom);
                chart.draw_series([PathElement::new(
                    vec![(low, middle), (high, middle)],
                    BLACK.stroke_width(2),
                )])?;
            }
            let value = entry.ours.map_or("-".into(), super::number);
            let end = entry.spread.map_or(ours, |(_, high)| high.max(ours));
            chart.draw_series([Text::new(
                format!(" {value}"),
                (end, f64::midpoint(top + 0.12, bottom)),
                left.clone(),
            )])?;
            if let Some(paper) = entry.published {
                chart.draw_series([Rectangle::new(
                    [(0.0, bottom + 0.02), (paper, top + 0.9)],
                    PAPER.filled(),
                )])?;
                let text = format!(" {} published", super::number(paper));
                chart.draw_series([Text::new(
                    text,
                    (paper, f64::midpoint(bottom + 0.02, top + 0.9)),
                    left.clone(),
                )])?;
            }
            chart.draw_series([Text::new(format!("{} ", entry.label()), (0.0, top + 0.5), right.clone())])?;
        }
        area.present()?;
    }
    Ok(svg)
}

/// One line an arm over the axis values, dashed where published; fixed arms as level lines.
fn lines(results: &Results, metric: &Metric, axis: &Axis) -> Drawn {
    let values = &axis.values;
    let series = series(results, metric.name, values);
    let last = values.len() as f64 - 1.0;
    let most = series.iter().flat_map(|s| &s.points).map(|(_, y)| *y).fold(0.0, f64::max).max(1e-9) * 1.08;
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, 400)).into_drawing_area();
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&area)
            .margin(12)
            .set_label_area_size(LabelAreaPosition::Left, 65)
            .set_label_area_size(LabelAreaPosition::Bottom, 50)
            .build_cartesian_2d(-0.3..last + 0.3, 0.0..most)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .x_labels(0)
            .x_desc(&axis.label)
            .y_desc(metric.unit)
            .axis_desc_style(("sans-serif", 14))
            .label_style(("sans-serif", 13))
            .y_label_formatter(&|y| super::number(*y))
            .light_line_style(TRANSPARENT)
            .draw()?;
        let below = TextStyle::from(("sans-serif", 13).into_font()).pos(Pos::new(HPos::Center, VPos::Top));
        for (i, value) in values.iter().enumerate() {
            // By pixels: a point below the axis would be moved onto it.
            let (x, y) = chart.backend_coord(&(i as f64, 0.0));
            area.draw(&Text::new(value.clone(), (x, y + 8), below.clone()))?;
        }
        for Series { points, colour, published, .. } in &series {
            let line = points.iter().copied();
            if *published {
                chart.draw_series(points.iter().map(|p| Circle::new(*p, 5, colour.stroke_width(2))))?;
                chart.draw_series(DashedLineSeries::new(line, 6, 5, colour.stroke_width(2)))?;
            } else {
                chart.draw_series(points.iter().map(|p| Circle::new(*p, 4, colour.filled())))?;
                chart.draw_series(LineSeries::new(line, colour.stroke_width(3)))?;
            }
        }
        area.present()?;
    }
    Ok(svg + &key(&series))
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
        let colour = colour(i);
        let both = [(arm.name.clone(), ours, false), (format!("{}, published", arm.name), paper, true)];
        // An arm without this metric has no place in the key either.
        let there = both.into_iter().filter(|(_, points, _)| !points.is_empty());
        series.extend(there.map(|(name, points, published)| Series { name, points, colour, published }));
    }
    series
}

/// Which line is which, below the plot, where it covers none of them.
fn key(series: &[Series]) -> String {
    let one = |s: &Series| {
        let RGBColor(r, g, b) = s.colour;
        let dash = if s.published { " stroke-dasharray=\"6 5\"" } else { "" };
        format!(
            "<span class=key><svg width=28 height=10><line x1=0 y1=5 x2=28 y2=5 stroke=\"rgb({r},{g},{b})\" stroke-width=3{dash} /></svg>{}</span>",
            escape(&s.name)
        )
    };
    format!("<p>{}</p>", series.iter().map(one).collect::<String>())
}

/// Cumulative distributions of the first repetition, one line an arm, over a logarithmic axis.
pub(super) fn cdf(results: &Results, name: &str) -> Drawn {
    let rows: Vec<_> =
        results.rows.iter().filter(|r| r.repetition == 0 && r.cdfs.contains_key(name)).collect();
    let all = || rows.iter().flat_map(|r| &r.cdfs[name]).map(|(x, _)| *x).filter(|x| *x > 0.0);
    let (low, high) = (all().fold(f64::MAX, f64::min), all().fold(0.0, f64::max));
    if low >= high || rows.len() > BARS_MAX {
        return Ok(String::new());
    }
    let one = |(i, row): (usize, &&crate::results::Row)| Series {
        name: row.x.as_ref().map_or(row.arm.clone(), |x| format!("{} @ {x}", row.arm)),
        points: row.cdfs[name].iter().copied().filter(|(x, _)| *x > 0.0).collect(),
        colour: colour(i),
        published: false,
    };
    let series: Vec<Series> = rows.iter().enumerate().map(one).collect();
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, 400)).into_drawing_area();
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&area)
            .margin(12)
            .set_label_area_size(LabelAreaPosition::Left, 50)
            .set_label_area_size(LabelAreaPosition::Bottom, 35)
            .build_cartesian_2d((low..high).log_scale(), 0.0..1.0)?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .label_style(("sans-serif", 13))
            .x_label_formatter(&|x| super::number(*x))
            .draw()?;
        for Series { points, colour, .. } in &series {
            chart.draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2)))?;
        }
        area.present()?;
    }
    Ok(svg + &key(&series))
}
