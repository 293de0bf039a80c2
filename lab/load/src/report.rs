//! What a run reports: a table for people, and JSON for programs.
//!
//! The JSON is an interface: fields are added, never renamed or given another meaning. All times and rates
//! are in the workload's time (see [`crate::clock`]) except those that say `wall` or `cpu`.

use std::fmt::Write as _;

use hdrhistogram::Histogram;
use seekless_base::{Exit, Fault, Nanos};
use serde::{Deserialize, Serialize};

use crate::failure::{FailureExample, KINDS};
use crate::record::{Recorder, Tally, WINDOW, mb_per_s};
use crate::run::{Finished, RunSettings};

/// Lateness of the load that the report must mention: 5 % of the 10 s a segment may take.
const LAG_WARNING_MS: f64 = 500.0;
/// Points of a cumulative distribution in the report.
const CDF_POINTS: u32 = 200;

/// The result of one run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunReport {
    /// `closed`, `sessions` or `replay`.
    pub kind: String,
    /// What was asked for, as given.
    pub config: serde_json::Value,
    /// Ended by a signal: the figures are of what ran until then.
    pub partial: bool,
    /// Length of the run, seconds of the workload's time.
    pub length_s: f64,
    /// Length of the run, seconds of real time.
    pub wall_s: f64,
    /// Processor time the load itself took, seconds.
    pub cpu_s: f64,
    /// How many times faster than real time the workload's clock ran.
    pub speedup: f64,
    /// After the warm-up.
    pub measured: Measured,
    /// From the start.
    pub totals: Totals,
    /// Sessions; null in a closed loop.
    pub sessions: Option<SessionCounts>,
    /// All classes together, measured requests.
    pub latency_ms: Latency,
    /// To the head of the answer.
    pub first_byte_ms: Latency,
    /// Of requests for the head of a file: how long a viewer waits for a film to start.
    #[serde(default)]
    pub startup_ms: Latency,
    /// Lateness of the load itself; zero in a closed loop.
    pub lag_ms: Lag,
    /// By class of client.
    pub classes: Vec<ClassReport>,
    /// By second.
    pub series: Vec<SecondReport>,
    /// By 10 s.
    pub windows: Vec<WindowReport>,
    /// Failures.
    pub failures: Failures,
}

/// How late this machine was in sending what was due, milliseconds of the workload's time. Large values mean
/// that the load, not the server, was the limit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Lag {
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Largest.
    pub max: f64,
}

/// Throughput after the warm-up.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measured {
    /// Start, seconds.
    pub from_s: f64,
    /// End, seconds.
    pub to_s: f64,
    /// Body bytes received.
    pub bytes: u64,
    /// Body megabytes (10^6) a second.
    pub mb_per_s: f64,
    /// Requests due in this time and answered.
    pub requests: u64,
    /// The same a second.
    pub requests_per_s: f64,
    /// Requests due in this time and failed.
    pub failures: u64,
}

/// Counts from the start.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Totals {
    /// Requests answered.
    pub requests: u64,
    /// Body bytes.
    pub bytes: u64,
    /// Requests failed.
    pub failures: u64,
    /// Connections made again.
    pub reconnects: u64,
    /// Whether every byte was compared.
    pub verified: bool,
}

/// Sessions by what became of them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SessionCounts {
    /// Begun.
    pub started: u64,
    /// All segments received.
    pub completed: u64,
    /// Ended by a failure.
    pub failed: u64,
    /// Still running at the end.
    pub unfinished: u64,
    /// Sessions that asked for something after the warm-up.
    pub measured: u64,
    /// Of these, failed.
    pub failed_measured: u64,
    /// `failed_measured / measured`, what the papers hold below 0.3 %.
    pub failed_share: f64,
}

/// A distribution of latencies in milliseconds, from when a request was due.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Latency {
    /// Number of requests.
    pub count: u64,
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p99_9: f64,
    /// Largest.
    pub max: f64,
    /// (milliseconds, share of requests at or below), rising; at most about 200 points.
    pub cdf: Vec<(f64, f64)>,
}

impl Latency {
    /// Of a histogram in microseconds.
    pub fn of(h: &Histogram<u64>) -> Latency {
        if h.is_empty() {
            return Latency::default();
        }
        let at = |share: f64| h.value_at_quantile(share) as f64 / 1e3;
        let mut cdf: Vec<(f64, f64)> = Vec::new();
        for i in 1..=CDF_POINTS {
            let share = f64::from(i) / f64::from(CDF_POINTS);
            let point = (at(share), share);
            match cdf.last_mut() {
                Some(last) if last.0 == point.0 => *last = point,
                _ => cdf.push(point),
            }
        }
        Latency {
            count: h.len(),
            mean: h.mean() / 1e3,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p99_9: at(0.999),
            max: h.max() as f64 / 1e3,
            cdf,
        }
    }
}

/// One class of clients.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ClassReport {
    /// Name.
    pub name: String,
    /// Measured requests answered.
    pub requests: u64,
    /// Measured bytes.
    pub bytes: u64,
    /// Measured failures.
    pub failures: u64,
    /// From due to complete.
    pub latency_ms: Latency,
    /// From due to the head of the answer.
    pub first_byte_ms: Latency,
}

/// One second.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SecondReport {
    /// Its number from 0.
    pub second: u64,
    /// Body megabytes received in it.
    pub mb_per_s: f64,
    /// Requests completed in it.
    pub requests: u64,
    /// Requests failed in it.
    pub failures: u64,
    /// Longest latency of a request that ended in it, milliseconds.
    pub latency_max_ms: f64,
}

/// Ten seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WindowReport {
    /// Start, seconds.
    pub from_s: f64,
    /// Requests due in it, a second.
    pub offered_per_s: f64,
    /// Of these, answered, a second.
    pub answered_per_s: f64,
    /// Requests complete in it, whenever they were due, a second.
    pub completed_per_s: f64,
    /// Of these, failed.
    pub failed: u64,
    /// Of these, failed, as a share of those due. A paced session is due once in a window, so this is close
    /// to the share of running sessions that failed.
    pub failed_share: f64,
    /// Body megabytes a second.
    pub mb_per_s: f64,
    /// 99th percentile of the latency of requests due in it, milliseconds.
    pub p99_ms: f64,
}

/// Failures from the start.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Failures {
    /// Number by kind; every kind is there.
    pub by_kind: std::collections::BTreeMap<String, u64>,
    /// The first ones.
    pub examples: Vec<FailureExample>,
    /// The first answer that was not the file.
    pub corruption: Option<FailureExample>,
}

/// Windows whole within the run.
pub fn windows(record: &Recorder, length: Nanos) -> Vec<WindowReport> {
    let seconds = WINDOW.as_secs_f64();
    record
        .windows
        .iter()
        .enumerate()
        .take_while(|(i, _)| WINDOW.0 * (*i as u64 + 1) <= length.0)
        .map(|(i, w)| WindowReport {
            from_s: i as f64 * seconds,
            offered_per_s: w.offered as f64 / seconds,
            answered_per_s: w.answered as f64 / seconds,
            completed_per_s: w.completed as f64 / seconds,
            failed: w.failed,
            failed_share: if w.offered == 0 { 0.0 } else { w.failed as f64 / w.offered as f64 },
            mb_per_s: mb_per_s(w.bytes, seconds),
            p99_ms: w.latency_us.value_at_quantile(0.99) as f64 / 1e3,
        })
        .collect()
}

impl RunReport {
    /// The report of a finished run.
    pub fn new(
        kind: &str,
        config: serde_json::Value,
        settings: &RunSettings,
        finished: &Finished,
    ) -> RunReport {
        let r = &finished.record;
        let length = finished.length;
        let measured_s = length.since(settings.warmup).as_secs_f64();
        let Tally { requests, bytes, failures } = r.measured;
        let s = r.sessions;
        RunReport {
            kind: kind.into(),
            config,
            partial: finished.partial,
            length_s: length.as_secs_f64(),
            wall_s: finished.wall_s,
            cpu_s: finished.cpu_s,
            speedup: settings.speedup,
            measured: Measured {
                from_s: settings.warmup.as_secs_f64().min(length.as_secs_f64()),
                to_s: length.as_secs_f64(),
                bytes,
                mb_per_s: mb_per_s(bytes, measured_s),
                requests,
                requests_per_s: if measured_s > 0.0 { requests as f64 / measured_s } else { 0.0 },
                failures,
            },
            totals: Totals {
                requests: r.total.requests,
                bytes: r.total.bytes,
                failures: r.total.failures,
                reconnects: r.reconnects,
                verified: settings.verify,
            },
            sessions: (kind != "closed").then(|| SessionCounts {
                started: s.started,
                completed: s.completed,
                failed: s.failed,
                unfinished: s.started.saturating_sub(s.completed + s.failed),
                measured: s.measured,
                failed_measured: s.failed_measured,
                failed_share: s.failed_share(),
            }),
            latency_ms: Latency::of(&r.all_classes(|c| &c.latency_us)),
            first_byte_ms: Latency::of(&r.all_classes(|c| &c.first_byte_us)),
            startup_ms: Latency::of(&r.all_classes(|c| &c.startup_us)),
            lag_ms: Lag {
                p50: r.lag_us.value_at_quantile(0.5) as f64 / 1e3,
                p99: r.lag_us.value_at_quantile(0.99) as f64 / 1e3,
                max: r.lag_us.max() as f64 / 1e3,
            },
            classes: r
                .classes
                .iter()
                .map(|c| ClassReport {
                    name: c.name.clone(),
                    requests: c.tally.requests,
                    bytes: c.tally.bytes,
                    failures: c.tally.failures,
                    latency_ms: Latency::of(&c.latency_us),
                    first_byte_ms: Latency::of(&c.first_byte_us),
                })
                .collect(),
            series: r
                .seconds
                .iter()
                .enumerate()
                .map(|(i, s)| SecondReport {
                    second: i as u64,
                    mb_per_s: s.tally.bytes as f64 / 1e6,
                    requests: s.tally.requests,
                    failures: s.tally.failures,
                    latency_max_ms: s.latency_max_us as f64 / 1e3,
                })
                .collect(),
            windows: windows(r, length),
            failures: Failures {
                by_kind: KINDS.iter().zip(r.failures).map(|(k, n)| ((*k).to_string(), n)).collect(),
                examples: r.examples.clone(),
                corruption: r.corruption.clone(),
            },
        }
    }

    /// A few lines for people.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let m = &self.measured;
        // Writing to a String cannot fail.
        let _ = writeln!(
            out,
            "{}{:.1} MB/s, {:.1} requests/s over {:.1} s (after {:.1} s of warm-up{}){}",
            if self.partial { "INTERRUPTED, so far: " } else { "" },
            m.mb_per_s,
            m.requests_per_s,
            m.to_s - m.from_s,
            m.from_s,
            if self.speedup == 1.0 { String::new() } else { format!("; clock x{}", self.speedup) },
            if self.totals.verified { "" } else { "; bytes not verified" },
        );
        let l = &self.latency_ms;
        let _ = writeln!(
            out,
            "latency from due: median {:.1} ms, 90% {:.1}, 99% {:.1}, 99.9% {:.1}, max {:.1}",
            l.p50, l.p90, l.p99, l.p99_9, l.max
        );
        if let Some(s) = &self.sessions {
            let _ = writeln!(
                out,
                "sessions: {} started, {} completed, {} failed ({:.2} % of measured), {} unfinished",
                s.started,
                s.completed,
                s.failed,
                s.failed_share * 100.0,
                s.unfinished
            );
        }
        if self.totals.failures > 0 {
            let kinds: Vec<String> = self
                .failures
                .by_kind
                .iter()
                .filter(|(_, n)| **n > 0)
                .map(|(kind, n)| format!("{kind} {n}"))
                .collect();
            let _ = writeln!(out, "failed requests: {} ({})", self.totals.failures, kinds.join(", "));
            if let Some(e) = self.failures.examples.first() {
                let _ = writeln!(
                    out,
                    "first: {} from byte {}, due at {:.3} s: {}",
                    e.path, e.offset, e.due_s, e.detail
                );
            }
        }
        if self.lag_ms.p99 > LAG_WARNING_MS {
            let _ = writeln!(
                out,
                "WARNING: the load itself was late (99% within {:.0} ms): this machine, not only the server, was at its limit",
                self.lag_ms.p99
            );
        }
        let _ = writeln!(
            out,
            "the load took {:.2} s of processor time, {:.0} MB a second of it",
            self.cpu_s,
            mb_per_s(self.totals.bytes, self.cpu_s)
        );
        out
    }

    /// How the command ends: bytes that are not the file's, or not one right answer, are a failure of the
    /// run; other failures are results.
    ///
    /// # Errors
    /// As said, in one line with the first place.
    pub fn verdict(&self) -> Result<Exit, Fault> {
        if let Some(c) = &self.failures.corruption {
            let n = self.failures.by_kind.get("wrong_byte").copied().unwrap_or(0)
                + self.failures.by_kind.get("range").copied().unwrap_or(0);
            return Err(Fault::failed(format!(
                "the server sent wrong content: {}: {} ({n} such answers in all)",
                c.path, c.detail
            )));
        }
        if self.totals.requests == 0
            && let Some(e) = self.failures.examples.first()
        {
            return Err(Fault::failed(format!(
                "not one of {} requests was answered; the first, {} from byte {}: {}",
                self.totals.failures, e.path, e.offset, e.detail
            )));
        }
        Ok(if self.partial { Exit::Interrupted } else { Exit::Ok })
    }
}
