//! Cached disk addresses of file offsets.
//!
//! Asking the file system (`FIEMAP`) takes microseconds when its metadata is in memory, and a seek when it is
//! not. A file is asked for once, and again only when its size or modification time differs. The addresses
//! determine the order of reads, and the ranges skipped as holes.
//!
//! For the file system, data written to a hole is a hole until it is written back, up to half a minute after
//! the file changed. So a file with holes that has just changed is asked for again after a moment.

use std::collections::HashSet;
use std::time::{Duration, Instant, SystemTime};

use lru::LruCache;
use seekless_kernel::extents::{ExtentMap, extents};
use seekless_kernel::prefetch::Source;
use seekless_kernel::residency::page_bytes;
use seekless_policy::memory::REPORT_EVERY;
use seekless_policy::{Event, FileId};

use crate::recent;

/// Maximum number of cached files with their maps: 7 MB if every file has 72 extents.
pub(crate) const FILES_MAX: usize = 4096;

/// Time after which a file with holes that has just changed is asked for again: the interval of the memory
/// reports.
fn again() -> Duration {
    Duration::from_nanos(REPORT_EVERY.0)
}

/// Age of a change after which all data of the file are written back: twice the limit in Linux
/// (`vm.dirty_expire_centisecs`, 30 s).
fn written_back() -> Duration {
    30 * again()
}

/// Identifies a version of a file's content: a write changes it.
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
    /// When the map expires.
    until: Option<Instant>,
}

/// Maps of the files used most recently.
pub(crate) struct Addresses {
    files: LruCache<FileId, Known>,
    /// Open files whose holes were reported.
    holed: HashSet<FileId>,
    learnt: Vec<Event>,
}

impl Addresses {
    pub(crate) fn new() -> Addresses {
        Addresses { files: recent(FILES_MAX), holed: HashSet::new(), learnt: Vec::new() }
    }

    /// The disk address of the file's byte at `offset`, as the file system reports it.
    pub(crate) fn of(&mut self, file: FileId, edition: Edition, source: &Source, offset: u64) -> Option<u64> {
        let believed = |k: &&mut Known| k.until.is_none_or(|until| Instant::now() < until);
        let known = self.files.get_mut(&file).filter(|k| k.edition == edition && k.map.covers(offset));
        let known = known.filter(believed);
        match known {
            Some(known) => known.map.address_of(offset),
            None => {
                // If there is no map, cache an empty one, so that the file system is not asked again.
                let map = extents(source, offset).unwrap_or_else(|_| ExtentMap::new(Vec::new(), 0, u64::MAX));
                let address = map.address_of(offset);
                let same = self.files.peek(&file).is_some_and(|known| known.edition == edition);
                self.learn(file, edition.size, &map, same);
                let changes = !map.holes().is_empty() && has_just_changed(edition);
                let until = changes.then(|| Instant::now() + again());
                self.files.put(file, Known { edition, map, until });
                address
            }
        }
    }

    /// Reports the holes of a map. They replace those reported before; if the file is not the `same`, all of
    /// them.
    fn learn(&mut self, file: FileId, size: u64, map: &ExtentMap, same: bool) {
        if self.holed.contains(&file) {
            let (from, upto) = if same { map.covered() } else { (0, u64::MAX) };
            self.learnt.push(Event::Written { file, from, upto });
        }
        for &(from, upto) in map.holes() {
            // The last page of the file is a hole like the others.
            let upto = upto.min(size.saturating_add(page_bytes() - 1));
            if from < upto {
                if self.holed.insert(file) {
                    self.learnt.push(Event::Opened { file });
                }
                self.learnt.push(Event::Hole { file, from, upto });
            }
        }
    }

    /// Takes the hole events since the last call.
    pub(crate) fn learnt(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.learnt)
    }

    /// Forgets the holes of a closed file.
    pub(crate) fn close(&mut self, file: FileId) {
        if self.holed.remove(&file) {
            self.files.pop(&file);
        }
    }

    /// Forgets all maps: the file system has moved its files.
    pub(crate) fn forget(&mut self) {
        self.files.clear();
    }
}

/// Whether data written to a file may not be on its disk yet. A time in the future says nothing.
fn has_just_changed(edition: Edition) -> bool {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let since = i64::try_from(now.as_secs()).unwrap_or(i64::MAX).saturating_sub(edition.changed.0);
    since < written_back().as_secs() as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_are_told_once_and_anew_when_the_file_changes() {
        let (mut addresses, file) = (Addresses::new(), FileId { dev: 1, ino: 1 });
        let backing = tempfile::tempfile().unwrap();
        backing.set_len(4 << 20).unwrap();
        let source = Source::own(backing.try_clone().unwrap().into());
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() as i64;
        let long_ago = Edition { size: 4 << 20, changed: (1, 0) };
        if extents(&source, 0).is_err() {
            println!("skipped: no FIEMAP here");
            return;
        }
        let hole = Event::Hole { file, from: 0, upto: (4 << 20) + page_bytes() - 1 };
        addresses.of(file, long_ago, &source, 0);
        addresses.of(file, long_ago, &source, 1 << 20);
        assert_eq!(addresses.learnt(), [Event::Opened { file }, hole]);
        let changed = Edition { changed: (now, 0), ..long_ago };
        addresses.of(file, changed, &source, 0);
        assert_eq!(addresses.learnt(), [Event::Written { file, from: 0, upto: u64::MAX }, hole]);
        assert!(addresses.files.peek(&file).unwrap().until.is_some(), "it may have been written to");
        addresses.files.get_mut(&file).unwrap().until = Some(Instant::now());
        std::os::unix::fs::FileExt::write_all_at(&backing, &[1; 1 << 20], 0).unwrap();
        backing.sync_all().unwrap();
        addresses.of(file, changed, &source, 0);
        let rest = Event::Hole { file, from: 1 << 20, upto: (4 << 20) + page_bytes() - 1 };
        assert_eq!(addresses.learnt(), [Event::Written { file, from: 0, upto: u64::MAX }, rest]);
        addresses.close(file);
        assert!(addresses.files.is_empty() && addresses.holed.is_empty());
        addresses.of(file, long_ago, &source, 0);
        assert_eq!(addresses.learnt(), [Event::Opened { file }, rest], "closed, it was forgotten");
    }

    #[test]
    fn files_remembered_are_bounded() {
        let mut addresses = Addresses::new();
        let source = Source::own(tempfile::tempfile().unwrap().into());
        let edition = Edition { size: 1, changed: (0, 0) };
        for ino in 0..(2 * FILES_MAX as u64) {
            addresses.of(FileId { dev: 1, ino }, edition, &source, 0);
            assert!(addresses.files.len() <= FILES_MAX);
        }
        let newest = FileId { dev: 1, ino: 2 * FILES_MAX as u64 - 1 };
        assert!(addresses.files.contains(&newest));
    }
}
