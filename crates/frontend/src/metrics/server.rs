//! The HTTP address for scrapes: HTTP/1.1, read-only, on one thread.
//!
//! | path | answer |
//! | --- | --- |
//! | `/metrics` | OpenMetrics, or Prometheus text for a scraper that does not accept it |
//! | `/status.json` | the same state as JSON, for the page |
//! | `/` | a page with plots |
//!
//! On a loopback address, the request must name a loopback host. So a page of another origin whose name
//! resolves to 127.0.0.1 gets nothing. No request across origins is answered.
//!
//! Any local user may connect and keep connections open, so no connection is kept for long. If all are taken,
//! a new one replaces the connection that has been idle longest, of the peer that has most of them.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::Args;
use http_body_util::Full;
use hyper::header::{
    ACCEPT, ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use seekless_base::{Exit, Fault, network};
use tokio::net::TcpListener;
use tokio::sync::{Notify, Semaphore, watch};

use crate::metrics::observation::Observation;
use crate::metrics::text::{OPENMETRICS, PROMETHEUS_TEXT, openmetrics, prometheus};

/// Maximum number of connections; a further one replaces an idle one. At half, four peers with all of theirs
/// open close those of others; at double, twice as many descriptors are held for nothing.
const CONNECTIONS_MAX: usize = 64;

/// Maximum number of connections of one peer; a further one replaces another of its own. All users of this
/// machine are one peer: a few scrapers and a few open pages. At half, a user that opens connections as fast
/// as it can closes another's twice as soon, maybe before its request has arrived; at double, two peers take
/// all connections.
const OF_ONE_PEER_MAX: usize = 16;

/// How long a new connection waits for the end of the one that it replaces, which needs only one turn of the
/// loop.
const REPLACED_MAX: Duration = Duration::from_secs(1);

/// Maximum length of a request's head. A scraper's has a few hundred bytes; hyper needs at least 8 KiB.
const HEAD_MAX: usize = 8 << 10;

/// Maximum time for the head of a request, from the start of the connection or from the last answer. A
/// scraper that returns after 15 to 60 seconds finds its connection closed and opens another. At half, a page
/// that asks every few seconds opens a new one each time; at double, idle ones are kept longer for nothing.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum life of a connection, for clients that read byte by byte.
const LIFE_MAX: Duration = Duration::from_secs(600);

/// How long answers may take at the end. They are written from memory, so only a client that does not read
/// takes longer.
const END_MAX: Duration = Duration::from_millis(500);

/// The source of each scrape. `None`: no data now.
pub type Source = Arc<dyn Fn() -> Option<Observation> + Send + Sync>;

const PAGE: &str = include_str!("page.html");

/// The address for scrapes.
#[derive(Args, Clone, Copy, Debug)]
pub struct MetricsOption {
    /// Serve metrics and a status page at this address; a port alone means 127.0.0.1 [default: off]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub metrics: Option<Address>,
}

/// The address: `ADDRESS:PORT`, or a port of the loopback address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address(pub SocketAddr);

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        if let Ok(port) = text.parse::<u16>() {
            return Ok(Address((IpAddr::V4(Ipv4Addr::LOCALHOST), port).into()));
        }
        let wrong =
            || format!("`{text}` is no address; write for example 127.0.0.1:9633, [::1]:9633 or 9633");
        text.parse().map(Address).map_err(|_| wrong())
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A served metrics address. Dropping it stops the server.
#[derive(Debug)]
pub struct MetricsServer {
    address: SocketAddr,
    /// A copy of the socket, for another process.
    listener: std::net::TcpListener,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl MetricsServer {
    /// Listens and answers, on a thread of its own. `source` is called there, and may wait for a moment.
    ///
    /// # Errors
    /// The address is in use or not this machine's, or no thread can be started.
    pub fn start(address: Address, source: Source) -> Result<MetricsServer, Fault> {
        MetricsServer::start_with(address, None, source)
    }

    /// The same. A socket of another process that listens at this address already is used as it is.
    ///
    /// # Errors
    /// Those of [`MetricsServer::start`].
    pub fn start_with(
        address: Address,
        inherited: Option<std::net::TcpListener>,
        source: Source,
    ) -> Result<MetricsServer, Fault> {
        let inherited = inherited.filter(|socket| {
            let at = socket.local_addr();
            at.is_ok_and(|at| at.ip() == address.0.ip() && [0, at.port()].contains(&address.0.port()))
        });
        let fault = |e: std::io::Error| {
            let exit = match e.kind() {
                std::io::ErrorKind::AddrInUse => Exit::Busy,
                std::io::ErrorKind::PermissionDenied => Exit::Permission,
                _ => Exit::Failed,
            };
            Fault::new(
                exit,
                format!("cannot listen at the metrics address {address}: {e}; give another --metrics"),
            )
        };
        let socket = inherited.map_or_else(|| std::net::TcpListener::bind(address.0), Ok).map_err(fault)?;
        socket.set_nonblocking(true).map_err(fault)?;
        let address = socket.local_addr().map_err(fault)?;
        let listener = socket.try_clone().map_err(fault)?;
        let (stop, stopped) = watch::channel(false);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(2)
            .build()
            .map_err(fault)?;
        let loopback = address.ip().is_loopback();
        let body = move || {
            runtime.block_on(accept(socket, Arc::new(Answers { source, loopback }), stopped));
            runtime.shutdown_background();
        };
        let thread = thread::Builder::new().name("metrics".into()).spawn(body).map_err(fault)?;
        Ok(MetricsServer { address, listener, stop, thread: Some(thread) })
    }

    /// The socket, for another process that will answer at it when this one ends.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn listener(&self) -> std::io::Result<std::net::TcpListener> {
        self.listener.try_clone()
    }

    /// Where it answers.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn accept(socket: std::net::TcpListener, answers: Arc<Answers>, mut stopped: watch::Receiver<bool>) {
    let listener = match TcpListener::from_std(socket) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "the metrics address has failed"),
    };
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let open = Arc::new(Open::default());
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stopped.wait_for(|stop| *stop) => break,
        };
        let Ok((tcp, peer)) = accepted else {
            // Most likely no descriptor is left.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        open.make_room(peer.ip());
        let place = tokio::time::timeout(REPLACED_MAX, room.clone().acquire_owned());
        let Ok(Ok(place)) = place.await else { continue };
        let (answers, mut stopped) = (answers.clone(), stopped.clone());
        let (connected, replaced) = open.add(peer.ip());
        tokio::spawn(async move {
            let (begin, mut begun) = watch::channel(false);
            let connected = &connected;
            let service = service_fn(move |request| {
                begin.send_replace(true);
                let answers = answers.clone();
                async move {
                    connected.asks(true);
                    let answer = answers.answer(request).await;
                    connected.asks(false);
                    answer
                }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIMEOUT)
                .max_buf_size(HEAD_MAX)
                .serve_connection(TokioIo::new(tcp), service);
            let mut connection = std::pin::pin!(connection);
            let told = async {
                let _ = stopped.wait_for(|stop| *stop).await;
            };
            let ending = tokio::select! {
                _ = tokio::time::timeout(LIFE_MAX, connection.as_mut()) => false,
                () = told => true,
                () = replaced.notified() => false,
            };
            // Its result concerns only the client.
            if ending {
                // The request of a client that has just connected is on its way.
                let asked = async {
                    let _ = begun.wait_for(|begun| *begun).await;
                };
                tokio::select! {
                    _ = connection.as_mut() => return,
                    () = asked => {}
                }
                connection.as_mut().graceful_shutdown();
                let _ = connection.await;
            }
            drop(place);
        });
    }
    // Answers are sent, and a first request is waited for. Kept connections are closed at once.
    let all = u32::try_from(CONNECTIONS_MAX).unwrap_or(u32::MAX);
    let _ = tokio::time::timeout(END_MAX, room.acquire_many(all)).await;
}

/// The connections that are open.
#[derive(Default)]
struct Open {
    table: Mutex<BTreeMap<u64, Connected>>,
    next: AtomicU64,
}

struct Connected {
    /// An IPv6 peer may use any address of its network.
    peer: IpAddr,
    /// Whether a request is not answered yet.
    asks: bool,
    /// When that request, or the wait for one, began.
    since: Instant,
    replaced: Arc<Notify>,
}

impl Open {
    fn table(&self) -> MutexGuard<'_, BTreeMap<u64, Connected>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends a connection, if there is no room for another one of this peer.
    fn make_room(&self, peer: IpAddr) {
        let mut table = self.table();
        let peer = network(peer);
        let of = |peer: IpAddr| table.values().filter(|c| c.peer == peer).count();
        let from = if of(peer) >= OF_ONE_PEER_MAX {
            Some(peer)
        } else if table.len() >= CONNECTIONS_MAX {
            table.values().map(|c| c.peer).max_by_key(|&peer| of(peer))
        } else {
            None
        };
        let theirs = table.iter().filter(|(_, c)| Some(c.peer) == from);
        let oldest = theirs.min_by_key(|(_, c)| (c.asks, c.since)).map(|(number, _)| *number);
        // It no longer counts, though it ends a moment later.
        if let Some(oldest) = oldest.and_then(|number| table.remove(&number)) {
            oldest.replaced.notify_one();
        }
    }

    fn add(self: &Arc<Self>, peer: IpAddr) -> (Entry, Arc<Notify>) {
        let mut table = self.table();
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let replaced = Arc::new(Notify::new());
        let since = Instant::now();
        let connected = Connected { peer: network(peer), asks: false, since, replaced: replaced.clone() };
        table.insert(number, connected);
        (Entry { open: self.clone(), number }, replaced)
    }
}

/// The entry of a connection, removed on drop.
struct Entry {
    open: Arc<Open>,
    number: u64,
}

impl Entry {
    fn asks(&self, asks: bool) {
        if let Some(connected) = self.open.table().get_mut(&self.number) {
            (connected.asks, connected.since) = (asks, Instant::now());
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.open.table().remove(&self.number);
    }
}

struct Answers {
    source: Source,
    loopback: bool,
}

type Answer = Response<Full<Bytes>>;

impl Answers {
    async fn answer(self: Arc<Self>, request: Request<hyper::body::Incoming>) -> Result<Answer, Infallible> {
        if request.method() != Method::GET && request.method() != Method::HEAD {
            let mut answer =
                plain(StatusCode::METHOD_NOT_ALLOWED, "text/plain", "read-only: GET or HEAD\n".into());
            answer.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return Ok(answer);
        }
        let host = request.headers().get(HOST).and_then(|h| h.to_str().ok());
        if self.loopback && !host.is_none_or(is_loopback_host) {
            let text = "this address answers for localhost only\n";
            return Ok(plain(StatusCode::MISDIRECTED_REQUEST, "text/plain", text.into()));
        }
        let accept = request.headers().get(ACCEPT).and_then(|h| h.to_str().ok()).unwrap_or_default();
        let wants_new = accept.contains("application/openmetrics-text");
        let path = request.uri().path();
        if path == "/" {
            return Ok(plain(StatusCode::OK, "text/html; charset=utf-8", PAGE.into()));
        }
        if path != "/metrics" && path != "/status.json" {
            let text = "there are / , /metrics and /status.json\n";
            return Ok(plain(StatusCode::NOT_FOUND, "text/plain", text.into()));
        }
        let json = path == "/status.json";
        // Off the loop, because the source waits for another thread.
        let source = self.source.clone();
        let seen = tokio::task::spawn_blocking(move || source()).await.ok().flatten();
        Ok(match seen {
            None => {
                plain(StatusCode::SERVICE_UNAVAILABLE, "text/plain", "no answer now; it is ending\n".into())
            }
            Some(seen) if json => plain(StatusCode::OK, "application/json", seen.json()),
            Some(seen) if wants_new => plain(StatusCode::OK, OPENMETRICS, openmetrics(&seen)),
            Some(seen) => plain(StatusCode::OK, PROMETHEUS_TEXT, prometheus(&seen)),
        })
    }
}

/// `localhost`, or a loopback address, with or without a port.
fn is_loopback_host(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    };
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

fn plain(status: StatusCode, kind: &'static str, text: String) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from(text)));
    *answer.status_mut() = status;
    let policy = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; \
                  base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert("cross-origin-resource-policy", HeaderValue::from_static("same-origin"));
    if let Ok(policy) = HeaderValue::from_str(policy) {
        headers.insert(CONTENT_SECURITY_POLICY, policy);
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_names_are_loopback_hosts() {
        for host in ["localhost", "LOCALHOST:9633", "127.0.0.1:9633", "[::1]:9633", "127.9.9.9", "[::1]"] {
            assert!(is_loopback_host(host), "{host}");
        }
        for host in
            ["evil.example:9633", "127.0.0.1.evil.example", "192.168.1.1", "", "localhost.evil.example"]
        {
            assert!(!is_loopback_host(host), "{host}");
        }
    }

    #[test]
    fn a_port_alone_is_one_of_the_loopback_address() {
        assert_eq!("9633".parse(), Ok(Address(([127, 0, 0, 1], 9633).into())));
        assert_eq!("0.0.0.0:9633".parse(), Ok(Address(([0, 0, 0, 0], 9633).into())));
        assert!("example:9633x".parse::<Address>().is_err());
    }
}
