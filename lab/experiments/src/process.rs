//! Processes the lab starts: they write to a log, never outlive the lab, and are stopped by pid.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use seekless_base::{Exit, Fault};
use seekless_kernel::spawn;

use crate::memory_group::MemoryGroup;
use crate::{guard, tools};

/// A process is asked with SIGTERM to end; after this long it is told with SIGKILL.
const STOP_PATIENCE: Duration = Duration::from_secs(8);

/// A running process of ours, stopped on drop.
#[derive(Debug)]
pub(crate) struct Process {
    what: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `command`, its output going to `log`, inside `group` if given.
    pub(crate) fn spawn(
        what: &str,
        mut command: Command,
        log: &Path,
        group: Option<&MemoryGroup>,
    ) -> Result<Process, Fault> {
        let fault = |error: &dyn std::fmt::Display| Fault::failed(format!("{what} does not start: {error}"));
        let out = File::create(log).map_err(|e| fault(&e))?;
        let err = out.try_clone().map_err(|e| fault(&e))?;
        // A group of its own: a terminal's Ctrl-C reaches the lab, and the lab decides what ends when.
        command.stdin(Stdio::null()).stdout(out).stderr(err).process_group(0);
        if let Some(group) = group {
            spawn::join_cgroup(&mut command, group.dir()).map_err(|e| fault(&e))?;
        }
        spawn::die_with_parent(&mut command, Signal::TERM);
        let child = command.spawn().map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                Fault::missing(format!("{what}: {} is not here", command.get_program().display()))
            }
            _ => fault(&error),
        })?;
        Ok(Process { what: what.to_string(), child, log: log.to_path_buf() })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// # Errors
    /// It has ended by itself, with its last words.
    pub(crate) fn runs(&mut self) -> Result<(), Fault> {
        match self.ended() {
            Some(status) => {
                Err(Fault::failed(format!("{} ended with {status}: {}", self.what, self.last_line())))
            }
            None => Ok(()),
        }
    }

    /// Its status, if it has ended.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        if let Some(pid) = i32::try_from(self.pid()).ok().and_then(Pid::from_raw) {
            // ESRCH: it has ended by itself, which is what every caller wants of it.
            let _ = kill_process(pid, signal);
        }
    }

    /// Asks it to end, waits, insists.
    pub(crate) fn stop(&mut self) {
        self.stop_within(STOP_PATIENCE);
    }

    /// The same with a patience of its own.
    pub(crate) fn stop_within(&mut self, patience: Duration) {
        if self.ended().is_some() {
            return;
        }
        self.signal(Signal::TERM);
        let give_up = Instant::now() + patience;
        while self.ended().is_none() {
            if Instant::now() > give_up {
                tracing::warn!(what = self.what, "did not end when asked; killed");
                self.signal(Signal::KILL);
                let _ = self.child.wait();
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// SIGKILL, and wait for the end.
    pub(crate) fn kill(&mut self) {
        self.signal(Signal::KILL);
        let _ = self.child.wait();
    }

    /// The last line it wrote.
    pub(crate) fn last_line(&self) -> String {
        last_line(&self.log)
    }

    /// Waits for the end, looking out for signals, at most `patience`.
    pub(crate) fn wait(&mut self, patience: Duration) -> Result<ExitStatus, Fault> {
        let what = self.what.clone();
        guard::wait_for(patience, || Ok(self.ended()))?
            .ok_or_else(|| Fault::failed(format!("{what} did not end within {} s", patience.as_secs())))
    }

    /// The processes that this one has started and that run.
    pub(crate) fn children(pid: u32) -> Vec<u32> {
        let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
    }

    /// The processor time it and the children it waited for have used, seconds. Read it before it ends.
    pub(crate) fn cpu_s(pid: u32) -> f64 {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // Fields count from the closing bracket: a command name may hold spaces. 14-17 are u, s, cu, cs
        // times.
        let after: Vec<&str> =
            stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
        let ticks: f64 = after.iter().skip(11).take(4).filter_map(|t| t.parse::<f64>().ok()).sum();
        ticks / rustix::param::clock_ticks_per_second() as f64
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The last line with anything in it of a log, at most 300 characters.
pub(crate) fn last_line(log: &Path) -> String {
    let mut tail = Vec::new();
    if let Ok(mut file) = File::open(log) {
        let length = file.metadata().map_or(0, |m| m.len());
        let _ = file.seek(SeekFrom::Start(length.saturating_sub(8192)));
        let _ = file.take(8192).read_to_end(&mut tail);
    }
    let text = String::from_utf8_lossy(&tail);
    let line = text.lines().rev().find(|l| !l.trim().is_empty()).unwrap_or("it said nothing");
    line.trim().chars().take(300).collect()
}

/// Runs a command of ours that prints one JSON value, and returns that. Its own one-line error and exit
/// status are passed on as they are.
pub(crate) fn run_json(
    what: &str,
    mut command: Command,
    patience: Duration,
    scratch: &Path,
) -> Result<serde_json::Value, Fault> {
    let out = tempfile::Builder::new()
        .prefix("out-")
        .tempfile_in(scratch)
        .map_err(|e| Fault::failed(format!("{}: {e}", scratch.display())))?;
    let errors = tempfile::Builder::new()
        .prefix("err-")
        .tempfile_in(scratch)
        .map_err(|e| Fault::failed(format!("{}: {e}", scratch.display())))?;
    let fault = |error: &dyn std::fmt::Display| Fault::failed(format!("{what}: {error}"));
    command.stdin(Stdio::null()).process_group(0);
    command.stdout(out.reopen().map_err(|e| fault(&e))?).stderr(errors.reopen().map_err(|e| fault(&e))?);
    spawn::die_with_parent(&mut command, Signal::TERM);
    let child = command.spawn().map_err(|e| fault(&e))?;
    let mut process = Process { what: what.to_string(), child, log: errors.path().to_path_buf() };
    let status = process.wait(patience)?;
    let mut text = String::new();
    out.reopen().and_then(|mut f| f.read_to_string(&mut text)).map_err(|e| fault(&e))?;
    // A load with failures in it ends with status 1 and a complete result: the failures are what is measured.
    match serde_json::from_str(text.trim()) {
        Ok(value) if status.success() || status.code() == Some(1) => Ok(value),
        Err(error) if status.success() => Err(fault(&format!("its answer is not JSON: {error}"))),
        _ => {
            let line = process.last_line();
            let line = tools::without_name(&line);
            Err(Fault::new(exit_of(status), format!("{what}: {line}")))
        }
    }
}

/// The same exit status, where it is one of ours.
pub(crate) fn exit_of(status: ExitStatus) -> Exit {
    match status.code() {
        Some(2) => Exit::Usage,
        Some(3) => Exit::Permission,
        Some(4) => Exit::Busy,
        Some(5) => Exit::Missing,
        Some(130) => Exit::Interrupted,
        _ => Exit::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_dropped_process_is_gone_and_its_last_words_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let process =
            Process::spawn("a sleeper", sh("echo one; echo two >&2; echo; exec sleep 60"), &log, None)
                .unwrap();
        let pid = process.pid();
        guard::wait_for(Duration::from_secs(5), || Ok(process.last_line().contains("two").then_some(())))
            .unwrap();
        assert_eq!(process.last_line(), "two");
        drop(process);
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
    }

    #[test]
    fn a_program_that_is_not_here_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let fault =
            Process::spawn("x", Command::new("/nowhere/at-all"), &dir.path().join("log"), None).unwrap_err();
        assert_eq!(fault.exit, Exit::Missing);
        assert!(fault.message.contains("/nowhere/at-all"), "{fault}");
    }

    #[test]
    fn json_and_errors_come_through() {
        let dir = tempfile::tempdir().unwrap();
        let run = |script: &str| run_json("it", sh(script), Duration::from_secs(20), dir.path());
        assert_eq!(run("echo '{\"a\": 1}'").unwrap()["a"], 1);
        assert_eq!(
            run("echo '{\"a\": 2}'; exit 1").unwrap()["a"],
            2,
            "a load with failures still has a result"
        );
        let fault = run("echo 'seekless: no drive is called x' >&2; exit 2").unwrap_err();
        assert_eq!((fault.exit, fault.message.as_str()), (Exit::Usage, "it: no drive is called x"));
        assert!(run("echo nonsense").unwrap_err().message.contains("not JSON"));
    }
}
