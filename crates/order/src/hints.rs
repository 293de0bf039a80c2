//! In which order files are looked up: by inode number.
//!
//! Where a file lies stands in its inode. Inodes lie on the disk in the order of their numbers, and names
//! lead to them in no order. A folder has both, name and number, and listing it has brought it into
//! memory. So the folders of a batch are read first, and its files are looked up by rising number.
//!
//! A number that is wrong or missing costs a seek: mount points, files renamed meanwhile.

use std::collections::HashMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirEntryExt;

use crate::walk::{Entry, as_path};

/// A folder is read if at least this many files of the batch lie in it. For fewer, reading the folder costs
/// as much as their inodes. At one, each file of a list spread over many folders costs two look-ups.
const WANTED_MIN: usize = 4;

/// Names read of a folder for each file wanted of it. Few files of a huge folder are looked up without. At
/// half of it more of them are; at double, more names are read in vain.
const NAMES_PER_WANTED: usize = 64;

/// Gives the entries that have no inode number theirs, where their folder tells.
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
        // One twice, and one that is not there.
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
