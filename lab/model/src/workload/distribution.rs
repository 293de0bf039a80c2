//! Measured distributions: how long the videos of a public video site are, how much of one a viewer watches,
//! and how large the files of a distribution's mirror are.
//!
//! Each is a cumulative table with straight lines between its points, starting at (0, 0). Read that way the
//! two tables of videos have the means their publisher computed: 258.4 s and 0.597.

/// A distribution given as a cumulative table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Empirical {
    /// (share of values at or below, value), both rising, the last share being 1.
    table: &'static [(f64, f64)],
}

/// Duration of a video, in seconds.
///
/// Source: the published data tables of the video workload of Summers, Brecht, Eager and Wong (SYSTOR 2012;
/// University of Waterloo 2011), as distributed with the media-streaming benchmark of CloudSuite; they
/// condense Finamore et al., "YouTube Everywhere" (IMC 2011). The last two points are both 1000 s.
pub const DURATION_S: Empirical = Empirical {
    table: &[
        (0.018, 15.0),
        (0.057, 30.0),
        (0.109, 50.0),
        (0.160, 70.0),
        (0.202, 90.0),
        (0.247, 112.0),
        (0.296, 138.0),
        (0.346, 161.0),
        (0.395, 183.0),
        (0.439, 200.0),
        (0.494, 215.0),
        (0.544, 228.0),
        (0.597, 244.0),
        (0.642, 257.0),
        (0.692, 285.0),
        (0.723, 300.0),
        (0.791, 362.0),
        (0.817, 400.0),
        (0.874, 500.0),
        (0.928, 600.0),
        (0.960, 700.0),
        (0.968, 800.0),
        (0.973, 900.0),
        (0.990, 1000.0),
        (1.000, 1000.0),
    ],
};

/// Share of a video that a session watches, from its beginning, 0 to 1. Source: as [`DURATION_S`].
pub const VIEWED_FRACTION: Empirical = Empirical {
    table: &[
        (0.050, 0.067),
        (0.100, 0.122),
        (0.150, 0.174),
        (0.200, 0.222),
        (0.250, 0.277),
        (0.300, 0.352),
        (0.350, 0.439),
        (0.400, 0.537),
        (0.450, 0.627),
        (0.500, 0.673),
        (0.550, 0.708),
        (0.600, 0.738),
        (0.650, 0.783),
        (0.700, 0.835),
        (0.750, 0.905),
        (0.800, 0.982),
        (0.820, 1.000),
        (1.000, 1.000),
    ],
};

/// Bytes of a file of a distribution's mirror.
///
/// Source: every file that the indices `Sources` and `Packages` (amd64) of Debian 12.15, main, name with its
/// size, each once: 169,078 files, 1.11 MB on average. Read with straight lines the table has 7 % more, since
/// between its points there are more small files than large ones.
pub const PACKAGE_BYTES: Empirical = Empirical {
    table: &[
        (0.001, 287.0),
        (0.025, 1_608.0),
        (0.050, 1_864.0),
        (0.100, 2_082.0),
        (0.150, 2_213.0),
        (0.200, 2_397.0),
        (0.250, 2_700.0),
        (0.300, 3_332.0),
        (0.350, 4_550.0),
        (0.400, 6_476.0),
        (0.450, 9_376.0),
        (0.500, 13_210.0),
        (0.550, 18_648.0),
        (0.600, 26_889.0),
        (0.650, 39_761.0),
        (0.700, 60_377.0),
        (0.750, 98_364.0),
        (0.800, 170_846.0),
        (0.850, 325_723.0),
        (0.900, 704_604.0),
        (0.925, 1_163_848.0),
        (0.950, 2_153_576.0),
        (0.970, 4_530_964.0),
        (0.980, 8_007_032.0),
        (0.990, 16_419_224.0),
        (0.995, 33_637_556.0),
        (0.998, 76_826_468.0),
        (0.999, 142_675_622.0),
        (0.999_5, 264_680_724.0),
        (0.999_8, 508_688_212.0),
        (0.999_9, 854_683_380.0),
        (0.999_95, 1_041_525_140.0),
        (1.000, 2_285_913_916.0),
    ],
};

impl Empirical {
    /// The value below which a share `u` (0 to 1) of all values lie.
    pub fn quantile(&self, u: f64) -> f64 {
        let i = self.table.partition_point(|&(share, _)| share < u).min(self.table.len() - 1);
        let (share, value) = self.table[i];
        let (share_before, value_before) = if i == 0 { (0.0, 0.0) } else { self.table[i - 1] };
        let within = ((u - share_before) / (share - share_before)).clamp(0.0, 1.0);
        value_before + within * (value - value_before)
    }

    /// The share of values at or below `value`: the inverse of [`quantile`](Self::quantile).
    pub fn share_at_most(&self, value: f64) -> f64 {
        let i = self.table.partition_point(|&(_, v)| v <= value);
        if i == self.table.len() {
            return 1.0;
        }
        let (share, v) = self.table[i];
        let (share_before, v_before) = if i == 0 { (0.0, 0.0) } else { self.table[i - 1] };
        share_before + (value - v_before).max(0.0) / (v - v_before) * (share - share_before)
    }

    /// The exact mean.
    pub fn mean(&self) -> f64 {
        let mut before = (0.0, 0.0);
        let mut mean = 0.0;
        for &(share, value) in self.table {
            mean += (share - before.0) * (value + before.1) / 2.0;
            before = (share, value);
        }
        mean
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::draw::Draw;

    #[test]
    fn means_are_the_published_ones() {
        assert!((DURATION_S.mean() - 258.4).abs() < 0.05, "{}", DURATION_S.mean());
        assert!((VIEWED_FRACTION.mean() - 0.597).abs() < 0.0005, "{}", VIEWED_FRACTION.mean());
        // The publisher's third figure: the mean of the product of the two, drawn independently.
        assert!((DURATION_S.mean() * VIEWED_FRACTION.mean() - 154.3).abs() < 0.1);
        assert!((PACKAGE_BYTES.mean() / 1_113_160.0 - 1.07).abs() < 0.001, "{}", PACKAGE_BYTES.mean());
    }

    #[test]
    fn sampled_means_agree() {
        let mut d = Draw::new(5, "sampled means");
        let n = 100_000;
        let duration = (0..n).map(|_| DURATION_S.quantile(d.unit())).sum::<f64>() / f64::from(n);
        let fraction = (0..n).map(|_| VIEWED_FRACTION.quantile(d.unit())).sum::<f64>() / f64::from(n);
        assert!((duration / 258.4 - 1.0).abs() < 0.01, "{duration}");
        assert!((fraction / 0.597 - 1.0).abs() < 0.01, "{fraction}");
    }

    #[test]
    fn share_is_the_inverse_of_quantile() {
        for table in [DURATION_S, VIEWED_FRACTION, PACKAGE_BYTES] {
            for i in 1..800 {
                // Above 0.82 the viewed fraction is 1 and has no single inverse.
                let u = f64::from(i) / 1000.0;
                let back = table.share_at_most(table.quantile(u));
                assert!((back - u).abs() < 1e-9, "{u} {back}");
            }
            assert_eq!(table.share_at_most(1e10), 1.0);
            assert_eq!(table.share_at_most(0.0), 0.0);
            assert_eq!(table.quantile(0.0), 0.0);
        }
        assert_eq!(DURATION_S.quantile(1.0), 1000.0);
    }
}
