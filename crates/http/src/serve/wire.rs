//! A connection below hyper: zero-copy sending, exact counting, and timeouts of slow clients.
//!
//! hyper writes heads and bodies as vectors of memory and does not support sendfile. So a body on HTTP/1.1
//! puts its segments into the connection's [`Outbox`] and gives hyper only *stand-ins* of the same length:
//! slices of one region of zeros that is never written to a socket. Below hyper, a stand-in is recognised by
//! its address and replaced by what is in the outbox: file spans by `sendfile`, memory as it is. hyper keeps
//! its framing, keep-alive and back-pressure; the bytes never pass through user space; and sent bytes are
//! counted here, answer by answer.
//!
//! A span was in memory when it was queued. If it waited for the client since then, it is checked again
//! before it is sent, and requested again if it is gone. The engine hears of a span when it is sent and not
//! before, because it may give back bytes that count as read.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use rustix::io::Errno;
use rustix::net::SendFlags;
use seekless_base::wants::SERVE_LOOK_MAX;
use smart_default::SmartDefault;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;

use super::counters::Counters;
use super::log::{Log, Record};
use super::ready::{Ready, ready};
use super::send_progress::SendProgress;
use super::tree::{Opened, changed};
use super::{Shared, fetch};
use crate::range::Span;

/// Longest piece of a body, and size of the region of stand-ins.
pub(crate) const PIECE_MAX: usize = 1 << 20;

/// A span that was checked this recently is sent without another check.
const LOOKED_AT: Duration = Duration::from_millis(20);

/// Never written to and never sent; its pages are never touched.
fn stand_ins() -> &'static [u8] {
    static REGION: OnceLock<&'static [u8]> = OnceLock::new();
    REGION.get_or_init(|| Box::leak(vec![0; PIECE_MAX].into_boxed_slice()))
}

/// How many bytes a slice stands for, if it is a stand-in.
fn is_stand_in(slice: &[u8]) -> bool {
    stand_ins().as_ptr_range().contains(&slice.as_ptr())
}

/// What a body gives to hyper.
#[derive(Debug)]
pub(crate) enum Piece {
    /// This many bytes wait in the outbox.
    StandIn(usize),
    /// The bytes themselves (HTTP/2).
    Bytes(Bytes),
}

impl Buf for Piece {
    fn remaining(&self) -> usize {
        match self {
            Piece::StandIn(n) => *n,
            Piece::Bytes(b) => b.remaining(),
        }
    }

    fn chunk(&self) -> &[u8] {
        match self {
            Piece::StandIn(n) => &stand_ins()[..(*n).min(PIECE_MAX)],
            Piece::Bytes(b) => b.chunk(),
        }
    }

    fn advance(&mut self, count: usize) {
        match self {
            Piece::StandIn(n) => *n -= count,
            Piece::Bytes(b) => b.advance(count),
        }
    }
}

/// What is sent in place of stand-ins.
#[derive(Clone, Debug)]
pub(crate) enum Segment {
    /// Part of a file that was in memory at `seen`. The bytes of it between `began` and `offset` were sent
    /// before.
    Span { file: Arc<Opened>, began: u64, offset: u64, len: u64, seen: Instant },
    /// Memory.
    Memory(Bytes),
}

impl Segment {
    /// A part of a file that was just found in memory.
    pub(crate) fn seen(file: Arc<Opened>, offset: u64, len: u64) -> Segment {
        Segment::Span { file, began: offset, offset, len, seen: Instant::now() }
    }

    pub(crate) fn len(&self) -> u64 {
        match self {
            Segment::Span { len, .. } => *len,
            Segment::Memory(bytes) => bytes.len() as u64,
        }
    }
}

/// Counts the bytes of one answer. When the last of its segments is gone, its log line is written.
pub(crate) struct Tally {
    sent: Cell<u64>,
    record: Option<Record>,
    shared: Arc<Shared>,
}

impl Tally {
    pub(crate) fn new(record: Option<Record>, shared: Arc<Shared>) -> Rc<Tally> {
        Rc::new(Tally { sent: Cell::new(0), record, shared })
    }

    pub(crate) fn add(&self, bytes: u64) {
        self.sent.set(self.sent.get() + bytes);
        Counters::add(&self.shared.counters.body_bytes, bytes);
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        let log: Option<&Log> = self.shared.log.as_ref();
        if let (Some(log), Some(record)) = (log, &self.record) {
            log.line(record.line(self.sent.get()));
        }
    }
}

/// What connection and answers share.
#[derive(SmartDefault)]
pub(crate) struct Outbox {
    segments: RefCell<VecDeque<(Segment, Rc<Tally>)>>,
    /// A request is being answered.
    busy: Cell<bool>,
    /// When the head of a request began to arrive.
    head_since: Cell<Option<Instant>>,
    /// When the last answer was handed over.
    #[default(Cell::new(Instant::now()))]
    idle_since: Cell<Instant>,
    /// The client does not take the data that it is sent.
    stalled: Cell<bool>,
    /// Whether data has been received since [`Outbox::is_quiet`] was last called.
    received: Cell<bool>,
}

impl Outbox {
    /// The head of a request has arrived, and its answer begins.
    pub(crate) fn request_begins(&self) {
        self.busy.set(true);
        self.head_since.set(None);
    }

    /// The whole answer was handed over.
    pub(crate) fn answer_ends(&self) {
        self.busy.set(false);
        self.idle_since.set(Instant::now());
    }

    /// Whether nothing is in progress and nothing was received since the last call.
    pub(crate) fn is_quiet(&self) -> bool {
        let received = self.received.replace(false);
        let between = !self.busy.get() && self.head_since.get().is_none();
        !received && between && !self.stalled.get() && self.segments.borrow().is_empty()
    }

    pub(crate) fn push(&self, segment: Segment, tally: Rc<Tally>) {
        self.segments.borrow_mut().push_back((segment, tally));
    }
}

/// Without TLS, or with it.
type Transport = Either<TcpStream, Box<TlsStream<TcpStream>>>;

/// Time limits for a client.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// From the first byte of a request's head to its end.
    pub head: Duration,
    /// Between requests.
    pub idle: Duration,
    /// Without taking a byte of an answer.
    pub send: Duration,
}

type Again = Pin<Box<dyn Future<Output = io::Result<Segment>>>>;

/// The connection.
pub(crate) struct Wire {
    io: Transport,
    outbox: Rc<Outbox>,
    shared: Arc<Shared>,
    patience: Patience,
    again: Option<Again>,
    stalled_since: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
    /// HTTP/2: requests come and go inside the connection. Silence of both sides counts, and whether the
    /// client takes its answers.
    multiplexed: Option<Rc<SendProgress>>,
    pace: Option<Pace>,
}

/// Limits a connection to a rate.
struct Pace {
    bytes_per_s: u64,
    /// When the bytes sent so far are paid for.
    due: tokio::time::Instant,
    timer: Pin<Box<Sleep>>,
}

impl Pace {
    /// Burst allowed after a pause, as time: half a second's worth.
    const BURST: Duration = Duration::from_millis(500);

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let from = self.due.checked_sub(Pace::BURST).unwrap_or(self.due);
        if from <= tokio::time::Instant::now() {
            return Poll::Ready(());
        }
        if self.timer.deadline() != from {
            self.timer.as_mut().reset(from);
        }
        self.timer.as_mut().poll(cx)
    }

    fn sent(&mut self, bytes: u64) {
        let cost = Duration::from_secs_f64(bytes as f64 / self.bytes_per_s.max(1) as f64);
        self.due = self.due.max(tokio::time::Instant::now()) + cost;
    }
}

impl Wire {
    pub(crate) fn plain(io: TcpStream, outbox: Rc<Outbox>, shared: Arc<Shared>) -> Wire {
        Wire::new(Either::Left(io), outbox, shared)
    }

    pub(crate) fn tls(io: TlsStream<TcpStream>, outbox: Rc<Outbox>, shared: Arc<Shared>) -> Wire {
        Wire::new(Either::Right(Box::new(io)), outbox, shared)
    }

    fn new(io: Transport, outbox: Rc<Outbox>, shared: Arc<Shared>) -> Wire {
        let pace = shared.settings.rate.map(|rate| Pace {
            bytes_per_s: rate.0,
            due: tokio::time::Instant::now(),
            timer: Box::pin(tokio::time::sleep(Duration::ZERO)),
        });
        Wire {
            io,
            outbox,
            patience: shared.settings.patience,
            shared,
            again: None,
            stalled_since: None,
            timer: None,
            multiplexed: None,
            pace,
        }
    }

    /// For HTTP/2.
    pub(crate) fn multiplexed(mut self, send_progress: Rc<SendProgress>) -> Wire {
        self.multiplexed = Some(send_progress);
        self
    }

    /// Waits until the client sends something, for as long as it may be idle. Returns whether it did.
    pub(crate) async fn wakes(&mut self) -> bool {
        let until = tokio::time::Instant::from_std(self.outbox.idle_since.get() + self.patience.idle);
        self.timer = None;
        let tcp = match &self.io {
            Either::Left(tcp) => tcp,
            Either::Right(tls) => tls.get_ref().0,
        };
        tokio::time::timeout_at(until, tcp.readable()).await.is_ok_and(|ready| ready.is_ok())
    }

    /// Whether this time since `since` has passed; if not, the task is woken when it has.
    fn expired(&mut self, cx: &mut Context<'_>, since: Instant, patience: Duration) -> bool {
        let until = tokio::time::Instant::from_std(since + patience);
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until)));
        if timer.deadline() != until {
            timer.as_mut().reset(until);
        }
        timer.as_mut().poll(cx).is_ready()
    }

    /// Some bytes were sent, or none could be.
    fn progress(&mut self, cx: &mut Context<'_>, result: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match result {
            Poll::Pending => {
                self.outbox.stalled.set(true);
                let since = *self.stalled_since.get_or_insert_with(Instant::now);
                if self.expired(cx, since, self.patience.send) {
                    return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
                }
                Poll::Pending
            }
            done => {
                self.stalled_since = None;
                self.outbox.stalled.set(false);
                if self.multiplexed.is_some() {
                    self.outbox.idle_since.set(Instant::now());
                }
                if let (Poll::Ready(Ok(n)), Some(pace)) = (&done, &mut self.pace) {
                    pace.sent(*n as u64);
                }
                done
            }
        }
    }

    fn poll_memory(
        &mut self,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
        more: bool,
    ) -> Poll<io::Result<usize>> {
        match &mut self.io {
            // A head followed by a file: both go into one packet.
            Either::Left(tcp) if more && bufs.len() == 1 => loop {
                ready!(tcp.poll_write_ready(cx))?;
                let flags = SendFlags::MORE | SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
                let sent = tcp.try_io(Interest::WRITABLE, || Ok(rustix::net::send(&*tcp, &bufs[0], flags)?));
                match sent {
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                    other => return Poll::Ready(other),
                }
            },
            io => Pin::new(io).poll_write_vectored(cx, bufs),
        }
    }

    /// Sends from the outbox, at most `most` bytes.
    fn poll_outbox(&mut self, cx: &mut Context<'_>, most: u64) -> Poll<io::Result<usize>> {
        if let Some(again) = &mut self.again {
            let segment = ready!(again.as_mut().poll(cx));
            self.again = None;
            self.replace_first(segment?);
        }
        let first = self.outbox.segments.borrow().front().cloned();
        // hyper is never given more stand-ins than segments.
        let Some((segment, tally)) = first else {
            return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
        };
        let sent = match segment {
            Segment::Memory(bytes) => {
                let bytes = &bytes[..bytes.len().min(most as usize)];
                ready!(self.poll_memory(cx, &[IoSlice::new(bytes)], false))?
            }
            Segment::Span { file, offset, len, seen, .. } => {
                let span = Span { offset, len: len.min(most).min(SERVE_LOOK_MAX) };
                ready!(self.poll_span(cx, &file, span, seen))?
            }
        };
        if sent == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        tally.add(sent as u64);
        self.take_first(sent as u64);
        Poll::Ready(Ok(sent))
    }

    fn poll_span(
        &mut self,
        cx: &mut Context<'_>,
        file: &Arc<Opened>,
        span: Span,
        seen: Instant,
    ) -> Poll<io::Result<usize>> {
        let Span { offset, mut len } = span;
        let Either::Left(tcp) = &mut self.io else {
            // Bodies use memory when TLS is on.
            return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
        };
        loop {
            ready!(tcp.poll_write_ready(cx))?;
            if seen.elapsed() > LOOKED_AT {
                if !file.unchanged() {
                    let changed = changed();
                    self.shared.broken_off(file, &changed);
                    return Poll::Ready(Err(changed));
                }
                match ready(file, offset, len) {
                    Ready::Bytes(there) => len = there,
                    Ready::Unknown => {}
                    Ready::No => {
                        // The span has left memory while the client had no room for it. Now the client has
                        // room.
                        self.again = Some(Box::pin(anew(self.shared.clone(), file.clone(), span)));
                        // Polled at once, so that it wakes this task.
                        let Some(again) = &mut self.again else { return Poll::Pending };
                        let segment = ready!(again.as_mut().poll(cx));
                        self.again = None;
                        self.replace_first(segment?);
                        // It is sent with the next write.
                        cx.waker().wake_by_ref();
                        return Poll::Pending;
                    }
                }
            }
            let began = Instant::now();
            let mut from = offset;
            let sent = tcp.try_io(Interest::WRITABLE, || {
                Ok(rustix::fs::sendfile(&*tcp, file, Some(&mut from), len as usize)?)
            });
            self.shared.counters.call(began.elapsed());
            match sent {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Ok(0) => {
                    let shorter = io::Error::new(io::ErrorKind::UnexpectedEof, "it is shorter than it was");
                    self.shared.broken_off(file, &shorter);
                    return Poll::Ready(Err(shorter));
                }
                Ok(n) => {
                    Counters::add(&self.shared.counters.sendfile_bytes, n as u64);
                    return Poll::Ready(Ok(n));
                }
                Err(e) => {
                    // This error is the file's; all others are the socket's, and concern the client.
                    if Errno::from_io_error(&e) == Some(Errno::IO) {
                        self.shared.broken_off(file, &e);
                    }
                    return Poll::Ready(Err(e));
                }
            }
        }
    }

    /// Replaces the beginning of the first segment by what was read again.
    fn replace_first(&self, new: Segment) {
        let mut segments = self.outbox.segments.borrow_mut();
        let Some((old, tally)) = segments.pop_front() else { return };
        if let Segment::Span { file, began, offset, len, seen } = old {
            self.shared.moved_on(&file, began, offset - began);
            if len > new.len() {
                let offset = offset + new.len();
                let rest = Segment::Span { file, began: offset, offset, len: len - new.len(), seen };
                segments.push_front((rest, tally.clone()));
            }
        }
        segments.push_front((new, tally));
    }

    fn take_first(&self, sent: u64) {
        let mut segments = self.outbox.segments.borrow_mut();
        let Some((first, _)) = segments.front_mut() else { return };
        if first.len() <= sent {
            // One report for all of it, however many calls it took: a stream is recognised by sequential
            // reads.
            if let Segment::Span { file, began, offset, .. } = first {
                self.shared.moved_on(file, *began, *offset + sent - *began);
            }
            segments.pop_front();
            return;
        }
        match first {
            Segment::Memory(bytes) => bytes.advance(sent as usize),
            Segment::Span { offset, len, .. } => {
                *offset += sent;
                *len -= sent;
            }
        }
    }
}

/// Bytes that were in memory and have left it.
async fn anew(shared: Arc<Shared>, file: Arc<Opened>, span: Span) -> io::Result<Segment> {
    let Span { offset, len } = span;
    if fetch::bring_in(&shared, &file, span).await
        && let Ready::Bytes(len) = ready(&file, offset, len)
    {
        return Ok(Segment::seen(file, offset, len));
    }
    let read = fetch::read(&shared, &file, offset, len).await;
    Ok(Segment::Memory(read.inspect_err(|error| shared.broken_off(&file, error))?))
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let result = Pin::new(&mut self.io).poll_read(cx, buf);
        let busy = self.outbox.busy.get();
        if buf.filled().len() > before {
            self.outbox.received.set(true);
            if self.multiplexed.is_some() {
                self.outbox.idle_since.set(Instant::now());
            } else if !busy && self.outbox.head_since.get().is_none() {
                self.outbox.head_since.set(Some(Instant::now()));
            }
        }
        if result.is_pending() && !busy && self.stalled_since.is_none() {
            let (since, patience) = match self.outbox.head_since.get() {
                Some(since) => (since, self.patience.head),
                None => (self.outbox.idle_since.get(), self.patience.idle),
            };
            if self.expired(cx, since, patience) {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
        }
        result
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let start = bufs.iter().position(|b| !b.is_empty()).unwrap_or(0);
        let bufs = &bufs[start.min(bufs.len())..];
        let Some(first) = bufs.first() else { return Poll::Ready(Ok(0)) };
        if let Some(pace) = &mut this.pace {
            ready!(pace.poll(cx));
        }
        let result = if is_stand_in(first) {
            let run: usize = bufs.iter().take_while(|b| is_stand_in(b)).map(|b| b.len()).sum();
            let run = run as u64;
            // With a rate limit, at most a quarter of a second's worth is sent at once.
            let most = this.pace.as_ref().map_or(run, |p| run.min((p.bytes_per_s / 4).max(16 << 10)));
            this.poll_outbox(cx, most)
        } else {
            let run = bufs.iter().take_while(|b| !is_stand_in(b)).count();
            let result = this.poll_memory(cx, &bufs[..run], run < bufs.len());
            if let (Some(send_progress), Poll::Ready(Ok(sent))) = (&this.multiplexed, &result) {
                let mut left = *sent;
                for buf in bufs {
                    let part = left.min(buf.len());
                    send_progress.sent(&buf[..part]);
                    left -= part;
                }
            }
            result
        };
        this.progress(cx, result)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.io).poll_flush(cx);
        match result {
            // TLS keeps the bytes that the socket does not take.
            Poll::Pending => self.progress(cx, Poll::Pending).map_ok(|_| ()),
            done => {
                self.stalled_since = None;
                self.outbox.stalled.set(false);
                done
            }
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
