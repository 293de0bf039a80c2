//! Who waits for an answer: a shim at the end of a connection, or a reader held in the kernel by an event.
//!
//! Both doors hand their requests to the same readers; only what an answer *is* differs.

use std::sync::Arc;

use seekless_kernel::prefetch::Source;
use seekless_policy::RequestId;
use seekless_wire::Frame;

use crate::client::Client;
use crate::held::Held;

/// Whoever made a request.
pub(crate) enum Caller {
    /// A shim; it is told the verdict in a frame.
    Shim(Arc<Client>),
    /// A reader held by an event; whatever the verdict, it is let go.
    Event(Arc<Held>),
}

impl Caller {
    /// Answers the request if it still waits. The frame is made only for those who read it.
    pub(crate) fn answer<'a>(&self, id: RequestId, frame: impl FnOnce() -> Frame<'a>) {
        match self {
            Caller::Shim(client) => client.answer(id, frame()),
            Caller::Event(held) => held.release(),
        }
    }
}

/// How the bytes of a request's file are read: what came with the request, made a [`Source`] by the reader.
pub(crate) enum Passed {
    /// A descriptor that shares its struct file with a server: it is opened again, which may ask a file server that
    /// hangs, so the reader of the disk does it.
    Shared(std::os::fd::OwnedFd),
    /// One that is ours alone.
    Own(Source),
}

impl Passed {
    pub(crate) fn source(self) -> Source {
        match self {
            Passed::Shared(fd) => Source::reopen(fd),
            Passed::Own(source) => source,
        }
    }
}
