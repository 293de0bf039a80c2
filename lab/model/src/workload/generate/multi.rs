//! Multi-application-like: 12,514 files read by three applications at once (PFC: csscope, gcc, viewperf).

use super::oltp::pick;
use super::{DRIVE_BYTES, Kind, PAGE_BYTES, Permutation, Shape};
use crate::workload::draw::Draw;
use crate::workload::trace::{Op, Record};

/// Files at scale 1, and share of the footprint, of each application: many sources (csscope), fewer sources
/// (gcc), few large models (viewperf). PFC gives the sums (12,514 files, 792 MB); the split is assumed, in
/// the proportions the three programs are known for. Last, the share of requests, assumed as well: small
/// files begin so often that a larger share of the first two would exceed the 25 % of random requests.
const APPLICATIONS: [(f64, f64, f64); 3] = [(10_114.0, 0.33, 0.4), (2_100.0, 0.05, 0.1), (300.0, 0.62, 0.5)];
/// Requests a footprint page is asked for on the mean: sources and headers are read again and again.
pub(super) const PASSES: f64 = 3.0;
/// Spread of the log-normal file size; the mean follows from the footprint and the number of files.
const SIZE_SIGMA: f64 = 1.2;
/// Pages a request and its share: applications read 4 to 32 KB at a time.
const SIZES: [(u64, f64); 4] = [(1, 0.4), (2, 0.3), (4, 0.2), (8, 0.1)];
/// Files are opened by popularity: rank n^u (log-uniform), in this share of the openings; else uniformly.
pub(super) const POPULAR_SHARE: f64 = 0.5;

#[derive(Clone, Copy, Debug, Default)]
struct Reader {
    file: usize,
    next: u64,
}

/// One application's files.
#[derive(Clone, Copy, Debug)]
struct Owner {
    first: u64,
    files: u64,
    popularity: Permutation,
}

/// See the [module](super).
#[derive(Clone, Debug)]
pub struct Multi {
    draw: Draw,
    /// First page of each file were they one behind the other, and the end of the last.
    starts: Vec<u64>,
    /// First page of each file on the device. The files are spread over all of it: behind each is room in
    /// proportion to its length, and those of one application are neighbours.
    places: Vec<u64>,
    owners: Vec<Owner>,
    readers: [Reader; APPLICATIONS.len()],
    pages_left: u64,
    /// Requests so far and random ones among them: the share is steered, since files end when they end.
    requests: u64,
    randoms: u64,
    shape: Shape,
}

impl Multi {
    /// The trace at a scale.
    pub fn new(scale: f64, seed: u64) -> Multi {
        Multi::of_shape(scale, seed, Shape::default())
    }

    /// The same with another shape.
    pub fn of_shape(scale: f64, seed: u64, shape: Shape) -> Multi {
        let mut draw = Draw::new(seed, "trace multi");
        let footprint = Kind::Multi.footprint_pages(scale);
        let mut starts = vec![0];
        let mut owners = Vec::new();
        for (files, share, _) in APPLICATIONS {
            let files = ((files * scale) as u64).max(2);
            let sizes: Vec<f64> = (0..files)
                .map(|_| {
                    // Box and Muller; one of the pair is enough.
                    let radius = libm::sqrt(2.0 * draw.exponential());
                    let normal = radius * libm::cos(core::f64::consts::TAU * draw.unit());
                    libm::exp(SIZE_SIGMA * normal)
                })
                .collect();
            let total: f64 = sizes.iter().sum();
            let room = (footprint as f64 * share - files as f64).max(0.0);
            owners.push(Owner {
                first: starts.len() as u64 - 1,
                popularity: Permutation::new(files, draw.word()),
                files,
            });
            for size in &sizes {
                starts.push(starts.last().copied().unwrap_or(0) + (size / total * room) as u64 + 1);
            }
        }
        let total = starts.last().copied().unwrap_or(0).max(1);
        let spread = (DRIVE_BYTES / PAGE_BYTES).max(total);
        let place = |start: &u64| (u128::from(*start) * u128::from(spread) / u128::from(total)) as u64;
        let places = starts.iter().map(place).collect();
        let pages_left = (footprint as f64 * shape.passes) as u64;
        let mut multi = Multi {
            draw,
            starts,
            places,
            owners,
            readers: [Reader::default(); APPLICATIONS.len()],
            pages_left,
            requests: 0,
            randoms: 0,
            shape,
        };
        for i in 0..APPLICATIONS.len() {
            multi.readers[i] = multi.open(i);
        }
        multi
    }

    fn open(&mut self, application: usize) -> Reader {
        let Owner { first, popularity, files } = self.owners[application];
        let rank = if self.draw.unit() < self.shape.popular {
            libm::pow(files as f64, self.draw.unit()) as u64 - 1
        } else {
            self.draw.below(files)
        };
        Reader { file: (first + popularity.at(rank)) as usize, next: 0 }
    }
}

impl Iterator for Multi {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        if self.pages_left == 0 {
            return None;
        }
        let i = self.application();
        let mut reader = self.readers[i];
        let mut random = reader.next == 0;
        if reader.next >= self.pages_in(reader.file) {
            reader = self.open(i);
            random = true;
        }
        let size = self.pages_in(reader.file);
        // Whatever the beginnings of files leave of the 25 % are jumps within a file.
        let owed = Kind::Multi.random_share() * (self.requests + 1) as f64 - self.randoms as f64;
        if !random && size > 1 && owed >= 1.0 {
            let to = self.draw.below(size);
            random = to != reader.next;
            reader.next = to;
        }
        let pages = pick(&mut self.draw, &SIZES).min(size - reader.next);
        let (start, page) = (self.places[reader.file], reader.next);
        reader.next += pages;
        self.readers[i] = reader;
        self.requests += 1;
        self.randoms += u64::from(random);
        self.pages_left = self.pages_left.saturating_sub(pages);
        Some(Record {
            at: None,
            device: 0,
            context: reader.file as u32,
            op: Op::Read,
            offset: (start + page) * PAGE_BYTES,
            bytes: pages * PAGE_BYTES,
            end: Some((start + size) * PAGE_BYTES),
        })
    }
}

impl Multi {
    fn application(&mut self) -> usize {
        let mut u = self.draw.unit();
        for (i, (_, _, share)) in APPLICATIONS.iter().enumerate() {
            if u < *share {
                return i;
            }
            u -= share;
        }
        0
    }

    fn pages_in(&self, file: usize) -> u64 {
        self.starts[file + 1] - self.starts[file]
    }
}
