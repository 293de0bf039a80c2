//! Miss-ratio curves: what share of the accesses a least-recently-used cache of each size would miss, from
//! one pass.
//!
//! An access hits in every cache at least as large as its *stack distance*: the bytes of all different parts
//! accessed since the last access to the same part, its own included (Mattson et al. 1970). Distances come
//! from a tree of partial sums over the order of last accesses (Olken 1981), in time logarithmic in the
//! number of parts.
//!
//! Memory is bounded by following only a sample of the parts: those whose hash lies below a threshold, which
//! is lowered whenever the sample grows too large, and all distances are scaled up by the sampled share
//! (SHARDS with a fixed number of samples, Waldspurger et al., FAST 2015; with its correction for the
//! difference between expected and actual number of sampled accesses). While nothing has been left out, the
//! curve is exact.

use std::collections::{BinaryHeap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};

use seekless_model::workload::splitmix::mix;

/// Hash values are compared as 24-bit numbers: finer shares than one in 16 million are of no use.
const HASH_BITS: u32 = 24;
/// Buckets of distances an octave: neighbouring cache sizes of a curve are within 4.5 %.
const PER_OCTAVE: usize = 16;
const OCTAVES: usize = 56;

/// For keys that are hashes already.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mixed(u64);

impl Hasher for Mixed {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 << 8) ^ u64::from(*byte);
        }
    }
    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

/// A map from hashes.
pub(crate) type MixedMap<V> = HashMap<u64, V, BuildHasherDefault<Mixed>>;

/// Sums over the order of last accesses: a binary indexed tree that is packed anew when its slots run out.
#[derive(Clone, Debug)]
struct AccessOrder {
    tree: Vec<u64>,
    keys: Vec<Option<u64>>,
    place: MixedMap<(u32, u32)>,
    next: usize,
    total: u64,
}

impl AccessOrder {
    fn new(samples_max: usize) -> AccessOrder {
        // Packing costs as much as there are slots and frees at least half of them.
        let slots = samples_max * 2 + 2;
        AccessOrder {
            tree: vec![0; slots + 1],
            keys: vec![None; slots],
            place: MixedMap::default(),
            next: 0,
            total: 0,
        }
    }

    fn add(&mut self, slot: usize, weight: u64, sign: bool) {
        let mut i = slot + 1;
        while i < self.tree.len() {
            self.tree[i] = if sign { self.tree[i] + weight } else { self.tree[i] - weight };
            i += i & i.wrapping_neg();
        }
        self.total = if sign { self.total + weight } else { self.total - weight };
    }

    /// Sum of the weights up to and including a slot.
    fn up_to(&self, slot: usize) -> u64 {
        let (mut i, mut sum) = (slot + 1, 0);
        while i > 0 {
            sum += self.tree[i];
            i &= i - 1;
        }
        sum
    }

    fn remove(&mut self, key: u64) -> Option<u64> {
        let (slot, weight) = self.place.remove(&key)?;
        let after = self.total - self.up_to(slot as usize);
        self.add(slot as usize, u64::from(weight), false);
        self.keys[slot as usize] = None;
        Some(after)
    }

    fn push(&mut self, key: u64, weight: u32) {
        if self.next == self.keys.len() {
            self.pack();
        }
        self.keys[self.next] = Some(key);
        self.place.insert(key, (self.next as u32, weight));
        self.add(self.next, u64::from(weight), true);
        self.next += 1;
    }

    fn pack(&mut self) {
        let keys: Vec<u64> = self.keys.iter().flatten().copied().collect();
        self.tree.fill(0);
        self.keys.fill(None);
        self.next = 0;
        self.total = 0;
        for key in keys {
            if let Some((_, weight)) = self.place.get(&key).copied() {
                self.push(key, weight);
            }
        }
    }
}

/// Follows accesses; gives a [`Curve`].
#[derive(Clone, Debug)]
pub struct Distances {
    order: AccessOrder,
    samples_max: usize,
    /// Parts with a hash below it are followed.
    threshold: u64,
    /// The followed parts by hash, the first to go on top.
    by_hash: BinaryHeap<(u64, u64)>,
    /// Another seed follows other parts.
    seed: u64,
    /// Bytes of accesses by distance, as sampled at the present threshold.
    buckets: Vec<f64>,
    /// Bytes of first accesses, likewise.
    first: f64,
    /// Bytes of all accesses.
    bytes: f64,
}

impl Distances {
    /// Follows at most this many parts at once; 40 bytes each.
    pub fn new(samples_max: usize, seed: u64) -> Distances {
        let samples_max = samples_max.clamp(1, 1 << 30);
        Distances {
            order: AccessOrder::new(samples_max),
            samples_max,
            threshold: 1 << HASH_BITS,
            by_hash: BinaryHeap::new(),
            seed: mix(seed),
            buckets: vec![0.0; OCTAVES * PER_OCTAVE],
            first: 0.0,
            bytes: 0.0,
        }
    }

    /// The share of parts followed, 1 while all are.
    pub fn share(&self) -> f64 {
        self.threshold as f64 / (1_u64 << HASH_BITS) as f64
    }

    /// An access to a part, whose `key` is a hash, of `bytes` bytes.
    #[inline]
    pub fn access(&mut self, key: u64, bytes: u32) {
        self.bytes += f64::from(bytes);
        let hash = mix(key ^ self.seed) >> (64 - HASH_BITS);
        if hash < self.threshold {
            self.follow(key, hash, bytes.max(1));
        }
    }

    fn follow(&mut self, key: u64, hash: u64, bytes: u32) {
        match self.order.remove(key) {
            Some(between) => {
                let distance = (between + u64::from(bytes)) as f64 / self.share();
                self.buckets[bucket(distance)] += f64::from(bytes);
            }
            None => {
                self.first += f64::from(bytes);
                self.by_hash.push((hash, key));
            }
        }
        self.order.push(key, bytes);
        while self.order.place.len() > self.samples_max {
            self.lower();
        }
    }

    /// Lowers the threshold to the largest hash followed and lets go of what lies at or above it.
    fn lower(&mut self) {
        let Some((largest, _)) = self.by_hash.peek().copied() else { return };
        let scale = largest.max(1) as f64 / self.threshold as f64;
        self.threshold = largest.max(1);
        while let Some((hash, key)) = self.by_hash.peek().copied() {
            if hash < self.threshold {
                break;
            }
            self.by_hash.pop();
            self.order.remove(key);
        }
        self.buckets.iter_mut().for_each(|b| *b *= scale);
        self.first *= scale;
        if self.by_hash.is_empty() && self.order.place.is_empty() && largest == 0 {
            self.threshold = 1;
        }
    }

    /// The curve of what has been accessed so far.
    pub fn curve(&self) -> Curve {
        let mut buckets = self.buckets.clone();
        let sampled: f64 = buckets.iter().sum::<f64>() + self.first;
        let expected = self.bytes * self.share();
        if self.share() < 1.0 {
            // What the sample missed or has too much of are accesses to very popular parts: they hit in any
            // cache.
            buckets[0] += expected - sampled;
        }
        let mut hits = Vec::with_capacity(buckets.len());
        let mut sum = 0.0;
        for b in buckets {
            sum += b;
            hits.push(if expected > 0.0 { (sum / expected).clamp(0.0, 1.0) } else { 0.0 });
        }
        let footprint = self.order.total as f64 / self.share();
        Curve { hits, footprint, share: self.share(), bytes: self.bytes, error: 0.0 }
    }
}

fn bucket(distance: f64) -> usize {
    let index = (distance.max(1.0).log2() * PER_OCTAVE as f64).ceil() as usize;
    index.min(OCTAVES * PER_OCTAVE - 1)
}

/// Share of bytes missed by cache size.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// Share of bytes hit by a cache of `2^(i / 16)` bytes.
    hits: Vec<f64>,
    /// Bytes of different parts.
    pub footprint: f64,
    /// Share of the parts followed.
    pub share: f64,
    /// Bytes accessed.
    pub bytes: f64,
    /// Half of the largest difference between two independent samples; 0 if all parts were followed.
    pub error: f64,
}

impl Curve {
    /// The mean of two curves from independent samples, with their difference as the error.
    #[must_use]
    pub fn both(a: &Curve, b: &Curve) -> Curve {
        let mid = |x: f64, y: f64| f64::midpoint(x, y);
        let hits = a.hits.iter().zip(&b.hits).map(|(x, y)| mid(*x, *y)).collect();
        let apart = a.hits.iter().zip(&b.hits).map(|(x, y)| (x - y).abs()).fold(0.0, f64::max);
        let exact = a.share >= 1.0 && b.share >= 1.0;
        Curve {
            hits,
            footprint: mid(a.footprint, b.footprint),
            share: a.share + b.share,
            bytes: a.bytes,
            error: if exact { 0.0 } else { apart / 2.0 },
        }
    }

    /// Share of the bytes that a cache of this size misses.
    pub fn miss_ratio(&self, cache: f64) -> f64 {
        if cache < 1.0 {
            return 1.0;
        }
        let index = (cache.log2() * PER_OCTAVE as f64).floor() as usize;
        1.0 - self.hits[index.min(self.hits.len() - 1)]
    }

    /// The smallest cache, bytes, that misses no more than a share; nothing if first accesses alone are more.
    pub fn cache_for(&self, miss_ratio: f64) -> Option<f64> {
        let index = self.hits.iter().position(|h| 1.0 - h <= miss_ratio + 1e-12)?;
        Some(2_f64.powf(index as f64 / PER_OCTAVE as f64))
    }

    /// (cache size, miss ratio) from 1 MiB to the footprint.
    pub fn points(&self) -> Vec<(f64, f64)> {
        let last = self.footprint.max((1_u64 << 21) as f64).log2() * PER_OCTAVE as f64 + 1.0;
        (20 * PER_OCTAVE..=(last as usize).min(self.hits.len() - 1))
            .map(|i| (2_f64.powf(i as f64 / PER_OCTAVE as f64), 1.0 - self.hits[i]))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use seekless_model::workload::draw::Draw;
    use seekless_model::workload::zipf::Zipf;

    use super::*;

    /// Bytes missed by an LRU list of so many bytes, the obvious way; parts keep their size.
    fn lru_misses(accesses: &[(u64, u32)], cache: u64) -> f64 {
        let mut list: Vec<(u64, u32)> = vec![];
        let mut missed = 0.0;
        for (key, bytes) in accesses {
            match list.iter().position(|(k, _)| k == key) {
                Some(at) => {
                    list.remove(at);
                }
                None => missed += f64::from(*bytes),
            }
            list.insert(0, (*key, *bytes));
            let mut used = 0;
            list.retain(|(_, b)| {
                used += u64::from(*b);
                used <= cache
            });
        }
        missed
    }

    proptest! {
        /// Exact as long as every part is followed, at the sizes at which the curve has its points.
        #[test]
        fn equals_a_list_in_order_of_use(keys in proptest::collection::vec(0..40u64, 1..300), octave in 0..12u32) {
            let accesses: Vec<(u64, u32)> = keys.iter().map(|k| (mix(*k), 64)).collect();
            let mut distances = Distances::new(40, 1);
            accesses.iter().for_each(|(k, b)| distances.access(*k, *b));
            let curve = distances.curve();
            let cache = 64_u64 << octave;
            let total = accesses.len() as f64 * 64.0;
            prop_assert!((curve.miss_ratio(cache as f64) - lru_misses(&accesses, cache) / total).abs() < 1e-9);
            let different: std::collections::BTreeSet<u64> = keys.iter().copied().collect();
            prop_assert_eq!(curve.footprint, different.len() as f64 * 64.0);
        }
    }

    fn zipf_accesses(n: usize) -> Vec<(u64, u32)> {
        let zipf = Zipf::new(200_000, 0.8);
        let mut draw = Draw::new(3, "curve");
        (0..n).map(|_| zipf.sample(&mut draw)).map(|r| (mix(r as u64), 1000 + (r as u32 % 7) * 500)).collect()
    }

    #[test]
    fn a_sample_is_within_its_stated_error_of_the_whole() {
        let accesses = zipf_accesses(1_000_000);
        let curve_of = |samples, seed| {
            let mut d = Distances::new(samples, seed);
            accesses.iter().for_each(|(k, b)| d.access(*k, *b));
            d.curve()
        };
        let exact = curve_of(1 << 20, 1);
        assert_eq!(exact.share, 1.0);
        let sampled = Curve::both(&curve_of(8192, 1), &curve_of(8192, 2));
        assert!(sampled.share < 0.2 && sampled.error > 0.0);
        let worst = exact
            .points()
            .iter()
            .map(|(size, miss)| (sampled.miss_ratio(*size) - miss).abs())
            .fold(0.0, f64::max);
        assert!(worst < 0.02, "{worst}, stated {}", sampled.error);
        assert!((sampled.footprint / exact.footprint - 1.0).abs() < 0.03);
    }

    #[test]
    fn memory_is_bounded_for_any_number_of_parts() {
        let mut d = Distances::new(100, 1);
        for i in 0..200_000_u64 {
            d.access(mix(i), 4096);
            assert!(d.order.place.len() <= 100 && d.by_hash.len() <= 100);
        }
        let curve = d.curve();
        assert!(curve.miss_ratio(1e15) > 0.7, "nothing was accessed twice: {}", curve.miss_ratio(1e15));
        assert!((curve.footprint / (200_000.0 * 4096.0) - 1.0).abs() < 0.35, "{}", curve.footprint);
    }

    #[test]
    fn size_for_ratio_is_the_inverse_of_the_curve() {
        let accesses = zipf_accesses(100_000);
        let mut d = Distances::new(1 << 20, 1);
        accesses.iter().for_each(|(k, b)| d.access(*k, *b));
        let curve = d.curve();
        for miss in [0.9, 0.7, 0.5] {
            if let Some(cache) = curve.cache_for(miss) {
                assert!(curve.miss_ratio(cache) <= miss + 1e-9 && curve.miss_ratio(cache * 0.9) > miss);
            }
        }
        assert_eq!(curve.cache_for(0.0), None);
        assert_eq!(Distances::new(1, 1).curve().miss_ratio(1e9), 1.0);
    }
}
