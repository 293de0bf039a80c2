//! What became of every prefetched byte (\[A\] sections 3 and 6, Table 1).
//!
//! A prefetched byte ends in one of four ways: somebody uses it; it is evicted before anybody does (and how long it
//! had been in memory tells how much memory there is for prefetching); its last reader goes away without it (wasted);
//! or it is still there. Bytes used once may be used again until they are evicted: that is the cache at work.
//!
//! The ledger keeps a map of byte ranges that should be in memory, each with its state, and is told of reads from the
//! disk, of accesses, of ranges found missing, and of readers that come and go. In a simulator that is all there is
//! and the account is exact. In a daemon memory is only looked at now and then, so evictions are noticed when the
//! bytes are read again, later than they happened: eviction times are then upper bounds.
//!
//! Every event costs `O(log n)` for each range it touches and makes at most three new ones, so `O(log n)` amortised.
//! The number of ranges is bounded; beyond it the longest untouched is forgotten, and how many bytes were forgotten is
//! part of the totals.

use alloc::collections::BTreeMap;
use core::ops::Sub;

use seekless_units::Nanos;
use serde::{Deserialize, Serialize};

use crate::recency::{Recency, Turn};

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
    age: Turn,
}

/// The extents of every file that has any, by where they begin. By file first: an event is about one file, and most have few.
#[derive(Clone, Debug)]
struct Extents<F>(BTreeMap<F, BTreeMap<u64, Extent>>);

impl<F: Copy + Ord> Extents<F> {
    fn iter(&self) -> impl Iterator<Item = (u64, &Extent)> {
        self.0.values().flatten().map(|(start, extent)| (*start, extent))
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.iter().count()
    }
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
    extents: Extents<F>,
    /// Which extent was touched when; as many as there are extents.
    ages: Recency<(F, u64)>,
    readers: BTreeMap<F, u32>,
    ranges_max: usize,
    totals: Totals,
}

impl<F: Copy + Ord> Ledger<F> {
    /// A ledger of at most `ranges_max` ranges (at least 4), about 150 bytes each. A stream takes two or three.
    pub fn new(ranges_max: usize) -> Ledger<F> {
        Ledger {
            extents: Extents(BTreeMap::new()),
            ages: Recency::default(),
            readers: BTreeMap::new(),
            ranges_max: ranges_max.max(4),
            totals: Totals::default(),
        }
    }

    /// The sums so far.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Ranges kept at the moment.
    pub fn ranges(&self) -> usize {
        self.ages.len()
    }

    /// Prefetched bytes thought to be in memory that nobody has used yet. Costs a pass over all ranges.
    pub fn unused(&self) -> u64 {
        let fresh = self.extents.iter().filter(|(_, e)| matches!(e.state, State::Fresh(_)));
        fresh.map(|(start, e)| e.end - start).sum()
    }

    /// Of this range: the bytes prefetched at `since` or later that are thought to be in memory and nobody has used yet.
    pub fn unused_in(&self, file: F, start: u64, end: u64, since: Nanos) -> u64 {
        let Some(extents) = self.extents.0.get(&file).filter(|_| start < end) else { return 0 };
        let over_start = extents.range(..start).next_back().filter(|(_, extent)| extent.end > start);
        let met = over_start.into_iter().chain(extents.range(start..end));
        let fresh = met.filter(|(_, extent)| matches!(extent.state, State::Fresh(at) if at >= since));
        fresh.map(|(&from, extent)| extent.end.min(end) - from.max(start)).sum()
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
        for (&start, extent) in self.extents.0.get_mut(&file).into_iter().flatten() {
            if matches!(extent.state, State::Fresh(_)) {
                add(&mut self.totals.wasted_approx, extent.end.saturating_sub(start.max(position)));
                if last {
                    add(&mut self.totals.wasted, extent.end - start);
                    extent.state = State::Abandoned;
                }
            }
        }
        if last {
            self.readers.remove(&file);
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
        self.carve(file, start, end, |totals, n, state| {
            known += n;
            match state {
                State::Fresh(_) => add(&mut totals.first_use, n),
                State::Abandoned => {
                    totals.wasted = totals.wasted.saturating_sub(n);
                    add(&mut totals.first_use, n);
                }
                State::Used => add(&mut totals.cached, n),
            }
        });
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
        self.carve(file, start, end, |totals, n, state| match state {
            State::Fresh(since) => {
                add(&mut totals.evicted_unused, n);
                let micros = u128::from(now.since(since).0 / 1000);
                let sum = &mut totals.evicted_byte_micros;
                *sum = sum.saturating_add(u128::from(n) * micros);
            }
            // Counted as wasted already.
            State::Abandoned => {}
            State::Used => add(&mut totals.evicted_used, n),
        });
    }

    /// These bytes are given back: nobody is left to read them. What was prefetched and not used of them is wasted.
    pub fn given_back(&mut self, file: F, start: u64, end: u64) {
        self.carve(file, start, end, |totals, n, state| match state {
            State::Fresh(_) => add(&mut totals.wasted, n),
            State::Abandoned => {}
            State::Used => add(&mut totals.evicted_used, n),
        });
    }

    /// Takes a range out of the map; what lies over its edges stays, as touched just now. Tells `each` how many bytes were there in
    /// which state.
    fn carve(&mut self, file: F, start: u64, end: u64, mut each: impl FnMut(&mut Totals, u64, State)) {
        let Some(extents) = self.extents.0.get_mut(&file).filter(|_| start < end) else { return };
        let mut cut =
            |from: u64, extent: &Extent| each(&mut self.totals, extent.end.min(end) - from, extent.state);
        let mut over_end = None;
        if let Some((_, before)) = extents.range_mut(..start).next_back()
            && before.end > start
        {
            let rest = *before;
            before.end = start;
            self.ages.touch(before.age);
            cut(start, &rest);
            if rest.end > end {
                over_end = Some(Extent { age: self.ages.add((file, end)), ..rest });
            }
        }
        while let Some((&from, &extent)) = extents.range(start..end).next() {
            extents.remove(&from);
            cut(from, &extent);
            if extent.end > end {
                self.ages.rename(extent.age, (file, end));
                over_end = Some(extent);
            } else {
                self.ages.remove(extent.age);
            }
        }
        if let Some(rest) = over_end {
            extents.insert(end, rest);
        }
        if extents.is_empty() {
            self.extents.0.remove(&file);
        }
    }

    /// Adds a range that was carved free before, joined to neighbours of the same state.
    fn put(&mut self, file: F, start: u64, mut end: u64, state: State) {
        if start >= end {
            return;
        }
        let extents = self.extents.0.entry(file).or_default();
        if let Some(after) = extents.get(&end).copied().filter(|e| e.state == state) {
            extents.remove(&end);
            self.ages.remove(after.age);
            end = after.end;
        }
        match extents.range_mut(..start).next_back() {
            Some((_, before)) if before.end == start && before.state == state => {
                before.end = end;
                self.ages.touch(before.age);
            }
            _ => {
                let age = self.ages.add((file, start));
                extents.insert(start, Extent { end, state, age });
            }
        }
        while self.ages.len() > self.ranges_max {
            let Some((file, start)) = self.ages.pop_oldest() else { return };
            let Some(extents) = self.extents.0.get_mut(&file) else { return };
            if let Some(extent) = extents.remove(&start) {
                let bytes = extent.end - start;
                match extent.state {
                    State::Fresh(_) => add(&mut self.totals.forgotten_fresh, bytes),
                    _ => add(&mut self.totals.forgotten_used, bytes),
                }
            }
            if extents.is_empty() {
                self.extents.0.remove(&file);
            }
        }
    }
}

#[cfg(test)]
mod tests;
