//! Where running parts of Seekless find each other.

use std::env;
use std::io;
use std::path::PathBuf;

use clap::Args;
use seekless_base::{Exit, Fault};
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
    /// The socket that was named, or that of [`socket`].
    ///
    /// # Errors
    /// Those of [`socket`].
    pub fn path(&self) -> Result<PathBuf, Fault> {
        self.socket.clone().map_or_else(socket, Ok)
    }
}

/// The path of a daemon's socket, for a client: `$SEEKLESS_SOCKET`, else `daemon.sock` in the state folder.
///
/// # Errors
/// `Permission`: another user could have written what is in the state folder.
pub fn socket() -> Result<PathBuf, Fault> {
    named().map_or_else(|| state::folder().map(in_folder).map_err(fault), Ok)
}

/// The path of a daemon's socket, for the daemon: the state folder is made if it is missing.
///
/// # Errors
/// Those of [`socket`]; the folder cannot be made.
pub fn own_socket() -> Result<PathBuf, Fault> {
    named().map_or_else(|| state::made_folder().map(in_folder).map_err(fault), Ok)
}

/// The value of `$SEEKLESS_SOCKET`.
pub fn named() -> Option<PathBuf> {
    env::var_os("SEEKLESS_SOCKET").filter(|s| !s.is_empty()).map(PathBuf::from)
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
