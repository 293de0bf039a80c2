use alloc::string::{String, ToString};
use core::fmt;
use core::ops::{Add, AddAssign, Sub};
use core::str::FromStr;

use serde::{Deserialize, Serialize};

/// The smallest page of memory, bytes; larger ones are a multiple of it. The kernel reads and counts files in
/// pages, so sizes are whole ones.
pub const PAGE_BYTES: u64 = 4096;

/// A number of bytes. Addition and subtraction saturate.
///
/// Written and read with a unit: `2MiB`, `512 KiB`, `64GiB` (powers of 1024) or `146GB`, `500 MB`, `8kB`
/// (powers of 1000), `0B`, or a bare number of bytes. Letter case of the unit does not matter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
#[serde(try_from = "Written")]
pub struct Bytes(pub u64);

impl Bytes {
    /// None.
    pub const ZERO: Bytes = Bytes(0);

    /// `n` KiB.
    pub const fn kib(n: u64) -> Bytes {
        Bytes(n.saturating_mul(1 << 10))
    }

    /// `n` MiB.
    pub const fn mib(n: u64) -> Bytes {
        Bytes(n.saturating_mul(1 << 20))
    }

    /// `n` GiB.
    pub const fn gib(n: u64) -> Bytes {
        Bytes(n.saturating_mul(1 << 30))
    }

    /// This many megabytes of 1,000,000 bytes, the unit of every printed throughput.
    pub fn as_mb(self) -> f64 {
        self.0 as f64 / 1e6
    }
}

impl Add for Bytes {
    type Output = Bytes;
    fn add(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Bytes {
    fn add_assign(&mut self, other: Bytes) {
        *self = *self + other;
    }
}

impl Sub for Bytes {
    type Output = Bytes;
    fn sub(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_sub(other.0))
    }
}

/// Largest binary unit that divides the number, so that what is printed reads back as the same number.
impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (shift, unit) in [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")] {
            if self.0 != 0 && self.0.is_multiple_of(1 << shift) {
                return write!(f, "{}{unit}", self.0 >> shift);
            }
        }
        write!(f, "{}B", self.0)
    }
}

/// Why a size could not be read; its text says what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{given}` is not a size: {why}; write for example 2MiB, 512KiB, 64GiB or 146GB")]
pub struct ParseBytesError {
    given: String,
    why: &'static str,
}

impl FromStr for Bytes {
    type Err = ParseBytesError;

    fn from_str(s: &str) -> Result<Bytes, ParseBytesError> {
        let err = |why| ParseBytesError { given: s.to_string(), why };
        let text = s.trim();
        let split = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
        let (number, unit) = (&text[..split], text[split..].trim());
        if number.is_empty() {
            return Err(err("it does not start with a number"));
        }
        let factor: u64 = match unit.to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "kib" => 1 << 10,
            "mib" => 1 << 20,
            "gib" => 1 << 30,
            "tib" => 1 << 40,
            "kb" => 1_000,
            "mb" => 1_000_000,
            "gb" => 1_000_000_000,
            "tb" => 1_000_000_000_000,
            "k" | "m" | "g" | "t" => return Err(err("the unit is ambiguous (KiB or kB?)")),
            _ => return Err(err("the unit is unknown")),
        };
        if let Ok(whole) = number.parse::<u64>() {
            return whole.checked_mul(factor).map(Bytes).ok_or_else(|| err("it is larger than 16 EiB"));
        }
        let parsed: f64 = number.parse().map_err(|_| err("the number is malformed"))?;
        let value = parsed * factor as f64;
        if value >= u64::MAX as f64 {
            return Err(err("it is larger than 16 EiB"));
        }
        Ok(Bytes((value + 0.5) as u64))
    }
}

/// Bytes as they are written: a whole number of them, or text with a unit.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a size such as \"2MiB\" or a whole number of bytes")]
enum Written {
    Number(u64),
    Text(String),
}

impl TryFrom<Written> for Bytes {
    type Error = ParseBytesError;

    fn try_from(written: Written) -> Result<Bytes, ParseBytesError> {
        match written {
            Written::Number(bytes) => Ok(Bytes(bytes)),
            Written::Text(text) => text.parse(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn sizes_read_back_as_written() {
        for (text, value) in [
            ("0", 0),
            ("0B", 0),
            ("7B", 7),
            ("512KiB", 512 << 10),
            ("2MiB", 2 << 20),
            (" 64 gib ", 64 << 30),
            ("146GB", 146_000_000_000),
            ("1.5MiB", 3 << 19),
            ("8kB", 8_000),
        ] {
            let parsed: Bytes = text.parse().unwrap();
            assert_eq!(parsed, Bytes(value), "{text}");
            assert_eq!(parsed.to_string().parse::<Bytes>().unwrap(), parsed);
        }
    }

    #[test]
    fn wrong_units_are_named() {
        for (text, why) in [
            ("", "start with a number"),
            ("MiB", "start with a number"),
            ("-2MiB", "start with a number"),
            ("2M", "ambiguous"),
            ("2 furlongs", "unknown"),
            ("1.2.3MiB", "malformed"),
            ("20000000TiB", "16 EiB"),
        ] {
            let message = text.parse::<Bytes>().unwrap_err().to_string();
            assert!(message.contains(why), "{text}: {message}");
        }
    }
}
