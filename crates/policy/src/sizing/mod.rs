//! Length of a piece: prefetch sizes, one algorithm a file.
//!
//! | | |
//! | --- | --- |
//! | [`Fixed`] | one size for all (\[L\]) |
//! | [`AsAsked`] | no extension |
//! | [`Auto`] | one size, adjusted by a model or by \[A\] section 4 ([`controller`]) |
//! | [`Depth`] | what the disk transfers in one switch, at that place and now (\[C\], [`competitive`]) |
//! | [`Scaled`] | any of them, scaled by the stream's bitrate (\[A\] section 5, [`bitrate`]) |
//!
//! The engine of a disk ([`crate::DiskEngine`]) reports its reads and what it learns to an algorithm, and
//! asks it for sizes. How much fits into memory, and how far a client is likely to read, is up to the engine.
//!
//! These modules must not know streams, queues, memory, descriptors or clocks. Time is an argument.

pub mod bitrate;
pub mod competitive;
pub mod controller;

mod as_asked;
mod auto;
mod depth;
mod fixed;
mod scaled;
#[allow(clippy::module_inception, reason = "it is named as the type it has")]
mod sizing;

pub use as_asked::AsAsked;
pub use auto::{Auto, start_size};
pub use depth::Depth;
pub use fixed::Fixed;
pub use scaled::Scaled;
pub use sizing::{Prefetch, Sizing, UnknownPrefetch};

use alloc::string::String;

use controller::{Observation, Situation};
use seekless_base::{Bytes, FileId, Lba, Nanos};
use serde::{Deserialize, Serialize};

/// A read of bytes that are not in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Miss {
    /// The file.
    pub file: FileId,
    /// First missing byte.
    pub offset: u64,
    /// Its disk address, as far as known.
    pub lba: Option<Lba>,
    /// Bytes wanted.
    pub len: u64,
    /// Bytes a second at which the file is played; 0 if not given.
    pub bitrate: u64,
}

/// A first piece is the full size divided by this, unless the algorithm decides otherwise. Half of a full
/// size of 4 MiB is about what a drive of the papers transfers in one seek; below that a smaller piece costs
/// more than it can save (\[C\] 2).
const FIRST_DIVISOR: u64 = 2;

/// Decides the length of a read.
pub trait PrefetchSize {
    /// Full length of a piece that begins at `lba`, for a reader of `bitrate` bytes a second; 0 if unknown.
    fn full(&self, lba: Option<Lba>, bitrate: f64) -> Bytes;

    /// Length of the first piece of a stream whose full length is `full`. Later pieces grow to that with what
    /// the stream reads.
    fn first(&self, full: Bytes) -> Bytes {
        Bytes(full.0 / FIRST_DIVISOR)
    }

    /// The evidence of how far readers go that this algorithm uses.
    fn end_evidence(&self) -> EndEvidence {
        EndEvidence::Ignored
    }

    /// Length of the read for a miss, if streams are not followed.
    fn on_miss(&mut self, miss: Miss) -> u64 {
        self.full(miss.lba, 0.0).0.max(miss.len)
    }

    /// A read was submitted.
    fn submitted(&mut self, _lba: Option<Lba>, _len: u64) {}

    /// Counts what happened up to `now`.
    fn observe(&mut self, _now: Nanos, _seen: Observation) {}

    /// Factor of the full size for a reader of this bitrate, more than 0 and at most 1.
    fn part(&self, _bitrate: f64) -> f64 {
        1.0
    }

    /// Updates what is known of memory and clients, every few seconds while there are streams.
    fn situation(&mut self, _seen: Situation) {}

    /// When [`PrefetchSize::observe`] must be called even if nothing happened.
    fn next_deadline(&self) -> Option<Nanos> {
        None
    }

    /// Sets the current highest bitrate, bytes a second, which the size is for.
    fn highest_bitrate(&mut self, _bytes_per_s: f64) {}

    /// The current state, for reports.
    fn report(&self) -> SizeReport;
}

/// The evidence of how far readers go that a sizing algorithm uses. Each level includes the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EndEvidence {
    /// None: data is read ahead for every stream.
    Ignored,
    /// Where most clients stop that are not known to be sequential. A client that is most likely at its end
    /// reads for itself, and so does every client as long as it is not known where most stop. In both cases,
    /// requests longer than the engine's bound for passing through are served. No further piece is begun for
    /// a client once the median of what such clients read is fetched.
    Ends,
    /// Whether and how far clients go on. Clients not known to be sequential read for themselves, no piece
    /// goes beyond the median remainder, and while a call is blocked nothing is read ahead that costs a
    /// switch.
    Lengths,
}

/// The state of a sizing algorithm, for reports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SizeReport {
    /// `fixed`, `as-asked`, `auto`, `competitive`.
    pub kind: String,
    /// Current full size in the middle of the disk, for the highest bitrate.
    pub size: u64,
    /// The size that it moves to, and would start with next time.
    pub target: u64,
    /// The rule for other bitrates.
    pub scale: String,
    /// Bitrate that the size is for, bytes a second; 0 if unknown.
    pub highest_bitrate: u64,
    /// The last decision, with its score, for people; empty if nothing is decided.
    pub decision: String,
    /// Number of intervals judged.
    pub intervals: u64,
}
