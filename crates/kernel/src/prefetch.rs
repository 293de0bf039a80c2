//! Bringing bytes into the page cache, in order, and knowing when they are there.
//!
//! `POSIX_FADV_WILLNEED` (and `readahead(2)`, which is the same code) starts reads without waiting - but the kernel
//! silently cuts each call to the larger of `max_sectors_kb` and `read_ahead_kb`. So [`bring_in`] submits a piece in
//! steps of that size, all of them before it waits for the first: the disk then has the whole piece in its queue and
//! streams. It waits by reading one byte of the last page of each step, which sleeps until that page is read; since a
//! disk delivers a piece in order, the pages before are there too. `cachestat` checks that they are, and what
//! was cut or evicted is asked for once more in small steps.
//!
//! The descriptor a server passes shares its `struct file` with the server: advice on it, or a read through it, would
//! change the server's own read-ahead. So the file is opened again ([`Source::reopen`]) and *that* descriptor is told
//! `POSIX_FADV_RANDOM`: its waiting reads start no read-ahead of their own. Where the file cannot be opened again (no
//! permission, no /proc), the passed descriptor is used, but only in ways that leave no trace in it: read-ahead,
//! and `mincore` to see when pages have arrived.

use std::fmt;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{Advice, Mode, OFlags, fadvise};

use crate::residency::{cachestat, mincore, page_bytes, pages_of};

/// Step of the second try, bytes: the kernel's smallest usual `read_ahead_kb`, so it is never cut.
const SECOND_TRY_STEP: u64 = 128 << 10;

/// How often a descriptor that may not be read from is looked at. A disk moves about 200 KiB meanwhile.
const POLL: Duration = Duration::from_millis(2);

/// After this long without an error or an end, polling gives up; a reading wait ends with the kernel's own error.
const POLL_MAX: Duration = Duration::from_secs(60);

/// A file to bring bytes in from.
#[derive(Debug)]
pub struct Source {
    fd: OwnedFd,
    /// Whether the `struct file` is ours alone.
    own: bool,
}

impl Source {
    /// Opens the file behind `passed` again, read-only; falls back to `passed` itself if that is refused.
    pub fn reopen(passed: OwnedFd) -> Source {
        let path = format!("/proc/self/fd/{}", passed.as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
        // Without NOATIME our one-byte reads would write access times; it takes the owner or CAP_FOWNER.
        let again = rustix::fs::open(path.as_str(), flags | OFlags::NOATIME, Mode::empty())
            .or_else(|_| rustix::fs::open(path.as_str(), flags, Mode::empty()));
        match again {
            Ok(fd) => {
                // Refused by some network file systems; then the wait costs a little read-ahead, nothing more.
                let _ = fadvise(&fd, 0, None, Advice::Random);
                Source { fd, own: true }
            }
            Err(_) => Source { fd: passed, own: false },
        }
    }

    /// Whether the file could be opened again.
    pub fn is_own(&self) -> bool {
        self.own
    }
}

impl AsFd for Source {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// What came of a piece that was brought in without an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Brought {
    /// Pages that had to be asked for a second time: cut by the kernel, or evicted while we waited.
    pub second_try: u64,
    /// Pages that are not in memory all the same: evicted faster than they come.
    pub lost: u64,
}

/// Why a piece could not be brought in.
#[derive(Debug)]
pub struct BringError {
    /// Where the error was met, as a file offset.
    pub at: u64,
    /// The error; `EIO` from the disk, usually.
    pub error: io::Error,
}

impl fmt::Display for BringError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "reading at offset {}: {}", self.at, self.error)
    }
}

impl std::error::Error for BringError {}

/// Sizes of the steps of [`bring_in`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steps {
    /// Bytes a single read-ahead call reaches: [`crate::topology::QueueLimits::read_ahead_cut`].
    pub submit: u64,
    /// Bytes between two reports of progress.
    pub report: u64,
}

/// Brings `[offset, offset + len)` into memory and returns when all of it is there. `progress` is told a file offset
/// each time the bytes before it have arrived. Bytes beyond the end of the file are nothing to wait for.
///
/// # Errors
/// The first error a read meets; bytes reported before it are in memory.
pub fn bring_in(
    source: &Source,
    offset: u64,
    len: u64,
    steps: Steps,
    mut progress: impl FnMut(u64),
) -> Result<Brought, BringError> {
    let page = page_bytes();
    let end = offset.saturating_add(len);
    let submit_error = |at| move |error: io::Error| BringError { at, error };
    for (from, upto) in ranges(offset, end, steps.submit.max(page)) {
        will_need(source, from, upto - from).map_err(submit_error(from))?;
    }
    let mut brought = Brought::default();
    for (from, upto) in ranges(offset, end, steps.report.max(page)) {
        wait_for(source, from, upto)?;
        brought = brought + complete(source, from, upto)?;
        progress(upto);
    }
    Ok(brought)
}

impl std::ops::Add for Brought {
    type Output = Brought;
    fn add(self, other: Brought) -> Brought {
        Brought { second_try: self.second_try + other.second_try, lost: self.lost + other.lost }
    }
}

/// `[offset, end)` in consecutive parts of `step`, the last one shorter.
fn ranges(offset: u64, end: u64, step: u64) -> impl Iterator<Item = (u64, u64)> {
    let mut from = offset;
    std::iter::from_fn(move || {
        let part = (from, end.min(from.saturating_add(step)));
        from = part.1;
        (part.0 < part.1).then_some(part)
    })
}

fn will_need(source: &Source, offset: u64, len: u64) -> io::Result<()> {
    match NonZeroU64::new(len) {
        // Zero would mean to the end of the file.
        None => Ok(()),
        some => Ok(fadvise(source, offset, some, Advice::WillNeed)?),
    }
}

/// Sleeps until the last page before `upto` has been read.
fn wait_for(source: &Source, from: u64, upto: u64) -> Result<(), BringError> {
    let last_page = (upto - 1) / page_bytes() * page_bytes();
    if source.own {
        let mut byte = [0u8; 1];
        return match rustix::io::retry_on_intr(|| rustix::io::pread(source, &mut byte, last_page.max(from))) {
            Ok(_) => Ok(()),
            Err(error) => Err(BringError { at: last_page, error: error.into() }),
        };
    }
    let started = Instant::now();
    loop {
        let mut there = false;
        mincore(source.as_fd(), last_page, 1, |_, resident| {
            there = resident;
            false
        })
        .map_err(|error| BringError { at: last_page, error })?;
        let size = rustix::fs::fstat(source).map_or(0, |stat| stat.st_size as u64);
        if there || last_page >= size {
            return Ok(());
        }
        if started.elapsed() > POLL_MAX {
            return Err(BringError { at: last_page, error: io::ErrorKind::TimedOut.into() });
        }
        thread::sleep(POLL);
    }
}

/// Asks once more for pages of the step that are not there, and waits for them.
fn complete(source: &Source, from: u64, upto: u64) -> Result<Brought, BringError> {
    let Some(missing) = missing_pages(source, from, upto) else { return Ok(Brought::default()) };
    if missing == 0 {
        return Ok(Brought::default());
    }
    for (from, upto) in ranges(from, upto, SECOND_TRY_STEP) {
        will_need(source, from, upto - from).map_err(|error| BringError { at: from, error })?;
    }
    for (from, upto) in ranges(from, upto, SECOND_TRY_STEP) {
        wait_for(source, from, upto)?;
    }
    let lost = missing_pages(source, from, upto).unwrap_or(0);
    Ok(Brought { second_try: missing, lost })
}

/// Pages of the range that are neither in memory nor on their way; `None` where the kernel does not tell.
fn missing_pages(source: &Source, from: u64, upto: u64) -> Option<u64> {
    let size = rustix::fs::fstat(source).ok()?.st_size as u64;
    let len = upto.min(size).saturating_sub(from);
    let stat = cachestat(source.as_fd(), from, len).ok()?;
    Some(pages_of(from, len).saturating_sub(stat.cached))
}
