//! A line of progress on standard error.

use std::io::IsTerminal;
use std::sync::atomic::Ordering;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use seekless_base::Nanos;

use crate::record::{Live, mb_per_s};

/// One line on standard error while a run is in progress; nothing if that is not a terminal.
pub(crate) struct ProgressLine {
    bar: Option<ProgressBar>,
    last: (f64, u64),
}

impl ProgressLine {
    /// For a run of this length; without one, no end is shown. `wanted`: whether the user wants a line at
    /// all.
    pub(crate) fn new(wanted: bool, length: Option<Nanos>) -> ProgressLine {
        let shown = wanted && std::io::stderr().is_terminal();
        let bar = shown.then(|| {
            let length = length.map_or(0, |l| l.0 / 1_000_000);
            let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::stderr());
            let template = if length > 0 { "{bar:24} {msg}" } else { "{spinner} {msg}" };
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style);
            }
            bar
        });
        ProgressLine { bar, last: (0.0, 0) }
    }

    /// Shows the state at `now`.
    pub(crate) fn show(&mut self, now: Nanos, live: &Live) {
        let Some(bar) = &self.bar else { return };
        let (seconds, bytes) = (now.as_secs_f64(), live.bytes.load(Ordering::Relaxed));
        let rate = mb_per_s(bytes - self.last.1, seconds - self.last.0);
        self.last = (seconds, bytes);
        bar.set_position(now.0 / 1_000_000);
        bar.set_message(format!(
            "{seconds:.0} s  {rate:.1} MB/s  {} clients  {} requests  {} failed",
            live.clients.load(Ordering::Relaxed),
            live.requests.load(Ordering::Relaxed),
            live.failures.load(Ordering::Relaxed),
        ));
        bar.tick();
    }

    /// Removes the line.
    pub(crate) fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
