//! One request for missing bytes, and its outcome.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, DATE,
    ETAG, HOST, HeaderMap, HeaderName, IF_RANGE, LAST_MODIFIED, PROXY_AUTHORIZATION, RANGE, RETRY_AFTER,
    TRANSFER_ENCODING, USER_AGENT,
};
use hyper::{Request, Response, StatusCode};
use seekless_base::Fault;

use super::connect::{connect, wants_login};
use super::part::PartFile;
use super::place::Place;
use super::{Options, Outcome, Progress, redirect};
use crate::digest::{self, Hasher};
use crate::multipart::{Found, Reader};
use crate::prefer::{ANY_ORDER, PREFER, PREFERENCE_APPLIED};
use crate::range::{Span, parse_content_range};

/// Most ranges in one request; the rest is asked for in the next.
const RANGES_MAX: usize = 64;

/// An answer may be longer than what is missing by this much: headers of parts, and parts that are here
/// already. At half of this, an answer with parts of single bytes from a server that merges nothing is broken
/// off earlier; at double, a server that repeats itself is read for twice as long.
const BESIDE_MAX: u64 = 16 << 20;

/// A date of change that is less than this before the date of the answer is not a strong validator (RFC 9110,
/// 8.8.2.2): the file may change once more and keep the date. One second would be enough if one clock made
/// both dates. At half of this, clocks that differ by half a minute are accepted; at double, files that
/// changed two minutes ago are downloaded anew after an interruption.
const DATE_SETTLES: Duration = Duration::from_secs(60);

/// The `User-Agent` of `get`.
pub(crate) const OURS: &str = concat!("seekless/", env!("CARGO_PKG_VERSION"));

/// How to request the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asking {
    /// Request ranges; else the whole file.
    pub(crate) ranges: bool,
    /// Request parts in any order.
    pub(crate) any_order: bool,
}

/// Why an attempt did not complete the file.
#[derive(Clone, Debug)]
pub(crate) enum Trouble {
    /// Another attempt would fail as well.
    Fatal(Fault),
    /// Another attempt may succeed, after this pause.
    Again(String, Option<Duration>),
    /// The server's file is not the one whose parts are here.
    Changed(String),
    /// The server cannot handle this kind of request; request the whole file.
    Plainly(String),
    /// A redirect.
    Moved(Box<Place>),
    /// This server refuses the file. If it sent part of it before, its URL may have expired.
    Refused(Fault),
}

impl From<Fault> for Trouble {
    fn from(fault: Fault) -> Trouble {
        Trouble::Fatal(fault)
    }
}

fn again(why: impl Into<String>) -> Trouble {
    Trouble::Again(why.into(), None)
}

fn fatal(why: impl Into<String>) -> Trouble {
    Trouble::Fatal(Fault::failed(why))
}

fn refused(why: impl Into<String>) -> Trouble {
    Trouble::Refused(Fault::failed(why))
}

/// Requests what is missing and writes what arrives.
pub(crate) async fn attempt(
    place: &Place,
    asking: Asking,
    options: &Options,
    part: &mut PartFile,
    outcome: &mut Outcome,
    progress: &dyn Progress,
) -> Result<(), Trouble> {
    if part.complete() {
        return Ok(());
    }
    let proxy = options.proxies.of_place(place)?;
    let request = request(place, proxy, asking, part)?;
    let resuming = request.headers().contains_key(IF_RANGE);
    outcome.requests += 1;
    let mut sender = connect(place, proxy, &options.trust, options.timeout).await?;
    let response = tokio::time::timeout(options.timeout, sender.send_request(request)).await;
    let response = response.map_err(|_| again("the server does not answer"))?.map_err(|e| {
        match e.is_parse() && !place.is_secure() && proxy.is_none() {
            true => again(format!("no answer in HTTP: {}; does the server expect https://?", deepest(&e))),
            false => again(format!("no answer: {}", deepest(&e))),
        }
    })?;
    let status = response.status();
    match status {
        StatusCode::OK | StatusCode::PARTIAL_CONTENT => {}
        // Not 300 (a choice) and 304 (not modified).
        _ if matches!(status.as_u16(), 301..=303 | 307 | 308) => {
            return Err(match redirect::target(place, response.headers()) {
                Ok(to) => Trouble::Moved(Box::new(to)),
                Err(why) => fatal(why),
            });
        }
        StatusCode::RANGE_NOT_SATISFIABLE if resuming => {
            return Err(Trouble::Changed("the file became shorter on the server".into()));
        }
        StatusCode::RANGE_NOT_SATISFIABLE | StatusCode::BAD_REQUEST | StatusCode::NOT_IMPLEMENTED
            if asking.ranges =>
        {
            return Err(Trouble::Plainly(status.to_string()));
        }
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS => {
            return Err(Trouble::Again(status.to_string(), retry_after(response.headers())));
        }
        _ if status.is_server_error() => {
            return Err(Trouble::Again(status.to_string(), retry_after(response.headers())));
        }
        StatusCode::UNAUTHORIZED => {
            let why = match (place.login().is_some(), place.left_login()) {
                (true, _) => "the server does not take the name and password of the URL",
                (false, true) => {
                    "it is moved to another server, which does not get the name and password: give that server's URL with them"
                }
                (false, false) => "give a name and password in the URL, http://NAME:PASSWORD@host/file",
            };
            return Err(refused(format!("{status} at {}: {why}", place.host_and_port())));
        }
        StatusCode::PROXY_AUTHENTICATION_REQUIRED if let Some(proxy) = proxy => {
            return Err(fatal(wants_login(proxy)));
        }
        _ => return Err(refused(status.to_string())),
    }
    codings(response.headers())?;
    let mut sink = Sink::new(part, outcome, progress, response, options.timeout);
    if status == StatusCode::OK { sink.whole(resuming).await } else { sink.parts(resuming).await }
}

/// Refuses an answer that is encoded.
fn codings(headers: &HeaderMap) -> Result<(), Trouble> {
    let listed = |name: HeaderName| {
        let values = headers.get_all(name).iter().map(|v| String::from_utf8_lossy(v.as_bytes()).into_owned());
        values.collect::<Vec<_>>().join(",")
    };
    let other = |list: &str, known: &str| {
        let mut names = list.split(',').map(str::trim).filter(|name| !name.is_empty());
        names.find(|name| !name.eq_ignore_ascii_case(known)).map(|name| name.escape_debug().to_string())
    };
    if let Some(coding) = other(&listed(CONTENT_ENCODING), "identity") {
        return Err(fatal(format!("the server sends it encoded ({coding}), though that was not requested")));
    }
    match other(&listed(TRANSFER_ENCODING), "chunked") {
        Some(coding) => {
            Err(fatal(format!("the server sends it in a transfer coding that was not requested ({coding})")))
        }
        None => Ok(()),
    }
}

/// The request for what is missing.
fn request(
    place: &Place,
    proxy: Option<&Place>,
    asking: Asking,
    part: &PartFile,
) -> Result<Request<Empty<Bytes>>, Trouble> {
    let wrong = |e: &dyn std::fmt::Display| Trouble::Fatal(Fault::usage(e.to_string()));
    // Over TLS the request goes through a tunnel of the proxy.
    let proxy = proxy.filter(|_| !place.is_secure());
    let mut request = Request::get(if proxy.is_some() { place.absolute() } else { place.target() });
    if let Some(login) = proxy.and_then(Place::login) {
        request = request.header(PROXY_AUTHORIZATION, login);
    }
    if let Some(login) = place.login() {
        request = request.header(AUTHORIZATION, login);
    }
    request = request
        .header(HOST, place.authority())
        .header(USER_AGENT, OURS)
        .header(ACCEPT_ENCODING, "identity")
        .header(digest::WANT_REPR_DIGEST, "sha-256=5, sha-512=3");
    if asking.ranges {
        let have = part.missing(RANGES_MAX).zip(part.known.validator.clone());
        let missing = match have {
            Some((missing, validator)) => {
                request = request.header(IF_RANGE, validator);
                Some(missing)
            }
            None => None,
        };
        if let Some(ranges) = ranges(missing.as_deref(), asking.any_order) {
            request = request.header(RANGE, ranges);
            if asking.any_order {
                request = request.header(PREFER, ANY_ORDER);
            }
        }
    }
    request.body(Empty::new()).map_err(|e| wrong(&e))
}

/// The value of `Range`. Only an answer to several ranges may have its parts in any order, so a single range
/// is requested as two. `None`: request the whole file.
fn ranges(missing: Option<&[Span]>, any_order: bool) -> Option<String> {
    let text = match missing {
        None if any_order => "0-0,1-".into(),
        None => return None,
        Some([span]) if any_order && span.len > 1 => {
            format!("{0}-{0},{1}-{2}", span.offset, span.offset + 1, span.end() - 1)
        }
        Some(spans) => {
            let each: Vec<String> = spans.iter().map(|s| format!("{}-{}", s.offset, s.end() - 1)).collect();
            each.join(",")
        }
    };
    Some(format!("bytes={text}"))
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds: u64 = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// The innermost cause of an error: hyper wraps the system's error.
pub(crate) fn deepest(error: &dyn std::error::Error) -> String {
    let mut at = error;
    while let Some(inner) = at.source() {
        at = inner;
    }
    at.to_string()
}

/// Receives one answer.
struct Sink<'a> {
    part: &'a mut PartFile,
    outcome: &'a mut Outcome,
    progress: &'a dyn Progress,
    headers: HeaderMap,
    body: Incoming,
    silence_max: Duration,
    /// Digest of the answer's own bytes, if the server states one.
    hasher: Option<(Hasher, Vec<u8>)>,
    /// Bytes of the answer received so far.
    came: u64,
}

impl<'a> Sink<'a> {
    fn new(
        part: &'a mut PartFile,
        outcome: &'a mut Outcome,
        progress: &'a dyn Progress,
        response: Response<Incoming>,
        silence_max: Duration,
    ) -> Sink<'a> {
        let (head, body) = response.into_parts();
        let hasher = digest::stated(&head.headers, &digest::CONTENT_DIGEST)
            .map(|stated| (Hasher::new(stated.algorithm), stated.value));
        Sink { part, outcome, progress, headers: head.headers, body, silence_max, hasher, came: 0 }
    }

    fn header(&self, name: HeaderName) -> Option<&str> {
        self.headers.get(name).and_then(|v| v.to_str().ok())
    }

    /// The validator for `If-Range` in later requests: a strong tag, else the date if it is a strong
    /// validator.
    fn validator(&self) -> Option<String> {
        if let Some(tag) = self.header(ETAG) {
            return tag.starts_with('"').then(|| tag.into());
        }
        let modified = self.header(LAST_MODIFIED)?;
        let date = |text: &str| httpdate::parse_http_date(text).ok();
        // An answer without a date is as old as its arrival (RFC 9110, 6.6.1).
        let answered = self.header(DATE).and_then(date).unwrap_or_else(SystemTime::now);
        let settled = answered.duration_since(date(modified)?).is_ok_and(|age| age >= DATE_SETTLES);
        settled.then(|| modified.into())
    }

    /// Whether this answer belongs to the edition whose parts are here.
    fn is_same(&self) -> bool {
        self.part.known.validator.as_deref().is_some_and(|known| match known.starts_with('"') {
            true => self.header(ETAG) == Some(known),
            false => self.header(LAST_MODIFIED) == Some(known),
        })
    }

    /// The stated length of the body; ignored if there is a transfer coding (RFC 9112, 6.3).
    fn length(&self) -> Option<u64> {
        if self.headers.contains_key(TRANSFER_ENCODING) {
            return None;
        }
        self.header(CONTENT_LENGTH).and_then(|length| length.parse().ok())
    }

    /// The whole file, in order.
    async fn whole(&mut self, resuming: bool) -> Result<(), Trouble> {
        if self.part.have() > 0 || resuming {
            // Another edition than the parts here, or a server without ranges. In both cases the answer is
            // the whole file.
            if resuming && !self.is_same() {
                self.outcome.restarts += 1;
            }
            self.outcome.resumed_bytes = 0;
            self.part.reset()?;
        }
        self.learn();
        let (length, chunked) = (self.length(), self.headers.contains_key(TRANSFER_ENCODING));
        if length.is_none() && !chunked && self.part.known.digest.is_none() {
            return Err(fatal("the server states neither length nor digest, so the file cannot be verified"));
        }
        if length.is_some_and(|size| !self.part.size_is(size)) {
            return Err(Trouble::Changed("the file changed its size on the server".into()));
        }
        if let Some(fault) = self.part.too_long() {
            return Err(Trouble::Fatal(fault));
        }
        let mut at = 0;
        while let Some(data) = self.data().await? {
            self.write(at, &data)?;
            at += data.len() as u64;
        }
        self.content_digest()?;
        if length.is_none() {
            self.part.stream_ended();
        }
        Ok(())
    }

    /// One range, or several in any order.
    async fn parts(&mut self, resuming: bool) -> Result<(), Trouble> {
        if resuming && !self.is_same() {
            return Err(Trouble::Changed("the server answered with parts of another file".into()));
        }
        if !resuming && self.part.have() > 0 {
            // Without a validator, nothing tells whether these parts and those already here belong to one
            // file.
            self.outcome.resumed_bytes = 0;
            self.part.reset()?;
        }
        self.learn();
        let applied = crate::prefer::has(&self.headers, &PREFERENCE_APPLIED, ANY_ORDER);
        self.outcome.any_order |= applied;
        if let Some(mut reader) = self.header(CONTENT_TYPE).and_then(Reader::of) {
            while let Some(mut data) = self.data().await? {
                loop {
                    match reader.next(&mut data).map_err(|e| again(format!("the server sent {e}")))? {
                        None => break,
                        Some(Found::Part(span, size)) => self.place(span, size)?,
                        Some(Found::Data(at, bytes)) => self.write(at, &bytes)?,
                        Some(Found::End) => {}
                    }
                }
            }
            if !reader.ended() {
                return Err(again("the answer ended before its last part"));
            }
            return self.content_digest();
        }
        let Some((span, size)) = self.header(CONTENT_RANGE).and_then(parse_content_range) else {
            return Err(Trouble::Plainly("the server sent a part without its Content-Range".into()));
        };
        // A server that sends the whole file as a part would corrupt the file.
        let contradicts = || Trouble::Plainly("the server sends more or less than the part it names".into());
        if self.length().is_some_and(|length| length != span.len) {
            return Err(contradicts());
        }
        self.place(span, size)?;
        let mut at = span.offset;
        while let Some(data) = self.data().await? {
            if data.len() as u64 > span.end().saturating_sub(at) {
                return Err(contradicts());
            }
            self.write(at, &data)?;
            at += data.len() as u64;
        }
        if at < span.end() {
            return Err(again("the answer was shorter than stated"));
        }
        self.content_digest()
    }

    /// Stores what identifies the file.
    fn learn(&mut self) {
        self.part.answers += 1;
        if self.part.known.validator.is_none() {
            self.part.known.validator = self.validator();
        }
        if let Some(stated) = digest::stated(&self.headers, &digest::REPR_DIGEST) {
            self.part.known.digest = Some(stated);
        }
    }

    /// The header of a part.
    fn place(&mut self, span: Span, size: Option<u64>) -> Result<(), Trouble> {
        match size {
            Some(size) if self.part.size_is(size) => {}
            Some(_) => return Err(Trouble::Changed("the file changed its size on the server".into())),
            // Valid, but then only an answer with the whole file tells its length.
            None if self.part.known.size.is_some_and(|size| span.end() <= size) => {}
            None => return Err(Trouble::Plainly("the server does not say how long the file is".into())),
        }
        if let Some(fault) = self.part.too_long() {
            return Err(Trouble::Fatal(fault));
        }
        Ok(())
    }

    fn write(&mut self, at: u64, data: &[u8]) -> Result<(), Trouble> {
        self.part.write(at, data)?;
        if let Some(fault) = self.part.too_long() {
            self.part.reset()?;
            return Err(Trouble::Fatal(fault));
        }
        self.outcome.received_bytes += data.len() as u64;
        self.progress.at(self.part.have(), self.part.known.size);
        Ok(())
    }

    /// The next data of the body; `None` at its regular end.
    async fn data(&mut self) -> Result<Option<Bytes>, Trouble> {
        loop {
            let next = tokio::time::timeout(self.silence_max, self.body.frame()).await;
            let frame = next.map_err(|_| again("the server fell silent"))?;
            let Some(frame) = frame else { return Ok(None) };
            let frame = frame.map_err(|e| again(format!("the connection broke: {}", deepest(&e))))?;
            if let Ok(data) = frame.into_data() {
                self.came += data.len() as u64;
                // Twice the file: parts of single bytes have headers a hundred times as long, and missing
                // bytes are requested again.
                if let Some(size) = self.part.known.size
                    && self.came > size.saturating_mul(2).saturating_add(BESIDE_MAX)
                {
                    return Err(again("the answer is more than twice as long as the file"));
                }
                if let Some((hasher, _)) = &mut self.hasher {
                    hasher.update(&data);
                }
                return Ok(Some(data));
            }
        }
    }

    /// Compares the digest of the answer's bytes, if one was stated.
    fn content_digest(&mut self) -> Result<(), Trouble> {
        let Some((hasher, stated)) = self.hasher.take() else { return Ok(()) };
        if hasher.finish() != stated {
            return Err(Trouble::Changed("the answer does not have the digest it states".into()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_range_is_asked_for_as_two_where_any_order_is_wanted() {
        let span = |offset, len| Span { offset, len };
        assert_eq!(ranges(None, true).unwrap(), "bytes=0-0,1-");
        assert_eq!(ranges(None, false), None);
        assert_eq!(ranges(Some(&[span(5, 10)]), true).unwrap(), "bytes=5-5,6-14");
        assert_eq!(ranges(Some(&[span(5, 10)]), false).unwrap(), "bytes=5-14");
        assert_eq!(ranges(Some(&[span(5, 1)]), true).unwrap(), "bytes=5-5");
        assert_eq!(ranges(Some(&[span(5, 1), span(9, 2)]), true).unwrap(), "bytes=5-5,9-10");
    }
}
