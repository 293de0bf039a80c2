//! The costs of files and programs: how much of a disk's time each of them took. Pure.
//!
//! [`Spending`] follows the reads in flight. The time of the disk is divided equally among the reads in
//! flight at each moment, so all costs add up to the time in which the disk read. A read *seeks* if it does
//! not begin where the last one ended on that part of the device. Reads of others are not known here, so
//! there may be more seeks than are counted.
//!
//! [`Heaviest`] keeps the keys that cost most in bounded memory: *Space-Saving* (Metwally, Agrawal and El
//! Abbadi, "Efficient Computation of Frequent and Top-k Elements in Data Streams", ICDT 2005, section 3.1). A
//! new key takes the place of the lightest one, and its weight as an error. So a key with more than one
//! `entries`th of all weight is always in the table. Counters begin when a key gets its place; the error is
//! stored beside them ([`Entry::over`]).

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use seekless_base::{FileId, Lba, Nanos, SECTOR_BYTES, part_of};

use crate::ReadId;

/// Keys of a [`Heaviest`] table. A key with more than one 256th of the disk's time is never missing. At half,
/// the table loses files of a disk with two hundred viewers; at double, a disk takes 50 KB more.
pub const KEYS_MAX: usize = 256;

/// Time constant of [`Entry::recent`]. It is half of the longest interval of `seekless top`, so that a key
/// that began to cost since the last look is among the first. At half, a minute's look misses what ended
/// early in it; at double, a look each second shows what has ended.
const RECENT_S: f64 = 30.0;

/// Weight of a byte of the kernel's own reads, whose disk time is not known: 100 MB/s.
const KERNEL_BYTE_NS: u64 = 10;

/// What a file or a program took of a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Pieces read.
    pub reads: u64,
    /// Bytes that the disk delivered for them.
    pub bytes: u64,
    /// Pieces that did not begin where the one before ended.
    pub seeks: u64,
    /// Time of the disk; reads in flight together share it equally.
    pub disk_time: Nanos,
    /// The kernel's own reads, as far as a door reports them; their disk time is not known.
    pub kernel_reads: u64,
    /// Bytes of those.
    pub kernel_bytes: u64,
}

impl Cost {
    fn add(&mut self, other: Cost) {
        self.reads += other.reads;
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.seeks += other.seeks;
        self.disk_time += other.disk_time;
        self.kernel_reads += other.kernel_reads;
        self.kernel_bytes = self.kernel_bytes.saturating_add(other.kernel_bytes);
    }

    /// The weight by which keys are ranked.
    fn weight(&self) -> Nanos {
        self.disk_time + Nanos(self.kernel_bytes.saturating_mul(KERNEL_BYTE_NS))
    }
}

/// A key and what it cost.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry<K> {
    /// The key.
    pub key: K,
    /// Its cost since it got its place in the table.
    pub cost: Cost,
    /// Maximum cost before that, in disk time.
    pub over: Nanos,
    /// Its recent cost in seconds: a sum with a time constant of half a minute, at `at`.
    recent: f64,
    at: Nanos,
}

impl<K> Entry<K> {
    fn weight(&self) -> Nanos {
        self.over + self.cost.weight()
    }

    /// Its recent cost in seconds, as of `now`.
    pub fn recent(&self, now: Nanos) -> f64 {
        self.recent * libm::exp(-now.since(self.at).as_secs_f64() / RECENT_S)
    }
}

/// The keys that cost most.
#[derive(Clone, Debug)]
pub struct Heaviest<K> {
    entries: Vec<Entry<K>>,
    places: BTreeMap<K, usize>,
    keys_max: usize,
}

impl<K: Clone + Ord> Default for Heaviest<K> {
    fn default() -> Heaviest<K> {
        Heaviest::new(KEYS_MAX)
    }
}

impl<K: Clone + Ord> Heaviest<K> {
    /// An empty table of at most this many keys; at least one.
    pub fn new(keys_max: usize) -> Heaviest<K> {
        Heaviest { entries: Vec::new(), places: BTreeMap::new(), keys_max: keys_max.max(1) }
    }

    /// Adds to what a key cost. Returns the key that lost its place.
    pub fn add(&mut self, now: Nanos, key: K, cost: Cost) -> Option<K> {
        let (place, lost) = match self.places.get(&key) {
            Some(&place) => (place, None),
            None => self.make_place(now, key),
        };
        let entry = &mut self.entries[place];
        entry.recent = entry.recent(now) + cost.weight().as_secs_f64();
        entry.at = now;
        entry.cost.add(cost);
        lost
    }

    fn make_place(&mut self, now: Nanos, key: K) -> (usize, Option<K>) {
        let mut new = Entry { key, cost: Cost::default(), over: Nanos::ZERO, recent: 0.0, at: now };
        if self.entries.len() < self.keys_max {
            self.places.insert(new.key.clone(), self.entries.len());
            self.entries.push(new);
            return (self.entries.len() - 1, None);
        }
        let lightest = (0..self.entries.len()).min_by_key(|&at| self.entries[at].weight()).unwrap_or(0);
        new.over = self.entries[lightest].weight();
        self.places.insert(new.key.clone(), lightest);
        let lost = core::mem::replace(&mut self.entries[lightest], new).key;
        self.places.remove(&lost);
        (lightest, Some(lost))
    }

    /// Whether a key has a place.
    pub fn has(&self, key: &K) -> bool {
        self.places.contains_key(key)
    }

    /// All entries, in no order.
    pub fn entries(&self) -> &[Entry<K>] {
        &self.entries
    }

    /// At most `most` entries by falling disk time: half of them those with the highest total cost, half
    /// those with the highest recent cost.
    pub fn top(&self, now: Nanos, most: usize) -> Vec<&Entry<K>> {
        let mut by_recent: Vec<&Entry<K>> = self.entries.iter().collect();
        by_recent.sort_by(|a, b| b.recent(now).total_cmp(&a.recent(now)).then(a.key.cmp(&b.key)));
        let rest = by_recent.split_off((most / 2).min(by_recent.len()));
        let heavier = |a: &&Entry<K>, b: &&Entry<K>| {
            b.cost.weight().cmp(&a.cost.weight()).then_with(|| a.key.cmp(&b.key))
        };
        let mut by_weight = rest;
        by_weight.sort_by(heavier);
        by_weight.truncate(most - by_recent.len());
        by_recent.extend(by_weight);
        by_recent.sort_by(heavier);
        by_recent
    }
}

/// A read whose cost grows.
#[derive(Clone, Debug)]
struct Flight {
    read: ReadId,
    file: FileId,
    /// The process that it is read for, as the driver numbers processes.
    asker: u32,
    cost: Cost,
}

/// A read that begins.
#[derive(Clone, Copy, Debug)]
pub struct Begun {
    /// Its id.
    pub read: ReadId,
    /// The file.
    pub file: FileId,
    /// The process that it is read for, as the driver numbers processes.
    pub asker: u32,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// Disk address of the first byte, if known.
    pub lba: Option<Lba>,
}

/// The last place of the heads of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Head {
    At(Lba),
    /// The address is unknown: behind these bytes of a file.
    Behind(FileId, u64),
}

/// The reads in flight, and what they have cost so far.
#[derive(Clone, Debug, Default)]
pub struct Spending {
    flights: Vec<Flight>,
    passed: Nanos,
    /// Start addresses of the parts with their own heads, except the first.
    parts: Vec<Lba>,
    heads: BTreeMap<usize, Head>,
}

impl Spending {
    /// Nothing in flight, on a device of these parts ([`crate::Config::parts`]).
    pub fn on(parts: Vec<Lba>) -> Spending {
        Spending { parts, ..Spending::default() }
    }

    /// Divides the time since the last call among the reads in flight.
    fn pass(&mut self, now: Nanos) {
        let since = now.since(self.passed);
        self.passed = self.passed.max(now);
        let count = self.flights.len() as u64;
        for (at, flight) in self.flights.iter_mut().enumerate() {
            // The first read gets the remainder of the division.
            let rest = if at == 0 { since.0 % count } else { 0 };
            flight.cost.disk_time += Nanos(since.0 / count + rest);
        }
    }

    /// A read begins.
    pub fn begin(&mut self, now: Nanos, begun: Begun) {
        self.pass(now);
        let Begun { read, file, asker, offset, len, lba } = begun;
        let part = lba.map_or(0, |lba| part_of(&self.parts, lba));
        let (starts, ends) = match lba {
            Some(lba) => (Head::At(lba), Head::At(Lba(lba.0.saturating_add(len.div_ceil(SECTOR_BYTES))))),
            None => (Head::Behind(file, offset), Head::Behind(file, offset.saturating_add(len))),
        };
        let seeks = u64::from(self.heads.insert(part, ends) != Some(starts));
        let cost = Cost { reads: 1, bytes: len, seeks, ..Cost::default() };
        self.flights.push(Flight { read, file, asker, cost });
    }

    /// Bytes of a read were in memory before it began: the disk does not deliver them.
    pub fn found(&mut self, read: ReadId, bytes: u64) {
        if let Some(flight) = self.flights.iter_mut().find(|f| f.read == read) {
            flight.cost.bytes = flight.cost.bytes.saturating_sub(bytes);
        }
    }

    /// A read has ended: returns its file, its process and its cost. A read of which nothing came from the
    /// disk cost no seek.
    pub fn end(&mut self, now: Nanos, read: ReadId) -> Option<(FileId, u32, Cost)> {
        self.pass(now);
        let at = self.flights.iter().position(|f| f.read == read)?;
        let Flight { file, asker, mut cost, .. } = self.flights.remove(at);
        if cost.bytes == 0 {
            cost.seeks = 0;
        }
        Some((file, asker, cost))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const M: u64 = 1 << 20;

    fn file(ino: u64) -> FileId {
        FileId { dev: 8, ino }
    }

    fn time(ms: u64) -> Cost {
        Cost { reads: 1, disk_time: Nanos::from_millis(ms), ..Cost::default() }
    }

    fn begun(read: u64, ino: u64, offset: u64, lba: Option<u64>) -> Begun {
        Begun { read: ReadId(read), file: file(ino), asker: 7, offset, len: M, lba: lba.map(Lba) }
    }

    #[test]
    fn reads_in_flight_together_share_the_time_and_none_is_lost() {
        let at = Nanos::from_millis;
        let mut spending = Spending::default();
        spending.begin(at(0), begun(1, 1, 0, Some(0)));
        spending.begin(at(10), begun(2, 2, 0, Some(90_000)));
        let (_, asker, first) = spending.end(at(30), ReadId(1)).unwrap();
        let (of, _, second) = spending.end(at(35), ReadId(2)).unwrap();
        // The disk is idle for a while.
        spending.begin(at(100), begun(3, 1, M, Some(2048)));
        let (_, _, third) = spending.end(at(104), ReadId(3)).unwrap();
        assert_eq!((asker, of), (7, file(2)));
        let times = [first, second, third].map(|cost| cost.disk_time);
        assert_eq!(times, [20, 15, 4].map(at));
        assert!(spending.end(at(105), ReadId(3)).is_none());
    }

    #[test]
    fn a_read_that_goes_on_where_the_last_ended_does_not_seek() {
        let mut spending = Spending::on(alloc::vec![Lba(1_000_000)]);
        let mut seeks = Vec::new();
        for (read, (ino, offset, lba)) in [
            (1, 0, Some(0)),
            (1, M, Some(2048)),
            // Another part with its own heads, which are there for the first time.
            (2, 0, Some(1_000_000)),
            (1, 2 * M, Some(4096)),
            (3, 0, Some(4096)),
            // Without an address, the file counts.
            (4, 0, None),
            (4, M, None),
            (4, 3 * M, None),
        ]
        .into_iter()
        .enumerate()
        {
            spending.begin(Nanos::ZERO, begun(read as u64, ino, offset, lba));
            seeks.push(spending.end(Nanos::ZERO, ReadId(read as u64)).unwrap().2.seeks);
        }
        assert_eq!(seeks, [1, 0, 1, 0, 1, 1, 0, 1]);
    }

    #[test]
    fn what_was_in_memory_costs_no_seek() {
        let mut spending = Spending::default();
        spending.begin(Nanos::ZERO, begun(1, 1, 0, Some(5)));
        spending.found(ReadId(1), M);
        let (_, _, cost) = spending.end(Nanos(10), ReadId(1)).unwrap();
        assert_eq!((cost.bytes, cost.seeks, cost.reads), (0, 0, 1));
    }

    #[test]
    fn the_heavy_stay_and_the_light_give_way() {
        let mut table = Heaviest::new(4);
        let mut now = Nanos::ZERO;
        for round in 0..1_000u64 {
            now += Nanos::from_millis(10);
            table.add(now, 0, time(6));
            // A thousand light keys, each once.
            table.add(now, 1 + round, time(4));
        }
        let heavy = table.entries().iter().find(|e| e.key == 0).unwrap();
        assert_eq!((heavy.cost.disk_time, heavy.over), (Nanos::from_secs(6), Nanos::ZERO));
        assert_eq!(table.entries().len(), 4);
        assert_eq!(table.top(now, 2)[0].key, 0);
    }

    #[test]
    fn what_begins_to_cost_is_shown_beside_what_cost_for_days() {
        let mut table = Heaviest::new(KEYS_MAX);
        for key in 0..100u64 {
            table.add(Nanos::ZERO, key, time(1_000_000 + key));
        }
        let now = Nanos::from_secs(3_600);
        table.add(now, 1_000, time(50));
        let shown: Vec<u64> = table.top(now, 4).iter().map(|e| e.key).collect();
        assert!(shown.contains(&1_000) && shown.contains(&99), "{shown:?}");
        assert_eq!(shown.len(), 4);
    }

    proptest! {
        /// The bounds of the paper: no key with more than a `keys_max`th of all is missing; what a key really
        /// cost lies between its cost and its cost with the error.
        #[test]
        fn space_saving_keeps_its_bounds(
            adds in proptest::collection::vec((0u32..40, 1u64..50), 1..400),
            keys_max in 1usize..20,
        ) {
            let mut table = Heaviest::new(keys_max);
            let mut exact: BTreeMap<u32, u64> = BTreeMap::new();
            for (key, ms) in &adds {
                table.add(Nanos::ZERO, *key, time(*ms));
                *exact.entry(*key).or_default() += ms;
            }
            let all: u64 = exact.values().sum();
            let of = |ms: u64| Nanos::from_millis(ms);
            prop_assert!(table.entries().len() <= keys_max);
            for (key, ms) in &exact {
                prop_assert!(ms * keys_max as u64 <= all || table.has(key), "{} of {}", ms, all);
            }
            let weights: u64 = table.entries().iter().map(|e| e.weight().0).sum();
            prop_assert_eq!(Nanos(weights), of(all));
            for entry in table.entries() {
                let real = of(exact[&entry.key]);
                prop_assert!(entry.cost.disk_time <= real && real <= entry.weight());
            }
        }
    }
}
