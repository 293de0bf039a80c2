//! Plots as SVG text: bars where arms or words are compared, lines over sizes, cumulative distributions.

use std::error::Error;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::Entry;
use crate::results::Results;

/// Name, points, colour.
type Series = (String, Vec<(f64, f64)>, RGBColor);
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

fn colour(index: usize) -> RGBColor {
    COLOURS[index % COLOURS.len()]
}

/// A metric: lines when the axis is a size or a count and the metric varies along it, bars otherwise.
pub(super) fn metric(results: &Results, name: &str, entries: &[Entry]) -> Drawn {
    match &results.scenario.axis {
        Some(axis)
            if axis.values.len() > 2
                && axis.values.iter().all(|v| v.starts_with(|c: char| c.is_ascii_digit()))
                && entries
                    .iter()
                    .any(|e| axis.values.iter().any(|x| e.label.ends_with(&format!(" @ {x}")))) =>
        {
            lines(results, name, &axis.label, &axis.values)
        }
        _ => bars(results, entries),
    }
}

/// Horizontal bars, the published value thin and grey below ours.
fn bars(results: &Results, entries: &[Entry]) -> Drawn {
    let arms: Vec<&String> = results.scenario.arms.iter().map(|a| &a.name).collect();
    let published = entries.iter().any(|e| e.published.is_some());
    let step = if published { 38 } else { 28 };
    let count = u32::try_from(entries.len())?;
    let most = entries.iter().flat_map(|e| [e.ours, e.published]).flatten().fold(0.0, f64::max).max(1e-9);
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, count * step + 50)).into_drawing_area();
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&area)
            .margin_right(70)
            .margin_top(8)
            .set_label_area_size(LabelAreaPosition::Left, 250)
            .set_label_area_size(LabelAreaPosition::Bottom, 30)
            .build_cartesian_2d(0.0..most, f64::from(count)..0.0)?;
        chart.configure_mesh().disable_y_mesh().disable_y_axis().light_line_style(TRANSPARENT).draw()?;
        let right = TextStyle::from(("sans-serif", 14).into_font()).pos(Pos::new(HPos::Right, VPos::Center));
        let left = TextStyle::from(("sans-serif", 13).into_font()).pos(Pos::new(HPos::Left, VPos::Center));
        for (i, entry) in entries.iter().enumerate() {
            let top = i as f64;
            let arm = arms
                .iter()
                .position(|a| entry.label == **a || entry.label.starts_with(&format!("{a} @ ")))
                .unwrap_or(0);
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
            chart.draw_series([Text::new(
                format!(" {value}"),
                (ours, f64::midpoint(top + 0.12, bottom)),
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
            chart.draw_series([Text::new(format!("{} ", entry.label), (0.0, top + 0.5), right.clone())])?;
        }
        area.present()?;
    }
    Ok(svg)
}

/// One line an arm over the axis values, dashed where published; fixed arms as level lines.
fn lines(results: &Results, metric: &str, label: &str, values: &[String]) -> Drawn {
    let scenario = &results.scenario;
    let last = values.len() as f64 - 1.0;
    let place = |x: &str| values.iter().position(|v| v == x).map(|i| i as f64);
    let mut series: Vec<Series> = Vec::new();
    for (i, arm) in scenario.arms.iter().enumerate() {
        let points: Vec<(f64, f64)> = match arm.fixed {
            true => results.median(&arm.name, None, metric).map_or(vec![], |y| vec![(0.0, y), (last, y)]),
            false => values
                .iter()
                .filter_map(|x| Some((place(x)?, results.median(&arm.name, Some(x), metric)?)))
                .collect(),
        };
        // An arm without this metric has no place in the legend either.
        if !points.is_empty() {
            series.push((arm.name.clone(), points, colour(i)));
        }
        let paper: Vec<(f64, f64)> = scenario
            .published
            .iter()
            .filter(|p| p.arm == arm.name && p.metric.as_deref().unwrap_or(scenario.main_metric()) == metric)
            .flat_map(|p| match &p.x {
                Some(x) => place(x).map(|x| (x, p.value)).into_iter().collect::<Vec<_>>(),
                None => vec![(0.0, p.value), (last, p.value)],
            })
            .collect();
        if !paper.is_empty() {
            series.push((format!("{}, published", arm.name), paper, PAPER));
        }
    }
    let most = series.iter().flat_map(|(_, p, _)| p).map(|(_, y)| *y).fold(0.0, f64::max).max(1e-9) * 1.08;
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, 420)).into_drawing_area();
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&area)
            .margin(12)
            .set_label_area_size(LabelAreaPosition::Left, 55)
            .set_label_area_size(LabelAreaPosition::Bottom, 50)
            .build_cartesian_2d(-0.3..last + 0.3, 0.0..most)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .x_labels(0)
            .x_desc(label)
            .light_line_style(TRANSPARENT)
            .draw()?;
        let below = TextStyle::from(("sans-serif", 13).into_font()).pos(Pos::new(HPos::Center, VPos::Top));
        for (i, value) in values.iter().enumerate() {
            chart.draw_series([Text::new(value.clone(), (i as f64, -most * 0.015), below.clone())])?;
        }
        for (name, points, colour) in series {
            let style = if colour == PAPER { colour.stroke_width(1) } else { colour.stroke_width(3) };
            chart.draw_series(points.iter().map(|p| Circle::new(*p, 4, colour.filled())))?;
            chart
                .draw_series(LineSeries::new(points, style))?
                .label(name)
                .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], style));
        }
        chart
            .configure_series_labels()
            .background_style(WHITE.mix(0.85))
            .border_style(PAPER)
            .position(SeriesLabelPosition::LowerRight)
            .draw()?;
        area.present()?;
    }
    Ok(svg)
}

/// Cumulative distributions of the first repetition, one line an arm, over a logarithmic axis.
pub(super) fn cdf(results: &Results, name: &str) -> Drawn {
    let rows: Vec<_> =
        results.rows.iter().filter(|r| r.repetition == 0 && r.cdfs.contains_key(name)).collect();
    let all = || rows.iter().flat_map(|r| &r.cdfs[name]).map(|(x, _)| *x).filter(|x| *x > 0.0);
    let (low, high) = (all().fold(f64::MAX, f64::min), all().fold(0.0, f64::max));
    if low >= high {
        return Ok(String::new());
    }
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, 420)).into_drawing_area();
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&area)
            .margin(12)
            .set_label_area_size(LabelAreaPosition::Left, 50)
            .set_label_area_size(LabelAreaPosition::Bottom, 35)
            .build_cartesian_2d((low..high).log_scale(), 0.0..1.0)?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .x_label_formatter(&|x| super::number(*x))
            .draw()?;
        for (i, row) in rows.iter().enumerate() {
            let colour = colour(i);
            let label = row.x.as_ref().map_or(row.arm.clone(), |x| format!("{} @ {x}", row.arm));
            let points = row.cdfs[name].iter().copied().filter(|(x, _)| *x > 0.0);
            chart
                .draw_series(LineSeries::new(points, colour.stroke_width(2)))?
                .label(label)
                .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], colour.stroke_width(2)));
        }
        chart
            .configure_series_labels()
            .background_style(WHITE.mix(0.85))
            .border_style(PAPER)
            .position(SeriesLabelPosition::LowerRight)
            .draw()?;
        area.present()?;
    }
    Ok(svg)
}
