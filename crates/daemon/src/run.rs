//! `seekless run -- CMD`: runs the command with the shim preloaded.
//!
//! If a daemon answers, it is used. Otherwise one is started as our child, with a socket in a folder of its
//! own, and ends with us. The command inherits our terminal, input and output; signals sent to us are
//! forwarded, and we end as it ended. A server that puts itself into the background ends the command, and
//! with it the daemon started here. Run such servers in the foreground (`nginx -g 'daemon off;'`), or start
//! `seekless daemon` beforehand.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use rustix::process::{Pid, Signal, kill_process};
use seekless_base::Fault;
use seekless_frontend::advice::few_blocked::few_blocked_of;
use seekless_frontend::control;
use seekless_frontend::own_daemon::OwnDaemon;
use seekless_frontend::shim_file::ShimOption;
use seekless_frontend::socket::SocketOption;
use seekless_options::Given;
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::origin::WithOrigin;
use signal_hook::low_level::siginfo::{Cause, Origin};

use crate::engine_args::EngineArgs;

/// Signals forwarded to the command.
const PASSED_ON: [i32; 8] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH, SIGCONT];

/// Time for a server to start its workers.
const STARTED_AFTER: Duration = Duration::from_secs(3);

/// `--socket` of `run` never says where the daemon that it starts listens.
const SOCKET_HELP: &str = "Use the daemon that listens here; if none does, start one at a socket of its own \
     [default: $SEEKLESS_SOCKET, else daemon.sock in the state folder, /run/seekless for root]";

/// Run a command with the shim in front of its reads; start a daemon if none runs.
#[derive(Args, Clone, Debug)]
#[command(mut_arg("socket", |arg| arg.help(SOCKET_HELP)))]
pub struct RunArgs {
    #[command(flatten)]
    pub(crate) engine: Given<EngineArgs>,
    #[command(flatten)]
    pub(crate) shim: ShimOption,
    #[command(flatten)]
    pub(crate) at: SocketOption,
    /// Write the statistics of the daemon that was started here as JSON to FILE at the end (`-`: standard
    /// output)
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// The command and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

/// `seekless run`: the exit status is the command's own, 128 + n if signal n ended it.
///
/// # Errors
/// The shim is not found, no daemon can be started, or there is no memory or process for the command. (A
/// command that does not exist or is not executable is status 127 or 126, as in a shell.)
pub fn run_run(args: RunArgs) -> Result<ExitCode, Fault> {
    let shim = args.shim.find()?;
    // Errors in the options are reported here, with their own status, before a daemon is started.
    args.engine.options.settings(PathBuf::new())?;
    // Before anything is started, so that no signal is lost.
    let mut signals = SignalsInfo::<WithOrigin>::new(PASSED_ON)
        .map_err(|e| Fault::failed(format!("cannot watch for signals: {e}")))?;
    let shared = args.at.path()?;
    let (socket, daemon) = match control::settings(&shared) {
        Ok(settings) => {
            seekless_output::eprintln!(
                "seekless run: using the daemon at {} (mode {}); its settings apply, not the options given here",
                shared.display(),
                settings.mode
            );
            (shared, None)
        }
        Err(_) => {
            let daemon = OwnDaemon::start(daemon_words(&args), args.json.as_deref())?;
            (daemon.socket.clone(), Some(daemon))
        }
    };

    if is_filtered() && env::var_os("SEEKLESS_SECCOMP").is_none() {
        seekless_output::eprintln!(
            "seekless run: there is a seccomp filter here, as in a container, so the shim stays off; if the filter ends no \
             program at a call that it forbids, set SEEKLESS_SECCOMP=allow"
        );
    }
    let program = &args.command[0];
    let child = Command::new(program)
        .args(&args.command[1..])
        .env("LD_PRELOAD", preload(&shim, env::var_os("LD_PRELOAD")))
        .env("SEEKLESS_SOCKET", &socket)
        .spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) => {
            let status = match error.kind() {
                io::ErrorKind::NotFound => 127,
                io::ErrorKind::PermissionDenied => 126,
                _ => {
                    return Err(Fault::failed(format!("cannot start {}: {error}", program.display())));
                }
            };
            seekless_output::eprintln!("seekless run: cannot start {}: {error}", program.display());
            return Ok(ExitCode::from(status));
        }
    };
    let handle = signals.handle();
    let pid = Pid::from_child(&child);
    let relay = thread::spawn(move || {
        for origin in signals.forever() {
            pass_on(&origin, pid);
        }
    });
    let ended = Arc::new(AtomicBool::new(false));
    let advice = thread::spawn({
        let (ended, pid) = (ended.clone(), child.id());
        move || advise(pid, &ended)
    });
    let status = child.wait();
    ended.store(true, Ordering::Relaxed);
    advice.thread().unpark();
    let _ = advice.join();
    handle.close();
    let _ = relay.join();
    drop(daemon);
    let status = status.map_err(|e| Fault::failed(format!("waiting for the command failed: {e}")))?;
    Ok(ExitCode::from(exit_code(status)))
}

/// Whether processes started here inherit a filter of system calls.
fn is_filtered() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().any(|line| line.strip_prefix("Seccomp:").is_some_and(|mode| mode.trim() != "0"))
}

/// Once the server has had time to start its workers, reports which of its settings would let the disks be
/// read in better order.
fn advise(pid: u32, ended: &AtomicBool) {
    let until = Instant::now() + STARTED_AFTER;
    while !ended.load(Ordering::Relaxed) {
        match until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
            Some(left) => thread::park_timeout(left),
            None => break,
        }
    }
    if !ended.load(Ordering::Relaxed)
        && let Some((name, finding)) = few_blocked_of(pid)
    {
        seekless_output::eprintln!("seekless run: {name}: {}: {}", finding.what, finding.advice);
    }
}

/// Forwards a signal, unless the terminal sent it: then the command, in the same process group, has it
/// already.
fn pass_on(origin: &Origin, pid: Pid) {
    if origin.cause == Cause::Kernel {
        return;
    }
    if let Some(signal) = Signal::from_named_raw(origin.signal) {
        // If it is gone already, its status follows.
        let _ = kill_process(pid, signal);
    }
}

/// The command line of our daemon.
fn daemon_words(args: &RunArgs) -> Vec<OsString> {
    let mut words = vec![OsString::from("daemon")];
    words.extend(args.engine.words.iter().cloned());
    if let Some(json) = &args.json {
        words.extend(["--json".into(), json.clone().into()]);
    }
    words
}

/// The exit status as shells report it.
fn exit_code(status: ExitStatus) -> u8 {
    let signalled = || 128 + status.signal().unwrap_or(0);
    u8::try_from(status.code().unwrap_or_else(signalled)).unwrap_or(u8::MAX)
}

/// `LD_PRELOAD` with the shim after the existing entries: a preloaded allocator stays in front.
fn preload(shim: &Path, existing: Option<OsString>) -> OsString {
    match existing.filter(|e| !e.is_empty()) {
        Some(mut list) => {
            list.push(":");
            list.push(shim);
            list
        }
        None => shim.as_os_str().to_os_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_preloaded_already_stays_in_front() {
        let shim = Path::new("/x/libseekless.so");
        assert_eq!(preload(shim, None), "/x/libseekless.so");
        assert_eq!(preload(shim, Some("".into())), "/x/libseekless.so");
        assert_eq!(
            preload(shim, Some("/lib/libjemalloc.so".into())),
            "/lib/libjemalloc.so:/x/libseekless.so"
        );
    }

    #[test]
    fn statuses_are_those_of_a_shell() {
        assert_eq!(exit_code(ExitStatus::from_raw(0)), 0);
        assert_eq!(exit_code(ExitStatus::from_raw(3 << 8)), 3);
        assert_eq!(exit_code(ExitStatus::from_raw(9)), 137);
    }
}
