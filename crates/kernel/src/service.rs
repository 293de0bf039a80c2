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
        say(NotifyState::Ready);
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
                say(NotifyState::Watchdog);
            }
        }
    }

    /// Says that it ends.
    pub fn stopping(&self) {
        say(NotifyState::Stopping);
    }
}

fn say(state: NotifyState<'_>) {
    // A manager that cannot be told counts us as dead in its own time; there is nobody else to tell.
    let _ = notify(&[state]);
}
