//! Bytes that are not in memory: requested from the engine, and read by a helper thread if the engine passes.
//!
//! An event loop awaits both. If a client goes away, its future is dropped, and the request is withdrawn from
//! the engine.

use std::io::{self, IoSliceMut};
use std::num::NonZeroU64;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use rustix::fs::Advice;
use rustix::io::{Errno, ReadWriteFlags};
use seekless_engine::{Completion, Engine, ForwardedCall, InProcess, OnAnswer, Submitted, Ticket};
use tokio::sync::oneshot;

use super::Shared;
use super::counters::Counters;
use super::tree::Opened;
use crate::range::Span;

/// Most bytes that a helper thread reads at once; they stay in memory until they are sent.
pub(crate) const HELPER_BYTES: u64 = 256 << 10;

/// Most bytes of one read past the page cache.
const PAST_BYTES: u64 = 1 << 20;

/// `RWF_DONTCACHE` (Linux 6.14): pages that the read brings in leave again, pages that were there stay.
/// rustix does not have it yet.
const DONTCACHE: ReadWriteFlags = ReadWriteFlags::from_bits_retain(0x80);

/// Set once the kernel or the file system has refused it; pages are then dropped by advice.
static NO_DONTCACHE: AtomicBool = AtomicBool::new(false);

/// Reads without leaving anything in the page cache, waiting for the disk.
///
/// # Errors
/// The disk's.
pub(crate) fn read_past(file: &Opened, parts: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize, Errno> {
    if !NO_DONTCACHE.load(Ordering::Relaxed) {
        match rustix::io::preadv2(file.as_fd(), parts, offset, DONTCACHE) {
            Err(Errno::OPNOTSUPP | Errno::INVAL) => NO_DONTCACHE.store(true, Ordering::Relaxed),
            done => return done,
        }
    }
    let got = rustix::io::preadv2(file.as_fd(), parts, offset, ReadWriteFlags::empty())?;
    let _ = rustix::fs::fadvise(file.as_fd(), offset, NonZeroU64::new(got as u64), Advice::DontNeed);
    Ok(got)
}

/// Longest wait for such a read; then the answer is broken off.
const DISK_PATIENCE: Duration = Duration::from_secs(90);

/// Withdraws a request when no client waits for it any more.
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

/// Has the engine bring bytes into memory. Returns whether they are there now.
pub(crate) async fn bring_in(shared: &Shared, file: &Opened, span: Span) -> bool {
    let (tell, told) = oneshot::channel();
    let answer = Box::new(move |answer: Completion<'_>| {
        let _ = tell.send(matches!(answer, Completion::Resident(_)));
    });
    Counters::one(&shared.counters.engine_requests);
    shared.follow(file);
    let resident = match submit(shared, file, span, answer) {
        None => return false,
        Some(Submitted::Resident { .. }) => true,
        Some(Submitted::Blocked(ticket)) => {
            let _waits = shared.waits.begin();
            let mut withdraw = Withdraw { engine: &shared.engine, ticket: Some(ticket) };
            let resident = told.await.unwrap_or(false);
            withdraw.ticket = None;
            resident
        }
    };
    if resident {
        Counters::one(&shared.counters.engine_resident);
    }
    resident
}

/// Hands a span over to the engine; `None` if it is not served.
fn submit(shared: &Shared, file: &Opened, span: Span, on_answer: OnAnswer) -> Option<Submitted> {
    let call = ForwardedCall::of(file.as_fd(), span.offset, span.len).ok()?;
    let mut door = InProcess::new(file.as_fd(), on_answer);
    let pid = std::process::id();
    shared.engine.submit(ForwardedCall { pid, ..call }, &mut door).ok()
}

/// Reads at most [`HELPER_BYTES`] on a helper thread, waiting for the disk.
///
/// # Errors
/// The disk's; the end of the file; a disk that does not answer.
pub(crate) async fn read(shared: &Shared, file: &Arc<Opened>, offset: u64, len: u64) -> io::Result<Bytes> {
    Counters::one(&shared.counters.helper_reads);
    let _waits = shared.waits.begin();
    let bytes = helped(file, offset, len.min(HELPER_BYTES), false).await?;
    shared.moved_on(file, offset, bytes.len() as u64);
    Ok(bytes)
}

/// The same, without leaving anything in the page cache, and at most two at a time: these reads are not in
/// the engine's queue, and many at once would make the disk seek between them.
pub(crate) async fn past(shared: &Shared, file: &Arc<Opened>, offset: u64, len: u64) -> io::Result<Bytes> {
    let _waits = shared.waits.begin();
    let _turn = shared.past.acquire().await;
    let bytes = helped(file, offset, len.min(PAST_BYTES), true).await?;
    Counters::add(&shared.counters.bypassed_bytes, bytes.len() as u64);
    Ok(bytes)
}

async fn helped(file: &Arc<Opened>, offset: u64, most: u64, past: bool) -> io::Result<Bytes> {
    let (file, most) = (file.clone(), most as usize);
    let read = tokio::task::spawn_blocking(move || {
        let mut buffer = vec![0; most];
        let mut got = 0;
        while got < most {
            let at = offset + got as u64;
            let read = match past {
                true => read_past(&file, &mut [IoSliceMut::new(&mut buffer[got..])], at),
                false => rustix::io::pread(&file.fd, &mut buffer[got..], at),
            };
            match read {
                Ok(0) => break,
                Ok(n) => got += n,
                Err(Errno::INTR) => {}
                Err(e) if got == 0 => return Err(io::Error::from(e)),
                // The bytes before the error are sent; the next read meets the error again.
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

/// Has the engine read bytes that no client waits for.
pub(crate) fn more(shared: &Shared, file: &Opened, span: Span) {
    shared.follow(file);
    if submit(shared, file, span, Box::new(|_| {})).is_some() {
        Counters::add(&shared.counters.readmore_bytes, span.len);
    }
}
