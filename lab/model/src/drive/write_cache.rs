//! Sectors that the host has written and the medium does not have yet.
//!
//! Adjacent ranges are one range, so that a stream of writes is written to the medium as one. A sector that
//! is written again before it left the cache takes no more room. The destage takes ranges in order of address
//! (an elevator), and the oldest first once that is overdue.

use alloc::collections::BTreeMap;

/// Sectors of one range, and the arrival of the oldest.
#[derive(Clone, Copy, Debug)]
struct Dirty {
    end: u64,
    since: u64,
}

/// The volatile write cache.
#[derive(Clone, Debug)]
pub(crate) struct WriteCache {
    /// Maximum number of sectors; 0: every write goes to the medium before it is acknowledged.
    sectors_max: u64,
    /// By first sector; no two are adjacent.
    dirty: BTreeMap<u64, Dirty>,
    sectors: u64,
    /// Sectors being written to the medium, and when they will be there. They keep their room until then.
    leaving: (u64, u64),
}

impl WriteCache {
    pub(crate) fn new(sectors_max: u32) -> WriteCache {
        WriteCache {
            sectors_max: u64::from(sectors_max),
            dirty: BTreeMap::new(),
            sectors: 0,
            leaving: (0, 0),
        }
    }

    /// Whether a write of this many sectors is taken at all.
    pub(crate) fn takes(&self, sectors: u64) -> bool {
        sectors <= self.sectors_max
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.dirty.is_empty()
    }

    /// Sectors in the cache at `now`, those being written to the medium included.
    pub(crate) fn held(&self, now: u64) -> u64 {
        self.sectors + if now < self.leaving.0 { self.leaving.1 } else { 0 }
    }

    /// Whether a write has room at `now`.
    pub(crate) fn has_room(&self, now: u64, start: u64, end: u64) -> bool {
        self.held(now) + (end - start) - self.overlap(start, end) <= self.sectors_max
    }

    /// Ranges that overlap or touch `start..end`, in order.
    fn touching(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, Dirty)> + '_ {
        let first = self.dirty.range(..start).next_back().filter(|(_, d)| d.end >= start).map(|(&s, _)| s);
        self.dirty.range(first.unwrap_or(start)..=end).map(|(&s, &d)| (s, d))
    }

    fn overlap(&self, start: u64, end: u64) -> u64 {
        self.touching(start, end).map(|(s, d)| d.end.min(end).saturating_sub(s.max(start))).sum()
    }

    /// Whether every sector of a range is held.
    pub(crate) fn covers(&self, start: u64, end: u64) -> bool {
        self.dirty.range(..=start).next_back().is_some_and(|(_, d)| end <= d.end)
    }

    /// Adds `start..end`, for which there is room.
    pub(crate) fn insert(&mut self, now: u64, start: u64, end: u64) {
        let touching: alloc::vec::Vec<(u64, Dirty)> = self.touching(start, end).collect();
        let mut merged = (start, Dirty { end, since: now });
        for (s, d) in touching {
            self.dirty.remove(&s);
            self.sectors -= d.end - s;
            merged.0 = merged.0.min(s);
            merged.1 = Dirty { end: merged.1.end.max(d.end), since: merged.1.since.min(d.since) };
        }
        self.sectors += merged.1.end - merged.0;
        self.dirty.insert(merged.0, merged.1);
    }

    /// Removes the cached part of `start..end`: it is being written to the medium until `until`, or was
    /// overwritten.
    pub(crate) fn remove(&mut self, start: u64, end: u64, until: u64) {
        let touching: alloc::vec::Vec<(u64, Dirty)> = self.touching(start, end).collect();
        let mut gone = 0;
        for (s, d) in touching {
            let (from, to) = (s.max(start), d.end.min(end));
            if from >= to {
                continue;
            }
            gone += to - from;
            self.dirty.remove(&s);
            if s < from {
                self.dirty.insert(s, Dirty { end: from, since: d.since });
            }
            if to < d.end {
                self.dirty.insert(to, Dirty { end: d.end, since: d.since });
            }
        }
        self.sectors -= gone;
        self.leaving = (until, gone);
    }

    /// The arrival of the oldest sector.
    pub(crate) fn oldest(&self) -> Option<u64> {
        self.dirty.values().map(|d| d.since).min()
    }

    /// The next range to write: the oldest, or the next by rising address from `at` on.
    pub(crate) fn next(&self, at: u64, oldest: bool) -> Option<(u64, u64)> {
        let found = if oldest {
            self.dirty.iter().min_by_key(|(_, d)| d.since)
        } else {
            self.dirty.range(at..).next().or_else(|| self.dirty.iter().next())
        };
        found.map(|(&start, d)| (start, d.end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn holds_what_a_set_of_sectors_holds(
            ops in proptest::collection::vec((any::<bool>(), 0u64..200, 1u64..40), 1..60),
        ) {
            let (mut cache, mut set) = (WriteCache::new(100), BTreeSet::new());
            for (now, (write, start, len)) in ops.into_iter().enumerate() {
                let (now, end) = (now as u64, start + len);
                if write {
                    let fits = set.iter().chain(&(start..end).collect::<BTreeSet<_>>()).collect::<BTreeSet<_>>().len() <= 100;
                    prop_assert_eq!(cache.has_room(now, start, end), fits);
                    if fits {
                        cache.insert(now, start, end);
                        set.extend(start..end);
                    }
                } else {
                    cache.remove(start, end, now);
                    set.retain(|s| !(start..end).contains(s));
                }
                prop_assert_eq!(cache.held(now), set.len() as u64);
                prop_assert_eq!(cache.is_empty(), set.is_empty());
                prop_assert_eq!(cache.covers(start, end), (start..end).all(|s| set.contains(&s)));
                let next = cache.next(start, false).map(|(s, _)| s);
                // The first sector of a run from there on.
                let runs = |s: &&u64| **s == 0 || !set.contains(&(**s - 1));
                let first = set.range(start..).find(runs).or_else(|| set.iter().find(runs));
                prop_assert_eq!(next, first.copied());
            }
        }
    }
}
