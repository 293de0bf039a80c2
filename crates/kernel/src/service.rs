//! What a service manager wants to hear (`sd_notify`): ready, alive, stopping. Without one nothing is sent.

use std::time::{Duration, Instant};

use sd_notify::{NotifyState, notify, watchdog_enabled};

/// Words to the service manager that started this process, if there is one.
#[derive(Debug, Default)]
pub struct ServiceManager {
    /// Half of the time after which it counts us as dead; `None`: it does not watch.
    every: Option<Duration>,
    next: Option<Instant>,
}

impl ServiceManager {
    /// Says that the service is ready.
    pub fn ready() -> ServiceManager {
        let mut manager = ServiceManager::default();
        manager.again_ready();
        manager
    }

    /// Says so again, or for the first time.
    pub fn again_ready(&mut self) {
        say(&[NotifyState::Ready]);
        self.every = watchdog_enabled().map(|within| within / 2);
        self.next = self.every.map(|_| Instant::now());
    }

    /// The longest pause that may be made before [`ServiceManager::alive`], and no longer than `pause`.
    pub fn at_most(&self, pause: Duration) -> Duration {
        let left = self.next.map(|at| at.saturating_duration_since(Instant::now()));
        left.map_or(pause, |left| left.min(pause))
    }

    /// Says that the service is alive, if that is due and `well` says so too.
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

    /// Says that it prepares to go on as another process; [`ServiceManager::again_ready`] or
    /// [`main_process`] ends that.
    pub fn reloading(&self) {
        // systemd compares the time with that of its request.
        match NotifyState::monotonic_usec_now() {
            Ok(now) => say(&[NotifyState::Reloading, now]),
            Err(_) => say(&[NotifyState::Reloading]),
        }
    }

    /// Says that it ends.
    pub fn stopping(&self) {
        say(&[NotifyState::Stopping]);
    }
}

/// Says that the service is another process from now on, and ready. Only the main process is heard saying so.
pub fn main_process(pid: u32) {
    say(&[NotifyState::MainPid(pid), NotifyState::Ready]);
}

fn say(states: &[NotifyState<'_>]) {
    // A manager that cannot be told counts us as dead in its own time; there is nobody else to tell.
    let _ = notify(states);
}
