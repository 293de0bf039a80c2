//! Competitive prefetching as a size: the depth at the place of the read, for sequential readers only.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use seekless_base::{Bytes, FileId, Lba};

use crate::sizing::competitive::{Competitive, SLOW_START, SequentialReader, Start};
use crate::sizing::{EndEvidence, Miss, PrefetchSize, SizeReport};

/// Maximum number of files whose readers are remembered; the file longest without a miss makes room. As many
/// as a disk has streams.
const FILES_MAX: usize = 4096;

/// Maximum number of readers of one file that are told apart; the most recent ones stay.
const READERS_MAX: usize = 16;

/// The depth of \[C\] for one disk, and its readers as far as misses show them.
#[derive(Clone, Debug)]
pub struct Depth {
    competitive: Competitive,
    start: Start,
    files: BTreeMap<FileId, (u64, Vec<SequentialReader>)>,
    ages: BTreeSet<(u64, FileId)>,
    clock: u64,
}

impl Depth {
    /// `start` is the length of a stream's first prefetch.
    pub fn new(competitive: Competitive, start: Start) -> Depth {
        Depth { competitive, start, files: BTreeMap::new(), ages: BTreeSet::new(), clock: 0 }
    }

    fn place(&self, lba: Option<Lba>) -> Lba {
        lba.unwrap_or(Lba(self.competitive.profile().sectors / 2))
    }

    /// The readers of a file, which becomes the most recently used.
    fn readers(&mut self, file: FileId) -> &mut Vec<SequentialReader> {
        self.clock += 1;
        if let Some((age, _)) = self.files.get(&file) {
            self.ages.remove(&(*age, file));
        } else if self.files.len() >= FILES_MAX
            && let Some((_, oldest)) = self.ages.pop_first()
        {
            self.files.remove(&oldest);
        }
        self.ages.insert((self.clock, file));
        let (age, readers) = self.files.entry(file).or_default();
        *age = self.clock;
        readers
    }
}

impl PrefetchSize for Depth {
    fn full(&self, lba: Option<Lba>, _bitrate: f64) -> Bytes {
        self.competitive.depth(self.place(lba))
    }

    fn first(&self, full: Bytes) -> Bytes {
        match self.start {
            Start::Depth => full,
            Start::Slow => SLOW_START.min(full),
        }
    }

    fn end_evidence(&self) -> EndEvidence {
        EndEvidence::Lengths
    }

    fn on_miss(&mut self, miss: Miss) -> u64 {
        let depth = self.full(miss.lba, 0.0);
        let start = self.start;
        let readers = self.readers(miss.file);
        // Move the reader that continues to the end; the one at the front is forgotten first.
        let found = readers.iter().rposition(|r| r.continues(miss.offset, miss.len));
        let mut reader = match found {
            Some(at) => readers.remove(at),
            None => SequentialReader::new(start),
        };
        let len = reader.read_len(miss.offset, miss.len, depth);
        if readers.len() >= READERS_MAX {
            readers.remove(0);
        }
        readers.push(reader);
        len
    }

    fn submitted(&mut self, lba: Option<Lba>, len: u64) {
        if let Some(lba) = lba {
            self.competitive.observe(lba, Bytes(len));
        }
    }

    fn report(&self) -> SizeReport {
        let size = self.full(None, 0.0).0;
        SizeReport { kind: "competitive".into(), size, target: size, ..SizeReport::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::DiskProfile;

    const K: u64 = 1024;

    fn depth(start: Start) -> Depth {
        Depth::new(Competitive::new(DiskProfile::assumed(1 << 31), Bytes::mib(64)), start)
    }

    fn miss(d: &mut Depth, ino: u64, offset: u64) -> u64 {
        let file = FileId { dev: 1, ino };
        d.on_miss(Miss { file, offset, lba: Some(Lba(offset / 512)), len: 64 * K, bitrate: 0 })
    }

    #[test]
    fn two_readers_of_one_file_are_both_sequential() {
        let mut d = depth(Start::Depth);
        let full = d.full(Some(Lba(0)), 0.0).0;
        let far = 1 << 30;
        assert_eq!(miss(&mut d, 1, 0), full, "from the head: at once");
        assert_eq!(miss(&mut d, 1, far), 64 * K, "elsewhere: as asked");
        assert_eq!(miss(&mut d, 1, full), d.full(Some(Lba(full / 512)), 0.0).0);
        assert!(miss(&mut d, 1, far + 64 * K) > 64 * K, "the second in a row");
        let mut slow = depth(Start::Slow);
        assert_eq!([miss(&mut slow, 1, 0), miss(&mut slow, 1, 64 * K)], [64 * K, 128 * K]);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut d = depth(Start::Depth);
        for ino in 0..2 * FILES_MAX as u64 {
            for reader in 0..2 {
                miss(&mut d, ino, reader << 32);
            }
        }
        for reader in 0..100 {
            miss(&mut d, 7, reader << 32);
        }
        assert!(d.files.len() <= FILES_MAX && d.ages.len() == d.files.len());
        assert!(d.files.values().all(|(_, readers)| readers.len() <= READERS_MAX));
    }
}
