//! How btrfs maps its logical addresses to devices. Pure.
//!
//! The address space that `FIEMAP` reports is divided into *chunks*. Each lies on one or several devices, in
//! one contiguous range on each of them (`struct btrfs_chunk`, fs/btrfs/volumes.c):
//!
//! | profile | byte `i` of the chunk, `s` bytes a stripe, `n` devices |
//! | --- | --- |
//! | single, dup | on the first device, at `i` |
//! | raid1, raid1c3, raid1c4 | on every device, at `i` |
//! | raid0 | stripe `i / s` on device `(i / s) % n`, row `i / s / n` |
//! | raid10 | the same over groups of devices that have the same data |
//! | raid5, raid6 | data stripe `k` of row `r` on device `(r + k) % n`; the parity of the row behind it |

use linux_raw_sys::btrfs::{
    BTRFS_BLOCK_GROUP_DATA as DATA, BTRFS_BLOCK_GROUP_DUP as DUP, BTRFS_BLOCK_GROUP_PROFILE_MASK as PROFILES,
    BTRFS_BLOCK_GROUP_RAID0 as RAID0, BTRFS_BLOCK_GROUP_RAID1 as RAID1, BTRFS_BLOCK_GROUP_RAID1C3 as RAID1C3,
    BTRFS_BLOCK_GROUP_RAID1C4 as RAID1C4, BTRFS_BLOCK_GROUP_RAID5 as RAID5, BTRFS_BLOCK_GROUP_RAID6 as RAID6,
    BTRFS_BLOCK_GROUP_RAID10 as RAID10,
};

/// Bytes of `struct btrfs_chunk` before its stripes, and of each stripe.
const HEAD: usize = 48;
const STRIPE: usize = 32;

/// How the bytes of a chunk are laid out on its devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Profile {
    /// On one device, once.
    Single,
    /// On one device, twice. The kernel reads the first copy.
    Dup,
    /// All bytes on every device.
    Mirror,
    /// Stripes on the devices in turn.
    Stripe,
    /// Stripes in turn on groups of devices with the same data.
    StripedMirror,
    /// Stripes in turn, with this many parity stripes in each row.
    Parity(usize),
}

/// A contiguous range of a chunk on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stripe {
    /// The file system's id for the device.
    pub device: u64,
    /// Start of the range on it, in bytes.
    pub offset: u64,
}

/// A part of the file system's address space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    logical: u64,
    len: u64,
    stripe_len: u64,
    data: bool,
    profile: Profile,
    /// Number of devices in a group with the same data.
    group: usize,
    stripes: Vec<Stripe>,
}

impl Chunk {
    /// Parses the item of the chunk tree with this offset; `None` if it is inconsistent.
    pub fn parse(logical: u64, item: &[u8]) -> Option<Chunk> {
        let (len, stripe_len, kind) = (u64_at(item, 0)?, u64_at(item, 16)?, u64_at(item, 24)? as u32);
        let (stripes, sub_stripes) = (u16_at(item, 44)?, u16_at(item, 46)?);
        let stripe = |i: usize| {
            let at = HEAD + i * STRIPE;
            Some(Stripe { device: u64_at(item, at)?, offset: u64_at(item, at + 8)? })
        };
        let stripes = (0..usize::from(stripes)).map(stripe).collect::<Option<Vec<Stripe>>>()?;
        let profile = match kind & PROFILES {
            0 => Profile::Single,
            DUP => Profile::Dup,
            RAID1 | RAID1C3 | RAID1C4 => Profile::Mirror,
            RAID0 => Profile::Stripe,
            RAID10 => Profile::StripedMirror,
            RAID5 => Profile::Parity(1),
            RAID6 => Profile::Parity(2),
            _ => return None,
        };
        let data = kind & DATA != 0;
        Chunk::new((logical, len), (profile, stripe_len), data, usize::from(sub_stripes), stripes)
    }

    /// `None` if it is inconsistent: no device, no length, or a group that does not divide the devices.
    fn new(
        (logical, len): (u64, u64),
        (profile, stripe_len): (Profile, u64),
        data: bool,
        sub_stripes: usize,
        stripes: Vec<Stripe>,
    ) -> Option<Chunk> {
        let n = stripes.len();
        let group = match profile {
            Profile::Mirror => n,
            Profile::StripedMirror => sub_stripes,
            Profile::Single | Profile::Dup | Profile::Stripe | Profile::Parity(_) => 1,
        };
        let fits = match profile {
            Profile::StripedMirror => group > 0 && n >= group && n.is_multiple_of(group),
            Profile::Parity(parity) => n > parity,
            _ => n > 0,
        };
        logical.checked_add(len)?;
        let sound = fits && len > 0 && stripe_len.is_power_of_two();
        sound.then_some(Chunk { logical, len, stripe_len, data, profile, group, stripes })
    }

    /// Its layout.
    pub fn profile(&self) -> Profile {
        self.profile
    }

    /// Number of copies of every byte from which a reader may choose.
    pub fn copies(&self) -> usize {
        self.group
    }

    /// Offset of a byte in the chunk, and the chunk's length.
    pub fn within(&self, logical: u64) -> (u64, u64) {
        (logical.saturating_sub(self.logical), self.len)
    }

    /// The place of a copy of a byte; `None` if the chunk has no such byte or copy.
    pub fn place(&self, logical: u64, copy: usize) -> Option<Stripe> {
        let at = logical.checked_sub(self.logical).filter(|&at| at < self.len)?;
        if copy >= self.group {
            return None;
        }
        let (number, within) = (at / self.stripe_len, at % self.stripe_len);
        let n = self.stripes.len() as u64;
        let rows = |columns: u64| (number % columns, number / columns);
        let (device, offset) = match self.profile {
            Profile::Single | Profile::Dup => (0, at),
            Profile::Mirror => (copy as u64, at),
            Profile::Stripe => {
                let (column, row) = rows(n);
                (column, row * self.stripe_len + within)
            }
            Profile::StripedMirror => {
                let (column, row) = rows(n / self.group as u64);
                (column * self.group as u64 + copy as u64, row * self.stripe_len + within)
            }
            Profile::Parity(parity) => {
                let (column, row) = rows(n - parity as u64);
                ((row + column) % n, row * self.stripe_len + within)
            }
        };
        let run = self.stripes.get(device as usize)?;
        Some(Stripe { device: run.device, offset: run.offset.checked_add(offset)? })
    }
}

/// All chunks of a file system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChunkMap {
    /// By rising address, without overlaps.
    chunks: Vec<Chunk>,
}

impl ChunkMap {
    /// `None` if two chunks overlap.
    pub fn new(mut chunks: Vec<Chunk>) -> Option<ChunkMap> {
        chunks.sort_by_key(|chunk| chunk.logical);
        let apart = chunks.windows(2).all(|two| two[0].logical + two[0].len <= two[1].logical);
        apart.then_some(ChunkMap { chunks })
    }

    /// The chunk that contains a byte.
    pub fn at(&self, logical: u64) -> Option<&Chunk> {
        let after = self.chunks.partition_point(|chunk| chunk.logical <= logical);
        self.chunks[..after].last().filter(|chunk| logical - chunk.logical < chunk.len)
    }

    /// The layout of most of the data, and its copies; `None` without data. A file system that is being
    /// converted has several layouts.
    pub fn profile(&self) -> Option<(Profile, usize)> {
        let mut bytes = std::collections::BTreeMap::new();
        for chunk in self.chunks.iter().filter(|chunk| chunk.data) {
            *bytes.entry((chunk.profile, chunk.group)).or_insert(0u64) += chunk.len;
        }
        bytes.into_iter().max_by_key(|&(_, len)| len).map(|(profile, _)| profile)
    }
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    const S: u64 = 64 << 10;

    /// An item as the kernel writes it.
    fn item(len: u64, kind: u32, sub_stripes: u16, stripes: &[(u64, u64)]) -> Vec<u8> {
        let mut item = Vec::new();
        for word in [len, 2, S, kind.into()] {
            item.extend(word.to_le_bytes());
        }
        for word in [4096u32, 4096, 4096] {
            item.extend(word.to_le_bytes());
        }
        item.extend((stripes.len() as u16).to_le_bytes());
        item.extend(sub_stripes.to_le_bytes());
        for (device, offset) in stripes {
            item.extend(device.to_le_bytes());
            item.extend(offset.to_le_bytes());
            item.extend([7; 16]);
        }
        item
    }

    fn chunk(kind: u32, stripes: &[(u64, u64)]) -> Chunk {
        Chunk::parse(1 << 30, &item(12 * S, DATA | kind, 2, stripes)).unwrap()
    }

    fn place(chunk: &Chunk, at: u64, copy: usize) -> (u64, u64) {
        let found = chunk.place((1 << 30) + at, copy).unwrap();
        (found.device, found.offset)
    }

    #[test]
    fn single_dup_and_mirrors_are_one_run() {
        let single = chunk(0, &[(3, 1000)]);
        assert_eq!((place(&single, 5, 0), single.copies()), ((3, 1005), 1));
        assert_eq!(single.place((1 << 30) - 1, 0), None);
        assert_eq!(single.place((1 << 30) + 12 * S, 0), None);
        assert_eq!(single.place(1 << 30, 1), None, "no second copy");
        let dup = chunk(DUP, &[(3, 1000), (3, 9000)]);
        assert_eq!((place(&dup, 7, 0), dup.copies()), ((3, 1007), 1));
        let mirror = chunk(RAID1C3, &[(1, 0), (2, 500), (4, 900)]);
        assert_eq!(mirror.copies(), 3);
        assert_eq!(
            [0, 1, 2].map(|copy| place(&mirror, 3 * S, copy)),
            [(1, 3 * S), (2, 500 + 3 * S), (4, 900 + 3 * S)]
        );
    }

    #[test]
    fn stripes_take_turns() {
        let raid0 = chunk(RAID0, &[(1, 0), (2, 0), (3, 0)]);
        let places = [0, S, 2 * S + 1, 3 * S].map(|at| place(&raid0, at, 0));
        assert_eq!(places, [(1, 0), (2, 0), (3, 1), (1, S)]);
        let raid10 = chunk(RAID10, &[(1, 0), (2, 0), (3, 0), (4, 0)]);
        assert_eq!(raid10.copies(), 2);
        let places = [(0, 0), (0, 1), (S, 0), (S, 1), (2 * S, 1)].map(|(at, copy)| place(&raid10, at, copy));
        assert_eq!(places, [(1, 0), (2, 0), (3, 0), (4, 0), (2, S)]);
    }

    #[test]
    fn parity_rotates() {
        // Rows of a raid5 over three devices: 0 1 P, P 2 3, 5 P 4 (fs/btrfs/volumes.c).
        let raid5 = chunk(RAID5, &[(1, 0), (2, 0), (3, 0)]);
        let places = [0, 1, 2, 3, 4, 5].map(|stripe| place(&raid5, stripe * S, 0));
        assert_eq!(places, [(1, 0), (2, 0), (2, S), (3, S), (3, 2 * S), (1, 2 * S)]);
        let raid6 = chunk(RAID6, &[(1, 0), (2, 0), (3, 0), (4, 0)]);
        let places = [0, 1, 2, 3].map(|stripe| place(&raid6, stripe * S, 0));
        assert_eq!(places, [(1, 0), (2, 0), (2, S), (3, S)]);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let good = item(12 * S, DATA | RAID10, 2, &[(1, 0), (2, 0), (3, 0), (4, 0)]);
        assert!(Chunk::parse(0, &good).is_some());
        for cut in 0..good.len() - 16 {
            assert_eq!(Chunk::parse(0, &good[..cut]), None, "cut at {cut}");
        }
        for (kind, sub, stripes) in [
            (DATA, 1, &[][..]),
            (DATA | RAID5, 1, &[(1, 0)]),
            (DATA | RAID6, 1, &[(1, 0), (2, 0)]),
            (DATA | RAID10, 2, &[(1, 0), (2, 0), (3, 0)]),
            (DATA | RAID10, 0, &[(1, 0), (2, 0)]),
            (DATA | RAID0 | RAID1, 1, &[(1, 0), (2, 0)]),
        ] {
            assert_eq!(Chunk::parse(0, &item(S, kind, sub, stripes)), None, "{kind:x} {sub} {stripes:?}");
        }
        assert_eq!(Chunk::parse(0, &item(0, DATA, 1, &[(1, 0)])), None);
        assert_eq!(Chunk::parse(u64::MAX, &item(S, DATA, 1, &[(1, 0)])), None);
    }

    #[test]
    fn a_map_finds_the_chunk_of_an_address() {
        let of = |logical, len, kind, stripes: &[(u64, u64)]| {
            Chunk::parse(logical, &item(len, kind, 1, stripes)).unwrap()
        };
        let (two, one) = (&[(1, 0), (2, 0)][..], &[(1, 0)][..]);
        let chunks =
            vec![of(10 * S, 5 * S, DATA | RAID0, two), of(0, 8 * S, 4 | DUP, one), of(20 * S, S, DATA, one)];
        let map = ChunkMap::new(chunks.clone()).unwrap();
        assert_eq!(map.at(0).map(Chunk::profile), Some(Profile::Dup));
        assert_eq!(map.at(8 * S), None, "between chunks");
        assert_eq!(map.at(15 * S - 1).map(Chunk::profile), Some(Profile::Stripe));
        assert_eq!(map.at(u64::MAX), None);
        assert_eq!(map.profile(), Some((Profile::Stripe, 1)), "of the data alone");
        assert_eq!(ChunkMap::default().profile(), None);
        let overlapping = [chunks, vec![of(7 * S, 2 * S, DATA, one)]].concat();
        assert_eq!(ChunkMap::new(overlapping), None);
    }

    proptest! {
        /// Every byte has one place for each copy, no two bytes share one, copies lie on different devices,
        /// and the chunk's range on each device is used without a gap (parity aside).
        #[test]
        fn places_are_one_to_one(
            kind in prop::sample::select(vec![0, DUP, RAID0, RAID1, RAID1C3, RAID10, RAID5, RAID6]),
            columns in 1u64..6,
            rows in 1u64..9,
            logical in 0u64..1 << 40,
            starts in prop::collection::vec(0u64..1 << 30, 12),
        ) {
            let (devices, stripes) = match kind {
                0 => (1, rows),
                DUP => (2, rows),
                RAID1 => (2, rows),
                RAID1C3 => (3, rows),
                RAID10 => (2 * columns, rows * columns),
                RAID5 => (columns + 1, rows * columns),
                RAID6 => (columns + 2, rows * columns),
                _ => (columns, rows * columns),
            };
            // Far enough apart that ranges on one device (dup) never overlap.
            let runs: Vec<(u64, u64)> = (0..devices)
                .map(|i| (if kind == DUP { 1 } else { i + 1 }, starts[i as usize] + (i << 31)))
                .collect();
            let chunk = Chunk::parse(logical, &item(stripes * S, DATA | kind, 2, &runs)).unwrap();
            let mut used = HashSet::new();
            for stripe in 0..stripes {
                let mut beside = HashSet::new();
                for copy in 0..chunk.copies() {
                    let first = chunk.place(logical + stripe * S, copy).unwrap();
                    let last = chunk.place(logical + stripe * S + S - 1, copy).unwrap();
                    prop_assert_eq!((last.device, last.offset), (first.device, first.offset + S - 1));
                    prop_assert!(beside.insert(first.device), "two copies on one device");
                    prop_assert!(used.insert((first.device, first.offset)), "two bytes at one place");
                    let run = runs.iter().find(|run| run.0 == first.device).unwrap();
                    prop_assert!((run.1..run.1 + rows * S).contains(&first.offset));
                }
                prop_assert_eq!(chunk.place(logical + stripe * S, chunk.copies()), None);
            }
            let full = match kind {
                0 | DUP => rows,
                RAID5 | RAID6 => rows * columns,
                _ => rows * devices,
            };
            prop_assert_eq!(used.len() as u64, full);
        }
    }
}
