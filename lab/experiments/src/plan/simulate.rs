//! The simulator's answers: `seekless-lab sim ... --json`, run as a person would.

use std::process::{Command, Stdio};

use seekless_base::Fault;
use serde_json::Value;

/// Runs `seekless-lab sim` with these arguments and takes its JSON.
///
/// # Errors
/// It cannot be started, fails, or says what is no JSON.
pub fn sim(arguments: &[String]) -> Result<Value, Fault> {
    let program =
        std::env::current_exe().map_err(|e| Fault::failed(format!("cannot find our own program: {e}")))?;
    let shown = format!("seekless-lab sim {}", arguments.join(" "));
    let output = Command::new(&program)
        .arg("sim")
        .args(arguments)
        .arg("--json")
        .stdin(Stdio::null())
        .output()
        .map_err(|e| Fault::missing(format!("{}: cannot be started: {e}", program.display())))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let line = said.lines().last().unwrap_or("it said nothing").to_owned();
        return Err(Fault::failed(format!("`{shown}` failed: {line}")));
    }
    serde_json::from_slice(&output.stdout)
        .map_err(|e| Fault::failed(format!("`{shown}` printed no JSON: {e}")))
}

/// A number of a result.
///
/// # Errors
/// It is not there.
pub fn figure(result: &Value, pointer: &str) -> Result<f64, Fault> {
    let found = result.pointer(pointer).and_then(Value::as_f64);
    found.ok_or_else(|| Fault::failed(format!("the simulation's result has no figure {pointer}")))
}
