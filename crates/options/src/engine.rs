//! Options of a real engine: the policy's, and what only matters where there are real disks and files.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use seekless_engine::{DecisionLog, Settings};
use seekless_policy::Mode;
use seekless_units::{Bytes, Exit, Fault};

use crate::{BOUNDS, PolicyOptions, on_off};

/// How an engine reads, and from what.
#[derive(Args, Clone, Debug)]
pub struct EngineOptions {
    /// How far, how early and in which order
    #[command(flatten)]
    pub policy: PolicyOptions,
    /// Serve files on disks that do not seek and in memory too, instead of leaving them alone
    #[arg(long)]
    pub include_ssd: bool,
    /// Read files before their readers open them, where the order of a folder (as listed, by name, by inode)
    /// foretells which come next: on or off
    #[arg(long, value_name = "on|off", default_value = "off", value_parser = on_off, action = clap::ArgAction::Set, help_heading = BOUNDS, hide_short_help = true)]
    pub next_files: bool,
    /// Log every event and decision to FILE, for replay
    #[arg(long, value_name = "FILE", help_heading = BOUNDS, hide_short_help = true)]
    pub decisions: Option<PathBuf>,
    /// Most of that; then it stops
    #[arg(
        long,
        default_value = "256MiB",
        value_name = "SIZE",
        help_heading = BOUNDS,
        hide_short_help = true
    )]
    pub decisions_max: Bytes,
}

impl EngineOptions {
    /// The settings of an engine in this mode; nothing is opened or created.
    ///
    /// # Errors
    /// Those of [`PolicyOptions::config`].
    pub fn settings(&self, mode: Mode) -> Result<Settings, Fault> {
        Ok(Settings {
            spindle: self.policy.config(mode)?,
            include_ssd: self.include_ssd,
            next_files: self.next_files,
            ..Settings::default()
        })
    }

    /// Begins the decision log, if there is to be one. Once a process: it makes the file anew.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn open_log(&self, settings: &mut Settings) -> Result<(), Fault> {
        let Some(path) = &self.decisions else { return Ok(()) };
        let begun =
            seekless_output::create(path).and_then(|file| DecisionLog::begin(file, self.decisions_max.0));
        let log = begun.map_err(|e| {
            let message =
                format!("cannot write {}: {e}; choose another file for --decisions", path.display());
            Fault::new(Exit::Failed, message)
        })?;
        settings.decisions = Some(Arc::new(log));
        Ok(())
    }

    /// The same as words for another command.
    pub fn words(&self) -> Vec<String> {
        let mut words = self.policy.words();
        words.push(format!("--decisions-max={}", self.decisions_max));
        words.extend(self.decisions.as_ref().map(|f| format!("--decisions={}", f.display())));
        words.push(format!("--next-files={}", if self.next_files { "on" } else { "off" }));
        words.extend(self.include_ssd.then(|| "--include-ssd".to_string()));
        words
    }
}
