//! Socket activation: the service manager makes the listening socket and passes it to the daemon. The socket
//! is there before the daemon, and stays while the daemon is started again; who connects meanwhile waits.
//!
//! The path, its permission bits and its end are the service manager's: nothing here changes them.

use std::ffi::OsStr;
use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::net::SocketAddrUnix;
use seekless_base::{Exit, Fault};
use seekless_kernel::{fdpass, service};

/// A listening socket that was passed, and where it listens.
pub(crate) struct Activated {
    pub(crate) path: PathBuf,
    pub(crate) socket: OwnedFd,
}

/// The socket that was passed to this process; `None`: none was. `asked`: where it is to listen, if that was
/// said; `mode`: permission bits that were asked for.
///
/// # Errors
/// It is none to listen at, or not the one that was asked for; there are several.
pub(crate) fn socket(asked: Option<&Path>, mode: Option<u32>) -> Result<Option<Activated>, Fault> {
    let usage = |message: String| Err(Fault::new(Exit::Usage, message));
    let mut all = service::passed().map_err(|error| {
        Fault::new(Exit::Failed, format!("cannot take the sockets that systemd passes (LISTEN_FDS): {error}"))
    })?;
    let Some(passed) = all.pop() else { return Ok(None) };
    if !all.is_empty() {
        let count = all.len() + 1;
        return usage(format!(
            "systemd passes {count} sockets; the daemon takes one: leave one ListenSequentialPacket="
        ));
    }
    let unit = passed.name;
    let path = path_of(passed.socket.as_fd());
    let Some(path) = path.filter(|_| fdpass::listens(passed.socket.as_fd())) else {
        return usage(format!(
            "what systemd passes by {unit} is no Unix socket with a path that listens and keeps packets apart; write \
             ListenSequentialPacket=PATH there, without Accept=yes"
        ));
    };
    if let Some(asked) = asked.filter(|asked| !same(asked, &path)) {
        return usage(format!(
            "{unit} listens at {}, and --socket or SEEKLESS_SOCKET says {}; leave that out, or change \
             ListenSequentialPacket=",
            path.display(),
            asked.display()
        ));
    }
    if mode.is_some() {
        return usage(format!(
            "the socket is that of {unit}; write SocketMode= there instead of --socket-mode"
        ));
    }
    Ok(Some(Activated { path, socket: passed.socket }))
}

/// The path that a socket is bound to; `None`: it has none, or is no Unix socket.
fn path_of(socket: BorrowedFd<'_>) -> Option<PathBuf> {
    let address = SocketAddrUnix::try_from(rustix::net::getsockname(socket).ok()?).ok()?;
    Some(OsStr::from_bytes(address.path_bytes()?).into())
}

/// Whether both name one file.
fn same(a: &Path, b: &Path) -> bool {
    a == b || matches!((fs::canonicalize(a), fs::canonicalize(b)), (Ok(a), Ok(b)) if a == b)
}
