//! The last recorded run of each scenario: `results/NAME.json`, kept with the sources.
//!
//! A record is what a reader of the documents needs of a `results.json`: commit, machine, date, rows and
//! checks, without distributions and raw answers. It keeps one run of each driver, so a simulated run never
//! replaces a live one. The words of a scenario (title, notes, published values, causes of deviations) stay
//! in its file. The pages of `docs/results` join both ([`crate::report::pages`]).

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use seekless_base::Fault;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::check::CheckOutcome;
use crate::environment::Environment;
use crate::results::{Results, Row, SCHEMA as RESULTS_SCHEMA};
use crate::scenario::{self, Scenario};

/// Raised when a field changes its meaning; readers refuse newer files.
pub const SCHEMA: u32 = 1;
/// Folder of the records in a checkout.
pub const FOLDER: &str = "results";
/// Levels of a record that are broken into lines, so that each row and each check is one line of a diff.
const LINE_DEPTH: u32 = 4;

/// The recorded runs of one scenario.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// [`SCHEMA`] of the writer.
    pub schema: u32,
    /// Name of the scenario, as the file's.
    pub name: String,
    /// The last run of each driver (`live`, `sim`).
    pub runs: BTreeMap<String, Recorded>,
}

/// One recorded run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recorded {
    /// Version and commit of the program.
    pub version: String,
    /// Day of its start, UTC.
    pub date: String,
    /// Processors and their model.
    pub machine: String,
    /// Kernel release.
    pub kernel: String,
    /// Servers and their versions.
    pub servers: Vec<String>,
    /// Length, seconds.
    pub elapsed_s: f64,
    /// What could not be done as the scenario says.
    pub remarks: Vec<String>,
    /// One a run of an arm: the scenario's metrics to six significant digits.
    pub rows: Vec<Row>,
    /// The checks with their outcomes, without causes.
    pub checks: Vec<CheckOutcome>,
}

/// Fails where there is no folder of records.
///
/// # Errors
/// `Exit::Missing`.
pub fn folder_of_records(folder: &Path) -> Result<(), Fault> {
    if folder.is_dir() {
        return Ok(());
    }
    Err(Fault::missing(format!(
        "{}: no such folder; call this in a checkout, or name its folder",
        folder.display()
    )))
}

impl Record {
    /// Reads the record of a scenario in `folder`; none where nothing is recorded.
    ///
    /// # Errors
    /// `Exit::Usage` when the file is no record, of another scenario or newer than this program.
    pub fn read(folder: &Path, name: &str) -> Result<Option<Record>, Fault> {
        let path = path(folder, name);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(seekless_output::input::unreadable(&path, &e)),
        };
        let wrong = |why: String| Fault::usage(format!("{}: {why}", path.display()));
        let record: Record = serde_json::from_str(&text).map_err(|e| {
            wrong(format!("is no record of a run ({e}); record the run anew (`seekless-lab record`)"))
        })?;
        match record {
            Record { schema, .. } if schema > SCHEMA => {
                Err(wrong(format!("was written by a newer program (schema {schema}); read it with that one")))
            }
            Record { name: other, .. } if other != name => {
                Err(wrong(format!("is a record of `{other}`; name it after its scenario")))
            }
            record => Ok(Some(record)),
        }
    }

    /// A recorded run as results of the scenario as it is today: today's checks judge the recorded rows.
    pub fn results(&self, driver: &str, scenario: &Scenario) -> Option<Results> {
        let run = self.runs.get(driver)?;
        let main = scenario.main_metric();
        let checks: Vec<CheckOutcome> = scenario.checks.iter().map(|c| c.judge(&run.rows, main)).collect();
        Some(Results {
            schema: RESULTS_SCHEMA,
            name: self.name.clone(),
            driver: driver.into(),
            quick: false,
            complete: true,
            pass: checks.iter().all(|c| c.pass),
            rows: run.rows.clone(),
            checks,
            remarks: run.remarks.clone(),
            environment: Environment::default(),
            scenario: scenario.clone(),
        })
    }
}

/// Where the record of a scenario lies.
pub fn path(folder: &Path, name: &str) -> PathBuf {
    folder.join(name).with_extension("json")
}

/// Records a run: it becomes the last one of its driver.
///
/// # Errors
/// `Exit::Usage`: the run was shortened (`--quick`) or interrupted, or is of a scenario that does not come
/// with the program; `Exit::Missing`: no such folder; else those of reading and writing the record.
pub fn add(folder: &Path, results: &Results) -> Result<PathBuf, Fault> {
    let refuse = |why: &str| Err(Fault::usage(format!("`{}` is not recorded: {why}", results.name)));
    if !scenario::all().iter().any(|(name, _)| *name == results.name) {
        return refuse("only scenarios that come with the program are");
    }
    let drawn = |s: &Scenario| s.axis.as_ref().and_then(|a| a.drawn).map(|d| (d.seed, d.machines));
    if drawn(&results.scenario) != scenario::find(&results.name).ok().and_then(|(_, s)| drawn(&s)) {
        return refuse("its machines are of another seed or number than the scenario's");
    }
    if results.quick || !results.complete {
        return refuse("the run was shortened or interrupted; run it whole");
    }
    folder_of_records(folder)?;
    let mut record = Record::read(folder, &results.name)?.unwrap_or_else(|| Record {
        schema: SCHEMA,
        name: results.name.clone(),
        runs: BTreeMap::new(),
    });
    record.runs.insert(results.driver.clone(), Recorded::of(results));
    let path = path(folder, &results.name);
    let value =
        serde_json::to_value(&record).map_err(|e| Fault::failed(format!("{}: {e}", path.display())))?;
    let mut text = String::new();
    write_lines(&mut text, &value, LINE_DEPTH);
    seekless_output::whole(&path, text + "\n")?;
    Ok(path)
}

impl Recorded {
    fn of(results: &Results) -> Recorded {
        let machine = &results.environment;
        // Today's scenario may name metrics that the one of the run did not.
        let today = scenario::find(&results.name).map_or_else(|_| results.scenario.clone(), |(_, s)| s);
        let kept = kept_metrics(&today);
        let rows = results.rows.iter().map(|row| Row {
            metrics: row
                .metrics
                .iter()
                .filter(|(name, _)| kept.contains(name.as_str()))
                .map(|(name, value)| (name.clone(), rounded(*value)))
                .collect(),
            cdfs: BTreeMap::new(),
            raw: serde_json::Map::new(),
            ..row.clone()
        });
        let main = today.main_metric();
        let checks = today.checks.iter().map(|check| check.judge(&results.rows, main));
        let checks =
            checks.map(|check| CheckOutcome { value: check.value.map(rounded), deviation: None, ..check });
        let start = UNIX_EPOCH + Duration::from_secs(machine.started_unix_s);
        Recorded {
            version: machine.version.clone(),
            // "Mon, 23 Nov 2026 21:28:28 GMT"
            date: httpdate::fmt_http_date(start).get(5..16).unwrap_or_default().to_string(),
            machine: format!("{} x {}", machine.cores, machine.processor),
            kernel: machine.kernel.clone(),
            servers: machine.servers.clone(),
            elapsed_s: rounded(machine.elapsed_s),
            remarks: results.remarks.clone(),
            rows: rows.collect(),
            checks: checks.collect(),
        }
    }
}

/// Metrics that tables, checks and published values of a scenario name.
fn kept_metrics(scenario: &Scenario) -> BTreeSet<&str> {
    let shown = scenario.metrics.iter().map(String::as_str);
    let checked = scenario.checks.iter().filter_map(|c| c.metric.as_deref());
    let having = scenario.checks.iter().filter_map(|c| Some(c.having.as_ref()?.metric.as_str()));
    let published = scenario.published.iter().filter_map(|p| p.metric.as_deref());
    let beside = scenario.checks.iter().filter_map(|c| Some(c.beside.as_ref()?.metric.as_str()));
    shown.chain(checked).chain(having).chain(beside).chain(published).collect()
}

/// Six significant digits: more than a table shows, and checks computed from rows keep their value.
fn rounded(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}

/// JSON with the first `depth` levels broken into lines.
fn write_lines(text: &mut String, value: &Value, depth: u32) {
    let (open, close, entries): (char, char, Vec<(String, &Value)>) = match value {
        Value::Array(list) if depth > 0 && !list.is_empty() => {
            ('[', ']', list.iter().map(|v| (String::new(), v)).collect())
        }
        Value::Object(map) if depth > 0 && !map.is_empty() => {
            ('{', '}', map.iter().map(|(k, v)| (format!("{}: ", Value::from(k.as_str())), v)).collect())
        }
        _ => return *text += &value.to_string(),
    };
    text.push(open);
    for (i, (key, value)) in entries.into_iter().enumerate() {
        *text += if i == 0 { "\n" } else { ",\n" };
        *text += &key;
        write_lines(text, value, depth - 1);
    }
    text.push('\n');
    text.push(close);
}

#[cfg(test)]
mod tests {
    use seekless_base::Exit;

    use super::*;
    use crate::report::tests::made_up;

    #[test]
    fn a_record_keeps_what_tables_and_checks_need() {
        let dir = tempfile::tempdir().unwrap();
        let mut results = made_up("libception-closed-sizes");
        results.rows[0].metrics.insert("requests".into(), 1.0);
        add(dir.path(), &results).unwrap();
        let record = Record::read(dir.path(), "libception-closed-sizes").unwrap().unwrap();
        let back = record.results("live", &results.scenario).unwrap();
        assert_eq!(back.rows.len(), results.rows.len());
        assert!(back.rows.iter().all(|r| r.cdfs.is_empty() && r.raw.is_empty()));
        assert!(
            !results.scenario.metrics.contains(&"requests".into())
                && !back.rows[0].metrics.contains_key("requests")
        );
        let main = results.scenario.main_metric();
        assert_eq!(back.rows[0].metrics[main], results.rows[0].metrics[main]);
        for (a, b) in back.checks.iter().zip(&results.checks) {
            assert_eq!((&a.name, a.pass, &a.deviation), (&b.name, b.pass, &b.deviation));
        }
    }

    #[test]
    fn a_simulated_run_does_not_replace_a_live_one() {
        let dir = tempfile::tempdir().unwrap();
        let mut results = made_up("closed-loop");
        add(dir.path(), &results).unwrap();
        results.driver = "sim".into();
        results.rows.truncate(1);
        add(dir.path(), &results).unwrap();
        let record = Record::read(dir.path(), "closed-loop").unwrap().unwrap();
        assert_eq!(record.runs.keys().collect::<Vec<_>>(), ["live", "sim"]);
        assert!(record.runs["live"].rows.len() > 1 && record.runs["sim"].rows.len() == 1);
    }

    #[test]
    fn each_row_and_each_check_is_one_line() {
        let dir = tempfile::tempdir().unwrap();
        let results = made_up("closed-loop");
        let text = std::fs::read_to_string(add(dir.path(), &results).unwrap()).unwrap();
        assert_eq!(text.lines().filter(|l| l.contains("\"repetition\"")).count(), results.rows.len());
        assert_eq!(text.lines().filter(|l| l.contains("\"comparison\"")).count(), results.checks.len());
    }

    #[test]
    fn what_is_not_a_whole_run_of_ours_is_not_recorded() {
        let dir = tempfile::tempdir().unwrap();
        let whole = made_up("closed-loop");
        let refused = |change: &dyn Fn(&mut Results)| {
            let mut results = whole.clone();
            change(&mut results);
            add(dir.path(), &results).unwrap_err().exit
        };
        assert_eq!(refused(&|r| r.quick = true), Exit::Usage);
        assert_eq!(refused(&|r| r.complete = false), Exit::Usage);
        assert_eq!(refused(&|r| r.name = "mine".into()), Exit::Usage);
        assert_eq!(add(&dir.path().join("nowhere"), &whole).unwrap_err().exit, Exit::Missing);
        assert!(Record::read(dir.path(), "closed-loop").unwrap().is_none());
    }

    #[test]
    fn a_file_that_is_no_record_of_the_scenario_is_refused_with_its_name() {
        let dir = tempfile::tempdir().unwrap();
        add(dir.path(), &made_up("closed-loop")).unwrap();
        let good = std::fs::read_to_string(path(dir.path(), "closed-loop")).unwrap();
        for (text, word) in [
            ("{}", "is no record"),
            (&good.replace("\"schema\": 1", "\"schema\": 2"), "newer"),
            (&good.replace("\"name\": \"closed-loop\"", "\"name\": \"flash\""), "`flash`"),
        ] {
            std::fs::write(path(dir.path(), "closed-loop"), text).unwrap();
            let fault = Record::read(dir.path(), "closed-loop").unwrap_err();
            assert!(fault.exit == Exit::Usage && fault.message.contains(word), "{fault}");
            assert!(fault.message.contains("closed-loop.json"), "{fault}");
        }
    }
}
