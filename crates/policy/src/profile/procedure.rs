//! The measurement of a disk as a state machine: it says which blocks to read and when, and gets the time of
//! each read. Its driver reads a real disk past the page cache, or a model in virtual time.
//!
//! One read at a time, read-only, in this order: the turn (`rotation`), the overhead of a command
//! (`overhead`), the transfer rate at places spread over the disk (long sequential reads; more places where
//! it changes), the seek time over distances from a few cylinders to the whole disk (`vernier`). This takes
//! about 2500 reads, 20 to 40 seconds of a disk's time. If no rotation is found, seek times are plain medians
//! of reads at random places and include every wait.
//!
//! The driver marks reads that others disturbed, and they are repeated. Everything is bounded: on a disk too
//! busy or too unusual the result is a coarser profile or [`Unmeasurable`], never an endless loop.

use alloc::vec::Vec;

use seekless_base::{Lba, Nanos, words};

use super::overhead::Overhead;
use super::rates::Rates;
use super::reads::{ProcedureOptions, Read, Timing, median, shift};
use super::rotation::{Revolution, Rotation};
use super::seeks::{PAIRS, RUNGS, Sample, Seeks};
use super::{DiskProfile, RADIUS, RatePoint, SeekPoint, tracks_before};

/// Smallest disk that makes sense to measure: 512 MiB.
const SECTORS_MIN: u64 = 1 << 20;
/// More attempts to find a rotation if reads are slow enough for one.
const ROTATION_TRIES: u32 = 4;
/// Number of failed reads after which the disk is given up.
const ERRORS_MAX: u32 = 16;
/// Maximum number of reads; an otherwise idle disk needs about 2500.
const READS_MAX: u32 = 20_000;

/// What is being measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The time of a turn.
    Rotation,
    /// The overhead of a command.
    Overhead,
    /// Transfer rates.
    Rates,
    /// Seek times.
    Seeks,
    /// Nothing; it has ended.
    Finished,
}

// For a progress bar.
words! {
    Phase: Rotation = "rotation", Overhead = "command overhead", Rates = "transfer rates",
    Seeks = "seek times", Finished = "finished"
}

/// Why there is no profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unmeasurable {
    /// The disk is smaller than 512 MiB: no room for distances.
    #[error("it is smaller than 512 MiB")]
    TooSmall,
    /// Too many reads failed.
    #[error("too many reads failed")]
    Errors,
    /// Others kept the disk so busy that too few reads counted.
    #[error("others kept it too busy")]
    TooBusy,
    /// The host is late too often to measure milliseconds.
    #[error(
        "this machine's processors are so busy that times of a millisecond cannot be told; try when it is calmer"
    )]
    LateHost,
    /// The measurement has not ended.
    #[error("the measurement was not finished")]
    Unfinished,
}

/// The measurement.
#[derive(Debug)]
pub struct Procedure {
    options: ProcedureOptions,
    stage: Stage,
    reads: u32,
    errors: u32,
    failure: Option<Unmeasurable>,
    rotation_tries: u32,
    turn: Option<Revolution>,
    /// Nanoseconds before the arm can move, the passage of one block included.
    overhead: f64,
    rates: Vec<RatePoint>,
    seeks: Vec<Sample>,
}

#[derive(Debug)]
enum Stage {
    Rotation(Rotation),
    Overhead(Overhead),
    Rates(Rates),
    Seeks(Seeks),
    Finished,
}

impl Procedure {
    /// A new measurement.
    ///
    /// # Errors
    /// [`Unmeasurable::TooSmall`].
    pub fn new(mut options: ProcedureOptions) -> Result<Procedure, Unmeasurable> {
        if options.sectors < SECTORS_MIN {
            return Err(Unmeasurable::TooSmall);
        }
        options.block = options.block.clamp(1, 128);
        let base = aligned(options.sectors * 2 / 5 + shift(&options), options.block);
        Ok(Procedure {
            options,
            stage: Stage::Rotation(Rotation::new(base, options.block)),
            reads: 0,
            errors: 0,
            failure: None,
            rotation_tries: 0,
            turn: None,
            overhead: 0.0,
            rates: Vec::new(),
            seeks: Vec::new(),
        })
    }

    /// The current phase.
    pub fn phase(&self) -> Phase {
        match self.stage {
            Stage::Rotation(_) => Phase::Rotation,
            Stage::Overhead(_) => Phase::Overhead,
            Stage::Rates(_) => Phase::Rates,
            Stage::Seeks(_) => Phase::Seeks,
            Stage::Finished => Phase::Finished,
        }
    }

    /// The finished part of the work, 0 to 1, by the usual time of its phases.
    pub fn progress(&self) -> f64 {
        match &self.stage {
            Stage::Rotation(_) => 0.0,
            Stage::Overhead(_) => 0.12,
            Stage::Rates(r) => 0.14 + 0.31 * r.done as f64 / (r.done + r.places.len()).max(1) as f64,
            Stage::Seeks(s) => 0.45 + 0.55 * f64::from(s.index) / f64::from(RUNGS * PAIRS),
            Stage::Finished => 1.0,
        }
    }

    /// The next read, `None` when there is nothing left to read. Call [`Procedure::done`] or
    /// [`Procedure::failed`] for each.
    pub fn next(&mut self, now: Nanos) -> Option<Read> {
        self.advance();
        let mut read = match &mut self.stage {
            Stage::Rotation(r) => r.next(),
            Stage::Overhead(o) => o.next(now),
            Stage::Rates(r) => r.next(),
            Stage::Seeks(s) => s.next(now),
            Stage::Finished => return None,
        };
        // Inside the disk and on a block boundary, whatever the arithmetic of a phase says.
        let last = self.options.sectors - u64::from(read.sectors);
        read.lba = Lba(aligned(read.lba.0.min(last), self.options.block));
        Some(read)
    }

    /// Must be called with the time of the last requested read.
    pub fn done(&mut self, timing: Timing) {
        self.reads += 1;
        if self.reads > READS_MAX {
            self.fail(Unmeasurable::TooBusy);
            return;
        }
        match &mut self.stage {
            Stage::Rotation(r) => r.done(timing),
            Stage::Overhead(o) => o.done(timing),
            Stage::Rates(r) => r.done(timing),
            Stage::Seeks(s) => s.done(timing),
            Stage::Finished => {}
        }
        self.advance();
    }

    /// The last requested read failed. It counts as disturbed, and the next place is tried.
    pub fn failed(&mut self, timing: Timing) {
        self.errors += 1;
        if self.errors > ERRORS_MAX {
            self.fail(Unmeasurable::Errors);
            return;
        }
        self.done(Timing { disturbed: true, ..timing });
    }

    fn fail(&mut self, why: Unmeasurable) {
        self.failure = Some(why);
        self.stage = Stage::Finished;
    }

    /// Goes on to the next phase when one has ended.
    fn advance(&mut self) {
        let options = self.options;
        match &mut self.stage {
            Stage::Rotation(r) => {
                let Some(turn) = r.outcome else { return };
                if turn.is_none() && r.slow() && self.rotation_tries < ROTATION_TRIES {
                    // As slow as a disk that turns, but irregular: perhaps the host was late too often.
                    self.rotation_tries += 1;
                    let base = options.sectors * 2 / 5 + shift(&options);
                    let base = base + u64::from(self.rotation_tries) * options.sectors / 64;
                    self.stage = Stage::Rotation(Rotation::new(aligned(base, options.block), options.block));
                    return;
                }
                self.turn = turn;
                let place = options.sectors * 3 / 5 + shift(&options);
                self.stage = Stage::Overhead(Overhead::new(place, options.block, turn));
            }
            Stage::Overhead(o) if o.uneven => self.fail(Unmeasurable::LateHost),
            Stage::Overhead(o) => {
                let Some(overhead) = o.outcome else { return };
                self.overhead = overhead;
                self.stage = Stage::Rates(Rates::new(options, self.turn));
            }
            Stage::Rates(r) => {
                if !r.finished() {
                    return;
                }
                self.rates = core::mem::take(&mut r.found);
                if self.rates.is_empty() {
                    self.fail(Unmeasurable::TooBusy);
                    return;
                }
                self.stage = Stage::Seeks(Seeks::new(options, self.turn));
            }
            Stage::Seeks(s) => {
                if s.index < RUNGS * PAIRS {
                    return;
                }
                self.seeks = core::mem::take(&mut s.found);
                self.stage = Stage::Finished;
            }
            Stage::Finished => {}
        }
    }

    /// The profile.
    ///
    /// # Errors
    /// Why there is no profile.
    pub fn finish(self) -> Result<DiskProfile, Unmeasurable> {
        if let Some(why) = self.failure {
            return Err(why);
        }
        if !matches!(self.stage, Stage::Finished) {
            return Err(Unmeasurable::Unfinished);
        }
        let whole = tracks_before(&self.rates, self.options.sectors);
        let radius = |lba: u64| tracks_before(&self.rates, lba) / whole;
        let points: Vec<(f64, f64)> = self
            .seeks
            .iter()
            .map(|s| ((radius(s.from) - radius(s.to)).abs(), (s.nanos - self.overhead).max(0.0)))
            .collect();
        let seeks = rising(points);
        if seeks.is_empty() {
            return Err(Unmeasurable::TooBusy);
        }
        let block = self.turn.map_or(0.0, |t| t.block);
        Ok(DiskProfile {
            sectors: self.options.sectors,
            rotation: self.turn.map(|t| Nanos((t.period + 0.5) as u64)),
            overhead: Nanos((self.overhead - block).max(0.0) as u64),
            rates: self.rates,
            seeks,
        })
    }
}

fn aligned(lba: u64, block: u32) -> u64 {
    lba - lba % u64::from(block)
}

/// The rising curve through samples of (distance, time): a single outlier is replaced by its neighbours'
/// value, then neighbours in the wrong order are averaged (pool adjacent violators, Ayer et al. 1955).
fn rising(mut points: Vec<(f64, f64)>) -> Vec<SeekPoint> {
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let times: Vec<f64> = points.iter().map(|p| p.1).collect();
    for i in 1..points.len().saturating_sub(1) {
        points[i].1 = median(&mut [times[i - 1], times[i], times[i + 1]]);
    }
    let mut pools: Vec<(f64, f64, f64)> = Vec::new();
    for (distance, time) in points {
        pools.push((distance, time, 1.0));
        while let [.., a, b] = pools[..] {
            if a.1 <= b.1 {
                break;
            }
            let n = a.2 + b.2;
            let mean = |x: f64, y: f64| (x * a.2 + y * b.2) / n;
            pools.truncate(pools.len() - 2);
            pools.push((mean(a.0, b.0), mean(a.1, b.1), n));
        }
    }
    let mut curve: Vec<SeekPoint> = Vec::new();
    for (distance, time, _) in pools {
        let distance = (distance * f64::from(RADIUS)).clamp(0.0, f64::from(RADIUS)) as u32;
        if curve.last().is_none_or(|last| last.distance < distance) {
            curve.push(SeekPoint { distance, time: Nanos((time + 0.5) as u64) });
        }
    }
    curve
}
