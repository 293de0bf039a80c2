//! What became of every prefetched byte (\[A\] sections 3 and 6, Table 1).
//!
//! A prefetched byte ends in one of four ways: somebody uses it; it is evicted before anybody does (and how long it
//! had been in memory tells how much memory there is for prefetching); its last reader goes away without it (wasted);
//! or it is still there. Bytes used once may be used again until they are evicted: that is the cache at work.
//!
//! The ledger keeps a map of byte ranges that should be in memory, each with its state, and is told of reads from the
//! disk, of accesses, of ranges found missing, and of readers that come and go. In a simulator that is all there is
//! and the account is exact. In a daemon memory is only looked at now and then, so evictions are noticed when the
//! bytes are missed, later than they happened: eviction times are then upper bounds.
//!
//! Every event costs `O(log n)` for each range it touches and makes at most three new ones, so `O(log n)` amortised.
//! The number of ranges is bounded; beyond it the longest untouched is forgotten, and how many bytes were forgotten is
//! part of the totals.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Sub;

use seekless_units::Nanos;
use serde::{Deserialize, Serialize};

/// State of a range of bytes in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Prefetched then, not used yet.
    Fresh(Nanos),
    /// Prefetched, not used, and no reader left: counted as wasted.
    Abandoned,
    /// Used at least once.
    Used,
}

#[derive(Clone, Copy, Debug)]
struct Extent {
    end: u64,
    state: State,
    touched: u64,
}

/// All sums so far, in bytes unless said otherwise. Differences of two are those of the time between them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Asked for by readers.
    pub requested: u64,
    /// Read from the disk, prefetched or not.
    pub disk: u64,
    /// Read from the disk ahead of use.
    pub prefetched: u64,
    /// Prefetched and then used for the first time.
    pub first_use: u64,
    /// Used when they were in memory for another reason than a prefetch nobody had used yet: cache hits.
    pub cached: u64,
    /// Of `cached`: bytes the ledger did not know of.
    pub cached_unknown: u64,
    /// Read from the disk by the reader itself.
    pub passed: u64,
    /// Prefetched and evicted before use.
    pub evicted_unused: u64,
    /// Sum over those bytes of the microseconds they had been in memory.
    pub evicted_byte_micros: u128,
    /// Evicted after use.
    pub evicted_used: u64,
    /// Prefetched, and all readers gone. A later reader who uses them after all takes them out again.
    pub wasted: u64,
    /// Wasted as the paper counts: when a reader stops, everything unused past its position, though other readers of
    /// the file may still come to it.
    pub wasted_approx: u64,
    /// Forgotten for want of room, not used yet: each was used, evicted or wasted later, nobody knows which.
    pub forgotten_fresh: u64,
    /// Forgotten for want of room, used before.
    pub forgotten_used: u64,
}

impl Sub for Totals {
    type Output = Totals;
    fn sub(self, old: Totals) -> Totals {
        let d = u64::saturating_sub;
        Totals {
            requested: d(self.requested, old.requested),
            disk: d(self.disk, old.disk),
            prefetched: d(self.prefetched, old.prefetched),
            first_use: d(self.first_use, old.first_use),
            cached: d(self.cached, old.cached),
            cached_unknown: d(self.cached_unknown, old.cached_unknown),
            passed: d(self.passed, old.passed),
            evicted_unused: d(self.evicted_unused, old.evicted_unused),
            evicted_byte_micros: self.evicted_byte_micros.saturating_sub(old.evicted_byte_micros),
            evicted_used: d(self.evicted_used, old.evicted_used),
            wasted: d(self.wasted, old.wasted),
            wasted_approx: d(self.wasted_approx, old.wasted_approx),
            forgotten_fresh: d(self.forgotten_fresh, old.forgotten_fresh),
            forgotten_used: d(self.forgotten_used, old.forgotten_used),
        }
    }
}

/// A row of \[A\]'s Table 1: parts of the requested bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ratios {
    /// Disk / Requested.
    pub disk: f64,
    /// Cached / Requested, counted byte by byte.
    pub cached: f64,
    /// Cached / Requested as the paper approximates it: requested less (disk less evicted and wasted). Can be
    /// negative, as in the paper.
    pub cached_approx: f64,
    /// Evicted / Requested: before use.
    pub evicted: f64,
    /// Wasted / Requested, counted byte by byte.
    pub wasted: f64,
    /// Wasted / Requested as the paper counts it.
    pub wasted_approx: f64,
}

impl Totals {
    /// The row of Table 1; zeros while nothing was requested.
    pub fn ratios(&self) -> Ratios {
        if self.requested == 0 {
            return Ratios::default();
        }
        let part = |bytes: u64| bytes as f64 / self.requested as f64;
        let (disk, evicted) = (part(self.disk), part(self.evicted_unused));
        let wasted_approx = part(self.wasted_approx);
        Ratios {
            disk,
            cached: part(self.cached),
            cached_approx: 1.0 - (disk - evicted - wasted_approx),
            evicted,
            wasted: part(self.wasted),
            wasted_approx,
        }
    }

    /// Mean time that bytes evicted before use had been in memory: the paper's prefetch eviction time.
    pub fn eviction_time(&self) -> Option<Nanos> {
        let mean = self.evicted_byte_micros.checked_div(u128::from(self.evicted_unused))?;
        Some(Nanos::from_micros(u64::try_from(mean).unwrap_or(u64::MAX)))
    }
}

/// Sums stop at the largest number instead of overflowing.
fn add(sum: &mut u64, bytes: u64) {
    *sum = sum.saturating_add(bytes);
}

/// The account of one disk. `F` names a file.
#[derive(Clone, Debug)]
pub struct Ledger<F> {
    extents: BTreeMap<(F, u64), Extent>,
    /// Which extent was touched when, oldest first.
    ages: BTreeMap<u64, (F, u64)>,
    readers: BTreeMap<F, u32>,
    ranges_max: usize,
    clock: u64,
    totals: Totals,
}

impl<F: Copy + Ord> Ledger<F> {
    /// A ledger of at most `ranges_max` ranges (at least 4), about 150 bytes each. A stream takes two or three.
    pub fn new(ranges_max: usize) -> Ledger<F> {
        Ledger {
            extents: BTreeMap::new(),
            ages: BTreeMap::new(),
            readers: BTreeMap::new(),
            ranges_max: ranges_max.max(4),
            clock: 0,
            totals: Totals::default(),
        }
    }

    /// The sums so far.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Ranges kept at the moment.
    pub fn ranges(&self) -> usize {
        self.extents.len()
    }

    /// Prefetched bytes thought to be in memory that nobody has used yet. Costs a pass over all ranges.
    pub fn unused(&self) -> u64 {
        let fresh = self.extents.iter().filter(|(_, e)| matches!(e.state, State::Fresh(_)));
        fresh.map(|((_, start), e)| e.end - start).sum()
    }

    /// A reader of the file appeared.
    pub fn opened(&mut self, file: F) {
        if self.readers.len() < self.ranges_max || self.readers.contains_key(&file) {
            let count = self.readers.entry(file).or_insert(0);
            *count = count.saturating_add(1);
        }
    }

    /// A reader of the file has gone for good; it had come to this offset. With the last one gone, what is unused is
    /// wasted.
    pub fn closed(&mut self, file: F, position: u64) {
        let last = match self.readers.get_mut(&file) {
            None => return,
            Some(count) => {
                *count -= 1;
                *count == 0
            }
        };
        let mut fresh = Vec::new();
        for (&(_, start), extent) in self.extents.range((file, 0)..=(file, u64::MAX)) {
            if matches!(extent.state, State::Fresh(_)) {
                add(&mut self.totals.wasted_approx, extent.end.saturating_sub(start.max(position)));
                fresh.push((start, extent.end));
            }
        }
        if last {
            self.readers.remove(&file);
            for (start, end) in fresh {
                add(&mut self.totals.wasted, end - start);
                if let Some(extent) = self.extents.get_mut(&(file, start)) {
                    extent.state = State::Abandoned;
                }
            }
        }
    }

    /// These bytes came from the disk ahead of use. Where the ledger thought they were in memory, they must have been
    /// evicted: count only what the disk delivered.
    pub fn fetched(&mut self, now: Nanos, file: F, start: u64, end: u64) {
        self.missing(now, file, start, end);
        let bytes = end.saturating_sub(start);
        add(&mut self.totals.disk, bytes);
        add(&mut self.totals.prefetched, bytes);
        self.put(file, start, end, State::Fresh(now));
    }

    /// A reader got these bytes from memory.
    pub fn used(&mut self, file: F, start: u64, end: u64) {
        let bytes = end.saturating_sub(start);
        add(&mut self.totals.requested, bytes);
        let mut known = 0;
        for (from, to, state) in self.carve(file, start, end) {
            let n = to - from;
            known += n;
            match state {
                State::Fresh(_) => add(&mut self.totals.first_use, n),
                State::Abandoned => {
                    self.totals.wasted = self.totals.wasted.saturating_sub(n);
                    add(&mut self.totals.first_use, n);
                }
                State::Used => add(&mut self.totals.cached, n),
            }
        }
        add(&mut self.totals.cached, bytes - known);
        add(&mut self.totals.cached_unknown, bytes - known);
        self.put(file, start, end, State::Used);
    }

    /// A reader read these bytes from the disk itself.
    pub fn passed(&mut self, now: Nanos, file: F, start: u64, end: u64) {
        self.missing(now, file, start, end);
        let bytes = end.saturating_sub(start);
        add(&mut self.totals.requested, bytes);
        add(&mut self.totals.disk, bytes);
        add(&mut self.totals.passed, bytes);
        self.put(file, start, end, State::Used);
    }

    /// These bytes are not in memory (any more).
    pub fn missing(&mut self, now: Nanos, file: F, start: u64, end: u64) {
        for (from, to, state) in self.carve(file, start, end) {
            let n = to - from;
            match state {
                State::Fresh(since) => {
                    add(&mut self.totals.evicted_unused, n);
                    let micros = u128::from(now.since(since).0 / 1000);
                    let sum = &mut self.totals.evicted_byte_micros;
                    *sum = sum.saturating_add(u128::from(n) * micros);
                }
                // Counted as wasted already.
                State::Abandoned => {}
                State::Used => add(&mut self.totals.evicted_used, n),
            }
        }
    }

    /// These bytes are given back: nobody is left to read them. What was prefetched and not used of them is wasted.
    pub fn given_back(&mut self, file: F, start: u64, end: u64) {
        for (from, to, state) in self.carve(file, start, end) {
            match state {
                State::Fresh(_) => add(&mut self.totals.wasted, to - from),
                State::Abandoned => {}
                State::Used => add(&mut self.totals.evicted_used, to - from),
            }
        }
    }

    /// Takes a range out of the map; what lies over its edges stays. Returns what was there.
    fn carve(&mut self, file: F, start: u64, end: u64) -> Vec<(u64, u64, State)> {
        let mut pieces = Vec::new();
        if start >= end {
            return pieces;
        }
        let before = self.extents.range((file, 0)..(file, start)).next_back();
        let first = before.filter(|(_, e)| e.end > start).map_or(start, |((_, s), _)| *s);
        while let Some((&key, &extent)) = self.extents.range((file, first)..(file, end)).next() {
            self.remove(key);
            if key.1 < start {
                self.insert((file, key.1), Extent { end: start, ..extent });
                // The rest of it lies after the one just put back.
                pieces.push((start, extent.end.min(end), extent.state));
                if extent.end > end {
                    self.insert((file, end), extent);
                }
                if extent.end < end {
                    pieces.extend(self.carve(file, extent.end, end));
                }
                return pieces;
            }
            pieces.push((key.1, extent.end.min(end), extent.state));
            if extent.end > end {
                self.insert((file, end), extent);
            }
        }
        pieces
    }

    fn remove(&mut self, key: (F, u64)) {
        if let Some(extent) = self.extents.remove(&key) {
            self.ages.remove(&extent.touched);
        }
    }

    /// Puts an extent back under a new touch (the old one's place in the order of age may be taken).
    fn insert(&mut self, key: (F, u64), extent: Extent) {
        self.clock += 1;
        let touched = self.clock;
        self.ages.insert(touched, key);
        self.extents.insert(key, Extent { touched, ..extent });
    }

    /// Adds a range that was carved free before, joined to neighbours of the same state.
    fn put(&mut self, file: F, mut start: u64, mut end: u64, state: State) {
        if start >= end {
            return;
        }
        let before = self.extents.range((file, 0)..(file, start)).next_back();
        let before = before.filter(|(_, e)| e.end == start && e.state == state).map(|(k, _)| *k);
        if let Some(key) = before {
            start = key.1;
            self.remove(key);
        }
        let after = self.extents.get(&(file, end)).filter(|e| e.state == state).map(|e| e.end);
        if let Some(after) = after {
            self.remove((file, end));
            end = after;
        }
        self.insert((file, start), Extent { end, state, touched: 0 });
        while self.extents.len() > self.ranges_max {
            let Some((_, key)) = self.ages.pop_first() else { return };
            if let Some(extent) = self.extents.remove(&key) {
                let bytes = extent.end - key.1;
                match extent.state {
                    State::Fresh(_) => add(&mut self.totals.forgotten_fresh, bytes),
                    _ => add(&mut self.totals.forgotten_used, bytes),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
