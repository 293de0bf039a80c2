//! How many pieces does a device bear at once? What long reads far apart tell.
//!
//! A drive reads one piece at a time: two at once make it seek between them. Behind hardware RAID, in a
//! virtual machine or under LVM there may be many drives. So long reads at far-apart places are timed with 1,
//! 2, 4, 8 of them under way, and as long as twice as many bring [`GAIN_MIN`] times as much, there are
//! spindles for them.
//!
//! Long reads, since the pieces are long: a striped set brings one of them with several members. A gain of a
//! few per cent is no sign of a second spindle: a single drive with a command queue serves the nearer of two
//! first.

use alloc::vec::Vec;

use seekless_base::{Bytes, Lba, Nanos};

use super::RUN;
use super::kind::place;

/// Reads under way, one stage of the measurement after the other.
pub const AT_ONCE: [usize; 4] = [1, 2, 4, 8];

/// Length of each read: [`RUN`].
pub const PIECE: Bytes = RUN;

/// Twice as many reads must bring so many times as much. A drive of the catalogue gains at most 1.3 from its
/// queue, a pair of mirrors loses a tenth of its 2 to chance; the middle of the two by ratio is 1.5.
const GAIN_MIN: f64 = 1.5;

/// Reads of the first stage. With half as many the chances of turn and seek pass for a gain; with twice as
/// many the two stages of a slow drive take over a second.
const READS: usize = 6;

/// Most reads of one stage.
const READS_MAX: usize = 24;

/// What the stages brought so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Concurrency {
    /// Bytes a second, in the order of [`AT_ONCE`].
    rates: Vec<f64>,
}

impl Concurrency {
    /// Reads under way in the next stage, and how many are to be read in it; `None` when nothing more is to
    /// be found.
    pub fn next(&self) -> Option<(usize, usize)> {
        let stage = self.rates.len();
        let settled = stage > 1 && !self.gains(stage - 1);
        let deep = *AT_ONCE.get(stage).filter(|_| !settled)?;
        Some((deep, (READS * deep).min(READS_MAX)))
    }

    /// A stage read so many bytes in this time.
    pub fn observe(&mut self, bytes: Bytes, took: Nanos) {
        self.rates.push(bytes.0 as f64 / took.as_secs_f64().max(1e-9));
    }

    fn gains(&self, stage: usize) -> bool {
        self.rates[stage] > self.rates[stage - 1] * GAIN_MIN
    }

    /// Pieces that the device bears at once, as far as the stages tell.
    pub fn at_once(&self) -> usize {
        let gained = (1..self.rates.len()).take_while(|&stage| self.gains(stage)).count();
        AT_ONCE[gained.min(AT_ONCE.len() - 1)]
    }
}

/// Pieces at once of a striped set, with parity or without, where the layout is known: fewer if it has fewer
/// members. Pieces shorter than a few stripes leave members idle at their ends, and the parity's chunks lie
/// between those of a piece. With half as many a set with parity serves less (simulated, 4 to 8 members);
/// with twice as many nothing more, and members seek more.
pub const STRIPED_AT_ONCE: usize = 4;

/// Where read number `i` of all stages together begins.
pub fn piece(bytes: Bytes, i: usize) -> Lba {
    place(bytes, PIECE, i)
}
