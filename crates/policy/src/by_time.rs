//! A set of keys, each with at most one time, ordered by time.

use alloc::collections::{BTreeMap, BTreeSet};
use core::ops::Bound;

use seekless_base::Nanos;

/// Keys and the times at which they are due.
#[derive(Clone, Debug)]
pub(crate) struct ByTime<K> {
    in_order: BTreeSet<(Nanos, K)>,
    times: BTreeMap<K, Nanos>,
}

impl<K> Default for ByTime<K> {
    fn default() -> ByTime<K> {
        ByTime { in_order: BTreeSet::new(), times: BTreeMap::new() }
    }
}

impl<K: Copy + Ord> ByTime<K> {
    /// Sets the time of a key; replaces an earlier one.
    pub(crate) fn set(&mut self, key: K, time: Nanos) {
        let before = self.times.insert(key, time);
        if before == Some(time) {
            return;
        }
        if let Some(before) = before {
            self.in_order.remove(&(before, key));
        }
        self.in_order.insert((time, key));
    }

    pub(crate) fn remove(&mut self, key: K) {
        if let Some(time) = self.times.remove(&key) {
            self.in_order.remove(&(time, key));
        }
    }

    pub(crate) fn time(&self, key: K) -> Option<Nanos> {
        self.times.get(&key).copied()
    }

    pub(crate) fn len(&self) -> usize {
        self.times.len()
    }

    /// The keys, the earliest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = K> {
        self.in_order.iter().map(|&(_, key)| key)
    }

    /// The earliest time and its key.
    pub(crate) fn first(&self) -> Option<(Nanos, K)> {
        self.in_order.first().copied()
    }

    /// The first time and key behind these.
    pub(crate) fn next(&self, before: (Nanos, K)) -> Option<(Nanos, K)> {
        self.in_order.range((Bound::Excluded(before), Bound::Unbounded)).next().copied()
    }

    /// Removes the earliest key, if it is due.
    pub(crate) fn pop_due(&mut self, now: Nanos) -> Option<K> {
        let (_, key) = self.first().filter(|&(time, _)| time <= now)?;
        self.remove(key);
        Some(key)
    }
}
