//! The command line of `seekless watch`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use seekless_base::{Exit, Fault, Nanos};
use seekless_kernel::fanotify::Scope;
use seekless_options::{BOUNDS, seconds};

use super::{EngineArgs, ReportOptions, SocketArgs};
use crate::watch::{WatchSettings, supervisor, worker};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ScopeArg {
    /// Reads through the mounts that the folders are on
    Mount,
    /// Reads through any mount of the folders' file systems, containers included
    Filesystem,
}

/// Serve every program that reads under these folders, without a preload, until interrupted (SIGINT, SIGTERM,
/// SIGHUP).
#[derive(Args, Clone, Debug)]
pub struct WatchArgs {
    /// Folders to watch
    #[arg(required = true, value_name = "DIR")]
    dirs: Vec<PathBuf>,
    #[command(flatten)]
    engine: EngineArgs,
    /// Mounts through which the folders are watched
    #[arg(long, value_enum, default_value_t = ScopeArg::Mount)]
    scope: ScopeArg,
    /// Threads that answer the kernel, 1 to 64
    #[arg(long, default_value_t = 2, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64), help_heading = BOUNDS, hide_short_help = true, hide_long_help = true)]
    threads: u16,
    /// Have the kernel announce reads of files that are wholly in memory, too
    #[arg(long, help_heading = BOUNDS, hide_short_help = true, hide_long_help = true)]
    announce_resident: bool,
    /// Pass a held read after this many seconds (0.01 to 1000000), whatever its disk does
    #[arg(long, default_value_t = 55.0, value_name = "SECONDS", value_parser = seconds, help_heading = BOUNDS, hide_short_help = true)]
    answer_within: f64,
    /// Most reads held at once, 1 to 65536; beyond it reads pass at once
    #[arg(long, default_value_t = 4096, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65536), help_heading = BOUNDS, hide_short_help = true)]
    held: u32,
    #[command(flatten)]
    socket: SocketArgs,
    #[command(flatten)]
    reports: ReportOptions,
    /// This process is the worker of PID
    #[arg(long, hide = true, value_name = "PID")]
    supervisor: Option<i32>,
    /// How often the worker was started before
    #[arg(long, hide = true, default_value_t = 0)]
    restarts: u64,
}

/// `seekless watch`: a supervisor, and under it a worker that is a daemon with the kernel's announcements as
/// a second door. Returns when interrupted (SIGINT, SIGTERM, SIGHUP). `words`: the command line of `args`
/// without the program's name, for the worker.
///
/// # Errors
/// The kernel, the file system or our rights do not allow it; an argument is not a directory; the socket is
/// taken; or the worker keeps dying.
pub fn run_watch(args: WatchArgs, words: Vec<OsString>) -> Result<Exit, Fault> {
    // Checked here too, so that a mistake is reported before a process is started.
    let mut settings = args.socket.settings(&args.engine)?;
    let Some(supervisor) = args.supervisor else {
        // The worker's additional options are appended.
        return supervisor::run(&words);
    };
    args.engine.engine.open_log(&mut settings.engine)?;
    settings.engine.policy.wait_max = Nanos::from_secs_f64(args.answer_within);
    worker::run(worker::Worker {
        settings,
        watch: WatchSettings {
            dirs: args.dirs,
            scope: match args.scope {
                ScopeArg::Mount => Scope::Mount,
                ScopeArg::Filesystem => Scope::FileSystem,
            },
            threads: usize::from(args.threads),
            // The disk's engine gives up first, if it can.
            answer_within: Duration::from_secs_f64(args.answer_within) + Duration::from_millis(500),
            held_max: args.held as usize,
            ignore_resident: !args.announce_resident,
        },
        socket: !args.socket.no_socket,
        supervisor,
        restarts: args.restarts,
        reports: args.reports,
    })
}
