//! Charts of the HTML reports as SVG text, in one style: colours, axes, lines, bars, and a key below the
//! chart, where it covers nothing.
//!
//! Must not know: what is drawn, and where the page goes.

mod bars;
mod lines;

use std::error::Error;

use plotters::coord::Shift;
use plotters::prelude::*;
use seekless_base::Fault;

pub use bars::{Bar, Bars};
pub use lines::{Axis, Chart, Mark, Scale, Series};
pub use plotters::style::RGBColor as Colour;
pub use seekless_output::html_escaped as escape;

/// Style rules that a page with keys needs.
pub const STYLE: &str =
    ".key{display:inline-block;margin-right:1rem}.key svg{vertical-align:middle;margin-right:.3rem}";
/// Pixels across; pages scale it down where they are narrower.
pub const WIDTH: u32 = 860;
/// Colour-blind safe colours (Okabe and Ito).
const COLOURS: [Colour; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(120, 120, 120),
    RGBColor(0, 0, 0),
];
/// Titles of axes, and values that stand for themselves.
const LARGE: (&str, u32) = ("sans-serif", 14);
/// What stands at an axis.
const SMALL: (&str, u32) = ("sans-serif", 13);

/// The colour of the `index`-th of what is told apart; after eight they repeat.
pub fn colour(index: usize) -> Colour {
    COLOURS[index % COLOURS.len()]
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn Error>>;

/// A white area that `draw` draws upon.
fn svg(height: u32, draw: impl FnOnce(&Area) -> Drawn) -> Result<String, Fault> {
    let mut text = String::new();
    let whole = |area: Area| -> Drawn {
        area.fill(&WHITE)?;
        draw(&area)?;
        area.present()?;
        Ok(())
    };
    whole(SVGBackend::with_string(&mut text, (WIDTH, height)).into_drawing_area())
        .map_err(|e| Fault::failed(format!("a chart cannot be drawn: {e}")))?;
    Ok(text)
}
