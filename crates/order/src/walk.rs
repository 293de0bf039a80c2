//! The list itself: paths of the command line or of standard input, and the files below folders.

use std::collections::VecDeque;
use std::fs::{self, ReadDir};
use std::io;
use std::iter;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirEntryExt;
use std::path::Path;

/// Maximum length of a path that is kept, in bytes. The kernel opens no longer one (`PATH_MAX` includes the
/// zero byte at the end). At half, paths that can be opened are refused; at double, paths that cannot be
/// opened take memory.
pub(crate) const PATH_BYTES_MAX: usize = 4095;

/// Maximum number of open folders, each inside the one before. Each is a descriptor, of which a process has
/// 1024 by default. At half, deep trees are refused earlier; at double, a small descriptor table may be too
/// small.
const DEPTH_MAX: usize = 256;

/// A path to order.
#[derive(Debug)]
pub(crate) struct Entry {
    /// Its bytes.
    pub(crate) path: Vec<u8>,
    /// Its inode number, if a folder listed it.
    pub(crate) inode: Option<u64>,
}

/// The next element of the list.
#[derive(Debug)]
pub(crate) enum Got {
    /// A path.
    Path(Entry),
    /// A path that cannot be ordered, and the reason.
    Refused(Vec<u8>, String),
}

/// Paths as a command line or a stream gives them; an error ends them.
pub(crate) type Given = Box<dyn Iterator<Item = io::Result<Vec<u8>>> + Send>;

/// The paths of a list, in its order.
pub(crate) struct List {
    given: Given,
    /// Paths that were added and not used yet; they follow the given ones.
    pub(crate) added: VecDeque<Vec<u8>>,
    /// The byte that ends a path in the output; `None`: no byte does.
    end: Option<u8>,
    /// Whether folders are walked.
    walks: bool,
    /// The folders being read, outermost first.
    open: Vec<(Vec<u8>, ReadDir)>,
    /// Why the given paths ended early, if they did.
    #[cfg_attr(not(feature = "cli"), expect(dead_code, reason = "only a command is given paths"))]
    pub(crate) broken: Option<io::Error>,
}

impl List {
    /// A list of these paths. `end`: the byte that ends each in the output; a name that contains it is
    /// refused.
    pub(crate) fn new(given: Given, end: Option<u8>, walks: bool) -> List {
        List { given, added: VecDeque::new(), end, walks, open: Vec::new(), broken: None }
    }

    /// The next listed path, folders included.
    fn listed(&mut self) -> Option<Vec<u8>> {
        match self.given.next() {
            Some(Ok(path)) => return Some(path),
            Some(Err(e)) => {
                self.broken = Some(e);
                self.given = Box::new(iter::empty());
            }
            None => {}
        }
        self.added.pop_front()
    }

    /// Starts reading a folder.
    fn enter(&mut self, path: Vec<u8>) -> Option<Got> {
        if self.open.len() >= DEPTH_MAX {
            return Some(Got::Refused(path, format!("folders are more than {DEPTH_MAX} deep here")));
        }
        match fs::read_dir(as_path(&path)) {
            Ok(entries) => {
                self.open.push((path, entries));
                None
            }
            Err(e) => Some(Got::Refused(path, e.to_string())),
        }
    }

    /// The next entry of the innermost open folder; `None`: nothing to report, go on.
    fn below(&mut self) -> Option<Got> {
        let (folder, entries) = self.open.last_mut()?;
        let entry = match entries.next() {
            None => {
                self.open.pop();
                return None;
            }
            // The rest of the folder cannot be read.
            Some(Err(e)) => return self.open.pop().map(|(folder, _)| Got::Refused(folder, e.to_string())),
            Some(Ok(entry)) => entry,
        };
        let mut path = folder.clone();
        if path.last() != Some(&b'/') {
            path.push(b'/');
        }
        path.extend_from_slice(entry.file_name().as_bytes());
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => self.enter(path),
            Ok(kind) if kind.is_file() => Some(self.fit(Entry { path, inode: Some(entry.ino()) })),
            // Symlinks and devices are not counted as files of this folder.
            Ok(_) => None,
            Err(e) => Some(Got::Refused(path, e.to_string())),
        }
    }

    fn fit(&self, entry: Entry) -> Got {
        if self.end.is_some_and(|end| entry.path.contains(&end)) {
            return Got::Refused(entry.path, "its name has a newline: use -0".to_string());
        }
        if entry.path.len() > PATH_BYTES_MAX {
            return Got::Refused(entry.path, format!("longer than {PATH_BYTES_MAX} bytes"));
        }
        Got::Path(entry)
    }
}

impl Iterator for List {
    type Item = Got;

    fn next(&mut self) -> Option<Got> {
        loop {
            let got = if self.open.is_empty() {
                let path = self.listed()?;
                match self.walks && fs::metadata(as_path(&path)).is_ok_and(|m| m.is_dir()) {
                    true => self.enter(path),
                    false => Some(self.fit(Entry { path, inode: None })),
                }
            } else {
                self.below()
            };
            if got.is_some() {
                return got;
            }
        }
    }
}

/// Bytes as a path.
pub(crate) fn as_path(bytes: &[u8]) -> &Path {
    Path::new(std::ffi::OsStr::from_bytes(bytes))
}
