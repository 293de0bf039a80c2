//! The worker process of `seekless watch`: a daemon with the second door open.
//!
//! Its standard input is a socket to the supervisor. A beat is sent on it every 100 ms, and its end means
//! that the supervisor is gone.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use rustix::event::PollFlags;
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use seekless_base::{Exit, Fault};
use seekless_policy::{IN_FLIGHT_MAX, Mode};
use signal_hook::consts::{SIGINT, SIGTERM};

use super::{Door, WatchSettings};
use crate::DaemonSettings;
use crate::cli::{ReportOptions, Reports, told_by, wait_for};
use crate::daemon::Daemon;
use crate::parent::die_with;

/// Wanted number of descriptors: for blocked readers and connections, and as many again. If none is left, the
/// kernel fails the waiting read. This is the only way in which this door could make a read fail, so
/// descriptors must never run out.
const DESCRIPTORS: u64 = 65536;

/// Sent once, when the folders are marked.
pub(crate) const READY: u8 = b'R';

pub(crate) struct Worker {
    pub(crate) settings: DaemonSettings,
    pub(crate) watch: WatchSettings,
    pub(crate) socket: bool,
    pub(crate) supervisor: i32,
    pub(crate) restarts: u64,
    pub(crate) reports: ReportOptions,
}

/// Runs until SIGTERM, SIGINT, or the end of the supervisor.
pub(crate) fn run(worker: Worker) -> Result<Exit, Fault> {
    // SIGKILL: in any state, the end of this process releases all readers.
    die_with(worker.supervisor, Signal::KILL)?;
    let fault = |e: io::Error| Fault::failed(format!("the worker of seekless watch cannot start: {e}"));
    let told = told_by(&[SIGTERM, SIGINT]).map_err(fault)?;
    let supervisor: UnixStream = io::stdin().as_fd().try_clone_to_owned().map_err(fault)?.into();
    supervisor.set_nonblocking(true).map_err(fault)?;

    let mut settings = worker.settings;
    if settings.engine.policy.mode == Mode::Prefetch {
        // Reads are not held back: as many pieces in flight as there can be workers.
        settings.engine.policy.reads_in_flight = IN_FLIGHT_MAX;
    }
    let mut watch = worker.watch;
    // One descriptor each for the event and the source, and half of all for other uses.
    let each = 4;
    watch.held_max = watch.held_max.min((raise_descriptors(DESCRIPTORS) / each) as usize).max(1);
    settings.connections_max = settings.connections_max.min(watch.held_max);
    let engine = settings.engine.clone();
    let daemon = match worker.socket {
        true => Daemon::start(settings).map_err(|fault| {
            let instead = "to watch without serving shims as well, use --no-socket";
            Fault::new(fault.exit, format!("{}; {instead}", fault.message))
        })?,
        false => Daemon::start_unreachable(settings)?,
    };
    let heart = supervisor.try_clone().map_err(fault)?;
    let mut door = Door::open(&watch, &daemon, Some(heart), worker.restarts)?;
    let metrics = crate::metrics::serve(worker.reports.metrics(), None, &daemon, "seekless watch")?;
    // Before the announcement, because its reader may end this worker, which must then count as one that
    // lived.
    rustix::io::write(&supervisor, &[READY]).map_err(|e| fault(e.into()))?;
    if worker.restarts == 0 {
        for disk in engine.survey(Some(&watch.dirs)) {
            seekless_output::eprintln!("seekless watch: {disk}");
        }
        announce(&door);
    }

    let mut reports = Reports::of(&worker.reports);
    loop {
        let ends = [(told.as_fd(), PollFlags::IN), (supervisor.as_fd(), PollFlags::IN | PollFlags::RDHUP)];
        let [signalled, spoken] = wait_for(ends, reports.pause());
        if signalled || (spoken && gone(&supervisor)) {
            break;
        }
        reports.go_on(&daemon);
    }
    // First of all: release all readers.
    door.close();
    drop(metrics);
    reports.end(&daemon)?;
    Ok(Exit::Ok)
}

fn announce(door: &Door) {
    for dir in door.folders.paths() {
        seekless_output::eprintln!("seekless watch: watching {}", dir.display());
    }
    for below in &door.folders.below {
        seekless_output::eprintln!(
            "seekless watch: {} is a separate mount and not watched; name it on the command line too",
            below.display()
        );
    }
}

/// Whether the supervisor has closed its end; it never sends anything.
fn gone(mut supervisor: &UnixStream) -> bool {
    match supervisor.read(&mut [0]) {
        Ok(0) => true,
        Ok(_) => false,
        Err(e) => e.kind() != io::ErrorKind::WouldBlock && e.kind() != io::ErrorKind::Interrupted,
    }
}

/// Raises the descriptor limit to at least `wanted` if that is allowed. Returns the limit.
fn raise_descriptors(wanted: u64) -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let hard = limit.maximum.map(|m| m.max(wanted));
    let tries =
        [Rlimit { current: hard, maximum: hard }, Rlimit { current: limit.maximum, maximum: limit.maximum }];
    for raised in tries {
        if setrlimit(Resource::Nofile, raised).is_ok() {
            break;
        }
    }
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}
