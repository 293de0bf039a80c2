//! Generated block traces in the likeness of those PFC used: OLTP, web search, several applications.
//!
//! The originals cannot be shipped. What PFC (section 4.2) says of them is held exactly: the share of random
//! requests (11, 74 and 25 %), the footprint (529, 8,392 and 792 MB), 12,514 files in the last, the first 10
//! GB of the first two (the first requests, 10 GB in all), arrival times in the first two and none in the
//! last. *Random* means: the request does not begin where an earlier request of the same file ended,
//! among the runs under way. Addresses go over the whole of the paper's drive: the SPC traces are of storage
//! units, each a device with addresses of its own; the files of the last lie over one device. What PFC does
//! not say is a constant of each generator, with its reason; docs/PFC.md says how the values were chosen.
//!
//! Same kind, scale and seed: same trace, on every machine.

mod multi;
mod oltp;
mod websearch;

use crate::workload::draw::Draw;
use crate::workload::trace::Record;

pub use multi::Multi;
pub use oltp::Oltp;
pub use websearch::Websearch;

/// Blocks all generators speak in: pages of 4 KiB.
pub const PAGE_BYTES: u64 = 4096;

/// Which trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// On-line transaction processing: 11 % random.
    Oltp,
    /// A search engine: 74 % random.
    Websearch,
    /// Three applications at once, each with one request under way: 25 % random.
    Multi,
}

impl Kind {
    /// All of them, in PFC's order.
    pub const ALL: [Kind; 3] = [Kind::Oltp, Kind::Websearch, Kind::Multi];

    /// Name on a command line.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Oltp => "oltp",
            Kind::Websearch => "websearch",
            Kind::Multi => "multi",
        }
    }

    /// The kind of that name.
    pub fn from_name(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|k| k.name() == name)
    }

    /// Footprint PFC gives, MB of 1,000,000 bytes.
    pub fn footprint_mb(self) -> u64 {
        match self {
            Kind::Oltp => 529,
            Kind::Websearch => 8392,
            Kind::Multi => 792,
        }
    }

    /// Footprint in pages at a scale.
    pub fn footprint_pages(self, scale: f64) -> u64 {
        ((self.footprint_mb() * 1_000_000 / PAGE_BYTES) as f64 * scale).max(64.0) as u64
    }

    /// Devices of the trace: storage units of the SPC traces, one device for the others.
    pub fn units(self, scale: f64) -> u64 {
        match self {
            Kind::Oltp => oltp::units(scale),
            Kind::Websearch => websearch::UNITS,
            Kind::Multi => 1,
        }
    }

    /// Share of random requests PFC gives.
    pub fn random_share(self) -> f64 {
        match self {
            Kind::Oltp => 0.11,
            Kind::Websearch => 0.74,
            Kind::Multi => 0.25,
        }
    }

    /// Whether requests have times (and are issued at them) or follow one another.
    pub fn timed(self) -> bool {
        self != Kind::Multi
    }

    /// The trace. `scale` multiplies footprint and length alike (1 is the paper's), so that cache sizes given
    /// as a share of the footprint mean the same at every scale.
    pub fn generate(self, scale: f64, seed: u64) -> Box<dyn Iterator<Item = Record> + Send> {
        self.of_shape(scale, seed, Shape::default())
    }

    /// The same with another shape.
    pub fn of_shape(self, scale: f64, seed: u64, shape: Shape) -> Box<dyn Iterator<Item = Record> + Send> {
        match self {
            Kind::Oltp => Box::new(Oltp::of_shape(scale, seed, shape)),
            Kind::Websearch => Box::new(Websearch::of_shape(scale, seed, shape)),
            Kind::Multi => Box::new(Multi::of_shape(scale, seed, shape)),
        }
    }
}

/// Size of the drive the paper's traces were replayed on, "9.1GB" (PFC, section 4.2), at every scale: how far
/// its heads move does not depend on how much is asked for.
const DRIVE_BYTES: u64 = 9_100_000_000;

/// Bytes that OLTP and web search ask for in all, at scale 1: "the first 10GB of data requests" (PFC, section
/// 4.2).
const REQUESTED_BYTES: f64 = 10e9;

/// What of the traces PFC does not state. The default is what the study at the paper's scale takes; those
/// values were chosen while looking at what PFC gained (docs/PFC.md).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Factor on the request rates of the traces that have times.
    pub rate: f64,
    /// Scans under way at once in OLTP, at scale 1.
    pub scans: f64,
    /// Mean length of such a scan, requests.
    pub scan_requests: f64,
    /// Share of web search's random requests that go to a place asked for before.
    pub revisits: f64,
    /// Requests for each page of Multi, on the mean.
    pub passes: f64,
    /// Share of Multi's openings that go by popularity.
    pub popular: f64,
}

impl Default for Shape {
    fn default() -> Shape {
        Shape {
            rate: 1.0,
            scans: oltp::SCANS,
            scan_requests: oltp::SCAN_REQUESTS,
            revisits: websearch::REVISIT_SHARE,
            passes: multi::PASSES,
            popular: multi::POPULAR_SHARE,
        }
    }
}

/// From where to where each value of a drawn [`Shape`] goes. All but the shares are log-uniform. Rates: half
/// to five quarters of the default, 100 to 250 and 55 to 138 requests a second; above that a disk without
/// coordination only queues.
pub mod ranges {
    use core::ops::Range;

    /// [`super::Shape::rate`].
    pub const RATE: Range<f64> = 0.5..1.25;
    /// [`super::Shape::scans`]: one or a few for each of the tables of a small database.
    pub const SCANS: Range<f64> = 6.0..24.0;
    /// [`super::Shape::scan_requests`]: from a page range to a table.
    pub const SCAN_REQUESTS: Range<f64> = 32.0..256.0;
    /// [`super::Shape::revisits`].
    pub const REVISITS: Range<f64> = 0.0..0.1;
    /// [`super::Shape::passes`].
    pub const PASSES: Range<f64> = 2.0..4.0;
    /// [`super::Shape::popular`].
    pub const POPULAR: Range<f64> = 0.25..0.75;
}

impl Shape {
    /// The shape of a seed, within [`ranges`].
    pub fn drawn(seed: u64) -> Shape {
        let mut draw = Draw::new(seed, "trace shape");
        let mut unit = || draw.unit();
        let mut log = |range: core::ops::Range<f64>| range.start * libm::pow(range.end / range.start, unit());
        let rate = log(ranges::RATE);
        let scans = log(ranges::SCANS);
        let scan_requests = log(ranges::SCAN_REQUESTS);
        let passes = log(ranges::PASSES);
        let mut share = |range: core::ops::Range<f64>| range.start + (range.end - range.start) * unit();
        let (revisits, popular) = (share(ranges::REVISITS), share(ranges::POPULAR));
        Shape { rate, scans, scan_requests, passes, revisits, popular }
    }
}

/// A pseudo-random order of `0..n` without a table: a four-round Feistel network over the next power of four,
/// walked until it falls within the range.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Permutation {
    n: u64,
    half_bits: u32,
    key: u64,
}

impl Permutation {
    pub(crate) fn new(n: u64, key: u64) -> Permutation {
        let bits = 64 - n.max(4).saturating_sub(1).leading_zeros();
        Permutation { n: n.max(1), half_bits: bits.div_ceil(2), key }
    }

    /// The `i`-th of the order; `i` is taken modulo `n`.
    pub(crate) fn at(&self, i: u64) -> u64 {
        let mask = (1_u64 << self.half_bits) - 1;
        let mut x = i % self.n;
        loop {
            let (mut left, mut right) = (x >> self.half_bits, x & mask);
            for round in 0..4_u64 {
                let mixed = (right ^ self.key.rotate_left(round as u32 * 13))
                    .wrapping_add(round)
                    .wrapping_mul(0x9E37_79B9_7F4A_7C15);
                (left, right) = (right, left ^ (mixed >> 40 & mask));
            }
            x = (left << self.half_bits) | right;
            if x < self.n {
                return x;
            }
        }
    }
}

#[cfg(test)]
mod tests;
