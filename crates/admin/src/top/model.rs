//! What two reports of a daemon say about the time between them. Pure.

use std::collections::VecDeque;

use seekless_engine::DiskReport;
use serde::Serialize;

use seekless_frontend::status::StatusReport;

use super::costs::{self, CostView};

/// Maximum number of decisions kept for display; a screen has fewer lines.
const DECISIONS_MAX: usize = 64;

/// Minimum relative change of a budget that is reported: it moves a little at every memory report.
const BUDGET_CHANGE: f64 = 0.05;

/// Minimum relative change of a size that is reported. The controller slides towards its target in steps.
const SIZE_CHANGE: f64 = 0.02;

/// How a disk spent a second, as fractions that add up to one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Spent {
    /// Transferring, by the measured media rate; includes positioning if the disk was not measured.
    pub(crate) transferring: f64,
    /// Seeking and rotating; `None` if the disk was not measured.
    pub(crate) positioning: Option<f64>,
    /// Idle although a piece was queued.
    pub(crate) held_up: f64,
    /// Idle with nothing to do.
    pub(crate) idle: f64,
}

/// One disk between two reports.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct DiskView {
    pub(crate) name: String,
    pub(crate) spent: Spent,
    /// Bytes a second read from the disk.
    pub(crate) read_bytes_per_s: f64,
    /// Bytes a second that clients took.
    pub(crate) delivered_bytes_per_s: f64,
    pub(crate) streams: u64,
    /// Fraction of the second spent on file sets; `spent` includes it.
    pub(crate) file_sets: f64,
    /// Fraction of the second that writes had while the disk was read, and write requests that wait now.
    pub(crate) writes: f64,
    pub(crate) writes_waiting: u64,
    /// Calls waiting now.
    pub(crate) waiting: u64,
    pub(crate) queued: u64,
    /// Mean wait of the calls answered between the reports; `None` if there were none.
    pub(crate) wait_mean_ms: Option<f64>,
    pub(crate) prefetch_bytes: u64,
    pub(crate) unread_bytes: u64,
    pub(crate) budget_bytes: u64,
    /// What is kept in memory now.
    pub(crate) memory: String,
    /// Calls passed, by reason, since the daemon started; reasons without calls are left out.
    pub(crate) passed: Vec<(String, u64)>,
    pub(crate) evicted_unused_bytes: u64,
    pub(crate) wasted_bytes: u64,
    pub(crate) reads_failed: u64,
}

/// Everything that is displayed.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct View {
    pub(crate) version: String,
    pub(crate) pid: u32,
    pub(crate) socket: String,
    pub(crate) mode: String,
    pub(crate) prefetch: String,
    pub(crate) uptime_s: f64,
    /// Seconds between the two reports.
    pub(crate) seconds: f64,
    pub(crate) passes_all: bool,
    pub(crate) connections: u64,
    pub(crate) requests_per_s: f64,
    pub(crate) disks: Vec<DiskView>,
    /// What cost the disks most between the reports, by falling disk time.
    pub(crate) programs: Vec<CostView>,
    pub(crate) files: Vec<CostView>,
    /// Newest first.
    pub(crate) decisions: VecDeque<String>,
}

/// Follows a daemon from report to report.
#[derive(Debug, Default)]
pub(crate) struct Follower {
    last: Option<StatusReport>,
    decisions: VecDeque<String>,
}

impl Follower {
    /// Takes the next report. Returns what it says about the time since the last one. The first one has no
    /// rates.
    pub(crate) fn next(&mut self, now: StatusReport) -> View {
        // Another daemon starts its counts at zero.
        let old = self.last.take().filter(|old| old.pid == now.pid && old.uptime_ms <= now.uptime_ms);
        let seconds = old.as_ref().map_or(0.0, |old| (now.uptime_ms - old.uptime_ms) / 1e3);
        if let Some(old) = &old {
            for said in decisions(old, &now) {
                self.decisions.push_front(said);
            }
            self.decisions.truncate(DECISIONS_MAX);
        }
        let disk = |d: &DiskReport| {
            let before = old.as_ref().and_then(|old| old.disks.iter().find(|o| o.name == d.name));
            disk_view(d, before, seconds)
        };
        let needs = old.as_ref().map_or(0, |old| now.counters.needs.saturating_sub(old.counters.needs));
        let (programs, files) = costs::costs(old.as_ref(), &now, seconds);
        let view = View {
            version: now.version.clone(),
            pid: now.pid,
            socket: now.socket.clone(),
            mode: now.mode.clone(),
            prefetch: now.prefetch.clone(),
            uptime_s: now.uptime_ms / 1e3,
            seconds,
            passes_all: now.passes_all,
            connections: now.counters.connections_now,
            requests_per_s: if seconds > 0.0 { needs as f64 / seconds } else { 0.0 },
            disks: now.disks.iter().map(disk).collect(),
            programs,
            files,
            decisions: self.decisions.clone(),
        };
        self.last = Some(now);
        view
    }
}

fn disk_view(d: &DiskReport, before: Option<&DiskReport>, seconds: f64) -> DiskView {
    let per_s =
        |now: u64, old: u64| if seconds > 0.0 { now.saturating_sub(old) as f64 / seconds } else { 0.0 };
    let total_wait = |d: &DiskReport| d.wait.mean_ms * d.wait.count as f64;
    let mut view = DiskView {
        name: d.name.clone(),
        streams: d.streams_now,
        waiting: d.waiting_now,
        queued: d.queued_now,
        prefetch_bytes: d.size.size,
        unread_bytes: d.bytes_unread_now,
        budget_bytes: d.budget_bytes,
        memory: format!(
            "{}; longest wait {:.1} s",
            seekless_frontend::status::horizon(&d.memory),
            d.wait.max_ms / 1e3
        ),
        passed: d.passed.iter().filter(|(_, n)| **n > 0).map(|(why, n)| (why.clone(), *n)).collect(),
        evicted_unused_bytes: d.bytes_evicted_unused,
        wasted_bytes: d.bytes_wasted,
        writes_waiting: d.writers.waiting_now,
        reads_failed: d.reads_failed,
        ..Default::default()
    };
    let Some(old) = before.filter(|_| seconds > 0.0) else {
        view.spent.idle = 1.0;
        return view;
    };
    view.read_bytes_per_s = per_s(d.ledger.disk, old.ledger.disk);
    view.delivered_bytes_per_s = per_s(d.ledger.requested, old.ledger.requested);
    let answered = d.wait.count.saturating_sub(old.wait.count);
    view.wait_mean_ms = (answered > 0).then(|| (total_wait(d) - total_wait(old)).max(0.0) / answered as f64);
    let busy = ((d.disk_ms - old.disk_ms) / 1e3 / seconds).clamp(0.0, 1.0);
    let gap = |d: &DiskReport| d.gap.mean_ms * d.gap.count as f64 / 1e3;
    let held_up = ((gap(d) - gap(old)) / seconds).clamp(0.0, 1.0 - busy);
    let transfer = (d.media_rate > 0.0).then(|| (view.read_bytes_per_s / d.media_rate).min(busy));
    view.file_sets = ((d.file_sets.disk_ms - old.file_sets.disk_ms) / 1e3 / seconds).clamp(0.0, busy);
    view.writes = ((d.writers.disk_ms - old.writers.disk_ms) / 1e3 / seconds).clamp(0.0, 1.0);
    view.spent = Spent {
        transferring: transfer.unwrap_or(busy),
        positioning: transfer.map(|t| busy - t),
        held_up,
        idle: (1.0 - busy - held_up).max(0.0),
    };
    view
}

/// Decisions between two reports of one daemon, in words, as far as the reports show them.
fn decisions(old: &StatusReport, now: &StatusReport) -> Vec<String> {
    let mut said = Vec::new();
    if old.passes_all != now.passes_all {
        let what = if now.passes_all { "every call is passed from now on" } else { "calls are served again" };
        said.push(format!("daemon: {what}"));
    }
    for d in &now.disks {
        let Some(before) = old.disks.iter().find(|o| o.name == d.name) else {
            said.push(format!("{}: read for the first time", d.name));
            continue;
        };
        let mut say = |what: String| said.push(format!("{}: {what}", d.name));
        let moved = |a: u64, b: u64, part: f64| a > 0 && (a as f64 - b as f64).abs() > part * a as f64;
        if moved(before.size.size, d.size.size, SIZE_CHANGE) {
            say(format!("prefetch size {} to {}", mib(before.size.size), mib(d.size.size)));
        }
        if d.size.intervals != before.size.intervals && !d.size.decision.is_empty() {
            say(format!("size after an interval: {}", d.size.decision));
        }
        if moved(before.budget_bytes, d.budget_bytes, BUDGET_CHANGE) {
            say(format!("budget {} to {}", mib(before.budget_bytes), mib(d.budget_bytes)));
        }
        if before.memory.stage != d.memory.stage && !before.memory.stage.is_empty() {
            say(match d.memory.stage.as_str() {
                "ample" => "memory is ample: bytes that were read stay".into(),
                "drop-behind" => "memory is short: the bytes used last are given back".into(),
                other => format!("memory: {other}"),
            });
        }
        for (reason, n) in &d.passed {
            let more = n.saturating_sub(before.passed.get(reason).copied().unwrap_or(0));
            if more > 0 {
                say(format!("{more} calls passed: {reason}"));
            }
        }
        let evicted = d.bytes_evicted_unused.saturating_sub(before.bytes_evicted_unused);
        if evicted > 0 {
            say(format!("{} evicted before use", mib(evicted)));
        }
        if d.reads_failed > before.reads_failed {
            let why = d.last_error.as_deref().unwrap_or("no reason known");
            say(format!("{} reads failed: {why}", d.reads_failed - before.reads_failed));
        }
    }
    said
}

/// `6.2 MiB`, `1.4 GiB`.
pub(crate) fn mib(bytes: u64) -> String {
    let mib = bytes as f64 / f64::from(1 << 20);
    if mib >= 1024.0 { format!("{:.1} GiB", mib / 1024.0) } else { format!("{mib:.1} MiB") }
}

/// `3 d 4 h`, `4 h 5 min`, `5 min 6 s`, `6 s`.
pub(crate) fn span(seconds: f64) -> String {
    let s = seconds.max(0.0) as u64;
    match (s / 86_400, s / 3600 % 24, s / 60 % 60, s % 60) {
        (0, 0, 0, s) => format!("{s} s"),
        (0, 0, m, s) => format!("{m} min {s} s"),
        (0, h, m, _) => format!("{h} h {m} min"),
        (d, h, ..) => format!("{d} d {h} h"),
    }
}

/// The view as plain text for scripts and logs; with `files`, what cost the disks follows.
pub(crate) fn text(view: &View, files: bool) -> String {
    let mut lines = vec![format!(
        "daemon {} at {}: mode {}, prefetch {}, up {}, {:.0} requests/s{}",
        view.pid,
        view.socket,
        view.mode,
        view.prefetch,
        span(view.uptime_s),
        view.requests_per_s,
        if view.passes_all { ", every call is passed" } else { "" }
    )];
    if view.disks.is_empty() {
        lines.push("no disk has been read yet".into());
    }
    for d in &view.disks {
        let percent = |share: f64| format!("{:.0} %", 100.0 * share);
        let busy = match d.spent.positioning {
            Some(p) => format!("transferring {}, positioning {}", percent(d.spent.transferring), percent(p)),
            None => format!("reading {}", percent(d.spent.transferring)),
        };
        let wait = d.wait_mean_ms.map_or("-".to_string(), |ms| format!("{ms:.1} ms"));
        lines.push(format!(
            "{}: {busy}, held up {}, idle {}; {:.1} MB/s read, {:.1} MB/s delivered; {} streams, {} waiting, \
             wait {wait}; size {}, unread {} of {}",
            d.name,
            percent(d.spent.held_up),
            percent(d.spent.idle),
            d.read_bytes_per_s / 1e6,
            d.delivered_bytes_per_s / 1e6,
            d.streams,
            d.waiting,
            mib(d.prefetch_bytes),
            mib(d.unread_bytes),
            mib(d.budget_bytes)
        ));
        lines.push(format!("{}: {}", d.name, d.memory));
        if d.file_sets > 0.0 {
            lines.push(format!("{}: {} of the time for file sets", d.name, percent(d.file_sets)));
        }
        if d.writes > 0.0 {
            let (part, waiting) = (percent(d.writes), d.writes_waiting);
            lines.push(format!("{}: {part} of the time for writes, {waiting} waiting", d.name));
        }
        if !d.passed.is_empty() {
            let passed: Vec<String> = d.passed.iter().map(|(why, n)| format!("{why} {n}")).collect();
            lines.push(format!("{}: passed since the start: {}", d.name, passed.join(", ")));
        }
    }
    if files {
        lines.extend(costs::lines(&view.programs, &view.files));
    }
    lines.extend(view.decisions.iter().cloned());
    seekless_output::joined(&lines) + "\n"
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use seekless_engine::{Durations, FileSetUse, WriterUse};
    use seekless_policy::SizeReport;

    pub(crate) fn report(seconds: f64) -> StatusReport {
        let n = seconds as u64;
        let disk = DiskReport {
            name: "sda".into(),
            // Half of the pieces' bytes are in memory already.
            bytes_read: n * 120_000_000,
            ledger: seekless_policy::Totals { disk: n * 60_000_000, ..Default::default() },
            disk_ms: seconds * 900.0,
            media_rate: 100e6,
            streams_now: 40,
            waiting_now: 7,
            passed: [("random".to_string(), n * 2), ("full".to_string(), 0)].into(),
            wait: Durations { count: n * 10, mean_ms: 25.0, ..Default::default() },
            gap: Durations { count: n * 10, mean_ms: 2.0, ..Default::default() },
            size: SizeReport { size: 4 << 20, ..Default::default() },
            budget_bytes: 256 << 20,
            bytes_unread_now: 100 << 20,
            file_sets: FileSetUse { disk_ms: seconds * 200.0, ..Default::default() },
            writers: WriterUse { disk_ms: seconds * 50.0, waiting_now: 3, ..Default::default() },
            ..Default::default()
        };
        StatusReport {
            version: "0.1.0".into(),
            pid: 7,
            uptime_ms: seconds * 1e3,
            socket: "/run/seekless/daemon.sock".into(),
            mode: "both".into(),
            prefetch: "auto".into(),
            disks: vec![disk],
            ..Default::default()
        }
    }

    #[test]
    fn a_second_is_divided_without_rest() {
        let mut follower = Follower::default();
        let first = follower.next(report(100.0));
        assert_eq!(first.disks[0].spent.idle, 1.0, "one report says nothing of rates");
        let d = follower.next(report(102.0)).disks[0].clone();
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(near(d.spent.transferring, 0.6), "{:?}", d.spent);
        assert!(near(d.spent.positioning.unwrap(), 0.3), "{:?}", d.spent);
        assert!(near(d.spent.held_up, 0.02) && near(d.spent.idle, 0.08), "{:?}", d.spent);
        assert!(near(d.writes, 0.05) && d.writes_waiting == 3);
        assert!(near(d.file_sets, 0.2) && near(d.read_bytes_per_s, 60e6));
        assert_eq!(d.wait_mean_ms, Some(25.0));
        assert_eq!(d.passed, [("random".to_string(), 204)]);
    }

    #[test]
    fn changes_are_said_once_in_words() {
        let mut follower = Follower::default();
        follower.next(report(100.0));
        let mut next = report(101.0);
        next.disks[0].size.size = 6 << 20;
        next.disks[0].reads_failed = 1;
        next.disks[0].last_error = Some("input/output error".into());
        next.passes_all = true;
        let said = follower.next(next).decisions;
        for words in [
            "daemon: every call is passed from now on",
            "sda: prefetch size 4.0 MiB to 6.0 MiB",
            "sda: 2 calls passed: random",
            "sda: 1 reads failed: input/output error",
        ] {
            assert!(said.iter().any(|s| s == words), "no `{words}` in {said:?}");
        }
        assert_eq!(said.len(), 4, "{said:?}");
    }

    #[test]
    fn another_daemon_begins_anew_and_decisions_are_bounded() {
        let mut follower = Follower::default();
        follower.next(report(100.0));
        let mut other = report(200.0);
        other.pid = 8;
        assert_eq!(follower.next(other).seconds, 0.0);
        for s in 300..500 {
            follower.next(report(f64::from(s)));
        }
        assert_eq!(follower.next(report(501.0)).decisions.len(), DECISIONS_MAX);
    }
}
