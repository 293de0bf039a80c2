//! File sets: ranges of files whose readers take them in any order.
//!
//! A hasher, a backup or a scanner knows which files it will read, and takes them in any order. So it adds
//! the ranges of its *set*, and the disk decides. [`FileSets`] has the sets of all readers and hands out
//! ranges, a *step* at a time, in the order of the disk, whatever set or file they belong to. A range is
//! ready when all its steps are in memory. Its reader gets ranges that are ready, and reports when it has
//! taken them.
//!
//! - A *lane* has heads of its own: a disk, or a part of one. Each lane has some steps queued, so that it is
//!   busy and has a queue to order. The lane with the fewest queued bytes gets the next step, so that a small
//!   window keeps all lanes busy as well. A reader whose ranges lie on several lanes interleaves them
//!   ([`side_by_side`]).
//! - The *window* bounds the bytes of a set in memory that were not taken. All sets of a lane together have
//!   the lane's *room*, which the driver derives from the budget of the disk ([`room`]); each has an equal
//!   part.
//! - A *sweep* serves the ranges that were there when it began, by rising place from the last step on, then
//!   from the lowest. Ranges that are added meanwhile wait for the next sweep. So no set, however fast it
//!   adds ranges, keeps another waiting, and a reader that takes nothing stops only its own set.
//!
//! Time is not used here. `policy` decides how much of the disk's time sets get beside streams and misses,
//! and how long a step may wait; it serves steps in one sweep with all other reads.
//!
//! # The contract of a driver
//!
//! Call a method, then [`FileSets::poll`] until it returns `None`. Each [`Action::Ask`] is answered by one
//! [`FileSets::answered`]. An answer may come after the set is gone.
//!
//! Must not know: descriptors, paths, sockets, threads, clocks.
mod beside;
mod lane;
mod set;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

pub use beside::side_by_side;
use lane::Lane;
use seekless_base::{FileId, Lba, PAGE_BYTES};
use set::{PendingRange, Place, Set};

/// Maximum number of sets. For each, the driver may hold [`RANGES_MAX`] descriptors.
pub const SETS_MAX: usize = 16;

/// Maximum number of ranges of a set that were added and not taken. At half, readers of tiny files wait for
/// messages; at double, a driver holds more descriptors, and the order does not improve.
pub const RANGES_MAX: usize = 512;

/// Maximum length of a step in bytes: the longest that other readers wait for one. At half, a disk that
/// streams 250 MB/s seeks for a quarter of its time if steps of two sets alternate; at double, others wait
/// longer.
pub const STEP_MAX: u64 = 4 << 20;

/// Maximum number of steps queued at a lane. A drive's own queue orders half as many. At half, the drive runs
/// dry between small files; at double, a set's steps wait longer for nothing.
pub const IN_LINE_MAX: usize = 64;

/// Maximum bytes queued at a lane. Even at the least share, a busy disk serves them within the time for which
/// a request may wait. At half, only two large files are queued; at double, they may wait too long.
pub const IN_LINE_BYTES_MAX: u64 = 16 << 20;

/// Maximum window in bytes. A larger one takes memory without a gain.
pub const WINDOW_MAX: u64 = 1 << 30;

/// Divisor of a disk's budget: the part that sets may fill with bytes that are not taken. The rest is for
/// streams, whose clients must not wait. At half, windows of sets are cut on machines with little memory; at
/// double, pieces of streams are cut.
const ROOM: u64 = 4;

/// Bytes that all sets of a disk together may have in memory and not taken, for this budget.
pub fn room(budget: u64) -> u64 {
    budget / ROOM
}

/// Name of a set, chosen by the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SetId(pub u64);

/// Name of a range within its set, chosen by its reader, counting up; must not be used again before the range
/// was taken. The oldest range of a set may always be read, whatever the room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RangeId(pub u32);

/// Name of a step; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StepId(pub u64);

/// Bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The file.
    pub file: FileId,
    /// First byte.
    pub offset: u64,
    /// Bytes; the reader reads what exceeds the window.
    pub len: u64,
    /// Address of the first byte, if it is known. Only the order depends on it.
    pub place: Option<Lba>,
    /// The lane that reads it.
    pub lane: u32,
}

/// How a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The disk read it; it is held until it is taken.
    Fetched,
    /// It was in memory already.
    There,
    /// It was not read: its reader reads for itself.
    Passed,
}

/// An action for the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Bring these bytes into memory.
    Ask {
        /// The step.
        step: StepId,
        /// Its set.
        set: SetId,
        /// Its range.
        range: RangeId,
        /// The file.
        file: FileId,
        /// First byte.
        offset: u64,
        /// Bytes, at least 1 and at most [`STEP_MAX`].
        len: u64,
        /// Address of the first byte, as far as known.
        place: Option<Lba>,
    },
    /// The result of a step is not needed any more. It is answered all the same.
    Cancel {
        /// The step.
        step: StepId,
    },
    /// The bytes of a step ([`Outcome::Fetched`]) need not be held any more. Once for each.
    Took {
        /// The step.
        step: StepId,
        /// Its reader has read it.
        read: bool,
    },
    /// Tell the reader that it may read this range now. Once for each range, unless it was taken before.
    Ready {
        /// The set.
        set: SetId,
        /// The range.
        range: RangeId,
        /// All of it is in memory.
        came: bool,
        /// Some of it was not in memory, and the disk read it.
        from_disk: bool,
    },
}

/// Why a call is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// A bound was reached.
    #[error("a bound is reached")]
    Full,
    /// There is no such set.
    #[error("no such file set")]
    Unknown,
    /// The name is already used.
    #[error("the name is in use")]
    Duplicate,
    /// The range is empty or lies beyond what a file can hold.
    #[error("not a range of a file")]
    Range,
}

/// The present state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Sets.
    pub sets: usize,
    /// Ranges that were added and not taken.
    pub ranges: usize,
    /// Bytes of those that were handed out: queued, or in memory.
    pub bytes: u64,
    /// Queued steps.
    pub steps: usize,
}

/// A queued step.
#[derive(Clone, Copy, Debug)]
struct Step {
    set: SetId,
    range: RangeId,
    lane: u32,
    len: u64,
}

/// All sets. The module's documentation has the contract of its driver.
#[derive(Debug, Default)]
pub struct FileSets {
    sets: BTreeMap<SetId, Set>,
    lanes: BTreeMap<u32, Lane>,
    steps: BTreeMap<StepId, Step>,
    actions: VecDeque<Action>,
    next_step: u64,
}

impl FileSets {
    /// Without sets.
    pub fn new() -> FileSets {
        FileSets::default()
    }

    /// Begins a set. Returns its window: the requested one, within bounds.
    ///
    /// # Errors
    /// [`Refused::Full`], [`Refused::Duplicate`].
    pub fn open(&mut self, set: SetId, window: u64) -> Result<u64, Refused> {
        if self.sets.contains_key(&set) {
            return Err(Refused::Duplicate);
        }
        if self.sets.len() >= SETS_MAX {
            return Err(Refused::Full);
        }
        let window = window.clamp(PAGE_BYTES, WINDOW_MAX);
        self.sets.insert(set, Set::new(window));
        Ok(window)
    }

    /// Adds a range to a set.
    ///
    /// # Errors
    /// Any of [`Refused`]; nothing has changed then.
    pub fn add(&mut self, set: SetId, id: RangeId, range: Range) -> Result<(), Refused> {
        let of = self.sets.get_mut(&set).ok_or(Refused::Unknown)?;
        if range.len == 0 || range.offset.checked_add(range.len).is_none_or(|end| end > i64::MAX as u64) {
            return Err(Refused::Range);
        }
        of.add(id, range)?;
        self.lanes.entry(range.lane).or_default();
        self.fill();
        Ok(())
    }

    /// Sets the bytes of all sets of a lane that may be in memory and not taken. Whatever it is, a set has
    /// one range at a time.
    pub fn room(&mut self, lane: u32, bytes: u64) {
        self.lanes.entry(lane).or_default().room = bytes;
        self.fill();
    }

    /// A step has ended. Unknown steps are ignored.
    pub fn answered(&mut self, step: StepId, outcome: Outcome) {
        let Some(Step { set, range, lane, len }) = self.steps.remove(&step) else { return };
        if let Some(lane) = self.lanes.get_mut(&lane) {
            lane.left(len);
        }
        let pending = self.sets.get_mut(&set).and_then(|of| of.ranges.get_mut(&range));
        let ready = match pending.filter(|pending| pending.waits_for(step)) {
            Some(pending) => {
                pending.answered(step, outcome).then_some((!pending.failed, !pending.fetched.is_empty()))
            }
            None => {
                // Its range was taken, or its set is gone.
                if outcome == Outcome::Fetched {
                    self.actions.push_back(Action::Took { step, read: false });
                }
                None
            }
        };
        if let Some((came, from_disk)) = ready {
            self.actions.push_back(Action::Ready { set, range, came, from_disk });
        }
        self.fill();
    }

    /// A reader has read a range, or never will; whether it was ready or not. Unknown names are ignored.
    pub fn took(&mut self, set: SetId, range: RangeId, read: bool) {
        let Some(of) = self.sets.get_mut(&set) else { return };
        let Some(pending) = of.remove(range) else { return };
        self.forget_range(pending, read);
        self.fill();
    }

    /// A reader is gone, and its set with it. Unknown names are ignored.
    pub fn close(&mut self, set: SetId) {
        let Some(mut of) = self.sets.remove(&set) else { return };
        while let Some((&range, _)) = of.ranges.first_key_value() {
            if let Some(pending) = of.remove(range) {
                self.forget_range(pending, false);
            }
        }
        self.fill();
    }

    /// The next action.
    pub fn poll(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// The present state.
    pub fn counts(&self) -> Counts {
        Counts {
            sets: self.sets.len(),
            ranges: self.sets.values().map(|set| set.ranges.len()).sum(),
            bytes: self.sets.values().map(|set| set.untaken).sum(),
            steps: self.steps.len(),
        }
    }

    fn forget_range(&mut self, pending: PendingRange, read: bool) {
        self.actions.extend(pending.in_line.into_iter().map(|step| Action::Cancel { step }));
        self.actions.extend(pending.fetched.into_iter().map(|step| Action::Took { step, read }));
    }

    /// Hands out steps wherever a lane has room in its queue.
    fn fill(&mut self) {
        let mut open: Vec<u32> = self.lanes.keys().copied().collect();
        loop {
            let lanes = open.iter().filter_map(|number| Some((self.lanes.get(number)?, *number)));
            let may = lanes.filter(|(lane, _)| lane.may_take_more());
            let Some((_, number)) = may.min_by_key(|(lane, number)| (lane.bytes, *number)) else {
                return;
            };
            // A lane without a step now has none later in this call: ranges are only added between calls.
            if self.hand_out(number).is_none() {
                open.retain(|&other| other != number);
            }
        }
    }

    /// Hands out the next step at a lane; `None` if it has none.
    fn hand_out(&mut self, number: u32) -> Option<()> {
        let sets = self.sets.len().max(1) as u64;
        let lane = self.lanes.get_mut(&number)?;
        let part = lane.room / sets;
        let (set, range) = next_range(&mut self.sets, number, lane, part)?;
        let pending = self.sets.get_mut(&set)?.ranges.get_mut(&range)?;
        let (offset, len) = pending.next_step();
        let step = StepId(self.next_step);
        self.next_step += 1;
        pending.in_line.insert(step);
        lane.current = pending.has_more().then_some((set, range));
        lane.takes(len);
        let Range { file, place, .. } = pending.range;
        let place = place.map(|first| first.plus_bytes(offset - pending.range.offset));
        self.steps.insert(step, Step { set, range, lane: number, len });
        self.actions.push_back(Action::Ask { step, set, range, file, offset, len, place });
        Some(())
    }
}

/// The range whose step is next at a lane: the current one, else the next in the sweep of a set that may have
/// more. A range whose first step is handed out begins.
fn next_range(
    sets: &mut BTreeMap<SetId, Set>,
    number: u32,
    lane: &mut Lane,
    part: u64,
) -> Option<(SetId, RangeId)> {
    if let Some((set, range)) = lane.current.take()
        && sets.get(&set).and_then(|of| of.ranges.get(&range)).is_some_and(PendingRange::has_more)
    {
        return Some((set, range));
    }
    let find = |sets: &BTreeMap<SetId, Set>| {
        let next = sets.iter().filter_map(|(&id, set)| {
            let (place, range) = set.next(number, lane.head, part)?;
            Some((lane.head.is_some_and(|head| place < head), place, id, range))
        });
        next.min()
    };
    let found = find(sets).or_else(|| {
        sets.values_mut().for_each(|set| set.begin_sweep(number));
        find(sets)
    });
    let (_, place, set, range): (bool, Place, SetId, RangeId) = found?;
    lane.head = Some(place);
    sets.get_mut(&set)?.begin(range);
    Some((set, range))
}
