//! A device with heads of its own, and the steps queued there.

use crate::filesets::set::Place;
use crate::filesets::{IN_LINE_BYTES_MAX, IN_LINE_MAX, RangeId, STEP_MAX, SetId};

/// A disk, or a part of one.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    /// The place of the last range that was handed out.
    pub(crate) head: Option<Place>,
    /// The range whose steps are being handed out.
    pub(crate) current: Option<(SetId, RangeId)>,
    /// Maximum bytes of all sets in memory and not taken.
    pub(crate) room: u64,
    steps: usize,
    /// Queued bytes.
    pub(crate) bytes: u64,
}

impl Lane {
    /// Whether another step may be queued.
    pub(crate) fn may_take_more(&self) -> bool {
        self.steps < IN_LINE_MAX && self.bytes + STEP_MAX <= IN_LINE_BYTES_MAX
    }

    /// A step was queued.
    pub(crate) fn takes(&mut self, len: u64) {
        self.steps += 1;
        self.bytes += len;
    }

    /// A queued step has ended.
    pub(crate) fn left(&mut self, len: u64) {
        self.steps -= 1;
        self.bytes -= len;
    }
}
