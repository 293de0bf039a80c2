//! Keeps prefetched pages in memory until they are read.
//!
//! The kernel does not know that a page just prefetched is about to be used. Its reclaim first takes pages
//! that were not touched twice, and these are the prefetched ones. A pager of idle memory (DAMON with the
//! action `pageout`) takes pages that have not been touched for some seconds, even if memory is free. So a
//! piece that waits for its reader is mapped, which such a pager can be told to leave alone, and touched,
//! which moves it to the active list. Pages that the reader has passed are marked cold, so that they are
//! evicted first.
//!
//! It is no lock: under pressure these pages are evicted like others, and a process that dies holds nothing.
//! `mlock` would hold them even against a memory limit, and so get the server killed because of its
//! read-ahead.

use std::fs;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::mm;

use crate::residency::{page_bytes, resident_prefix};

/// Divisor of the maximum number of mappings: holds may use this fraction of them. The heap and the stacks of
/// threads need some too, and releasing a part temporarily splits one mapping in two.
const MAPPINGS_PART: usize = 8;

/// `vm.max_map_count` if it cannot be read.
const MAPPINGS_USUAL: usize = 65530;

/// Number of holds in this process.
static HOLDS: AtomicUsize = AtomicUsize::new(0);

/// Maximum number of holds.
fn holds_max() -> usize {
    static MAX: OnceLock<usize> = OnceLock::new();
    *MAX.get_or_init(|| {
        let mappings = fs::read_to_string("/proc/sys/vm/max_map_count");
        mappings.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(MAPPINGS_USUAL) / MAPPINGS_PART
    })
}

/// A mapped part of a file. Never dereferenced, so truncating the file does no harm.
#[derive(Debug)]
pub struct Hold {
    /// Address of the first page still held.
    at: *mut core::ffi::c_void,
    /// File offset of the first page still held.
    offset: u64,
    /// File offset behind the last page.
    end: u64,
}

// SAFETY: the mapping belongs to the process, not to a thread, and only its owner changes it.
unsafe impl Send for Hold {}

impl Hold {
    /// Maps the pages that contain `[offset, offset + len)`. They must all be in memory; a page evicted at
    /// this very moment is read again, which takes as long as the disk needs.
    ///
    /// # Errors
    /// Bytes that are not in memory (`NotFound`), a file that cannot be mapped (`EACCES`, `ENODEV`), a page
    /// beyond the end of the file (`EFAULT`), a kernel before Linux 5.14 (`EINVAL`), an eighth of the
    /// process's mappings held already (`ENOMEM`). Nothing is mapped then.
    pub fn new(file: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<Hold> {
        let page = page_bytes();
        let end = offset.saturating_add(len).div_ceil(page) * page;
        let offset = offset / page * page;
        let bytes = usize::try_from(end - offset).map_err(|_| io::ErrorKind::InvalidInput)?;
        let size = rustix::fs::fstat(file)?.st_size as u64;
        let inside = end.min(size).saturating_sub(offset);
        if resident_prefix(file, offset, inside)? < inside {
            return Err(io::ErrorKind::NotFound.into());
        }
        if HOLDS.fetch_add(1, Ordering::Relaxed) >= holds_max() {
            HOLDS.fetch_sub(1, Ordering::Relaxed);
            return Err(rustix::io::Errno::NOMEM.into());
        }
        let (protection, flags) = (mm::ProtFlags::READ, mm::MapFlags::SHARED);
        // SAFETY: the kernel chooses a free address, so no existing mapping is replaced, and the mapping is
        // never dereferenced.
        let mapped = unsafe { mm::mmap(std::ptr::null_mut(), bytes, protection, flags, file, offset) };
        let at = mapped.inspect_err(|_| {
            HOLDS.fetch_sub(1, Ordering::Relaxed);
        })?;
        let hold = Hold { at, offset, end };
        hold.touch()?;
        Ok(hold)
    }

    /// Moves the pages still held to the head of the active list, wherever they are by now. `file` must be
    /// the mapped file.
    ///
    /// # Errors
    /// Bytes that are not in memory (`NotFound`): then nothing is touched. A file truncated meanwhile
    /// (`EFAULT`): pages before its new end are touched once.
    pub fn renew(&self, file: BorrowedFd<'_>) -> io::Result<()> {
        let size = rustix::fs::fstat(file)?.st_size as u64;
        let inside = self.end.min(size).saturating_sub(self.offset);
        if resident_prefix(file, self.offset, inside)? < inside {
            return Err(io::ErrorKind::NotFound.into());
        }
        // Touching an active page does not move it in the list.
        self.advise(mm::Advice::LinuxCold)?;
        // Pages leave the active list in batches, and pages left in the last batch would leave it after they
        // were touched. The next call flushes the batch first.
        self.advise_first(page_bytes() as usize, mm::Advice::LinuxCold)?;
        self.touch()
    }

    /// "Random" keeps these faults from starting read-ahead of their own; a page touched twice becomes
    /// active; "normal" lets reclaim see that it was touched.
    fn touch(&self) -> io::Result<()> {
        use mm::Advice::{LinuxPopulateRead, Normal, Random};
        let touched =
            [Random, LinuxPopulateRead, LinuxPopulateRead].into_iter().try_for_each(|a| self.advise(a));
        self.advise(Normal)?;
        touched
    }

    fn advise(&self, advice: mm::Advice) -> io::Result<()> {
        self.advise_first((self.end - self.offset) as usize, advice)
    }

    /// Advises on the first `bytes`, which must not exceed what is held.
    fn advise_first(&self, bytes: usize, advice: mm::Advice) -> io::Result<()> {
        // SAFETY: our own mapping; none of the advices changes the content of its bytes, and populating
        // reports what would be a bus error as EFAULT.
        rustix::io::retry_on_intr(|| unsafe { mm::madvise(self.at, bytes, advice) })?;
        Ok(())
    }

    /// File offset of the first byte still held.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// File offset behind the last byte held.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Releases the whole pages before the file offset `upto`, because their reader has left or paused: they
    /// stay as active as they are.
    pub fn release_before(&mut self, upto: u64) {
        self.unmap_before(upto, mm::Advice::Random);
    }

    /// Releases pages that no reader is expected to read, and marks them to be evicted first.
    pub fn cool_before(&mut self, upto: u64) {
        self.unmap_before(upto, mm::Advice::LinuxCold);
    }

    /// Splits it: the returned part begins at the page that contains the file offset `at`.
    pub fn split_off(&mut self, at: u64) -> Hold {
        let at = (at / page_bytes() * page_bytes()).clamp(self.offset, self.end);
        HOLDS.fetch_add(1, Ordering::Relaxed);
        let rest =
            Hold { at: self.at.wrapping_byte_add((at - self.offset) as usize), offset: at, end: self.end };
        self.end = at;
        rest
    }

    /// After an error the pages stay held, which costs only time.
    fn unmap_before(&mut self, upto: u64, advice: mm::Advice) {
        let upto = (upto / page_bytes() * page_bytes()).min(self.end);
        let Some(bytes) = upto.checked_sub(self.offset).filter(|&b| b > 0) else { return };
        // SAFETY: the first `bytes` of our own mapping, to which no reference exists. Either advice keeps
        // unmapping from counting as a use of each page.
        let done = unsafe {
            let _ = mm::madvise(self.at, bytes as usize, advice);
            mm::munmap(self.at, bytes as usize)
        };
        if done.is_ok() {
            self.at = self.at.wrapping_byte_add(bytes as usize);
            self.offset = upto;
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.release_before(self.end);
        HOLDS.fetch_sub(1, Ordering::Relaxed);
    }
}
