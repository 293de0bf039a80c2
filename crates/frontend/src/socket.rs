//! The name of a daemon's socket, and a connection to it.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::io::Errno;
use seekless_kernel::fdpass::{self, Address, SOCKET_PATH_BYTES_MAX};

/// A path as the name of a socket.
///
/// # Errors
/// It is too long, or contains a zero byte.
pub fn socket_name(path: &Path) -> io::Result<CString> {
    let bytes = path.as_os_str().as_bytes();
    if bytes.len() > SOCKET_PATH_BYTES_MAX {
        let why =
            format!("a socket's path may have {SOCKET_PATH_BYTES_MAX} bytes, this one has {}", bytes.len());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    CString::new(bytes)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "a path cannot hold a zero byte"))
}

/// Connects to a daemon's socket. Not to its twin, whose name any process may take.
///
/// # Errors
/// No daemon listens there, or it cannot be reached.
pub fn connect(path: &CStr) -> Result<OwnedFd, Errno> {
    fdpass::connect(Address::Path(path))
}
