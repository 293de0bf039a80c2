//! Messages to a service manager (`sd_notify`): ready, alive, stopping. Without one nothing is sent. Also the
//! sockets that it opens for a service and passes to it ([`passed`]).

use std::os::fd::{FromRawFd, OwnedFd};
use std::time::{Duration, Instant};
use std::{env, fs, io};

use sd_notify::{NotifyState, listen_fds_with_names_and_unset_env, notify, watchdog_enabled};

/// A socket that the service manager has opened for this process (socket activation).
#[derive(Debug)]
pub struct Passed {
    /// The unit that describes it, unless that unit gives it a name of its own.
    pub name: String,
    /// The socket, close-on-exec.
    pub socket: OwnedFd,
}

/// The sockets that the service manager has passed to this process, at the first call. The variables that
/// name them are removed, so that no child takes them for its own. Must be called before threads are started.
///
/// # Errors
/// The variables are inconsistent, or name descriptors that are not open; or other threads run already.
pub fn passed() -> io::Result<Vec<Passed>> {
    let Some(meant) = env::var_os("LISTEN_PID") else { return Ok(Vec::new()) };
    let meant = meant.to_str().and_then(|pid| pid.parse::<u32>().ok());
    if meant.is_some_and(|pid| pid != std::process::id()) {
        // They were for another process, from which this one has inherited the variables.
        return Ok(Vec::new());
    }
    if fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(io::Error::other("other threads run already"));
    }
    // SAFETY: this is the only thread, so no other reads the environment meanwhile.
    let passed = unsafe { listen_fds_with_names_and_unset_env() }?;
    // SAFETY: they are open, were opened for this process, and are taken once, because their variables are
    // gone.
    let owned = |fd| unsafe { OwnedFd::from_raw_fd(fd) };
    Ok(passed.map(|(fd, name)| Passed { name, socket: owned(fd) }).collect())
}

/// Sends messages to the service manager that started this process, if there is one.
#[derive(Debug, Default)]
pub struct ServiceManager {
    /// Half of the watchdog timeout; `None` if there is no watchdog.
    every: Option<Duration>,
    next: Option<Instant>,
}

impl ServiceManager {
    /// Reports that the service is ready.
    pub fn ready() -> ServiceManager {
        let mut manager = ServiceManager::default();
        manager.again_ready();
        manager
    }

    /// Reports readiness again, or for the first time.
    pub fn again_ready(&mut self) {
        say(&[NotifyState::Ready]);
        self.every = watchdog_enabled().map(|within| within / 2);
        self.next = self.every.map(|_| Instant::now());
    }

    /// The longest pause before [`ServiceManager::alive`] must be called, at most `pause`.
    pub fn at_most(&self, pause: Duration) -> Duration {
        let left = self.next.map(|at| at.saturating_duration_since(Instant::now()));
        left.map_or(pause, |left| left.min(pause))
    }

    /// Reports that the service is alive, if that is due and `well` returns `true`.
    pub fn alive(&mut self, well: impl FnOnce() -> bool) {
        let (Some(every), Some(at)) = (self.every, self.next) else { return };
        let now = Instant::now();
        if now >= at {
            self.next = Some(now + every);
            if well() {
                say(&[NotifyState::Watchdog]);
            }
        }
    }

    /// Reports that it prepares to continue as another process; [`ServiceManager::again_ready`] or
    /// [`main_process`] ends that.
    pub fn reloading(&self) {
        // systemd compares the time with that of its request.
        match NotifyState::monotonic_usec_now() {
            Ok(now) => say(&[NotifyState::Reloading, now]),
            Err(_) => say(&[NotifyState::Reloading]),
        }
    }

    /// Reports that the service ends.
    pub fn stopping(&self) {
        say(&[NotifyState::Stopping]);
    }
}

/// Reports that another process is the service from now on, and ready. Only the main process may report this.
pub fn main_process(pid: u32) {
    say(&[NotifyState::MainPid(pid), NotifyState::Ready]);
}

fn say(states: &[NotifyState<'_>]) {
    // A manager that cannot be reached considers the service dead after its timeout; there is no other place
    // to report to.
    let _ = notify(states);
}
