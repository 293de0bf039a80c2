//! The clients of a run, spoken to through `seekless-lab load`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use seekless_base::Fault;
use serde_json::Value;

use super::disk::catalogue_args;
use crate::process::Process;
use crate::results::Row;
use crate::scenario::{Arm, Load, Scenario};
use crate::server::CERTIFICATE;
use crate::tools;

/// Start-up, the last requests' time-outs and writing the result, beyond the length asked for.
const SLACK: Duration = Duration::from_secs(90);

/// Most runs of a search.
pub(crate) const SEARCH_RUNS: u32 = 12;

/// A load running against one disk's library.
#[derive(Debug)]
pub(crate) struct Clients {
    process: Process,
    result: PathBuf,
    patience: Duration,
}

/// The load's clock runs as fast as the disk's, except against a page cache, which is as fast as it is.
pub(crate) fn speedup(scenario: &Scenario, load: &Load) -> f64 {
    match load {
        Load::Closed { preload: true, .. } | Load::Files { preload: true, .. } => 1.0,
        _ => scenario.disks[0].speedup,
    }
}

impl Clients {
    /// Starts the clients of disk `number` against `url`.
    pub(crate) fn start(
        scenario: &Scenario,
        (load, arm): (&Load, &Arm),
        url: &str,
        number: usize,
        dir: &Path,
    ) -> Result<Clients, Fault> {
        let mut command = tools::command(&["load"])?;
        let speedup = speedup(scenario, load);
        let length = match load {
            Load::Closed { clients, range, warmup_s, duration_s, popular, link, connections, .. } => {
                command.args(["closed", "--clients", &clients.to_string(), "--range", &range.to_string()]);
                command.args(["--connections", &connections.to_string()]);
                command.args(link.iter().flat_map(|link| ["--link", link]));
                command.args(popular.then_some(["--pick", "zipf"]).into_iter().flatten());
                // A request may wait for as many disk reads as there are clients, and for a disk that hangs.
                command.args(["--timeout", "60s"]);
                command.args([
                    "--warmup",
                    &format!("{warmup_s}s"),
                    "--duration",
                    &format!("{}s", warmup_s + duration_s),
                ]);
                warmup_s + duration_s
            }
            Load::Handlers { clients, handler, warmup_s, duration_s } => {
                let length = warmup_s + duration_s;
                command.args([
                    "closed",
                    "--clients",
                    &clients.to_string(),
                    "--handler",
                    &handler.to_string(),
                ]);
                command.args(["--timeout", "60s", "--warmup", &format!("{warmup_s}s")]);
                command.args(["--duration", &format!("{length}s")]);
                length
            }
            Load::Downloads { clients, link, warmup_s, duration_s, .. } => {
                command.args(["downloads", "--clients", &clients.to_string(), "--link", link]);
                let length = format!("{}s", warmup_s + duration_s);
                command.args(["--warmup", &format!("{warmup_s}s"), "--duration", &length]);
                command.args(arm.any_order.then_some("--any-order"));
                warmup_s + duration_s
            }
            Load::Ramp { from, to, warmup_s, duration_s, link } => {
                command.args([
                    "search",
                    "--method",
                    "ramp",
                    "--from",
                    &from.to_string(),
                    "--to",
                    &to.to_string(),
                ]);
                command.args([
                    "--warmup",
                    &format!("{warmup_s}s"),
                    "--with",
                    &format!("ramp-over={duration_s}s"),
                ]);
                command.args(link.iter().flat_map(|rates| ["--link", rates.as_str()]));
                *duration_s
            }
            Load::Sessions { rate, warmup_s, duration_s } => {
                let length = warmup_s + duration_s;
                command.args(["sessions", "--rate", &rate.to_string(), "--sessions", "4000000000"]);
                command.args(["--warmup", &format!("{warmup_s}s"), "--duration", &format!("{length}s")]);
                length
            }
            Load::Search { rate, rate_max, max_failed, precision, warmup_s, duration_s } => {
                let step = warmup_s + duration_s;
                command.args(["search", "--method", "bisect", "--from", &rate.to_string()]);
                command.args(["--to", &rate_max.to_string(), "--max-failed", &max_failed.to_string()]);
                command.args(["--warmup", &format!("{warmup_s}s"), "--with"]);
                command.arg(format!("precision={precision},runs={SEARCH_RUNS},step={step}s"));
                step * f64::from(SEARCH_RUNS)
            }
            Load::Diff { .. }
            | Load::Files { .. }
            | Load::Fio { .. }
            | Load::Broker { .. }
            | Load::Programs { .. }
            | Load::Readers { .. }
            | Load::Command { .. }
            | Load::Drawn {} => {
                return Err(Fault::failed("this load is no HTTP load"));
            }
        };
        command.args([
            "--url",
            url,
            "--speedup",
            &speedup.to_string(),
            "--seed",
            &(number + 1).to_string(),
            "--quiet",
        ]);
        if arm.tls {
            command.arg("--cacert").arg(dir.join("server").join(CERTIFICATE));
        }
        let result = dir.join(format!("load{number}.json"));
        command.args(catalogue_args(scenario)).arg("--json").arg(&result);
        let process = Process::spawn("the load", command, &dir.join(format!("load{number}.log")), None)?;
        Ok(Clients { process, result, patience: Duration::from_secs_f64(length / speedup) + SLACK })
    }

    /// Whether it has ended.
    pub(crate) fn ended(&mut self) -> bool {
        self.process.ended().is_some()
    }

    /// Waits for the end and returns the result.
    pub(crate) fn finish(mut self) -> Result<Value, Fault> {
        let status = self.process.wait(self.patience)?;
        let text = std::fs::read_to_string(&self.result).unwrap_or_default();
        // A run whose requests failed ends with 1 and still has its result: failures are what some arms
        // measure.
        serde_json::from_str(&text).map_err(|_| {
            let line = self.process.last_line();
            Fault::failed(format!("the load gave no result ({status}): {}", tools::without_name(&line)))
        })
    }
}

/// Adds the clients' view of a run to its row.
pub(crate) fn account(row: &mut Row, results: &[Value]) {
    let all = |path: &str| -> Vec<f64> { results.iter().filter_map(|r| r.pointer(path)?.as_f64()).collect() };
    let sum = |path: &str| all(path).iter().sum::<f64>();
    let most = |path: &str| all(path).into_iter().fold(0.0, f64::max);
    let mut put = |name: &str, value: f64| row.metrics.insert(name.into(), value);
    put("mb_s", sum("/measured/mb_per_s"));
    put("requests_s", sum("/measured/requests_per_s"));
    put("requests", sum("/measured/requests"));
    put("failed", sum("/totals/failures"));
    put("timeouts", sum("/failures/by_kind/timeout"));
    put("wrong_bytes", sum("/failures/by_kind/wrong_byte") + sum("/failures/by_kind/range"));
    put("bad_status", sum("/failures/by_kind/status"));
    put(
        "broken_connections",
        ["connect", "connection", "short_body"].iter().map(|k| sum(&format!("/failures/by_kind/{k}"))).sum(),
    );
    // Of several loads the slowest percentile stands for all: no mean of percentiles means anything.
    for (name, path) in
        [("mean_ms", "mean"), ("p50_ms", "p50"), ("p90_ms", "p90"), ("p99_ms", "p99"), ("max_ms", "max")]
    {
        put(name, most(&format!("/latency_ms/{path}")));
    }
    put("startup_p50_ms", most("/startup_ms/p50"));
    put("startup_p99_ms", most("/startup_ms/p99"));
    // The load tells the 95th percentile only as a point of the distribution.
    let p95 = |r: &Value| {
        let cdf: Vec<(f64, f64)> = serde_json::from_value(r.pointer("/latency_ms/cdf")?.clone()).ok()?;
        cdf.iter().find(|(_, share)| *share >= 0.95).map(|(ms, _)| *ms)
    };
    if let Some(ms) = results.iter().filter_map(p95).reduce(f64::max) {
        put("p95_ms", ms);
    }
    if results.iter().any(|r| r.get("sessions").is_some_and(|s| !s.is_null())) {
        put("failed_share", most("/sessions/failed_share"));
    }
    if results.iter().any(|r| r.get("kind").and_then(Value::as_str) == Some("search")) {
        put("failure_free_mb_s", sum("/max_mb_per_s"));
        put("failure_free_req_s", sum("/max_per_s"));
    }
    for name in ["optimum_mb_s", "of_optimum", "estimate_mb_s"] {
        // Only simulated loads know it.
        let known = all(&format!("/measured/{name}"));
        if known.iter().any(|v| *v > 0.0) {
            put(name, known.iter().sum());
        }
    }
    let estimate: f64 = all("/measured/estimate_mb_s").iter().sum();
    if estimate > 0.0 {
        put("of_estimate", sum("/measured/mb_per_s") / estimate);
    }
    let cdf =
        results.first().and_then(|r| serde_json::from_value(r.pointer("/latency_ms/cdf")?.clone()).ok());
    if let Some(cdf) = cdf {
        row.cdfs.insert("request_ms".into(), cdf);
    }
    row.raw.insert("load".into(), results.to_vec().into());
}
