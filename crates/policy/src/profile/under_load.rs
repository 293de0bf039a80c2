//! The concurrency limit of a busy device, measured with the reads of its own load.
//!
//! [`Concurrency`](crate::profile::Concurrency) needs an idle device, but a device whose servers are busy
//! from the start is never idle. So while enough pieces wait, twice as many are tried: a window of reads with
//! the old number, one with the new one, and both once more. If twice as many bring [`GAIN_MIN`] times as
//! much both times, the new number stays, and the next trial follows at once. If not, no trial follows for a
//! while, longer each time. A number that was found is compared with its half as well, because a set may lose
//! members.
//!
//! There are two windows each, alternating, because a load changes: a load that began or ended between two
//! windows would otherwise count as a gain.

use seekless_base::Nanos;

use crate::profile::AT_ONCE;

/// Minimum gain of twice as many pieces. The pieces of a load lie in a sweep, where the queue of a single
/// drive gains less than between the jumps of `Concurrency`. With half of the gain (1.12), drives with a
/// queue count as sets; with twice (1.5), striped sets that read a piece with several members do not.
const GAIN_MIN: f64 = 1.25;

/// Minimum number of reads in a window. With half as many, chance decides; with twice as many, a trial on a
/// slow drive lasts ten seconds.
const READS: u32 = 12;

/// Minimum length of a window. A server that has just started reads short pieces; a dozen of them are done in
/// a tenth of a second, in which chance decides again. With twice as much, a trial takes eight seconds.
const WINDOW_MIN: Nanos = Nanos::from_secs(1);

/// Number of windows of a trial.
const WINDOWS: usize = 4;

/// Pause after the first trial without a gain; it doubles each time, up to [`REST_MAX`]. A trial of a few
/// seconds costs a single spindle a third of them. With half as much, a single spindle spends a hundredth of
/// its first minutes on trials; with twice as much, a set whose load had just begun waits longer.
const REST: Nanos = Nanos::from_secs(60);

const REST_MAX: Nanos = Nanos::from_secs(3600);

/// Finds the concurrency limit of a device while it is busy.
#[derive(Clone, Debug, Default)]
pub struct LoadTrial {
    /// The number that was found, as a power of two.
    doublings: usize,
    /// The current window; `None` between trials.
    window: Option<Window>,
    /// Whether the number being tried is half of the found one, not twice.
    halving: bool,
    /// No trial before this.
    rest_until: Nanos,
    rest: Nanos,
}

#[derive(Clone, Debug)]
struct Window {
    /// Number of reads to wait for before the window counts: they were submitted before it began.
    before: usize,
    began: Nanos,
    reads: u32,
    bytes: u64,
    /// Bytes a second of the windows that have ended.
    rates: [f64; WINDOWS],
    over: usize,
}

impl LoadTrial {
    /// The concurrency limit in pieces, as found so far.
    pub fn found(&self) -> usize {
        AT_ONCE[self.doublings]
    }

    /// Number of pieces that the device should have in flight now.
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

    /// A read of this many bytes has ended; `queued` pieces wait for the device.
    pub fn ended(&mut self, now: Nanos, bytes: u64, queued: usize) {
        let (low, high) = self.pair();
        // With fewer, the device does not always have as many in flight as tried, and the pieces are not in
        // order.
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

    /// The trial has ended: whether the higher number gains.
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
        // After a change, the next trial goes in the same direction, otherwise in the other one.
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

    /// A device that reads up to `spindles` pieces in the time of one, for this long; the numbers that were
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
            // It stays so, whatever else is tried.
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
