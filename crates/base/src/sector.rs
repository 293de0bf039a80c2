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

/// Which part of a device holds an address. Parts begin at `starts`, rising; the first, at 0, is left out.
pub fn part_of<T: PartialOrd>(starts: &[T], at: T) -> usize {
    starts.partition_point(|start| *start <= at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_holds_the_address_where_it_begins() {
        let starts = [Lba(100), Lba(200)];
        let parts = [0, 99, 100, 199, 200, u64::MAX].map(|at| part_of(&starts, Lba(at)));
        assert_eq!(parts, [0, 0, 1, 1, 2, 2]);
        assert_eq!(part_of(&[], Lba(5)), 0);
    }
}
