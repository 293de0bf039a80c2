//! Competitive prefetching: read ahead what the disk transfers while it would seek (\[C\] section 2).
//!
//! Whoever reads a stream of unknown length can err two ways: too little ahead, and the disk spends its time going
//! back to the stream; too much, and it transfers what nobody wants. With a depth of
//! `(seek + half a turn) * transfer rate` both errors cost the same, and the disk's time is at most twice that of
//! somebody who knew the length: for a stream of `S` bytes, depth `D = C * R`, the time is `ceil(S/D)` reads of
//! `C + D/R = 2C` each, and `ceil(S/D) * 2C <= (S/D + 1) * 2C = 2 * (S/R + C)`.
//!
//! Seek distance is a moving average over recent reads, the rate that of the place ([`DiskProfile`]). A stream starts
//! with 16 pages and doubles while it goes on being sequential (slow start), which adds at most one seek for each
//! doubling; what is not sequential is read as asked.

use seekless_units::{Bytes, Lba, Nanos};

use crate::profile::DiskProfile;

/// First prefetch of a stream: 16 pages, as in Linux and in \[C\] section 2.
pub const SLOW_START: Bytes = Bytes(16 * 4096);

/// Weight of the newest seek in the moving average. \[C\] gives none; an eighth, as TCP's round-trip time has: the
/// average follows a change of load within some tens of reads and not a single long seek.
pub const SEEK_WEIGHT: f64 = 1.0 / 8.0;

/// The depth for one disk.
#[derive(Clone, Debug)]
pub struct Competitive {
    profile: DiskProfile,
    depth_max: Bytes,
    seek_sectors: Option<f64>,
    head: Option<Lba>,
}

impl Competitive {
    /// For a disk of this profile. Depths stay within [`SLOW_START`] and `depth_max`.
    pub fn new(profile: DiskProfile, depth_max: Bytes) -> Competitive {
        Competitive { profile, depth_max: depth_max.max(SLOW_START), seek_sectors: None, head: None }
    }

    /// A read of `len` bytes at `lba` was issued: the arm went there from the end of the one before. Reads that
    /// continue it are no seeks and leave the average alone.
    pub fn observe(&mut self, lba: Lba, len: Bytes) {
        if let Some(head) = self.head.replace(lba.plus_bytes(len.0)).filter(|&head| head != lba) {
            let distance = lba.distance(head) as f64;
            let mean = self.seek_sectors.unwrap_or(distance);
            self.seek_sectors = Some(mean + SEEK_WEIGHT * (distance - mean));
        }
    }

    /// `D_seek` of \[C\]: moving average of the seek distance in sectors. Before the first seek a third of the disk,
    /// the mean between independent places.
    pub fn seek_sectors(&self) -> u64 {
        self.seek_sectors.map_or(self.profile.sectors / 3, |mean| mean as u64)
    }

    /// `C_switch` of \[C\]: predicted time lost by going elsewhere.
    pub fn switch_cost(&self) -> Nanos {
        self.profile.switch_cost(self.seek_sectors())
    }

    /// The competitive depth of a prefetch that starts at `lba`, in whole pages.
    pub fn depth(&self, lba: Lba) -> Bytes {
        let bytes = self.switch_cost().as_secs_f64() * self.profile.rate_at(lba);
        let pages = (bytes / 4096.0 + 0.5) as u64;
        Bytes(pages.saturating_mul(4096)).clamp(SLOW_START, self.depth_max)
    }

    /// What it goes by.
    pub fn profile(&self) -> &DiskProfile {
        &self.profile
    }
}

/// One reader's way through a file, as far as slow start needs it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlowStart {
    /// Where a sequential reader reads next.
    expected: Option<u64>,
    /// Last depth granted.
    depth: u64,
    /// End of what was prefetched.
    ahead: u64,
}

impl SlowStart {
    /// A reader nothing is known of.
    pub const fn new() -> SlowStart {
        SlowStart { expected: None, depth: 0, ahead: 0 }
    }

    /// The reader asks for `len` bytes at `offset`; the competitive depth there is `depth`. Returns how many bytes to
    /// read from `offset` on if they must come from the disk, at least `len`.
    ///
    /// A stream counts as sequential from its second read in a row on, and at the very start of a file from the
    /// first, as in Linux. Rereading or overlapping what was read last still is sequential; a jump starts anew.
    pub fn read_len(&mut self, offset: u64, len: u64, depth: Bytes) -> u64 {
        let sequential = match self.expected {
            Some(expected) => offset <= expected && expected <= offset.saturating_add(len),
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
            // Inside what the last prefetch brought: nothing is due to grow. If it has to be read again, so much is.
            return len.max(self.ahead - offset);
        }
        let grown = if self.depth == 0 { SLOW_START.0 } else { self.depth.saturating_mul(2) };
        self.depth = grown.min(depth.0.max(SLOW_START.0));
        let granted = self.depth.max(len);
        self.ahead = offset.saturating_add(granted);
        granted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
    fn slow_start_doubles_up_to_the_depth() {
        let mut s = SlowStart::new();
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
        let mut s = SlowStart::new();
        for offset in [1 << 20, 7 << 20, 3 << 20, 1 << 30] {
            assert_eq!(s.read_len(offset, 65536, Bytes::mib(2)), 65536);
        }
        // The second in a row is sequential.
        assert_eq!(s.read_len((1 << 30) + 65536, 4096, Bytes::mib(2)), SLOW_START.0);
    }

    #[test]
    fn small_sequential_reads_do_not_grow_faster_than_they_use() {
        let mut s = SlowStart::new();
        let grants: alloc::vec::Vec<u64> =
            (0..48).map(|i| s.read_len(i * 4096, 4096, Bytes::mib(2))).collect();
        assert_eq!(grants[0], 65536);
        assert_eq!(grants[15], 4096, "the last page of the first prefetch");
        assert_eq!(grants[16], 131_072);
        assert_eq!(grants[47], 4096);
    }

    proptest! {
        /// Equation (5) of \[C\]: with depth C * R the disk's time is at most twice the offline optimum, whatever the
        /// streams' lengths; and with slow start, one more seek for each doubling.
        #[test]
        fn at_most_twice_the_optimum(
            lengths in proptest::collection::vec(1u64..1 << 28, 1..40),
            seek_ms in 0.5f64..30.0,
            rate in 5e6f64..3e8,
        ) {
            let c = seek_ms / 1e3;
            let depth = ((c * rate) as u64).max(SLOW_START.0);
            let (mut total, mut slow, mut best, mut doublings) = (0.0, 0.0, 0.0, 0.0);
            for &length in &lengths {
                let reads = length.div_ceil(depth) as f64;
                total += reads * (c + depth as f64 / rate);
                best += c + length as f64 / rate;
                // The same stream through slow start, read front to back.
                let mut state = SlowStart::new();
                let mut at = 0;
                while at < length {
                    let granted = state.read_len(at, 1, Bytes(depth));
                    prop_assert!(granted <= depth);
                    slow += c + granted as f64 / rate;
                    at += granted;
                    state.expected = Some(at);
                }
                doublings += libm::ceil(libm::log2(depth as f64 / SLOW_START.0 as f64));
            }
            let bound = if depth > SLOW_START.0 { 2.0 } else { 1.0 + depth as f64 / (c * rate) };
            prop_assert!(total <= bound * best * 1.000_001, "{total} > {bound} * {best}");
            prop_assert!(slow <= bound * best * 1.000_001 + doublings * c, "{slow}, best {best}");
        }

        #[test]
        fn reads_are_bounded_and_never_short(
            steps in proptest::collection::vec((any::<u64>(), 0u64..1 << 22), 1..60),
            depth in 0u64..1 << 24,
        ) {
            let mut state = SlowStart::new();
            for (offset, len) in steps {
                let granted = state.read_len(offset, len, Bytes(depth));
                prop_assert!(granted >= len);
                prop_assert!(granted <= len.max(depth).max(SLOW_START.0).max(1 << 24));
            }
        }
    }
}
