//! Bars from left to right, one below the other.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use seekless_base::Fault;

use crate::chart::{Area, Colour, Drawn, LARGE, SMALL, svg};

/// Published values.
const PAPER: RGBColor = RGBColor(170, 170, 170);

/// One bar, and the published value below it.
#[derive(Clone, Debug)]
pub struct Bar {
    /// What stands at its left.
    pub label: String,
    /// Its length; nothing was measured without.
    pub value: Option<f64>,
    /// Least and greatest of several, drawn as a thin line.
    pub spread: Option<(f64, f64)>,
    /// Drawn thin and grey below.
    pub published: Option<f64>,
    /// Its colour.
    pub colour: Colour,
}

/// A chart of bars.
pub struct Bars<'a> {
    /// What the axis measures, with the unit.
    pub title: &'a str,
    /// What stands at a value.
    pub label: &'a dyn Fn(f64) -> String,
    /// The bars, from above.
    pub bars: Vec<Bar>,
}

impl Bars<'_> {
    /// The chart as SVG.
    ///
    /// # Errors
    /// The drawing library's.
    pub fn svg(&self) -> Result<String, Fault> {
        let step = if self.published() { 38 } else { 28 };
        svg(self.bars.len() as u32 * step + 60, |area| self.draw(area))
    }

    fn published(&self) -> bool {
        self.bars.iter().any(|b| b.published.is_some())
    }

    fn draw(&self, area: &Area) -> Drawn {
        let values = self.bars.iter().flat_map(|b| [b.value, b.published, b.spread.map(|s| s.1)]).flatten();
        let most = values.fold(0.0, f64::max).max(1e-9);
        let mut chart = ChartBuilder::on(area)
            .margin_right(if self.published() { 120 } else { 70 })
            .margin_top(8)
            .set_label_area_size(LabelAreaPosition::Left, 250)
            .set_label_area_size(LabelAreaPosition::Bottom, 40)
            .build_cartesian_2d(0.0..most, self.bars.len() as f64..0.0)?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .disable_y_axis()
            .light_line_style(TRANSPARENT)
            .x_desc(self.title)
            .axis_desc_style(LARGE)
            .label_style(SMALL)
            .x_label_formatter(&|x| (self.label)(*x))
            .draw()?;
        let right = TextStyle::from(LARGE.into_font()).pos(Pos::new(HPos::Right, VPos::Center));
        let left = TextStyle::from(SMALL.into_font()).pos(Pos::new(HPos::Left, VPos::Center));
        for (i, bar) in self.bars.iter().enumerate() {
            let top = i as f64;
            let bottom = top + if self.published() { 0.58 } else { 0.8 };
            let middle = f64::midpoint(top + 0.12, bottom);
            let value = bar.value.unwrap_or(0.0);
            chart.draw_series([Rectangle::new([(0.0, top + 0.12), (value, bottom)], bar.colour.filled())])?;
            if let Some((low, high)) = bar.spread.filter(|(low, high)| low != high) {
                let line = vec![(low, middle), (high, middle)];
                chart.draw_series([PathElement::new(line, BLACK.stroke_width(2))])?;
            }
            let text = bar.value.map_or(" -".into(), |v| format!(" {}", (self.label)(v)));
            let end = bar.spread.map_or(value, |(_, high)| high.max(value));
            chart.draw_series([Text::new(text, (end, middle), left.clone())])?;
            if let Some(paper) = bar.published {
                let thin = [(0.0, bottom + 0.02), (paper, top + 0.9)];
                chart.draw_series([Rectangle::new(thin, PAPER.filled())])?;
                let text = format!(" {} published", (self.label)(paper));
                let place = (paper, f64::midpoint(bottom + 0.02, top + 0.9));
                chart.draw_series([Text::new(text, place, left.clone())])?;
            }
            chart.draw_series([Text::new(format!("{} ", bar.label), (0.0, top + 0.5), right.clone())])?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::colour;

    #[test]
    fn every_bar_has_its_label_its_value_and_what_was_published() {
        let bar = |label: &str, value, published| Bar {
            label: label.into(),
            value,
            spread: value.map(|v| (v - 1.0, v + 1.0)),
            published,
            colour: colour(0),
        };
        let label = |v: f64| format!("[{v}]");
        let bars = vec![bar("one", Some(3.0), Some(2.5)), bar("two", None, None)];
        let drawn = Bars { title: "MB/s", label: &label, bars }.svg().unwrap();
        for text in ["one", "[3]", "[2.5] published", "two", "MB/s"] {
            assert!(drawn.contains(text), "{text}");
        }
        let none = Bars { title: "", label: &label, bars: vec![bar("two", None, None)] }.svg().unwrap();
        assert!(!none.contains("published"));
    }
}
