//! What the tests of live disks share.
#![allow(dead_code, reason = "each test program uses its own part")]

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use rustix::process::{Pid, Signal, kill_process};
use seekless_kernel::loopdev;
use seekless_kernel::topology::MountTable;
use serde_json::Value;

/// The command line of this crate, built as an example beside the tests.
pub(crate) fn program() -> PathBuf {
    let mut path = std::env::current_exe().unwrap();
    path.pop();
    path.pop();
    path.push("examples/vdisk");
    assert!(
        path.exists(),
        "{} is missing: run the tests with `cargo test -p seekless-vdisk`",
        path.display()
    );
    path
}

/// Why the tests of this file cannot run here, if they cannot.
fn lacking() -> Option<&'static str> {
    let usable = |path: &str| OpenOptions::new().read(true).write(true).open(path).is_ok();
    if !rustix::process::geteuid().is_root() {
        return Some("needs root");
    }
    if !usable("/dev/fuse") {
        return Some("needs /dev/fuse");
    }
    if !usable("/dev/loop-control") {
        return Some("needs loop devices");
    }
    None
}

/// A state directory with disks, gone at the end together with them.
pub(crate) struct Bench {
    pub(crate) dir: tempfile::TempDir,
}

impl Bench {
    pub(crate) fn new() -> Option<Bench> {
        if let Some(why) = lacking() {
            seekless_testing::skip::skipped(why);
            return None;
        }
        Some(Bench { dir: tempfile::Builder::new().prefix("svd").tempdir_in("/tmp").unwrap() })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn run(&self, args: &[&str]) -> Output {
        Command::new(program())
            .arg("vdisk")
            .args(args)
            .env("SEEKLESS_STATE", self.path("state"))
            .output()
            .unwrap()
    }

    /// Runs a command that has to succeed and gives its JSON.
    pub(crate) fn json(&self, args: &[&str]) -> Value {
        let mut args = args.to_vec();
        args.push("--json");
        let out = self.run(&args);
        assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
        serde_json::from_slice(&out.stdout).unwrap()
    }

    /// Runs a command that has to fail with `exit` and gives its one line.
    pub(crate) fn fault(&self, exit: i32, args: &[&str]) -> String {
        let out = self.run(args);
        let line = String::from_utf8(out.stderr).unwrap();
        assert_eq!(out.status.code(), Some(exit), "{args:?}: {line}");
        line
    }

    pub(crate) fn up(&self, more: &[&str]) -> Value {
        let mut args = vec!["up", "--name", "d", "--drive", "wd-red-1tb", "--size", "1GiB"];
        args.extend(more);
        self.json(&args)
    }

    /// Nothing of any disk of this bench is left: mounts, loop devices, processes, files.
    pub(crate) fn assert_clean(&self) {
        let ours = self.dir.path();
        let table = MountTable::read().unwrap();
        let mounted: Vec<_> = table.iter().filter(|m| m.target.starts_with(ours)).collect();
        assert!(mounted.is_empty(), "still mounted: {mounted:?}");
        for number in 0..64 {
            let file = loopdev::backing_file(number);
            assert!(file.is_none_or(|f| !f.starts_with(ours)), "loop{number} is still bound");
        }
        assert!(
            !self.path("state").exists(),
            "the state directory is still there: {:?}",
            files_below(&self.path("state"))
        );
        let processes = self.processes();
        assert!(processes.is_empty(), "still running: {processes:?}");
    }

    /// Process numbers whose command line names a path of this bench or whose environment is its own.
    pub(crate) fn processes(&self) -> Vec<u32> {
        let needle = self.dir.path().to_string_lossy().into_owned();
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<u32>().ok()) else { continue };
            let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
            if String::from_utf8_lossy(&environment).contains(&needle) {
                found.push(pid);
            }
        }
        found
    }

    /// Waits until everything is gone: after a kill no command waits for the clearing up.
    pub(crate) fn wait_clean(&self) {
        let patience = Instant::now() + Duration::from_secs(60);
        while Instant::now() < patience && (self.path("state").exists() || !self.processes().is_empty()) {
            std::thread::sleep(Duration::from_millis(20));
        }
        self.assert_clean();
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = self.run(&["down", "--all"]);
    }
}

pub(crate) fn files_below(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    entries.flatten().flat_map(|e| std::iter::once(e.path()).chain(files_below(&e.path()))).collect()
}

pub(crate) fn kill(value: &Value) {
    let pid = Pid::from_raw(value.as_i64().unwrap() as i32).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
}

/// A page-aligned read past the page cache.
pub(crate) fn read_direct(file: &File, offset: u64, len: usize) -> std::io::Result<Vec<u8>> {
    let mut memory = vec![0; len + 4096];
    let skip = memory.as_ptr().align_offset(4096);
    let part = &mut memory[skip..skip + len];
    file.read_exact_at(part, offset)?;
    Ok(part.to_vec())
}

pub(crate) fn open_direct(path: &Path) -> File {
    OpenOptions::new().read(true).custom_flags(OFlags::DIRECT.bits() as i32).open(path).unwrap()
}
