//! The page that lists every metric.

use std::fmt::Write as _;

use crate::metrics::defs;

/// `docs/METRICS.md`.
pub fn page() -> String {
    let mut text = String::from(
        "# Metrics\n\nThis page is written from `crates/frontend/src/metrics/defs.rs`, which defines every metric. Nobody edits it\nby hand. A test compares.\n\n\
         How to scrape them, and the rules and the dashboard that come with them, is in [OPERATIONS](OPERATIONS.md).\n\n\
         Counters count since the process started. A metric that is *stable* keeps its name, unit and labels until the\n\
         next major version. The label `disk` is the kernel's name of the disk, or `common`.\n\n\
         | metric | kind | unit | labels | meaning | |\n| --- | --- | --- | --- | --- | --- |\n",
    );
    for metric in defs::ALL {
        let labels: Vec<String> = metric.labels.iter().map(|l| format!("`{l}`")).collect();
        let _ = writeln!(
            text,
            "| `{}` | {} | {} | {} | {} | {} |",
            metric.name(),
            metric.kind.name(),
            metric.unit.name(),
            labels.join(", "),
            metric.meaning,
            metric.stability.name()
        );
    }
    text
}
