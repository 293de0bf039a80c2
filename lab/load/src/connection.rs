//! One keep-alive connection and one request at a time on it, checked to the last byte.
//!
//! The connection's protocol machine is driven by the task that waits for the answer, so that nothing is read
//! for a client that is not asking, and a client costs one task. Body bytes are compared where hyper put
//! them.
//!
//! A client's delay is added here: a request leaves `delay` after it was due, an answer is complete `delay`
//! after its last byte left the link, and a new connection costs one round trip before its first request.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io::ErrorKind;
use std::pin::{Pin, pin};
use std::rc::Rc;

use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::{CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, HOST, RANGE};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use seekless_base::Nanos;
use seekless_base::parts::blockmap::BlockMap;
use seekless_base::parts::multipart::{Found, Reader};
use seekless_base::parts::range::Span;
use seekless_model::workload::content::Content;

use crate::failure::Failure;
use crate::link::{Link, PacedStream};
use crate::record::ResponseTimes;
use crate::run::Worker;
use crate::target::ByteStream;

/// Most hyper may buffer of a connection without a link, and so the largest piece handed to us.
const BUFFER_MAX: usize = 256 << 10;
/// Receive buffer of a paced connection: at least this, so that TCP does not stall on a window of a few
/// packets.
const PACED_RECEIVE_BUFFER_MIN: u32 = 64 << 10;

type ConnectionTask = http1::Connection<TokioIo<PacedStream<Box<dyn ByteStream>>>, Empty<Bytes>>;

/// How a client is connected.
#[derive(Clone, Debug, Default)]
pub struct ClientLink {
    /// Index of the client's class in the record.
    pub class: usize,
    /// Link rate; none: unlimited.
    pub link_bits_per_s: Option<u64>,
    /// Delay each way.
    pub delay: Nanos,
}

/// One request.
pub struct FetchRequest<'a> {
    /// Path relative to the root.
    pub path: &'a str,
    /// First byte and last (included; none: to the end). None: the whole file, without a Range header.
    pub range: Option<(u64, Option<u64>)>,
    /// Length of the file where it is known.
    pub file_size: Option<u64>,
    /// What the bytes must be; none: not compared.
    pub content: Option<&'a Content>,
    /// More headers.
    pub headers: &'a [(String, String)],
    /// When it was due.
    pub due: Nanos,
    /// How long after that it must be complete.
    pub timeout: Nanos,
}

impl FetchRequest<'_> {
    /// Whether the parts of the answer may come in any order: `Prefer: any-order` is among the headers.
    fn any_order(&self) -> bool {
        self.headers.iter().any(|(name, value)| name.eq_ignore_ascii_case("prefer") && value == "any-order")
    }

    fn first(&self) -> u64 {
        self.range.map_or(0, |(first, _)| first)
    }

    /// Number of bytes the answer must have, where that is known.
    fn expected(&self) -> Option<u64> {
        let first = self.first();
        match (self.range.and_then(|(_, last)| last), self.file_size) {
            (Some(last), Some(size)) => Some((last + 1).min(size).saturating_sub(first)),
            (Some(last), None) => Some(last + 1 - first),
            (None, Some(size)) => Some(size.saturating_sub(first)),
            (None, None) => None,
        }
    }
}

/// A client's connection; made when first needed and again after a failure or when the server has closed it.
pub struct ClientConnection {
    worker: Rc<Worker>,
    line: ClientLink,
    open: Option<Open>,
    connected_before: bool,
}

struct Open {
    sender: http1::SendRequest<Empty<Bytes>>,
    /// None once it has ended.
    machine: Option<Pin<Box<ConnectionTask>>>,
    link: Option<Rc<RefCell<Link>>>,
}

impl Open {
    /// Whether a request can still be sent: looks whether the server has closed the connection meanwhile.
    async fn is_alive(&mut self) -> bool {
        drive(&mut self.machine, self.sender.ready()).await.is_ok() && self.machine.is_some()
    }
}

/// Waits for `work` and moves the connection along meanwhile.
async fn drive<F: Future>(machine: &mut Option<Pin<Box<ConnectionTask>>>, work: F) -> F::Output {
    let mut work = pin!(work);
    poll_fn(|cx| {
        if let Some(m) = machine
            && m.as_mut().poll(cx).is_ready()
        {
            // Ended, well or badly; `work` learns of it through its channel.
            *machine = None;
        }
        work.as_mut().poll(cx)
    })
    .await
}

impl ClientConnection {
    /// A client without a connection yet.
    pub fn new(worker: Rc<Worker>, line: ClientLink) -> ClientConnection {
        ClientConnection { worker, line, open: None, connected_before: false }
    }

    /// Sends one request and receives its answer; counts both in the worker's record.
    ///
    /// # Errors
    /// The failure, which is counted already. The connection is closed then.
    pub async fn fetch(&mut self, ask: &FetchRequest<'_>) -> Result<ResponseTimes, Failure> {
        let worker = self.worker.clone();
        worker.offered(ask.due);
        let deadline = ask.due + ask.timeout;
        // The last byte still needs its way to the client.
        let give_up = worker.clock.instant(deadline - self.line.delay);
        let result = match tokio::time::timeout_at(give_up, self.exchange(ask)).await {
            Ok(Ok(answer)) if answer.done > deadline => Err(Failure::Timeout),
            Ok(result) => result,
            Err(_) => Err(Failure::Timeout),
        };
        match &result {
            Ok(answer) => worker.success(self.line.class, ask.due, ask.first(), *answer),
            Err(failure) => {
                // Whatever is left of the answer must not be taken for the next one.
                self.open = None;
                let at = if *failure == Failure::Timeout { deadline } else { worker.clock.now() };
                worker.failure(self.line.class, ask.due, at, failure, ask.path, ask.first());
            }
        }
        result
    }

    async fn exchange(&mut self, ask: &FetchRequest<'_>) -> Result<ResponseTimes, Failure> {
        if let Some(open) = &mut self.open
            && !open.is_alive().await
        {
            self.open = None;
        }
        let mut reused = self.open.is_some();
        loop {
            let mut handshake = Nanos::ZERO;
            let mut open = match self.open.take() {
                Some(open) => open,
                None => {
                    handshake = self.line.delay + self.line.delay;
                    self.connect().await?
                }
            };
            self.worker.clock.sleep_until(ask.due + handshake + self.line.delay).await;
            let request = self.request(ask)?;
            let sent = open.sender.send_request(request);
            let response = match drive(&mut open.machine, sent).await {
                Ok(response) => response,
                // The server closed the idle connection just as we asked: RFC 9112 section 9.3.1 lets a
                // client try again on a new one. Once, and only if nothing of an answer had come.
                Err(e) if reused && lost(&e) => {
                    reused = false;
                    continue;
                }
                Err(e) => return Err(Failure::Connection(reason(&e))),
            };
            let first_byte = self.worker.clock.now() + self.line.delay;
            let done = self.receive(&mut open, response, ask).await?;
            self.open = Some(open);
            return Ok(ResponseTimes { first_byte, done });
        }
    }

    async fn connect(&mut self) -> Result<Open, Failure> {
        if self.connected_before {
            self.worker.reconnected();
        }
        self.connected_before = true;
        let speedup = self.worker.clock.speedup();
        let link = self.line.link_bits_per_s.map(|bits| Rc::new(RefCell::new(Link::new(bits, speedup))));
        let quantum = link.as_ref().map(|l| l.borrow().quantum());
        let receive_buffer = quantum.map(|q| (2 * q as u32).max(PACED_RECEIVE_BUFFER_MIN));
        let stream =
            self.worker.target.dial(receive_buffer).await.map_err(|e| Failure::Connect(e.to_string()))?;
        let io = TokioIo::new(PacedStream::new(stream, link.clone(), self.worker.clock));
        let (sender, machine) = http1::Builder::new()
            .max_buf_size(quantum.unwrap_or(BUFFER_MAX).max(16 << 10))
            .handshake(io)
            .await
            .map_err(|e| Failure::Connection(reason(&e)))?;
        Ok(Open { sender, machine: Some(Box::pin(machine)), link })
    }

    fn request(&self, ask: &FetchRequest<'_>) -> Result<Request<Empty<Bytes>>, Failure> {
        let mut request =
            Request::get(self.worker.target.uri(ask.path)).header(HOST, self.worker.target.host());
        request = match ask.range {
            Some((first, Some(last))) => request.header(RANGE, format!("bytes={first}-{last}")),
            Some((first, None)) => request.header(RANGE, format!("bytes={first}-")),
            None => request,
        };
        for (name, value) in ask.headers {
            request = request.header(name, value);
        }
        request
            .body(Empty::new())
            .map_err(|e| Failure::Connection(format!("the request cannot be written: {e}")))
    }

    /// Receives and checks the body. Returns when the client has its last byte.
    async fn receive(
        &self,
        open: &mut Open,
        response: Response<Incoming>,
        ask: &FetchRequest<'_>,
    ) -> Result<Nanos, Failure> {
        let parts = ask.any_order().then(|| content_type(&response).and_then(Reader::of)).flatten();
        if let Some(reader) = parts {
            return self.receive_parts(open, response, ask, reader).await;
        }
        check_head(&response, ask)?;
        let expected = ask.expected();
        let mut body = response.into_body();
        let mut got = 0_u64;
        loop {
            let frame = match drive(&mut open.machine, body.frame()).await {
                None => break,
                Some(Ok(frame)) => frame,
                Some(Err(e)) => {
                    return Err(match expected {
                        Some(expected) if ends_early(&e) => Failure::Short { got, expected },
                        _ => Failure::Connection(reason(&e)),
                    });
                }
            };
            let Some(data) = frame.data_ref() else { continue };
            check_bytes(ask, ask.first() + got, data)?;
            got += data.len() as u64;
            self.worker.bytes(self.line.class, data.len() as u64);
        }
        match expected {
            Some(expected) if got < expected => return Err(Failure::Short { got, expected }),
            Some(expected) if got > expected => {
                return Err(Failure::Range(format!("{got} bytes came, {expected} were asked for")));
            }
            _ => {}
        }
        Ok(self.arrived(open))
    }

    /// Receives the parts of a file in whatever order; every byte must come, and come once.
    async fn receive_parts(
        &self,
        open: &mut Open,
        response: Response<Incoming>,
        ask: &FetchRequest<'_>,
        mut reader: Reader,
    ) -> Result<Nanos, Failure> {
        let status = response.status().as_u16();
        if status != 206 {
            return Err(Failure::Status(status));
        }
        let size = ask.file_size.ok_or_else(|| Failure::Range("a file of unknown length".into()))?;
        let mut map = BlockMap::new(size);
        let mut body = response.into_body();
        while let Some(frame) = drive(&mut open.machine, body.frame()).await {
            let frame = frame.map_err(|e| match ends_early(&e) {
                true => Failure::Short { got: map.received(), expected: size },
                false => Failure::Connection(reason(&e)),
            })?;
            let Ok(mut data) = frame.into_data() else { continue };
            while let Some(found) = reader.next(&mut data).map_err(|e| Failure::Range(e.to_string()))? {
                let Found::Data(at, bytes) = found else { continue };
                check_bytes(ask, at, &bytes)?;
                let len = bytes.len() as u64;
                if map.insert(Span { offset: at, len }) != len {
                    return Err(Failure::Range(format!("bytes {at} and on came twice, or do not exist")));
                }
                self.worker.bytes(self.line.class, len);
            }
        }
        if !map.complete() || !reader.ended() {
            return Err(Failure::Short { got: map.received(), expected: size });
        }
        Ok(self.arrived(open))
    }

    /// When what was received now has reached the client.
    fn arrived(&self, open: &Open) -> Nanos {
        let left_link = open.link.as_ref().map_or(Nanos::ZERO, |l| l.borrow().free_at());
        self.worker.clock.now().max(left_link) + self.line.delay
    }
}

fn content_type(response: &Response<Incoming>) -> Option<&str> {
    response.headers().get(CONTENT_TYPE)?.to_str().ok()
}

/// Compares bytes of the file from `offset` on with what they must be.
fn check_bytes(ask: &FetchRequest<'_>, offset: u64, data: &[u8]) -> Result<(), Failure> {
    let Some(content) = ask.content else { return Ok(()) };
    let Err(at) = content.check(offset, data) else { return Ok(()) };
    let mut expected = [0];
    content.fill(at, &mut expected);
    let got = data[(at - offset) as usize];
    Err(Failure::WrongByte { offset: at, expected: expected[0], got })
}

/// Whether the connection was closed before the promised length.
fn ends_early(e: &hyper::Error) -> bool {
    e.is_incomplete_message() || io_kind(e) == Some(ErrorKind::UnexpectedEof)
}

/// Whether the connection is gone. It is reset where the server closes it with our request unread.
fn lost(e: &hyper::Error) -> bool {
    let kind = io_kind(e);
    e.is_canceled()
        || e.is_closed()
        || e.is_incomplete_message()
        || matches!(kind, Some(ErrorKind::ConnectionReset | ErrorKind::BrokenPipe))
}

fn io_kind(e: &hyper::Error) -> Option<ErrorKind> {
    std::error::Error::source(e).and_then(|c| c.downcast_ref::<std::io::Error>()).map(std::io::Error::kind)
}

/// hyper's error with its cause, on one line.
fn reason(e: &hyper::Error) -> String {
    match std::error::Error::source(e) {
        Some(cause) => format!("{e}: {cause}"),
        None => e.to_string(),
    }
}

/// Status, `Content-Range` and `Content-Length` against what was asked.
fn check_head(response: &Response<Incoming>, ask: &FetchRequest<'_>) -> Result<(), Failure> {
    let status = response.status().as_u16();
    let header =
        |name| response.headers().get(name).and_then(|v: &hyper::header::HeaderValue| v.to_str().ok());
    let expected = ask.expected();
    match (ask.range, status) {
        (Some((first, _)), 206) => {
            let text = header(CONTENT_RANGE)
                .ok_or_else(|| Failure::Range("206 without a single Content-Range".into()))?;
            let wrong = |why: &str| Failure::Range(format!("Content-Range `{text}` {why}"));
            let (a, b, total) = parse_content_range(text).ok_or_else(|| wrong("cannot be read"))?;
            if a != first || expected.is_some_and(|n| b + 1 - a.min(b) != n) {
                let last = expected.map_or(String::new(), |n| (first + n).saturating_sub(1).to_string());
                return Err(wrong(&format!("is not the range {first}-{last} asked for")));
            }
            if let (Some(total), Some(size)) = (total, ask.file_size)
                && total != size
            {
                return Err(wrong(&format!("does not have the file's length {size}")));
            }
        }
        // A server may ignore Range; that is an answer if the range was the whole file.
        (Some((0, _)), 200) if expected.is_some() && expected == ask.file_size => {}
        (None, 200) => {}
        _ => return Err(Failure::Status(status)),
    }
    if let (Some(length), Some(expected)) = (header(CONTENT_LENGTH), expected)
        && length.parse::<u64>().ok() != Some(expected)
    {
        return Err(Failure::Range(format!("Content-Length {length}, but {expected} bytes were asked for")));
    }
    Ok(())
}

/// `bytes A-B/TOTAL`, where TOTAL may be `*`.
fn parse_content_range(text: &str) -> Option<(u64, u64, Option<u64>)> {
    let (range, total) = text.strip_prefix("bytes ")?.split_once('/')?;
    let (a, b) = range.split_once('-')?;
    let total = if total == "*" { None } else { Some(total.parse().ok()?) };
    let (a, b) = (a.parse().ok()?, b.parse().ok()?);
    (a <= b).then_some((a, b, total))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_range_is_read() {
        assert_eq!(parse_content_range("bytes 5-9/100"), Some((5, 9, Some(100))));
        assert_eq!(parse_content_range("bytes 5-9/*"), Some((5, 9, None)));
        for bad in ["bytes 9-5/100", "bytes */100", "5-9/100", "bytes 5-/100"] {
            assert_eq!(parse_content_range(bad), None, "{bad}");
        }
    }
}
