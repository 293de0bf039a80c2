//! Commands that moved to `seekless-lab`: they start that program in place of this one.
//!
//! They are hidden, and will be removed in the next release.

use std::env;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use clap::{Args, Subcommand};
use seekless_base::Fault;
use seekless_program::LogFormat;

/// The other program.
const PROGRAM: &str = "seekless-lab";

/// A folder that is in no PATH, for packages that install the program there.
const FOLDER: &str = "/usr/lib/seekless";

/// A command of the laboratory.
#[derive(Debug, Subcommand)]
pub(crate) enum LaboratoryCommand {
    /// Now `seekless-lab demo`
    #[command(hide = true, disable_help_flag = true)]
    Demo(Words),
    /// Now `seekless-lab plan`
    #[command(hide = true, disable_help_flag = true)]
    Plan(Words),
    /// Now `seekless-lab bitrates`
    #[command(hide = true, disable_help_flag = true)]
    Bitrates(Words),
    /// Now `seekless-lab sim`
    #[command(hide = true, disable_help_flag = true)]
    Sim(Words),
    /// Now `seekless-lab vdisk`
    #[command(hide = true, disable_help_flag = true)]
    Vdisk(Words),
    /// Now `seekless-lab load`
    #[command(hide = true, disable_help_flag = true)]
    Load(Words),
    /// Now `seekless-lab run`, `list`, `report` and so on
    #[command(hide = true, disable_help_flag = true)]
    Lab(Words),
}

/// The words behind the command, for the other program.
#[derive(Args, Debug)]
pub(crate) struct Words {
    /// Words of `seekless-lab`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

impl LaboratoryCommand {
    /// The words of `seekless-lab`.
    pub(crate) fn into_args(self) -> Vec<OsString> {
        let (name, words) = match self {
            LaboratoryCommand::Demo(words) => (Some("demo"), words),
            LaboratoryCommand::Plan(words) => (Some("plan"), words),
            LaboratoryCommand::Bitrates(words) => (Some("bitrates"), words),
            LaboratoryCommand::Sim(words) => (Some("sim"), words),
            LaboratoryCommand::Vdisk(words) => (Some("vdisk"), words),
            LaboratoryCommand::Load(words) => (Some("load"), words),
            LaboratoryCommand::Lab(words) => (None, words),
        };
        name.map(OsString::from).into_iter().chain(words.words).collect()
    }

    /// Replaces this process by `seekless-lab`; returns only on failure.
    pub(crate) fn start(self, log: LogFormat) -> Fault {
        let words = self.into_args();
        let of = words.first().map_or(String::new(), |word| format!(" {}", word.to_string_lossy()));
        let missing = |why: &str| {
            Fault::missing(format!(
                "`{PROGRAM}{of}` {why}: install the package {PROGRAM} (in a checkout: cargo build --release -p {PROGRAM})"
            ))
        };
        let Some(program) = places().find(|program| program.is_file()) else {
            return missing("is not installed");
        };
        let mut command = Command::new(&program);
        if log == LogFormat::Json {
            command.args(["--log-format", "json"]);
        }
        let error = command.args(words).exec();
        if error.kind() == ErrorKind::NotFound {
            return missing("cannot be started");
        }
        Fault::failed(format!("{}: {error}", program.display()))
    }
}

/// Where the program may be: beside this one, in PATH, in its folder.
fn places() -> impl Iterator<Item = PathBuf> {
    let beside = env::current_exe().ok().map(|program| program.with_file_name(PROGRAM));
    let path = env::var_os("PATH").unwrap_or_default();
    // An empty part of PATH means the current folder, to which any user may have written.
    let folders: Vec<PathBuf> = env::split_paths(&path).filter(|folder| folder.is_absolute()).collect();
    let folders = folders.into_iter().chain([PathBuf::from(FOLDER)]);
    beside.into_iter().chain(folders.map(|folder| folder.join(PROGRAM)))
}
