//! The list itself: paths of the command line or of standard input, and the files below folders.

use std::collections::VecDeque;
use std::fs::{self, ReadDir};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirEntryExt;
use std::path::Path;

#[cfg(feature = "cli")]
use crate::entries::Entries;

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

/// The source of paths.
pub(crate) enum From {
    /// The command line.
    #[cfg(feature = "cli")]
    Arguments(std::vec::IntoIter<std::ffi::OsString>),
    /// A stream.
    #[cfg(feature = "cli")]
    Stream(Entries<Box<dyn std::io::BufRead + Send>>),
    /// Paths that are added while the list is used; it ends when all are used.
    Queue(VecDeque<Vec<u8>>),
}

/// The paths of a list, in its order.
pub(crate) struct List {
    from: From,
    /// The byte that ends a path in the output; `None`: no byte does.
    end: Option<u8>,
    /// Whether folders are walked.
    walks: bool,
    /// The folders being read, outermost first.
    open: Vec<(Vec<u8>, ReadDir)>,
    /// Why the stream ended early.
    #[cfg(feature = "cli")]
    broken: Option<std::io::Error>,
}

impl List {
    /// A list of these paths. `end`: the byte that ends each in the output; a name that contains it is
    /// refused.
    pub(crate) fn new(from: From, end: Option<u8>, walks: bool) -> List {
        List {
            from,
            end,
            walks,
            open: Vec::new(),
            #[cfg(feature = "cli")]
            broken: None,
        }
    }

    /// Adds a path; only for a queue.
    pub(crate) fn push(&mut self, path: Vec<u8>) {
        match &mut self.from {
            From::Queue(queue) => queue.push_back(path),
            #[cfg(feature = "cli")]
            From::Arguments(_) | From::Stream(_) => {}
        }
    }

    /// Number of added paths that were not used yet.
    pub(crate) fn queued(&self) -> usize {
        match &self.from {
            From::Queue(queue) => queue.len(),
            #[cfg(feature = "cli")]
            From::Arguments(_) | From::Stream(_) => 0,
        }
    }

    /// Why the list ended early, if it did.
    #[cfg(feature = "cli")]
    pub(crate) fn broken(&mut self) -> Option<std::io::Error> {
        self.broken.take()
    }

    /// The next listed path, folders included.
    fn listed(&mut self) -> Option<Result<Vec<u8>, Got>> {
        match &mut self.from {
            #[cfg(feature = "cli")]
            From::Arguments(all) => {
                all.next().map(|path| Ok(std::os::unix::ffi::OsStringExt::into_vec(path)))
            }
            From::Queue(queue) => queue.pop_front().map(Ok),
            #[cfg(feature = "cli")]
            From::Stream(_) if self.broken.is_some() => None,
            #[cfg(feature = "cli")]
            From::Stream(entries) => match entries.next() {
                Ok(listed) => listed.map(|listed| match listed.cut {
                    false => Ok(listed.path),
                    true => Err(Got::Refused(listed.path, too_long())),
                }),
                Err(e) => {
                    self.broken = Some(e);
                    None
                }
            },
        }
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
            return Got::Refused(entry.path, too_long());
        }
        Got::Path(entry)
    }
}

impl Iterator for List {
    type Item = Got;

    fn next(&mut self) -> Option<Got> {
        loop {
            let got = if self.open.is_empty() {
                match self.listed()? {
                    Err(refused) => Some(refused),
                    Ok(path) if self.walks && fs::metadata(as_path(&path)).is_ok_and(|m| m.is_dir()) => {
                        self.enter(path)
                    }
                    Ok(path) => Some(self.fit(Entry { path, inode: None })),
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

fn too_long() -> String {
    format!("longer than {PATH_BYTES_MAX} bytes")
}
