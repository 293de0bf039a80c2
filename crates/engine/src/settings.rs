//! Settings of an engine.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use seekless_policy::{Config, Mode};

use crate::decisions::DecisionLog;
use crate::kind::{KindReport, Kinds};

/// Longest wait for what is found out of disks before they are served: a probe, and then reads of several
/// pieces at once. Under load that could not be measured later.
const SURVEY_MAX: Duration = Duration::from_secs(2);

/// Settings of an engine. Fixed while it runs.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What the policy of each disk does.
    pub spindle: Config,
    /// One queue for all disks, \[L\]'s default, instead of one a disk.
    pub single_queue: bool,
    /// Serve files on solid-state disks and file systems without a disk too, instead of passing them.
    pub include_ssd: bool,
    /// Read files before their readers open them, where the order of a folder foretells which come next, in
    /// mode `both` with reading ahead of need.
    pub next_files: bool,
    /// Trees whose folders and inodes are kept in memory.
    pub metadata: Vec<PathBuf>,
    /// The table of bitrates; `None`: there is none.
    pub bitrates: Option<PathBuf>,
    /// Where measured profiles and remembered sizes are kept.
    pub profiles: PathBuf,
    /// Which disks seek, as far as it is known in this process.
    pub kinds: Arc<Kinds>,
    /// Where every decision is logged; `None`: nowhere.
    pub decisions: Option<Arc<DecisionLog>>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            spindle: Config::default(),
            single_queue: false,
            include_ssd: false,
            next_files: false,
            metadata: Vec::new(),
            bitrates: None,
            profiles: seekless_kernel::identity::profiles_dir(),
            kinds: Arc::default(),
            decisions: None,
        }
    }
}

impl Settings {
    /// Whether doors should report reads that hit ([`Config::hears_hits`]).
    pub fn hears_hits(&self) -> bool {
        self.spindle.hears_hits()
    }

    /// How long a file stays open after its last use ([`Config::open_after_use`]); doors report reads of it
    /// that hit as long.
    pub fn open_after_use(&self) -> Duration {
        Duration::from_nanos(self.spindle.open_after_use().0)
    }

    /// Whether files are read before their readers open them.
    pub(crate) fn foretells(&self) -> bool {
        self.next_files && self.spindle.mode == Mode::Both && self.spindle.ahead.is_some()
    }

    /// Finds out which of the mounted disks (or of those under these folders) seek, and says what becomes of
    /// each; nothing where that is no question: every disk is served, or nothing is read. Waits no longer
    /// than two seconds; what is not known by then goes by its flag.
    pub fn survey(&self, folders: Option<&[PathBuf]>) -> Vec<KindReport> {
        if self.include_ssd || matches!(self.spindle.mode, Mode::Off | Mode::Track) {
            return Vec::new();
        }
        self.kinds.survey(folders, &self.profiles, SURVEY_MAX)
    }

    /// The same with every value in its range.
    pub fn normalised(mut self) -> Settings {
        self.spindle = self.spindle.normalised();
        self
    }
}
