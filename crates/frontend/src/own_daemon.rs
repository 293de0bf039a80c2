//! A daemon that is started for one command, as its child, and ends with it.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use seekless_base::{Exit, Fault};
use seekless_kernel::twinkey;

use crate::control;

/// Maximum time to start listening.
const START_MAX: Duration = Duration::from_secs(10);

/// Maximum time to end.
const END_MAX: Duration = Duration::from_secs(5);

/// A child daemon. Dropping it ends it.
pub struct OwnDaemon {
    /// Path of its socket.
    pub socket: PathBuf,
    child: Child,
    folder: PathBuf,
}

/// Prefix of the folder of such a daemon, in the temporary folder.
const FOLDER: &str = "seekless-run-";

/// The socket of such a daemon of this user or of root, if there is one.
pub fn another() -> Option<PathBuf> {
    let own = rustix::process::geteuid().as_raw();
    let of_run = |entry: &fs::DirEntry| {
        let named = entry.file_name().to_str().is_some_and(|name| {
            name.strip_prefix(FOLDER).is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_alphanumeric()))
        });
        named && entry.metadata().is_ok_and(|meta| meta.is_dir() && [0, own].contains(&meta.uid()))
    };
    let folders = fs::read_dir(env::temp_dir()).ok()?.filter_map(Result::ok).filter(of_run);
    let is_socket = |path: &PathBuf| fs::metadata(path).is_ok_and(|meta| meta.file_type().is_socket());
    folders.map(|folder| folder.path().join("daemon.sock")).find(is_socket)
}

impl OwnDaemon {
    /// Starts this program with these words, a socket of its own and us as its parent, and waits until it
    /// answers. Its standard output is used only for statistics that should go there (`json`).
    ///
    /// # Errors
    /// The process or the folder cannot be made, or the process ended.
    pub fn start(words: impl IntoIterator<Item = OsString>, json: Option<&Path>) -> Result<OwnDaemon, Fault> {
        let folder = tempfile::Builder::new()
            .prefix(FOLDER)
            .permissions(fs::Permissions::from_mode(0o755))
            .tempdir()
            .map_err(|e| Fault::failed(format!("cannot make a folder for the daemon's socket: {e}")))?
            .keep();
        let socket = folder.join("daemon.sock");
        let failed = |what: String| {
            remove_folder(&folder);
            Fault::failed(what)
        };
        let program =
            env::current_exe().map_err(|e| failed(format!("cannot find the path of this program: {e}")))?;
        let mut command = Command::new(program);
        command.args(words).arg("--socket").arg(&socket);
        command.arg("--parent").arg(std::process::id().to_string());
        // Its options are ours; the configuration file's are those of the daemon that all share.
        command.env("SEEKLESS_CONFIG", "");
        // Its own process group, so that a terminal's Ctrl-C first ends the command it was started for; its
        // messages go to our standard error.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let child = command
            .stdin(Stdio::null())
            .stdout(if json.is_some_and(seekless_output::is_stdout) {
                Stdio::inherit()
            } else {
                Stdio::null()
            })
            .spawn()
            .map_err(|e| failed(format!("cannot start a daemon: {e}")))?;
        let mut daemon = OwnDaemon { socket, child, folder };
        daemon.wait_until_it_answers()?;
        Ok(daemon)
    }

    fn wait_until_it_answers(&mut self) -> Result<(), Fault> {
        let until = Instant::now() + START_MAX;
        loop {
            if control::settings(&self.socket).is_ok() {
                return Ok(());
            }
            let ended = self.child.try_wait().ok().flatten();
            if ended.is_some() || Instant::now() > until {
                let what = "the daemon did not start; its own message is above";
                return Err(Fault::new(ended.map_or(Exit::Failed, exit_of), what));
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// The status of a daemon that did not start is also that of its command.
fn exit_of(ended: ExitStatus) -> Exit {
    let known = [Exit::Usage, Exit::Permission, Exit::Busy, Exit::Missing];
    known.into_iter().find(|exit| ended.code() == Some(*exit as i32)).unwrap_or(Exit::Failed)
}

impl Drop for OwnDaemon {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let until = Instant::now() + END_MAX;
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() > until {
                // A disk that hangs can block one of its threads; the kernel ends the process when the call
                // returns.
                let _ = self.child.kill();
                let _ = self.child.try_wait();
                break;
            }
            thread::sleep(Duration::from_millis(5));
        }
        // The daemon has removed both, unless it was killed.
        let _ = fs::remove_file(&self.socket);
        remove_folder(&self.folder);
    }
}

/// Removes the folder of a socket that is gone, if it contains only files that belong to the socket.
pub fn remove_folder(folder: &Path) {
    let _ = fs::remove_file(folder.join(twinkey::FILE_NAME));
    let _ = fs::remove_dir(folder);
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[test]
    fn a_command_ends_as_its_daemon_did() {
        for (raw, exit) in [
            (2 << 8, Exit::Usage),
            (3 << 8, Exit::Permission),
            (4 << 8, Exit::Busy),
            (5 << 8, Exit::Missing),
            (1 << 8, Exit::Failed),
            (9, Exit::Failed),
        ] {
            assert_eq!(exit_of(ExitStatus::from_raw(raw)), exit, "{raw}");
        }
    }
}
