//! A size scaled by the bitrate: by the square root of its fraction of the highest (\[A\] section 5), or by
//! another rule.

use alloc::boxed::Box;
use alloc::string::ToString;

use seekless_base::{Bytes, Lba, Nanos};

use crate::sizing::bitrate::BitrateRule;
use crate::sizing::controller::{Observation, Situation};
use crate::sizing::{EndEvidence, Miss, PrefetchSize, SizeReport};

/// A size for the highest bitrate, scaled down for the others.
pub struct Scaled {
    inner: Box<dyn PrefetchSize + Send>,
    rule: BitrateRule,
    /// Highest bitrate of all streams, bytes a second; 0 until one is known.
    highest: f64,
    /// Highest bitrate of misses, for engines that do not follow streams.
    highest_missed: f64,
}

impl Scaled {
    /// `inner` decides the size for the highest bitrate.
    pub fn new(inner: Box<dyn PrefetchSize + Send>, rule: BitrateRule) -> Scaled {
        Scaled { inner, rule, highest: 0.0, highest_missed: 0.0 }
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
        let (len, bitrate) = (self.inner.on_miss(miss), miss.bitrate as f64);
        self.highest_missed = self.highest_missed.max(bitrate);
        let highest = if self.highest > 0.0 { self.highest } else { self.highest_missed };
        // Whole pages behind the first missing byte, like the unscaled size; never less than requested.
        match self.rule.factor(bitrate, highest) < 1.0 {
            true => self.rule.size(Bytes(len), bitrate, highest).0.max(miss.len),
            false => len,
        }
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

#[cfg(test)]
mod tests {
    use seekless_base::FileId;

    use super::*;
    use crate::sizing::Fixed;

    #[test]
    fn a_miss_of_a_lower_bitrate_is_enlarged_by_its_part_of_the_size() {
        let mib = 1 << 20;
        let mut scaled = Scaled::new(Box::new(Fixed(Bytes(6 * mib))), BitrateRule::Lower(0.5));
        let mut miss = |bitrate, len| {
            scaled.on_miss(Miss { file: FileId { dev: 1, ino: 1 }, offset: 0, lba: None, len, bitrate })
        };
        assert_eq!(miss(100, 4096), 6 * mib, "the only bitrate known is the highest");
        assert_eq!(miss(500, 4096), 6 * mib);
        assert_eq!(miss(100, 4096), 3 * mib);
        assert_eq!(miss(100, 4 * mib), 4 * mib, "never less than is wanted");
        assert_eq!(miss(0, 4096), 6 * mib, "nobody told");
    }
}
