//! Whether a disk seeks, from a few small reads.
//!
//! At some places far apart, three small reads are timed in sequence: at the place (*jump*), right behind it
//! (*next*), and at the place once more (*again*). At a few places a longer read is timed (*run*). The time
//! of a jump beyond that of a read without one is lost to the arm and the platter. Times the rate of a run,
//! it is the competitive depth (\[C\] 2): what the disk could have transferred instead. Delays of a
//! controller, a hypervisor or a network are in all three reads alike and cancel out.
//!
//! `next` needs no mechanics on a drive that looks ahead, `again` on one that keeps what it has read, so the
//! smaller time counts as the read without a jump. A drive that does neither waits a whole turn for both; the
//! rest of the jump is then its seek, less half a turn.

use alloc::vec::Vec;

use seekless_base::{Bytes, Lba, Nanos};
use serde::{Deserialize, Serialize};

use super::DiskProfile;

/// Length of a small read: a common read of servers, with at most a millisecond of transfer.
pub const SMALL: Bytes = Bytes::kib(64);

/// Length of a run. A precise rate would take sixteen times as much, a second of the disk; this is enough for
/// a rate within a factor of two.
pub const RUN: Bytes = Bytes::mib(1);

/// Places at which small reads are timed. With twice as many, the medians would be a third more certain and
/// the probe twice as long.
pub const ROUNDS: usize = 16;

/// Alignment of reads past the page cache.
const PAGE: u64 = 4096;

/// Number of runs.
pub const RUNS: usize = 3;

/// Minimum number of rounds for a result: a median of fewer changes with one disturbed read.
const ROUNDS_MIN: usize = 6;

/// A jump that costs less is not an arm's: the fastest drives of the catalogue (15,000 rpm) wait 2 ms for the
/// platter alone, and software disks may run a few times faster than real time. Flash answers within 0.05 to
/// 0.3 ms, with a jump or without.
const LOST_MIN: Nanos = Nanos::from_micros(500);

/// Minimum bytes lost to a jump: the kernel's own read-ahead (128 KiB). With less, half of the disk's time is
/// transfer even without Seekless. Memory cards and sticks, slow but without an arm, lie below it: 1 ms at 50
/// MB/s is 49 KiB.
const DEPTH_MIN: Bytes = Bytes::kib(128);

/// Times of the reads, in the order of the rounds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProbeTimes {
    /// Small reads far from the one before.
    pub jump: Vec<Nanos>,
    /// Small reads right behind those.
    pub next: Vec<Nanos>,
    /// The same as the first, once more.
    pub again: Vec<Nanos>,
    /// Reads of [`RUN`].
    pub run: Vec<Nanos>,
}

/// The kind of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskKind {
    /// Whether reading it in order and in large pieces helps.
    pub seeks: bool,
    /// The time of a jump beyond that of a read without one.
    pub lost: Nanos,
    /// Bytes that it could have transferred in that time.
    pub depth: Bytes,
    /// Its concurrency limit in pieces ([`super::Concurrency`]): 1 for one spindle. In a file, 0 means that
    /// it was not measured yet.
    #[serde(default = "one")]
    pub at_once: u32,
}

fn one() -> u32 {
    1
}

impl DiskKind {
    fn of(lost: Nanos, bytes_per_s: f64) -> DiskKind {
        let depth = Bytes((lost.as_secs_f64() * bytes_per_s) as u64);
        DiskKind { seeks: lost >= LOST_MIN && depth >= DEPTH_MIN, lost, depth, at_once: 1 }
    }

    /// From a measured profile.
    pub fn of_profile(profile: &DiskProfile) -> DiskKind {
        DiskKind::of(profile.mean_switch(), profile.mean_rate())
    }
}

impl ProbeTimes {
    /// The result; `None` if there are too few reads.
    pub fn kind(&self) -> Option<DiskKind> {
        if self.jump.len().min(self.next.len()).min(self.again.len()) < ROUNDS_MIN {
            return None;
        }
        let without = median(&self.next)?.min(median(&self.again)?);
        let run = median(&self.run)?.as_secs_f64().max(1e-9);
        Some(DiskKind::of(median(&self.jump)?.since(without), RUN.0 as f64 / run))
    }
}

fn median(times: &[Nanos]) -> Option<Nanos> {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied()
}

/// The offsets of the reads of round `round` in a space of this many bytes, `len` bytes each: multiples of a
/// page, each far from the one before and from all others (steps of the golden ratio). Sector 0 if the space
/// is too small for a jump.
pub fn place(bytes: Bytes, len: Bytes, round: usize) -> Lba {
    const GOLDEN: f64 = 0.618_033_988_749_894_9;
    let room = bytes.0.saturating_sub(len.0) as f64;
    let turns = (round as f64 + 0.5) * GOLDEN;
    let at = (room * (turns - libm::floor(turns))) as u64;
    Lba(at / PAGE * PAGE / super::SECTOR_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(jump: f64, next: f64, again: f64, run: f64) -> ProbeTimes {
        let many = |ms: f64, n: usize| {
            (0..n).map(|i| Nanos::from_millis_f64(ms * (0.9 + 0.02 * (i % 11) as f64))).collect()
        };
        ProbeTimes {
            jump: many(jump, ROUNDS),
            next: many(next, ROUNDS),
            again: many(again, ROUNDS),
            run: many(run, RUNS),
        }
    }

    #[test]
    fn disks_are_told_apart_by_what_a_jump_costs() {
        for (name, times, seeks) in [
            ("a hard disk", times(14.0, 0.6, 0.3, 9.0), true),
            ("a fast one", times(5.5, 0.4, 0.3, 5.0), true),
            ("one that neither looks ahead nor keeps", times(14.0, 11.5, 11.1, 17.0), true),
            ("one behind a hypervisor", times(15.0, 1.6, 1.2, 10.0), true),
            ("one made of software, ten times as fast", times(1.4, 0.2, 0.15, 1.1), true),
            ("flash", times(0.12, 0.09, 0.08, 0.5), false),
            ("fast flash", times(0.09, 0.02, 0.02, 0.3), false),
            ("flash behind a network", times(2.2, 2.1, 2.0, 9.0), false),
            ("a card", times(2.1, 1.3, 1.2, 21.0), false),
            ("memory", times(0.03, 0.03, 0.03, 0.2), false),
        ] {
            let kind = times.kind().unwrap();
            assert_eq!(kind.seeks, seeks, "{name}: {kind:?}");
        }
    }

    #[test]
    fn a_few_disturbed_reads_change_nothing_and_a_few_reads_say_nothing() {
        let mut flash = times(0.12, 0.09, 0.08, 0.5);
        flash.jump[..5].fill(Nanos::from_millis(40));
        assert!(!flash.kind().unwrap().seeks);
        flash.again.truncate(ROUNDS_MIN - 1);
        assert_eq!(flash.kind(), None);
        assert_eq!(ProbeTimes::default().kind(), None);
    }

    #[test]
    fn a_profile_says_the_same_as_a_probe() {
        assert!(DiskKind::of_profile(&DiskProfile::assumed(1 << 31)).seeks);
        let mut flash = DiskProfile::assumed(1 << 31);
        flash.rotation = None;
        flash.seeks.iter_mut().for_each(|s| s.time = Nanos::from_micros(60));
        assert!(!DiskKind::of_profile(&flash).seeks);
    }

    #[test]
    fn places_lie_inside_and_far_apart() {
        for bytes in [Bytes::kib(64), Bytes::mib(3), Bytes::gib(1), Bytes::gib(20_000)] {
            let places: Vec<u64> = (0..ROUNDS).map(|i| place(bytes, SMALL, i).0 * 512).collect();
            assert!(places.iter().all(|at| at % 4096 == 0 && at + SMALL.0 <= bytes.0), "{places:?}");
            let near = places.windows(2).map(|p| p[0].abs_diff(p[1])).min().unwrap();
            assert!(bytes < Bytes::mib(1) || near > bytes.0 / 4, "{places:?}");
        }
        assert_eq!(place(Bytes(0), SMALL, 3), Lba(0));
    }
}
