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
use crate::scenario::{Arm, Load, Point, Scenario};
use crate::terminal::Progress;
use crate::tools;

pub(crate) use translate::refusal;

/// Longest one run may take.
const PATIENCE: Duration = Duration::from_secs(3600);

/// Answers by command line: several figures show the same experiments, and the same command gives the same answer.
pub(crate) type Known = BTreeMap<Vec<String>, Value>;

/// What a command line gave.
type Answer<'a> = (&'a [String], Result<Value, Fault>);

/// One process to start.
struct Job<'a> {
    point: &'a Point,
    repetition: u32,
    args: Vec<String>,
}

/// Runs a scenario in the simulator, `threads` runs at a time, and leaves `results.json` and `report.html` in `out`.
///
/// # Errors
/// [`Exit::Missing`] when the scenario can only run live; else what stops the run. A check that fails is no error.
pub(crate) fn run(
    name: &str,
    scenario: &Scenario,
    quick: bool,
    threads: usize,
    known: &mut Known,
    out: &Path,
) -> Result<Results, Fault> {
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
    let answers = all(&jobs, threads, known, scratch.path(), &progress)?;
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
            Load::Command { rows, x, .. } => {
                read(&mut row, &job.point.arm, rows.as_deref(), x.as_deref(), &answer)?
            }
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

/// Runs all jobs, several at once; the answers in the jobs' order. What is known already or asked for twice runs once.
fn all(
    jobs: &[Job<'_>],
    threads: usize,
    known: &mut Known,
    scratch: &Path,
    progress: &Progress,
) -> Result<Vec<Value>, Fault> {
    let mut distinct: Vec<&[String]> = jobs.iter().map(|j| j.args.as_slice()).collect();
    distinct.sort();
    distinct.dedup();
    let steps = |args: &[String]| jobs.iter().filter(|j| j.args == args).count() as u64;
    let (there, missing): (Vec<_>, Vec<_>) = distinct.into_iter().partition(|a| known.contains_key(*a));
    there.iter().for_each(|args| progress.step(steps(args)));
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<Answer<'_>>> = Mutex::new(Vec::new());
    let one = |args: &[String]| {
        let mut command = tools::command(&[])?;
        command.args(args).arg("--json");
        run_json("the simulator", command, PATIENCE, scratch)
    };
    std::thread::scope(|scope| {
        for _ in 0..threads.min(missing.len()) {
            scope.spawn(|| {
                while let Some(args) = missing.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let answer = one(args);
                    if answer.is_err() {
                        // The others' answers would be thrown away.
                        next.store(missing.len(), Ordering::Relaxed);
                    }
                    if let Ok(mut done) = done.lock() {
                        done.push((args, answer));
                    }
                    progress.step(steps(args));
                }
            });
        }
    });
    for (args, answer) in done.into_inner().unwrap_or_else(|e| e.into_inner()) {
        known.insert(args.to_vec(), answer?);
    }
    jobs.iter()
        .map(|job| {
            let missing = || Fault::new(Exit::Failed, "a run of the simulator gave no answer");
            known.get(&job.args).cloned().ok_or_else(missing)
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

/// Fills a row by the arm's own pointers into the answer, or into the element of its list `rows` that the arm means.
fn read(row: &mut Row, arm: &Arm, rows: Option<&str>, x: Option<&str>, answer: &Value) -> Result<(), Fault> {
    let here = |what: String| Fault::new(Exit::Usage, format!("arm `{}`: {what}", arm.name));
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_string);
    let source = match rows.filter(|_| !arm.row.is_empty()) {
        None => answer,
        Some(pointer) => {
            let at_x = [x.zip(row.x.as_deref())];
            let wanted = arm.row.iter().map(|(k, v)| (k.as_str(), v.as_str()));
            let wanted: Vec<(&str, &str)> = wanted.chain(at_x.into_iter().flatten()).collect();
            let meant = |element: &&Value| wanted.iter().all(|(k, v)| text(&element[*k]) == *v);
            let list = answer.pointer(pointer).and_then(Value::as_array);
            let list = list.ok_or_else(|| here(format!("the answer has no list at {pointer}")))?;
            list.iter().find(meant).ok_or_else(|| here(format!("no element of {pointer} has {wanted:?}")))?
        }
    };
    for (name, pointer) in &arm.read {
        let value = source.pointer(pointer).and_then(Value::as_f64);
        let value = value.ok_or_else(|| here(format!("the answer has no number at {pointer} for {name}")))?;
        row.metrics.insert(name.clone(), value);
    }
    row.raw.insert("answer".into(), source.clone());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arm_reads_its_row_or_the_whole_answer() {
        let answer = serde_json::json!({
            "rows": [{ "kind": "a", "x": 4, "v": 1.5 }, { "kind": "b", "x": "8", "v": 2.5 }, { "kind": "b", "x": 4, "v": 3 }],
            "total": 7,
        });
        let one = |kind: &str, x: Option<&str>, pointer: &str| {
            let picked = if kind.is_empty() { String::new() } else { format!("[row]\nkind = '{kind}'") };
            let arm: Arm =
                toml::from_str(&format!("name = 'n'\n[read]\nmb_s = '{pointer}'\n{picked}")).unwrap();
            let mut row = Row { x: x.map(String::from), ..Row::default() };
            read(&mut row, &arm, Some("/rows"), Some("x"), &answer)
                .map(|()| row.metrics["mb_s"])
                .map_err(|f| f.message)
        };
        assert_eq!(one("b", Some("4"), "/v"), Ok(3.0));
        assert_eq!(one("b", Some("8"), "/v"), Ok(2.5));
        assert_eq!(one("a", None, "/v"), Ok(1.5));
        assert_eq!(one("", Some("4"), "/total"), Ok(7.0));
        assert!(one("a", Some("8"), "/v").unwrap_err().contains("no element of /rows"));
        assert!(one("a", Some("4"), "/w").unwrap_err().contains("no number at /w"));
    }
}
