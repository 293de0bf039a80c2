//! Competitive prefetching: read ahead what the disk transfers while it would seek (\[C\] section 2).
//!
//! A prefetcher of a stream of unknown length can err in two ways. With too little ahead, the disk spends its
//! time on seeks back to the stream; with too much, it transfers bytes that no client wants. At a depth of
//! `(seek + half a turn) * transfer rate` both errors cost the same, and the disk's time is at most twice
//! that of a prefetcher that knows the length. For a stream of `S` bytes, depth `D = C * R`, the time is
//! `ceil(S/D)` reads of `C + D/R = 2C` each, and `ceil(S/D) * 2C <= (S/D + 1) * 2C = 2 * (S/R + C)`.
//!
//! The seek time is a moving average over recent reads, the rate that of the place ([`DiskProfile`]).
//! Non-sequential reads are read as asked. \[C\] lets a sequential stream start with 16 pages and double
//! (slow start). That adds a seek for each doubling, three of them on the paper's drive and six on a drive of
//! today, and breaks the bound. A stream that ends after its second piece costs `2C + (p1 + p2)/R`. If it
//! ends one byte into the third, the bound is `3C + (p1 + p2 + p3)/R <= 2(C + (p1 + p2)/R)`, which no `p3`
//! satisfies unless `p1 + p2 > D`. Continued in this way, the only schedule within twice the optimum is `D`
//! from the first piece on. [`Start::Depth`] does that; [`Start::Slow`] is the paper's.
//!
//! A stream that does not begin at the head of its file cannot be told from a random read until its second
//! read. This costs one switch more than the bound allows. Otherwise random reads would cost up to twice as
//! much.

use seekless_base::{Bytes, Lba, Nanos, PAGE_BYTES};
use serde::{Deserialize, Serialize};

use crate::profile::DiskProfile;

/// First prefetch of a stream in slow start: 16 pages, as in Linux and in \[C\] section 2.
pub const SLOW_START: Bytes = Bytes(16 * PAGE_BYTES);

/// Weight of the newest seek in the moving average. \[C\] gives none. An eighth, as in TCP's round-trip time:
/// the average follows a change of load within some tens of reads, and does not follow a single long seek.
pub const SEEK_WEIGHT: f64 = 1.0 / 8.0;

/// The competitive depth of one disk.
#[derive(Clone, Debug)]
pub struct Competitive {
    profile: DiskProfile,
    depth_max: Bytes,
    seek_estimate: SeekEstimate,
    /// Moving averages: distance in sectors, and time in seconds by the profile.
    seek: Option<(f64, f64)>,
    /// Cached [`switch_cost`](Self::switch_cost): depths are needed for each page, seeks are rare.
    switch: Nanos,
    head: Option<Lba>,
}

impl Competitive {
    /// For a disk with this profile. Depths stay within [`SLOW_START`] and `depth_max`.
    pub fn new(profile: DiskProfile, depth_max: Bytes) -> Competitive {
        let competitive = Competitive {
            profile,
            depth_max: depth_max.max(SLOW_START),
            seek_estimate: SeekEstimate::default(),
            seek: None,
            switch: Nanos::ZERO,
            head: None,
        };
        competitive.with_seek_estimate(SeekEstimate::default())
    }

    /// Sets the estimate of the seek time.
    pub fn with_seek_estimate(self, seek_estimate: SeekEstimate) -> Competitive {
        let competitive = Competitive { seek_estimate, ..self };
        Competitive { switch: competitive.estimate(), ..competitive }
    }

    /// A read of `len` bytes at `lba` was submitted, so the arm moved there from the end of the last one. A
    /// read that continues the last one is no seek and does not count.
    pub fn observe(&mut self, lba: Lba, len: Bytes) {
        if let Some(head) = self.head.replace(lba.plus_bytes(len.0)).filter(|&head| head != lba) {
            let distance = lba.distance(head) as f64;
            let time = self.profile.seek_time(head, lba).as_secs_f64();
            let (sectors, seconds) = self.seek.unwrap_or((distance, time));
            self.seek = Some((
                sectors + SEEK_WEIGHT * (distance - sectors),
                seconds + SEEK_WEIGHT * (time - seconds),
            ));
            self.switch = self.estimate();
        }
    }

    /// `D_seek` of \[C\]: moving average of the seek distance in sectors. Before the first seek a third of
    /// the disk, the mean distance of independent places.
    pub fn seek_sectors(&self) -> u64 {
        self.seek.map_or(self.profile.sectors / 3, |(sectors, _)| sectors as u64)
    }

    /// `C_switch` of \[C\]: predicted time lost by reading elsewhere, by the current [`SeekEstimate`].
    pub fn switch_cost(&self) -> Nanos {
        self.switch
    }

    fn estimate(&self) -> Nanos {
        let seek = match (self.seek_estimate, self.seek) {
            (SeekEstimate::MeanTime, None) => self.profile.mean_seek(),
            (SeekEstimate::MeanTime, Some((_, seconds))) => Nanos::from_secs_f64(seconds),
            (SeekEstimate::MeanDistance, _) => self.profile.seek_time_of(self.seek_sectors()),
        };
        seek + self.profile.half_turn()
    }

    /// The competitive depth of a prefetch that starts at `lba`, in whole pages.
    pub fn depth(&self, lba: Lba) -> Bytes {
        let bytes = self.switch_cost().as_secs_f64() * self.profile.rate_at(lba);
        let pages = (bytes / PAGE_BYTES as f64 + 0.5) as u64;
        Bytes(pages.saturating_mul(PAGE_BYTES)).clamp(SLOW_START, self.depth_max)
    }

    /// The profile of the disk.
    pub fn profile(&self) -> &DiskProfile {
        &self.profile
    }
}

/// How the time of the next seek is estimated from recent seeks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SeekEstimate {
    /// Mean of the seek times. Seek times grow with the root of the distance, so the time of the mean
    /// distance is longer (8 % for independent places), and would exceed the bound by as much.
    #[default]
    MeanTime,
    /// `f_seek(D_seek)` of \[C\] section 3: the seek time of the mean distance.
    MeanDistance,
}

/// Length of the first prefetch of a sequential stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Start {
    /// The whole depth: never more than twice the optimum.
    #[default]
    Depth,
    /// [`SLOW_START`], doubled with each prefetch, as in \[C\].
    Slow,
}

/// One reader of a file: whether it is sequential, and how much to read ahead for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SequentialReader {
    start: Start,
    /// Where it reads next if it is sequential.
    expected: Option<u64>,
    /// Last depth granted.
    depth: u64,
    /// End of the prefetched bytes.
    ahead: u64,
}

impl SequentialReader {
    /// A reader of which nothing is known.
    pub const fn new(start: Start) -> SequentialReader {
        SequentialReader { start, expected: None, depth: 0, ahead: 0 }
    }

    /// Whether a read of `len` bytes at `offset` continues this reader: it begins where the last read ended,
    /// or where the last prefetch did (the reads between may have hit unreported).
    pub fn continues(&self, offset: u64, len: u64) -> bool {
        let reaches = |place: u64| offset <= place && place <= offset.saturating_add(len);
        self.expected.is_some_and(|expected| reaches(expected) || (self.depth > 0 && reaches(self.ahead)))
    }

    /// The reader requests `len` bytes at `offset`, where the competitive depth is `depth`. Returns the
    /// number of bytes to read from `offset` if they must come from the disk; at least `len`.
    ///
    /// A stream counts as sequential from its second consecutive read on; at the very start of a file from
    /// the first, as in Linux. A read that repeats or overlaps the last one is still sequential; a jump
    /// starts anew.
    pub fn read_len(&mut self, offset: u64, len: u64, depth: Bytes) -> u64 {
        let sequential = match self.expected {
            Some(_) => self.continues(offset, len),
            None => offset == 0,
        };
        let end = offset.saturating_add(len);
        self.expected = Some(end);
        if !sequential {
            self.depth = 0;
            self.ahead = end;
            return len;
        }
        if end <= self.ahead {
            // Inside the last prefetch: the depth does not grow. If it must be read again, read all of it.
            return len.max(self.ahead - offset);
        }
        let grown = match (self.start, self.depth) {
            (Start::Depth, _) => u64::MAX,
            (Start::Slow, 0) => SLOW_START.0,
            (Start::Slow, last) => last.saturating_mul(2),
        };
        self.depth = grown.min(depth.0.max(SLOW_START.0));
        let granted = self.depth.max(len);
        self.ahead = offset.saturating_add(granted);
        granted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn competitive() -> Competitive {
        Competitive::new(DiskProfile::assumed(1 << 31), Bytes::mib(64))
    }

    #[test]
    fn the_ibm_drive_of_the_paper_gets_540_kb() {
        // [C] section 2: 51.3 MB/s, 7.53 ms mean seek, 3.00 ms half turn: "around 540 KB".
        let mut profile = DiskProfile::assumed(71_000_000);
        profile.rotation = Some(Nanos::from_millis(6));
        for point in &mut profile.rates {
            point.bytes_per_second = 51_300_000;
        }
        for point in &mut profile.seeks {
            point.time = Nanos::from_millis_f64(7.53);
        }
        let depth = Competitive::new(profile, Bytes::mib(64)).depth(Lba(1000));
        assert!((530_000..=550_000).contains(&depth.0), "{depth}");
    }

    #[test]
    fn depth_follows_distance_and_place() {
        let mut c = competitive();
        let far = c.depth(Lba(0));
        assert!(c.depth(Lba((1 << 31) - 1)) < far, "inner tracks are slower");
        let mut at = Lba(0);
        for _ in 0..100 {
            c.observe(at, Bytes::mib(1));
            at = at.plus_bytes(3 << 20);
        }
        assert_eq!(c.seek_sectors(), 4096);
        assert!(c.depth(Lba(0)) < far, "short seeks are cheap");
        let before = c.seek_sectors();
        c.observe(at, Bytes::mib(1));
        c.observe(at.plus_bytes(1 << 20), Bytes::mib(1));
        assert_eq!(c.seek_sectors(), before, "going on is no seek");
    }

    #[test]
    fn the_papers_estimate_is_the_seek_time_of_the_mean_distance() {
        let profile = DiskProfile::assumed(1 << 31);
        let half_turn = profile.half_turn();
        let mut paper = competitive().with_seek_estimate(SeekEstimate::MeanDistance);
        let mut ours = competitive();
        // Before the first seek: a third of the disk, the mean distance of independent places.
        assert_eq!(paper.switch_cost(), profile.seek_time_of((1 << 31) / 3) + half_turn);
        let over_ours = paper.switch_cost().since(half_turn).0 as f64 / profile.mean_seek().0 as f64;
        assert!(over_ours > 1.0, "the root of a mean is above the mean of the roots: {over_ours}");
        // Seeks of 0.1 and 0.3 of the disk alternate.
        let (mut at, step) = (0, [1 << 31, 3 << 31].map(|n: u64| n / 10));
        for i in 0..200 {
            paper.observe(Lba(at), Bytes(512));
            ours.observe(Lba(at), Bytes(512));
            at = if at + 1 + step[i % 2] < 1 << 31 { at + 1 + step[i % 2] } else { 0 };
        }
        assert_eq!(paper.seek_sectors(), ours.seek_sectors());
        assert_eq!(paper.switch_cost(), profile.seek_time_of(paper.seek_sectors()) + half_turn);
        assert!(paper.switch_cost() > ours.switch_cost());
    }

    #[test]
    fn slow_start_doubles_up_to_the_depth() {
        let mut s = SequentialReader::new(Start::Slow);
        let depth = Bytes::mib(1);
        let mut at = 0;
        let mut grants = alloc::vec::Vec::new();
        for _ in 0..7 {
            let granted = s.read_len(at, 65536, depth);
            grants.push(granted >> 10);
            at += granted;
            s.expected = Some(at);
        }
        assert_eq!(grants, [64, 128, 256, 512, 1024, 1024, 1024]);
    }

    #[test]
    fn random_reads_are_left_alone() {
        let mut s = SequentialReader::new(Start::Slow);
        for offset in [1 << 20, 7 << 20, 3 << 20, 1 << 30] {
            assert_eq!(s.read_len(offset, 65536, Bytes::mib(2)), 65536);
        }
        // The second in a row is sequential.
        assert_eq!(s.read_len((1 << 30) + 65536, 4096, Bytes::mib(2)), SLOW_START.0);
    }

    #[test]
    fn small_sequential_reads_do_not_grow_faster_than_they_use() {
        let mut s = SequentialReader::new(Start::Slow);
        let grants: alloc::vec::Vec<u64> =
            (0..48).map(|i| s.read_len(i * 4096, 4096, Bytes::mib(2))).collect();
        assert_eq!(grants[0], 65536);
        assert_eq!(grants[15], 4096, "the last page of the first prefetch");
        assert_eq!(grants[16], 131_072);
        assert_eq!(grants[47], 4096);
    }

    /// The disk's time in units of one switch, for streams read front to back in requests of `ask` bytes, and
    /// the time if their lengths were known. A stream is its length, and whether it begins at the head of its
    /// file.
    fn times(streams: &[(u64, bool)], ask: u64, depth: u64, per_switch: f64, start: Start) -> (f64, f64) {
        let (mut taken, mut best) = (0.0, 0.0);
        for &(length, head) in streams {
            best += 1.0 + length as f64 / per_switch;
            let mut reader = SequentialReader::new(start);
            let base = if head { 0 } else { 1 << 40 };
            let (mut at, mut there) = (0, 0);
            while at < length {
                let end = at + ask.min(length - at);
                if end > there {
                    // Missing bytes are requested and hits are not reported, as in a disk queue. Each read
                    // costs a switch, because other streams had the disk meanwhile: the worst case.
                    let from = there.max(at);
                    let granted = reader.read_len(base + from, end - from, Bytes(depth));
                    there = from + granted;
                    taken += 1.0 + granted as f64 / per_switch;
                }
                at = end;
            }
        }
        (taken, best)
    }

    #[test]
    fn slow_start_costs_more_than_twice_on_a_drive_of_today() {
        // 250 MB/s and 12 ms: 3 MB a switch. Streams end just after the third piece.
        let depth = 3_000_000;
        let streams = [(64 * 1024 * 3 + 1, true); 10];
        let (slow, best) = times(&streams, 4096, depth, depth as f64, Start::Slow);
        assert!(slow > 2.5 * best, "{slow} {best}");
        let (ours, _) = times(&streams, 4096, depth, depth as f64, Start::Depth);
        assert!(ours <= 2.0 * best, "{ours} {best}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        /// At most twice the offline optimum, for any lengths of streams, requests and drive (equation (5) of
        /// \[C\]), plus one switch for each stream that begins inside its file and goes on.
        #[test]
        fn at_most_twice_the_optimum(
            streams in proptest::collection::vec((1u64..1 << 28, any::<bool>()), 1..40),
            short in proptest::collection::vec((1u64..1 << 20, any::<bool>()), 0..40),
            ask_log in 12u32..22,
            // From 16 pages, below which a switch costs less than the smallest prefetch, to 16 MiB.
            pages in 16u64..4096,
        ) {
            let depth = pages * 4096;
            let per_switch = depth as f64;
            let ask = 1u64 << ask_log;
            let all: Vec<(u64, bool)> = streams.into_iter().chain(short).collect();
            let (taken, best) = times(&all, ask, depth, per_switch, Start::Depth);
            let inside = all.iter().filter(|&&(length, head)| !head && length > ask).count() as f64;
            prop_assert!(taken <= 2.0 * best * 1.000_001 + inside, "{taken} > 2 * {best} + {inside}");
            let heads: Vec<(u64, bool)> = all.iter().copied().filter(|&(_, head)| head).collect();
            let (taken, best) = times(&heads, ask, depth, per_switch, Start::Depth);
            prop_assert!(taken <= 2.0 * best * 1.000_001, "{taken} > 2 * {best}");
        }

        /// Random reads are read as asked, so they cost no more than without prefetching.
        #[test]
        fn random_reads_are_read_as_asked(
            offsets in proptest::collection::vec(1u64..1 << 20, 1..60), len in 1u64..65536,
        ) {
            let mut reader = SequentialReader::new(Start::Depth);
            let mut last = None;
            for offset in offsets.into_iter().map(|o| o << 20) {
                if last.is_some_and(|end: u64| offset <= end && end <= offset + len) {
                    break;
                }
                prop_assert_eq!(reader.read_len(offset, len, Bytes::mib(2)), len);
                last = Some(offset + len);
            }
        }

        #[test]
        fn reads_are_bounded_and_never_short(
            steps in proptest::collection::vec((any::<u64>(), 0u64..1 << 22), 1..60),
            depth in 0u64..1 << 24,
        ) {
            let mut state = SequentialReader::new(Start::Depth);
            for (offset, len) in steps {
                let granted = state.read_len(offset, len, Bytes(depth));
                prop_assert!(granted >= len);
                prop_assert!(granted <= len.max(depth).max(SLOW_START.0).max(1 << 24));
            }
        }
    }
}
