//! A disk controlled by the test: a FUSE file system whose reads wait at a gate and fail on request, and
//! whose files can be made to hang when they are closed.

#![allow(unreachable_pub, reason = "one test file's own module")]

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, SystemTime};

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, Generation, INodeNo,
    LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, Request,
};

/// Size of every file. Files are named by their inode number, from 2 on.
pub const FILE_BYTES: u64 = 16 << 20;

const FOREVER: Duration = Duration::from_secs(3600);

#[derive(Default)]
struct State {
    closed: bool,
    /// Whether closing a descriptor waits from now on.
    closes_hang: bool,
    /// Closes that wait.
    closing: Vec<ReplyEmpty>,
    ended: bool,
    /// Inode, offset and reply of the reads that wait.
    waiting: VecDeque<(u64, u64, u32, ReplyData)>,
    fails: Range<u64>,
    /// Inode and offset of every read, in order of arrival.
    seen: Vec<(u64, u64)>,
    /// Maximum number of files with reads waiting at one time.
    files_at_once: usize,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

/// A mounted file system. Dropping it opens the gate and unmounts it.
pub struct Gated {
    shared: Arc<Shared>,
    session: Option<BackgroundSession>,
    folder: tempfile::TempDir,
}

impl Gated {
    /// `None`, with a message, if FUSE file systems cannot be mounted.
    pub fn mount() -> Option<Gated> {
        let folder = tempfile::tempdir().unwrap();
        let shared = Arc::new(Shared::default());
        match fuser::spawn_mount(Disk(shared.clone()), folder.path(), &Config::default()) {
            Ok(session) => {
                let for_disk = shared.clone();
                thread::spawn(move || serve(&for_disk));
                Some(Gated { shared, session: Some(session), folder })
            }
            Err(error) => {
                seekless_testing::skip::skipped(format!("no FUSE file system can be mounted ({error})"));
                None
            }
        }
    }

    pub fn open(&self, inode: u64) -> File {
        File::open(self.folder.path().join(inode.to_string())).unwrap()
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Evicts every page of a file, including mapped ones. Not while reads of it wait, because they lock
    /// their pages.
    pub fn evict(&self, inode: u64) {
        let notifier = self.session.as_ref().unwrap().notifier();
        notifier.inval_inode(INodeNo(inode), 0, 0).unwrap();
    }

    pub fn set_closed(&self, closed: bool) {
        self.shared.lock().closed = closed;
        self.shared.changed.notify_all();
    }

    /// From now on, closing a file waits for the end of the file system.
    pub fn hang_closes(&self) {
        self.shared.lock().closes_hang = true;
    }

    /// Number of closes that wait.
    pub fn closing(&self) -> usize {
        self.shared.lock().closing.len()
    }

    /// Reads in this range of any file fail from now on.
    pub fn fail(&self, range: Range<u64>) {
        self.shared.lock().fails = range;
    }

    pub fn seen(&self) -> Vec<(u64, u64)> {
        self.shared.lock().seen.clone()
    }

    pub fn files_at_once(&self) -> usize {
        self.shared.lock().files_at_once
    }
}

impl Drop for Gated {
    fn drop(&mut self) {
        {
            let mut state = self.shared.lock();
            (state.closed, state.ended, state.closes_hang) = (false, true, false);
            state.closing.drain(..).for_each(ReplyEmpty::ok);
        }
        self.shared.changed.notify_all();
        // Lazily, because the daemon may have files of it open for a moment longer, and then fuser's own
        // unmount gives up.
        let connection = std::fs::metadata(self.folder.path()).map(|folder| rustix::fs::minor(folder.dev()));
        let _ = rustix::mount::unmount(self.folder.path(), rustix::mount::UnmountFlags::DETACH);
        drop(self.session.take());
        if let Ok(connection) = connection {
            abort(connection);
        }
    }
}

/// Aborts a FUSE connection, even if its files are open. Otherwise this process would wait for itself at its
/// end, because closing a file asks the server, which is gone by then.
fn abort(connection: u32) {
    let control = tempfile::tempdir().unwrap();
    let flags = rustix::mount::MountFlags::empty();
    if rustix::mount::mount("none", control.path(), "fusectl", flags, None).is_ok() {
        let _ = std::fs::write(control.path().join(connection.to_string()).join("abort"), "1");
        let _ = rustix::mount::unmount(control.path(), rustix::mount::UnmountFlags::DETACH);
    }
}

/// Answers the reads one after the other, about as slowly as a disk.
fn serve(shared: &Shared) {
    let mut state = shared.lock();
    loop {
        while state.closed || state.waiting.is_empty() {
            if state.ended {
                return;
            }
            state = shared.changed.wait(state).unwrap();
        }
        let mut files: Vec<u64> = state.waiting.iter().map(|w| w.0).collect();
        files.sort_unstable();
        files.dedup();
        state.files_at_once = state.files_at_once.max(files.len());
        let Some((_, offset, size, reply)) = state.waiting.pop_front() else { continue };
        let fails = state.fails.start < offset + u64::from(size) && offset < state.fails.end;
        drop(state);
        thread::sleep(Duration::from_micros(300));
        match fails {
            true => reply.error(Errno::EIO),
            false => reply.data(&vec![1; size as usize]),
        }
        state = shared.lock();
    }
}

struct Disk(Arc<Shared>);

fn attributes(ino: INodeNo) -> FileAttr {
    let root = ino == INodeNo::ROOT;
    let time = SystemTime::UNIX_EPOCH;
    FileAttr {
        ino,
        size: if root { 0 } else { FILE_BYTES },
        blocks: FILE_BYTES / 512,
        atime: time,
        mtime: time,
        ctime: time,
        crtime: time,
        kind: if root { FileType::Directory } else { FileType::RegularFile },
        perm: if root { 0o755 } else { 0o644 },
        nlink: 1,
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

impl Filesystem for Disk {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match name.to_str().and_then(|n| n.parse().ok()) {
            Some(inode) if inode >= 2 => reply.entry(&FOREVER, &attributes(INodeNo(inode)), Generation(0)),
            _ => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&FOREVER, &attributes(ino));
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        let mut state = self.0.lock();
        match state.closes_hang {
            true => state.closing.push(reply),
            false => reply.ok(),
        }
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut state = self.0.lock();
        state.seen.push((ino.0, offset));
        state.waiting.push_back((ino.0, offset, size, reply));
        self.0.changed.notify_all();
    }
}
