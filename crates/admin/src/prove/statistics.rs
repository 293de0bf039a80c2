//! What alternating blocks without and with Seekless prove. Pure: no clock, no daemon, no randomness.
//!
//! Blocks come in pairs, one of each kind in random order, so that a load that drifts over the day affects
//! both kinds. Each pair gives the logarithm of the ratio. Their mean is the estimate, and the interval is
//! Student's t over the pairs, with 95 % confidence.
//!
//! Bytes read ahead in one block may be taken in the next. So the beginning of a block without Seekless is
//! left out until clients have taken what was read ahead before. In a block with Seekless, bytes read ahead
//! and not taken yet count as delivered. The beginning of such a block is left out until clients have taken
//! as much as lies read ahead at its end: until then some streams are not known yet, and each of them still
//! builds up its read-ahead. The first seconds of each block are left out in any case.

use serde::Serialize;

/// Minimum part left out at the beginning of a block, in seconds. The shims are not told of the switch; the
/// rest is the disk's queue, which empties within a second or two.
const WARM_UP_S: f64 = 3.0;

/// Factor on the bytes read ahead, because they belong to several streams, some of which end before others.
const LEFT_OVER_MARGIN: f64 = 1.5;

/// Minimum fraction of a block that is measured, whatever its warm-up needs. Otherwise a block whose clients
/// take very little would not be measured at all.
const MEASURED_MIN: f64 = 0.5;

/// Minimum number of pairs for any certainty. With fewer, the interval rests on a guess of the spread: t is
/// 2.8 at five, 4.3 at three.
const PAIRS_MIN: usize = 5;

/// An interval is narrow enough if it extends up and down by at most this factor. At half, four times as many
/// pairs are needed; at double, a gain of a tenth cannot be distinguished from none.
const NARROW: f64 = 1.05;

/// A factor within this of one is neither gain nor loss.
const NOTHING: f64 = 1.05;

/// Student's t, two-sided 95 %, for 1 and more degrees of freedom.
const T95: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];

/// Student's t for any degrees of freedom; beyond the table, the expansion around the normal quantile.
fn t95(degrees: usize) -> f64 {
    match degrees {
        0 => f64::INFINITY,
        n if n <= T95.len() => T95[n - 1],
        n => 1.959_964 + 2.372_3 / n as f64,
    }
}

/// The state at one moment, as sums since the daemon started.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Reading {
    /// Seconds since the prover began.
    pub(crate) at: f64,
    /// Time in which the disks were busy, as counted by the kernel.
    pub(crate) disk_s: f64,
    /// Bytes that servers read.
    pub(crate) bytes: u64,
    /// Bytes read ahead and not taken yet. While calls are passed, it is not known how many are taken.
    pub(crate) unread: u64,
    pub(crate) reads: u64,
    /// Number of reads that missed, by their wait in milliseconds.
    pub(crate) waits: Vec<(f64, u64)>,
}

/// The measured part of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Block {
    /// Whether with Seekless.
    pub(crate) served: bool,
    /// Seconds since the prover began.
    pub(crate) at: f64,
    pub(crate) seconds: f64,
    pub(crate) disk_s: f64,
    pub(crate) bytes: u64,
    /// Bytes that the disk time was spent for: the delivered ones, plus the change of those that lie read
    /// ahead.
    pub(crate) worked_bytes: f64,
    pub(crate) reads: u64,
    /// 99th percentile of the waits of all reads; a hit does not wait.
    pub(crate) p99_ms: f64,
}

impl Block {
    /// Cuts a block out of its readings, the first of which is at the switch. `None`: nothing was delivered,
    /// or there are too few readings.
    pub(crate) fn of(served: bool, readings: &[Reading]) -> Option<Block> {
        let (first, last) = (readings.first()?, readings.last()?);
        let latest = last.at - MEASURED_MIN * (last.at - first.at);
        let lies_ahead = if served { last.unread } else { first.unread };
        let taken = LEFT_OVER_MARGIN * lies_ahead as f64;
        let warm = |r: &&Reading| r.at - first.at >= WARM_UP_S && (r.bytes - first.bytes) as f64 >= taken;
        let start = readings.iter().find(|r| warm(r) || r.at >= latest)?;
        let seconds = last.at - start.at;
        let bytes = last.bytes.saturating_sub(start.bytes);
        let disk_s = last.disk_s - start.disk_s;
        if seconds <= 0.0 || bytes == 0 {
            return None;
        }
        let reads = last.reads.saturating_sub(start.reads);
        let p99_ms = quantile(0.99, reads, &waits_between(start, last));
        let ahead = if served { last.unread as f64 - start.unread as f64 } else { 0.0 };
        // Only clients that leave can take more out of memory than is delivered.
        let worked_bytes = (bytes as f64 + ahead).max(0.1 * bytes as f64);
        Some(Block { served, at: start.at, seconds, disk_s, bytes, worked_bytes, reads, p99_ms })
    }

    /// Disk seconds per delivered gigabyte.
    pub(crate) fn disk_s_per_gb(&self) -> f64 {
        self.disk_s / self.worked_bytes * 1e9
    }

    /// Delivered bytes a second.
    pub(crate) fn rate(&self) -> f64 {
        self.bytes as f64 / self.seconds
    }
}

/// Waits counted between two readings.
pub(crate) fn waits_between(old: &Reading, new: &Reading) -> Vec<(f64, u64)> {
    let before = |ms: f64| old.waits.iter().find(|w| w.0 == ms).map_or(0, |w| w.1);
    new.waits.iter().map(|&(ms, n)| (ms, n.saturating_sub(before(ms)))).filter(|w| w.1 > 0).collect()
}

/// The `q`-quantile of the waits of all reads; reads that did not miss waited for 0.
pub(crate) fn quantile(q: f64, reads: u64, waits: &[(f64, u64)]) -> f64 {
    let missed: u64 = waits.iter().map(|w| w.1).sum();
    let all = reads.max(missed);
    let rank = (q * all as f64).ceil() as u64;
    let mut seen = all - missed;
    if seen >= rank {
        return 0.0;
    }
    for &(ms, n) in waits {
        seen += n;
        if seen >= rank {
            return ms;
        }
    }
    waits.last().map_or(0.0, |w| w.0)
}

/// Whether clients suffer in a block so far: more than one read in a hundred waited longer than this.
pub(crate) fn suffers(start: &Reading, now: &Reading, wait_max_ms: f64) -> bool {
    let reads = now.reads.saturating_sub(start.reads);
    let long: u64 = waits_between(start, now).iter().filter(|w| w.0 > wait_max_ms).map(|w| w.1).sum();
    // A handful of reads is not enough evidence.
    reads >= 20 && long * 100 > reads
}

/// Ratio of the quality with Seekless to that without, with its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Estimate {
    pub(crate) ratio: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) pairs: usize,
}

impl Estimate {
    /// From the log ratios of pairs. `None` with fewer than two.
    fn of(logs: &[f64]) -> Option<Estimate> {
        let n = logs.len();
        if n < 2 {
            return None;
        }
        let mean = logs.iter().sum::<f64>() / n as f64;
        let variance = logs.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n - 1) as f64;
        let half = t95(n - 1) * (variance / n as f64).sqrt();
        Some(Estimate { ratio: mean.exp(), low: (mean - half).exp(), high: (mean + half).exp(), pairs: n })
    }

    fn is_certain(&self) -> bool {
        self.pairs >= PAIRS_MIN && self.high / self.ratio <= NARROW
    }
}

/// The conclusion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Verdict {
    /// A byte costs less disk time.
    Gain,
    /// It costs the same, to within a twentieth.
    NoGain,
    /// It costs more.
    Loss,
    /// The blocks differ too much among themselves.
    Uncertain,
}

/// The result of the blocks.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Proof {
    pub(crate) verdict: Verdict,
    /// Disk time per delivered byte, without over with.
    pub(crate) disk_time: Option<Estimate>,
    /// Delivered bytes a second, with over without.
    pub(crate) throughput: Option<Estimate>,
    /// 99th percentile of the waits of all reads, without over with. `None` if one kind had none.
    pub(crate) p99: Option<Estimate>,
}

/// Pairs of neighbouring blocks, (without, with). A block without its other half is left out.
fn pairs(blocks: &[Block]) -> Vec<(Block, Block)> {
    let mut pairs = Vec::new();
    let mut left: Option<Block> = None;
    for &block in blocks {
        match left.take() {
            Some(other) if other.served != block.served => {
                pairs.push(if block.served { (other, block) } else { (block, other) });
            }
            _ => left = Some(block),
        }
    }
    pairs
}

/// The result of the blocks so far.
pub(crate) fn proof(blocks: &[Block]) -> Proof {
    let pairs = pairs(blocks);
    let of = |value: &dyn Fn(&Block, &Block) -> f64| {
        let logs: Vec<f64> = pairs.iter().map(|(off, on)| value(off, on).ln()).collect();
        if logs.iter().all(|x| x.is_finite()) { Estimate::of(&logs) } else { None }
    };
    // An idle disk counts a thousandth of a second for a block: there is nothing to gain on it.
    let cost = |b: &Block| b.disk_s.max(0.001) / b.worked_bytes;
    let disk_time = of(&|off, on| cost(off) / cost(on));
    let verdict = match disk_time {
        Some(e) if e.low > 1.0 && e.ratio > NOTHING => Verdict::Gain,
        Some(e) if e.high < 1.0 && e.ratio < 1.0 / NOTHING => Verdict::Loss,
        Some(e) if e.low >= 1.0 / NOTHING && e.high <= NOTHING => Verdict::NoGain,
        // There is a difference, but within [`NOTHING`].
        Some(e) if e.is_certain() => Verdict::NoGain,
        _ => Verdict::Uncertain,
    };
    Proof {
        verdict,
        disk_time,
        throughput: of(&|off, on| on.rate() / off.rate()),
        p99: of(&|off, on| off.p99_ms / on.p99_ms),
    }
}

/// Whether more blocks would add nothing.
pub(crate) fn is_certain(blocks: &[Block]) -> bool {
    let proof = proof(blocks);
    let idle = blocks.len() >= 2 * PAIRS_MIN && blocks.iter().all(|b| b.disk_s < 0.01 * b.seconds);
    // An idle disk has nothing to gain; its noise would never settle.
    idle || proof.disk_time.is_some_and(|e| e.is_certain())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A small generator of its own, so that these cases never change.
    struct Chance(u64);

    impl Chance {
        fn uniform(&mut self) -> f64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = self.0;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
        }

        fn normal(&mut self) -> f64 {
            (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0
        }
    }

    /// A server whose disk needs `gain` times as long for a byte without Seekless as with it. Its load swings
    /// over the hour and wanders from second to second. After a switch, clients first take what was read
    /// ahead before.
    struct Site {
        chance: Chance,
        gain: f64,
        now: Reading,
        wander: f64,
        read_ahead: f64,
    }

    impl Site {
        fn new(seed: u64, gain: f64) -> Site {
            Site { chance: Chance(seed), gain, now: Reading::default(), wander: 0.0, read_ahead: 0.0 }
        }

        fn second(&mut self, served: bool) {
            self.wander = 0.9 * self.wander + 0.1 * self.chance.normal();
            let load = 1.0 + 0.4 * (self.now.at / 3600.0 * std::f64::consts::TAU).sin();
            let wanted = 20e6 * load * (0.3 * self.wander).exp();
            let cost = 20e-9 * (0.15 * self.chance.normal()).exp();
            let (disk_bytes, cost) = match served {
                // Read ahead for later.
                true if self.read_ahead < 100e6 => (wanted * 1.5, cost),
                true => (wanted, cost),
                false => ((wanted - self.read_ahead).max(0.0), cost * self.gain),
            };
            self.read_ahead = (self.read_ahead + disk_bytes - wanted).max(0.0);
            self.now.at += 1.0;
            self.now.bytes += wanted as u64;
            self.now.disk_s += disk_bytes * cost;
            self.now.reads += 100;
            self.now.unread = self.read_ahead as u64;
        }

        fn block(&mut self, served: bool, seconds: usize) -> Block {
            let mut readings = vec![self.now.clone()];
            for _ in 0..seconds {
                self.second(served);
                readings.push(self.now.clone());
            }
            Block::of(served, &readings).unwrap()
        }

        /// Runs until the result is certain, or for this many pairs.
        fn prove(mut self, pairs_max: usize) -> (Proof, usize) {
            let mut blocks = Vec::new();
            for _ in 0..60 {
                self.second(true);
            }
            while blocks.len() < 2 * pairs_max && !is_certain(&blocks) {
                let first = self.chance.uniform() < 0.5;
                for served in [first, !first] {
                    let block = self.block(served, 40);
                    blocks.push(block);
                }
            }
            (proof(&blocks), blocks.len() / 2)
        }
    }

    fn contained(gain: f64, runs: u64) -> usize {
        let truth_in = |seed| {
            let e = Site::new(seed, gain).prove(30).0.disk_time.unwrap();
            (e.low..=e.high).contains(&gain)
        };
        (0..runs).filter(|seed| truth_in(1000 + seed)).count()
    }

    #[test]
    fn the_interval_contains_the_truth_in_at_least_18_of_20_runs() {
        for gain in [3.0, 1.5, 1.0] {
            // Of 20 runs of a true 95 % interval, fewer than 18 contain it one time in thirteen. So there are
            // enough runs that chance does not decide, and the bound is somewhat above 18 of 20.
            let hits = contained(gain, 400);
            assert!(hits >= 366, "{hits} of 400 at a gain of {gain}");
        }
    }

    #[test]
    fn a_gain_is_said_and_a_server_without_one_is_told_so() {
        let mut without = 0;
        for seed in 0..20 {
            let (proof, _) = Site::new(seed, 2.0).prove(30);
            assert_eq!(proof.verdict, Verdict::Gain, "{proof:?}");
            let (proof, _) = Site::new(seed, 1.0).prove(30);
            assert!(!matches!(proof.verdict, Verdict::Gain | Verdict::Loss), "{proof:?}");
            without += usize::from(proof.verdict == Verdict::NoGain);
        }
        assert!(without >= 18, "{without} of 20 are certain that there is none");
        assert_eq!(Site::new(3, 0.6).prove(30).0.verdict, Verdict::Loss);
    }

    #[test]
    fn the_beginning_of_a_block_is_left_out_until_what_lies_read_ahead_is_taken() {
        let at = |s: u64, mb: u64| Reading {
            at: s as f64,
            bytes: mb * 1_000_000,
            disk_s: s as f64,
            ..Default::default()
        };
        let readings = |first: u64, last: u64| {
            let mut all: Vec<Reading> = (0..=20).map(|s| at(s, s * 10)).collect();
            (all[0].unread, all[20].unread) = (first, last);
            all
        };
        let begins = |served, first, last| Block::of(served, &readings(first, last)).unwrap().at;
        assert_eq!(begins(false, 0, 0), 3.0);
        assert_eq!(begins(false, 50_000_000, 0), 8.0, "what lay there at the switch");
        assert_eq!(begins(false, 0, 50_000_000), 3.0);
        assert_eq!(begins(true, 50_000_000, 0), 3.0);
        assert_eq!(begins(true, 0, 50_000_000), 8.0, "what lies there once it is filled");
        assert_eq!(begins(false, u64::MAX / 2, 0), 10.0, "half is measured in any case");
        assert_eq!(Block::of(true, &readings(0, 0)[..1]), None);
        let idle: Vec<Reading> = (0..=20).map(|s| at(s, 0)).collect();
        assert_eq!(Block::of(false, &idle), None);
    }

    #[test]
    fn what_is_read_ahead_for_later_counts_as_delivered() {
        let at =
            |s: u64, unread: u64| Reading { at: s as f64, bytes: s * 1000, unread, ..Default::default() };
        let filling: Vec<Reading> = (0..=10).map(|s| at(s, s * 100)).collect();
        assert_eq!(Block::of(true, &filling).unwrap().worked_bytes, 7000.0 + 700.0);
        assert_eq!(Block::of(false, &filling).unwrap().worked_bytes, 7000.0);
    }

    #[test]
    fn a_quantile_counts_hits_as_no_wait() {
        assert_eq!(quantile(0.99, 1000, &[(50.0, 5), (80.0, 4)]), 0.0);
        assert_eq!(quantile(0.99, 1000, &[(50.0, 5), (80.0, 15)]), 80.0);
        assert_eq!(quantile(0.99, 1000, &[(50.0, 95), (900.0, 5)]), 50.0);
        assert_eq!(quantile(0.99, 0, &[]), 0.0);
    }

    #[test]
    fn clients_suffer_when_more_than_one_read_in_a_hundred_waits_too_long() {
        let start = Reading { reads: 100, waits: vec![(9000.0, 50)], ..Default::default() };
        let later = |more: u64| Reading {
            reads: 1100,
            waits: vec![(20.0, 500), (9000.0, 50 + more)],
            ..Default::default()
        };
        assert!(!suffers(&start, &later(10), 5000.0));
        assert!(suffers(&start, &later(11), 5000.0));
        assert!(!suffers(&start, &later(11), 10_000.0));
    }

    #[test]
    fn blocks_pair_with_their_neighbours_of_the_other_kind() {
        let block = |served, bytes| Block { served, bytes, ..Default::default() };
        let found =
            pairs(&[block(true, 1), block(false, 2), block(false, 3), block(false, 4), block(true, 5)]);
        let found: Vec<(u64, u64)> = found.iter().map(|(off, on)| (off.bytes, on.bytes)).collect();
        assert_eq!(found, [(2, 1), (4, 5)]);
    }

    #[test]
    fn the_quantiles_of_t_fall_towards_the_normal_ones() {
        assert!((1..200).all(|n| t95(n + 1) <= t95(n)));
        assert!((t95(60) - 2.000).abs() < 0.002 && (t95(120) - 1.980).abs() < 0.002);
    }
}
