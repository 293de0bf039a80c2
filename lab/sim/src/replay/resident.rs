//! The page cache of a replay: the pages in memory, with least-recently-used replacement.

use std::collections::BTreeMap;

use seekless_policy::{FileId, PAGE};

/// Bounded set of pages.
#[derive(Clone, Debug)]
pub(super) struct Resident {
    pages_max: u64,
    pages: BTreeMap<(FileId, u64), u64>,
    by_use: BTreeMap<u64, (FileId, u64)>,
    uses: u64,
}

fn pages(offset: u64, len: u64) -> std::ops::Range<u64> {
    offset / PAGE..offset.saturating_add(len).div_ceil(PAGE)
}

impl Resident {
    pub(super) fn new(bytes: u64) -> Resident {
        let pages_max = (bytes / PAGE).max(1);
        Resident { pages_max, pages: BTreeMap::new(), by_use: BTreeMap::new(), uses: 0 }
    }

    /// The first byte from `offset` on that is not in memory, if there is one before `offset + len`.
    pub(super) fn first_missing(&self, file: FileId, offset: u64, len: u64) -> Option<u64> {
        let page = pages(offset, len).find(|p| !self.pages.contains_key(&(file, *p)))?;
        Some((page * PAGE).max(offset))
    }

    /// These bytes are in memory from now on, or were used again.
    pub(super) fn touch(&mut self, file: FileId, offset: u64, len: u64) {
        for page in pages(offset, len) {
            self.uses += 1;
            if let Some(before) = self.pages.insert((file, page), self.uses) {
                self.by_use.remove(&before);
            }
            self.by_use.insert(self.uses, (file, page));
            if self.pages.len() as u64 > self.pages_max
                && let Some((_, oldest)) = self.by_use.pop_first()
            {
                self.pages.remove(&oldest);
            }
        }
    }

    pub(super) fn drop_range(&mut self, file: FileId, offset: u64, len: u64) {
        // Whole pages only, as the kernel does it.
        for page in offset.div_ceil(PAGE)..offset.saturating_add(len) / PAGE {
            if let Some(used) = self.pages.remove(&(file, page)) {
                self.by_use.remove(&used);
            }
        }
    }
}
