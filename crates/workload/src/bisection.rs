//! Which rates a bisection tries: raised (or lowered) by a fifth, then twice as far, and so on up to a factor
//! of two, until one holds and one fails; then the geometric middle. So a good first guess costs four or five
//! runs; a bad one is reached by doubling.

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
        }
    }

    /// The next rate to try, or none if the search is over.
    pub fn rate(&self) -> Option<f64> {
        if self.runs_left == 0 || self.next < self.lowest || self.good.is_some_and(|g| g >= self.highest) {
            return None;
        }
        match (self.good, self.bad) {
            (Some(good), Some(bad)) if bad / good - 1.0 <= self.precision => None,
            _ => Some(self.next),
        }
    }

    /// The result of a run at [`rate`](Self::rate).
    pub fn learn(&mut self, good: bool) {
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
        let mut b = Bisection::new(first, 1000.0, 0.05, runs);
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
}
