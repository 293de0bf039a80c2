//! Memory by next use: what leaves when memory is full.
//!
//! Bytes that a stream has passed are used again by the next stream behind it; the nearer it is, the sooner.
//! When memory is full, all bytes behind streams are examined in one pass, and those used last leave until
//! there is room for a while. Fetched and unread bytes stay, and so does a [`PIECE`] behind each stream,
//! because servers read a little twice.

use alloc::vec::Vec;

use seekless_base::Nanos;
use seekless_base::wants::PIECE;

use super::{DiskEngine, RANGES_MAX};
use crate::FileId;
use crate::pool::MemoryUse;

/// Bytes behind the streams of a file, and the time until they are used again.
struct PassedRange {
    next_use: Nanos,
    file: FileId,
    start: u64,
    end: u64,
}

impl DiskEngine {
    /// If memory is full, drops the bytes that are used last.
    pub(super) fn make_room(&mut self) {
        if !self.config.follows() || self.memory.excess(self.extents.occupied()) == 0 {
            return;
        }
        // Bytes of closed files cannot be dropped. They were used longest ago, so the kernel evicts them
        // first.
        let closed: Vec<FileId> = self.extents.files().filter(|&file| !self.files.is_open(file)).collect();
        closed.into_iter().for_each(|file| self.extents.forget(file));
        let excess = self.memory.excess(self.extents.occupied());
        let mut passed_ranges = self.passed_ranges();
        passed_ranges.sort_unstable_by_key(|b| (b.next_use, b.file, b.start));
        let mut freed = 0;
        let mut last = None;
        while let Some(PassedRange { next_use, file, start, end }) = passed_ranges.pop_if(|_| freed < excess)
        {
            self.drop_range(file, start, end, 1);
            freed += end - start;
            last = Some(next_use);
        }
        self.memory.made_room(self.now, last.filter(|_| freed >= excess), self.extents.occupied());
    }

    /// This disk's report to the pool of all disks.
    pub fn memory_use(&self) -> MemoryUse {
        let last = match self.memory.horizon() {
            Some(horizon) => Some(horizon),
            None => self.passed_ranges().iter().map(|range| range.next_use).max(),
        };
        let price =
            last.map_or(0.0, |last| self.memory.price(last, self.service.rate(), self.service.depth()));
        MemoryUse { occupied: self.extents.occupied(), price, is_short: self.memory.is_short() }
    }

    /// All bytes in memory behind streams, in pieces.
    fn passed_ranges(&self) -> Vec<PassedRange> {
        let least = self.extents.occupied() / RANGES_MAX as u64;
        let piece = self.size.full(None, 0.0).0.max(PIECE).max(least);
        let mut passed_ranges = Vec::new();
        for file in self.extents.files() {
            let streams = self.following.table.of_file(file);
            let mut stays: Vec<(u64, u64)> =
                streams.map(|(_, s)| (s.passed.saturating_sub(PIECE), s.fetched)).collect();
            stays.extend(self.awaited.of_file(file));
            stays.sort_unstable();
            let mut from = 0;
            for &(start, end) in stays.iter().chain(&[(u64::MAX, u64::MAX)]) {
                for (mut start, end) in self.extents.resident(file, from, start) {
                    while start < end {
                        let upto = end.min(start.saturating_add(piece));
                        passed_ranges.push(PassedRange {
                            next_use: self.next_use(file, start),
                            file,
                            start,
                            end: upto,
                        });
                        start = upto;
                    }
                }
                from = from.max(end);
            }
        }
        passed_ranges
    }

    /// Time until the byte at this offset is used, as far as streams tell: by the next stream behind it, or
    /// by one that is expected at the head of the file.
    fn next_use(&self, file: FileId, offset: u64) -> Nanos {
        let table = &self.following.table;
        let mean = self.following.mean_rate;
        let follower = table.of_file_before(file, offset).map_or(Nanos::MAX, |follower| {
            let own = table.get(follower.id).map_or(0.0, |stream| stream.paced(self.now));
            takes(offset - follower.position, if own > 0.0 { own } else { mean })
        });
        let arrival = table.next_arrival(self.now, file);
        follower.min(arrival.map_or(Nanos::MAX, |arrival| arrival + takes(offset, mean)))
    }

    /// Whether the byte at this offset is used soon enough to be kept.
    pub(super) fn is_kept(&self, file: FileId, offset: u64) -> bool {
        self.memory.horizon().is_none_or(|horizon| self.next_use(file, offset) < horizon)
    }
}

/// Time to read these bytes at this rate.
fn takes(bytes: u64, rate: f64) -> Nanos {
    if rate > 0.0 { Nanos::from_secs_f64(bytes as f64 / rate) } else { Nanos::MAX }
}
