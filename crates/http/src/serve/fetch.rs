//! Bytes that are not in memory: asked of the engine, and if it passes, read by a helper thread.
//!
//! An event loop awaits either. A request whose client has gone is withdrawn from the engine when its future is dropped.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use seekless_engine::{Answer, Engine, Need, Ticket};
use tokio::sync::oneshot;

use super::Shared;
use super::counters::Counters;
use super::tree::Opened;

/// Most bytes a helper thread reads at once; they are held until they are sent.
pub(crate) const HELPER_BYTES: u64 = 256 << 10;

/// How long a disk may take for that. It then has had a minute and half; the answer is broken off.
const DISK_PATIENCE: Duration = Duration::from_secs(90);

/// Withdraws a request nobody waits for any more.
struct Withdraw<'a> {
    engine: &'a Engine,
    ticket: Option<Ticket>,
}

impl Drop for Withdraw<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.engine.cancel(ticket);
        }
    }
}

/// Has the engine bring in `len` bytes from `offset`. Whether they are in memory now.
pub(crate) async fn bring_in(shared: &Shared, file: &Opened, offset: u64, len: u64) -> bool {
    let (tell, told) = oneshot::channel();
    let answer = Box::new(move |answer: Answer<'_>| {
        let _ = tell.send(matches!(answer, Answer::Resident(_)));
    });
    Counters::one(&shared.counters.engine_requests);
    shared.follow(file);
    let Ok(ticket) = shared.engine.request(Need::new(file.as_fd(), offset, len), answer) else {
        return false;
    };
    let mut withdraw = Withdraw { engine: &shared.engine, ticket };
    let resident = told.await.unwrap_or(false);
    withdraw.ticket = None;
    if resident {
        Counters::one(&shared.counters.engine_resident);
    }
    resident
}

/// Reads at most [`HELPER_BYTES`] on a helper thread, waiting for the disk.
///
/// # Errors
/// The disk's; the end of the file; a disk that does not answer.
pub(crate) async fn read(shared: &Shared, file: &Arc<Opened>, offset: u64, len: u64) -> io::Result<Bytes> {
    Counters::one(&shared.counters.helper_reads);
    let file = file.clone();
    let most = len.min(HELPER_BYTES) as usize;
    let read = tokio::task::spawn_blocking(move || {
        let mut buffer = vec![0; most];
        let mut got = 0;
        while got < most {
            match rustix::io::pread(&file.fd, &mut buffer[got..], offset + got as u64) {
                Ok(0) => break,
                Ok(n) => got += n,
                Err(rustix::io::Errno::INTR) => {}
                Err(e) if got == 0 => return Err(io::Error::from(e)),
                // What came before the error is sent; it is met again at its own place.
                Err(_) => break,
            }
        }
        buffer.truncate(got);
        if buffer.is_empty() { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(Bytes::from(buffer)) }
    });
    match tokio::time::timeout(DISK_PATIENCE, read).await {
        Ok(Ok(result)) => result,
        Ok(Err(_)) => Err(io::Error::other("a helper thread ended")),
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}
