//! The command lines of `seekless serve` and `seekless get`.

mod get;
mod serve;

pub use get::{GetArgs, run_get};
pub use serve::{ServeArgs, run_serve};

/// A span of time: `10s`, `500ms`, `2min`.
fn duration(text: &str) -> Result<std::time::Duration, String> {
    let wrong = || format!("`{text}` is no time; write for example 10s, 500ms or 2min");
    let split = text.find(|c: char| c.is_ascii_alphabetic()).ok_or_else(wrong)?;
    let number: f64 = text[..split].trim().parse().map_err(|_| wrong())?;
    let unit = match &text[split..] {
        "ms" => 1e-3,
        "s" => 1.0,
        "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(wrong()),
    };
    let time = std::time::Duration::try_from_secs_f64(number * unit).ok();
    // Longer than a week is a slip of the pen, and times that are added to a clock must not overflow it.
    time.filter(|time| time.as_secs() <= 7 * 86_400).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn times_have_units_and_are_bounded() {
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("2min"), Ok(Duration::from_secs(120)));
        for wrong in ["", "0", "5", "-1s", "nans", "169h", "9999999999h"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
