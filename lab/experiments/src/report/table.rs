//! The same for a terminal: a table, the checks, a bar chart.

use std::fmt::Write;

use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use comfy_table::{CellAlignment, ContentArrangement, Table};

use super::{entries, number};
use crate::metric;
use crate::results::Results;

fn new_table(width: u16) -> Table {
    let mut table = Table::new();
    table
        .load_style(UTF8_HORIZONTAL_ONLY)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(width);
    table
}

/// Every arm with the scenario's metrics, and the published value of the main one.
pub fn comparison(results: &Results, width: u16) -> String {
    if let Some(table) = super::machines::table(results) {
        return table;
    }
    let scenario = &results.scenario;
    let columns: Vec<_> = scenario.metrics.iter().filter_map(|name| metric::find(name).ok()).collect();
    let mut table = new_table(width);
    let published = !scenario.published.is_empty();
    let mut header = vec!["arm".to_string()];
    for column in &columns {
        let unit = if column.unit.is_empty() { String::new() } else { format!(" ({})", column.unit) };
        header.push(format!("{}{unit}", column.name));
    }
    if published {
        header.push("published".into());
    }
    let width = header.len();
    table.set_header(header);
    let by_metric: Vec<_> = columns.iter().map(|m| entries(results, m.name)).collect();
    for (i, entry) in by_metric.first().into_iter().flatten().enumerate() {
        let mut line = vec![entry.label()];
        line.extend(by_metric.iter().map(|m| m[i].ours.map_or("-".into(), number)));
        if published {
            line.push(entry.published.map_or(String::new(), number));
        }
        table.add_row(line);
    }
    for column in 1..width {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.to_string()
}

/// The checks and whether they hold.
pub fn outcomes(results: &Results, width: u16) -> String {
    let mut table = new_table(width);
    table.set_header(["what must hold", "value", "target", ""]);
    for check in &results.checks {
        table.add_row([
            check.name.clone(),
            check.value.map_or("not measured".into(), number),
            format!("{} {}", check.comparison, number(check.target)),
            if check.pass { "holds" } else { "FAILS" }.into(),
        ]);
    }
    table.to_string()
}

/// Bars of the main metric, `width` columns in all.
pub fn bar_chart(results: &Results, width: u16) -> String {
    /// Eighths of a character cell.
    const PARTS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    let name = results.scenario.main_metric();
    let unit = metric::find(name).map_or("", |m| m.unit);
    let all = entries(results, name);
    let label = all.iter().map(|e| e.label().chars().count()).max().unwrap_or(0);
    let room = usize::from(width).saturating_sub(label + 16).clamp(10, 60);
    let most = all.iter().filter_map(|e| e.ours).fold(0.0, f64::max);
    let mut chart = String::new();
    for entry in all {
        let ours = entry.ours.unwrap_or(0.0);
        let eighths = if most > 0.0 { (ours / most * room as f64 * 8.0).round() as usize } else { 0 };
        let mut bar = "█".repeat(eighths / 8);
        if eighths % 8 > 0 {
            bar.push(PARTS[eighths % 8]);
        }
        let value = entry.ours.map_or("-".into(), number);
        let _ = writeln!(chart, "{:label$}  {bar} {value} {unit}", entry.label());
    }
    chart
}
