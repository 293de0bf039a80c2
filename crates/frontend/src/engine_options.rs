//! Options of a real engine: the policy's, and what only matters where there are real disks and files.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use seekless_base::{Bytes, Fault};
use seekless_engine::{DecisionLog, Settings, check_table, page_cache};
use seekless_policy::{Mode, PAGE};

use seekless_options::{BOUNDS, PolicyOptions};

/// How an engine reads, and from what.
#[derive(Args, Clone, Debug)]
pub struct EngineOptions {
    /// How far, how early and in which order
    #[command(flatten)]
    pub policy: PolicyOptions,
    /// Serve files on disks that do not seek, and files in memory, too
    #[arg(long)]
    pub include_ssd: bool,
    /// Keep the folders below DIR and the inodes of their files in memory, in an eighth of it at most, so
    /// that a cold small file takes one seek instead of several; may be repeated
    #[arg(long, value_name = "DIR", help_heading = BOUNDS, hide_short_help = true)]
    pub keep_metadata: Vec<PathBuf>,
    /// Table of bitrates, one `RATE PATH` a line, as `seekless-lab bitrates` writes it [default: none]
    #[arg(long, value_name = "FILE", conflicts_with = "bitrate", help_heading = BOUNDS, hide_short_help = true, hide_long_help = true)]
    pub bitrates: Option<PathBuf>,
    /// Log every event and decision to FILE, for `seekless-lab sim replay` [default: none]
    #[arg(long, value_name = "FILE", help_heading = BOUNDS, hide_short_help = true)]
    pub decisions: Option<PathBuf>,
    /// Largest size of the --decisions log, 4KiB or more; beyond it nothing is logged
    #[arg(
        long,
        default_value = "256MiB",
        value_name = "SIZE",
        help_heading = BOUNDS,
        hide_short_help = true,
        hide_long_help = true
    )]
    pub decisions_max: Bytes,
}

impl EngineOptions {
    /// The settings of an engine in this mode; nothing is opened or created.
    ///
    /// # Errors
    /// Those of [`PolicyOptions::config`]; a budget that this machine does not have; a log of no bytes; a
    /// table of bitrates that cannot be read ([`check_table`]).
    pub fn settings(&self, mode: Mode) -> Result<Settings, Fault> {
        if let (Some(budget), Some(memory)) = (self.policy.budget, page_cache())
            && budget > memory
        {
            let mib = Bytes::mib(memory.0 >> 20);
            return Err(Fault::usage(format!(
                "--budget {budget} is more than the {mib} of memory that reads may fill here; give less, or \
                 leave it out"
            )));
        }
        if self.decisions_max < Bytes(PAGE) {
            let given = self.decisions_max;
            return Err(Fault::usage(format!(
                "--decisions-max {given} is out of range; write {} or more, or leave out --decisions",
                Bytes(PAGE)
            )));
        }
        if let Some(tree) = self.keep_metadata.iter().find(|tree| !tree.is_dir()) {
            return Err(Fault::missing(format!(
                "--keep-metadata {}: there is no such folder; name one",
                tree.display()
            )));
        }
        self.bitrates.as_deref().map_or(Ok(()), check_table)?;
        Ok(Settings {
            policy: self.policy.config(mode)?,
            include_ssd: self.include_ssd,
            metadata: self.keep_metadata.clone(),
            bitrates: self.bitrates.clone(),
            ..Settings::default()
        })
    }

    /// Begins the decision log if `--decisions` is given. Call it once a process: it truncates the file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn open_log(&self, settings: &mut Settings) -> Result<(), Fault> {
        let Some(path) = &self.decisions else { return Ok(()) };
        let begun =
            seekless_output::create(path).and_then(|file| DecisionLog::begin(file, self.decisions_max.0));
        let log = begun.map_err(|e| {
            Fault::failed(format!(
                "cannot write {}: {e}; choose another file for --decisions",
                path.display()
            ))
        })?;
        settings.decisions = Some(Arc::new(log));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use seekless_base::Exit;

    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Words {
        #[command(flatten)]
        engine: EngineOptions,
    }

    fn settings(words: &[&str]) -> Result<Settings, Fault> {
        let words = std::iter::once("x").chain(words.iter().copied());
        Words::try_parse_from(words).unwrap().engine.settings(Mode::Both)
    }

    #[test]
    fn a_budget_that_the_machine_does_not_have_is_refused() {
        assert!(settings(&["--budget", "64MiB"]).is_ok());
        let fault = settings(&["--budget", "900TiB"]).map(|_| ()).unwrap_err();
        assert_eq!(fault.exit, Exit::Usage);
        assert!(fault.message.contains("--budget 900TiB is more than the "), "{}", fault.message);
    }

    #[test]
    fn a_tree_that_is_not_there_is_refused() {
        assert_eq!(settings(&["--keep-metadata", "/"]).unwrap().metadata, [PathBuf::from("/")]);
        let fault =
            settings(&["--keep-metadata", "/", "--keep-metadata", "/not/there"]).map(|_| ()).unwrap_err();
        assert_eq!(fault.exit, Exit::Missing);
        assert!(fault.message.contains("--keep-metadata /not/there: "), "{}", fault.message);
    }

    #[test]
    fn a_table_of_bitrates_that_is_not_there_is_refused() {
        let fault = settings(&["--bitrates", "/not/there"]).map(|_| ()).unwrap_err();
        assert_eq!(fault.exit, Exit::Missing);
        assert!(fault.message.contains("--bitrates /not/there: there is no such file"), "{}", fault.message);
    }

    #[test]
    fn a_log_that_holds_nothing_is_refused() {
        for size in ["0", "4095B"] {
            let fault = settings(&["--decisions-max", size]).map(|_| ()).unwrap_err();
            assert!(fault.message.contains("write 4KiB or more"), "{}", fault.message);
        }
        assert!(settings(&["--decisions-max", "4KiB"]).is_ok());
    }
}
