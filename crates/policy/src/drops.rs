//! When a range that was given back is given back again.
//!
//! A page in a socket's buffer cannot leave memory, and with `sendfile` those are most of the pages that were
//! read last. No one says when a socket has sent them. So a range is given back again after a while, and once
//! more. Which of its bytes were neither read nor fetched since stands in [`crate::Extents`].

use alloc::collections::VecDeque;

use seekless_units::Nanos;

use crate::FileId;
use crate::engine::RANGES_MAX;

/// Time from one attempt to the next. A socket of 4 MiB (Linux' default bound) is empty after 3.4 s at 10
/// Mb/s and after 9.6 s at 3.5 Mb/s.
const AGAIN_AFTER: [Nanos; 3] = [Nanos::from_secs(2), Nanos::from_secs(8), Nanos::from_secs(1)];

/// Attempts to give back the same range. Behind the last one the range counts as gone.
const ATTEMPTS: usize = AGAIN_AFTER.len();

/// Time until what is given back has left memory, by the last attempt. A file stays open for as long.
pub(crate) fn given_back_after() -> Nanos {
    AGAIN_AFTER.into_iter().fold(Nanos::ZERO, |sum, after| sum + after)
}

/// A range whose next attempt is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ripe {
    pub(crate) file: FileId,
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Times it has been given back.
    pub(crate) attempts: usize,
}

impl Ripe {
    /// Whether it is to be given back once more; otherwise it counts as gone.
    pub(crate) fn again(&self) -> bool {
        self.attempts < ATTEMPTS
    }
}

/// The ranges given back lately.
#[derive(Debug, Default)]
pub(crate) struct Drops {
    /// By attempts made less one, in order of time.
    waiting: [VecDeque<(Nanos, Ripe)>; ATTEMPTS],
}

impl Drops {
    /// A range was given back for the `attempts`th time.
    pub(crate) fn given_back(&mut self, now: Nanos, file: FileId, start: u64, end: u64, attempts: usize) {
        let at = attempts.clamp(1, ATTEMPTS) - 1;
        let waiting = &mut self.waiting[at];
        if waiting.len() == RANGES_MAX {
            waiting.pop_front();
        }
        waiting.push_back((now + AGAIN_AFTER[at], Ripe { file, start, end, attempts }));
    }

    /// Takes out a range whose next attempt is due.
    pub(crate) fn ripe(&mut self, now: Nanos) -> Option<Ripe> {
        let ripe = self.waiting.iter_mut().find(|w| w.front().is_some_and(|&(at, _)| at <= now))?;
        ripe.pop_front().map(|(_, ripe)| ripe)
    }

    /// When the next range is ripe.
    pub(crate) fn next_ripe(&self) -> Option<Nanos> {
        self.waiting.iter().filter_map(|w| Some(w.front()?.0)).min()
    }
}
