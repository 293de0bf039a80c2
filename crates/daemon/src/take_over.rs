//! One daemon takes the place of another without a gap (`seekless daemon --take-over`).
//!
//! ```text
//! new                                   old
//!   looks at its disks, has its threads
//!   Ask                             -->
//!                                   <-- the listening sockets, the metrics address
//!   accepts connections beside the old one
//!   Serving                         --> accepts no more; tells the service manager which process counts now
//!                                   <-- Released
//!                                       answers all that wait, and ends
//! ```
//!
//! The sockets never close, so a shim that connects is always heard by one of the two. Until `Serving` the
//! old daemon goes on as if nothing had been asked, so a new one that fails costs nothing. Only a daemon of
//! the same user takes over: a process that has the socket once can go on listening at it.

use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use seekless_base::{Exit, Fault};
use seekless_frontend::control::{AskError, Conversation};
use seekless_kernel::{fdpass, service};
use seekless_wire::{FRAME_BYTES_MAX, Frame, TakeOverStep, WAIT_MS_MAX};

use crate::client::Client;
use crate::listener::{Claim, Listener};

/// How long an old daemon that has let go waits for the answers of those it has accepted. A request is
/// given up earlier (`--give-up`) and its shim goes on by itself then, so this is reached only if something
/// hangs.
const DRAIN_MAX: Duration = Duration::from_millis(WAIT_MS_MAX);

/// How long such a daemon lets a connection without a request be. A shim sends its request at once after it
/// has connected; half of this could cut one short that is not given a processor, which then reads for
/// itself.
pub(crate) const DRAIN_IDLE: Duration = Duration::from_secs(1);

/// The last word of the old daemon.
const RELEASED: Frame<'static> = Frame::TakeOver { step: TakeOverStep::Released, ring: 0 };

/// What a running daemon has handed over. Until [`Inheritance::serving`] it serves as before.
pub(crate) struct Inheritance<'a> {
    conversation: Conversation<'a>,
    claim: Claim,
    /// Taken by the daemon that is started with it.
    pub(crate) listener: Option<Listener>,
    /// Taken by its metrics address.
    pub(crate) metrics: Option<TcpListener>,
    /// The last number that one of its rings was given.
    pub(crate) ring: u8,
}

/// Asks the daemon at `path` for what it listens at; `None`: none runs there. `mode`: permission bits for
/// the path.
///
/// # Errors
/// One runs there and is another user's, older, not to be taken over, or does not answer.
pub(crate) fn ask(path: &Path, mode: u32) -> Result<Option<Inheritance<'_>>, Fault> {
    let conversation = match Conversation::open(path) {
        Ok(conversation) => conversation,
        Err(AskError::NobodyThere(..)) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let (theirs, ours) = (conversation.peer()?.uid, rustix::process::geteuid().as_raw());
    if theirs != ours {
        let what = format!(
            "the daemon at {} is of user {theirs}; only one of the same user takes over from it",
            path.display()
        );
        return Err(Fault::new(Exit::Permission, what));
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
    let what = format!(
        "the daemon at {} does not hand over: it is older, belongs to run, watch or observe, or hands over to \
         another already; stop it first",
        path.display()
    );
    Fault::new(Exit::Busy, what)
}

impl Inheritance<'_> {
    /// Says that the new daemon serves, and waits for the old one to let go. From here on the new one
    /// stays, whatever the old one says.
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
            Err(error) => tracing::warn!(%error, "the old daemon does not say that it has handed over"),
        }
        if let Err(error) = claim.make_good() {
            tracing::warn!(%error, "the socket that was taken over is not at its path any more");
        }
        Ok(())
    }
}

/// The side of a daemon whose place is taken.
#[derive(Clone, Debug, Default)]
pub(crate) struct HandOver {
    shared: Arc<SharedHandOver>,
    /// When it let go.
    released: Option<Instant>,
}

#[derive(Debug, Default)]
struct SharedHandOver {
    released: AtomicBool,
    metrics: OnceLock<OwnedFd>,
}

impl HandOver {
    /// Hands this listening socket of the metrics address over as well.
    pub(crate) fn with_metrics(&self, socket: OwnedFd) {
        let _ = self.shared.metrics.set(socket);
    }

    /// Whether another daemon has taken over. For other threads.
    pub(crate) fn is_done(&self) -> bool {
        self.shared.released.load(Ordering::Acquire)
    }

    /// Whether this side has let go.
    pub(crate) fn released(&self) -> bool {
        self.released.is_some()
    }

    /// Whether it has, and no accepted connection is left, or the patience is over.
    pub(crate) fn drained(&self, connections: usize) -> bool {
        self.released.is_some_and(|at| connections == 0 || at.elapsed() >= DRAIN_MAX)
    }

    /// Sends what there is to hand over; whether it went out.
    pub(crate) fn offer(&self, client: &Client, listener: &Listener, ring: u8) -> bool {
        let Some((socket, twin)) = listener.offered() else { return false };
        let metrics = self.shared.metrics.get().map(AsFd::as_fd);
        let at_path =
            if listener.is_activated() { TakeOverStep::ActivatedSocket } else { TakeOverStep::Socket };
        let with = [(at_path, Some(socket)), (TakeOverStep::Twin, twin), (TakeOverStep::Metrics, metrics)];
        let sent = with
            .into_iter()
            .filter_map(|(step, fd)| Some((step, fd?)))
            .try_for_each(|(step, fd)| client.send_with(Frame::TakeOver { step, ring: 0 }, Some(fd)));
        sent.and_then(|()| client.send(Frame::TakeOver { step: TakeOverStep::Offered, ring })).is_ok()
    }

    /// Lets go: the service manager is told first which process counts, so that it hears that one's own
    /// words.
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

/// Keeps a decision log that a running daemon writes: the new one begins another under the name. The old
/// one goes on in `FILE.old`.
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
