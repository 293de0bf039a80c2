//! The simulator as a runner: the same scenario, in virtual time.
//!
//! Every run of an arm becomes one `seekless sim` process (the lab knows the simulator only as a command line and its JSON), as
//! many at once as there are processors. A run is deterministic, so a repetition differs by its seed alone. Rows come out
//! in the order the live runner has them, whatever process ends first.

mod translate;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use seekless_units::{Exit, Fault};
use serde_json::Value;

use crate::environment::Environment;
use crate::guard::{self, Scratch};
use crate::live::{load, serve};
use crate::process::run_json;
use crate::results::{Results, Row, SCHEMA};
use crate::scenario::{Load, Point, Scenario};
use crate::terminal::Progress;
use crate::tools;

pub(crate) use translate::refusal;

/// Longest one run may take.
const PATIENCE: Duration = Duration::from_secs(3600);

/// One process to start.
struct Job<'a> {
    point: &'a Point,
    repetition: u32,
    args: Vec<String>,
}

/// Runs a scenario in the simulator and leaves `results.json` and `report.html` in `out`.
///
/// # Errors
/// [`Exit::Missing`] when the scenario can only run live; else what stops the run. A check that fails is no error.
pub(crate) fn run(name: &str, scenario: &Scenario, quick: bool, out: &Path) -> Result<Results, Fault> {
    if let Some(why) = refusal(scenario) {
        return Err(Fault::new(Exit::Missing, format!("`{name}` runs live only: {why}; use --live")));
    }
    guard::catch_signals();
    let begun = Instant::now();
    std::fs::create_dir_all(out).map_err(|e| Fault::new(Exit::Failed, format!("{}: {e}", out.display())))?;
    let points = scenario.points();
    let mut jobs = Vec::new();
    for repetition in 0..scenario.repetitions {
        for point in &points {
            let args = translate::arguments(scenario, point, repetition);
            jobs.push(Job { point, repetition, args });
        }
    }
    let scratch = Scratch::new()?;
    let progress = Progress::new(jobs.len() as u64);
    progress.now(&format!("{name}: {} runs in virtual time", jobs.len()));
    let answers = all(&jobs, scratch.path(), &progress)?;
    let mut results = Results {
        schema: SCHEMA,
        name: name.to_string(),
        driver: "sim".into(),
        quick,
        complete: true,
        pass: false,
        rows: Vec::new(),
        checks: Vec::new(),
        remarks: translate::remarks(scenario),
        environment: Environment::here(),
        scenario: scenario.clone(),
    };
    for (position, (job, answer)) in jobs.iter().zip(answers).enumerate() {
        let mut row = Row {
            arm: job.point.arm.name.clone(),
            x: job.point.x.clone(),
            repetition: job.repetition,
            position: position as u32,
            ..Row::default()
        };
        match &job.point.load {
            Load::Command { .. } => read(&mut row, &job.point.arm.read, &answer)?,
            _ => account(&mut row, &answer),
        }
        let line = job.args.join(" ");
        row.raw.insert("command".into(), format!("seekless {line}").into());
        results.rows.push(row);
    }
    results.environment.elapsed_s = begun.elapsed().as_secs_f64();
    results.judge();
    results.write(&out.join("results.json"))?;
    crate::report::write(out)?;
    Ok(results)
}

/// Runs all jobs, several at once; the answers in the jobs' order. Equal command lines are run once.
fn all(jobs: &[Job<'_>], scratch: &Path, progress: &Progress) -> Result<Vec<Value>, Fault> {
    let mut distinct: Vec<&[String]> = jobs.iter().map(|j| j.args.as_slice()).collect();
    distinct.sort();
    distinct.dedup();
    let next = AtomicUsize::new(0);
    let done: Mutex<BTreeMap<usize, Result<Value, Fault>>> = Mutex::new(BTreeMap::new());
    let one = |i: usize| {
        let mut command = tools::command(&[])?;
        command.args(distinct[i]).arg("--json");
        run_json("the simulator", command, PATIENCE, scratch)
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(distinct.len());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    if i >= distinct.len() {
                        return;
                    }
                    let answer = one(i);
                    let failed = answer.is_err();
                    if let Ok(mut done) = done.lock() {
                        done.insert(i, answer);
                    }
                    progress.step(jobs.iter().filter(|j| j.args == distinct[i]).count() as u64);
                    if failed {
                        // The others' answers would be thrown away.
                        next.store(distinct.len(), Ordering::Relaxed);
                        return;
                    }
                }
            });
        }
    });
    let done = done.into_inner().unwrap_or_else(|e| e.into_inner());
    let mut answers = BTreeMap::new();
    for (i, answer) in done {
        answers.insert(distinct[i], answer?);
    }
    jobs.iter()
        .map(|job| {
            let missing = || Fault::new(Exit::Failed, "a run of the simulator gave no answer");
            answers.get(job.args.as_slice()).cloned().ok_or_else(missing)
        })
        .collect()
}

/// Fills a row from the answer of `seekless sim serve`.
fn account(row: &mut Row, answer: &Value) {
    let disks: Vec<Value> = answer["disks"].as_array().cloned().unwrap_or_default();
    load::account(row, std::slice::from_ref(&answer["load"]));
    serve::account_disks(row, &disks);
    let number = |value: &Value, path: &str| value.pointer(path).and_then(Value::as_f64);
    let sum = |path: &str| disks.iter().filter_map(|d| number(d, path)).sum::<f64>();
    let bytes = sum("/stats/read_bytes");
    for name in ["seq_bytes_le_128k", "seq_bytes_le_576k", "seq_bytes_gt_1920k"] {
        if bytes > 0.0 {
            row.metrics.insert(name.into(), sum(&format!("/stats/{name}")) / bytes);
        }
    }
    for (name, path) in [
        ("calls_under_1ms", "/calls/under_1ms"),
        ("calls_under_0_1ms", "/calls/under_0_1ms"),
        ("calls_p99_ms", "/calls/p99_ms"),
    ] {
        if let Some(value) = number(answer, path) {
            row.metrics.insert(name.into(), value);
        }
    }
    if let Ok(cdf) = serde_json::from_value(answer["calls"]["cdf"].clone()) {
        row.cdfs.insert("call_ms".into(), cdf);
    }
    let served = number(answer, "/load/measured/bytes").unwrap_or(0.0);
    if served > 0.0 {
        // As the prefetch sizing paper counts: evicted is what had to be read again, wasted what nobody came for; what neither
        // these nor the disk explain came out of the cache.
        let share = |name: &str| number(answer, &format!("/cache/{name}")).unwrap_or(0.0) * 4096.0 / served;
        let (evicted, disk) = (share("refetched"), bytes / served);
        let wasted = (share("evicted_unused") + share("dropped_unused") - evicted).max(0.0);
        row.metrics.insert("evicted_share".into(), evicted);
        row.metrics.insert("wasted_share".into(), wasted);
        row.metrics.insert("disk_share".into(), disk);
        row.metrics.insert("cached_share".into(), 1.0 - disk + evicted + wasted);
        if disk > 0.0 {
            serve::account_transfer(row, evicted / disk, wasted / disk);
        }
    }
    // By the engine's own ledger, as a live run has it.
    let engines = answer["engines"].as_array().into_iter().flatten();
    let evicted = engines.filter_map(|e| number(e, "/table1/evicted")).reduce(f64::max);
    if let Some(evicted) = evicted {
        row.metrics.insert("ledger_evicted".into(), evicted);
    }
    for name in ["engines", "cache"] {
        row.raw.insert(name.into(), answer[name].clone());
    }
}

/// Fills a row by the arm's own pointers into the answer.
fn read(row: &mut Row, wanted: &BTreeMap<String, String>, answer: &Value) -> Result<(), Fault> {
    for (name, pointer) in wanted {
        let value = answer.pointer(pointer).and_then(Value::as_f64).ok_or_else(|| {
            let message = format!("arm `{}`: the answer has no number at {pointer} for {name}", row.arm);
            Fault::new(Exit::Usage, message)
        })?;
        row.metrics.insert(name.clone(), value);
    }
    row.raw.insert("answer".into(), answer.clone());
    Ok(())
}
