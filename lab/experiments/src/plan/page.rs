//! A self-contained HTML page: text, tables, charts; nothing is fetched from anywhere.

use std::fmt::Write as _;
use std::path::Path;

use crate::chart::{Axis, Chart, Mark, Series, colour, escape};
use seekless_base::Fault;

const STYLE: &str = "body{font:15px/1.5 sans-serif;max-width:860px;margin:2em auto;padding:0 1em;color:#222}\
table{border-collapse:collapse;margin:1em 0}td,th{padding:.25em .8em;border-bottom:1px solid #ddd;text-align:right}\
td:first-child,th:first-child{text-align:left}.note{color:#666}svg{max-width:100%;height:auto}";

pub(crate) struct Page {
    html: String,
}

/// Lines with a name each; none, if empty.
pub(crate) fn chart<'a>(x: Axis<'a>, y: Axis<'a>, lines: Vec<(String, Vec<(f64, f64)>)>) -> Chart<'a> {
    let line = |(i, (name, points))| Series { name, points, colour: colour(i), mark: Mark::Line };
    Chart { x, y, words: &[], series: lines.into_iter().enumerate().map(line).collect() }
}

impl Page {
    pub(crate) fn new(title: &str) -> Page {
        let title = escape(title);
        Page {
            html: format!(
                "<!DOCTYPE html>\n<html lang=en><head><meta charset=utf-8><title>{title}</title><style>{STYLE}{}</style></head>\
                 <body><h1>{title}</h1>\n",
                crate::chart::STYLE
            ),
        }
    }

    pub(crate) fn heading(&mut self, text: &str) {
        let _ = writeln!(self.html, "<h2>{}</h2>", escape(text));
    }

    pub(crate) fn note(&mut self, text: &str) {
        let _ = writeln!(self.html, "<p class=note>{}</p>", escape(text));
    }

    /// The first row is the head.
    pub(crate) fn table(&mut self, rows: &[Vec<String>]) {
        self.html.push_str("<table>");
        for (i, row) in rows.iter().enumerate() {
            let cell = if i == 0 { "th" } else { "td" };
            self.html.push_str("<tr>");
            for text in row {
                let _ = write!(self.html, "<{cell}>{}</{cell}>", escape(text));
            }
            self.html.push_str("</tr>");
        }
        self.html.push_str("</table>\n");
    }

    pub(crate) fn chart(&mut self, chart: &Chart) -> Result<(), Fault> {
        let _ = writeln!(self.html, "<div>{}</div>", chart.html()?);
        Ok(())
    }

    /// Writes the page; it appears whole or not at all.
    pub(crate) fn write(mut self, path: &Path) -> Result<(), Fault> {
        self.html.push_str("</body></html>\n");
        seekless_output::whole(path, &self.html)
    }
}
