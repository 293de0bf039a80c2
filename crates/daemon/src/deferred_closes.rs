//! Connections whose close is deferred, kept without a descriptor each.
//!
//! Closing a connection in which descriptors wait closes those too, and that may hang ([`crate::acceptor`]).
//! A hostile user makes such connections as fast as it can connect, and only a few of them can wait for the
//! thread of that user. The others are sent into a socket pair of the daemon's own. There they are packets of
//! about a kilobyte, and each holds at least one descriptor that the kernel counts against the hostile user's
//! own limit.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair, sockopt};
use seekless_kernel::fdpass;

/// Buffer size of one socket pair in bytes, as far as the kernel grants it to root: some 8,000 connections.
const PAIR_BYTES: usize = 8 << 20;

/// Maximum number of pairs. With half a million connections in them, the kernel's own limit is reached
/// (`RLIMIT_NOFILE` of the hostile user, 524,288 under systemd). At half, that user could make the daemon
/// refuse all others; double changes nothing.
const PAIRS_MAX: usize = 64;

/// The kept connections.
#[derive(Default)]
pub(crate) struct DeferredCloses {
    /// The end where connections go in, and the end where they come out.
    pairs: Vec<(OwnedFd, OwnedFd)>,
    /// Number of connections kept.
    pub(crate) held: usize,
}

impl DeferredCloses {
    /// Keeps a connection of this user.
    ///
    /// # Errors
    /// Returns it if there is no room.
    pub(crate) fn put(&mut self, uid: u32, connection: OwnedFd) -> Result<(), OwnedFd> {
        let keep = |pair: &(OwnedFd, OwnedFd)| {
            fdpass::send(pair.0.as_fd(), &uid.to_ne_bytes(), Some(connection.as_fd())).is_ok()
        };
        // If the newest has no room, none has.
        if !self.pairs.last().is_some_and(keep) {
            let made = (self.pairs.len() < PAIRS_MAX).then(pair);
            match made {
                Some(Ok(pair)) if keep(&pair) => self.pairs.push(pair),
                _ => return Err(connection),
            }
        }
        self.held += 1;
        Ok(())
    }

    /// Returns a connection with its user.
    pub(crate) fn take(&mut self) -> Option<(u32, OwnedFd)> {
        while let Some((_, out)) = self.pairs.first() {
            let mut uid = [0u8; 4];
            if let Ok(fdpass::Received { length: 4, descriptor: Some(connection) }) =
                fdpass::receive(out.as_fd(), &mut uid)
            {
                self.held -= 1;
                return Some((u32::from_ne_bytes(uid), connection));
            }
            self.pairs.remove(0);
        }
        None
    }
}

fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    // A size above the limit for ordinary users needs a capability; less is enough.
    let _ = sockopt::set_socket_send_buffer_size_force(&pair.0, PAIR_BYTES)
        .or_else(|_| sockopt::set_socket_send_buffer_size(&pair.0, PAIR_BYTES));
    Ok(pair)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_needs_no_descriptors_and_comes_back_in_order() {
        let mut deferred = DeferredCloses::default();
        let mut ends = Vec::new();
        for uid in 0..500 {
            let (ours, theirs) = pair().unwrap();
            deferred.put(uid, ours).unwrap();
            ends.push(theirs);
        }
        assert_eq!(deferred.held, 500);
        assert!(deferred.pairs.len() < 10, "{} pairs", deferred.pairs.len());
        for (uid, end) in ends.iter().enumerate() {
            let (of, connection) = deferred.take().unwrap();
            assert_eq!(of, uid as u32);
            fdpass::send(connection.as_fd(), b"x", None).unwrap();
            assert_eq!(fdpass::receive(end.as_fd(), &mut [0; 4]).unwrap().length, 1, "the very same");
        }
        assert!(deferred.take().is_none() && deferred.held == 0);
    }
}
