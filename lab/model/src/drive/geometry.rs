//! The place of a sector, and when it passes under a head.
//!
//! A platter turns at a constant speed, so the angle under the heads is a function of time alone: `t mod
//! period`. A sector's angle follows from its place on the track and from the skew that shifts each track's
//! first sector so that a switch to the next track does not miss it. Addresses run along a track, then
//! through the heads of a cylinder, then to the next cylinder inwards. Everything here is integer nanoseconds
//! and whole sectors, with one rounding rule (`floor(position * period / sectors per track)`), so that a
//! stream resumed in mid-track meets its next sector at the very nanosecond the one before it ended instead
//! of missing it by one and losing a turn.

use alloc::vec::Vec;

use crate::drive::seek::SeekCurve;

/// One zone of the description: tracks of equal length, consecutive addresses.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Zone {
    pub(crate) first_lba: u64,
    pub(crate) lbas: u64,
    pub(crate) first_cylinder: u32,
    pub(crate) sectors_per_track: u64,
    pub(crate) track_skew: u64,
    pub(crate) cylinder_skew: u64,
}

/// A track that the heads can be over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Track {
    pub(crate) cylinder: u32,
    pub(crate) head: u32,
}

/// A sector's place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) track: Track,
    /// Which sector of its track, before skew.
    sector: u64,
    /// The same with the track's skew, less than one turn.
    position: u64,
    /// The angle, in nanoseconds of rotation, at which it starts.
    angle: u64,
    sectors_per_track: u64,
}

/// The zones of a drive, by address.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Zones {
    all: Vec<Zone>,
    /// Number of the zone in which each stretch of 2^`stretch_bits` addresses begins: every command looks up
    /// zones, and a drive has tens.
    begins_in: Vec<u32>,
    stretch_bits: u32,
}

impl Zones {
    /// Minimum number of stretches; there are at most about twice as many. That is many more than zones, so
    /// that few contain a boundary. With half, twice as many contain one; with double, the table is up to 4
    /// KiB.
    const STRETCHES: u64 = 256;

    /// Made of zones in order of address, at least one.
    pub(crate) fn new(all: Vec<Zone>) -> Zones {
        let addresses = all.last().map_or(1, |last| last.first_lba + last.lbas);
        let stretch_bits = (addresses / Zones::STRETCHES).checked_ilog2().unwrap_or(0);
        let first = |stretch: u64| stretch << stretch_bits;
        let begins_in = (0..=(addresses - 1) >> stretch_bits)
            .map(|stretch| all.partition_point(|z| z.first_lba <= first(stretch)) as u32 - 1)
            .collect();
        Zones { all, begins_in, stretch_bits }
    }

    /// The zone of an address; addresses past the end count as the last.
    fn of(&self, lba: u64) -> &Zone {
        let stretch = ((lba >> self.stretch_bits) as usize).min(self.begins_in.len() - 1);
        let mut zone = self.begins_in[stretch] as usize;
        while self.all.get(zone + 1).is_some_and(|next| next.first_lba <= lba) {
            zone += 1;
        }
        &self.all[zone]
    }
}

/// The state of the heads: where they are, and since when they can read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    /// The track under the heads.
    pub(crate) track: Track,
    /// When they come to rest there, in nanoseconds.
    pub(crate) at: u64,
}

/// The mechanical layout of a drive.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Geometry {
    pub(crate) period: u64,
    pub(crate) heads: u32,
    pub(crate) cylinders: u32,
    pub(crate) sectors: u64,
    pub(crate) zones: Zones,
    pub(crate) head_switch: u64,
    pub(crate) seek: SeekCurve,
}

impl Geometry {
    /// The zone of an address; addresses past the end count as the last.
    pub(crate) fn zone(&self, lba: u64) -> &Zone {
        self.zones.of(lba)
    }

    /// The place of an address.
    pub(crate) fn place(&self, lba: u64) -> Place {
        self.place_in(self.zone(lba), lba)
    }

    /// The place of an address in this zone.
    fn place_in(&self, zone: &Zone, lba: u64) -> Place {
        let spt = zone.sectors_per_track;
        let within = (lba - zone.first_lba).min(zone.lbas.saturating_sub(1));
        let (track, sector) = (within / spt, within % spt);
        let heads = u64::from(self.heads);
        let (cylinder, head) = (track / heads, track % heads);
        // Each cylinder adds one cylinder skew and a track skew for every head but the first.
        let per_cylinder = zone.cylinder_skew + (heads - 1) * zone.track_skew;
        let position = (sector + cylinder * per_cylinder + head * zone.track_skew) % spt;
        let track = Track { cylinder: zone.first_cylinder + cylinder as u32, head: head as u32 };
        Place { track, sector, position, angle: position * self.period / spt, sectors_per_track: spt }
    }

    /// The address after the last one of the track that holds `lba`.
    pub(crate) fn track_end(&self, lba: u64) -> u64 {
        let zone = self.zone(lba);
        let track = (lba - zone.first_lba) / zone.sectors_per_track;
        zone.first_lba + ((track + 1) * zone.sectors_per_track).min(zone.lbas)
    }

    /// Time to bring the heads from one track to another, rotation not counted.
    pub(crate) fn move_time(&self, from: Track, to: Track) -> u64 {
        match (from.cylinder.abs_diff(to.cylinder), from.head == to.head) {
            (0, true) => 0,
            (0, false) => self.head_switch,
            // The new head's servo is found while the arm moves, so the longer of the two counts.
            (distance, _) => self.seek.time(distance).max(self.head_switch),
        }
    }

    /// The wait from `at` until the start of the sector at `place` comes round.
    pub(crate) fn wait(&self, at: u64, place: &Place) -> u64 {
        let now = at % self.period;
        if place.angle >= now { place.angle - now } else { place.angle + self.period - now }
    }

    /// The time in which `sectors` sectors from `place` on pass, all on its track.
    fn passage(&self, place: &Place, sectors: u64) -> u64 {
        (place.position + sectors) * self.period / place.sectors_per_track - place.angle
    }

    /// Reads or writes on from `lba`, track after track, until `limit` is reached or the next sector would
    /// end after `until`. Returns the first address that was not reached; `head` is where and when the
    /// passage ended. One step for each track, not for each sector.
    pub(crate) fn sweep(&self, head: &mut Head, mut lba: u64, limit: u64, until: u64) -> u64 {
        let limit = limit.min(self.sectors);
        while lba < limit {
            let zone = self.zone(lba);
            let place = self.place_in(zone, lba);
            let arrive = head.at + self.move_time(head.track, place.track);
            let start = arrive + self.wait(arrive, &place);
            let on_track = place.sectors_per_track - place.sector;
            let in_zone = zone.first_lba + zone.lbas - lba;
            let run = on_track.min(in_zone).min(limit - lba);
            let end = start + self.passage(&place, run);
            if end <= until {
                *head = Head { track: place.track, at: end };
                lba += run;
                continue;
            }
            if until <= start {
                break;
            }
            // Whole sectors that end by `until`: the largest n with passage(n) <= until - start.
            let spt = place.sectors_per_track;
            let reach = until - start + place.angle;
            let whole = (((reach + 1) * spt - 1) / self.period).saturating_sub(place.position).min(run);
            if whole > 0 {
                *head = Head { track: place.track, at: start + self.passage(&place, whole) };
                lba += whole;
            }
            break;
        }
        lba
    }

    /// Bytes a second of a long sequential read around `lba`, switches included.
    pub(crate) fn media_rate(&self, lba: u64) -> f64 {
        let zone = self.zone(lba);
        let heads = u64::from(self.heads);
        let data = heads * zone.sectors_per_track;
        // A switch costs the skew, or whole turns more if the skew is too short for it.
        let cost = |skew: u64, switch: u64| {
            let skew = skew * self.period / zone.sectors_per_track;
            if skew >= switch { skew } else { skew + (switch - skew).div_ceil(self.period) * self.period }
        };
        let cylinder_switch = self.seek.time(1).max(self.head_switch);
        let time = heads * self.period
            + (heads - 1) * cost(zone.track_skew, self.head_switch)
            + cost(zone.cylinder_skew, cylinder_switch);
        (data * seekless_base::SECTOR_BYTES) as f64 * 1e9 / time as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::catalogue;
    use proptest::prelude::*;

    fn geometry(pick: usize) -> Geometry {
        let names = catalogue::names().count();
        let name = catalogue::names().nth(pick % names).unwrap();
        catalogue::get(name).unwrap().geometry
    }

    #[test]
    fn every_address_has_one_place() {
        // The last sector of each zone and the first of the next are where the tables say.
        for pick in 0..catalogue::names().count() {
            let g = geometry(pick);
            for zone in &g.zones.all[1..] {
                let (last, first) = (g.place(zone.first_lba - 1), g.place(zone.first_lba));
                assert!(last.track.cylinder < zone.first_cylinder);
                assert_eq!(
                    (first.track.cylinder, first.track.head, first.sector),
                    (zone.first_cylinder, 0, 0)
                );
            }
            assert!(g.place(g.sectors - 1).track.cylinder < g.cylinders);
        }
    }

    proptest! {
        #[test]
        fn an_address_is_in_the_last_zone_that_begins_before_it(
            lengths in prop::collection::vec(1..100_000u64, 1..40), at in 0.0..1.2f64,
        ) {
            let mut first_lba = 0;
            let zone = |&lbas: &u64| {
                first_lba += lbas;
                Zone {
                    first_lba: first_lba - lbas,
                    lbas,
                    first_cylinder: 0,
                    sectors_per_track: 1,
                    track_skew: 0,
                    cylinder_skew: 0,
                }
            };
            let all: Vec<Zone> = lengths.iter().map(zone).collect();
            let lba = (at * lengths.iter().sum::<u64>() as f64) as u64;
            let zones = Zones::new(all.clone());
            prop_assert_eq!(Some(zones.of(lba)), all.iter().rfind(|z| z.first_lba <= lba));
            for zone in &all {
                prop_assert_eq!(zones.of(zone.first_lba), zone);
                prop_assert_eq!(zones.of(zone.first_lba + zone.lbas - 1), zone);
            }
        }

        #[test]
        fn a_passage_in_pieces_ends_when_the_whole_does(
            pick in 0..64usize, at in 0..1_000_000_000u64, place in 0.0..1.0f64,
            pieces in prop::collection::vec(1..900u64, 1..20),
        ) {
            let g = geometry(pick);
            let total: u64 = pieces.iter().sum();
            let start = (place * (g.sectors - total) as f64) as u64;
            let mut whole = Head { track: g.place(start).track, at };
            prop_assert_eq!(g.sweep(&mut whole, start, start + total, u64::MAX), start + total);
            let mut head = Head { track: g.place(start).track, at };
            let mut next = start;
            for n in pieces {
                next = g.sweep(&mut head, next, next + n, u64::MAX);
            }
            prop_assert_eq!((next, head.at, head.track), (start + total, whole.at, whole.track));
        }

        #[test]
        fn a_passage_stopped_in_time_has_all_that_passed_and_no_more(
            pick in 0..64usize, at in 0..1_000_000_000u64, place in 0.0..1.0f64, time in 0..60_000_000u64,
        ) {
            let g = geometry(pick);
            let start = (place * (g.sectors - 100_000) as f64) as u64;
            let mut head = Head { track: g.place(start).track, at };
            let reached = g.sweep(&mut head, start, g.sectors, at + time);
            prop_assert!(head.at <= at + time);
            let mut beyond = Head { track: g.place(start).track, at };
            g.sweep(&mut beyond, start, reached + 1, u64::MAX);
            prop_assert!(beyond.at > at + time, "sector {reached} had passed as well");
        }
    }
}
