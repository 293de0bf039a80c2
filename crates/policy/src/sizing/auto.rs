//! The automatic size: from a model ([`SizeModel`]), or by the paper's [`Controller`].

use alloc::format;
use alloc::string::{String, ToString};

use seekless_base::{Bytes, Lba, Nanos};

use crate::sizing::controller::{
    AdjustBy, Bound, Controller, Decision, Observation, Params, Situation, SizeModel,
};
use crate::sizing::{EndEvidence, PrefetchSize, SizeReport};

/// Number of streams for which a start size leaves room in the budget. The model corrects it as soon as
/// streams are known.
const STREAMS: u64 = 64;

/// One size for all streams, adjusted continuously.
#[derive(Clone, Debug)]
pub struct Auto {
    kind: Kind,
    intervals: u64,
}

#[derive(Clone, Debug)]
enum Kind {
    Model(SizeModel),
    Gradient(Controller),
}

impl Auto {
    /// Starts at `now`.
    pub fn new(params: Params, now: Nanos) -> Auto {
        let kind = match params.adjust_by {
            AdjustBy::Model => Kind::Model(SizeModel::new(params)),
            AdjustBy::Gradient => Kind::Gradient(Controller::new(params, now)),
        };
        Auto { kind, intervals: 0 }
    }

    fn sizes(&self) -> (Bytes, Bytes) {
        match &self.kind {
            Kind::Model(m) => (m.size(), m.target()),
            Kind::Gradient(c) => (c.size(), c.target()),
        }
    }

    fn decision(&self) -> String {
        match &self.kind {
            Kind::Model(m) => match m.bound() {
                None => String::new(),
                Some(Bound::Longest) => "as long as a piece may be".to_string(),
                Some(Bound::Memory) => "as long as the budget bears".to_string(),
                Some(Bound::Leaving) => "longer is wasted on clients who leave".to_string(),
            },
            Kind::Gradient(c) => c.last_decision().map_or_else(String::new, |(decision, score)| {
                let what = match decision {
                    Decision::Idle => "too little load".to_string(),
                    Decision::Unscored => "too few reads".to_string(),
                    Decision::Evicting { evicted } => format!("{:.1} % evicted before use", evicted * 100.0),
                    Decision::Larger => "larger".to_string(),
                    Decision::Smaller => "smaller".to_string(),
                    Decision::Minimum => "a minimum".to_string(),
                };
                score.map_or(what.clone(), |score| format!("{what}, score {score:.4} ms"))
            }),
        }
    }
}

/// Start size for a disk without a remembered one, from the available memory.
pub fn start_size(budget: Bytes, params: &Params) -> Bytes {
    Bytes(budget.0 / STREAMS).clamp(params.step_size, params.size_max)
}

impl PrefetchSize for Auto {
    fn full(&self, _lba: Option<Lba>, _bitrate: f64) -> Bytes {
        self.sizes().0
    }

    fn end_evidence(&self) -> EndEvidence {
        match self.kind {
            Kind::Model(_) => EndEvidence::Ends,
            // The paper's search is not changed.
            Kind::Gradient(_) => EndEvidence::Ignored,
        }
    }

    fn observe(&mut self, now: Nanos, seen: Observation) {
        if let Kind::Gradient(c) = &mut self.kind {
            c.observe(now, seen);
            // Several missed ticks count as one: intervals that a sleeping driver missed are not made up for.
            self.intervals += u64::from(now >= c.interval_end());
            c.tick(now);
        }
    }

    fn situation(&mut self, seen: Situation) {
        if let Kind::Model(m) = &mut self.kind {
            self.intervals += 1;
            m.situation(seen);
        }
    }

    fn next_deadline(&self) -> Option<Nanos> {
        match &self.kind {
            Kind::Model(_) => None,
            Kind::Gradient(c) => Some(c.next_deadline()),
        }
    }

    fn report(&self) -> SizeReport {
        let (size, target) = self.sizes();
        SizeReport {
            kind: "auto".into(),
            size: size.0,
            target: target.0,
            decision: self.decision(),
            intervals: self.intervals,
            ..SizeReport::default()
        }
    }
}
