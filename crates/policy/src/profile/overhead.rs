//! What a command costs before anything moves.
//!
//! Two figures. A block read a second time comes from the drive's buffer: the time of that is the electronics' and
//! the path's to them. A block that does not costs more, since the drive looks for it and sets the mechanism going.
//! That one shows on a single track: after a block is read the head is on the track, and a block a third of a turn
//! further on passes at a known instant. Asked for `x` before its passage it is read at once if the drive needs less
//! than `x`, or a turn later. Halving finds the least `x`. A drive whose look-ahead catches the block while it still
//! thinks about the command is never a turn late; it answers as soon as it has thought, which tells the same.

use alloc::vec::Vec;

use seekless_units::{Lba, Nanos};

use super::procedure::{Read, Timing, median};
use super::rotation::Turn;

/// Second reads of a block.
const HITS: usize = 9;
/// Places read to learn at which angle the other block lies. A place that crosses to the next track has another.
const ANGLES_MIN: usize = 9;
/// at the least and at the most.
const ANGLES_MAX: usize = 30;
/// How many of them must agree,
const ANGLES_AGREE: usize = 5;
/// and to what part of a turn.
const AGREE: f64 = 0.015;
/// Part of a turn after the passage at which a read is late: above the noise of a passage.
const LATE: f64 = 0.003;
/// Late reads in a row that are believed. Half of the places cross to another track and seem late by its skew, which
/// is more than any overhead: so the lower quarter counts.
const LATE_READS: usize = 9;
/// Part of a turn between the two blocks: far enough to be outside of what a drive reads after each seek whatever
/// else it is asked, near enough that most places do not cross to the next track.
const APART: f64 = 0.35;
/// Nanoseconds at which the halving ends: a twentieth of the fastest overhead known (0.1 ms).
const RESOLUTION_NS: f64 = 5_000.0;
/// Pairs after which it is given up; about 20 are needed.
const PAIRS_MAX: u32 = 90;

/// The measurement.
#[derive(Debug)]
pub(super) struct Overhead {
    place: u64,
    block: u32,
    turn: Option<Turn>,
    /// Sectors from the first block of a pair to the second.
    apart: u64,
    hits: Vec<f64>,
    first_done: Option<Nanos>,
    angles: Vec<f64>,
    angle: f64,
    low: f64,
    high: f64,
    /// Times of reads that ended after the passage but not a turn after it.
    late: Vec<f64>,
    pairs: u32,
    outcome: Option<f64>,
}

impl Overhead {
    /// Measures below sector `place`.
    pub(super) fn new(place: u64, block: u32, turn: Option<Turn>) -> Overhead {
        let apart = turn.map_or(0, |turn| {
            // A block narrower than a part in 20000 of a turn does not exist; the noise of its measurement does.
            let blocks = APART * turn.period / turn.block.max(turn.period / 20_000.0);
            blocks as u64 * u64::from(block)
        });
        Overhead {
            place,
            block,
            turn,
            apart,
            hits: Vec::new(),
            first_done: None,
            angles: Vec::new(),
            angle: 0.0,
            low: 0.0,
            high: f64::INFINITY,
            late: Vec::new(),
            pairs: 0,
            outcome: None,
        }
    }

    /// Nanoseconds from the issue of a read until the end of a block the head is on can be met at the earliest.
    pub(super) fn outcome(&self) -> Option<f64> {
        self.outcome
    }

    pub(super) fn next(&mut self, now: Nanos) -> Read {
        let read =
            |lba, not_before, may_rest| Read { lba: Lba(lba), sectors: self.block, not_before, may_rest };
        if self.hits.len() < HITS {
            return read(self.place, Nanos::ZERO, false);
        }
        let Some(first) = self.first_done else {
            return read(self.place, Nanos::ZERO, true);
        };
        let aim = if self.angle > 0.0 {
            let ahead = (self.low + self.high) / 2.0;
            Nanos(first.0.saturating_add((self.angle - ahead).max(0.0) as u64))
        } else {
            Nanos::ZERO
        };
        read(self.place + self.apart, aim.max(now), false)
    }

    pub(super) fn done(&mut self, timing: Timing) {
        let took = timing.completed.since(timing.issued).0 as f64;
        if self.hits.len() < HITS {
            // The very first read of the place is not a second one.
            let second = self.first_done.replace(timing.completed).is_some();
            if second && !timing.disturbed {
                self.hits.push(took);
            }
            if self.hits.len() == HITS {
                self.low = 0.0;
                self.move_on();
                if self.turn.is_none() {
                    self.outcome = Some(median(&mut self.hits));
                }
            }
            return;
        }
        let (Some(turn), Some(first)) = (self.turn, self.first_done) else {
            self.first_done = (!timing.disturbed).then_some(timing.completed);
            return;
        };
        self.move_on();
        self.pairs += 1;
        if self.pairs > PAIRS_MAX {
            self.give_up();
        }
        if timing.disturbed {
            return;
        }
        let span = timing.completed.since(first).0 as f64;
        let angle = span - (span / turn.period) as u64 as f64 * turn.period;
        if self.angle <= 0.0 {
            self.angles.push(angle);
            if self.angles.len() >= ANGLES_MIN {
                self.agree(turn);
            }
            return;
        }
        let after = (angle - self.angle) / turn.period;
        if after > LATE && after < 0.5 && took < turn.period / 2.0 {
            self.late.push(took);
            if self.late.len() == LATE_READS {
                self.late.sort_by(f64::total_cmp);
                // It came from the buffer: the passage of the block is not in it, as it is in every other outcome.
                self.outcome = Some(self.late[LATE_READS / 4] + turn.block);
            }
            return;
        }
        if after.abs() > AGREE {
            return;
        }
        self.late.clear();
        self.high = self.high.min(took);
        self.low = self.low.max(took - turn.period);
        let finest = (self.low + self.high) / 2.0 <= turn.block + RESOLUTION_NS;
        if finest || self.high - self.low <= RESOLUTION_NS {
            // Less than the passage of a block itself cannot be asked for.
            self.outcome = Some(if finest { self.high } else { (self.low + self.high) / 2.0 });
        }
    }

    /// The smallest angle several places agree on: crossing to another track can only add its skew.
    fn agree(&mut self, turn: Turn) {
        self.angles.sort_by(f64::total_cmp);
        let near = |a: f64| self.angles.iter().filter(|b| (*b - a).abs() <= AGREE * turn.period).count();
        if let Some(&angle) = self.angles.iter().find(|&&a| near(a) >= ANGLES_AGREE) {
            self.angle = angle;
            self.high = angle;
        } else if self.angles.len() >= ANGLES_MAX {
            self.give_up();
        }
    }

    /// The next pair lies before all that was read so far.
    fn move_on(&mut self) {
        self.first_done = None;
        // By uneven steps, or a place of every other track would be met again and again.
        let uneven = f64::from(self.pairs) * 0.618_033_988_749_894_9;
        let uneven = ((uneven - uneven as u64 as f64) * 3.0 * self.apart as f64) as u64;
        let block = u64::from(self.block);
        self.place = self.place.saturating_sub(2 * self.apart + uneven / block * block + block);
    }

    fn give_up(&mut self) {
        let block = self.turn.map_or(0.0, |turn| turn.block);
        self.outcome = Some(median(&mut self.hits) + block);
    }
}
