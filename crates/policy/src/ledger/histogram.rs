//! Durations counted in buckets of powers of two: cheap, bounded, mergeable.

use seekless_base::Nanos;

/// Number of buckets. Bucket 0 holds durations under 1 us, bucket `i` those in `[2^(i-1), 2^i)` us, the last
/// all longer ones (2^30 us are 18 minutes).
const BUCKETS: usize = 32;

/// A histogram of durations with a relative resolution of a factor of two.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    buckets: [u64; BUCKETS],
    sum: Nanos,
    max: Nanos,
}

impl Histogram {
    /// Counts one duration.
    pub fn record(&mut self, duration: Nanos) {
        let us = duration.0 / 1_000;
        let bucket = (u64::BITS - us.leading_zeros()) as usize;
        self.buckets[bucket.min(BUCKETS - 1)] += 1;
        self.sum += duration;
        self.max = self.max.max(duration);
    }

    /// How many durations were counted.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Arithmetic mean, zero if nothing was counted.
    pub fn mean(&self) -> Nanos {
        Nanos(self.sum.0.checked_div(self.count()).unwrap_or(0))
    }

    /// The longest.
    pub fn max(&self) -> Nanos {
        self.max
    }

    /// A duration that at least the share `q` (0 to 1) of all is not longer than: the upper edge of its
    /// bucket, and never more than the longest.
    pub fn quantile(&self, q: f64) -> Nanos {
        let rank = (q * self.count() as f64) as u64;
        let mut seen = 0;
        for (edge, n) in self.buckets() {
            seen += n;
            if n > 0 && seen >= rank.max(1) {
                return edge.min(self.max);
            }
        }
        self.max
    }

    /// Upper edge (exclusive) and count of every bucket, shortest first.
    pub fn buckets(&self) -> impl Iterator<Item = (Nanos, u64)> + '_ {
        self.buckets.iter().enumerate().map(|(i, &n)| {
            let edge = if i + 1 == BUCKETS { Nanos::MAX } else { Nanos::from_micros(1 << i) };
            (edge, n)
        })
    }

    /// Adds all counts of another histogram.
    pub fn merge(&mut self, other: &Histogram) {
        for (mine, theirs) in self.buckets.iter_mut().zip(other.buckets) {
            *mine += theirs;
        }
        self.sum += other.sum;
        self.max = self.max.max(other.max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_fall_into_their_bucket() {
        let mut h = Histogram::default();
        for us in [0, 1, 2, 3, 4, 1_000, 3_000_000_000] {
            h.record(Nanos::from_micros(us));
        }
        let counts: alloc::vec::Vec<u64> = h.buckets().map(|(_, n)| n).collect();
        assert_eq!(&counts[..4], &[1, 1, 2, 1]);
        assert_eq!(counts[10], 1, "1000 us lie in [512, 1024)");
        assert_eq!(counts[BUCKETS - 1], 1, "50 minutes overflow into the last bucket");
        assert_eq!(h.count(), 7);
        assert_eq!(h.max(), Nanos::from_micros(3_000_000_000));
    }

    #[test]
    fn quantiles_bound_from_above() {
        let mut h = Histogram::default();
        assert_eq!(h.quantile(0.5), Nanos::ZERO);
        for us in 1..=100 {
            h.record(Nanos::from_micros(us));
        }
        let p50 = h.quantile(0.5);
        assert!(p50 >= Nanos::from_micros(50) && p50 <= Nanos::from_micros(100), "{p50}");
        assert_eq!(h.quantile(1.0), Nanos::from_micros(100));
        assert_eq!(h.mean(), Nanos(50_500));
    }

    #[test]
    fn merging_adds() {
        let (mut a, mut b, mut both) = (Histogram::default(), Histogram::default(), Histogram::default());
        for us in 1..50 {
            a.record(Nanos::from_micros(us));
            both.record(Nanos::from_micros(us));
            b.record(Nanos::from_micros(us * 77));
            both.record(Nanos::from_micros(us * 77));
        }
        a.merge(&b);
        assert_eq!(a, both);
    }
}
