//! One connection of a shim, shared by the thread of its user, which reads from it, and the thread that
//! answers. Whichever drops it last, the thread of its user closes it: unread packets may hold descriptors,
//! which are closed with the connection.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::io::Errno;
use seekless_kernel::deferred::{Closer, DeferredFd};
use seekless_kernel::fdpass;
use seekless_wire::Frame;

/// No waiting request.
const NONE: u64 = 0;

/// The sending side of a connection. Sends never wait: an answer that its shim does not read is lost.
#[derive(Debug)]
pub(crate) struct Client {
    socket: DeferredFd,
    /// Number of the request that waits for an answer, or [`NONE`]. The thread that takes the number out
    /// answers the request, so no request is answered twice, whatever the timing.
    waiting: AtomicU64,
    /// Whether a status is being sent.
    status: AtomicBool,
}

impl Client {
    pub(crate) fn new(socket: OwnedFd, closer: &Closer) -> Client {
        let socket = DeferredFd::new(socket);
        socket.closed_by(closer);
        Client { socket, waiting: AtomicU64::new(NONE), status: AtomicBool::new(false) }
    }

    /// Records a waiting request. Returns `false` if one waits already.
    pub(crate) fn begin(&self, number: u64) -> bool {
        self.waiting.compare_exchange(NONE, number, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Whether a request waits.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Acquire) != NONE
    }

    /// Records that a status is being sent. Returns `false` if one is already.
    pub(crate) fn begin_status(&self) -> bool {
        !self.status.swap(true, Ordering::AcqRel)
    }

    /// The status has been sent completely.
    pub(crate) fn end_status(&self) {
        self.status.store(false, Ordering::Release);
    }

    /// Answers the request, if it still waits.
    pub(crate) fn answer(&self, number: u64, frame: Frame<'_>) {
        if self.waiting.compare_exchange(number, NONE, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            // The thread of the user notices that the client is gone.
            let _ = self.send(frame);
        }
    }

    /// Answers a request that no other thread will answer.
    pub(crate) fn reply(&self, frame: Frame<'_>) {
        self.waiting.store(NONE, Ordering::Release);
        let _ = self.send(frame);
    }

    pub(crate) fn send(&self, frame: Frame<'_>) -> Result<(), Errno> {
        self.send_with(frame, None)
    }

    /// Sends one frame, with a descriptor if given.
    pub(crate) fn send_with(
        &self,
        frame: Frame<'_>,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> Result<(), Errno> {
        // Only a status part that is too long cannot be encoded, and parts are cut to size where they are
        // made.
        let packet = frame.encode().ok_or(Errno::MSGSIZE)?;
        fdpass::send(self.socket.as_fd(), packet.as_bytes(), descriptor)
    }
}

impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
