//! Makes an answer to a request (RFC 9110): which file, which bytes of it, with which status.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use hyper::header::{
    ACCEPT_RANGES, ALLOW, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_SECURITY_POLICY,
    CONTENT_TYPE, ETAG, HeaderMap, HeaderName, HeaderValue, LAST_MODIFIED, LOCATION, RANGE, REFERER,
    RETRY_AFTER, SERVER, USER_AGENT,
};
use hyper::{Method, Request, Response, StatusCode, Version};

use super::any_order::{self, Download};
use super::body::{FileBody, Part};
use super::boundary::boundary;
use super::counters::Counters;
use super::log::Record;
use super::send_progress::SendProgress;
use super::tree::{Entry, OpenError, Opened, open_below};
use super::wire::{Outbox, Tally};
use super::{Shared, fetch, listing, page};
use crate::conditional::{Validators, Verdict, evaluate};
use crate::digest;
use crate::host;
use crate::multipart::Writer;
use crate::path::{BadTarget, Target, resolve};
use crate::prefer::{ANY_ORDER, PREFER, PREFERENCE_APPLIED};
use crate::range::{Span, Wanted, wanted};
use crate::{content_type, prefer};

/// What an answer has to know about its connection.
pub(crate) struct Connection {
    pub(crate) shared: Arc<Shared>,
    pub(crate) peer: SocketAddr,
    /// On HTTP/1.1, with the flag whether sendfile can be used.
    pub(crate) outbox: Option<(Rc<Outbox>, bool)>,
    /// On HTTP/2.
    pub(crate) send_progress: Option<Rc<SendProgress>>,
}

/// An answer before it is tied to a connection.
struct Draft {
    status: StatusCode,
    headers: HeaderMap,
    content: Content,
}

enum Content {
    None,
    Text(Bytes),
    /// These parts of a file.
    File(Arc<Opened>, Vec<Part>),
    /// Blocks in any order, and their bytes in all.
    Blocks(Download, u64),
    /// HEAD: only the length.
    Length(u64),
}

/// Answers one request.
pub(crate) async fn answer(connection: Rc<Connection>, request: Request<Incoming>) -> Response<FileBody> {
    let shared = connection.shared.clone();
    Counters::one(&shared.counters.requests);
    if let Some((outbox, _)) = &connection.outbox {
        outbox.request_begins();
    }
    let at = SystemTime::now();
    let (head, body) = request.into_parts();
    if head.version == Version::HTTP_2 && !body.is_end_stream() {
        let _ = tokio::time::timeout(shared.settings.patience.head, ignore(body)).await;
    }
    let draft = match host::is_good(head.version, &head.headers) {
        true => draft(&shared, &head.method, head.uri.path(), &head.headers).await,
        // Two parties between client and server may send such a request to different hosts.
        false => plain(StatusCode::BAD_REQUEST),
    };
    let mut bypass_end = 0;
    if let (Some(coordinate), Content::File(file, parts)) = (&shared.coordinate, &draft.content)
        // A request for several parts is not part of a sequential read.
        && let [Part::Span(span)] = parts.as_slice()
        && span.len > 0
    {
        let way = coordinate.decide(connection.peer.ip().to_canonical(), file, *span);
        bypass_end = way.bypass_end;
        if let Some(span) = way.readmore {
            fetch::more(&shared, file, span);
        }
    }
    let record = shared.log.is_some().then(|| {
        let copy = |name: HeaderName| head.headers.get(name).map(|v| v.as_bytes().to_vec());
        let target = head.uri.path_and_query().map_or_else(|| head.uri.to_string(), ToString::to_string);
        Record {
            client: connection.peer.ip().to_canonical().to_string(),
            at,
            request: format!("{} {target} {:?}", head.method, head.version),
            status: draft.status.as_u16(),
            referer: copy(REFERER),
            agent: copy(USER_AGENT),
        }
    });
    let tally = Tally::new(record, shared.clone());
    let outbox = connection.outbox.clone();
    let mut headers = draft.headers;
    headers.insert(SERVER, HeaderValue::from_static(concat!("seekless/", env!("CARGO_PKG_VERSION"))));
    let body = match draft.content {
        Content::None => FileBody::new(shared, None, [], outbox, tally),
        Content::Text(text) => {
            headers.insert(CONTENT_LENGTH, text.len().into());
            let text = if head.method == Method::HEAD { Bytes::new() } else { text };
            FileBody::new(shared, None, [Part::Memory(text)], outbox, tally)
        }
        Content::File(file, parts) => {
            FileBody::new(shared, Some(file), parts, outbox, tally).bypassing(bypass_end)
        }
        Content::Blocks(download, len) => FileBody::any_order(shared, len, download, outbox, tally),
        Content::Length(len) => {
            headers.insert(CONTENT_LENGTH, len.into());
            FileBody::new(shared, None, [], outbox, tally)
        }
    };
    let mut response = Response::new(body.taken(connection.send_progress.clone()));
    *response.status_mut() = draft.status;
    *response.headers_mut() = headers;
    response
}

/// Most bytes of a request's body that are read.
const BODY_MAX: usize = 64 << 10;

/// Reads the body of a request, which none of our methods uses, so that a body of another length than its
/// head says is noticed (RFC 9113, 8.1.1) before the answer. On HTTP/1.1 such a body looks like the next
/// request.
async fn ignore(mut body: Incoming) {
    let mut seen = 0;
    while let Some(Ok(frame)) = body.frame().await {
        seen += frame.data_ref().map_or(0, Bytes::len);
        if seen > BODY_MAX {
            return;
        }
    }
}

/// A short text for every status without a file.
fn plain(status: StatusCode) -> Draft {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    if status == StatusCode::SERVICE_UNAVAILABLE {
        headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    Draft { status, headers, content: Content::Text(format!("{status}\n").into()) }
}

async fn draft(shared: &Arc<Shared>, method: &Method, path: &str, headers: &HeaderMap) -> Draft {
    if method != Method::GET && method != Method::HEAD {
        let status = match *method {
            Method::OPTIONS => StatusCode::NO_CONTENT,
            _ => StatusCode::METHOD_NOT_ALLOWED,
        };
        let mut draft = plain(status);
        if status == StatusCode::NO_CONTENT {
            draft = Draft { status, headers: HeaderMap::new(), content: Content::None };
        }
        draft.headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD, OPTIONS"));
        return draft;
    }
    if shared.settings.download_page
        && let Some((kind, text)) = page::file(path)
    {
        let mut draft = plain(StatusCode::OK);
        draft.headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        draft.headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(page::POLICY));
        // The files are small, and new with every release.
        draft.headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        draft.content = Content::Text(text);
        return draft;
    }
    let target = match resolve(path) {
        Ok(target) if target.hidden && !shared.settings.hidden => return plain(StatusCode::NOT_FOUND),
        Ok(target) => target,
        Err(BadTarget::Malformed) => return plain(StatusCode::BAD_REQUEST),
        Err(BadTarget::NoSuchName) => return plain(StatusCode::NOT_FOUND),
    };
    match open(shared, target.path.clone()).await {
        Ok(Entry::Folder(folder)) if target.folder => {
            in_folder(shared, method, headers, &target, folder).await
        }
        Ok(Entry::Folder(_)) => moved(&target),
        // The target ends in a slash, but names a file.
        Ok(Entry::File(_)) if target.folder => plain(StatusCode::NOT_FOUND),
        Ok(Entry::File(file)) => of_file(shared, method, headers, &target.path, file).await,
        Err(error) => refusal(error),
    }
}

fn refusal(error: OpenError) -> Draft {
    plain(match error {
        OpenError::NotFound => StatusCode::NOT_FOUND,
        OpenError::Forbidden => StatusCode::FORBIDDEN,
        OpenError::Exhausted | OpenError::WouldWait => StatusCode::SERVICE_UNAVAILABLE,
        OpenError::Failed(e) => {
            tracing::warn!(%e, "a file cannot be opened");
            StatusCode::INTERNAL_SERVER_ERROR
        }
    })
}

/// Runs a function that may wait for the disk on a helper thread.
async fn helped<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, OpenError> {
    tokio::task::spawn_blocking(work).await.map_err(|_| OpenError::Exhausted)
}

/// Opens a name, on a helper thread if the kernel would have to read a directory.
async fn open(shared: &Arc<Shared>, path: PathBuf) -> Result<Entry, OpenError> {
    match shared.tree.get(&path, false) {
        Err(OpenError::WouldWait) => {
            Counters::one(&shared.counters.helper_opens);
            let _waits = shared.waits.begin();
            let shared = shared.clone();
            helped(move || shared.tree.get(&path, true)).await?
        }
        other => other,
    }
}

/// `/folder` is redirected to `/folder/`; relative links in its page would be wrong otherwise.
fn moved(target: &Target) -> Draft {
    use std::os::unix::ffi::OsStrExt;
    let segments = target.path.iter().map(|s| crate::path::encode_segment(s.as_bytes()));
    let location: String = segments.flat_map(|s| ["/".to_string(), s]).chain(["/".to_string()]).collect();
    let mut draft = plain(StatusCode::MOVED_PERMANENTLY);
    if let Ok(value) = location.parse() {
        draft.headers.insert(LOCATION, value);
    }
    draft
}

async fn in_folder(
    shared: &Arc<Shared>,
    method: &Method,
    headers: &HeaderMap,
    target: &Target,
    folder: std::os::fd::OwnedFd,
) -> Draft {
    use std::os::fd::AsFd;
    let (list, hidden, title) = (shared.settings.listing, shared.settings.hidden, target.path.clone());
    let all = shared.clone();
    let looked = helped(move || match open_below(folder.as_fd(), Path::new("index.html"), true) {
        Ok(Entry::File(file)) => Ok(Ok(file)),
        Ok(Entry::Folder(_)) | Err(OpenError::NotFound) if list => {
            listing::page(&all.tree, folder.as_fd(), &title, hidden).map(Err).map_err(OpenError::Failed)
        }
        Ok(Entry::Folder(_)) | Err(OpenError::NotFound) => Err(OpenError::Forbidden),
        Err(other) => Err(other),
    });
    match looked.await {
        Ok(Ok(Ok(file))) => of_file(shared, method, headers, Path::new("index.html"), file).await,
        Ok(Ok(Err(page))) => {
            let mut draft = plain(StatusCode::OK);
            draft.headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
            draft.content = Content::Text(page.into());
            draft
        }
        Ok(Err(error)) | Err(error) => refusal(error),
    }
}

async fn of_file(
    shared: &Arc<Shared>,
    method: &Method,
    asked: &HeaderMap,
    path: &Path,
    file: Opened,
) -> Draft {
    let validators = Validators::new(file.size, file.modified.0, file.modified.1, SystemTime::now());
    let mut headers = HeaderMap::new();
    let mut put = |name: HeaderName, value: &str| {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(name, value);
        }
    };
    put(ETAG, &validators.etag);
    if validators.dated {
        put(LAST_MODIFIED, &httpdate::fmt_http_date(validators.modified));
    }
    let kind = content_type::of(path);
    let ranges = match evaluate(asked, &validators) {
        Verdict::NotModified => {
            return Draft { status: StatusCode::NOT_MODIFIED, headers, content: Content::None };
        }
        Verdict::Failed => return plain(StatusCode::PRECONDITION_FAILED),
        Verdict::Proceed { ranges } => ranges,
    };
    put(ACCEPT_RANGES, "bytes");
    put(CONTENT_TYPE, kind);
    let file = Arc::new(file);
    let size = file.size;
    // Range is defined only for GET (RFC 9110, 14.2).
    let range = asked.get(RANGE).filter(|_| ranges && *method == Method::GET).and_then(|v| v.to_str().ok());
    let wanted = range.map_or(Wanted::Whole, |range| wanted(range, size));
    let any_order = validators.strong
        && prefer::has(asked, &PREFER, ANY_ORDER)
        && matches!(&wanted, Wanted::Spans(spans) if any_order::is_worth_it(shared, spans));
    if !matches!(wanted, Wanted::Unsatisfiable)
        && digest::wants_sha256(asked)
        && let Some(value) = super::digests::sha256(shared, &file, any_order).await
    {
        put(digest::REPR_DIGEST, &digest::field(digest::Algorithm::Sha256, &value));
    }
    let spans = match wanted {
        Wanted::Unsatisfiable => {
            let mut draft = plain(StatusCode::RANGE_NOT_SATISFIABLE);
            if let Ok(value) = format!("bytes */{size}").parse() {
                draft.headers.insert(CONTENT_RANGE, value);
            }
            return draft;
        }
        Wanted::Whole if *method == Method::HEAD => {
            return Draft { status: StatusCode::OK, headers, content: Content::Length(size) };
        }
        Wanted::Whole => {
            put(CONTENT_LENGTH, &size.to_string());
            let whole = Part::Span(Span { offset: 0, len: size });
            return Draft { status: StatusCode::OK, headers, content: Content::File(file, vec![whole]) };
        }
        Wanted::Spans(spans) => spans,
    };
    let status = StatusCode::PARTIAL_CONTENT;
    if any_order && let Some((download, kind, len)) = any_order::join(shared, &file, kind, &spans) {
        put(CONTENT_TYPE, &kind);
        put(CONTENT_LENGTH, &len.to_string());
        put(PREFERENCE_APPLIED, ANY_ORDER);
        return Draft { status, headers, content: Content::Blocks(download, len) };
    }
    if let [span] = spans[..] {
        put(CONTENT_LENGTH, &span.len.to_string());
        put(CONTENT_RANGE, &span.content_range(size));
        return Draft { status, headers, content: Content::File(file, vec![Part::Span(span)]) };
    }
    let writer = Writer::new(kind, size, boundary());
    put(CONTENT_LENGTH, &writer.length(spans.iter().copied()).to_string());
    put(CONTENT_TYPE, &writer.content_type());
    let mut parts = Vec::with_capacity(2 * spans.len() + 1);
    for span in spans {
        parts.push(Part::Memory(writer.head(span)));
        parts.push(Part::Span(span));
    }
    parts.push(Part::Memory(writer.tail()));
    Draft { status, headers, content: Content::File(file, parts) }
}
