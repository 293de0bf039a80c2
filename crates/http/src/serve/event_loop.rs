//! One event loop: accepts connections and drives them.

use std::cell::Cell;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use hyper::Response;
use hyper::server::conn::http1::Parts;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use seekless_kernel::memory::trim_heap;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::LocalSet;
use tokio::time::MissedTickBehavior;
use tokio_rustls::TlsAcceptor;

use super::Shared;
use super::answer::{Connection, answer};
use super::body::FileBody;
use super::connections::Admitted;
use super::counters::Counters;
use super::send_progress::SendProgress;
use super::wire::{Outbox, Wire};

/// Most requests of one HTTP/2 connection that are answered at once.
const STREAMS_MAX: u32 = 100;

/// Bytes buffered for one HTTP/2 stream, and for one HTTP/1.1 connection.
const SEND_BUFFER: usize = 256 << 10;

/// A connection is checked after this time, then less and less often; it sleeps if nothing was received since
/// the last check. Waking up costs two microseconds, so a short rest is enough.
const SLEEPS_AFTER: Duration = Duration::from_millis(250);
const LOOKS_EVERY: Duration = Duration::from_secs(2);

/// How often the heap is trimmed, if at least [`TRIM_FROM`] connections became idle meanwhile: the memory
/// that they freed is scattered, and the allocator keeps it. For fewer, a walk over the heap costs more than
/// it frees.
const TRIM_EVERY: Duration = Duration::from_secs(5);
const TRIM_FROM: u64 = 256;

/// Most streams that a client may have reset before the server examined them, and most that the server may
/// have reset because of its errors, before its connection is closed ("rapid reset", CVE-2023-44487).
/// Browsers that seek in a film reset a few at once. At half of the first, a player that seeks often loses
/// its connection; at ten times, a connection begins ten times as many requests for nothing. These are the
/// library's own values, set here so that they do not change with it.
const RESETS_PENDING_MAX: usize = 20;
const RESETS_MAX: usize = 1024;

/// Divisor of `send-timeout`: an HTTP/2 client that takes nothing is noticed at most this part of it late.
const LOOKS_IN_PATIENCE: u32 = 4;
const LOOK_EVERY_MIN: Duration = Duration::from_millis(50);

/// How often an HTTP/2 client that sends nothing is asked whether it is still there, and how long it may take
/// to answer.
const PING_EVERY: Duration = Duration::from_secs(60);
const PONG_WITHIN: Duration = Duration::from_secs(20);

/// How long a connection that was just accepted may take for its first request when the server is told to
/// stop. The request follows the handshake at once; half of this is still enough over a satellite, and double
/// keeps a server with an idle connection longer.
const FIRST_WITHIN: Duration = Duration::from_secs(1);

/// Runs HTTP/2's tasks on this thread.
#[derive(Clone, Copy, Debug)]
struct Here;

impl<F: Future + 'static> hyper::rt::Executor<F> for Here {
    fn execute(&self, future: F) {
        tokio::task::spawn_local(future);
    }
}

/// Runs a loop until it is told to stop and its connections have ended, or the grace period is over.
pub(crate) fn run(sockets: Vec<std::net::TcpListener>, shared: &Arc<Shared>, stopped: watch::Receiver<bool>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(shared.settings.helpers.max(1))
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return tracing::error!(%error, "an event loop cannot start"),
    };
    let local = LocalSet::new();
    let accepting = local.run_until(async {
        let accept = |socket| tokio::task::spawn_local(accept(socket, shared.clone(), stopped.clone()));
        for accepting in sockets.into_iter().map(accept).collect::<Vec<_>>() {
            // A loop returns an error only if it panics; then the others go on.
            let _ = accepting.await;
        }
    });
    runtime.block_on(accepting);
    let grace = shared.settings.grace;
    let cut = runtime.block_on(async move {
        let mut local = local;
        let over = tokio::time::timeout(grace, &mut local).await.is_err();
        let open = shared.connections.now();
        drop(local);
        if over { open.saturating_sub(shared.connections.now()) } else { 0 }
    });
    if cut > 0 {
        Counters::add(&shared.counters.connections_cut, cut as u64);
        tracing::warn!(
            "{cut} connections were cut off: their answers did not end within the grace period of {grace:?}"
        );
    }
    // A helper that waits for a hanging disk is not waited for.
    runtime.shutdown_background();
}

async fn accept(socket: std::net::TcpListener, shared: Arc<Shared>, mut stopped: watch::Receiver<bool>) {
    let listener = match TcpListener::from_std(socket) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "a listening socket cannot be used"),
    };
    let mut tick = tokio::time::interval(TRIM_EVERY);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = tick.tick() => {
                if shared.slept.load(Ordering::Relaxed) >= TRIM_FROM {
                    shared.slept.store(0, Ordering::Relaxed);
                    tokio::task::spawn_blocking(trim_heap);
                }
                continue;
            }
            _ = stopped.wait_for(|stop| *stop) => return,
        };
        match accepted {
            Ok((tcp, peer)) => {
                let Some(admitted) = shared.connections.admit(peer.ip()) else {
                    Counters::one(&shared.counters.connections_refused);
                    continue;
                };
                Counters::one(&shared.counters.connections);
                tokio::task::spawn_local(connection(tcp, peer, shared.clone(), stopped.clone(), admitted));
            }
            // Most likely no descriptor is left, and other connections must end first.
            Err(error) => {
                tracing::debug!(%error, "accepting failed");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

/// One connection from beginning to end.
async fn connection(
    tcp: TcpStream,
    peer: SocketAddr,
    shared: Arc<Shared>,
    stopped: watch::Receiver<bool>,
    admitted: Admitted,
) {
    let _ = tcp.set_nodelay(true);
    let outbox = Rc::new(Outbox::default());
    let result = match shared.certificates() {
        None => {
            let wire = Wire::plain(tcp, outbox.clone(), shared.clone());
            Box::pin(on_http1(wire, peer, &shared, (outbox, true), stopped)).await
        }
        // Boxed like all the rest, so that an idle connection does not take its memory.
        Some(config) => Box::pin(over_tls(tcp, peer, &shared, config, outbox, stopped)).await,
    };
    if let Err(error) = result {
        tracing::debug!(%peer, %error, "a connection ended");
    }
    drop(admitted);
}

async fn over_tls(
    tcp: TcpStream,
    peer: SocketAddr,
    shared: &Arc<Shared>,
    config: Arc<rustls::ServerConfig>,
    outbox: Rc<Outbox>,
    stopped: watch::Receiver<bool>,
) -> hyper::Result<()> {
    let handshake = Box::pin(TlsAcceptor::from(config).accept(tcp));
    let Ok(Ok(tls)) = tokio::time::timeout(shared.settings.patience.head, handshake).await else {
        Counters::one(&shared.counters.handshakes_failed);
        return Ok(());
    };
    let http2 = tls.get_ref().1.alpn_protocol() == Some(b"h2");
    let wire = Wire::tls(tls, outbox.clone(), shared.clone());
    match http2 {
        true => Box::pin(on_http2(wire, peer, shared, stopped)).await,
        false => Box::pin(on_http1(wire, peer, shared, (outbox, false), stopped)).await,
    }
}

/// Serves a connection. If it is quiet for a while it sleeps: hyper's state and buffers, some 16 KiB, are
/// freed, and made again when the client sends something. Ten thousand idle viewers then cost only their
/// sockets.
async fn on_http1(
    mut wire: Wire,
    peer: SocketAddr,
    shared: &Arc<Shared>,
    outbox: (Rc<Outbox>, bool),
    mut stopped: watch::Receiver<bool>,
) -> hyper::Result<()> {
    let quiet = outbox.0.clone();
    let asked = Rc::new(Cell::new(false));
    let own = Rc::new(Connection { shared: shared.clone(), peer, outbox: Some(outbox), send_progress: None });
    loop {
        let own = own.clone();
        let first = asked.clone();
        let service = service_fn(move |request| {
            first.set(true);
            let own = own.clone();
            let answer: Answering = Box::pin(async move { Ok(answer(own, request).await) });
            answer
        });
        let mut connection = Box::new(
            http1::Builder::new()
                .max_buf_size(SEND_BUFFER)
                .max_header_size(shared.settings.head_bytes as usize)
                .max_headers(shared.settings.head_fields)
                .serve_connection(TokioIo::new(wire), service),
        );
        let mut look_after = SLEEPS_AFTER;
        loop {
            tokio::select! {
                result = &mut *connection => return result,
                _ = stopped.wait_for(|stop| *stop) => {
                    // hyper would close a connection without a request, though the request may be on its way.
                    let first = poll_fn(|cx| match Pin::new(&mut *connection).poll(cx) {
                        Poll::Ready(result) => Poll::Ready(Some(result)),
                        Poll::Pending if asked.get() => Poll::Ready(None),
                        Poll::Pending => Poll::Pending,
                    });
                    if let Ok(Some(result)) = tokio::time::timeout(FIRST_WITHIN, first).await {
                        return result;
                    }
                    Pin::new(&mut *connection).graceful_shutdown();
                    return connection.await;
                }
                () = tokio::time::sleep(look_after) => {
                    if quiet.is_quiet() {
                        break;
                    }
                    look_after = (look_after * 2).min(LOOKS_EVERY);
                }
            }
        }
        shared.slept.fetch_add(1, Ordering::Relaxed);
        let Parts { io, read_buf, .. } = connection.into_parts();
        wire = io.into_inner();
        let unread = !read_buf.is_empty();
        // An empty buffer still holds its memory.
        drop(read_buf);
        if unread {
            // This cannot happen on a quiet connection; if it does, its client repeats the request.
            return Ok(());
        }
        let woken = tokio::select! {
            woken = wire.wakes() => woken,
            _ = stopped.wait_for(|stop| *stop) => false,
        };
        if !woken {
            return Ok(());
        }
    }
}

/// The future of an answer.
type Answering = Pin<Box<dyn Future<Output = Result<Response<FileBody>, Infallible>>>>;

async fn on_http2(
    wire: Wire,
    peer: SocketAddr,
    shared: &Arc<Shared>,
    mut stopped: watch::Receiver<bool>,
) -> hyper::Result<()> {
    let send_progress = Rc::new(SendProgress::default());
    let own = Rc::new(Connection {
        shared: shared.clone(),
        peer,
        outbox: None,
        send_progress: Some(send_progress.clone()),
    });
    let service = service_fn(move |request| {
        let own = own.clone();
        async move { Ok::<_, Infallible>(answer(own, request).await) }
    });
    let mut connection = pin!(
        http2::Builder::new(Here)
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS_MAX)
            .max_send_buf_size(SEND_BUFFER)
            .max_pending_accept_reset_streams(RESETS_PENDING_MAX)
            .max_local_error_reset_streams(Some(RESETS_MAX))
            .max_header_list_size(shared.settings.head_bytes)
            .keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PONG_WITHIN)
            .serve_connection(TokioIo::new(wire.multiplexed(send_progress.clone())), service)
    );
    let send = shared.settings.patience.send;
    let mut look = tokio::time::interval((send / LOOKS_IN_PATIENCE).max(LOOK_EVERY_MIN));
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut stopping = false;
    loop {
        tokio::select! {
            result = connection.as_mut() => return result,
            _ = stopped.wait_for(|stop| *stop), if !stopping => {
                stopping = true;
                connection.as_mut().graceful_shutdown();
            }
            _ = look.tick() => {
                if send_progress.stalled(send) {
                    tracing::debug!(%peer, "it takes nothing of its answers");
                    return Ok(());
                }
            }
        }
    }
}
