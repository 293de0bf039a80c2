//! What is wrong with the disk, set and cleared while it runs.

use std::ops::Range;
use std::str::FromStr;

use seekless_base::{Bytes, Nanos};
use seekless_model::drive::set::{DriveSet, Health, SetError};
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
    /// Members of a set that are not whole, or slow.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<MemberState>,
}

/// How a member of a set fares.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemberState {
    /// Its number, from 0 on.
    pub member: u32,
    /// Whole, failed, or rebuilding.
    pub health: MemberHealth,
    /// Part of it that has been rebuilt, 0 to 1; 1 when it is whole.
    pub rebuilt: f64,
    /// How many times as long as its drive it takes.
    pub slow: f64,
}

/// Whether a member serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MemberHealth {
    /// All of it can be read.
    Whole,
    /// Nothing of it is read or written.
    Failed,
    /// It is written anew from the others.
    Rebuilding,
}

impl MemberState {
    /// Of every member of a set.
    pub fn of(drives: &DriveSet) -> Vec<MemberState> {
        let all = drives.layout().member_sectors().max(1) as f64;
        let state = |(member, (health, slow)): (usize, (&Health, f64))| {
            let (health, rebuilt) = match *health {
                Health::Whole => (MemberHealth::Whole, 1.0),
                Health::Failed => (MemberHealth::Failed, 0.0),
                Health::Rebuilding(upto) => (MemberHealth::Rebuilding, upto as f64 / all),
            };
            MemberState { member: member as u32, health, rebuilt, slow }
        };
        drives.health().iter().zip(drives.slowness()).enumerate().map(state).collect()
    }

    /// Whether there is anything wrong with it.
    pub fn is_fault(&self) -> bool {
        self.health != MemberHealth::Whole || self.slow > 1.0
    }
}

/// A member that takes longer than its drive would.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SlowMember {
    /// Which, from 0 on.
    pub member: u32,
    /// How many times as long everything takes, 1 to 1,000,000.
    pub factor: f64,
}

impl FromStr for SlowMember {
    type Err = String;

    /// `MEMBER,FACTOR`.
    fn from_str(s: &str) -> Result<SlowMember, String> {
        let wrong = || format!("`{s}` is no slow member: write its number and the factor, as 2,4");
        let (member, factor) = s.split_once(',').ok_or_else(wrong)?;
        let Slow { factor, .. } = factor.parse()?;
        Ok(SlowMember { member: member.parse().map_err(|_| wrong())?, factor })
    }
}

/// What is to become of members of a set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemberOrders {
    /// Slow ones.
    pub slow: Vec<SlowMember>,
    /// Those that fail.
    pub fail: Vec<u32>,
    /// Those that are replaced by an empty drive and written anew.
    pub rebuild: Vec<u32>,
}

impl MemberOrders {
    /// Carries them out at `now`.
    ///
    /// # Errors
    /// What the set refuses; what came before it in the order slow, fail, rebuild stays done.
    pub fn apply(&self, drives: &mut DriveSet, now: Nanos) -> Result<(), String> {
        let said = |e: SetError| e.to_string();
        for slow in &self.slow {
            drives.slow(now, slow.member, slow.factor).map_err(said)?;
        }
        for &member in &self.fail {
            drives.fail(now, member).map_err(said)?;
        }
        for &member in &self.rebuild {
            drives.rebuild(now, member).map_err(said)?;
        }
        Ok(())
    }
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
            ..Faults::default()
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
        assert_eq!("2,4.5".parse(), Ok(SlowMember { member: 2, factor: 4.5 }));
        for text in ["4", "x,4", "-1,4", "1,0.5", "1,"] {
            assert!(text.parse::<SlowMember>().is_err(), "{text}");
        }
        for text in ["0.5", "x", "inf", "2,5", "1e7"] {
            assert!(text.parse::<Slow>().is_err(), "{text}");
        }
    }
}
