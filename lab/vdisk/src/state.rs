//! The records of running disks, and the locks that separate commands.
//!
//! Each disk has a directory `vdisk/NAME` in the state directory: `disk.json` (its description),
//! `control.sock`, `fuse` (the mount point of the file below the loop device), `log`. Beside it is
//! `NAME.lock`, locked as long as the disk's supervisor lives. The kernel releases the lock however the
//! supervisor ends, so a directory without a held lock belongs to a disk that died, and the process that
//! takes the lock may remove it.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use seekless_base::Fault;
use seekless_kernel::state;
use serde::{Deserialize, Serialize};

use crate::config::DiskConfig;
pub use crate::fault::cannot;

/// The state directory ([`seekless_kernel::state`]).
///
/// # Errors
/// `Permission`: another user could have written its content, so it is not trusted.
fn state_root() -> Result<PathBuf, Fault> {
    state::folder().map_err(|e| Fault::permission(e.to_string()))
}

/// The description of a disk that is up or coming up.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DiskRecord {
    /// The requested configuration.
    #[serde(flatten)]
    pub config: DiskConfig,
    /// The drive's label in the catalogue.
    pub drive_label: String,
    /// The supervisor's process; ending it takes the disk down.
    pub pid: u32,
    /// When that process started, in clock ticks since boot, because another process may have its number by
    /// now.
    #[serde(default)]
    pub started: Option<u64>,
    /// The process that serves the bytes.
    pub worker_pid: Option<u32>,
    /// `/dev/loopN`, absent for a tree.
    pub device: Option<PathBuf>,
    /// N of `/dev/loopN`.
    pub loop_number: Option<u32>,
    /// Whether the mount directory was made for the disk and is removed with it.
    pub mount_created: bool,
    /// Settings of the loop device's queue before the disk came up, to be restored: file name and value.
    pub queue_before: Vec<(String, String)>,
}

/// The paths of one disk.
#[derive(Clone, Debug)]
pub struct DiskDir {
    name: String,
    dir: PathBuf,
}

/// Maximum length of a disk's name.
const NAME_MAX: usize = 48;

impl DiskDir {
    /// The paths of disk `name`; nothing is created yet.
    ///
    /// # Errors
    /// `Usage` if the name is not 1 to 48 of letters, digits, `.`, `_`, `-` (not first), or its socket's path
    /// is too long; `Permission` if the state directory is not trusted.
    pub fn new(name: &str) -> Result<DiskDir, Fault> {
        let good = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if name.is_empty() || name.len() > NAME_MAX || !name.chars().all(good) || name.starts_with(['.', '-'])
        {
            return Err(Fault::usage(format!(
                "`{name}` cannot name a disk: use 1 to {NAME_MAX} letters, digits, `.`, `_` or `-`, as in --name disk1"
            )));
        }
        let dir = state_root()?.join("vdisk").join(name);
        let dir = std::path::absolute(&dir).unwrap_or(dir);
        // A Unix socket's path has 108 bytes, the final zero among them.
        if dir.join("control.sock").as_os_str().len() > 107 {
            return Err(Fault::usage(format!(
                "{} is too long a path for a socket: set SEEKLESS_STATE shorter",
                dir.display()
            )));
        }
        Ok(DiskDir { name: name.to_string(), dir })
    }

    /// Every disk that has a directory, running or not, by name.
    ///
    /// # Errors
    /// `Permission`: the state directory is not trusted.
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

    /// The messages of the background processes.
    pub fn log(&self) -> PathBuf {
        self.dir.join("log")
    }

    fn lock_path(&self) -> PathBuf {
        self.dir.with_file_name(format!("{}.lock", self.name))
    }

    /// Creates the directory, readable by its owner only.
    ///
    /// # Errors
    /// `Permission` or `Failed`, naming the path.
    pub fn create(&self) -> Result<(), Fault> {
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(self.dir.join("fuse"));
        made.map_err(|e| cannot("make", &self.dir, &e))
    }

    /// Takes the lock; `None` if the disk's supervisor holds it.
    ///
    /// # Errors
    /// The state directory cannot be created or written.
    pub fn try_lock(&self) -> Result<Option<Lock>, Fault> {
        let path = self.lock_path();
        let parent = path.parent().unwrap_or(Path::new("/"));
        // The process that releases the last lock removes the folders and the lock file (below), possibly
        // now: try again.
        let passing =
            |e: &io::Error| matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::AlreadyExists);
        let mut met = None;
        for _ in 0..100 {
            // Created first and checked then, so no other process can have created it in between.
            match state::made_folder() {
                Ok(_) => {}
                Err(e) if passing(&e) => continue,
                Err(e) => return Err(Fault::permission(e.to_string())),
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

    /// The record, if it can be read.
    pub fn record(&self) -> Option<DiskRecord> {
        serde_json::from_slice(&fs::read(self.dir.join("disk.json")).ok()?).ok()
    }

    /// Writes the record as a whole or not at all.
    ///
    /// # Errors
    /// `Failed`, naming the path.
    pub fn write_record(&self, record: &DiskRecord) -> Result<(), Fault> {
        let (path, fresh) = (self.dir.join("disk.json"), self.dir.join("disk.json.new"));
        let text = serde_json::to_vec_pretty(record).map_err(|e| Fault::failed(e.to_string()))?;
        fs::write(&fresh, text)
            .and_then(|()| fs::rename(&fresh, &path))
            .map_err(|e| cannot("write", &path, &e))
    }

    /// Removes the directory. Only our own files are removed: if something is still mounted inside, its
    /// content stays.
    pub fn remove(&self) {
        for file in ["disk.json", "disk.json.new", "control.sock", "log"] {
            let _ = fs::remove_file(self.dir.join(file));
        }
        let _ = fs::remove_dir(self.fuse());
        let _ = fs::remove_dir(&self.dir);
    }
}

/// The right to create, change or remove one disk. Dropping it releases it and removes the lock's file.
#[derive(Debug)]
pub struct Lock {
    path: PathBuf,
    _file: File,
}

impl Drop for Lock {
    fn drop(&mut self) {
        // While still locked, so that no process can lock the file and then find it removed.
        let _ = fs::remove_file(&self.path);
        // The last disk also removes the folders; a folder in use stays.
        for folder in self.path.ancestors().skip(1).take(2) {
            let _ = fs::remove_dir(folder);
        }
    }
}

#[cfg(test)]
mod tests {
    use seekless_base::Exit;

    use super::*;

    #[test]
    fn names_that_would_leave_the_directory_are_refused() {
        for name in ["", ".", "..", "a/b", "-x", ".x", "a b", "é", &"x".repeat(49)] {
            assert_eq!(DiskDir::new(name).unwrap_err().exit, Exit::Usage, "{name}");
        }
        assert!(DiskDir::new("wd-red.1_a").is_ok());
    }
}
