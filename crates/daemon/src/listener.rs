//! The two listening sockets: a path, and its twin in the abstract namespace for servers that cannot reach
//! the path.

use std::ffi::CStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use seekless_frontend::socket::socket_name;
use seekless_kernel::fdpass::{self, Address, TwinName};
use seekless_kernel::socketfile;
use seekless_kernel::twinkey::{self, Key, KeyPath};

use crate::activation::Activated;
use crate::start_error::StartError;

/// Connections that may wait to be accepted. The kernel cuts it to net.core.somaxconn (4096), so double is no
/// more. At half of it, when all threads of a large server miss at once, some read for themselves.
const BACKLOG: i32 = 4096;

/// How often a lock is tried that another daemon holds for a moment, and how long between. At half of it one
/// that is not given a processor meanwhile may be overtaken; at double a user that holds the lock delays a
/// start by two seconds.
const LOCK_TRIES: u32 = 100;
const LOCK_AGAIN: Duration = Duration::from_millis(10);

/// The sockets, if there are any; the path is removed when this is dropped.
pub(crate) struct Listener {
    at_path: Option<AtPath>,
    at_twin: Option<OwnedFd>,
    /// By which this daemon proves itself at the twin.
    key: Option<Key>,
    others_allowed: bool,
    /// The service manager made the socket at the path.
    activated: bool,
}

/// No socket file has this inode.
const NOT_OURS: u64 = 0;

struct AtPath {
    path: PathBuf,
    socket: OwnedFd,
    /// Inode of the socket file, so that only our own is removed; [`NOT_OURS`]: to be left there.
    inode: Arc<AtomicU64>,
}

impl Listener {
    /// Nowhere: no shim can connect.
    pub(crate) fn none() -> Listener {
        Listener { at_path: None, at_twin: None, key: None, others_allowed: false, activated: false }
    }

    /// Listens at `path` with these permission bits, in place of a dead socket if one is there.
    pub(crate) fn bind(path: &Path, mode: u32) -> Result<Listener, StartError> {
        let io_error = |error: io::Error| StartError::Listen { path: path.to_path_buf(), error };
        let name = socket_name(path).map_err(io_error)?;
        if let Some(dir) = path.parent().filter(|d| !d.as_os_str().is_empty()) {
            // Other users' servers must be able to reach the socket; its mode bits decide which users may
            // connect.
            let made = fs::DirBuilder::new().recursive(true).mode(0o755).create(dir);
            made.map_err(|error| StartError::Folder { dir: dir.to_path_buf(), error })?;
        }
        let _locked = lock_folder(path);
        match fdpass::connect(Address::Path(&name)) {
            Ok(daemon) if !is_dead(daemon.as_fd()) => return Err(StartError::Running(path.to_path_buf())),
            Err(Errno::AGAIN) => return Err(StartError::Running(path.to_path_buf())),
            Ok(_) | Err(Errno::CONNREFUSED) => {
                let is_socket = fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_socket());
                if is_socket {
                    fs::remove_file(path).map_err(io_error)?;
                }
            }
            Err(_) => {}
        }
        let socket = socketfile::listen(&name, BACKLOG, mode).map_err(|e| match e {
            Errno::ADDRINUSE => StartError::Occupied(path.to_path_buf()),
            other => io_error(other.into()),
        })?;
        let inode = Arc::new(AtomicU64::new(inode(path).map_err(io_error)?));
        let at_twin = twin(&name);
        let at_path = Some(AtPath { path: path.to_path_buf(), socket, inode });
        let others_allowed = mode & 0o002 != 0;
        let key = at_twin.as_ref().and_then(|_| twin_key(&name, others_allowed));
        Ok(Listener { at_path, at_twin, key, others_allowed, activated: false })
    }

    /// Listens at a socket that the service manager has made.
    pub(crate) fn activated(from: Activated) -> Result<Listener, StartError> {
        let Activated { path, socket } = from;
        let io_error = |error: io::Error| StartError::Listen { path: path.clone(), error };
        let name = socket_name(&path).map_err(io_error)?;
        let at_twin = twin(&name);
        fdpass::listen_again(socket.as_fd(), BACKLOG).map_err(|e| io_error(e.into()))?;
        let others_allowed = others_may(&path).map_err(io_error)?;
        let inode = Arc::new(AtomicU64::new(NOT_OURS));
        let at_path = Some(AtPath { path, socket, inode });
        let key = at_twin.as_ref().and_then(|_| twin_key(&name, others_allowed));
        Ok(Listener { at_path, at_twin, key, others_allowed, activated: true })
    }

    /// Listens at the sockets of the daemon that runs at `path`, as it has handed them over. The path is that
    /// daemon's until the claim is made good. `bits`: permission bits for it; `None`: it is the service
    /// manager's.
    pub(crate) fn inherit(
        path: &Path,
        bits: Option<u32>,
        socket: OwnedFd,
        at_twin: Option<OwnedFd>,
    ) -> Result<(Listener, Claim), StartError> {
        let io_error = |error: io::Error| StartError::Listen { path: path.to_path_buf(), error };
        if !fdpass::listens(socket.as_fd()) || at_twin.as_ref().is_some_and(|s| !fdpass::listens(s.as_fd())) {
            let why = "what the daemon there handed over does not listen";
            return Err(io_error(io::Error::new(io::ErrorKind::InvalidData, why)));
        }
        let name = socket_name(path).map_err(io_error)?;
        let at_twin = at_twin.or_else(|| twin(&name));
        let sockets = [Some(&socket), at_twin.as_ref()].into_iter().flatten().map(OwnedFd::try_clone);
        let sockets = sockets.collect::<io::Result<_>>().map_err(io_error)?;
        let inode = Arc::new(AtomicU64::new(NOT_OURS));
        let others_allowed =
            bits.map_or_else(|| others_may(path), |bits| Ok(bits & 0o002 != 0)).map_err(io_error)?;
        let claim = Claim { path: path.to_path_buf(), bits, sockets, inode: inode.clone() };
        let at_path = Some(AtPath { path: path.to_path_buf(), socket, inode });
        let key = at_twin.as_ref().and_then(|_| twin_key(&name, others_allowed));
        Ok((Listener { at_path, at_twin, key, others_allowed, activated: bits.is_none() }, claim))
    }

    /// The socket at the path and its twin, to hand them to another daemon.
    pub(crate) fn offered(&self) -> Option<(BorrowedFd<'_>, Option<BorrowedFd<'_>>)> {
        let at_path = self.at_path.as_ref()?;
        Some((at_path.socket.as_fd(), self.at_twin.as_ref().map(AsFd::as_fd)))
    }

    /// Whether the service manager made the socket at the path.
    pub(crate) fn is_activated(&self) -> bool {
        self.activated
    }

    /// Leaves the path to the daemon that has taken over.
    pub(crate) fn disown(&self) {
        if let Some(at_path) = &self.at_path {
            at_path.inode.store(NOT_OURS, Ordering::Relaxed);
        }
    }

    /// By which this daemon proves itself at the twin.
    pub(crate) fn key(&self) -> Option<Key> {
        self.key
    }

    /// Every listening socket.
    pub(crate) fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.at_path.iter().map(|p| &p.socket).chain(&self.at_twin).map(|s| s.as_fd())
    }

    /// Whether a peer of this account ([`crate::accounts`]) may connect by the socket of this number:
    /// abstract sockets have no permission bits, so those of the path are applied here. At the path the
    /// kernel has applied them, and those for a group too.
    pub(crate) fn admits(&self, number: usize, account: u32) -> bool {
        let at_activated_path = self.activated && number == 0;
        let own = account == 0 || account == rustix::process::geteuid().as_raw();
        self.others_allowed || own || at_activated_path
    }

    /// Whether the socket of this number is the one at the path.
    pub(crate) fn is_path(&self, number: usize) -> bool {
        number == 0 && self.at_path.is_some()
    }
}

impl Drop for AtPath {
    fn drop(&mut self) {
        // Another daemon may have taken the path over after it was removed.
        let ours = self.inode.load(Ordering::Relaxed);
        if ours != NOT_OURS && inode(&self.path).is_ok_and(|i| i == ours) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// What makes inherited sockets ours.
pub(crate) struct Claim {
    path: PathBuf,
    /// As in [`Listener::inherit`].
    bits: Option<u32>,
    sockets: Vec<OwnedFd>,
    inode: Arc<AtomicU64>,
}

impl Claim {
    /// The daemon that had the sockets has let go of them: peers are shown our credentials. A path that is
    /// ours has our permission bits, and is removed at our end.
    ///
    /// # Errors
    /// The path is no longer there, or not to be changed. Open connections are still served.
    pub(crate) fn make_good(self) -> io::Result<()> {
        for socket in &self.sockets {
            fdpass::listen_again(socket.as_fd(), BACKLOG)?;
        }
        if let Some(bits) = self.bits {
            socketfile::set_bits(&self.path, bits)?;
            self.inode.store(inode(&self.path)?, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Whether the process that listens there was killed and does not end, because one of its threads waits for a
/// file that hangs: its sockets stay, and nobody accepts.
fn is_dead(connection: BorrowedFd<'_>) -> bool {
    let pid = fdpass::peer(connection).map_or(0, |peer| peer.pid);
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name before it may hold anything.
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    matches!(state, Some('Z' | 'X'))
}

/// Keeps other daemons from taking a socket of this folder for dead meanwhile, until it is dropped. Any user
/// may hold this lock, so it is not waited for long.
fn lock_folder(path: &Path) -> Option<OwnedFd> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::open(dir, flags, Mode::empty()).ok()?;
    let locked = (0..LOCK_TRIES).any(|_| {
        let locked = rustix::fs::flock(&folder, FlockOperation::NonBlockingLockExclusive).is_ok();
        if !locked {
            thread::sleep(LOCK_AGAIN);
        }
        locked
    });
    locked.then_some(folder)
}

/// The twin of the socket of this name; `None`, with a warning, where there can be none.
fn twin(name: &CStr) -> Option<OwnedFd> {
    let twin = TwinName::of(name).ok_or(Errno::NAMETOOLONG);
    match twin.and_then(|twin| fdpass::listen(Address::Twin(&twin), BACKLOG)) {
        Ok(socket) => Some(socket),
        Err(error) => {
            tracing::warn!(%error, "no abstract twin of the socket: servers in a chroot read as without Seekless");
            None
        }
    }
}

/// The key beside the socket of this name; `None`, with a warning, where there can be none.
fn twin_key(name: &CStr, others: bool) -> Option<Key> {
    let path = KeyPath::of(name)?;
    let key = twinkey::ensure(&path, others);
    key.inspect_err(|error| {
        tracing::warn!(%error, "no key beside the socket: servers in a chroot read as without Seekless");
    })
    .ok()
}

fn inode(path: &Path) -> io::Result<u64> {
    Ok(fs::symlink_metadata(path)?.ino())
}

/// Whether the permission bits of a socket let others connect.
fn others_may(path: &Path) -> io::Result<bool> {
    Ok(fs::metadata(path)?.mode() & 0o002 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    /// As at the start of a machine, where a service and a user may start one each.
    #[test]
    fn of_daemons_that_start_together_at_a_dead_socket_one_listens() {
        let folder = tempfile::tempdir().unwrap();
        for round in 0..200 {
            let path = folder.path().join(format!("{round}.sock"));
            drop(fdpass::listen(Address::Path(&socket_name(&path).unwrap()), 1).unwrap());
            let together = Barrier::new(4);
            let start = || {
                together.wait();
                let listener = Listener::bind(&path, 0o600);
                together.wait();
                listener.is_ok()
            };
            let listening = thread::scope(|scope| {
                let starts = [(); 4].map(|()| scope.spawn(start));
                starts.map(|start| start.join().unwrap()).into_iter().filter(|&ok| ok).count()
            });
            assert_eq!(listening, 1, "round {round}");
        }
    }
}
