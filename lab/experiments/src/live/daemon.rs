//! The daemon of an arm, started inside the arm's control group and asked by `seekless daemon status`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use seekless_base::Fault;
use serde_json::Value;

use super::Bench;
use crate::guard;
use crate::memory_group::MemoryGroup;
use crate::process::{Process, run_json};
use crate::scenario::{Arm, Door, Mode};
use crate::tools;

/// How long a daemon may take to listen.
const START_PATIENCE: Duration = Duration::from_secs(10);

/// How long it may take to have the metadata of a disk's tree in memory.
const METADATA_PATIENCE: Duration = Duration::from_secs(1200);

/// How long a killed one may take to be gone.
const GONE_PATIENCE: Duration = Duration::from_secs(10);

/// A daemon; stopped on drop.
#[derive(Debug)]
pub(crate) struct Daemon {
    pub(crate) process: Process,
    socket: PathBuf,
    scratch: PathBuf,
}

impl Daemon {
    /// Starts the arm's: a daemon for shims, or `seekless watch` or `observe` on the bench's disks.
    pub(crate) fn of(
        bench: &Bench<'_>,
        arm: &Arm,
        dir: &Path,
        group: Option<&MemoryGroup>,
    ) -> Result<Daemon, Fault> {
        let mounts: Vec<&Path> = match arm.door {
            Door::Shim => Vec::new(),
            Door::Watch | Door::Observe => bench.mounts(),
        };
        let trees = if arm.keep_metadata { bench.mounts() } else { Vec::new() };
        let kept: Vec<String> =
            trees.iter().map(|tree| format!("--keep-metadata={}", tree.display())).collect();
        let kept: Vec<&str> = kept.iter().map(String::as_str).collect();
        let daemon = Daemon::begin(arm, dir, (!bench.ground.block, &mounts, &kept), group)?;
        if arm.keep_metadata {
            daemon.wait_for_metadata()?;
        }
        Ok(daemon)
    }

    /// `seekless watch` on one folder, with further options.
    pub(crate) fn watch(arm: &Arm, dir: &Path, folder: &Path, options: &[&str]) -> Result<Daemon, Fault> {
        Daemon::begin(arm, dir, (false, &[folder], options), None)
    }

    /// Starts a daemon for `arm`, listening in `dir`.
    pub(crate) fn start(
        arm: &Arm,
        dir: &Path,
        tree: bool,
        group: Option<&MemoryGroup>,
    ) -> Result<Daemon, Fault> {
        Daemon::begin(arm, dir, (tree, &[], &[]), group)
    }

    fn begin(
        arm: &Arm,
        dir: &Path,
        (tree, watched, options): (bool, &[&Path], &[&str]),
        group: Option<&MemoryGroup>,
    ) -> Result<Daemon, Fault> {
        let socket = socket(dir);
        let door = if watched.is_empty() { Door::Shim } else { arm.door }.command();
        let mut command =
            tools::command(&[door, "--mode", arm.mode.unwrap_or(Mode::Both).word(), "--socket"])?;
        command.arg(&socket).args(watched).args(options);
        command.args(["--ahead", if arm.ahead { "on" } else { "off" }]);
        if let Some(prefetch) = arm.prefetch {
            command.args(["--prefetch", &prefetch.to_string()]);
        }
        if let Some(order) = arm.order {
            command.args(["--order", order.word()]);
        }
        if let Some(queue) = arm.queue {
            command.args(["--queue", &queue.to_string()]);
        }
        if let Some(reads) = arm.in_flight {
            command.arg(format!("--parameter=in-flight={reads}"));
        }
        if arm.answer_late {
            command.arg("--parameter=answer-late=true");
        }
        if arm.single_queue {
            command.arg("--parameter=single-queue=true");
        }
        command.args(&arm.daemon);
        if tree {
            // A tree lies on no block device that could say it rotates.
            command.arg("--include-ssd");
        } else {
            // What it learns of a software disk ends with the run.
            command.env("SEEKLESS_PROFILES", dir.join("profiles"));
        }
        // A daemon that was killed has left its socket; what counts is a new one in its place.
        let left = identity(&socket);
        let process = Process::spawn("the daemon", command, &dir.join("daemon.log"), group)?;
        let mut daemon = Daemon { process, socket, scratch: dir.to_path_buf() };
        let up = guard::wait_for(START_PATIENCE, || match daemon.process.ended() {
            Some(_) => {
                Err(Fault::failed(format!("the daemon does not start: {}", daemon.process.last_line())))
            }
            None => {
                let listens = identity(&daemon.socket).is_some_and(|now| Some(now) != left);
                // Files opened before the folders are marked would not be announced.
                let marked = watched.is_empty()
                    || std::fs::read_to_string(dir.join("daemon.log"))
                        .is_ok_and(|log| log.contains("watching") || log.contains("observing"));
                Ok((listens && marked).then_some(()))
            }
        })?;
        match up {
            Some(()) => Ok(daemon),
            None => Err(Fault::failed("the daemon does not listen within 10 s")),
        }
    }

    /// Returns when it has gone through the trees whose metadata it keeps, as one that runs for days has.
    fn wait_for_metadata(&self) -> Result<(), Fault> {
        let rounds = || Ok(self.status()?["metadata"]["rounds"].as_u64().filter(|rounds| *rounds > 0));
        guard::wait_for(METADATA_PATIENCE, rounds)?
            .map(drop)
            .ok_or_else(|| Fault::failed("the daemon has not gone through the disk's tree within 20 min"))
    }

    /// Its own report.
    pub(crate) fn status(&self) -> Result<Value, Fault> {
        let mut command = tools::command(&["daemon", "status", "--json", "--socket"])?;
        command.arg(&self.socket);
        run_json("daemon status", command, Duration::from_secs(10), &self.scratch)
    }

    /// Its process and those it has started: `watch` is a supervisor with a worker under it.
    pub(crate) fn pids(&self) -> Vec<u32> {
        let pid = self.process.pid();
        std::iter::once(pid).chain(Process::children(pid)).collect()
    }

    /// SIGKILL to its first process; returns when all of them are gone, whose threads may still be in the
    /// kernel, or after [`GONE_PATIENCE`].
    pub(crate) fn kill(&mut self) -> Result<(), Fault> {
        let pids = self.pids();
        self.process.kill();
        // The folder of descriptors of a process that has ended cannot be read, even while it waits for its
        // parent.
        let gone = |pid: &u32| !Path::new(&format!("/proc/{pid}/fd/0")).exists();
        guard::wait_for(GONE_PATIENCE, || Ok(pids.iter().all(gone).then_some(()))).map(drop)
    }

    /// Takes its socket away under it.
    pub(crate) fn remove_socket(&self) {
        let _ = std::fs::remove_file(&self.socket);
    }
}

/// What tells a file from another that had its name before.
fn identity(path: &Path) -> Option<(u64, i64, i64)> {
    use std::os::unix::fs::MetadataExt;
    std::fs::symlink_metadata(path).ok().map(|m| (m.ino(), m.ctime(), m.ctime_nsec()))
}

/// Where the daemon of the arm in `dir` listens.
pub(super) fn socket(dir: &Path) -> PathBuf {
    dir.join("daemon.sock")
}

/// What the programs of an arm need in their environment: nothing, unless the arm's door is the shim.
pub(crate) fn preload(arm: &Arm, dir: &Path) -> Result<Vec<(String, String)>, Fault> {
    if arm.mode.is_some() && arm.door == Door::Shim { environment(dir) } else { Ok(Vec::new()) }
}

/// What a server needs in its environment to be helped by the daemon in `dir`.
pub(crate) fn environment(dir: &Path) -> Result<Vec<(String, String)>, Fault> {
    let text = |path: PathBuf| path.to_string_lossy().into_owned();
    Ok(vec![("LD_PRELOAD".into(), text(tools::shim()?)), ("SEEKLESS_SOCKET".into(), text(socket(dir)))])
}
