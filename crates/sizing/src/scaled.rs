//! Another size for another bitrate: the square root of its share of the highest (\[A\] section 5), or what
//! else is asked for.

use alloc::boxed::Box;
use alloc::string::ToString;

use seekless_units::{Bytes, Lba, Nanos};

use crate::bitrate::BitrateRule;
use crate::controller::{Observation, Situation};
use crate::{EndEvidence, Miss, PrefetchSize, SizeReport};

/// A size for the highest bitrate, scaled down for the others.
pub struct Scaled {
    inner: Box<dyn PrefetchSize + Send>,
    rule: BitrateRule,
    /// Bytes a second; 0 until one is known.
    highest: f64,
}

impl Scaled {
    /// `inner` decides for the highest bitrate.
    pub fn new(inner: Box<dyn PrefetchSize + Send>, rule: BitrateRule) -> Scaled {
        Scaled { inner, rule, highest: 0.0 }
    }
}

impl PrefetchSize for Scaled {
    fn full(&self, lba: Option<Lba>, bitrate: f64) -> Bytes {
        self.rule.size(self.inner.full(lba, bitrate), bitrate, self.highest)
    }

    fn first(&self, full: Bytes) -> Bytes {
        self.inner.first(full)
    }

    fn end_evidence(&self) -> EndEvidence {
        self.inner.end_evidence()
    }

    fn on_miss(&mut self, miss: Miss) -> u64 {
        self.inner.on_miss(miss)
    }

    fn submitted(&mut self, lba: Option<Lba>, len: u64) {
        self.inner.submitted(lba, len);
    }

    fn observe(&mut self, now: Nanos, seen: Observation) {
        self.inner.observe(now, seen);
    }

    fn part(&self, bitrate: f64) -> f64 {
        self.rule.factor(bitrate, self.highest)
    }

    fn situation(&mut self, seen: Situation) {
        self.inner.situation(seen);
    }

    fn next_deadline(&self) -> Option<Nanos> {
        self.inner.next_deadline()
    }

    fn highest_bitrate(&mut self, bytes_per_s: f64) {
        if bytes_per_s.is_finite() && bytes_per_s > 0.0 {
            self.highest = bytes_per_s;
        }
    }

    fn report(&self) -> SizeReport {
        SizeReport {
            scale: self.rule.to_string(),
            highest_bitrate: self.highest as u64,
            ..self.inner.report()
        }
    }
}
