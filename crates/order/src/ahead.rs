//! Reading ahead of the consumer.
//!
//! A file is brought into memory first and handed on then, so a consumer that works with many threads at once
//! still finds every file in memory, and the disk is read in one order by one thread. Some files are under
//! way together, so that the disk has a queue.
//!
//! Where a daemon answers, the daemon reads (`daemon`): it has the order of all sets and servers of a disk.
//! Files are handed on as they come then; the ranges of a file that is cut, one after the other. Where none
//! answers, or it goes away, this thread reads by itself.
//!
//! How far the consumer is, it tells itself ([`Consumer::taken`]): the reader of a pipe by what lies in the
//! pipe unread (`pipe`), a program by what it has asked for (`set`).

use std::collections::VecDeque;
use std::fs::Metadata;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use seekless_kernel::memory::{self, Refaults};
use seekless_kernel::prefetch::{self, Source, Steps};
use seekless_kernel::residency;
use seekless_wire::{PassReason, WAIT_MS_MAX};

use crate::daemon::{Daemon, Ready};
use crate::holes::{self, Stretch};
use crate::look;
use crate::walk::as_path;
use crate::window::Window;

/// Files under way at a time. A disk with a queue of 32 commands orders within it; at half of this the queue
/// may run dry between two large files, at double more descriptors are open and nothing is gained.
const UNDER_WAY_MAX: usize = 64;

/// Bytes under way at a time, and the step in which longer files are read: a twentieth of a second of a disk.
/// At half of it a fast disk waits between steps; at double the first paths of a batch come later.
const UNDER_WAY_BYTES: u64 = 8 << 20;

/// Files under way at a time where a daemon reads: each is an open descriptor here. At half of it the daemon
/// has less to order; at double a program with the usual limit of 1,024 descriptors has few left.
const ADDED_MAX: usize = 256;

/// How often it is looked how far the consumer is while a daemon is waited for. At half of it more wake-ups,
/// at double the daemon hears later that there is room.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A daemon that has brought nothing for so long although the consumer has taken all is given up: a little
/// longer than a daemon lets a request wait.
const GIVE_UP_AFTER: Duration = Duration::from_millis(WAIT_MS_MAX + 5_000);

/// The window halves if more than one byte in this number was read twice. At half of it a tenth of the disk's
/// time is lost; at double, reads of other programs in the group shrink the window.
const AGAIN: u64 = 20;

/// Stretches of data of one range of a file that are read ahead; those behind them are left to the consumer.
/// At half of it more of a file with many holes is; at double, one such file keeps the disk for longer.
const STRETCHES_MAX: usize = 256;

/// Items whose files are in memory and that their consumer has not taken. The window bounds them as well;
/// this bounds what a huge window of tiny files keeps. At half of it such a window is not filled.
pub(crate) const WAITING_MAX: usize = 100_000;

/// What was read ahead.
#[derive(Clone, Copy, Debug, Default)]
#[cfg_attr(feature = "cli", derive(serde::Serialize))]
#[cfg_attr(not(feature = "cli"), allow(dead_code, reason = "the summaries of the commands have it"))]
pub(crate) struct AheadSummary {
    /// Most bytes ahead of the consumer: what was asked for, or half of the memory if that is less.
    pub(crate) window: u64,
    /// The least that it became, because files were evicted before they were used.
    pub(crate) least: u64,
    /// The furthest it was ahead.
    pub(crate) furthest: u64,
    /// Bytes that were brought in, or were there.
    pub(crate) bytes: u64,
    /// Files left to their consumer: not readable here, on no disk, read errors.
    pub(crate) left: u64,
    /// Of the files, those that a daemon brought in.
    pub(crate) by_daemon: u64,
    /// Of the files, those that were brought in without one.
    pub(crate) by_itself: u64,
}

/// What brought the bytes of an item into memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ReadBy {
    /// Nothing did: it has none, they were there, or they are left to the consumer.
    #[default]
    Nobody,
    /// This process.
    Itself,
    /// The daemon of Seekless, in one order with all else that it reads from the disk.
    Daemon,
}

impl ReadBy {
    /// In words: `nobody`, `itself`, `daemon`.
    pub fn name(self) -> &'static str {
        match self {
            ReadBy::Nobody => "nobody",
            ReadBy::Itself => "itself",
            ReadBy::Daemon => "daemon",
        }
    }
}

/// The consumer has gone.
#[derive(Debug)]
pub(crate) struct Gone;

/// A consumer of items in order.
pub(crate) trait Consumer {
    /// What it gets of a file.
    type Item;

    /// How far an item moves its position.
    fn weight(item: &Self::Item) -> u64;

    /// Notes in an item what read its file.
    fn read_by(_: &mut Self::Item, _: ReadBy) {}

    /// Gives it an item, whose file is in memory.
    ///
    /// # Errors
    /// It has gone.
    fn give(&mut self, item: Self::Item) -> Result<(), Gone>;

    /// Its position: the weight of all items that it has taken. May be less while items are on their way to
    /// it, never more.
    fn taken(&mut self) -> u64;

    /// Waits until it may have taken more.
    ///
    /// # Errors
    /// It has gone.
    fn wait(&mut self) -> Result<(), Gone>;
}

/// A range of a file that is to be read ahead.
#[derive(Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) path: &'a [u8],
    pub(crate) offset: u64,
    /// Most bytes; the file may end before.
    pub(crate) len: u64,
    /// How its file system is read ahead; `None`: not at all.
    pub(crate) steps: Option<Steps>,
    /// Address on its disk of the file's first byte, if it is known.
    pub(crate) address: Option<u64>,
    /// It is the last range of its file.
    pub(crate) last: bool,
}

/// A file under way.
struct UnderWay<T> {
    /// What is read of it; `None`: it is left to the consumer.
    reads: Option<(Source, Steps)>,
    item: T,
    /// What is read of it: all but holes.
    stretches: Vec<Stretch>,
    /// Bytes that are read.
    len: u64,
    /// Bytes it counts in the window.
    reserved: u64,
    /// It is a whole file, not one of several ranges.
    whole: bool,
    /// It is the last range of its file.
    last: bool,
    /// Its number at the daemon; `None`: the daemon has not been told of it.
    number: Option<u32>,
    /// Nothing is waited for.
    ready: bool,
}

/// A file that was handed on, and that is looked at when it is taken.
struct Probe {
    file: Source,
    stretch: Stretch,
    /// Position of its consumer behind it.
    position: u64,
}

/// Brings files in and hands them on.
pub(crate) struct Ahead<C: Consumer> {
    window: Window,
    under_way: VecDeque<UnderWay<C::Item>>,
    under_way_bytes: u64,
    consumer: C,
    probe: Option<Probe>,
    /// `None`: no control group has a limit.
    refaults: Option<Refaults>,
    /// At the last look: what the kernel had counted as read again, and what had been brought in.
    again: (u64, u64),
    sums: AheadSummary,
    /// What reads, if it is not this thread.
    daemon: Option<Daemon>,
    next_number: u32,
    /// Ranges that the daemon brought in and the consumer has not taken: its position behind each, and their
    /// numbers.
    untaken: VecDeque<(u64, u32)>,
    /// A file of which a range was handed on and not the last.
    in_file: bool,
}

impl<C: Consumer> Ahead<C> {
    /// Ahead of `consumer`, at most by `size` bytes and by half of the memory. `ask`: a daemon reads, where
    /// one answers.
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

    /// Starts to read the file of an item whose turn it is. Without `wanted` the item is handed on in its
    /// turn and nothing is read. Waits while the window is full.
    ///
    /// # Errors
    /// The consumer has gone.
    pub(crate) fn add(&mut self, item: C::Item, wanted: Option<Wanted<'_>>) -> Result<(), Gone> {
        let (offset, is_wanted) = (wanted.as_ref().map_or(0, |wanted| wanted.offset), wanted.is_some());
        let last = wanted.as_ref().is_none_or(|wanted| wanted.last);
        let mut address = wanted.as_ref().and_then(|wanted| wanted.address?.checked_add(wanted.offset));
        let opened = wanted.and_then(|wanted| {
            let steps = wanted.steps?;
            let file = look::open(as_path(wanted.path)).ok()?;
            let meta = file.metadata().ok().filter(Metadata::is_file)?;
            if holes::lacks_blocks(meta.len(), meta.blocks()) {
                // The addresses of a file with holes do not rise with its offsets.
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
            match self.under_way.is_empty() {
                false => self.complete_next()?,
                true => {
                    self.consumer.wait()?;
                    self.taken();
                }
            }
            // The window may have shrunk meanwhile.
            (len, reserved) = self.room_for(bytes);
        }
        self.sums.furthest = self.sums.furthest.max(self.window.ahead());
        let stretches = holes::first(all, len);
        // A file that is one hole has nothing that could be read.
        let reads = opened.map(|(source, steps, _)| (source, steps)).filter(|_| len > 0);
        let number = match &stretches[..] {
            [one] => self.tell(reads.as_ref(), (one.offset, one.len), address)?,
            // A daemon's range has no holes.
            _ => None,
        };
        if let (Some((source, steps)), None) = (&reads, number) {
            for stretch in holes::first(&stretches, UNDER_WAY_BYTES) {
                // An error is met again when the bytes are waited for.
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

    /// Hands on what the daemon has brought in by now.
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

    /// Adds a range to the daemon's set; its number there. `None`: there is no daemon, or nothing to read.
    fn tell(
        &mut self,
        reads: Option<&(Source, Steps)>,
        (offset, len): (u64, u64),
        address: Option<u64>,
    ) -> Result<Option<u32>, Gone> {
        let Some((source, _)) = reads else { return Ok(None) };
        // The daemon has as many as it may have.
        while let Some(daemon) = &self.daemon
            && self.added() >= daemon.ranges_max
        {
            match self.under_way.is_empty() {
                false => self.complete_next()?,
                true => {
                    self.consumer.wait()?;
                    self.taken();
                }
            }
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

    /// Ranges that the daemon has and the consumer has not taken.
    fn added(&self) -> usize {
        self.untaken.len() + self.under_way.iter().filter(|file| file.number.is_some()).count()
    }

    /// Whether one must be handed on before the next is taken up.
    fn has_too_many(&self) -> bool {
        match self.daemon {
            Some(_) => self.under_way.len() > ADDED_MAX,
            None => {
                self.under_way.len() > UNDER_WAY_MAX
                    || (self.under_way.len() > 1 && self.under_way_bytes > UNDER_WAY_BYTES)
            }
        }
    }

    /// The daemon is gone: what it was to read is read here.
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

    /// Waits for every file that is under way, and hands it on.
    ///
    /// # Errors
    /// The consumer has gone.
    pub(crate) fn drain(&mut self) -> Result<(), Gone> {
        while !self.under_way.is_empty() {
            self.complete_next()?;
        }
        Ok(())
    }

    /// Hands on the file whose turn it is: the oldest, or where a daemon reads the next whose bytes are in
    /// memory.
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

    /// The daemon has brought a range in, or never will.
    fn is_ready(&mut self, Ready { range, reason }: Ready) {
        if matches!(reason, PassReason::NotADisk | PassReason::Mode) {
            // The daemon does not read there: this thread does.
            return self.lose_daemon();
        }
        let Some(file) = self.under_way.iter_mut().find(|file| file.number == Some(range)) else { return };
        file.ready = true;
        if reason != PassReason::None {
            // Its consumer meets the error, and says so.
            (file.reads, file.number) = (None, None);
            self.sums.left += 1;
            if let Some(daemon) = &self.daemon
                && daemon.took(range, false).is_err()
            {
                self.lose_daemon();
            }
        }
    }

    /// The next file to hand on: the first whole one that is ready, outside of a file of several ranges. Such
    /// a file begins when all before it are handed on, and its ranges follow one another.
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

    /// What was done so far.
    pub(crate) fn sums(&self) -> AheadSummary {
        self.sums
    }

    /// The consumer itself.
    pub(crate) fn consumer(&mut self) -> &mut C {
        &mut self.consumer
    }

    /// The end: the consumer, and what was done.
    #[cfg(feature = "cli")]
    pub(crate) fn into_parts(self) -> (C, AheadSummary) {
        (self.consumer, self.sums)
    }

    /// Hands on the file at this place; what no daemon has brought in is brought in first.
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
                // Its consumer meets the error, and says so.
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

    /// How many of these bytes there is room to read, and how many they count in the window.
    fn room_for(&self, bytes: u64) -> (u64, u64) {
        let (size, page) = (self.window.size(), residency::page_bytes());
        let len = bytes.min(size);
        // Each file counts a page at least: so the window bounds how many there are.
        (len, len.max(1).next_multiple_of(page).min(size))
    }

    /// Looks how far the consumer is, and whether the file it takes is still in memory.
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

    /// Whether much of what was brought in since the last look was read again. The consumer takes a path
    /// before it reads the file, so the file may be evicted after it was found in memory.
    fn reads_twice(&mut self) -> bool {
        let Some(again) = self.refaults.as_ref().and_then(Refaults::bytes) else { return false };
        let bytes = self.sums.bytes;
        let (again_then, bytes_then) = std::mem::replace(&mut self.again, (again, bytes));
        again.saturating_sub(again_then) > bytes.saturating_sub(bytes_then) / AGAIN
    }
}

impl Probe {
    /// Whether most of it is in memory. A pager of idle memory takes single pages; where the kernel does not
    /// tell, it is.
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

/// Brings in stretches of a file, of which the first step has been started.
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
