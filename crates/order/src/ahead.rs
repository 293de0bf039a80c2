//! Reading ahead of the consumer.
//!
//! A file is read into memory first and then handed to the consumer. So a consumer with many threads still
//! finds every file in memory, while one thread reads the disk in one order. Several files are in flight
//! together, so that the disk has a queue.
//!
//! If a daemon answers, the daemon reads (`daemon`): it orders the reads of all sets and servers of a disk.
//! Files are then handed on as they arrive, and the ranges of a divided file in order. If no daemon
//! answers, or the daemon ends, this thread reads them.
//!
//! The consumer reports its progress ([`Consumer::taken`]): the reader of a pipe by the unread bytes in the
//! pipe (`pipe`), a program by the items that it has taken (`set`).

use std::collections::VecDeque;
use std::fs::Metadata;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use seekless_base::words;
use seekless_kernel::memory::{self, Refaults};
use seekless_kernel::prefetch::{self, Source, Steps};
use seekless_kernel::residency;
use seekless_wire::{FileSetReady, PassReason, WAIT_MS_MAX};

use crate::daemon::Daemon;
use crate::holes::{self, Stretch};
use crate::look;
use crate::walk::as_path;
use crate::window::Window;

/// Maximum number of files in flight. A disk with a queue of 32 commands orders within it. At half, the queue
/// may run dry between two large files; at double, more descriptors are open for nothing.
const UNDER_WAY_MAX: usize = 64;

/// Maximum bytes in flight, and the step in which longer files are read: a twentieth of a second of a disk.
/// At half, a fast disk waits between steps; at double, the first paths of a batch come later.
const UNDER_WAY_BYTES: u64 = 8 << 20;

/// Maximum number of files in flight if a daemon reads; each is an open descriptor here. At half, the daemon
/// has less to order; at double, a program with the usual limit of 1,024 descriptors has few left.
const ADDED_MAX: usize = 256;

/// Interval at which the consumer's progress is checked during a wait for the daemon. At half, there are more
/// wake-ups; at double, the daemon learns later that there is room.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A daemon that has delivered nothing for this long, although the consumer has taken everything, is given
/// up: a little longer than a daemon lets a request wait.
const GIVE_UP_AFTER: Duration = Duration::from_millis(WAIT_MS_MAX + 5_000);

/// The window halves if more than one byte in this number was read twice. At half, a tenth of the disk's time
/// is lost; at double, reads of other programs in the group shrink the window.
const AGAIN: u64 = 20;

/// Maximum number of stretches of data of one range that are read ahead; the consumer reads the others. At
/// half, it reads more of a file with many holes; at double, one such file occupies the disk for longer.
const STRETCHES_MAX: usize = 256;

/// Maximum number of items that are in memory and that the consumer has not taken. The window bounds them as
/// well; this is for a large window of tiny files. At half, such a window is not filled.
pub(crate) const WAITING_MAX: usize = 100_000;

/// The result of reading ahead.
#[derive(Clone, Copy, Debug, Default)]
#[cfg_attr(feature = "cli", derive(serde::Serialize))]
#[cfg_attr(not(feature = "cli"), allow(dead_code, reason = "the summaries of the commands have it"))]
pub(crate) struct AheadSummary {
    /// The window: maximum bytes ahead of the consumer, the requested number or half of the memory if that is
    /// less.
    pub(crate) window: u64,
    /// The smallest window, because files were evicted before they were used.
    pub(crate) least: u64,
    /// Most bytes that were ahead of the consumer.
    pub(crate) furthest: u64,
    /// Bytes that were read, or were in memory already.
    pub(crate) bytes: u64,
    /// Files left to the consumer: not readable here, on no disk, or with read errors.
    pub(crate) left: u64,
    /// Of the files, those that a daemon read.
    pub(crate) by_daemon: u64,
    /// Of the files, those that this process read.
    pub(crate) by_itself: u64,
}

/// Which process read the bytes of an item.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ReadBy {
    /// None: it has no bytes, they were in memory, or they are left to the consumer.
    #[default]
    Nobody,
    /// This process.
    Itself,
    /// The daemon of Seekless, in one order with all other reads of the disk.
    Daemon,
}

words! { ReadBy: Nobody = "nobody", Itself = "itself", Daemon = "daemon" }

/// The consumer has ended.
#[derive(Debug)]
pub(crate) struct Gone;

/// A consumer of items in order.
pub(crate) trait Consumer {
    /// The consumer's item for a file.
    type Item;

    /// How far an item moves its position.
    fn weight(item: &Self::Item) -> u64;

    /// Stores in an item which process read its file.
    fn read_by(_: &mut Self::Item, _: ReadBy) {}

    /// Hands it an item whose file is in memory.
    ///
    /// # Errors
    /// The consumer has ended.
    fn give(&mut self, item: Self::Item) -> Result<(), Gone>;

    /// Its position: the weight of all items that it has taken. It may be too low while items are on their
    /// way, never too high.
    fn taken(&mut self) -> u64;

    /// Waits until it may have taken more.
    ///
    /// # Errors
    /// The consumer has ended.
    fn wait(&mut self) -> Result<(), Gone>;
}

/// A range of a file to read ahead.
#[derive(Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) path: &'a [u8],
    pub(crate) offset: u64,
    /// Maximum bytes; the file may end before.
    pub(crate) len: u64,
    /// How to read ahead on its file system; `None`: not at all.
    pub(crate) steps: Option<Steps>,
    /// Disk address of the file's first byte, if known.
    pub(crate) address: Option<u64>,
    /// Whether it is the last range of its file.
    pub(crate) last: bool,
}

/// A file in flight.
struct UnderWay<T> {
    /// What is read of it; `None`: it is left to the consumer.
    reads: Option<(Source, Steps)>,
    item: T,
    /// The ranges that are read: all but holes.
    stretches: Vec<Stretch>,
    /// Bytes that are read.
    len: u64,
    /// Bytes that count in the window.
    reserved: u64,
    /// Whether it is a whole file, not one of several ranges.
    whole: bool,
    /// Whether it is the last range of its file.
    last: bool,
    /// Its number at the daemon; `None`: the daemon does not know it.
    number: Option<u32>,
    /// Whether no read has to be waited for.
    ready: bool,
}

/// A file that was handed on, to be checked when it is taken.
struct Probe {
    file: Source,
    stretch: Stretch,
    /// The consumer's position behind it.
    position: u64,
}

/// Reads files and hands them on.
pub(crate) struct Ahead<C: Consumer> {
    window: Window,
    under_way: VecDeque<UnderWay<C::Item>>,
    under_way_bytes: u64,
    consumer: C,
    probe: Option<Probe>,
    /// `None` if no control group has a limit.
    refaults: Option<Refaults>,
    /// At the last check: bytes that the kernel had counted as read again, and bytes that had been read.
    again: (u64, u64),
    /// The counts so far.
    pub(crate) sums: AheadSummary,
    /// The daemon that reads, if it is not this thread.
    daemon: Option<Daemon>,
    next_number: u32,
    /// Ranges that the daemon has read and the consumer has not taken: the position behind each, and its
    /// number.
    untaken: VecDeque<(u64, u32)>,
    /// A file of which a range was handed on, but not the last.
    in_file: bool,
}

impl<C: Consumer> Ahead<C> {
    /// Reads ahead of `consumer`, at most by `size` bytes and by half of the memory. `ask`: let a daemon
    /// read, if one answers.
    pub(crate) fn new(consumer: C, size: u64, ask: bool) -> Ahead<C> {
        let half = memory::page_cache_limit().map_or(u64::MAX, |limit| limit / 2);
        let size = size.min(half).max(residency::page_bytes());
        let daemon = ask.then(|| Daemon::ask(size)).flatten();
        let window = Window::new(daemon.as_ref().map_or(size, |daemon| daemon.window.min(size)));
        let sums = AheadSummary { window: window.size(), least: window.size(), ..AheadSummary::default() };
        let refaults = Refaults::of_group();
        Ahead {
            window,
            under_way: VecDeque::new(),
            under_way_bytes: 0,
            consumer,
            probe: None,
            again: (refaults.as_ref().and_then(Refaults::bytes).unwrap_or(0), 0),
            refaults,
            sums,
            daemon,
            next_number: 0,
            untaken: VecDeque::new(),
            in_file: false,
        }
    }

    /// Starts reading the file of the next item. Without `wanted`, the item is handed on in its turn, and
    /// nothing is read. Waits while the window is full.
    ///
    /// # Errors
    /// The consumer has ended.
    pub(crate) fn add(&mut self, item: C::Item, wanted: Option<Wanted<'_>>) -> Result<(), Gone> {
        let (offset, is_wanted) = (wanted.as_ref().map_or(0, |wanted| wanted.offset), wanted.is_some());
        let last = wanted.as_ref().is_none_or(|wanted| wanted.last);
        let mut address = wanted.as_ref().and_then(|wanted| wanted.address?.checked_add(wanted.offset));
        let opened = wanted.and_then(|wanted| {
            let steps = wanted.steps?;
            let file = look::open(as_path(wanted.path)).ok()?;
            let meta = file.metadata().ok().filter(Metadata::is_file)?;
            if holes::lacks_blocks(meta.len(), meta.blocks()) {
                // In a file with holes, addresses do not rise with offsets.
                address = None;
            }
            let end = offset.saturating_add(wanted.len).min(meta.len());
            let all = match holes::may_have_holes(meta.len(), meta.blocks()) {
                true => holes::data(&file, offset, end, STRETCHES_MAX),
                false => vec![Stretch { offset, len: end.saturating_sub(offset) }],
            };
            look::keeps_pages(&file).then(|| (Source::own(file.into()), steps, all))
        });
        self.sums.left += u64::from(is_wanted && opened.is_none());
        let all = opened.as_ref().map_or(&[][..], |(_, _, all)| all);
        let bytes = all.iter().map(|stretch| stretch.len).sum();
        let (mut len, mut reserved) = self.room_for(bytes);
        while !self.window.reserve(reserved) {
            self.make_room()?;
            // The window may have shrunk meanwhile.
            (len, reserved) = self.room_for(bytes);
        }
        self.sums.furthest = self.sums.furthest.max(self.window.ahead());
        let stretches = holes::first(all, len);
        // A file that is one hole has nothing to read.
        let reads = opened.map(|(source, steps, _)| (source, steps)).filter(|_| len > 0);
        let number = match &stretches[..] {
            [one] => self.tell(reads.as_ref(), (one.offset, one.len), address)?,
            // A range for the daemon has no holes.
            _ => None,
        };
        if let (Some((source, steps)), None) = (&reads, number) {
            for stretch in holes::first(&stretches, UNDER_WAY_BYTES) {
                // The error occurs again when the bytes are waited for.
                let _ = prefetch::start(source, stretch.offset, stretch.len, *steps);
            }
        }
        self.under_way_bytes += len;
        let (whole, ready) = (offset == 0 && last, number.is_none());
        self.under_way.push_back(UnderWay {
            reads,
            item,
            stretches,
            len,
            reserved,
            whole,
            last,
            number,
            ready,
        });
        self.collect()?;
        while self.has_too_many() {
            self.complete_next()?;
        }
        Ok(())
    }

    /// Hands on what the daemon has read by now.
    fn collect(&mut self) -> Result<(), Gone> {
        while let Some(daemon) = &self.daemon {
            if let Some(next) = self.next_ready() {
                self.complete(next)?;
                continue;
            }
            match daemon.ready(Duration::ZERO) {
                Ok(Some(ready)) => self.is_ready(ready),
                Ok(None) => return Ok(()),
                Err(_) => self.lose_daemon(),
            }
        }
        Ok(())
    }

    /// Adds a range to the daemon's set. Returns its number; `None`: there is no daemon, or nothing to read.
    fn tell(
        &mut self,
        reads: Option<&(Source, Steps)>,
        (offset, len): (u64, u64),
        address: Option<u64>,
    ) -> Result<Option<u32>, Gone> {
        let Some((source, _)) = reads else { return Ok(None) };
        // The daemon has the maximum number of ranges.
        while let Some(daemon) = &self.daemon
            && self.added() >= daemon.ranges_max
        {
            self.make_room()?;
        }
        let Some(daemon) = &self.daemon else { return Ok(None) };
        let number = self.next_number;
        if daemon.add(number, source.as_fd(), (offset, len), address).is_err() {
            self.lose_daemon();
            return Ok(None);
        }
        self.next_number = number.wrapping_add(1);
        Ok(Some(number))
    }

    /// Hands on a file, or waits until the consumer has taken more.
    fn make_room(&mut self) -> Result<(), Gone> {
        if !self.under_way.is_empty() {
            return self.complete_next();
        }
        self.consumer.wait()?;
        self.taken();
        Ok(())
    }

    /// Number of ranges that the daemon has and the consumer has not taken.
    fn added(&self) -> usize {
        self.untaken.len() + self.under_way.iter().filter(|file| file.number.is_some()).count()
    }

    /// Whether one must be handed on before the next is started.
    fn has_too_many(&self) -> bool {
        match self.daemon {
            Some(_) => self.under_way.len() > ADDED_MAX,
            None => {
                self.under_way.len() > UNDER_WAY_MAX
                    || (self.under_way.len() > 1 && self.under_way_bytes > UNDER_WAY_BYTES)
            }
        }
    }

    /// The daemon is gone: its unread files are read here.
    fn lose_daemon(&mut self) {
        self.daemon = None;
        self.untaken.clear();
        for file in &mut self.under_way {
            if !file.ready {
                file.number = None;
            }
            file.ready = true;
        }
    }

    /// Waits for every file in flight, and hands it on.
    ///
    /// # Errors
    /// The consumer has gone.
    pub(crate) fn drain(&mut self) -> Result<(), Gone> {
        while !self.under_way.is_empty() {
            self.complete_next()?;
        }
        Ok(())
    }

    /// Hands on the next file: the oldest, or, if a daemon reads, the next one whose bytes are in memory.
    fn complete_next(&mut self) -> Result<(), Gone> {
        if self.daemon.is_none() {
            return self.complete(0);
        }
        let mut since = Instant::now();
        while let Some(daemon) = &self.daemon {
            if let Some(next) = self.next_ready() {
                return self.complete(next);
            }
            match daemon.ready(LOOK_EVERY) {
                Ok(Some(ready)) => {
                    since = Instant::now();
                    self.is_ready(ready);
                }
                Ok(None) => {
                    let untaken = self.untaken.len();
                    self.taken();
                    if untaken > 0 {
                        since = Instant::now();
                    } else if since.elapsed() >= GIVE_UP_AFTER {
                        self.lose_daemon();
                    }
                }
                Err(_) => self.lose_daemon(),
            }
        }
        self.complete(0)
    }

    /// The daemon has read a range, or will not read it.
    fn is_ready(&mut self, FileSetReady { range, reason }: FileSetReady) {
        if matches!(reason, PassReason::NotADisk | PassReason::Mode) {
            // The daemon does not serve this disk, so this thread reads.
            return self.lose_daemon();
        }
        let Some(file) = self.under_way.iter_mut().find(|file| file.number == Some(range)) else { return };
        file.ready = true;
        if reason != PassReason::None {
            // The consumer meets the error and reports it.
            (file.reads, file.number) = (None, None);
            self.sums.left += 1;
            if let Some(daemon) = &self.daemon
                && daemon.took(range, false).is_err()
            {
                self.lose_daemon();
            }
        }
    }

    /// The next file to hand on: the first whole one that is ready, unless a file of several ranges is in
    /// progress. Such a file begins when all before it were handed on, and its ranges follow one another.
    fn next_ready(&self) -> Option<usize> {
        let oldest = self.under_way.front()?;
        if oldest.ready {
            return Some(0);
        }
        match self.in_file {
            true => None,
            false => self.under_way.iter().position(|file| file.ready && file.whole),
        }
    }

    /// The consumer itself.
    pub(crate) fn consumer(&mut self) -> &mut C {
        &mut self.consumer
    }

    /// Ends: returns the consumer and the counts.
    #[cfg(feature = "cli")]
    pub(crate) fn into_parts(self) -> (C, AheadSummary) {
        (self.consumer, self.sums)
    }

    /// Hands on the file at this position; if no daemon has read it, it is read first.
    fn complete(&mut self, at: usize) -> Result<(), Gone> {
        let Some(mut file) = self.under_way.remove(at) else { return Ok(()) };
        self.under_way_bytes -= file.len;
        self.in_file = !file.last;
        let mut read_by = ReadBy::Nobody;
        if let Some((source, steps)) = &file.reads {
            let brought = match file.number {
                Some(_) => Ok(()),
                None => bring_in(source, &file.stretches, *steps),
            };
            match brought {
                Ok(()) => {
                    self.sums.bytes = self.sums.bytes.saturating_add(file.len);
                    let (by, count) = match file.number {
                        Some(_) => (ReadBy::Daemon, &mut self.sums.by_daemon),
                        None => (ReadBy::Itself, &mut self.sums.by_itself),
                    };
                    *count += 1;
                    read_by = by;
                }
                // The consumer meets the error and reports it.
                Err(_) => self.sums.left += 1,
            }
        }
        C::read_by(&mut file.item, read_by);
        self.window.hand_on(C::weight(&file.item), file.reserved);
        if let Some(number) = file.number
            && self.daemon.is_some()
        {
            self.untaken.push_back((self.window.position(), number));
        }
        if self.probe.is_none()
            && let Some((source, _)) = file.reads
            && let Some(&stretch) = file.stretches.first()
        {
            let position = self.window.position();
            self.probe = Some(Probe { file: source, stretch, position });
        }
        self.taken();
        self.consumer.give(file.item)
    }

    /// How many of these bytes there is room to read, and how many count in the window.
    fn room_for(&self, bytes: u64) -> (u64, u64) {
        let (size, page) = (self.window.size(), residency::page_bytes());
        let len = bytes.min(size);
        // Each file counts as at least one page, so the window bounds their number.
        (len, len.max(1).next_multiple_of(page).min(size))
    }

    /// Checks the consumer's progress, and whether the file that it takes is still in memory.
    fn taken(&mut self) {
        let taken = self.consumer.taken();
        self.window.taken(taken);
        while let Some(daemon) = &self.daemon
            && let Some(&(position, number)) = self.untaken.front()
            && position <= taken
        {
            self.untaken.pop_front();
            if daemon.took(number, true).is_err() {
                self.lose_daemon();
            }
        }
        if let Some(probe) = self.probe.take_if(|probe| probe.position <= taken) {
            let found = probe.in_memory() && !self.reads_twice();
            self.window.found(found);
            self.sums.least = self.sums.least.min(self.window.size());
        }
    }

    /// Whether many of the bytes read since the last check were read again. The consumer takes a path before
    /// it reads the file, so the file may be evicted after it was found in memory.
    fn reads_twice(&mut self) -> bool {
        let Some(again) = self.refaults.as_ref().and_then(Refaults::bytes) else { return false };
        let bytes = self.sums.bytes;
        let (again_then, bytes_then) = std::mem::replace(&mut self.again, (again, bytes));
        again.saturating_sub(again_then) > bytes.saturating_sub(bytes_then) / AGAIN
    }
}

impl Probe {
    /// Whether most of it is in memory. A pager of idle memory takes single pages. If the kernel does not
    /// tell, it counts as in memory.
    fn in_memory(&self) -> bool {
        let (mut pages, mut there) = (0u64, 0u64);
        let count = |_, resident| {
            pages += 1;
            there += u64::from(resident);
            true
        };
        let told = residency::mincore(self.file.as_fd(), self.stretch.offset, self.stretch.len, count);
        told.is_err() || there * 4 >= pages * 3
    }
}

/// Reads stretches of a file; the first step has been started already.
fn bring_in(source: &Source, stretches: &[Stretch], steps: Steps) -> Result<(), prefetch::BringError> {
    let cut = |stretch: &Stretch| {
        let (offset, end) = (stretch.offset, stretch.end());
        let starts = (offset..end).step_by(UNDER_WAY_BYTES as usize);
        starts.map(move |offset| Stretch { offset, len: UNDER_WAY_BYTES.min(end - offset) })
    };
    let mut rest = stretches.iter().flat_map(cut).peekable();
    while let Some(step) = rest.next() {
        if let Some(next) = rest.peek() {
            prefetch::start(source, next.offset, next.len, steps)?;
        }
        prefetch::bring_in(source, step.offset, step.len, steps, |_| ())?;
    }
    Ok(())
}
