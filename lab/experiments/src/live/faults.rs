//! What goes wrong during a run, and what is looked at afterwards.

use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use seekless_base::Fault;
use serde_json::Value;

use super::daemon::Daemon;
use super::{Bench, probe};
use crate::guard;
use crate::memory_group::MemoryGroup;
use crate::results::Row;
use crate::scenario::{Arm, Door, FaultAt, FaultKind, Point};

/// A broken disk returns EIO for so many stretches, together a tenth of it.
const BROKEN_STRETCHES: u64 = 10;
/// Where a stretch begins in its tenth of the disk. ext4 keeps inode tables at the beginnings of groups of
/// block groups, at multiples of 2 GiB; this keeps clear of them, so that files break and not the file
/// system.
const STRETCH_AT: f64 = 0.6;

/// Faults in the order they are due.
#[derive(Debug)]
pub(super) struct Timeline {
    waiting: Vec<FaultAt>,
}

impl Timeline {
    pub(super) fn new(faults: &[FaultAt]) -> Timeline {
        let mut waiting = faults.to_vec();
        waiting.sort_by(|a, b| b.at_s.total_cmp(&a.at_s));
        Timeline { waiting }
    }

    /// The next fault, once its time has come.
    pub(super) fn due(&mut self, elapsed_s: f64) -> Option<FaultAt> {
        if self.waiting.last()?.at_s > elapsed_s {
            return None;
        }
        let fault = self.waiting.pop()?;
        if let Some(every_s) = fault.every_s {
            // From when it was due, not from when it was noticed; none is skipped.
            self.waiting.push(FaultAt { at_s: fault.at_s + every_s, ..fault.clone() });
            self.waiting.sort_by(|a, b| b.at_s.total_cmp(&a.at_s));
        }
        Some(fault)
    }
}

/// Lets a fault happen.
pub(super) fn apply(
    bench: &Bench<'_>,
    arm: &Arm,
    fault: FaultAt,
    dir: &Path,
    group: Option<&MemoryGroup>,
    daemon: &mut Option<Daemon>,
) -> Result<(), Fault> {
    let signal = |daemon: &Option<Daemon>, signal| daemon.iter().for_each(|d| d.process.signal(signal));
    match fault.what {
        FaultKind::KillDaemon => daemon.iter_mut().try_for_each(Daemon::kill)?,
        FaultKind::StartDaemon => *daemon = Some(Daemon::of(bench, arm, dir, group)?),
        FaultKind::LimitMemory => {
            let limit = fault.limit.unwrap_or(bench.scenario.memory).0;
            if let Some(group) = group {
                group.set_limit(limit).map_err(|e| Fault::failed(format!("memory limit {limit}: {e}")))?;
            }
        }
        FaultKind::RemoveSocket => daemon.iter().for_each(Daemon::remove_socket),
        FaultKind::StopDaemon => signal(daemon, Signal::STOP),
        FaultKind::ContinueDaemon => signal(daemon, Signal::CONT),
        FaultKind::HangDisk => {
            let time = format!("{}ms", (fault.for_s.unwrap_or(5.0) * 1e3) as u64);
            bench.disks.iter().try_for_each(|d| d.fault(&["--hang", &time]))?;
        }
        FaultKind::BreakDisk => {
            for disk in &bench.disks {
                let tenth = disk.size / BROKEN_STRETCHES;
                let ranges = (0..BROKEN_STRETCHES).map(|i| {
                    let start = (i * tenth + (tenth as f64 * STRETCH_AT) as u64) / 4096 * 4096;
                    format!("{start}+{}", tenth / BROKEN_STRETCHES / 4096 * 4096)
                });
                let args: Vec<String> = ranges.flat_map(|r| ["--eio".to_string(), r]).collect();
                disk.fault(&args.iter().map(String::as_str).collect::<Vec<_>>())?;
            }
        }
        // The second one: the first holds what a set reads first.
        FaultKind::SlowMember => bench.disks.iter().try_for_each(|d| d.fault(&["--slow-member", "1,4"]))?,
        FaultKind::FailMember => bench.disks.iter().try_for_each(|d| d.fault(&["--fail-member", "1"]))?,
        FaultKind::MendDisk => bench.disks.iter().try_for_each(|d| d.fault(&["--clear"]))?,
    }
    Ok(())
}

/// After the load: what the faults of this arm call for.
pub(super) fn afterwards(
    bench: &Bench<'_>,
    point: &Point,
    row: &mut Row,
    url: &str,
    dir: &Path,
    daemon: &mut Option<Daemon>,
) -> Result<(), Fault> {
    let arm = &point.arm;
    let has = |kind| arm.faults.iter().any(|f| f.what == kind);
    if has(FaultKind::BreakDisk) && !has(FaultKind::MendDisk) {
        // Pages that a healthy disk delivered earlier would hide what is broken now.
        super::serve_cold(bench)?;
        row.metrics.insert("probe_failed".into(), probe::fixed_list(bench, url)?);
    }
    if arm.door == Door::Watch {
        if has(FaultKind::KillDaemon) {
            *daemon = None;
            row.metrics.insert("gone_wait_ms".into(), probe::after_a_watch_is_killed(bench, arm, dir)?);
            let (announced, resident) = probe::cost_of_watching(bench, arm, dir)?;
            row.metrics.insert("announced_extra_us".into(), announced);
            row.metrics.insert("resident_extra_us".into(), resident);
        }
        return Ok(());
    }
    if has(FaultKind::StartDaemon) {
        let asked = daemon.as_ref().map(Daemon::status).transpose()?;
        let needs = asked.and_then(|s| s.pointer("/counters/needs").and_then(Value::as_u64)).unwrap_or(0);
        row.metrics.insert("picked_up".into(), if needs > 0 { 1.0 } else { 0.0 });
    } else if has(FaultKind::KillDaemon) {
        guard::sleep(Duration::from_millis(100))?;
        let (waited, added) = probe::after_a_kill(bench, arm, dir)?;
        row.metrics.insert("gone_wait_ms".into(), waited);
        row.metrics.insert("gone_added_ms".into(), added);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_come_in_order_and_when_due() {
        let at = |at_s, what| FaultAt { at_s, what, for_s: None, limit: None, every_s: None };
        let mut line = Timeline::new(&[at(8.0, FaultKind::StartDaemon), at(2.0, FaultKind::KillDaemon)]);
        assert!(line.due(1.0).is_none());
        assert_eq!(line.due(9.0).unwrap().what, FaultKind::KillDaemon);
        assert_eq!(line.due(9.0).unwrap().what, FaultKind::StartDaemon);
        assert!(line.due(99.0).is_none());
        let again = FaultAt { every_s: Some(5.0), ..at(1.0, FaultKind::LimitMemory) };
        let mut line = Timeline::new(&[again, at(7.0, FaultKind::MendDisk)]);
        let due: Vec<f64> = std::iter::from_fn(|| line.due(11.5)).map(|f| f.at_s).collect();
        assert_eq!(due, [1.0, 6.0, 7.0, 11.0]);
    }
}
