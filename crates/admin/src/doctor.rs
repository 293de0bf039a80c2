//! `seekless doctor`: is the shim hooked in, and what would help here?
//!
//! A shim that is not loaded cannot say so; that must be checked from outside. With `--pid` the doctor reads
//! `/proc/PID` and reports whether the shim is mapped there, whether the daemon it would use answers, and
//! which reads of that process bypass the shim. Without, it describes the machine: disks, their settings, the
//! daemon. In both cases it recommends one of `run`, `watch`, `observe` and `disk tune`, and `observe` as the
//! first step if the kernel supports it.
//!
//! Exit status: 0 if all is well (the shim is hooked in and the daemon answers; the daemon answers), 1 if
//! not, 5 if there is no such process, 3 if it may not be examined.

mod container;
mod elf;
mod machine;
pub(crate) mod process;
mod recommend;

use std::fmt::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use seekless_base::{Exit, Fault};
use seekless_output::{JsonOption, pretty, write_line};
use serde::Serialize;

use seekless_frontend::advice::Finding;
use seekless_frontend::socket::SocketOption;
use seekless_frontend::{control, socket};

/// Say whether the shim is in a process, and what would help on this machine.
#[derive(Args, Clone, Debug)]
pub struct DoctorArgs {
    /// Process to look at [default: none, look at the machine]
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) pid: Option<u32>,
    #[command(flatten)]
    pub(crate) at: SocketOption,
    #[command(flatten)]
    pub(crate) json: JsonOption,
}

/// Whether a daemon answers.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct DaemonState {
    socket: PathBuf,
    answers: bool,
    /// Its mode, if it answers.
    mode: Option<String>,
    /// Why it does not answer.
    error: Option<String>,
    /// What it serves without the shim, if it watches or observes.
    #[serde(skip_serializing_if = "Option::is_none")]
    without_hook: Option<WithoutHook>,
}

/// A door beside the socket.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct WithoutHook {
    /// `watch` or `observe`.
    command: &'static str,
    folders: Vec<String>,
}

impl WithoutHook {
    /// `None` if the daemon has no other door, or does not report it.
    fn of(socket: &Path) -> Option<WithoutHook> {
        let report = control::status(socket).ok()?.1;
        let watch = report.watch.map(|w| WithoutHook { command: "watch", folders: w.folders });
        watch.or(report.observe.map(|o| WithoutHook { command: "observe", folders: o.folders }))
    }

    fn describe(&self) -> String {
        let does = if self.command == "watch" { "serves" } else { "reads ahead for" };
        format!("`seekless {}` {does} what reads under {}", self.command, self.folders.join(" "))
    }
}

impl DaemonState {
    fn at(socket: &Path) -> DaemonState {
        let (answers, mode, error) = match control::settings(socket) {
            Ok(settings) => (true, Some(settings.mode.name().to_string()), None),
            Err(error) => (false, None, Some(error.to_string())),
        };
        let without_hook = if answers { WithoutHook::of(socket) } else { None };
        DaemonState { socket: socket.to_path_buf(), answers, mode, error, without_hook }
    }

    /// The daemon at the default place.
    fn usual() -> DaemonState {
        socket::client_path().map_or_else(
            |fault| DaemonState {
                socket: seekless_kernel::state::path().join("daemon.sock"),
                answers: false,
                mode: None,
                error: Some(fault.to_string()),
                without_hook: None,
            },
            |socket| DaemonState::at(&socket),
        )
    }

    fn describe(&self) -> String {
        match (&self.mode, &self.error) {
            (Some(mode), _) => {
                let also =
                    self.without_hook.as_ref().map_or(String::new(), |w| format!("; {}", w.describe()));
                format!("a daemon answers at {} (mode {mode}){also}", self.socket.display())
            }
            (None, Some(error)) => error.clone(),
            (None, None) => String::new(),
        }
    }
}

/// `seekless doctor`.
///
/// # Errors
/// There is no such process, or it may not be looked at.
pub fn run_doctor(args: DoctorArgs) -> Result<Exit, Fault> {
    let (well, text, json) = match args.pid {
        Some(pid) => {
            let facts = process::Facts::read(pid)?;
            let daemon = match &args.at.socket {
                Some(socket) => DaemonState::at(socket),
                None => daemon_of(&facts),
            };
            let report = process::diagnose(&facts, daemon, recommend::Doors::here());
            (report.hooked && report.daemon.answers, report.describe(), pretty(&report)?)
        }
        None => {
            let daemon = args.at.socket.as_deref().map_or_else(DaemonState::usual, DaemonState::at);
            let report = machine::examine(daemon, recommend::Doors::here());
            (report.daemon.answers, report.describe(), pretty(&report)?)
        }
    };
    match args.json.path() {
        Some(to) => seekless_output::write(to, json)?,
        None => seekless_output::print(text)?,
    }
    Ok(if well { Exit::Ok } else { Exit::Failed })
}

/// The daemon of a process: one that it has used and that still answers, else the one that its environment
/// names.
fn daemon_of(facts: &process::Facts) -> DaemonState {
    let talked_to = facts.daemons.iter().map(|socket| DaemonState::at(socket)).find(|d| d.answers);
    talked_to.unwrap_or_else(|| {
        let named = facts.socket.clone().or(facts.daemons.last().cloned());
        named.as_deref().map_or_else(DaemonState::usual, DaemonState::at)
    })
}

fn describe_findings(findings: &[Finding], text: &mut String) {
    for finding in findings {
        let mark = if finding.blocks { "!!" } else { " -" };
        let _ = write_line!(text, "{mark} {}", finding.what);
        let _ = write_line!(text, "   {}", finding.advice);
    }
}
