//! What `seekless disk profile` would find on a modelled drive, taken from the model itself: the procedure comes within 5 % of it
//! (crate `disk`, tests).

use seekless_drive::DriveSpec;
use seekless_profile::{DiskProfile, RADIUS, RatePoint, SeekPoint};
use seekless_units::{Lba, Nanos};

/// Places at which the transfer rate is taken.
const RATES: u64 = 16;

/// Distances at which the seek time is taken, closer to each other where the curve is steep.
const SEEKS: u32 = 24;

/// Time of a command beside the mechanics: the usual tenth of a millisecond of host, bus and firmware.
const OVERHEAD: Nanos = Nanos::from_micros(100);

/// The profile of a drive.
pub fn profile_of(drive: &DriveSpec) -> DiskProfile {
    let sectors = drive.sectors();
    let rate = |i: u64| {
        let lba = Lba((sectors - 1) / RATES * i);
        RatePoint { lba, bytes_per_second: drive.media_rate(lba) as u64 }
    };
    let cylinders = f64::from(drive.cylinders());
    let mut longest = Nanos::ZERO;
    let mut seeks = Vec::new();
    for i in 1..=SEEKS {
        let part = (f64::from(i) / f64::from(SEEKS)).powi(2);
        let over = ((cylinders - 1.0) * part).max(1.0);
        let distance = ((over / cylinders * f64::from(RADIUS)) as u32).clamp(1, RADIUS);
        // Tables of old drives are not smooth; a profile never falls.
        longest = longest.max(drive.seek_time_over(over as u32));
        if seeks.last().is_none_or(|last: &SeekPoint| last.distance < distance) {
            seeks.push(SeekPoint { distance, time: longest });
        }
    }
    DiskProfile {
        sectors,
        rotation: Some(drive.rotation_period()),
        overhead: OVERHEAD,
        rates: (0..=RATES).map(rate).collect(),
        seeks,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_drive_has_a_profile_in_range() {
        for name in seekless_drive::catalogue::names() {
            let drive = seekless_drive::catalogue::get(name).unwrap();
            let profile = profile_of(&drive);
            profile.check().unwrap_or_else(|why| panic!("{name}: {why}"));
            let full = drive.seek_time_over(drive.cylinders() - 1).0 as f64;
            let found = profile.seek_over(1.0).0 as f64;
            assert!((found / full - 1.0).abs() < 0.02, "{name}: {found} {full}");
        }
    }
}
