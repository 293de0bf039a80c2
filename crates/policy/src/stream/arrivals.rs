//! Predicts when the next reader begins at the head of a file, from the arrivals before.

use alloc::collections::BTreeMap;

use seekless_base::Nanos;

use crate::FileId;
use crate::by_time::ByTime;

/// Arrivals of readers at the heads of files.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    last: ByTime<FileId>,
    /// Moving average of the time between two arrivals, for files with at least two.
    between: BTreeMap<FileId, Nanos>,
}

impl Arrivals {
    /// A reader begins at the head of a file. At most `files_max` files are remembered; the one with the
    /// oldest arrival makes room.
    pub(crate) fn arrived(&mut self, now: Nanos, file: FileId, files_max: usize) {
        if let Some(last) = self.last.time(file) {
            let since = now.since(last);
            let between = self.between.entry(file).or_insert(since);
            between.0 = between.0 / 2 + since.0 / 2;
        }
        self.last.set(file, now);
        if let Some((_, oldest)) = self.last.first().filter(|_| self.last.len() > files_max) {
            self.last.remove(oldest);
            self.between.remove(&oldest);
        }
    }

    /// Expected time until the next arrival: the mean time between arrivals, but at least the time since the
    /// last. `None` after fewer than two arrivals.
    pub(crate) fn next(&self, now: Nanos, file: FileId) -> Option<Nanos> {
        let between = *self.between.get(&file)?;
        Some(between.max(now.since(self.last.time(file)?)))
    }
}
