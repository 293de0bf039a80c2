//! Bands of overlapping tracks, and where each was written last.
//!
//! A stream that fills a band from its beginning, or continues where the band was written last, is written
//! directly. For every other write the drive reads the band, inserts the new sectors, and writes it again.
//! Drives that manage their bands themselves do so once their cache on the medium is full (Aghayev and
//! Desnoyers, "Skylight: a window on shingled disk operation", FAST 2015). That cache is not modelled.

use alloc::collections::BTreeMap;
use core::ops::Range;

/// Maximum number of bands that are written as streams at the same time. Real drives keep about as many open
/// (zoned drives state 128). Beyond it, the one with the lowest address is forgotten.
const STREAMS_MAX: usize = 128;

/// The bands of a drive.
#[derive(Clone, Debug)]
pub(crate) struct Shingles {
    band_sectors: u64,
    /// For each band that a stream fills: the sector behind the last written one.
    streams: BTreeMap<u64, u64>,
}

impl Shingles {
    pub(crate) fn new(band_sectors: u32) -> Shingles {
        Shingles { band_sectors: u64::from(band_sectors.max(1)), streams: BTreeMap::new() }
    }

    /// The band of a sector, for a drive with this many sectors.
    pub(crate) fn band(&self, lba: u64, sectors: u64) -> Range<u64> {
        let start = lba / self.band_sectors * self.band_sectors;
        start..(start + self.band_sectors).min(sectors)
    }

    /// `start..end` of one band is written. Returns whether it is written directly, without the rest of the
    /// band.
    pub(crate) fn write(&mut self, start: u64, end: u64) -> bool {
        let (band, first) = (start / self.band_sectors, start.is_multiple_of(self.band_sectors));
        let streams = first || self.streams.get(&band) == Some(&start);
        self.streams.remove(&band);
        if streams {
            self.streams.insert(band, end);
            if self.streams.len() > STREAMS_MAX {
                self.streams.pop_first();
            }
        }
        streams
    }
}
