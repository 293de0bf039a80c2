//! What is wrong with the disk, set and cleared while it runs.

use std::ops::Range;
use std::str::FromStr;

use seekless_units::Bytes;
use serde::{Deserialize, Serialize};

/// Most ranges a disk keeps of each kind of fault; a list that only grows would slow every request down.
pub const RANGES_MAX: usize = 1024;

/// A range of bytes of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ByteRange {
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
}

impl ByteRange {
    /// Whether any byte of `other` is in this range.
    pub fn overlaps(&self, other: &Range<u64>) -> bool {
        self.offset < other.end && other.start < self.offset.saturating_add(self.len)
    }
}

impl FromStr for ByteRange {
    type Err = String;

    /// `OFFSET+LEN`, both with units: `1GiB+64KiB`.
    fn from_str(s: &str) -> Result<ByteRange, String> {
        let (offset, len) =
            s.split_once('+').ok_or(format!("`{s}` is not a range: write OFFSET+LEN, as 1GiB+64KiB"))?;
        let read = |part: &str| part.parse::<Bytes>().map(|b| b.0).map_err(|e| e.to_string());
        Ok(ByteRange { offset: read(offset)?, len: read(len)? })
    }
}

/// Requests that run slower than the model says.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Slow {
    /// How many times as long they take, 1 to 1,000,000.
    pub factor: f64,
    /// Where; everywhere if absent.
    pub range: Option<ByteRange>,
}

impl FromStr for Slow {
    type Err = String;

    /// `FACTOR` or `FACTOR,OFFSET+LEN`.
    fn from_str(s: &str) -> Result<Slow, String> {
        let (factor, range) = match s.split_once(',') {
            Some((factor, range)) => (factor, Some(range.parse()?)),
            None => (s, None),
        };
        match factor.parse::<f64>() {
            Ok(factor) if (1.0..=1e6).contains(&factor) => Ok(Slow { factor, range }),
            _ => Err(format!("`{factor}` is not a factor of slowness: write a number from 1 to 1000000")),
        }
    }
}

/// The faults in force.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Faults {
    /// Requests that touch one of these take their time and fail with EIO.
    pub eio: Vec<ByteRange>,
    /// The largest factor of those that apply counts.
    pub slow: Vec<Slow>,
}

impl Faults {
    /// Whether a request for these bytes fails.
    pub fn fails(&self, bytes: &Range<u64>) -> bool {
        self.eio.iter().any(|r| r.overlaps(bytes))
    }

    /// How many times as long as the model says a request for these bytes takes; 1 without a fault.
    pub fn factor(&self, bytes: &Range<u64>) -> f64 {
        let hit = |slow: &&Slow| slow.range.is_none_or(|r| r.overlaps(bytes));
        self.slow.iter().filter(hit).map(|s| s.factor).fold(1.0, f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_apply_to_overlapping_ranges_and_the_largest_factor_counts() {
        let faults = Faults {
            eio: vec!["1MiB+4KiB".parse().unwrap()],
            slow: vec!["4".parse().unwrap(), "9,0+1MiB".parse().unwrap()],
        };
        let mib = 1 << 20;
        assert!(
            faults.fails(&(mib..mib + 1))
                && faults.fails(&(0..mib + 1))
                && faults.fails(&(mib + 4095..2 * mib))
        );
        assert!(!faults.fails(&(0..mib)) && !faults.fails(&(mib + 4096..2 * mib)));
        assert_eq!((faults.factor(&(0..1)), faults.factor(&(mib..mib + 1))), (9.0, 4.0));
        assert_eq!(Faults::default().factor(&(0..1)), 1.0);
        for text in ["1MiB", "1MiB+x", "+"] {
            assert!(text.parse::<ByteRange>().is_err(), "{text}");
        }
        for text in ["0.5", "x", "inf", "2,5", "1e7"] {
            assert!(text.parse::<Slow>().is_err(), "{text}");
        }
    }
}
