//! Steer: our coordinator. A waiting reader comes first; everything else is tried, measured and kept only if
//! it helps.
//!
//! PFC gains where the lower level's prefetching harms, and loses where it helps: a sequential reader whose
//! upper level requests little at a time needs the lower level to run ahead, and a lower cache much larger
//! than the upper one is worth filling. No rule on sizes and queues tells the two apart, because it depends
//! on the disk, the load and the network. Steer therefore does two things.
//!
//! 1. *Demand first.* The blocks that the upper level requested and those that the native prefetcher adds
//!    go to the disk as two requests, one behind the other. So no reader waits for the transfer of
//!    unrequested blocks (32 blocks of 4 KiB are 8 ms on the drive of the PFC paper); the second request
//!    needs no seek, because the heads are there. The contents of the caches do not change. Under a backlog
//!    the scheduler below merges the two: then the disk's time is worth more than a wait.
//! 2. *Trial.* Three ways to treat requests take turns: [`Treatment::Native`] (unchanged),
//!    [`Treatment::Pfc`] (PFC's bypass and readmore) and [`Treatment::Past`] (everything bypasses the native
//!    side, which then fetches nothing ahead). Two values are measured: the mean wait of readers for an
//!    answer, and the share of the time in which any reader waited, each moment counted once. The first
//!    distinguishes the ways while the disk keeps up. The second does when it does not, because the first
//!    then measures the length of the queue and the second its speed. The module `waits` finds out which
//!    requests have a waiting reader: measured by all answers alike, a way that answers read-ahead at once
//!    and lets readers queue behind it looked best. The product of the two decides. The best way is kept for
//!    a growing time, then all are tried again, forwards and backwards, so that a load that rises or falls
//!    meanwhile favours none. A trial that goes badly is broken off.
//!
//! What a trial costs must not exceed what it can gain. So the native way is in force for as long as any is
//! kept before the first trial, and a way displaces it only if it is better by [`SteerParams::margin`] and by
//! more than the answers scatter ([`Z`]): a way that was better by chance would be kept for long.
//!
//! What it knows is what PFC knows (the requests, the content of the cache), and when its own answers left.

use crate::study::cache::Cache;
use seekless_levels::coordinate::pfc::{Pfc, PfcParams};
use seekless_levels::coordinate::{LevelRequest, Split};

use super::waits::Waits;

/// One way to treat requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// As they are.
    Native,
    /// PFC's bypass and readmore.
    Pfc,
    /// Everything bypasses the native side.
    Past,
}

const TREATMENTS: [Treatment; 3] = [Treatment::Native, Treatment::Pfc, Treatment::Past];
/// Counted answers after which a trial may be broken off.
const BREAK_OFF_ANSWERS: f64 = 64.0;
/// How much worse than the best a way must be to be broken off.
const BREAK_OFF_FACTOR: f64 = 1.3;
/// Standard errors by which a way must differ from the native one: 95 % of what scatters alone lies within.
/// At half, a third of the ways that are no better would be kept; at double, a gain must be twice as large to
/// be seen.
const Z: f64 = 2.0;

/// Parameters of Steer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SteerParams {
    /// Fewest answers in one trial of one way; a trial has one for every 16 blocks of the cache, within this
    /// and `trial_max`, so that a way's effect on the cache shows. The first quarter is not counted: what the
    /// way before left in the cache and in the disk's queue is not its merit.
    pub trial_min: u32,
    /// Most answers in one trial.
    pub trial_max: u32,
    /// Trials' length the best way is kept for at first, and the native one before the first trial; doubled
    /// each time it is confirmed.
    pub keep_min: u32,
    /// Longest it is kept, in lengths of a trial.
    pub keep_max: u32,
    /// Share by which a way must beat the native one; below it, differences are noise.
    pub margin: f64,
    /// Send what is asked for and what is fetched ahead as two requests.
    pub demand_first: bool,
    /// Try other ways than the native one.
    pub trials: bool,
    /// The level above reads ahead, so that not every request is waited for.
    pub upper_prefetches: bool,
    /// The PFC that one of the ways asks.
    pub pfc: PfcParams,
}

impl Default for SteerParams {
    fn default() -> SteerParams {
        SteerParams {
            trial_min: 1024,
            trial_max: 8192,
            keep_min: 16,
            keep_max: 256,
            margin: 0.03,
            demand_first: true,
            trials: true,
            upper_prefetches: true,
            pfc: PfcParams { bypass: true, readmore: true, ..PFC_DEFAULT },
        }
    }
}

const PFC_DEFAULT: PfcParams = PfcParams {
    bypass: true,
    readmore: true,
    queue_share: 0.1,
    large_request: seekless_levels::coordinate::pfc::LargeRequest::Half,
    refresh_on_hit: true,
    keep_within_request: false,
    per_context: false,
};

/// What the counted answers of a way cost, nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    /// Answers; older ones weigh less.
    answers: f64,
    /// That readers waited for them, and its squares.
    answer: f64,
    squares: f64,
    /// During which a reader waited.
    waiting: f64,
}

impl Cost {
    /// Of an answer.
    fn product(self) -> f64 {
        self.answer * self.waiting / (self.answers * self.answers).max(1.0)
    }

    /// Square of the relative standard error of the mean wait.
    fn error_squared(self) -> f64 {
        let n = self.answers.max(1.0);
        let mean = self.answer / n;
        if mean == 0.0 { 0.0 } else { ((self.squares / n) / (mean * mean) - 1.0).max(0.0) / n }
    }

    fn scaled(self, by: f64) -> Cost {
        let Cost { answers, answer, squares, waiting } = self;
        Cost { answers: answers * by, answer: answer * by, squares: squares * by, waiting: waiting * by }
    }

    fn plus(self, other: Cost) -> Cost {
        Cost {
            answers: self.answers + other.answers,
            answer: self.answer + other.answer,
            squares: self.squares + other.squares,
            waiting: self.waiting + other.waiting,
        }
    }
}

/// State of Steer.
#[derive(Clone, Debug)]
pub struct Steer {
    params: SteerParams,
    pfc: Pfc,
    waits: Waits,
    /// Answers in one trial.
    trial: u32,
    /// Index into [`TREATMENTS`] of the way in force.
    way: usize,
    /// Whether it is on trial (else it is kept).
    trying: bool,
    /// The second half of a round of trials.
    backwards: bool,
    /// When a reader was last seen waiting.
    waited_until_ns: u64,
    answers: u32,
    /// Of the trial under way.
    sums: Cost,
    /// Of each way's trials; those of a round weigh twice as much as those of the one before.
    costs: [Cost; TREATMENTS.len()],
    best: usize,
    keep: u32,
}

impl Steer {
    /// A coordinator in front of a cache of `capacity` blocks.
    pub fn new(params: SteerParams, capacity: usize) -> Steer {
        Steer {
            params,
            pfc: Pfc::new(params.pfc, capacity),
            waits: Waits::new(params.upper_prefetches),
            trial: (capacity / 16).clamp(params.trial_min.max(4) as usize, params.trial_max.max(4) as usize)
                as u32,
            way: 0,
            trying: false,
            backwards: false,
            waited_until_ns: 0,
            answers: 0,
            sums: Cost::default(),
            costs: [Cost::default(); TREATMENTS.len()],
            best: 0,
            keep: params.keep_min.max(1),
        }
    }

    /// The way in force.
    pub fn way(&self) -> Treatment {
        TREATMENTS[self.way]
    }

    /// The way that was best when all were tried last.
    pub fn best(&self) -> Treatment {
        TREATMENTS[self.best]
    }

    pub(super) fn decide(&mut self, request: &LevelRequest, cache: &Cache) -> Split {
        let demand_first = self.params.demand_first;
        // PFC goes on observing while another way is in force, so that its queues are current when its turn
        // comes.
        let pfc = if self.params.trials {
            self.pfc.decide(request, |block| cache.contains(block))
        } else {
            Split::default()
        };
        match TREATMENTS[self.way] {
            Treatment::Native => Split { demand_first, ..Split::default() },
            Treatment::Pfc => Split { demand_first, ..pfc },
            Treatment::Past => Split { bypass: request.len(), ..Split::default() },
        }
    }

    /// A request came at `now_ns`.
    pub(super) fn arrived(&mut self, now_ns: u64, request: &LevelRequest) {
        if self.params.trials {
            self.waits.arrived(now_ns, request);
        }
    }

    /// The request that ended with block `last` was answered at `now_ns`, after `elapsed_ns`.
    pub(super) fn answered(&mut self, now_ns: u64, elapsed_ns: u64, last: u64) {
        if !self.params.trials {
            return;
        }
        let waited = self.waits.waited_ns(now_ns, elapsed_ns, last);
        let waiting = waited.min(now_ns.saturating_sub(self.waited_until_ns));
        if waited > 0 {
            self.waited_until_ns = now_ns;
        }
        self.answers += 1;
        let trial = self.trial;
        if self.trying {
            if self.answers > trial / 4 {
                let waited = waited as f64;
                let (squares, waiting) = (waited * waited, waiting as f64);
                self.sums = self.sums.plus(Cost { answers: 1.0, answer: waited, squares, waiting });
            }
            if self.answers >= trial || self.hopeless() {
                let cost = self.sums;
                self.restart();
                self.next_trial(cost);
            }
        } else if self.answers >= trial.saturating_mul(self.keep) {
            self.restart();
            self.costs = self.costs.map(|cost| cost.scaled(0.5));
            self.way = 0;
            self.trying = true;
        }
    }

    /// Takes the result of a trial and begins the next, or chooses. Forwards through the ways, then
    /// backwards.
    fn next_trial(&mut self, cost: Cost) {
        self.costs[self.way] = self.costs[self.way].plus(cost);
        if !self.backwards {
            match self.way + 1 < TREATMENTS.len() {
                true => self.way += 1,
                false => self.backwards = true,
            }
        } else {
            match self.way.checked_sub(1) {
                Some(way) => self.way = way,
                None => self.choose(),
            }
        }
    }

    /// Whether the way on trial is so much worse than the best of this round that more of it is not worth its
    /// cost.
    fn hopeless(&self) -> bool {
        let tried = if self.backwards { TREATMENTS.len() } else { self.way };
        let best = self.costs[..tried].iter().map(|m| m.product()).fold(f64::INFINITY, f64::min);
        let limit = best * BREAK_OFF_FACTOR * BREAK_OFF_FACTOR;
        self.sums.answers >= BREAK_OFF_ANSWERS && self.sums.product() > limit
    }

    fn restart(&mut self) {
        self.answers = 0;
        self.sums = Cost::default();
    }

    /// Ends a round of trials: the best way is kept, longer if it was the best before.
    fn choose(&mut self) {
        let native = self.costs[0];
        let mut best = 0;
        for way in 1..TREATMENTS.len() {
            let cost = self.costs[way];
            // Both factors of the product scatter as the waits do.
            let scatter = 2.0 * Z * libm::sqrt(native.error_squared() + cost.error_squared());
            let margin = (1.0 - self.params.margin) * (1.0 - self.params.margin);
            let enough = native.product() * margin.min(libm::exp(-scatter));
            if cost.product() < enough && cost.product() < self.costs[best].product() {
                best = way;
            }
        }
        let confirmed = best == self.best;
        self.keep =
            if confirmed { (self.keep * 2).min(self.params.keep_max) } else { self.params.keep_min }.max(1);
        self.best = best;
        self.way = best;
        self.trying = false;
        self.backwards = false;
    }
}
