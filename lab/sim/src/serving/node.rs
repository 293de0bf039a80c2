//! What is seen of a node behind a balancer, and when its memory has come back (scenario `three-nodes`).

use seekless_base::Nanos;

/// What a node served, and what its disk read for it, since the look before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// When it was looked at.
    pub at: Nanos,
    /// Bytes of answers that ended.
    pub served: u64,
    /// Bytes from the disk.
    pub read: u64,
}

/// Part of what was served that the disk did not have to read; less than nothing where it reads ahead of its
/// readers.
pub fn hit_ratio(looks: &[Look]) -> f64 {
    let (served, read) = looks.iter().fold((0, 0), |sum, look| (sum.0 + look.served, sum.1 + look.read));
    if served == 0 { 0.0 } else { 1.0 - read as f64 / served as f64 }
}

/// The look at which the hit ratio is at `part` of what it `was`, with the one before it: a single piece read
/// ahead is a good part of one. With what was served until then.
pub fn back(looks: &[Look], was: f64, part: f64) -> Option<(Nanos, u64)> {
    let second = looks.windows(2).position(|pair| hit_ratio(pair) >= part * was)? + 1;
    Some((looks[second].at, looks[..=second].iter().map(|look| look.served).sum()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looks(rows: &[(u64, u64)]) -> Vec<Look> {
        let look = |(i, &(served, read))| Look { at: Nanos::from_secs(8 * (i as u64 + 1)), served, read };
        rows.iter().enumerate().map(look).collect()
    }

    #[test]
    fn back_is_two_looks_together() {
        assert_eq!(hit_ratio(&[]), 0.0);
        assert_eq!(hit_ratio(&looks(&[(100, 80), (100, 20)])), 0.5);
        // The third alone would do, with the second it does not.
        let seen = looks(&[(100, 130), (100, 100), (100, 40), (100, 60), (100, 0)]);
        assert_eq!(back(&seen, 0.5, 0.9), Some((Nanos::from_secs(32), 400)));
        assert_eq!(back(&seen, 0.7, 0.9), Some((Nanos::from_secs(40), 500)));
        assert_eq!(back(&seen, 0.9, 0.9), None);
        assert_eq!(back(&seen[..1], 0.0, 0.9), None, "one look is none");
    }
}
