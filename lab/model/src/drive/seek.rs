//! The time of the arm to cross a number of cylinders and settle.
//!
//! Short seeks are dominated by acceleration (time grows with the square root of the distance), long ones by
//! coasting (time grows with the distance). A drive is described by measured points, joined by straight lines
//! as DiskSim does, or by the customary fit `a + b * sqrt(d) + c * d` (Ruemmler and Wilkes, "An introduction
//! to disk drive modeling", 1994).

use alloc::vec::Vec;

/// Seek time by distance.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum SeekCurve {
    /// (cylinders, nanoseconds), ascending distances.
    Table(Vec<(u32, u64)>),
    /// `a + b * sqrt(d) + c * d` milliseconds over `d` cylinders.
    Fit {
        /// Constant part, milliseconds.
        a: f64,
        /// Factor of the square root, milliseconds.
        b: f64,
        /// Linear factor, milliseconds a cylinder.
        c: f64,
    },
}

impl SeekCurve {
    /// Nanoseconds to cross `distance` cylinders; zero for none.
    pub(crate) fn time(&self, distance: u32) -> u64 {
        if distance == 0 {
            return 0;
        }
        match self {
            SeekCurve::Fit { a, b, c } => {
                let d = f64::from(distance);
                ((a + b * libm::sqrt(d) + c * d) * 1e6 + 0.5) as u64
            }
            SeekCurve::Table(points) => {
                let after = points.partition_point(|&(d, _)| d < distance);
                let Some(&(d1, t1)) = points.get(after) else {
                    // Past the longest measured seek, by a few cylinders at most, the time is the same.
                    return points.last().map_or(0, |&(_, t)| t);
                };
                if d1 == distance || after == 0 {
                    return t1;
                }
                let (d0, t0) = points[after - 1];
                line(d0, t0, d1, t1, distance)
            }
        }
    }
}

/// The straight line through two points. Times are at most a minute and a drive has at most 10^8 cylinders
/// (`spec.rs`), so their product fits.
fn line(d0: u32, t0: u64, d1: u32, t1: u64, distance: u32) -> u64 {
    let (run, rise) = (i64::from(d1 - d0), t1 as i64 - t0 as i64);
    let t = t0 as i64 + rise.saturating_mul(i64::from(distance - d0)) / run;
    t.max(0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn a_table_is_joined_by_straight_lines() {
        let curve = SeekCurve::Table(vec![(1, 1_000), (11, 2_000), (111, 1_000)]);
        let times = [0, 1, 6, 11, 61, 111, 500].map(|d| curve.time(d));
        assert_eq!(times, [0, 1_000, 1_500, 2_000, 1_500, 1_000, 1_000]);
    }

    #[test]
    fn a_fit_is_root_and_line() {
        let curve = SeekCurve::Fit { a: 1.0, b: 0.1, c: 0.001 };
        // 1 + 0.1 * 20 + 0.001 * 400 = 3.4 ms.
        assert_eq!([0, 400].map(|d| curve.time(d)), [0, 3_400_000]);
    }
}
