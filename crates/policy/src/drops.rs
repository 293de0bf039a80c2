//! Repeated attempts to drop a range, that is to give it back to the kernel.
//!
//! A page in a socket's buffer cannot leave memory, and with `sendfile` these are most of the pages read
//! last. Nothing reports when a socket has sent them. So a range is dropped again after a while, and then
//! once more. [`crate::Extents`] knows which of its bytes were neither read nor fetched since.

use alloc::collections::VecDeque;

use seekless_base::Nanos;

use crate::FileId;
use crate::engine::RANGES_MAX;

/// Time from one attempt to the next, and from the last one until the range counts as gone. A socket buffer
/// of 4 MiB (the default bound of Linux) is empty after 3.4 s at 10 Mb/s and after 9.6 s at 3.5 Mb/s.
const AGAIN_AFTER: [Nanos; 3] = [Nanos::from_secs(2), Nanos::from_secs(8), Nanos::from_secs(1)];

/// Number of attempts for one range. After the last one the range counts as gone.
const ATTEMPTS: usize = AGAIN_AFTER.len();

/// Time from the first attempt until the range counts as gone. The file stays open that long.
pub(crate) fn dropped_after() -> Nanos {
    AGAIN_AFTER.into_iter().fold(Nanos::ZERO, |sum, after| sum + after)
}

/// A range whose next attempt is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ripe {
    pub(crate) file: FileId,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) attempts: usize,
}

impl Ripe {
    /// Whether to drop it once more. If not, it counts as gone.
    pub(crate) fn again(&self) -> bool {
        self.attempts < ATTEMPTS
    }
}

/// The ranges dropped recently.
#[derive(Debug, Default)]
pub(crate) struct Drops {
    /// Indexed by the number of attempts minus one, each in order of time.
    waiting: [VecDeque<(Nanos, Ripe)>; ATTEMPTS],
}

impl Drops {
    /// A range was dropped for the `attempts`th time.
    pub(crate) fn dropped(&mut self, now: Nanos, file: FileId, start: u64, end: u64, attempts: usize) {
        let at = attempts.clamp(1, ATTEMPTS) - 1;
        let waiting = &mut self.waiting[at];
        if waiting.len() == RANGES_MAX {
            waiting.pop_front();
        }
        waiting.push_back((now + AGAIN_AFTER[at], Ripe { file, start, end, attempts }));
    }

    /// Removes a range whose next attempt is due.
    pub(crate) fn ripe(&mut self, now: Nanos) -> Option<Ripe> {
        let ripe = self.waiting.iter_mut().find(|w| w.front().is_some_and(|&(at, _)| at <= now))?;
        ripe.pop_front().map(|(_, ripe)| ripe)
    }

    /// When the next attempt is due.
    pub(crate) fn next_ripe(&self) -> Option<Nanos> {
        self.waiting.iter().filter_map(|w| Some(w.front()?.0)).min()
    }
}
