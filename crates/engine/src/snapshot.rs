//! What a disk thread knows about itself, for the statistics.

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use seekless_kernel::prefetch::Brought;
use seekless_policy::{Histogram, Outcome, Stats};
use seekless_units::{Lba, Nanos};

use crate::lock;

/// The state of a disk thread.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The engine's own.
    pub engine: Stats,
    /// From the end of a piece to the start of the next while one was queued and nothing else in flight: time
    /// the disk stood still on our account.
    pub gap: Histogram,
    /// Pages asked for twice.
    pub second_try_pages: u64,
    /// Pages evicted before their piece was complete.
    pub lost_pages: u64,
    /// Stretches pinned now, as the pinner has them.
    pub pinned: Arc<AtomicUsize>,
    /// Files that were read before their readers opened them.
    pub next_files: Arc<Mutex<seekless_successors::Stats>>,
    /// The last read error, if there was one.
    pub last_error: Option<String>,
    /// The measured media rate, bytes a second; 0 without a profile.
    pub media_rate: f64,
    /// Where parts with heads of their own begin, the first left out, in addresses of the device
    /// ([`seekless_policy::Config::parts`]).
    pub parts: Vec<Lba>,
}

/// The disk thread's end of a snapshot that others read.
pub(crate) struct Statistics {
    own: Snapshot,
    published: Arc<Mutex<Snapshot>>,
    /// When the last read ended, if another was queued.
    idle_since: Option<Instant>,
}

impl Statistics {
    pub(crate) fn new(pinned: Arc<AtomicUsize>, media_rate: f64, parts: Vec<Lba>) -> Statistics {
        let own = Snapshot { pinned, media_rate, parts, ..Snapshot::default() };
        Statistics { published: Arc::new(Mutex::new(own.clone())), own, idle_since: None }
    }

    /// What others see.
    pub(crate) fn published(&self) -> Arc<Mutex<Snapshot>> {
        self.published.clone()
    }

    /// A worker has taken up a piece.
    pub(crate) fn read_began(&mut self, at: Instant) {
        if let Some(since) = self.idle_since.take() {
            self.own.gap.record(Nanos(at.saturating_duration_since(since).as_nanos() as u64));
        }
    }

    /// A read is over; `before` is the engine's state before it hears of that.
    pub(crate) fn read_ended(
        &mut self,
        at: Instant,
        before: &Stats,
        result: Result<Brought, String>,
    ) -> Outcome {
        self.idle_since = (before.queued > 0 && before.in_flight == 1).then_some(at);
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

    /// Shows others the state of now.
    pub(crate) fn publish(&mut self, engine: Stats) {
        self.own.engine = engine;
        lock(&self.published).clone_from(&self.own);
    }
}
