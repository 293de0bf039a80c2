//! The body of an answer: parts of a file and text between them, sent piece by piece without blocking an
//! event loop.
//!
//! For each piece: bytes in memory are sent at once; missing bytes are requested from the engine and awaited;
//! if the engine passes, a helper thread reads them. Bytes that were sent, or copied to be sent, are reported
//! to the engine, so that their stream is read ahead.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use seekless_base::wants::SERVE_LOOK_MAX;

use super::any_order::Download;
use super::counters::Counters;
use super::ready::{COPY_MAX, Ready, read_ready, ready};
use super::send_progress::SendProgress;
use super::tree::{Opened, changed};
use super::wire::{Outbox, Piece, Segment, Tally};
use super::{Shared, fetch};
use crate::range::Span;

/// A part of a body.
#[derive(Clone, Debug)]
pub(crate) enum Part {
    Memory(Bytes),
    Span(Span),
}

impl Part {
    fn len(&self) -> u64 {
        match self {
            Part::Memory(bytes) => bytes.len() as u64,
            Part::Span(span) => span.len,
        }
    }
}

/// The source of its parts.
enum Source {
    /// All parts are known from the start.
    Parts(VecDeque<Part>),
    /// Blocks of a download in any order, chosen by Circus.
    Blocks(Box<Download>),
}

type Pending = Pin<Box<dyn Future<Output = io::Result<Segment>>>>;

/// A body.
pub(crate) struct FileBody {
    shared: Arc<Shared>,
    file: Option<Arc<Opened>>,
    source: Source,
    left: u64,
    /// Bytes of the file before this are read past the page cache, unless they are in it.
    bypass_end: u64,
    pending: Option<Pending>,
    /// Where segments go on HTTP/1.1, with the flag whether sendfile can be used.
    outbox: Option<(Rc<Outbox>, bool)>,
    tally: Rc<Tally>,
    /// On HTTP/2, with the flag whether it waits for the disk.
    send_progress: Option<(Rc<SendProgress>, bool)>,
}

impl FileBody {
    /// A body of these parts.
    pub(crate) fn new(
        shared: Arc<Shared>,
        file: Option<Arc<Opened>>,
        parts: impl IntoIterator<Item = Part>,
        outbox: Option<(Rc<Outbox>, bool)>,
        tally: Rc<Tally>,
    ) -> FileBody {
        let parts: VecDeque<Part> = parts.into_iter().filter(|p| p.len() > 0).collect();
        let len = parts.iter().map(Part::len).sum();
        FileBody::of(shared, file, Source::Parts(parts), len, outbox, tally)
    }

    fn of(
        shared: Arc<Shared>,
        file: Option<Arc<Opened>>,
        source: Source,
        len: u64,
        outbox: Option<(Rc<Outbox>, bool)>,
        tally: Rc<Tally>,
    ) -> FileBody {
        FileBody {
            shared,
            file,
            source,
            left: len,
            bypass_end: 0,
            pending: None,
            outbox,
            tally,
            send_progress: None,
        }
    }

    /// Its receiver, on HTTP/2.
    pub(crate) fn taken(mut self, by: Option<Rc<SendProgress>>) -> FileBody {
        self.send_progress = by.map(|send_progress| {
            send_progress.begins();
            (send_progress, false)
        });
        self
    }

    /// Stores whether it waits for the disk.
    fn waits(&mut self, for_disk: bool) {
        if let Some((send_progress, waits)) = &mut self.send_progress
            && *waits != for_disk
        {
            *waits = for_disk;
            send_progress.at_disk(for_disk);
        }
    }

    /// Bytes of the file before `bypass_end` are read past the page cache.
    pub(crate) fn bypassing(mut self, bypass_end: u64) -> FileBody {
        self.bypass_end = bypass_end;
        self
    }

    /// A body of `len` bytes that a download in any order provides.
    pub(crate) fn any_order(
        shared: Arc<Shared>,
        len: u64,
        download: Download,
        outbox: Option<(Rc<Outbox>, bool)>,
        tally: Rc<Tally>,
    ) -> FileBody {
        FileBody::of(shared, None, Source::Blocks(Box::new(download)), len, outbox, tally)
    }

    /// The next segment; `None` at the end.
    fn poll_segment(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Segment>>> {
        if let Some(pending) = &mut self.pending {
            let segment = ready!(pending.as_mut().poll(cx));
            self.pending = None;
            return Poll::Ready(Some(segment.inspect(|s| self.passed(s.len()))));
        }
        let parts = match &mut self.source {
            Source::Blocks(blocks) => {
                let Some(bytes) = ready!(blocks.poll_next(cx)) else { return Poll::Ready(None) };
                return Poll::Ready(Some(bytes.map(Segment::Memory)));
            }
            Source::Parts(parts) => parts,
        };
        let Some(part) = parts.front() else { return Poll::Ready(None) };
        let span = match part {
            Part::Memory(bytes) => {
                let segment = Segment::Memory(bytes.clone());
                parts.pop_front();
                return Poll::Ready(Some(Ok(segment)));
            }
            Part::Span(span) => *span,
        };
        let Some(file) = self.file.clone() else {
            return Poll::Ready(Some(Err(io::ErrorKind::InvalidData.into())));
        };
        if !file.unchanged() {
            return Poll::Ready(Some(Err(changed())));
        }
        let window = span.len.min(SERVE_LOOK_MAX);
        let sendfile = self.outbox.as_ref().is_some_and(|(_, sendfile)| *sendfile);
        match at_once(&self.shared, &file, span.offset, window, sendfile) {
            Ok(Some(segment)) => {
                Counters::one(&self.shared.counters.hits);
                self.passed(segment.len());
                Poll::Ready(Some(Ok(segment)))
            }
            Ok(None) => {
                let shared = self.shared.clone();
                let bypass = self.bypass_end.saturating_sub(span.offset).min(span.len);
                let fetch = async move {
                    if bypass > 0 {
                        return Ok(Segment::Memory(fetch::past(&shared, &file, span.offset, bypass).await?));
                    }
                    fetched(&shared, &file, Span { len: window, ..span }, sendfile).await
                };
                self.pending = Some(Box::pin(fetch));
                // Polled at once, so that it wakes this task.
                self.poll_segment(cx)
            }
            Err(e) => Poll::Ready(Some(Err(e))),
        }
    }

    fn broken_off(&self, error: io::Error) -> io::Error {
        let file = match &self.source {
            Source::Blocks(download) => Some(download.file()),
            Source::Parts(_) => self.file.as_ref(),
        };
        if let Some(file) = file {
            self.shared.broken_off(file, &error);
        }
        error
    }

    /// Shortens the first part, a span, by `bytes`.
    fn passed(&mut self, bytes: u64) {
        let Source::Parts(parts) = &mut self.source else { return };
        let Some(Part::Span(span)) = parts.front_mut() else { return };
        span.offset += bytes;
        span.len = span.len.saturating_sub(bytes);
        if span.len == 0 {
            parts.pop_front();
        }
    }
}

/// What can be sent without waiting: a span for sendfile, or a copy.
fn at_once(
    shared: &Shared,
    file: &Arc<Opened>,
    offset: u64,
    len: u64,
    sendfile: bool,
) -> io::Result<Option<Segment>> {
    let len = if sendfile { len } else { len.min(COPY_MAX as u64) };
    let len = match ready(file, offset, len) {
        Ready::Bytes(len) if sendfile => {
            mark(file, offset, len);
            return Ok(Some(Segment::seen(file.clone(), offset, len)));
        }
        Ready::Bytes(len) => len,
        Ready::No => return Ok(None),
        Ready::Unknown => len,
    };
    let began = Instant::now();
    let copy = read_ready(file, offset, len as usize);
    shared.counters.call(began.elapsed());
    let Some(copy) = copy? else { return Ok(None) };
    mark(file, offset, copy.len() as u64);
    shared.moved_on(file, offset, copy.len() as u64);
    Ok(Some(Segment::Memory(copy)))
}

/// The same, after a wait for the disk.
async fn fetched(shared: &Shared, file: &Arc<Opened>, span: Span, sendfile: bool) -> io::Result<Segment> {
    let Span { offset, len } = span;
    if fetch::bring_in(shared, file, span).await
        && let Some(segment) = at_once(shared, file, offset, len, sendfile)?
    {
        return Ok(segment);
    }
    let read = fetch::read(shared, file, offset, len).await?;
    mark(file, offset, read.len() as u64);
    Ok(Segment::Memory(read))
}

/// An answer with so few bytes is one piece of one version.
const MARKED_FROM: u64 = 16 << 10;

/// These bytes are in memory and about to be sent.
fn mark(file: &Opened, offset: u64, len: u64) {
    if len >= MARKED_FROM {
        file.mark(offset + len);
    }
}

impl Body for FileBody {
    type Data = Piece;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Piece>, io::Error>>> {
        let this = self.get_mut();
        if this.left == 0 {
            return Poll::Ready(None);
        }
        let polled = this.poll_segment(cx);
        this.waits(polled.is_pending());
        let segment = match ready!(polled) {
            Some(Ok(segment)) => segment,
            Some(Err(e)) => return Poll::Ready(Some(Err(this.broken_off(e)))),
            None => {
                let e = this.broken_off(io::ErrorKind::UnexpectedEof.into());
                return Poll::Ready(Some(Err(e)));
            }
        };
        let len = segment.len();
        this.left = this.left.saturating_sub(len);
        let piece = match (&this.outbox, segment) {
            (Some((outbox, _)), segment) => {
                outbox.push(segment, this.tally.clone());
                Piece::StandIn(len as usize)
            }
            (None, Segment::Memory(bytes)) => {
                this.tally.add(len);
                if let Some((send_progress, _)) = &this.send_progress {
                    send_progress.handed(len);
                }
                Piece::Bytes(bytes)
            }
            (None, Segment::Span { .. }) => return Poll::Ready(Some(Err(io::ErrorKind::InvalidData.into()))),
        };
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

impl Drop for FileBody {
    fn drop(&mut self) {
        if let Some((outbox, _)) = &self.outbox {
            outbox.answer_ends();
        }
        self.waits(false);
        if let Some((send_progress, _)) = &self.send_progress {
            send_progress.ends();
        }
    }
}
