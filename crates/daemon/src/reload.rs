//! SIGUSR2: the program installed now takes over from this one. `systemctl reload` requests this after an
//! upgrade.
//!
//! This process starts the new one, so that it has the same privileges, limits and namespaces, and belongs to
//! the same service. It is not its child, because a service manager would not wait for its end
//! ([`Adopted::spawn`]).

use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use seekless_kernel::service::ServiceManager;
use seekless_kernel::spawn::Adopted;

use crate::daemon::Daemon;

/// Maximum time until the new daemon serves. It first probes every disk, under a second each. At half, a
/// machine with a hundred disks would keep its old daemon; systemd gives up a reload after twice this.
const RELOAD_MAX: Duration = Duration::from_secs(45);

/// Interval of checks whether the new daemon has failed.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Waits for the signal, and for the process that it starts.
pub(crate) struct Reload {
    asked: Arc<AtomicBool>,
    starting: Option<(Adopted, Instant)>,
}

impl Reload {
    /// Listens for SIGUSR2.
    ///
    /// # Errors
    /// The signal handler cannot be installed.
    pub(crate) fn on_signal() -> io::Result<Reload> {
        let asked = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(signal_hook::consts::SIGUSR2, asked.clone())?;
        Ok(Reload { asked, starting: None })
    }

    /// Whether a signal has arrived.
    pub(crate) fn asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// The longest pause before [`Reload::go_on`] must be called, at most `pause`.
    pub(crate) fn at_most(&self, pause: Duration) -> Duration {
        if self.starting.is_some() { pause.min(LOOK_EVERY) } else { pause }
    }

    /// Starts the new daemon if requested, and checks on it.
    pub(crate) fn go_on(&mut self, daemon: &Daemon, manager: &mut ServiceManager) {
        if self.asked.swap(false, Ordering::Relaxed) && self.starting.is_none() {
            manager.reloading();
            match start(&daemon.shared.settings.socket) {
                Ok(new) => self.starting = Some((new, Instant::now())),
                Err(error) => {
                    tracing::warn!(%error, "cannot start the new daemon; this one goes on");
                    manager.again_ready();
                }
            }
        }
        let Some((new, since)) = &self.starting else { return };
        if daemon.hand_over.is_done() {
            // It runs on without us.
            self.starting = None;
            return;
        }
        let failed = match new.ended() {
            Ok(true) => Some("it ended".to_string()),
            Ok(false) if since.elapsed() >= RELOAD_MAX => {
                new.kill();
                Some(format!("it was not ready within {} s", RELOAD_MAX.as_secs()))
            }
            Ok(false) => None,
            Err(error) => Some(error.to_string()),
        };
        if let Some(why) = failed {
            self.starting = None;
            tracing::warn!(why, "the new daemon does not take over; this one goes on");
            manager.again_ready();
        }
    }
}

/// Starts this program as it is installed now, with the same words. They may not contain the path of the
/// socket, because it may have been passed to us.
fn start(socket: &Path) -> io::Result<Adopted> {
    let mut words: Vec<OsString> = env::args_os().skip(1).collect();
    if !words.iter().any(|word| word == "--take-over") {
        words.push("--take-over".into());
    }
    let mut command = Command::new(installed(env::current_exe()?));
    command
        .args(words)
        .env("SEEKLESS_SOCKET", socket)
        // The watchdog of the service names this process by its id; the new one has another.
        .env_remove("WATCHDOG_PID")
        .stdin(Stdio::null());
    Adopted::spawn(command)
}

/// The path of a program that an upgrade has replaced.
fn installed(exe: PathBuf) -> PathBuf {
    let bytes = exe.into_os_string().into_vec();
    let kept = bytes.strip_suffix(b" (deleted)").unwrap_or(&bytes);
    OsStr::from_bytes(kept).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_was_replaced_is_found_at_its_path() {
        let at = |path: &str| installed(PathBuf::from(path));
        assert_eq!(at("/usr/bin/seekless (deleted)"), PathBuf::from("/usr/bin/seekless"));
        assert_eq!(at("/usr/bin/seekless"), PathBuf::from("/usr/bin/seekless"));
    }
}
