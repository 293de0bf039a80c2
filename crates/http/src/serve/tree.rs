//! The served folders, and opening what lies below them.
//!
//! `openat2` with `RESOLVE_BENEATH` lets no symbolic link lead out of a folder, even if it is changed
//! meanwhile. With `RESOLVE_CACHED` it also never reads a directory from disk: an event loop tries that
//! first, and a helper thread opens only what the kernel cannot look up in memory.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::{Errno, ReadWriteFlags};
use seekless_base::{Exit, Fault};
use seekless_engine::lock;
use seekless_policy::FileId;

use crate::conditional::is_settled;

/// How often a lookup is repeated after a concurrent rename disturbed it (`RESOLVE_BENEATH` then returns
/// EAGAIN).
const LOOKUPS: usize = 8;

/// A regular file, open for reading.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) fd: OwnedFd,
    pub(crate) id: FileId,
    pub(crate) size: u64,
    /// Time of last change, seconds and nanoseconds.
    pub(crate) modified: (i64, u32),
    /// The first and the last marks of its bytes on their way to a client.
    marks: Mutex<Vec<Mark>>,
}

/// A write changes the time of its file first and its length later. A file with a new time and the same
/// length may be growing for this long. At half of this, a write that waits for memory counts as another
/// version; at double, an answer of another version goes on for longer if its marks have left memory.
const CHANGING: Duration = Duration::from_millis(200);

/// Whether a time lies within this duration before now.
fn is_younger(seconds: i64, nanoseconds: impl TryInto<u32>, than: Duration) -> bool {
    let (Ok(seconds), Ok(nanoseconds)) = (u64::try_from(seconds), nanoseconds.try_into()) else {
        return false;
    };
    let at = SystemTime::UNIX_EPOCH + Duration::new(seconds, nanoseconds);
    // The kernel's timestamps are up to a tick behind the clock, never ahead of it.
    at.elapsed().is_ok_and(|age| age < than)
}

/// Bytes of a mark. At half of this, repetitive text is mistaken sooner; at double, a mark takes two more
/// cache lines.
const MARK_BYTES: usize = 64;

/// Some bytes of a file and their offset.
#[derive(Clone, Copy, Debug)]
struct Mark {
    at: u64,
    bytes: [u8; MARK_BYTES],
}

impl Mark {
    /// The bytes at this offset; with `NOWAIT` only if they are in memory.
    fn of(file: &OwnedFd, at: u64, how: ReadWriteFlags) -> Option<Mark> {
        let mut bytes = [0; MARK_BYTES];
        let read = rustix::io::preadv2(file, &mut [io::IoSliceMut::new(&mut bytes)], at, how);
        (read == Ok(MARK_BYTES)).then_some(Mark { at, bytes })
    }

    /// Whether the file has these bytes at this offset. If they cannot be read, they count as unchanged.
    fn is_there(&self, file: &OwnedFd, how: ReadWriteFlags) -> bool {
        Mark::of(file, self.at, how).is_none_or(|now| now.bytes == self.bytes)
    }
}

/// One version of one file: which file, its size, and the time of its last change in seconds and nanoseconds.
pub(crate) type FileVersion = (FileId, u64, (i64, u32));

impl Opened {
    /// The version that was opened.
    pub(crate) fn version(&self) -> FileVersion {
        (self.id, self.size, self.modified)
    }

    /// Whether the file's bytes are still those that were there when it was opened: an answer of two versions
    /// is worse than no answer. A log, a recording or a segment of a live stream grows at its end, and its
    /// old bytes stay. The marks of a file tell that from a file that was rewritten and is longer.
    pub(crate) fn unchanged(&self) -> bool {
        self.looks_unchanged(ReadWriteFlags::NOWAIT)
    }

    /// The same, if the disk may be waited for: bytes that have left memory are compared as well.
    pub(crate) fn unchanged_on_disk(&self) -> bool {
        self.looks_unchanged(ReadWriteFlags::empty())
    }

    fn looks_unchanged(&self, how: ReadWriteFlags) -> bool {
        let Ok(now) = rustix::fs::fstat(&self.fd) else { return false };
        if (now.st_mtime, now.st_mtime_nsec as u32) == self.modified {
            return now.st_size as u64 == self.size;
        }
        let size = now.st_size as u64;
        let grows =
            size > self.size || (size == self.size && is_younger(now.st_mtime, now.st_mtime_nsec, CHANGING));
        grows && lock(&self.marks).iter().all(|mark| mark.is_there(&self.fd, how))
    }

    /// The bytes before `end` are on their way to a client. They should be in memory.
    pub(crate) fn mark(&self, end: u64) {
        let at = end.checked_sub(MARK_BYTES as u64);
        self.keep(at.and_then(|at| Mark::of(&self.fd, at, ReadWriteFlags::NOWAIT)));
    }

    /// The same for bytes that were read, the last of them before `end`.
    pub(crate) fn mark_read(&self, end: u64, read: &[u8]) {
        let mark =
            |bytes: &[u8; MARK_BYTES]| Some(Mark { at: end.checked_sub(MARK_BYTES as u64)?, bytes: *bytes });
        self.keep(read.last_chunk().and_then(mark));
    }

    fn keep(&self, mark: Option<Mark>) {
        let Some(mark) = mark else { return };
        let mut marks = lock(&self.marks);
        marks.truncate(1);
        marks.push(mark);
    }

    /// Whether a later change would get another time.
    pub(crate) fn is_settled(&self) -> bool {
        is_settled(self.modified.0, SystemTime::now())
    }
}

/// Its path as it is now, for messages.
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

/// The target of a name.
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
    /// The lookup has to read a directory: try again where waiting is allowed.
    WouldWait,
    /// 404.
    NotFound,
    /// 403: not readable, not a file, or a link that leads out of the tree.
    Forbidden,
    /// 503: no descriptors or memory left.
    Exhausted,
    /// 500: the disk failed.
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
    /// A path does not exist, or is not a folder.
    pub(crate) fn open(roots: &[PathBuf]) -> Result<Tree, Fault> {
        let open = |path: &PathBuf| {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            // The dot tests the right to enter the folder; without that right every file there would be a
            // 403.
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
            // The kernel's own read-ahead is switched off, because a probe that misses must not start it.
            let _ = rustix::fs::fadvise(&fd, 0, None, rustix::fs::Advice::Random);
            let id = FileId { dev: stat.st_dev, ino: stat.st_ino };
            let modified = (stat.st_mtime, stat.st_mtime_nsec as u32);
            Ok(Entry::File(Opened { fd, id, size: stat.st_size as u64, modified, marks: Mutex::default() }))
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

/// Whether this machine has `openat2` (Linux 5.6; some sandboxes hide it). Without it nothing can be served
/// safely.
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
        // The kernel has in memory what was just opened, so nothing has to be waited for.
        assert!(matches!(tree.get(Path::new("one"), false), Ok(Entry::File(_)) | Err(OpenError::WouldWait)));
        assert!(Tree::open(&[dir.path().join("none")]).is_err());
    }

    #[test]
    fn a_change_under_way_is_seen_and_growth_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let long = |byte: u8, bytes: usize| vec![byte; bytes];
        let changes = [
            ("cut", false),
            ("grown", true),
            ("grown twice", true),
            ("touched", false),
            ("about to grow", true),
            ("other bytes, as many", false),
            ("other bytes, more", false),
        ];
        for (change, good) in changes {
            fs::write(&path, long(1, 1000)).unwrap();
            let past = SystemTime::now() - Duration::from_secs(60);
            let writer = fs::OpenOptions::new().append(true).open(&path).unwrap();
            writer.set_modified(past).unwrap();
            let tree = Tree::open(&[dir.path().into()]).unwrap();
            let Ok(Entry::File(file)) = tree.get(Path::new("f"), true) else { panic!("no file") };
            assert!(file.unchanged());
            file.mark(500);
            let append = || std::io::Write::write_all(&mut &writer, &long(2, 10)).unwrap();
            match change {
                "cut" => writer.set_len(2).unwrap(),
                "grown" => append(),
                "grown twice" => {
                    append();
                    assert!(file.unchanged());
                    file.mark(900);
                    append();
                }
                "touched" => writer.set_modified(past + Duration::from_secs(1)).unwrap(),
                "about to grow" => writer.set_modified(SystemTime::now()).unwrap(),
                "other bytes, as many" => fs::write(&path, long(3, 1000)).unwrap(),
                _ => fs::write(&path, long(3, 1001)).unwrap(),
            }
            assert_eq!(file.unchanged(), good, "{change}");
        }
    }
}
