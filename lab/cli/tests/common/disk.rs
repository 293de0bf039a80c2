//! A disk of `seekless-lab vdisk`, two hundred times as fast as life, with files that are functions of their
//! names.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use seekless_kernel::extents;

use super::SEEKLESS_LAB;

/// The disk, taken down on drop.
pub struct Disk {
    dir: tempfile::TempDir,
    pub loop_number: u64,
}

impl Disk {
    /// With these files (name, length); `None`, with a word, where there can be no disk.
    pub fn up(files: &[(&str, u64)]) -> Option<Disk> {
        let dir = tempfile::Builder::new().prefix("svd").tempdir_in("/tmp").unwrap();
        let mut disk = Disk { dir, loop_number: 0 };
        let (mount, trace, manifest) = (disk.mount(), disk.trace(), disk.path("manifest"));
        let like = ["vdisk", "up", "--drive", "wd-red-1tb", "--size", "1GiB", "--speedup", "200", "--json"];
        let up = disk.seekless(&like, &[("--mount", &mount), ("--trace", &trace)]);
        if !up.status.success() {
            let why = String::from_utf8_lossy(&up.stderr);
            assert_ne!(up.status.code(), Some(1), "{why}");
            println!("skipped: {why}");
            return None;
        }
        let up: serde_json::Value = serde_json::from_slice(&up.stdout).unwrap();
        disk.loop_number = up["loop_number"].as_u64().unwrap();
        let lines: String = files.iter().map(|(name, bytes)| format!("{bytes} {name}\n")).collect();
        std::fs::write(&manifest, lines).unwrap();
        disk.must(&["vdisk", "populate"], &[("--manifest", &manifest)]);
        Some(disk)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Where its files are.
    pub fn mount(&self) -> PathBuf {
        self.path("mnt")
    }

    /// Its commands, one a line; all of them after [`Disk::flush`].
    pub fn trace(&self) -> PathBuf {
        self.path("trace.csv")
    }

    /// Has the trace written.
    pub fn flush(&self) {
        self.must(&["vdisk", "stats"], &[]);
    }

    /// The page at this offset of a file can no longer be read. What of the file is in memory is forgotten.
    pub fn break_page(&self, name: &str, offset: u64) {
        let path = self.mount().join(name);
        let file = std::fs::File::open(&path).unwrap();
        let address = extents::extents(file.as_fd(), offset).unwrap().address_of(offset).unwrap();
        self.must(&["vdisk", "fault", "--eio", &format!("{address}+4KiB")], &[]);
        super::forget(&path);
    }

    /// Every page can be read.
    pub fn mend(&self) {
        self.must(&["vdisk", "fault", "--clear"], &[]);
    }

    fn must(&self, args: &[&str], paths: &[(&str, &Path)]) {
        let done = self.seekless(args, paths);
        assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
    }

    fn seekless(&self, args: &[&str], paths: &[(&str, &Path)]) -> Output {
        let mut command = Command::new(SEEKLESS_LAB);
        command.args(args).args(["--name", "d"]).env("SEEKLESS_STATE", self.path("state"));
        for (option, path) in paths {
            command.arg(option).arg(path);
        }
        command.output().unwrap()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.seekless(&["vdisk", "down"], &[]);
    }
}
