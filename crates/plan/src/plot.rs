//! Line charts as SVG text.

use std::error::Error;

use plotters::prelude::*;

/// Writes an axis value.
pub(crate) type Label = fn(f64) -> String;

/// A chart to be drawn.
pub(crate) struct Chart<'a> {
    pub(crate) x: &'a str,
    pub(crate) y: &'a str,
    /// Logarithmic axes.
    pub(crate) log: (bool, bool),
    /// What stands at an axis value.
    pub(crate) labels: (Label, Label),
    /// Name and points of each line; no name, no legend.
    pub(crate) series: Vec<(String, Vec<(f64, f64)>)>,
}

/// Colour-blind safe colours (Okabe and Ito).
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
];
const FRAME: RGBColor = RGBColor(170, 170, 170);
const SIZE: (u32, u32) = (760, 380);

fn scale(value: f64, log: bool) -> f64 {
    if log { value.log10() } else { value }
}

fn unscale(value: f64, log: bool) -> f64 {
    if log { 10_f64.powf(value) } else { value }
}

impl Chart<'_> {
    /// The chart as SVG; empty if there is nothing to show.
    pub(crate) fn svg(&self) -> String {
        // Drawing into a string does not fail but for a chart without extent.
        self.draw().unwrap_or_default()
    }

    fn draw(&self) -> Result<String, Box<dyn Error>> {
        let usable = |p: &&(f64, f64)| (!self.log.0 || p.0 > 0.0) && (!self.log.1 || p.1 > 0.0);
        let scaled: Vec<Vec<(f64, f64)>> = self
            .series
            .iter()
            .map(|(_, points)| {
                points
                    .iter()
                    .filter(usable)
                    .map(|p| (scale(p.0, self.log.0), scale(p.1, self.log.1)))
                    .collect()
            })
            .collect();
        let all = || scaled.iter().flatten();
        let (x0, x1) = all().fold((f64::MAX, f64::MIN), |(a, b), p| (a.min(p.0), b.max(p.0)));
        let (mut y0, y1) = all().fold((f64::MAX, f64::MIN), |(a, b), p| (a.min(p.1), b.max(p.1)));
        if x0 >= x1 {
            return Ok(String::new());
        }
        if !self.log.1 {
            y0 = y0.min(0.0);
        }
        let y1 = if y1 > y0 { y1 + (y1 - y0) * 0.04 } else { y0 + 1.0 };
        let mut svg = String::new();
        {
            let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
            area.fill(&WHITE)?;
            let mut chart = ChartBuilder::on(&area)
                .margin(12)
                .set_label_area_size(LabelAreaPosition::Left, 80)
                .set_label_area_size(LabelAreaPosition::Bottom, 44)
                .build_cartesian_2d(x0..x1, y0..y1)?;
            chart
                .configure_mesh()
                .light_line_style(TRANSPARENT)
                .x_desc(self.x)
                .y_desc(self.y)
                .x_labels(8)
                .y_labels(8)
                .x_label_formatter(&|v| (self.labels.0)(unscale(*v, self.log.0)))
                .y_label_formatter(&|v| (self.labels.1)(unscale(*v, self.log.1)))
                .draw()?;
            for (i, points) in scaled.into_iter().enumerate() {
                let style = COLOURS[i % COLOURS.len()].stroke_width(2);
                let drawn = chart.draw_series(LineSeries::new(points, style))?;
                if !self.series[i].0.is_empty() {
                    drawn
                        .label(self.series[i].0.clone())
                        .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], style));
                }
            }
            if self.series.iter().any(|(name, _)| !name.is_empty()) {
                chart
                    .configure_series_labels()
                    .background_style(WHITE.mix(0.85))
                    .border_style(FRAME)
                    .position(SeriesLabelPosition::UpperLeft)
                    .draw()?;
            }
            area.present()?;
        }
        Ok(svg)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_is_drawn_and_one_of_nothing_is_empty() {
        let chart = |points| Chart {
            x: "x",
            y: "y",
            log: (true, false),
            labels: (|v| format!("{v:.0}"), |v| format!("{v:.1}")),
            series: vec![("a line".into(), points)],
        };
        let svg = chart(vec![(1.0, 0.0), (10.0, 1.0), (100.0, 4.0)]).svg();
        assert!(svg.starts_with("<svg") && svg.contains("polyline") && svg.contains("a line"));
        assert!(chart(vec![]).svg().is_empty());
        assert!(chart(vec![(0.0, 1.0), (-1.0, 1.0)]).svg().is_empty());
    }
}
