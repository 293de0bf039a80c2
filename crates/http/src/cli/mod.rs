//! The command lines of `seekless serve` and `seekless get`.

mod get;
mod serve;

pub use get::{GetArgs, run_get};
pub use serve::{ServeArgs, run_serve};

use std::io::{self, Write};
use std::path::Path;

use seekless_units::{Exit, Fault};
use serde_json::Value;

/// Writes a result as JSON to a file, or to standard output (`-`), where a closed pipe is nobody's fault.
fn write_json(path: &Path, value: &Value) -> Result<(), Fault> {
    let text = format!("{value:#}\n");
    let result = if path.as_os_str() == "-" {
        io::stdout().lock().write_all(text.as_bytes())
    } else {
        std::fs::write(path, text)
    };
    match result {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => {
            Err(Fault::new(Exit::Failed, format!("cannot write {}: {e}", path.display())))
        }
        _ => Ok(()),
    }
}

/// A span of time: `10s`, `500ms`, `2min`.
fn duration(text: &str) -> Result<std::time::Duration, String> {
    let wrong = || format!("`{text}` is no time; write for example 10s, 500ms or 2min");
    let split = text.find(|c: char| c.is_ascii_alphabetic()).ok_or_else(wrong)?;
    let number: f64 = text[..split].trim().parse().map_err(|_| wrong())?;
    let unit = match &text[split..] {
        "ms" => 1e-3,
        "s" => 1.0,
        "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(wrong()),
    };
    std::time::Duration::try_from_secs_f64(number * unit).map_err(|_| wrong())
}
