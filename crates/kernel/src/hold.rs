//! Keeping what was read ahead until its reader comes.
//!
//! The kernel does not know that a page just read ahead is about to be used. Its reclaim takes first what was
//! not touched twice, and that is what was read ahead. A pager of idle memory (DAMON with the action
//! `pageout`) takes what has not been touched for some seconds, even with memory to spare. So a piece that
//! waits for its reader is mapped, which such a pager can be told to leave alone, and touched, which moves it
//! to the active list; what the reader has passed is marked cold, so that memory is found there first.
//!
//! It is no lock: under pressure the pages go as others do, and a process that dies holds nothing.
//! `mlock` would hold them against a memory limit too, and so have the server killed for what was read ahead
//! for it.

use std::fs;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::mm;

use crate::residency::{page_bytes, resident_prefix};

/// Part of the mappings a process may have that may be holds: the heap and the stacks of threads need some
/// too, and letting go of a part makes two of one for a moment.
const MAPPINGS_PART: usize = 8;

/// `vm.max_map_count` where it cannot be read.
const MAPPINGS_USUAL: usize = 65530;

/// Holds of this process.
static HOLDS: AtomicUsize = AtomicUsize::new(0);

/// Most there may be.
fn holds_max() -> usize {
    static MAX: OnceLock<usize> = OnceLock::new();
    *MAX.get_or_init(|| {
        let mappings = fs::read_to_string("/proc/sys/vm/max_map_count");
        mappings.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(MAPPINGS_USUAL) / MAPPINGS_PART
    })
}

/// A part of a file, mapped. Never dereferenced: a file cut short under it does no harm.
#[derive(Debug)]
pub struct Hold {
    /// Where the first page still held is mapped.
    at: *mut core::ffi::c_void,
    /// File offset of the first page still held.
    offset: u64,
    /// File offset behind the last.
    end: u64,
}

// SAFETY: the mapping belongs to the process, not to a thread, and only its owner changes it.
unsafe impl Send for Hold {}

impl Hold {
    /// Maps the pages that hold `[offset, offset + len)`. They must all be in memory; one that leaves in this
    /// very moment is read again, which takes as long as the disk does.
    ///
    /// # Errors
    /// Bytes that are not in memory (`NotFound`), a file that cannot be mapped (`EACCES`, `ENODEV`), a page
    /// that lies beyond the end of the file (`EFAULT`), a kernel before Linux 5.14 (`EINVAL`), an eighth of
    /// the process's mappings held already (`ENOMEM`). Nothing is mapped then.
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
        // SAFETY: the kernel chooses a free address, nothing of ours is replaced, and the mapping is never
        // dereferenced.
        let mapped = unsafe { mm::mmap(std::ptr::null_mut(), bytes, protection, flags, file, offset) };
        let at = mapped.inspect_err(|_| {
            HOLDS.fetch_sub(1, Ordering::Relaxed);
        })?;
        let hold = Hold { at, offset, end };
        hold.touch()?;
        Ok(hold)
    }

    /// Moves what is still held to the head of the active list, from wherever it is by now. `file` is the one
    /// that is mapped.
    ///
    /// # Errors
    /// Bytes that are not in memory (`NotFound`): nothing is touched then. A file cut short meanwhile
    /// (`EFAULT`): what lies before its new end is touched once.
    pub fn renew(&self, file: BorrowedFd<'_>) -> io::Result<()> {
        let size = rustix::fs::fstat(file)?.st_size as u64;
        let inside = self.end.min(size).saturating_sub(self.offset);
        if resident_prefix(file, self.offset, inside)? < inside {
            return Err(io::ErrorKind::NotFound.into());
        }
        // A page that is active stays where it is in the list when it is touched.
        self.advise(mm::Advice::LinuxCold)?;
        // Pages leave the active list by the batch, and what is left in the last one would leave it when it
        // has been touched already. A call begins by emptying it.
        self.advise_first(page_bytes() as usize, mm::Advice::LinuxCold)?;
        self.touch()
    }

    /// "Random" keeps these faults from starting read-ahead of their own; a page touched twice is active;
    /// "normal" lets reclaim see that it was touched.
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

    /// Of the first `bytes`, which must not be more than there are.
    fn advise_first(&self, bytes: usize, advice: mm::Advice) -> io::Result<()> {
        // SAFETY: our own mapping; none of the advices given changes what its bytes are, and populating
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

    /// Lets go of the whole pages before the file offset `upto`, whose reader has left or stands still: they
    /// stay as active as they are.
    pub fn release_before(&mut self, upto: u64) {
        self.unmap_before(upto, mm::Advice::Random);
    }

    /// The same of pages that no reader is to come for: memory is to be found there first.
    pub fn cool_before(&mut self, upto: u64) {
        self.unmap_before(upto, mm::Advice::LinuxCold);
    }

    /// Parts it in two: what is returned begins at the page that holds the file offset `at`.
    pub fn split_off(&mut self, at: u64) -> Hold {
        let at = (at / page_bytes() * page_bytes()).clamp(self.offset, self.end);
        HOLDS.fetch_add(1, Ordering::Relaxed);
        let rest =
            Hold { at: self.at.wrapping_byte_add((at - self.offset) as usize), offset: at, end: self.end };
        self.end = at;
        rest
    }

    /// An error leaves the pages held, which costs nothing but time.
    fn unmap_before(&mut self, upto: u64, advice: mm::Advice) {
        let upto = (upto / page_bytes() * page_bytes()).min(self.end);
        let Some(bytes) = upto.checked_sub(self.offset).filter(|&b| b > 0) else { return };
        // SAFETY: the first `bytes` of our own mapping, into which no reference exists. Either advice keeps
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
