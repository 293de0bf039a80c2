//! Values that several options take.

use seekless_units::Nanos;

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

/// A time in seconds.
///
/// # Errors
/// It is not a number of seconds from 0.01 to 1000000.
pub fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse::<f64>().ok().filter(|s| (0.01..=1e6).contains(s));
    seconds.ok_or_else(|| "write a number of seconds from 0.01 to 1000000".to_string())
}

/// A part of a whole.
///
/// # Errors
/// It is not a number from 0 to 1.
pub fn share(text: &str) -> Result<f64, String> {
    let share = text.parse::<f64>().ok().filter(|s| (0.0..=1.0).contains(s));
    share.ok_or_else(|| "write a number from 0 to 1".to_string())
}

/// A time: a number with `us`, `ms`, `s`, `min` or `h` behind it; without a unit, seconds.
///
/// # Errors
/// It is neither, or negative.
pub fn time(text: &str) -> Result<Nanos, String> {
    let wrong = || format!("`{text}` is not a time; write for example 30s, 500ms or 5min");
    let text = text.trim();
    let split = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let number: f64 = text[..split].parse().map_err(|_| wrong())?;
    let seconds = match text[split..].trim() {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" | "" => 1.0,
        "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(wrong()),
    };
    Ok(Nanos::from_secs_f64(number * seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units_or_are_seconds() {
        for (text, nanos) in [
            ("7.5", 7_500_000_000),
            ("30s", 30_000_000_000),
            ("500ms", 500_000_000),
            ("2min", 120_000_000_000),
        ] {
            assert_eq!(time(text), Ok(Nanos(nanos)), "{text}");
        }
        for bad in ["", "s", "-1s", "NaN", "inf", "5 bananas", "1s2"] {
            assert!(time(bad).unwrap_err().contains("is not a time"), "{bad}");
        }
    }
}
