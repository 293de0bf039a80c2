//! What a run shows while it goes on: a bar on a terminal, a line a run elsewhere.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Progress of a run of a scenario.
#[derive(Debug)]
pub(crate) struct RunProgress {
    bar: ProgressBar,
    terminal: bool,
}

impl RunProgress {
    /// For `steps` runs of arms.
    pub(crate) fn new(steps: u64) -> RunProgress {
        let terminal = std::io::stderr().is_terminal();
        let bar = ProgressBar::with_draw_target(
            Some(steps),
            if terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() },
        );
        if let Ok(style) =
            ProgressStyle::with_template("{spinner} [{pos}/{len}] {bar:24} {elapsed} {wide_msg}")
        {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(200));
        RunProgress { bar, terminal }
    }

    /// Says what is going on.
    pub(crate) fn now(&self, what: &str) {
        self.bar.set_message(what.to_string());
        if !self.terminal {
            seekless_output::eprintln!("{what}");
        }
    }

    /// So many runs more are to come.
    pub(crate) fn more(&self, runs: u64) {
        self.bar.inc_length(runs);
    }

    /// A line that stays above the bar.
    pub(crate) fn say(&self, line: &str) {
        if self.terminal {
            self.bar.println(line);
        } else {
            seekless_output::eprintln!("  {line}");
        }
    }

    /// So many runs are over; nothing is said about them.
    pub(crate) fn step(&self, runs: u64) {
        self.bar.inc(runs);
    }

    /// A run is over; `line` stays above the bar.
    pub(crate) fn done(&self, line: &str) {
        if self.terminal {
            self.bar.println(line);
        } else {
            seekless_output::eprintln!("  {line}");
        }
        self.bar.inc(1);
    }
}

impl Drop for RunProgress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Columns of the terminal on standard output, 100 where there is none.
pub(crate) fn width() -> u16 {
    let columns = std::env::var("COLUMNS").ok().and_then(|c| c.parse().ok());
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok().map(|s| s.ws_col).filter(|c| *c > 0);
    size.or(columns).unwrap_or(100).clamp(60, 160)
}
