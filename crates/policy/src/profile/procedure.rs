//! The measurement of a disk, as a state machine: it says which blocks to read and when, and is told how long each
//! took. Whoever drives it reads a real disk without the page cache, or a model in virtual time.
//!
//! One read at a time, read-only, in this order: the turn (`rotation`), the overhead of a command (`overhead`), the
//! transfer rate at places spread over the disk (long sequential reads; more places where it changes), the seek time
//! over distances from a few cylinders to the whole disk (`vernier`). About 2500 reads; 20 to 40 seconds of a disk's
//! time. Where no rotation shows, seek times are plain medians of reads at random places and contain every wait.
//!
//! Reads that others disturbed are told so by the driver and taken again. Everything is bounded: a disk too busy or
//! too odd ends in a coarser profile or in [`Unmeasurable`], never in an endless loop.

use alloc::vec::Vec;
use core::fmt;

use seekless_units::{Lba, Nanos, SECTOR_BYTES};

use super::overhead::Overhead;
use super::rotation::{Rotation, Turn};
use super::vernier::{Outcome, Vernier};
use super::{DiskProfile, RADIUS, RatePoint, SeekPoint, tracks_before};

/// Sectors of one read of a sequential run on a slow disk, 256 KiB, and on a fast one, 1 MiB. While the host deals with
/// a read the drive's look-ahead keeps the medium busy, if the read is long against the host's part.
const RUN_SECTORS: (u32, u32) = (512, 2048);
/// Bytes a turn from which on a disk is a fast one.
const FAST: f64 = 400_000.0;
/// Places at which the rate is measured first, ends included.
const RATE_PLACES: u64 = 17;
/// A place is added between two whose rates differ by more than this part.
const RATE_STEP: f64 = 0.03;
/// How often places are added: the outer zones are wide, the innermost may be narrower than a 60th of the disk.
const REFINEMENTS: u32 = 2;
/// Runs at each place; the fastest counts. A gap in the layout, a remapped track or a host that was late can only
/// slow a run down.
const RATE_RUNS: usize = 3;
/// The two fastest must agree to this part, or there are more runs.
const RATE_AGREE: f64 = 0.02;
/// Turns a run lasts. A run does not end on a whole number of track switches; over this many turns that is under 1 %.
const RUN_TURNS: f64 = 16.0;
/// What a run lasts where no turn is known.
const RUN_NS: f64 = 120e6;
/// Reads that bring host and head into step.
const IN_STEP: u32 = 2;
/// Reads a run must be judged by.
const COUNTED_MIN: u32 = 4;
/// A run ends here in any case: after 256 MiB at the most.
const RUN_READS_MAX: u32 = 256;
/// Sectors of a run of the fastest disk: 16 turns of 11 ms at 300 MB/s, and some.
const RUN_ROOM: u64 = 120_000;
/// Distances measured, in equal ratios.
const RUNGS: u32 = 26;
/// Places for each distance.
const PAIRS: u32 = 3;
/// The shortest distance is this part of the disk. Disks have 10^4 to 10^6 cylinders.
const SHORTEST: u64 = 1 << 15;
/// The longest is this part of it, in thousandths: both ends need room to step backwards.
const LONGEST_PERMILLE: u64 = 985;
/// Sectors kept free below every place for stepping backwards.
const MARGIN: u64 = 4096;
/// Smallest disk that makes sense to measure: 512 MiB.
const SECTORS_MIN: u64 = 1 << 20;
/// Further attempts to see a rotation where reads are slow enough for one.
const ROTATION_TRIES: u32 = 4;
/// Reads that may fail before the disk is given up.
const ERRORS_MAX: u32 = 16;
/// Reads at the most; a disk alone needs about 2500.
const READS_MAX: u32 = 20_000;

/// What is to be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcedureOptions {
    /// Capacity in 512-byte sectors.
    pub sectors: u64,
    /// Sectors of the smallest read the disk takes: 1, or 8 for disks of 4 KiB blocks. At least 1, at most 128.
    pub block: u32,
    /// Shifts all places a little, so that a second measurement does not find the first one's blocks in the drive's
    /// buffer.
    pub seed: u64,
}

/// A read to carry out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// First sector; a multiple of the block.
    pub lba: Lba,
    /// Sectors; a multiple of the block, at most 2048.
    pub sectors: u32,
    /// When to issue it; as soon as possible if that is past. Being late by more than some microseconds spoils it, but
    /// is allowed for: only what [`Timing`] says counts.
    pub not_before: Nanos,
    /// The disk may be left alone for any time before this read without loss.
    pub may_rest: bool,
}

/// When a read ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// When it was issued.
    pub issued: Nanos,
    /// When its data was there.
    pub completed: Nanos,
    /// Somebody else used the disk meanwhile: the figure is worthless.
    pub disturbed: bool,
}

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
    /// Nothing any more.
    Finished,
}

impl Phase {
    /// For a progress bar.
    pub const fn name(self) -> &'static str {
        match self {
            Phase::Rotation => "rotation",
            Phase::Overhead => "command overhead",
            Phase::Rates => "transfer rates",
            Phase::Seeks => "seek times",
            Phase::Finished => "finished",
        }
    }
}

/// Why there is no profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmeasurable {
    /// Smaller than 512 MiB: no room for distances.
    TooSmall,
    /// Too many reads failed.
    Errors,
    /// Others kept the disk so busy that too few reads counted.
    TooBusy,
    /// The host itself is so late, so often, that milliseconds cannot be measured.
    LateHost,
    /// Not finished yet.
    Unfinished,
}

impl fmt::Display for Unmeasurable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unmeasurable::TooSmall => "it is smaller than 512 MiB",
            Unmeasurable::Errors => "too many reads failed",
            Unmeasurable::TooBusy => "others kept it too busy",
            Unmeasurable::LateHost => {
                "this machine's processors are so busy that times of a millisecond cannot be told; try when it is calmer"
            }
            Unmeasurable::Unfinished => "the measurement was not finished",
        })
    }
}

impl core::error::Error for Unmeasurable {}

/// The measurement.
#[derive(Debug)]
pub struct Procedure {
    options: ProcedureOptions,
    stage: Stage,
    reads: u32,
    errors: u32,
    failure: Option<Unmeasurable>,
    rotation_tries: u32,
    turn: Option<Turn>,
    /// Nanoseconds before the arm can move, the passage of one block included.
    overhead: f64,
    rates: Vec<RatePoint>,
    seeks: Vec<Sample>,
}

/// One seek measured.
#[derive(Clone, Copy, Debug)]
struct Sample {
    from: u64,
    to: u64,
    nanos: f64,
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
    /// A measurement that has not begun.
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

    /// What is being measured.
    pub fn phase(&self) -> Phase {
        match self.stage {
            Stage::Rotation(_) => Phase::Rotation,
            Stage::Overhead(_) => Phase::Overhead,
            Stage::Rates(_) => Phase::Rates,
            Stage::Seeks(_) => Phase::Seeks,
            Stage::Finished => Phase::Finished,
        }
    }

    /// Part of the work done, 0 to 1, by the time its parts usually take.
    pub fn progress(&self) -> f64 {
        match &self.stage {
            Stage::Rotation(_) => 0.0,
            Stage::Overhead(_) => 0.12,
            Stage::Rates(r) => 0.14 + 0.31 * r.done as f64 / (r.done + r.places.len()).max(1) as f64,
            Stage::Seeks(s) => 0.45 + 0.55 * f64::from(s.index) / f64::from(RUNGS * PAIRS),
            Stage::Finished => 1.0,
        }
    }

    /// The next read, `None` when there is nothing left to read. Call [`Procedure::done`] or [`Procedure::failed`]
    /// for each.
    pub fn next(&mut self, now: Nanos) -> Option<Read> {
        self.advance();
        let mut read = match &mut self.stage {
            Stage::Rotation(r) => r.next(),
            Stage::Overhead(o) => o.next(now),
            Stage::Rates(r) => r.next(),
            Stage::Seeks(s) => s.next(now),
            Stage::Finished => return None,
        };
        // Whatever the arithmetic of a stage says: inside the disk, on a block.
        let last = self.options.sectors - u64::from(read.sectors);
        read.lba = Lba(aligned(read.lba.0.min(last), self.options.block));
        Some(read)
    }

    /// The read that was asked for last took this long.
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

    /// The read that was asked for last failed. It counts as disturbed; the next place is tried.
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

    /// Goes on to the next stage when one is over.
    fn advance(&mut self) {
        let options = self.options;
        match &mut self.stage {
            Stage::Rotation(r) => {
                let Some(turn) = r.outcome() else { return };
                if turn.is_none() && r.slow() && self.rotation_tries < ROTATION_TRIES {
                    // As slow as a disk that turns, but out of step: the host was late too often, perhaps.
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
            Stage::Overhead(o) if o.uneven() => self.fail(Unmeasurable::LateHost),
            Stage::Overhead(o) => {
                let Some(overhead) = o.outcome() else { return };
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
    /// Why there is none.
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

/// A few thousand sectors, by the seed.
fn shift(options: &ProcedureOptions) -> u64 {
    options.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52
}

fn aligned(lba: u64, block: u32) -> u64 {
    lba - lba % u64::from(block)
}

/// The middle value (of an even number, the upper of the two); sorts in place.
pub(super) fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// The rising curve through samples of (distance, time): a lone outlier gives way to its neighbours, then neighbours
/// in the wrong order are averaged (pool adjacent violators, Ayer et al. 1955).
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

/// Transfer rates.
#[derive(Debug)]
struct Rates {
    options: ProcedureOptions,
    run_ns: f64,
    turn_ns: f64,
    /// Sectors of a read, once a first run has shown the speed.
    read_sectors: Option<u32>,
    /// Places still to do, the next one last.
    places: Vec<u64>,
    done: usize,
    refined: u32,
    runs: Vec<(f64, u64)>,
    tries: usize,
    run: Option<Run>,
    found: Vec<RatePoint>,
}

#[derive(Clone, Copy, Debug)]
struct Run {
    start: u64,
    reads: u32,
    /// Reads since the start or the last disturbance.
    undisturbed: u32,
    /// When the last one was done.
    last: Nanos,
    /// Reads that count, and the time they took.
    counted: u32,
    span: f64,
}

impl Rates {
    fn new(options: ProcedureOptions, turn: Option<Turn>) -> Rates {
        let run_ns = turn.map_or(RUN_NS, |t| t.period * RUN_TURNS);
        let turn_ns = run_ns / RUN_TURNS;
        // Room for a run behind the last place.
        let usable = options.sectors - (options.sectors / 100).max(RUN_ROOM);
        let place = |i: u64| usable / (RATE_PLACES - 1) * i;
        let places = (0..RATE_PLACES).rev().map(place).collect();
        let (runs, found) = (Vec::new(), Vec::new());
        Rates {
            options,
            run_ns,
            turn_ns,
            read_sectors: None,
            places,
            done: 0,
            refined: 0,
            runs,
            tries: 0,
            run: None,
            found,
        }
    }

    fn finished(&self) -> bool {
        self.places.is_empty() && self.refined == REFINEMENTS
    }

    fn next(&mut self) -> Read {
        if self.run.is_none() {
            let place = self.places.last().copied().unwrap_or(0);
            // Runs of one place lie apart by 96 MiB (or less on a small disk): neighbouring, but not in one piece
            // where a virtual disk is made of pieces.
            let apart = (self.options.sectors / 500).min(96 << 11);
            let apart = self.tries as u64 * apart;
            let inner = place > self.options.sectors / 2;
            let start = if inner { place.saturating_sub(apart) } else { place + apart };
            let start = start.saturating_sub(shift(&self.options));
            self.run =
                Some(Run { start, reads: 0, undisturbed: 0, last: Nanos::ZERO, counted: 0, span: 0.0 });
        }
        let (start, reads) = self.run.map_or((0, 0), |r| (r.start, r.reads));
        let sectors = self.sectors();
        let lba = Lba(start + u64::from(reads) * u64::from(sectors));
        Read { lba, sectors, not_before: Nanos::ZERO, may_rest: reads == 0 }
    }

    fn sectors(&self) -> u32 {
        self.read_sectors.unwrap_or(RUN_SECTORS.0)
    }

    fn done(&mut self, timing: Timing) {
        let sectors = self.sectors();
        let Some(run) = &mut self.run else { return };
        run.reads += 1;
        if timing.disturbed {
            // The arm is elsewhere: what follows counts once host and head are in step again.
            run.undisturbed = 0;
        } else {
            run.undisturbed += 1;
            if run.undisturbed > IN_STEP {
                run.counted += 1;
                run.span += timing.completed.since(run.last).0 as f64;
            }
        }
        run.last = timing.completed;
        let end = run.start + u64::from(run.reads + 1) * u64::from(sectors);
        let enough = run.counted >= COUNTED_MIN && run.span >= self.run_ns;
        if enough || run.reads >= RUN_READS_MAX || end >= self.options.sectors {
            let bytes = f64::from(run.counted) * f64::from(sectors) * SECTOR_BYTES as f64;
            let middle = run.start + u64::from(run.reads / 2) * u64::from(sectors);
            let counts = run.counted >= COUNTED_MIN && run.span > 0.0;
            let rate = if counts { bytes * 1e9 / run.span } else { 0.0 };
            self.run = None;
            if self.read_sectors.is_none() {
                // The first run only shows the speed. Its blocks are in the drive's buffer now: go on elsewhere.
                let fast = rate * self.turn_ns / 1e9 >= FAST;
                self.read_sectors = Some(if fast { RUN_SECTORS.1 } else { RUN_SECTORS.0 });
                self.tries = 1;
                return;
            }
            if rate > 0.0 {
                self.runs.push((rate, middle));
            }
            self.end_try();
        }
    }

    fn end_try(&mut self) {
        self.tries += 1;
        self.runs.sort_by(|a, b| a.0.total_cmp(&b.0));
        // Until the two fastest agree, three times as often as needed at the most.
        let agree = match self.runs.as_slice() {
            [.., second, first] => second.0 >= first.0 * (1.0 - RATE_AGREE),
            _ => false,
        };
        if (self.runs.len() < RATE_RUNS || !agree) && self.tries < 3 * RATE_RUNS {
            return;
        }
        self.tries = 0;
        self.places.pop();
        self.done += 1;
        if let Some(&(rate, middle)) = self.runs.last() {
            self.found.push(RatePoint { lba: Lba(middle), bytes_per_second: rate as u64 });
            self.found.sort_by_key(|p| p.lba);
            self.found.dedup_by_key(|p| p.lba);
        }
        self.runs.clear();
        while self.places.is_empty() && self.refined < REFINEMENTS {
            self.refined += 1;
            for pair in self.found.windows(2).rev() {
                let (a, b) = (pair[0].bytes_per_second as f64, pair[1].bytes_per_second as f64);
                if (a - b).abs() > RATE_STEP * a.max(b) {
                    self.places.push(pair[0].lba.0.midpoint(pair[1].lba.0));
                }
            }
        }
    }
}

/// Seek times.
#[derive(Debug)]
struct Seeks {
    options: ProcedureOptions,
    turn: Option<Turn>,
    /// Which pair of which distance.
    index: u32,
    tries: u32,
    current: Option<Current>,
    found: Vec<Sample>,
}

#[derive(Debug)]
struct Current {
    from: u64,
    to: u64,
    method: Method,
}

#[derive(Debug)]
enum Method {
    Vernier(Vernier),
    /// No rotation to go by: reads at one end, then the other.
    Plain {
        at_from: bool,
        reads: u64,
        times: Vec<f64>,
    },
}

/// Reads of the plain method.
const PLAIN_READS: usize = 5;
/// Places tried for one pair.
const TRIES_MAX: u32 = 3;

impl Seeks {
    fn new(options: ProcedureOptions, turn: Option<Turn>) -> Seeks {
        Seeks { options, turn, index: 0, tries: 0, current: None, found: Vec::new() }
    }

    /// The two ends of a pair: distances in equal ratios, places in a golden-ratio sequence, which spreads any number
    /// of them evenly.
    fn places(&self) -> (u64, u64) {
        let sectors = self.options.sectors;
        let shortest = (sectors / SHORTEST).max(MARGIN) as f64;
        let longest = (sectors / 1000 * LONGEST_PERMILLE) as f64;
        let rung = f64::from(self.index / PAIRS) / f64::from(RUNGS - 1);
        let distance = (shortest * libm::pow(longest / shortest, rung)) as u64;
        let room = sectors - distance - MARGIN - sectors / 256;
        let turn = f64::from(self.index + self.tries * 1000 + 1) * 0.618_033_988_749_894_9;
        let low = MARGIN + ((turn - turn as u64 as f64) * room as f64) as u64 + shift(&self.options);
        if self.index.is_multiple_of(2) { (low, low + distance) } else { (low + distance, low) }
    }

    fn next(&mut self, now: Nanos) -> Read {
        let (options, turn) = (self.options, self.turn);
        if self.current.is_none() {
            let (from, to) = self.places();
            let method = match turn {
                Some(turn) => Method::Vernier(Vernier::new(from, to, options.block, turn)),
                None => Method::Plain { at_from: false, reads: 0, times: Vec::new() },
            };
            self.current = Some(Current { from, to, method });
        }
        let lost = Read { lba: Lba(0), sectors: options.block, not_before: Nanos::ZERO, may_rest: true };
        let Some(current) = &mut self.current else { return lost };
        match &mut current.method {
            Method::Vernier(v) => v.next(now),
            Method::Plain { at_from, reads, .. } => {
                *reads += 1;
                let step = (*reads / 2) * 64 * u64::from(options.block);
                let end = if *at_from { current.to } else { current.from };
                Read { lba: Lba(end.saturating_sub(step)), may_rest: !*at_from, ..lost }
            }
        }
    }

    fn done(&mut self, timing: Timing) {
        let Some(current) = &mut self.current else { return };
        let took = timing.completed.since(timing.issued).0 as f64;
        let outcome = match &mut current.method {
            Method::Vernier(v) => {
                v.done(timing);
                v.outcome()
            }
            Method::Plain { at_from, reads, times } => {
                if *at_from && !timing.disturbed {
                    times.push(took);
                }
                *at_from = !*at_from;
                match times.len() {
                    PLAIN_READS => Some(Outcome::Found(median(times))),
                    _ if *reads > 40 => Some(Outcome::GaveUp),
                    _ => None,
                }
            }
        };
        match outcome {
            None => return,
            Some(Outcome::Found(nanos)) => {
                self.found.push(Sample { from: current.from, to: current.to, nanos });
                self.index += 1;
                self.tries = 0;
            }
            Some(Outcome::GaveUp) => {
                self.tries += 1;
                if self.tries >= TRIES_MAX {
                    self.index += 1;
                    self.tries = 0;
                }
            }
        }
        self.current = None;
    }
}
