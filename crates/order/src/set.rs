//! Sets for programs: paths are added, items come out in the order of the disk.
//!
//! Places are looked up on the caller's thread, batch after batch. A thread of the set reads ahead of the
//! caller. It knows the caller's progress from the items that the caller has taken.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::{fs, io, vec};

use seekless_kernel::prefetch::Steps;
use smart_default::SmartDefault;

use crate::ahead::{Ahead, AheadSummary, Consumer, Gone, ReadBy, WAITING_MAX, Wanted};
use crate::batch::{self, BATCH_PATHS, Batch};
use crate::holes;
use crate::look::{self, By, Found, How, Look};
use crate::sequence::{At as Lies, Limits};
use crate::walk::{List, as_path};

/// Default of the bytes read ahead of the caller: half a second of a disk. At half, a caller that pauses for
/// long lets the disk pause as well; at double, it takes memory that most callers do not need.
pub const WINDOW: u64 = 64 << 20;

/// Options of a set.
#[derive(Clone, Debug, PartialEq, Eq, SmartDefault)]
pub struct Options {
    /// Maximum bytes that are read ahead and that the caller has not taken. Cut to half of the memory that
    /// this process may fill. 0: nothing is read ahead.
    #[default(WINDOW)]
    pub window: u64,
    /// Longest range, in bytes. A longer file comes as several items, one range after the other. 0: every
    /// file is one item. Ranges let a file that is larger than the window be read ahead to its end.
    pub range_max: u64,
    /// What to sort by.
    #[default(By::Address)]
    pub by: By,
    /// Replace a folder by the regular files below it. Symlinks below it are not followed.
    pub folders: bool,
    /// Maximum number of paths that are sorted together, which bounds memory. At least 1.
    #[default(BATCH_PATHS)]
    pub batch: u32,
    /// Let a daemon of Seekless read, if one answers. Otherwise this process reads.
    #[default(true)]
    pub daemon: bool,
}

/// The next file, or range of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The path as it was added, or below a folder that was.
    pub path: PathBuf,
    /// First byte of the range. 0 unless [`Options::range_max`] divides files.
    pub offset: u64,
    /// Bytes of the range when the file was looked up. A folder has none.
    pub length: u64,
    /// Whether it is the last item of its file.
    pub last: bool,
    /// How it was ordered.
    pub how: How,
    /// Which process read its bytes.
    pub read_by: ReadBy,
}

/// A path that cannot be ordered: it does not exist, is a loop of symlinks, or is neither a file nor a
/// folder. In one line, whatever bytes the path has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path:?}: {reason}")]
pub struct Failure {
    /// The path.
    pub path: PathBuf,
    /// The reason, in a few words.
    pub reason: String,
}

/// Paths in, items out.
///
/// Add paths until [`Set::is_full`], take items until there are none, add again. [`order`] does so for an
/// iterator of paths.
pub struct Set {
    list: List,
    look: Look,
    limits: Limits,
    range_max: u64,
    /// Whether ranges without data are left out.
    skips_holes: bool,
    /// The next items if nothing is read ahead, or they are in memory.
    ranges: Ranges,
    failures: VecDeque<Failure>,
    reader: Option<Reader>,
    counts: Counts,
}

/// Counts of what a set has looked up so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Files and folders.
    pub found: u64,
    /// Bytes of the files.
    pub bytes: u64,
    /// Batches, each sorted by itself.
    pub batches: u64,
}

impl fmt::Debug for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Set").field("counts", &self.counts).finish_non_exhaustive()
    }
}

impl Set {
    /// A set without paths.
    ///
    /// # Errors
    /// There are no threads left.
    pub fn new(options: &Options) -> io::Result<Set> {
        Set::of(List::new(Box::new(std::iter::empty()), None, options.folders), options)
    }

    /// A set of a list.
    ///
    /// # Errors
    /// There are no threads left.
    pub(crate) fn of(list: List, options: &Options) -> io::Result<Set> {
        let reader =
            (options.window > 0).then(|| Reader::start(options.window, options.daemon)).transpose()?;
        Ok(Set {
            list,
            look: Look::new(options.by),
            limits: batch::limits(options.batch.max(1)),
            range_max: if options.range_max == 0 { u64::MAX } else { options.range_max },
            skips_holes: false,
            ranges: Ranges::default(),
            failures: VecDeque::new(),
            reader,
            counts: Counts::default(),
        })
    }

    /// In divided files, leave out ranges that are holes: the next item may begin further on.
    #[cfg(feature = "cli")]
    pub(crate) fn without_holes(mut self) -> Set {
        self.skips_holes = true;
        self
    }

    /// Adds a path.
    pub fn add(&mut self, path: impl AsRef<Path>) {
        self.list.added.push_back(path.as_ref().as_os_str().as_bytes().to_vec());
    }

    /// Whether the maximum number of paths that are sorted together was added. More may be added, and take
    /// memory.
    pub fn is_full(&self) -> bool {
        self.list.added.len() >= self.limits.items
    }

    /// The counts so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The next item; `None`: all paths that were added are done. Failures of a batch come before its items.
    /// Waits for the disk.
    #[allow(clippy::should_implement_trait, reason = "it goes on after `None` when paths are added")]
    pub fn next(&mut self) -> Option<Result<Item, Failure>> {
        loop {
            if let Some(failure) = self.failures.pop_front() {
                return Some(Err(failure));
            }
            let here = self.ranges.next().map(|(item, ..)| item);
            if let Some(item) = here.or_else(|| self.reader.as_mut()?.next()) {
                return Some(Ok(item));
            }
            self.next_batch()?;
        }
    }

    /// The counts of reading ahead, as of the last batch; `None` if nothing is read ahead.
    #[cfg(feature = "cli")]
    pub(crate) fn ahead(&self) -> Option<AheadSummary> {
        self.reader.as_ref().map(|reader| reader.sums)
    }

    /// Why the list ended early, if it did.
    #[cfg(feature = "cli")]
    pub(crate) fn broken(&mut self) -> Option<io::Error> {
        self.list.broken.take()
    }

    fn next_batch(&mut self) -> Option<()> {
        let failures = &mut self.failures;
        let mut refuse = |path, reason| failures.push_back(Failure { path: path_of(path), reason });
        let ahead = self.reader.is_some();
        let Batch { found, in_memory } =
            batch::next(&mut self.list, &mut self.look, self.limits, ahead, &mut refuse)?;
        self.counts.batches += 1;
        self.counts.found += found.len() as u64;
        self.counts.bytes = found.iter().map(|f| f.bytes).fold(self.counts.bytes, u64::saturating_add);
        let files: Vec<File> = found
            .into_iter()
            .map(|found| File { steps: self.look.device(found.device).steps, found })
            .collect();
        let (range_max, skips_holes) = (self.range_max, self.skips_holes);
        let ranges = Ranges { rest: files.into_iter(), current: None, range_max, skips_holes };
        match &mut self.reader {
            Some(reader) if !in_memory => reader.give(ranges),
            _ => self.ranges = ranges,
        }
        Some(())
    }
}

/// Items of an iterator of paths, in the order of their disk.
///
/// Paths are taken from the iterator in batches ([`Options::batch`]), so it may be of any length.
///
/// # Errors
/// There are no threads left.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// let paths = std::fs::read_dir(".")?.filter_map(Result::ok).map(|entry| entry.path());
/// for item in seekless_order::order(paths, &seekless_order::Options::default())? {
///     match item {
///         Ok(item) => println!("{} ({} bytes, by {})", item.path.display(), item.length, item.how),
///         Err(failure) => eprintln!("{failure}"),
///     }
/// }
/// # Ok(())
/// # }
/// ```
pub fn order<I>(paths: I, options: &Options) -> io::Result<Ordered<I::IntoIter>>
where
    I: IntoIterator,
    I::Item: AsRef<Path>,
{
    Ok(Ordered { paths: paths.into_iter(), set: Set::new(options)? })
}

/// See [`order`].
#[derive(Debug)]
pub struct Ordered<I> {
    paths: I,
    set: Set,
}

impl<I: Iterator<Item: AsRef<Path>>> Iterator for Ordered<I> {
    type Item = Result<Item, Failure>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(next) = self.set.next() {
                return Some(next);
            }
            let mut added = false;
            while !self.set.is_full()
                && let Some(path) = self.paths.next()
            {
                self.set.add(path);
                added = true;
            }
            if !added {
                return None;
            }
        }
    }
}

/// A file of a batch.
#[derive(Debug)]
struct File {
    found: Found,
    steps: Option<Steps>,
}

/// The items of a batch: each with the way its file system is read ahead.
#[derive(Debug, Default)]
struct Ranges {
    rest: vec::IntoIter<File>,
    /// A file of which a part was given.
    current: Option<Cut>,
    range_max: u64,
    skips_holes: bool,
}

/// A file that is given in ranges.
#[derive(Debug)]
struct Cut {
    file: File,
    /// Where the next range begins.
    next: u64,
    /// Where holes are looked for; `None`: they are not, or it cannot be opened.
    open: Option<fs::File>,
}

impl Cut {
    /// Goes on behind a range that ends here: to the next data, or to the end.
    fn go_on(&mut self, end: u64) {
        let size = self.file.found.bytes;
        self.next = match &self.open {
            Some(open) => holes::next_data(open, end, size).map_or(size, |data| data.offset),
            None => end,
        };
    }
}

impl Iterator for Ranges {
    type Item = (Item, Option<Steps>, Option<u64>);

    fn next(&mut self) -> Option<Self::Item> {
        let mut cut = match self.current.take() {
            Some(cut) => cut,
            None => {
                let file = self.rest.next()?;
                let looks = self.skips_holes && file.found.bytes > self.range_max;
                let open = looks.then(|| look::open(as_path(&file.found.path)).ok()).flatten();
                let mut cut = Cut { file, next: 0, open };
                cut.go_on(0);
                if cut.next == cut.file.found.bytes {
                    // Every file has an item.
                    cut.next = 0;
                    cut.open = None;
                    cut.file.found.bytes = cut.file.found.bytes.min(self.range_max);
                }
                cut
            }
        };
        let (found, steps, offset) = (&cut.file.found, cut.file.steps, cut.next);
        let (how, length) = (found.how, (found.bytes - offset).min(self.range_max));
        let address = match found.place.at {
            Lies::Address(address) => Some(address),
            Lies::Inode(_) => None,
        };
        cut.go_on(offset + length);
        let last = cut.next == cut.file.found.bytes;
        let path = if last {
            path_of(cut.file.found.path)
        } else {
            let path = OsStr::from_bytes(&cut.file.found.path).into();
            self.current = Some(cut);
            path
        };
        Some((Item { path, offset, length, last, how, read_by: ReadBy::Nobody }, steps, address))
    }
}

/// What the reading thread says.
enum Message {
    /// The bytes of this item are in memory.
    Ready(Item),
    /// The batch has ended.
    End(AheadSummary),
}

/// How far the caller is.
#[derive(Debug, Default)]
struct Progress {
    place: Mutex<At>,
    moved: Condvar,
}

#[derive(Clone, Copy, Debug, Default)]
struct At {
    /// Items taken.
    taken: u64,
    /// The set is gone.
    gone: bool,
}

impl Progress {
    /// A panic of the other side leaves two numbers, which are right.
    fn locked(&self) -> MutexGuard<'_, At> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The caller as the reading thread sees it.
struct Caller {
    ready: SyncSender<Message>,
    progress: Arc<Progress>,
    seen: u64,
}

impl Consumer for Caller {
    type Item = Item;

    fn weight(_: &Item) -> u64 {
        1
    }

    fn read_by(item: &mut Item, by: ReadBy) {
        item.read_by = by;
    }

    fn give(&mut self, item: Item) -> Result<(), Gone> {
        self.ready.send(Message::Ready(item)).map_err(|_| Gone)
    }

    fn taken(&mut self) -> u64 {
        self.seen = self.progress.locked().taken;
        self.seen
    }

    fn wait(&mut self) -> Result<(), Gone> {
        let mut at = self.progress.locked();
        while at.taken == self.seen && !at.gone {
            at = self.progress.moved.wait(at).unwrap_or_else(PoisonError::into_inner);
        }
        if at.gone { Err(Gone) } else { Ok(()) }
    }
}

/// The thread that reads ahead.
struct Reader {
    batches: Option<Sender<Ranges>>,
    /// Gone before the thread is waited for.
    said: Option<Receiver<Message>>,
    progress: Arc<Progress>,
    thread: Option<JoinHandle<()>>,
    /// A batch is being read.
    busy: bool,
    sums: AheadSummary,
}

impl Reader {
    fn start(window: u64, daemon: bool) -> io::Result<Reader> {
        let progress = Arc::new(Progress::default());
        // One batch is under way at a time.
        let (batches, received) = channel::<Ranges>();
        let (ready, said) = sync_channel(WAITING_MAX);
        let caller = Caller { ready, progress: Arc::clone(&progress), seen: 0 };
        let thread = thread::Builder::new().name("seekless-order".to_string()).spawn(move || {
            // The signals of the program that uses the set are for its own threads.
            seekless_kernel::sched::block_signals();
            let mut ahead = Ahead::new(caller, window, daemon);
            // The set has gone, or has no more batches.
            while let Ok(ranges) = received.recv()
                && read(&mut ahead, ranges).is_ok()
            {}
        })?;
        Ok(Reader {
            batches: Some(batches),
            said: Some(said),
            progress,
            thread: Some(thread),
            busy: false,
            sums: AheadSummary::default(),
        })
    }

    /// Gives it a batch to read.
    fn give(&mut self, ranges: Ranges) {
        self.busy = self.batches.as_ref().is_some_and(|batches| batches.send(ranges).is_ok());
    }

    /// The next item of the batch.
    fn next(&mut self) -> Option<Item> {
        if !self.busy {
            return None;
        }
        match self.said.as_ref().map(Receiver::recv) {
            Some(Ok(Message::Ready(item))) => {
                self.progress.locked().taken += 1;
                self.progress.moved.notify_one();
                Some(item)
            }
            Some(Ok(Message::End(sums))) => {
                (self.sums, self.busy) = (sums, false);
                None
            }
            _ => {
                self.busy = false;
                None
            }
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.progress.locked().gone = true;
        self.progress.moved.notify_one();
        (self.batches, self.said) = (None, None);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Reads a batch ahead of the caller.
fn read(ahead: &mut Ahead<Caller>, ranges: Ranges) -> Result<(), Gone> {
    for (item, steps, address) in ranges {
        let path = item.path.as_os_str().as_bytes().to_vec();
        let wanted = (item.length > 0).then_some(Wanted {
            path: &path,
            offset: item.offset,
            len: if item.last { u64::MAX } else { item.length },
            steps,
            address,
            last: item.last,
        });
        ahead.add(item, wanted)?;
    }
    ahead.drain()?;
    let sums = ahead.sums;
    ahead.consumer().ready.send(Message::End(sums)).map_err(|_| Gone)
}

fn path_of(bytes: Vec<u8>) -> PathBuf {
    std::ffi::OsString::from_vec(bytes).into()
}
