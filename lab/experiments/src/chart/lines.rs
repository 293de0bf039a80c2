//! Lines and dots over one axis.

use std::ops::Range;

use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use seekless_base::Fault;

use crate::chart::{Area, Colour, Drawn, LARGE, SMALL, escape, svg};

const HEIGHT: u32 = 400;
/// Room left above the highest value, as a share of the axis.
const HEADROOM: f64 = 0.05;

/// How an axis is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Evenly.
    Linear,
    /// Evenly in the logarithm, values at powers of ten; what is not above zero is left out.
    Log10,
    /// The same with values at powers of two, for sizes.
    Log2,
}

impl Scale {
    fn base(self) -> Option<f64> {
        match self {
            Scale::Linear => None,
            Scale::Log10 => Some(10.0),
            Scale::Log2 => Some(2.0),
        }
    }
}

/// One of the two axes.
#[derive(Clone, Copy)]
pub struct Axis<'a> {
    /// What it measures, with the unit.
    pub title: &'a str,
    /// How it is divided.
    pub scale: Scale,
    /// What stands at a value.
    pub label: &'a dyn Fn(f64) -> String,
}

impl<'a> Axis<'a> {
    /// An axis of these parts.
    pub fn new(title: &'a str, scale: Scale, label: &'a dyn Fn(f64) -> String) -> Axis<'a> {
        Axis { title, scale, label }
    }
}

/// How a series is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// A line.
    Line,
    /// A line with a dot at each point.
    DottedLine,
    /// A dashed line with a ring at each point: published values.
    Dashed,
    /// Dots without a line.
    Dots,
}

/// What belongs together.
#[derive(Clone, Debug)]
pub struct Series {
    /// Its name in the key; none, if empty.
    pub name: String,
    /// Points, in the order of the line.
    pub points: Vec<(f64, f64)>,
    /// Its colour.
    pub colour: Colour,
    /// How it is drawn.
    pub mark: Mark,
}

/// A chart of lines.
pub struct Chart<'a> {
    /// From left to right.
    pub x: Axis<'a>,
    /// From below.
    pub y: Axis<'a>,
    /// Words below x = 0, 1, 2, ...; empty where x is a quantity.
    pub words: &'a [String],
    /// What is drawn, later ones above earlier ones.
    pub series: Vec<Series>,
}

impl Chart<'_> {
    /// The chart and its key as HTML; empty if no two points lie apart from left to right.
    ///
    /// # Errors
    /// The drawing library's.
    pub fn html(&self) -> Result<String, Fault> {
        let (x, y) = (self.x_range(), self.y_range());
        // Negated, as the range of no points is not a number's.
        if !(x.start < x.end && y.start < y.end) {
            return Ok(String::new());
        }
        let bottom = y.start;
        let log = |range: Range<f64>, base| range.log_scale().base(base);
        let drawn = svg(HEIGHT, |area| match (self.x.scale.base(), self.y.scale.base()) {
            (None, None) => self.draw(area, x, y, bottom),
            (None, Some(b)) => self.draw(area, x, log(y, b), bottom),
            (Some(a), None) => self.draw(area, log(x, a), y, bottom),
            (Some(a), Some(b)) => self.draw(area, log(x, a), log(y, b), bottom),
        })?;
        Ok(drawn + &self.key())
    }

    fn usable(&self, (x, y): &(f64, f64)) -> bool {
        let fits = |axis: &Axis, value: f64| axis.scale.base().is_none() || value > 0.0;
        fits(&self.x, *x) && fits(&self.y, *y)
    }

    fn extent(&self, coordinate: fn(&(f64, f64)) -> f64) -> Range<f64> {
        let points = self.series.iter().flat_map(|s| &s.points).filter(|p| self.usable(p)).map(coordinate);
        points.fold(f64::MAX..f64::MIN, |r, value| r.start.min(value)..r.end.max(value))
    }

    fn x_range(&self) -> Range<f64> {
        match self.words.len() {
            0 => self.extent(|p| p.0),
            n => -0.3..n as f64 - 0.7,
        }
    }

    fn y_range(&self) -> Range<f64> {
        let Range { start, end } = self.extent(|p| p.1);
        if self.y.scale.base().is_some() {
            return start..end * (end / start).powf(HEADROOM).max(1.01);
        }
        let start = start.min(0.0);
        if end > start { start..end + (end - start) * HEADROOM } else { start..start + 1.0 }
    }

    fn draw<X, Y>(&self, area: &Area, x: X, y: Y, bottom: f64) -> Drawn
    where
        X: AsRangedCoord<Value = f64>,
        Y: AsRangedCoord<Value = f64>,
        X::CoordDescType: ValueFormatter<f64>,
        Y::CoordDescType: ValueFormatter<f64>,
    {
        let mut chart = ChartBuilder::on(area)
            .margin(12)
            .set_label_area_size(LabelAreaPosition::Left, 75)
            .set_label_area_size(LabelAreaPosition::Bottom, 50)
            .build_cartesian_2d(x, y)?;
        let (x_label, y_label) = (|v: &f64| (self.x.label)(*v), |v: &f64| (self.y.label)(*v));
        let mut mesh = chart.configure_mesh();
        mesh.light_line_style(TRANSPARENT)
            .x_desc(self.x.title)
            .y_desc(self.y.title)
            .axis_desc_style(LARGE)
            .label_style(SMALL)
            .x_label_formatter(&x_label)
            .y_label_formatter(&y_label);
        if !self.words.is_empty() {
            mesh.disable_x_mesh().x_labels(0);
        }
        mesh.draw()?;
        let below = TextStyle::from(SMALL.into_font()).pos(Pos::new(HPos::Center, VPos::Top));
        for (i, word) in self.words.iter().enumerate() {
            // By pixels: a point below the axis would be moved onto it.
            let (x, y) = chart.backend_coord(&(i as f64, bottom));
            area.draw(&Text::new(word.clone(), (x, y + 8), below.clone()))?;
        }
        for Series { points, colour, mark, .. } in &self.series {
            let points = || points.iter().copied().filter(|p| self.usable(p));
            let dots = |size, style: ShapeStyle| points().map(move |p| Circle::new(p, size, style));
            match mark {
                Mark::Line => {
                    chart.draw_series(LineSeries::new(points(), colour.stroke_width(2)))?;
                }
                Mark::DottedLine => {
                    chart.draw_series(dots(4, colour.filled()))?;
                    chart.draw_series(LineSeries::new(points(), colour.stroke_width(3)))?;
                }
                Mark::Dashed => {
                    chart.draw_series(dots(5, colour.stroke_width(2)))?;
                    chart.draw_series(DashedLineSeries::new(points(), 6, 5, colour.stroke_width(2)))?;
                }
                Mark::Dots => {
                    chart.draw_series(dots(3, colour.filled()))?;
                }
            }
        }
        Ok(())
    }

    /// Which line is which.
    fn key(&self) -> String {
        let one = |s: &Series| {
            let RGBColor(r, g, b) = s.colour;
            let dash = if s.mark == Mark::Dashed { " stroke-dasharray=\"6 5\"" } else { "" };
            format!(
                "<span class=key><svg width=28 height=10><line x1=0 y1=5 x2=28 y2=5 stroke=\"rgb({r},{g},{b})\" stroke-width=3{dash} /></svg>{}</span>",
                escape(&s.name)
            )
        };
        let named: String = self.series.iter().filter(|s| !s.name.is_empty()).map(one).collect();
        if named.is_empty() { named } else { format!("<p>{named}</p>") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::colour;

    fn chart(scale: Scale, words: &[String], name: &str, points: &[(f64, f64)]) -> String {
        let (x, y) = (|v: f64| format!("x={v}."), |v: f64| format!("y={v}."));
        let one = |mark| Series { name: name.into(), points: points.to_vec(), colour: colour(0), mark };
        let series = [Mark::Line, Mark::DottedLine, Mark::Dashed, Mark::Dots].map(one).into();
        Chart { x: Axis::new("across", scale, &x), y: Axis::new("up", scale, &y), words, series }
            .html()
            .unwrap()
    }

    #[test]
    fn axes_lines_and_key_are_there() {
        let points = [(1.0, 0.5), (10.0, 1.0), (100.0, 4.0)];
        let linear = chart(Scale::Linear, &[], "a < b", &points);
        assert!(linear.starts_with("<svg") && linear.contains("across") && linear.contains("up"));
        assert!(linear.contains("x=20.") && linear.contains("y=0."), "values from zero stand at the axes");
        // The lines themselves, and a swatch a line in the key.
        assert!(linear.contains("<polyline") && linear.matches("class=key").count() == 4);
        assert!(linear.contains("a &lt; b"));
        assert_eq!(linear.matches("<circle").count(), 3 * 3);
        assert!(!chart(Scale::Linear, &[], "", &points).contains("<p>"), "no names, no key");
        let log = chart(Scale::Log10, &[], "", &points);
        assert!(log.contains("x=10.") && log.contains("x=100.") && !log.contains("x=20."));
    }

    #[test]
    fn words_replace_numbers_on_the_axis() {
        let words = ["few".to_string(), "many".to_string()];
        let drawn = chart(Scale::Linear, &words, "", &[(0.0, 2.0), (1.0, 3.0)]);
        assert!(drawn.contains("few") && drawn.contains("many") && !drawn.contains("x=0"));
    }

    #[test]
    fn charts_without_extent_and_points_without_logarithm_are_left_out() {
        assert_eq!(chart(Scale::Linear, &[], "a", &[]), "");
        assert_eq!(chart(Scale::Linear, &[], "a", &[(1.0, 2.0)]), "");
        assert_eq!(chart(Scale::Log10, &[], "a", &[(0.0, 1.0), (-1.0, 1.0), (2.0, 0.0)]), "");
        let log = chart(Scale::Log10, &[], "a", &[(0.0, 1.0), (1.0, 1.0), (2.0, 1.0)]);
        assert_eq!(log.matches("<circle").count(), 3 * 2, "a level line, without the point at zero");
    }
}
