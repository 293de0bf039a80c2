//! Why a daemon cannot start, with the line and the exit status for it.

use std::fmt;
use std::io;
use std::path::PathBuf;

use seekless_base::{Exit, Fault};
use seekless_kernel::lsm;

/// Why a daemon could not start.
#[derive(Debug)]
pub enum StartError {
    /// Another daemon answers there.
    Running(PathBuf),
    /// The path exists and is not a socket.
    Occupied(PathBuf),
    /// The socket's folder cannot be made.
    Folder {
        /// The folder.
        dir: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The socket cannot be made.
    Listen {
        /// Its path.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// No thread or event queue is available.
    Threads(io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Running(path) => write!(
                f,
                "a daemon already listens at {}; stop it, or give this one another --socket",
                path.display()
            ),
            StartError::Occupied(path) => write!(
                f,
                "{} is in the way and is not a dead socket; remove it, or choose another --socket",
                path.display()
            ),
            StartError::Folder { dir, error } => write!(
                f,
                "cannot make the folder {}: {error}; set SEEKLESS_STATE or --socket to a place you may write",
                dir.display()
            ),
            StartError::Listen { path, error } => {
                write!(f, "cannot listen at {}: {error}; choose another --socket", path.display())
            }
            StartError::Threads(error) => {
                write!(f, "cannot start the daemon's threads: {error}; check ulimit -u")
            }
        }
    }
}

impl std::error::Error for StartError {}

impl From<StartError> for Fault {
    fn from(error: StartError) -> Fault {
        let exit = match &error {
            StartError::Running(_) | StartError::Occupied(_) => Exit::Busy,
            StartError::Folder { error, .. } | StartError::Listen { error, .. } => match error.kind() {
                io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Exit::Permission,
                io::ErrorKind::InvalidInput => Exit::Usage,
                _ => Exit::Failed,
            },
            StartError::Threads(_) => Exit::Failed,
        };
        let lsm = match &error {
            StartError::Folder { error, .. } | StartError::Listen { error, .. } => lsm::hint(error),
            _ => String::new(),
        };
        Fault::new(exit, error.to_string() + &lsm)
    }
}
