//! One set: its ranges, and which of them are still to be handed out.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use seekless_base::{FileId, Lba, PAGE_BYTES};

use crate::filesets::{Outcome, RANGES_MAX, Range, RangeId, Refused, STEP_MAX, StepId};

/// The place of a range. Places compare by disk address; where addresses are unknown, by file and offset,
/// which usually agree with the layout.
pub(crate) type Place = (Option<Lba>, FileId, u64);

/// Before every range.
const LOWEST: Place = (None, FileId { dev: 0, ino: 0 }, 0);

fn place_of(range: &Range) -> Place {
    (range.place, range.file, range.offset)
}

/// A range that was added and not taken.
#[derive(Debug)]
pub(crate) struct PendingRange {
    pub(crate) range: Range,
    /// Whether it is in the current sweep, or was handed out.
    begun: bool,
    /// First byte that was not handed out.
    at: u64,
    /// Queued steps.
    pub(crate) in_line: BTreeSet<StepId>,
    /// Steps that the disk read.
    pub(crate) fetched: Vec<StepId>,
    /// Whether a step was left to the reader, and so is the rest.
    pub(crate) failed: bool,
}

impl PendingRange {
    fn end(&self) -> u64 {
        self.range.offset + self.range.len
    }

    /// Its bytes that count in the window.
    fn reserved(&self) -> u64 {
        self.range.len.next_multiple_of(PAGE_BYTES)
    }

    /// Whether a step of it is still to be handed out.
    pub(crate) fn has_more(&self) -> bool {
        self.begun && !self.failed && self.at < self.end()
    }

    /// Offset and length of the next step; steps begin at multiples of their maximum length.
    pub(crate) fn next_step(&mut self) -> (u64, u64) {
        let upto = self.end().min((self.at / STEP_MAX + 1) * STEP_MAX);
        let step = (self.at, upto - self.at);
        self.at = upto;
        step
    }

    pub(crate) fn waits_for(&self, step: StepId) -> bool {
        self.in_line.contains(&step)
    }

    /// A step of it has ended. Returns whether the range is ready now.
    pub(crate) fn answered(&mut self, step: StepId, outcome: Outcome) -> bool {
        self.in_line.remove(&step);
        match outcome {
            Outcome::Fetched => self.fetched.push(step),
            Outcome::There => {}
            Outcome::Passed => self.failed = true,
        }
        self.in_line.is_empty() && !self.has_more()
    }
}

/// The ranges of one reader.
#[derive(Debug)]
pub(crate) struct Set {
    window: u64,
    /// Bytes of ranges that have begun and were not taken.
    pub(crate) untaken: u64,
    pub(crate) ranges: BTreeMap<RangeId, PendingRange>,
    /// Ranges of the current sweep and of the next, by lane and place.
    sweep: BTreeSet<(u32, Place, RangeId)>,
    next_sweep: BTreeSet<(u32, Place, RangeId)>,
}

impl Set {
    pub(crate) fn new(window: u64) -> Set {
        Set {
            window,
            untaken: 0,
            ranges: BTreeMap::new(),
            sweep: BTreeSet::new(),
            next_sweep: BTreeSet::new(),
        }
    }

    /// # Errors
    /// Whether it has the maximum number of ranges, or one with this name.
    pub(crate) fn add(&mut self, id: RangeId, range: Range) -> Result<(), Refused> {
        if self.ranges.contains_key(&id) {
            return Err(Refused::Duplicate);
        }
        if self.ranges.len() >= RANGES_MAX {
            return Err(Refused::Full);
        }
        let range = Range { len: range.len.min(self.window), ..range };
        self.next_sweep.insert((range.lane, place_of(&range), id));
        let at = range.offset;
        let (in_line, fetched) = (BTreeSet::new(), Vec::new());
        self.ranges.insert(id, PendingRange { range, begun: false, at, in_line, fetched, failed: false });
        Ok(())
    }

    /// The next range at a lane with its heads there, if the whole set may have `part` bytes in memory;
    /// `None` if no range is left there, or there is no room for it.
    pub(crate) fn next(&self, lane: u32, head: Option<Place>, part: u64) -> Option<(Place, RangeId)> {
        let from = (lane, head.unwrap_or(LOWEST), RangeId(0));
        let of_lane = |at: (u32, Place, RangeId)| {
            self.sweep.range(at..).next().filter(|next| next.0 == lane).map(|&(_, place, id)| (place, id))
        };
        let (place, id) = of_lane(from).or_else(|| of_lane((lane, LOWEST, RangeId(0))))?;
        let bytes = self.ranges.get(&id)?.reserved();
        if self.untaken == 0 || self.untaken + bytes <= part.min(self.window) {
            return Some((place, id));
        }
        // A reader that takes the ranges of a file in order may wait for its oldest range and take nothing
        // before.
        let (&id, pending) = self.ranges.first_key_value()?;
        (!pending.begun && pending.range.lane == lane).then(|| (place_of(&pending.range), id))
    }

    /// Ranges added at a lane since its last sweep began belong to the next one.
    pub(crate) fn begin_sweep(&mut self, lane: u32) {
        let mut begins = self.next_sweep.split_off(&(lane, LOWEST, RangeId(0)));
        if let Some(next) = lane.checked_add(1) {
            self.next_sweep.append(&mut begins.split_off(&(next, LOWEST, RangeId(0))));
        }
        self.sweep.append(&mut begins);
    }

    /// A range begins.
    pub(crate) fn begin(&mut self, id: RangeId) {
        let Some(pending) = self.ranges.get_mut(&id) else { return };
        pending.begun = true;
        self.untaken += pending.reserved();
        let key = (pending.range.lane, place_of(&pending.range), id);
        self.sweep.remove(&key);
        // The oldest may begin before its sweep.
        self.next_sweep.remove(&key);
    }

    /// A range was taken, or is not wanted any more.
    pub(crate) fn remove(&mut self, id: RangeId) -> Option<PendingRange> {
        let pending = self.ranges.remove(&id)?;
        let key = (pending.range.lane, place_of(&pending.range), id);
        self.sweep.remove(&key);
        self.next_sweep.remove(&key);
        if pending.begun {
            self.untaken -= pending.reserved();
        }
        Some(pending)
    }
}
