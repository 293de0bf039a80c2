//! The server: an event loop per core, a queue per disk.
//!
//! ```text
//!  listener --- loop (core 0): accept, TLS, HTTP, sendfile ---+
//!  listener --- loop (core 1)            ...                  +--- engine: reader of each disk
//!   (one port, SO_REUSEPORT)                                  +--- helpers: cold lookups, passed reads
//!                                                             +--- any order: Circus of each disk
//!                                                             +--- digests: one thread, after all of these
//! ```
//!
//! Every loop has a listening socket of its own on the same port; the kernel spreads connections over them. A
//! connection stays with its loop, so nothing of it is shared, locked or handed over. In return, connections
//! are spread by hash and not by load, which evens out with hundreds of clients.
//!
//! Of the sockets that the service manager passes, each is shared by all loops: each connection wakes all
//! loops, and the first takes it. Connections in their queue when this server ends are served by the next
//! one.

mod answer;
mod any_order;
mod body;
mod boundary;
mod connections;
mod coordinate;
mod counters;
mod digests;
mod event_loop;
mod fetch;
mod listing;
mod log;
mod page;
mod ready;
mod send_progress;
pub mod tls;
mod tree;
mod waits;
mod wire;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketFlags, SocketType};
use seekless_base::{Bytes, Exit, Fault};
use seekless_engine::{Engine, FilesUsed, lock};
use seekless_frontend::metrics::{Observation, defs};
use seekless_kernel::memory::page_cache_limit;
use seekless_levels::coordinate::pfc::PfcParams;
use serde_json::{Value, json};
use tokio::sync::watch;

use self::any_order::AnyOrder;
use self::connections::Connections;
use self::coordinate::PfcModel;
use self::counters::Counters;
use self::digests::Digests;
use self::log::Log;
use self::tree::{Opened, Tree};
use self::waits::Waits;
pub use self::wire::Patience;

/// The settings of a server.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    /// Folders whose files are served; the first that has a name wins.
    pub roots: Vec<PathBuf>,
    /// Where to listen; port 0: any.
    pub listen: SocketAddr,
    /// Certificate and key; `None`: plain HTTP.
    pub tls: Option<tls::TlsFiles>,
    /// Event loops.
    pub loops: usize,
    /// Helper threads of each loop, for calls outside of the engine that may wait for a disk.
    pub helpers: usize,
    /// Serve names that begin with a dot.
    pub hidden: bool,
    /// Show folders without an index.html.
    pub listing: bool,
    /// Serve the page that downloads in any order, under `/.seekless/`.
    pub download_page: bool,
    /// Access log; `-`: standard output.
    pub log: Option<PathBuf>,
    /// Connections at once.
    pub connections: usize,
    /// Of one client.
    pub connections_of_one: usize,
    /// Longest head of a request, and most header fields.
    pub head_bytes: u32,
    /// See `head_bytes`.
    pub head_fields: usize,
    /// Bytes a second for one connection; `None`: as fast as it takes them.
    pub rate: Option<Bytes>,
    /// How long clients may take.
    pub patience: Patience,
    /// How long answers under way may go on after the server is told to stop.
    pub grace: Duration,
    /// Largest file whose digest is computed.
    pub digest_max: Bytes,
    /// Downloads in any order; `None`: not offered.
    pub any_order: Option<seekless_reorder::Config>,
    /// Coordination with upper caches; `None`: they are clients like others.
    pub coordinate: Option<PfcParams>,
    /// The engine.
    pub engine: seekless_engine::Settings,
}

/// What all loops share.
pub(crate) struct Shared {
    pub(crate) settings: ServerSettings,
    pub(crate) tree: Tree,
    pub(crate) engine: Engine,
    pub(crate) log: Option<Log>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) connections: Arc<Connections>,
    pub(crate) digests: Arc<Digests>,
    /// Reads of clients that wait for a disk.
    pub(crate) waits: Arc<Waits>,
    pub(crate) any_order: Option<AnyOrder>,
    pub(crate) coordinate: Option<PfcModel>,
    /// Permits for reads past the page cache.
    pub(crate) past: tokio::sync::Semaphore,
    tls: RwLock<Option<Arc<rustls::ServerConfig>>>,
    /// Connections that went to sleep since the heap was last trimmed.
    pub(crate) slept: AtomicU64,
    /// Files that were requested from the engine and that it still keeps open: it needs reports of hits only
    /// for them.
    followed: Mutex<FilesUsed>,
}

impl Shared {
    /// This file was requested from the engine.
    pub(crate) fn follow(&self, file: &Opened) {
        lock(&self.followed).asked(file.id, Instant::now());
    }

    /// Bytes of a file were sent, or copied to be sent: the stream moved on, and its next piece may be due.
    /// It must not be called earlier, because bytes that were read may be given back.
    pub(crate) fn moved_on(&self, file: &Opened, offset: u64, len: u64) {
        if len == 0 || !self.engine.settings().hears_hits() {
            return;
        }
        if lock(&self.followed).read(file.id, Instant::now()) {
            self.engine.read(file.id, offset, len);
        }
    }

    /// An answer is broken off because its file cannot be sent on. The client sees that it is incomplete, and
    /// the log says why.
    pub(crate) fn broken_off(&self, file: &Opened, error: &io::Error) {
        Counters::one(&self.counters.answers_broken);
        tracing::warn!("{file}: an answer was broken off: {error}");
    }

    fn certificates(&self) -> Option<Arc<rustls::ServerConfig>> {
        self.tls.read().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }
}

/// A running server.
pub struct Server {
    shared: Arc<Shared>,
    addresses: Vec<SocketAddr>,
    stop: watch::Sender<bool>,
    loops: Vec<JoinHandle<()>>,
}

impl Server {
    /// Opens the folders, the log and the port, and starts the loops.
    ///
    /// # Errors
    /// One of these cannot be used, or a certificate is invalid.
    pub fn start(settings: ServerSettings) -> Result<Server, Fault> {
        Server::start_at(settings, Vec::new())
    }

    /// The same at sockets that listen already; without any, at a port of its own.
    ///
    /// # Errors
    /// Those of [`Server::start`].
    pub fn start_at(settings: ServerSettings, sockets: Vec<TcpListener>) -> Result<Server, Fault> {
        if !tree::supported() {
            let message = "this kernel has no openat2 (Linux 5.6), or a sandbox hides it: links could lead out of the tree";
            return Err(Fault::missing(message));
        }
        let tree = Tree::open(&settings.roots)?;
        let tls = settings.tls.as_ref().map(tls::load).transpose()?;
        let counters = Arc::new(Counters::default());
        let log = settings.log.clone().map(|path| Log::open(path, counters.clone())).transpose()?;
        let loops = settings.loops.max(1);
        let (sockets, addresses) =
            if sockets.is_empty() { listen(settings.listen, loops)? } else { shared_out(sockets, loops)? };
        let (stop, stopped) = watch::channel(false);
        // If the limit cannot be read, that of a small machine is assumed.
        let memory = page_cache_limit().unwrap_or(512 << 20);
        let prefetch = settings.engine.policy.prefetch.0;
        let coordinate = settings.coordinate.map(|params| PfcModel::new(params, memory, prefetch));
        let engine = Engine::start(settings.engine.clone());
        let followed = Mutex::new(FilesUsed::new(engine.settings().open_after_use()));
        let shared = Arc::new(Shared {
            tree,
            engine,
            log,
            counters,
            connections: Connections::new(settings.connections, settings.connections_of_one),
            digests: Arc::default(),
            waits: Arc::default(),
            any_order: settings.any_order.clone().map(AnyOrder::new),
            coordinate,
            past: tokio::sync::Semaphore::new(2),
            tls: RwLock::new(tls),
            slept: AtomicU64::new(0),
            followed,
            settings,
        });
        let mut loops = Vec::new();
        for (number, sockets) in sockets.into_iter().enumerate() {
            let (shared, stopped) = (shared.clone(), stopped.clone());
            let body = move || event_loop::run(sockets, &shared, stopped);
            let started = std::thread::Builder::new().name(format!("loop{number}")).spawn(body);
            loops.push(
                started
                    .map_err(|e| Fault::failed(format!("cannot start a thread for an event loop: {e}")))?,
            );
        }
        Ok(Server { shared, addresses, stop, loops })
    }

    /// Where it listens; the first, if there are several.
    pub fn address(&self) -> SocketAddr {
        self.addresses[0]
    }

    /// `http://ADDRESS/` or `https://ADDRESS/`; the first, if there are several.
    pub fn url(&self) -> String {
        self.urls().next().unwrap_or_default()
    }

    /// The same for each address.
    pub fn urls(&self) -> impl Iterator<Item = String> {
        let scheme = if self.shared.settings.tls.is_some() { "https" } else { "http" };
        self.addresses.iter().map(move |address| format!("{scheme}://{address}/"))
    }

    fn places(&self) -> String {
        self.addresses.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(", ")
    }

    /// Opens the log again and reads the certificates again. Connections go on. An invalid certificate is
    /// reported, and the old one kept.
    ///
    /// # Errors
    /// What is wrong with the certificate.
    pub fn reload(&self) -> Result<(), Fault> {
        if let Some(log) = &self.shared.log {
            log.reopen();
        }
        if let Some(files) = &self.shared.settings.tls {
            let new = tls::load(files)?;
            *self.shared.tls.write().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(new);
        }
        Ok(())
    }

    /// Whether every event loop runs.
    pub fn is_whole(&self) -> bool {
        self.loops.iter().all(|event_loop| !event_loop.is_finished())
    }

    /// The source of the metrics.
    pub fn source(&self) -> seekless_frontend::metrics::Source {
        let (shared, started) = (self.shared.clone(), Instant::now());
        Arc::new(move || Some(observation(&shared, started)))
    }

    /// Its counters.
    pub fn report(&self) -> Value {
        json!({
            "listen": self.places(),
            "connections_now": self.shared.connections.now(),
            "counters": self.shared.counters.json(),
            "disks": self.shared.engine.statistics(),
        })
    }

    /// Accepts no more connections, lets answers end (for the grace period) and returns the final report.
    pub fn stop(mut self) -> Value {
        let _ = self.stop.send(true);
        for event_loop in self.loops.drain(..) {
            let _ = event_loop.join();
        }
        self.report()
    }
}

fn observation(shared: &Shared, started: Instant) -> Observation {
    let mut seen = Observation {
        door: "serve",
        version: env!("CARGO_PKG_VERSION").to_string(),
        uptime: started.elapsed(),
        disks: shared.engine.statistics(),
        ..Default::default()
    };
    let c = &shared.counters;
    let now = |counter: &AtomicU64| counter.load(std::sync::atomic::Ordering::Relaxed);
    seen.count(&defs::DOOR_CALLS, &["serve", "in_memory"], now(&c.hits));
    seen.count(&defs::DOOR_CALLS, &["serve", "queued"], now(&c.engine_requests));
    seen.count(&defs::DOOR_CALLS, &["serve", "helper"], now(&c.helper_reads));
    seen.count(&defs::CONNECTIONS, &[], shared.connections.now() as u64);
    seen.count(&defs::CONNECTIONS_ACCEPTED, &[], now(&c.connections));
    seen.count(&defs::CONNECTIONS_REFUSED, &["bound"], now(&c.connections_refused));
    seen.count(&defs::HTTP_REQUESTS, &[], now(&c.requests));
    seen.count(&defs::HTTP_BODY, &[], now(&c.body_bytes));
    seen.count(&defs::HTTP_BROKEN, &[], now(&c.answers_broken));
    seen.count(&defs::HTTP_SLOW, &[], now(&c.loop_calls_slow));
    seen
}

/// The sockets of each loop, and where they listen.
type Sockets = (Vec<Vec<TcpListener>>, Vec<SocketAddr>);

/// Sockets listening on one address, one for each loop.
fn listen(address: SocketAddr, count: usize) -> Result<Sockets, Fault> {
    let fault = |e: io::Error| {
        let exit = match e.kind() {
            io::ErrorKind::AddrInUse => Exit::Busy,
            io::ErrorKind::PermissionDenied => Exit::Permission,
            _ => Exit::Failed,
        };
        Fault::new(exit, format!("cannot listen on {address}: {e}; give another --listen"))
    };
    // With SO_REUSEPORT the kernel does not report that another server of the same user has the port.
    let probe = TcpListener::bind(address).map_err(fault)?;
    let address = probe.local_addr().map_err(fault)?;
    drop(probe);
    let one = || -> io::Result<Vec<TcpListener>> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
        rustix::net::sockopt::set_socket_reuseaddr(&socket, true)?;
        rustix::net::sockopt::set_socket_reuseport(&socket, true)?;
        rustix::net::bind(&socket, &address)?;
        rustix::net::listen(&socket, 4096)?;
        Ok(vec![socket.into()])
    };
    let sockets = (0..count).map(|_| one()).collect::<io::Result<Vec<_>>>().map_err(fault)?;
    Ok((sockets, vec![address]))
}

/// The same sockets for every loop.
fn shared_out(sockets: Vec<TcpListener>, count: usize) -> Result<Sockets, Fault> {
    let all = || sockets.iter().map(TcpListener::try_clone).collect::<io::Result<Vec<_>>>();
    let each = || -> io::Result<Sockets> {
        sockets.iter().try_for_each(|socket| socket.set_nonblocking(true))?;
        let addresses = sockets.iter().map(TcpListener::local_addr).collect::<io::Result<_>>()?;
        Ok(((0..count).map(|_| all()).collect::<io::Result<_>>()?, addresses))
    };
    each().map_err(|e| Fault::failed(format!("cannot use the sockets that systemd passes: {e}")))
}
