use core::fmt;
use core::ops::{Add, AddAssign, Sub};

use serde::{Deserialize, Serialize};

/// A point in time or a span of it, in nanoseconds.
///
/// A point counts from an origin that the driver chose (boot, start of a simulation); the pure crates never
/// ask which. Range: 584 years. Addition and subtraction saturate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Nanos(pub u64);

impl Nanos {
    /// The origin, or no time at all.
    pub const ZERO: Nanos = Nanos(0);
    /// Later than every deadline.
    pub const MAX: Nanos = Nanos(u64::MAX);

    /// `us` microseconds.
    pub const fn from_micros(us: u64) -> Nanos {
        Nanos(us.saturating_mul(1_000))
    }

    /// `ms` milliseconds.
    pub const fn from_millis(ms: u64) -> Nanos {
        Nanos(ms.saturating_mul(1_000_000))
    }

    /// `s` seconds.
    pub const fn from_secs(s: u64) -> Nanos {
        Nanos(s.saturating_mul(1_000_000_000))
    }

    /// `s` seconds, rounded to the nearest nanosecond; negative and not-a-number become zero.
    pub fn from_secs_f64(s: f64) -> Nanos {
        // `as` saturates and maps NaN to zero.
        Nanos((s * 1e9 + 0.5) as u64)
    }

    /// `ms` milliseconds, rounded to the nearest nanosecond; negative and not-a-number become zero.
    pub fn from_millis_f64(ms: f64) -> Nanos {
        Nanos::from_secs_f64(ms / 1e3)
    }

    /// This many seconds.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// This many milliseconds.
    pub fn as_millis_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// The time from `earlier` to `self`, zero if `earlier` is later.
    pub const fn since(self, earlier: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add for Nanos {
    type Output = Nanos;
    fn add(self, other: Nanos) -> Nanos {
        Nanos(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Nanos {
    fn add_assign(&mut self, other: Nanos) {
        *self = *self + other;
    }
}

impl Sub for Nanos {
    type Output = Nanos;
    fn sub(self, other: Nanos) -> Nanos {
        self.since(other)
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0..1_000 => write!(f, "{} ns", self.0),
            1_000..1_000_000 => write!(f, "{:.1} us", self.0 as f64 / 1e3),
            1_000_000..1_000_000_000 => write!(f, "{:.2} ms", self.0 as f64 / 1e6),
            _ => write!(f, "{:.3} s", self.0 as f64 / 1e9),
        }
    }
}
