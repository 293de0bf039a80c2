//! The command line of `seekless observe`.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use clap::Args;
use rustix::event::PollFlags;
use rustix::process::Signal;
use seekless_base::{Exit, Fault};
use seekless_frontend::advice::{scheduler, unavailable};
use seekless_frontend::own_daemon;
use seekless_kernel::cacheevents::{Attachment, CacheEvents};
use seekless_kernel::topology::MountTable;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::{EngineArgs, ReportOptions, Reports, SocketArgs, told_by, wait_for};
use crate::daemon::Daemon;
use crate::observe::Door;
use crate::parent::{ParentOption, die_with};

/// Read ahead for every program that reads under these folders. Nothing is preloaded or restarted, and no
/// program waits for it. It runs until SIGINT or SIGTERM; at SIGHUP it closes every file.
#[derive(Args, Clone, Debug)]
pub struct ObserveArgs {
    /// Folders to observe
    #[arg(required = true, value_name = "DIR")]
    dirs: Vec<PathBuf>,
    #[command(flatten)]
    engine: EngineArgs,
    #[command(flatten)]
    socket: SocketArgs,
    #[command(flatten)]
    started_by: ParentOption,
    /// How the kernel reports reads: programs at tracepoints, entries or probes of functions [default: the
    /// first of these that works]
    #[arg(long, value_name = "WAY", hide = true)]
    attachment: Option<Attachment>,
    #[command(flatten)]
    reports: ReportOptions,
}

/// `seekless observe`: a daemon with the page cache's events as a second door. Ends at SIGINT or SIGTERM; at
/// SIGHUP it closes every file.
///
/// # Errors
/// The kernel, the file system or our rights do not allow it; an argument is not a directory; the socket or
/// the file system is taken.
pub fn run_observe(args: ObserveArgs) -> Result<Exit, Fault> {
    if let Some(parent) = args.started_by.parent {
        die_with(parent, Signal::TERM)?;
    }
    // Before anything else is set up.
    if args.attachment.is_none() {
        CacheEvents::probe().map_err(unavailable)?;
    }
    let fault = |e: io::Error| Fault::failed(format!("seekless observe cannot start: {e}"));
    let told = told_by(&[SIGTERM, SIGINT]).map_err(fault)?;
    let hung_up = told_by(&[SIGHUP]).map_err(fault)?;
    hung_up.set_nonblocking(true).map_err(fault)?;

    let mut settings = args.socket.settings(&args.engine)?;
    args.engine.engine.open_log(&mut settings.engine)?;
    let folder = settings.socket.parent().map(Path::to_path_buf);
    let engine = settings.engine.clone();
    let daemon = match args.socket.no_socket {
        false => Daemon::start(settings).map_err(|fault| {
            let instead = "to observe without serving shims as well, use --no-socket";
            Fault::new(fault.exit, format!("{}; {instead}", fault.message))
        })?,
        true => Daemon::start_unreachable(settings)?,
    };
    let mut door = Door::open(&args.dirs, args.attachment, &daemon)?;
    let metrics = crate::metrics::serve(args.reports.metrics(), None, &daemon, "seekless observe")?;
    let disks = engine.survey(Some(&args.dirs));
    for disk in &disks {
        seekless_output::eprintln!("seekless observe: {disk}");
    }
    for disk in scheduler::without(&disks, Path::new("/sys/block")) {
        seekless_output::eprintln!(
            "seekless observe: {disk} has no scheduler; beside a server with many threads that wait for it, \
             almost nothing is gained: {}",
            scheduler::advice(disk)
        );
    }
    for volume in &*door.volumes {
        seekless_output::eprintln!("seekless observe: observing {}", volume.path.display());
    }
    let mut reports = Reports::of(&args.reports);
    serve(&told, &hung_up, &door, &daemon, &mut reports)?;
    // First of all, so that no file stays open.
    door.close();
    drop(metrics);
    reports.end(&daemon)?;
    drop(daemon);
    if let (Some(_), Some(folder)) = (args.started_by.parent, folder) {
        own_daemon::remove_folder(&folder);
    }
    Ok(Exit::Ok)
}

/// Runs until a signal ends it. Handles file systems that are unmounted meanwhile.
fn serve(
    told: &UnixStream,
    hung_up: &UnixStream,
    door: &Door,
    daemon: &Daemon,
    reports: &mut Reports<'_>,
) -> Result<(), Fault> {
    let table = File::open("/proc/self/mountinfo");
    let table = table.map_err(|e| Fault::missing(format!("/proc/self/mountinfo: {e}; mount /proc")))?;
    loop {
        let [stop, release, mounted] = wait_for(
            [
                (told.as_fd(), PollFlags::IN),
                (hung_up.as_fd(), PollFlags::IN),
                // Raised by every mount and unmount.
                (table.as_fd(), PollFlags::PRI),
            ],
            reports.pause(),
        );
        if stop {
            return Ok(());
        }
        if release {
            let _ = rustix::io::read(hung_up, &mut [0u8; 64]);
            door.release(|_| true);
        }
        if mounted && let Ok(mounts) = MountTable::read() {
            // Unmounted while files were open (`umount -l`): the file system goes when the last of them is
            // closed.
            door.release(|volume| !mounts.iter().any(|m| (m.dev.major, m.dev.minor) == volume.dev));
        }
        reports.go_on(daemon);
    }
}
