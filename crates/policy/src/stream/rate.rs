//! The rate of a reader that reads in bursts.

use seekless_base::Nanos;

/// Time constant of the average, in seconds. Viewers request ten seconds at a time (\[L\] 4): over two
/// periods the bursts average out, and a viewer's initial buffering is forgotten after about half a minute.
/// It also bounds how early a piece is queued before its stream runs dry, because the rate is not known for
/// longer.
pub(crate) const TIME_CONSTANT_S: f64 = 20.0;

/// Minimum time over which a rate is computed, in seconds. The calls of one burst follow each other within
/// microseconds.
const SPAN_MIN_S: f64 = 0.05;

/// Exponentially weighted rate in bytes a second: decayed bytes divided by decayed time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate {
    bytes: f64,
    seconds: f64,
    last: Nanos,
}

impl Rate {
    /// The rate of a reader that has not read yet.
    pub(crate) fn new(now: Nanos) -> Rate {
        Rate { bytes: 0.0, seconds: 0.0, last: now }
    }

    /// `bytes` were read at `now`.
    pub(crate) fn record(&mut self, now: Nanos, bytes: u64) {
        let passed_s = now.since(self.last).as_secs_f64();
        self.last = self.last.max(now);
        let keep = decay(passed_s / TIME_CONSTANT_S);
        self.bytes = self.bytes * keep + bytes as f64;
        self.seconds = self.seconds * keep + passed_s;
    }

    /// Whether the rate was observed for long enough to be the stream's bitrate: for one period of a viewer,
    /// so that its first burst is half forgotten.
    pub(crate) fn is_settled(&self) -> bool {
        self.seconds >= TIME_CONSTANT_S / 2.0
    }

    /// The decayed bytes and the decayed time, as of `now`.
    pub(crate) fn sums(&self, now: Nanos) -> (f64, f64) {
        (self.bytes, self.seconds + now.since(self.last).as_secs_f64())
    }

    /// Bytes a second, as of `now`. Silence counts, so a viewer that pauses becomes slow. 0 before the first
    /// byte.
    pub(crate) fn bytes_per_s(&self, now: Nanos) -> f64 {
        let (bytes, seconds) = self.sums(now);
        bytes / seconds.max(SPAN_MIN_S)
    }
}

/// e^-x for x >= 0, by the rational approximation 1/(1 + x + x^2/2 + x^3/6). Within 2 % up to x = 1,
/// monotone, always in (0, 1], and needs no mathematics library.
fn decay(x: f64) -> f64 {
    1.0 / (1.0 + x * (1.0 + x * (0.5 + x / 6.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_reader_has_its_rate() {
        let mut rate = Rate::new(Nanos::ZERO);
        for i in 1..=200 {
            rate.record(Nanos::from_millis(100 * i), 50_000);
        }
        let found = rate.bytes_per_s(Nanos::from_secs(20));
        assert!((found - 500_000.0).abs() < 5_000.0, "{found}");
    }

    #[test]
    fn a_viewer_that_buffers_first_settles_at_its_bitrate() {
        let mut rate = Rate::new(Nanos::ZERO);
        for segment in 0..12u64 {
            let at = Nanos::from_secs(segment.saturating_sub(2) * 10);
            rate.record(at, 523_750);
        }
        // Just after a burst it seems somewhat faster than it is (52,375), which errs on the early side.
        let found = rate.bytes_per_s(Nanos::from_secs(90));
        assert!((50_000.0..75_000.0).contains(&found), "{found}");
    }

    #[test]
    fn silence_slows() {
        let mut rate = Rate::new(Nanos::ZERO);
        rate.record(Nanos::from_secs(1), 1_000_000);
        assert!(rate.bytes_per_s(Nanos::from_secs(21)) < 50_000.0);
        assert_eq!(Rate::new(Nanos::ZERO).bytes_per_s(Nanos::from_secs(9)), 0.0);
    }
}
