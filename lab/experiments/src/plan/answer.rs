//! From a log's curve and a disk's rates to what a site would serve, and what it would need.
//!
//! A site that serves `r` bytes a second has `r / c` streams, `c` being the rate of one as the log has it at
//! its busiest. The memory `M` holds a cache `C`, which misses a share `m(C)` of the bytes (the log's curve),
//! and what is read ahead for the streams that miss, `a` bytes each: a stream that hits needs nothing read
//! ahead. The disks must deliver `r m`; so the site serves the largest `r` with
//!
//! `r m(C) <= D X`, `C` the largest cache with `C + a m(C) r / c <= M`
//!
//! for `D` disks of `X` bytes a second. More than that the log does not tell: processor and network are taken
//! to be enough, files to be spread evenly over the disks, and the future to ask as the past did.

use crate::plan::configurations::Configuration;
use crate::plan::distances::Curve;

/// A site that needs no disk at all is limited by something else; bytes a second.
const RATE_MAX: f64 = 1e12;
/// More disks than any machine has.
const DISKS_MAX: u64 = 100_000;
/// Rounds of the division of memory between cache and read-ahead. Most converge in three.
const ROUNDS: usize = 64;
/// Caches tried for the least memory, by the part of the allowed misses they leave.
const PARTS: u32 = 20;

/// What does not change with the way of serving.
#[derive(Clone, Copy, Debug)]
pub struct Machine<'a> {
    /// The log's curve.
    pub curve: &'a Curve,
    /// Bytes a second of one stream.
    pub stream_rate: f64,
    /// Memory for page cache and read-ahead, bytes.
    pub memory: f64,
    /// Disks.
    pub disks: u64,
}

/// What a site serves in one configuration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Served {
    /// Bytes a second; nothing if the disks are not what limits it.
    pub rate: Option<f64>,
    /// Streams at that rate.
    pub streams: f64,
    /// Memory left as a cache, bytes.
    pub cache: f64,
    /// Share of bytes that come from disks.
    pub miss_ratio: f64,
}

impl Machine<'_> {
    /// Memory for what is read ahead at a rate, when so much of it misses.
    fn ahead(&self, configuration: &Configuration, rate: f64, miss: f64) -> f64 {
        configuration.ahead * miss * rate / self.stream_rate
    }

    /// Cache left and share of misses at a rate: the largest cache that leaves room for the read-ahead, come
    /// to from above (less cache misses more, which takes more of it).
    fn misses(&self, configuration: &Configuration, rate: f64) -> (f64, f64) {
        let mut cache = self.memory;
        for _ in 0..ROUNDS {
            let left = (self.memory - self.ahead(configuration, rate, self.curve.miss_ratio(cache))).max(0.0);
            let settled = cache - left < 1.0;
            cache = left;
            if settled {
                break;
            }
        }
        (cache, self.curve.miss_ratio(cache))
    }

    /// Whether there is memory for the read-ahead of every stream that misses. Without, what is read is lost
    /// before it is used.
    fn fits(&self, configuration: &Configuration, rate: f64) -> bool {
        let (cache, miss) = self.misses(configuration, rate);
        cache > 0.0 || self.ahead(configuration, rate, miss) <= self.memory
    }

    fn carries(&self, configuration: &Configuration, rate: f64) -> bool {
        self.fits(configuration, rate)
            && rate * self.misses(configuration, rate).1 <= self.disks as f64 * configuration.rate
    }

    /// What it serves.
    pub fn serves(&self, configuration: &Configuration) -> Served {
        let (mut low, mut high) = (0.0, RATE_MAX);
        if self.carries(configuration, RATE_MAX) {
            let (cache, miss_ratio) = self.misses(configuration, 0.0);
            return Served { rate: None, streams: 0.0, cache, miss_ratio };
        }
        while high - low > 1e3 {
            let middle = f64::midpoint(low, high);
            if self.carries(configuration, middle) { low = middle } else { high = middle }
        }
        let (cache, miss_ratio) = self.misses(configuration, low);
        Served { rate: Some(low), streams: low / self.stream_rate, cache, miss_ratio }
    }

    /// Disks for a rate with the memory there is; nothing if no number is enough.
    pub fn disks_for(&self, configuration: &Configuration, rate: f64) -> Option<u64> {
        if !self.fits(configuration, rate) {
            return None;
        }
        let (_, miss) = self.misses(configuration, rate);
        let disks = (rate * miss / configuration.rate).ceil().max(1.0);
        (disks <= DISKS_MAX as f64).then_some(disks as u64)
    }

    /// Memory for a rate with the disks there are, bytes; nothing if first accesses alone are more than they
    /// deliver.
    pub fn memory_for(&self, configuration: &Configuration, rate: f64) -> Option<f64> {
        let allowed = self.disks as f64 * configuration.rate / rate;
        // A larger cache than the disks need can be cheaper: it spares read-ahead.
        let with = |miss: f64| {
            let cache = if miss >= 1.0 { 0.0 } else { self.curve.cache_for(miss)? };
            Some(cache + self.ahead(configuration, rate, self.curve.miss_ratio(cache)))
        };
        let parts = (1..=PARTS).map(|part| allowed.min(1.0) * f64::from(part) / f64::from(PARTS));
        parts.chain([allowed]).filter_map(with).min_by(f64::total_cmp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::distances::Distances;
    use seekless_model::workload::splitmix::mix;

    /// 1000 parts of 1 MB read round and round: everything misses below 1 GB, only the first round above.
    fn loop_curve() -> Curve {
        let mut d = Distances::new(1 << 12, 1);
        for i in 0..10_000_u64 {
            d.access(mix(i % 1000), 1_000_000);
        }
        d.curve()
    }

    fn configuration(rate: f64, ahead: f64) -> Configuration {
        Configuration { name: "", what: "", ahead, rate, command: String::new() }
    }

    #[test]
    fn without_a_useful_cache_the_disks_are_the_limit() {
        let curve = loop_curve();
        let m = Machine { curve: &curve, stream_rate: 1e6, memory: 500e6, disks: 2 };
        let served = m.serves(&configuration(50e6, 0.0));
        assert!((served.rate.unwrap() / 100e6 - 1.0).abs() < 1e-3 && served.miss_ratio == 1.0);
        assert!((served.streams - 100.0).abs() < 0.1);
        assert_eq!(m.disks_for(&configuration(50e6, 0.0), 220e6), Some(5));
    }

    #[test]
    fn a_cache_multiplies_what_the_disks_deliver() {
        let curve = loop_curve();
        let m = Machine { curve: &curve, stream_rate: 1e6, memory: 2e9, disks: 1 };
        // A tenth of the accesses are first ones.
        let served = m.serves(&configuration(50e6, 0.0));
        assert!((served.rate.unwrap() / 500e6 - 1.0).abs() < 1e-3, "{served:?}");
        let memory = m.memory_for(&configuration(50e6, 0.0), 400e6).unwrap();
        assert!((memory / 1e9 - 1.0).abs() < 0.06, "{memory}");
        assert_eq!(m.memory_for(&configuration(50e6, 0.0), 40e6), Some(0.0));
        assert_eq!(m.memory_for(&configuration(50e6, 0.0), 600e6), None);
    }

    /// Read-ahead of streams takes its memory from the cache, and is a limit of its own.
    #[test]
    fn read_ahead_costs_memory() {
        let curve = loop_curve();
        let m = Machine { curve: &curve, stream_rate: 1e6, memory: 500e6, disks: 100 };
        let served = m.serves(&configuration(100e6, 2e6));
        assert!((served.streams - 250.0).abs() < 0.1, "{served:?}");
        assert_eq!(m.disks_for(&configuration(100e6, 2e6), 300e6), None);
    }

    /// What fits the memory is answered from it, however much would be read ahead of streams that miss.
    #[test]
    fn a_stream_that_hits_needs_no_read_ahead() {
        let mut d = Distances::new(1 << 12, 1);
        (0..100_000_u64).for_each(|i| d.access(mix(i % 300), 1_000_000));
        let curve = d.curve();
        let m = Machine { curve: &curve, stream_rate: 1e5, memory: 1e9, disks: 1 };
        let [small, large] = [128e3, 2e6].map(|ahead| m.serves(&configuration(40e6, ahead)).rate.unwrap());
        assert!(large > 0.5 * small, "{large} {small}");
    }

    #[test]
    fn each_answer_agrees_with_the_others() {
        let curve = loop_curve();
        for memory in [0.2e9, 0.9e9, 1.2e9, 3e9] {
            for ahead in [0.0, 128e3, 2e6] {
                let w = configuration(60e6, ahead);
                let m = Machine { curve: &curve, stream_rate: 2e6, memory, disks: 3 };
                let rate = m.serves(&w).rate.unwrap();
                assert!(m.disks_for(&w, rate * 0.999).unwrap() <= 3);
                if let Some(needed) = m.memory_for(&w, rate * 0.999) {
                    assert!(needed <= memory * 1.05, "{needed} {memory}");
                }
            }
        }
    }
}
