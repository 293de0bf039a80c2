//! The size that finds itself: a [`Controller`] fed by the spindle.

use alloc::format;

use seekless_units::{Bytes, Lba, Nanos};

use super::SizeReport;
use crate::PrefetchSize;
use crate::controller::{Controller, Decision, Observation, Params};
use crate::profile::DiskProfile;

/// The start size in competitive depths: at `n` of them `n / (n + 1)` of the disk's time is transfer. Four fifths, and the
/// controller goes on from there.
const DEPTHS: u64 = 4;

/// Readers a start size leaves room for in the budget. A disk of the papers carried some hundreds; but most of them are fast
/// asleep between two segments, and later the share each stream gets bounds its pieces anyway.
const READERS: u64 = 64;

/// One size for all streams, adjusted every `adjust_interval` (\[A\] section 4).
#[derive(Clone, Debug)]
pub struct Auto {
    controller: Controller,
    intervals: u64,
}

impl Auto {
    /// Starts at `now`.
    pub fn new(params: Params, now: Nanos) -> Auto {
        Auto { controller: Controller::new(params, now), intervals: 0 }
    }
}

/// The size to start with on a disk where none is remembered: from its profile and the memory there is.
pub fn start_size(profile: &DiskProfile, budget: Bytes, params: &Params) -> Bytes {
    let switch = (profile.mean_seek() + profile.half_turn()).as_secs_f64();
    let depth = (switch * profile.mean_rate()) as u64;
    let room = (budget.0 / READERS).max(params.step_size.0);
    Bytes(depth.saturating_mul(DEPTHS).min(room)).clamp(params.step_size, params.size_max)
}

impl PrefetchSize for Auto {
    fn full(&self, _lba: Option<Lba>, _bitrate: f64) -> Bytes {
        self.controller.size()
    }

    fn observe(&mut self, now: Nanos, seen: Observation) {
        self.controller.observe(now, seen);
        // Late ticks are one tick: what a sleeping driver missed is not made up for.
        if now >= self.controller.interval_end() {
            self.intervals += 1;
        }
        self.controller.tick(now);
    }

    fn next_deadline(&self) -> Option<Nanos> {
        Some(self.controller.next_deadline())
    }

    fn report(&self) -> SizeReport {
        let decision = match self.controller.last_decision() {
            None => Default::default(),
            Some((decision, score)) => {
                let what = match decision {
                    Decision::Idle => "too little load".into(),
                    Decision::Unscored => "too few reads".into(),
                    Decision::Evicting { evicted } => format!("{:.1} % evicted before use", evicted * 100.0),
                    Decision::Larger => "larger".into(),
                    Decision::Smaller => "smaller".into(),
                    Decision::Minimum => "a minimum".into(),
                };
                score.map_or(what.clone(), |score| format!("{what}, score {score:.4} ms"))
            }
        };
        SizeReport {
            kind: "auto".into(),
            size: self.controller.size().0,
            target: self.controller.target().0,
            decision,
            intervals: self.intervals,
            ..SizeReport::default()
        }
    }
}
