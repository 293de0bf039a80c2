//! An arm of fio's jobs: each reads or writes files of its own for a time.
//!
//! The files are laid out by fio once a run, so that every arm finds the same ones in the same places.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use seekless_base::Fault;
use serde_json::Value;

use super::beside::Top;
use super::daemon::{self, Daemon};
use super::series::{self, Series};
use super::{Bench, in_memory, serve};
use crate::guard;
use crate::process::Process;
use crate::results::Row;
use crate::scenario::{Load, Point};
use crate::tools;

/// For laying out gigabytes, and beyond the time of a job.
const PATIENCE: Duration = Duration::from_secs(600);
/// Folder of the files on the disk.
const FOLDER: &str = "fio";

/// Runs one arm and fills its row.
pub(super) fn run(bench: &mut Bench<'_>, point: &Point, row: &mut Row) -> Result<(), Fault> {
    let Load::Fio { job, preload, warmup_s, duration_s, .. } = &point.load else { return Ok(()) };
    let (arm, folder) = (&point.arm, bench.disks[0].mount.join(FOLDER));
    if !folder.exists() {
        std::fs::create_dir(&folder).map_err(|e| Fault::failed(format!("{}: {e}", folder.display())))?;
        let mut command = command(&folder, &point.load)?;
        command.args(["--rw=read", "--create_only=1"]);
        finish("fio, laying out files", command, &bench.scratch.path().join("layout.log"))?;
    }
    bench.prepare(arm)?;
    if *preload {
        in_memory::bring(&folder)?;
    }
    let dir = bench.scratch.dir(&format!("run{}", row.position))?;
    let group = bench.group("lab")?;
    let mut helper = arm.mode.map(|_| Daemon::of(bench, arm, &dir, group.as_ref())).transpose()?;
    let env = daemon::preload(arm, &dir)?;
    let out = dir.join("fio.json");
    let mut command = command(&folder, &point.load)?;
    command.args(["--output-format=json", "--group_reporting", "--time_based"]);
    command.arg(format!("--output={}", out.display()));
    command.arg(format!("--ramp_time={warmup_s}s")).arg(format!("--runtime={duration_s}s"));
    command.args(preload.then_some("--invalidate=0"));
    command.args(job.split_whitespace().map(|option| format!("--{option}")));
    command.envs(env.iter().map(|(k, v)| (k, v)));
    bench.disks[0].stats(true)?;
    let mut top = arm.shown.then(|| Top::start(&dir)).transpose()?;
    let mut process = Process::spawn("fio", command, &dir.join("fio.log"), group.as_ref())?;
    let started = Instant::now();
    let mut series = arm.is_scraped().then(|| Series::start(None, Some(dir.join("daemon.log"))));
    let pids = || helper.as_ref().map(Daemon::pids).unwrap_or_default();
    let mut counting = None;
    let status = guard::wait_for(PATIENCE, || {
        if counting.is_none() && started.elapsed().as_secs_f64() >= *warmup_s {
            let top_s = top.as_mut().map(Top::cpu_s).transpose()?;
            counting = Some((Instant::now(), cpu_s(&pids()), top_s));
        }
        if let Some(series) = &mut series {
            series.look(pids().into_iter().map(|pid| ("daemon", pid)));
        }
        Ok(process.ended())
    })?;
    if let Some((since, daemon_s, top_s)) = counting {
        let share = |used_s: f64| used_s / since.elapsed().as_secs_f64();
        if helper.is_some() {
            row.metrics.insert("daemon_core_share".into(), share(cpu_s(&pids()) - daemon_s));
            row.metrics.insert("daemon_mib".into(), rss_mib(&pids()));
        }
        if let Some((top, before_s)) = top.as_mut().zip(top_s) {
            row.metrics.insert("top_core_share".into(), share(top.cpu_s()? - before_s));
        }
    }
    if let Some(series) = series {
        series.account(row);
    }
    drop(top);
    let stats = bench.disks[0].stats(false)?;
    let text = std::fs::read_to_string(&out).unwrap_or_default();
    let Some(report) = report(&text).filter(|_| status.is_some_and(|status| status.success())) else {
        let status = status.map_or("no end".into(), |status| status.to_string());
        return Err(Fault::failed(format!("fio ended with {status}: {}", process.last_line())));
    };
    account(&report, row);
    serve::account_disks(row, &[stats]);
    serve::account_daemon(row, helper.as_mut());
    Ok(())
}

/// Processor time of these processes.
fn cpu_s(pids: &[u32]) -> f64 {
    pids.iter().map(|pid| Process::cpu_s(*pid)).sum()
}

/// Resident memory of these processes that is no file's, MiB.
fn rss_mib(pids: &[u32]) -> f64 {
    pids.iter().filter_map(|pid| series::usage(*pid)).map(|(kib, _)| kib as f64 / 1024.0).sum()
}

/// What all calls of fio have in common.
fn command(folder: &Path, load: &Load) -> Result<Command, Fault> {
    let mut command = tools::find("fio")?.command();
    if let Load::Fio { clients, files, file_size, .. } = load {
        command.args(["--name=job", "--filename_format=file.$jobnum.$filenum", "--fallocate=none"]);
        command.arg(format!("--directory={}", folder.display()));
        command
            .arg(format!("--numjobs={clients}"))
            .arg(format!("--size={}", file_size.0 * u64::from(*files)));
        command.arg(format!("--nrfiles={files}")).arg("--file_service_type=roundrobin");
    }
    Ok(command)
}

fn finish(what: &str, command: Command, log: &Path) -> Result<(), Fault> {
    let mut process = Process::spawn(what, command, log, None)?;
    let status = process.wait(PATIENCE)?;
    if status.success() {
        return Ok(());
    }
    Err(Fault::failed(format!("{what} ended with {status}: {}", process.last_line())))
}

/// The jobs taken together. fio may write warnings before its JSON.
fn report(text: &str) -> Option<Value> {
    let json: Value = serde_json::from_str(text.get(text.find('{')?..)?).ok()?;
    json.pointer("/jobs/0").cloned()
}

fn account(report: &Value, row: &mut Row) {
    let number = |pointer: &str| report.pointer(pointer).and_then(Value::as_f64).unwrap_or(0.0);
    row.metrics.insert("mb_s".into(), (number("/read/bw_bytes") + number("/write/bw_bytes")) / 1e6);
    row.metrics.insert("failed".into(), number("/error"));
    let reads = number("/read/total_ios") > 0.0;
    let of = if reads { "read" } else { "write" };
    for (metric, percentile) in [("p50_ms", "50.000000"), ("p99_ms", "99.000000")] {
        row.metrics.insert(metric.into(), number(&format!("/{of}/clat_ns/percentile/{percentile}")) / 1e6);
    }
    row.metrics.insert("max_ms".into(), number(&format!("/{of}/clat_ns/max")) / 1e6);
    row.metrics.insert("call_us".into(), number(&format!("/{of}/clat_ns/mean")) / 1e3);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read_behind_warnings() {
        let text = r#"note: both iodepth >= 1 and synchronous I/O engine are selected
            {"jobs": [{"error": 0, "read": {"bw_bytes": 3000000, "total_ios": 9, "clat_ns":
            {"max": 7000000, "mean": 2000000, "percentile": {"50.000000": 1000000, "99.000000": 5000000}}},
            "write": {"bw_bytes": 1000000}}]}"#;
        let mut row = Row::default();
        account(&report(text).unwrap(), &mut row);
        let expected = [
            ("call_us", 2000.0),
            ("failed", 0.0),
            ("max_ms", 7.0),
            ("mb_s", 4.0),
            ("p50_ms", 1.0),
            ("p99_ms", 5.0),
        ];
        for (metric, value) in expected {
            assert_eq!(row.metrics.get(metric), Some(&value), "{metric}");
        }
        assert_eq!(report("fio: unknown option"), None);
    }
}
