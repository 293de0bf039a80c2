use alloc::string::{String, ToString};
use core::fmt;
use core::ops::{Add, AddAssign, Sub};
use core::str::FromStr;
use core::time::Duration;

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

impl From<Nanos> for Duration {
    fn from(time: Nanos) -> Duration {
        Duration::from_nanos(time.0)
    }
}

/// Text that is no time, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a time; write for example 30s, 500ms or 5min")]
pub struct ParseNanosError(String);

/// Reads a number with `ns`, `us`, `ms`, `s`, `m` or `min`, or `h` behind it; without a unit, seconds.
impl FromStr for Nanos {
    type Err = ParseNanosError;

    fn from_str(text: &str) -> Result<Nanos, ParseNanosError> {
        let given = text.trim();
        let split = given.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(given.len());
        let (number, unit) = (&given[..split], given[split..].trim());
        let seconds = match unit {
            "ns" => 1e-9,
            "us" => 1e-6,
            "ms" => 1e-3,
            "s" | "" => 1.0,
            "m" | "min" => 60.0,
            "h" => 3600.0,
            _ => return Err(ParseNanosError(text.to_string())),
        };
        let number = number.parse::<f64>().map_err(|_| ParseNanosError(text.to_string()))?;
        Ok(Nanos::from_secs_f64(number * seconds))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_unit_or_are_seconds() {
        for (text, nanos) in [
            ("7.5", 7_500_000_000),
            ("30s", 30_000_000_000),
            ("500ms", 500_000_000),
            ("20us", 20_000),
            ("1.5 min", 90_000_000_000),
            ("20m", 1_200_000_000_000),
            ("2h", 7_200_000_000_000),
        ] {
            assert_eq!(text.parse(), Ok(Nanos(nanos)), "{text}");
        }
        for bad in ["", "s", "-1s", "NaN", "inf", "5 bananas", "1s2", "1.2.3s"] {
            let message = bad.parse::<Nanos>().unwrap_err().to_string();
            assert!(message.contains("is not a time; write for example 30s"), "{bad}");
        }
    }
}
