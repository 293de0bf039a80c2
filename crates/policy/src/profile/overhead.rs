//! The overhead of a command before anything moves.
//!
//! There are two figures. A block that is read a second time comes from the drive's buffer: its time is that
//! of the electronics and of the path to them. A block that is not in the buffer costs more, because the
//! drive looks for it and starts the mechanism. This second figure shows on a single track: after a block was
//! read, the head is on the track, and a block half a turn further on passes at a known moment. If the block
//! is requested `x` before its passage, it is read at once if the drive needs less than `x`, and a turn later
//! otherwise. Bisection finds the least `x`. A drive whose look-ahead reads the block before it has processed
//! the command is never a turn late; its answer comes when it has processed the command, which gives the same
//! figure.

use alloc::vec::Vec;

use seekless_base::{Lba, Nanos};

use super::reads::{Read, Timing, median};
use super::rotation::Revolution;

/// Number of second reads of a block.
const HITS: usize = 9;
/// Largest spread of the middle half of them that can be measured with: a part of a turn,
const UNEVEN: f64 = 0.05;
/// or this many nanoseconds if that is more.
const UNEVEN_NS: f64 = 150_000.0;
/// Attempts to find the host in a calmer moment.
const ROUNDS_MAX: u32 = 12;
/// Places read to learn at which angle the other block lies: the same angle for those on a single track, the
/// track skew more for those that cross to the next one.
const ANGLES: usize = 16;
/// How many of them must agree on an angle,
const ANGLES_AGREE: usize = 3;
/// within this part of a turn.
const AGREE: f64 = 0.02;
/// A read is late if it ends later than this part of a turn after the passage: more than the noise of a
/// passage.
const LATE: f64 = 0.003;
/// Number of late reads in a row that are enough; their median counts.
const LATE_READS: usize = 5;
/// Number of reads that ended long before the passage: the drive had the block already, because it always
/// reads this far after a seek.
const EARLY_READS: u32 = 3;
/// Part of a turn between the two blocks. The nearest block that is not read ahead in any case is best: the
/// further apart, the more places cross to another track.
const APART: [f64; 3] = [0.35, 0.55, 0.75];
/// A read this close to a buffer hit, in nanoseconds, counts as one.
const HIT_NS: f64 = 50_000.0;
/// Maximum time in nanoseconds that a miss costs more than a buffer hit before anything moves. The largest in
/// the catalogue, of a drive of 1996, is half of it; larger results come from a host that was late.
const LONGER_MAX_NS: f64 = 1_000_000.0;
/// Width of the interval, in nanoseconds, at which the bisection ends: a twentieth of the smallest known
/// overhead (0.1 ms).
const RESOLUTION_NS: f64 = 5_000.0;
/// Number of pairs after which the measurement gives up; about 40 are needed.
const PAIRS_MAX: u32 = 300;

/// The measurement.
#[derive(Debug)]
pub(super) struct Overhead {
    place: u64,
    block: u32,
    turn: Option<Revolution>,
    /// Index into [`APART`].
    distance: usize,
    /// Sectors from the first block of a pair to the second.
    apart: u64,
    hits: Vec<f64>,
    first_done: Option<Nanos>,
    angles: Vec<f64>,
    angle: f64,
    low: f64,
    high: f64,
    missed: Option<f64>,
    /// Times of reads that ended after the passage, but less than a turn after it.
    late: Vec<f64>,
    early: u32,
    /// How often the second reads were too uneven.
    rounds: u32,
    /// Whether the times of reads without mechanics vary too much to measure anything finer.
    pub(super) uneven: bool,
    pairs: u32,
    /// Nanoseconds from the issue of a read until the earliest end of a block on the head's track.
    pub(super) outcome: Option<f64>,
}

/// Sectors from the first block of a pair to the second.
fn apart(turn: Revolution, block: u32, distance: usize) -> u64 {
    // No block is narrower than a 20000th of a turn, but its noisy measurement may be.
    let blocks = APART[distance] * turn.period / turn.block.max(turn.period / 20_000.0);
    blocks as u64 * u64::from(block)
}

impl Overhead {
    /// Measures below sector `place`.
    pub(super) fn new(place: u64, block: u32, turn: Option<Revolution>) -> Overhead {
        Overhead {
            place,
            block,
            turn,
            distance: 0,
            apart: turn.map_or(0, |turn| apart(turn, block, 0)),
            hits: Vec::new(),
            first_done: None,
            angles: Vec::new(),
            angle: 0.0,
            low: 0.0,
            high: f64::INFINITY,
            missed: None,
            late: Vec::new(),
            early: 0,
            rounds: 0,
            uneven: false,
            pairs: 0,
            outcome: None,
        }
    }

    pub(super) fn next(&mut self, now: Nanos) -> Read {
        let read =
            |lba, not_before, may_rest| Read { lba: Lba(lba), sectors: self.block, not_before, may_rest };
        if self.hits.len() < HITS {
            // Not at once: after a pause the host is slower to answer, and most reads of the other
            // measurements come after a pause.
            let pause = self.turn.map_or(0.0, |turn| turn.period / 4.0) as u64;
            let not_before = self.first_done.map_or(Nanos::ZERO, |done| Nanos(done.0.saturating_add(pause)));
            return read(self.place, not_before, false);
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
            if self.first_done.is_none() {
                self.first_done = (!timing.disturbed).then_some(timing.completed);
                return;
            }
            // The next one is elsewhere, because the look-ahead may push the block out of the buffer.
            self.move_on();
            self.pairs += 1;
            if !timing.disturbed {
                self.hits.push(took);
            }
            if self.hits.len() == HITS {
                self.hits.sort_by(f64::total_cmp);
                let spread = self.hits[HITS * 3 / 4] - self.hits[HITS / 4];
                if self.turn.is_some_and(|turn| spread > (turn.period * UNEVEN).max(UNEVEN_NS)) {
                    self.rounds += 1;
                    self.uneven = self.rounds >= ROUNDS_MAX;
                    self.hits.clear();
                    return;
                }
                (self.low, self.pairs) = (0.0, 0);
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
            if self.angles.len() == ANGLES {
                self.agree(turn);
            }
            return;
        }
        let near = |a: f64| (angle - a).abs() <= AGREE * turn.period;
        if self.angles.iter().any(|&other| near(other)) {
            return;
        }
        let after = (angle - self.angle) / turn.period;
        if after < -AGREE && took < turn.period / 2.0 {
            self.early += 1;
            if self.early >= EARLY_READS {
                self.further(turn);
            }
            return;
        }
        if after > LATE && after < 0.5 && took < turn.period / 2.0 {
            // No longer than a buffer hit: the host was late and the look-ahead had the block. Such a read
            // shows nothing.
            if took > self.hit() + LONGER_MAX_NS || took < median(&mut self.hits) + HIT_NS {
                return;
            }
            self.late.push(took);
            if self.late.len() == LATE_READS {
                // It came from the buffer, so it lacks the passage of the block, which every other outcome
                // includes.
                self.outcome = Some(median(&mut self.late) + turn.block);
            }
            return;
        }
        if after.abs() > AGREE {
            return;
        }
        self.late.clear();
        self.high = self.high.min(took);
        let missed = took - turn.period;
        if missed > self.low {
            // A late host misses as well, so only a second miss counts.
            match self.missed.take() {
                Some(before) => self.low = self.low.max(missed.min(before)),
                None => self.missed = Some(missed),
            }
        } else {
            self.missed = None;
        }
        let finest = (self.low + self.high) / 2.0 <= turn.block + RESOLUTION_NS;
        if finest || self.high - self.low <= RESOLUTION_NS {
            // The passage of the block itself is the minimum.
            let found = if finest { self.high } else { (self.low + self.high) / 2.0 };
            if found > self.hit() + LONGER_MAX_NS {
                self.further(turn);
            } else {
                self.outcome = Some(found);
            }
        }
    }

    /// The smallest angle on which several places agree: crossing to another track can only add its skew.
    /// `angles` keeps those of crossings, so that they are recognised later.
    fn agree(&mut self, turn: Revolution) {
        self.angles.sort_by(f64::total_cmp);
        let within = AGREE * turn.period;
        let near = |a: f64| self.angles.iter().filter(|b| (*b - a).abs() <= within).count();
        let Some(&angle) = self.angles.iter().find(|&&a| near(a) >= ANGLES_AGREE) else {
            self.further(turn);
            return;
        };
        let mut same: Vec<f64> =
            self.angles.iter().copied().filter(|a| (a - angle).abs() <= within).collect();
        self.angle = median(&mut same);
        self.angles.retain(|a| (a - angle).abs() > 2.0 * within);
        self.high = self.angle;
        self.low = 0.0;
    }

    /// Starts over with blocks further apart.
    fn further(&mut self, turn: Revolution) {
        self.distance += 1;
        if self.distance >= APART.len() {
            self.give_up();
            return;
        }
        self.apart = apart(turn, self.block, self.distance);
        self.angles.clear();
        self.late.clear();
        (self.angle, self.early, self.missed) = (0.0, 0, None);
    }

    /// The next pair lies before everything that was read so far.
    fn move_on(&mut self) {
        self.first_done = None;
        // The steps are uneven; equal ones could meet the same angle of every other track again and again.
        let uneven = f64::from(self.pairs) * 0.618_033_988_749_894_9;
        let uneven = ((uneven - uneven as u64 as f64) * 3.0 * self.apart as f64) as u64;
        let block = u64::from(self.block);
        self.place = self.place.saturating_sub(2 * self.apart + uneven / block * block + block);
    }

    /// A buffer hit and the passage of a block: the best estimate without the finer figure.
    fn hit(&mut self) -> f64 {
        median(&mut self.hits) + self.turn.map_or(0.0, |turn| turn.block)
    }

    fn give_up(&mut self) {
        self.outcome = Some(self.hit());
    }
}
