//! The daemon of an arm, started inside the arm's control group and asked by `seekless daemon status`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use seekless_kernel::cgroup::MemoryGroup;
use seekless_units::{Exit, Fault};
use serde_json::Value;

use crate::guard;
use crate::process::{Process, run_json};
use crate::scenario::{Arm, Mode};
use crate::tools;

/// How long a daemon may take to listen.
const START_PATIENCE: Duration = Duration::from_secs(10);

/// A daemon; stopped on drop.
#[derive(Debug)]
pub(crate) struct Daemon {
    pub(crate) process: Process,
    socket: PathBuf,
    scratch: PathBuf,
}

impl Daemon {
    /// Starts one for `arm`, listening in `dir`.
    pub(crate) fn start(
        arm: &Arm,
        dir: &Path,
        tree: bool,
        group: Option<&MemoryGroup>,
    ) -> Result<Daemon, Fault> {
        let socket = socket(dir);
        let mut command =
            tools::command(&["daemon", "--mode", arm.mode.unwrap_or(Mode::Both).word(), "--socket"])?;
        command.arg(&socket);
        if let Some(prefetch) = arm.prefetch {
            command.args(["--prefetch", &prefetch.to_string()]);
        }
        if let Some(order) = arm.order {
            command.args(["--order", order.word()]);
        }
        if let Some(queue) = arm.queue {
            command.args(["--queue", &queue.to_string()]);
        }
        if arm.single_queue {
            command.arg("--single-queue");
        }
        if tree {
            // A tree lies on no block device that could say it rotates.
            command.arg("--include-ssd");
        }
        let process = Process::spawn("the daemon", command, &dir.join("daemon.log"), group)?;
        let mut daemon = Daemon { process, socket, scratch: dir.to_path_buf() };
        let up = guard::wait_for(START_PATIENCE, || match daemon.process.ended() {
            Some(_) => {
                let message = format!("the daemon does not start: {}", daemon.process.last_line());
                Err(Fault::new(Exit::Failed, message))
            }
            None => Ok(std::os::unix::net::SocketAddr::from_pathname(&daemon.socket)
                .is_ok()
                .then_some(())
                .filter(|()| daemon.socket.exists())),
        })?;
        match up {
            Some(()) => Ok(daemon),
            None => Err(Fault::new(Exit::Failed, "the daemon does not listen within 10 s")),
        }
    }

    /// Its own report.
    pub(crate) fn status(&self) -> Result<Value, Fault> {
        let mut command = tools::command(&["daemon", "status", "--json", "--socket"])?;
        command.arg(&self.socket);
        run_json("daemon status", command, Duration::from_secs(10), &self.scratch)
    }

    /// Takes its socket away under it.
    pub(crate) fn remove_socket(&self) {
        let _ = std::fs::remove_file(&self.socket);
    }
}

/// Where the daemon of the arm in `dir` listens.
fn socket(dir: &Path) -> PathBuf {
    dir.join("daemon.sock")
}

/// What a server needs in its environment to be helped by the daemon in `dir`.
pub(crate) fn environment(dir: &Path) -> Result<Vec<(String, String)>, Fault> {
    let text = |path: PathBuf| path.to_string_lossy().into_owned();
    Ok(vec![("LD_PRELOAD".into(), text(tools::shim()?)), ("SEEKLESS_SOCKET".into(), text(socket(dir)))])
}
