//! The served folders, and opening what lies below them.
//!
//! `openat2` with `RESOLVE_BENEATH` lets no symbolic link lead out of a folder, even if it is changed meanwhile. With
//! `RESOLVE_CACHED` it also never reads a directory from disk: an event loop tries that first, and only what the kernel
//! cannot look up in memory is opened by a helper thread.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use seekless_policy::FileId;
use seekless_units::{Exit, Fault};

/// How often a lookup is repeated that a rename elsewhere has disturbed (`RESOLVE_BENEATH` then says EAGAIN).
const LOOKUPS: usize = 8;

/// A regular file, open for reading.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) fd: OwnedFd,
    pub(crate) id: FileId,
    pub(crate) size: u64,
    /// Time of last change, seconds and nanoseconds.
    pub(crate) modified: (i64, u32),
}

/// One version of one file: which file, its size, and the time of its last change in seconds and nanoseconds.
pub(crate) type FileVersion = (FileId, u64, (i64, u32));

impl Opened {
    /// The version that was opened.
    pub(crate) fn version(&self) -> FileVersion {
        (self.id, self.size, self.modified)
    }

    /// Whether it is still what it was when it was opened: an answer half of which is another version is worse than none.
    pub(crate) fn unchanged(&self) -> bool {
        rustix::fs::fstat(&self.fd).is_ok_and(|s| {
            (s.st_size as u64, (s.st_mtime, s.st_mtime_nsec as u32)) == (self.size, self.modified)
        })
    }
}

/// Its path as it is now, for people.
impl fmt::Display for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let link = format!("/proc/self/fd/{}", self.fd.as_raw_fd());
        match std::fs::read_link(link) {
            Ok(path) => path.display().fmt(f),
            Err(_) => write!(f, "a file of inode {}", self.id.ino),
        }
    }
}

impl AsFd for Opened {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The error of an answer whose file is not [`Opened::unchanged`].
pub(crate) fn changed() -> io::Error {
    io::Error::other("it changed while it was sent")
}

/// What a name leads to.
#[derive(Debug)]
pub(crate) enum Entry {
    /// A file.
    File(Opened),
    /// A folder, open for looking into it.
    Folder(OwnedFd),
}

/// Why nothing was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpenError {
    /// Looking it up would have to read a directory: try again where waiting is allowed.
    WouldWait,
    /// 404.
    NotFound,
    /// 403: not readable, not a file, or a link that leads out.
    Forbidden,
    /// 503: no descriptors or memory left.
    Exhausted,
    /// 500: the disk.
    Failed(Errno),
}

/// The folders whose files are served; the first that has a name wins.
#[derive(Debug)]
pub(crate) struct Tree {
    roots: Vec<OwnedFd>,
}

impl Tree {
    /// Opens the folders.
    ///
    /// # Errors
    /// A folder that is not there, or is none.
    pub(crate) fn open(roots: &[PathBuf]) -> Result<Tree, Fault> {
        let open = |path: &PathBuf| {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            // The dot asks for the right to enter the folder; without it every file there would be a 403.
            rustix::fs::open(path.join("."), flags, Mode::empty()).map_err(|e| {
                let exit = if e == Errno::ACCESS { Exit::Permission } else { Exit::Missing };
                Fault::new(exit, format!("cannot serve {}: {e}; name a folder", path.display()))
            })
        };
        Ok(Tree { roots: roots.iter().map(open).collect::<Result<_, _>>()? })
    }

    /// Opens a resolved, relative name. With `waiting` it may read directories from disk.
    pub(crate) fn get(&self, path: &Path, waiting: bool) -> Result<Entry, OpenError> {
        let mut last = OpenError::NotFound;
        for root in &self.roots {
            match open_below(root.as_fd(), path, waiting) {
                Err(OpenError::NotFound) => {}
                Err(other) if last == OpenError::NotFound && other != OpenError::WouldWait => last = other,
                other => return other,
            }
        }
        Err(last)
    }
}

/// Opens a name below an open folder.
pub(crate) fn open_below(root: BorrowedFd<'_>, path: &Path, waiting: bool) -> Result<Entry, OpenError> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    // Without O_NONBLOCK, opening a named pipe would wait for its writer.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let mut how = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    if !waiting {
        how |= ResolveFlags::CACHED;
    }
    let mut attempts = 0;
    let fd = loop {
        attempts += 1;
        match rustix::fs::openat2(root, path, flags, Mode::empty(), how) {
            Ok(fd) => break fd,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) if !waiting => return Err(OpenError::WouldWait),
            Err(Errno::AGAIN) if attempts < LOOKUPS => {}
            Err(Errno::AGAIN) => return Err(OpenError::Exhausted),
            Err(e) => return Err(refusal(e)),
        }
    };
    let stat = rustix::fs::fstat(&fd).map_err(OpenError::Failed)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => Ok(Entry::Folder(fd)),
        FileType::RegularFile => {
            // The kernel's own read-ahead is what we do better; a probe that misses must not start it.
            let _ = rustix::fs::fadvise(&fd, 0, None, rustix::fs::Advice::Random);
            let id = FileId { dev: stat.st_dev, ino: stat.st_ino };
            let modified = (stat.st_mtime, stat.st_mtime_nsec as u32);
            Ok(Entry::File(Opened { fd, id, size: stat.st_size as u64, modified }))
        }
        _ => Err(OpenError::Forbidden),
    }
}

fn refusal(error: Errno) -> OpenError {
    match error {
        Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG | Errno::INVAL | Errno::ILSEQ => {
            OpenError::NotFound
        }
        Errno::ACCESS | Errno::PERM | Errno::XDEV | Errno::LOOP | Errno::NXIO | Errno::NODEV => {
            OpenError::Forbidden
        }
        Errno::MFILE | Errno::NFILE | Errno::NOMEM => OpenError::Exhausted,
        other => OpenError::Failed(other),
    }
}

/// Whether this machine has `openat2` (Linux 5.6; some sandboxes hide it). Without it nothing can be served safely.
pub(crate) fn supported() -> bool {
    rustix::fs::openat2(CWD, "/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::NO_MAGICLINKS)
        .is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_cannot_lead_out_and_the_first_folder_wins() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        for root in [&a, &b] {
            fs::create_dir_all(root.join("sub")).unwrap();
        }
        fs::write(dir.path().join("secret"), "s").unwrap();
        fs::write(a.join("one"), "1").unwrap();
        fs::write(b.join("one"), "22").unwrap();
        fs::write(b.join("two"), "22").unwrap();
        symlink("../secret", a.join("out")).unwrap();
        symlink("/etc/passwd", a.join("absolute")).unwrap();
        symlink("../one", a.join("sub/in")).unwrap();
        symlink("loop", a.join("loop")).unwrap();
        rustix::fs::mknodat(CWD, a.join("pipe"), FileType::Fifo, Mode::RWXU, 0).unwrap();
        let tree = Tree::open(&[a, b]).unwrap();
        let get = |name: &str| match tree.get(Path::new(name), true) {
            Ok(Entry::File(file)) => Ok(file.size),
            Ok(Entry::Folder(_)) => Ok(u64::MAX),
            Err(e) => Err(e),
        };
        assert_eq!(get("one"), Ok(1));
        assert_eq!(get("two"), Ok(2));
        assert_eq!(get("sub/in"), Ok(1));
        assert_eq!(get("sub"), Ok(u64::MAX));
        assert_eq!(get(""), Ok(u64::MAX));
        for name in ["out", "absolute", "loop", "pipe"] {
            assert_eq!(get(name), Err(OpenError::Forbidden), "{name}");
        }
        for name in ["three", "one/x", &"n".repeat(300)] {
            assert_eq!(get(name), Err(OpenError::NotFound), "{name}");
        }
        // What was just opened is known to the kernel, and need not be waited for.
        assert!(matches!(tree.get(Path::new("one"), false), Ok(Entry::File(_)) | Err(OpenError::WouldWait)));
        assert!(Tree::open(&[dir.path().join("none")]).is_err());
    }

    #[test]
    fn a_change_under_way_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("f"), "1234").unwrap();
        let tree = Tree::open(&[dir.path().into()]).unwrap();
        let Ok(Entry::File(file)) = tree.get(Path::new("f"), true) else { panic!("no file") };
        assert!(file.unchanged());
        fs::OpenOptions::new().write(true).open(dir.path().join("f")).unwrap().set_len(2).unwrap();
        assert!(!file.unchanged());
    }
}
