//! Disk addresses of file offsets, remembered.
//!
//! Asking the file system (`FIEMAP`) takes microseconds when its metadata are in memory, and a seek when they
//! are not. A file is asked once and again only when its size or time of change differ. The order of reads is
//! all that rests on it.

use std::collections::HashMap;

use seekless_kernel::extents::{ExtentMap, extents};
use seekless_kernel::prefetch::Source;
use seekless_policy::FileId;

/// Most files remembered, with where they lie: 7 MB when every one of them is in 72 pieces.
pub(crate) const FILES_MAX: usize = 4096;

/// How to tell that a file has been written since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edition {
    /// Size in bytes.
    pub size: u64,
    /// Time of the last change of content, seconds and nanoseconds.
    pub changed: (i64, u32),
}

struct Known {
    edition: Edition,
    map: ExtentMap,
    used: u64,
}

/// Maps of the files used last.
#[derive(Default)]
pub(crate) struct Addresses {
    files: HashMap<FileId, Known>,
    clock: u64,
}

impl Addresses {
    /// The file system's address of the file's byte at `offset`.
    pub(crate) fn of(&mut self, file: FileId, edition: Edition, source: &Source, offset: u64) -> Option<u64> {
        self.clock += 1;
        let clock = self.clock;
        let known = self.files.get_mut(&file).filter(|k| k.edition == edition && k.map.covers(offset));
        match known {
            Some(known) => {
                known.used = clock;
                known.map.address_of(offset)
            }
            None => {
                // Where it cannot be told, an empty map is remembered, so that it is not asked for again.
                let map = extents(source, offset).unwrap_or_else(|_| ExtentMap::new(Vec::new(), 0, u64::MAX));
                let address = map.address_of(offset);
                self.make_room();
                self.files.insert(file, Known { edition, map, used: clock });
                address
            }
        }
    }

    /// The file system has moved its files.
    pub(crate) fn forget(&mut self) {
        self.files.clear();
    }

    /// Forgets the eighth used longest ago, when full.
    fn make_room(&mut self) {
        if self.files.len() < FILES_MAX {
            return;
        }
        let mut used: Vec<u64> = self.files.values().map(|k| k.used).collect();
        let (_, &mut threshold, _) = used.select_nth_unstable(FILES_MAX / 8);
        self.files.retain(|_, k| k.used > threshold);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_remembered_are_bounded() {
        let mut addresses = Addresses::default();
        let source = Source::own(tempfile::tempfile().unwrap().into());
        let edition = Edition { size: 1, changed: (0, 0) };
        for ino in 0..(2 * FILES_MAX as u64) {
            addresses.of(FileId { dev: 1, ino }, edition, &source, 0);
            assert!(addresses.files.len() <= FILES_MAX);
        }
        let newest = FileId { dev: 1, ino: 2 * FILES_MAX as u64 - 1 };
        assert!(addresses.files.contains_key(&newest));
    }
}
