//! Who pays: what files and programs cost the disks between two reports. Pure.

use seekless_engine::{CostReport, DiskReport};
use seekless_frontend::status::{StatusReport, program_name};
use serde::Serialize;

/// What a file or a program cost a disk between two reports.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct CostView {
    /// The disk.
    pub(crate) disk: String,
    /// The path of the file, or the program with its control group.
    pub(crate) name: String,
    /// User of the program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) user: Option<u32>,
    pub(crate) reads: u64,
    pub(crate) bytes: u64,
    pub(crate) seeks: u64,
    pub(crate) disk_ms: f64,
    /// Fraction of the time between the reports.
    pub(crate) share: f64,
    /// The kernel's own reads, and their bytes; their disk time is not known.
    pub(crate) kernel_reads: u64,
    pub(crate) kernel_bytes: u64,
}

impl CostView {
    /// The costs after an earlier report; `None` if there were none. What has a place among the costliest
    /// only now, and cost more than fits between the reports, has cost it before: it waits for the next
    /// report.
    fn between(old: Option<&CostReport>, new: &CostReport, seconds: f64) -> Option<CostView> {
        // It lost its place meanwhile and began anew.
        let old = old.filter(|old| old.reads <= new.reads && old.disk_ms <= new.disk_ms);
        let zero = CostReport::default();
        let old = match old {
            Some(old) => old,
            None if new.disk_ms <= seconds * 1e3 => &zero,
            None => return None,
        };
        let disk_ms = (new.disk_ms - old.disk_ms).max(0.0);
        let view = CostView {
            reads: new.reads.saturating_sub(old.reads),
            bytes: new.bytes.saturating_sub(old.bytes),
            seeks: new.seeks.saturating_sub(old.seeks),
            disk_ms,
            share: if seconds > 0.0 { disk_ms / 1e3 / seconds } else { 0.0 },
            kernel_reads: new.kernel_reads.saturating_sub(old.kernel_reads),
            kernel_bytes: new.kernel_bytes.saturating_sub(old.kernel_bytes),
            ..CostView::default()
        };
        (view.reads > 0 || view.kernel_reads > 0).then_some(view)
    }
}

/// Programs and files that cost a disk something between two reports, by falling disk time.
pub(crate) fn costs(
    old: Option<&StatusReport>,
    now: &StatusReport,
    seconds: f64,
) -> (Vec<CostView>, Vec<CostView>) {
    let (mut programs, mut files) = (Vec::new(), Vec::new());
    let Some(old) = old else { return (programs, files) };
    let none = DiskReport::default();
    for d in &now.disks {
        let before = old.disks.iter().find(|o| o.name == d.name).unwrap_or(&none);
        for p in &d.programs {
            let was = before.programs.iter().find(|o| o.program == p.program).map(|o| &o.cost);
            let Some(view) = CostView::between(was, &p.cost, seconds) else { continue };
            let (disk, name) = (d.name.clone(), program_name(&p.program));
            programs.push(CostView { disk, name, user: p.program.user, ..view });
        }
        for f in &d.files {
            let was = before.files.iter().find(|o| o.path == f.path).map(|o| &o.cost);
            let Some(view) = CostView::between(was, &f.cost, seconds) else { continue };
            files.push(CostView { disk: d.name.clone(), name: f.path.clone(), ..view });
        }
    }
    for list in [&mut programs, &mut files] {
        list.sort_by(|a, b| {
            b.disk_ms
                .total_cmp(&a.disk_ms)
                .then(b.kernel_bytes.cmp(&a.kernel_bytes))
                .then(a.name.cmp(&b.name))
        });
    }
    (programs, files)
}

/// Titles of [`row`], for a list of files or programs.
pub(crate) fn title(what: &str) -> String {
    format!("{:8} {:>8} {:>6} {:>7} {:>8} {:>7}  {what}", "DISK", "TIME", "SHARE", "READS", "MB", "SEEKS")
}

/// A line of text: disk, time, share, reads, megabytes, seeks, name.
pub(crate) fn row(c: &CostView) -> String {
    let by_kernel = match c.kernel_reads {
        0 => String::new(),
        n => format!(" (and {n} reads of {:.1} MB by the kernel)", c.kernel_bytes as f64 / 1e6),
    };
    format!(
        "{:8} {:>5.0} ms {:>4.0} % {:>7} {:>8.1} {:>7}  {}{by_kernel}",
        c.disk,
        c.disk_ms,
        100.0 * c.share,
        c.reads,
        c.bytes as f64 / 1e6,
        c.seeks,
        c.name
    )
}

/// Both lists as lines of text.
pub(crate) fn lines(programs: &[CostView], files: &[CostView]) -> Vec<String> {
    let mut lines = Vec::new();
    for (what, list) in [("PROGRAM", programs), ("FILE", files)] {
        lines.push(title(what));
        lines.extend(list.iter().map(row));
        if list.is_empty() {
            lines.push("nothing was read".into());
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use seekless_engine::{FileCost, Program, ProgramCost};

    fn cost(disk_ms: f64, reads: u64) -> CostReport {
        CostReport { reads, bytes: reads << 20, seeks: reads / 2, disk_ms, ..CostReport::default() }
    }

    fn report(files: &[(&str, f64, u64)], programs: &[(&str, f64, u64)]) -> StatusReport {
        let file =
            |&(path, ms, reads): &(&str, f64, u64)| FileCost { path: path.into(), cost: cost(ms, reads) };
        let program = |&(name, ms, reads): &(&str, f64, u64)| ProgramCost {
            program: Program { name: name.into(), group: format!("{name}.service"), user: Some(33) },
            cost: cost(ms, reads),
        };
        let disk = DiskReport {
            name: "sda".into(),
            files: files.iter().map(file).collect(),
            programs: programs.iter().map(program).collect(),
            ..Default::default()
        };
        StatusReport { disks: vec![disk], ..Default::default() }
    }

    #[test]
    fn what_cost_most_between_two_reports_comes_first() {
        let old = report(&[("/a", 90_000.0, 500), ("/b", 100.0, 5)], &[("nginx", 1000.0, 10)]);
        let new = report(
            &[("/a", 90_100.0, 501), ("/b", 700.0, 25), ("/new", 200.0, 4), ("/old", 5_000.0, 9)],
            &[("nginx", 1000.0, 10), ("rsync", 800.0, 8)],
        );
        let (programs, files) = costs(Some(&old), &new, 1.0);
        let names: Vec<(&str, f64)> = files.iter().map(|f| (f.name.as_str(), f.disk_ms)).collect();
        // What /old cost cannot have been within this second.
        assert_eq!(names, [("/b", 600.0), ("/new", 200.0), ("/a", 100.0)]);
        assert_eq!((files[0].reads, files[0].seeks, files[0].share), (20, 10, 0.6));
        assert_eq!((programs.len(), programs[0].name.as_str(), programs[0].user), (1, "rsync", Some(33)));
        assert!(costs(None, &new, 0.0).0.is_empty(), "one report says nothing of a second");
    }

    #[test]
    fn a_file_that_lost_its_place_begins_anew() {
        let old = report(&[("/a", 500.0, 50)], &[]);
        let new = report(&[("/a", 30.0, 3)], &[]);
        assert_eq!(costs(Some(&old), &new, 1.0).1[0].disk_ms, 30.0);
    }

    #[test]
    fn lists_are_text_with_what_is_not_known() {
        let of_kernel = CostView {
            disk: "sda".into(),
            name: "/x".into(),
            kernel_reads: 3,
            kernel_bytes: 1_500_000,
            ..Default::default()
        };
        let text = lines(&[], &[of_kernel]).join("\n");
        assert!(text.contains("nothing was read"), "{text}");
        assert!(text.ends_with("/x (and 3 reads of 1.5 MB by the kernel)"), "{text}");
    }
}
