//! The thread that finds files: from an inode number to an open file under one of the folders, which it hands
//! to the engine.
//!
//! It tries three ways, the cheapest first: by number, if the file system supports opening by number (ext4);
//! by the handle that the kernel reported when the file was opened; by a walk through the folders, for files
//! opened before. It is a thread of its own because each way may wait for a disk. It keeps no file and no
//! folder open between two searches.

use std::collections::{HashMap, HashSet};
use std::mem;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use lru::LruCache;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use seekless_engine::{Engine, ForwardedCall, lock, recent};
use seekless_frontend::status::ObserveReport;
use seekless_kernel::fanotify::Opens;
use seekless_kernel::handle::FileHandle;
use seekless_kernel::prefetch::Source;
use seekless_kernel::residency::{cachestat, page_bytes};
use seekless_policy::{IoPriority, Taken};

use super::reads::{Inode, Seen};
use super::scan::{Scan, open_folder};
use super::table::Answer;
use super::volume::Volume;
use crate::counts::Counts;
use crate::watch::scope::path_of;

/// Maximum number of remembered handles, about 150 bytes each. The kernel reports every file opened on the
/// file system.
const HANDLES_MAX: usize = 16_384;

/// Maximum number of files that wait for a walk. Beyond it a file is unknown until its next search.
const WANTED_MAX: usize = 4096;

/// Minimum time between two walks; below, a multiple of the duration of the last one. So walks take a
/// twentieth of the time of one thread, and of the disk if the names are not in memory.
const SCAN_AGAIN: Duration = Duration::from_secs(10);
const SCAN_SHARE: u32 = 20;

/// Interval at which the kernel's queue of opened files is emptied.
const ROUND: Duration = Duration::from_millis(50);

/// A file to look for, and its reads; none if its head is missing and it is read for the first time.
pub(crate) struct Search {
    pub(crate) inode: Inode,
    pub(crate) reads: Vec<Seen>,
    /// The process that read it last.
    pub(crate) pid: u32,
}

/// Seconds for which a written file counts as still being written. A search waits for less than this in its
/// queue. At half, a slow disk's search may mistake a written file for one that was read; at double, a file
/// that is read right after it was written is followed from its second read for twice as long.
const LATELY: i64 = 10;

pub(crate) struct Finder {
    volumes: Arc<[Volume]>,
    engine: Engine,
    counts: Arc<Counts<ObserveReport>>,
    /// Queues of opened files, for the volumes that need them.
    opens: Vec<((u32, u32), Opens)>,
    handles: LruCache<Inode, FileHandle>,
    /// Files that only a walk can find.
    wanted: HashMap<Inode, Vec<Seen>>,
    /// The current walk, with its volume and the files found.
    scan: Option<(usize, Scan, HashMap<u64, PathBuf>)>,
    /// The volumes still to walk through in this round.
    to_scan: Vec<usize>,
    scan_began: Instant,
    scan_after: Instant,
}

impl Finder {
    pub(crate) fn new(volumes: Arc<[Volume]>, engine: Engine, counts: Arc<Counts<ObserveReport>>) -> Finder {
        let mut opens: Vec<((u32, u32), Opens)> = Vec::new();
        for volume in volumes.iter().filter(|v| !v.by_number) {
            if opens.iter().any(|(dev, _)| *dev == volume.dev) {
                continue;
            }
            match Opens::of(&volume.path) {
                Ok(group) => opens.push((volume.dev, group)),
                Err(why) => {
                    tracing::warn!(folder = %volume.path.display(), ?why, "the kernel does not report opened files; they are found by walking the folders");
                }
            }
        }
        let now = Instant::now();
        Finder {
            volumes,
            engine,
            counts,
            opens,
            handles: recent(HANDLES_MAX),
            wanted: HashMap::new(),
            scan: None,
            to_scan: Vec::new(),
            scan_began: now,
            scan_after: now,
        }
    }

    /// Looks for files until all senders are dropped.
    pub(crate) fn run(mut self, searches: &Receiver<Search>, answers: &Sender<(Inode, Answer)>) {
        loop {
            let pause = if self.scan.is_some() { Duration::ZERO } else { ROUND };
            match searches.recv_timeout(pause) {
                Ok(search) => self.search(search, answers),
                Err(RecvTimeoutError::Timeout) => self.hear(),
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.scan(answers);
        }
    }

    /// Empties the kernel's queue of opened files.
    fn hear(&mut self) {
        let (handles, counts) = (&mut self.handles, &self.counts);
        for (dev, group) in &self.opens {
            let lost = group.drain(|handle| {
                if let Some(ino) = handle.inode() {
                    handles.put(Inode { dev: *dev, ino }, handle);
                }
            });
            counts.count(|c| c.opens_lost += lost);
        }
    }

    fn search(&mut self, search: Search, answers: &Sender<(Inode, Answer)>) {
        self.counts.count(|c| c.looked_for += 1);
        self.hear();
        let Search { inode, reads, pid } = search;
        match self.open(inode) {
            Some((file, volume)) => {
                let answer = self.hand_over(file, volume, (inode, pid), &reads);
                let _ = answers.send((inode, answer));
            }
            None => {
                let walks = self.volumes.iter().any(|v| v.dev == inode.dev && !v.by_number);
                if walks && reads.is_empty() {
                    let _ = answers.send((inode, Answer::Later));
                } else if walks && self.wanted.len() < WANTED_MAX {
                    self.wanted.insert(inode, reads);
                } else {
                    self.counts.count(|c| c.unknown += 1);
                    let _ = answers.send((inode, Answer::Unknown));
                }
            }
        }
    }

    fn open(&self, inode: Inode) -> Option<(OwnedFd, usize)> {
        let flags = open_flags().bits() as i32;
        self.volumes.iter().enumerate().filter(|(_, v)| v.dev == inode.dev).find_map(|(index, volume)| {
            // The folder is open for this moment only, so that its file system can be unmounted otherwise.
            let folder = open_folder(&volume.path).ok()?;
            let by_number =
                || FileHandle::of_number(folder.as_fd(), inode.ino)?.open(folder.as_fd(), flags).ok();
            let by_handle = || self.handles.peek(&inode)?.open(folder.as_fd(), flags).ok();
            Some((by_number().or_else(by_handle)?, index))
        })
    }

    /// Hands a file and its reads to the engine.
    fn hand_over(&self, file: OwnedFd, volume: usize, (inode, pid): (Inode, u32), reads: &[Seen]) -> Answer {
        let Ok(about) = rustix::fs::fstat(&file) else { return self.unknown() };
        // A deleted file: its last readers may finish, and we must not keep its blocks allocated.
        let gone = about.st_nlink == 0;
        let regular = FileType::from_raw_mode(about.st_mode) == FileType::RegularFile;
        if gone || !regular || about.st_ino != inode.ino {
            return self.unknown();
        }
        // The file may lie under any folder of its file system, not only the one through which it was opened.
        let path = path_of(file.as_fd());
        let volumes = self.volumes.iter().filter(|v| v.dev == self.volumes[volume].dev);
        if !volumes.into_iter().any(|v| v.whole || path.as_ref().is_some_and(|p| p.starts_with(&v.path))) {
            self.counts.count(|c| c.outside += 1);
            return Answer::Refused;
        }
        let size = about.st_size as u64;
        // Its first byte stands for a read in progress.
        let head = Seen { inode, start: 0, end: 1, taken: Taken::Unknown, pid };
        let missed = reads.is_empty();
        if missed && !is_read(file.as_fd(), about.st_mtime) {
            return Answer::Later;
        }
        let mut reads = reads.iter().filter(|read| read.start < size);
        let first = match reads.next() {
            Some(first) => first,
            None if missed => &head,
            // All reads lie beyond the end: the file was cut short since.
            None => return self.unknown(),
        };
        let Ok(call) = ForwardedCall::of(file.as_fd(), first.start, first.end - first.start) else {
            return self.unknown();
        };
        let call = ForwardedCall { pid: first.pid, ..call };
        self.engine.hit(&call, first.taken, Source::own(file));
        let devices = lock(self.engine.devices());
        if devices.reader_of(call.file).is_none() {
            self.counts.count(|c| c.not_a_disk += 1);
            return match devices.serves_none_of(call.file.dev) {
                true => Answer::NotServed,
                false => Answer::Refused,
            };
        }
        self.counts.count(|c| c.found += 1);
        match missed {
            true => self.counts.missed(&devices, pid, call.file, 0..0, IoPriority::NORMAL),
            false => self.counts.count(|c| c.accesses += 1),
        }
        for read in reads {
            self.counts.forward(&devices, call.file, read);
        }
        Answer::Found(call.file)
    }

    fn unknown(&self) -> Answer {
        self.counts.count(|c| c.unknown += 1);
        Answer::Unknown
    }

    /// Continues a walk, or starts one if files wait for it and it is time.
    fn scan(&mut self, answers: &Sender<(Inode, Answer)>) {
        if self.scan.is_none() {
            let now = Instant::now();
            if self.to_scan.is_empty() && (self.wanted.is_empty() || now < self.scan_after) {
                return;
            }
            if self.to_scan.is_empty() {
                self.to_scan = (0..self.volumes.len()).filter(|&v| !self.volumes[v].by_number).collect();
                self.scan_began = now;
                self.counts.count(|c| c.scans += 1);
            }
            let Some(index) = self.to_scan.pop() else { return };
            let volume = &self.volumes[index];
            self.scan = Some((index, Scan::of(&volume.path, volume.st_dev), HashMap::new()));
        }
        let Some((index, scan, found)) = &mut self.scan else { return };
        let index = *index;
        let dev = self.volumes[index].dev;
        let wanted: HashSet<u64> =
            self.wanted.keys().filter(|inode| inode.dev == dev).map(|inode| inode.ino).collect();
        if !wanted.is_empty() && !scan.step(&wanted, found) {
            return;
        }
        let found = mem::take(found);
        self.scan = None;
        for (ino, path) in found {
            let inode = Inode { dev, ino };
            let Some(reads) = self.wanted.remove(&inode) else { continue };
            let answer = match rustix::fs::open(&path, open_flags() | OFlags::NOFOLLOW, Mode::empty()) {
                Ok(file) => {
                    // Its next search needs no walk, as long as its handle is remembered.
                    if let Ok(handle) = FileHandle::of(file.as_fd()) {
                        self.handles.put(inode, handle);
                    }
                    self.hand_over(file, index, (inode, 0), &reads)
                }
                Err(_) => self.unknown(),
            };
            let _ = answers.send((inode, answer));
        }
        if self.to_scan.is_empty() {
            // After a complete walk, files still wanted are not there.
            for inode in mem::take(&mut self.wanted).into_keys() {
                let _ = answers.send((inode, self.unknown()));
            }
            let now = Instant::now();
            self.scan_after = now + SCAN_AGAIN.max((now - self.scan_began) * SCAN_SHARE);
        }
    }
}

/// Whether the first page was brought into memory to be read: it is there, or in flight, and was not written.
/// A kernel without `cachestat` (before 6.5) does not tell; there a file is read if nothing was written to it
/// lately, because each write sets its time before its page.
fn is_read(file: BorrowedFd<'_>, written: i64) -> bool {
    match cachestat(file, 0, page_bytes()) {
        Ok(page) => page.cached > 0 && page.dirty + page.writeback == 0,
        Err(e) if e.raw_os_error() == Some(Errno::NOSYS.raw_os_error()) => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_secs() as i64);
            now.saturating_sub(written) > LATELY
        }
        Err(_) => false,
    }
}

/// Without `NONBLOCK`, opening would wait for a file with a lease; without `NOATIME`, our reads would write
/// access times.
fn open_flags() -> OFlags {
    OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::NOATIME
}

/// Whether files of this file system can be opened by number; tested with its own folder.
pub(super) fn opens_by_number(folder: &Path) -> bool {
    let opened = || {
        let folder = open_folder(folder).ok()?;
        let number = rustix::fs::fstat(&folder).ok()?.st_ino;
        let again = FileHandle::of_number(folder.as_fd(), number)?
            .open(folder.as_fd(), OFlags::PATH.bits() as i32)
            .ok()?;
        (rustix::fs::fstat(again).ok()?.st_ino == number).then_some(())
    };
    opened().is_some()
}
