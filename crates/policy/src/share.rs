//! A share of a disk's time for a class that others would starve: file sets, and writers.
//!
//! The time owed to the class is counted while it waits: its share of the time, minus the time that it has.
//! Once a turn is owed, the class goes before all others, until nothing is owed. Time beyond its share, when
//! the disk had time left over, is counted against the class for at most one turn.
//!
//! - File sets: a piece of theirs is due when no other is, and a busy disk always has a piece that is due. In
//!   their turn their pieces are read first, in disk order.
//! - Writers ([`crate::writers`]): the kernel prefers reads. In their turn nothing is read.

use seekless_base::Nanos;

/// Time owed to file sets when their turn begins. A turn costs a switch to the place of the file set and one
/// back, and a blocked client waits for all of it. At half, the switches take twice as much of the disk's
/// time; at double, a blocked client waits twice as long.
pub(crate) const TURN: Nanos = Nanos::from_millis(100);

/// Maximum of owed time. Time that a class could not use, because what it waits for came late, is not made up
/// for all at once.
const OWED_MAX: Nanos = Nanos(4 * TURN.0);

/// The share of one class.
#[derive(Clone, Debug)]
pub(crate) struct Share {
    /// Share of the time, 0 to 1.
    share: f64,
    /// Time owed when a turn begins.
    turn_at: Nanos,
    last: Nanos,
    /// Time owed, in nanoseconds.
    owed: f64,
    /// Whether the class goes before all others.
    pub(crate) turn: bool,
    spent: f64,
}

impl Share {
    /// A turn begins as soon as `turn_at` is owed.
    pub(crate) fn new(share: f64, turn_at: Nanos) -> Share {
        Share { share, turn_at, last: Nanos::ZERO, owed: 0.0, turn: false, spent: 0.0 }
    }

    /// Accounts for the time until `now`. `of_class` of the `in_flight` parts into which that time is divided
    /// were the class's; with none, the time does not count. `waits`: whether the class waited for more.
    pub(crate) fn pass(&mut self, now: Nanos, of_class: usize, in_flight: usize, waits: bool) {
        let time = now.since(self.last).0 as f64;
        self.last = self.last.max(now);
        if in_flight == 0 {
            return;
        }
        let had = time * of_class as f64 / in_flight as f64;
        self.spent += had;
        if of_class > 0 || waits {
            let owed = self.owed + time * self.share - had;
            self.owed = owed.clamp(-(self.turn_at.0 as f64), OWED_MAX.0 as f64);
        }
        let at_least = self.turn_at.0.max(1) as f64;
        self.turn = if self.turn { self.owed > 0.0 } else { self.owed >= at_least };
    }

    /// When the turn ends if the class has all of the time until then; at least a nanosecond from the last
    /// account.
    pub(crate) fn turn_ends(&self) -> Option<Nanos> {
        let rest = self.owed / (1.0 - self.share).max(1e-3);
        self.turn.then(|| self.last + Nanos((rest as u64).saturating_add(1)))
    }

    /// Time spent on the class.
    pub(crate) fn spent(&self) -> Nanos {
        Nanos(self.spent as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Serves a saturated disk by reads of `read_ms`, for the file set whenever it is its turn. Returns the
    /// share of the file set.
    fn part_of(share: f64, read_ms: u64) -> f64 {
        let mut account = Share::new(share, TURN);
        let (mut now, total) = (Nanos::ZERO, Nanos::from_secs(200));
        while now < total {
            let of_file_sets = usize::from(account.turn);
            now += Nanos::from_millis(read_ms);
            account.pass(now, of_file_sets, 1, true);
        }
        account.spent().0 as f64 / total.0 as f64
    }

    #[test]
    fn a_set_beside_a_saturated_disk_has_its_share() {
        for share in [0.05, 0.1, 0.2, 0.5] {
            for read_ms in [5, 20, 60] {
                let part = part_of(share, read_ms);
                assert!((part / share - 1.0).abs() < 0.1, "{part} of {share} by reads of {read_ms} ms");
            }
        }
        assert_eq!(part_of(0.0, 20), 0.0);
        assert!(part_of(1.0, 20) > 0.98);
    }

    #[test]
    fn what_was_left_over_is_not_held_against_a_set() {
        let mut account = Share::new(0.1, TURN);
        account.pass(Nanos::from_secs(100), 1, 1, true);
        account.pass(Nanos::from_secs(102), 0, 1, true);
        assert!(account.turn);
    }

    #[test]
    fn nothing_is_owed_while_no_set_waits_or_the_disk_is_idle() {
        let mut account = Share::new(0.1, TURN);
        account.pass(Nanos::from_secs(100), 0, 1, false);
        account.pass(Nanos::from_secs(200), 0, 0, true);
        assert!(!account.turn);
        assert_eq!(account.spent(), Nanos::ZERO);
    }

    #[test]
    fn reads_in_flight_together_share_the_time() {
        let mut account = Share::new(0.1, TURN);
        account.pass(Nanos::from_secs(8), 1, 4, true);
        assert_eq!(account.spent(), Nanos::from_secs(2));
        // A clock that stands still or runs backwards changes nothing.
        account.pass(Nanos::from_secs(1), 1, 4, true);
        assert_eq!(account.spent(), Nanos::from_secs(2));
    }
}
