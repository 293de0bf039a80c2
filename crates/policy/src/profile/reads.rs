//! The data that a measurement and its driver exchange: the options, a read to carry out, and its times. Also
//! the arithmetic that every phase uses.

use seekless_base::{Lba, Nanos};

/// The disk to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcedureOptions {
    /// Capacity in 512-byte sectors.
    pub sectors: u64,
    /// Sectors of the smallest read the disk takes: 1, or 8 for disks of 4 KiB blocks. At least 1, at most
    /// 128.
    pub block: u32,
    /// Shifts all places a little, so that a second measurement does not find the first one's blocks in the
    /// drive's buffer.
    pub seed: u64,
}

/// A read to carry out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// First sector; a multiple of the block.
    pub lba: Lba,
    /// Sectors; a multiple of the block, at most 2048.
    pub sectors: u32,
    /// When to issue it; as soon as possible if that is past. A delay of more than some microseconds spoils
    /// the read, which is detected: only the times in [`Timing`] count.
    pub not_before: Nanos,
    /// Whether the disk may be left alone for any time before this read.
    pub may_rest: bool,
}

/// The times of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// When it was issued.
    pub issued: Nanos,
    /// When its data had arrived.
    pub completed: Nanos,
    /// Whether another program used the disk meanwhile: the times are then discarded.
    pub disturbed: bool,
}

/// Some thousand sectors, depending on the seed.
pub(super) fn shift(options: &ProcedureOptions) -> u64 {
    options.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52
}

/// The median (of an even number, the upper of the two middle values); sorts in place.
pub(super) fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}
