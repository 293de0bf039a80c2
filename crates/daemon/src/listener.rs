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
use seekless_base::{Exit, Fault};
use seekless_frontend::socket::socket_name;
use seekless_kernel::fdpass::{self, Address, TwinName};
use seekless_kernel::lsm;
use seekless_kernel::socketfile;
use seekless_kernel::twinkey::{self, Key, KeyPath};

use crate::activation::Activated;

/// Maximum number of connections waiting to be accepted. The kernel cuts it to net.core.somaxconn (4096), so
/// double has no effect. At half, when all threads of a large server miss at once, some read for themselves.
const BACKLOG: i32 = 4096;

/// Number of attempts to take a lock that another daemon holds for a moment; below, the interval. At half, a
/// daemon without a processor meanwhile may be overtaken; at double, a user that holds the lock delays a
/// start by two seconds.
const LOCK_TRIES: u32 = 100;
const LOCK_AGAIN: Duration = Duration::from_millis(10);

/// The sockets, if there are any; the path is removed when this is dropped.
pub(crate) struct Listener {
    at_path: Option<AtPath>,
    at_twin: Option<OwnedFd>,
    /// The key with which this daemon proves its identity at the twin.
    pub(crate) key: Option<Key>,
    others_allowed: bool,
    /// Whether the service manager made the socket at the path.
    pub(crate) activated: bool,
}

/// Inode number that no socket file has.
const NOT_OURS: u64 = 0;

struct AtPath {
    path: PathBuf,
    socket: OwnedFd,
    /// Inode of the socket file, so that only this daemon's own file is removed; [`NOT_OURS`]: leave the file
    /// there.
    inode: Arc<AtomicU64>,
}

impl Listener {
    /// No sockets: no shim can connect.
    pub(crate) fn none() -> Listener {
        Listener { at_path: None, at_twin: None, key: None, others_allowed: false, activated: false }
    }

    /// Listens at `path` with these permission bits. Replaces a dead socket there.
    pub(crate) fn bind(path: &Path, mode: u32) -> Result<Listener, Fault> {
        let io_error = |error: io::Error| cannot_listen(path, &error);
        let name = socket_name(path).map_err(io_error)?;
        if let Some(dir) = path.parent().filter(|d| !d.as_os_str().is_empty()) {
            // Other users' servers must be able to reach the socket; its mode bits decide which users may
            // connect.
            let made = fs::DirBuilder::new().recursive(true).mode(0o755).create(dir);
            made.map_err(|error| {
                let text = format!(
                    "cannot make the folder {}: {error}; set SEEKLESS_STATE or --socket to a place you may write",
                    dir.display()
                );
                fault(&error, text)
            })?;
        }
        let _locked = lock_folder(path);
        let running = || {
            let at = path.display();
            Err(Fault::busy(format!(
                "a daemon already listens at {at}; stop it, or give this one another --socket"
            )))
        };
        match fdpass::connect(Address::Path(&name)) {
            Ok(daemon) if !is_dead(daemon.as_fd()) => return running(),
            Err(Errno::AGAIN) => return running(),
            Ok(_) | Err(Errno::CONNREFUSED) => {
                let is_socket = fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_socket());
                if is_socket {
                    fs::remove_file(path).map_err(io_error)?;
                }
            }
            Err(_) => {}
        }
        let socket = socketfile::listen(&name, BACKLOG, mode).map_err(|e| match e {
            Errno::ADDRINUSE => {
                let at = path.display();
                Fault::busy(format!(
                    "{at} is in the way and is not a dead socket; remove it, or choose another --socket"
                ))
            }
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
    pub(crate) fn activated(from: Activated) -> Result<Listener, Fault> {
        let Activated { path, socket } = from;
        let io_error = |error: io::Error| cannot_listen(&path, &error);
        let name = socket_name(&path).map_err(io_error)?;
        let at_twin = twin(&name);
        fdpass::listen_again(socket.as_fd(), BACKLOG).map_err(|e| io_error(e.into()))?;
        let others_allowed = others_may(&path).map_err(io_error)?;
        let inode = Arc::new(AtomicU64::new(NOT_OURS));
        let at_path = Some(AtPath { path, socket, inode });
        let key = at_twin.as_ref().and_then(|_| twin_key(&name, others_allowed));
        Ok(Listener { at_path, at_twin, key, others_allowed, activated: true })
    }

    /// Listens at the sockets that the daemon at `path` has handed over. The path belongs to that daemon
    /// until [`Claim::make_good`]. `bits`: permission bits for the path; `None`: it is the service manager's.
    pub(crate) fn inherit(
        path: &Path,
        bits: Option<u32>,
        socket: OwnedFd,
        at_twin: Option<OwnedFd>,
    ) -> Result<(Listener, Claim), Fault> {
        let io_error = |error: io::Error| cannot_listen(path, &error);
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

    /// The socket at the path and its twin, for another daemon.
    pub(crate) fn offered(&self) -> Option<(BorrowedFd<'_>, Option<BorrowedFd<'_>>)> {
        let at_path = self.at_path.as_ref()?;
        Some((at_path.socket.as_fd(), self.at_twin.as_ref().map(AsFd::as_fd)))
    }

    /// Leaves the path to the daemon that has taken over.
    pub(crate) fn disown(&self) {
        if let Some(at_path) = &self.at_path {
            at_path.inode.store(NOT_OURS, Ordering::Relaxed);
        }
    }

    /// All listening sockets.
    pub(crate) fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.at_path.iter().map(|p| &p.socket).chain(&self.at_twin).map(|s| s.as_fd())
    }

    /// Whether a peer of this account ([`crate::accounts`]) may connect through the socket of this number.
    /// Abstract sockets have no permission bits, so those of the path are applied here. For the path, the
    /// kernel has applied them, including those for a group.
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

fn cannot_listen(path: &Path, error: &io::Error) -> Fault {
    fault(error, format!("cannot listen at {}: {error}; choose another --socket", path.display()))
}

fn fault(error: &io::Error, text: String) -> Fault {
    let exit = match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Exit::Permission,
        io::ErrorKind::InvalidInput => Exit::Usage,
        _ => Exit::Failed,
    };
    Fault::new(exit, text + &lsm::hint(error))
}

impl Drop for AtPath {
    fn drop(&mut self) {
        // Another daemon may have taken over the path after it was removed.
        let ours = self.inode.load(Ordering::Relaxed);
        if ours != NOT_OURS && inode(&self.path).is_ok_and(|i| i == ours) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Completes a takeover of sockets.
pub(crate) struct Claim {
    path: PathBuf,
    /// As in [`Listener::inherit`].
    bits: Option<u32>,
    sockets: Vec<OwnedFd>,
    inode: Arc<AtomicU64>,
}

impl Claim {
    /// The daemon that had the sockets has released them. From now on peers see our credentials. Our own path
    /// gets our permission bits, and is removed at our end.
    ///
    /// # Errors
    /// The path is gone, or cannot be changed. Open connections are still served.
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
/// file that hangs: its sockets stay, and it accepts nothing.
fn is_dead(connection: BorrowedFd<'_>) -> bool {
    let pid = fdpass::peer(connection).map_or(0, |peer| peer.pid);
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name before it may contain anything.
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    matches!(state, Some('Z' | 'X'))
}

/// Prevents other daemons from treating a socket of this folder as dead meanwhile, until this is dropped. Any
/// user may hold this lock, so the wait for it is short.
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

/// The twin of the socket of this name; `None`, with a warning, if it cannot be made.
fn twin(name: &CStr) -> Option<OwnedFd> {
    let twin = TwinName::of(name).ok_or(Errno::NAMETOOLONG);
    match twin.and_then(|twin| fdpass::listen(Address::Twin(&twin), BACKLOG)) {
        Ok(socket) => Some(socket),
        Err(error) => {
            tracing::warn!(%error, "cannot bind the abstract twin of the socket; servers in a chroot read as without Seekless");
            None
        }
    }
}

/// The key beside the socket of this name; `None`, with a warning, if it cannot be made.
fn twin_key(name: &CStr, others: bool) -> Option<Key> {
    let path = KeyPath::of(name)?;
    let key = twinkey::ensure(&path, others);
    key.inspect_err(|error| {
        tracing::warn!(%error, "cannot write the key beside the socket; servers in a chroot read as without Seekless");
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

    /// As at the boot of a machine, where a service and a user may each start one.
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
