//! Seek time without the wait for rotation, measured like the reading of a vernier.
//!
//! A read takes overhead, seek, and the wait until its block comes round. Once a block of a track has been
//! read, it is known when every other block of that track passes under the head: whole turns later. So a
//! block is requested just `x` before its passage, with the arm at the other end of the distance. If overhead
//! and seek together take no longer than `x`, the read takes `x`; otherwise it misses the block and takes `x`
//! and a turn. Eight steps of bisection give the seek to 1/400 of a turn, for which the minimum of reads at
//! random angles would need four hundred reads.
//!
//! Blocks are taken in falling order at both ends, so that neither the drive's buffer nor its look-ahead has
//! them.

use seekless_base::{Lba, Nanos};

use super::reads::{Read, Timing};
use super::rotation::Revolution;

/// Width of the interval at which the bisection ends, as a part of a turn.
const RESOLUTION: f64 = 1.0 / 400.0;
/// And the absolute one, below the jitter of a system call.
const RESOLUTION_NS: f64 = 5_000.0;
/// A read counts if it ended within this part of a turn of a predicted passage. Larger differences come from
/// a track with another skew, a buffer hit or another program's read; the passage is then measured again.
const COHERENT: f64 = 0.04;
/// Turns to wait at the near end. The look-ahead that a drive always does is a part of a track.
const LINGER: f64 = 1.0;
/// Number of pairs of reads after which the place is given up; about 13 are needed.
const PAIRS_MAX: u32 = 40;

/// The result of a measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum MeasurementEnd {
    /// Nanoseconds from issuing the read until the earliest end of the block.
    Found(f64),
    /// There is no consistent result here.
    GaveUp,
}

/// One pair of places.
#[derive(Debug)]
pub(super) struct Vernier {
    from: u64,
    to: u64,
    block: u32,
    turn: Revolution,
    at_from: bool,
    /// When the read at the near end ended.
    left: Nanos,
    /// A time at which a block of the target track passed.
    passage: Option<Nanos>,
    /// Lower bound of seek and overhead,
    low: f64,
    /// and upper bound.
    high: f64,
    /// A block that was requested this long before its passage was missed once.
    missed: Option<f64>,
    pairs: u32,
    pub(super) outcome: Option<MeasurementEnd>,
}

impl Vernier {
    /// Measures from around `from` to around `to` by blocks of `block` sectors.
    pub(super) fn new(from: u64, to: u64, block: u32, turn: Revolution) -> Vernier {
        Vernier {
            from,
            to,
            block,
            turn,
            at_from: false,
            left: Nanos::ZERO,
            passage: None,
            low: 0.0,
            high: f64::INFINITY,
            missed: None,
            pairs: 0,
            outcome: None,
        }
    }

    pub(super) fn next(&mut self, now: Nanos) -> Read {
        let step = u64::from(self.block);
        if !self.at_from {
            self.from = self.from.saturating_sub(step);
            return Read {
                lba: Lba(self.from),
                sectors: self.block,
                not_before: Nanos::ZERO,
                may_rest: true,
            };
        }
        self.to = self.to.saturating_sub(step);
        // Many drives read on for a while after each positioning, so wait for that to end.
        let rested = Nanos(self.left.0.saturating_add((LINGER * self.turn.period) as u64));
        let not_before = match self.passage {
            Some(passage) if self.high.is_finite() => {
                let ahead = (self.low + self.high) / 2.0;
                let earliest = now.max(rested);
                let wait = self.until_passage(passage, earliest) - ahead;
                let turns = if wait < 0.0 { (-wait / self.turn.period) as u64 as f64 + 1.0 } else { 0.0 };
                Nanos(earliest.0.saturating_add((wait + turns * self.turn.period) as u64))
            }
            _ => rested,
        };
        Read { lba: Lba(self.to), sectors: self.block, not_before, may_rest: false }
    }

    /// Time from `at` to the next end of the block after the one read at `passage`, less than a turn.
    fn until_passage(&self, passage: Nanos, at: Nanos) -> f64 {
        let since = at.since(passage).0 as f64 + self.turn.block;
        let turns = (since / self.turn.period) as u64 as f64;
        self.turn.period - (since - turns * self.turn.period)
    }

    pub(super) fn done(&mut self, timing: Timing) {
        if !self.at_from {
            self.at_from = !timing.disturbed;
            self.left = timing.completed;
            return;
        }
        self.at_from = false;
        self.pairs += 1;
        if self.pairs > PAIRS_MAX {
            self.outcome = Some(MeasurementEnd::GaveUp);
        }
        if timing.disturbed {
            self.passage = None;
            return;
        }
        let took = timing.completed.since(timing.issued).0 as f64;
        if let Some(passage) = self.passage {
            let off = (took - self.until_passage(passage, timing.issued)) / self.turn.period + 0.5;
            if off < 0.0 || (off - off as u64 as f64 - 0.5).abs() > COHERENT {
                self.passage = Some(timing.completed);
                return;
            }
            // The block was met: the arm was there in time. A turn earlier it was not, or the block would
            // have been met then; or the host was late, which is why a miss counts only if it is repeated.
            self.high = self.high.min(took);
            let missed = took - self.turn.period;
            if missed > self.low {
                match self.missed.take() {
                    Some(before) => self.low = self.low.max(missed.min(before)),
                    None => self.missed = Some(missed),
                }
            } else {
                self.missed = None;
            }
        } else if !self.high.is_finite() {
            self.high = took;
        }
        self.passage = Some(timing.completed);
        if self.high - self.low <= (self.turn.period * RESOLUTION).max(RESOLUTION_NS) {
            self.outcome = Some(MeasurementEnd::Found((self.low + self.high) / 2.0));
        }
    }
}
