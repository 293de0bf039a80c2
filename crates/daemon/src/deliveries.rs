//! What servers read and how long their misses took, as reported by their shims: the same whether calls are
//! served or passed.
//!
//! A miss is seen twice: when the shim asks, and when it reports the read afterwards. The time between is the
//! wait of the server, to within the interval at which [`crate::acceptor`] empties the rings. A reported read
//! without a question before it was a hit, and did not wait.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use seekless_frontend::status::DeliveryReport;
use seekless_policy::FileId;

/// Maximum number of questions whose read is not reported yet. Further ones are not timed.
const ASKED_MAX: usize = 8192;

/// Maximum time from question to report. After it, the call was of another kind (a mapping), or its report
/// was lost.
const ASKED_FOR: Duration = Duration::from_secs(120);

/// Longest wait that is resolved, in microseconds.
const LONGEST_US: u64 = 120_000_000;

/// The account.
pub(crate) struct Deliveries {
    asked: HashMap<(FileId, u64), Instant>,
    waits: Histogram<u64>,
    reads: u64,
    bytes: u64,
}

impl Default for Deliveries {
    fn default() -> Deliveries {
        Deliveries {
            asked: HashMap::new(),
            // Two digits; the constructor accepts these constant bounds.
            waits: Histogram::new_with_bounds(1, LONGEST_US, 2).expect("constant bounds are valid"),
            reads: 0,
            bytes: 0,
        }
    }
}

impl Deliveries {
    /// A shim asked for a range that begins here. If several clients ask at one place, the first counts.
    pub(crate) fn asked(&mut self, file: FileId, offset: u64, now: Instant) {
        if self.asked.len() >= ASKED_MAX {
            self.asked.retain(|_, at| now.saturating_duration_since(*at) < ASKED_FOR);
        }
        if self.asked.len() < ASKED_MAX {
            self.asked.entry((file, offset)).or_insert(now);
        }
    }

    /// A read was reported.
    pub(crate) fn read(&mut self, file: FileId, offset: u64, len: u64, now: Instant) {
        self.reads += 1;
        self.bytes = self.bytes.saturating_add(len);
        let Some(at) = self.asked.remove(&(file, offset)) else { return };
        let wait = now.saturating_duration_since(at);
        if wait < ASKED_FOR {
            self.waits.saturating_record((wait.as_micros() as u64).max(1));
        }
    }

    pub(crate) fn report(&self) -> DeliveryReport {
        let bucket = |v: hdrhistogram::iterators::IterationValue<u64>| {
            (v.value_iterated_to() as f64 / 1e3, v.count_at_value())
        };
        DeliveryReport {
            reads: self.reads,
            bytes: self.bytes,
            waits: self.waits.iter_recorded().map(bucket).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_miss_is_timed_from_its_question_to_its_report_and_a_hit_is_not() {
        let mut d = Deliveries::default();
        let start = Instant::now();
        let file = FileId { dev: 1, ino: 2 };
        d.asked(file, 4096, start);
        d.asked(file, 4096, start + Duration::from_millis(30));
        d.read(file, 0, 10, start);
        d.read(file, 4096, 20, start + Duration::from_millis(50));
        d.read(file, 4096, 30, start + Duration::from_millis(60));
        let report = d.report();
        assert_eq!((report.reads, report.bytes), (3, 60));
        assert_eq!(report.waits.len(), 1);
        assert!((49.0..51.0).contains(&report.waits[0].0) && report.waits[0].1 == 1, "{report:?}");
    }

    #[test]
    fn questions_without_a_read_are_bounded() {
        let mut d = Deliveries::default();
        let start = Instant::now();
        for i in 0..2 * ASKED_MAX as u64 {
            d.asked(FileId { dev: 1, ino: i }, 0, start);
        }
        assert_eq!(d.asked.len(), ASKED_MAX);
        d.asked(FileId { dev: 2, ino: 0 }, 0, start + ASKED_FOR);
        assert_eq!(d.asked.len(), 1, "what is old makes room");
    }
}
