//! OLTP-like: many sequential scans and a few random reads over a small, often revisited footprint.

use seekless_base::Nanos;

use super::{Kind, PAGE_BYTES, REQUESTED_BYTES, Shape};
use crate::workload::draw::{Draw, exponential_of};
use crate::workload::trace::{Op, Record};

/// Scans under way at once at scale 1, anywhere in the storage units: few enough that the smaller L1 (1,291
/// blocks) can hold what Linux fetches ahead for all of them (64 blocks each).
pub(super) const SCANS: f64 = 12.0;
/// Storage units of the SPC financial trace, each a device with addresses of its own. Tables and files lie
/// within them, and the trace does not tell where: several scans may be in one unit. Equal sizes are assumed.
const UNITS: u64 = 24;
/// Fewest pages of a unit: at a small scale there are fewer units rather than units that no scan fits into.
const UNIT_PAGES_MIN: u64 = 64;
/// Mean length of a scan, requests: short enough that scans end and begin all the time.
pub(super) const SCAN_REQUESTS: f64 = 64.0;
/// Requests over which a deviation from the random share is made up.
const STEERING: f64 = 64.0;

/// Pages a request and its share: between the 2 to 4 KB of the SPC financial traces and the 17 KB that "10 GB
/// are 10.8 % of the requests" implies.
const SIZES: &[(u64, f64)] = &[(1, 0.35), (2, 0.25), (4, 0.25), (8, 0.15)];
/// Mean requests a second. The SPC financial trace has 122 on the mean of 12 hours; 200 keeps the disk of the
/// study between a third and three quarters busy without coordination, as the paper's gains suggest it was.
const RATE_PER_S: f64 = 200.0;

#[derive(Clone, Copy, Debug)]
struct Scan {
    unit: u64,
    next: u64,
    left: u64,
}

/// See the [module](super).
#[derive(Clone, Debug)]
pub struct Oltp {
    draw: Draw,
    scans: Vec<Scan>,
    units: u64,
    unit_pages: u64,
    /// Pages still to be asked for.
    left: u64,
    at: f64,
    /// Requests so far and random ones among them, beginnings of scans included: the share is steered, since
    /// scans also end where their unit ends.
    requests: u64,
    randoms: u64,
    shape: Shape,
}

impl Oltp {
    /// The trace at a scale.
    pub fn new(scale: f64, seed: u64) -> Oltp {
        Oltp::of_shape(scale, seed, Shape::default())
    }

    /// The same with another shape.
    pub fn of_shape(scale: f64, seed: u64, shape: Shape) -> Oltp {
        let draw = Draw::new(seed, "trace oltp");
        let scans = ((shape.scans * scale + 0.5) as u64).max(2);
        let units = units(scale);
        let unit_pages = Kind::Oltp.footprint_pages(scale) / units;
        let scans = (0..scans).map(|_| Scan { unit: 0, next: 0, left: 0 }).collect();
        let left = (REQUESTED_BYTES * scale) as u64 / PAGE_BYTES;
        Oltp { draw, scans, units, unit_pages, left, at: 0.0, requests: 0, randoms: 0, shape }
    }
}

/// Storage units at a scale.
pub(super) fn units(scale: f64) -> u64 {
    UNITS.min(Kind::Oltp.footprint_pages(scale) / UNIT_PAGES_MIN).max(1)
}

/// Draws from a small table of values and shares.
pub(super) fn pick(draw: &mut Draw, table: &[(u64, f64)]) -> u64 {
    let mut u = draw.unit();
    for &(value, share) in table {
        if u < share {
            return value;
        }
        u -= share;
    }
    table.last().map_or(1, |t| t.0)
}

impl Iterator for Oltp {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        if self.left == 0 {
            return None;
        }
        self.at += self.draw.exponential() / (RATE_PER_S * self.shape.rate);
        let pages = pick(&mut self.draw, SIZES);
        let scans = self.scans.len() as u64;
        // The chance rises with what is owed, so that random requests stay irregular.
        let owed = Kind::Oltp.random_share() * (self.requests + 1) as f64 - self.randoms as f64;
        self.requests += 1;
        let (unit, page, pages) = if self.draw.unit() < owed / STEERING {
            self.randoms += 1;
            (self.draw.below(self.units), self.draw.below(self.unit_pages - pages), pages)
        } else {
            let i = self.draw.below(scans) as usize;
            // Drawn whether a scan begins or not, so that one draw always stands for the same.
            let length = self.draw.unit();
            let mut scan = self.scans[i];
            if scan.left == 0 || scan.next + pages > self.unit_pages {
                self.randoms += 1;
                let unit = self.draw.below(self.units);
                let left = 1 + (exponential_of(length) * (self.shape.scan_requests - 1.0)) as u64;
                scan = Scan { unit, next: self.draw.below(self.unit_pages - pages), left };
            }
            let page = scan.next;
            self.scans[i] = Scan { next: page + pages, left: scan.left - 1, ..scan };
            (scan.unit, page, pages)
        };
        self.left = self.left.saturating_sub(pages);
        Some(Record {
            at: Some(Nanos::from_secs_f64(self.at)),
            device: unit as u32,
            context: unit as u32,
            op: Op::Read,
            offset: page * PAGE_BYTES,
            bytes: pages * PAGE_BYTES,
            end: Some(self.unit_pages * PAGE_BYTES),
        })
    }
}
