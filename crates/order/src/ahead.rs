//! Reading ahead of the consumer.
//!
//! A file is brought into memory first and its path handed on then, so a consumer that works with many
//! threads at once still finds every file in memory, and the disk is read in one order by one thread. Some
//! files are under way together, so that the disk has a queue.
//!
//! How far the consumer is follows from the pipe: what was written to it, less what lies in it unread
//! (`FIONREAD`). A path that is taken is not yet a file that is read: a consumer that takes many paths at
//! once (`xargs` without `-n`) has that much more in memory.
//!
//! A thread of its own writes the paths, so that reading goes on while the pipe is full.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use seekless_kernel::prefetch::{self, Source, Steps};
use seekless_kernel::{memory, residency};

use crate::look::{self, Found};
use crate::summary::AheadSummary;
use crate::walk::as_path;
use crate::window::Window;

/// Files under way at a time. A disk with a queue of 32 commands orders within it; at half of this the queue
/// may run dry between two large files, at double more descriptors are open and nothing is gained.
const UNDER_WAY_MAX: usize = 64;

/// Bytes under way at a time, and the step in which longer files are read: a twentieth of a second of a disk.
/// At half of it a fast disk waits between steps; at double the first paths of a batch come later.
const UNDER_WAY_BYTES: u64 = 8 << 20;

/// Paths whose files are in memory and that wait for room in the pipe. The window bounds them as well; this
/// bounds what a huge window of tiny files keeps. At half of it such a window is not filled.
const WAITING_MAX: usize = 100_000;

/// How often the pipe is looked at while the window is full. A consumer takes far longer for a window.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 2_000_000 };

/// The consumer has gone, or standard output cannot be written: [`Ahead::finish`] tells.
#[derive(Debug)]
pub(crate) struct Gone;

/// A file under way.
struct UnderWay {
    /// What is read of it; `None`: it is left to the consumer.
    reads: Option<(Source, Steps)>,
    /// Its path with the end mark.
    line: Vec<u8>,
    /// Bytes that are read.
    len: u64,
    /// Bytes it counts in the window.
    reserved: u64,
}

/// Brings files in and hands their paths on.
pub(crate) struct Ahead {
    window: Window,
    under_way: VecDeque<UnderWay>,
    under_way_bytes: u64,
    pipe: OwnedFd,
    lines: SyncSender<Vec<u8>>,
    /// Bytes that the writer has written.
    written: Arc<AtomicU64>,
    writer: JoinHandle<io::Result<()>>,
    sums: AheadSummary,
}

impl Ahead {
    /// Ahead of the reader of `pipe`, at most by `size` bytes and by half of the memory.
    ///
    /// # Errors
    /// There are no descriptors or threads left.
    pub(crate) fn new(pipe: OwnedFd, size: u64) -> io::Result<Ahead> {
        let half = memory::page_cache_limit().map_or(u64::MAX, |limit| limit / 2);
        let window = Window::new(size.min(half).max(residency::page_bytes()));
        let written = Arc::new(AtomicU64::new(0));
        let (lines, received) = sync_channel(WAITING_MAX);
        let writer = thread::Builder::new().name("order-writer".to_string()).spawn({
            let (out, written) = (File::from(pipe.try_clone()?), Arc::clone(&written));
            move || write(out, &received, &written)
        })?;
        let sums = AheadSummary { window: window.size(), ..AheadSummary::default() };
        let under_way = VecDeque::new();
        Ok(Ahead { window, under_way, under_way_bytes: 0, pipe, lines, written, writer, sums })
    }

    /// Starts to read a file whose turn it is. `steps`: how; `None`: not at all. Waits while the window is
    /// full.
    ///
    /// # Errors
    /// The consumer has gone.
    pub(crate) fn add(&mut self, found: Found, end: u8, steps: Option<Steps>) -> Result<(), Gone> {
        let opened = steps.filter(|_| found.is_file && found.bytes > 0).and_then(|steps| {
            let file = look::open(as_path(&found.path)).ok()?;
            let meta = file.metadata().ok().filter(std::fs::Metadata::is_file)?;
            look::keeps_pages(&file).then(|| (Source::own(file.into()), steps, meta.len()))
        });
        self.sums.left += u64::from(opened.is_none() && found.bytes > 0);
        let len = opened.as_ref().map_or(0, |(_, _, bytes)| (*bytes).min(self.window.size()));
        // Each file counts a page at least: so the window bounds how many there are.
        let page = residency::page_bytes();
        let reserved = len.max(1).next_multiple_of(page).min(self.window.size());
        while !self.window.reserve(reserved) {
            match self.under_way.is_empty() {
                false => self.complete_oldest()?,
                true => self.look_at_pipe()?,
            }
        }
        self.sums.furthest = self.sums.furthest.max(self.window.ahead());
        let mut line = found.path;
        line.push(end);
        let reads = opened.map(|(source, steps, _)| (source, steps));
        if let Some((source, steps)) = &reads {
            // An error is met again when the bytes are waited for.
            let _ = prefetch::start(source, 0, len.min(UNDER_WAY_BYTES), *steps);
        }
        self.under_way_bytes += len;
        self.under_way.push_back(UnderWay { reads, line, len, reserved });
        while self.under_way.len() > UNDER_WAY_MAX
            || (self.under_way.len() > 1 && self.under_way_bytes > UNDER_WAY_BYTES)
        {
            self.complete_oldest()?;
        }
        Ok(())
    }

    /// Waits for every file that is under way, and hands its path on.
    ///
    /// # Errors
    /// The consumer has gone.
    pub(crate) fn drain(&mut self) -> Result<(), Gone> {
        while !self.under_way.is_empty() {
            self.complete_oldest()?;
        }
        Ok(())
    }

    /// Waits until every path is written, not until it is taken.
    ///
    /// # Errors
    /// Those of writing.
    pub(crate) fn finish(self) -> (AheadSummary, io::Result<()>) {
        drop(self.lines);
        let written = self.writer.join().unwrap_or_else(|_| Err(io::Error::other("the writer ended early")));
        (self.sums, written)
    }

    fn complete_oldest(&mut self) -> Result<(), Gone> {
        let Some(file) = self.under_way.pop_front() else { return Ok(()) };
        self.under_way_bytes -= file.len;
        if let Some((source, steps)) = &file.reads {
            match bring_in(source, file.len, *steps) {
                Ok(()) => self.sums.bytes = self.sums.bytes.saturating_add(file.len),
                // Its consumer meets the error, and says so.
                Err(_) => self.sums.left += 1,
            }
        }
        self.window.hand_on(file.line.len() as u64, file.reserved);
        self.window.taken(self.taken());
        self.lines.send(file.line).map_err(|_| Gone)
    }

    /// Bytes that the consumer has taken. What is written meanwhile makes it less, never more.
    fn taken(&self) -> u64 {
        let written = self.written.load(Ordering::Acquire);
        match rustix::io::ioctl_fionread(&self.pipe) {
            Ok(unread) => written.saturating_sub(unread),
            Err(_) => written,
        }
    }

    /// Sleeps a moment, and looks how far the consumer is.
    fn look_at_pipe(&mut self) -> Result<(), Gone> {
        let mut end = [PollFd::from_borrowed_fd(self.pipe.as_fd(), PollFlags::empty())];
        let _ = poll(&mut end, Some(&LOOK));
        if end[0].revents().contains(PollFlags::ERR) {
            return Err(Gone);
        }
        self.window.taken(self.taken());
        Ok(())
    }
}

/// Brings in the first `len` bytes of a file, of which the first step has been started.
fn bring_in(source: &Source, len: u64, steps: Steps) -> Result<(), prefetch::BringError> {
    let mut at = 0;
    while at < len {
        let step = UNDER_WAY_BYTES.min(len - at);
        let next = at + step;
        prefetch::start(source, next, UNDER_WAY_BYTES.min(len - next), steps)?;
        prefetch::bring_in(source, at, step, steps, |_| ())?;
        at = next;
    }
    Ok(())
}

fn write(mut out: File, lines: &Receiver<Vec<u8>>, written: &AtomicU64) -> io::Result<()> {
    while let Ok(line) = lines.recv() {
        out.write_all(&line)?;
        written.fetch_add(line.len() as u64, Ordering::Release);
    }
    Ok(())
}
