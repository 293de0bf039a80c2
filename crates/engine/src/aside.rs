//! A thread beside each disk's, for calls on its files that a file system can hold up: closing them, looking
//! at what of them is still in memory, and whether they were deleted. One that hangs holds up neither the
//! disk's reads nor its clients: evictions are then noticed by the next miss.
//!
//! A file keeps its blocks until nobody has it open. So it is looked how many links each open file has, and
//! the disk's thread is told of those that have none left. The last close of a deleted file frees its blocks,
//! which takes the disk a while, and that of a file server's file asks the server.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};
use rustix::fs::{AtFlags, StatxFlags, statx};
use seekless_kernel::deferred::Closer;
use seekless_kernel::prefetch::Source;
use seekless_kernel::residency::{missing_prefix, page_bytes, resident_prefix};
use seekless_policy::FileId;
use seekless_wants::PROGRESS_STEP;

use crate::door::readable_file;
use crate::lock;
use crate::worker::{Report, short_name};

/// How often the links are looked at. With [`IN_USE`] a deleted file is let go of within a second of its last
/// use. Half of it costs twice as much; at double it is two seconds.
const LOOK_EVERY: Duration = Duration::from_millis(600);

/// A look takes a microsecond a file. It is repeated no sooner than after so many times what it took: a
/// hundredth of a processor, however many files are open.
const LOOK_SHARE: u32 = 100;

/// A file without a link that was used within this time is in use: a program's temporary file, or a film that
/// was deleted while it is shown. At half of it such a file is opened more often; at double it and
/// [`LOOK_EVERY`] are more than a second.
pub(crate) const IN_USE: Duration = Duration::from_millis(300);

/// Most looks into memory in line. One that finds no room is left out: what it would find is found by the
/// next miss. At half of it a disk of a thousand streams whose file system is slow for a moment misses some,
/// at double it looks for what was decided upon long ago.
const LOOKS_MAX: usize = 1024;

/// Most deleted files told at once; the others are told at the next look.
const DELETED_MAX: usize = 1024;

/// While somebody waits for files to be closed, it is looked this often whether they are.
const CLOSED_EVERY: Duration = Duration::from_millis(5);

/// Called when it is dropped: by the last of those who have something to let go of.
pub(crate) struct Left(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl Left {
    pub(crate) fn then(call: impl FnOnce() + Send + 'static) -> Arc<Left> {
        Arc::new(Left(Mutex::new(Some(Box::new(call)))))
    }

    /// Somebody could not be told: it is never called.
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
    /// As many as were open at once, so never more than descriptors.
    Close(OwnedFd),
    /// Looks for the first of these bytes that is missing.
    Look { file: FileId, source: Arc<Source>, offset: u64, len: u64 },
    /// To be dropped once these are closed.
    Wait(Vec<Weak<Source>>, Arc<Left>),
}

type Known = Arc<Mutex<HashMap<FileId, Weak<Source>>>>;

/// The disk thread's end. The other thread ends with it.
pub(crate) struct Aside {
    known: Known,
    errands: Sender<Errand>,
    closer: Closer,
    pub(crate) deleted: Receiver<FileId>,
}

impl Aside {
    /// Starts the thread of a disk. What it finds missing goes to `report`.
    ///
    /// # Errors
    /// No thread can be had.
    pub(crate) fn start(disk: &str, report: Sender<Report>) -> io::Result<Aside> {
        // Bounded by what is sent: descriptors, LOOKS_MAX, and file systems that are released.
        let (errands, to_do) = unbounded();
        let (delete, deleted) = bounded(DELETED_MAX);
        let known = Known::default();
        let looked_at = known.clone();
        let run = move || run(&looked_at, &to_do, &delete, &report);
        thread::Builder::new().name(short_name("aside", disk)).spawn(run)?;
        let to = errands.clone();
        // After the end of the thread the descriptor comes back and is closed here.
        let closer: Closer = Arc::new(move |fd| drop(to.send(Errand::Close(fd))));
        Ok(Aside { known, errands, closer, deleted })
    }

    /// Has the descriptor of a source closed there, unless somebody else does.
    pub(crate) fn closes(&self, source: &Source) {
        source.closed_by(&self.closer);
    }

    /// A file is open.
    pub(crate) fn opened(&self, file: FileId, source: &Arc<Source>) {
        lock(&self.known).insert(file, Arc::downgrade(source));
    }

    /// It is no more, as far as the disk's thread is concerned.
    pub(crate) fn closed(&self, file: FileId) {
        lock(&self.known).remove(&file);
    }

    /// Looks for the first byte of these that is missing, and reports it.
    pub(crate) fn look(&self, file: FileId, source: Arc<Source>, offset: u64, len: u64) {
        if self.errands.len() < LOOKS_MAX {
            let _ = self.errands.send(Errand::Look { file, source, offset, len });
        }
    }

    /// Drops `left` when these files are closed.
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
        // A descriptor is sent to be closed a moment after its source is gone, so these wait for one round
        // more.
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

/// Tells of the files that have no link left.
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

/// What is known of it, without asking a file server.
fn links(source: &Source) -> Option<u32> {
    let at = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    statx(source.as_fd(), "", at, StatxFlags::NLINK).ok().map(|about| about.stx_nlink)
}

/// The first hole in memory. The rest is looked for, or missed, later.
fn first_missing(source: &Source, offset: u64, len: u64) -> Option<(u64, u64)> {
    // What a file has lost since it was last read has not been evicted.
    let (_, edition) = readable_file(source.as_fd())?;
    let len = len.min(edition.size.saturating_sub(offset));
    let there = resident_prefix(source.as_fd(), offset, len).ok()?;
    if there >= len {
        return None;
    }
    let (hole, most) = (offset + there, PROGRESS_STEP.min(len - there));
    // Its first page is missing, whatever is told of the others.
    let missing = missing_prefix(source.as_fd(), hole, most).unwrap_or(0).max(page_bytes());
    Some((hole, missing))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: FileId = FileId { dev: 1, ino: 2 };

    fn aside() -> Aside {
        Aside::start("test", bounded(1).0).unwrap()
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
        let links = aside();
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
        let links = aside();
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
