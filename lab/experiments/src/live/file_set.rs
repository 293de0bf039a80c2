//! A program beside the load that reads every file below the server's root, in any order: `seekless cat-set`.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use seekless_base::Fault;
use serde_json::Value;

use super::daemon::{Daemon, environment};
use crate::memory_group::MemoryGroup;
use crate::process::Process;
use crate::results::Row;
use crate::scenario::FileSetBy;
use crate::tools;

/// The program at work; stopped on drop.
pub(super) struct FileSet {
    process: Process,
    by: FileSetBy,
    /// When counting began, with what had been written, and what the daemon had spent on file sets and in
    /// all.
    counting: Option<(Instant, f64, (f64, f64))>,
}

impl FileSet {
    /// Starts it. When it is through with all files it begins anew.
    pub(super) fn start(
        by: FileSetBy,
        root: &Path,
        dir: &Path,
        group: Option<&MemoryGroup>,
    ) -> Result<FileSet, Fault> {
        let alone = if by == FileSetBy::Itself { "--no-daemon" } else { "" };
        let line = format!("while \"$SEEKLESS\" cat-set {alone} .; do :; done | cat >/dev/null");
        let mut command = Command::new("sh");
        command.args(["-ec", &line]).current_dir(root).env("SEEKLESS", tools::seekless()?);
        // Its own reads are no client's: it goes without the shim.
        let socket = environment(dir)?.into_iter().filter(|(name, _)| name == "SEEKLESS_SOCKET");
        command.envs(socket);
        let process = Process::spawn("the file set", command, &dir.join("file-set.log"), group)?;
        Ok(FileSet { process, by, counting: None })
    }

    /// From now on it counts.
    pub(super) fn begin_counting(&mut self, daemon: Option<&Daemon>) {
        self.counting = Some((Instant::now(), self.written(), spent(daemon)));
    }

    /// Bytes that the programs under the shell have written.
    fn written(&self) -> f64 {
        let all = Process::children(self.process.pid()).into_iter().filter_map(|pid| {
            let text = std::fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
            text.lines().find_map(|line| line.strip_prefix("wchar: "))?.trim().parse::<f64>().ok()
        });
        // `cat` has written all that came to it.
        all.fold(0.0, f64::max)
    }

    /// Ends it; what it took, and what part of the disks' time it had.
    pub(super) fn account(self, row: &mut Row, daemon: Option<&Daemon>) {
        let Some((since, written, (of_sets, all))) = self.counting else { return };
        let seconds = since.elapsed().as_secs_f64().max(1e-9);
        let taken = (self.written() - written).max(0.0);
        row.metrics.insert("file_set_mb_s".into(), taken / 1e6 / seconds);
        if self.by == FileSetBy::Daemon {
            let now = spent(daemon);
            let share = (now.0 - of_sets) / (now.1 - all).max(1e-9);
            row.metrics.insert("file_set_share".into(), share.clamp(0.0, 1.0));
        }
    }
}

/// Milliseconds that the daemon's disks have read for file sets, and in all.
fn spent(daemon: Option<&Daemon>) -> (f64, f64) {
    let Some(status) = daemon.and_then(|daemon| daemon.status().ok()) else { return (0.0, 0.0) };
    let sum = |pointer: &str| -> f64 {
        let disks = status["disks"].as_array().into_iter().flatten();
        disks.filter_map(|disk| disk.pointer(pointer).and_then(Value::as_f64)).sum()
    };
    (sum("/file_sets/disk_ms"), sum("/disk_ms"))
}
