//! The share of the disk's time that the engine leaves to writes.
//!
//! The kernel's schedulers and the drives prefer reads, because a program waits for each of them. Beside a
//! server that reads without pause a writer may get next to nothing, and a program that syncs waits for
//! seconds. The driver reports what waits to be written ([`Event::Writes`](crate::Event::Writes)). While
//! something does:
//!
//! - One piece is in flight for each set of heads, so no second one stands before a write.
//! - After a piece the writers have their turn, in which nothing is read, until they had their share of the
//!   disk's time or nothing waits to be written any more. So a write waits for one piece and for its own
//!   turn. If the share is a half, a turn is as long as the piece before it.
//! - No piece is read before it is due: what the streams have in memory is time for the writers.
//!
//! Time in which no piece is in flight is the writers'. What they get beside a piece comes on top and is not
//! counted: a piece that took longer may as well have begun with a long seek.

use seekless_base::Nanos;

use crate::Writes;
use crate::share::Share;

/// For how long a report counts. Drivers repeat it every half of this while something waits, so that a
/// driver which can no longer see writes withholds nothing. Half and double change nothing while it sees
/// them.
pub const WRITES_BELIEVED: Nanos = Nanos::from_secs(1);

/// What the writers of one disk wait for, and what they have got.
#[derive(Clone, Debug)]
pub(crate) struct Writers {
    share: Share,
    last: Nanos,
    report: Writes,
    reported: Nanos,
    /// Bytes written, as reported.
    pub(crate) bytes: u64,
    /// Time in which something was read or waited to be written.
    busy: Nanos,
    /// Turns in which a queued piece was held back; whether that holds for the present turn.
    held: u64,
    holds: bool,
}

/// What writers got of a disk ([`crate::Event::Writes`]). Counters, except values marked "now".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriterStats {
    /// Write requests that wait or are in flight now, as last reported.
    pub waiting: u64,
    /// Bytes written while the driver looked.
    pub bytes: u64,
    /// Time that the disk had for writes while some waited and nothing was read.
    pub disk_time: Nanos,
    /// Time in which the engine read or writes waited: the whole of which `disk_time` is a part.
    pub busy: Nanos,
    /// Times that a piece was held back because it was the writers' turn.
    pub held_back: u64,
}

impl Writers {
    /// `None` for no share: writes are not accounted for.
    pub(crate) fn new(share: Option<f64>) -> Option<Writers> {
        let share = Share::new(share?, Nanos::ZERO);
        Some(Writers {
            share,
            last: Nanos::ZERO,
            report: Writes::default(),
            reported: Nanos::ZERO,
            bytes: 0,
            busy: Nanos::ZERO,
            held: 0,
            holds: false,
        })
    }

    /// Accounts for the time until `now`, in which this many reads were in flight.
    pub(crate) fn pass(&mut self, now: Nanos, in_flight: usize) {
        let time = now.since(self.last);
        self.last = self.last.max(now);
        let waits = self.waits();
        if waits || in_flight > 0 {
            self.busy += time;
        }
        // The time does not count while nothing waits.
        self.share.pass(now, usize::from(in_flight == 0), usize::from(waits), waits);
        self.holds &= self.is_turn();
    }

    /// Takes in a report, after [`Writers::pass`].
    pub(crate) fn report(&mut self, now: Nanos, writes: Writes) {
        (self.report, self.reported) = (writes, now);
        self.bytes = self.bytes.saturating_add(writes.bytes);
        self.holds &= self.is_turn();
    }

    /// Whether something waits to be written.
    pub(crate) fn waits(&self) -> bool {
        self.report.waiting > 0 && self.last.since(self.reported) < WRITES_BELIEVED
    }

    /// Whether it is the writers' turn: nothing is read.
    pub(crate) fn is_turn(&self) -> bool {
        self.waits() && self.share.turn
    }

    /// When the turn ends at the latest.
    pub(crate) fn turn_ends(&self) -> Option<Nanos> {
        let ends = self.share.turn_ends().filter(|_| self.is_turn());
        ends.map(|ends| ends.min(self.reported + WRITES_BELIEVED))
    }

    /// Counts a queued piece that has to wait for the writers' turn, once a turn.
    pub(crate) fn hold(&mut self) {
        self.held += u64::from(!core::mem::replace(&mut self.holds, true));
    }

    pub(crate) fn stats(&self) -> WriterStats {
        let waits = self.waits();
        WriterStats {
            waiting: if waits { self.report.waiting } else { 0 },
            bytes: self.bytes,
            disk_time: self.share.spent(),
            busy: self.busy,
            held_back: self.held,
        }
    }
}
