//! Streams: which file is read where, how fast, and when the next bytes must be in memory.
//!
//! The papers prefetch when a read already misses, so a client always waits. An engine to which hits are
//! reported knows where each sequential reader stands, how fast it moves and how far its data is fetched, and
//! so the moment by which the next piece must be there. The time between the trigger and that moment is
//! slack, and slack lets the queue be served in disk order.
//!
//! The operating system does not identify readers: many viewers of one file come from one server process, so
//! a stream is recognised by where it reads. An access that starts about where a stream of that file expects
//! the next one continues it; any other access starts a new stream.

mod arrivals;
mod grid;
mod lengths;
mod persistence;
mod rate;
mod runs;
mod table;

use arrivals::Arrivals;
use grid::{End, Grids};
use lengths::{Lengths, WentOn};
use persistence::Persistence;
use rate::Rate;
pub(crate) use rate::TIME_CONSTANT_S;
use runs::{Run, RunKind, Runs};
pub(crate) use table::{Stream, StreamId, Streams};

use seekless_base::{Bytes, FileId, Nanos};
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// Streams that must have ended, or come as far, before their behaviour is assumed of others.
pub(crate) const BELIEVED_AFTER: u32 = 16;

/// How streams are told apart and forgotten.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
pub struct StreamConfig {
    /// Maximum number of streams; the one idle longest makes room. At least 1.
    // An array is one disk here: eight times what a disk of the papers carries at its best (about
    // 2,000 viewers of 419 kb/s at 100 MB/s). At half, an array of twelve loses streams; double takes
    // another 5 MB.
    #[default(16_384)]
    pub streams_max: usize,
    /// An access this far before or after the expected place still continues a stream: readers skip container
    /// headers, and request a few bytes again.
    #[default(Bytes::kib(512))]
    pub gap: Bytes,
    /// A stream that has not read for this long has ended. Longer than the 10 s between two segments of a
    /// viewer (\[A\] 6.2, \[L\] 4), so that a late segment does not end it.
    #[default(Nanos::from_secs(30))]
    pub idle: Nanos,
}
