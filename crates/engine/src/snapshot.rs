//! The state of a disk thread, for statistics.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use seekless_base::{Lba, Nanos};
use seekless_kernel::prefetch::Brought;
use seekless_policy::{Histogram, Outcome, Stats};

use crate::costs::SharedCosts;
use crate::lock;

/// The state of a disk thread.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Counters of the engine.
    pub engine: Stats,
    /// Time from the end of a piece to the start of the next while one was queued and nothing else was in
    /// flight: the disk was idle because of this program.
    pub gap: Histogram,
    /// Pages requested twice.
    pub second_try_pages: u64,
    /// Pages that left memory before their piece was complete.
    pub lost_pages: u64,
    /// What files and programs cost the disk.
    pub(crate) costs: SharedCosts,
    /// The last read error.
    pub last_error: Option<String>,
    /// The measured media rate, bytes a second; 0 without a profile.
    pub media_rate: f64,
    /// Start addresses of the parts with their own heads, except the first, in addresses of the device
    /// ([`seekless_policy::Config::parts`]).
    pub parts: Vec<Lba>,
}

/// The disk thread's end of a published snapshot.
pub(crate) struct Statistics {
    own: Snapshot,
    published: Arc<Mutex<Snapshot>>,
    /// When the last read ended, if another was queued.
    idle_since: Option<Instant>,
}

impl Statistics {
    pub(crate) fn new(media_rate: f64, parts: Vec<Lba>, costs: SharedCosts) -> Statistics {
        let own = Snapshot { media_rate, parts, costs, ..Snapshot::default() };
        Statistics { published: Arc::new(Mutex::new(own.clone())), own, idle_since: None }
    }

    pub(crate) fn published(&self) -> Arc<Mutex<Snapshot>> {
        self.published.clone()
    }

    /// A worker has started on a piece.
    pub(crate) fn read_began(&mut self, at: Instant) {
        if let Some(since) = self.idle_since.take() {
            self.own.gap.record(Nanos(at.saturating_duration_since(since).as_nanos() as u64));
        }
    }

    /// A read has ended. `before` is the engine's state before this event.
    pub(crate) fn read_ended(
        &mut self,
        at: Instant,
        before: &Stats,
        result: Result<Brought, String>,
    ) -> Outcome {
        // Beside writes the disk is left to them on purpose.
        let alone = before.in_flight == 1 && before.writers.waiting == 0;
        self.idle_since = (before.queued > 0 && alone).then_some(at);
        match result {
            Ok(brought) => {
                self.own.second_try_pages += brought.second_try;
                self.own.lost_pages += brought.lost;
                Outcome::Ok
            }
            Err(error) => {
                tracing::debug!(%error, "a read failed; its callers read for themselves");
                self.own.last_error = Some(error);
                Outcome::Failed
            }
        }
    }

    /// Publishes the current state.
    pub(crate) fn publish(&mut self, engine: Stats) {
        self.own.engine = engine;
        lock(&self.published).clone_from(&self.own);
    }
}
