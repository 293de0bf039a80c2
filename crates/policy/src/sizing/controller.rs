//! The controller of the prefetch size (\[A\] section 4).
//!
//! Every `adjust_interval` the disk's work is scored: milliseconds per transaction times the miss ratio. A
//! transaction is 128 KiB read from the disk (what FreeBSD issues at most, and what the paper's figure 2
//! counts: larger prefetches make it fall), the miss ratio is bytes read from the disk over bytes requested.
//! The product is the disk's time for each byte a client got. The best size has the lowest score.
//!
//! The score of the size in use is compared with those measured for the next larger and the next smaller
//! size. The size moves to a lower score. An unmeasured neighbour is tried when the other one has a higher
//! score, the larger first. If both are known and higher, the size is at a minimum, perhaps only a local one:
//! all stored scores are deflated, until a neighbour seems better again and is measured anew. Scores of sizes
//! further away sink with them, so an excursion from a minimum may go on for several sizes.
//!
//! Size changes are slow: every client needs a prefetch within its interval, so a jump to larger pieces
//! requests more than the disk can deliver, and one to smaller pieces doubles their number for a while
//! (section 4.2). The size slides over the first half of an interval and is scored in the second.
//!
//! Two cases do not use the gradient. Under light load any size is good and nothing is learnt: below
//! `adjust_busy` the controller changes nothing. And if prefetched data is evicted before use, the gradient
//! takes too long: beyond `adjust_evict` the size jumps at once to what a client uses while data stays in
//! memory (eviction time times bitrate), if that is smaller.

mod clock;
mod model;

pub use clock::DiskClock;
pub use model::{Bound, RECENT, Situation, SizeModel};

use alloc::collections::BTreeMap;
use alloc::string::String;

use seekless_base::{Bytes, Nanos, PAGE_BYTES, words};
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// Bytes of a transaction: FreeBSD's MAXPHYS.
pub const TRANSACTION: Bytes = Bytes::kib(128);

/// Part of an interval over which a change is spread; the other part is scored. At \[A\]'s 180 s that leaves
/// 90 s, longer than the interval between two prefetches of a client at any size the paper found good.
const SLIDE: f64 = 0.5;

/// Number of steps in which the size slides. At a `step_size` of 0.5 MB, each is 32 KiB.
const SLIDE_STEPS: u64 = 16;

/// Minimum number of transactions to score an interval.
const TRANSACTIONS_MIN: f64 = 8.0;

/// Settings, by the names of \[A\] section 4.1; the values of its Table 2 are the defaults.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
pub struct Params {
    /// Size at the start: the size at the last stop, or the competitive depth of the disk's profile.
    #[default(Bytes::mib(3))]
    pub start_size: Bytes,
    /// Interval between adjustments. Long against the fluctuations of demand.
    #[default(Nanos::from_secs(180))]
    pub adjust_interval: Nanos,
    /// Change of the size at a time. Sizes are multiples of it.
    #[default(Bytes::kib(512))]
    pub step_size: Bytes,
    /// Fraction by which stored scores shrink at a minimum, 0 to 1.
    #[default(0.05)]
    pub score_deflation_factor: f64,
    /// Minimum fraction of the time that the prefetcher must be busy for any change, 0 to 1.
    #[default(0.6)]
    pub adjust_busy: f64,
    /// Ratio of bytes evicted before use to bytes requested above which the eviction time sets the size.
    #[default(0.05)]
    pub adjust_evict: f64,
    /// Maximum size. Not in the paper: memory is finite.
    #[default(Bytes::mib(32))]
    pub size_max: Bytes,
    /// How the size is adjusted. Not in the paper.
    pub adjust_by: AdjustBy,
}

/// How the size is adjusted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AdjustBy {
    /// From a model of the disk, its clients and memory ([`SizeModel`]).
    #[default]
    Model,
    /// By the gradient alone, as the paper does ([`Controller`]).
    Gradient,
}

words! { AdjustBy: Model = "model", Gradient = "gradient" }

impl Params {
    /// Checks that every value is in its range.
    ///
    /// # Errors
    /// One line that names the parameter and its range.
    pub fn check(&self) -> Result<(), String> {
        use alloc::format;
        let part = |name: &str, value: f64, max: f64| match (0.0..=max).contains(&value) {
            true => Ok(()),
            false => Err(format!("{name} = {value} is out of range; write 0 to {max}")),
        };
        part("score_deflation_factor", self.score_deflation_factor, 0.99)?;
        part("adjust_busy", self.adjust_busy, 1.0)?;
        part("adjust_evict", self.adjust_evict, 100.0)?;
        if !(PAGE_BYTES..=1 << 30).contains(&self.step_size.0) {
            return Err(format!("step_size = {} is out of range; write 4KiB to 1GiB", self.step_size));
        }
        if self.size_max < self.step_size || self.size_max > Bytes::gib(4) {
            return Err(format!(
                "size_max = {} is out of range; write {} (step_size) to 4GiB",
                self.size_max, self.step_size
            ));
        }
        if self.start_size.0 < PAGE_BYTES || self.start_size > self.size_max {
            return Err(format!("start_size = {} is out of range; write 4KiB to size_max", self.start_size));
        }
        if !(1_000_000..=86_400_000_000_000).contains(&self.adjust_interval.0) {
            let given = self.adjust_interval;
            return Err(format!("adjust_interval = {given} is out of range; write 1ms to 24h"));
        }
        Ok(())
    }

    /// The same with every value brought into its range.
    pub fn normalised(mut self) -> Params {
        let part = |value: f64, max: f64| if value.is_nan() { 0.0 } else { value.clamp(0.0, max) };
        self.score_deflation_factor = part(self.score_deflation_factor, 0.99);
        self.adjust_busy = part(self.adjust_busy, 1.0);
        self.adjust_evict = part(self.adjust_evict, 100.0);
        self.step_size = Bytes(self.step_size.0.clamp(PAGE_BYTES, 1 << 30) / PAGE_BYTES * PAGE_BYTES);
        self.size_max = self.size_max.clamp(self.step_size, Bytes::gib(4));
        self.start_size = self.start_size.min(self.size_max);
        self.adjust_interval = Nanos(self.adjust_interval.0.clamp(1_000_000, 86_400_000_000_000));
        self
    }
}

/// What happened since the last observation. The values add up over an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Observation {
    /// Time with the disk at work on reads.
    pub disk_time: Nanos,
    /// Bytes delivered by the disk, prefetched or not.
    pub disk_bytes: Bytes,
    /// Bytes requested by clients.
    pub requested: Bytes,
    /// Time with at least one read waiting or in flight.
    pub busy: Nanos,
    /// Prefetched bytes that left memory before use.
    pub evicted: Bytes,
    /// Mean time those bytes had been in memory, weighted by `evicted`.
    pub eviction_time: Nanos,
    /// Mean bitrate of the streams with the highest bitrate, which the size is for, bytes a second; 0 if
    /// unknown. Weighted by `requested`.
    pub bitrate: f64,
}

/// The decision at the end of an interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Decision {
    /// Too little load to learn from: no change.
    Idle,
    /// Too few reads to score.
    Unscored,
    /// Jumped at once, because this fraction was evicted before use.
    Evicting {
        /// Fraction of the requested bytes.
        evicted: f64,
    },
    /// To the next larger size.
    Larger,
    /// To the next smaller size.
    Smaller,
    /// Both neighbours are known and worse: their scores were deflated.
    Minimum,
}

/// The controller of one disk's prefetch size.
#[derive(Clone, Debug)]
pub struct Controller {
    params: Params,
    /// The wanted size, in units of `step_size`.
    step: u64,
    /// Start value of the slide.
    from: u64,
    /// Start time of the slide.
    slide_start: Nanos,
    /// Last size returned.
    told: u64,
    interval_end: Nanos,
    scores: BTreeMap<u64, f64>,
    sum: Sum,
    last: Option<(Decision, Option<f64>)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    disk_time: f64,
    disk_bytes: f64,
    /// Sums over the scored part of the interval.
    requested: f64,
    /// Sums over the whole interval, including the slide, like `evicted`.
    requested_all: f64,
    busy: f64,
    evicted: f64,
    eviction_time: f64,
    bitrate: f64,
    rated: f64,
    from: Option<Nanos>,
}

impl Controller {
    /// A controller that starts at `now`. Parameters out of range are brought into it; see [`Params::check`].
    pub fn new(params: Params, now: Nanos) -> Controller {
        let params = params.normalised();
        let most = params.size_max.0 / params.step_size.0;
        let step = ((params.start_size.0 + params.step_size.0 / 2) / params.step_size.0).clamp(1, most);
        let size = step * params.step_size.0;
        Controller {
            step,
            from: size,
            slide_start: now,
            told: size,
            interval_end: now + params.adjust_interval,
            scores: BTreeMap::new(),
            sum: Sum { from: Some(now), ..Sum::default() },
            last: None,
            params,
        }
    }

    /// The settings in force.
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// The current size.
    pub fn size(&self) -> Bytes {
        Bytes(self.told)
    }

    /// The size that the slide leads to, and the one to start with next time.
    pub fn target(&self) -> Bytes {
        Bytes(self.step * self.params.step_size.0)
    }

    /// The last decision, and the score of that interval if it has one.
    pub fn last_decision(&self) -> Option<(Decision, Option<f64>)> {
        self.last
    }

    /// The stored scores: (size, milliseconds per transaction times miss ratio).
    pub fn scores(&self) -> impl Iterator<Item = (Bytes, f64)> {
        self.scores.iter().map(|(&step, &score)| (Bytes(step * self.params.step_size.0), score))
    }

    /// Counts what happened up to `now`.
    pub fn observe(&mut self, now: Nanos, seen: Observation) {
        if self.sliding(now) {
            // During the slide the score counts for neither size. Evictions always count, and so do the
            // requests they are a fraction of.
            self.sum.requested_all += seen.requested.0 as f64;
            self.sum.evicted += seen.evicted.0 as f64;
            self.sum.eviction_time += seen.evicted.0 as f64 * seen.eviction_time.as_secs_f64();
            return;
        }
        let sum = &mut self.sum;
        sum.from.get_or_insert(now);
        sum.disk_time += seen.disk_time.as_secs_f64();
        sum.disk_bytes += seen.disk_bytes.0 as f64;
        sum.requested += seen.requested.0 as f64;
        sum.requested_all += seen.requested.0 as f64;
        sum.busy += seen.busy.as_secs_f64();
        sum.evicted += seen.evicted.0 as f64;
        sum.eviction_time += seen.evicted.0 as f64 * seen.eviction_time.as_secs_f64();
        if seen.bitrate.is_finite() && seen.bitrate > 0.0 {
            sum.bitrate += seen.bitrate * seen.requested.0 as f64;
            sum.rated += seen.requested.0 as f64;
        }
    }

    /// When [`Controller::tick`] must be called next.
    pub fn next_deadline(&self) -> Nanos {
        if self.told == self.target().0 {
            return self.interval_end;
        }
        let slide = (self.params.adjust_interval.0 as f64 * SLIDE) as u64 / SLIDE_STEPS;
        let steps = self.slid(self.slide_start.max(self.told_at())) + 1;
        (self.slide_start + Nanos(steps.saturating_mul(slide.max(1)))).min(self.interval_end)
    }

    /// End of the current interval.
    pub fn interval_end(&self) -> Nanos {
        self.interval_end
    }

    /// Time passed. Returns the size if it changed.
    pub fn tick(&mut self, now: Nanos) -> Option<Bytes> {
        if now >= self.interval_end {
            // The slide ends well before the interval; complete it in any case.
            self.from = self.target().0;
            self.decide(now);
            self.interval_end = now + self.params.adjust_interval;
            self.sum = Sum::default();
        }
        let size = self.size_at(now);
        let changed = size != self.told;
        self.told = size;
        if !self.sliding(now) {
            self.sum.from.get_or_insert(now);
        }
        changed.then_some(Bytes(size))
    }

    /// Number of steps of the slide done at `at`.
    fn slid(&self, at: Nanos) -> u64 {
        let slide = (self.params.adjust_interval.0 as f64 * SLIDE) as u64;
        let passed = at.since(self.slide_start).0.min(slide);
        (u128::from(passed) * u128::from(SLIDE_STEPS) / u128::from(slide.max(1))) as u64
    }

    /// The time for which the size was returned last.
    fn told_at(&self) -> Nanos {
        let slide = (self.params.adjust_interval.0 as f64 * SLIDE) as u64;
        let steps = (0..=SLIDE_STEPS).rev().find(|&s| self.size_after(s) == self.told).unwrap_or(0);
        self.slide_start + Nanos(slide / SLIDE_STEPS * steps)
    }

    fn size_after(&self, steps: u64) -> u64 {
        let (from, to) = (self.from as i128, i128::from(self.target().0));
        let size = from + (to - from) * i128::from(steps) / i128::from(SLIDE_STEPS);
        if steps >= SLIDE_STEPS {
            self.target().0
        } else {
            (size as u64 / PAGE_BYTES * PAGE_BYTES).max(PAGE_BYTES)
        }
    }

    fn size_at(&self, now: Nanos) -> u64 {
        self.size_after(self.slid(now))
    }

    fn sliding(&self, now: Nanos) -> bool {
        self.from != self.target().0 && self.slid(now) < SLIDE_STEPS
    }

    fn decide(&mut self, now: Nanos) {
        let sum = self.sum;
        let measured = sum.from.map_or(0.0, |from| now.since(from).as_secs_f64());
        let most = self.params.size_max.0 / self.params.step_size.0;
        let transactions = sum.disk_bytes / TRANSACTION.0 as f64;
        if measured <= 0.0 || sum.busy < self.params.adjust_busy * measured {
            self.last = Some((Decision::Idle, None));
            return;
        }
        let scored = transactions >= TRANSACTIONS_MIN && sum.requested > 0.0;
        let score = scored.then(|| sum.disk_time * 1e3 / transactions * (sum.disk_bytes / sum.requested));
        if let Some(score) = score {
            self.scores.insert(self.step, score);
        }
        let evicted = if sum.requested_all > 0.0 { sum.evicted / sum.requested_all } else { 0.0 };
        if evicted > self.params.adjust_evict && sum.rated > 0.0 {
            let lived = sum.eviction_time / sum.evicted;
            let bytes = lived * sum.bitrate / sum.rated;
            let step = ((bytes / self.params.step_size.0 as f64) as u64).clamp(1, most);
            if step < self.step {
                // At once: the slide starts at its end.
                self.step = step;
                self.from = self.target().0;
                self.slide_start = now;
                self.last = Some((Decision::Evicting { evicted }, score));
                return;
            }
        }
        let Some(score) = score else {
            self.last = Some((Decision::Unscored, None));
            return;
        };
        let decision = self.descend(score, most);
        match decision {
            Decision::Larger => self.slide_to(self.step + 1, now),
            Decision::Smaller => self.slide_to(self.step - 1, now),
            Decision::Minimum => {
                let deflated = 1.0 - self.params.score_deflation_factor;
                self.scores.values_mut().for_each(|score| *score *= deflated);
            }
            _ => {}
        }
        self.last = Some((decision, Some(score)));
    }

    /// The gradient: `p`, `p_larger`, `p_smaller` of the paper. A size out of range counts as known and
    /// worse.
    fn descend(&self, score: f64, most: u64) -> Decision {
        let known = |step: u64| {
            if step == 0 || step > most { Some(f64::INFINITY) } else { self.scores.get(&step).copied() }
        };
        match (known(self.step + 1), known(self.step - 1)) {
            (Some(larger), Some(smaller)) if larger.min(smaller) >= score => Decision::Minimum,
            (Some(larger), Some(smaller)) if larger <= smaller => Decision::Larger,
            (Some(_), Some(_)) => Decision::Smaller,
            (None, Some(smaller)) if smaller < score => Decision::Smaller,
            (Some(larger), None) if larger < score => Decision::Larger,
            (Some(_), None) => Decision::Smaller,
            // The larger one is unknown, whether the smaller one is worse or unknown.
            (None, _) => Decision::Larger,
        }
    }

    fn slide_to(&mut self, step: u64, now: Nanos) {
        self.from = self.target().0;
        self.step = step;
        self.slide_start = now;
    }
}

#[cfg(test)]
mod accounting {
    use super::*;

    /// Ten seconds of a busy disk, with this share of the requested bytes evicted before use.
    fn observe(controller: &mut Controller, at: u64, evicted_share: f64) {
        let requested = 100_000_000;
        let seen = Observation {
            disk_time: Nanos::from_secs(9),
            disk_bytes: Bytes(requested),
            requested: Bytes(requested),
            busy: Nanos::from_secs(10),
            evicted: Bytes((requested as f64 * evicted_share) as u64),
            eviction_time: Nanos::from_secs(10),
            bitrate: 52_375.0,
        };
        controller.observe(Nanos::from_secs(at), seen);
    }

    /// An interval of 180 s in which the size slides for 90 s. Evicted over requested covers the same time in
    /// both parts.
    fn second_interval(evicted_share: f64) -> Decision {
        let mut controller = Controller::new(Params::default(), Nanos::ZERO);
        for at in (10..=180).step_by(10) {
            observe(&mut controller, at, 0.0);
        }
        controller.tick(Nanos::from_secs(180));
        assert_eq!(controller.last_decision().unwrap().0, Decision::Larger);
        assert!(controller.sliding(Nanos::from_secs(200)) && !controller.sliding(Nanos::from_secs(280)));
        for at in (190..=360).step_by(10) {
            observe(&mut controller, at, evicted_share);
        }
        controller.tick(Nanos::from_secs(360));
        controller.last_decision().unwrap().0
    }

    #[test]
    fn a_sliding_size_does_not_inflate_the_share_that_is_evicted() {
        // 4 % is below the 5 % of Table 2, whether the size slid for half of the interval or not.
        assert!(!matches!(second_interval(0.04), Decision::Evicting { .. }));
        let Decision::Evicting { evicted } = second_interval(0.06) else { panic!("6 % is above") };
        assert!((evicted - 0.06).abs() < 1e-6, "{evicted}");
    }
}

#[cfg(test)]
mod tests;
