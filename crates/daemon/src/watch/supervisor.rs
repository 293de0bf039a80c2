//! The parent process of the worker of `seekless watch`.
//!
//! Readers on the whole system wait for the worker's answers. If these stop (a deadlock, a SIGSTOP, a
//! debugger), the worker cannot repair that itself. The supervisor only waits for its beats, and kills it
//! when they stop: the end of the process closes its notification group, and that releases every reader. The
//! worker is then restarted, after a growing pause, a bounded number of times.

use std::fs;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::process::{Pid, Signal, kill_process};
use seekless_base::{Exit, Fault};
use seekless_kernel::service::ServiceManager;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::worker::READY;
use crate::cli::{told_by, wait_for};

/// A worker without a beat for this long is killed. Ten beats, because a busy machine misses a few.
const SILENCE_MAX: Duration = Duration::from_secs(1);

/// Maximum time for a worker to mark its folders.
const START_MAX: Duration = Duration::from_secs(10);

/// Maximum time for a worker to end when asked to.
const END_MAX: Duration = Duration::from_secs(5);

/// Maximum number of consecutive restarts; beyond it a restart does not help.
const RESTARTS_MAX: u32 = 8;

/// A worker that lived this long was healthy: restarts are counted anew.
const WELL_AFTER: Duration = Duration::from_secs(60);

/// Pause before the first restart; doubled for each further one, up to 12.8 s.
const PAUSE_FIRST: Duration = Duration::from_millis(100);

/// How a worker ended.
enum End {
    /// The supervisor was told to stop, and the worker has stopped.
    Stopped,
    /// By itself, or killed by another process.
    Died(ExitStatus),
    /// Killed by the supervisor.
    Silent,
    /// It never became ready; its message is on the terminal.
    NeverReady(ExitStatus),
}

/// Runs workers until told to stop. `words` is their command line without the supervisor's additions.
pub(crate) fn run(words: &[std::ffi::OsString]) -> Result<Exit, Fault> {
    let fault = |e: io::Error| Fault::failed(format!("seekless watch cannot start its worker: {e}"));
    let told = told_by(&[SIGTERM, SIGINT, SIGHUP]).map_err(fault)?;
    let mut manager = ServiceManager::default();
    let mut restarts_ever = 0u64;
    let mut in_a_row = 0;
    loop {
        let began = Instant::now();
        let worker = Worker::start(words, restarts_ever).map_err(fault)?;
        let what = match worker.live(&told, &mut manager) {
            End::Stopped => return Ok(Exit::Ok),
            End::NeverReady(status) if restarts_ever == 0 => return never_ready(status),
            End::NeverReady(_) => "did not become ready".to_string(),
            End::Died(status) => format!("ended ({status})"),
            End::Silent => format!("was silent for {} s and has been killed", SILENCE_MAX.as_secs()),
        };
        if began.elapsed() >= WELL_AFTER {
            in_a_row = 0;
        }
        if in_a_row == RESTARTS_MAX {
            return Err(Fault::failed(format!(
                "the worker {what}, after {RESTARTS_MAX} restarts in a row; nothing is watched now, all programs \
                     read as without Seekless"
            )));
        }
        let pause = PAUSE_FIRST * 2u32.pow(in_a_row);
        in_a_row += 1;
        restarts_ever += 1;
        seekless_output::eprintln!(
            "seekless watch: the worker {what}; its readers read for themselves; the next one starts in {} ms",
            pause.as_millis()
        );
        if wait_for([(told.as_fd(), PollFlags::IN)], pause)[0] {
            return Ok(Exit::Ok);
        }
    }
}

/// The exit status of a worker that has reported its error itself; otherwise how it ended.
fn never_ready(status: ExitStatus) -> Result<Exit, Fault> {
    let known = [Exit::Failed, Exit::Usage, Exit::Permission, Exit::Busy, Exit::Missing];
    match known.into_iter().find(|e| Some(*e as i32) == status.code()) {
        Some(exit) => Ok(exit),
        None => Err(Fault::failed(format!("the worker of seekless watch ended before it began ({status})"))),
    }
}

struct Worker {
    child: Child,
    /// Its beats.
    heart: UnixStream,
}

impl Worker {
    fn start(words: &[std::ffi::OsString], restarts: u64) -> io::Result<Worker> {
        let (heart, theirs) = UnixStream::pair()?;
        heart.set_nonblocking(true)?;
        // Its current path: an upgrade may have replaced the file of the running program.
        let program = fs::read_link("/proc/self/exe")?;
        // Words after `--` are folders, whatever they look like.
        let options = words.iter().position(|w| w == "--").unwrap_or(words.len());
        let child = Command::new(program)
            .args(&words[..options])
            .arg(format!("--supervisor={}", std::process::id()))
            .arg(format!("--restarts={restarts}"))
            .args(&words[options..])
            // The words have the options of the configuration file as it was at the start.
            .env("SEEKLESS_CONFIG", "")
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            // The supervisor handles a terminal's Ctrl-C; the worker is told in order.
            .process_group(0)
            .spawn()?;
        Ok(Worker { child, heart })
    }

    /// Receives the worker's beats until it has ended.
    fn live(mut self, told: &UnixStream, manager: &mut ServiceManager) -> End {
        let mut ready = false;
        let mut heard = Instant::now();
        loop {
            let patience = if ready { SILENCE_MAX } else { START_MAX };
            let left = patience.saturating_sub(heard.elapsed());
            let ends = [(told.as_fd(), PollFlags::IN), (self.heart.as_fd(), PollFlags::IN)];
            let [stop, beat] = wait_for(ends, left);
            if stop {
                manager.stopping();
                self.end();
                return End::Stopped;
            }
            if beat {
                let mut beats = [0u8; 64];
                match self.heart.read(&mut beats) {
                    Ok(0) => return self.ended(ready),
                    Ok(n) => {
                        if !ready && beats[..n].contains(&READY) {
                            ready = true;
                            manager.again_ready();
                        }
                        heard = Instant::now();
                        // The worker beats, so this process is alive too.
                        manager.alive(|| true);
                    }
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                    Err(_) => return self.ended(ready),
                }
            } else if heard.elapsed() >= patience {
                // A machine that slept wakes with an old clock: check once more before the kill.
                if wait_for([(self.heart.as_fd(), PollFlags::IN)], Duration::from_millis(50))[0] {
                    continue;
                }
                let _ = self.child.kill();
                let _ = self.child.wait();
                return End::Silent;
            }
        }
    }

    /// The worker has closed its end: it is ending or has ended.
    fn ended(mut self, ready: bool) -> End {
        // A worker that closed its end and lives on would block readers without a beat.
        let status = match self.wait(SILENCE_MAX) {
            Some(status) => status,
            None => {
                let _ = self.child.kill();
                self.child.wait().unwrap_or(ExitStatus::from_raw(Signal::KILL.as_raw()))
            }
        };
        if ready { End::Died(status) } else { End::NeverReady(status) }
    }

    /// Asks the worker to end, and kills it if it does not.
    fn end(&mut self) {
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        // A stopped process would not handle the signal.
        let _ = kill_process(Pid::from_child(&self.child), Signal::CONT);
        if self.wait(END_MAX).is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }

    fn wait(&mut self, at_most: Duration) -> Option<ExitStatus> {
        let until = Instant::now() + at_most;
        loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Some(status);
            }
            if Instant::now() >= until {
                return None;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}
