//! Zipf popularity: the file of rank `r` (from 1) is asked for in proportion to `1 / r^exponent`.
//!
//! Sampled exactly by inversion of the finite cumulative sum (a binary search), so one draw takes one random
//! word and the result does not depend on a library's approximation. 8 bytes of table a rank.

use crate::workload::draw::Draw;

/// Popularity by rank.
#[derive(Clone, Debug)]
pub struct Zipf {
    /// Cumulative share up to and including each rank.
    cumulative: Vec<f64>,
}

impl Zipf {
    /// Ranks 0..`n` (at least one) with `exponent` (0 = all equal; 0.8 in both video papers).
    pub fn new(n: usize, exponent: f64) -> Zipf {
        let mut cumulative = Vec::with_capacity(n.max(1));
        let mut sum = 0.0;
        for rank in 1..=n.max(1) {
            sum += libm::pow(rank as f64, -exponent);
            cumulative.push(sum);
        }
        cumulative.iter_mut().for_each(|c| *c /= sum);
        Zipf { cumulative }
    }

    /// A rank, 0 the most popular.
    pub fn sample(&self, draw: &mut Draw) -> usize {
        let u = draw.unit();
        self.cumulative.partition_point(|&c| c <= u).min(self.cumulative.len() - 1)
    }

    /// The share of requests that go to `rank` (from 0).
    pub fn share(&self, rank: usize) -> f64 {
        self.cumulative[rank] - if rank == 0 { 0.0 } else { self.cumulative[rank - 1] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Libception section 4: 14,400 sessions over 20,000 videos with exponent 0.8 asked for 6,581 different
    /// videos, 67.8 % of them once.
    #[test]
    fn the_papers_sessions_touch_as_many_videos() {
        let zipf = Zipf::new(20_000, 0.8);
        let mut draw = Draw::new(1, "zipf");
        let mut asked = vec![0_u32; 20_000];
        for _ in 0..14_400 {
            asked[zipf.sample(&mut draw)] += 1;
        }
        let different = asked.iter().filter(|&&n| n > 0).count() as f64;
        let once = asked.iter().filter(|&&n| n == 1).count() as f64;
        assert!((different / 6581.0 - 1.0).abs() < 0.02, "{different}");
        assert!((once / different - 0.678).abs() < 0.02, "{}", once / different);
    }

    #[test]
    fn shares_follow_the_power_law_and_sum_to_one() {
        let zipf = Zipf::new(1000, 0.8);
        let total: f64 = (0..1000).map(|r| zipf.share(r)).sum();
        assert!((total - 1.0).abs() < 1e-12);
        assert!((zipf.share(0) / zipf.share(9) - libm::pow(10.0, 0.8)).abs() < 1e-9);
        assert_eq!(Zipf::new(0, 1.0).sample(&mut Draw::new(1, "one")), 0);
    }
}
