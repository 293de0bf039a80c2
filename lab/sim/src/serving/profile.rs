//! What `seekless disk profile` would find on a modelled drive, taken from the model itself: the procedure
//! comes within 5 % of it (crate `disk`, tests).

use seekless_base::{Lba, Nanos};
use seekless_model::drive::DriveSpec;
use seekless_model::drive::set::{SetKind, SetSpec};
use seekless_policy::profile::{DiskProfile, RADIUS, RatePoint, SeekPoint};

/// Places at which the transfer rate is taken.
const RATES: u64 = 16;

/// Distances at which the seek time is taken, closer to each other where the curve is steep.
const SEEKS: u32 = 24;

/// Time of a command beside the mechanics: the usual tenth of a millisecond of host, bus and firmware.
const OVERHEAD: Nanos = Nanos::from_micros(100);

/// The profile of a drive, or of a set of such drives: a long sequential read of a striped set is brought by
/// all members with data.
pub fn profile_of(drive: &DriveSpec, set: &SetSpec) -> DiskProfile {
    let sectors = drive.sectors();
    let striped = if set.kind.stripes() { u64::from(set.data_members()) } else { 1 };
    // One behind the other, members show their curves one behind the other.
    let in_line = if set.kind == SetKind::Linear { u64::from(set.spindles()) } else { 1 };
    let share =
        if set.kind == SetKind::Linear { sectors / u64::from(set.actuators) } else { sectors * striped };
    let rates = (0..in_line).flat_map(|n| {
        // The first point of the next curve has its own place.
        let last = if n + 1 == in_line { RATES } else { RATES - 1 };
        (0..=last).map(move |i| {
            let rate = drive.media_rate(Lba((sectors - 1) / RATES * i)) as u64 * striped;
            RatePoint { lba: Lba(share * n + (share - 1) / RATES * i), bytes_per_second: rate }
        })
    });
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
        sectors: share * in_line,
        rotation: Some(drive.rotation_period()),
        overhead: OVERHEAD,
        rates: rates.collect(),
        seeks,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_drive_has_a_profile_in_range() {
        for name in seekless_model::drive::catalogue::names() {
            let drive = seekless_model::drive::catalogue::get(name).unwrap();
            let profile = profile_of(&drive, &SetSpec::SINGLE);
            profile.check().unwrap_or_else(|why| panic!("{name}: {why}"));
            let full = drive.seek_time_over(drive.cylinders() - 1).0 as f64;
            let found = profile.seek_over(1.0).0 as f64;
            assert!((found / full - 1.0).abs() < 0.02, "{name}: {found} {full}");
        }
    }

    #[test]
    fn a_set_has_the_rate_of_the_members_that_bring_data() {
        let drive = seekless_model::drive::catalogue::get("wd-red-1tb").unwrap();
        let one = profile_of(&drive, &SetSpec::SINGLE);
        for kind in SetKind::ALL {
            let set = SetSpec { kind, members: 4, ..SetSpec::SINGLE };
            let profile = profile_of(&drive, &set);
            profile.check().unwrap_or_else(|why| panic!("{kind}: {why}"));
            let times = profile.rate_at(Lba(0)) / one.rate_at(Lba(0));
            let brings = if kind.stripes() { f64::from(set.data_members()) } else { 1.0 };
            assert!((times - brings).abs() < 0.01, "{kind}: {times}");
            let end = Lba(profile.sectors - 1);
            assert!((profile.rate_at(end) / brings / one.rate_at(Lba(one.sectors - 1)) - 1.0).abs() < 0.01);
        }
    }
}
