//! The page that lists every metric.

use std::fmt::Write as _;

use crate::metrics::defs;

/// `docs/METRICS.md`.
pub fn page() -> String {
    let mut text = String::from(
        "# Metrics\n\n\
         This page is generated from `crates/frontend/src/metrics/defs.rs`, which defines every metric; a test\n\
         compares. [OPERATIONS](OPERATIONS.md#metrics) says how to scrape them, and has the rules and the dashboard.\n\n\
         Counters count since the start of the process. A *stable* metric keeps its name, unit and labels until the\n\
         next major version. The label `disk` is the kernel's name of the disk, or `common`.\n\n\
         `seekless daemon status --json` has more detail. Its fields keep their names too: `memory.stage` of a disk is\n\
         `ample`, or `drop-behind` while memory is short, which is the name of an earlier rule\n\
         ([TUNING](TUNING.md#memory) has the present one).\n\n\
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
