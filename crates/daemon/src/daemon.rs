//! A daemon from start to stop.

use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{Sender, bounded};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use seekless_base::Fault;
use seekless_engine::Engine;
use seekless_frontend::status::StatusReport;
use seekless_policy::StreamConfig;
use seekless_policy::filesets::{RANGES_MAX, SETS_MAX};

use crate::acceptor::Acceptor;
use crate::activation::Activated;
use crate::limits::Limits;
use crate::listener::Listener;
use crate::passing::Passing;
use crate::rings::Rings;
use crate::settings::DaemonSettings;
use crate::statistics::{Ask, ReportDoor, Shared, Statistics};
use crate::take_over::{HandOver, Inheritance};

/// Descriptors held by a waiting request: its connection, the file as passed, the file opened again.
const DESCRIPTORS_PER_CONNECTION: u64 = 3;

/// Descriptors for everything else.
const DESCRIPTORS_RESERVED: u64 = 64;

/// A running daemon. Dropping it stops it.
pub struct Daemon {
    /// What another door shares with this one.
    pub(crate) shared: Shared,
    stop: UnixStream,
    statistics: Sender<Ask>,
    /// What this daemon hands over if another takes its place.
    pub(crate) hand_over: HandOver,
    thread: Option<JoinHandle<()>>,
}

impl Daemon {
    /// Starts listening and serving, on threads of its own.
    ///
    /// # Errors
    /// The socket cannot be made, or a thread cannot be started.
    pub fn start(settings: DaemonSettings) -> Result<Daemon, Fault> {
        let listener = Listener::bind(&settings.socket, settings.socket_mode)?;
        Daemon::start_at(settings, listener, ring_number())
    }

    /// Starts at a socket that the service manager has made.
    ///
    /// # Errors
    /// The socket cannot be used, or a thread cannot be started.
    pub(crate) fn start_activated(settings: DaemonSettings, at: Activated) -> Result<Daemon, Fault> {
        let listener = Listener::activated(at)?;
        Daemon::start_at(settings, listener, ring_number())
    }

    /// Starts with the sockets that another daemon has handed over.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub(crate) fn start_inheriting(
        settings: DaemonSettings,
        from: &mut Inheritance<'_>,
    ) -> Result<Daemon, Fault> {
        Daemon::start_at(settings, from.listener.take().unwrap_or_else(Listener::none), from.ring)
    }

    /// Starts without a socket: no shim can connect.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub(crate) fn start_unreachable(settings: DaemonSettings) -> Result<Daemon, Fault> {
        Daemon::start_at(settings, Listener::none(), ring_number())
    }

    fn start_at(mut settings: DaemonSettings, listener: Listener, ring: u8) -> Result<Daemon, Fault> {
        settings.engine = settings.engine.normalised();
        let descriptors = descriptors();
        settings.connections_max = settings.connections_max.clamp(1, connections_possible(descriptors));
        if let Some(ahead) = &mut settings.engine.policy.ahead {
            ahead.files_max = descriptors_kept(descriptors) as usize;
        }
        let shown_for = settings.engine.open_after_use();
        let rings = settings.engine.hears_hits().then(|| Rings::new(&settings.socket, ring, shown_for));
        let settings = Arc::new(settings);
        let engine = Engine::start(settings.engine.clone());
        let shared = Shared {
            settings,
            started: Instant::now(),
            counters: Arc::default(),
            engine,
            door: Arc::new(OnceLock::new()),
            passing: Arc::new(Passing::new(Instant::now())),
            callers: Arc::default(),
            limits: Limits::start().map_err(no_threads)?,
            deliveries: Arc::default(),
            file_sets: Arc::default(),
        };
        let statistics = Statistics::start(shared.clone()).map_err(no_threads)?;
        let asker = statistics.asker();
        let (stop, stopped) = UnixStream::pair().map_err(no_threads)?;
        stop.set_nonblocking(true).map_err(no_threads)?;
        let hand_over = HandOver::default();
        let acceptor = Acceptor::new(listener, stopped, statistics, shared.clone(), rings, hand_over.clone())
            .map_err(no_threads)?;
        let thread = thread::Builder::new()
            .name("acceptor".into())
            .spawn(move || acceptor.run())
            .map_err(no_threads)?;
        Ok(Daemon { shared, stop, statistics: asker, hand_over, thread: Some(thread) })
    }

    /// A socket that stops the daemon when anything is written to it: for signal handlers.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn stopper(&self) -> io::Result<UnixStream> {
        self.stop.try_clone()
    }

    /// Adds another door to the statistics; only the first call counts.
    pub(crate) fn show(&self, report: ReportDoor) {
        let _ = self.shared.door.set(report);
    }

    /// The current state.
    pub fn status(&self) -> Option<StatusReport> {
        state_of(&self.statistics)
    }

    /// A function that returns the current state, for another thread. The daemon's statistics live as long as
    /// it does.
    pub(crate) fn asker(&self) -> impl Fn() -> Option<StatusReport> + Send + Sync + 'static {
        let statistics = self.statistics.clone();
        move || state_of(&statistics)
    }

    /// Waits until the daemon has ended, or for this long. Returns whether it has ended.
    pub fn wait(&self, at_most: Duration) -> bool {
        self.wait_unless(at_most, || false)
    }

    /// Waits until the daemon has ended, for this long, or until `come` returns `true`.
    pub(crate) fn wait_unless(&self, at_most: Duration, come: impl Fn() -> bool) -> bool {
        let until = Instant::now() + at_most;
        while self.thread.as_ref().is_some_and(|t| !t.is_finished()) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || come() {
                return false;
            }
            thread::sleep(left.min(Duration::from_millis(50)));
        }
        true
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // A full socket means that it has been told already.
        let _ = self.stop.write(&[0]);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn no_threads(error: io::Error) -> Fault {
    Fault::failed(format!("cannot start the daemon's threads: {error}; check ulimit -u"))
}

fn state_of(statistics: &Sender<Ask>) -> Option<StatusReport> {
    let (to, from) = bounded(1);
    statistics.try_send(Ask::Report(to)).ok()?;
    from.recv_timeout(Duration::from_secs(2)).ok()
}

/// First number of the rings, 1 to 255. It most likely differs from the last daemon's, and a changed number
/// tells shims with an old ring that they must ask for a new one.
fn ring_number() -> u8 {
    let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    (since_epoch.as_millis() % 255) as u8 + 1
}

/// Maximum number of ranges of a file set that are added and not taken. Each holds a descriptor; all of them
/// together get an eighth of the descriptors.
pub(crate) fn file_set_ranges(descriptors: u64) -> usize {
    usize::try_from(descriptors / 8 / SETS_MAX as u64).unwrap_or(usize::MAX).clamp(1, RANGES_MAX)
}

/// Maximum number of files that the streams of one disk keep open: one for each stream; with a low limit an
/// eighth of the descriptors, so that several disks have room.
fn descriptors_kept(descriptors: u64) -> u64 {
    (StreamConfig::default().streams_max as u64).min(descriptors / 8).max(1)
}

/// Raises the descriptor limit as far as possible, and returns it.
fn descriptors() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let current = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    };
    current.unwrap_or(u64::MAX)
}

/// Maximum number of connections with this many descriptors.
fn connections_possible(descriptors: u64) -> usize {
    let file_sets = (SETS_MAX * file_set_ranges(descriptors)) as u64;
    let others = DESCRIPTORS_RESERVED + descriptors_kept(descriptors) + file_sets;
    usize::try_from(descriptors.saturating_sub(others) / DESCRIPTORS_PER_CONNECTION)
        .unwrap_or(usize::MAX)
        .max(1)
}
