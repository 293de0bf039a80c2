//! Files that a door requested from the engine lately. The engine needs reports of hits only for these.

use std::time::{Duration, Instant};

use lru::LruCache;
use seekless_policy::FileId;

use crate::recent;

/// Files used lately. Beyond a bound, the one used longest ago is forgotten; a later request adds it again.
#[derive(Debug)]
pub struct FilesUsed {
    keep: Duration,
    files: LruCache<FileId, Instant>,
}

impl FilesUsed {
    /// Maximum number of files; the engine keeps 2,048 open for each disk.
    pub const MAX: usize = 16_384;

    /// No files yet. A file counts as used for `keep` after its last use.
    pub fn new(keep: Duration) -> FilesUsed {
        FilesUsed { keep, files: recent(FilesUsed::MAX) }
    }

    /// Number of files.
    pub fn count(&self) -> usize {
        self.files.len()
    }

    /// A file was requested.
    pub fn asked(&mut self, file: FileId, now: Instant) {
        self.files.put(file, now);
    }

    /// A file was read. Returns `false`, and does not add it, if it was not used lately.
    pub fn read(&mut self, file: FileId, now: Instant) -> bool {
        match self.files.get_mut(&file) {
            Some(since) if now.saturating_duration_since(*since) < self.keep => {
                *since = now;
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_read_on_outlasts_any_number_of_others() {
        let (start, streamed) = (Instant::now(), FileId { dev: 1, ino: 0 });
        let mut files = FilesUsed::new(Duration::from_secs(41));
        files.asked(streamed, start);
        for ino in 1..4 * FilesUsed::MAX as u64 {
            // Two thousand small files a second.
            let now = start + Duration::from_micros(500 * ino);
            files.asked(FileId { dev: 1, ino }, now);
            assert!(files.count() <= FilesUsed::MAX);
            assert!(ino % 1000 > 0 || files.read(streamed, now), "{ino}");
        }
    }

    #[test]
    fn a_file_counts_while_it_is_used_and_so_many_are_remembered() {
        let (file, other) = (FileId { dev: 1, ino: 0 }, FileId { dev: 2, ino: 0 });
        let (begun, second) = (Instant::now(), Duration::from_secs(1));
        let mut used = FilesUsed::new(2 * second);
        assert!(!used.read(file, begun));
        used.asked(file, begun);
        assert!(used.read(file, begun + second) && used.read(file, begun + 2 * second));
        assert!(!used.read(file, begun + 4 * second) && !used.read(file, begun + 4 * second));
        let late = begun + 9 * second;
        used.asked(other, late);
        for ino in 0..2 * FilesUsed::MAX as u64 {
            used.asked(FileId { dev: 1, ino }, late);
            assert!(used.count() <= FilesUsed::MAX);
        }
        assert!(
            !used.read(other, late) && used.read(FileId { dev: 1, ino: 2 * FilesUsed::MAX as u64 - 1 }, late)
        );
    }
}
