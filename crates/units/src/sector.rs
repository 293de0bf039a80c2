use serde::{Deserialize, Serialize};

/// Bytes in one addressable sector. Every interface of Seekless counts 512-byte sectors, as the kernel's
/// block layer does, whatever the drive's physical sector is.
pub const SECTOR_BYTES: u64 = 512;

/// A disk address: the number of a 512-byte sector from the start of the whole disk (not of a partition).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Lba(pub u64);

impl Lba {
    /// Sectors between two addresses, in either direction.
    pub const fn distance(self, other: Lba) -> u64 {
        self.0.abs_diff(other.0)
    }

    /// The address `bytes` further on, rounded down to a sector.
    pub const fn plus_bytes(self, bytes: u64) -> Lba {
        Lba(self.0.saturating_add(bytes / SECTOR_BYTES))
    }
}
