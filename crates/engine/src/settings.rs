//! Settings of an engine.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use seekless_policy::{Config, Mode};
use smart_default::SmartDefault;

use crate::decisions::DecisionLog;
use crate::kind::{KindReport, Kinds};

/// Maximum wait for the probes of disks before they are served: the kind first, then the concurrency limit.
/// Under load these could not be measured later.
const SURVEY_MAX: Duration = Duration::from_secs(2);

/// Settings of an engine, constant while it runs.
#[derive(Clone, Debug, SmartDefault)]
pub struct Settings {
    /// Settings of each disk's policy.
    pub policy: Config,
    /// One queue for all disks, the default in \[L\], instead of one for each.
    pub single_queue: bool,
    /// Serve files on solid-state disks and file systems without a disk too, instead of passing them.
    pub include_ssd: bool,
    /// Trees whose folders and inodes are kept in memory.
    pub metadata: Vec<PathBuf>,
    /// The table of bitrates, if there is one.
    pub bitrates: Option<PathBuf>,
    /// Where measured profiles and remembered sizes are kept.
    #[default(seekless_kernel::identity::profiles_dir())]
    pub profiles: PathBuf,
    /// The kinds of disks, as far as known in this process.
    pub kinds: Arc<Kinds>,
    /// The decision log, if there is one.
    pub decisions: Option<Arc<DecisionLog>>,
}

impl Settings {
    /// Whether doors should report hits ([`Config::hears_hits`]).
    pub fn hears_hits(&self) -> bool {
        self.policy.hears_hits()
    }

    /// How long a file stays open after its last use ([`Config::open_after_use`]). Doors report hits of it
    /// that long.
    pub fn open_after_use(&self) -> Duration {
        Duration::from_nanos(self.policy.open_after_use().0)
    }

    /// Whether disks may sleep between long reads.
    pub(crate) fn is_quiet(&self) -> bool {
        self.policy.follows() && self.policy.ahead.as_ref().is_some_and(|ahead| ahead.quiet)
    }

    /// Finds out which of the mounted disks (or of those under these folders) seek, and whether each is
    /// served. Empty if that does not matter, because every disk is served or nothing is read, and if it
    /// would wake disks that sleep. Waits two seconds at most; the flag decides about a disk that is not
    /// known by then.
    pub fn survey(&self, folders: Option<&[PathBuf]>) -> Vec<KindReport> {
        if self.include_ssd || self.is_quiet() || matches!(self.policy.mode, Mode::Off | Mode::Track) {
            return Vec::new();
        }
        self.kinds.survey(folders, &self.profiles, SURVEY_MAX)
    }

    /// The same settings with every value in range.
    pub fn normalised(mut self) -> Settings {
        self.policy = self.policy.normalised();
        self
    }
}
