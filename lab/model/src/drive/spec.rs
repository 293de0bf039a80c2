//! The description of one drive: the content of a file in `drives/`, checked and compiled.
//!
//! A file has the values that a source states (rotation, zones, seek times, buffer), and says in `notes`
//! which of them were fitted and to what. Unknown fields are refused, because a misspelt parameter must not
//! silently become a default.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use seekless_base::{Bytes, Lba, Nanos, SECTOR_BYTES};
use serde::Deserialize;

use crate::drive::geometry::{Geometry, Zone, Zones};
use crate::drive::seek::SeekCurve;

/// Why a description cannot be used: one line that names the field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecError(pub(crate) String);

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for SpecError {}

fn bad<T>(message: impl Into<String>) -> Result<T, SpecError> {
    Err(SpecError(message.into()))
}

/// The drive's speed as stated by a source; tests compare the model with it. Every value is optional, because
/// sources state different ones. Rates are in MB/s of 1,000,000 bytes.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// The source of the values, and how they were measured.
    pub source: String,
    /// Sequential rate at the first sectors, in the middle, and at the last sectors.
    pub outer_mb_per_s: Option<f64>,
    /// Sequential rate half way through the addresses.
    pub middle_mb_per_s: Option<f64>,
    /// Sequential rate at the last sectors.
    pub inner_mb_per_s: Option<f64>,
    /// Sequential rate averaged over the whole surface.
    pub average_mb_per_s: Option<f64>,
    /// Milliseconds a single-sector read takes in FreeBSD `diskinfo`'s full-stroke test: seek, rotation and
    /// command overhead together.
    pub full_stroke_access_ms: Option<f64>,
    /// The same for its half-stroke test.
    pub half_stroke_access_ms: Option<f64>,
    /// The same for its quarter-stroke test.
    pub quarter_stroke_access_ms: Option<f64>,
    /// Arm movement alone over the full stroke, milliseconds.
    pub full_stroke_seek_ms: Option<f64>,
    /// Arm movement alone over half of the cylinders, milliseconds.
    pub half_stroke_seek_ms: Option<f64>,
    /// Arm movement alone over a quarter of the cylinders, milliseconds.
    pub quarter_stroke_seek_ms: Option<f64>,
    /// Arm movement alone between two independent random addresses, mean, milliseconds.
    pub average_seek_ms: Option<f64>,
    /// Arm movement alone to the next cylinder, milliseconds.
    pub single_cylinder_seek_ms: Option<f64>,
}

/// The drive's buffer, and its firmware's read-ahead.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Buffer {
    /// Number of sequential readers that the drive can distinguish, at least 1.
    pub segments: u32,
    /// Sectors of one segment, which keeps the latest ones.
    pub segment_sectors: u32,
    /// Sectors that the drive reads on past the last requested one while it has no other work; 0 turns
    /// look-ahead off.
    pub look_ahead_sectors: u32,
    /// If given, look-ahead also stops at the end of the track with this number after the one that has the
    /// last requested sector (0: that track's own end).
    pub look_ahead_tracks: Option<u32>,
    /// Sectors that the drive fetches before it leaves a place, whatever else is queued, if it came there for
    /// a read that continues a run in its buffer (requested sectors included): for a sequential reader,
    /// jumping away earlier would waste the seek. Never more than the length of the run. 0: it leaves at
    /// once.
    #[serde(default)]
    pub minimum_fetch_sectors: u32,
    /// Whether an idle drive starts to read ahead again when a read is served wholly from the buffer.
    #[serde(default)]
    pub resume_on_hit: bool,
    /// Sectors of writes that are acknowledged before the medium has them: a write cache that loses them with
    /// the power. 0: a write is acknowledged when it is on the medium.
    #[serde(default)]
    pub write_cache_sectors: u32,
}

/// Overlapping tracks in bands: writing into a band destroys what lies behind.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shingled {
    /// 512-byte sectors of a band, at least 2048; a drive's last band may be shorter.
    pub band_sectors: u32,
}

/// Native command queueing.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Queue {
    /// Maximum number of commands in the drive, 1 to 1024.
    pub depth: u32,
    /// How the drive chooses the next of them.
    #[serde(default)]
    pub order: Order,
    /// A command that has waited this many milliseconds is next, whatever is nearer; the oldest of them
    /// first.
    pub age_ms_max: f64,
}

/// How a drive chooses the next of its queued commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Shortest positioning time (seek plus rotation) first.
    #[default]
    Sptf,
    /// First come, first served.
    Fifo,
}

/// Times of the electronics, and the bus.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Electronics {
    /// Milliseconds from a command's arrival until the mechanism can start it (spent while the mechanism
    /// still works on another command, if the queue is not empty).
    pub read_miss_ms: f64,
    /// The same for a read served from the buffer.
    pub read_hit_ms: f64,
    /// The same for a write.
    pub write_ms: f64,
    /// Megabytes (1,000,000) a second over the bus.
    pub bus_mb_per_s: f64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawSeek {
    /// Points [cylinders, milliseconds].
    pub(crate) table: Option<Vec<(u32, f64)>>,
    /// `a + b * sqrt(d) + c * d`, milliseconds.
    pub(crate) fit: Option<RawFit>,
    pub(crate) head_switch_ms: f64,
    #[serde(default)]
    pub(crate) write_settle_ms: f64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawFit {
    pub(crate) a_ms: f64,
    pub(crate) b_ms: f64,
    pub(crate) c_ms: f64,
}

/// One zone: its first cylinder, sectors a track, skew at a head switch and at a cylinder switch in sectors.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawZone {
    pub(crate) first_cylinder: u32,
    pub(crate) sectors_per_track: u32,
    pub(crate) track_skew: u32,
    pub(crate) cylinder_skew: u32,
    /// Addresses in the zone, if spares and defects leave fewer than its tracks have.
    pub(crate) sectors: Option<u64>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawSpec {
    pub(crate) name: String,
    pub(crate) label: String,
    pub(crate) source: String,
    pub(crate) notes: String,
    pub(crate) rpm: f64,
    pub(crate) heads: u32,
    pub(crate) cylinders: u32,
    pub(crate) sectors: Option<u64>,
    pub(crate) zones: Vec<RawZone>,
    pub(crate) seek: RawSeek,
    pub(crate) electronics: Electronics,
    pub(crate) buffer: Buffer,
    pub(crate) queue: Queue,
    pub(crate) shingled: Option<Shingled>,
    pub(crate) published: Published,
}

/// A drive's description, checked and ready to be built into a [`crate::drive::Drive`].
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "RawSpec")]
pub struct DriveSpec {
    /// The name the command line and scenarios use, kebab-case.
    pub name: String,
    /// Maker, model, size, speed, year.
    pub label: String,
    /// Where the parameters come from.
    pub source: String,
    /// Which values were fitted, and to what; which are guesses.
    pub notes: String,
    /// Electronics and bus.
    pub electronics: Electronics,
    /// Buffer and look-ahead.
    pub buffer: Buffer,
    /// Command queue.
    pub queue: Queue,
    /// Bands, if its tracks overlap.
    pub shingled: Option<Shingled>,
    /// The values that the tests compare with the model.
    pub published: Published,
    pub(crate) geometry: Geometry,
    pub(crate) write_settle: u64,
}

/// Milliseconds of a file as nanoseconds; more than a minute is a mistake of unit.
fn nanos(ms: f64, field: &str) -> Result<u64, SpecError> {
    if !(0.0..=60_000.0).contains(&ms) {
        return bad(format!("`{field}` is {ms}: milliseconds from 0 to 60000 are expected"));
    }
    Ok((ms * 1e6 + 0.5) as u64)
}

impl RawSeek {
    fn compile(&self, cylinders: u32) -> Result<SeekCurve, SpecError> {
        match (&self.table, &self.fit) {
            (Some(points), None) => {
                if points.is_empty() || points.windows(2).any(|w| w[0].0 >= w[1].0) || points[0].0 == 0 {
                    return bad("`seek.table` needs points of ascending distance, from 1 cylinder on");
                }
                let compiled: Result<Vec<_>, _> =
                    points.iter().map(|&(d, ms)| Ok((d, nanos(ms, "seek.table")?))).collect();
                Ok(SeekCurve::Table(compiled?))
            }
            (None, Some(fit)) => {
                let curve = SeekCurve::Fit { a: fit.a_ms, b: fit.b_ms, c: fit.c_ms };
                if [1, cylinders / 2, cylinders]
                    .iter()
                    .any(|&d| !(1..=60_000_000_000).contains(&curve.time(d.max(1))))
                {
                    return bad("`seek.fit` gives a seek of no time or of over a minute");
                }
                Ok(curve)
            }
            _ => bad("`seek` needs either `table` or `fit`"),
        }
    }
}

impl RawSpec {
    fn geometry(&self) -> Result<Geometry, SpecError> {
        if !(60.0..=1_000_000.0).contains(&self.rpm) {
            return bad(format!("`rpm` is {}: 60 to 1000000 are expected", self.rpm));
        }
        if !(1..=1000).contains(&self.heads) || !(1..=100_000_000).contains(&self.cylinders) {
            return bad("`heads` must be 1 to 1000, `cylinders` 1 to 100000000");
        }
        let mut zones = Vec::new();
        let mut first_lba = 0;
        for (i, z) in self.zones.iter().enumerate() {
            let end = self.zones.get(i + 1).map_or(self.cylinders, |next| next.first_cylinder);
            if z.first_cylinder >= end || (i == 0 && z.first_cylinder != 0) {
                return bad(format!(
                    "zone {i}: `first_cylinder` must start at 0 and ascend below `cylinders`"
                ));
            }
            if !(1..=1_000_000).contains(&z.sectors_per_track)
                || z.track_skew.max(z.cylinder_skew) >= z.sectors_per_track
            {
                return bad(format!("zone {i}: `sectors_per_track` is 0 or absurd, or not more than a skew"));
            }
            let room =
                u64::from(end - z.first_cylinder) * u64::from(self.heads) * u64::from(z.sectors_per_track);
            let lbas = z.sectors.unwrap_or(room);
            if lbas == 0 || lbas > room {
                return bad(format!("zone {i}: `sectors` is {lbas}, its tracks hold {room}"));
            }
            zones.push(Zone {
                first_lba,
                lbas,
                first_cylinder: z.first_cylinder,
                sectors_per_track: u64::from(z.sectors_per_track),
                track_skew: u64::from(z.track_skew),
                cylinder_skew: u64::from(z.cylinder_skew),
            });
            first_lba += lbas;
        }
        if zones.is_empty() {
            return bad("`zones` is empty");
        }
        let sectors = self.sectors.unwrap_or(first_lba);
        if sectors > first_lba || sectors <= zones[zones.len() - 1].first_lba {
            return bad(format!(
                "`sectors` is {sectors}, the zones hold {first_lba} and each must hold some"
            ));
        }
        Ok(Geometry {
            period: (60e9 / self.rpm + 0.5) as u64,
            heads: self.heads,
            cylinders: self.cylinders,
            sectors,
            zones: Zones::new(zones),
            head_switch: nanos(self.seek.head_switch_ms, "seek.head_switch_ms")?,
            seek: self.seek.compile(self.cylinders)?,
        })
    }
}

impl TryFrom<RawSpec> for DriveSpec {
    type Error = SpecError;

    fn try_from(raw: RawSpec) -> Result<DriveSpec, SpecError> {
        let geometry = raw.geometry()?;
        let write_settle = nanos(raw.seek.write_settle_ms, "seek.write_settle_ms")?;
        let spec = DriveSpec {
            name: raw.name,
            label: raw.label,
            source: raw.source,
            notes: raw.notes,
            electronics: raw.electronics,
            buffer: raw.buffer,
            queue: raw.queue,
            shingled: raw.shingled,
            published: raw.published,
            geometry,
            write_settle,
        };
        spec.check()?;
        Ok(spec)
    }
}

impl DriveSpec {
    /// Checks the public fields, which a caller may have changed; [`crate::drive::Drive::new`] clamps what
    /// this refuses.
    ///
    /// # Errors
    /// The first field out of range, with the range.
    pub fn check(&self) -> Result<(), SpecError> {
        if self.name.is_empty()
            || !self.name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        {
            return bad(format!(
                "`name` is `{}`: lower-case letters, digits and dashes are expected",
                self.name
            ));
        }
        nanos(self.electronics.read_miss_ms, "electronics.read_miss_ms")?;
        nanos(self.electronics.read_hit_ms, "electronics.read_hit_ms")?;
        nanos(self.electronics.write_ms, "electronics.write_ms")?;
        nanos(self.queue.age_ms_max, "queue.age_ms_max")?;
        if !(0.1..=1e6).contains(&self.electronics.bus_mb_per_s) {
            return bad("`electronics.bus_mb_per_s` must be 0.1 to 1000000");
        }
        if !(1..=1024).contains(&self.queue.depth) {
            return bad(format!("`queue.depth` is {}: 1 to 1024 are expected", self.queue.depth));
        }
        if self.shingled.as_ref().is_some_and(|s| s.band_sectors < 2048) {
            return bad("`shingled.band_sectors` must be at least 2048");
        }
        if !(1..=4096).contains(&self.buffer.segments) || self.buffer.segment_sectors == 0 {
            return bad("`buffer.segments` must be 1 to 4096 and `buffer.segment_sectors` at least 1");
        }
        Ok(())
    }

    /// Bytes the drive holds.
    pub fn capacity(&self) -> Bytes {
        Bytes(self.geometry.sectors * SECTOR_BYTES)
    }

    /// 512-byte sectors the drive holds.
    pub fn sectors(&self) -> u64 {
        self.geometry.sectors
    }

    /// Cylinders, counted from the outside.
    pub fn cylinders(&self) -> u32 {
        self.geometry.cylinders
    }

    /// Bytes a second of a long sequential read around `lba`: what passes under the heads, less the switches
    /// between tracks and cylinders. Addresses past the end count as the last.
    pub fn media_rate(&self, lba: Lba) -> f64 {
        self.geometry.media_rate(lba.0)
    }

    /// Bytes a second of a read of the whole drive, from end to end.
    pub fn mean_media_rate(&self) -> f64 {
        /// Places at which the rate is looked up: more than a drive has zones.
        const PLACES: u64 = 256;
        let places = (0..PLACES).map(|i| Lba((self.sectors() - 1) / PLACES * i));
        let seconds: f64 = places.map(|lba| 1.0 / self.media_rate(lba)).sum();
        PLACES as f64 / seconds
    }

    /// Time to bring the heads from the track of one address to that of another, settling included, rotation
    /// not.
    pub fn seek_time(&self, from: Lba, to: Lba) -> Nanos {
        let last = self.geometry.sectors - 1;
        let (from, to) = (self.geometry.place(from.0.min(last)), self.geometry.place(to.0.min(last)));
        Nanos(self.geometry.move_time(from.track, to.track))
    }

    /// Time of arm movement over a number of cylinders, settling included; zero for none.
    pub fn seek_time_over(&self, cylinders: u32) -> Nanos {
        Nanos(self.geometry.seek.time(cylinders))
    }

    /// One turn of the platters.
    pub fn rotation_period(&self) -> Nanos {
        Nanos(self.geometry.period)
    }

    /// Parses a description; errors name the line.
    pub(crate) fn parse(text: &str) -> Result<DriveSpec, SpecError> {
        toml::from_str(text).map_err(|e| {
            // A wrong value concerns the whole file: its span starts at the first line and says nothing.
            let line = e.span().map_or(1, |s| text[..s.start.min(text.len())].lines().count().max(1));
            let what = e.message().lines().next().unwrap_or("malformed").to_string();
            SpecError(if line > 1 { format!("line {line}: {what}") } else { what })
        })
    }
}
