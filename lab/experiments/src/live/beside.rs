//! Programs that run beside a load: `seekless top` in a terminal, and that of another user.

use std::path::Path;

use seekless_base::Fault;

use super::daemon::socket;
use crate::process::Process;
use crate::scenario::Neighbour;
use crate::tools;

/// `seekless top`, looking at a daemon once a second; stopped on drop.
pub(super) struct Top(Process);

impl Top {
    /// Starts it for the daemon that listens in `dir`, in a terminal of a usual size.
    pub(super) fn start(dir: &Path) -> Result<Top, Fault> {
        let line = "stty cols 120 rows 40; exec \"$SEEKLESS\" top --socket \"$SOCKET\"";
        let mut command = tools::find("script")?.command();
        command.args(["-qec", line, "/dev/null"]).env("TERM", "xterm-256color");
        command.env("SEEKLESS", tools::seekless()?).env("SOCKET", socket(dir));
        Process::spawn("seekless top", command, &dir.join("top.log"), None).map(Top)
    }

    /// Processor time that it has used, without that of the terminal.
    ///
    /// # Errors
    /// It has ended.
    pub(super) fn cpu_s(&mut self) -> Result<f64, Fault> {
        self.0.runs()?;
        Ok(Process::children(self.0.pid()).into_iter().map(Process::cpu_s).sum())
    }
}

/// Starts the program of another user beside the daemon that listens in `dir`.
pub(super) fn start(neighbour: Neighbour, dir: &Path) -> Result<Process, Fault> {
    let mut command = tools::command(&["hostile"])?;
    if neighbour == Neighbour::Hostile {
        command.arg(socket(dir));
    }
    Process::spawn("the program of another user", command, &dir.join("neighbour.log"), None)
}
