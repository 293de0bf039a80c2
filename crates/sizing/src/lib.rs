//! How long a piece is: prefetch sizes, one algorithm a file.
//!
//! | | |
//! | --- | --- |
//! | [`Fixed`] | one size for all (\[L\]) |
//! | [`AsAsked`] | no extension |
//! | [`Auto`] | one size that finds itself: by a model, or by \[A\] section 4 ([`controller`]) |
//! | [`Depth`] | what the disk transfers in one switch, at that place and now (\[C\], [`competitive`]) |
//! | [`Scaled`] | any of them, by the stream's bitrate (\[A\] section 5, [`bitrate`]) |
//!
//! The engine of a disk (`seekless-policy`) tells an algorithm what it reads and what it learns, and asks it
//! for sizes. What memory bears, and how far a client is likely to read, is the engine's business.
//!
//! Must not know: streams, queues, memory, descriptors, clocks. Time comes in as an argument.
#![no_std]
extern crate alloc;

pub mod bitrate;
pub mod competitive;
pub mod controller;

mod as_asked;
mod auto;
mod depth;
mod fixed;
mod scaled;
mod sizing;

pub use as_asked::AsAsked;
pub use auto::{Auto, start_size};
pub use depth::Depth;
pub use fixed::Fixed;
pub use scaled::Scaled;
pub use sizing::{Prefetch, Sizing, UnknownPrefetch};

use alloc::string::String;

use controller::{Observation, Situation};
use seekless_units::{Bytes, FileId, Lba, Nanos};
use serde::{Deserialize, Serialize};

/// A read of bytes that are not in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Miss {
    /// The file.
    pub file: FileId,
    /// First missing byte.
    pub offset: u64,
    /// Disk address of it, as far as known.
    pub lba: Option<Lba>,
    /// Bytes wanted.
    pub len: u64,
    /// Bytes a second at which the file is played; 0 if nobody told.
    pub bitrate: u64,
}

/// A first piece is the full size divided by this, unless the algorithm says otherwise. Half of a full size
/// of 4 MiB is about what a drive of the papers transfers in one seek, below which a smaller piece costs more
/// than it can save (\[C\] 2).
const FIRST_DIVISOR: u64 = 2;

/// Decides the length of a read.
pub trait PrefetchSize {
    /// Full length of a piece that begins at `lba`, for a reader of `bitrate` bytes a second; 0 where it is
    /// not known.
    fn full(&self, lba: Option<Lba>, bitrate: f64) -> Bytes;

    /// Length of the first piece of a stream whose full length is `full`; it grows to that with what the
    /// stream reads.
    fn first(&self, full: Bytes) -> Bytes {
        Bytes(full.0 / FIRST_DIVISOR)
    }

    /// What it goes by of how far readers go.
    fn end_evidence(&self) -> EndEvidence {
        EndEvidence::Ignored
    }

    /// Length of the read for a miss, where streams are not followed.
    fn on_miss(&mut self, miss: Miss) -> u64 {
        self.full(miss.lba, 0.0).0.max(miss.len)
    }

    /// A read was submitted.
    fn submitted(&mut self, _lba: Option<Lba>, _len: u64) {}

    /// Counts what happened up to `now`, and looks at the clock.
    fn observe(&mut self, _now: Nanos, _seen: Observation) {}

    /// The part of the full size that a reader of this bitrate gets, more than 0 and at most 1.
    fn part(&self, _bitrate: f64) -> f64 {
        1.0
    }

    /// What is known of memory and clients; told every few seconds while there are streams.
    fn situation(&mut self, _seen: Situation) {}

    /// When [`PrefetchSize::observe`] has something to do even if nothing happened.
    fn next_deadline(&self) -> Option<Nanos> {
        None
    }

    /// The highest bitrate of now, bytes a second; what the size is for.
    fn highest_bitrate(&mut self, _bytes_per_s: f64) {}

    /// What it does, for reports.
    fn report(&self) -> SizeReport;
}

/// What a sizing algorithm goes by of how far readers go; each does what the one before does, and more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EndEvidence {
    /// None: every stream is read ahead for.
    Ignored,
    /// Where most stop, of clients not known to be sequential. A client most likely at its end reads for
    /// itself, and so does every client as long as it is not known where most stop. Requests longer than the
    /// engine's bound for passing through are served in both cases. No further piece is begun for a client
    /// once as much is fetched as half of those read that came as far.
    Ends,
    /// Whether and how far clients go on. Those not known to be sequential read for themselves, no piece goes
    /// beyond the median of what is left, and while a call is blocked nothing is read ahead that costs a
    /// switch.
    Lengths,
}

/// What a sizing algorithm says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SizeReport {
    /// `fixed`, `as-asked`, `auto`, `competitive`.
    pub kind: String,
    /// Full size now, at the middle of the disk, for the highest bitrate.
    pub size: u64,
    /// The size it is on its way to, and would start with next time.
    pub target: u64,
    /// The rule for other bitrates.
    pub scale: String,
    /// Bitrate the size is for, bytes a second; 0 if none is known.
    pub highest_bitrate: u64,
    /// What was last made of an interval, with its score, for people; empty if nothing is decided.
    pub decision: String,
    /// Intervals looked at.
    pub intervals: u64,
}
