//! `seekless serve`.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use rustix::net::SocketType;
use rustix::net::sockopt::{socket_acceptconn, socket_type};
use seekless_base::{Bytes, Exit, Fault, Nanos};
use seekless_frontend::EngineOptions;
use seekless_frontend::metrics::{MetricsOption, MetricsServer};
use seekless_kernel::service::{self, Passed, ServiceManager};
use seekless_levels::coordinate::pfc::PfcParams;
use seekless_options::{BOUNDS, PAPERS, on_off};
use seekless_output::JsonOption;
use seekless_policy::Mode;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::bounds::BoundsOption;
use crate::serve::{Patience, Server, ServerSettings, tls};

/// Serve files over HTTP without ever waiting for a disk, until told to stop.
///
/// At SIGTERM or SIGINT it ends after the answers under way have been sent. At SIGHUP it reads the
/// certificate again and reopens the log.
#[derive(Args, Clone, Debug)]
pub struct ServeArgs {
    /// Folders to serve; if a path exists in several, the first of them serves it
    #[arg(required = true, value_name = "DIR")]
    dirs: Vec<PathBuf>,
    /// Address to listen at; port 0 takes any free one [default: the sockets that systemd passes, else
    /// 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address)]
    listen: Option<SocketAddr>,
    /// Certificate chain (PEM); turns on TLS and HTTP/2 [default: none]
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Access log in combined format; - means standard output [default: none]
    #[arg(long, value_name = "FILE")]
    access_log: Option<PathBuf>,
    /// List the content of folders that have no index.html
    #[arg(long)]
    listing: bool,
    /// Serve names that begin with a dot, too
    #[arg(long)]
    hidden: bool,
    /// Serve a page under /.seekless/ for downloads in any order by a browser (link to /.seekless/#/film.mp4)
    #[arg(long)]
    download_page: bool,
    /// Most connections, 1 to 1000000; beyond it they are refused [default: what the limit of descriptors
    /// allows, at most 65536]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000), help_heading = BOUNDS, hide_short_help = true)]
    connections: Option<u32>,
    /// Most connections of one client (IPv4 address, IPv6 /64), 1 to 1000000 [default: no bound of its own]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000), help_heading = BOUNDS, hide_short_help = true)]
    connections_per_client: Option<u32>,
    /// Most bytes a second on each connection [default: no bound]
    #[arg(long, value_name = "SIZE")]
    rate: Option<Bytes>,
    /// Offer downloads in any order: on or off
    #[arg(long, default_value = "on", value_name = "on|off", value_parser = on_off, action = clap::ArgAction::Set, help_heading = PAPERS, hide_short_help = true)]
    any_order: bool,
    /// Coordinate with the caches that fetch from here: none, or pfc (the PFC paper's rules, on each request)
    #[arg(
        long,
        default_value = "none",
        value_name = "none|pfc",
        hide_possible_values = true,
        help_heading = PAPERS,
        hide_short_help = true,
        hide_long_help = true
    )]
    coordinate: Coordination,
    #[command(flatten)]
    bounds: BoundsOption,
    #[command(flatten)]
    at: MetricsOption,
    #[command(flatten)]
    json: JsonOption,
    /// The options of every engine
    #[command(flatten)]
    engine: EngineOptions,
}

/// Which coordination with the caches above.
#[derive(Clone, Copy, Debug, PartialEq, clap::ValueEnum)]
enum Coordination {
    None,
    // The second name is that of earlier versions.
    #[value(alias = "pfc-literal")]
    Pfc,
    /// Of the previous release; it has no effect.
    #[value(hide = true)]
    Returns,
}

impl Coordination {
    fn params(self) -> Option<PfcParams> {
        (self == Coordination::Pfc).then(|| PfcParams { per_context: true, ..PfcParams::default() })
    }
}

/// A port alone is refused, because it does not say which address to open.
fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        let port = text.trim_start_matches(':').parse().unwrap_or(8080_u16);
        format!("write for example 127.0.0.1:{port}, or 0.0.0.0:{port} for all of this machine's addresses")
    })
}

/// Where to listen by default.
const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);

/// Most descriptors that one connection needs: its socket, the file, and the engine's own one of that file.
const DESCRIPTORS_EACH: u64 = 3;

/// Longest wait of a request for the engine. Clients and proxies give up after a minute without a byte, and
/// the read that follows a pass takes time too.
const WAIT_MAX: Nanos = Nanos::from_secs(40);

impl ServeArgs {
    fn settings(&self) -> Result<ServerSettings, Fault> {
        let bounds = self.bounds.bounds()?;
        if self.rate == Some(Bytes::ZERO) {
            return Err(Fault::usage("--rate 0B sends nothing; leave it out for no bound"));
        }
        let mut engine = self.engine.settings(Mode::Both)?;
        // Every client of a server may wait for the same disk.
        engine.policy.queue_max = 16_384;
        engine.policy.wait_max = WAIT_MAX;
        let loops = bounds.loops.map_or_else(cores, |n| n as usize);
        let descriptors = descriptor_limit();
        let connections = match self.connections {
            Some(n) => n as usize,
            None => (descriptors / DESCRIPTORS_EACH).clamp(16, 65_536) as usize,
        };
        Ok(ServerSettings {
            roots: self.dirs.clone(),
            listen: self.listen.unwrap_or(LISTEN),
            tls: self
                .tls_cert
                .clone()
                .zip(self.tls_key.clone())
                .map(|(certificates, key)| tls::TlsFiles { certificates, key }),
            loops,
            // As many as nginx's thread pool, 32 in all, but at least a few for each loop.
            helpers: (32 / loops).max(4),
            hidden: self.hidden,
            listing: self.listing,
            download_page: self.download_page,
            log: self.access_log.clone(),
            connections,
            connections_of_one: self.connections_per_client.map_or(usize::MAX, |n| n as usize),
            head_bytes: bounds.head_max.0 as u32,
            head_fields: 100,
            rate: self.rate,
            patience: Patience {
                head: bounds.head_timeout,
                idle: bounds.idle_timeout,
                send: bounds.send_timeout,
            },
            grace: bounds.grace,
            digest_max: bounds.digest_max,
            any_order: self.any_order.then(|| seekless_reorder::Config {
                memory: bounds.any_order_memory,
                read: bounds.any_order_read,
                ..Default::default()
            }),
            coordinate: self.coordinate.params(),
            engine,
        })
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Number of descriptors this process may have, after raising the limit as far as allowed.
fn descriptor_limit() -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    getrlimit(Resource::Nofile).current.unwrap_or(1 << 20)
}

/// Has the kernel make room for `descriptors` while the process has one thread. With several threads it waits
/// for all processors each time it doubles the table (`synchronize_rcu`), and an event loop sends nothing
/// meanwhile.
fn make_room(descriptors: u64) {
    let highest = i32::try_from(descriptors.saturating_sub(1)).unwrap_or(i32::MAX);
    // The number is taken only for a moment. If the limit refuses it, the table grows as usual.
    drop(rustix::io::fcntl_dupfd_cloexec(std::io::stderr(), highest));
}

/// The listening sockets that the service manager passes, if any. `asked`: the address of `--listen`.
fn passed(asked: Option<SocketAddr>) -> Result<Vec<TcpListener>, Fault> {
    let all = service::passed().map_err(|error| {
        Fault::failed(format!("cannot take the sockets that systemd passes (LISTEN_FDS): {error}"))
    })?;
    let several = all.len() > 1;
    let mut sockets = Vec::new();
    for Passed { name: unit, socket } in all {
        let listens =
            socket_acceptconn(&socket) == Ok(true) && socket_type(&socket) == Ok(SocketType::STREAM);
        let socket = TcpListener::from(socket);
        // A unix socket has no such address.
        let address = socket.local_addr().ok().filter(|_| listens).ok_or_else(|| {
            Fault::usage(format!(
                "what systemd passes by {unit} is not a listening TCP socket; write ListenStream=ADDRESS:PORT there, \
                 without Accept=yes"
            ))
        })?;
        if let Some(asked) = asked
            && (several || asked != address)
        {
            return Err(Fault::usage(format!(
                "{unit} listens at {address}, and --listen says {asked}; leave that out, or change ListenStream="
            )));
        }
        sockets.push(socket);
    }
    Ok(sockets)
}

/// Runs `seekless serve`.
///
/// # Errors
/// Wrong arguments; a folder, certificate, log or port cannot be used.
pub fn run_serve(args: ServeArgs) -> Result<Exit, Fault> {
    let sockets = passed(args.listen)?;
    let mut settings = args.settings()?;
    if args.coordinate == Coordination::Returns {
        seekless_output::eprintln!(
            "seekless: --coordinate returns has no effect; leave it out; the next release refuses it"
        );
    }
    make_room((settings.connections as u64).saturating_mul(DESCRIPTORS_EACH).min(descriptor_limit()));
    args.engine.open_log(&mut settings.engine)?;
    for disk in settings.engine.survey(Some(&settings.roots)) {
        seekless_output::eprintln!("seekless serve: {disk}");
    }
    let server = Server::start_at(settings, sockets)?;
    // Signals are caught before any process learns that the server is ready, and may end it.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Fault::failed(format!("cannot wait for signals: {e}")))?;
    let signals =
        Signals::caught(&runtime).map_err(|e| Fault::failed(format!("cannot wait for signals: {e}")))?;
    // The parent process waits for this line to learn the port; a closed pipe is not an error. If a program
    // reads standard output for a result, the line goes to standard error.
    let logs_there = args.access_log.as_deref().is_some_and(seekless_output::is_stdout);
    let taken = args.json.is_stdout() || logs_there;
    for url in server.urls() {
        let line = format!("listening on {url}\n");
        let _ = match taken {
            true => std::io::stderr().write_all(line.as_bytes()),
            false => std::io::stdout().write_all(line.as_bytes()),
        };
    }
    let metrics =
        args.at.metrics.map(|address| MetricsServer::start(address, server.source())).transpose()?;
    if let Some(metrics) = &metrics {
        seekless_output::eprintln!("seekless serve: metrics at http://{}/metrics", metrics.address());
    }
    let mut manager = ServiceManager::ready();
    runtime.block_on(signals.until_the_end(&server, &mut manager));
    manager.stopping();
    drop(metrics);
    let report = server.stop();
    if let Some(path) = args.json.path() {
        // The signals that would end a wait for a FIFO's reader are caught, so the wait is avoided.
        if !seekless_output::offer(path, seekless_output::pretty(&report)?)? {
            tracing::warn!("no process reads {}; the report is lost", path.display());
        }
    }
    Ok(Exit::Ok)
}

/// Nothing is due.
const HOUR: Duration = Duration::from_secs(3600);

struct Signals {
    hang_up: Signal,
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// From here on none of these signals ends the process by itself.
    fn caught(runtime: &tokio::runtime::Runtime) -> std::io::Result<Signals> {
        let _inside = runtime.enter();
        Ok(Signals {
            hang_up: signal(SignalKind::hangup())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Returns when it is time to end.
    async fn until_the_end(mut self, server: &Server, manager: &mut ServiceManager) {
        loop {
            tokio::select! {
                _ = self.hang_up.recv() => match server.reload() {
                    Ok(()) => tracing::info!("certificates read again, log reopened"),
                    Err(fault) => tracing::error!(%fault, "the old certificate stays in use"),
                },
                _ = tokio::time::sleep(manager.at_most(HOUR)) => manager.alive(|| server.is_whole()),
                _ = self.terminate.recv() => return,
                _ = self.interrupt.recv() => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_makes_room_for_descriptors() {
        let slots = || -> u64 {
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let line = status.lines().find_map(|l| l.strip_prefix("FDSize:")).unwrap();
            line.trim().parse().unwrap()
        };
        let wanted = descriptor_limit().min(8 * slots());
        make_room(wanted);
        assert!(slots() >= wanted, "{} of {wanted}", slots());
        make_room(u64::MAX);
        assert!(std::fs::File::open("/dev/null").is_ok(), "a number beyond the limit does no harm");
    }
}
