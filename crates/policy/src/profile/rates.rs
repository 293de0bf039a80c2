//! Transfer rates at places spread over the disk.
//!
//! At each place there are several long sequential runs, and the fastest counts. Places are added between two
//! whose rates differ. The rate of a run is the median over all stretches half as long as the run (the slope
//! of Theil and Sen over one distance), so a host that is late at a few reads, even the first or the last,
//! does not change it.

use alloc::vec::Vec;

use seekless_base::{Lba, Nanos, SECTOR_BYTES};

use super::RatePoint;
use super::reads::{ProcedureOptions, Read, Timing, median, shift};
use super::rotation::Revolution;

/// Sectors of one read of a sequential run: 256 KiB on a slow disk, 1 MiB on a fast one. If the read is long
/// against the host's part of the time, the drive's look-ahead keeps the medium busy meanwhile.
const RUN_SECTORS: (u32, u32) = (512, 2048);
/// A disk of at least this many bytes a turn is a fast one.
const FAST: f64 = 400_000.0;
/// Number of places measured first, both ends included.
const RATE_PLACES: u64 = 17;
/// A place is added between two whose rates differ by more than this part.
const RATE_STEP: f64 = 0.03;
/// Number of rounds in which places are added: the outer zones are wide, the innermost may be narrower than a
/// 60th of the disk.
const REFINEMENTS: u32 = 2;
/// Runs at each place; the fastest counts. A gap in the layout, a remapped track or a host that was late can
/// only slow a run down.
const RATE_RUNS: usize = 3;
/// The two fastest runs must agree to this part; otherwise there are more runs.
const RATE_AGREE: f64 = 0.02;
/// Length of a run in turns. Half a run is not a whole number of track switches. Over this many turns the
/// error is about 1 %, and the median over stretches that begin at all angles removes most of it.
const RUN_TURNS: f64 = 24.0;
/// Length of a run if the turn is not known.
const RUN_NS: f64 = 180e6;
/// Number of reads until host and head are in step.
const IN_STEP: u32 = 2;
/// Minimum number of reads to judge a run.
const COUNTED_MIN: usize = 4;
/// Maximum length of a run: 256 MiB.
const RUN_READS_MAX: u32 = 256;
/// Sectors of a run on a small disk: 24 turns of 11 ms at 230 MB/s. A run on a faster one takes less than a
/// hundredth of the disk.
const RUN_ROOM: u64 = 120_000;

/// Transfer rates.
#[derive(Debug)]
pub(super) struct Rates {
    options: ProcedureOptions,
    run_ns: f64,
    turn_ns: f64,
    /// Sectors of a read, once a first run has shown the speed.
    read_sectors: Option<u32>,
    /// Remaining places, the next one last.
    pub(super) places: Vec<u64>,
    pub(super) done: usize,
    refined: u32,
    runs: Vec<(f64, u64)>,
    tries: usize,
    run: Option<RateRun>,
    /// For each read of the current run that counts, from the first on: when it ended, in nanoseconds.
    marks: Vec<f64>,
    pub(super) found: Vec<RatePoint>,
}

#[derive(Clone, Copy, Debug)]
struct RateRun {
    start: u64,
    reads: u32,
    /// Reads since the start or the last disturbance.
    undisturbed: u32,
    /// When the last one ended.
    last: Nanos,
    /// Times of the reads that count.
    span: f64,
}

impl Rates {
    pub(super) fn new(options: ProcedureOptions, turn: Option<Revolution>) -> Rates {
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
            marks: Vec::new(),
            found,
        }
    }

    pub(super) fn finished(&self) -> bool {
        self.places.is_empty() && self.refined == REFINEMENTS
    }

    pub(super) fn next(&mut self) -> Read {
        if self.run.is_none() {
            let place = self.places.last().copied().unwrap_or(0);
            // Runs of one place lie apart by 96 MiB (or less on a small disk): neighbouring, but not in one
            // piece where a virtual disk is made of pieces.
            let apart = (self.options.sectors / 500).min(96 << 11);
            let apart = self.tries as u64 * apart;
            let inner = place > self.options.sectors / 2;
            let start = if inner { place.saturating_sub(apart) } else { place + apart };
            let start = start.saturating_sub(shift(&self.options));
            self.run = Some(RateRun { start, reads: 0, undisturbed: 0, last: Nanos::ZERO, span: 0.0 });
        }
        let (start, reads) = self.run.map_or((0, 0), |r| (r.start, r.reads));
        let sectors = self.sectors();
        let lba = Lba(start + u64::from(reads) * u64::from(sectors));
        Read { lba, sectors, not_before: Nanos::ZERO, may_rest: reads == 0 }
    }

    fn sectors(&self) -> u32 {
        self.read_sectors.unwrap_or(RUN_SECTORS.0)
    }

    pub(super) fn done(&mut self, timing: Timing) {
        let sectors = self.sectors();
        let Some(run) = &mut self.run else { return };
        run.reads += 1;
        if timing.disturbed {
            // The arm is elsewhere: reads count again once host and head are in step.
            run.undisturbed = 0;
        } else {
            run.undisturbed += 1;
            if run.undisturbed > IN_STEP {
                run.span += timing.completed.since(run.last).0 as f64;
                self.marks.push(run.span);
            }
        }
        run.last = timing.completed;
        let end = run.start + u64::from(run.reads + 1) * u64::from(sectors);
        let enough = self.marks.len() >= COUNTED_MIN && run.span >= self.run_ns;
        if enough || run.reads >= RUN_READS_MAX || end >= self.options.sectors {
            let middle = run.start + u64::from(run.reads / 2) * u64::from(sectors);
            let rate = rate(&self.marks, f64::from(sectors) * SECTOR_BYTES as f64);
            self.run = None;
            self.marks.clear();
            if self.read_sectors.is_none() {
                // The first run only shows the speed. Its blocks are in the drive's buffer now, so the next
                // run is elsewhere.
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
        // Until the two fastest agree, up to three times as many runs as needed.
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

/// Bytes a second, from the times at which a run's reads of `bytes` ended: the median over all stretches of
/// half the run. 0 if there are too few.
fn rate(ends: &[f64], bytes: f64) -> f64 {
    if ends.len() < COUNTED_MIN {
        return 0.0;
    }
    let half = ends.len() / 2;
    let mut stretches: Vec<f64> = ends.iter().zip(&ends[half..]).map(|(a, b)| b - a).collect();
    let stretch = median(&mut stretches);
    if stretch > 0.0 { bytes * half as f64 * 1e9 / stretch } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run of 40 reads of 1 MiB at 100 MB/s whose host is 4 ms late at a third of them, the last included.
    #[test]
    fn a_late_host_does_not_change_the_rate() {
        let each = f64::from(1 << 20) * 10.0;
        let late = |i: u32| if i.is_multiple_of(3) { 4e6 } else { 0.0 };
        let ends: Vec<f64> = (1..=40).rev().map(|i| f64::from(41 - i) * each + late(i - 1)).collect();
        let found = rate(&ends, f64::from(1 << 20));
        assert!((found / 100e6 - 1.0).abs() < 0.003, "{found}");
        assert_eq!(rate(&ends[..3], 1.0), 0.0);
    }
}
