//! Keeping what was read ahead until its reader comes.
//!
//! The kernel does not know that a page just read ahead is about to be used. Its reclaim takes first what nobody has touched twice, which
//! is exactly that; and a proactive pager (DAMON with the action `pageout`) takes what has not been touched for some seconds, with
//! memory to spare. So a piece that waits for its reader is mapped, which such a pager can be told to leave alone, and touched, which moves
//! it to the active list; what the reader has passed is marked cold, so that memory is found there first.
//!
//! It is no lock: under pressure the pages go as others do, nothing is charged, and a process that dies holds nothing.
//! `mlock` would hold them against a memory limit too, and so have the server killed for what was read ahead for it.

use std::io;
use std::os::fd::BorrowedFd;

use rustix::mm;

use crate::residency::page_bytes;

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
    /// Maps the pages that hold `[offset, offset + len)`, all of which should be in memory: what is not is read, page by page.
    ///
    /// # Errors
    /// A file that cannot be mapped (`EACCES`, `ENODEV`), a page that cannot be read or lies beyond the end of the file
    /// (`EFAULT`), a kernel before Linux 5.14 (`EINVAL`), too many mappings (`ENOMEM`). Nothing is mapped then.
    pub fn new(file: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<Hold> {
        let page = page_bytes();
        let end = offset.saturating_add(len).div_ceil(page) * page;
        let offset = offset / page * page;
        let bytes = usize::try_from(end - offset).map_err(|_| io::ErrorKind::InvalidInput)?;
        let (protection, flags) = (mm::ProtFlags::READ, mm::MapFlags::SHARED);
        // SAFETY: the kernel chooses a free address, nothing of ours is replaced, and the mapping is never dereferenced.
        let at = unsafe { mm::mmap(std::ptr::null_mut(), bytes, protection, flags, file, offset)? };
        let hold = Hold { at, offset, end };
        // "Random" keeps these faults from starting read-ahead of their own; a page touched twice is active; "normal" lets
        // reclaim see that it was touched.
        for advice in [
            mm::Advice::Random,
            mm::Advice::LinuxPopulateRead,
            mm::Advice::LinuxPopulateRead,
            mm::Advice::Normal,
        ] {
            // SAFETY: the mapping just made; none of these changes what its bytes are, and populating reports what would be a
            // bus error as EFAULT.
            rustix::io::retry_on_intr(|| unsafe { mm::madvise(at, bytes, advice) })?;
        }
        Ok(hold)
    }

    /// File offset of the first byte still held.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// File offset behind the last byte held.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Lets go of the whole pages before the file offset `upto`. An error leaves them held, which costs nothing but time.
    pub fn release_before(&mut self, upto: u64) {
        let upto = (upto / page_bytes() * page_bytes()).min(self.end);
        let Some(bytes) = upto.checked_sub(self.offset).filter(|&b| b > 0) else { return };
        // SAFETY: the first `bytes` of our own mapping, into which no reference exists. "Cold" first: unmapping alone
        // would count as a use of each page and keep it when its reader has passed.
        let done = unsafe {
            let _ = mm::madvise(self.at, bytes as usize, mm::Advice::LinuxCold);
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
    }
}
