//! How long a deleted file is held open: [`LOOK_EVERY`] and [`IN_USE`].
//!
//! A deleted file keeps its blocks until its last descriptor is closed. So a thread beside each disk's thread
//! checks the link count of each open file, and reports files without links to the disk's thread. The last
//! close of a deleted file frees its blocks, which takes the disk a while; on a network file system it asks
//! the server.
//!
//! The thread makes every call on files that a file system can block: it also closes them, and checks what of
//! them is still in memory. If such a call hangs, neither the disk's reads nor its clients wait; evictions
//! are then noticed by the next miss.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};
use rustix::fs::{AtFlags, StatxFlags, statx};
use seekless_base::wants::PROGRESS_STEP;
use seekless_kernel::deferred::Closer;
use seekless_kernel::prefetch::Source;
use seekless_kernel::residency::{missing_prefix, page_bytes, resident_prefix};
use seekless_policy::FileId;

use crate::door::readable_file;
use crate::lock;
use crate::worker::{Report, short_name};

/// Interval between checks of the link counts. Together with [`IN_USE`], a deleted file is closed within a
/// second of its last use. Half of it costs twice as much; at double, it takes two seconds.
const LOOK_EVERY: Duration = Duration::from_millis(600);

/// A check takes a microsecond a file. The next one starts no sooner than after this many times its duration,
/// so that checks take at most a hundredth of a processor, however many files are open.
const LOOK_SHARE: u32 = 100;

/// A file without a link that was used within this time is in use: a program's temporary file, or a film that
/// was deleted while it is shown. At half, such a file is opened more often; at double, this and
/// [`LOOK_EVERY`] together exceed a second.
pub(crate) const IN_USE: Duration = Duration::from_millis(300);

/// Maximum number of queued checks of memory. Beyond it a check is dropped, and the next miss finds what it
/// would have found. At half, a disk of a thousand streams with a slow file system loses some checks; at
/// double, checks are done long after they were decided.
const LOOKS_MAX: usize = 1024;

/// Maximum number of deleted files reported at once; the others are reported by the next check.
const DELETED_MAX: usize = 1024;

/// Interval at which [`Errand::Wait`] checks whether its files are closed.
const CLOSED_EVERY: Duration = Duration::from_millis(5);

/// Calls a function when the last clone is dropped: when the last thread has closed its files.
pub(crate) struct Left(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl Left {
    pub(crate) fn then(call: impl FnOnce() + Send + 'static) -> Arc<Left> {
        Arc::new(Left(Mutex::new(Some(Box::new(call)))))
    }

    /// Disarms it, because some thread could not be reached: the function is never called.
    pub(crate) fn never(&self) {
        lock(&self.0).take();
    }
}

impl Drop for Left {
    fn drop(&mut self) {
        if let Some(call) = lock(&self.0).take() {
            call();
        }
    }
}

enum Errand {
    /// Closes a descriptor. Each was open, so the queue holds no more of them than there are descriptors.
    Close(OwnedFd),
    /// Finds the first missing bytes of this range in memory.
    Look { file: FileId, source: Arc<Source>, offset: u64, len: u64 },
    /// Looks up the name of a file that is being closed.
    Name(Arc<Source>, Box<dyn FnOnce(&Source) + Send>),
    /// Drops the `Left` once these are closed.
    Wait(Vec<Weak<Source>>, Arc<Left>),
}

type Known = Arc<Mutex<HashMap<FileId, Weak<Source>>>>;

/// The disk thread's handle. The other thread ends when it is dropped.
pub(crate) struct FileThread {
    known: Known,
    errands: Sender<Errand>,
    closer: Closer,
    pub(crate) deleted: Receiver<FileId>,
}

impl FileThread {
    /// Starts the thread of a disk. It sends missing bytes that it finds to `report`.
    ///
    /// # Errors
    /// No thread can be started.
    pub(crate) fn start(disk: &str, report: Sender<Report>) -> io::Result<FileThread> {
        // Bounded by what is sent: descriptors, LOOKS_MAX, and file systems that are being released.
        let (errands, to_do) = unbounded();
        let (delete, deleted) = bounded(DELETED_MAX);
        let known = Known::default();
        let looked_at = known.clone();
        let run = move || run(&looked_at, &to_do, &delete, &report);
        thread::Builder::new().name(short_name("files", disk)).spawn(run)?;
        let to = errands.clone();
        // After the thread has ended, the descriptor comes back and is closed here.
        let closer: Closer = Arc::new(move |fd| drop(to.send(Errand::Close(fd))));
        Ok(FileThread { known, errands, closer, deleted })
    }

    /// Makes this thread close the descriptor of a source, unless another closer is set.
    pub(crate) fn closes(&self, source: &Source) {
        source.closed_by(&self.closer);
    }

    pub(crate) fn opened(&self, file: FileId, source: &Arc<Source>) {
        lock(&self.known).insert(file, Arc::downgrade(source));
    }

    /// The disk's thread has closed it.
    pub(crate) fn closed(&self, file: FileId) {
        lock(&self.known).remove(&file);
    }

    /// Finds the first missing byte of this range in memory, and reports it.
    pub(crate) fn look(&self, file: FileId, source: Arc<Source>, offset: u64, len: u64) {
        if self.errands.len() < LOOKS_MAX {
            let _ = self.errands.send(Errand::Look { file, source, offset, len });
        }
    }

    /// Has the name of a file looked up before its last descriptor is closed.
    pub(crate) fn name(&self, source: Arc<Source>, look: impl FnOnce(&Source) + Send + 'static) {
        if self.errands.len() < LOOKS_MAX {
            let _ = self.errands.send(Errand::Name(source, Box::new(look)));
        }
    }

    /// Drops `left` once these files are closed.
    pub(crate) fn wait(&self, files: Vec<Weak<Source>>, left: Arc<Left>) {
        if let Err(error) = self.errands.send(Errand::Wait(files, left))
            && let Errand::Wait(_, left) = error.into_inner()
        {
            left.never();
        }
    }
}

fn run(known: &Known, errands: &Receiver<Errand>, delete: &Sender<FileId>, report: &Sender<Report>) {
    let mut due = Instant::now() + LOOK_EVERY;
    let mut waiting: Vec<(Vec<Weak<Source>>, Arc<Left>)> = Vec::new();
    loop {
        // A descriptor is sent to be closed a moment after its source is dropped, so wait for one round more.
        let over: Vec<Arc<Left>> =
            waiting.extract_if(.., |(files, _)| files.is_empty()).map(|(_, left)| left).collect();
        for (files, _) in &mut waiting {
            files.retain(|file| file.strong_count() > 0);
        }
        let pause = due.saturating_duration_since(Instant::now());
        let waits = !waiting.is_empty() || !over.is_empty();
        let mut errand = errands.recv_timeout(if waits { pause.min(CLOSED_EVERY) } else { pause });
        loop {
            match errand {
                Ok(Errand::Close(fd)) => drop(fd),
                Ok(Errand::Name(source, look)) => look(&source),
                Ok(Errand::Wait(files, left)) => waiting.push((files, left)),
                Ok(Errand::Look { file, source, offset, len }) => {
                    let missing = first_missing(&source, offset, len);
                    drop(source);
                    if let Some((offset, len)) = missing {
                        let _ = report.send(Report::Missing { file, offset, len });
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            errand = match errands.try_recv() {
                Ok(errand) => Ok(errand),
                Err(_) => break,
            };
        }
        drop(over);
        let now = Instant::now();
        if now >= due {
            look(known, delete);
            due = now + LOOK_EVERY.max(now.elapsed() * LOOK_SHARE);
        }
    }
}

/// Reports the files that have no link left.
fn look(known: &Known, delete: &Sender<FileId>) {
    let files: Vec<(FileId, Weak<Source>)> =
        lock(known).iter().map(|(&file, source)| (file, source.clone())).collect();
    for (file, source) in files {
        let Some(source) = source.upgrade() else { continue };
        if links(&source) == Some(0) && delete.try_send(file).is_err() {
            return;
        }
    }
}

/// The link count of a file, without asking a file server.
fn links(source: &Source) -> Option<u32> {
    let at = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    statx(source.as_fd(), "", at, StatxFlags::NLINK).ok().map(|about| about.stx_nlink)
}

/// The first missing range in memory. Later checks or misses find the rest.
fn first_missing(source: &Source, offset: u64, len: u64) -> Option<(u64, u64)> {
    // Bytes cut off from a file since it was last read have not been evicted.
    let (_, edition) = readable_file(source.as_fd())?;
    let len = len.min(edition.size.saturating_sub(offset));
    let there = resident_prefix(source.as_fd(), offset, len).ok()?;
    if there >= len {
        return None;
    }
    let (hole, most) = (offset + there, PROGRESS_STEP.min(len - there));
    // The first page is missing, whatever is reported of the others.
    let missing = missing_prefix(source.as_fd(), hole, most).unwrap_or(0).max(page_bytes());
    Some((hole, missing))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: FileId = FileId { dev: 1, ino: 2 };

    fn thread() -> FileThread {
        FileThread::start("test", bounded(1).0).unwrap()
    }

    fn source(file: &std::fs::File) -> Arc<Source> {
        Arc::new(Source::own(file.try_clone().unwrap().into()))
    }

    #[test]
    fn a_file_whose_last_link_goes_is_told_and_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let [kept, gone] = ["kept", "gone"].map(|name| folder.path().join(name));
        let files = [&kept, &gone].map(|path| std::fs::File::create(path).unwrap());
        let sources = files.each_ref().map(source);
        let links = thread();
        links.opened(FileId { ino: 9, ..FILE }, &sources[0]);
        links.opened(FILE, &sources[1]);
        assert!(links.deleted.recv_timeout(2 * LOOK_EVERY).is_err());
        std::fs::remove_file(&gone).unwrap();
        assert_eq!(links.deleted.recv_timeout(Duration::from_secs(30)), Ok(FILE));
        let [_, gone] = sources;
        links.closed(FILE);
        drop(gone);
        links.deleted.try_iter().for_each(drop);
        assert!(links.deleted.recv_timeout(2 * LOOK_EVERY).is_err());
    }

    #[test]
    fn who_waits_for_files_is_told_when_the_last_holder_has_closed_them() {
        let links = thread();
        let source = source(&tempfile::tempfile().unwrap());
        let (told, closed) = bounded(1);
        let left = Left::then(move || told.send(()).unwrap());
        links.wait(vec![Arc::downgrade(&source)], left);
        let reads = source.clone();
        links.closes(&source);
        drop(source);
        assert!(closed.recv_timeout(Duration::from_millis(100)).is_err(), "a read of it is under way");
        drop(reads);
        closed.recv_timeout(Duration::from_secs(30)).unwrap();
        let left = Left::then(|| panic!("it was not left"));
        left.never();
        drop(left);
    }
}
