//! Several drives behind one address space: RAID 0, 1, 10, 5, 6, drives one behind the other, drives with two
//! actuators.
//!
//! ```text
//! command on the set --> SetLayout: which sectors of which member --> a drive each --> done with the last
//! ```
//!
//! The layouts are those of Linux md with its defaults: RAID 10 keeps two near copies, RAID 5 and 6 rotate
//! their parity to the left and begin the data behind it (left-symmetric). The data of a missing member is
//! read from its mirror or computed from the other members of the stripe. A member that is being rebuilt is
//! read up to where the rebuild has come.
//!
//! The model covers time only. It lacks md's cache of stripes, its write-intent bitmap and journal, and the
//! processor's time for parity.

mod drives;
mod layout;
mod plan;
mod spindle;

use alloc::format;
use alloc::string::{String, ToString};
use core::fmt;
use core::str::FromStr;

use seekless_base::Bytes;
use serde::{Deserialize, Serialize};

pub use drives::{DriveSet, SetCompletion, SetError};
pub use layout::{Located, SetLayout};
pub use spindle::SpindleStats;

/// Maximum number of members of a set.
pub const MEMBERS_MAX: u32 = 64;

/// The default chunk of md since 2010.
pub const DEFAULT_CHUNK: Bytes = Bytes::kib(512);

/// Chunks are multiples of this: a page, the unit of md's stripes.
const CHUNK_MIN: Bytes = Bytes::kib(4);

/// Largest chunk.
const CHUNK_MAX: Bytes = Bytes::mib(64);

/// How members form one address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SetKind {
    /// Chunks in turn over all members.
    Raid0,
    /// The same on every member.
    Raid1,
    /// Two copies of each chunk on neighbours (near-2).
    Raid10,
    /// Chunks in turn, one parity chunk a stripe.
    Raid5,
    /// Chunks in turn, two parity chunks a stripe.
    Raid6,
    /// One member behind the other.
    Linear,
}

impl SetKind {
    /// Every kind.
    pub const ALL: [SetKind; 6] =
        [SetKind::Raid0, SetKind::Raid1, SetKind::Raid10, SetKind::Raid5, SetKind::Raid6, SetKind::Linear];

    /// The word used on the command line and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            SetKind::Raid0 => "raid0",
            SetKind::Raid1 => "raid1",
            SetKind::Raid10 => "raid10",
            SetKind::Raid5 => "raid5",
            SetKind::Raid6 => "raid6",
            SetKind::Linear => "linear",
        }
    }

    /// Minimum number of members.
    pub const fn members_min(self) -> u32 {
        match self {
            SetKind::Linear => 1,
            SetKind::Raid0 | SetKind::Raid1 | SetKind::Raid10 => 2,
            SetKind::Raid5 => 3,
            SetKind::Raid6 => 4,
        }
    }

    /// Whether addresses go from member to member chunk by chunk.
    pub const fn stripes(self) -> bool {
        !matches!(self, SetKind::Raid1 | SetKind::Linear)
    }

    /// Whether the data of a lost member can be computed.
    pub const fn is_redundant(self) -> bool {
        !matches!(self, SetKind::Raid0 | SetKind::Linear)
    }
}

impl fmt::Display for SetKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for SetKind {
    type Err = String;

    fn from_str(s: &str) -> Result<SetKind, String> {
        let found = SetKind::ALL.into_iter().find(|k| k.name() == s);
        found.ok_or_else(|| format!("`{s}` is no set: write raid0, raid1, raid10, raid5, raid6 or linear"))
    }
}

/// The specification of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetSpec {
    /// How members form one address space.
    pub kind: SetKind,
    /// Drives.
    pub members: u32,
    /// Bytes that stay together on a member; ignored for RAID 1 and linear.
    pub chunk: Bytes,
    /// Sets of heads in each drive, each over its equal share of the drive's addresses.
    pub actuators: u32,
}

impl SetSpec {
    /// One ordinary drive.
    pub const SINGLE: SetSpec =
        SetSpec { kind: SetKind::Linear, members: 1, chunk: DEFAULT_CHUNK, actuators: 1 };

    /// Whether it is one drive with one set of heads.
    pub fn is_single(&self) -> bool {
        self.spindles() == 1
    }

    /// Number of sets of heads that move independently.
    pub fn spindles(&self) -> u32 {
        self.members * self.actuators
    }

    /// Capacity of the set in members (rounded down for RAID 10).
    pub fn data_members(&self) -> u32 {
        match self.kind {
            SetKind::Raid0 | SetKind::Linear => self.members,
            SetKind::Raid1 => 1,
            SetKind::Raid10 => self.members / 2,
            SetKind::Raid5 => self.members - 1,
            SetKind::Raid6 => self.members - 2,
        }
    }

    /// Bytes of a whole stripe of data; the chunk if nothing is striped.
    pub fn stripe(&self) -> Bytes {
        if self.kind.stripes() { Bytes(self.chunk.0 * u64::from(self.data_members())) } else { self.chunk }
    }

    /// Whether every number is in its range.
    ///
    /// # Errors
    /// One line that names the first one that is not.
    pub fn check(&self) -> Result<(), String> {
        let least = self.kind.members_min();
        if !(least..=MEMBERS_MAX).contains(&self.members) {
            return Err(format!(
                "{} members make no {}: give {least} to {MEMBERS_MAX}",
                self.members, self.kind
            ));
        }
        let whole = self.chunk.0.is_multiple_of(CHUNK_MIN.0);
        if !whole || !(CHUNK_MIN..=CHUNK_MAX).contains(&self.chunk) {
            return Err(format!(
                "a chunk of {} is out of range: give a multiple of {CHUNK_MIN} up to {CHUNK_MAX}",
                self.chunk
            ));
        }
        if !(1..=2).contains(&self.actuators) {
            return Err(format!("{} actuators a drive: give 1 or 2", self.actuators));
        }
        Ok(())
    }
}

impl fmt::Display for SetSpec {
    /// `raid5 of 4, chunk 512KiB`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let heads =
            if self.actuators > 1 { format!(", {} actuators each", self.actuators) } else { String::new() };
        if self.members == 1 {
            return f.write_str(if self.actuators > 1 { "one drive of two actuators" } else { "one drive" });
        }
        let chunk = if self.kind.stripes() { format!(", chunk {}", self.chunk) } else { String::new() };
        f.write_str(&(format!("{} of {}", self.kind, self.members) + &chunk + &heads.to_string()))
    }
}

/// The state of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Health {
    /// All of it can be read.
    Whole,
    /// None of it can be read or written.
    Failed,
    /// It is being rebuilt; sectors before this one can be read.
    Rebuilding(u64),
}

impl Health {
    /// Whether this range of the member's sectors can be read.
    fn reads(self, end: u64) -> bool {
        match self {
            Health::Whole => true,
            Health::Failed => false,
            Health::Rebuilding(upto) => end <= upto,
        }
    }

    fn writes(self) -> bool {
        self != Health::Failed
    }
}
