//! The command lines of `seekless serve` and `seekless get`.

mod get;
mod serve;

use std::time::Duration;

use seekless_units::Nanos;

pub use get::{GetArgs, run_get};
pub use serve::{ServeArgs, run_serve};

/// A span of time, a week at most: longer is a slip of the pen, and times that are added to a clock must not
/// overflow it.
fn duration(text: &str) -> Result<Duration, String> {
    let time = text.parse::<Nanos>().map_err(|e| e.to_string())?;
    if time <= Nanos::from_secs(7 * 86_400) {
        Ok(time.into())
    } else {
        Err("write a week (168h) at most".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_bounded() {
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("2min"), Ok(Duration::from_secs(120)));
        for wrong in ["", "-1s", "169h", "9999999999h"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
