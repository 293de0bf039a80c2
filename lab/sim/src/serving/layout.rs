//! The layout of files: a file system on a disk that represents a whole drive.
//!
//! Present ext4 (several allocation goals since Linux 6.17) puts large files in one extent each, of up to 128
//! MiB, in no particular order all over the disk; `filefrag` showed this for a library of 1,537 files written
//! in order by one thread. So the model uses a seeded shuffle, divides the free space evenly between the
//! files, and leaves room for inode tables at the start of every 16 block groups (2 GiB). A disk smaller than
//! the drive is cut into chunks laid evenly over the whole stroke, by the same map as the live software disk
//! ([`seekless_model::drive::spread`]), so that a seek between two places costs as much as on the full drive.

use seekless_base::{Bytes, Lba, SECTOR_BYTES};
use seekless_model::drive::spread::{self, Spread};
use seekless_model::workload::draw::Draw;

/// Blocks between two places for inode tables (`flex_bg` of 16 groups of 128 MiB).
const FLEX: u64 = 2 << 30;
/// Inode tables, bitmaps and group descriptors of 16 groups: 8192 inodes of 256 bytes and two bitmaps each.
const FLEX_TABLES: u64 = 16 * ((8192 * 256) + 2 * 4096);
/// Longest extent of ext4: 32,768 blocks of 4 KiB.
const EXTENT: u64 = 128 << 20;
/// Bytes that stay together if a disk is spread over its drive (the live disk's default).
const CHUNK: u64 = 64 << 20;

/// Minimum size of a file with a stretch of its own.
const LARGE: u64 = 1 << 20;

/// On an aged file system, one small file of this many lies apart.
const SCATTERED: u64 = 10;

/// The places of the files of one disk.
#[derive(Clone, Debug)]
pub struct Layout {
    spread: spread::Layout,
    /// First byte of each file on the disk, without tables.
    starts: Vec<u64>,
}

/// A contiguous part of a file on the drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Offset in the file.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// Address of the first.
    pub lba: Lba,
}

/// Position on the disk of the n-th byte of file data; tables lie in between.
fn with_tables(data: u64) -> u64 {
    let room = FLEX - FLEX_TABLES;
    data / room * FLEX + FLEX_TABLES + data % room
}

impl Layout {
    /// Files of these sizes, created in this order, on a disk of `disk_bytes`, of a drive or set of these
    /// sectors and stripes.
    ///
    /// # Errors
    /// The disk is larger than the drive, or the files larger than the disk.
    pub fn new(
        sizes: impl Iterator<Item = u64>,
        disk_bytes: u64,
        drive_sectors: u64,
        stripe: Bytes,
    ) -> Result<Layout, String> {
        // Whole stripes stay together.
        let chunk = CHUNK.next_multiple_of(stripe.0.max(1));
        let spread = spread::Layout::new(disk_bytes, drive_sectors, Spread::FULL, chunk).map_err(|_| {
            let drive = drive_sectors * SECTOR_BYTES;
            format!("a disk of {disk_bytes} bytes is larger than its drive of {drive}")
        })?;
        let sizes: Vec<u64> = sizes.map(|s| s.next_multiple_of(4096)).collect();
        let total: u64 = sizes.iter().sum();
        let room = disk_bytes / FLEX * (FLEX - FLEX_TABLES) + (disk_bytes % FLEX).saturating_sub(FLEX_TABLES);
        if total > room {
            return Err(format!(
                "files of {total} bytes do not fit a disk of {disk_bytes}; give a larger --size"
            ));
        }
        let gap = (room - total) / (sizes.len() as u64 + 1) / 4096 * 4096;
        let mut order: Vec<u32> = (0..sizes.len() as u32).collect();
        Draw::new(1, "layout").shuffle(&mut order);
        let mut starts = vec![0; sizes.len()];
        let mut at = gap;
        for file in order {
            starts[file as usize] = at;
            at += sizes[file as usize] + gap;
        }
        Ok(Layout { spread, starts })
    }

    /// The same on an aged file system of small files: files that are written together share a stretch
    /// (ext4's groups of preallocated blocks), in the order of writing, except one of ten, which fills a hole
    /// somewhere behind. Large files lie between those.
    ///
    /// # Errors
    /// Those of [`Layout::new`].
    pub fn aged(
        sizes: impl Iterator<Item = u64>,
        disk_bytes: u64,
        drive_sectors: u64,
        stripe: Bytes,
    ) -> Result<Layout, String> {
        let sizes: Vec<u64> = sizes.map(|s| s.next_multiple_of(4096)).collect();
        let mut draw = Draw::new(1, "aged layout");
        let together = |size: u64, draw: &mut Draw| size < LARGE && draw.below(SCATTERED) > 0;
        let apart: Vec<bool> = sizes.iter().map(|&size| !together(size, &mut draw)).collect();
        let behind = Layout::new(
            sizes.iter().zip(&apart).filter(|(_, apart)| **apart).map(|(&size, _)| size),
            disk_bytes,
            drive_sectors,
            stripe,
        );
        let packed: u64 = sizes.iter().zip(&apart).filter(|(_, apart)| !**apart).map(|(size, _)| size).sum();
        let Layout { spread, starts } = behind?;
        let total: u64 = sizes.iter().sum();
        let room = disk_bytes / FLEX * (FLEX - FLEX_TABLES) + (disk_bytes % FLEX).saturating_sub(FLEX_TABLES);
        if total > room {
            return Err(format!(
                "files of {total} bytes do not fit a disk of {disk_bytes}; give a larger --size"
            ));
        }
        // The stretch comes first; files that lie apart move behind it, and its gaps shrink accordingly.
        let mut order: Vec<usize> = (0..starts.len()).collect();
        order.sort_unstable_by_key(|&i| starts[i]);
        let own: Vec<u64> =
            sizes.iter().zip(&apart).filter(|(_, apart)| **apart).map(|(&size, _)| size).collect();
        let gap = (room - total) / (own.len() as u64 + 1) / 4096 * 4096;
        let mut moved = vec![0; own.len()];
        let mut at = packed + gap;
        for i in order {
            moved[i] = at;
            at += own[i] + gap;
        }
        let (mut next, mut moved) = (0, moved.into_iter());
        let starts = sizes.iter().zip(apart).map(|(&size, apart)| match apart {
            true => moved.next().unwrap_or_default(),
            false => {
                next += size;
                next - size
            }
        });
        Ok(Layout { spread, starts: starts.collect() })
    }

    /// Files one behind the other in this order of writing.
    ///
    /// # Errors
    /// Those of [`Layout::new`].
    pub fn written(
        sizes: impl Iterator<Item = u64>,
        order: &[u32],
        disk_bytes: u64,
        drive_sectors: u64,
        stripe: Bytes,
    ) -> Result<Layout, String> {
        let sizes: Vec<u64> = sizes.map(|s| s.next_multiple_of(4096)).collect();
        let Layout { spread, mut starts } =
            Layout::new(sizes.iter().copied(), disk_bytes, drive_sectors, stripe)?;
        let mut at = 0;
        for &file in order {
            starts[file as usize] = at;
            at += sizes[file as usize];
        }
        Ok(Layout { spread, starts })
    }

    /// The bytes `[from, to)` of a file as contiguous parts.
    pub fn runs(&self, file: usize, from: u64, to: u64) -> impl Iterator<Item = Run> + use<> {
        let (start, spread) = (self.starts[file], self.spread);
        let mut at = from;
        std::iter::from_fn(move || {
            if at >= to {
                return None;
            }
            let data = start + at;
            let room = FLEX - FLEX_TABLES;
            let (lba, together) = spread.locate(with_tables(data));
            let in_group = room - data % room;
            let in_extent = EXTENT - at % EXTENT;
            let run = Run { offset: at, len: (to - at).min(together).min(in_group).min(in_extent), lba };
            at += run.len;
            Some(run)
        })
    }

    /// Address of one byte of a file.
    pub fn lba(&self, file: usize, offset: u64) -> Lba {
        self.spread.locate(with_tables(self.starts[file] + offset)).0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_small_disk_reaches_both_ends() {
        let drive = 1_953_525_168;
        let spread = spread::Layout::new(10 << 30, drive, Spread::FULL, CHUNK).unwrap();
        assert_eq!(spread.locate(0).0, Lba(0));
        let last = spread.locate((10 << 30) - 512).0.0;
        assert!(last < drive && last > drive - 3 * CHUNK / 512, "{last}");
        assert!(
            Layout::new([1].into_iter(), 2 << 40, drive, Bytes(CHUNK))
                .unwrap_err()
                .contains("larger than its drive")
        );
        assert!(
            Layout::new([11 << 30].into_iter(), 10 << 30, drive, Bytes(CHUNK))
                .unwrap_err()
                .contains("--size")
        );
    }

    #[test]
    fn an_aged_tree_lies_in_the_order_of_writing_but_for_a_tenth() {
        let sizes = || (0..2_000u64).map(|i| if i % 500 == 7 { 16 << 20 } else { 5_000 + i });
        let layout = Layout::aged(sizes(), 2 << 30, 1_953_525_168, Bytes(CHUNK)).unwrap();
        let mut places: Vec<(u64, u64)> =
            sizes().enumerate().map(|(i, size)| (layout.starts[i], size.next_multiple_of(4096))).collect();
        let follow = places.windows(2).filter(|w| w[0].0 + w[0].1 == w[1].0).count();
        assert!((1_550..1_720).contains(&follow), "{follow}: both of two neighbours, nine tenths each");
        places.sort_unstable();
        assert!(places.windows(2).all(|w| w[0].0 + w[0].1 <= w[1].0), "no two share a place");
        assert!(places.last().unwrap().0 > 1 << 30, "some lie far behind");
    }

    #[test]
    fn written_files_lie_one_behind_the_other() {
        let sizes = || [5_000, 300, 4_096, 9_000].into_iter();
        let written = Layout::written(sizes(), &[1, 0, 3, 2], 1 << 30, 1_953_525_168, Bytes(CHUNK));
        assert_eq!(written.unwrap().starts, [4_096, 0, 24_576, 12_288]);
    }

    proptest! {
        #[test]
        fn runs_cover_a_range_and_no_two_files_share_a_place(
            sizes in proptest::collection::vec(1u64..400_000_000, 1..12), from in 0u64..1000, part in 1u64..1000,
        ) {
            let layout = Layout::new(sizes.iter().copied(), 8 << 30, 1_953_525_168, Bytes(CHUNK)).unwrap();
            let mut taken: Vec<(u64, u64)> = Vec::new();
            for (file, size) in sizes.iter().enumerate() {
                let (a, b) = (size * from / 2000 / 4096 * 4096, size.next_multiple_of(4096));
                let mut at = a;
                for run in layout.runs(file, a, b) {
                    prop_assert_eq!(run.offset, at);
                    prop_assert_eq!(layout.lba(file, at), run.lba);
                    prop_assert!(run.len > 0 && run.len <= EXTENT);
                    taken.push((run.lba.0, run.lba.0 + run.len / 512));
                    at += run.len;
                }
                prop_assert_eq!(at, b.max(a));
                let _ = part;
            }
            taken.sort_unstable();
            prop_assert!(taken.windows(2).all(|w| w[0].1 <= w[1].0));
        }
    }
}
