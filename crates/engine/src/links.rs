//! Files that were deleted while they are open here, and the end of open files.
//!
//! A file keeps its blocks until nobody has it open. So a thread beside each disk's looks how many links each
//! open file has, and tells the disk's thread of those that have none left. It closes files as well: the last
//! close of a deleted file frees its blocks, which takes the disk a while, and that of a file server's file
//! asks the server. Neither is to hold up the disk's thread.

use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use rustix::fs::{AtFlags, StatxFlags, statx};
use seekless_kernel::prefetch::Source;
use seekless_policy::FileId;

use crate::lock;
use crate::worker::short_name;

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

/// Most files on their way to be closed. Beyond it, which takes a file server that hangs, the disk's thread
/// closes them itself. Twice as many descriptors were kept at double.
const CLOSING_MAX: usize = 4096;

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

enum Closing {
    File(Arc<Source>),
    /// To be dropped once these are closed.
    Waits(Vec<Weak<Source>>, Arc<Left>),
}

type Known = Arc<Mutex<HashMap<FileId, Weak<Source>>>>;

/// The disk thread's end. The other thread ends with it.
pub(crate) struct Links {
    known: Known,
    closing: Sender<Closing>,
    pub(crate) deleted: Receiver<FileId>,
}

impl Links {
    /// Starts the thread of a disk.
    ///
    /// # Errors
    /// No thread can be had.
    pub(crate) fn start(disk: &str) -> io::Result<Links> {
        let (closing, to_close) = bounded(CLOSING_MAX);
        let (delete, deleted) = bounded(DELETED_MAX);
        let known = Known::default();
        let looked_at = known.clone();
        let run = move || run(&looked_at, &to_close, &delete);
        thread::Builder::new().name(short_name("links", disk)).spawn(run)?;
        Ok(Links { known, closing, deleted })
    }

    /// A file is open.
    pub(crate) fn opened(&self, file: FileId, source: &Arc<Source>) {
        lock(&self.known).insert(file, Arc::downgrade(source));
    }

    /// It need not be, as far as the disk's thread is concerned.
    pub(crate) fn close(&self, file: FileId, source: Arc<Source>) {
        lock(&self.known).remove(&file);
        self.drop(source);
    }

    /// Lets go of a file elsewhere: it may be the last to have it open.
    pub(crate) fn drop(&self, source: Arc<Source>) {
        let _ = self.closing.try_send(Closing::File(source));
    }

    /// Drops `left` when these files are closed.
    pub(crate) fn wait(&self, files: Vec<Weak<Source>>, left: Arc<Left>) {
        if let Err(error) = self.closing.try_send(Closing::Waits(files, left))
            && let Closing::Waits(_, left) = error.into_inner()
        {
            left.never();
        }
    }
}

fn run(known: &Known, to_close: &Receiver<Closing>, delete: &Sender<FileId>) {
    let mut due = Instant::now() + LOOK_EVERY;
    let mut waiting: Vec<(Vec<Weak<Source>>, Arc<Left>)> = Vec::new();
    loop {
        let pause = due.saturating_duration_since(Instant::now());
        let pause = if waiting.is_empty() { pause } else { pause.min(CLOSED_EVERY) };
        match to_close.recv_timeout(pause) {
            Ok(Closing::File(source)) => drop(source),
            Ok(Closing::Waits(files, left)) => waiting.push((files, left)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        for (files, _) in &mut waiting {
            files.retain(|file| file.strong_count() > 0);
        }
        waiting.retain(|(files, _)| !files.is_empty());
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

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: FileId = FileId { dev: 1, ino: 2 };

    fn source(file: &std::fs::File) -> Arc<Source> {
        Arc::new(Source::own(file.try_clone().unwrap().into()))
    }

    #[test]
    fn a_file_whose_last_link_goes_is_told_and_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let [kept, gone] = ["kept", "gone"].map(|name| folder.path().join(name));
        let files = [&kept, &gone].map(|path| std::fs::File::create(path).unwrap());
        let sources = files.each_ref().map(source);
        let links = Links::start("test").unwrap();
        links.opened(FileId { ino: 9, ..FILE }, &sources[0]);
        links.opened(FILE, &sources[1]);
        assert!(links.deleted.recv_timeout(2 * LOOK_EVERY).is_err());
        std::fs::remove_file(&gone).unwrap();
        assert_eq!(links.deleted.recv_timeout(Duration::from_secs(30)), Ok(FILE));
        let [_, gone] = sources;
        links.close(FILE, gone);
        links.deleted.try_iter().for_each(drop);
        assert!(links.deleted.recv_timeout(2 * LOOK_EVERY).is_err());
    }

    #[test]
    fn who_waits_for_files_is_told_when_the_last_holder_has_closed_them() {
        let links = Links::start("test").unwrap();
        let source = source(&tempfile::tempfile().unwrap());
        let (told, closed) = bounded(1);
        let left = Left::then(move || told.send(()).unwrap());
        links.wait(vec![Arc::downgrade(&source)], left);
        let reads = source.clone();
        links.close(FILE, source);
        assert!(closed.recv_timeout(Duration::from_millis(100)).is_err(), "a read of it is under way");
        drop(reads);
        closed.recv_timeout(Duration::from_secs(30)).unwrap();
        let left = Left::then(|| panic!("it was not left"));
        left.never();
        drop(left);
    }
}
