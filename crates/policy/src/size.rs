//! How far a read is extended beyond what was asked. One algorithm a file.

mod as_asked;
mod fixed;

pub use as_asked::AsAsked;
pub use fixed::Fixed;

use crate::Request;

/// Decides the length of a read.
pub trait PrefetchSize {
    /// Bytes to read from `request.offset` on when `wanted` of them were asked for. The spindle cuts the result to
    /// the end of the file, to `read_max` and to the start of the next piece, and never reads less than `wanted`.
    fn read_len(&self, request: &Request, wanted: u64) -> u64;

    /// The name used in reports.
    fn name(&self) -> &'static str;
}
