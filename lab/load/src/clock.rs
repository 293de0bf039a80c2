//! One clock for a whole run, in the workload's time.
//!
//! With `--speedup K` the disk under the server works K times faster than life, so everything about the
//! clients must too: schedules, link rates, delays and timeouts. Instead of scaling each of them, the clock
//! runs K times faster than real time and the rest of the crate never sees real time. Results are in the
//! workload's time as well: at speedup 8, 60 s of load take 7.5 s, and 100 MB/s reported are 800 MB/s over
//! the wire.

use std::time::Duration;

use seekless_base::Nanos;
use tokio::time::Instant;

/// A clock that started at zero and runs `speedup` times faster than real time.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
    speedup: f64,
}

impl Clock {
    /// A clock at zero now. `speedup` is above 0.
    pub fn start(speedup: f64) -> Clock {
        Clock { origin: Instant::now(), speedup }
    }

    /// How many times faster than real time it runs.
    pub fn speedup(&self) -> f64 {
        self.speedup
    }

    /// Time since the start.
    pub fn now(&self) -> Nanos {
        let real = self.origin.elapsed();
        if self.speedup == 1.0 {
            return Nanos(u64::try_from(real.as_nanos()).unwrap_or(u64::MAX));
        }
        Nanos::from_secs_f64(real.as_secs_f64() * self.speedup)
    }

    /// The real instant of a time of this clock.
    pub fn instant(&self, at: Nanos) -> Instant {
        // A century stands for "never" and stays inside the range of Instant.
        const NEVER_S: f64 = 100.0 * 365.25 * 86_400.0;
        self.origin + Duration::from_secs_f64((at.as_secs_f64() / self.speedup).min(NEVER_S))
    }

    /// Returns at `at`, at once if that is past.
    pub async fn sleep_until(&self, at: Nanos) {
        if at > self.now() {
            tokio::time::sleep_until(self.instant(at)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn time_runs_k_times_faster() {
        let real = Instant::now();
        let clock = Clock::start(8.0);
        clock.sleep_until(Nanos::from_secs(60)).await;
        let took = real.elapsed().as_secs_f64();
        assert!((7.5..7.51).contains(&took), "{took}");
        assert!((60.0..60.1).contains(&clock.now().as_secs_f64()));
        clock.sleep_until(Nanos::from_secs(1)).await;
        assert!(real.elapsed().as_secs_f64() < 7.6);
    }
}
