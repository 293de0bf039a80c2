//! `seekless prove` beside the load of an arm: its result is compared with the arms' own.

use std::path::{Path, PathBuf};
use std::time::Duration;

use seekless_base::Fault;
use serde_json::Value;

use super::daemon::socket;
use crate::process::Process;
use crate::results::Row;
use crate::tools;

/// What it may need beyond its time: the end of a block, and writing the result.
const SLACK: Duration = Duration::from_secs(30);

/// The prover at work; stopped on drop.
pub(super) struct Proof {
    process: Process,
    result: PathBuf,
}

impl Proof {
    /// Starts it for the daemon that listens in `dir`, for so many seconds. It does not stop for clients that
    /// wait: the load gives requests up by itself.
    pub(super) fn start(dir: &Path, seconds: f64) -> Result<Proof, Fault> {
        let result = dir.join("proof.json");
        let mut command = tools::command(&["prove", "--wait-max", "1h", "--for", &format!("{seconds}s")])?;
        command.arg("--socket").arg(socket(dir)).arg("--json").arg(&result);
        let process = Process::spawn("the prover", command, &dir.join("proof.log"), None)?;
        Ok(Proof { process, result })
    }

    /// Waits for its end; adds what it proved.
    pub(super) fn account(mut self, row: &mut Row) -> Result<(), Fault> {
        let status = self.process.wait(SLACK)?;
        let text = std::fs::read(&self.result).unwrap_or_default();
        let proof: Value = serde_json::from_slice(&text).map_err(|_| {
            let line = self.process.last_line();
            Fault::failed(format!("the prover gave no result ({status}): {line}"))
        })?;
        for (name, path) in [
            ("proved_disk_time", "/proof/disk_time/ratio"),
            ("proved_low", "/proof/disk_time/low"),
            ("proved_high", "/proof/disk_time/high"),
            ("proved_throughput", "/proof/throughput/ratio"),
        ] {
            if let Some(value) = proof.pointer(path).and_then(Value::as_f64) {
                row.metrics.insert(name.into(), value);
            }
        }
        row.raw.insert("proof".into(), proof);
        Ok(())
    }
}
