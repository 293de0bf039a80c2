//! The holes of files, as reported by the driver ([`crate::Event::Hole`]): bytes that no disk delivers.
//!
//! A hole is skipped: pieces end where it begins and go on behind it, and its bytes do not count as unread
//! memory. A hole shorter than a [`PIECE`], which the kernel reads ahead by itself, is left in the pieces,
//! because skipping it saves nothing. The last holes of each file are remembered, twice [`FOUND_MAX`] at
//! most.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use seekless_base::wants::PIECE;

use crate::{FOUND_MAX, FileId, PAGE};

/// The holes of all open files.
#[derive(Debug, Default)]
pub(crate) struct Holes {
    /// Start and end of each hole in whole pages, by rising offset, with gaps between them. No list is empty.
    files: BTreeMap<FileId, Vec<(u64, u64)>>,
}

impl Holes {
    /// Adds a hole; only its whole pages count.
    pub(crate) fn add(&mut self, file: FileId, from: u64, upto: u64) {
        let from = from.min(i64::MAX as u64).next_multiple_of(PAGE);
        let upto = upto.min(i64::MAX as u64) / PAGE * PAGE;
        if upto.saturating_sub(from) < PIECE {
            return;
        }
        let holes = self.files.entry(file).or_default();
        let touched = holes.extract_if(.., |&mut (start, end)| start <= upto && from <= end);
        let whole = touched.fold((from, upto), |(from, upto), (start, end)| (from.min(start), upto.max(end)));
        holes.insert(holes.partition_point(|&(start, _)| start < whole.0), whole);
        if holes.len() > 2 * FOUND_MAX {
            holes.remove(0);
        }
    }

    /// Removes holes from a range that may have been written.
    pub(crate) fn remove(&mut self, file: FileId, from: u64, upto: u64) {
        let Some(holes) = self.files.get_mut(&file) else { return };
        let touched: Vec<(u64, u64)> =
            holes.extract_if(.., |&mut (start, end)| start < upto && from < end).collect();
        if holes.is_empty() {
            self.files.remove(&file);
        }
        for (start, end) in touched {
            self.add(file, start, from.max(start));
            self.add(file, upto.min(end), end);
        }
    }

    /// The file was closed.
    pub(crate) fn forget(&mut self, file: FileId) {
        self.files.remove(&file);
    }

    /// The holes in `[start, end)`, cut to it.
    pub(crate) fn within(&self, file: FileId, start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> {
        let holes = self.files.get(&file).map_or(&[][..], |holes| {
            let first = holes.partition_point(|&(_, upto)| upto <= start);
            &holes[first..]
        });
        let near = holes.iter().take_while(move |&&(from, _)| from < end);
        near.map(move |&(from, upto)| (from.max(start), upto.min(end)))
    }

    /// Bytes of `[start, end)` that lie in holes.
    pub(crate) fn bytes(&self, file: FileId, start: u64, end: u64) -> u64 {
        self.within(file, start, end).map(|(from, upto)| upto - from).sum()
    }

    /// The parts of `[start, end)` that are not holes.
    pub(crate) fn data(&self, file: FileId, start: u64, end: u64) -> Vec<(u64, u64)> {
        let (mut data, mut cursor) = (Vec::new(), start);
        for (from, upto) in self.within(file, start, end).chain([(end, end)]) {
            if cursor < from {
                data.push((cursor, from));
            }
            cursor = upto;
        }
        data
    }

    /// Whether `[start, end)` lies in a hole entirely.
    pub(crate) fn cover(&self, file: FileId, start: u64, end: u64) -> bool {
        start < end && self.bytes(file, start, end) == end - start
    }

    /// The first offset from `at` on that lies in no hole.
    pub(crate) fn data_from(&self, file: FileId, at: u64) -> u64 {
        match self.within(file, at, u64::MAX).next() {
            Some((from, upto)) if from == at => upto,
            _ => at,
        }
    }

    /// The start of the first hole from `at` on.
    pub(crate) fn next(&self, file: FileId, at: u64) -> Option<u64> {
        self.within(file, at, u64::MAX).next().map(|(from, _)| from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    const FILE: FileId = FileId { dev: 1, ino: 2 };
    const M: u64 = 1 << 20;

    fn holes(of: &[(u64, u64)]) -> Holes {
        let mut holes = Holes::default();
        of.iter().for_each(|&(from, upto)| holes.add(FILE, from, upto));
        holes
    }

    #[test]
    fn what_is_no_hole_is_data() {
        let holes = holes(&[(8 * M, 9 * M), (2 * M, 4 * M), (4 * M, 5 * M), (6 * M, 6 * M + 4096)]);
        assert_eq!(holes.data(FILE, 0, 10 * M), [(0, 2 * M), (5 * M, 8 * M), (9 * M, 10 * M)]);
        assert_eq!(holes.data(FILE, 3 * M, 4 * M), []);
        assert!(holes.cover(FILE, 3 * M, 5 * M) && !holes.cover(FILE, 3 * M, 5 * M + 1));
        assert!(!holes.cover(FILE, 3 * M, 3 * M));
        assert_eq!(holes.bytes(FILE, 0, u64::MAX), 4 * M);
        assert_eq!((holes.data_from(FILE, 3 * M), holes.data_from(FILE, 5 * M)), (5 * M, 5 * M));
        assert_eq!((holes.next(FILE, 5 * M), holes.next(FILE, 9 * M)), (Some(8 * M), None));
        assert_eq!(holes.data(FileId { dev: 1, ino: 3 }, 0, M), [(0, M)]);
    }

    #[test]
    fn what_was_written_is_no_hole_any_more() {
        let mut holes = holes(&[(0, 8 * M)]);
        holes.remove(FILE, 2 * M, 3 * M);
        assert_eq!(holes.data(FILE, 0, 8 * M), [(2 * M, 3 * M)]);
        holes.remove(FILE, 0, u64::MAX);
        assert!(holes.files.is_empty());
        holes.add(FILE, 0, M);
        holes.forget(FILE);
        assert!(holes.files.is_empty());
    }

    #[test]
    fn only_whole_pages_count_and_holes_are_bounded() {
        let mut few = Holes::default();
        few.add(FILE, 1, PIECE + PAGE - 1);
        assert!(few.files.is_empty(), "too short in whole pages");
        few.add(FILE, 1, PIECE + 2 * PAGE + 1);
        assert_eq!(few.files[&FILE], vec![(PAGE, PIECE + 2 * PAGE)]);
        few.add(FILE, M, u64::MAX);
        assert_eq!(few.data_from(FILE, 2 * M), i64::MAX as u64 / PAGE * PAGE);
        let mut many = Holes::default();
        (0..1000).for_each(|i| many.add(FILE, 2 * i * M, (2 * i + 1) * M));
        assert_eq!(many.files[&FILE].len(), 2 * FOUND_MAX);
        assert!(many.cover(FILE, 2 * 999 * M, 2 * 999 * M + M));
    }
}
