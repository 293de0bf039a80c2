//! What a run leaves: `results.json`.

use std::path::Path;

use seekless_base::{Exit, Fault};
use serde::{Deserialize, Serialize};

use crate::check::{CheckOutcome, Statistic};
use crate::environment::Environment;
pub use crate::row::Row;
use crate::scenario::Scenario;

/// Raised when a field changes its meaning; readers refuse newer files.
pub const SCHEMA: u32 = 1;

/// Makes the folder that a run writes to.
///
/// # Errors
/// `Permission`, or `Failed` for another reason.
pub(crate) fn folder(out: &Path) -> Result<(), Fault> {
    std::fs::create_dir_all(out).map_err(|e| {
        let denied = e.kind() == std::io::ErrorKind::PermissionDenied;
        let exit = if denied { Exit::Permission } else { Exit::Failed };
        Fault::new(exit, format!("cannot make the folder {}: {e}; give another --out", out.display()))
    })
}

/// A run of a scenario.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Results {
    /// [`SCHEMA`] of the writer.
    pub schema: u32,
    /// Name of the scenario.
    pub name: String,
    /// `live` or `sim`.
    pub driver: String,
    /// Whether `--quick` shortened it.
    pub quick: bool,
    /// False while running, and for ever when it was interrupted.
    pub complete: bool,
    /// Whether every check held and the run is complete.
    pub pass: bool,
    /// One a run of an arm.
    pub rows: Vec<Row>,
    /// The checks with their outcomes.
    pub checks: Vec<CheckOutcome>,
    /// What could not be done as the scenario says (a server that is not here, a setting the device refuses).
    pub remarks: Vec<String>,
    /// The machine.
    pub environment: Environment,
    /// The scenario as run.
    pub scenario: Scenario,
}

impl Results {
    /// Recomputes checks and pass from the rows.
    pub fn judge(&mut self) {
        let main = self.scenario.main_metric().to_string();
        self.checks = self.scenario.checks.iter().map(|check| check.judge(&self.rows, &main)).collect();
        self.pass = self.complete && self.checks.iter().all(|c| c.pass);
    }

    /// Median over repetitions of a metric of an arm at an axis value.
    pub fn median(&self, arm: &str, x: Option<&str>, metric: &str) -> Option<f64> {
        let of = self.rows.iter().filter(|r| r.arm == arm && r.x.as_deref() == x);
        Statistic::Median.join(of.filter_map(|r| r.metrics.get(metric).copied()).collect())
    }

    /// Writes the file so that a reader never sees half of one.
    ///
    /// # Errors
    /// [`Exit::Failed`] when the folder cannot be written to.
    pub fn write(&self, path: &Path) -> Result<(), Fault> {
        seekless_output::json(path, self)
    }

    /// Reads a file back.
    ///
    /// # Errors
    /// [`Exit::Missing`] when there is none; those of [`seekless_output::input::text`]; [`Exit::Usage`] when
    /// it is not one of ours or newer than we are.
    pub fn read(path: &Path) -> Result<Results, Fault> {
        let wrong = |why: String| Fault::usage(format!("{}: {why}", path.display()));
        let text = seekless_output::input::text(path).map_err(|fault| match fault.exit {
            Exit::Missing => Fault::missing(format!(
                "{}: no such file; give the folder of a finished `seekless-lab run`",
                path.display()
            )),
            _ => fault,
        })?;
        let results: Results = serde_json::from_str(&text).map_err(|error| {
            wrong(format!(
                "is no results of a run ({error}); give the folder of a finished `seekless-lab run`"
            ))
        })?;
        if results.schema > SCHEMA {
            let schema = results.schema;
            return Err(wrong(format!(
                "was written by a newer program (schema {schema}); read it with that one"
            )));
        }
        Ok(results)
    }
}
