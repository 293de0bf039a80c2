//! How long the arm takes to cross a number of cylinders and settle.
//!
//! Short seeks are dominated by acceleration (time grows with the square root of the distance), long ones by
//! coasting (time grows with the distance). A drive is described by measured points, joined by straight lines as
//! DiskSim does, or by the customary fit `a + b * sqrt(d) + c * d` (Ruemmler and Wilkes, "An introduction to disk
//! drive modeling", 1994).

use alloc::vec::Vec;

/// Seek time by distance.
#[derive(Clone, Debug)]
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
                    // Past the last measured point (a few cylinders, usually): go on at the last slope.
                    return extrapolate(points, distance);
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

/// The straight line through two points.
fn line(d0: u32, t0: u64, d1: u32, t1: u64, distance: u32) -> u64 {
    let run = i128::from(d1) - i128::from(d0);
    let rise = i128::from(t1) - i128::from(t0);
    let t = i128::from(t0) + rise * (i128::from(distance) - i128::from(d0)) / run;
    t.max(0) as u64
}

fn extrapolate(points: &[(u32, u64)], distance: u32) -> u64 {
    match points {
        [] => 0,
        [(_, t)] => *t,
        [.., (d0, t0), (d1, t1)] => line(*d0, *t0, *d1, *t1, distance).max(*t1),
    }
}
