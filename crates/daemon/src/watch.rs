//! The second door: the kernel announces every read under a folder before it happens, and waits for the
//! answer.
//!
//! ```text
//!  any program: read, sendfile, mmap                         supervisor process (parent)
//!        | the kernel holds it                                   ^ a beat every 100 ms, else SIGKILL
//!        v                                                       |
//!  event threads --in memory: released at once     worker process: event threads, keeper, and a daemon's
//!        |                                                  readers, shared with the socket door
//!        `--missing: BlockedCall --> disk thread --> answer: released
//!                              \--> Registry: released when its time is up
//! ```
//!
//! - [`events`]: the event threads. They never touch a disk: no file is opened or read; residency is queried
//!   through the event's own descriptor.
//! - [`scope`]: whether a file is under one of the folders.
//! - [`files`]: what is known about files; files wholly in memory are not announced until one of their pages
//!   is gone.
//! - [`pauses`]: pauses the events of a tree that is in memory.
//! - [`keeper`]: a thread that releases readers blocked for too long, checks ignored files, and sends beats.
//! - [`supervisor`]: the parent process, which kills a worker that sends no beats. Whatever ends the worker
//!   closes the notification group, and that releases every reader at once.

mod beats;
mod events;
mod files;
mod keeper;
mod pauses;
pub(crate) mod scope;
pub(crate) mod supervisor;
pub(crate) mod worker;

use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use seekless_base::Fault;
use seekless_engine::{FilesUsed, ends_within};
use seekless_frontend::status::WatchReport;
use seekless_kernel::fanotify::{Group, Scope, Unavailable};

use crate::counts::Counts;
use crate::daemon::Daemon;
use crate::statistics::DoorReport;
use beats::Beats;
use events::Announcer;
use files::Files;
use keeper::Keeper;
use pauses::Pauses;
use scope::Folders;

/// Settings of the door.
#[derive(Clone, Debug)]
pub(crate) struct WatchSettings {
    pub(crate) dirs: Vec<PathBuf>,
    pub(crate) scope: Scope,
    pub(crate) threads: usize,
    /// A blocked reader is released after this long, whatever the disk does.
    pub(crate) answer_within: Duration,
    /// Maximum number of readers blocked at once.
    pub(crate) held_max: usize,
    /// Do not announce files wholly in memory.
    pub(crate) ignore_resident: bool,
}

/// The open door. Dropping it closes it.
pub(crate) struct Door {
    group: Group,
    /// The folders watched, as given to the kernel.
    pub(crate) folders: Arc<Folders>,
    scope: Scope,
    announcer: Arc<Announcer>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Door {
    /// Marks the folders and starts to answer. Beats go to `heart`.
    ///
    /// # Errors
    /// The kernel, the file system or our permissions do not allow it, or a path is not a directory.
    pub(crate) fn open(
        settings: &WatchSettings,
        daemon: &Daemon,
        heart: Option<UnixStream>,
        restarts: u64,
    ) -> Result<Door, Fault> {
        let folders = Arc::new(Folders::find(&settings.dirs, settings.scope)?);
        let group = Group::new().map_err(|why| unavailable(why, None))?;
        let keep = daemon.shared.settings.engine.open_after_use();
        let announcer = Arc::new(Announcer {
            group: group.clone(),
            settings: daemon.shared.settings.clone(),
            engine: daemon.shared.engine.clone(),
            registry: Arc::new(crate::blocked_calls::Registry::new(
                settings.answer_within,
                settings.held_max,
            )),
            files: Files::new(settings.ignore_resident),
            followed: Mutex::new(FilesUsed::new(keep)),
            folders: folders.clone(),
            pauses: Pauses::of(folders.devs(), keep),
            limits: daemon.shared.limits.clone(),
            counts: Counts::new(WatchReport { restarts, ..WatchReport::default() }),
        });
        let beats = Arc::new(Beats::new(settings.threads));
        let stop = Arc::new(AtomicBool::new(false));
        let mut door = Door {
            group,
            folders,
            scope: settings.scope,
            announcer,
            stop: stop.clone(),
            threads: Vec::new(),
        };
        // Threads first, because readers wait for them from the first mark on.
        let no_thread = |e: io::Error| {
            Fault::failed(format!("cannot start the threads that answer events: {e}; check ulimit -u"))
        };
        for index in 0..settings.threads {
            let (announcer, beats, stop) = (door.announcer.clone(), beats.clone(), stop.clone());
            let few = settings.threads > 1;
            let run = move || announcer.run(&beats, index, &stop, few);
            door.threads
                .push(thread::Builder::new().name(format!("event-{index}")).spawn(run).map_err(no_thread)?);
        }
        let keeper = Keeper { announcer: door.announcer.clone(), beats, stop, heart };
        door.threads.push(
            thread::Builder::new().name("keeper".into()).spawn(move || keeper.run()).map_err(no_thread)?,
        );
        files::ignore_own_output(&door.group);
        for dir in door.folders.paths() {
            door.group.watch(dir, settings.scope).map_err(|why| unavailable(why, Some(dir)))?;
        }
        let announcer = door.announcer.clone();
        daemon.show(Box::new(move || DoorReport::Watch(announcer.report())));
        Ok(door)
    }

    /// Stops all events and releases all readers. Takes no longer than the system calls it makes.
    pub(crate) fn close(&mut self) {
        for dir in self.folders.paths() {
            let _ = self.group.unwatch(dir, self.scope);
        }
        self.announcer.registry.release_all();
        self.stop.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            ends_within(&thread, Duration::from_millis(500));
        }
        // Events taken in between.
        self.announcer.registry.release_all();
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.close();
    }
}

/// One line for each reason of the kernel.
fn unavailable(why: Unavailable, dir: Option<&Path>) -> Fault {
    let instead = "preload the shim instead: seekless run -- CMD";
    match (why, dir) {
        (Unavailable::NotPermitted, _) => Fault::permission(
            format!(
                "watching needs root (CAP_SYS_ADMIN outside any user namespace); become root, or {instead}"
            ) + &seekless_kernel::lsm::hint(&std::io::ErrorKind::PermissionDenied.into()),
        ),
        (Unavailable::NotSupported, None) => Fault::missing(format!(
            "this kernel has no pre-content events (it takes Linux 6.14 with CONFIG_FANOTIFY_ACCESS_PERMISSIONS); {instead}"
        )),
        (Unavailable::NotSupported, Some(dir)) => Fault::missing(format!(
            "the file system of {}{} or this kernel (before 6.14) does not support pre-content events; ext4, xfs \
                 and btrfs do; {instead}",
            dir.display(),
            scope::fs_type(dir).map(|t| format!(" ({t})")).unwrap_or_default(),
        )),
        (Unavailable::Other(error), dir) => {
            let place = dir.map(|d| format!(" {}", d.display())).unwrap_or_default();
            Fault::failed(format!("cannot watch{place}: {error}; {instead}"))
        }
    }
}
