//! In which order files are looked up: by inode number.
//!
//! The inode says where a file lies. Inodes lie on the disk in the order of their numbers, but names lead to
//! them in any order. A folder has both name and number, and listing it has brought it into memory. So the
//! folders of a batch are read first, and its files are looked up by rising inode number.
//!
//! A wrong or missing number costs a seek: mount points, files renamed meanwhile.

use std::collections::HashMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirEntryExt;

use crate::walk::{Entry, as_path};

/// Minimum number of files of the batch in a folder for reading the folder. For fewer, that costs as much as
/// their inodes. At one, each file of a list spread over many folders costs two lookups.
const WANTED_MIN: usize = 4;

/// Maximum number of names read of a folder for each wanted file. A few files of a huge folder are looked up
/// without their numbers. At half, more files are; at double, more names are read in vain.
const NAMES_PER_WANTED: usize = 64;

/// Sets the inode numbers of the entries, if their folder has them.
pub(crate) fn fill(batch: &mut [Entry]) {
    let mut folders: HashMap<&[u8], HashMap<&[u8], Vec<usize>>> = HashMap::new();
    for (i, entry) in batch.iter().enumerate().filter(|(_, entry)| entry.inode.is_none()) {
        let (folder, name) = split(&entry.path);
        folders.entry(folder).or_default().entry(name).or_default().push(i);
    }
    let mut found: Vec<(usize, u64)> = Vec::new();
    for (folder, names) in folders.iter().filter(|(_, names)| names.len() >= WANTED_MIN) {
        let Ok(entries) = fs::read_dir(as_path(folder)) else { continue };
        let mut left = names.len();
        for entry in entries.take(names.len().saturating_mul(NAMES_PER_WANTED)).map_while(Result::ok) {
            if let Some(wanted) = names.get(entry.file_name().as_bytes()) {
                found.extend(wanted.iter().map(|i| (*i, entry.ino())));
                left -= 1;
                if left == 0 {
                    break;
                }
            }
        }
    }
    for (i, inode) in found {
        batch[i].inode = Some(inode);
    }
}

/// Folder and name of a path.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        None => (b".", path),
        Some(0) => (b"/", &path[1..]),
        Some(at) => (&path[..at], &path[at + 1..]),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn a_path_is_split_at_its_last_slash() {
        assert_eq!(split(b"name"), (&b"."[..], &b"name"[..]));
        assert_eq!(split(b"/name"), (&b"/"[..], &b"name"[..]));
        assert_eq!(split(b"a/b/\xff"), (&b"a/b"[..], &b"\xff"[..]));
        assert_eq!(split(b"a/"), (&b"a"[..], &b""[..]));
    }

    #[test]
    fn a_folder_tells_the_inodes_of_its_files() {
        let dir = tempfile::tempdir().unwrap();
        let path = |i: u32| dir.path().join(format!("f{i}"));
        (0..6).for_each(|i| fs::write(path(i), "x").unwrap());
        let entry = |i: u32| Entry { path: path(i).as_os_str().as_bytes().to_vec(), inode: None };
        // One file twice, and one that does not exist.
        let mut batch: Vec<Entry> = [3, 1, 9, 0, 3, 5, 2].map(entry).into();
        fill(&mut batch);
        for entry in &batch {
            let real = fs::metadata(as_path(&entry.path)).ok().map(|m| m.ino());
            assert_eq!(entry.inode, real, "{entry:?}");
        }
        let mut few: Vec<Entry> = [1, 2].map(entry).into();
        fill(&mut few);
        assert!(few.iter().all(|entry| entry.inode.is_none()), "not worth reading a folder");
    }
}
