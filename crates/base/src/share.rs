use alloc::format;
use alloc::string::String;

/// Reads a part of a whole: `0.1` or `10%`.
///
/// # Errors
/// It is not within 0 and 1; the text says what to write.
pub fn share(text: &str) -> Result<f64, String> {
    let (number, whole) = match text.trim().strip_suffix('%') {
        Some(percent) => (percent.trim(), 100.0),
        None => (text.trim(), 1.0),
    };
    let share = number.parse::<f64>().ok().map(|number| number / whole);
    share
        .filter(|share| (0.0..=1.0).contains(share))
        .ok_or_else(|| format!("`{text}` is not a share; write for example 0.1 or 10%"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_a_number_up_to_1_or_a_percentage() {
        for (text, value) in
            [("0", 0.0), ("0.003", 0.003), ("0.3%", 0.003), ("10 %", 0.1), ("1", 1.0), ("100%", 1.0)]
        {
            assert_eq!(share(text), Ok(value), "{text}");
        }
        for bad in ["", "%", "10", "101%", "-0.1", "NaN", "x"] {
            assert!(share(bad).unwrap_err().contains("write for example 0.1 or 10%"), "{bad}");
        }
    }
}
