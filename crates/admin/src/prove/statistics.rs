//! What alternating blocks without and with Seekless prove. Pure: no clock, no daemon, no chance of its own.
//!
//! Blocks come in pairs, one of each kind in random order, so that a load that drifts over the day falls on
//! both kinds. Of each pair the logarithm of the ratio counts. Their mean is the estimate, and the interval
//! is Student's t over the pairs, with 95 % confidence.
//!
//! What is read ahead in one block may be taken in the next. So the beginning of a block without Seekless is
//! left out until clients have taken what lay read ahead, and in a block with it the bytes that were read
//! ahead and not taken yet count as delivered. The beginning of that is left out until clients have taken as
//! much as lies read ahead at its end: until then some streams are not known yet, and each is short of bytes.
//! The first seconds of each block are left out in any case.

use serde::Serialize;

/// Shortest beginning of a block that is left out, seconds. Shims hear of nothing when calls are passed; the
/// rest is the disk's queue, which empties within a second or two.
const WARM_UP_S: f64 = 3.0;

/// What lies read ahead is spread over streams, some of which come to the end of theirs before others do.
const LEFT_OVER_MARGIN: f64 = 1.5;

/// Of a block at least this part is measured, whatever its warm-up wants: one whose clients take very little
/// would have none.
const MEASURED_MIN: f64 = 0.5;

/// Pairs before anything is certain. With fewer the interval rests on a guess of the spread: t is 2.8 at
/// five, 4.3 at three.
const PAIRS_MIN: usize = 5;

/// An interval is narrow enough when it reaches so little up and down, as a factor. At half, four times as
/// many pairs are needed; at double, a gain of a tenth cannot be told from none.
const NARROW: f64 = 1.05;

/// A factor within this of one is neither gain nor loss.
const NOTHING: f64 = 1.05;

/// Student's t, two-sided 95 %, by degrees of freedom from 1.
const T95: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];

/// The same for any number of them; beyond the table, the expansion around the normal quantile.
fn t95(degrees: usize) -> f64 {
    match degrees {
        0 => f64::INFINITY,
        n if n <= T95.len() => T95[n - 1],
        n => 1.959_964 + 2.372_3 / n as f64,
    }
}

/// The state at one moment: sums since the daemon started.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Reading {
    /// Seconds since the prover began.
    pub(crate) at: f64,
    /// Time in which the disks had something to do, as the kernel counts it.
    pub(crate) disk_s: f64,
    /// Bytes that servers read.
    pub(crate) bytes: u64,
    /// Bytes that lie read ahead and are not taken yet. While calls are passed nobody knows how many of them
    /// are.
    pub(crate) unread: u64,
    /// Reads.
    pub(crate) reads: u64,
    /// Reads that missed, by their wait in milliseconds.
    pub(crate) waits: Vec<(f64, u64)>,
}

/// The measured part of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Block {
    /// With Seekless, or without.
    pub(crate) served: bool,
    /// Seconds since the prover began.
    pub(crate) at: f64,
    pub(crate) seconds: f64,
    pub(crate) disk_s: f64,
    pub(crate) bytes: u64,
    /// What the disk time was spent for: the same, and what lies read ahead now and did not at the beginning.
    pub(crate) worked_bytes: f64,
    pub(crate) reads: u64,
    /// 99 of 100 reads waited no longer; a hit waits for nothing.
    pub(crate) p99_ms: f64,
}

impl Block {
    /// Cuts a block out of its readings, the first of which is the moment of the switch. `None`: nothing was
    /// delivered, or there are too few readings.
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
        // More can be taken out of memory than is delivered only by clients that leave.
        let worked_bytes = (bytes as f64 + ahead).max(0.1 * bytes as f64);
        Some(Block { served, at: start.at, seconds, disk_s, bytes, worked_bytes, reads, p99_ms })
    }

    /// Disk time of a delivered gigabyte, seconds.
    pub(crate) fn disk_s_per_gb(&self) -> f64 {
        self.disk_s / self.worked_bytes * 1e9
    }

    /// Delivered bytes a second.
    pub(crate) fn rate(&self) -> f64 {
        self.bytes as f64 / self.seconds
    }
}

/// Waits that were counted between two readings.
pub(crate) fn waits_between(old: &Reading, new: &Reading) -> Vec<(f64, u64)> {
    let before = |ms: f64| old.waits.iter().find(|w| w.0 == ms).map_or(0, |w| w.1);
    new.waits.iter().map(|&(ms, n)| (ms, n.saturating_sub(before(ms)))).filter(|w| w.1 > 0).collect()
}

/// A wait that the share `q` of all reads is not longer than; those that did not miss waited for nothing.
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
    // A handful of reads is no sign.
    reads >= 20 && long * 100 > reads
}

/// How many times as good with Seekless as without, with 95 % confidence.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Estimate {
    pub(crate) ratio: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) pairs: usize,
}

impl Estimate {
    /// From the log ratios of pairs. `None` of fewer than two.
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

/// What is said at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Verdict {
    /// A byte costs less disk time.
    Gain,
    /// It costs the same, to within a twentieth.
    NoGain,
    /// It costs more.
    Loss,
    /// The blocks differ too much among themselves to tell.
    Uncertain,
}

/// What the blocks come to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Proof {
    pub(crate) verdict: Verdict,
    /// Disk time per delivered byte, without over with.
    pub(crate) disk_time: Option<Estimate>,
    /// Delivered bytes a second, with over without.
    pub(crate) throughput: Option<Estimate>,
    /// 99th percentile of the waits of all reads, without over with. `None` where one kind had none.
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

/// What the blocks so far prove.
pub(crate) fn proof(blocks: &[Block]) -> Proof {
    let pairs = pairs(blocks);
    let of = |value: &dyn Fn(&Block, &Block) -> f64| {
        let logs: Vec<f64> = pairs.iter().map(|(off, on)| value(off, on).ln()).collect();
        if logs.iter().all(|x| x.is_finite()) { Estimate::of(&logs) } else { None }
    };
    // A disk that had nothing to do in a block counts a thousandth of a second: nothing is won on it in any
    // case.
    let cost = |b: &Block| b.disk_s.max(0.001) / b.worked_bytes;
    let disk_time = of(&|off, on| cost(off) / cost(on));
    let verdict = match disk_time {
        Some(e) if e.low > 1.0 && e.ratio > NOTHING => Verdict::Gain,
        Some(e) if e.high < 1.0 && e.ratio < 1.0 / NOTHING => Verdict::Loss,
        Some(e) if e.low >= 1.0 / NOTHING && e.high <= NOTHING => Verdict::NoGain,
        // A difference is shown, but within [`NOTHING`].
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

/// Whether more blocks would say nothing new.
pub(crate) fn is_certain(blocks: &[Block]) -> bool {
    let proof = proof(blocks);
    let idle = blocks.len() >= 2 * PAIRS_MIN && blocks.iter().all(|b| b.disk_s < 0.01 * b.seconds);
    // A disk with nothing to do has nothing to win; waiting for its noise to settle takes for ever.
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
    /// over the hour and wanders from second to second; after a switch, clients first take what was read
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

        /// Until it is certain, or for so many pairs.
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
            // Of 20 runs of a true 95 % interval fewer than 18 contain it one time in thirteen: so many runs
            // that chance does not decide, and somewhat more than 18 of 20.
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
