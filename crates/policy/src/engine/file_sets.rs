//! File sets: what their readers wait for, and what is in memory for them and not taken.
//!
//! A reader of a file set takes ranges of files in any order, so its ranges are no stream: nothing follows
//! from where one of them lies. They are read as asked. What was read stays in the one map of bytes
//! ([`crate::extents`]), counts against the budget and is pinned like what was read ahead of a stream,
//! until the reader says that it has taken it ([`crate::Event::Took`]).
//!
//! Which ranges are asked for, and how many, is decided in the crate `filesets`.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::{DiskEngine, RANGES_MAX};
use crate::{FileId, RequestId};

/// What file sets have asked for and not taken.
#[derive(Debug, Default)]
pub(super) struct Awaited {
    /// File, start and end in whole pages.
    ranges: BTreeMap<RequestId, (FileId, u64, u64)>,
    files: BTreeMap<FileId, Vec<RequestId>>,
    bytes: u64,
}

impl Awaited {
    /// Bytes of all of them.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Start and end of each of a file.
    pub(super) fn of_file(&self, file: FileId) -> impl Iterator<Item = (u64, u64)> {
        let requests = self.files.get(&file).into_iter().flatten();
        requests.filter_map(|id| self.ranges.get(id).map(|&(_, start, end)| (start, end)))
    }

    /// Ranges beyond the bound are read and not pinned.
    fn add(&mut self, id: RequestId, range: (FileId, u64, u64)) {
        if self.ranges.len() < RANGES_MAX {
            self.ranges.insert(id, range);
            self.files.entry(range.0).or_default().push(id);
            self.bytes += range.2 - range.1;
        }
    }

    fn remove(&mut self, id: RequestId) -> Option<(FileId, u64, u64)> {
        let range = self.ranges.remove(&id)?;
        self.bytes -= range.2 - range.1;
        if let Some(of_file) = self.files.get_mut(&range.0) {
            of_file.retain(|&other| other != id);
            if of_file.is_empty() {
                self.files.remove(&range.0);
            }
        }
        Some(range)
    }

    /// One of a file, if there is any.
    fn any_of(&self, file: FileId) -> Option<RequestId> {
        self.files.get(&file)?.first().copied()
    }
}

impl DiskEngine {
    /// A request of a file set was admitted. Without streams nothing is pinned and nothing counts as read
    /// ahead.
    pub(super) fn awaits(&mut self, id: RequestId, range: (FileId, u64, u64)) {
        self.stats.file_sets.requests += 1;
        if self.config.follows() {
            // Where a name is used again, what it stood for was never said to be taken.
            self.took(id, false);
            self.awaited.add(id, range);
        }
    }

    /// The file is closed: nothing of it is waited for any more.
    pub(super) fn forget_awaited(&mut self, file: FileId) {
        while let Some(id) = self.awaited.any_of(file) {
            self.leave_awaited(id);
        }
    }

    /// What a request brought in will not be read. Its file, start and end.
    fn leave_awaited(&mut self, id: RequestId) -> Option<(FileId, u64, u64)> {
        let (file, start, end) = self.awaited.remove(id)?;
        self.stats.file_sets.bytes_left = self.stats.file_sets.bytes_left.saturating_add(end - start);
        let counting = self.counted_on(file);
        self.extents.abandon_uncounted(file, start, end, &counting);
        Some((file, start, end))
    }

    /// The reader of a file set has taken what a request brought in, or never will.
    pub(super) fn took(&mut self, id: RequestId, read: bool) {
        let range = if read { self.awaited.remove(id) } else { self.leave_awaited(id) };
        let Some((file, start, end)) = range else { return };
        if read {
            self.stats.file_sets.bytes_taken = self.stats.file_sets.bytes_taken.saturating_add(end - start);
            self.extents.used(file, start, end);
        }
        for (from, upto) in self.extents.pinned(file, start, end) {
            if !self.is_expected(file, from, upto) {
                // A file set comes to each byte once: memory is best found there.
                self.unpin(file, from, upto, true);
            }
        }
        // A file set has many files, and comes to each once.
        if self.awaited.of_file(file).next().is_none() && self.following.table.of_file(file).next().is_none()
        {
            self.files.over(self.now, file);
        }
    }
}
