//! A tree of small files and some packs, and the orders in which programs take its files.
//!
//! Names say nothing about when a file was written, as in a store of photos, mails or objects: files come in
//! the order of a shuffle, each into a folder of its own choice. So the order of names, and the order in
//! which a folder lists them, is no order of the disk's. Sizes are lognormal, with the shape of those of the
//! Linux kernel's files (\[L\] Figure 19).

use seekless_base::words;

use crate::workload::splitmix;

/// Standard deviation of the logarithm of the sizes: that of the one lognormal distribution of which a tenth
/// of the files are half of the bytes (\[L\] Figure 19).
pub const SIGMA: f64 = 1.2816;
/// Largest small file; a pack is larger.
const FILE_BYTES_MAX: f64 = 4e6;
/// Files a folder.
const FILES_PER_FOLDER: u32 = 100;

/// What a tree is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeSpec {
    /// Small files.
    pub files: u32,
    /// Median of their sizes, bytes.
    pub median: u64,
    /// One pack for so many small files, at least 1.
    pub files_per_pack: u32,
    /// Bytes of a pack.
    pub pack: u64,
    /// Seed of sizes and of the order of writing.
    pub seed: u64,
}

/// One file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeFile {
    /// Path below the root: a folder and a name.
    pub path: String,
    /// Bytes.
    pub size: u64,
}

/// A standard normal variable by Box and Muller.
pub fn gaussian(state: &mut u64) -> f64 {
    let mut uniform = || (splitmix::next(state) >> 11) as f64 / (1u64 << 53) as f64;
    let radius = libm::sqrt(-2.0 * libm::log(1.0 - uniform()));
    radius * libm::cos(core::f64::consts::TAU * uniform())
}

impl TreeSpec {
    /// Every file, in the order of writing.
    pub fn files(&self) -> Vec<TreeFile> {
        let mut state = self.seed;
        let folders = self.files.div_ceil(FILES_PER_FOLDER);
        let mut files: Vec<TreeFile> = (0..self.files)
            .map(|i| {
                let z = gaussian(&mut state);
                let bytes = (self.median as f64 * libm::exp(SIGMA * z)).min(FILE_BYTES_MAX);
                TreeFile { path: format!("d{:04}/f{i:06}", i % folders), size: bytes as u64 }
            })
            .collect();
        let packs = self.files / self.files_per_pack.max(1);
        files.extend((0..packs).map(|i| TreeFile { path: format!("packs/p{i:04}.pack"), size: self.pack }));
        // Fisher and Yates.
        for last in (1..files.len()).rev() {
            let other = (splitmix::next(&mut state) % (last as u64 + 1)) as usize;
            files.swap(last, other);
        }
        files
    }
}

/// In which order a program takes the files of a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FileOrder {
    /// As `find` lists them: folder by folder, in the order in which each folder lists what it has.
    #[default]
    Listed,
    /// By name.
    Name,
    /// Folder by folder, in each by inode.
    Inode,
    /// By disk address.
    Disk,
}

words! { FileOrder: Listed = "listed", Name = "name", Inode = "inode", Disk = "disk" }

/// The folders of a tree. Files are numbers in the order of writing, which is that of their inodes.
#[derive(Clone, Debug, Default)]
pub struct Folders {
    /// The folder of each file.
    pub folder_of: Vec<u32>,
    /// The files of each folder, as it lists them.
    pub listed: Vec<Vec<u32>>,
    /// Place of each file in the order of names of its folder.
    pub by_name: Vec<u32>,
    /// Names of the folders, for the order in which a program takes them.
    names: Vec<String>,
}

/// A hash of a name, as a folder's index goes by one.
fn hashed(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |h: u64, b| splitmix::mix(h ^ u64::from(b)))
}

impl Folders {
    /// Of files with these paths, in the order of writing.
    pub fn of<'a>(paths: impl Iterator<Item = &'a str>) -> Folders {
        let paths: Vec<(&str, &str)> =
            paths.map(|path| path.rsplit_once('/').unwrap_or(("", path))).collect();
        let mut names: Vec<&str> = paths.iter().map(|p| p.0).collect();
        names.sort_unstable();
        names.dedup();
        let folder = |name: &str| names.binary_search(&name).unwrap_or(0);
        let folder_of: Vec<u32> = paths.iter().map(|p| folder(p.0) as u32).collect();
        let mut listed = vec![Vec::new(); names.len()];
        for (file, &of) in folder_of.iter().enumerate() {
            listed[of as usize].push(file as u32);
        }
        let mut by_name = vec![0; paths.len()];
        for files in &mut listed {
            files.sort_by_key(|&file: &u32| paths[file as usize].1);
            files.iter().enumerate().for_each(|(at, &file)| by_name[file as usize] = at as u32);
            files.sort_by_key(|&file| hashed(paths[file as usize].1));
        }
        Folders { folder_of, listed, by_name, names: names.into_iter().map(str::to_string).collect() }
    }

    /// All files in the order in which a program takes them. `address` is asked for [`FileOrder::Disk`]
    /// alone.
    pub fn taken(&self, taking: FileOrder, address: impl Fn(u32) -> u64) -> Vec<u32> {
        let mut folders: Vec<usize> = (0..self.names.len()).collect();
        if taking != FileOrder::Name {
            folders.sort_by_key(|&f| hashed(&self.names[f]));
        }
        let mut files: Vec<u32> = Vec::with_capacity(self.folder_of.len());
        for folder in folders {
            let mut own = self.listed[folder].clone();
            match taking {
                FileOrder::Name => own.sort_by_key(|&file| self.by_name[file as usize]),
                FileOrder::Inode => own.sort_unstable(),
                FileOrder::Listed | FileOrder::Disk => {}
            }
            files.extend(own);
        }
        if taking == FileOrder::Disk {
            files.sort_by_key(|&file| address(file));
        }
        files
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: TreeSpec =
        TreeSpec { files: 3_000, median: 8_192, files_per_pack: 1_000, pack: 5_000_000, seed: 1 };

    #[test]
    fn sizes_have_the_median_and_writing_follows_no_names() {
        let files = TREE.files();
        assert_eq!(files.len(), 3_003);
        let mut small: Vec<u64> = files.iter().map(|f| f.size).filter(|bytes| *bytes < TREE.pack).collect();
        small.sort_unstable();
        let median = small[small.len() / 2] as f64 / TREE.median as f64;
        assert!((0.9..1.1).contains(&median), "{median}");
        assert_eq!(small.len(), 3_000);
        let falls = files.windows(2).filter(|pair| pair[1].path < pair[0].path).count();
        assert!((1_300..1_700).contains(&falls), "{falls} of 3,002 neighbours fall: a shuffle");
        assert_eq!(files, TREE.files());
    }

    #[test]
    fn every_order_has_every_file_once_and_keeps_folders_together() {
        let files = TREE.files();
        let folders = Folders::of(files.iter().map(|f| &*f.path));
        assert_eq!(folders.listed.len(), 31);
        let folder = |&file: &u32| folders.folder_of[file as usize];
        for taking in FileOrder::ALL {
            let mut taken = folders.taken(taking, |file| u64::from(file) * 7_919 % 3_003);
            let changes = taken.windows(2).filter(|w| folder(&w[0]) != folder(&w[1])).count();
            assert_eq!(changes == 30, taking != FileOrder::Disk, "{taking:?}: {changes}");
            if taking == FileOrder::Name {
                assert!(taken.windows(2).all(|w| files[w[0] as usize].path < files[w[1] as usize].path));
            }
            assert_eq!(taking.name().parse(), Ok(taking));
            taken.sort_unstable();
            assert!(taken.into_iter().eq(0..3_003));
        }
        let listed = folders.taken(FileOrder::Listed, |_| 0);
        assert_ne!(listed, folders.taken(FileOrder::Inode, |_| 0));
        assert_ne!(listed, folders.taken(FileOrder::Name, |_| 0));
    }
}
