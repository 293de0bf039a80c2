//! File sets: the ranges that their readers wait for, and those in memory that they have not taken yet.
//!
//! A reader of a file set takes ranges of files in any order, so its ranges do not form a stream: the place
//! of one says nothing about the next. They are read as asked. The bytes that were read stay in the one map
//! of bytes ([`crate::extents`]) and count against the budget, until the reader reports that it has taken
//! them ([`crate::Event::Took`]).
//!
//! The crate `filesets` decides which ranges are asked for, and how many.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::{DiskEngine, RANGES_MAX};
use crate::{FileId, RequestId};

/// The ranges that file sets have requested and not taken.
#[derive(Debug, Default)]
pub(super) struct Awaited {
    /// File, start and end in whole pages.
    ranges: BTreeMap<RequestId, (FileId, u64, u64)>,
    files: BTreeMap<FileId, Vec<RequestId>>,
    /// Total bytes.
    pub(super) bytes: u64,
}

impl Awaited {
    /// Start and end of each range of a file.
    pub(super) fn of_file(&self, file: FileId) -> impl Iterator<Item = (u64, u64)> {
        let requests = self.files.get(&file).into_iter().flatten();
        requests.filter_map(|id| self.ranges.get(id).map(|&(_, start, end)| (start, end)))
    }

    /// Adds a range. Beyond the bound, ranges are read but do not count.
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

    /// A request of this file, if there is one.
    fn any_of(&self, file: FileId) -> Option<RequestId> {
        self.files.get(&file)?.first().copied()
    }
}

impl DiskEngine {
    /// A request of a file set was admitted. If streams are not followed, nothing counts as read ahead.
    pub(super) fn awaits(&mut self, id: RequestId, range: (FileId, u64, u64)) {
        self.stats.file_sets.requests += 1;
        if self.config.follows() {
            // If an id is used again, its earlier range was never reported as taken.
            self.took(id, false);
            self.awaited.add(id, range);
        }
    }

    /// The file is closed: forget its ranges.
    pub(super) fn forget_awaited(&mut self, file: FileId) {
        while let Some(id) = self.awaited.any_of(file) {
            self.leave_awaited(id);
        }
    }

    /// The bytes of a request will not be read. Returns their file, start and end.
    fn leave_awaited(&mut self, id: RequestId) -> Option<(FileId, u64, u64)> {
        let (file, start, end) = self.awaited.remove(id)?;
        self.stats.file_sets.bytes_left = self.stats.file_sets.bytes_left.saturating_add(end - start);
        let counting = self.counted_on(file);
        self.extents.abandon_uncounted(file, start, end, &counting);
        Some((file, start, end))
    }

    /// The reader of a file set has taken the bytes of a request (`read`), or never will.
    pub(super) fn took(&mut self, id: RequestId, read: bool) {
        let range = if read { self.awaited.remove(id) } else { self.leave_awaited(id) };
        let Some((file, start, end)) = range else { return };
        if read {
            self.stats.file_sets.bytes_taken = self.stats.file_sets.bytes_taken.saturating_add(end - start);
            self.extents.used(file, start, end);
        }
        // A file set has many files, and reads each once.
        if self.awaited.of_file(file).next().is_none() && self.following.table.of_file(file).next().is_none()
        {
            self.files.over(self.now, file);
        }
    }
}
