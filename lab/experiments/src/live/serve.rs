//! An arm with a web server.

use std::time::{Duration, Instant};

use seekless_base::Fault;
use seekless_model::drive::catalogue as drives;
use seekless_model::workload::closed::OtherDisks;
use serde_json::Value;

use super::daemon::{self, Daemon};
use super::faults::{self, Timeline};
use super::file_set::FileSet;
use super::load::{self, Clients};
use super::proof::Proof;
use super::series::Series;
use super::threads::Sampled;
use super::writer::Writer;
use super::{Bench, beside, in_memory, sequences};
use crate::guard;
use crate::process::Process;
use crate::results::Row;
use crate::scenario::{FaultAt, FaultKind, Load, Point, ServerKind};
use crate::server::{REPORT, Server, Site};

/// Runs one arm and fills its row.
pub(crate) fn run(bench: &mut Bench<'_>, point: &Point, row: &mut Row) -> Result<(), Fault> {
    let arm = &point.arm;
    let kind = arm.server.ok_or_else(|| Fault::usage(format!("arm `{}` has no server", arm.name)))?;
    bench.prepare(arm)?;
    let dir = bench.scratch.dir(&format!("run{}", row.position))?;
    let group = bench.group("lab")?;
    let mut helper = match arm.mode {
        Some(_) if !arm.no_daemon => Some(Daemon::of(bench, arm, &dir, group.as_ref())?),
        _ => None,
    };
    let env = daemon::preload(arm, &dir)?;
    let options = &arm.serve;
    let site = Site {
        dir: &dir.join("server"),
        root: &bench.root,
        env: &env,
        options,
        group: group.as_ref(),
        tls: arm.tls,
    };
    let mut server = Server::start(kind, arm.variant, &site)?;

    let (warmup_s, preload) = match &point.load {
        Load::Closed { warmup_s, preload, .. } => (*warmup_s, *preload),
        Load::Handlers { warmup_s, .. }
        | Load::Ramp { warmup_s, .. }
        | Load::Downloads { warmup_s, .. }
        | Load::Sessions { warmup_s, .. }
        | Load::Search { warmup_s, .. } => (*warmup_s, false),
        Load::Diff { .. }
        | Load::Files { .. }
        | Load::Fio { .. }
        | Load::Broker { .. }
        | Load::Programs { .. }
        | Load::Readers { .. }
        | Load::Command { .. }
        | Load::Drawn {} => (0.0, false),
    };
    if preload {
        bench.mounts().into_iter().try_for_each(in_memory::bring)?;
    }
    let speedup = load::speedup(bench.scenario, &point.load);
    let edge_site =
        Site { dir: &dir.join("edge"), root: &bench.root, env: &[], options: &[], group: None, tls: false };
    let edge = arm.edge.map(|size| Server::edge(&server, size, &edge_site)).transpose()?;
    let url = edge.as_ref().unwrap_or(&server).url();
    let mut clients = Vec::new();
    // Of a disk that is read once nothing is counted.
    let mut once = Vec::new();
    for (i, folder) in bench.folders().iter().enumerate().filter(|_| !arm.alone) {
        let start =
            |load: &Load| Clients::start(bench.scenario, (load, arm), &format!("{url}{folder}"), i, &dir);
        match (arm.other_disks, i) {
            (_, 0) | (OtherDisks::Busy, _) => clients.push(start(&point.load)?),
            (OtherDisks::Idle, _) => {}
            (OtherDisks::ReadOnce, _) => {
                once.push(start(&point.load.of_one_client(OtherDisks::READ_FOR.as_secs_f64()))?)
            }
        }
    }

    let mut neighbour = arm.neighbour.map(|neighbour| beside::start(neighbour, &dir)).transpose()?;
    let mut file_set =
        arm.file_set.map(|by| FileSet::start(by, &bench.root, &dir, group.as_ref())).transpose()?;
    let mut writer = None;
    if let Some(spec) = &arm.writer {
        let drive = drives::find(&bench.scenario.disks[0].drive).map_err(|e| usage(e.to_string()))?;
        let mb_s = spec.mb_s(&drive).map_err(usage)?;
        let times = (warmup_s, point.load.counted_s(), speedup);
        writer = Some(Writer::start(spec, mb_s, (bench.mounts()[0], &dir), times, group.as_ref())?);
    }
    let sampled =
        bench.scenario.metrics.iter().any(|m| matches!(m.as_str(), "rss_growth" | "longest_wait_ms"));
    let manifest = bench.scratch.path().join("manifest.txt");
    let scraped = arm.is_scraped().then(|| dir.join("daemon.log"));
    let mut series = sampled.then(|| Series::start(Some((server.port(), manifest)), scraped));
    // Meanwhile: zero the disks' counters after the warm-up, let faults happen when they are due.
    let started = Instant::now();
    let mut timeline = Timeline::new(&arm.faults);
    let mut counting = None;
    let mut proof = None;
    let mut cpu_before = 0.0;
    let mut sampled = Sampled::default();
    let traced = bench.scenario.metrics.iter().any(|m| m.starts_with("seq_"));
    let trace_file = |i: usize| dir.join(format!("trace{i}.csv"));
    while !clients.iter_mut().all(Clients::ended) {
        guard::sleep(Duration::from_millis(20))?;
        if counting.is_none() && started.elapsed().as_secs_f64() * speedup >= warmup_s {
            for (i, disk) in bench.disks.iter().enumerate() {
                disk.stats(true)?;
                if traced {
                    disk.trace(Some(&trace_file(i)))?;
                }
            }
            if let Some(file_set) = &mut file_set {
                file_set.begin_counting(helper.as_ref());
            }
            if arm.proved {
                proof = Some(Proof::start(&dir, point.load.counted_s() / speedup)?);
            }
            counting = Some(Instant::now());
            cpu_before = server.cpu_s();
        }
        if counting.is_some() {
            sampled.look(&server);
        }
        while let Some(fault) = timeline.due(started.elapsed().as_secs_f64()) {
            if let Some(series) = &mut series {
                excuse(series, &fault, &arm.faults);
            }
            faults::apply(bench, arm, fault, &dir, group.as_ref(), &mut helper)?;
        }
        if let Some(series) = &mut series {
            let daemon = helper.as_mut().and_then(|h| h.process.ended().is_none().then(|| h.pids()));
            let daemon = daemon.unwrap_or_default();
            let of = |what, pids: Vec<u32>| pids.into_iter().map(move |pid| (what, pid));
            series.look(of("daemon", daemon).chain(of("server", server.pids())));
        }
        if !server.alive() {
            return Err(Fault::failed(format!("{} ended under load ({})", kind.name(), arm.name)));
        }
    }
    neighbour.as_mut().map_or(Ok(()), Process::runs)?;
    once.into_iter().try_for_each(|clients| clients.finish().map(drop))?;
    drop(neighbour);
    let cpu = counting.map(|since: Instant| (server.cpu_s() - cpu_before, since.elapsed().as_secs_f64()));
    if let Some(file_set) = file_set.take() {
        file_set.account(row, helper.as_ref());
    }
    if let Some(proof) = proof {
        proof.account(row)?;
    }
    if arm.alone
        && let Some(writer) = writer.take()
    {
        writer.account(row)?;
    }
    let disks = bench.disks.iter().map(|d| d.stats(false)).collect::<Result<Vec<_>, _>>()?;
    let results = clients.into_iter().map(Clients::finish).collect::<Result<Vec<_>, _>>()?;
    load::account(row, &results);
    if let Some(writer) = writer.take() {
        writer.account(row)?;
    }
    if let Some((used_s, elapsed_s)) = cpu {
        row.metrics.insert("cpu_server_s".into(), used_s);
        if let Some(mb_s) = row.metrics.get("mb_s").copied().filter(|_| used_s > 0.0) {
            row.metrics.insert("mb_cpu_s".into(), mb_s * elapsed_s / used_s);
        }
    }
    if let Some(share) = sampled.share() {
        row.metrics.insert("blocked_share".into(), share);
    }
    account_disks(row, &disks);
    if traced {
        let mut files = Vec::new();
        for (i, disk) in bench.disks.iter().enumerate() {
            disk.trace(None)?;
            files.push(trace_file(i));
        }
        sequences::account(row, &files)?;
    }
    if let Some(series) = series {
        series.account(row);
    }
    account_daemon(row, helper.as_mut());
    if kind == ServerKind::Builtin {
        account_calls(row, &url);
    }
    if let Some(Ok(used)) = group.as_ref().map(|g| g.usage()) {
        row.metrics.insert("cgroup_limit_hits".into(), used.limit_hits as f64);
    }
    faults::afterwards(bench, point, row, &url, &dir, &mut helper)?;
    drop(edge);
    drop(server);
    account_report(row, &dir.join("server").join(REPORT));
    drop(helper);
    drop(group);
    bench.disks.iter().try_for_each(|d| if arm.faults.is_empty() { Ok(()) } else { d.fault(&["--clear"]) })
}

fn usage(message: String) -> Fault {
    Fault::usage(message)
}

/// While the disk hangs or is broken readers wait or fail with and without us; for a moment after it, too,
/// until what was held up has been read.
fn excuse(series: &mut Series, fault: &FaultAt, all: &[FaultAt]) {
    /// Seconds in which a backlog is worked off.
    const AFTER_S: f64 = 5.0;
    match fault.what {
        FaultKind::HangDisk => series.excuse(fault.for_s.unwrap_or(5.0) + AFTER_S),
        FaultKind::BreakDisk => {
            let mended = all.iter().filter(|f| f.what == FaultKind::MendDisk).map(|f| f.at_s);
            let first =
                all.iter().filter(|f| f.what == FaultKind::BreakDisk).map(|f| f.at_s).fold(0.0, f64::max);
            let span = mended.fold(0.0, f64::max) - first;
            series.excuse(if span > 0.0 { span + AFTER_S } else { f64::INFINITY });
        }
        FaultKind::KillDaemon => series.killed(),
        _ => {}
    }
}

/// Adds the disks' view: sums of rates, means over commands and over disks.
pub(crate) fn account_disks(row: &mut Row, disks: &[Value]) {
    let each = |path: &str| -> Vec<f64> {
        disks.iter().map(|d| d.pointer(path).and_then(Value::as_f64).unwrap_or(0.0)).collect()
    };
    let sum = |path: &str| each(path).iter().sum::<f64>();
    let over = |a: f64, b: f64| if b > 0.0 { a / b } else { 0.0 };
    let bytes = sum("/stats/read_bytes") + sum("/stats/write_bytes");
    let commands = sum("/stats/reads") + sum("/stats/writes");
    // Disks run side by side: rates are over the mean time of one.
    let elapsed_s = sum("/stats/elapsed_ns") / 1e9 / disks.len().max(1) as f64;
    let (busy_ns, seeks) = (sum("/stats/busy_ns"), sum("/stats/seeks"));
    let served_ns: f64 =
        ["overhead", "seek", "rotation", "transfer"].iter().map(|p| sum(&format!("/stats/{p}_ns"))).sum();
    let mut put = |name: &str, value: f64| row.metrics.insert(name.into(), value);
    put("disk_mb_s", over(bytes / 1e6, elapsed_s));
    put("seeks_per_mb", over(seeks, bytes / 1e6));
    put("seeks_s", over(seeks, elapsed_s));
    put("read_kib", over(bytes / 1024.0, commands));
    put("reads_s", over(sum("/stats/reads"), elapsed_s));
    put("busy_share", over(busy_ns, sum("/stats/elapsed_ns")));
    for (name, part) in [
        ("time_seek", "seek"),
        ("time_rotation", "rotation"),
        ("time_transfer", "transfer"),
        ("time_overhead", "overhead"),
    ] {
        put(name, over(sum(&format!("/stats/{part}_ns")), sum("/stats/elapsed_ns")));
    }
    // Only the simulator's disks count these.
    if disks.iter().any(|d| d.pointer("/stats/awake_ns").is_some()) {
        let hours = elapsed_s * disks.len().max(1) as f64 / 3600.0;
        put("accesses_h", over(sum("/stats/accesses"), hours));
        put("spin_ups_h", over(sum("/stats/spin_ups"), hours));
        put("awake_s_h", over(sum("/stats/awake_ns") / 1e9, hours));
    }
    let writes = over(sum("/stats/write_ns"), sum("/stats/elapsed_ns"));
    put("time_writes", writes);
    put("time_idle", (1.0 - over(busy_ns, sum("/stats/elapsed_ns"))).max(0.0));
    put("service_ms", over(served_ns / 1e6, commands));
    put("wait_ms", over(sum("/stats/response_ns") / 1e6, commands));
    put("ms_per_128k", over(busy_ns / 1e6, bytes / 131_072.0));
    if let Some(served) = row.metrics.get("mb_s").copied().filter(|s| *s > 0.0) {
        let read = row.metrics["disk_mb_s"];
        row.metrics.insert("hit_share".into(), (1.0 - read / served).max(0.0));
        row.metrics.insert("disk_per_served".into(), read / served);
        row.metrics.insert("disk_s_per_gb".into(), over(busy_ns / 1e9, elapsed_s) / served * 1e3);
        row.metrics.insert("rest_mb_s".into(), over(served, 1.0 - writes));
    }
    row.raw.insert("disks".into(), disks.to_vec().into());
}

/// Adds the parts of the disks' time that were spent on transfers without use: these parts of what was read.
pub(crate) fn account_transfer(row: &mut Row, reread: f64, wasted: f64) {
    let Some(transfer) = row.metrics.get("time_transfer").copied() else { return };
    row.metrics.insert("time_reread".into(), transfer * reread);
    row.metrics.insert("time_wasted".into(), transfer * wasted);
}

/// Adds the daemon's view.
pub(super) fn account_daemon(row: &mut Row, daemon: Option<&mut Daemon>) {
    // A daemon that a fault has killed tells nothing.
    let Some(daemon) = daemon else { return };
    if daemon.process.ended().is_some() {
        return;
    }
    let Ok(status) = daemon.status() else { return };
    let counter =
        |name: &str| status.pointer(&format!("/counters/{name}")).and_then(Value::as_f64).unwrap_or(0.0);
    let passed = |reason: &str| -> f64 {
        let disks = status.get("disks").and_then(Value::as_array).into_iter().flatten();
        let lists = disks.filter_map(|d| d.get("passed")?.as_array()).flatten();
        lists
            .filter(|p| p[0].as_str().is_some_and(|r| reason.is_empty() || r.contains(reason)))
            .filter_map(|p| p[1].as_f64())
            .sum()
    };
    let at_socket = counter("passed_mode") + counter("passed_not_a_disk") + counter("passed_bad_request");
    // For one user the queue is full before it is for all.
    let full = counter("passed_full") + counter("passed_share");
    row.metrics.insert("queue_full".into(), full + passed("full"));
    row.metrics.insert("passes".into(), at_socket + full + passed(""));
    let refused = ["frames_refused", "connections_muted", "connections_over_bound", "passed_bad_request"];
    row.metrics.insert("refused".into(), refused.into_iter().map(counter).sum());
    let streams = |disks: &Vec<Value>| disks.iter().filter_map(|d| d["streams_now"].as_f64()).sum();
    row.metrics.insert("streams".into(), status["disks"].as_array().map_or(0.0, streams));
    if let Some(observe) = status.get("observe").filter(|observe| observe.is_object()) {
        let of = |name: &str| observe[name].as_f64().unwrap_or(0.0);
        row.metrics.insert("files_known".into(), of("files_known"));
        row.metrics.insert("events_lost".into(), of("lost") / (of("events") + of("lost")).max(1.0));
    }
    account_ledger(row, &status);
    row.raw.insert("daemon".into(), status);
}

/// Adds what became of the bytes an engine read, from its statistics.
fn account_ledger(row: &mut Row, statistics: &Value) {
    let ledger = |name: &str| -> f64 {
        let disks = statistics.get("disks").and_then(Value::as_array).into_iter().flatten();
        disks.filter_map(|d| d.pointer(&format!("/ledger/{name}"))?.as_f64()).sum()
    };
    // Of the whole run, warm-up included: the engine's account has no other beginning.
    let (read, requested) = (ledger("disk"), ledger("requested"));
    if read > 0.0 {
        account_transfer(row, ledger("evicted_unused") / read, ledger("wasted") / read);
    }
    if requested > 0.0 {
        row.metrics.insert("ledger_evicted".into(), ledger("evicted_unused") / requested);
    }
}

/// Adds what `seekless serve` counted, which it says at its end; other servers say nothing.
fn account_report(row: &mut Row, file: &std::path::Path) {
    let Some(report) = std::fs::read(file).ok().and_then(|text| serde_json::from_slice::<Value>(&text).ok())
    else {
        return;
    };
    let counter = |name: &str| report.pointer(&format!("/counters/{name}")).and_then(Value::as_f64);
    if let (Some(calls), Some(slow)) = (counter("loop_calls"), counter("loop_calls_slow")) {
        row.metrics.insert("slow_calls".into(), slow);
        row.metrics.insert("loop_calls".into(), calls);
    }
    account_ledger(row, &report);
    row.raw.insert("serve".into(), report);
}

/// Adds the built-in server's own timing of its sendfile calls.
fn account_calls(row: &mut Row, url: &str) {
    let Some(body) = probe_text(url) else { return };
    let Ok(buckets) = serde_json::from_str::<Vec<(f64, f64)>>(&body) else { return };
    let all: f64 = buckets.iter().map(|(_, n)| n).sum();
    if all == 0.0 {
        return;
    }
    let mut seen = 0.0;
    let cdf: Vec<(f64, f64)> = buckets
        .iter()
        .map(|(ms, n)| {
            seen += n;
            (*ms, seen / all)
        })
        .collect();
    // Bucket edges fall on powers of ten, give or take rounding.
    let under = |limit: f64| {
        cdf.iter().take_while(|(ms, _)| *ms <= limit * 1.001).last().map_or(0.0, |(_, share)| *share)
    };
    row.metrics.insert("calls_under_1ms".into(), under(1.0));
    row.metrics.insert("calls_under_0_1ms".into(), under(0.1));
    if let Some((ms, _)) = cdf.iter().find(|(_, share)| *share >= 0.99) {
        row.metrics.insert("calls_p99_ms".into(), *ms);
    }
    let first = cdf.iter().position(|(_, s)| *s > 0.0).unwrap_or(0).saturating_sub(1);
    let last = cdf.iter().position(|(_, s)| *s >= 1.0).unwrap_or(cdf.len() - 1);
    row.cdfs.insert("call_ms".into(), cdf[first..=last].to_vec());
}

fn probe_text(url: &str) -> Option<String> {
    let port = url.trim_end_matches('/').rsplit_once(':')?.1.parse().ok()?;
    let answer = super::probe::get(port, crate::file_server::CALLS_PATH, None).ok()?;
    String::from_utf8(answer).ok()
}
