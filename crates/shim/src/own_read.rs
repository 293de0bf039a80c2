//! Mode `prefetch` as the paper has it (\[L\] 3.2): the application's own thread reads the longer range
//! before its call.

use std::cell::UnsafeCell;
use std::os::fd::{AsRawFd, BorrowedFd};

use seekless_base::wants::Want;

/// Bytes of [`SCRATCH`]. At half, a range takes twice as many vectors; at double, the library is that much
/// larger in memory.
const SCRATCH_BYTES: usize = 64 << 10;
/// Vectors of one call, and so 16 MiB: as far as a range is enlarged at most.
const SCRATCH_VECTORS: usize = 256;

/// Where the bytes of [`bring_in`] go. Nothing reads them.
struct Scratch(UnsafeCell<[u8; SCRATCH_BYTES]>);

// SAFETY: only the kernel writes to it, for any number of threads at once, and nothing reads it.
unsafe impl Sync for Scratch {}

static SCRATCH: Scratch = Scratch(UnsafeCell::new([0; SCRATCH_BYTES]));

/// Reads the range; it is in memory afterwards, unless it cannot be read. One call for all of it, so that the
/// kernel sees its length.
#[inline(never)]
pub(crate) fn bring_in(fd: BorrowedFd<'_>, want: Want) {
    let mut vectors =
        [libc::iovec { iov_base: SCRATCH.0.get().cast(), iov_len: SCRATCH_BYTES }; SCRATCH_VECTORS];
    let (mut at, end) = (want.offset(), want.end());
    while at < end {
        let length = (end - at).min((SCRATCH_BYTES * SCRATCH_VECTORS) as u64) as usize;
        let count = length.div_ceil(SCRATCH_BYTES);
        if let Some(last) = vectors.get_mut(count - 1) {
            last.iov_len = length - (count - 1) * SCRATCH_BYTES;
        }
        // SAFETY: every vector lies inside `SCRATCH`. By its number, as the C library's name is a hook of
        // ours.
        let got =
            unsafe { libc::syscall(libc::SYS_preadv2, fd.as_raw_fd(), vectors.as_ptr(), count, at, 0, 0) };
        match u64::try_from(got) {
            Ok(0) | Err(_) => return,
            Ok(got) => at += got,
        }
        if let Some(last) = vectors.get_mut(count - 1) {
            last.iov_len = SCRATCH_BYTES;
        }
    }
}
