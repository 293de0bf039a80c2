//! What a read costs on this disk, learnt from the profile and from the reads themselves.
//!
//! A read of `n` bytes takes a switch (seek, half a turn, overhead) and the time to transfer `n` bytes. Each
//! read shows both: once its first bytes have come, the disk only transfers, which gives the rate. The time
//! until then, less the transfer of the first bytes, is the switch. The number of reads in flight must be
//! the number that the disk takes at once: then each read has a spindle to itself, or waits for the others
//! at every member of a stripe alike, which keeps the ratio of the two.
//!
//! The disk's profile, measured or assumed, counts at the start. A profile has the mean seek of the whole
//! disk; a sweep over many streams has shorter ones, so reads soon know better.

use seekless_base::{Bytes, Nanos};

use crate::profile::DiskProfile;
use crate::sizing::controller::RECENT;

/// Weight of the profile, in reads, at the start. It fades as older reads do.
const PROFILE_READS: f64 = 8.0;

/// Fastest and slowest switch of any disk, in seconds. A value outside has another cause than the disk.
const SWITCH_S: (f64, f64) = (0.0005, 0.05);

/// Bytes reported this soon after a read's first ones came with them: what the kernel requests of the disk
/// at a time arrives as a whole, and is reported in parts.
const TOGETHER: Nanos = Nanos::from_millis(1);

/// When the first bytes of a read came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FirstBytes {
    /// Since the read was submitted.
    after: Nanos,
    bytes: u64,
}

impl FirstBytes {
    /// A read has come as far as `bytes`, in this time since it was submitted.
    pub(crate) fn note(first: &mut Option<FirstBytes>, after: Nanos, bytes: u64) {
        let first = first.get_or_insert(FirstBytes { after, bytes });
        if after.since(first.after) <= TOGETHER {
            first.bytes = bytes;
        }
    }
}

/// What the disk transfers in the time of one switch, and the means that this is learnt from.
#[derive(Clone, Debug)]
pub(crate) struct ServiceModel {
    /// Bytes transferred, and reads that switched, with the seconds of both.
    transfers: Mean,
    switches: Mean,
    /// Moving average of the time of a read, including its wait for other reads in flight.
    mean: Nanos,
}

/// Seconds for an amount, over recent reads.
#[derive(Clone, Copy, Debug)]
struct Mean {
    amount: f64,
    seconds: f64,
}

impl Mean {
    fn add(&mut self, amount: f64, seconds: f64) {
        let keep = 1.0 - 1.0 / f64::from(RECENT);
        self.amount = self.amount * keep + amount;
        self.seconds = self.seconds * keep + seconds;
    }

    fn per_unit(&self) -> f64 {
        self.seconds / self.amount
    }
}

impl ServiceModel {
    /// `first` is the expected length of the first reads.
    pub(crate) fn new(profile: &DiskProfile, first: Bytes) -> ServiceModel {
        let (switch, rate) = (profile.mean_switch().as_secs_f64(), profile.mean_rate().max(1.0));
        let transferred = PROFILE_READS * profile.mean_depth().0.max(1) as f64;
        ServiceModel {
            transfers: Mean { amount: transferred, seconds: transferred / rate },
            switches: Mean { amount: PROFILE_READS, seconds: PROFILE_READS * switch },
            mean: Nanos::from_secs_f64(switch + first.0 as f64 / rate),
        }
    }

    /// A read ended well. `shows` says whether the read is evidence: no more reads were in flight than the
    /// disk takes, and the disk delivered all bytes.
    pub(crate) fn observe(&mut self, bytes: u64, took: Nanos, first: Option<FirstBytes>, shows: bool) {
        // Each read has a weight of one eighth, so that the mean settles within a dozen reads and one slow
        // read hardly counts.
        self.mean.0 = self.mean.0 - self.mean.0 / 8 + took.0 / 8;
        if !shows || bytes == 0 {
            return;
        }
        let first = first.unwrap_or(FirstBytes { after: took, bytes });
        let (rest, transfer) = (bytes.saturating_sub(first.bytes), took.since(first.after));
        if rest > 0 && transfer > TOGETHER {
            self.transfers.add(rest as f64, transfer.as_secs_f64());
        }
        let switch = first.after.as_secs_f64() - first.bytes as f64 * self.transfers.per_unit();
        self.switches.add(1.0, switch.clamp(0.0, SWITCH_S.1));
    }

    /// Mean time of a read at present.
    pub(crate) fn mean(&self) -> Nanos {
        self.mean
    }

    /// What the disk transfers in the time of one switch.
    pub(crate) fn depth(&self) -> Bytes {
        let switch = self.switches.per_unit().clamp(SWITCH_S.0, SWITCH_S.1);
        Bytes((switch * self.rate()) as u64).clamp(Bytes::kib(64), Bytes::mib(64))
    }

    /// Transfer rate of the disk, bytes a second, without switches.
    pub(crate) fn rate(&self) -> f64 {
        1.0 / self.transfers.per_unit().max(1e-10)
    }

    /// What the disk transfers in this time, without switches.
    pub(crate) fn transfers_in(&self, time: Nanos) -> Bytes {
        Bytes((self.rate() * time.as_secs_f64()) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const M: u64 = 1 << 20;

    fn unknown() -> ServiceModel {
        ServiceModel::new(&DiskProfile::assumed(1 << 31), Bytes::mib(2))
    }

    /// A read on a disk of this switch and rate, reported in steps of a quarter of a MiB. The kernel requests
    /// 1 MiB of the disk at a time.
    fn read(model: &mut ServiceModel, bytes: u64, switch_s: f64, rate: f64) {
        let after = |bytes: u64| Nanos::from_secs_f64(switch_s + bytes as f64 / rate);
        let mut first = None;
        for came in (M / 4..bytes).step_by(M as usize / 4) {
            let whole = came.next_multiple_of(M).min(bytes);
            FirstBytes::note(&mut first, after(whole) + Nanos::from_micros(came / M), came);
        }
        model.observe(bytes, after(bytes), first, true);
    }

    #[test]
    fn a_disk_shows_its_depth_by_reads_of_any_length() {
        for (switch, rate) in [(0.015, 60e6), (0.006, 290e6), (0.004, 120e6), (0.003, 180e6)] {
            for (shortest, longest) in [(1, 8), (2, 2), (6, 6)] {
                let mut model = unknown();
                for i in 0..400 {
                    // Seeks vary by a third.
                    let switch = switch * (0.67 + 0.33 * (i % 3) as f64);
                    let bytes = shortest + i % (longest - shortest + 1);
                    read(&mut model, bytes * M, switch, rate);
                }
                let (depth, real) = (model.depth().0 as f64, switch * rate);
                assert!((depth / real - 1.0).abs() < 0.15, "{depth} of {real}, {shortest} to {longest} MiB");
                assert!((model.rate() / rate - 1.0).abs() < 0.05, "{} of {rate}", model.rate());
            }
        }
    }

    #[test]
    fn a_dozen_reads_tell_more_than_the_profile() {
        let mut model = unknown();
        let assumed = model.depth().0 as f64;
        (0..12).for_each(|_| read(&mut model, 4 * M, 0.004, 250e6));
        let depth = model.depth().0 as f64;
        assert!((depth - 1e6).abs() < (depth - assumed).abs(), "{depth}, assumed {assumed}");
    }

    #[test]
    fn reads_that_come_as_a_whole_show_their_switch() {
        let mut model = unknown();
        (0..50).for_each(|_| read(&mut model, 8 * M, 0.012, 100e6));
        // From here on no read tells the rate.
        (0..2_000).for_each(|_| read(&mut model, M / 4, 0.006, 100e6));
        assert!((model.depth().0 as f64 / 0.6e6 - 1.0).abs() < 0.1, "{}", model.depth().0);
    }

    #[test]
    fn other_reads_meanwhile_are_forgotten() {
        let mut model = unknown();
        // A server's own reads interleave with the first ones, so these take long for each byte.
        (0..200).for_each(|i| read(&mut model, (1 + i % 8) * M, 0.05, 20e6));
        (0..2_000).for_each(|_| read(&mut model, 3 * M, 0.012, 100e6));
        assert!((model.depth().0 as f64 / 1.2e6 - 1.0).abs() < 0.1, "{}", model.depth().0);
    }

    #[test]
    fn nonsense_stays_within_bounds() {
        let mut model = unknown();
        for took in [Nanos::ZERO, Nanos::MAX, Nanos::from_secs(3600)] {
            for first in [None, Some(FirstBytes { after: Nanos::MAX, bytes: u64::MAX })] {
                (0..50).for_each(|i| model.observe(i * M, took, first, true));
                assert!((Bytes::kib(64)..=Bytes::mib(64)).contains(&model.depth()));
                assert!(model.rate().is_finite() && model.rate() > 0.0);
            }
        }
    }
}
