//! What a read costs on this disk, learnt from the profile and from the reads themselves.
//!
//! A read of `n` bytes takes a switch (seek, half a turn, overhead) and the time to transfer `n` bytes. A
//! line fitted to lengths and times of reads has the switch as its value at length 0, and the inverse of the
//! transfer rate as its slope. The number of reads in flight must be the number that the disk takes at once:
//! then each read has a spindle to itself, or waits for the others at every member of a stripe alike, which
//! keeps the ratio of the two. If the disk was measured, the measured profile counts instead.
//!
//! Reads of one length give a point and no line. So an assumed profile always counts as much as a few reads:
//! it gives the slope and the reads give the switch, and a size that follows from them gives another point.
//! If the assumed disk is so slow that no time is left for a switch, its times are scaled to those of this
//! disk, because disks have the ratio of switch and transfer in common.

use seekless_base::{Bytes, Nanos};

use crate::profile::DiskProfile;
use crate::sizing::controller::RECENT;

/// Weight of the assumed profile, in reads.
const ASSUMED_READS: f64 = 8.0;

/// Fastest and slowest switch of any disk, in seconds. A value outside has another cause than the disk.
const SWITCH_S: (f64, f64) = (0.0005, 0.05);

/// What the disk transfers in the time of one switch, and the sums that this is learnt from.
#[derive(Clone, Debug)]
pub(crate) struct ServiceModel {
    /// Depth, and bytes a second, of a measured disk.
    measured: Option<(Bytes, f64)>,
    assumed: Sums,
    seen: Sums,
    /// Moving average of the time of a read, including its wait for other reads in flight.
    mean: Nanos,
}

/// Weighted sums over reads: of 1, lengths, times, squares of lengths, products.
type Sums = [f64; 5];

/// Adds a read to sums, after scaling them by `keep`.
fn add(sums: &mut Sums, keep: f64, bytes: f64, seconds: f64, weight: f64) {
    let news = [1.0, bytes, seconds, bytes * bytes, bytes * seconds];
    sums.iter_mut().zip(news).for_each(|(sum, news)| *sum = *sum * keep + news * weight);
}

impl ServiceModel {
    /// `measured` says whether the profile is of this very disk. `first` is the expected length of the first
    /// reads.
    pub(crate) fn new(profile: &DiskProfile, measured: bool, first: Bytes) -> ServiceModel {
        let (switch, rate) = (profile.mean_switch().as_secs_f64(), profile.mean_rate().max(1.0));
        let mut model = ServiceModel {
            measured: measured.then(|| (profile.mean_depth(), rate)),
            assumed: Sums::default(),
            seen: Sums::default(),
            mean: Nanos::from_secs_f64(switch + first.0 as f64 / rate),
        };
        // A line needs two lengths.
        for depths in [0.5, 4.0] {
            let bytes = depths * profile.mean_depth().0 as f64;
            add(&mut model.assumed, 1.0, bytes, switch + bytes / rate, ASSUMED_READS / 2.0);
        }
        model
    }

    /// A read ended well. `shows` says whether the read is evidence: no more reads were in flight than the
    /// disk takes, and the disk delivered all bytes.
    pub(crate) fn observe(&mut self, bytes: u64, took: Nanos, shows: bool) {
        // Each read has a weight of one eighth, so that the mean settles within a dozen reads and one slow
        // read hardly counts.
        self.mean.0 = self.mean.0 - self.mean.0 / 8 + took.0 / 8;
        if shows && bytes > 0 {
            let recent = f64::from(RECENT);
            let keep = if self.seen[0] > recent { 1.0 - 1.0 / recent } else { 1.0 };
            add(&mut self.seen, keep, bytes as f64, took.as_secs_f64(), 1.0);
        }
    }

    /// Mean time of a read at present.
    pub(crate) fn mean(&self) -> Nanos {
        self.mean
    }

    /// Time that the reads took, divided by the time that the assumed disk would have taken.
    fn pace(&self) -> f64 {
        let [reads, bytes, seconds, ..] = self.seen;
        let [n, x, y, xx, xy] = self.assumed;
        let slope = (n * xy - x * y) / (n * xx - x * x);
        let expected = reads * (y - slope * x) / n + slope * bytes;
        if expected > 0.0 { seconds / expected } else { 1.0 }
    }

    /// What the disk transfers in the time of one switch.
    pub(crate) fn depth(&self) -> Bytes {
        self.measured.unwrap_or_else(|| self.learnt()).0
    }

    /// Transfer rate of the disk, bytes a second, without switches.
    pub(crate) fn rate(&self) -> f64 {
        self.measured.unwrap_or_else(|| self.learnt()).1
    }

    /// What the disk transfers in this time, without switches.
    pub(crate) fn transfers_in(&self, time: Nanos) -> Bytes {
        Bytes((self.rate() * time.as_secs_f64()) as u64)
    }

    /// Seconds of a switch, and seconds per byte, if the assumed disk took `pace` times as long.
    fn line(&self, pace: f64) -> (f64, f64) {
        let [n, x, y, xx, xy] = self.assumed;
        let assumed = [n, x, y * pace, xx, xy * pace];
        let [n, x, y, xx, xy] = core::array::from_fn(|i| assumed[i] + self.seen[i]);
        let slope = ((n * xy - x * y) / (n * xx - x * x)).max(1e-10);
        ((y - slope * x) / n, slope)
    }

    /// Depth, and bytes a second, learnt from the reads.
    fn learnt(&self) -> (Bytes, f64) {
        let as_assumed = self.line(1.0);
        let (switch, slope) = if as_assumed.0 > SWITCH_S.0 { as_assumed } else { self.line(self.pace()) };
        let switch = switch.clamp(SWITCH_S.0, SWITCH_S.1);
        (Bytes((switch / slope) as u64).clamp(Bytes::kib(64), Bytes::mib(64)), 1.0 / slope)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const M: u64 = 1 << 20;

    /// The model after this many reads of 1 to 8 MiB on a disk of this switch and rate.
    fn after(reads: u64, switch_s: f64, rate: f64) -> ServiceModel {
        let mut model = ServiceModel::new(&DiskProfile::assumed(1 << 31), false, Bytes::mib(2));
        for i in 0..reads {
            let bytes = (1 + i % 8) * M;
            // Seeks vary by a third.
            let switch = switch_s * (0.67 + 0.33 * (i % 3) as f64);
            model.observe(bytes, Nanos::from_secs_f64(switch + bytes as f64 / rate), true);
        }
        model
    }

    #[test]
    fn a_disk_shows_its_depth_by_its_reads() {
        for (switch, rate) in [(0.015, 60e6), (0.006, 290e6), (0.004, 120e6)] {
            let (depth, real) = (after(400, switch, rate).depth().0 as f64, switch * rate);
            assert!((depth / real - 1.0).abs() < 0.2, "{depth} of {real}");
        }
    }

    #[test]
    fn a_faster_disk_than_assumed_switches_all_the_same() {
        // 15,000 rpm. Nearly all reads have the length that its clients request.
        let mut model = ServiceModel::new(&DiskProfile::assumed(1 << 31), false, Bytes::mib(2));
        for i in 0..2_000u64 {
            let bytes = if i % 8 == 0 { 768 << 10 } else { 2 * M };
            let switch = 0.003 * (0.5 + (i % 3) as f64 / 2.0);
            model.observe(bytes, Nanos::from_secs_f64(switch + bytes as f64 / 180e6), true);
        }
        let depth = model.depth().0 as f64;
        assert!((0.5..2.0).contains(&(depth / 0.54e6)), "{depth}");
    }

    #[test]
    fn reads_of_one_length_do_not_hide_a_switch() {
        // A server's own reads interleave with the first ones, so these take long for each byte.
        let mut model = ServiceModel::new(&DiskProfile::assumed(1 << 31), false, Bytes::mib(2));
        for i in 0..200 {
            let bytes = (1 + i % 8) * M;
            model.observe(bytes, Nanos::from_secs_f64(bytes as f64 / 20e6), true);
        }
        // From here on the size is small, and no other reads interleave.
        for _ in 0..5_000 {
            model.observe(768 << 10, Nanos::from_secs_f64(0.012 + 768.0 * 1024.0 / 100e6), true);
        }
        let depth = model.depth().0 as f64;
        assert!((0.5..2.0).contains(&(depth / 1.2e6)), "{depth}");
    }

    #[test]
    fn a_measured_disk_is_believed() {
        let profile = DiskProfile::assumed(1 << 31);
        let mut model = ServiceModel::new(&profile, true, Bytes::mib(2));
        (0..100).for_each(|_| model.observe(M, Nanos::from_secs(1), true));
        assert_eq!(model.depth(), profile.mean_depth());
        assert!(model.mean() > Nanos::from_millis(900));
    }

    #[test]
    fn nonsense_stays_within_bounds() {
        let mut model = ServiceModel::new(&DiskProfile::assumed(1 << 31), false, Bytes::mib(2));
        for took in [Nanos::ZERO, Nanos::MAX, Nanos::from_secs(3600)] {
            (0..50).for_each(|i| model.observe(i * M, took, true));
            assert!((Bytes::kib(64)..=Bytes::mib(64)).contains(&model.depth()));
        }
    }
}
