//! Files that are read before their readers open them: a thread beside a disk's thread that may wait for the
//! disk.
//!
//! ```text
//!  disk thread -- Report: a head or an end was read, answered --> Successors (which files are next)
//!              <- Order: bring the head of this file in, cancel -- Folder (lists, opens)
//! ```
//!
//! [`seekless_policy::successors`] decides which files, how many and until when. Listing a folder and opening
//! a file may read from the disk, so a thread of its own does it: no reader and no other disk waits. A folder
//! or file that cannot be listed or opened is skipped. Only descriptors of files whose heads are being
//! requested are kept, so that a file system can be unmounted.

mod folder;

use std::collections::{HashMap, HashSet};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use seekless_base::{Lba, Nanos};
use seekless_kernel::prefetch::{Source, Steps};
use seekless_kernel::residency::resident_prefix;
use seekless_policy::successors::{Action, FILES_AHEAD_MAX, Read, Stats, Successors, TURN_MAX, head, room};
use seekless_policy::{Demand, Event, FileId, PAGE, Reason, Request, RequestId, Verdict};

use crate::addresses::Edition;
use crate::disk_thread::{DiskLoop, Pending};
use crate::door::{Completion, OnAnswer};
use crate::lock;
use crate::snapshot::Snapshot;
use crate::worker::short_name;
use folder::{Folder, Permissions, folder_of};

/// First id of requests for files ahead; ids of doors' requests start at 1.
const PREDICTED_IDS: u64 = 1 << 61;

/// Maximum number of messages queued for the thread. Reads are dropped at half of it, so that the end of a
/// request always gets through. At a quarter of it, a folder that is slow to list loses reads of fast
/// programs.
const REPORTS_MAX: usize = 8 * FILES_AHEAD_MAX as usize;

/// Maximum number of folders whose paths are remembered before they are listed.
const SEEN_MAX: usize = 1024;

/// Files that were brought in for a user ([`PrefetchedFiles::take`]).
///
/// A user proves with a descriptor that it may read a file, and its reports count for such files only. A file
/// opened for the user without a descriptor is remembered here until it is first read.
#[derive(Debug, Default)]
pub struct PrefetchedFiles(Mutex<HashSet<(u32, FileId)>>);

impl PrefetchedFiles {
    /// Whether this file was brought in for this reader and has not been read since.
    pub fn take(&self, reader: u32, file: FileId) -> bool {
        lock(&self.0).remove(&(reader, file))
    }

    /// Whether all such files have been read.
    pub fn is_empty(&self) -> bool {
        lock(&self.0).is_empty()
    }
}

/// What the disk's thread reports.
pub(crate) enum Report {
    /// The head of a file was read, or its end, or both.
    Read(Box<ReadReport>),
    /// The requested bytes are in memory, or will not come.
    Answered { reader: u32, file: FileId, resident: bool },
    /// A request of a reader in disk order passed.
    PassedInDiskOrder { reader: u32 },
}

/// A read of the head or the end of a file.
pub(crate) struct ReadReport {
    pub(crate) reader: u32,
    pub(crate) file: FileId,
    pub(crate) offset: u64,
    pub(crate) len: u64,
    /// How to read the file, if it is open.
    pub(crate) open: Option<ReportedFile>,
}

/// An open file.
pub(crate) struct ReportedFile {
    pub(crate) source: Arc<Source>,
    pub(crate) edition: Edition,
    pub(crate) lba: Option<Lba>,
    pub(crate) on: FileSystem,
}

/// Start of a file's file system on its disk, and the sizes of read-ahead calls there.
#[derive(Clone, Copy)]
pub(crate) struct FileSystem {
    pub(crate) start: u64,
    pub(crate) steps: Steps,
}

/// What the disk's thread must do.
pub(crate) enum Order {
    /// Bring in these bytes, in disk order.
    Prefetch(Box<FilePrefetch>),
    /// No reader comes for them.
    Cancel(RequestId),
}

/// Bytes of a file that no reader requested.
pub(crate) struct FilePrefetch {
    pub(crate) id: RequestId,
    pub(crate) reader: u32,
    pub(crate) file: FileId,
    pub(crate) source: Source,
    pub(crate) edition: Edition,
    pub(crate) on: FileSystem,
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

/// The disk thread's handle.
pub(crate) struct NextFiles {
    report: Sender<Report>,
    pub(crate) orders: Receiver<Order>,
}

impl NextFiles {
    /// Starts the thread of a disk. It ends when the returned handle is dropped.
    ///
    /// # Errors
    /// No thread can be started.
    pub(crate) fn start(
        disk: &str,
        began: Instant,
        snapshot: Arc<Mutex<Snapshot>>,
        prefetched: Arc<PrefetchedFiles>,
    ) -> std::io::Result<NextFiles> {
        let (report, reports) = bounded(REPORTS_MAX);
        let (order, orders) = bounded(FILES_AHEAD_MAX as usize);
        let stats = lock(&snapshot).next_files.clone();
        let opener = Opener {
            successors: Successors::new(0),
            began,
            order,
            snapshot,
            stats,
            prefetched,
            seen: HashMap::new(),
            folders: HashMap::new(),
            asked: HashMap::new(),
            next_id: PREDICTED_IDS,
        };
        thread::Builder::new().name(short_name("next", disk)).spawn(move || opener.run(&reports))?;
        Ok(NextFiles { report, orders })
    }

    /// Reports a read of a head or an end. Lossy: dropped if the thread is behind.
    pub(crate) fn read(&self, read: ReadReport) {
        if self.report.len() < REPORTS_MAX / 2 {
            let _ = self.report.try_send(Report::Read(Box::new(read)));
        }
    }

    /// Reports that a reader in disk order was left alone for a while. Lossy.
    pub(crate) fn passed_in_disk_order(&self, reader: u32) {
        if self.report.len() < REPORTS_MAX / 2 {
            let _ = self.report.try_send(Report::PassedInDiskOrder { reader });
        }
    }

    /// Called when the requested bytes are in memory or will not come.
    pub(crate) fn on_answer(&self, reader: u32, file: FileId) -> impl FnOnce(bool) + Send + use<> {
        let report = self.report.clone();
        move |resident| {
            let _ = report.try_send(Report::Answered { reader, file, resident });
        }
    }
}

impl DiskLoop {
    /// Reports reads of heads and ends, which show what comes next. Not while the disk is left to its
    /// readers, or may sleep.
    pub(crate) fn read(&mut self, reader: u32, file: FileId, offset: u64, len: u64) {
        let Some(next_files) = self.next_files.as_ref().filter(|_| !self.resting && self.is_awake()) else {
            return;
        };
        let size = self.files.get(file).map(|open| open.edition.size);
        if offset != 0 && size.is_none_or(|size| offset.saturating_add(len) < size) {
            return;
        }
        let lba = self.files.locate(file, 0).and_then(|(lba, _)| lba);
        let open = self.files.get(file).map(|open| {
            let on = FileSystem { start: open.start, steps: open.steps };
            ReportedFile { source: open.source.clone(), edition: open.edition, lba, on }
        });
        next_files.read(ReadReport { reader, file, offset, len, open });
    }

    /// A request was answered. If it passed for disk order, its reader asks no more for a while, which is
    /// reported.
    pub(crate) fn answered(&self, reader: u32, verdict: Verdict) {
        if let (Verdict::Pass(Reason::DiskOrder), Some(next_files)) = (verdict, &self.next_files) {
            next_files.passed_in_disk_order(reader);
        }
    }

    pub(crate) fn order(&mut self, order: Order) {
        match order {
            Order::Prefetch(ask) => self.prefetch(*ask),
            Order::Cancel(id) => self.event(Event::Cancel(id)),
        }
    }

    fn prefetch(&mut self, ask: FilePrefetch) {
        let Some(next_files) = &self.next_files else { return };
        let FilePrefetch { id, reader, file, source, edition, on, offset, len } = ask;
        let answered = next_files.on_answer(reader, file);
        let source = self.files.open(file, edition, on.start, on.steps, Arc::new(source));
        let lba = self.files.locate(file, offset).and_then(|(lba, _)| lba);
        let on_answer: OnAnswer = Box::new(|outcome| answered(matches!(outcome, Completion::Resident(_))));
        let (need_offset, need_len) = (offset, len);
        let pending =
            Pending { reader, on_answer, file, source, need_offset, need_len, answer_is_read: false };
        self.pending.insert(id, pending);
        let deadline = Some(self.at(Instant::now()) + TURN_MAX);
        let demand = Demand { deadline, predicted: true, ..Demand::default() };
        let (from, file_size) = (0, edition.size);
        self.event(Event::Request(Request { id, file, from, offset, len, file_size, lba, demand }));
    }
}

/// A folder in which a reader has read a file.
struct Seen {
    path: PathBuf,
    /// Name of that file.
    name: std::ffi::OsString,
    file: FileId,
    permissions: Permissions,
    on: FileSystem,
}

/// The state of the thread.
struct Opener {
    successors: Successors,
    began: Instant,
    order: Sender<Order>,
    snapshot: Arc<Mutex<Snapshot>>,
    stats: Arc<Mutex<Stats>>,
    prefetched: Arc<PrefetchedFiles>,
    seen: HashMap<(u32, FileId), Seen>,
    folders: HashMap<(u32, FileId), (Folder, FileSystem)>,
    /// Files ahead: their requests and sizes.
    asked: HashMap<(u32, FileId), (RequestId, u64)>,
    next_id: u64,
}

impl Opener {
    fn now(&self) -> Nanos {
        Nanos(self.began.elapsed().as_nanos() as u64)
    }

    fn run(mut self, reports: &Receiver<Report>) {
        loop {
            let message = match self.successors.next_deadline() {
                None => reports.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(at) => reports
                    .recv_timeout(Duration::from_nanos(at.0.saturating_sub(self.now().0).max(1_000_000))),
            };
            let now = self.now();
            match message {
                Ok(Report::Read(read)) => self.read(now, &read),
                Ok(Report::Answered { reader, file, resident: true }) => {
                    self.successors.arrived(reader, file)
                }
                Ok(Report::Answered { reader, file, resident: false }) => self.leave(reader, file),
                Ok(Report::PassedInDiskOrder { reader }) => self.successors.passed_in_disk_order(reader),
                Err(RecvTimeoutError::Timeout) => self.successors.tick(now),
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if !self.act() {
                return;
            }
            *lock(&self.stats) = self.successors.stats();
        }
    }

    fn read(&mut self, now: Nanos, read: &ReadReport) {
        let ReadReport { reader, file, offset, len, .. } = *read;
        let ahead = if offset == 0 { self.asked.remove(&(reader, file)) } else { None };
        let open_size = read.open.as_ref().map(|open| open.edition.size);
        let Some(size) = open_size.or(ahead.map(|ahead| ahead.1)) else { return };
        if offset == 0 {
            self.prefetched.take(reader, file);
            self.successors.room(room(lock(&self.snapshot).engine.budget));
        }
        let folder = match &read.open {
            Some(open) if offset == 0 && ahead.is_none() => self.folder(reader, file, open),
            _ => None,
        };
        let place = read.open.as_ref().and_then(|open| Some((open.lba?, size)));
        let (head, end) = (offset == 0, offset.saturating_add(len) >= size);
        self.successors.read(now, Read { reader, file, folder, head, end, place });
    }

    /// The folder of a file that was read. How to find it again is remembered.
    fn folder(&mut self, reader: u32, file: FileId, open: &ReportedFile) -> Option<FileId> {
        let (path, name, folder) = folder_of(open.source.as_fd())?;
        let key = (reader, folder);
        if folder.dev == file.dev && !self.folders.contains_key(&key) && !self.seen.contains_key(&key) {
            if self.seen.len() >= SEEN_MAX {
                self.seen.clear();
            }
            let permissions = Permissions::of(open.source.as_fd())?;
            self.seen.insert(key, Seen { path, name, file, permissions, on: open.on });
        }
        Some(folder)
    }

    /// Executes pending actions. Returns `false` if the disk's thread has ended.
    fn act(&mut self) -> bool {
        let mut opens = Vec::new();
        loop {
            while let Some(action) = self.successors.poll() {
                match action {
                    Action::List { reader, folder } => self.list(reader, folder),
                    Action::Open { reader, folder, entry, file } => opens.push((reader, folder, entry, file)),
                    Action::Withdraw { reader, file } => {
                        opens.retain(|open| (open.0, open.3) != (reader, file));
                        self.prefetched.take(reader, file);
                        let asked = self.asked.remove(&(reader, file));
                        if asked.is_some_and(|asked| self.order.send(Order::Cancel(asked.0)).is_err()) {
                            return false;
                        }
                    }
                }
            }
            if opens.is_empty() {
                return true;
            }
            // Files made together have their inodes in one block.
            opens.sort_unstable_by_key(|&(reader, folder, _, file)| (reader, folder, file));
            let mut at: Option<((u32, FileId), _)> = None;
            for (reader, folder, entry, file) in opens.drain(..) {
                let key = (reader, folder);
                let Some((listed, on)) = self.folders.get(&key) else {
                    self.leave(reader, file);
                    continue;
                };
                if at.as_ref().is_none_or(|at| at.0 != key) {
                    at = Some((key, listed.open(folder)));
                }
                let dir = at.as_ref().and_then(|at| at.1.as_ref());
                let found = dir.and_then(|dir| listed.open_file(dir, entry as usize, file));
                let (Some((source, edition)), on) = (found, *on) else {
                    self.leave(reader, file);
                    continue;
                };
                if !self.prefetch(reader, file, source, edition, on) {
                    return false;
                }
            }
        }
    }

    fn list(&mut self, reader: u32, folder: FileId) {
        let key = (reader, folder);
        let listed = self.seen.remove(&key).and_then(|seen| {
            let Seen { path, name, file, permissions, on } = seen;
            Some((Folder::list(path, folder, &name, file, permissions)?, on))
        });
        let Some(((listed, entries), on)) = listed else { return self.successors.closed(reader, folder) };
        let now = self.now();
        self.folders.insert(key, (listed, on));
        self.successors.listed(now, reader, folder, &entries);
        let Opener { folders, successors, .. } = self;
        folders.retain(|&(reader, folder), _| successors.is_listed(reader, folder));
    }

    /// Requests the head of a file. Returns `false` if the disk's thread has ended.
    fn prefetch(
        &mut self,
        reader: u32,
        file: FileId,
        source: Source,
        edition: Edition,
        on: FileSystem,
    ) -> bool {
        let last = head(edition.size);
        // If the kernel does not report residency, everything is requested: the worker finds what is in
        // memory.
        let there = resident_prefix(source.as_fd(), 0, last).unwrap_or(0) / PAGE * PAGE;
        let len = last.saturating_sub(there);
        let id = RequestId(self.next_id);
        self.next_id += 1;
        self.successors.opened(reader, file, len);
        self.asked.insert((reader, file), (id, edition.size));
        lock(&self.prefetched.0).insert((reader, file));
        let ask = FilePrefetch { id, reader, file, source, edition, on, offset: there, len };
        len == 0 || self.order.send(Order::Prefetch(Box::new(ask))).is_ok()
    }

    /// A file will not be read ahead.
    fn leave(&mut self, reader: u32, file: FileId) {
        self.asked.remove(&(reader, file));
        self.prefetched.take(reader, file);
        self.successors.unusable(reader, file);
    }
}
