//! One event loop: accepts, and drives its connections.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::LocalSet;
use tokio_rustls::TlsAcceptor;

use super::Shared;
use super::answer::{Connection, answer};
use super::connections::Admitted;
use super::counters::Counters;
use super::wire::{Outbox, Wire};

/// Requests of one HTTP/2 connection answered at once.
const STREAMS_MAX: u32 = 100;

/// Bytes buffered for one HTTP/2 stream, and for one HTTP/1.1 connection.
const SEND_BUFFER: usize = 256 << 10;

/// How often we ask an HTTP/2 client that says nothing whether it is still there, and how long it may take to answer.
const PING_EVERY: Duration = Duration::from_secs(60);
const PONG_WITHIN: Duration = Duration::from_secs(20);

/// Runs tasks of HTTP/2 on this thread.
#[derive(Clone, Copy, Debug)]
struct Here;

impl<F: Future + 'static> hyper::rt::Executor<F> for Here {
    fn execute(&self, future: F) {
        tokio::task::spawn_local(future);
    }
}

/// Runs a loop until it is told to stop and its connections have ended, or the grace period is over.
pub(crate) fn run(socket: std::net::TcpListener, shared: &Arc<Shared>, stopped: watch::Receiver<bool>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(shared.settings.helpers.max(1))
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return tracing::error!(%error, "an event loop cannot start"),
    };
    let local = LocalSet::new();
    let accepting = local.run_until(accept(socket, shared.clone(), stopped));
    runtime.block_on(accepting);
    let grace = shared.settings.grace;
    runtime.block_on(async move {
        let _ = tokio::time::timeout(grace, local).await;
    });
    // A helper that waits for a hanging disk is not waited for.
    runtime.shutdown_background();
}

async fn accept(socket: std::net::TcpListener, shared: Arc<Shared>, mut stopped: watch::Receiver<bool>) {
    let listener = match TcpListener::from_std(socket) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "a listening socket cannot be used"),
    };
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
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
            // No descriptors left, most likely: others must end first.
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
            on_http1(wire, peer, &shared, (outbox, true), stopped).await
        }
        Some(config) => {
            let handshake = TlsAcceptor::from(config).accept(tcp);
            let tls = match tokio::time::timeout(shared.settings.patience.head, handshake).await {
                Ok(Ok(tls)) => tls,
                _ => return Counters::one(&shared.counters.handshakes_failed),
            };
            let http2 = tls.get_ref().1.alpn_protocol() == Some(b"h2");
            let wire = Wire::tls(tls, outbox.clone(), shared.clone());
            match http2 {
                true => on_http2(wire.multiplexed(), peer, &shared, stopped).await,
                false => on_http1(wire, peer, &shared, (outbox, false), stopped).await,
            }
        }
    };
    if let Err(error) = result {
        tracing::debug!(%peer, %error, "a connection ended");
    }
    drop(admitted);
}

async fn on_http1(
    wire: Wire,
    peer: SocketAddr,
    shared: &Arc<Shared>,
    outbox: (Rc<Outbox>, bool),
    mut stopped: watch::Receiver<bool>,
) -> hyper::Result<()> {
    let own = Rc::new(Connection { shared: shared.clone(), peer, outbox: Some(outbox) });
    let service = service_fn(move |request| {
        let own = own.clone();
        async move { Ok::<_, Infallible>(answer(own, request).await) }
    });
    let mut connection = pin!(
        http1::Builder::new()
            .max_buf_size(SEND_BUFFER)
            .max_header_size(shared.settings.head_bytes as usize)
            .max_headers(shared.settings.head_fields)
            .serve_connection(TokioIo::new(wire), service)
    );
    tokio::select! {
        result = connection.as_mut() => return result,
        _ = stopped.wait_for(|stop| *stop) => connection.as_mut().graceful_shutdown(),
    }
    connection.await
}

async fn on_http2(
    wire: Wire,
    peer: SocketAddr,
    shared: &Arc<Shared>,
    mut stopped: watch::Receiver<bool>,
) -> hyper::Result<()> {
    let own = Rc::new(Connection { shared: shared.clone(), peer, outbox: None });
    let service = service_fn(move |request| {
        let own = own.clone();
        async move { Ok::<_, Infallible>(answer(own, request).await) }
    });
    let mut connection = pin!(
        http2::Builder::new(Here)
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS_MAX)
            .max_send_buf_size(SEND_BUFFER)
            .max_header_list_size(shared.settings.head_bytes)
            .keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PONG_WITHIN)
            .serve_connection(TokioIo::new(wire), service)
    );
    tokio::select! {
        result = connection.as_mut() => return result,
        _ = stopped.wait_for(|stop| *stop) => connection.as_mut().graceful_shutdown(),
    }
    connection.await
}
