//! Reading ahead of the consumer.
//!
//! A file is brought into memory first and handed on then, so a consumer that works with many threads at once
//! still finds every file in memory, and the disk is read in one order by one thread. Some files are under
//! way together, so that the disk has a queue.
//!
//! How far the consumer is, it tells itself ([`Consumer::taken`]): the reader of a pipe by what lies in the
//! pipe unread (`pipe`), a program by what it has asked for (`set`).

use std::collections::VecDeque;
use std::fs::Metadata;
use std::os::fd::AsFd;

use seekless_kernel::prefetch::{self, Source, Steps};
use seekless_kernel::{memory, residency};

use crate::look;
use crate::walk::as_path;
use crate::window::Window;

/// Files under way at a time. A disk with a queue of 32 commands orders within it; at half of this the queue
/// may run dry between two large files, at double more descriptors are open and nothing is gained.
const UNDER_WAY_MAX: usize = 64;

/// Bytes under way at a time, and the step in which longer files are read: a twentieth of a second of a disk.
/// At half of it a fast disk waits between steps; at double the first paths of a batch come later.
const UNDER_WAY_BYTES: u64 = 8 << 20;

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
}

/// A file under way.
struct UnderWay<T> {
    /// What is read of it; `None`: it is left to the consumer.
    reads: Option<(Source, Steps)>,
    item: T,
    offset: u64,
    /// Bytes that are read.
    len: u64,
    /// Bytes it counts in the window.
    reserved: u64,
}

/// A file that was handed on, and that is looked at when it is taken.
struct Probe {
    file: Source,
    offset: u64,
    len: u64,
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
    sums: AheadSummary,
}

impl<C: Consumer> Ahead<C> {
    /// Ahead of `consumer`, at most by `size` bytes and by half of the memory.
    pub(crate) fn new(consumer: C, size: u64) -> Ahead<C> {
        let half = memory::page_cache_limit().map_or(u64::MAX, |limit| limit / 2);
        let window = Window::new(size.min(half).max(residency::page_bytes()));
        let sums = AheadSummary { window: window.size(), least: window.size(), ..AheadSummary::default() };
        Ahead { window, under_way: VecDeque::new(), under_way_bytes: 0, consumer, probe: None, sums }
    }

    /// Starts to read the file of an item whose turn it is. Without `wanted` the item is handed on in its
    /// turn and nothing is read. Waits while the window is full.
    ///
    /// # Errors
    /// The consumer has gone.
    pub(crate) fn add(&mut self, item: C::Item, wanted: Option<Wanted<'_>>) -> Result<(), Gone> {
        let (offset, is_wanted) = (wanted.as_ref().map_or(0, |wanted| wanted.offset), wanted.is_some());
        let opened = wanted.and_then(|wanted| {
            let steps = wanted.steps?;
            let file = look::open(as_path(wanted.path)).ok()?;
            let meta = file.metadata().ok().filter(Metadata::is_file)?;
            let len = meta.len().saturating_sub(offset).min(wanted.len);
            look::keeps_pages(&file).then(|| (Source::own(file.into()), steps, len))
        });
        self.sums.left += u64::from(is_wanted && opened.is_none());
        let bytes = opened.as_ref().map_or(0, |(_, _, bytes)| *bytes);
        let (mut len, mut reserved) = self.room_for(bytes);
        while !self.window.reserve(reserved) {
            match self.under_way.is_empty() {
                false => self.complete_oldest()?,
                true => {
                    self.consumer.wait()?;
                    self.taken();
                }
            }
            // The window may have shrunk meanwhile.
            (len, reserved) = self.room_for(bytes);
        }
        self.sums.furthest = self.sums.furthest.max(self.window.ahead());
        let reads = opened.map(|(source, steps, _)| (source, steps));
        if let Some((source, steps)) = &reads {
            // An error is met again when the bytes are waited for.
            let _ = prefetch::start(source, offset, len.min(UNDER_WAY_BYTES), *steps);
        }
        self.under_way_bytes += len;
        self.under_way.push_back(UnderWay { reads, item, offset, len, reserved });
        while self.under_way.len() > UNDER_WAY_MAX
            || (self.under_way.len() > 1 && self.under_way_bytes > UNDER_WAY_BYTES)
        {
            self.complete_oldest()?;
        }
        Ok(())
    }

    /// Waits for every file that is under way, and hands it on.
    ///
    /// # Errors
    /// The consumer has gone.
    pub(crate) fn drain(&mut self) -> Result<(), Gone> {
        while !self.under_way.is_empty() {
            self.complete_oldest()?;
        }
        Ok(())
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

    fn complete_oldest(&mut self) -> Result<(), Gone> {
        let Some(file) = self.under_way.pop_front() else { return Ok(()) };
        self.under_way_bytes -= file.len;
        if let Some((source, steps)) = &file.reads {
            match bring_in(source, file.offset, file.len, *steps) {
                Ok(()) => self.sums.bytes = self.sums.bytes.saturating_add(file.len),
                // Its consumer meets the error, and says so.
                Err(_) => self.sums.left += 1,
            }
        }
        self.window.hand_on(C::weight(&file.item), file.reserved);
        if self.probe.is_none()
            && let Some((source, _)) = file.reads
        {
            let position = self.window.position();
            self.probe = Some(Probe { file: source, offset: file.offset, len: file.len, position });
        }
        self.taken();
        self.consumer.give(file.item)
    }

    /// Bytes that are read of so many, and bytes that they count in the window.
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
        if let Some(probe) = self.probe.take_if(|probe| probe.position <= taken) {
            self.window.found(probe.in_memory());
            self.sums.least = self.sums.least.min(self.window.size());
        }
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
        let told = residency::mincore(self.file.as_fd(), self.offset, self.len, count);
        told.is_err() || there * 4 >= pages * 3
    }
}

/// Brings in a range of a file, of which the first step has been started.
fn bring_in(source: &Source, offset: u64, len: u64, steps: Steps) -> Result<(), prefetch::BringError> {
    let (mut at, end) = (offset, offset.saturating_add(len));
    while at < end {
        let step = UNDER_WAY_BYTES.min(end - at);
        let next = at + step;
        prefetch::start(source, next, UNDER_WAY_BYTES.min(end - next), steps)?;
        prefetch::bring_in(source, at, step, steps, |_| ())?;
        at = next;
    }
    Ok(())
}
