//! The simulator as a runner: the same scenario, in virtual time.
//!
//! Every run of an arm becomes one `seekless sim` process (the lab knows the simulator only as a command line
//! and its JSON), as many at once as there are processors ([`Pool`]). A run is deterministic, so a repetition
//! differs by its seed alone. Rows come out in the order the live runner has them, whatever process ends
//! first.

mod pool;
mod translate;

use std::collections::BTreeMap;
use std::path::Path;

use seekless_units::{Exit, Fault};
use serde_json::Value;

use crate::environment::Environment;
use crate::guard;
use crate::live::{load, serve};
use crate::results::{Results, Row, SCHEMA};
use crate::scenario::{Arm, Load, Point, Scenario};
use crate::terminal::Progress;

pub(crate) use pool::Pool;
pub(crate) use translate::refusal;

/// One process to start.
struct Job {
    point: Point,
    repetition: u32,
    args: Vec<String>,
}

/// Queues the runs of a scenario before [`run`] waits for them.
pub(crate) fn ask(scenario: &Scenario, pool: &Pool) {
    pool.ask(jobs(scenario).into_iter().map(|job| job.args));
}

/// Runs a scenario in the simulator and leaves `results.json` and `report.html` in `out`.
///
/// # Errors
/// [`Exit::Missing`] when the scenario can only run live or needs a file that is not here; else what stops
/// the run. A check that fails is no error.
pub(crate) fn run(
    name: &str,
    scenario: &Scenario,
    quick: bool,
    pool: &Pool,
    out: &Path,
) -> Result<Results, Fault> {
    if let Some(why) = refusal(scenario) {
        return Err(Fault::new(Exit::Missing, format!("`{name}` runs live only: {why}; use --live")));
    }
    if let Some(file) = scenario.load.lacks() {
        return Err(Fault::new(
            Exit::Missing,
            format!("`{name}` needs {}, which is not here", file.display()),
        ));
    }
    guard::catch_signals();
    std::fs::create_dir_all(out).map_err(|e| Fault::new(Exit::Failed, format!("{}: {e}", out.display())))?;
    let jobs = jobs(scenario);
    pool.ask(jobs.iter().map(|job| job.args.clone()));
    let progress = Progress::new(jobs.len() as u64);
    progress.now(&format!("{name}: {} runs in virtual time", jobs.len()));
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
    let mut seconds = BTreeMap::new();
    for (position, job) in jobs.iter().enumerate() {
        let answer = pool.answer(&job.args)?;
        progress.step(1);
        seconds.insert(&job.args, answer.seconds);
        results.rows.push(row(job, position as u32, &answer.value)?);
    }
    results.environment.elapsed_s = seconds.values().sum();
    results.judge();
    results.write(&out.join("results.json"))?;
    crate::report::write(out)?;
    Ok(results)
}

fn jobs(scenario: &Scenario) -> Vec<Job> {
    let points = scenario.points();
    (0..scenario.repetitions)
        .flat_map(|repetition| points.iter().map(move |point| (repetition, point.clone())))
        .map(|(repetition, point)| {
            let args = translate::arguments(scenario, &point, repetition);
            Job { point, repetition, args }
        })
        .collect()
}

fn row(job: &Job, position: u32, answer: &Value) -> Result<Row, Fault> {
    let mut row = Row {
        arm: job.point.arm.name.clone(),
        x: job.point.x.clone(),
        repetition: job.repetition,
        position,
        ..Row::default()
    };
    match &job.point.load {
        Load::Command { rows, x, .. } => {
            read(&mut row, &job.point.arm, rows.as_deref(), x.as_deref(), answer)?;
        }
        _ => account(&mut row, answer),
    }
    let line = job.args.join(" ");
    row.raw.insert("command".into(), format!("seekless {line}").into());
    Ok(row)
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
        // As the prefetch sizing paper counts: evicted is what had to be read again, wasted what nobody came
        // for; what neither these nor the disk explain came out of the cache.
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

/// Fills a row by the arm's own pointers into the answer, or into the element of its list `rows` that the arm
/// means.
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
