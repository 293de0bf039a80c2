//! When each event thread last completed a round. The keeper sends beats to the supervisor as long as none of
//! them is stuck.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Interval of the keeper's rounds and beats.
pub(crate) const ROUND: Duration = Duration::from_millis(100);

/// An event thread without a round for this long is stuck: it waits at most [`ROUND`] for an event, and
/// handles one without waiting for anything.
const STUCK_AFTER: Duration = Duration::from_millis(700);

/// When each event thread last completed a round, in milliseconds since the start.
pub(crate) struct Beats {
    began: Instant,
    last: Vec<AtomicU64>,
}

impl Beats {
    pub(crate) fn new(threads: usize) -> Beats {
        Beats { began: Instant::now(), last: (0..threads).map(|_| AtomicU64::new(0)).collect() }
    }

    /// The thread with this number completed a round.
    pub(crate) fn beat(&self, index: usize, now: Instant) {
        let ms = now.saturating_duration_since(self.began).as_millis() as u64;
        if let Some(last) = self.last.get(index) {
            last.store(ms, Ordering::Relaxed);
        }
    }

    /// Whether no event thread is stuck.
    pub(crate) fn all_alive(&self, now: Instant) -> bool {
        let now = now.saturating_duration_since(self.began).as_millis() as u64;
        let stuck = STUCK_AFTER.as_millis() as u64;
        self.last.iter().all(|last| now.saturating_sub(last.load(Ordering::Relaxed)) < stuck)
    }
}
