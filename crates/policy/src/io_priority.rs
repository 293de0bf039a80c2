//! Who goes first: what the kernel's I/O priority and the group's weight say about a reader.
//!
//! The engine reads for others, so the kernel sees its own priority and not theirs. A low priority delays
//! when a reader's piece is due, and a piece that is not due is read once no due piece is left:
//!
//! - Idle class (`ionice -c3`): behind everything else, read-ahead and file sets included, and due after
//!   [`IDLE_WAIT`]. Nothing is read ahead of it while any other piece is queued.
//! - Weight: as many sweeps later as the heaviest reader that waits weighs more. In the time in which that
//!   one has four pieces, a reader of a quarter of its weight has one. Pieces stay as long as they are.

use seekless_base::Nanos;
use serde::{Deserialize, Serialize};

/// Longest that a reader of the idle class, or of a low weight, stands behind others. At half, a backup takes
/// twice as much from a saturated disk, a piece every five seconds; at double, it comes closer to the time at
/// which requests are passed ([`crate::Config::wait_max`]).
pub const IDLE_WAIT: Nanos = Nanos::from_secs(10);

/// What the kernel's I/O priority and the group's weight say about a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoPriority {
    /// It is of the idle class.
    pub idle: bool,
    /// Its weight in per cent of the default, 1 to 10,000; cut to that.
    pub weight: u32,
}

impl Default for IoPriority {
    fn default() -> IoPriority {
        IoPriority::NORMAL
    }
}

impl IoPriority {
    /// The default: best effort, level 4, in a group of the default weight.
    pub const NORMAL: IoPriority = IoPriority { idle: false, weight: 100 };

    /// Idle class.
    pub const IDLE: IoPriority = IoPriority { idle: true, weight: 25 };

    /// A best-effort level: 0, the highest, to 7; 4 is the default. It weighs `8 - level` fourths, as in BFQ.
    pub fn best_effort(level: u32) -> IoPriority {
        IoPriority { idle: false, weight: 25 * (8 - level.min(7)) }
    }

    /// The same in a group of this weight, relative to a group of the default weight. Nonsense counts as 1.
    pub fn in_group(self, weight: f64) -> IoPriority {
        let weight = if weight.is_finite() && weight > 0.0 { weight } else { 1.0 };
        let all = (f64::from(self.weight) * weight).clamp(1.0, 10_000.0);
        IoPriority { weight: all as u32, ..self }
    }

    /// How long after others a piece for this reader is due. `heaviest`: the largest weight among those that
    /// wait; `sweep`: how long the disk takes for the pieces that clients wait for.
    pub(crate) fn waits(self, heaviest: u32, sweep: Nanos) -> Nanos {
        let own = self.weight.max(1);
        match self.idle {
            true => IDLE_WAIT,
            false if heaviest <= own => Nanos::ZERO,
            false => {
                let sweeps = f64::from(heaviest - own) / f64::from(own);
                IDLE_WAIT.min(Nanos::from_secs_f64(sweep.min(IDLE_WAIT).as_secs_f64() * sweeps))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weight_waits_as_many_sweeps_as_the_heaviest_weighs_more() {
        let sweep = Nanos::from_millis(100);
        let waits = |level, heaviest| IoPriority::best_effort(level).waits(heaviest, sweep);
        assert_eq!(waits(4, 100), Nanos::ZERO);
        assert_eq!(waits(7, 100), Nanos::from_millis(300));
        assert_eq!(waits(4, 200), Nanos::from_millis(100));
        assert_eq!(waits(0, 100), Nanos::ZERO);
        assert_eq!(waits(9, 25), Nanos::ZERO, "no level is below 7");
        let absurd = IoPriority { idle: false, weight: 0 };
        assert_eq!(absurd.waits(u32::MAX, Nanos::MAX), IDLE_WAIT);
    }

    #[test]
    fn a_group_weighs_relative_to_the_default() {
        let weight = |group| IoPriority::default().in_group(group).weight;
        assert_eq!((weight(1.0), weight(0.01), weight(1e9)), (100, 1, 10_000));
        assert_eq!((weight(f64::NAN), weight(0.0), weight(-3.0)), (100, 100, 100));
    }
}
