//! The prefetch size that finds itself (\[A\] section 4).
//!
//! Every `adjust_interval` the disk's work is scored: milliseconds per transaction times the miss ratio. A
//! transaction is 128 KiB read from the disk (what FreeBSD issues at most, and what the paper's figure 2
//! counts: larger prefetches make it fall), the miss ratio is bytes read from the disk over bytes requested.
//! The product is the disk's time for each byte a client got; the size with the least of it is wanted.
//!
//! The score of the size in use is compared with those measured for the next larger and the next smaller
//! size. A lower one draws the size there; one never measured is tried when the other has turned out higher,
//! the larger first. When both are known and higher, this is a minimum, perhaps only a local one: the stored
//! scores are deflated, until a neighbour looks better again and is measured anew. We deflate the two the
//! comparison rests on. The paper speaks of the past scores at large; but those further away are not measured
//! again while they sink without end, so that one day an excursion goes on through the whole range, dozens of
//! intervals at bad sizes (a property test found it). What gets another look, and when, is the same.
//!
//! Size changes are slow: every client needs a prefetch within its interval, so a jump to larger pieces asks
//! the disk for more than it has, and one to smaller pieces doubles their number for a while (section 4.2).
//! The size slides over the first half of an interval and is scored in the second.
//!
//! Two cases are outside the gradient. Under light load any size is fine and nothing is learnt: below
//! `adjust_busy` the controller rests. And when prefetched data is evicted before use, waiting for the
//! gradient takes too long: beyond `adjust_evict` the size jumps at once to what a client uses within the
//! time that data stays in memory, eviction time times bitrate, if that is smaller.

mod clock;
mod model;

pub use clock::DiskClock;
pub use model::{Bound, RECENT, Situation, SizeModel};

use alloc::collections::BTreeMap;
use alloc::string::String;

use seekless_units::{Bytes, Nanos, PAGE_BYTES, words};
use serde::{Deserialize, Serialize};

/// Bytes of a transaction: FreeBSD's MAXPHYS.
pub const TRANSACTION: Bytes = Bytes::kib(128);

/// Part of an interval over which a change is spread. The other half is measured; at \[A\]'s 180 s that
/// leaves 90 s, longer than the interval between two prefetches of a client at any size the paper found good.
const SLIDE: f64 = 0.5;

/// Steps in which the size slides. At 0.5 MB a step of the size that is 32 KiB.
const SLIDE_STEPS: u64 = 16;

/// Transactions below which an interval says nothing about the disk.
const TRANSACTIONS_MIN: f64 = 8.0;

/// Settings, by the names of \[A\] section 4.1; the values of its Table 2 are the defaults.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Params {
    /// Size at the start: that in use when last stopped, or the competitive depth of the disk's profile.
    pub start_size: Bytes,
    /// How often the size is looked at. Long against the fluctuations of demand.
    pub adjust_interval: Nanos,
    /// By how much the size changes. Sizes are multiples of it.
    pub step_size: Bytes,
    /// Part by which stored scores shrink at a minimum, 0 to 1.
    pub score_deflation_factor: f64,
    /// Part of the time the prefetcher must be busy for anything to change, 0 to 1.
    pub adjust_busy: f64,
    /// Bytes evicted before use, over bytes requested, from which on the eviction time sets the size.
    pub adjust_evict: f64,
    /// No size above this. Not in the paper: memory is finite.
    pub size_max: Bytes,
    /// What adjusts it. Not in the paper.
    pub adjust_by: AdjustBy,
}

/// How the size is found.
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

impl Default for Params {
    fn default() -> Params {
        Params {
            start_size: Bytes::mib(3),
            adjust_interval: Nanos::from_secs(180),
            step_size: Bytes::kib(512),
            score_deflation_factor: 0.05,
            adjust_busy: 0.6,
            adjust_evict: 0.05,
            size_max: Bytes::mib(32),
            adjust_by: AdjustBy::Model,
        }
    }
}

impl Params {
    /// Whether every value is in its range.
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
            return Err(format!("size_max = {} is out of range; write step_size to 4GiB", self.size_max));
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

/// What happened since the last observation. All of it adds up over an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Observation {
    /// Time the disk worked on reads.
    pub disk_time: Nanos,
    /// Bytes it delivered, prefetched or not.
    pub disk_bytes: Bytes,
    /// Bytes clients asked for.
    pub requested: Bytes,
    /// Time the prefetcher was at work: at least one read waiting or running.
    pub busy: Nanos,
    /// Prefetched bytes that left memory before anybody used them.
    pub evicted: Bytes,
    /// Mean time those had been in memory; counts by `evicted`.
    pub eviction_time: Nanos,
    /// Mean bitrate of the streams the size is for (those of the highest bitrate), bytes a second; 0 if
    /// unknown. Counts by `requested`.
    pub bitrate: f64,
}

/// What was made of an interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Decision {
    /// Too little load to learn from: nothing changes.
    Idle,
    /// Too few reads to score.
    Unscored,
    /// Jumped at once, since this much was evicted before use.
    Evicting {
        /// Part of the requested bytes.
        evicted: f64,
    },
    /// Goes to the next larger size.
    Larger,
    /// Goes to the next smaller size.
    Smaller,
    /// Both neighbours are known and worse: their scores were deflated.
    Minimum,
}

/// The controller of one disk's prefetch size.
#[derive(Clone, Debug)]
pub struct Controller {
    params: Params,
    /// Sizes are multiples of `step_size`; this is the one wanted.
    step: u64,
    /// The size slides from here
    from: u64,
    /// since then.
    slide_start: Nanos,
    /// Size told last.
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
    /// At the size that is scored.
    requested: f64,
    /// Over the whole interval, the slide included: `evicted` is over the same time.
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

    /// The size now in use.
    pub fn size(&self) -> Bytes {
        Bytes(self.told)
    }

    /// The size it is on the way to, and the one to start with next time.
    pub fn target(&self) -> Bytes {
        Bytes(self.step * self.params.step_size.0)
    }

    /// What was made of the last interval, and its score if there was one.
    pub fn last_decision(&self) -> Option<(Decision, Option<f64>)> {
        self.last
    }

    /// The scores kept: (size, milliseconds per transaction times miss ratio).
    pub fn scores(&self) -> impl Iterator<Item = (Bytes, f64)> {
        self.scores.iter().map(|(&step, &score)| (Bytes(step * self.params.step_size.0), score))
    }

    /// Counts what happened up to `now`.
    pub fn observe(&mut self, now: Nanos, seen: Observation) {
        if self.sliding(now) {
            // Neither size's: but evictions count whenever they happen, and so do the requests they are a
            // part of.
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

    /// When [`Controller::tick`] has something to do.
    pub fn next_deadline(&self) -> Nanos {
        if self.told == self.target().0 {
            return self.interval_end;
        }
        let slide = (self.params.adjust_interval.0 as f64 * SLIDE) as u64 / SLIDE_STEPS;
        let steps = self.slid(self.slide_start.max(self.told_at())) + 1;
        (self.slide_start + Nanos(steps.saturating_mul(slide.max(1)))).min(self.interval_end)
    }

    /// When the interval of now is over.
    pub fn interval_end(&self) -> Nanos {
        self.interval_end
    }

    /// Time passed. Returns the size if it changed.
    pub fn tick(&mut self, now: Nanos) -> Option<Bytes> {
        if now >= self.interval_end {
            // A slide is over well before the interval is; arrive in any case.
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

    /// Steps of the slide that `at` has seen.
    fn slid(&self, at: Nanos) -> u64 {
        let slide = (self.params.adjust_interval.0 as f64 * SLIDE) as u64;
        let passed = at.since(self.slide_start).0.min(slide);
        (u128::from(passed) * u128::from(SLIDE_STEPS) / u128::from(slide.max(1))) as u64
    }

    /// The instant whose size was told last.
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
                // At once: the slide starts where it ends.
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
                for step in [self.step - 1, self.step + 1] {
                    if let Some(score) = self.scores.get_mut(&step) {
                        *score *= 1.0 - self.params.score_deflation_factor;
                    }
                }
            }
            _ => {}
        }
        self.last = Some((decision, Some(score)));
    }

    /// The gradient: `p`, `p_larger`, `p_smaller` of the paper. A size out of range counts as known and bad.
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
            // The unknown larger one, whether the smaller one is known to be worse or not known at all.
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

    /// Ten seconds of a busy disk; of what is requested a share is evicted before use.
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

    /// An interval of 180 s, of which the size slides for 90: evicted over requested is over the same time in
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
