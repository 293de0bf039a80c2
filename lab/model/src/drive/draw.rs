//! Drives drawn from a seed, so that no constant is tuned to them.
//!
//! [`draw`] gives the same drive for the same two numbers, on every machine and in every release: the
//! generator is SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014),
//! written out here, and all that follows is exact or `libm`.
//!
//! The drawn values are related as in drives that were sold:
//!
//! - The speed of rotation bounds the outer rate and sets the class of the arm (a 15,000 rpm drive has small
//!   platters and short seeks).
//! - The outer rate represents the drive's age: tracks, capacity and buffer grow with it.
//! - Track-to-track, average and full-stroke seek are drawn together; the curve `a + b * sqrt(d) + c * d`
//!   goes through all three.
//!
//! Properties decided by firmware are drawn independently: segments, look-ahead, fetch before leaving, queue
//! and its order, overheads.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::drive::spec::{
    Buffer, DriveSpec, Electronics, Order, Published, Queue, RawFit, RawSeek, RawSpec, RawZone,
};

/// The prefix of a drawn drive's name: `drawn:SEED:INDEX`.
pub const PREFIX: &str = "drawn:";

/// A class of drives by its speed.
struct Class {
    rpm: f64,
    /// Range of outer rates, MB/s.
    outer: (f64, f64),
    /// Range of average seeks, ms.
    average_ms: (f64, f64),
    /// Track-to-track seeks at the ends of that range, ms.
    track_ms: (f64, f64),
    /// Maximum number of heads.
    heads: u64,
}

/// 5,900 rpm drives came late, so there are no slow ones.
const CLASSES: [Class; 5] = [
    Class { rpm: 5400.0, outer: (60.0, 200.0), average_ms: (9.0, 14.0), track_ms: (0.8, 2.0), heads: 8 },
    Class { rpm: 5900.0, outer: (100.0, 210.0), average_ms: (8.5, 13.0), track_ms: (0.8, 1.8), heads: 12 },
    Class { rpm: 7200.0, outer: (65.0, 290.0), average_ms: (7.2, 11.0), track_ms: (0.3, 1.2), heads: 20 },
    Class { rpm: 10_000.0, outer: (70.0, 250.0), average_ms: (4.0, 5.5), track_ms: (0.25, 0.7), heads: 8 },
    Class { rpm: 15_000.0, outer: (80.0, 290.0), average_ms: (2.8, 4.0), track_ms: (0.2, 0.45), heads: 8 },
];

/// SplitMix64 over a seed and an index.
struct Numbers(u64);

impl Numbers {
    fn new(seed: u64, index: u64) -> Numbers {
        let mut seeded = Numbers(seed);
        let seed = seeded.word();
        Numbers(seed ^ Numbers(index ^ 0x6472_6976_6573).word())
    }

    fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in [0, 1), a multiple of 2^-53.
    fn unit(&mut self) -> f64 {
        (self.word() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Uniform between two ends.
    fn within(&mut self, (low, high): (f64, f64)) -> f64 {
        low + (high - low) * self.unit()
    }

    /// Uniform in 0..`n`.
    fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.word()) * u128::from(n)) >> 64) as u64
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }

    fn chance(&mut self, share: f64) -> bool {
        self.unit() < share
    }
}

/// From `low` to `high` in equal ratios; `part` is the fraction of the way.
fn ratio(low: f64, high: f64, part: f64) -> f64 {
    low * libm::pow(high / low, part)
}

/// Rounded to three decimals, because people read a description.
fn rounded(value: f64) -> f64 {
    libm::round(value * 1e3) / 1e3
}

/// `value` as a whole number within bounds.
fn whole(value: f64, low: u32, high: u32) -> u32 {
    (libm::round(value) as u32).clamp(low, high)
}

/// The drive number `index` of a seed. Its name is `drawn-SEED-INDEX`.
///
/// - rpm 5,400, 5,900, 7,200, 10,000 or 15,000; outer media rate 60 to 290 MB/s, inner 0.45 to 0.7 of it, 8
///   to 32 zones.
/// - Track-to-track seek 0.2 to 2 ms, average 2.8 to 14 ms, full stroke 1.96 to 2.6 times the average, about.
/// - Buffer 2 to 512 MiB in 8 to 256 segments; look-ahead over a segment, to the end of a track, or off.
/// - 1, 4, 16 or 32 commands queued, by positioning time or in order of arrival.
///
/// A drive that holds one command always reads ahead. Without both it would lose a turn at every command, and
/// no such drive was sold.
pub fn draw(seed: u64, index: u64) -> DriveSpec {
    DriveSpec::try_from(raw(seed, index)).unwrap_or_else(|why| {
        // A property test draws thousands.
        unreachable!("drive {index} of seed {seed}: {why}")
    })
}

/// The drive with a name `drawn:SEED:INDEX`; `None` for other names.
pub(crate) fn named(name: &str) -> Option<DriveSpec> {
    let (seed, index) = name.strip_prefix(PREFIX)?.split_once(':')?;
    // `parse` takes a sign, which would give one drive two names.
    let number = |digits: &str| digits.parse().ok().filter(|_| digits.bytes().all(|b| b.is_ascii_digit()));
    Some(draw(number(seed)?, number(index)?))
}

fn raw(seed: u64, index: u64) -> RawSpec {
    let mut n = Numbers::new(seed, index);
    let class = &CLASSES[n.below(CLASSES.len() as u64) as usize];
    let period_s = 60.0 / class.rpm;
    // How late in its class's history the drive was made.
    let age = n.unit();
    let outer = ratio(class.outer.0, class.outer.1, age);
    let inner_part = n.within((0.45, 0.7));
    let heads = 2 + n.below(class.heads - 1);

    let quickness = n.unit();
    let near = |n: &mut Numbers, ends: (f64, f64)| {
        let part = (quickness + n.within((-0.25, 0.25))).clamp(0.0, 1.0);
        rounded(ends.0 + (ends.1 - ends.0) * part)
    };
    let track_ms = near(&mut n, class.track_ms);
    let average_ms = near(&mut n, class.average_ms);
    let head_switch_ms = rounded(track_ms * n.within((0.5, 1.0)));

    // A long read also pays, each turn, for the switch to the next track: the track has what the rate leaves
    // after that.
    let turns = heads as f64 * period_s + ((heads - 1) as f64 * head_switch_ms + track_ms) / 1e3;
    let outer_track = outer * 1e6 * turns / heads as f64 / 512.0;
    // Tracks grow closer as they grow denser. The power goes through the catalogue: 525 sectors a track and
    // 13,160 cylinders in 2000, 5,195 and 483,580 in 2021.
    let cylinders = 13_160.0 * libm::pow(outer_track / 525.0, 1.57) * n.within((0.7, 1.3));
    let cylinders = whole(cylinders, 2_000, 2_000_000);
    let zones = zones(&mut n, cylinders, outer_track, inner_part, track_ms, head_switch_ms, period_s);
    let fit = curve(&mut n, cylinders, track_ms, average_ms);
    let queue = Queue {
        depth: n.pick(&[1, 4, 16, 32]),
        order: if n.chance(0.75) { Order::Sptf } else { Order::Fifo },
        age_ms_max: n.pick(&[250.0, 500.0, 1000.0, 2000.0]),
    };
    let buffer = buffer(&mut n, age, queue.depth);
    let read_miss_ms = rounded(n.within((0.1, 0.4)));
    let electronics = Electronics {
        read_miss_ms,
        read_hit_ms: rounded(read_miss_ms * n.within((0.3, 0.6))),
        write_ms: read_miss_ms,
        bus_mb_per_s: n.pick(&[150.0_f64, 300.0, 550.0]).max(if outer > 120.0 { 300.0 } else { 150.0 }),
    };
    let label = format!(
        "Drawn: {:.0} rpm, {outer:.0} MB/s outside, {:.0} inside, {average_ms} ms average seek, {} MiB buffer, queue of {}",
        class.rpm,
        outer * inner_part,
        u64::from(buffer.segments) * u64::from(buffer.segment_sectors) / 2048,
        queue.depth
    );
    RawSpec {
        name: format!("drawn-{seed}-{index}"),
        label,
        source: format!("Drawn from seed {seed}, number {index} (seekless_model::drive::draw)."),
        notes: String::from("No such drive was sold; its figures are in the ranges of those that were."),
        rpm: class.rpm,
        heads: heads as u32,
        cylinders,
        sectors: None,
        zones,
        seek: RawSeek { table: None, fit: Some(fit), head_switch_ms, write_settle_ms: 0.5 },
        electronics,
        buffer,
        queue,
        shingled: None,
        published: Published {
            source: String::from("What was drawn."),
            outer_mb_per_s: Some(outer),
            average_seek_ms: Some(average_ms),
            single_cylinder_seek_ms: Some(track_ms),
            ..Published::default()
        },
    }
}

/// Zones of equal width whose tracks shrink with the radius.
fn zones(
    n: &mut Numbers,
    cylinders: u32,
    outer_track: f64,
    inner_part: f64,
    track_ms: f64,
    head_switch_ms: f64,
    period_s: f64,
) -> Vec<RawZone> {
    let count = 8 + n.below(25) as u32;
    // The skews let the next track begin when the switch is over: no less, or a whole turn is lost.
    let skew = |switch_ms: f64, sectors: u32| {
        let turn = libm::ceil(switch_ms / 1e3 / period_s * f64::from(sectors)) as u32 + 1;
        turn.min(sectors - 1)
    };
    let zone = |i: u32| {
        let inward = f64::from(i) / f64::from(count - 1);
        let sectors = whole(outer_track * (1.0 - (1.0 - inner_part) * inward), 64, 1_000_000);
        RawZone {
            first_cylinder: (u64::from(cylinders) * u64::from(i) / u64::from(count)) as u32,
            sectors_per_track: sectors,
            track_skew: skew(head_switch_ms, sectors),
            cylinder_skew: skew(track_ms.max(head_switch_ms), sectors),
            sectors: None,
        }
    };
    (0..count).map(zone).collect()
}

/// The curve `a + b * sqrt(d) + c * d` through the seek over one cylinder, the mean between independent
/// places and a full stroke.
fn curve(n: &mut Numbers, cylinders: u32, track_ms: f64, average_ms: f64) -> RawFit {
    // Of what the longest seek takes beyond the shortest, the average takes 8/15 where the arm only
    // accelerates (all root) and a third where it only coasts (all line).
    let full_ms = track_ms + (average_ms - track_ms) / n.within((0.38, 0.51));
    let stroke = f64::from(cylinders - 1);
    let root = libm::sqrt(stroke);
    // b * (root - 1) + c * (stroke - 1) = full - track; the average of sqrt(d) over independent places is
    // 8/15 of `root`, that of d a third of `stroke`.
    let (b1, c1, full) = (root - 1.0, stroke - 1.0, full_ms - track_ms);
    let (b2, c2, average) = (root * 8.0 / 15.0 - 1.0, stroke / 3.0 - 1.0, average_ms - track_ms);
    let det = b1 * c2 - b2 * c1;
    let b = (full * c2 - average * c1) / det;
    let c = (b1 * average - b2 * full) / det;
    RawFit { a_ms: track_ms - b - c, b_ms: b, c_ms: c }
}

fn buffer(n: &mut Numbers, age: f64, depth: u32) -> Buffer {
    // 2 MiB in the oldest, 512 MiB in the newest, give or take a factor of four.
    let step = (age * 8.0 + n.within((-2.0, 2.0))).clamp(0.0, 8.0);
    let sectors = 4096u64 << libm::round(step) as u32;
    // No segment under 64 KiB or above 16 MiB.
    let segments = (8u64 << n.below(6)).clamp(sectors.div_ceil(32_768).max(8), sectors / 128);
    let segment = (sectors / segments) as u32;
    let (look_ahead, tracks) = match n.below(8) {
        0 if depth > 1 => (0, None),
        0..=1 => (segment, Some(0)),
        2 => (segment, Some(1)),
        3 => (segment / 2, None),
        _ => (segment, None),
    };
    Buffer {
        segments: segments as u32,
        segment_sectors: segment,
        look_ahead_sectors: look_ahead,
        look_ahead_tracks: tracks,
        minimum_fetch_sectors: n.pick(&[0, 0, 256, 512, 768]).min(look_ahead),
        resume_on_hit: n.chance(0.75),
        // Half of the buffer, which is what reads need the least of: no maker states the part.
        write_cache_sectors: (sectors / 2) as u32,
    }
}
