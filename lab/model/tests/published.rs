//! Every drive of the catalogue is held to what its source publishes, within 3 %.
//!
//! Rates and access times of the papers' drives were measured with FreeBSD's `diskinfo -t`; its procedure is
//! followed step by step here (usr.sbin/diskinfo/diskinfo.c): single-sector reads that alternate between two
//! ends moving by a step, one outstanding, so that an access is seek, rotation and overhead together; and 100
//! MiB read in pieces of 128 KiB, as FreeBSD splits them, at the first, middle and last addresses.

mod common;

use common::{one, read, serial, spec, within};
use seekless_base::{Lba, Nanos};
use seekless_model::drive::{Drive, DriveSpec, catalogue};

const MEGABYTE_SECTORS: u64 = 2048;

/// Mean milliseconds an access of `count` alternating pairs of single-sector reads.
fn alternate(spec: &DriveSpec, low: u64, high: u64, high_descends: bool, pairs: u64) -> f64 {
    let per_zone = spec.sectors() / (4 * 200);
    let step = (1 << (63 - per_zone.leading_zeros())).min(16384);
    let ends = (0..pairs).flat_map(|i| {
        let moved = i * step;
        [(low + moved, 1), (if high_descends { high - moved } else { high + moved }, 1)]
    });
    let mut drive = Drive::new(spec);
    let start = one(&mut drive, Nanos::ZERO, read(0, high, 1)).finished;
    serial(&mut drive, start, ends).since(start).as_millis_f64() / (2 * pairs) as f64
}

/// How much is read for a rate: 100 MiB, less on drives so small that it would span several zones.
fn bulk(spec: &DriveSpec) -> u64 {
    (100 * MEGABYTE_SECTORS).min(spec.sectors() / 400)
}

/// MB/s of a long sequential read from `first` on.
fn rate(spec: &DriveSpec, first: u64) -> f64 {
    let mut drive = Drive::new(spec);
    let start = one(&mut drive, Nanos::ZERO, read(0, first, 1)).finished;
    let piece = 256;
    let pieces = bulk(spec) / piece;
    let end = serial(&mut drive, start, (0..pieces).map(|i| (first + i * piece, piece as u32)));
    (pieces * piece * 512) as f64 / 1e6 / end.since(start).as_secs_f64()
}

/// Mean of a function over `n` evenly spread addresses.
fn over_addresses(spec: &DriveSpec, n: u64, f: impl Fn(Lba) -> f64) -> f64 {
    (0..n).map(|i| f(Lba((2 * i + 1) * spec.sectors() / (2 * n)))).sum::<f64>() / n as f64
}

#[test]
fn rates_are_as_published() {
    for name in catalogue::names() {
        let spec = spec(name);
        let (p, sectors) = (&spec.published, spec.sectors());
        let ends = [
            ("outer", p.outer_mb_per_s, 0),
            ("middle", p.middle_mb_per_s, sectors / 2 - bulk(&spec) / 2),
            ("inner", p.inner_mb_per_s, sectors - bulk(&spec)),
        ];
        for (what, published, first) in ends {
            let Some(published) = published else { continue };
            within(&format!("{name}, {what} MB/s"), rate(&spec, first), published, 3.0);
        }
        if let Some(published) = p.average_mb_per_s {
            // The whole surface read from end to end: the harmonic mean over addresses.
            let average = 1.0 / over_addresses(&spec, 2000, |lba| 1e6 / spec.media_rate(lba));
            within(&format!("{name}, average MB/s"), average, published, 3.0);
        }
    }
}

#[test]
fn strokes_are_as_published() {
    for name in catalogue::names() {
        let spec = spec(name);
        let (p, n) = (&spec.published, spec.sectors());
        let accesses = [
            ("full", p.full_stroke_access_ms, alternate(&spec, 0, n - 16384, true, 125)),
            ("half", p.half_stroke_access_ms, alternate(&spec, n / 4, n / 4 + n / 2, false, 125)),
            ("quarter", p.quarter_stroke_access_ms, alternate(&spec, n / 4, n / 2, false, 250)),
        ];
        for (what, published, ms) in accesses {
            if let Some(published) = published {
                within(&format!("{name}, {what} stroke access, ms"), ms, published, 3.0);
            }
        }
        let cylinders = spec.cylinders();
        let seeks = [
            ("full stroke", p.full_stroke_seek_ms, cylinders - 1),
            ("half stroke", p.half_stroke_seek_ms, cylinders / 2),
            ("quarter stroke", p.quarter_stroke_seek_ms, cylinders / 4),
            ("single cylinder", p.single_cylinder_seek_ms, 1),
        ];
        for (what, published, distance) in seeks {
            if let Some(published) = published {
                let ms = spec.seek_time_over(distance).as_millis_f64();
                within(&format!("{name}, {what} seek, ms"), ms, published, 3.0);
            }
        }
        if let Some(published) = p.average_seek_ms {
            let average = over_addresses(&spec, 150, |a| {
                over_addresses(&spec, 150, |b| spec.seek_time(a, b).as_millis_f64())
            });
            within(&format!("{name}, average seek, ms"), average, published, 3.0);
        }
    }
}

#[test]
fn every_drive_publishes_something_and_says_where() {
    for name in catalogue::names() {
        let spec = spec(name);
        assert_eq!(spec.name, name);
        let p = &spec.published;
        assert!(!spec.source.is_empty() && !spec.notes.is_empty() && !p.source.is_empty(), "{name}");
        let rates = [p.outer_mb_per_s, p.middle_mb_per_s, p.inner_mb_per_s, p.average_mb_per_s];
        let seeks = [p.full_stroke_access_ms, p.full_stroke_seek_ms, p.average_seek_ms];
        assert!(rates.iter().any(Option::is_some) && seeks.iter().any(Option::is_some), "{name}");
    }
}
