//! What a read costs this disk, from the profile and from the reads themselves.
//!
//! A read of `n` bytes takes a switch (seek, half a turn, overhead) and the time to transfer `n` bytes. The
//! line through lengths and times of reads has the switch where the length is nothing, and the transfer rate
//! as its slope. The reads must be as many at once as the disk bears: then each has a spindle to itself, or
//! waits for the others at every member of a stripe alike, which leaves the quotient of the two. A disk that
//! was measured is believed instead.
//!
//! Reads of one length show a point and no line. So an assumed profile always counts as much as a few reads
//! do: it gives the slope, the reads the switch, and a size that follows from them shows another point. Where
//! the assumed disk is so slow that nothing is left for a switch, its times are scaled to those of this disk:
//! what disks have in common is the quotient of switch and transfer.

use seekless_profile::DiskProfile;
use seekless_sizing::controller::RECENT;
use seekless_units::{Bytes, Nanos};

/// What the assumed profile counts for, in reads.
const ASSUMED_READS: f64 = 8.0;

/// No disk switches faster or slower, in seconds; what says otherwise is not a disk's doing.
const SWITCH_S: (f64, f64) = (0.0005, 0.05);

/// What the disk transfers in the time of one switch, and what it is learnt from.
#[derive(Clone, Debug)]
pub(crate) struct ServiceModel {
    /// Depth, and bytes a second.
    measured: Option<(Bytes, f64)>,
    assumed: Sums,
    seen: Sums,
    /// Moving average of the time a read takes, with those in flight beside it.
    mean: Nanos,
}

/// Weighted sums over reads: of 1, lengths, times, squares of lengths, products.
type Sums = [f64; 5];

/// Adds a read to sums of which this part is kept.
fn add(sums: &mut Sums, keep: f64, bytes: f64, seconds: f64, weight: f64) {
    let news = [1.0, bytes, seconds, bytes * bytes, bytes * seconds];
    sums.iter_mut().zip(news).for_each(|(sum, news)| *sum = *sum * keep + news * weight);
}

impl ServiceModel {
    /// `measured`: the profile is of this very disk. `first`: how long the first reads will be.
    pub(crate) fn new(profile: &DiskProfile, measured: bool, first: Bytes) -> ServiceModel {
        let (switch, rate) = (profile.mean_switch().as_secs_f64(), profile.mean_rate().max(1.0));
        let mut model = ServiceModel {
            measured: measured.then(|| (profile.mean_depth(), rate)),
            assumed: Sums::default(),
            seen: Sums::default(),
            mean: Nanos::from_secs_f64(switch + first.0 as f64 / rate),
        };
        // Two lengths make a line.
        for depths in [0.5, 4.0] {
            let bytes = depths * profile.mean_depth().0 as f64;
            add(&mut model.assumed, 1.0, bytes, switch + bytes / rate, ASSUMED_READS / 2.0);
        }
        model
    }

    /// A read ended well. `shows`: no more were in flight than the disk bears, and it delivered all bytes.
    pub(crate) fn observe(&mut self, bytes: u64, took: Nanos, shows: bool) {
        // An eighth of the news: settles within a dozen reads, shrugs off one slow one.
        self.mean.0 = self.mean.0 - self.mean.0 / 8 + took.0 / 8;
        if shows && bytes > 0 {
            let recent = f64::from(RECENT);
            let keep = if self.seen[0] > recent { 1.0 - 1.0 / recent } else { 1.0 };
            add(&mut self.seen, keep, bytes as f64, took.as_secs_f64(), 1.0);
        }
    }

    /// How long a read takes now.
    pub(crate) fn mean(&self) -> Nanos {
        self.mean
    }

    /// Time that the reads took, over what the assumed disk would have taken for the same.
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

    /// Bytes that the disk transfers in a second, without switches.
    pub(crate) fn rate(&self) -> f64 {
        self.measured.unwrap_or_else(|| self.learnt()).1
    }

    /// What the disk transfers in this time, without switches.
    pub(crate) fn transfers_in(&self, time: Nanos) -> Bytes {
        Bytes((self.rate() * time.as_secs_f64()) as u64)
    }

    /// Seconds of a switch, and for each byte, where the assumed disk takes `pace` times as long.
    fn line(&self, pace: f64) -> (f64, f64) {
        let [n, x, y, xx, xy] = self.assumed;
        let assumed = [n, x, y * pace, xx, xy * pace];
        let [n, x, y, xx, xy] = core::array::from_fn(|i| assumed[i] + self.seen[i]);
        let slope = ((n * xy - x * y) / (n * xx - x * x)).max(1e-10);
        ((y - slope * x) / n, slope)
    }

    /// Depth, and bytes a second, from the reads.
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

    /// After so many reads of 1 to 8 MiB by a disk of this switch and rate.
    fn after(reads: u64, switch_s: f64, rate: f64) -> ServiceModel {
        let mut model = ServiceModel::new(&DiskProfile::assumed(1 << 31), false, Bytes::mib(2));
        for i in 0..reads {
            let bytes = (1 + i % 8) * M;
            // A seek is longer or shorter by a third.
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
        // 15,000 rpm. Nearly all reads are as long as what its clients ask for.
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
        // A server's own reads lie between the first ones: they take long for each byte.
        let mut model = ServiceModel::new(&DiskProfile::assumed(1 << 31), false, Bytes::mib(2));
        for i in 0..200 {
            let bytes = (1 + i % 8) * M;
            model.observe(bytes, Nanos::from_secs_f64(bytes as f64 / 20e6), true);
        }
        // The size is small from then on, and the disk its own.
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
