//! Results of system calls that are made through `libc`.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// The number that a call returned; the error of the calling thread if it is negative.
pub(crate) fn done(result: impl Into<i64>) -> io::Result<i64> {
    let result = result.into();
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// The descriptor that a call returned.
///
/// # Safety
/// A result that is not negative is an open descriptor without another owner.
pub(crate) unsafe fn owned(result: impl Into<i64>) -> io::Result<OwnedFd> {
    // SAFETY: see above.
    done(result).map(|fd| unsafe { OwnedFd::from_raw_fd(fd as i32) })
}
