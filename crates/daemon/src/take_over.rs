//! One daemon takes the place of another without a gap (`seekless daemon --take-over`).
//!
//! ```text
//! new                                   old
//!   probes its disks, starts its threads
//!   Ask                             -->
//!                                   <-- the listening sockets, the metrics address
//!   accepts connections beside the old one
//!   Serving                         --> accepts no more; tells the service manager which process counts now
//!                                   <-- Released
//!                                       answers all that wait, and ends
//! ```
//!
//! The sockets never close, so one of the two always accepts a shim's connection. Until `Serving` the old
//! daemon goes on as if nothing had been asked, so a new one that fails costs nothing. Only a daemon of the
//! same user takes over, because a process that has the socket once can go on listening at it.

use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use seekless_base::Fault;
use seekless_frontend::control::{AskError, Conversation};
use seekless_kernel::{fdpass, service};
use seekless_wire::{FRAME_BYTES_MAX, Frame, TakeOverStep, WAIT_MS_MAX};

use crate::client::Client;
use crate::listener::{Claim, Listener};

/// Maximum time that an old daemon waits, after the handover, for the answers to its accepted connections. A
/// request is given up earlier (`--request-timeout`), and then its shim reads for itself, so this is reached
/// only if something hangs.
const DRAIN_MAX: Duration = Duration::from_millis(WAIT_MS_MAX);

/// How long an old daemon keeps a connection without a request. A shim sends its request immediately after
/// connecting. Half of this could cut off a shim without a processor, which then reads for itself.
pub(crate) const DRAIN_IDLE: Duration = Duration::from_secs(1);

/// The last frame of the old daemon.
const RELEASED: Frame<'static> = Frame::TakeOver { step: TakeOverStep::Released, ring: 0 };

/// What a running daemon has handed over. Until [`Inheritance::serving`] it serves as before.
pub(crate) struct Inheritance<'a> {
    conversation: Conversation<'a>,
    claim: Claim,
    /// Taken by the new daemon.
    pub(crate) listener: Option<Listener>,
    /// Taken by the new daemon's metrics address.
    pub(crate) metrics: Option<TcpListener>,
    /// The last number given to one of its rings.
    pub(crate) ring: u8,
}

/// Asks the daemon at `path` for its listening sockets; `None` if none runs there. `mode`: permission bits
/// for the path.
///
/// # Errors
/// The daemon there is another user's, too old, may not be taken over, or does not answer.
pub(crate) fn ask(path: &Path, mode: u32) -> Result<Option<Inheritance<'_>>, Fault> {
    let conversation = match Conversation::open(path) {
        Ok(conversation) => conversation,
        Err(AskError::NobodyThere(..)) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let (theirs, ours) = (conversation.peer()?.uid, rustix::process::geteuid().as_raw());
    if theirs != ours {
        return Err(Fault::permission(format!(
            "the daemon at {} is of user {theirs}; only one of the same user takes over from it",
            path.display()
        )));
    }
    conversation.send(Frame::TakeOver { step: TakeOverStep::Ask, ring: 0 })?;
    let (mut socket, mut activated, mut twin, mut metrics) = (None, false, None, None);
    let mut packet = [0; FRAME_BYTES_MAX];
    let ring = loop {
        match conversation.receive_with(&mut packet)? {
            (Frame::TakeOver { step: TakeOverStep::Socket, .. }, fd) => socket = fd,
            (Frame::TakeOver { step: TakeOverStep::ActivatedSocket, .. }, fd) => {
                (socket, activated) = (fd, true)
            }
            (Frame::TakeOver { step: TakeOverStep::Twin, .. }, fd) => twin = fd,
            (Frame::TakeOver { step: TakeOverStep::Metrics, .. }, fd) => metrics = fd,
            (Frame::TakeOver { step: TakeOverStep::Offered, ring }, _) => break ring,
            (Frame::Refuse(_), _) => return Err(refused(path)),
            (other, _) => {
                return Err(conversation.garbled(format_args!("it sent {}", other.name())).into());
            }
        }
    };
    let Some(socket) = socket else { return Err(refused(path)) };
    let (listener, claim) = Listener::inherit(path, (!activated).then_some(mode), socket, twin)?;
    let metrics = metrics.map(TcpListener::from);
    Ok(Some(Inheritance { conversation, claim, listener: Some(listener), metrics, ring }))
}

fn refused(path: &Path) -> Fault {
    Fault::busy(format!(
        "the daemon at {} does not hand over: it is older, belongs to run, watch or observe, or hands over to \
         another already; stop it first",
        path.display()
    ))
}

impl Inheritance<'_> {
    /// Announces that the new daemon serves, and waits for the old one's release. From here on the new one
    /// stays, whatever the old one answers.
    ///
    /// # Errors
    /// Another daemon has taken over meanwhile.
    pub(crate) fn serving(self) -> Result<(), Fault> {
        let Inheritance { conversation, claim, .. } = self;
        let said = conversation
            .send(Frame::TakeOver { step: TakeOverStep::Serving, ring: 0 })
            .and_then(|()| Ok(conversation.receive_with(&mut [0; FRAME_BYTES_MAX])?.0 == RELEASED));
        match said {
            Ok(true) => {}
            Ok(false) => return Err(refused(conversation.path())),
            // It may hang, or have been killed just now: either way it accepts nothing.
            Err(error) => tracing::warn!(%error, "the old daemon has not confirmed the hand-over"),
        }
        if let Err(error) = claim.make_good() {
            tracing::warn!(%error, "the socket that was taken over is no longer at its path");
        }
        Ok(())
    }
}

/// The old daemon's side of a takeover.
#[derive(Clone, Debug, Default)]
pub(crate) struct HandOver {
    shared: Arc<SharedHandOver>,
    /// When it released the sockets.
    released: Option<Instant>,
}

#[derive(Debug, Default)]
struct SharedHandOver {
    released: AtomicBool,
    metrics: OnceLock<OwnedFd>,
}

impl HandOver {
    /// Also hands over this listening socket of the metrics address.
    pub(crate) fn with_metrics(&self, socket: OwnedFd) {
        let _ = self.shared.metrics.set(socket);
    }

    /// Whether another daemon has taken over. For other threads.
    pub(crate) fn is_done(&self) -> bool {
        self.shared.released.load(Ordering::Acquire)
    }

    /// Whether this side has released the sockets.
    pub(crate) fn released(&self) -> bool {
        self.released.is_some()
    }

    /// Whether it has, and no accepted connection is left or the maximum wait is over.
    pub(crate) fn drained(&self, connections: usize) -> bool {
        self.released.is_some_and(|at| connections == 0 || at.elapsed() >= DRAIN_MAX)
    }

    /// Sends what is handed over. Returns whether that succeeded.
    pub(crate) fn offer(&self, client: &Client, listener: &Listener, ring: u8) -> bool {
        let Some((socket, twin)) = listener.offered() else { return false };
        let metrics = self.shared.metrics.get().map(AsFd::as_fd);
        let at_path = if listener.activated { TakeOverStep::ActivatedSocket } else { TakeOverStep::Socket };
        let with = [(at_path, Some(socket)), (TakeOverStep::Twin, twin), (TakeOverStep::Metrics, metrics)];
        let sent = with
            .into_iter()
            .filter_map(|(step, fd)| Some((step, fd?)))
            .try_for_each(|(step, fd)| client.send_with(Frame::TakeOver { step, ring: 0 }, Some(fd)));
        sent.and_then(|()| client.send(Frame::TakeOver { step: TakeOverStep::Offered, ring })).is_ok()
    }

    /// Releases the sockets. Before that it tells the service manager which process counts, so that the
    /// manager accepts that process's messages.
    pub(crate) fn release(&mut self, client: &Client, now: Instant) {
        if let Ok(peer) = fdpass::peer(client.as_fd())
            && let Ok(pid) = u32::try_from(peer.pid)
            && pid != 0
        {
            service::main_process(pid);
        }
        self.released = Some(now);
        self.shared.released.store(true, Ordering::Release);
        let _ = client.send(RELEASED);
    }
}

/// Renames the decision log that a running daemon writes, so that the new one starts another under its name.
/// The old one goes on in `FILE.old`.
///
/// # Errors
/// It cannot be renamed.
pub(crate) fn set_aside(log: &Path) -> io::Result<()> {
    let regular = std::fs::symlink_metadata(log).is_ok_and(|m| m.is_file());
    if !regular {
        return Ok(());
    }
    let mut aside = log.as_os_str().to_owned();
    aside.push(".old");
    std::fs::rename(log, aside)
}
