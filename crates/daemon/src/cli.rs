//! The command lines of `seekless daemon` and `run`.

use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;
use seekless_base::{Exit, Fault, Nanos};
use seekless_frontend::metrics::{Address, MetricsOption};
use seekless_frontend::socket::SocketOption;
use seekless_frontend::status::StatusReport;
use seekless_frontend::{control, own_daemon, socket};
use seekless_kernel::service::ServiceManager;
use seekless_options::{BOUNDS, seconds};
use seekless_output::JsonOption;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::daemon::Daemon;
use crate::parent::{ParentOption, die_with};
use crate::reload::Reload;
use crate::settings::DaemonSettings;
use crate::take_over::{self, Inheritance};
use crate::{activation, metrics};

mod observe;
mod watch;

pub use crate::engine_args::EngineArgs;
pub use crate::run::{RunArgs, run_run};

/// Serve shims until SIGTERM or SIGINT. At SIGUSR2 the installed program takes over.
#[derive(Args, Clone, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct DaemonArgs {
    #[command(subcommand)]
    command: Option<DaemonCommand>,
    #[command(flatten)]
    engine: EngineArgs,
    #[command(flatten)]
    listen: ListenOptions,
    /// Most shims connected at once, 1 to 1000000; beyond it connections are closed at once
    #[arg(long, default_value_t = 4096, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000), help_heading = BOUNDS, hide_short_help = true)]
    connections: u32,
    /// Pass a request after this many seconds (0.01 to 1000000), whatever its disk does; its caller then
    /// reads for itself, a shim after 60 in any case
    #[arg(long, alias = "give-up", default_value_t = 55.0, value_name = "SECONDS", value_parser = seconds, help_heading = BOUNDS, hide_short_help = true)]
    request_timeout: f64,
    #[command(flatten)]
    reports: ReportOptions,
    /// Take over from the daemon that listens at the socket, without losing a request; if none does, start as
    /// usual
    #[arg(long)]
    take_over: bool,
    #[command(flatten)]
    started_by: ParentOption,
}

#[derive(Subcommand, Clone, Debug)]
enum DaemonCommand {
    /// Show what a running daemon does
    Status {
        #[command(flatten)]
        at: SocketOption,
        #[command(flatten)]
        json: JsonOption,
        /// Print Prometheus text for a textfile collector, to standard output or to FILE, which appears whole
        #[arg(long, num_args = 0..=1, default_missing_value = "-", value_name = "FILE", conflicts_with = "json")]
        prometheus: Option<PathBuf>,
    },
}

/// `seekless daemon`, and `seekless daemon status`.
///
/// # Errors
/// The daemon cannot start, or none answers.
pub fn run_daemon(args: DaemonArgs) -> Result<Exit, Fault> {
    if let Some(DaemonCommand::Status { at, json, prometheus }) = args.command {
        let (text, report) = control::status(&at.path()?)?;
        match (json.path(), prometheus) {
            (Some(to), _) => seekless_output::write(to, seekless_output::json_escaped(text) + "\n")?,
            (None, Some(to)) => {
                seekless_output::write(
                    &to,
                    seekless_frontend::metrics::prometheus(&metrics::observation(report)),
                )?;
            }
            (None, None) => seekless_output::print(report.to_string())?,
        }
        return Ok(Exit::Ok);
    }
    let asked = args.listen.socket.or_else(socket::from_environment);
    let activated = activation::socket(asked.as_deref(), args.listen.socket_mode)?;
    let socket = asked.or_else(|| activated.as_ref().map(|from| from.path.clone()));
    let mut settings = args.engine.settings(socket.map_or_else(socket::daemon_path, Ok)?)?;
    settings.socket_mode = args.listen.socket_mode.unwrap_or(settings.socket_mode);
    settings.connections_max = args.connections as usize;
    settings.engine.policy.wait_max = Nanos::from_secs_f64(args.request_timeout);
    // If it ended with its parent, its successor would leave that parent without a daemon.
    settings.hands_over = args.started_by.parent.is_none();
    let folder = settings.socket.parent().map(Path::to_path_buf);
    if let Some(parent) = args.started_by.parent {
        die_with(parent, Signal::TERM)?;
    }
    let socket = settings.socket.clone();
    let (take_over, decisions) = (args.take_over, &args.engine.engine.decisions);
    // A passed socket means that the last daemon there has ended, so none would answer.
    let take_over = take_over && activated.is_none();
    let mut inherited =
        take_over.then(|| take_over::ask(&socket, settings.socket_mode)).transpose()?.flatten();
    if let (Some(_), Some(log)) = (&inherited, decisions)
        && let Err(error) = take_over::set_aside(log)
    {
        return Err(Fault::failed(format!(
            "cannot rename {}: {error}; choose another file for --decisions",
            log.display()
        )));
    }
    args.engine.engine.open_log(&mut settings.engine)?;
    // Before the socket is open: while clients read, no disk is idle enough to be probed.
    for disk in settings.engine.survey(None) {
        seekless_output::eprintln!("seekless daemon: {disk}");
    }
    let daemon = match (&mut inherited, activated) {
        (Some(inherited), _) => Daemon::start_inheriting(settings, inherited)?,
        (None, Some(activated)) => Daemon::start_activated(settings, activated)?,
        (None, None) => Daemon::start(settings)?,
    };
    stop_on_signals(&daemon)?;
    let mut reload =
        args.started_by.parent.is_none().then(Reload::on_signal).transpose().map_err(unwatched)?;
    let metrics_at = inherited.as_mut().and_then(|inherited| inherited.metrics.take());
    let mut metrics = metrics::serve(args.reports.metrics(), metrics_at, &daemon, "seekless daemon")?;
    inherited.map(Inheritance::serving).transpose()?;
    seekless_output::eprintln!("seekless daemon: listening at {}", socket.display());
    let mut manager = ServiceManager::ready();

    let mut reports = Reports::of(&args.reports);
    loop {
        let pause = reports.pause();
        let replaced = daemon.hand_over.is_done();
        let pause = if replaced { pause } else { manager.at_most(pause) };
        let pause = reload.as_ref().map_or(pause, |reload| reload.at_most(pause));
        let look = || {
            daemon.hand_over.is_done() != replaced || reload.as_ref().is_some_and(|r| r.asked() && !replaced)
        };
        if daemon.wait_unless(pause, look) {
            break;
        }
        if let Some(reload) = &mut reload {
            reload.go_on(&daemon, &mut manager);
        }
        if daemon.hand_over.is_done() {
            // The other daemon answers there, and talks to the service manager.
            metrics = None;
        } else {
            // The watchdog checks the thread that answers shims; that this thread runs proves little.
            manager.alive(|| control::settings(&socket).is_ok());
        }
        reports.go_on(&daemon);
    }
    if !daemon.hand_over.is_done() {
        manager.stopping();
    }
    drop(metrics);
    reports.end(&daemon)?;
    drop(daemon);
    if let (Some(_), Some(folder)) = (args.started_by.parent, folder) {
        own_daemon::remove_folder(&folder);
    }
    Ok(Exit::Ok)
}

pub use observe::{ObserveArgs, run_observe};
pub use watch::{WatchArgs, run_watch};

/// The socket of a daemon that has another door as well.
#[derive(Args, Clone, Debug)]
pub(crate) struct SocketArgs {
    /// Listen for no shims and answer no `daemon status`
    #[arg(long, conflicts_with = "socket")]
    pub(crate) no_socket: bool,
    #[command(flatten)]
    listen: ListenOptions,
}

/// Where a daemon listens for shims.
#[derive(Args, Clone, Debug)]
pub(crate) struct ListenOptions {
    /// Path to listen at [default: the socket that systemd passes to `daemon`, else $SEEKLESS_SOCKET, else
    /// daemon.sock in the state folder, /run/seekless for root]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Permission bits of the socket, octal, 0 to 777 [default: 666 for root's daemon, 600 otherwise]
    #[arg(long, value_name = "BITS", value_parser = octal, help_heading = BOUNDS, hide_short_help = true, hide_long_help = true)]
    socket_mode: Option<u32>,
}

/// How a daemon reports what it does, whatever its door.
#[derive(Args, Clone, Debug)]
pub(crate) struct ReportOptions {
    /// Time between two reports of the statistics, in seconds (0.01 to 1000000) [default: none]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    stats_interval: Option<f64>,
    /// Write the statistics as JSON, at the end and at every --stats-interval: to standard output, a line
    /// each, or to FILE, which always holds the latest
    #[arg(long, num_args = 0..=1, default_missing_value = "-", value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(flatten)]
    at: MetricsOption,
}

impl ReportOptions {
    pub(crate) fn metrics(&self) -> Option<Address> {
        self.at.metrics
    }
}

/// The reports of a run: one at each interval, and one at the end.
pub(crate) struct Reports<'a> {
    interval: Option<Duration>,
    json: Option<&'a Path>,
    next: Option<Instant>,
    last: Option<StatusReport>,
}

impl Reports<'_> {
    pub(crate) fn of(options: &ReportOptions) -> Reports<'_> {
        let interval = options.stats_interval.map(Duration::from_secs_f64);
        let next = interval.map(|interval| Instant::now() + interval);
        Reports { interval, json: options.json.as_deref(), next, last: None }
    }

    /// Time until the next one is due.
    pub(crate) fn pause(&self) -> Duration {
        self.next.map_or(Duration::from_secs(3600), |at| at.saturating_duration_since(Instant::now()))
    }

    /// Gives one if it is due.
    pub(crate) fn go_on(&mut self, daemon: &Daemon) {
        let now = Instant::now();
        if self.next.is_some_and(|at| at <= now) {
            self.next = self.interval.map(|interval| now + interval);
            if let Some(report) = daemon.status() {
                report.give_while_serving(self.json);
                self.last = Some(report);
            }
        }
    }

    /// Gives the last one if it goes to a file. The statistics thread ends a moment after the acceptor.
    pub(crate) fn end(self, daemon: &Daemon) -> Result<(), Fault> {
        let report = self.json.and_then(|_| daemon.status().or(self.last));
        report.map_or(Ok(()), |report| report.give(self.json))
    }
}

/// A socket that becomes readable when one of these signals comes.
pub(crate) fn told_by(signals: &[i32]) -> io::Result<UnixStream> {
    let (told, signal) = UnixStream::pair()?;
    for &number in signals {
        signal_hook::low_level::pipe::register(number, signal.try_clone()?)?;
    }
    Ok(told)
}

/// Waits until one of these is ready, or for so long; which ones are. A signal ends the wait early: its
/// handler has written to one of them, or it does not concern this process.
pub(crate) fn wait_for<const N: usize>(
    fds: [(BorrowedFd<'_>, PollFlags); N],
    at_most: Duration,
) -> [bool; N] {
    let mut ready = fds.map(|(fd, flags)| PollFd::from_borrowed_fd(fd, flags));
    let _ = poll(&mut ready, Timespec::try_from(at_most).ok().as_ref());
    ready.map(|fd| !fd.revents().is_empty())
}

impl SocketArgs {
    /// The settings of the daemon at this socket.
    fn settings(&self, engine: &EngineArgs) -> Result<DaemonSettings, Fault> {
        let mut settings =
            engine.settings(self.listen.socket.clone().map_or_else(socket::daemon_path, Ok)?)?;
        settings.socket_mode = self.listen.socket_mode.unwrap_or(settings.socket_mode);
        Ok(settings)
    }
}

fn octal(text: &str) -> Result<u32, String> {
    let bits = u32::from_str_radix(text.trim_start_matches("0o"), 8).ok().filter(|&b| b <= 0o777);
    bits.ok_or_else(|| "write permission bits in octal, for example 660".to_string())
}

fn stop_on_signals(daemon: &Daemon) -> Result<(), Fault> {
    for signal in [SIGTERM, SIGINT] {
        let stopper: UnixStream = daemon.stopper().map_err(unwatched)?;
        signal_hook::low_level::pipe::register(signal, stopper).map_err(unwatched)?;
    }
    Ok(())
}

fn unwatched(error: io::Error) -> Fault {
    Fault::failed(format!("cannot watch for signals: {error}"))
}
