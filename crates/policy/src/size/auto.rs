//! The size that finds itself: a controller fed by the spindle, [`Guided`] by a model or the paper's [`Controller`].

use alloc::format;

use seekless_profile::DiskProfile;
use seekless_units::{Bytes, Lba, Nanos};

use super::{EndEvidence, SizeReport};
use crate::PrefetchSize;
use crate::controller::{AdjustBy, Controller, Decision, Guided, Observation, Params, Situation};

/// The start size in competitive depths: at `n` of them `n / (n + 1)` of the disk's time is transfer. Four fifths, and the
/// controller goes on from there.
const DEPTHS: u64 = 4;

/// Readers a start size leaves room for in the budget. A disk of the papers carried some hundreds; but most of them are fast
/// asleep between two segments, and later the share each stream gets bounds its pieces anyway.
const READERS: u64 = 64;

/// One size for all streams, adjusted every `adjust_interval` (\[A\] section 4).
#[derive(Clone, Debug)]
pub struct Auto {
    controller: Kind,
    intervals: u64,
}

#[derive(Clone, Debug)]
enum Kind {
    Model(Guided),
    Gradient(Controller),
}

impl Auto {
    /// Starts at `now`, on a disk of this profile.
    pub fn new(params: Params, profile: &DiskProfile, now: Nanos) -> Auto {
        let controller = match params.adjust_by {
            AdjustBy::Model => Kind::Model(Guided::new(params, profile, now)),
            AdjustBy::Gradient => Kind::Gradient(Controller::new(params, now)),
        };
        Auto { controller, intervals: 0 }
    }

    fn sizes(&self) -> (Bytes, Bytes) {
        match &self.controller {
            Kind::Model(c) => (c.size(), c.target()),
            Kind::Gradient(c) => (c.size(), c.target()),
        }
    }
}

/// The size to start with on a disk where none is remembered: from its profile and the memory there is.
pub fn start_size(profile: &DiskProfile, budget: Bytes, params: &Params) -> Bytes {
    let room = (budget.0 / READERS).max(params.step_size.0);
    Bytes(profile.mean_depth().0.saturating_mul(DEPTHS).min(room)).clamp(params.step_size, params.size_max)
}

impl PrefetchSize for Auto {
    fn full(&self, _lba: Option<Lba>, _bitrate: f64) -> Bytes {
        self.sizes().0
    }

    fn end_evidence(&self) -> EndEvidence {
        match self.controller {
            Kind::Model(_) => EndEvidence::Ends,
            // The paper's search is left as it is.
            Kind::Gradient(_) => EndEvidence::Ignored,
        }
    }

    fn observe(&mut self, now: Nanos, seen: Observation) {
        // Late ticks are one tick: what a sleeping driver missed is not made up for.
        let end = match &mut self.controller {
            Kind::Model(c) => {
                c.observe(now, seen);
                c.interval_end()
            }
            Kind::Gradient(c) => {
                c.observe(now, seen);
                c.interval_end()
            }
        };
        if now >= end {
            self.intervals += 1;
        }
        match &mut self.controller {
            Kind::Model(c) => c.tick(now),
            Kind::Gradient(c) => {
                c.tick(now);
            }
        }
    }

    fn situation(&mut self, now: Nanos, seen: Situation) {
        if let Kind::Model(c) = &mut self.controller {
            c.situation(now, seen);
        }
    }

    fn next_deadline(&self) -> Option<Nanos> {
        Some(match &self.controller {
            Kind::Model(c) => c.next_deadline(),
            Kind::Gradient(c) => c.next_deadline(),
        })
    }

    fn report(&self) -> SizeReport {
        let last = match &self.controller {
            Kind::Model(c) => c.last_decision(),
            Kind::Gradient(c) => c.last_decision(),
        };
        let (size, target) = self.sizes();
        let decision = match last {
            None => Default::default(),
            Some((decision, score)) => {
                let what = match decision {
                    Decision::Idle => "too little load".into(),
                    Decision::Unscored => "too few reads".into(),
                    Decision::Evicting { evicted } => format!("{:.1} % evicted before use", evicted * 100.0),
                    Decision::Model => "to the model's size".into(),
                    Decision::Trying { up: true } => "tries a larger one".into(),
                    Decision::Trying { up: false } => "tries a smaller one".into(),
                    Decision::Back => "comes back to compare".into(),
                    Decision::Larger => "larger".into(),
                    Decision::Smaller => "smaller".into(),
                    Decision::Minimum => "a minimum".into(),
                };
                score.map_or(what.clone(), |score| format!("{what}, score {score:.4} ms"))
            }
        };
        SizeReport {
            kind: "auto".into(),
            size: size.0,
            target: target.0,
            decision,
            intervals: self.intervals,
            ..SizeReport::default()
        }
    }
}
