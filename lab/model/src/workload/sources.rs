//! Source trees for `diff -r`, with the file sizes of the Linux kernel's (\[L\] Figure 19).
//!
//! The text gives two points of the distribution: files over 16 KiB are less than a tenth of the files and
//! about half of the bytes. A lognormal distribution has exactly one shape through both: if a tenth of the
//! files exceed `a`, `a` lies 1.2816 standard deviations above the median of the logarithm, and the share of
//! bytes above `a` is that of a normal variable above `1.2816 - s`, which is a half when `s = 1.2816`. So the
//! median is `a / exp(1.2816^2)`, about 3.2 kB, and the mean about 7.2 kB.
//!
//! Two trees are compared: a pair. Both have files of the same names and sizes; one file of fifty differs in
//! its last byte, so that both are read whole.

use core::fmt::Write as _;

use crate::workload::closed::RangeRequest;
use crate::workload::handler::Step;
use crate::workload::splitmix;
use crate::workload::tree::{SIGMA, gaussian};

/// The size the paper's two statements are about, bytes.
const KNEE_BYTES: f64 = 16384.0;
/// Largest file; the kernel's own largest are a few MB.
const FILE_BYTES_MAX: f64 = 4e6;
/// Files a folder, as in the kernel's tree.
pub const FILES_PER_FOLDER: u32 = 15;
/// Folders a parent folder.
const FOLDERS_PER_PARENT: u32 = 12;
/// One file in so many differs between the trees of a pair.
const DIFFERING: u32 = 50;
/// The first read of a file: a block of the file system ("the requested read size is 4KB", \[L\] section 8).
const FIRST_READ: u64 = 4096;

/// A file of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFile {
    /// Path below the tree's root. The files are in the order of their paths.
    pub path: String,
    /// Bytes.
    pub bytes: u64,
    /// Whether the second tree of the pair has another last byte.
    pub differs: bool,
}

/// The files of a tree of `count` files; the same for the same seed.
pub fn files(count: u32, seed: u64) -> Vec<SourceFile> {
    let mut state = seed;
    (0..count)
        .map(|i| {
            let z = gaussian(&mut state);
            let log = libm::log(KNEE_BYTES) - SIGMA * SIGMA + SIGMA * z;
            let bytes = libm::exp(log).min(FILE_BYTES_MAX) as u64;
            let folder = i / FILES_PER_FOLDER;
            let mut path = String::new();
            let _ = write!(path, "dir{:03}/sub{folder:05}/file{i:06}.c", folder / FOLDERS_PER_PARENT);
            SourceFile { path, bytes, differs: i % DIFFERING == DIFFERING - 1 }
        })
        .collect()
}

/// Files of a tree, by their place in the order of paths, in the order in which they are written where
/// folders come in random order: by a hash of their names, the same in every tree. Files inside a folder are
/// as listed.
pub fn folders_shuffled(files: &[SourceFile]) -> Vec<usize> {
    let mut ordered: Vec<usize> = (0..files.len()).collect();
    ordered.sort_by_cached_key(|&i| {
        let folder = files[i].path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let mut state = folder
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325, |h: u64, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
        (splitmix::next(&mut state), folder.to_owned())
    });
    ordered
}

/// One `diff -r` of a pair of trees.
///
/// Files are numbers: `first` is the first of the pair's first tree, and its second tree follows behind all
/// of the first.
#[derive(Clone, Copy, Debug)]
pub struct Comparison {
    first: u32,
    /// Files a tree.
    files: u32,
    next: u32,
}

impl Comparison {
    /// Of the pair with this number, where each tree has so many files.
    pub fn new(pair: u32, files: u32) -> Comparison {
        Comparison { first: pair * 2 * files, files, next: 0 }
    }

    /// The reads of the next two files, of these sizes: a block of each, then the rest of each in one read.
    /// None when all are compared.
    pub fn next(&mut self, size: impl Fn(u32) -> u64) -> Option<Vec<Step>> {
        if self.next >= self.files {
            return None;
        }
        let (a, b) = (self.first + self.next, self.first + self.files + self.next);
        self.next += 1;
        let (of_a, of_b) = (size(a), size(b));
        let part = |open, video, offset: u64, end: u64| {
            let range = RangeRequest { video, offset, len: end.saturating_sub(offset) };
            (range.len > 0).then_some(Step::Read { open, range })
        };
        let reads = [
            part(0, a, 0, of_a.min(FIRST_READ)),
            part(1, b, 0, of_b.min(FIRST_READ)),
            part(0, a, FIRST_READ, of_a),
            part(1, b, FIRST_READ, of_b),
        ];
        Some(reads.into_iter().flatten().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_the_papers() {
        let files = files(100_000, 7);
        let large = files.iter().filter(|f| f.bytes > 16384);
        let share = large.clone().count() as f64 / files.len() as f64;
        assert!((share - 0.1).abs() < 0.005, "{share} of the files are over 16 KiB");
        let bytes: u64 = files.iter().map(|f| f.bytes).sum();
        let share = large.map(|f| f.bytes).sum::<u64>() as f64 / bytes as f64;
        assert!((share - 0.5).abs() < 0.03, "{share} of the bytes are in files over 16 KiB");
        assert!(files.is_sorted_by(|a, b| a.path < b.path), "diff takes them by name");
    }

    #[test]
    fn folders_are_shuffled_and_stay_whole() {
        let files = files(600, 1);
        let ordered = folders_shuffled(&files);
        let folders: Vec<_> = ordered.iter().map(|&i| files[i].path.rsplit_once('/').unwrap().0).collect();
        let changes = folders.windows(2).filter(|w| w[0] != w[1]).count();
        assert_eq!(
            changes + 1,
            600usize.div_ceil(FILES_PER_FOLDER as usize),
            "a folder is written in one go"
        );
        assert!(!folders.is_sorted());
        let mut all = ordered;
        all.sort_unstable();
        assert!(all.into_iter().eq(0..600));
    }

    #[test]
    fn a_comparison_reads_a_block_of_both_files_then_the_rest_of_both() {
        let sizes = [10_000, 300, 0, 9_000, 300, 5_000];
        let mut comparison = Comparison::new(0, 3);
        let mut reads = || {
            let steps = comparison.next(|file| sizes[file as usize])?;
            let read = |step: Step| match step {
                Step::Read { open, range } => (open, range.video, range.offset, range.len),
                Step::Think(_) => unreachable!("a comparison does not think"),
            };
            Some(steps.into_iter().map(read).collect::<Vec<_>>())
        };
        let first = [(0, 0, 0, 4096), (1, 3, 0, 4096), (0, 0, 4096, 5904), (1, 3, 4096, 4904)];
        assert_eq!(reads().unwrap(), first);
        assert_eq!(reads().unwrap(), [(0, 1, 0, 300), (1, 4, 0, 300)]);
        assert_eq!(reads().unwrap(), [(1, 5, 0, 4096), (1, 5, 4096, 904)]);
        assert_eq!(reads(), None);
        assert_eq!(Comparison::new(1, 3).first, 6, "the second pair's trees follow");
    }
}
