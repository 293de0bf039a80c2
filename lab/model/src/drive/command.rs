//! A host's commands to a drive, and their completions.

use seekless_base::{Lba, Nanos};

/// What a command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// From the medium, or the drive's buffer, to the host.
    Read,
    /// From the host to the medium.
    Write,
    /// Ends when all earlier writes are on the medium. Its address and length mean nothing.
    Flush,
}

/// One command, as it enters the drive's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// The host's number for it, returned unchanged.
    pub id: u64,
    /// Read, write or flush.
    pub op: Op,
    /// First sector.
    pub lba: Lba,
    /// Number of 512-byte sectors, at least 1. Sectors past the end of the drive cost nothing.
    pub sectors: u32,
}

/// The time of one command by its parts. The four times add up to `finished - started`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServiceTime {
    /// Command processing by the drive's electronics, unless it overlapped other work.
    pub overhead: Nanos,
    /// Movement of the arm, settling included; a head switch counts as a seek of no distance.
    pub seek: Nanos,
    /// Wait for the first sector.
    pub rotation: Nanos,
    /// Passage of the sectors under the heads with the track switches between them, or transfer over the bus,
    /// whichever ended later.
    pub transfer: Nanos,
    /// Cylinders crossed by the seek.
    pub seek_distance: u32,
    /// Whether every sector was in the drive's buffer when the command was started.
    pub from_buffer: bool,
    /// Whether the command joined the stream that the heads were reading ahead, without positioning.
    pub joined_stream: bool,
}

/// One finished command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The number the host gave.
    pub id: u64,
    /// Read, write or flush.
    pub op: Op,
    /// First sector.
    pub lba: Lba,
    /// Number of 512-byte sectors.
    pub sectors: u32,
    /// When it entered the queue.
    pub arrived: Nanos,
    /// When the drive started it.
    pub started: Nanos,
    /// When the host had the last byte (or, for a write, the acknowledgement).
    pub finished: Nanos,
    /// Where the time from `started` to `finished` went.
    pub service: ServiceTime,
}

/// The drive's queue is full; submit again after polling the next completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueFull;

impl core::fmt::Display for QueueFull {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("the drive's command queue is full")
    }
}

impl core::error::Error for QueueFull {}
