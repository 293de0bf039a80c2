//! The command line of `seekless watch`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use seekless_base::{Exit, Fault, Nanos};
use seekless_frontend::metrics::Address;
use seekless_kernel::fanotify::Scope;
use seekless_options::{BOUNDS, seconds};

use super::{EngineArgs, SocketArgs};
use crate::watch::{WatchSettings, supervisor, worker};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ScopeArg {
    /// What is reached through the mounts that the folders are on
    Mount,
    /// The folders' whole file systems, through whatever mount: containers too
    Filesystem,
}

/// Serves every program that reads under these folders, without a preload, until interrupted.
#[derive(Args, Clone, Debug)]
pub struct WatchArgs {
    /// The folders
    #[arg(required = true, value_name = "DIR")]
    dirs: Vec<PathBuf>,
    #[command(flatten)]
    engine: EngineArgs,
    /// Through which mounts the folders are watched
    #[arg(long, value_enum, default_value_t = ScopeArg::Mount)]
    scope: ScopeArg,
    /// Threads that answer the kernel
    #[arg(long, default_value_t = 2, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64), help_heading = BOUNDS, hide_short_help = true)]
    threads: u16,
    /// Have files that are wholly in memory announced too
    #[arg(long, help_heading = BOUNDS, hide_short_help = true)]
    announce_resident: bool,
    /// Let a reader go after this many seconds, whatever its disk does
    #[arg(long, default_value_t = 55.0, value_name = "SECONDS", value_parser = seconds, help_heading = BOUNDS, hide_short_help = true)]
    answer_within: f64,
    /// Most readers held at once; more are let go at once
    #[arg(long, default_value_t = 4096, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65536), help_heading = BOUNDS, hide_short_help = true)]
    held: u32,
    #[command(flatten)]
    socket: SocketArgs,
    /// Write the statistics every so many seconds
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    stats_interval: Option<f64>,
    /// Write the statistics as JSON, at the end and at every interval: to standard output, one line each, or
    /// to FILE, always the latest
    #[arg(long, num_args = 0..=1, default_missing_value = "-", value_name = "FILE")]
    json: Option<PathBuf>,
    /// Answer scrapes at this address, and show a page there; a port alone is one of 127.0.0.1
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics: Option<Address>,
    /// We are the worker of this process
    #[arg(long, hide = true, value_name = "PID")]
    supervisor: Option<i32>,
    /// Times the worker was started before
    #[arg(long, hide = true, default_value_t = 0)]
    restarts: u64,
}

/// `seekless watch`: a supervisor, and under it a worker that is a daemon with the kernel's announcements as
/// a second door. Returns when interrupted (SIGINT, SIGTERM, SIGHUP).
///
/// # Errors
/// The kernel, the file system or our rights do not allow it; a folder is none; the socket is taken; or the
/// worker keeps dying.
pub fn run_watch(args: WatchArgs) -> Result<Exit, Fault> {
    // Checked here as well, so that a mistake is met before a process is started for it.
    let mut settings = args.socket.settings(&args.engine)?;
    let Some(supervisor) = args.supervisor else {
        // Our own command line, whatever stands before it; what the worker needs more is added at the end.
        let words: Vec<OsString> = std::env::args_os().skip(1).collect();
        return supervisor::run(&words);
    };
    args.engine.open_log(&mut settings)?;
    settings.engine.spindle.wait_max = Nanos::from_secs_f64(args.answer_within);
    worker::run(worker::Worker {
        settings,
        watch: WatchSettings {
            dirs: args.dirs,
            scope: match args.scope {
                ScopeArg::Mount => Scope::Mount,
                ScopeArg::Filesystem => Scope::FileSystem,
            },
            threads: usize::from(args.threads),
            // The spindle gives up first, when it can.
            answer_within: Duration::from_secs_f64(args.answer_within) + Duration::from_millis(500),
            held_max: args.held as usize,
            ignore_resident: !args.announce_resident,
        },
        socket: !args.socket.no_socket,
        supervisor,
        restarts: args.restarts,
        stats_interval: args.stats_interval.map(Duration::from_secs_f64),
        json: args.json,
        metrics: args.metrics,
    })
}
