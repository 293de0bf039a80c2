//! How long the level above waited for an answer, as far as its requests show.
//!
//! When the upper level reads ahead, no reader waits for most of its requests, and a late answer does no harm
//! as long as it comes before the reader needs it. Requests do not say which kind they are, but their
//! addresses do:
//!
//! - A request that does not continue a run was a miss of a reader, which waits until it is answered.
//! - A request that begins where an earlier one ended is the upper level's read-ahead. No reader waits until
//!   the next request of the run comes: the upper level sends that when its reader has reached the blocks of
//!   this one. If this one is not answered by then, the reader waits from that moment.
//!
//! An upper level that does not read ahead waits for everything; [`Waits::new`] must be told so.
//!
//! Ends of runs are kept in a table of fixed size in which a newer run may take the place of an older one;
//! what is forgotten counts as a miss if it is asked for again, and as not waited for if it was read-ahead.

use seekless_levels::coordinate::LevelRequest;

/// Runs remembered, a power of two. OLTP has dozens at once, web search some thousands that soon end; 24
/// bytes each.
const RUNS: usize = 4096;
/// Golden ratio times 2^64: spreads neighbouring numbers over the table.
const FIBONACCI: u64 = 0x9E37_79B9_7F4A_7C15;
/// Not continued so far.
const NEVER: u64 = u64::MAX;

/// The latest request of a run.
#[derive(Clone, Copy, Debug)]
struct End {
    /// The block behind it, with which the run would go on.
    next: u64,
    /// When a request for that block came, nanoseconds.
    continued_ns: u64,
    /// Whether it continued a run itself.
    continues: bool,
}

/// See the [module](self).
#[derive(Clone, Debug)]
pub(super) struct Waits {
    /// Empty if all requests are waited for.
    ends: Box<[End]>,
}

fn place(next: u64) -> usize {
    (next.wrapping_mul(FIBONACCI) >> (u64::BITS - RUNS.ilog2())) as usize
}

impl Waits {
    /// Nothing asked for so far, by an upper level that reads ahead or does not.
    pub(super) fn new(upper_prefetches: bool) -> Waits {
        let none = End { next: u64::MAX, continued_ns: NEVER, continues: false };
        Waits { ends: vec![none; if upper_prefetches { RUNS } else { 0 }].into() }
    }

    /// A request came.
    pub(super) fn arrived(&mut self, now_ns: u64, request: &LevelRequest) {
        if self.ends.is_empty() {
            return;
        }
        let before = &mut self.ends[place(request.first)];
        let continues = before.next == request.first;
        if continues && before.continued_ns == NEVER {
            before.continued_ns = now_ns;
        }
        let next = request.last.saturating_add(1);
        self.ends[place(next)] = End { next, continued_ns: NEVER, continues };
    }

    /// How long a reader waited for the request that ended with block `last` and was answered at `now_ns`,
    /// after `elapsed_ns`.
    pub(super) fn waited_ns(&self, now_ns: u64, elapsed_ns: u64, last: u64) -> u64 {
        let next = last.saturating_add(1);
        match self.ends.get(place(next)) {
            Some(end) if end.next == next && end.continues => match end.continued_ns {
                NEVER => 0,
                at => now_ns.saturating_sub(at).min(elapsed_ns),
            },
            _ => elapsed_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(first: u64, last: u64) -> LevelRequest {
        LevelRequest { context: 0, first, last }
    }

    #[test]
    fn a_miss_is_waited_for_whole() {
        let mut waits = Waits::new(true);
        waits.arrived(100, &request(10, 13));
        assert_eq!(waits.waited_ns(150, 50, 13), 50);
        assert_eq!(waits.waited_ns(150, 50, 999), 50, "never heard of: no run known");
    }

    #[test]
    fn read_ahead_is_waited_for_from_the_next_request_of_its_run() {
        let mut waits = Waits::new(true);
        waits.arrived(0, &request(10, 13));
        waits.arrived(100, &request(14, 17));
        assert_eq!(waits.waited_ns(130, 30, 17), 0, "its reader has not come yet");
        waits.arrived(140, &request(18, 21));
        waits.arrived(145, &request(500, 501));
        assert_eq!(waits.waited_ns(150, 50, 17), 10, "the reader came at 140");
        assert_eq!(waits.waited_ns(150, 5, 501), 5);
    }

    #[test]
    fn an_upper_level_that_does_not_read_ahead_waits_for_everything() {
        let mut waits = Waits::new(false);
        waits.arrived(0, &request(10, 13));
        waits.arrived(100, &request(14, 17));
        assert_eq!(waits.waited_ns(130, 30, 17), 30);
    }

    #[test]
    fn the_end_of_all_numbers() {
        let mut waits = Waits::new(true);
        waits.arrived(0, &request(u64::MAX - 1, u64::MAX));
        assert_eq!(waits.waited_ns(7, 7, u64::MAX), 7);
    }
}
