//! The reader of standard output as a consumer of paths.
//!
//! The consumer's progress follows from the pipe: the bytes written to it, less the unread ones in it
//! (`FIONREAD`). A path that was taken is not yet a file that was read: a consumer that takes many paths at
//! once (`xargs` without `-n`) needs that much more memory.
//!
//! A thread of its own writes the paths, so that reading ahead goes on while the pipe is full.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::ahead::{Consumer, Gone, WAITING_MAX};

/// Interval at which the pipe is checked while the window is full. A consumer takes far longer for a window.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 2_000_000 };

/// Bytes written together if several paths wait: a page of the pipe. At half, there are more system calls; at
/// double, a path may wait although its page has room.
pub(crate) const PAGE: usize = 4096;

/// Standard output, a pipe. Its items are paths with their end marks.
pub(crate) struct Pipe {
    pipe: OwnedFd,
    lines: SyncSender<Vec<u8>>,
    /// Bytes that the writer has written.
    written: Arc<AtomicU64>,
    writer: JoinHandle<io::Result<()>>,
}

impl Pipe {
    /// Writes to `pipe`.
    ///
    /// # Errors
    /// There are no descriptors or threads left.
    pub(crate) fn new(pipe: OwnedFd) -> io::Result<Pipe> {
        let written = Arc::new(AtomicU64::new(0));
        let (lines, received) = sync_channel(WAITING_MAX);
        let writer = thread::Builder::new().name("order-writer".to_string()).spawn({
            let (out, written) = (File::from(pipe.try_clone()?), Arc::clone(&written));
            move || write(out, &received, &written)
        })?;
        Ok(Pipe { pipe, lines, written, writer })
    }

    /// Waits until every path is written, not until it is taken.
    ///
    /// # Errors
    /// Those of writing.
    pub(crate) fn finish(self) -> io::Result<()> {
        drop(self.lines);
        self.writer.join().unwrap_or_else(|_| Err(io::Error::other("the writer ended early")))
    }
}

impl Consumer for Pipe {
    type Item = Vec<u8>;

    fn weight(line: &Vec<u8>) -> u64 {
        line.len() as u64
    }

    fn give(&mut self, line: Vec<u8>) -> Result<(), Gone> {
        self.lines.send(line).map_err(|_| Gone)
    }

    /// Writes meanwhile make it too low, never too high.
    fn taken(&mut self) -> u64 {
        let written = self.written.load(Ordering::Acquire);
        match rustix::io::ioctl_fionread(&self.pipe) {
            Ok(unread) => written.saturating_sub(unread),
            Err(_) => written,
        }
    }

    fn wait(&mut self) -> Result<(), Gone> {
        let mut end = [PollFd::from_borrowed_fd(self.pipe.as_fd(), PollFlags::empty())];
        let _ = poll(&mut end, Some(&LOOK));
        if end[0].revents().contains(PollFlags::ERR) {
            return Err(Gone);
        }
        Ok(())
    }
}

fn write(mut out: File, lines: &Receiver<Vec<u8>>, written: &AtomicU64) -> io::Result<()> {
    while let Ok(mut some) = lines.recv() {
        // Paths that have arrived meanwhile are written along.
        while some.len() < PAGE
            && let Ok(line) = lines.try_recv()
        {
            some.extend_from_slice(&line);
        }
        out.write_all(&some)?;
        written.fetch_add(some.len() as u64, Ordering::Release);
    }
    Ok(())
}
