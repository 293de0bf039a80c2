//! Whether every call is passed for now, so that a server runs as without Seekless while `prove` measures it.
//!
//! It is a lease. The prover renews it, and when it expires, reads are served again. So a prover that dies
//! leaves the server served.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use seekless_wire::PASS_ALL_UNTIL_TOLD;

/// Maximum length of a lease with an end. A prover renews it every second.
const LEASE_MAX: Duration = Duration::from_secs(10);

/// Reads are served.
const SERVED: u64 = 0;
/// Until told otherwise.
const UNTIL_TOLD: u64 = u64::MAX;

/// The lease.
#[derive(Debug)]
pub(crate) struct Passing {
    started: Instant,
    /// Milliseconds since the start.
    until: AtomicU64,
}

impl Passing {
    pub(crate) fn new(now: Instant) -> Passing {
        Passing { started: now, until: AtomicU64::new(SERVED) }
    }

    /// Starts a lease of this length, encoded as in the frame.
    pub(crate) fn lease(&self, lease_ms: u32, now: Instant) {
        let lease = Duration::from_millis(u64::from(lease_ms)).min(LEASE_MAX);
        let until = match lease_ms {
            0 => SERVED,
            PASS_ALL_UNTIL_TOLD => UNTIL_TOLD,
            _ => self.ms(now + lease).max(1),
        };
        self.until.store(until, Ordering::Relaxed);
    }

    /// Whether every call is passed.
    pub(crate) fn now(&self, now: Instant) -> bool {
        // The common case, which needs no clock.
        let until = self.until.load(Ordering::Relaxed);
        until != SERVED && self.ms(now) < until
    }

    fn ms(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.started).as_millis() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_ends_by_itself_and_one_without_an_end_does_not() {
        let start = Instant::now();
        let at = |s: u64| start + Duration::from_secs(s);
        let passing = Passing::new(start);
        assert!(!passing.now(at(5)));
        passing.lease(3_000, at(5));
        assert!(passing.now(at(6)) && passing.now(at(7)) && !passing.now(at(8)));
        passing.lease(u32::MAX - 1, at(20));
        assert!(
            passing.now(at(29)) && !passing.now(at(30)),
            "no lease with an end is longer than ten seconds"
        );
        passing.lease(PASS_ALL_UNTIL_TOLD, at(40));
        assert!(passing.now(at(1_000_000)));
        passing.lease(0, at(50));
        assert!(!passing.now(at(50)));
    }
}
