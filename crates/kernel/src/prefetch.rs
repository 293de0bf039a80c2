//! Brings bytes into the page cache, in order, and determines when they are there.
//!
//! `POSIX_FADV_WILLNEED` (and `readahead(2)`, which is the same code) starts reads without waiting. But the
//! kernel silently cuts each call to the larger of `max_sectors_kb` and `read_ahead_kb`. So [`bring_in`]
//! submits a piece in steps of that size, all of them before it waits for the first: then the disk has the
//! whole piece in its queue and streams. It waits by reading one byte of the last page of each step, which
//! sleeps until that page is read; mostly the pages before are there too by then. `mincore` shows this
//! (`cachestat` counts a page in flight, or one whose read failed, as present). Pages that are missing
//! (overtaken by the drive's own order, failed) are waited for page by page.
//!
//! Pages can leave memory before they are waited for: a reader that drops what it has read (rclone, Swift)
//! may be far ahead of the wait, and if memory is short, pages are evicted. A wait would read each again, at
//! the cost of a seek. So before each wait `cachestat` is asked whether the page is resident or in flight. If
//! it is not, it is left out: who still needs it asks for it.
//!
//! The descriptor that a server passes shares its `struct file` with the server: an advice on it, or a read
//! through it, would change the server's own read-ahead. So the file is opened again ([`Source::reopen`]),
//! and *that* descriptor gets `POSIX_FADV_RANDOM`, so that its waiting reads start no read-ahead of their
//! own. Until the file is opened again, the passed descriptor is used ([`Source::passed`]), but only in ways
//! that leave no trace in it: read-ahead, and page faults through a mapping to wait. The same applies if the
//! file cannot be opened again (no permission, no /proc) or must not be (opening a FUSE file drops its cached
//! pages, unless its server says otherwise).

use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{Advice, Mode, OFlags, fadvise};
use rustix::io::Errno;
use rustix::mm;
use seekless_base::wants::{PIECE, parts};

use crate::deferred::{Closer, DeferredFd};
use crate::residency::{cachestat, mincore, page_bytes, pages_of};

/// Polling interval for a page if nothing better is available (before Linux 5.14). A disk transfers about 100
/// KiB meanwhile.
const POLL: Duration = Duration::from_millis(1);

/// `f_type` of FUSE file systems (linux/magic.h).
pub(crate) const FUSE_SUPER_MAGIC: u64 = 0x6573_5546;

/// Maximum time of polling, because a page whose read failed seems to be in flight for ever.
const POLL_MAX: Duration = Duration::from_secs(5);

/// A file from which bytes are brought in.
#[derive(Debug)]
pub struct Source {
    fd: DeferredFd,
    /// Whether no other process shares the `struct file`.
    own: bool,
}

impl Source {
    /// A descriptor that shares its `struct file` with another process. It is used only in ways that leave no
    /// trace there.
    pub fn passed(fd: OwnedFd) -> Source {
        Source { fd: DeferredFd::new(fd), own: false }
    }

    /// A descriptor whose struct file no other process uses, such as that of a pre-content event, which
    /// raises no events itself. Opening *that* file again would raise some, and the reader of events would
    /// wait for itself.
    pub fn own(fd: OwnedFd) -> Source {
        let _ = fadvise(&fd, 0, None, Advice::Random);
        Source { fd: DeferredFd::new(fd), own: true }
    }

    /// Opens the file behind a descriptor again, read-only. `None`: it must not be opened again, because that
    /// would drop its cached pages (FUSE). May wait for the file's server, or for a program that scans opened
    /// files.
    ///
    /// # Errors
    /// Those of `open`: no permission, no `/proc`, another process's lease.
    pub fn reopen(passed: BorrowedFd<'_>) -> io::Result<Option<Source>> {
        if rustix::fs::fstatfs(passed)?.f_type as u64 == FUSE_SUPER_MAGIC {
            return Ok(None);
        }
        let path = format!("/proc/self/fd/{}", passed.as_raw_fd());
        // Without NONBLOCK, opening a file under another process's lease waits until it is given up, up to 45
        // seconds (/proc/sys/fs/lease-break-time). Reads of regular files ignore the flag.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        // Without NOATIME our one-byte reads would write access times; it needs the owner or CAP_FOWNER.
        let again = rustix::fs::open(path.as_str(), flags | OFlags::NOATIME, Mode::empty())
            .or_else(|_| rustix::fs::open(path.as_str(), flags, Mode::empty()))?;
        // Some network file systems refuse the advice; then the waits cause a little read-ahead, nothing
        // more.
        Ok(Some(Source::own(again)))
    }

    /// Sets how the descriptor is closed ([`DeferredFd::closed_by`]).
    pub fn closed_by(&self, closer: &Closer) {
        self.fd.closed_by(closer);
    }

    /// Whether reads through this descriptor do not affect other holders'.
    pub fn is_own(&self) -> bool {
        self.own
    }
}

impl AsFd for Source {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The result of a piece brought in without an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Brought {
    /// Pages that were requested again, because the kernel had cut them off.
    pub second_try: u64,
    /// Pages that had left memory before they were waited for: dropped by their reader, or evicted.
    pub lost: u64,
}

/// Why a piece could not be brought in.
#[derive(Debug, thiserror::Error)]
#[error("reading at offset {at}: {error}")]
pub struct BringError {
    /// File offset of the error.
    pub at: u64,
    /// The error; usually `EIO` from the disk.
    pub error: io::Error,
}

/// Step sizes of [`bring_in`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steps {
    /// Bytes covered by one read-ahead call: [`crate::topology::QueueLimits::read_ahead_cut`].
    pub submit: u64,
    /// Bytes between two reports of progress.
    pub report: u64,
}

/// The kernel cuts no step of this size.
const NEVER_CUT: Steps = Steps { submit: PIECE, report: PIECE };

/// Brings `[offset, offset + len)` into memory and returns when all of it has arrived. `tell` gets the file
/// offset before which all bytes have. Bytes beyond the end of the file are not waited for.
///
/// # Errors
/// The first error of a read; bytes reported before it are in memory.
pub fn bring_in(
    source: &Source,
    offset: u64,
    len: u64,
    steps: Steps,
    mut tell: impl FnMut(u64),
) -> Result<Brought, BringError> {
    start(source, offset, len, steps)?;
    let mut brought = Brought::default();
    // If the kernel counts nothing of what was just submitted, it counts nothing of this file.
    let (cut, pages) = absent(source, offset, len);
    let counts = cut < pages;
    if counts && cut > 0 {
        start(source, offset, len, NEVER_CUT)?;
        brought.second_try = cut;
    }
    for part in parts(offset, offset.saturating_add(len), steps.report.max(page_bytes())) {
        match counts {
            true => brought.lost += wait_for(source, part.start, part.end)?,
            false => brought.second_try += wait_uncounted(source, part.start, part.end)?,
        }
        tell(part.end);
    }
    Ok(brought)
}

/// Submits the reads of `[offset, offset + len)` without waiting for them. [`bring_in`] of the same bytes
/// waits. So files started together are in the disk's queue together.
///
/// # Errors
/// The first read that cannot be submitted; those before it were submitted.
pub fn start(source: &Source, offset: u64, len: u64, steps: Steps) -> Result<(), BringError> {
    for part in parts(offset, offset.saturating_add(len), steps.submit.max(page_bytes())) {
        let submitted = will_need(source, part.start, part.end - part.start);
        submitted.map_err(|error| BringError { at: part.start, error })?;
    }
    Ok(())
}

/// Drops the page cache of `[offset, offset + len)`: the kernel takes back clean pages that no process maps.
/// A hint: pages in use, dirty or mapped stay, and an error means that nothing was dropped.
pub fn drop_range(source: &Source, offset: u64, len: u64) {
    // Zero would mean to the end of the file.
    if let Some(len) = NonZeroU64::new(len) {
        let _ = fadvise(source, offset, Some(len), Advice::DontNeed);
    }
}

fn will_need(source: &Source, offset: u64, len: u64) -> io::Result<()> {
    match NonZeroU64::new(len) {
        // Zero would mean to the end of the file.
        None => Ok(()),
        some => Ok(fadvise(source, offset, some, Advice::WillNeed)?),
    }
}

/// Sleeps until what is in flight of `[from, upto)` has been read. Returns the number of pages that have left
/// memory.
fn wait_for(source: &Source, from: u64, upto: u64) -> Result<u64, BringError> {
    let (gone, _) = absent(source, from, upto - from);
    if gone == 0 {
        wait_for_last(source, from, upto)?;
    }
    let fail = |error| BringError { at: from, error };
    for page in missing_pages(source, from, upto).map_err(fail)? {
        let at = (page * page_bytes()).max(from);
        if absent(source, at, 1).0 == 0 {
            wait_for_page(source, at)?;
        }
    }
    Ok(gone)
}

/// The same where the kernel does not count what is in flight. Missing pages are requested again; returns
/// their number.
fn wait_uncounted(source: &Source, from: u64, upto: u64) -> Result<u64, BringError> {
    wait_for_last(source, from, upto)?;
    let late = missing_pages(source, from, upto).map_err(|error| BringError { at: from, error })?;
    if !late.is_empty() {
        start(source, from, upto - from, NEVER_CUT)?;
    }
    for page in &late {
        wait_for_page(source, (page * page_bytes()).max(from))?;
    }
    Ok(late.len() as u64)
}

/// Sleeps until the last page before `upto` has been read.
fn wait_for_last(source: &Source, from: u64, upto: u64) -> Result<(), BringError> {
    wait_for_page(source, ((upto - 1) / page_bytes() * page_bytes()).max(from))
}

/// Sleeps until the page that contains byte `at` has been read.
fn wait_for_page(source: &Source, at: u64) -> Result<(), BringError> {
    let fail = |error: io::Error| BringError { at, error };
    if source.own {
        let mut byte = [0u8; 1];
        let read = rustix::io::retry_on_intr(|| rustix::io::pread(source, &mut byte, at));
        return read.map(drop).map_err(|e| fail(e.into()));
    }
    match populate(source.as_fd(), at) {
        Err(Errno::INVAL) => poll_for_page(source, at).map_err(fail),
        // EFAULT instead of a bus error: the read failed, unless the file has been truncated meanwhile.
        Err(Errno::FAULT) if rustix::fs::fstat(source).is_ok_and(|s| at < s.st_size as u64) => {
            Err(fail(Errno::IO.into()))
        }
        Err(Errno::FAULT) | Ok(()) => Ok(()),
        Err(error) => Err(fail(error.into())),
    }
}

/// Waits for a page through a mapping. Faults through a mapping marked "random" neither use nor change the
/// read-ahead state of the `struct file`.
///
/// # Errors
/// `EINVAL`: before Linux 5.14; `EFAULT`: the page cannot be read, or lies beyond the end of the file; those
/// of `mmap`.
fn populate(file: BorrowedFd<'_>, at: u64) -> Result<(), Errno> {
    let len = page_bytes() as usize;
    let start = at / page_bytes() * page_bytes();
    // SAFETY: the kernel chooses a free address, so no existing mapping is replaced; the mapping is never
    // dereferenced here, and populating reports what would be a bus error as EFAULT.
    let map = unsafe {
        mm::mmap(std::ptr::null_mut(), len, mm::ProtFlags::READ, mm::MapFlags::SHARED, file, start)?
    };
    // SAFETY: `map` is the mapping of `len` bytes just made; neither advice changes the content of its bytes.
    let done = unsafe {
        mm::madvise(map, len, mm::Advice::Random)
            .and_then(|()| rustix::io::retry_on_intr(|| mm::madvise(map, len, mm::Advice::LinuxPopulateRead)))
    };
    // SAFETY: exactly the mapping made above; no reference to it exists.
    unsafe { mm::munmap(map, len)? };
    done
}

/// Waits for a page if [`populate`] is not available.
fn poll_for_page(source: &Source, at: u64) -> io::Result<()> {
    let started = Instant::now();
    while !missing_pages(source, at, at + 1)?.is_empty() {
        if started.elapsed() > POLL_MAX {
            return Err(io::ErrorKind::TimedOut.into());
        }
        thread::sleep(POLL);
    }
    Ok(())
}

/// Number of pages of these bytes, within the file, that are neither in memory nor in flight (0 if the kernel
/// does not report it); and the number of all pages.
fn absent(source: &Source, offset: u64, len: u64) -> (u64, u64) {
    let size = rustix::fs::fstat(source).map_or(0, |stat| stat.st_size as u64);
    let len = len.min(size.saturating_sub(offset));
    let pages = pages_of(offset, len);
    let there = cachestat(source.as_fd(), offset, len).map_or(pages, |stat| stat.cached);
    (pages.saturating_sub(there), pages)
}

/// Numbers of the pages of `[from, upto)`, within the file, that have not been read. Empty if the kernel does
/// not report this truthfully to this process; then their next reader waits for them.
fn missing_pages(source: &Source, from: u64, upto: u64) -> io::Result<Vec<u64>> {
    let size = rustix::fs::fstat(source)?.st_size as u64;
    let len = upto.min(size).saturating_sub(from);
    let mut missing = Vec::new();
    mincore(source.as_fd(), from, len, |page, resident| {
        if !resident {
            missing.push(page);
        }
        true
    })?;
    Ok(missing)
}
