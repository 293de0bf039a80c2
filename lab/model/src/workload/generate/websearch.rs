//! Web-search-like: mostly random reads of a few pages over an index far larger than any cache, short runs
//! between.

use seekless_base::Nanos;

use super::oltp::pick;
use super::{Kind, PAGE_BYTES, Permutation, REQUESTED_BYTES, Shape};
use crate::workload::draw::Draw;
use crate::workload::trace::{Op, Record};

/// Storage units of the SPC web-search traces, each a device with addresses of its own and a part of the
/// index.
pub(super) const UNITS: u64 = 6;
/// Pages a request and its share: 8 KB to 32 KB with a mean near 15.5 KB, as in the SPC web-search traces.
const SIZES: &[(u64, f64)] = &[(2, 0.50), (4, 0.23), (6, 0.10), (8, 0.17)];

/// Mean requests a second. The original asks about 400 of six disks. A queue that only grows would drown
/// every difference in waiting, so a rate that the one disk of the study just carries without coordination.
const RATE_PER_S: f64 = 110.0;

/// Runs begin at multiples of this, about the mean run, so that 10 GB of requests touch nearly the whole
/// footprint.
const PLACE_PAGES: u64 = 5;
/// Requests over which a deviation from the random share is made up.
const STEERING: f64 = 64.0;
/// Popularity of places asked for again: index positions drawn as n^u (log-uniform, Zipf with exponent 1).
pub(super) const REVISIT_SHARE: f64 = 0.05;

/// See the [module](super).
#[derive(Clone, Debug)]
pub struct Websearch {
    draw: Draw,
    order: Permutation,
    places: u64,
    visited: u64,
    pages: u64,
    /// Pages still to be asked for.
    left: u64,
    at: f64,
    /// Where a run may go on.
    last_end: u64,
    /// Requests so far and random ones among them: the share is steered, since runs also end at the end of a
    /// unit or where another run happens to have ended before.
    requests: u64,
    randoms: u64,
    shape: Shape,
}

impl Websearch {
    /// The trace at a scale.
    pub fn new(scale: f64, seed: u64) -> Websearch {
        Websearch::of_shape(scale, seed, Shape::default())
    }

    /// The same with another shape.
    pub fn of_shape(scale: f64, seed: u64, shape: Shape) -> Websearch {
        let mut draw = Draw::new(seed, "trace websearch");
        let pages = Kind::Websearch.footprint_pages(scale) / (PLACE_PAGES * UNITS) * (PLACE_PAGES * UNITS);
        let places = pages / PLACE_PAGES;
        let order = Permutation::new(places, draw.word());
        Websearch {
            draw,
            order,
            places,
            visited: 0,
            pages,
            left: (REQUESTED_BYTES * scale) as u64 / PAGE_BYTES,
            at: 0.0,
            last_end: 0,
            requests: 0,
            randoms: 0,
            shape,
        }
    }

    /// Where a random request goes.
    fn elsewhere(&mut self, pages: u64) -> u64 {
        let unit_pages = self.pages / UNITS;
        self.randoms += 1;
        let place = if self.visited > 0 && self.draw.unit() < self.shape.revisits {
            // Popular places are those visited first, whatever their address.
            libm::pow(self.visited.min(self.places) as f64, self.draw.unit()) as u64 - 1
        } else {
            // Hardly longer than once through the index.
            self.visited += 1;
            self.visited - 1
        };
        let page = self.order.at(place) * PLACE_PAGES;
        // Not across the end of a unit.
        page - (page % unit_pages + pages).saturating_sub(unit_pages)
    }
}

impl Iterator for Websearch {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        if self.left == 0 {
            return None;
        }
        self.at += self.draw.exponential() / (RATE_PER_S * self.shape.rate);
        let pages = pick(&mut self.draw, SIZES);
        let unit_pages = self.pages / UNITS;
        let owed = Kind::Websearch.random_share() * (self.requests + 1) as f64 - self.randoms as f64;
        let random = self.visited == 0 || self.draw.unit() < owed / STEERING;
        self.requests += 1;
        // Nothing at the end of a unit: what follows is another one.
        let room = (unit_pages - self.last_end % unit_pages) % unit_pages;
        let page = if random || room < pages { self.elsewhere(pages) } else { self.last_end };
        self.last_end = page + pages;
        self.left = self.left.saturating_sub(pages);
        let (unit, within) = (page / unit_pages, page % unit_pages);
        Some(Record {
            at: Some(Nanos::from_secs_f64(self.at)),
            device: unit as u32,
            context: unit as u32,
            op: Op::Read,
            offset: within * PAGE_BYTES,
            bytes: pages * PAGE_BYTES,
            end: Some(unit_pages * PAGE_BYTES),
        })
    }
}
