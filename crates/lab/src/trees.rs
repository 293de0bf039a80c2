//! Source trees for `diff -r`, with the file sizes of the Linux kernel's (\[L\] Figure 19).
//!
//! The text gives two points of the distribution: files over 16 KiB are less than a tenth of the files and
//! about half of the bytes. A lognormal distribution has exactly one shape through both: if a tenth of the
//! files exceed `a`, `a` lies 1.2816 standard deviations above the median of the logarithm, and the share of
//! bytes above `a` is that of a normal variable above `1.2816 - s`, which is a half when `s = 1.2816`. So the
//! median is `a / exp(1.2816^2)`, about 3.2 kB, and the mean about 7.2 kB.
//!
//! Folders are written in random order, each with its files in theirs: ext4 spreads the folders of a large
//! tree over its block groups, and `diff` goes through them by name, so it finds neighbours inside a folder
//! but not between folders. A small tree on a small disk, written in the order it is read, would be one
//! contiguous piece instead.
//!
//! The two trees of a pair differ in one file of fifty (by one byte at its end, so that both are read whole).

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use seekless_workload::content::Content;
use seekless_workload::splitmix;

/// The size the paper's two statements are about, bytes.
const KNEE_BYTES: f64 = 16384.0;
/// Standard deviations from the median to the upper tenth of a normal variable, and hence the shape.
pub(crate) const SIGMA: f64 = 1.2816;
/// Largest file written; the kernel's own largest are a few MB.
const FILE_BYTES_MAX: f64 = 4e6;
/// Files a folder, as in the kernel's tree.
const FILES_PER_FOLDER: u32 = 15;
/// Folders a parent folder.
const FOLDERS_PER_PARENT: u32 = 12;
/// One file in so many differs between the trees of a pair.
const DIFFERING: u32 = 50;

/// A file of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeFile {
    /// Path below the tree's root.
    pub path: PathBuf,
    /// Bytes.
    pub bytes: u64,
    /// Whether the second tree of the pair has another last byte.
    pub differs: bool,
}

/// The files of a tree of `count` files; the same for the same seed.
pub fn files(count: u32, seed: u64) -> Vec<TreeFile> {
    let mut state = seed;
    (0..count)
        .map(|i| {
            let z = gaussian(&mut state);
            let bytes = (KNEE_BYTES.ln() - SIGMA * SIGMA + SIGMA * z).exp().min(FILE_BYTES_MAX);
            let folder = i / FILES_PER_FOLDER;
            let path = format!("dir{:02}/sub{folder:04}/file{i:05}.c", folder / FOLDERS_PER_PARENT);
            TreeFile { path: path.into(), bytes: bytes as u64, differs: i % DIFFERING == DIFFERING - 1 }
        })
        .collect()
}

/// Writes a tree under `root`: lines of text, the same in every tree but for the files that differ.
///
/// # Errors
/// Those of creating and writing the files.
pub fn write(root: &Path, files: &[TreeFile], second: bool) -> io::Result<()> {
    let mut text = Vec::new();
    for file in in_order_of_writing(files) {
        let path = root.join(&file.path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        text.resize(file.bytes as usize, 0);
        Content::of_path(&file.path.to_string_lossy()).fill(0, &mut text);
        // Letters and line ends: `diff` compares text line by line and gives up on binary files at the first
        // block.
        for (i, byte) in text.iter_mut().enumerate() {
            *byte = if i % 40 == 39 { b'\n' } else { b'a' + (*byte & 15) };
        }
        if second
            && file.differs
            && let Some(last) = text.last_mut()
        {
            *last = b'Z';
        }
        fs::File::create(path)?.write_all(&text)?;
    }
    Ok(())
}

/// Folders shuffled (by a hash of their names, the same in every tree), files inside a folder as listed.
fn in_order_of_writing(files: &[TreeFile]) -> Vec<&TreeFile> {
    let place = |file: &&TreeFile| {
        let folder = file.path.parent().map(|p| p.to_string_lossy().into_owned()).unwrap_or_default();
        let mut state = folder
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325, |h: u64, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
        (splitmix::next(&mut state), folder)
    };
    let mut ordered: Vec<&TreeFile> = files.iter().collect();
    ordered.sort_by_cached_key(place);
    ordered
}

/// A standard normal variable by Box and Muller.
pub(crate) fn gaussian(state: &mut u64) -> f64 {
    let mut uniform = || (splitmix::next(state) >> 11) as f64 / (1u64 << 53) as f64;
    let radius = (-2.0 * (1.0 - uniform()).ln()).sqrt();
    radius * (std::f64::consts::TAU * uniform()).cos()
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
    }

    #[test]
    fn folders_are_shuffled_and_stay_whole() {
        let files = files(600, 1);
        let ordered = in_order_of_writing(&files);
        assert_eq!(ordered.len(), files.len());
        let folders: Vec<_> = ordered.iter().map(|f| f.path.parent().unwrap()).collect();
        let changes = folders.windows(2).filter(|w| w[0] != w[1]).count();
        assert_eq!(
            changes + 1,
            600usize.div_ceil(FILES_PER_FOLDER as usize),
            "a folder is written in one go"
        );
        assert!(!folders.is_sorted());
    }

    #[test]
    fn a_pair_differs_where_it_should_and_only_there() {
        let dir = tempfile::tempdir().unwrap();
        let files = files(120, 1);
        write(&dir.path().join("a"), &files, false).unwrap();
        write(&dir.path().join("b"), &files, true).unwrap();
        for file in &files {
            let read = |tree: &str| fs::read(dir.path().join(tree).join(&file.path)).unwrap();
            let (a, b) = (read("a"), read("b"));
            assert_eq!(a.len() as u64, file.bytes);
            let differing = a.iter().zip(&b).filter(|(x, y)| x != y).count();
            assert_eq!(differing, usize::from(file.differs && file.bytes > 0), "{:?}", file.path);
            assert!(a.is_ascii());
        }
        assert_eq!(files.iter().filter(|f| f.differs).count(), 2);
    }
}
