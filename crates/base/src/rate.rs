use alloc::string::{String, ToString};
use core::fmt;
use core::str::FromStr;

/// A bitrate, in bytes a second.
///
/// Written and read with a unit: `2095kb/s`, `8 Mb/s` (bits), `250kB/s`, `1MiB/s` (bytes). `bit` is the same
/// as `b`. The letter case of `b` and `B` is what tells bits from bytes.
///
/// ```
/// use seekless_base::Rate;
/// assert_eq!("400kb/s".parse(), Ok(Rate(50_000)));
/// assert_eq!(Rate(50_000).to_string(), "400kb/s");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate(pub u64);

/// Most lines of a table of bitrates, and so most files whose bitrate a process keeps: 64 bytes each.
pub const BITRATES_MAX: u64 = 1 << 18;

/// Largest table of bitrates, bytes.
pub const BITRATES_BYTES_MAX: u64 = 64 << 20;

/// Fastest that is read: a terabit a second.
const BITS_MAX: f64 = 1e12;

/// Largest unit that divides the number of bits, so that what is printed reads back as the same number.
impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = u128::from(self.0) * 8;
        for (factor, unit) in [(1_000_000_000, "Gb/s"), (1_000_000, "Mb/s"), (1_000, "kb/s")] {
            if bits != 0 && bits.is_multiple_of(factor) {
                return write!(f, "{}{unit}", bits / factor);
            }
        }
        write!(f, "{bits}b/s")
    }
}

/// Why a bitrate could not be read; its text says what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{given}` is not a bitrate: {why}; write for example 2095kb/s or 262kB/s")]
pub struct ParseRateError {
    given: String,
    why: &'static str,
}

impl FromStr for Rate {
    type Err = ParseRateError;

    fn from_str(text: &str) -> Result<Rate, ParseRateError> {
        // What is shown is short and in one line, whatever was given.
        let given = || text.chars().filter(|c| !c.is_control()).take(24).collect::<String>();
        let err = |why| ParseRateError { given: given(), why };
        let split = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
        let (number, unit) = (&text[..split], text[split..].trim());
        if number.is_empty() {
            return Err(err("it does not start with a number"));
        }
        if unit.is_empty() {
            return Err(err("it has no unit"));
        }
        let bits =
            |unit: &str| unit.strip_suffix("bit/s").or(unit.strip_suffix("b/s")).map(ToString::to_string);
        let bytes = |unit: &str| unit.strip_suffix("B/s").map(ToString::to_string);
        let (prefix, one) = match (bytes(unit), bits(unit)) {
            (Some(prefix), _) => (prefix, 8.0),
            (None, Some(prefix)) => (prefix, 1.0),
            (None, None) => return Err(err("the unit is unknown")),
        };
        let factor = match prefix.as_str() {
            "" => 1.0,
            "k" | "K" => 1e3,
            "M" => 1e6,
            "G" => 1e9,
            "Ki" => 1024.0,
            "Mi" => 1_048_576.0,
            "Gi" => 1_073_741_824.0,
            _ => return Err(err("the unit is unknown")),
        };
        let number: f64 = number.parse().map_err(|_| err("the number is malformed"))?;
        let bits = number * one * factor;
        if !(8.0..=BITS_MAX).contains(&bits) {
            return Err(err("it is not between 8 b/s and 1 Tb/s"));
        }
        Ok(Rate((bits / 8.0) as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bitrates_read_back_as_written() {
        for (text, bytes_per_s) in [
            ("400kb/s", 50_000),
            ("2095kbit/s", 261_875),
            ("8 Mb/s", 1_000_000),
            ("0.5Mb/s", 62_500),
            ("250kB/s", 250_000),
            ("1MiB/s", 1 << 20),
            ("8b/s", 1),
        ] {
            let rate: Rate = text.parse().unwrap();
            assert_eq!(rate, Rate(bytes_per_s), "{text}");
            assert_eq!(rate.to_string().parse(), Ok(rate), "{rate}");
        }
        assert_eq!(Rate(261_875).to_string(), "2095kb/s");
    }

    #[test]
    fn what_is_no_bitrate_is_named() {
        for (text, why) in [
            ("", "start with a number"),
            ("kb/s", "start with a number"),
            ("-5kb/s", "start with a number"),
            ("2095", "no unit"),
            ("2095k", "unit is unknown"),
            ("2095kb", "unit is unknown"),
            ("5parsecs/s", "unit is unknown"),
            ("1.2.3kb/s", "malformed"),
            ("0kb/s", "between"),
            ("99999Gb/s", "between"),
        ] {
            let said = text.parse::<Rate>().unwrap_err().to_string();
            assert!(said.contains(why), "{text}: {said}");
        }
        let said = "5\n\x1b[2Jkb/s".parse::<Rate>().unwrap_err().to_string();
        assert!(!said.contains(char::is_control), "{said:?}");
    }
}
