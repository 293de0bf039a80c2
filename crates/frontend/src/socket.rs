//! The daemon's socket: where it is, its name, and a connection to it.

use std::env;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::Args;
use rustix::io::Errno;
use seekless_base::{Exit, Fault};
use seekless_kernel::fdpass::{self, Address, SOCKET_PATH_BYTES_MAX};
use seekless_kernel::state;

/// Which running daemon a command talks to.
#[derive(Args, Clone, Debug, Default)]
pub struct SocketOption {
    /// Socket of the daemon [default: $SEEKLESS_SOCKET, else daemon.sock in the state folder, /run/seekless
    /// for root]
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
}

impl SocketOption {
    /// The socket that was named, or that of [`client_path`].
    ///
    /// # Errors
    /// Those of [`client_path`].
    pub fn path(&self) -> Result<PathBuf, Fault> {
        self.socket.clone().map_or_else(client_path, Ok)
    }
}

/// The path of a daemon's socket, for a client: `$SEEKLESS_SOCKET`, else `daemon.sock` in the state folder.
///
/// # Errors
/// `Permission`: another user could have written what is in the state folder.
pub fn client_path() -> Result<PathBuf, Fault> {
    from_environment().map_or_else(|| state::folder().map(in_folder).map_err(fault), Ok)
}

/// The path of a daemon's socket, for the daemon: the state folder is made if it is missing.
///
/// # Errors
/// Those of [`client_path`]; the folder cannot be made.
pub fn daemon_path() -> Result<PathBuf, Fault> {
    from_environment().map_or_else(|| state::made_folder().map(in_folder).map_err(fault), Ok)
}

/// The value of `$SEEKLESS_SOCKET`, if it is set and not empty.
pub fn from_environment() -> Option<PathBuf> {
    env::var_os("SEEKLESS_SOCKET").filter(|s| !s.is_empty()).map(PathBuf::from)
}

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

fn in_folder(folder: PathBuf) -> PathBuf {
    folder.join("daemon.sock")
}

fn fault(error: io::Error) -> Fault {
    let exit = match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Exit::Permission,
        _ => Exit::Failed,
    };
    Fault::new(exit, error.to_string())
}
