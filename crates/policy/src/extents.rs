//! What is known of the bytes of every file of a disk: one map.
//!
//! The map holds ranges of bytes that are in memory or in flight. A range has one [`State`]. In addition a
//! read of it may be in flight (`arriving`). Everything else that the engine must know about bytes follows
//! from the map: what the disk delivered and what was in memory before, what was evicted before its reader
//! came, what may be dropped.
//!
//! Every change is one call of [`Extents::rewrite`], which splits ranges at the edges of the change and joins
//! equal neighbours after it. A stream takes two or three ranges: the bytes it has read, and a range for each
//! piece ahead of it.
//!
//! The map also keeps the account of \[A\] sections 3 and 6 ([`Totals`]). A fetched byte ends in one of four
//! ways: it is read; it is evicted before that (its age tells how much memory there is for prefetching); its
//! last reader leaves without it (wasted); or it is still there. In a simulator the account is exact. In a
//! daemon memory is only examined now and then, so evictions are noticed later than they happen and eviction
//! times are upper bounds.
//!
//! The number of ranges is bounded. Beyond the bound the range that was touched longest ago is forgotten
//! ([`Extents::forget_beyond_bound`]), and the totals count its bytes.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::hash::Hash;

use lru::LruCache;
use seekless_base::Nanos;

use crate::ledger::{Totals, add};

/// State of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Not in memory, but being read: by the engine if it is arriving, else by a client itself.
    Absent,
    /// Fetched by a read that was submitted at this time; a stream expects it and has not read it.
    Unread(Nanos),
    /// Fetched, not read, and no stream counts on it any more.
    Abandoned,
    /// Read at least once.
    Read,
    /// Found in memory for an unknown reason, and not read since.
    Found,
    /// Given back to the kernel; may still be in memory.
    Leaving,
}

/// What is known of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Facts {
    state: State,
    arriving: bool,
}

impl Facts {
    const fn of(state: State) -> Facts {
        Facts { state, arriving: false }
    }

    /// Whether it takes memory, or soon will.
    const fn occupies(&self) -> bool {
        self.arriving || self.in_memory()
    }

    /// Whether it is in memory, as far as is known, and was not dropped.
    const fn in_memory(&self) -> bool {
        !matches!(self.state, State::Absent | State::Leaving) && !self.arriving
    }
}

#[derive(Clone, Copy, Debug)]
struct Extent {
    end: u64,
    facts: Facts,
}

/// Bytes found missing that were thought to be in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Evicted {
    pub(crate) bytes: u64,
    /// When the read that fetched them was submitted; `None` if they had been read.
    pub(crate) fetched: Option<Nanos>,
}

/// The map of one disk. `F` identifies a file.
#[derive(Clone, Debug)]
pub(crate) struct Extents<F: Eq + Hash> {
    files: BTreeMap<F, BTreeMap<u64, Extent>>,
    /// All ranges, in the order they were last touched.
    recency: LruCache<(F, u64), ()>,
    /// Maximum number of ranges, kept by [`Extents::forget_beyond_bound`].
    pub(crate) ranges_max: usize,
    /// Bytes in memory or in flight, as far as is known.
    occupied: u64,
    account: Account,
    changes: Changes,
}

/// The ranges that a change touches, and their replacements. Kept to save an allocation for each change.
#[derive(Clone, Debug, Default)]
struct Changes {
    old: Vec<(u64, Extent)>,
    /// Start, end and facts of the new ranges, by rising start.
    new: Vec<(u64, u64, Facts)>,
}

/// The account of bytes.
#[derive(Clone, Debug, Default)]
struct Account {
    totals: Totals,
    /// Evictions noticed since [`Extents::take_evicted`].
    evicted: Vec<Evicted>,
}

impl Account {
    /// Counts bytes that are gone.
    fn evict(&mut self, now: Nanos, bytes: u64, state: State) {
        match state {
            State::Unread(fetched) => {
                add(&mut self.totals.evicted_unused, bytes);
                let micros = u128::from(now.since(fetched).0 / 1000);
                let sum = &mut self.totals.evicted_byte_micros;
                *sum = sum.saturating_add(u128::from(bytes) * micros);
                self.evicted.push(Evicted { bytes, fetched: Some(fetched) });
            }
            State::Read => {
                add(&mut self.totals.evicted_used, bytes);
                self.evicted.push(Evicted { bytes, fetched: None });
            }
            // Already counted as wasted or evicted, or not fetched.
            State::Absent | State::Abandoned | State::Found | State::Leaving => {}
        }
    }
}

impl<F: Copy + Ord + Hash> Extents<F> {
    /// An empty map of at most `ranges_max` ranges (at least 4) of about 150 bytes each.
    pub(crate) fn new(ranges_max: usize) -> Extents<F> {
        Extents {
            files: BTreeMap::new(),
            recency: LruCache::unbounded(),
            ranges_max: ranges_max.max(4),
            occupied: 0,
            account: Account::default(),
            changes: Changes::default(),
        }
    }

    /// The account so far.
    pub(crate) fn totals(&self) -> Totals {
        self.account.totals
    }

    #[cfg(test)]
    pub(crate) fn ranges(&self) -> usize {
        self.recency.len()
    }

    /// Bytes in memory or in flight, as far as is known.
    pub(crate) fn occupied(&self) -> u64 {
        self.occupied
    }

    /// Forgets a file.
    pub(crate) fn forget(&mut self, file: F) {
        let of_file = self.files.get(&file);
        let starts: Vec<u64> = of_file.into_iter().flat_map(|ranges| ranges.keys().copied()).collect();
        for start in starts {
            self.recency.pop(&(file, start));
            self.forget_range(file, start);
        }
    }

    /// The files in the map.
    pub(crate) fn files(&self) -> impl Iterator<Item = F> {
        self.files.keys().copied()
    }

    /// Fetched bytes that a stream expects and has not read.
    #[cfg(test)]
    pub(crate) fn unread(&self) -> u64 {
        let all = self.files.values().flatten();
        all.filter(|(_, e)| matches!(e.facts.state, State::Unread(_))).map(|(start, e)| e.end - start).sum()
    }

    /// A read of this range was submitted.
    pub(crate) fn read_submitted(&mut self, file: F, start: u64, end: u64) {
        self.rewrite(file, start, end, |_, _, facts| {
            Some(Facts { arriving: true, ..facts.unwrap_or(Facts::of(State::Absent)) })
        });
    }

    /// This part of a range in flight was in memory before: the disk does not deliver it.
    pub(crate) fn found(&mut self, file: F, start: u64, end: u64) {
        self.rewrite(file, start, end, |_, _, facts| match facts {
            Some(Facts { state: State::Absent, .. }) => Some(Facts::of(State::Found)),
            // Wanted again before it left memory.
            Some(Facts { state: State::Leaving, .. }) => Some(Facts::of(State::Read)),
            Some(Facts { state, .. }) => Some(Facts::of(state)),
            None => None,
        });
    }

    /// The disk delivered the part of this range that was still arriving, by a read submitted at `submitted`.
    /// Bytes that the map had there were evicted.
    pub(crate) fn arrived(&mut self, now: Nanos, submitted: Nanos, file: F, start: u64, end: u64) {
        self.rewrite(file, start, end, |account, len, facts| match facts {
            Some(f) if f.arriving => {
                account.evict(now, len, f.state);
                add(&mut account.totals.disk, len);
                add(&mut account.totals.prefetched, len);
                Some(Facts::of(State::Unread(submitted)))
            }
            facts => facts,
        });
    }

    /// The read of this range has ended; what is still arriving will not come.
    pub(crate) fn read_failed(&mut self, file: F, start: u64, end: u64) {
        self.rewrite(file, start, end, |_, _, facts| match facts {
            Some(Facts { state: State::Absent, arriving: true, .. }) => None,
            Some(Facts { state, .. }) => Some(Facts::of(state)),
            None => None,
        });
    }

    /// A client read this range from memory. Bytes still arriving have arrived, even if that was not
    /// reported.
    pub(crate) fn used(&mut self, file: F, start: u64, end: u64) {
        self.rewrite(file, start, end, |Account { totals, .. }, len, facts| {
            add(&mut totals.requested, len);
            match facts.map(|f| f.state) {
                Some(State::Absent) => {
                    let arriving = facts.is_some_and(|f| f.arriving);
                    add(&mut totals.disk, len);
                    add(if arriving { &mut totals.prefetched } else { &mut totals.passed }, len);
                    add(&mut totals.first_use, if arriving { len } else { 0 });
                }
                Some(State::Unread(_)) => add(&mut totals.first_use, len),
                Some(State::Abandoned) => {
                    totals.wasted = totals.wasted.saturating_sub(len);
                    add(&mut totals.first_use, len);
                }
                Some(State::Read) => add(&mut totals.cached, len),
                Some(State::Leaving | State::Found) | None => {
                    add(&mut totals.cached, len);
                    add(&mut totals.cached_unknown, len);
                }
            }
            Some(Facts::of(State::Read))
        });
    }

    /// A client read to the end of its file. The part of the last page beyond it does not belong to the file,
    /// so it is neither fetched nor wasted.
    pub(crate) fn beyond_end(&mut self, file: F, end: u64, page_end: u64) {
        self.rewrite(file, end, page_end, |Account { totals, .. }, len, facts| match facts {
            Some(f @ Facts { state: State::Unread(_), .. }) => {
                totals.disk = totals.disk.saturating_sub(len);
                totals.prefetched = totals.prefetched.saturating_sub(len);
                Some(Facts { state: State::Found, ..f })
            }
            facts => facts,
        });
    }

    /// A client reads this range itself: bytes not known to be in memory come from the disk.
    pub(crate) fn left_to_client(&mut self, file: F, start: u64, end: u64) {
        self.rewrite(file, start, end, |_, _, facts| Some(facts.unwrap_or(Facts::of(State::Absent))));
    }

    /// This range was found not to be in memory. Bytes still arriving are no evidence.
    pub(crate) fn missing(&mut self, now: Nanos, file: F, start: u64, end: u64) {
        self.rewrite(file, start, end, |account, len, facts| match facts {
            Some(f) if !f.arriving => {
                account.evict(now, len, f.state);
                None
            }
            facts => facts,
        });
    }

    /// This range was dropped. Fetched and unread bytes of it are wasted.
    pub(crate) fn dropped(&mut self, file: F, start: u64, end: u64) {
        self.rewrite(file, start, end, |Account { totals, .. }, len, facts| match facts {
            Some(f) if !f.arriving => {
                match f.state {
                    State::Unread(_) => add(&mut totals.wasted, len),
                    State::Read => add(&mut totals.evicted_used, len),
                    State::Absent | State::Abandoned | State::Found | State::Leaving => {}
                }
                Some(Facts::of(State::Leaving))
            }
            Some(facts) => Some(facts),
            None => Some(Facts::of(State::Leaving)),
        });
    }

    /// Bytes of this range that were dropped have left memory by now.
    pub(crate) fn left(&mut self, file: F, start: u64, end: u64) {
        self.rewrite(file, start, end, |_, _, facts| {
            facts.filter(|f| f.state != State::Leaving || f.arriving)
        });
    }

    /// A stream of the file has ended at `position`. Fetched bytes outside the ranges that streams expect
    /// (`counting`, by rising offset) are abandoned.
    pub(crate) fn stream_ended(&mut self, file: F, position: u64, counting: &[(u64, u64)]) {
        let past = self.overlapping(file, position, u64::MAX);
        let unread = past.filter(|(.., f)| matches!(f.state, State::Unread(_)));
        let approx: u64 = unread.map(|(from, to, _)| to - from).sum();
        add(&mut self.account.totals.wasted_approx, approx);
        self.abandon_uncounted(file, 0, u64::MAX, counting);
    }

    /// Abandons the fetched bytes of this range outside the ranges that streams expect (`counting`, by rising
    /// offset).
    pub(crate) fn abandon_uncounted(&mut self, file: F, start: u64, end: u64, counting: &[(u64, u64)]) {
        let mut from = start;
        for &(position, upto) in counting.iter().chain(&[(u64::MAX, u64::MAX)]) {
            self.abandon(file, from, position.min(end));
            from = from.max(upto);
        }
    }

    fn abandon(&mut self, file: F, start: u64, end: u64) {
        self.rewrite(file, start, end, |Account { totals, .. }, len, facts| match facts {
            Some(f @ Facts { state: State::Unread(_), .. }) => {
                add(&mut totals.wasted, len);
                Some(Facts { state: State::Abandoned, ..f })
            }
            facts => facts,
        });
    }

    /// The parts of this range that are in memory as far as is known, and not dropped. By rising offset.
    pub(crate) fn resident(&self, file: F, start: u64, end: u64) -> Vec<(u64, u64)> {
        self.stretches(file, start, end, Facts::in_memory)
    }

    /// The parts of this range that were dropped and neither read nor fetched since.
    pub(crate) fn leaving(&self, file: F, start: u64, end: u64) -> Vec<(u64, u64)> {
        self.stretches(file, start, end, |f| f.state == State::Leaving && !f.arriving)
    }

    /// The parts of `[start, end)` for which `of` holds; adjacent parts are joined.
    fn stretches(&self, file: F, start: u64, end: u64, of: impl Fn(&Facts) -> bool) -> Vec<(u64, u64)> {
        let mut stretches: Vec<(u64, u64)> = Vec::new();
        for (from, to, _) in self.overlapping(file, start, end).filter(|(.., facts)| of(facts)) {
            match stretches.last_mut() {
                Some((_, last)) if *last == from => *last = to,
                _ => stretches.push((from, to)),
            }
        }
        stretches
    }

    /// Evictions noticed since the last call.
    pub(crate) fn take_evicted(&mut self) -> Vec<Evicted> {
        core::mem::take(&mut self.account.evicted)
    }

    /// Forgets the ranges that were touched longest ago, as many as there are too many.
    pub(crate) fn forget_beyond_bound(&mut self) {
        while self.recency.len() > self.ranges_max {
            let Some(((file, start), ())) = self.recency.pop_lru() else { break };
            self.forget_range(file, start);
        }
    }

    /// The ranges that overlap `[start, end)`, cut to it.
    fn overlapping(&self, file: F, start: u64, end: u64) -> impl Iterator<Item = (u64, u64, Facts)> {
        let of_file = self.files.get(&file).filter(|_| start < end);
        let over_start = of_file.and_then(|e| e.range(..start).next_back()).filter(|(_, e)| e.end > start);
        let within = of_file.into_iter().flat_map(move |e| e.range(start..end));
        over_start.into_iter().chain(within).map(move |(&at, e)| (at.max(start), e.end.min(end), e.facts))
    }

    /// Replaces every part of `[start, end)` by the result of `change`, which gets the account, the part's
    /// length and its facts; `None` means "nothing known".
    fn rewrite(
        &mut self,
        file: F,
        start: u64,
        end: u64,
        mut change: impl FnMut(&mut Account, u64, Option<Facts>) -> Option<Facts>,
    ) {
        if start >= end {
            return;
        }
        // Rebuild the ranges that overlap the change or touch its edges.
        let of_file = self.files.entry(file).or_default();
        let before = of_file.range(..start).next_back().filter(|(_, e)| e.end >= start);
        let first = before.map_or(start, |(&at, _)| at);
        let Changes { old, new } = &mut self.changes;
        old.clear();
        new.clear();
        old.extend(of_file.range(first..=end).map(|(&at, e)| (at, *e)));
        let account = &mut self.account;
        let mut put = |from: u64, to: u64, facts: Option<Facts>, changes: bool| {
            if from >= to {
                return;
            }
            let facts = if changes { change(account, to - from, facts) } else { facts };
            let Some(facts) = facts else { return };
            match new.last_mut() {
                Some((_, last, same)) if *last == from && *same == facts => *last = to,
                _ => new.push((from, to, facts)),
            }
        };
        let mut cursor = start;
        for &(at, Extent { end: until, facts }) in old.iter() {
            self.recency.pop(&(file, at));
            let bytes = if facts.occupies() { until - at } else { 0 };
            self.occupied = self.occupied.saturating_sub(bytes);
            let (from, to) = (at.clamp(start, end), until.clamp(start, end));
            put(at, until.min(start), Some(facts), false);
            put(cursor, from, None, true);
            put(from, to, Some(facts), true);
            put(at.max(end), until, Some(facts), false);
            cursor = to;
        }
        put(cursor, end, None, true);
        for (at, _) in old.iter() {
            // The others are overwritten.
            if new.binary_search_by_key(at, |&(from, ..)| from).is_err() {
                of_file.remove(at);
            }
        }
        for &(from, to, facts) in new.iter() {
            self.recency.put((file, from), ());
            add(&mut self.occupied, if facts.occupies() { to - from } else { 0 });
            of_file.insert(from, Extent { end: to, facts });
        }
        if of_file.is_empty() {
            self.files.remove(&file);
        }
    }

    fn forget_range(&mut self, file: F, start: u64) {
        let Some(of_file) = self.files.get_mut(&file) else { return };
        let Some(Extent { end, facts, .. }) = of_file.remove(&start) else { return };
        if of_file.is_empty() {
            self.files.remove(&file);
        }
        let bytes = if facts.occupies() { end - start } else { 0 };
        self.occupied = self.occupied.saturating_sub(bytes);
        match facts.state {
            State::Unread(_) => add(&mut self.account.totals.forgotten_fresh, end - start),
            State::Read => add(&mut self.account.totals.forgotten_used, end - start),
            State::Absent | State::Abandoned | State::Found | State::Leaving => {}
        }
    }
}

#[cfg(test)]
mod tests;
