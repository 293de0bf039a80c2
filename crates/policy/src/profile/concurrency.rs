//! The concurrency limit of an idle device, measured with long reads far apart.
//!
//! A drive reads one piece at a time: two at once make it seek between them. Behind hardware RAID, in a
//! virtual machine or under LVM there may be many drives. So long reads far apart are timed with 1, 2, 4 and
//! 8 in flight. As long as twice as many bring [`GAIN_MIN`] times as much, there are spindles for them.
//!
//! The reads are long because pieces are long: a striped set reads one of them with several members. A gain
//! of a few per cent does not show a second spindle: a single drive with a command queue serves the nearer of
//! two reads first.

use alloc::vec::Vec;

use seekless_base::{Bytes, Lba, Nanos};

use super::RUN;
use super::kind::place;

/// Reads in flight, by stage.
pub const AT_ONCE: [usize; 4] = [1, 2, 4, 8];

/// Length of each read: [`RUN`].
pub const PIECE: Bytes = RUN;

/// Minimum gain of twice as many reads. A drive of the catalogue gains at most 1.3 from its queue; a pair of
/// mirrors loses a tenth of its factor 2 to chance. The geometric mean of the two is 1.5.
const GAIN_MIN: f64 = 1.5;

/// Number of reads of the first stage. With half as many, random turns and seeks count as a gain; with twice
/// as many, the two stages of a slow drive take over a second.
const READS: usize = 6;

/// Maximum number of reads of one stage.
const READS_MAX: usize = 24;

/// The results of the stages so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Concurrency {
    /// Bytes a second, in the order of [`AT_ONCE`].
    rates: Vec<f64>,
}

impl Concurrency {
    /// Reads in flight in the next stage, and its number of reads; `None` when the measurement has ended.
    pub fn next(&self) -> Option<(usize, usize)> {
        let stage = self.rates.len();
        let settled = stage > 1 && !self.gains(stage - 1);
        let deep = *AT_ONCE.get(stage).filter(|_| !settled)?;
        Some((deep, (READS * deep).min(READS_MAX)))
    }

    /// A stage read this many bytes in this time.
    pub fn observe(&mut self, bytes: Bytes, took: Nanos) {
        self.rates.push(bytes.0 as f64 / took.as_secs_f64().max(1e-9));
    }

    fn gains(&self, stage: usize) -> bool {
        self.rates[stage] > self.rates[stage - 1] * GAIN_MIN
    }

    /// The concurrency limit in pieces, as found by the stages.
    pub fn at_once(&self) -> usize {
        let gained = (1..self.rates.len()).take_while(|&stage| self.gains(stage)).count();
        AT_ONCE[gained.min(AT_ONCE.len() - 1)]
    }
}

/// Concurrency limit of a striped set with a known layout, with parity or without: its members if they are
/// fewer. Pieces shorter than a few stripes leave members idle at their ends, and the parity's chunks lie
/// between those of a piece. With half as many, a set with parity serves less (simulated, 4 to 8 members);
/// with twice as many, it serves no more, and members seek more.
pub const STRIPED_AT_ONCE: usize = 4;

/// The place of read number `i` of all stages together.
pub fn piece(bytes: Bytes, i: usize) -> Lba {
    place(bytes, PIECE, i)
}
