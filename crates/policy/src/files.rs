//! The files that the driver keeps open, and until when.
//!
//! Only an open file can be read ahead. An open file keeps its file system from being unmounted and its
//! blocks from being freed, so it is closed a little after the last stream that reads it would have ended.

use alloc::collections::BTreeMap;

use seekless_base::Nanos;

use crate::FileId;
use crate::by_time::ByTime;

#[derive(Clone, Copy, Debug, Default)]
struct Open {
    /// Bytes a second at which it is played, if given.
    bitrate: Option<u64>,
    /// Whether its last reader announced random reads.
    random: bool,
    /// Whether the driver is to close it ([`crate::Event::Leave`]).
    leaving: bool,
}

/// The open files of one disk.
#[derive(Debug)]
pub(crate) struct Files {
    open: BTreeMap<FileId, Open>,
    /// When to close a file; none if that time passed during a read of the file.
    expiry: ByTime<FileId>,
    /// How long a file stays open after its last use.
    keep: Nanos,
    max: usize,
}

impl Files {
    pub(crate) fn new(keep: Nanos, max: usize) -> Files {
        Files { open: BTreeMap::new(), expiry: ByTime::default(), keep, max: max.max(1) }
    }

    /// The driver can read this file from now on. If too many are open, returns the file unused longest,
    /// which must be closed.
    pub(crate) fn opened(
        &mut self,
        now: Nanos,
        file: FileId,
        in_use: impl Fn(FileId) -> bool,
    ) -> Option<FileId> {
        if let Some(open) = self.open.get_mut(&file) {
            open.leaving = false;
            self.used(now, file);
            return None;
        }
        let full = self.open.len() >= self.max;
        let close = if full { self.expiry.iter().find(|&file| !in_use(file)) } else { None };
        close.inspect(|&file| self.remove(file));
        self.open.insert(file, Open::default());
        self.keep_until(file, now + self.keep);
        close
    }

    /// A file was used. Returns `false` if it is not open.
    pub(crate) fn used(&mut self, now: Nanos, file: FileId) -> bool {
        match self.open.get(&file) {
            Some(open) if open.leaving => true,
            Some(_) => self.keep_until(file, now + self.keep),
            None => false,
        }
    }

    /// Sets the time to close a file. Returns `false` if it is not open.
    fn keep_until(&mut self, file: FileId, time: Nanos) -> bool {
        let open = self.is_open(file);
        if open {
            self.expiry.set(file, time);
        }
        open
    }

    /// No reader is expected soon: the file is closed at once.
    pub(crate) fn over(&mut self, now: Nanos, file: FileId) {
        self.keep_until(file, now);
    }

    /// The driver is to close the file at once, whatever reads it, unless it is opened again.
    pub(crate) fn leave(&mut self, now: Nanos, file: FileId) {
        self.over(now, file);
        if let Some(open) = self.open.get_mut(&file) {
            open.leaving = true;
        }
    }

    /// Whether a file is open and need not be closed.
    pub(crate) fn stays(&self, file: FileId) -> bool {
        self.open.get(&file).is_some_and(|open| !open.leaving)
    }

    pub(crate) fn is_open(&self, file: FileId) -> bool {
        self.open.contains_key(&file)
    }

    /// A read of a file has ended or was withdrawn.
    pub(crate) fn released(&mut self, now: Nanos, file: FileId) {
        if self.expiry.time(file).is_none() {
            self.keep_until(file, now);
        }
    }

    /// Remembers the bitrate of an open file; 0 is ignored.
    pub(crate) fn told_bitrate(&mut self, file: FileId, bytes_per_s: u64) {
        if let Some(open) = self.open.get_mut(&file).filter(|_| bytes_per_s > 0) {
            open.bitrate = Some(bytes_per_s);
        }
    }

    /// The given bitrate of a file, bytes a second.
    pub(crate) fn bitrate(&self, file: FileId) -> Option<u64> {
        self.open.get(&file)?.bitrate
    }

    /// Remembers whether the reader of an open file announced random reads.
    pub(crate) fn told_random(&mut self, file: FileId, random: bool) {
        if let Some(open) = self.open.get_mut(&file) {
            open.random = random;
        }
    }

    /// Whether the last reader of an open file announced random reads.
    pub(crate) fn is_random(&self, file: FileId) -> bool {
        self.open.get(&file).is_some_and(|open| open.random)
    }

    /// The next file whose time is up and that is not in use; it must be closed.
    pub(crate) fn expire(&mut self, now: Nanos, in_use: impl Fn(FileId) -> bool) -> Option<FileId> {
        while let Some(file) = self.expiry.pop_due(now) {
            if !in_use(file) {
                self.open.remove(&file);
                return Some(file);
            }
        }
        None
    }

    /// When [`Files::expire`] must be called next.
    pub(crate) fn next_expiry(&self) -> Option<Nanos> {
        Some(self.expiry.first()?.0)
    }

    fn remove(&mut self, file: FileId) {
        self.open.remove(&file);
        self.expiry.remove(file);
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
        files.released(Nanos::from_secs(56), file(1));
        assert_eq!(files.expire(Nanos::from_secs(56), idle), Some(file(1)));
        assert!(!files.used(Nanos::from_secs(57), file(1)) && !files.is_open(file(1)));
    }

    #[test]
    fn a_file_used_again_while_it_is_overdue_stays_open() {
        let mut files = Files::new(KEEP, 100);
        files.opened(Nanos::ZERO, file(1), |_| false);
        assert_eq!(files.expire(Nanos::from_secs(40), |_| true), None);
        files.used(Nanos::from_secs(41), file(1));
        files.released(Nanos::from_secs(42), file(1));
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
}
