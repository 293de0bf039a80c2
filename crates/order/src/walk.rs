//! The list itself: paths of the command line or of standard input, and the files below folders.

use std::collections::VecDeque;
use std::fs::{self, ReadDir};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirEntryExt;
use std::path::Path;

#[cfg(feature = "cli")]
use crate::entries::Entries;

/// Longest path that is kept, bytes. The kernel opens none longer (`PATH_MAX` counts the zero byte at its
/// end). At half of it paths that can be opened are refused; at double those that cannot are held in memory.
pub(crate) const PATH_BYTES_MAX: usize = 4095;

/// Folders open at a time, each inside the one before. Each is a descriptor, of which a process has 1024 by
/// default. At half of it deep trees are refused earlier; at double a small descriptor table may run out.
const DEPTH_MAX: usize = 256;

/// A path to be put in order.
#[derive(Debug)]
pub(crate) struct Entry {
    /// Its bytes.
    pub(crate) path: Vec<u8>,
    /// Its inode number, where a folder told.
    pub(crate) inode: Option<u64>,
}

/// What the list gives next.
#[derive(Debug)]
pub(crate) enum Got {
    /// A path.
    Path(Entry),
    /// One that cannot be put in order, and why.
    Refused(Vec<u8>, String),
}

/// Where paths come from.
pub(crate) enum From {
    /// The command line.
    #[cfg(feature = "cli")]
    Arguments(std::vec::IntoIter<std::ffi::OsString>),
    /// A stream.
    #[cfg(feature = "cli")]
    Stream(Entries<Box<dyn std::io::BufRead + Send>>),
    /// Paths that are added while the list is used; it ends whenever they are used up.
    Queue(VecDeque<Vec<u8>>),
}

/// The paths of a list, in its order.
pub(crate) struct List {
    from: From,
    /// What ends a path in the output; `None`: no byte does.
    end: Option<u8>,
    /// Folders are walked.
    walks: bool,
    /// Folders that are being read, outermost first.
    open: Vec<(Vec<u8>, ReadDir)>,
    /// Why the stream ended early.
    #[cfg(feature = "cli")]
    broken: Option<std::io::Error>,
}

impl List {
    /// Of these paths. `end`: what ends each in the output; a name that holds it is refused.
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

    /// Adds a path; only a queue takes it.
    pub(crate) fn push(&mut self, path: Vec<u8>) {
        match &mut self.from {
            From::Queue(queue) => queue.push_back(path),
            #[cfg(feature = "cli")]
            From::Arguments(_) | From::Stream(_) => {}
        }
    }

    /// Paths that were added and are not used yet.
    pub(crate) fn queued(&self) -> usize {
        match &self.from {
            From::Queue(queue) => queue.len(),
            #[cfg(feature = "cli")]
            From::Arguments(_) | From::Stream(_) => 0,
        }
    }

    /// Why the list ended before its end, if it did.
    #[cfg(feature = "cli")]
    pub(crate) fn broken(&mut self) -> Option<std::io::Error> {
        self.broken.take()
    }

    /// The next path that was listed, folders included.
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

    /// Begins to read a folder.
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

    /// The next of the innermost open folder; `None`: nothing to report, go on.
    fn below(&mut self) -> Option<Got> {
        let (folder, entries) = self.open.last_mut()?;
        let entry = match entries.next() {
            None => {
                self.open.pop();
                return None;
            }
            // The folder cannot be read any further.
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
            // Symlinks and devices are no files of this folder.
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
