//! Source trees for `diff -r` on a real file system ([`seekless_model::workload::sources`]).
//!
//! Folders are written in random order, each with its files in theirs: ext4 spreads the folders of a large
//! tree over its block groups, and `diff` goes through them by name, so it finds neighbours inside a folder
//! but not between folders. A small tree on a small disk, written in the order it is read, would be one
//! contiguous piece instead.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use seekless_model::workload::content::Content;
pub(crate) use seekless_model::workload::sources::files;
use seekless_model::workload::sources::{SourceFile, folders_shuffled};

/// Writes a tree under `root`: lines of text, the same in every tree but for the files that differ.
///
/// # Errors
/// Those of creating and writing the files.
pub fn write(root: &Path, files: &[SourceFile], second: bool) -> io::Result<()> {
    let mut text = Vec::new();
    for file in folders_shuffled(files).into_iter().map(|i| &files[i]) {
        let path = root.join(&file.path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        text.resize(file.bytes as usize, 0);
        Content::of_path(&file.path).fill(0, &mut text);
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

#[cfg(test)]
mod tests {
    use super::*;

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
