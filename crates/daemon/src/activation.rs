//! Socket activation: the service manager makes the listening socket and passes it to the daemon. The socket
//! exists before the daemon, and stays while the daemon restarts; connections made meanwhile wait.
//!
//! The service manager owns the path, its permission bits and its removal: nothing here changes them.

use std::ffi::OsStr;
use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::net::SocketAddrUnix;
use seekless_base::Fault;
use seekless_kernel::{fdpass, service};

/// A listening socket that was passed, and its path.
pub(crate) struct Activated {
    pub(crate) path: PathBuf,
    pub(crate) socket: OwnedFd,
}

/// The socket that was passed to this process; `None` if there is none. `asked`: the path where it should
/// listen, if given; `mode`: the permission bits that it should have.
///
/// # Errors
/// Not a listening socket, not the one that was asked for, or several sockets.
pub(crate) fn socket(asked: Option<&Path>, mode: Option<u32>) -> Result<Option<Activated>, Fault> {
    let mut all = service::passed().map_err(|error| {
        Fault::failed(format!("cannot take the sockets that systemd passes (LISTEN_FDS): {error}"))
    })?;
    let Some(passed) = all.pop() else { return Ok(None) };
    if !all.is_empty() {
        let count = all.len() + 1;
        return Err(Fault::usage(format!(
            "systemd passes {count} sockets; the daemon takes one: leave one ListenSequentialPacket="
        )));
    }
    let unit = passed.name;
    let path = path_of(passed.socket.as_fd());
    let Some(path) = path.filter(|_| fdpass::listens(passed.socket.as_fd())) else {
        return Err(Fault::usage(format!(
            "what systemd passes by {unit} is not a listening packet socket with a path; write \
             ListenSequentialPacket=PATH there, without Accept=yes"
        )));
    };
    if let Some(asked) = asked.filter(|asked| !same(asked, &path)) {
        return Err(Fault::usage(format!(
            "{unit} listens at {}, and --socket or SEEKLESS_SOCKET says {}; leave that out, or change \
             ListenSequentialPacket=",
            path.display(),
            asked.display()
        )));
    }
    if mode.is_some() {
        return Err(Fault::usage(format!(
            "the socket is that of {unit}; write SocketMode= there instead of --socket-mode"
        )));
    }
    Ok(Some(Activated { path, socket: passed.socket }))
}

/// The path that a socket is bound to; `None` if it has none or is not a Unix socket.
fn path_of(socket: BorrowedFd<'_>) -> Option<PathBuf> {
    let address = SocketAddrUnix::try_from(rustix::net::getsockname(socket).ok()?).ok()?;
    Some(OsStr::from_bytes(address.path_bytes()?).into())
}

/// Whether both paths name the same file.
fn same(a: &Path, b: &Path) -> bool {
    a == b || matches!((fs::canonicalize(a), fs::canonicalize(b)), (Ok(a), Ok(b)) if a == b)
}
