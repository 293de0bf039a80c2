//! Where a running disk is recorded, and how two commands keep out of each other's way.
//!
//! Each disk has a directory `vdisk/NAME` in the state directory: `disk.json` (what it is), `control.sock`, `fuse` (the
//! mount point of the file below the loop device), `log`. Beside it lies `NAME.lock`, locked as long as the disk's
//! supervisor lives: the kernel drops the lock however the supervisor ends, so a directory without a held lock is a
//! disk that died, and the process that takes the lock may clear it away.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use seekless_base::{Exit, Fault};
use seekless_kernel::state;
use serde::{Deserialize, Serialize};

use crate::config::DiskConfig;
pub use crate::fault::cannot;

/// The state directory ([`seekless_kernel::state`]).
///
/// # Errors
/// `Permission`: another user could have written what is in it; nothing in it is trusted.
fn state_root() -> Result<PathBuf, Fault> {
    state::folder().map_err(|e| Fault::new(Exit::Permission, e.to_string()))
}

/// What is known of a disk that is up or coming up.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DiskRecord {
    /// As it was asked for.
    #[serde(flatten)]
    pub config: DiskConfig,
    /// The drive's label in the catalogue.
    pub drive_label: String,
    /// The process that holds it all together; end it to take the disk down.
    pub pid: u32,
    /// When that process started, in clock ticks since the machine did: another one may have its number by now.
    #[serde(default)]
    pub started: Option<u64>,
    /// The process that serves the bytes.
    pub worker_pid: Option<u32>,
    /// `/dev/loopN`, absent for a tree.
    pub device: Option<PathBuf>,
    /// N of `/dev/loopN`.
    pub loop_number: Option<u32>,
    /// Whether the mount directory was made for the disk and goes with it.
    pub mount_created: bool,
    /// Settings of the loop device's queue as they were before, to be put back: file name and value.
    pub queue_before: Vec<(String, String)>,
}

/// The places of one disk.
#[derive(Clone, Debug)]
pub struct DiskDir {
    name: String,
    dir: PathBuf,
}

/// Longest name of a disk.
const NAME_MAX: usize = 48;

impl DiskDir {
    /// The places of disk `name`; nothing is made yet.
    ///
    /// # Errors
    /// `Usage` if the name is not 1 to 48 of letters, digits, `.`, `_`, `-` (not first), or its socket's path too long;
    /// `Permission` if the state directory is not to be trusted.
    pub fn new(name: &str) -> Result<DiskDir, Fault> {
        let good = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if name.is_empty() || name.len() > NAME_MAX || !name.chars().all(good) || name.starts_with(['.', '-'])
        {
            let message = format!(
                "`{name}` cannot name a disk: use 1 to {NAME_MAX} letters, digits, `.`, `_` or `-`, as in --name disk1"
            );
            return Err(Fault::new(Exit::Usage, message));
        }
        let dir = state_root()?.join("vdisk").join(name);
        let dir = std::path::absolute(&dir).unwrap_or(dir);
        // A Unix socket's path has 108 bytes, the final zero among them.
        if dir.join("control.sock").as_os_str().len() > 107 {
            let message =
                format!("{} is too long a path for a socket: set SEEKLESS_STATE shorter", dir.display());
            return Err(Fault::new(Exit::Usage, message));
        }
        Ok(DiskDir { name: name.to_string(), dir })
    }

    /// Every disk that has a directory, running or not, by name.
    ///
    /// # Errors
    /// `Permission`: the state directory is not to be trusted.
    pub fn all() -> Result<Vec<DiskDir>, Fault> {
        let Ok(entries) = fs::read_dir(state_root()?.join("vdisk")) else { return Ok(Vec::new()) };
        let mut found: Vec<DiskDir> = entries
            .filter_map(Result::ok)
            .filter(|e| e.file_type().is_ok_and(|t| t.is_dir()))
            .filter_map(|e| DiskDir::new(e.file_name().to_str()?).ok())
            .collect();
        found.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }

    /// The disk's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The directory itself.
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// The control socket.
    pub fn socket(&self) -> PathBuf {
        self.dir.join("control.sock")
    }

    /// Where the file below the loop device is mounted.
    pub fn fuse(&self) -> PathBuf {
        self.dir.join("fuse")
    }

    /// What the background processes have to say.
    pub fn log(&self) -> PathBuf {
        self.dir.join("log")
    }

    fn lock_path(&self) -> PathBuf {
        self.dir.with_file_name(format!("{}.lock", self.name))
    }

    /// Makes the directory, readable by its owner alone.
    ///
    /// # Errors
    /// `Permission` or `Failed`, naming the path.
    pub fn create(&self) -> Result<(), Fault> {
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(self.dir.join("fuse"));
        made.map_err(|e| cannot("make", &self.dir, &e))
    }

    /// Takes the lock, `None` if the disk's supervisor holds it.
    ///
    /// # Errors
    /// The state directory cannot be made or written.
    pub fn try_lock(&self) -> Result<Option<Lock>, Fault> {
        let path = self.lock_path();
        let parent = path.parent().unwrap_or(Path::new("/"));
        // The process that releases the last lock removes the folders and the lock file (below), possibly now: try again.
        let passing =
            |e: &io::Error| matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::AlreadyExists);
        let mut met = None;
        for _ in 0..100 {
            // Made first and looked at then: nobody else can have made it in between.
            match state::made_folder() {
                Ok(_) => {}
                Err(e) if passing(&e) => continue,
                Err(e) => return Err(Fault::new(Exit::Permission, e.to_string())),
            }
            let opened = fs::DirBuilder::new()
                .recursive(true)
                .mode(0o755)
                .create(parent)
                .and_then(|()| OpenOptions::new().create(true).truncate(false).write(true).open(&path));
            let file = match opened {
                Ok(file) => file,
                Err(e) if passing(&e) => {
                    met = Some(e);
                    continue;
                }
                Err(e) => return Err(cannot("write", &path, &e)),
            };
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
                Err(e) => return Err(cannot("lock", &path, &e.into())),
            }
            let same = match (file.metadata(), fs::metadata(&path)) {
                (Ok(ours), Ok(there)) => (ours.dev(), ours.ino()) == (there.dev(), there.ino()),
                _ => false,
            };
            met = None;
            if same {
                return Ok(Some(Lock { path, _file: file }));
            }
        }
        met.map_or(Ok(None), |e| Err(cannot("write", &path, &e)))
    }

    /// Whether a supervisor holds the lock.
    pub fn running(&self) -> bool {
        let Ok(file) = File::open(self.lock_path()) else { return false };
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) == Err(rustix::io::Errno::WOULDBLOCK)
    }

    /// The record, if there is a readable one.
    pub fn record(&self) -> Option<DiskRecord> {
        serde_json::from_slice(&fs::read(self.dir.join("disk.json")).ok()?).ok()
    }

    /// Writes the record, whole or not at all.
    ///
    /// # Errors
    /// `Failed`, naming the path.
    pub fn write_record(&self, record: &DiskRecord) -> Result<(), Fault> {
        let (path, fresh) = (self.dir.join("disk.json"), self.dir.join("disk.json.new"));
        let text = serde_json::to_vec_pretty(record).map_err(|e| Fault::new(Exit::Failed, e.to_string()))?;
        fs::write(&fresh, text)
            .and_then(|()| fs::rename(&fresh, &path))
            .map_err(|e| cannot("write", &path, &e))
    }

    /// Removes the directory. Only files of ours are touched: were something still mounted inside, its content stays.
    pub fn remove(&self) {
        for file in ["disk.json", "disk.json.new", "control.sock", "log"] {
            let _ = fs::remove_file(self.dir.join(file));
        }
        let _ = fs::remove_dir(self.fuse());
        let _ = fs::remove_dir(&self.dir);
    }
}

/// The right to make, change or clear away one disk. Dropping it gives it up and removes the lock's file.
#[derive(Debug)]
pub struct Lock {
    path: PathBuf,
    _file: File,
}

impl Drop for Lock {
    fn drop(&mut self) {
        // While still locked, so that nobody can lock the file and then find it gone unnoticed.
        let _ = fs::remove_file(&self.path);
        // The last disk takes the folders with it, a folder in use stays.
        for folder in self.path.ancestors().skip(1).take(2) {
            let _ = fs::remove_dir(folder);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_would_leave_the_directory_are_refused() {
        for name in ["", ".", "..", "a/b", "-x", ".x", "a b", "é", &"x".repeat(49)] {
            assert_eq!(DiskDir::new(name).unwrap_err().exit, Exit::Usage, "{name}");
        }
        assert!(DiskDir::new("wd-red.1_a").is_ok());
    }
}
