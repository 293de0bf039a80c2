//! A shared mapping of a file, which ends with its owner.

use std::io;
use std::os::fd::AsFd;
use std::ptr;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

#[derive(Debug)]
pub(crate) struct Mapping {
    at: *mut libc::c_void,
    bytes: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread, and this type does not look into it; whoever
// dereferences `at` answers for how its content is shared.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `bytes` from `offset` on, both whole pages.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn of(
        file: impl AsFd,
        protection: ProtFlags,
        offset: u64,
        bytes: usize,
    ) -> io::Result<Mapping> {
        // SAFETY: the kernel chooses a free address, so no existing mapping is replaced.
        let at = unsafe { mmap(ptr::null_mut(), bytes, protection, MapFlags::SHARED, file, offset)? };
        Ok(Mapping { at, bytes })
    }

    /// Its first byte.
    pub(crate) fn at(&self) -> *mut libc::c_void {
        self.at
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping made above; references into it do not outlive its owner.
        let _ = unsafe { munmap(self.at, self.bytes) };
    }
}
