//! The costs of a disk: seek time by distance, transfer rate by place, the time of a turn, and the overhead
//! of a command before anything moves.
//!
//! \[C\] section 2 needs two mappings, measured once a disk: from seek distance to seek time, and from place
//! to sequential transfer rate (its Figure 2). [`DiskProfile`] holds them; [`Procedure`] measures them; the
//! text of a stored one is [`StoredProfile`].
//!
//! Distance is kept as a part of the disk's *radius*, not of its addresses. Outer tracks hold more sectors
//! than inner ones, so the same number of sectors is fewer cylinders outside than inside; but since every
//! track takes one turn, the rate curve itself tells how many tracks a range of addresses fills (`integral of
//! d(address) / rate`). With that one curve holds for the whole disk.
//!
//! Must not know: descriptors, paths, sockets, threads, clocks, logging. The driver tells [`Procedure`] how
//! long each read took.
mod concurrency;
mod file;
mod kind;
mod overhead;
mod procedure;
mod rates;
mod reads;
mod rotation;
mod seeks;
mod under_load;
mod vernier;

pub use concurrency::{AT_ONCE, Concurrency, PIECE, STRIPED_AT_ONCE, piece};
pub use file::{ProfileError, SCHEMA, StoredProfile};
pub use kind::{DiskKind, ProbeTimes, ROUNDS, RUN, RUNS, SMALL, place};
pub use procedure::{Phase, Procedure, Unmeasurable};
pub use reads::{ProcedureOptions, Read, Timing};
pub use under_load::LoadTrial;

use alloc::string::String;
use alloc::vec::Vec;

use seekless_base::{Bytes, Lba, Nanos, SECTOR_BYTES};
use serde::{Deserialize, Serialize};

/// The whole radius, in the unit of [`SeekPoint::distance`].
pub const RADIUS: u32 = 1_000_000_000;

/// Sequential transfer rate at one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RatePoint {
    /// The place.
    pub lba: Lba,
    /// Bytes a second of a long sequential read there, track switches included.
    pub bytes_per_second: u64,
}

/// Seek time over one distance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SeekPoint {
    /// Distance in billionths of the radius, see [`RADIUS`].
    pub distance: u32,
    /// Time of the arm's movement with settling; no rotation, no command overhead.
    pub time: Nanos,
}

/// A measured disk. All values are whole numbers, so that a stored profile reads back exactly.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskProfile {
    /// Capacity in 512-byte sectors.
    pub sectors: u64,
    /// Time of one turn; `None` if no rotation was found (solid state, or too many layers in between). Seek
    /// times then include all waits.
    pub rotation: Option<Nanos>,
    /// Time of a read that needs no mechanics.
    pub overhead: Nanos,
    /// Transfer rate by place, ascending addresses, at least one.
    pub rates: Vec<RatePoint>,
    /// Seek time by distance, ascending distances, times not falling, at least one.
    pub seeks: Vec<SeekPoint>,
}

impl DiskProfile {
    /// Assumed for a rotating disk that was not measured: a 7200 rpm drive of the 2010s, 160 MB/s outside and
    /// 80 inside, 0.8 ms for the shortest and 16 ms for the longest seek. Competitive depths computed from it
    /// are within a factor of two of right for every drive between 5400 and 10000 rpm in the catalogue.
    pub fn assumed(sectors: u64) -> DiskProfile {
        let sectors = sectors.max(1);
        let rate =
            |part: u64, mb: u64| RatePoint { lba: Lba(sectors / 8 * part), bytes_per_second: mb * 1_000_000 };
        // a + b * sqrt(d), the usual shape (Ruemmler and Wilkes 1994).
        let seek = |distance: u32| {
            let d = f64::from(distance) / f64::from(RADIUS);
            SeekPoint { distance, time: Nanos::from_millis_f64(0.8 + 15.2 * libm::sqrt(d)) }
        };
        DiskProfile {
            sectors,
            rotation: Some(Nanos(60_000_000_000 / 7200)),
            overhead: Nanos::from_micros(150),
            rates: [rate(0, 160), rate(4, 135), rate(8, 80)].into(),
            seeks: [1, 10_000_000, 100_000_000, 333_333_333, RADIUS].map(seek).into(),
        }
    }

    /// Whether every number is in the range of real disks.
    ///
    /// # Errors
    /// One line that names the first number out of range.
    pub fn check(&self) -> Result<(), String> {
        use alloc::format;
        if self.sectors == 0 {
            return Err("the capacity is zero".into());
        }
        if let Some(turn) = self.rotation {
            // 600000 rpm to 600 rpm: allows software disks that run faster than real time.
            if !(100_000..=100_000_000).contains(&turn.0) {
                return Err(format!("a turn of {turn} is not a disk's"));
            }
        }
        let ten_seconds = Nanos::from_secs(10);
        if self.overhead > ten_seconds {
            return Err(format!("a command overhead of {} is absurd", self.overhead));
        }
        if self.rates.is_empty() || self.seeks.is_empty() {
            return Err("a curve is empty".into());
        }
        // More points than any procedure of ours takes: the file is not ours.
        if self.rates.len() > 10_000 || self.seeks.len() > 10_000 {
            return Err("a curve has over 10000 points".into());
        }
        for pair in self.rates.windows(2) {
            if pair[0].lba >= pair[1].lba {
                return Err(format!(
                    "transfer rates are not in order of address at sector {}",
                    pair[1].lba.0
                ));
            }
        }
        for point in &self.rates {
            if point.lba.0 > self.sectors {
                return Err(format!("a transfer rate lies past the end, at sector {}", point.lba.0));
            }
            if !(10_000..=1_000_000_000_000).contains(&point.bytes_per_second) {
                return Err(format!("{} bytes a second is not a disk's rate", point.bytes_per_second));
            }
        }
        for pair in self.seeks.windows(2) {
            if pair[0].distance >= pair[1].distance {
                return Err("seek times are not in order of distance".into());
            }
            if pair[0].time > pair[1].time {
                return Err("a longer seek takes less time than a shorter one".into());
            }
        }
        for point in &self.seeks {
            if point.distance > RADIUS {
                return Err("a seek is longer than the radius".into());
            }
            if point.time > ten_seconds {
                return Err(format!("a seek of {} is absurd", point.time));
            }
        }
        Ok(())
    }

    /// `f_transfer` of \[C\]: bytes a second of sequential transfer at a place; linear between the measured
    /// places, constant outside of them. At least 1.
    pub fn rate_at(&self, lba: Lba) -> f64 {
        rate_at(&self.rates, lba)
    }

    /// Position of an address between the outermost (0) and the innermost track (1).
    pub fn radius(&self, lba: Lba) -> f64 {
        let whole = tracks_before(&self.rates, self.sectors);
        (tracks_before(&self.rates, lba.0.min(self.sectors)) / whole).clamp(0.0, 1.0)
    }

    /// Time of the arm from one address to another. Zero only for the same address.
    pub fn seek_time(&self, from: Lba, to: Lba) -> Nanos {
        if from == to {
            return Nanos::ZERO;
        }
        self.seek_over((self.radius(from) - self.radius(to)).abs())
    }

    /// `f_seek` of \[C\]: seek time over this many sectors at an average place. Zero for no distance.
    pub fn seek_time_of(&self, sectors: u64) -> Nanos {
        if sectors == 0 {
            return Nanos::ZERO;
        }
        self.seek_over(sectors as f64 / self.sectors.max(1) as f64)
    }

    /// Seek time over a part of the radius, 0 to 1. Between measured distances it is linear in the square
    /// root of the distance, since that is the shape of the accelerating arm; past the last one, the line
    /// continues.
    pub fn seek_over(&self, distance: f64) -> Nanos {
        let root = |point: &SeekPoint| libm::sqrt(f64::from(point.distance) / f64::from(RADIUS));
        let distance = distance.clamp(0.0, 1.0);
        let after = self.seeks.partition_point(|p| f64::from(p.distance) / f64::from(RADIUS) < distance);
        let (Some(first), Some(last)) = (self.seeks.first(), self.seeks.last()) else {
            return Nanos::ZERO;
        };
        if after == 0 {
            return first.time;
        }
        let (a, b) = match self.seeks.get(after) {
            Some(b) => (&self.seeks[after - 1], b),
            None if self.seeks.len() < 2 => return last.time,
            None => (&self.seeks[after - 2], last),
        };
        let part = (libm::sqrt(distance) - root(a)) / (root(b) - root(a)).max(1e-12);
        let time = a.time.0 as f64 + part * (b.time.0 as f64 - a.time.0 as f64);
        Nanos((time + 0.5) as u64).max(first.time)
    }

    /// Half a turn: the mean wait for a sector at an unknown angle.
    pub fn half_turn(&self) -> Nanos {
        Nanos(self.rotation.map_or(0, |turn| turn.0 / 2))
    }

    /// `C_switch` of \[C\]: a seek over this many sectors and half a turn.
    pub fn switch_cost(&self, sectors: u64) -> Nanos {
        self.seek_time_of(sectors) + self.half_turn()
    }

    /// Mean seek time between two independent, evenly spread addresses.
    pub fn mean_seek(&self) -> Nanos {
        self.mean_seek_among(1)
    }

    /// Mean seek time when the nearest of `waiting` evenly spread addresses in the direction of a sweep is
    /// served next: distances of an elevator over a full queue. With 1: two independent addresses.
    pub fn mean_seek_among(&self, waiting: u32) -> Nanos {
        // Density of the distance: 2(1-u) for independent addresses; for a sweep over n points the gap
        // between neighbours has density n(1-u)^(n-1).
        const STEPS: u32 = 400;
        let n = f64::from(waiting.max(1));
        let (mut sum, mut weight) = (0.0, 0.0);
        for i in 0..STEPS {
            let u = (f64::from(i) + 0.5) / f64::from(STEPS);
            // Squeeze the grid towards zero, where the gaps of a long queue lie.
            let (u, du) = (u * u, 2.0 * u);
            let density = if waiting <= 1 { 2.0 * (1.0 - u) } else { n * libm::pow(1.0 - u, n - 1.0) };
            sum += density * du * self.seek_over(u).0 as f64;
            weight += density * du;
        }
        Nanos((sum / weight) as u64)
    }

    /// Mean `C_switch` between two independent addresses.
    pub fn mean_switch(&self) -> Nanos {
        self.mean_seek() + self.half_turn()
    }

    /// What the disk transfers in the time of a mean switch: the competitive depth (\[C\] 2) without a place.
    pub fn mean_depth(&self) -> Bytes {
        Bytes((self.mean_switch().as_secs_f64() * self.mean_rate()) as u64)
    }

    /// Bytes a second of a read of the whole disk from end to end.
    pub fn mean_rate(&self) -> f64 {
        let bytes = self.sectors as f64 * SECTOR_BYTES as f64;
        bytes / tracks_before(&self.rates, self.sectors).max(1e-12)
    }
}

/// Interpolates between measured places.
fn rate_at(rates: &[RatePoint], lba: Lba) -> f64 {
    let after = rates.partition_point(|p| p.lba <= lba);
    let rate = |i: usize| rates[i].bytes_per_second.max(1) as f64;
    match (after, rates.len()) {
        (_, 0) => 1.0,
        (0, _) => rate(0),
        (i, n) if i == n => rate(n - 1),
        (i, _) => {
            let (a, b) = (&rates[i - 1], &rates[i]);
            let part = (lba.0 - a.lba.0) as f64 / (b.lba.0 - a.lba.0) as f64;
            rate(i - 1) + part * (rate(i) - rate(i - 1))
        }
    }
}

/// Seconds to read everything before `lba`, which is proportional to the tracks before it.
fn tracks_before(rates: &[RatePoint], lba: u64) -> f64 {
    let slowness = |at: u64| 1.0 / rate_at(rates, Lba(at));
    let (mut sum, mut from) = (0.0, 0);
    for point in rates.iter().filter(|p| p.lba.0 < lba) {
        sum += (point.lba.0 - from) as f64 * (slowness(from) + slowness(point.lba.0)) / 2.0;
        from = point.lba.0;
    }
    sum += (lba - from) as f64 * (slowness(from) + slowness(lba)) / 2.0;
    sum * SECTOR_BYTES as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_assumed_profile_is_in_range() {
        for sectors in [1, 1_000, 1 << 31, 1 << 40] {
            let profile = DiskProfile::assumed(sectors);
            if sectors > 8 {
                profile.check().unwrap();
            }
            assert!(
                profile.mean_seek() > Nanos::from_millis(5) && profile.mean_seek() < Nanos::from_millis(12)
            );
            let mean = profile.mean_rate();
            assert!((80e6..=160e6).contains(&mean), "{mean}");
        }
    }

    #[test]
    fn a_queue_shortens_seeks() {
        let profile = DiskProfile::assumed(1 << 31);
        let by_queue = [1, 4, 32, 256].map(|n| profile.mean_seek_among(n));
        assert!(by_queue.is_sorted_by(|a, b| a > b), "{by_queue:?}");
    }

    #[test]
    fn outer_sectors_fill_less_of_the_radius() {
        let profile = DiskProfile::assumed(8_000_000);
        let outer = profile.radius(Lba(1_000_000)) - profile.radius(Lba(0));
        let inner = profile.radius(Lba(8_000_000)) - profile.radius(Lba(7_000_000));
        assert!(inner > outer * 1.5, "{inner} {outer}");
        assert!((profile.radius(Lba(u64::MAX)) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn numbers_out_of_range_are_named() {
        let good = DiskProfile::assumed(1 << 30);
        let broken = |change: &dyn Fn(&mut DiskProfile)| {
            let mut profile = good.clone();
            change(&mut profile);
            profile.check().unwrap_err()
        };
        assert!(broken(&|p| p.sectors = 0).contains("capacity"));
        assert!(broken(&|p| p.rotation = Some(Nanos(7))).contains("turn"));
        assert!(broken(&|p| p.rates.clear()).contains("empty"));
        assert!(broken(&|p| p.rates[1].bytes_per_second = 0).contains("rate"));
        assert!(broken(&|p| p.rates[0].lba = Lba(1 << 29)).contains("order"));
        assert!(broken(&|p| p.seeks[2].time = Nanos(0)).contains("longer seek"));
        assert!(broken(&|p| p.seeks[2].distance = 3).contains("order"));
        assert!(broken(&|p| p.seeks[4].time = Nanos::MAX).contains("absurd"));
    }

    proptest! {
        #[test]
        fn seek_time_never_falls_with_distance(a in 0.0f64..1.0, b in 0.0f64..1.0) {
            let profile = DiskProfile::assumed(1 << 31);
            let (near, far) = (a.min(b), a.max(b));
            prop_assert!(profile.seek_over(near) <= profile.seek_over(far));
        }
    }
}
