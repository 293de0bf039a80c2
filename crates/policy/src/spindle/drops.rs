//! Ranges to give back, each more than once.
//!
//! A page in a socket's buffer cannot leave memory, and with `sendfile` those are most of the pages that were read last: of what
//! clients of 3.5 Mb/s had read, two of three gigabytes stayed. Nobody says when a socket lets go, so a range is given back again
//! after a while, and once more; what has left by then costs a system call.

use alloc::collections::VecDeque;

use seekless_units::Nanos;

use crate::FileId;

/// Most ranges waiting to be given back; more are forgotten, which costs memory a little later and nothing else.
const DUE_MAX: usize = 256;

/// How long after one attempt the next is made. A socket of 4 MiB (Linux' default bound) is empty after 3.4 s at 10 Mb/s, after 9.6 s
/// at 3.5 Mb/s.
const AGAIN_AFTER: [Nanos; 2] = [Nanos::from_secs(2), Nanos::from_secs(8)];

/// Most ranges waiting for the same attempt: eight seconds of 250 MB/s in steps of 256 KiB. The oldest are forgotten.
const AGAIN_MAX: usize = 8192;

/// A range to give back, `[start, end)` in whole pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DropRange {
    pub(super) file: FileId,
    pub(super) start: u64,
    pub(super) end: u64,
    /// Times it has been given back before.
    attempts: usize,
}

/// What is to be given back now, and what again later.
#[derive(Debug, Default)]
pub(super) struct Drops {
    due: VecDeque<DropRange>,
    /// By attempts made, in order of time.
    again: [VecDeque<(Nanos, DropRange)>; AGAIN_AFTER.len()],
}

impl Drops {
    /// Puts a range in line; `false` if the line is at its bound.
    pub(super) fn push(&mut self, file: FileId, start: u64, end: u64) -> bool {
        self.push_again(DropRange { file, start, end, attempts: 0 })
    }

    /// Puts a range that is ripe in line for its next attempt.
    pub(super) fn push_again(&mut self, drop: DropRange) -> bool {
        let room = self.due.len() < DUE_MAX;
        if room {
            self.due.push_back(drop);
        }
        room
    }

    /// The next range to give back: file, start, end.
    pub(super) fn pop(&mut self, now: Nanos) -> Option<(FileId, u64, u64)> {
        let drop = self.due.pop_front()?;
        if let (Some(later), Some(&after)) =
            (self.again.get_mut(drop.attempts), AGAIN_AFTER.get(drop.attempts))
        {
            if later.len() == AGAIN_MAX {
                later.pop_front();
            }
            later.push_back((now + after, DropRange { attempts: drop.attempts + 1, ..drop }));
        }
        Some((drop.file, drop.start, drop.end))
    }

    /// Takes out a range whose next attempt is due.
    pub(super) fn ripe(&mut self, now: Nanos) -> Option<DropRange> {
        let ripe = self.again.iter_mut().find(|later| later.front().is_some_and(|&(at, _)| at <= now))?;
        ripe.pop_front().map(|(_, drop)| drop)
    }

    /// When the next range is ripe.
    pub(super) fn next_again(&self) -> Option<Nanos> {
        self.again.iter().filter_map(|later| Some(later.front()?.0)).min()
    }
}
