//! The machine a run was made on.

use std::fs;
use std::process::Command;

use serde::{Deserialize, Serialize};

/// What a reader of figures needs to know of the machine.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Environment {
    /// Kernel release.
    pub kernel: String,
    /// Processors we may run on.
    pub cores: usize,
    /// Their model.
    pub processor: String,
    /// Memory of the machine, bytes.
    pub memory: u64,
    /// Seekless version and, in a checkout, commit.
    pub version: String,
    /// Start of the run, seconds since 1970 UTC.
    pub started_unix_s: u64,
    /// Length of the run so far, seconds.
    pub elapsed_s: f64,
    /// Servers and their versions.
    pub servers: Vec<String>,
}

impl Environment {
    /// Looks around.
    pub fn here() -> Environment {
        let started = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Environment {
            kernel: read("/proc/sys/kernel/osrelease"),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            processor: field("/proc/cpuinfo", "model name"),
            memory: field("/proc/meminfo", "MemTotal")
                .split(' ')
                .next()
                .and_then(|kb| kb.parse().ok())
                .unwrap_or(0_u64)
                << 10,
            version: format!(
                "{}{}",
                env!("CARGO_PKG_VERSION"),
                commit().map_or(String::new(), |c| format!(" ({c})"))
            ),
            started_unix_s: started.map_or(0, |d| d.as_secs()),
            elapsed_s: 0.0,
            servers: Vec::new(),
        }
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_string()
}

fn field(path: &str, name: &str) -> String {
    let text = read(path);
    let line = text.lines().find(|l| l.starts_with(name)).unwrap_or_default();
    line.split_once(':').map_or("", |(_, value)| value).trim().to_string()
}

/// What a program is built from. Documents and recorded results do not make a build differ from its commit.
const SOURCES: [&str; 6] = [":/crates", ":/lab", ":/drives", ":/scenarios", ":/Cargo.toml", ":/Cargo.lock"];

/// The commit of the checkout the program was built in, if it still lies in one; `-dirty` if its sources
/// differ.
fn commit() -> Option<String> {
    let dir = std::env::current_exe().ok()?.parent()?.to_path_buf();
    let git = |args: &[&str]| Command::new("git").args(args).current_dir(&dir).output().ok();
    let output = git(&["rev-parse", "--short=12", "HEAD"]).filter(|o| o.status.success())?;
    let commit = String::from_utf8(output.stdout).ok()?.trim().to_string();
    let same = git(&[&["diff", "--quiet", "HEAD", "--"], &SOURCES[..]].concat())?.status.success();
    (!commit.is_empty()).then(|| if same { commit } else { commit + "-dirty" })
}
