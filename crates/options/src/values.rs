//! Values that several options take.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use seekless_base::{Nanos, share};
use seekless_policy::{DEFAULT_WRITERS, WRITERS_MAX};
use smart_default::SmartDefault;

/// `on` or `off`.
///
/// # Errors
/// Any other word.
pub fn on_off(word: &str) -> Result<bool, String> {
    match word {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("write on or off".into()),
    }
}

/// A time of at most a week. A longer one is a typing error, and a sum with a clock must not overflow.
///
/// # Errors
/// Not a time, or longer than a week; the text says what to write.
pub fn week_at_most(text: &str) -> Result<Duration, String> {
    let time = text.parse::<Nanos>().map_err(|e| e.to_string())?;
    if time <= Nanos::from_secs(7 * 86_400) {
        Ok(time.into())
    } else {
        Err("write a week (168h) at most".into())
    }
}

/// [`week_at_most`], and more than 0: the longest wait for something that takes time.
///
/// # Errors
/// Those of [`week_at_most`]; 0.
pub fn longest(text: &str) -> Result<Duration, String> {
    let time = week_at_most(text)?;
    if time.is_zero() { Err("write more than 0, for example 30s".into()) } else { Ok(time) }
}

/// A time of 0.01 s to 1,000,000 s, as seconds.
///
/// # Errors
/// Not a time, or out of range; the text says what to write.
pub fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse::<Nanos>().ok().map(Nanos::as_secs_f64).filter(|s| (0.01..=1e6).contains(s));
    seconds.ok_or_else(|| "write 0.01 to 1000000 seconds, for example 30 or 30s".to_string())
}

/// Least part of a disk's time for writes while they wait; `None` is `off`.
#[derive(Clone, Copy, Debug, PartialEq, SmartDefault)]
pub struct Writers(#[default(Some(DEFAULT_WRITERS))] pub Option<f64>);

impl FromStr for Writers {
    type Err = String;

    fn from_str(text: &str) -> Result<Writers, String> {
        if text == "off" {
            return Ok(Writers(None));
        }
        let share = share(text).ok().filter(|share| *share <= WRITERS_MAX);
        share.map(|share| Writers(Some(share))).ok_or_else(|| {
            format!(
                "write a share of 0 to {WRITERS_MAX}, for example 0.3 or 30% (readers keep the rest), or off"
            )
        })
    }
}

impl fmt::Display for Writers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(share) => write!(f, "{share}"),
            None => f.write_str("off"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writers_have_a_share_that_leaves_some_to_readers() {
        for (text, value) in [("off", None), ("0", Some(0.0)), ("30%", Some(0.3)), ("0.9", Some(0.9))] {
            assert_eq!(text.parse(), Ok(Writers(value)), "{text}");
        }
        for bad in ["", "1", "0.91", "-0.1", "NaN", "on"] {
            assert!(bad.parse::<Writers>().unwrap_err().contains("0 to 0.9"), "{bad}");
        }
        let usual = Writers::default();
        assert_eq!(usual.to_string().parse(), Ok(usual));
    }

    #[test]
    fn times_are_bounded() {
        assert_eq!(week_at_most("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(week_at_most("2min"), Ok(Duration::from_secs(120)));
        assert_eq!((week_at_most("0"), longest("1ms")), (Ok(Duration::ZERO), Ok(Duration::from_millis(1))));
        assert!(longest("0s").unwrap_err().contains("more than 0") && longest("169h").is_err());
        for wrong in ["", "-1s", "169h", "9999999999h"] {
            assert!(week_at_most(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn seconds_may_have_a_unit() {
        for (text, value) in [("30", 30.0), ("0.01", 0.01), ("30s", 30.0), ("500ms", 0.5), ("5min", 300.0)] {
            assert_eq!(seconds(text), Ok(value), "{text}");
        }
        for bad in ["0", "", "9ms", "1000001", "-1", "NaN", "3 weeks"] {
            assert!(seconds(bad).unwrap_err().contains("for example 30 or 30s"), "{bad}");
        }
    }
}
