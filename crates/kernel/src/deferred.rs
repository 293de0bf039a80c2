//! A descriptor that is closed on another thread than the one that drops it. Closing a FUSE file waits for
//! its server, closing a socket may wait for its peer, and closing a deleted file frees its blocks.

use std::fmt;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};

/// Closes a descriptor on a thread that may wait for it, without waiting itself.
pub type Closer = Arc<dyn Fn(OwnedFd) + Send + Sync>;

/// A descriptor, and how to close it.
pub struct DeferredFd {
    fd: ManuallyDrop<OwnedFd>,
    /// If unset, the descriptor is closed where it is dropped.
    closer: OnceLock<Closer>,
}

impl DeferredFd {
    /// Without a closer yet.
    pub fn new(fd: OwnedFd) -> DeferredFd {
        DeferredFd { fd: ManuallyDrop::new(fd), closer: OnceLock::new() }
    }

    /// Sets the closer. The first one counts.
    pub fn closed_by(&self, closer: &Closer) {
        let _ = self.closer.set(closer.clone());
    }
}

impl Drop for DeferredFd {
    fn drop(&mut self) {
        // SAFETY: taken only here, and the field is not used afterwards.
        let fd = unsafe { ManuallyDrop::take(&mut self.fd) };
        match self.closer.get() {
            Some(closer) => closer(fd),
            None => drop(fd),
        }
    }
}

impl AsFd for DeferredFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl fmt::Debug for DeferredFd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DeferredFd").field(&*self.fd).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn a_descriptor_is_closed_by_its_first_closer_alone() {
        let (to, closed) = channel();
        let first: Closer = Arc::new(move |fd| to.send(fd).unwrap());
        let second: Closer = Arc::new(|_| panic!("the second closer"));
        let fd = DeferredFd::new(tempfile::tempfile().unwrap().into());
        fd.closed_by(&first);
        fd.closed_by(&second);
        drop(fd);
        assert!(rustix::fs::fstat(closed.try_recv().unwrap()).is_ok(), "open until then");
    }
}
