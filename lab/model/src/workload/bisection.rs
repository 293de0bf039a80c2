//! The rates that a bisection tries: raised (or lowered) by a fifth, then twice as far, and so on up to a
//! factor of two, until one holds and one fails; then the geometric mean. So a good first guess costs four or
//! five runs, and a bad one is reached by doubling.
//!
//! A rate below one that held is taken to hold, and one above a rate that failed to fail. So if the result is
//! about known ([`Bisection::expecting`]), the two rates next to it are tried first: the one below, then the
//! one above. If they do as expected, no other rate needs a run, and the result is that of the whole search.
//! If not, rates further and further away follow, until one held and one failed.

/// The state of a bisection. Pure, so that its bounds can be tested without a server.
#[derive(Clone, Debug)]
pub struct Bisection {
    good: Option<f64>,
    bad: Option<f64>,
    next: f64,
    lowest: f64,
    highest: f64,
    precision: f64,
    runs_left: u32,
    /// Factor to the next rate while only one side is known.
    stride: f64,
    /// What the result is expected to be, until a rate held and one failed.
    expected: Option<f64>,
    /// Factor to what is expected instead if that errs.
    off: f64,
    /// The highest rate that held and the lowest that failed, of all tried.
    held: f64,
    failed: f64,
}

/// First stride: a quarter of an octave. It is squared each time, up to an octave.
const STRIDE: f64 = 1.189_207_115_002_721;
const STRIDE_MAX: f64 = 2.0;

impl Bisection {
    /// Begins at `first`; never above `highest`; ends within `precision` (a share) or after `runs`.
    pub fn new(first: f64, highest: f64, precision: f64, runs: u32) -> Bisection {
        // A server that fails at 1/256 of the first guess has another problem than its disk.
        let lowest = first / 256.0;
        Bisection {
            good: None,
            bad: None,
            next: first.min(highest),
            lowest,
            highest,
            precision,
            runs_left: runs,
            stride: STRIDE,
            expected: None,
            off: 1.0 + precision,
            held: 0.0,
            failed: f64::INFINITY,
        }
    }

    /// The same search, if `rate` is expected to be its result, to within a quarter of its precision.
    pub fn expecting(mut self, rate: f64) -> Bisection {
        // Two rates of the search differ by at least half its precision.
        self.expected = Some(rate * (1.0 + self.precision / 4.0));
        self
    }

    /// The next rate to try, or none if the search is over.
    pub fn rate(&self) -> Option<f64> {
        let next = self.on_path()?;
        let Some(expected) = self.expected else { return Some(next) };
        let mut rest = self.clone();
        while let Some(rate) = rest.on_path() {
            rest.step(rate <= expected);
        }
        let below = rest.good.filter(|_| self.held == 0.0);
        below.or(rest.bad).or(Some(next))
    }

    /// The result of a run at [`rate`](Self::rate).
    pub fn learn(&mut self, good: bool) {
        let Some(rate) = self.rate() else { return };
        match good {
            true => self.held = self.held.max(rate),
            false => self.failed = self.failed.min(rate),
        }
        if self.expected.is_some_and(|expected| good != (rate <= expected)) {
            self.expected = Some(if good { rate * self.off } else { rate / self.off });
            self.off *= self.off;
        }
        self.expected = self.expected.filter(|_| self.held == 0.0 || self.failed == f64::INFINITY);
        // What is known of other rates needs no run.
        while let Some(rate) = self.on_path().filter(|rate| *rate <= self.held || *rate >= self.failed) {
            self.step(rate <= self.held);
        }
    }

    /// The next rate of the search, whatever is expected.
    fn on_path(&self) -> Option<f64> {
        if self.runs_left == 0 || self.next < self.lowest || self.good.is_some_and(|g| g >= self.highest) {
            return None;
        }
        match (self.good, self.bad) {
            (Some(good), Some(bad)) if bad / good - 1.0 <= self.precision => None,
            _ => Some(self.next),
        }
    }

    fn step(&mut self, good: bool) {
        let rate = self.next;
        if good {
            self.good = Some(self.good.map_or(rate, |g| g.max(rate)));
        } else {
            self.bad = Some(self.bad.map_or(rate, |b| b.min(rate)));
        }
        self.runs_left = self.runs_left.saturating_sub(1);
        self.next = match (self.good, self.bad) {
            (Some(good), Some(bad)) => (good * bad).sqrt(),
            (Some(good), None) => (good * self.stride).min(self.highest),
            (None, Some(bad)) => bad / self.stride,
            (None, None) => rate,
        };
        self.stride = (self.stride * self.stride).min(STRIDE_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Searches for a server that carries `capacity`; returns the highest good rate and the runs made.
    fn search(capacity: f64, first: f64, runs: u32) -> (Option<f64>, u32) {
        made(Bisection::new(first, 1000.0, 0.05, runs), capacity)
    }

    fn made(mut b: Bisection, capacity: f64) -> (Option<f64>, u32) {
        let mut made = 0;
        while let Some(rate) = b.rate() {
            assert!(rate <= 1000.0);
            made += 1;
            b.learn(rate <= capacity);
        }
        (b.good, made)
    }

    #[test]
    fn bisection_comes_within_its_precision_from_either_side() {
        for capacity in [3.0, 17.0, 60.0, 200.0, 999.0] {
            for first in [10.0, 60.0, 500.0] {
                let (good, made) = search(capacity, first, 30);
                let good = good.unwrap();
                assert!(good <= capacity && good * 1.051 > capacity, "{capacity} from {first}: {good}");
                assert!(made <= 16, "{made}");
            }
        }
    }

    #[test]
    fn bisection_is_bounded() {
        assert_eq!(search(0.0, 10.0, 30).0, None);
        assert!(search(0.0, 10.0, 30).1 <= 11);
        assert_eq!(search(1e9, 10.0, 30).0, Some(1000.0));
        assert_eq!(search(60.0, 10.0, 3).1, 3);
    }

    #[test]
    fn a_search_that_knows_its_result_tries_two_rates_and_one_that_errs_finds_the_same() {
        for (capacity, first) in [(3.0, 10.0), (17.0, 60.0), (60.0, 60.0), (200.0, 60.0), (999.0, 500.0)] {
            let new = || Bisection::new(first, 1000.0, 0.05, 30);
            let (good, whole) = made(new(), capacity);
            let known = good.unwrap();
            // As a record has it: to six digits, up or down.
            for rounded in [known * (1.0 - 5e-6), known, known * (1.0 + 5e-6)] {
                assert_eq!(made(new().expecting(rounded), capacity), (good, 2), "{capacity} from {first}");
            }
            for wrong in [0.0, 0.3, 0.9, 0.95, 1.05, 1.1, 4.0, 1e9] {
                let (found, runs) = made(new().expecting(known * wrong), capacity);
                assert_eq!(found, good, "{capacity} from {first}, expecting {wrong} of it");
                let most = if (0.95..1.06).contains(&wrong) { 4 } else { whole + 8 };
                assert!(runs <= most, "{capacity} from {first}, expecting {wrong} of it: {runs} runs");
            }
        }
        let new = || Bisection::new(10.0, 1000.0, 0.05, 30);
        assert_eq!(made(new().expecting(1000.0), 1e9), (Some(1000.0), 1), "nothing higher is tried");
        assert_eq!(made(new().expecting(0.0), 0.0), (None, 1), "nothing lower is tried");
    }
}
