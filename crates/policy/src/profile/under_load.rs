//! How many pieces does a busy device bear at once? What the reads of its own load tell.
//!
//! [`Concurrency`](crate::profile::Concurrency) needs an idle device. One whose servers are busy from the
//! start never is. So while enough pieces wait, twice as many are tried: a window of reads with the old
//! number, one with the new one, and both once more. If twice as many bring [`GAIN_MIN`] times as much both
//! times, they stay, and the next trial follows at once. If not, the device rests from trials, longer each
//! time. A number that was found is tried against its half as well: a set may lose members.
//!
//! Two windows each, in turn, since a load changes: what began or ended between two windows would otherwise
//! count as a gain.

use seekless_base::Nanos;

use crate::profile::AT_ONCE;

/// Twice as many pieces must bring so many times as much. The pieces of a load lie in a sweep, where the
/// queue of a single drive gains it less than between the jumps of `Concurrency`. With half of the gain
/// (1.12) drives with a queue pass for sets; with twice (1.5) stripes that bring a piece with several members
/// do not pass any more.
const GAIN_MIN: f64 = 1.25;

/// Least reads in a window. With half as many, chance decides; with twice as many a trial on a slow drive
/// lasts ten seconds.
const READS: u32 = 12;

/// Shortest window. A server that has just started reads short pieces: a dozen are over in a tenth of a
/// second, in which chance decides again. With twice as much a trial takes eight seconds.
const WINDOW_MIN: Nanos = Nanos::from_secs(1);

/// Windows of a trial.
const WINDOWS: usize = 4;

/// Rest after the first trial that brought nothing; it doubles each time, up to [`REST_MAX`]. A trial of a
/// few seconds on a single spindle costs it a third of them. With half as much a single spindle spends a
/// hundredth of its first minutes on trials; with twice as much a set whose load had just begun waits longer.
const REST: Nanos = Nanos::from_secs(60);

const REST_MAX: Nanos = Nanos::from_secs(3600);

/// Tries how many pieces a device bears at once, while it is busy.
#[derive(Clone, Debug, Default)]
pub struct LoadTrial {
    /// Powers of two: what was found.
    doublings: usize,
    /// The window under way; `None` between trials.
    window: Option<Window>,
    /// The number under trial is half of what was found, not twice that.
    halving: bool,
    /// No trial before this.
    rest_until: Nanos,
    rest: Nanos,
}

#[derive(Clone, Debug)]
struct Window {
    /// Reads to wait for before it counts: they were submitted before it began.
    before: usize,
    began: Nanos,
    reads: u32,
    bytes: u64,
    /// Bytes a second of those that are over.
    rates: [f64; WINDOWS],
    over: usize,
}

impl LoadTrial {
    /// Pieces that the device bears at once, as far as was found.
    pub fn found(&self) -> usize {
        AT_ONCE[self.doublings]
    }

    /// Pieces that it is to have at once now.
    pub fn pieces(&self) -> usize {
        let (low, high) = self.pair();
        match &self.window {
            None => self.found(),
            Some(window) if window.over % 2 == 0 => low,
            Some(_) => high,
        }
    }

    /// The two numbers that a trial compares.
    fn pair(&self) -> (usize, usize) {
        let low = self.doublings - usize::from(self.halving);
        (AT_ONCE[low], AT_ONCE[low + 1])
    }

    /// A read of so many bytes is over; so many pieces are `queued` for the device.
    pub fn ended(&mut self, now: Nanos, bytes: u64, queued: usize) {
        let (low, high) = self.pair();
        // With fewer the device is not always given as many as it bears, and there is no order to them.
        if queued < 2 * high {
            self.window = None;
            return;
        }
        let Some(window) = &mut self.window else {
            if now >= self.rest_until {
                self.window = Some(Window::new(now, low, [0.0; WINDOWS], 0));
            }
            return;
        };
        if window.before > 0 {
            window.before -= 1;
            window.began = now;
            return;
        }
        window.reads = window.reads.saturating_add(1);
        window.bytes = window.bytes.saturating_add(bytes);
        if window.reads < READS || now - window.began < WINDOW_MIN {
            return;
        }
        let Window { mut rates, over, .. } = *window;
        rates[over] = window.bytes as f64 / (now - window.began).as_secs_f64().max(1e-9);
        self.window = match over + 1 {
            WINDOWS => None,
            over => Some(Window::new(now, high, rates, over)),
        };
        if self.window.is_none() {
            let [a, b, c, d] = rates;
            self.decide(now, b >= a * GAIN_MIN && d >= c * GAIN_MIN);
        }
    }

    /// The trial is over: whether the higher number gains.
    fn decide(&mut self, now: Nanos, gains: bool) {
        let changed = gains != self.halving;
        if changed && gains {
            self.doublings += 1;
        } else if changed {
            self.doublings -= 1;
        }
        self.rest = match changed {
            true => Nanos::ZERO,
            false => Nanos(self.rest.0.saturating_mul(2)).clamp(REST, REST_MAX),
        };
        self.rest_until = now + self.rest;
        let (least, most) = (self.doublings == 0, self.doublings + 1 == AT_ONCE.len());
        // After a change on in the same direction, else the other one is tried next.
        self.halving = most || (!least && (self.halving == changed));
    }
}

impl Window {
    fn new(now: Nanos, before: usize, rates: [f64; WINDOWS], over: usize) -> Window {
        Window { before, began: now, reads: 0, bytes: 0, rates, over }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    /// A device that reads up to `spindles` pieces in the time of one, for so long; the numbers that were
    /// found, in order.
    fn run(trial: &mut LoadTrial, now: &mut Nanos, spindles: usize, for_s: u64, queued: usize) -> Vec<usize> {
        let until = *now + Nanos::from_secs(for_s);
        let mut found = vec![trial.found()];
        while *now < until {
            let at_once = trial.pieces().min(spindles) as u64;
            *now += Nanos(40_000_000 / at_once);
            trial.ended(*now, 4 << 20, queued);
            if found.last() != Some(&trial.found()) {
                found.push(trial.found());
            }
        }
        found
    }

    #[test]
    fn a_set_is_found_within_seconds_and_a_spindle_stays_one() {
        for (spindles, path) in [(1, vec![1]), (2, vec![1, 2]), (4, vec![1, 2, 4]), (8, vec![1, 2, 4, 8])] {
            let (mut trial, mut now) = (LoadTrial::default(), Nanos::ZERO);
            assert_eq!(run(&mut trial, &mut now, spindles, 20, 64), path);
            // And so it stays, whatever else is tried.
            assert_eq!(run(&mut trial, &mut now, spindles, 20_000, 64), [spindles]);
        }
    }

    #[test]
    fn a_set_that_loses_members_is_found_out() {
        let (mut trial, mut now) = (LoadTrial::default(), Nanos::ZERO);
        run(&mut trial, &mut now, 4, 20, 64);
        assert_eq!(run(&mut trial, &mut now, 1, 4_000, 64), [4, 2, 1]);
        assert_eq!(run(&mut trial, &mut now, 4, 8_000, 64), [1, 2, 4], "and back");
    }

    #[test]
    fn trials_are_a_small_part_of_the_time() {
        let (mut trial, mut now) = (LoadTrial::default(), Nanos::ZERO);
        let (mut two, mut all) = (0, 0);
        while now < Nanos::from_secs(7200) {
            now += Nanos::from_millis(40);
            trial.ended(now, 4 << 20, 64);
            (two, all) = (two + u32::from(trial.pieces() > 1), all + 1);
        }
        assert!(two > 0 && two * 300 < all, "{two} of {all} reads");
    }

    #[test]
    fn without_a_queue_nothing_is_tried() {
        let (mut trial, mut now) = (LoadTrial::default(), Nanos::ZERO);
        for queued in 0..4 {
            assert_eq!(run(&mut trial, &mut now, 4, 100, queued), [1]);
            assert_eq!(trial.pieces(), 1);
        }
        // The queue runs empty in the middle of a trial: what was found stays.
        for _ in 0..35 {
            now += Nanos::from_millis(40);
            trial.ended(now, 4 << 20, 64);
        }
        assert_eq!(trial.pieces(), 2);
        trial.ended(now, 4 << 20, 0);
        assert_eq!((trial.pieces(), trial.found()), (1, 1));
    }

    #[test]
    fn a_load_that_grows_meanwhile_is_no_gain() {
        let (mut trial, mut now) = (LoadTrial::default(), Nanos::ZERO);
        let mut bytes = 1 << 20;
        while now < Nanos::from_secs(20) {
            now += Nanos::from_millis(40);
            trial.ended(now, bytes, 64);
            // Pieces double once, between two windows.
            bytes = if now < Nanos::from_millis(1_080) { 1 << 20 } else { 2 << 20 };
        }
        assert_eq!(trial.found(), 1);
    }

    #[test]
    fn reads_in_no_time_are_no_fault() {
        let mut trial = LoadTrial::default();
        for i in 0..1000u64 {
            trial.ended(Nanos(i % 3), u64::MAX / 64, usize::MAX);
            assert!(AT_ONCE.contains(&trial.pieces()));
        }
    }
}
