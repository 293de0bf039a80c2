//! The command lines of `seekless daemon`, `run` and `doctor`.

use std::fs;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use rustix::process::Signal;
use seekless_options::seconds;
use seekless_units::{Exit, Fault, Nanos};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::daemon::Daemon;
use crate::status::StatusReport;
use crate::{control, doctor, run, state};

mod engine;
mod watch;

pub use engine::EngineArgs;

/// Serves shims until it is told to stop (SIGTERM, SIGINT).
#[derive(Args, Clone, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct DaemonArgs {
    #[command(subcommand)]
    command: Option<DaemonCommand>,
    #[command(flatten)]
    engine: EngineArgs,
    /// Where to listen [default: $SEEKLESS_SOCKET, else daemon.sock in the state folder]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Permission bits of the socket, octal [default: 666 for root's daemon, 600 otherwise]
    #[arg(long, value_name = "BITS", value_parser = octal)]
    socket_mode: Option<u32>,
    /// Most shims connected at once
    #[arg(long, default_value_t = 4096, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    connections: u32,
    /// Give up a request after this many seconds, whatever its disk does: its caller goes on by itself (a shim does after 60 in any case)
    #[arg(long, default_value_t = 55.0, value_name = "SECONDS", value_parser = seconds)]
    give_up: f64,
    /// Write the statistics every so many seconds
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    stats_interval: Option<f64>,
    /// Write the statistics as JSON, at the end and at every interval: to standard output, one line each, or to FILE,
    /// always the latest
    #[arg(long, num_args = 0..=1, default_missing_value = "-", value_name = "FILE")]
    json: Option<PathBuf>,
    /// End when this process, our parent, does; and remove the socket's folder then
    #[arg(long, hide = true, value_name = "PID")]
    parent: Option<i32>,
}

#[derive(Subcommand, Clone, Debug)]
enum DaemonCommand {
    /// Show what a running daemon is doing
    Status {
        /// Where it listens [default: $SEEKLESS_SOCKET, else daemon.sock in the state folder]
        #[arg(long, value_name = "PATH")]
        socket: Option<PathBuf>,
        /// As JSON, to standard output or to FILE
        #[arg(long, num_args = 0..=1, default_missing_value = "-", value_name = "FILE")]
        json: Option<PathBuf>,
    },
}

/// Runs a command with the shim in front of it, starting a daemon if none runs.
#[derive(Args, Clone, Debug)]
pub struct RunArgs {
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
    /// The shim [default: $SEEKLESS_SHIM, else libseekless.so beside the program or in ../lib/seekless]
    #[arg(long, value_name = "PATH")]
    pub(crate) shim: Option<PathBuf>,
    /// Socket of the daemon to use [default: $SEEKLESS_SOCKET, else daemon.sock in the state folder]
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// Write the statistics of the daemon started here as JSON to FILE at the end
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// The command and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<std::ffi::OsString>,
}

/// Says whether a process is hooked and what would help here.
#[derive(Args, Clone, Debug)]
pub struct DoctorArgs {
    /// The process to look at; without it, the machine
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) pid: Option<u32>,
    /// Socket of the daemon [default: the process's own SEEKLESS_SOCKET, else as for `daemon`]
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// As JSON, to standard output or to FILE
    #[arg(long, num_args = 0..=1, default_missing_value = "-", value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

/// `seekless daemon`, and `seekless daemon status`.
///
/// # Errors
/// The daemon cannot start, or none answers.
pub fn run_daemon(args: DaemonArgs) -> Result<Exit, Fault> {
    if let Some(DaemonCommand::Status { socket, json }) = args.command {
        let (text, report) = control::status(&socket.map_or_else(state::socket, Ok)?)?;
        match json {
            Some(to) => seekless_output::write(&to, text + "\n")?,
            None => seekless_output::print(report.to_string())?,
        }
        return Ok(Exit::Ok);
    }
    let mut settings = args.engine.settings(args.socket.map_or_else(state::own_socket, Ok)?)?;
    settings.socket_mode = args.socket_mode.unwrap_or(settings.socket_mode);
    settings.connections_max = args.connections as usize;
    settings.engine.spindle.wait_max = Nanos::from_secs_f64(args.give_up);
    let folder = settings.socket.parent().map(Path::to_path_buf);
    if let Some(parent) = args.parent {
        die_with(parent, Signal::TERM)?;
    }
    args.engine.open_log(&mut settings)?;
    let socket = settings.socket.clone();
    let daemon = Daemon::start(settings)?;
    stop_on_signals(&daemon)?;
    eprintln!("seekless daemon: listening at {}", socket.display());

    let interval = args.stats_interval.map(Duration::from_secs_f64);
    let mut next = interval.map(|i| Instant::now() + i);
    let mut last = None;
    loop {
        let pause = next.map_or(Duration::from_secs(3600), |at| at.saturating_duration_since(Instant::now()));
        if daemon.wait(pause) {
            break;
        }
        if let (Some(i), Some(report)) = (interval, daemon.status()) {
            next = Some(Instant::now() + i);
            output(&report, args.json.as_deref())?;
            last = Some(report);
        }
    }
    // The statistics outlive the receptionist by a moment.
    if let Some(report) = daemon.status().or(last)
        && args.json.is_some()
    {
        output(&report, args.json.as_deref())?;
    }
    drop(daemon);
    if let (Some(_), Some(folder)) = (args.parent, folder) {
        let _ = fs::remove_dir(folder);
    }
    Ok(Exit::Ok)
}

/// `seekless run`: the exit status is the command's own, 128 + n if signal n ended it.
///
/// # Errors
/// The shim is not to be found, no daemon can be started, or the command itself cannot be started for want of memory
/// or processes. (A command that is not there or not executable is status 127 or 126, as in a shell.)
pub fn run_run(args: RunArgs) -> Result<ExitCode, Fault> {
    run::run(&args)
}

/// `seekless doctor`.
///
/// # Errors
/// There is no such process, or it may not be looked at.
pub fn run_doctor(args: DoctorArgs) -> Result<Exit, Fault> {
    doctor::run(&args)
}

pub use watch::{WatchArgs, run_watch};

fn octal(text: &str) -> Result<u32, String> {
    let bits = u32::from_str_radix(text.trim_start_matches("0o"), 8).ok().filter(|&b| b <= 0o777);
    bits.ok_or_else(|| "write permission bits in octal, for example 660".to_string())
}

pub(crate) fn output(report: &StatusReport, json: Option<&Path>) -> Result<(), Fault> {
    match json {
        Some(to) => {
            let text = serde_json::to_string(report).map_err(|e| Fault::new(Exit::Failed, e.to_string()))?;
            // A FIFO that nobody reads must neither hold up the statistics nor the end.
            let written = seekless_output::offer(to, text + "\n");
            // Standard output may be a log on a disk that is full: no reason to stop serving.
            match written {
                Ok(true) => Ok(()),
                Ok(false) => {
                    tracing::warn!("nobody reads {}; what was to be written there is lost", to.display());
                    Ok(())
                }
                Err(_) if seekless_output::is_stdout(to) => Ok(()),
                Err(fault) => Err(fault),
            }
        }
        None => {
            eprint!("{report}");
            Ok(())
        }
    }
}

fn stop_on_signals(daemon: &Daemon) -> Result<(), Fault> {
    let fault = |e: io::Error| Fault::new(Exit::Failed, format!("cannot watch for signals: {e}"));
    for signal in [SIGTERM, SIGINT] {
        let stopper: UnixStream = daemon.stopper().map_err(fault)?;
        signal_hook::low_level::pipe::register(signal, stopper).map_err(fault)?;
    }
    Ok(())
}

/// Arranges for a signal when our parent ends.
pub(crate) fn die_with(parent: i32, signal: Signal) -> Result<(), Fault> {
    let armed = rustix::process::set_parent_process_death_signal(Some(signal));
    armed.map_err(|e| Fault::new(Exit::Failed, format!("cannot tie the daemon to its parent: {e}")))?;
    // It may have ended before the line above.
    match rustix::process::getppid() {
        Some(now) if now.as_raw_nonzero().get() == parent => Ok(()),
        _ => Err(Fault::new(
            Exit::Failed,
            format!("process {parent}, which this daemon was started for, is gone"),
        )),
    }
}
