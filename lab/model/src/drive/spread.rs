//! The places of a smaller disk's bytes on the modelled drive.
//!
//! The libraries of the papers filled their drives. A disk of 64 GiB kept in the first 64 GiB of a 1 TB drive
//! would have short seeks and only the fastest zone. So a small disk is cut into chunks, contiguous inside,
//! laid evenly over the whole stroke: a seek between two random places then costs what it costs on the full
//! drive, every zone is used by its share, and a sequential reader pays one short seek a chunk (64 MiB: under
//! one per cent of its time).

use alloc::format;
use alloc::string::String;
use core::fmt;
use core::str::FromStr;

use seekless_base::{Lba, SECTOR_BYTES};

/// The part of the drive that a disk takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Spread {
    /// Chunks spread evenly from percentage to percentage of the drive's addresses.
    Over(f64, f64),
    /// One piece at the drive's first (outermost, fastest) addresses.
    None,
}

impl Spread {
    /// Over the whole drive.
    pub const FULL: Spread = Spread::Over(0.0, 100.0);
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Spread::FULL => f.write_str("full"),
            Spread::None => f.write_str("none"),
            Spread::Over(from, to) => write!(f, "{from}-{to}"),
        }
    }
}

impl FromStr for Spread {
    type Err = String;

    fn from_str(s: &str) -> Result<Spread, String> {
        match s {
            "full" => return Ok(Spread::FULL),
            "none" => return Ok(Spread::None),
            _ => {}
        }
        let parsed = s.trim_end_matches('%').split_once('-').and_then(|(from, to)| {
            Some((from.trim_end_matches('%').parse::<f64>().ok()?, to.parse::<f64>().ok()?))
        });
        match parsed {
            Some((from, to)) if 0.0 <= from && from < to && to <= 100.0 => Ok(Spread::Over(from, to)),
            _ => Err(format!(
                "`{s}` is not a spread: write full, none, or percentages of the drive such as 0-25"
            )),
        }
    }
}

/// A one-to-one map from addresses of the disk to addresses of the drive.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Sectors that stay together.
    chunk: u64,
    chunks: u64,
    /// First sector of the part of the drive that is used.
    start: u64,
    /// Chunk-sized places in that part, at least `chunks`.
    places: u64,
}

impl Layout {
    /// Lays `disk_bytes` over a drive of `drive_sectors` in chunks of `chunk_bytes` (rounded up to sectors).
    ///
    /// # Errors
    /// One clause on why it does not fit, fit to follow "the disk".
    pub fn new(
        disk_bytes: u64,
        drive_sectors: u64,
        spread: Spread,
        chunk_bytes: u64,
    ) -> Result<Layout, String> {
        let chunk = chunk_bytes.div_ceil(SECTOR_BYTES).max(1);
        let sectors = disk_bytes.div_ceil(SECTOR_BYTES);
        let (start, end) = match spread {
            Spread::None => (0, drive_sectors),
            Spread::Over(from, to) => {
                let at = |percent: f64| (drive_sectors as f64 * percent / 100.0) as u64;
                (at(from), at(to).min(drive_sectors))
            }
        };
        let room = end - start;
        if sectors > room {
            let part = if room < drive_sectors { "that part of the drive" } else { "the drive" };
            return Err(format!("is larger than {part} ({} bytes)", room * SECTOR_BYTES));
        }
        let chunks = sectors.div_ceil(chunk);
        // If there are no more places than chunks (the disk is as large as its part of the drive), or nothing
        // is spread, everything stays in one piece.
        let places = room / chunk;
        if matches!(spread, Spread::None) || places <= chunks {
            return Ok(Layout { chunk: sectors.max(1), chunks: 1, start, places: 1 });
        }
        Ok(Layout { chunk, chunks, start, places })
    }

    /// The place of byte `offset` of the disk on the drive, and the number of contiguous bytes from there.
    pub fn locate(&self, offset: u64) -> (Lba, u64) {
        let sector = offset / SECTOR_BYTES;
        let (chunk, within) = (sector / self.chunk, sector % self.chunk);
        // Two numbers of up to 2^35 or so: the product needs more than 64 bits only beyond any drive.
        let place = if self.chunks <= 1 {
            0
        } else {
            // First chunk at the first place, last chunk at the last: the full stroke.
            (u128::from(chunk) * u128::from(self.places - 1) / u128::from(self.chunks - 1)) as u64
        };
        let lba = Lba(self.start + place * self.chunk + within);
        (lba, (self.chunk - within) * SECTOR_BYTES - offset % SECTOR_BYTES)
    }

    /// The pieces of the drive under `len` bytes at `offset` (whole sectors): address and sectors of each.
    pub fn pieces(&self, mut offset: u64, len: u64) -> impl Iterator<Item = (Lba, u32)> + use<> {
        let layout = *self;
        let end = offset + len;
        core::iter::from_fn(move || {
            if offset >= end {
                return None;
            }
            let (lba, together) = layout.locate(offset);
            let part = together.min(end - offset);
            let sectors = (offset % SECTOR_BYTES + part).div_ceil(SECTOR_BYTES) as u32;
            offset += part;
            Some((lba, sectors))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use alloc::string::ToString;
    use proptest::prelude::*;

    #[test]
    fn a_spread_reaches_both_ends_of_its_part() {
        let drive = 2_000_000_000;
        let layout = Layout::new(1 << 30, drive, Spread::FULL, 64 << 20).unwrap();
        assert_eq!(layout.locate(0).0, Lba(0));
        let last = layout.locate((1 << 30) - 512).0.0;
        assert!(last < drive && last > drive - 2 * (64 << 20) / 512, "{last}");
        let half = Layout::new(1 << 30, drive, Spread::Over(25.0, 50.0), 64 << 20).unwrap();
        assert_eq!(half.locate(0).0, Lba(drive / 4));
        assert!(half.locate((1 << 30) - 512).0.0 < drive / 2);
        let none = Layout::new(1 << 30, drive, Spread::None, 64 << 20).unwrap();
        assert_eq!(none.locate((1 << 30) - 512), (Lba((1 << 21) - 1), 512));
    }

    #[test]
    fn a_disk_larger_than_its_part_of_the_drive_is_refused() {
        assert!(
            Layout::new(1 << 20, 2047, Spread::FULL, 4096).unwrap_err().contains("larger than the drive")
        );
        assert!(Layout::new(1 << 20, 4000, Spread::Over(0.0, 50.0), 4096).unwrap_err().contains("that part"));
        assert!(Layout::new(1 << 20, 2048, Spread::FULL, 4096).is_ok(), "exactly full");
    }

    #[test]
    fn spreads_read_back_as_written() {
        for text in ["full", "none", "0-25", "12.5-50"] {
            assert_eq!(text.parse::<Spread>().unwrap().to_string(), text);
        }
        assert_eq!("10%-20%".parse::<Spread>(), Ok(Spread::Over(10.0, 20.0)));
        for text in ["", "half", "50-25", "0-101", "-5-5", "NaN-5"] {
            assert!(text.parse::<Spread>().unwrap_err().contains("percentages"), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_two_sectors_share_a_place(
            disk in 1u64..400, extra in 0u64..2000, chunk in 1u64..40, part in 0usize..3,
        ) {
            let spread = [Spread::FULL, Spread::None, Spread::Over(10.0, 70.0)][part];
            let drive = disk + extra;
            let Ok(layout) = Layout::new(disk * 512, drive, spread, chunk * 512) else { return Ok(()) };
            let mut seen = BTreeSet::new();
            let mut last = None;
            for sector in 0..disk {
                let (lba, together) = layout.locate(sector * 512);
                prop_assert!(lba.0 < drive);
                prop_assert!(seen.insert(lba), "two sectors at {lba:?}");
                prop_assert!(last < Some(lba), "order is kept");
                prop_assert!(together >= 512);
                last = Some(lba);
            }
            // Pieces cover a range exactly and agree with single look-ups.
            let (from, to) = (disk / 3, disk);
            let mut at = from;
            for (lba, sectors) in layout.pieces(from * 512, (to - from) * 512) {
                for k in 0..u64::from(sectors) {
                    prop_assert_eq!(layout.locate((at + k) * 512).0, Lba(lba.0 + k));
                }
                at += u64::from(sectors);
            }
            prop_assert_eq!(at, to);
        }
    }
}
