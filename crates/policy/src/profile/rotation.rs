//! The time of one turn, measured by stepping backwards.
//!
//! A block that was just read is in the drive's buffer, and so are the blocks behind it (look-ahead); the
//! blocks *before* it are not. If blocks are read in falling order, each as soon as the one before has
//! arrived, every read waits for the medium, once a turn: completions are one turn `T` less the angle `d` of
//! a block apart. With a wait of `k` turns in between, the span is `kT - d`. Two such spans separate `T` from
//! `d`, and the longer the wait, the more precise `T`.
//!
//! A disk without rotation completes a read at any time. The waits are spread over the turn, so its
//! completions do not fall on multiples of any time, and that tells the two apart.

use alloc::vec::Vec;

use seekless_base::{Lba, Nanos};

use super::reads::{Read, Timing, median};

/// Blocks read without waiting.
const COARSE: usize = 16;
/// Turns to wait, from coarse to fine: each step is short enough that the error of the previous one stays
/// below half a turn.
const LADDER: [f64; 3] = [3.0, 12.0, 60.0];
/// The angles at which the block is requested, one attempt each.
const ANGLES: [f64; 6] = [0.3, 0.4, 0.5, 0.6, 0.7, 0.45];
/// A completion is on a multiple of the turn if it is within this part of it. That is large compared with the
/// jitter of a system call, and small compared with the spread of [`ANGLES`].
const COHERENT: f64 = 0.1;
/// Number of attempts of a step that must agree; one or two may cross to a neighbouring track with another
/// skew.
const COHERENT_MIN: usize = 4;
/// Shorter turns would be over 200000 rpm: the answers came from a buffer or from flash.
const TURN_MIN: f64 = 300_000.0;
/// Number of reads after which it gives up on a disk that others keep busy.
const READS_MAX: u32 = 200;

/// The result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Revolution {
    /// Nanoseconds of one turn.
    pub(super) period: f64,
    /// Nanoseconds one block takes to pass under the head.
    pub(super) block: f64,
}

/// The measurement.
#[derive(Debug)]
pub(super) struct Rotation {
    next_lba: u64,
    block: u32,
    last: Option<Nanos>,
    coarse: Vec<f64>,
    rung: usize,
    angle: usize,
    period: f64,
    /// One turn less one block.
    step: f64,
    found: Vec<f64>,
    reads: u32,
    /// `None` until it has ended; then the turn, if there is one.
    pub(super) outcome: Option<Option<Revolution>>,
}

impl Rotation {
    /// Reads blocks of `block` sectors downwards from `base`.
    pub(super) fn new(base: u64, block: u32) -> Rotation {
        Rotation {
            next_lba: base,
            block,
            last: None,
            coarse: Vec::new(),
            rung: 0,
            angle: 0,
            period: 0.0,
            step: 0.0,
            found: Vec::new(),
            reads: 0,
            outcome: None,
        }
    }

    /// Whether blocks took so long that there must be a mechanism.
    pub(super) fn slow(&self) -> bool {
        self.step >= TURN_MIN
    }

    pub(super) fn next(&mut self) -> Read {
        let lba = Lba(self.next_lba);
        self.next_lba = self.next_lba.saturating_sub(u64::from(self.block));
        let not_before = match self.last {
            Some(last) if self.coarse.len() >= COARSE => {
                let turns = LADDER[self.rung] - 1.0 + ANGLES[self.angle];
                Nanos(last.0.saturating_add((turns * self.period) as u64))
            }
            _ => Nanos::ZERO,
        };
        // A rest would have to be shorter than the waits of the steps, so there is none; the reads are few.
        Read { lba, sectors: self.block, not_before, may_rest: false }
    }

    pub(super) fn done(&mut self, timing: Timing) {
        self.reads += 1;
        if self.reads > READS_MAX {
            self.outcome = Some(None);
            return;
        }
        let last = self.last.replace(timing.completed);
        if timing.disturbed {
            self.last = None;
            return;
        }
        let Some(last) = last else { return };
        let span = timing.completed.since(last).0 as f64;
        if self.coarse.len() < COARSE {
            self.coarse.push(span);
            if self.coarse.len() == COARSE {
                self.step = median(&mut self.coarse);
                self.period = self.step;
                if self.step < TURN_MIN {
                    self.outcome = Some(None);
                }
            }
            return;
        }
        // span = k T - block = (k - 1) T + step.
        let more_turns = ((span - self.step) / self.period + 0.5) as u64 as f64;
        if more_turns >= 1.0 {
            let period = (span - self.step) / more_turns;
            // How far from a whole number of turns, in turns.
            if ((period / self.period - 1.0) * more_turns).abs() <= COHERENT {
                self.found.push(period);
            }
        }
        self.angle += 1;
        if self.angle < ANGLES.len() {
            return;
        }
        self.angle = 0;
        if self.found.len() < COHERENT_MIN {
            self.outcome = Some(None);
            return;
        }
        self.period = median(&mut self.found);
        self.found.clear();
        self.rung += 1;
        if self.rung == LADDER.len() {
            let block = (self.period - self.step).max(0.0);
            self.outcome = Some(Some(Revolution { period: self.period, block }));
        }
    }
}
