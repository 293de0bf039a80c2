//! What has heads of its own, and the steps in line there.

use crate::filesets::set::Place;
use crate::filesets::{IN_LINE_BYTES_MAX, IN_LINE_MAX, RangeId, STEP_MAX, SetId};

/// A disk, or a part of one.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    /// Where the range lies that was handed out last.
    pub(crate) head: Option<Place>,
    /// The range of which steps are still to be handed out.
    pub(crate) current: Option<(SetId, RangeId)>,
    /// Bytes that all sets may have in memory and not taken.
    pub(crate) room: u64,
    steps: usize,
    bytes: u64,
}

impl Lane {
    /// Whether another step may be in line.
    pub(crate) fn may_take_more(&self) -> bool {
        self.steps < IN_LINE_MAX && self.bytes + STEP_MAX <= IN_LINE_BYTES_MAX
    }

    /// Bytes in line.
    pub(crate) fn in_line(&self) -> u64 {
        self.bytes
    }

    /// A step is in line.
    pub(crate) fn takes(&mut self, len: u64) {
        self.steps += 1;
        self.bytes += len;
    }

    /// A step has left the line.
    pub(crate) fn left(&mut self, len: u64) {
        self.steps -= 1;
        self.bytes -= len;
    }
}
