//! What every command shares: JSON out, progress bars.

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use seekless_units::{Exit, Fault};
use serde_json::Value;

/// Writes a result to a file, or to standard output for `-`. A file appears whole or not at all.
pub(super) fn write_json(path: &Path, value: &Value) -> Result<(), Fault> {
    let mut text = serde_json::to_string_pretty(value)
        .map_err(|e| Fault::new(Exit::Failed, format!("the result cannot be written as JSON: {e}")))?;
    text.push('\n');
    if path == Path::new("-") {
        return print(&text);
    }
    let fault =
        |e: io::Error| Fault::new(Exit::Failed, format!("{}: cannot be written: {e}", path.display()));
    let mut partial = path.as_os_str().to_owned();
    partial.push(format!(".{}.partial", std::process::id()));
    let written = fs::write(&partial, &text).and_then(|()| fs::rename(&partial, path));
    written.map_err(|e| {
        let _ = fs::remove_file(&partial);
        fault(e)
    })
}

/// Prints text; a reader that went away (`| head`) is no error.
pub(super) fn print(text: &str) -> Result<(), Fault> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(e) => Err(Fault::new(Exit::Failed, format!("standard output cannot be written: {e}"))),
        Ok(()) => Ok(()),
    }
}

/// A bar on standard error if that is a terminal; else nothing.
pub(super) fn bar(total: u64, unit: &str) -> ProgressBar {
    if total == 0 || !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr_with_hz(5));
    let style = match unit {
        "bytes" => "{bar:40} {binary_bytes}/{binary_total_bytes} {eta}",
        _ => "{bar:40} {pos}/{len} runs {eta}",
    };
    if let Ok(style) = ProgressStyle::with_template(style) {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}
