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

//!
//! What ext4 keeps of a tree is read as well ([`Forest`]): the block of each folder and the inodes of its
//! files. Neither goes through a call that the shim sees.

use core::fmt::Write as _;
use std::sync::Arc;

use crate::workload::closed::RangeRequest;
use crate::workload::handler::Step;
use crate::workload::splitmix;
use crate::workload::tree::{SIGMA, TreeFile, gaussian};

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
/// Bytes of an inode (`mke2fs`), and of the block that lists a folder: one holds the names of
/// [`FILES_PER_FOLDER`] files several times over.
const INODE_BYTES: u64 = 256;
const FOLDER_BYTES: u64 = 4096;

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

/// Several trees of the same files on one file system, with what ext4 keeps of them.
///
/// Everything has a number: first the files of all trees, tree by tree; then the folders, likewise; then the
/// inode table of each tree. Folders are written in random order, a folder's block before its files, and
/// inodes are given in the order of writing. The tables come first on the disk, as ext4 lays them.
#[derive(Clone, Debug)]
pub struct Forest {
    trees: u32,
    files: u32,
    folders: u32,
    /// Number of each file's inode in its tree's table, then of each folder's.
    inodes: Arc<[u32]>,
    /// The files of a tree as they are written.
    ordered: Arc<[u32]>,
}

impl Forest {
    /// So many trees of these files.
    pub fn new(trees: u32, of: &[SourceFile]) -> Forest {
        let files = of.len() as u32;
        let folders = files.div_ceil(FILES_PER_FOLDER);
        let ordered: Arc<[u32]> = folders_shuffled(of).into_iter().map(|file| file as u32).collect();
        let mut inodes = vec![0; (files + folders) as usize];
        let mut next = 0;
        let mut give = |number: u32| {
            inodes[number as usize] = next;
            next += 1;
        };
        for &file in &*ordered {
            if file % FILES_PER_FOLDER == 0 {
                give(files + file / FILES_PER_FOLDER);
            }
            give(file);
        }
        Forest { trees, files, folders, inodes: inodes.into(), ordered }
    }

    /// All files, folders and tables, by their numbers.
    pub fn all(&self, of: &[SourceFile]) -> Vec<TreeFile> {
        let tree = |n: u32| format!("pair{}/{}", n / 2, if n.is_multiple_of(2) { 'a' } else { 'b' });
        let files = (0..self.trees).flat_map(|n| {
            of.iter().map(move |f| TreeFile { path: format!("{}/{}", tree(n), f.path), size: f.bytes })
        });
        let folders = (0..self.trees).flat_map(|n| {
            (0..self.folders)
                .map(move |f| TreeFile { path: format!("{}/folder{f}", tree(n)), size: FOLDER_BYTES })
        });
        let bytes = u64::from(self.files + self.folders) * INODE_BYTES;
        let tables = (0..self.trees).map(|n| TreeFile { path: format!("{}/inodes", tree(n)), size: bytes });
        files.chain(folders).chain(tables).collect()
    }

    /// The order of writing.
    pub fn written(&self) -> Vec<u32> {
        let tree = |n: u32| {
            self.ordered.iter().flat_map(move |&file| {
                let begins = file.is_multiple_of(FILES_PER_FOLDER);
                let folder = begins.then(|| self.folder(n, file / FILES_PER_FOLDER));
                folder.into_iter().chain([n * self.files + file])
            })
        };
        (0..self.trees).map(|n| self.table(n)).chain((0..self.trees).flat_map(tree)).collect()
    }

    /// The number from which on all are folders and tables.
    pub fn metadata(&self) -> u32 {
        self.trees * self.files
    }

    /// `diff -r` of the two trees of a pair.
    pub fn comparison(&self, pair: u32) -> Comparison {
        Comparison { forest: self.clone(), pair, next: 0 }
    }

    fn folder(&self, tree: u32, folder: u32) -> u32 {
        self.metadata() + tree * self.folders + folder
    }

    fn table(&self, tree: u32) -> u32 {
        self.metadata() + self.trees * self.folders + tree
    }

    /// Looks at an inode, of a file or (behind the files) of a folder.
    fn inode(&self, tree: u32, number: u32) -> Step {
        let offset = u64::from(self.inodes[number as usize]) * INODE_BYTES;
        Step::Read { open: 2, range: RangeRequest { video: self.table(tree), offset, len: INODE_BYTES } }
    }

    /// Lists a folder.
    fn list(&self, tree: u32, folder: u32) -> Step {
        let video = self.folder(tree, folder);
        Step::Read { open: 3, range: RangeRequest { video, offset: 0, len: FOLDER_BYTES } }
    }
}

/// One `diff -r` of a pair of trees, file by file by name.
#[derive(Clone, Debug)]
pub struct Comparison {
    forest: Forest,
    pair: u32,
    next: u32,
}

impl Comparison {
    /// The reads for the next two files, of these sizes: both folders where they are entered, both inodes, a
    /// block of each file, then the rest of each in one read. None when all are compared.
    pub fn next(&mut self, size: impl Fn(u32) -> u64) -> Option<Vec<Step>> {
        let forest = &self.forest;
        let file = self.next;
        if file >= forest.files {
            return None;
        }
        self.next += 1;
        let trees = [2 * self.pair, 2 * self.pair + 1];
        let mut steps = Vec::new();
        if file.is_multiple_of(FILES_PER_FOLDER) {
            let folder = file / FILES_PER_FOLDER;
            steps.extend(
                trees.iter().flat_map(|&t| [forest.inode(t, forest.files + folder), forest.list(t, folder)]),
            );
        }
        steps.extend(trees.map(|t| forest.inode(t, file)));
        let [a, b] = trees.map(|t| t * forest.files + file);
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
        steps.extend(reads.into_iter().flatten());
        Some(steps)
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
    fn a_comparison_reads_folders_and_inodes_then_a_block_of_both_files_and_the_rest_of_both() {
        let of = files(17, 3);
        let forest = Forest::new(2, &of);
        assert_eq!((forest.metadata(), forest.all(&of).len()), (34, 34 + 4 + 2));
        let sizes = |file: u32| [10_000, 300, 0, 9_000][file as usize % 17 % 4];
        let mut comparison = forest.comparison(0);
        let mut reads = || {
            let read = |step: Step| match step {
                Step::Read { range, .. } => (range.video, range.offset, range.len),
                Step::Think(_) => unreachable!("a comparison does not think"),
            };
            Some(comparison.next(sizes)?.into_iter().map(read).collect::<Vec<_>>())
        };
        let inode = |tree: u32, number: usize| (38 + tree, u64::from(forest.inodes[number]) * 256, 256);
        let first = reads().unwrap();
        let folders = [inode(0, 17), (34, 0, 4096), inode(1, 17), (36, 0, 4096)];
        assert_eq!(first[..4], folders, "both folders, once");
        assert_eq!(first[4..6], [inode(0, 0), inode(1, 0)]);
        assert_eq!(first[6..], [(0, 0, 4096), (17, 0, 4096), (0, 4096, 5904), (17, 4096, 5904)]);
        assert_eq!(reads().unwrap(), [inode(0, 1), inode(1, 1), (1, 0, 300), (18, 0, 300)]);
        assert_eq!(reads().unwrap(), [inode(0, 2), inode(1, 2)], "nothing to read of empty files");
        assert!((3..15).all(|_| reads().unwrap().len() <= 6));
        assert_eq!(reads().unwrap()[1], (35, 0, 4096), "the second folder");
        assert!(reads().is_some() && reads().is_none());
    }

    #[test]
    fn inodes_are_given_in_the_order_of_writing_and_everything_is_written_once() {
        let of = files(100, 5);
        let forest = Forest::new(4, &of);
        let mut written = forest.written();
        assert_eq!(written[..4], [0, 1, 2, 3].map(|tree| forest.table(tree)), "the tables come first");
        let of_first = written.iter().filter_map(|&n| match n {
            0..100 => Some(forest.inodes[n as usize]),
            400..407 => Some(forest.inodes[(n - 300) as usize]),
            _ => None,
        });
        assert!(of_first.eq(0..107));
        written.sort_unstable();
        assert!(written.into_iter().eq(0..forest.all(&of).len() as u32));
    }
}
