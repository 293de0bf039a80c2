//! What the disk holds: runs of recognised content, and a sparse unnamed file for everything else.
//!
//! Videos of a populated library never touch real storage: a page that is exactly generated content is kept
//! in the [`ExtentMap`] and made again when read. Metadata of the file system and foreign data go to a
//! backing file without a name (`O_TMPFILE`), which the system frees however the process ends. Pages of zeros
//! become holes in it, so that mkfs may zero gigabytes at no cost. Never written pages read as zeros.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::RwLock;

use rustix::fs::{FallocateFlags, Mode, OFlags};
use seekless_model::workload::content::{Content, PAGE_BYTES, recognise_page};

use crate::extents::ExtentMap;

const PAGE: u64 = PAGE_BYTES as u64;

/// The bytes of one disk.
#[derive(Debug)]
pub struct Store {
    map: RwLock<ExtentMap>,
    backing: File,
    size: u64,
}

/// What a whole page turned out to be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PageKind {
    Content { seed: u64, index: u64 },
    Zeros,
    Other,
}

impl PageKind {
    fn of(page: &[u8; PAGE_BYTES]) -> PageKind {
        if let Some((seed, index)) = recognise_page(page) {
            return PageKind::Content { seed, index };
        }
        if page.as_chunks::<8>().0.iter().all(|w| *w == [0; 8]) { PageKind::Zeros } else { PageKind::Other }
    }

    /// Whether a page of kind `next`, `pages` after one of this kind, belongs to the same stretch.
    fn continues(self, pages: u64, next: PageKind) -> bool {
        match (self, next) {
            (PageKind::Content { seed, index }, PageKind::Content { seed: s, index: i }) => {
                s == seed && i == index.wrapping_add(pages)
            }
            (a, b) => a == b,
        }
    }
}

impl Store {
    /// An empty disk of `size` bytes whose foreign data goes to an unnamed file in directory `dir`.
    ///
    /// # Errors
    /// The directory's file system has no unnamed or no sparse files, or no room.
    pub fn new(size: u64, dir: &Path) -> io::Result<Store> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let backing = File::from(rustix::fs::open(dir, flags, Mode::RUSR | Mode::WUSR)?);
        backing.set_len(size.next_multiple_of(PAGE))?;
        Ok(Store { map: RwLock::new(ExtentMap::default()), backing, size })
    }

    /// Bytes the disk holds.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Runs of content in the map and bytes of storage taken by the backing file.
    pub fn usage(&self) -> (usize, u64) {
        use std::os::unix::fs::MetadataExt;
        (self.map().len(), self.backing.metadata().map_or(0, |m| m.blocks() * 512))
    }

    // A panic inside a lock ends the whole process (see `worker`), so a poisoned lock is never seen again.
    fn map(&self) -> std::sync::RwLockReadGuard<'_, ExtentMap> {
        self.map.read().unwrap_or_else(|e| e.into_inner())
    }

    fn map_mut(&self) -> std::sync::RwLockWriteGuard<'_, ExtentMap> {
        self.map.write().unwrap_or_else(|e| e.into_inner())
    }

    /// Fills `buf` with the bytes from `offset` on. Beyond the end of the disk there are zeros.
    ///
    /// # Errors
    /// Reading the backing file failed.
    pub fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let end = offset + buf.len() as u64;
        let inside = end.min(self.size.next_multiple_of(PAGE)).saturating_sub(offset) as usize;
        let (buf, beyond) = buf.split_at_mut(inside.min(buf.len()));
        beyond.fill(0);
        if buf.is_empty() {
            return Ok(());
        }
        let end = offset + buf.len() as u64;
        let segments = self.map().segments(offset / PAGE..end.div_ceil(PAGE));
        for segment in segments {
            let from = (segment.first * PAGE).max(offset);
            let to = ((segment.first + segment.pages) * PAGE).min(end);
            let part = &mut buf[(from - offset) as usize..(to - offset) as usize];
            match segment.content {
                Some((seed, index)) => {
                    let within = from - segment.first * PAGE;
                    Content::from_seed(seed).fill(index.wrapping_mul(PAGE).wrapping_add(within), part);
                }
                None => self.backing.read_exact_at(part, from)?,
            }
        }
        Ok(())
    }

    /// Puts `data` at `offset`. One writer at a time: the callers' one FUSE thread.
    ///
    /// # Errors
    /// `InvalidInput` beyond the end of the disk; or the backing file could not take it (no room).
    pub fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if offset + data.len() as u64 > self.size {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        let head = ((PAGE - offset % PAGE) % PAGE).min(data.len() as u64) as usize;
        let (head, rest) = data.split_at(head);
        self.write_within_page(offset, head)?;
        let at = offset + head.len() as u64;
        let (pages, tail) = rest.as_chunks::<PAGE_BYTES>();
        self.write_pages(at / PAGE, pages)?;
        self.write_within_page(at + (pages.len() * PAGE_BYTES) as u64, tail)
    }

    /// Zeros from `offset` on, for `len` bytes.
    ///
    /// # Errors
    /// As [`Store::write`].
    pub fn zero(&self, offset: u64, len: u64) -> io::Result<()> {
        let end = offset.saturating_add(len);
        if end > self.size {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        let (first, last) = (offset.div_ceil(PAGE), end / PAGE);
        if first >= last {
            // Inside two pages at most.
            return self.write(offset, &vec![0; len as usize]);
        }
        self.write_within_page(offset, &vec![0; (first * PAGE - offset) as usize])?;
        self.zero_pages(first, last - first)?;
        self.write_within_page(last * PAGE, &vec![0; (end - last * PAGE) as usize])
    }

    fn zero_pages(&self, first: u64, count: u64) -> io::Result<()> {
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        if rustix::fs::fallocate(&self.backing, hole, first * PAGE, count * PAGE).is_err() {
            // A file system without holes gets the zeros themselves.
            let zeros = vec![0; 1 << 20];
            let (mut at, end) = (first * PAGE, (first + count) * PAGE);
            while at < end {
                let part = (end - at).min(zeros.len() as u64);
                self.backing.write_all_at(&zeros[..part as usize], at)?;
                at += part;
            }
        }
        self.map_mut().remove(first..first + count);
        Ok(())
    }

    /// Less than a page: content under it has to become bytes first.
    fn write_within_page(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if data.is_empty() {
            return Ok(());
        }
        let page = offset / PAGE;
        let held = self.map().get(page);
        if let Some((seed, index)) = held {
            let mut whole = [0; PAGE_BYTES];
            Content::from_seed(seed).fill(index.wrapping_mul(PAGE), &mut whole);
            whole[(offset % PAGE) as usize..][..data.len()].copy_from_slice(data);
            self.backing.write_all_at(&whole, page * PAGE)?;
            self.map_mut().remove(page..page + 1);
            return Ok(());
        }
        self.backing.write_all_at(data, offset)
    }

    fn write_pages(&self, mut first: u64, mut pages: &[[u8; PAGE_BYTES]]) -> io::Result<()> {
        while let Some(page) = pages.first() {
            let kind = PageKind::of(page);
            let same = 1 + pages[1..]
                .iter()
                .zip(1..)
                .take_while(|(p, k)| kind.continues(*k, PageKind::of(p)))
                .count();
            let (stretch, rest) = pages.split_at(same);
            let count = same as u64;
            match kind {
                PageKind::Content { seed, index } => self.map_mut().insert(first, count, seed, index),
                PageKind::Zeros => self.zero_pages(first, count)?,
                // Bytes first, then the map: a reader in between sees the old page, never a stale one.
                PageKind::Other => {
                    self.backing.write_all_at(stretch.as_flattened(), first * PAGE)?;
                    self.map_mut().remove(first..first + count);
                }
            }
            first += count;
            pages = rest;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn store(size: u64) -> Store {
        Store::new(size, &std::env::temp_dir()).unwrap()
    }

    #[test]
    fn a_library_takes_no_storage() {
        let store = store(64 << 20);
        let mut data = vec![0; 32 << 20];
        Content::of_path("v/1.mp4").fill(0, &mut data);
        store.write(8 << 20, &data).unwrap();
        assert_eq!(store.usage(), (1, 0));
        let mut back = vec![0; 1 << 20];
        store.read((9 << 20) + 100, &mut back).unwrap();
        assert_eq!(Content::of_path("v/1.mp4").check((1 << 20) + 100, &back), Ok(()));
        // Zeros over it cost nothing either, and the content is gone.
        store.write(8 << 20, &vec![0; 32 << 20]).unwrap();
        assert_eq!(store.usage(), (0, 0));
        store.read(9 << 20, &mut back).unwrap();
        assert!(back.iter().all(|b| *b == 0));
    }

    #[test]
    fn writes_past_the_end_fail_and_reads_give_zeros() {
        let store = store(10_000);
        assert!(store.write(9_999, &[1, 2]).is_err());
        store.write(9_999, &[1]).unwrap();
        let mut back = [9; 4];
        store.read(9_998, &mut back).unwrap();
        assert_eq!(back, [0, 1, 0, 0]);
        store.read(1 << 40, &mut back).unwrap();
        assert_eq!(back, [0; 4]);
    }

    /// What a test writes: offset and length in units of 512 bytes, and what.
    #[derive(Clone, Debug)]
    enum What {
        Content(u64),
        Zeros,
        ZeroRange,
        Noise(u8),
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn reads_what_was_written(
            writes in prop::collection::vec(
                (0usize..200, 1usize..60, prop_oneof![
                    (0u64..3).prop_map(What::Content), Just(What::Zeros),
                    Just(What::ZeroRange), (1u8..).prop_map(What::Noise)]),
                1..30),
            at in 0usize..100_000, len in 0usize..30_000,
        ) {
            let size = 256 * 512;
            let store = store(size as u64);
            let mut naive = vec![0u8; size];
            for (sector, sectors, what) in writes {
                let (from, to) = (sector * 512, ((sector + sectors) * 512).min(size));
                let mut data = vec![0; to - from];
                match what {
                    What::Content(seed) => Content::from_seed(seed).fill(from as u64, &mut data),
                    What::Zeros => {}
                    What::ZeroRange => {
                        store.zero(from as u64, (to - from) as u64).unwrap();
                        naive[from..to].fill(0);
                        continue;
                    }
                    What::Noise(b) => data.fill(b),
                }
                store.write(from as u64, &data).unwrap();
                naive[from..to].copy_from_slice(&data);
            }
            let mut back = vec![0; size];
            store.read(0, &mut back).unwrap();
            prop_assert!(back == naive);
            let to = (at + len).min(size);
            let mut part = vec![0; to - at];
            store.read(at as u64, &mut part).unwrap();
            prop_assert!(part == naive[at..to]);
        }
    }
}
