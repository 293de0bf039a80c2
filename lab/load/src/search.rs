//! The highest request rate a server carries without failures.
//!
//! The papers' figures are maximum failure-free rates: the highest rate at which fewer than 0.3 % of the
//! sessions fail (\[L\] section 4), or none (\[A\] section 6.2). Two ways to find it:
//!
//! **Ramp.** One run whose rate rises slowly until failures exceed the limit for good. It is fast (a few
//! minutes) and a single pass over the library, so it suits live comparisons. A server driven over its limit
//! fails only once 10 s of backlog have built up, and meanwhile the offered rate still rises. So the result
//! is not the rate offered at the first failure but the rate *carried*: over the 20 s before the limit was
//! exceeded, the lower of requests due and requests complete. The ramp is geometric, so that the remaining
//! error is the same factor for every server. It still errs to the high side: a server carries a rate for a
//! minute that it would not carry for an hour.
//!
//! **Bisection.** Runs at constant rates, each from a warm start: the rate is raised (or lowered) until one
//! holds and one fails, then set to the geometric mean, until the two are within the precision or the maximum
//! number of runs is reached. Each run has a seed of its own; otherwise the second would find in memory what
//! the first had requested.
//!
//! **Both**: the ramp gives the bracket, bisection the figure.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use clap::{Args, ValueEnum};
use seekless_base::{Exit, Fault, Nanos};
use seekless_model::load_options::HoldsOption;
use seekless_model::with::{WithOption, within};
use seekless_model::workload::session::{ClientClass, Rate, SessionSpec};
use seekless_options::parsed;
use seekless_output::give;
use serde::{Deserialize, Serialize};

use crate::args::{MAX_CLIENTS, SessionArgs, VIEWERS, positive};
use crate::bisection::Bisection;
use crate::record::{Live, WINDOW};
use crate::report::{RunReport, WindowReport, windows};
use crate::run::{Finished, RunSettings};
use crate::sessions::{SessionRun, sessions};

/// A ramp ends when this many times the allowed share of requests fail,
const RAMP_STOP_FACTOR: f64 = 10.0;
/// but not below this share: a handful of failures must not end it.
const RAMP_STOP_SHARE_MIN: f64 = 0.05;
/// Minimum number of failures that end a ramp.
const RAMP_STOP_FAILURES_MIN: u64 = 20;
/// Maximum number of runs of a search.
const RUNS_MAX: u32 = 50;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Method {
    /// One run whose rate rises until failures exceed the limit
    Ramp,
    /// Runs at constant rates
    Bisect,
    /// A ramp, then bisection around what it found
    Both,
}

/// Arguments of `seekless-lab load search`.
#[derive(Args, Clone, Debug)]
pub(crate) struct SearchArgs {
    #[command(flatten)]
    session: SessionArgs,
    /// How to search
    #[arg(long, value_enum, default_value = "both")]
    method: Method,
    #[command(flatten)]
    holds: HoldsOption,
    /// Lowest rate of the ramp, first rate of a bisection, requests a second
    #[arg(long, value_name = "RATE", default_value = "10", value_parser = positive)]
    from: f64,
    /// Highest rate of the ramp; a bisection goes no higher
    #[arg(long, value_name = "RATE", default_value = "400", value_parser = positive)]
    to: f64,
    #[command(flatten)]
    with: WithOption,
}

/// The values that `--with` sets.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
struct Settings {
    /// Length of the ramp.
    #[serde(deserialize_with = "parsed")]
    ramp_over: Nanos,
    /// Length of each run at a constant rate, warm-up included.
    #[serde(deserialize_with = "parsed")]
    step: Nanos,
    /// Maximum number of runs at constant rates.
    runs: u32,
    /// Stop when the highest good and the lowest bad rate are this close.
    precision: f64,
}

impl Default for Settings {
    fn default() -> Settings {
        let (ramp_over, step) = (Nanos::from_secs(600), Nanos::from_secs(120));
        Settings { ramp_over, step, runs: 8, precision: 0.05 }
    }
}

/// One run at a constant rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SearchStep {
    /// Requested rate, requests a second.
    pub rate_per_s: f64,
    /// Rate at which requests actually became due after the warm-up.
    pub offered_per_s: f64,
    /// Requests answered a second.
    pub requests_per_s: f64,
    /// Body megabytes a second.
    pub mb_per_s: f64,
    /// Sessions that failed, as a share of those measured.
    pub failed_share: f64,
    /// Sessions that failed.
    pub failed_sessions: u64,
    /// 99th percentile of the latency from due, milliseconds.
    pub p99_ms: f64,
    /// Whether the rate holds.
    pub good: bool,
}

/// The result of a ramp. Rates are carried rates: the lower of requests due and requests complete a second,
/// over 20 s.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RampResult {
    /// Highest rate before the first window in which any request failed.
    pub before_first_failure_per_s: Option<f64>,
    /// Throughput in these 20 s, MB/s.
    pub before_first_failure_mb_per_s: Option<f64>,
    /// Requests due a second in the window (10 s) of the first failure.
    pub first_failure_offered_per_s: Option<f64>,
    /// Start of that window, seconds.
    pub first_failure_s: Option<f64>,
    /// Highest rate before the share of failures first exceeded the limit.
    pub max_per_s: Option<f64>,
    /// Throughput in these 20 s, MB/s.
    pub max_mb_per_s: Option<f64>,
    /// Whether the limit was never exceeded: the true maximum is then higher than `max_per_s`.
    pub reached_top: bool,
    /// Every 10 s of the ramp.
    pub windows: Vec<WindowReport>,
}

/// The result of a search.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SearchReport {
    /// `search`.
    pub kind: String,
    /// The arguments.
    pub config: serde_json::Value,
    /// Whether a signal ended it.
    pub partial: bool,
    /// Share of sessions that may fail.
    pub max_failed: f64,
    /// The maximum failure-free rate: the highest good step, else the result of the ramp. `None`: even the
    /// lowest rate failed.
    pub max_per_s: Option<f64>,
    /// Throughput at it, MB/s.
    pub max_mb_per_s: Option<f64>,
    /// Lowest rate that failed, if any.
    pub lowest_bad_per_s: Option<f64>,
    /// The ramp, if there was one.
    pub ramp: Option<RampResult>,
    /// The runs at constant rates, in order.
    pub steps: Vec<SearchStep>,
    /// This and the following: the report of the run behind `max_per_s` (the ramp, or the highest good step),
    /// so that a program that reads runs can read a search as well. As in [`RunReport`].
    pub measured: Option<crate::report::Measured>,
    /// As in [`RunReport`].
    pub totals: Option<crate::report::Totals>,
    /// As in [`RunReport`].
    pub sessions: Option<crate::report::SessionCounts>,
    /// As in [`RunReport`].
    pub latency_ms: Option<crate::report::Latency>,
    /// As in [`RunReport`].
    pub first_byte_ms: Option<crate::report::Latency>,
    /// As in [`RunReport`].
    pub lag_ms: Option<crate::report::Lag>,
    /// As in [`RunReport`].
    pub failures: Option<crate::report::Failures>,
    /// As in [`RunReport`].
    pub series: Vec<crate::report::SecondReport>,
}

impl SearchReport {
    fn stands_on(&mut self, run: &RunReport) {
        self.measured = Some(run.measured.clone());
        self.totals = Some(run.totals.clone());
        self.sessions = run.sessions.clone();
        self.latency_ms = Some(run.latency_ms.clone());
        self.first_byte_ms = Some(run.first_byte_ms.clone());
        self.lag_ms = Some(run.lag_ms.clone());
        self.failures = Some(run.failures.clone());
        self.series = run.series.clone();
    }
}

/// What a ramp's windows show about the limit `max_failed`. Requests due after `resolved_s` may have been in
/// progress when the run ended: such a window counts only if it is over the limit already.
pub fn judge_ramp(mut windows: Vec<WindowReport>, max_failed: f64, resolved_s: f64) -> RampResult {
    windows.retain(|w| {
        w.from_s + WINDOW.as_secs_f64() <= resolved_s || (w.failed > 0 && w.failed_share > max_failed)
    });
    // Two windows at a time: one alone is too noisy (some hundred Poisson arrivals), and the highest is
    // taken.
    let highest = |until: usize| {
        let before = &windows[..until];
        before
            .windows(2.min(until.max(1)))
            .map(|w| {
                let mean = |of: fn(&WindowReport) -> f64| w.iter().map(of).sum::<f64>() / w.len() as f64;
                (mean(|w| w.offered_per_s).min(mean(|w| w.completed_per_s)), mean(|w| w.mb_per_s))
            })
            .filter(|&(carried, _)| carried > 0.0)
            .max_by(|a, b| a.0.total_cmp(&b.0))
    };
    let first = windows.iter().position(|w| w.failed > 0);
    let over = windows.iter().position(|w| w.failed > 0 && w.failed_share > max_failed);
    let before_first = first.and_then(highest);
    let best = highest(over.unwrap_or(windows.len()));
    RampResult {
        before_first_failure_per_s: before_first.map(|(rate, _)| rate),
        before_first_failure_mb_per_s: before_first.map(|(_, mb)| mb),
        first_failure_offered_per_s: first.map(|i| windows[i].offered_per_s),
        first_failure_s: first.map(|i| windows[i].from_s),
        max_per_s: best.map(|(rate, _)| rate),
        max_mb_per_s: best.map(|(_, mb)| mb),
        reached_top: over.is_none(),
        windows,
    }
}

struct Search<'a> {
    args: &'a SearchArgs,
    settings: Settings,
    classes: Vec<ClientClass>,
    catalogue: Arc<seekless_model::workload::catalogue::Catalogue>,
    /// Number of runs so far; each has its own seed.
    runs: u64,
}

impl Search<'_> {
    fn plan(&mut self, rate: Rate) -> Arc<SessionRun> {
        let s = &self.args.session;
        let seed = s.run.from.seed + self.runs;
        self.runs += 1;
        let spec = SessionSpec {
            rate,
            sessions: u32::MAX,
            warm_start: !s.cold_start,
            classes: self.classes.clone(),
            seed,
        };
        let catalogue = self.catalogue.clone();
        Arc::new(SessionRun { catalogue, spec, max_clients: MAX_CLIENTS, timeout: s.line.timeout(&VIEWERS) })
    }

    fn ramp(&mut self) -> Result<(RunSettings, Finished), Fault> {
        let a = self.args;
        let over = self.settings.ramp_over;
        let settings = a.session.run.settings(Some(over), &self.classes)?;
        let plan = self.plan(Rate::Geometric { from_per_s: a.from, to_per_s: a.to, over });
        let mut watch = RampWatch::new(a.holds.max_failed);
        let finished = sessions(&settings, plan, move |now, live| !watch.is_over(now, live))?;
        Ok((settings, finished))
    }

    fn step(&mut self, rate_per_s: f64) -> Result<(SearchStep, RunReport), Fault> {
        let settings = self.args.session.run.settings(Some(self.settings.step), &self.classes)?;
        let plan = self.plan(Rate::Constant { per_s: rate_per_s });
        let finished = sessions(&settings, plan, |_, _| true)?;
        let report = RunReport::new("sessions", serde_json::Value::Null, &settings, &finished);
        let sessions = finished.record.sessions;
        let warm: Vec<&WindowReport> =
            report.windows.iter().filter(|w| w.from_s >= settings.warmup.as_secs_f64()).collect();
        let offered = warm.iter().map(|w| w.offered_per_s).sum::<f64>() / warm.len().max(1) as f64;
        let step = SearchStep {
            rate_per_s,
            offered_per_s: offered,
            requests_per_s: report.measured.requests_per_s,
            mb_per_s: report.measured.mb_per_s,
            failed_share: sessions.failed_share(),
            failed_sessions: sessions.failed_measured,
            p99_ms: report.latency_ms.p99,
            good: holds(sessions.failed_share(), self.args.holds.max_failed) && !report.partial,
        };
        Ok((step, report))
    }
}

/// "Fewer than" the limit; zero if the limit is zero.
fn holds(failed_share: f64, max_failed: f64) -> bool {
    failed_share < max_failed || failed_share == 0.0
}

/// Decides from the live counts when a ramp has shown enough: failures well over the limit among the requests
/// that became due in about the last two windows. This only decides when to stop; the result comes from the
/// exact counts.
struct RampWatch {
    stop_share: f64,
    /// Counts at the starts of the last windows: (when, offered, failed).
    marks: std::collections::VecDeque<(Nanos, u64, u64)>,
}

impl RampWatch {
    fn new(max_failed: f64) -> RampWatch {
        let stop_share = (max_failed * RAMP_STOP_FACTOR).max(RAMP_STOP_SHARE_MIN);
        RampWatch { stop_share, marks: std::collections::VecDeque::new() }
    }

    fn is_over(&mut self, now: Nanos, live: &Live) -> bool {
        let offered = live.offered.load(Ordering::Relaxed);
        let failed = live.failures.load(Ordering::Relaxed);
        if self.marks.back().is_none_or(|&(at, _, _)| now.since(at) >= Nanos(WINDOW.0 / 2)) {
            self.marks.push_back((now, offered, failed));
            while self.marks.len() > 5 {
                self.marks.pop_front();
            }
        }
        let Some(&(_, offered_then, failed_then)) = self.marks.front() else { return false };
        let failures = failed - failed_then;
        failures >= RAMP_STOP_FAILURES_MIN
            && failures as f64 > self.stop_share * (offered - offered_then).max(1) as f64
    }
}

/// Runs `seekless-lab load search`.
pub(crate) fn run_search(a: &SearchArgs) -> Result<Exit, Fault> {
    if a.from >= a.to {
        return Err(Fault::usage(format!("--from {} must be below --to {}", a.from, a.to)));
    }
    let settings: Settings = a.with.settings()?;
    within(&[
        ("runs", f64::from(settings.runs), 1.0, f64::from(RUNS_MAX)),
        ("precision", settings.precision, 0.0, 1.0),
    ])?;
    let classes = a.session.line.classes(&VIEWERS)?;
    let catalogue = Arc::new(a.session.catalogue.catalogue()?);
    let mut report = SearchReport {
        kind: "search".into(),
        config: config(a, &settings, &classes, &catalogue),
        partial: false,
        max_failed: a.holds.max_failed,
        max_per_s: None,
        max_mb_per_s: None,
        lowest_bad_per_s: None,
        ramp: None,
        steps: Vec::new(),
        measured: None,
        totals: None,
        sessions: None,
        latency_ms: None,
        first_byte_ms: None,
        lag_ms: None,
        failures: None,
        series: Vec::new(),
    };
    let mut search = Search { args: a, settings, classes, catalogue, runs: 0 };
    let mut first = a.from;
    let mut verdict = Ok(Exit::Ok);
    if a.method != Method::Bisect {
        let (settings, finished) = search.ramp()?;
        report.partial = finished.partial;
        let run = RunReport::new("sessions", serde_json::Value::Null, &settings, &finished);
        verdict = run.verdict();
        report.stands_on(&run);
        let judged = judge_ramp(
            windows(&finished.record, finished.length),
            a.holds.max_failed,
            finished.length.since(a.session.line.timeout(&VIEWERS)).as_secs_f64(),
        );
        // A ramp errs to the high side: begin a little below what it found.
        first = judged.max_per_s.unwrap_or(a.from) * 0.9;
        (report.max_per_s, report.max_mb_per_s) = (judged.max_per_s, judged.max_mb_per_s);
        report.lowest_bad_per_s = judged.first_failure_offered_per_s.filter(|_| !judged.reached_top);
        report.ramp = Some(judged);
    }
    if a.method != Method::Ramp && !report.partial && verdict.is_ok() {
        (report.max_per_s, report.max_mb_per_s, report.lowest_bad_per_s) = (None, None, None);
        let mut bisection = Bisection::new(first, a.to, settings.precision, settings.runs);
        while let Some(rate) = bisection.rate() {
            let (step, run) = search.step(rate)?;
            if !a.session.run.quiet {
                seekless_output::eprintln!(
                    "{:.1} requests/s: {:.1} MB/s, {:.2} % of sessions failed, 99% within {:.0} ms: {}",
                    step.rate_per_s,
                    step.mb_per_s,
                    step.failed_share * 100.0,
                    step.p99_ms,
                    if step.good { "holds" } else { "too much" }
                );
            }
            bisection.learn(step.good);
            if step.good && report.max_per_s.is_none_or(|m| step.rate_per_s > m) {
                (report.max_per_s, report.max_mb_per_s) = (Some(step.rate_per_s), Some(step.mb_per_s));
                report.stands_on(&run);
            }
            if !step.good && report.lowest_bad_per_s.is_none_or(|b| step.rate_per_s < b) {
                report.lowest_bad_per_s = Some(step.rate_per_s);
            }
            report.steps.push(step);
            // Overloaded runs may answer nothing; only wrong content and signals end the search.
            if run.failures.corruption.is_some() {
                verdict = run.verdict();
                break;
            }
            if run.partial {
                report.partial = true;
                break;
            }
        }
    }
    give(a.session.run.json.path(), &report, || text(&report))?;
    if report.partial {
        return Ok(Exit::Interrupted);
    }
    verdict
}

fn config(
    a: &SearchArgs,
    settings: &Settings,
    classes: &[ClientClass],
    catalogue: &seekless_model::workload::catalogue::Catalogue,
) -> serde_json::Value {
    let run = &a.session.run;
    serde_json::json!({
        "url": run.url, "method": format!("{:?}", a.method).to_lowercase(), "from_per_s": a.from, "to_per_s": a.to,
        "ramp_over_s": settings.ramp_over.as_secs_f64(), "step_s": settings.step.as_secs_f64(), "runs": settings.runs,
        "precision": settings.precision, "warmup_s": run.warmup.as_secs_f64(), "speedup": run.speedup, "seed": run.from.seed,
        "timeout_s": a.session.line.timeout(&VIEWERS).as_secs_f64(), "classes": classes, "warm_start": !a.session.cold_start,
        "library_bytes": catalogue.total(), "library_files": catalogue.videos().len(),
    })
}

fn text(report: &SearchReport) -> String {
    let rate = |r: Option<f64>, mb: Option<f64>| match (r, mb) {
        (Some(r), Some(mb)) => format!("{r:.1} requests/s, {mb:.1} MB/s"),
        _ => "none".into(),
    };
    let mut out = String::new();
    if report.partial {
        out.push_str("INTERRUPTED, so far:\n");
    }
    if let Some(r) = &report.ramp {
        let first = match (r.first_failure_offered_per_s, r.first_failure_s) {
            (Some(rate), Some(at)) => format!("first failure with {rate:.1} requests/s offered ({at:.0} s)"),
            _ => "no failure".into(),
        };
        out.push_str(&format!(
            "ramp: {first}; limit kept up to {}{}\n",
            rate(r.max_per_s, r.max_mb_per_s),
            if r.reached_top { " (the top of the ramp: raise --to)" } else { "" }
        ));
    }
    out.push_str(&format!(
        "maximum rate with {}: {}\n",
        if report.max_failed > 0.0 {
            format!("fewer than {:.1} % failed sessions", report.max_failed * 100.0)
        } else {
            "no failed session".into()
        },
        rate(report.max_per_s, report.max_mb_per_s)
    ));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(from_s: f64, offered_per_s: f64, failed: u64) -> WindowReport {
        WindowReport {
            from_s,
            offered_per_s,
            answered_per_s: offered_per_s,
            completed_per_s: offered_per_s - 1.0,
            failed,
            failed_share: failed as f64 / (offered_per_s * 10.0),
            mb_per_s: offered_per_s / 2.0,
            p99_ms: 1.0,
        }
    }

    #[test]
    fn a_ramp_reports_where_failures_began_and_where_the_limit_was() {
        let windows = vec![
            window(0.0, 11.0, 0),
            window(10.0, 51.0, 0),
            window(20.0, 81.0, 0),
            window(30.0, 91.0, 1),
            window(40.0, 101.0, 40),
        ];
        let r = judge_ramp(windows.clone(), 0.003, 100.0);
        // Carried: the mean of two windows, complete (one less than offered in `window`).
        assert_eq!((r.before_first_failure_per_s, r.first_failure_offered_per_s), (Some(65.0), Some(91.0)));
        assert_eq!((r.max_per_s, r.max_mb_per_s, r.reached_top), (Some(85.0), Some(43.0), false));
        let r = judge_ramp(windows.clone(), 0.0, 30.0);
        assert_eq!((r.max_per_s, r.first_failure_s), (Some(65.0), Some(30.0)));
        // The last window is not resolved and within the limit, so it shows nothing.
        let r = judge_ramp(windows[..4].to_vec(), 0.01, 35.0);
        assert_eq!((r.max_per_s, r.reached_top, r.first_failure_offered_per_s), (Some(65.0), true, None));
        assert_eq!(judge_ramp(windows[..1].to_vec(), 0.0, 100.0).max_per_s, Some(10.0));
        assert_eq!(judge_ramp(windows[4..].to_vec(), 0.0, 100.0).max_per_s, None);
        assert_eq!(judge_ramp(Vec::new(), 0.0, 0.0).max_per_s, None);
    }

    #[test]
    fn fewer_than_the_limit_or_none() {
        assert!(holds(0.0, 0.0) && holds(0.0, 0.003) && holds(0.0029, 0.003));
        assert!(!holds(0.003, 0.003) && !holds(0.0001, 0.0));
    }

    #[test]
    fn a_ramp_stops_on_many_failures_and_not_on_a_few() {
        let live = Live::default();
        let mut watch = RampWatch::new(0.003);
        for s in 0..60 {
            live.offered.fetch_add(100, Ordering::Relaxed);
            if s == 20 {
                live.failures.fetch_add(5, Ordering::Relaxed);
            }
            assert!(!watch.is_over(Nanos::from_secs(s), &live), "{s}");
        }
        live.failures.fetch_add(200, Ordering::Relaxed);
        assert!(watch.is_over(Nanos::from_secs(60), &live));
    }
}
