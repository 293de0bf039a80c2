//! Finds files by their inode number: a walk through a folder that reads only names, in steps.
//!
//! A directory entry has the inode number, so files are not opened unless wanted. Directories are open for
//! one step only, so a walk does not keep a file system busy. Symlinks and other file systems are not
//! followed.

use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Dir, FileType, Mode, OFlags};

/// Maximum number of folders waiting in a walk; deeper ones are left out.
const FOLDERS_MAX: usize = 1 << 16;

/// Maximum number of names read in a walk: some seconds if the names are in memory.
const NAMES_MAX: usize = 4 << 20;

/// Maximum number of folders read in one step.
const STEP: usize = 16;

/// A walk in progress.
pub(crate) struct Scan {
    root: PathBuf,
    /// `st_dev` of the root: folders of other file systems are left out.
    dev: u64,
    /// Relative to the root.
    folders: Vec<PathBuf>,
    names: usize,
}

impl Scan {
    pub(crate) fn of(root: &Path, dev: u64) -> Scan {
        Scan { root: root.to_path_buf(), dev, folders: vec![PathBuf::new()], names: 0 }
    }

    /// Reads a few folders. Adds wanted files to `found`, with their paths. Returns whether the walk is
    /// complete.
    pub(crate) fn step(&mut self, wanted: &HashSet<u64>, found: &mut HashMap<u64, PathBuf>) -> bool {
        for _ in 0..STEP {
            let Some(folder) = self.folders.pop() else { return true };
            if self.names >= NAMES_MAX {
                return true;
            }
            // A folder that is gone, or may not be read, has no files for this walk.
            let _ = self.read(&folder, wanted, found);
        }
        self.folders.is_empty()
    }

    fn read(
        &mut self,
        folder: &Path,
        wanted: &HashSet<u64>,
        found: &mut HashMap<u64, PathBuf>,
    ) -> rustix::io::Result<()> {
        let open = open_folder(&self.root.join(folder))?;
        if rustix::fs::fstat(&open)?.st_dev != self.dev {
            return Ok(());
        }
        for entry in Dir::read_from(open.as_fd())? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            self.names += 1;
            let path = || folder.join(std::ffi::OsStr::from_bytes(name));
            match entry.file_type() {
                FileType::Directory if self.folders.len() < FOLDERS_MAX => self.folders.push(path()),
                FileType::RegularFile | FileType::Unknown if wanted.contains(&entry.ino()) => {
                    found.insert(entry.ino(), self.root.join(path()));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

pub(crate) fn open_folder(path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    rustix::fs::open(path, flags, Mode::empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn wanted_files_are_found_wherever_they_lie() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("a/b/c");
        fs::create_dir_all(&deep).unwrap();
        for i in 0..40 {
            fs::create_dir(dir.path().join(format!("d{i}"))).unwrap();
        }
        for path in [dir.path().join("x"), deep.join("y"), deep.join("z")] {
            fs::write(path, "1").unwrap();
        }
        std::os::unix::fs::symlink("/", deep.join("loop")).unwrap();
        let number = |path: PathBuf| fs::metadata(path).unwrap().ino();
        let wanted = HashSet::from([number(dir.path().join("x")), number(deep.join("y"))]);
        let mut found = HashMap::new();
        let mut scan = Scan::of(dir.path(), fs::metadata(dir.path()).unwrap().dev());
        let steps = (0..1000).take_while(|_| !scan.step(&wanted, &mut found)).count();
        assert!(steps < 100);
        assert_eq!(found.len(), 2);
        assert_eq!(found[&number(deep.join("y"))], deep.join("y"));
        // Nothing is read from another file system.
        found.clear();
        let mut other = Scan::of(dir.path(), u64::MAX);
        while !other.step(&wanted, &mut found) {}
        assert!(found.is_empty());
    }
}
