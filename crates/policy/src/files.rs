//! Which files the driver keeps open, and until when.
//!
//! Only a file that is open can be read ahead of need. An open file keeps its file system from being unmounted and its
//! blocks from being freed, so it is closed a little after the last stream that reads it would have ended.

use alloc::collections::{BTreeMap, BTreeSet};

use seekless_units::Nanos;

use crate::FileId;

/// After how many reads of a file its header is looked at: at once, and again when more of it is in memory.
const HEADER_AT: [u32; 4] = [1, 4, 32, 256];

#[derive(Clone, Copy, Debug)]
struct Open {
    /// When it is to be closed.
    until: Nanos,
    /// Reads of it, as far as they decide when its header is looked at.
    reads: u32,
}

/// The open files of one disk.
#[derive(Debug)]
pub(crate) struct Files {
    open: BTreeMap<FileId, Open>,
    by_time: BTreeSet<(Nanos, FileId)>,
    /// Whose time was up while something was under way of them.
    overdue: BTreeSet<FileId>,
    /// How long a file stays open after its last use.
    keep: Nanos,
    max: usize,
}

impl Files {
    pub(crate) fn new(keep: Nanos, max: usize) -> Files {
        Files {
            open: BTreeMap::new(),
            by_time: BTreeSet::new(),
            overdue: BTreeSet::new(),
            keep,
            max: max.max(1),
        }
    }

    /// The driver can read this file from now on. Returns the file that is to be closed for it, the one unused longest.
    pub(crate) fn opened(
        &mut self,
        now: Nanos,
        file: FileId,
        in_use: impl Fn(FileId) -> bool,
    ) -> Option<FileId> {
        if self.used(now, file) {
            return None;
        }
        let mut oldest = self.by_time.iter().map(|&(_, file)| file);
        let full = self.open.len() >= self.max;
        let close = full.then(|| oldest.find(|&file| !in_use(file))).flatten();
        close.inspect(|&file| self.remove(file));
        let until = now + self.keep;
        self.open.insert(file, Open { until, reads: 0 });
        self.by_time.insert((until, file));
        close
    }

    /// A file was used. `false` for one that is not open.
    pub(crate) fn used(&mut self, now: Nanos, file: FileId) -> bool {
        let Some(open) = self.open.get_mut(&file) else { return false };
        self.by_time.remove(&(open.until, file));
        self.overdue.remove(&file);
        open.until = now + self.keep;
        self.by_time.insert((open.until, file));
        true
    }

    /// Whether the driver can read a file.
    pub(crate) fn is_open(&self, file: FileId) -> bool {
        self.open.contains_key(&file)
    }

    /// What was under way of a file is over, or some of it.
    pub(crate) fn released(&mut self, file: FileId) {
        if self.overdue.remove(&file)
            && let Some(open) = self.open.get(&file)
        {
            self.by_time.insert((open.until, file));
        }
    }

    /// Counts a read of an open file. Whether its header is worth a look now.
    pub(crate) fn read(&mut self, file: FileId) -> bool {
        let Some(open) = self.open.get_mut(&file) else { return false };
        open.reads = open.reads.saturating_add(1);
        HEADER_AT.contains(&open.reads)
    }

    /// The next file whose time is up and that nothing is under way of: it is to be closed.
    pub(crate) fn expire(&mut self, now: Nanos, in_use: impl Fn(FileId) -> bool) -> Option<FileId> {
        while let Some(&(until, file)) = self.by_time.first()
            && until <= now
        {
            if !in_use(file) {
                self.remove(file);
                return Some(file);
            }
            self.by_time.remove(&(until, file));
            self.overdue.insert(file);
        }
        None
    }

    /// When [`Files::expire`] has something to do.
    pub(crate) fn next_expiry(&self) -> Option<Nanos> {
        Some(self.by_time.first()?.0)
    }

    fn remove(&mut self, file: FileId) {
        if let Some(open) = self.open.remove(&file) {
            self.by_time.remove(&(open.until, file));
            self.overdue.remove(&file);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(ino: u64) -> FileId {
        FileId { dev: 1, ino }
    }

    const KEEP: Nanos = Nanos::from_secs(35);

    #[test]
    fn a_file_is_closed_a_while_after_its_last_use() {
        let mut files = Files::new(KEEP, 100);
        let idle = |_: FileId| false;
        files.opened(Nanos::ZERO, file(1), idle);
        assert!(files.used(Nanos::from_secs(20), file(1)));
        assert_eq!(files.expire(Nanos::from_secs(54), idle), None);
        assert_eq!(files.expire(Nanos::from_secs(55), |_| true), None, "a read of it is under way");
        assert_eq!(files.next_expiry(), None, "it is looked at when the read is over, not before");
        files.released(file(1));
        assert_eq!(files.expire(Nanos::from_secs(56), idle), Some(file(1)));
        assert!(!files.used(Nanos::from_secs(57), file(1)) && !files.is_open(file(1)));
    }

    #[test]
    fn a_file_used_again_while_it_is_overdue_stays_open() {
        let mut files = Files::new(KEEP, 100);
        files.opened(Nanos::ZERO, file(1), |_| false);
        assert_eq!(files.expire(Nanos::from_secs(40), |_| true), None);
        files.used(Nanos::from_secs(41), file(1));
        files.released(file(1));
        assert_eq!(files.next_expiry(), Some(Nanos::from_secs(76)));
        assert_eq!(files.expire(Nanos::from_secs(75), |_| false), None);
    }

    #[test]
    fn a_full_table_closes_the_file_unused_longest() {
        let mut files = Files::new(KEEP, 2);
        let one_in_use = |f: FileId| f == file(1);
        for ino in 1..=2 {
            assert_eq!(files.opened(Nanos(ino), file(ino), one_in_use), None);
        }
        assert_eq!(files.opened(Nanos(3), file(3), one_in_use), Some(file(2)));
    }

    #[test]
    fn a_header_is_looked_at_early_and_seldom() {
        let mut files = Files::new(KEEP, 2);
        files.opened(Nanos::ZERO, file(1), |_| false);
        assert_eq!((0..300).filter(|_| files.read(file(1))).count(), 4);
        assert!(!files.read(file(2)));
    }
}
