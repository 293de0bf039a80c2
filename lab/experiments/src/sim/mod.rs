//! The simulator as a runner: the same scenario, in virtual time.
//!
//! Every run of an arm becomes one `seekless-lab sim` process (the lab knows the simulator only as a command
//! line and its JSON), as many at once as there are processors ([`Pool`]). A run is deterministic, so a
//! repetition differs by its seed alone. Rows come out in the order the live runner has them, whatever
//! process ends first.
//!
//! A search for the highest rate of sessions begins near the rate of the recorded run, if there is one. Two
//! runs instead of about ten then confirm that rate, if nothing has changed.

mod answers;
mod grid;
mod pool;
mod translate;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use seekless_base::Fault;
use serde_json::Value;

use crate::environment::Environment;
use crate::guard;
use crate::live::{load, serve, writer};
use crate::record::{self, Record};
use crate::results::{Results, Row, SCHEMA};
use crate::scenario::{Arm, Load, Machine, Point, Scenario};
use crate::terminal::RunProgress;

use grid::Candidate;
pub(crate) use pool::Pool;
use pool::{CommandResult, EXPECTED};
pub(crate) use translate::refusal;

/// A row to compute.
struct Job {
    point: Point,
    repetition: u32,
    work: Work,
}

/// How a row is computed.
enum Work {
    /// By one process.
    Line(Vec<String>),
    /// By one process with the best of these settings; each combination takes one process before that.
    Best(Vec<Candidate>),
    /// By one process at the load at which the run of this arm ended.
    LoadOf(String),
    /// It was computed before.
    Kept(Box<Row>),
}

impl Job {
    /// The jobs that can run now.
    fn lines(&self) -> Vec<Vec<String>> {
        match &self.work {
            Work::Line(line) => vec![line.clone()],
            Work::Best(candidates) => candidates.iter().map(|c| c.line.clone()).collect(),
            Work::LoadOf(_) | Work::Kept(_) => Vec::new(),
        }
    }
}

/// Rows of an earlier run of the scenario for arms without Seekless: neither policy nor options change their
/// results. Arms with other settings at that time are left out.
///
/// # Errors
/// Those of [`Results::read`]; results of another scenario.
pub(crate) fn kept(dir: &Path, name: &str, scenario: &Scenario) -> Result<Vec<Row>, Fault> {
    let path = dir.join("results.json");
    let before = Results::read(&path)?;
    if before.name != name || before.driver != "sim" {
        return Err(Fault::usage(format!(
            "{} is a run of `{}` ({})",
            path.display(),
            before.name,
            before.driver
        )));
    }
    let same = |row: &Row| {
        let set = |s: &Scenario| s.arms.iter().find(|a| a.name == row.arm).map(|a| serde_json::json!(a));
        scenario.arms.iter().any(|a| a.name == row.arm && a.mode.is_none())
            && set(scenario) == set(&before.scenario)
    };
    Ok(before.rows.into_iter().filter(same).collect())
}

/// Queues the runs of scenarios, by their names, before [`run`] waits for them; those that depend on others'
/// results are left to `run`. They are queued at once, so that as many as possible run together.
pub(crate) fn ask<'a>(scenarios: impl IntoIterator<Item = (&'a str, &'a Scenario)>, pool: &Pool) {
    let mut lines = Vec::new();
    for (name, scenario) in scenarios {
        let jobs = jobs(scenario, &recorded(name)).unwrap_or_default();
        lines.extend(jobs.iter().flat_map(Job::lines));
    }
    pool.ask(lines);
}

/// Runs a scenario in the simulator and writes `results.json` and `report.html` to `out`.
///
/// # Errors
/// [`Exit::Missing`] if the scenario can only run live or needs a file that is missing; otherwise the error
/// that stops the run. A check that fails is not an error.
pub(crate) fn run(
    name: &str,
    scenario: &Scenario,
    quick: bool,
    kept: &[Row],
    pool: &Pool,
    out: &Path,
) -> Result<Results, Fault> {
    if let Some(why) = refusal(scenario) {
        return Err(Fault::missing(format!("`{name}` runs live only: {why}; leave out --sim")));
    }
    if let Some(file) = scenario.load.lacks() {
        return Err(Fault::missing(format!("`{name}` needs {}, which is not here", file.display())));
    }
    guard::catch_signals();
    crate::results::folder(out)?;
    let mut jobs = jobs(scenario, &recorded(name))?;
    for job in &mut jobs {
        let same =
            |r: &&Row| r.arm == job.point.arm.name && r.x == job.point.x && r.repetition == job.repetition;
        if let Some(row) = kept.iter().find(same) {
            job.work = Work::Kept(Box::new(row.clone()));
        }
    }
    let runs = Runs { pool, progress: RunProgress::new(0), seconds: RefCell::default() };
    runs.ask(jobs.iter().flat_map(Job::lines));
    runs.progress.now(&format!("{name}: {} rows in virtual time", jobs.len()));
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
    // Jobs that depend on other runs follow when these have ended.
    let (dependent, first): (Vec<_>, Vec<_>) =
        jobs.iter().enumerate().partition(|(_, job)| matches!(job.work, Work::LoadOf(_)));
    let chosen = first.iter().map(|(_, job)| runs.choose(scenario, job)).collect::<Result<Vec<_>, _>>()?;
    for ((position, job), chosen) in first.into_iter().zip(chosen) {
        results.rows.push(runs.row(job, position, chosen)?);
    }
    let mut lines = Vec::new();
    for (position, job) in dependent {
        let line = at_load(scenario, &results.rows, job)?;
        runs.ask_next(line.clone());
        lines.push((position, job, line));
    }
    for (position, job, line) in lines {
        let answer = runs.answer(&line)?;
        results.rows.push(row(job, position, &line, &answer.value)?);
    }
    results.rows.sort_by_key(|row| row.position);
    results.environment.elapsed_s = runs.seconds.borrow().values().sum();
    results.remarks.extend(crate::report::machines::summary(&results));
    results.remarks.extend(crate::report::sensitivity::summary(&results));
    results.judge();
    results.write(&out.join("results.json"))?;
    crate::report::write(out)?;
    Ok(results)
}

/// The runs of a scenario, with their output.
struct Runs<'a> {
    pool: &'a Pool,
    progress: RunProgress,
    /// Time of each line.
    seconds: RefCell<BTreeMap<Vec<String>, f64>>,
}

impl Runs<'_> {
    fn ask(&self, lines: impl IntoIterator<Item = Vec<String>>) {
        let lines: Vec<_> = lines.into_iter().collect();
        self.progress.more(lines.len() as u64);
        self.pool.ask(lines);
    }

    fn ask_next(&self, line: Vec<String>) {
        self.progress.more(1);
        self.pool.ask_next(line);
    }

    fn answer(&self, line: &[String]) -> Result<Arc<CommandResult>, Fault> {
        let answer = self.pool.answer(line)?;
        self.progress.step(1);
        self.seconds.borrow_mut().insert(line.to_vec(), answer.seconds);
        Ok(answer)
    }

    /// The best settings of a job with a grid. The run that measures them is queued.
    fn choose(&self, scenario: &Scenario, job: &Job) -> Result<Option<Chosen>, Fault> {
        let Work::Best(candidates) = &job.work else { return Ok(None) };
        let answers = candidates.iter().map(|c| self.answer(&c.line)).collect::<Result<Vec<_>, _>>()?;
        let Candidate { words, arm, .. } = &candidates[grid::best(answers.iter().map(|a| &a.value))];
        let point = Point { arm: arm.clone(), ..job.point.clone() };
        let line = translate::arguments(scenario, &point, job.repetition);
        self.ask_next(line.clone());
        Ok(Some(Chosen { words: words.clone(), line }))
    }

    /// The row of a job that depends on no other.
    fn row(&self, job: &Job, position: usize, chosen: Option<Chosen>) -> Result<Row, Fault> {
        let (line, settings) = match (&job.work, chosen) {
            (Work::Kept(row), _) => return Ok(Row { position: position as u32, ..row.as_ref().clone() }),
            (Work::Line(line), _) => (line.clone(), None),
            (_, Some(Chosen { words, line })) => (line, Some(words)),
            (Work::Best(_) | Work::LoadOf(_), None) => unreachable!("chosen, or left to its load"),
        };
        let mut row = row(job, position, &line, &self.answer(&line)?.value)?;
        if let Some(words) = settings {
            let x = row.x.as_deref().unwrap_or_default();
            if job.repetition == 0 {
                self.progress.say(&format!("{x}: {} is {}", row.arm, words.join(", ")));
            }
            row.raw.insert("settings".into(), words.into());
        }
        Ok(row)
    }
}

/// The best settings, and the command line that measures them.
struct Chosen {
    words: Vec<String>,
    line: Vec<String>,
}

/// The command line of a job that runs at the load of another arm.
fn at_load(scenario: &Scenario, rows: &[Row], job: &Job) -> Result<Vec<String>, Fault> {
    let point = &job.point;
    let Work::LoadOf(name) = &job.work else { return Ok(Vec::new()) };
    let same = |row: &&Row| row.arm == *name && row.x == point.x && row.repetition == job.repetition;
    let other = rows.iter().find(same).ok_or_else(|| {
        Fault::usage(format!("arm `{}`: load_of = \"{name}\": it was not run here", point.arm.name))
    })?;
    if let (Load::Closed { .. }, Some(mbit_s)) = (&point.load, other.metrics.get("link_mbit_s")) {
        let load = point.load.with_link(&format!("{mbit_s}Mb/s"));
        return Ok(translate::arguments(scenario, &Point { load, ..point.clone() }, job.repetition));
    }
    // If no rate held, the first rate of the search is used.
    let asked = match point.load {
        Load::Search { rate, .. } => rate,
        _ => 0.0,
    };
    let held = other.metrics.get("failure_free_req_s").copied().filter(|rate| *rate > 0.0);
    let load = point.load.at_rate(held.unwrap_or(asked));
    Ok(translate::arguments(scenario, &Point { load, ..point.clone() }, job.repetition))
}

/// Rows of the recorded run of a scenario, if the working directory has one.
fn recorded(name: &str) -> Vec<Row> {
    let record = Record::read(Path::new(record::FOLDER), name).ok().flatten();
    record.and_then(|mut record| record.runs.remove("sim")).map_or_else(Vec::new, |run| run.rows)
}

/// The result of the search of this row, by an earlier run.
fn expected(recorded: &[Row], point: &Point, repetition: u32) -> Option<f64> {
    let same = |r: &&Row| r.arm == point.arm.name && r.x == point.x && r.repetition == repetition;
    let rate = recorded.iter().find(same)?.metrics.get("failure_free_req_s").copied();
    rate.filter(|rate| *rate > 0.0)
}

/// `recorded`: rows of an earlier run, which tell searches where to begin.
fn jobs(scenario: &Scenario, recorded: &[Row]) -> Result<Vec<Job>, Fault> {
    let points = scenario.points();
    let each = (0..scenario.repetitions).flat_map(|n| points.iter().map(move |point| (n, point.clone())));
    each.map(|(repetition, point)| {
        let work = match (&point.arm.best, &point.arm.load_of) {
            (Some(best), _) => {
                let all = grid::candidates(scenario, &point, best);
                Work::Best(all.map_err(Fault::usage)?)
            }
            (None, Some(arm)) => Work::LoadOf(arm.clone()),
            (None, None) => {
                let mut line = translate::arguments(scenario, &point, repetition);
                if let Some(rate) = expected(recorded, &point, repetition) {
                    line.extend([EXPECTED.to_string(), rate.to_string()]);
                }
                Work::Line(line)
            }
        };
        Ok(Job { point, repetition, work })
    })
    .collect()
}

fn row(job: &Job, position: usize, line: &[String], answer: &Value) -> Result<Row, Fault> {
    let mut row = Row {
        arm: job.point.arm.name.clone(),
        x: job.point.x.clone(),
        repetition: job.repetition,
        position: position as u32,
        ..Row::default()
    };
    match &job.point.load {
        Load::Command { rows, x, .. } => {
            read(&mut row, &job.point.arm, rows.as_deref(), x.as_deref(), answer)?;
        }
        Load::Diff { .. } => {
            account(&mut row, answer);
            let end = answer.pointer("/load/length_s").and_then(Value::as_f64);
            row.metrics.extend(end.map(|s| ("runtime_s".to_string(), s)));
            let reads = answer["disks"].as_array().into_iter().flatten();
            let reads = reads.filter_map(|d| d.pointer("/stats/reads").and_then(Value::as_f64)).sum();
            row.metrics.insert("disk_reads".into(), reads);
        }
        Load::Files { .. } => {
            account(&mut row, answer);
            account_files(&mut row, answer);
        }
        _ => account(&mut row, answer),
    }
    if let Some(machine) = &job.point.machine {
        let at_once = answer.pointer("/load/sessions/at_once_max").and_then(Value::as_f64);
        account_machine(&mut row, machine, grid::score(answer), at_once);
    }
    row.raw.insert("command".into(), format!("seekless {}", line.join(" ")).into());
    Ok(row)
}

/// Adds the results of programs that read a tree.
fn account_files(row: &mut Row, answer: &Value) {
    let number = |path: &str| answer.pointer(path).and_then(Value::as_f64);
    let (Some(seconds), Some(files)) = (number("/load/length_s"), number("/library/files")) else { return };
    row.metrics.insert("runtime_s".into(), seconds);
    row.metrics.insert("files_s".into(), files / seconds.max(1e-9));
}

/// Fills a row from the answer of `seekless-lab sim serve`.
fn account(row: &mut Row, answer: &Value) {
    let disks: Vec<Value> = answer["disks"].as_array().cloned().unwrap_or_default();
    load::account(row, std::slice::from_ref(&answer["load"]));
    serve::account_disks(row, &disks);
    let number = |value: &Value, path: &str| value.pointer(path).and_then(Value::as_f64);
    let sum = |path: &str| disks.iter().filter_map(|d| number(d, path)).sum::<f64>();
    let bytes = sum("/stats/read_bytes");
    let lengths = ["le_128k", "le_384k", "le_576k", "lt_1792k", "gt_1920k"];
    for name in lengths.map(|length| format!("seq_bytes_{length}")) {
        if bytes > 0.0 {
            let share = sum(&format!("/stats/{name}")) / bytes;
            row.metrics.insert(name, share);
        }
    }
    for (name, path) in [
        ("calls_under_1ms", "/calls/under_1ms"),
        ("calls_under_0_1ms", "/calls/under_0_1ms"),
        ("calls_p99_ms", "/calls/p99_ms"),
        ("file_set_mb_s", "/load/file_set/mb_per_s"),
        ("file_set_share", "/load/file_set/share"),
        ("sessions_at_once", "/load/sessions/at_once_max"),
        ("link_mbit_s", "/load/link_mbit_s"),
    ] {
        if let Some(value) = number(answer, path) {
            row.metrics.insert(name.into(), value);
        }
    }
    if let Some(said) = answer.pointer("/load/writer").filter(|said| said.is_object()) {
        writer::account(row, said);
    }
    let used = number(answer, "/reuse/used_bytes").unwrap_or(0.0);
    for (name, bytes) in
        [("reused_read", "read_bytes"), ("reused_lru", "lru_bytes"), ("reused_min", "min_bytes")]
    {
        let bytes = number(answer, &format!("/reuse/{bytes}")).filter(|_| used > 0.0);
        row.metrics.extend(bytes.map(|bytes| (name.to_owned(), bytes / used)));
    }
    row.metrics.extend(number(answer, "/reuse/closed").map(|closed| ("reuse_closed".to_owned(), closed)));
    if let Ok(cdf) = serde_json::from_value(answer["calls"]["cdf"].clone()) {
        row.cdfs.insert("call_ms".into(), cdf);
    }
    let served = number(answer, "/load/measured/bytes").unwrap_or(0.0);
    if served > 0.0 {
        // As the prefetch sizing paper counts: evicted bytes were read again, wasted bytes were never used,
        // and the rest that the disk did not read came from the cache.
        let share = |name: &str| number(answer, &format!("/cache/{name}")).unwrap_or(0.0) * 4096.0 / served;
        let (evicted, disk) = (share("refetched"), bytes / served);
        let wasted = (share("evicted_unused") + share("dropped_unused") - evicted).max(0.0);
        row.metrics.insert("evicted_share".into(), evicted);
        if let Some(rate) = row.metrics.get("failure_free_mb_s").copied() {
            row.metrics.insert("evicted_mb_s".into(), evicted * rate);
        }
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
    let size = answer.pointer("/engines/0/size/size").and_then(Value::as_f64);
    if let Some(size) = size {
        row.metrics.insert("prefetch_mib".into(), size / f64::from(1 << 20));
    }
    if let Some(size) = number(answer, "/load/size_cut") {
        row.metrics.insert("cut_to_mib".into(), size / f64::from(1 << 20));
    }
    for name in ["engines", "cache"] {
        row.raw.insert(name.into(), answer[name].clone());
    }
}

/// Adds the description of a drawn machine, and its `score` in MB/s. `at_once`: sessions.
pub(crate) fn account_machine(row: &mut Row, machine: &Machine, score: f64, at_once: Option<f64>) {
    row.metrics.insert("score_mb_s".into(), score);
    row.metrics.extend(machine.facts());
    if let (Load::Closed { .. }, Some(disk)) = (&machine.load, row.metrics.get("disk_mb_s").copied()) {
        row.metrics.insert("media_share".into(), disk / machine.media_mb_s);
    }
    if let Some(clients) = row.metrics.get("clients").copied().or(at_once).filter(|c| *c > 0.0) {
        let each = machine.memory.0 as f64 / clients;
        row.metrics.insert("memory_per_client_mib".into(), each / f64::from(1 << 20));
        row.metrics.insert("depths_per_client".into(), each * 2.0 / 3.0 / machine.depth.0 as f64);
    }
    row.raw.insert("machine".into(), machine.text().into());
}

/// Fills a row by the arm's own pointers into the answer, or into the element of its list `rows` that the arm
/// names.
fn read(row: &mut Row, arm: &Arm, rows: Option<&str>, x: Option<&str>, answer: &Value) -> Result<(), Fault> {
    let here = |what: String| Fault::usage(format!("arm `{}`: {what}", arm.name));
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
    use crate::scenario;

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

    #[test]
    fn a_search_begins_at_the_recorded_rate_of_its_own_row() {
        let (_, scenario) = scenario::find("asap-fig5").unwrap();
        let points = scenario.points();
        let row = |point: &Point, rate: f64| Row {
            arm: point.arm.name.clone(),
            x: point.x.clone(),
            metrics: [("failure_free_req_s".to_string(), rate)].into(),
            ..Row::default()
        };
        let recorded = [row(&points[1], 108.855), row(&points[2], 0.0)];
        let lines: Vec<_> =
            jobs(&scenario, &recorded).unwrap().iter().flat_map(Job::lines).map(|l| l.join(" ")).collect();
        assert!(lines[1].ends_with(" --expected 108.855"), "{}", lines[1]);
        assert_eq!(lines.iter().filter(|line| line.contains(EXPECTED)).count(), 1, "none where no rate held");
    }
}
