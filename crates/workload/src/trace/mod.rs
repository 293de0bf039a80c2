//! Block traces.

use seekless_units::Nanos;

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Reads.
    Read,
    /// Writes.
    Write,
}

/// One request of a trace, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// From the first request of the trace; formats without times have none.
    pub at: Option<Nanos>,
    /// Disk, volume or object: addresses of different devices have nothing to do with one another. Dense from 0.
    pub device: u32,
    /// What prefetchers keep apart: the file where the trace knows it, else the device.
    pub context: u32,
    /// Reads or writes.
    pub op: Op,
    /// First byte, from the start of the device.
    pub offset: u64,
    /// Bytes, at least one.
    pub bytes: u64,
    /// End of the file or object on the device, if known: nothing is there to be fetched ahead beyond it.
    pub end: Option<u64>,
}
