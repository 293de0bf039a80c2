//! Seek times over distances from a few cylinders to the whole disk, at several places each.

use alloc::vec::Vec;

use seekless_base::{Lba, Nanos};

use super::reads::{ProcedureOptions, Read, Timing, median, shift};
use super::rotation::Revolution;
use super::vernier::{MeasurementEnd, Vernier};

/// The shortest distance is this part of the disk. Disks have 10^4 to 10^6 cylinders.
const SHORTEST: u64 = 1 << 15;
/// The longest distance in thousandths of the disk: both ends need room for steps backwards.
const LONGEST_PERMILLE: u64 = 985;
/// Sectors kept free before every place for steps backwards.
const MARGIN: u64 = 4096;
/// Number of distances, in equal ratios.
pub(super) const RUNGS: u32 = 26;
/// Places for each distance.
pub(super) const PAIRS: u32 = 3;

/// One seek measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) nanos: f64,
}

/// Seek times.
#[derive(Debug)]
pub(super) struct Seeks {
    options: ProcedureOptions,
    turn: Option<Revolution>,
    /// Index of the current pair and distance.
    pub(super) index: u32,
    tries: u32,
    current: Option<Current>,
    pub(super) found: Vec<Sample>,
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
    /// Without a known rotation: reads at one end, then at the other.
    Plain {
        at_from: bool,
        reads: u64,
        times: Vec<f64>,
    },
}

/// Number of reads of the plain method.
const PLAIN_READS: usize = 5;
/// Number of places tried for one pair.
const TRIES_MAX: u32 = 3;

impl Seeks {
    pub(super) fn new(options: ProcedureOptions, turn: Option<Revolution>) -> Seeks {
        Seeks { options, turn, index: 0, tries: 0, current: None, found: Vec::new() }
    }

    /// The two ends of a pair: distances are in equal ratios, places in a golden-ratio sequence, which
    /// spreads any number of them evenly.
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

    pub(super) fn next(&mut self, now: Nanos) -> Read {
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

    pub(super) fn done(&mut self, timing: Timing) {
        let Some(current) = &mut self.current else { return };
        let took = timing.completed.since(timing.issued).0 as f64;
        let outcome = match &mut current.method {
            Method::Vernier(v) => {
                v.done(timing);
                v.outcome
            }
            Method::Plain { at_from, reads, times } => {
                if *at_from && !timing.disturbed {
                    times.push(took);
                }
                *at_from = !*at_from;
                match times.len() {
                    PLAIN_READS => Some(MeasurementEnd::Found(median(times))),
                    _ if *reads > 40 => Some(MeasurementEnd::GaveUp),
                    _ => None,
                }
            }
        };
        match outcome {
            None => return,
            Some(MeasurementEnd::Found(nanos)) => {
                self.found.push(Sample { from: current.from, to: current.to, nanos });
                self.index += 1;
                self.tries = 0;
            }
            Some(MeasurementEnd::GaveUp) => {
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
