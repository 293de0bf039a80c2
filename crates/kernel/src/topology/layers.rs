//! File systems made of others: which of them holds a file.
//!
//! - overlayfs: the uppermost layer that has a regular file of this name, past copies of metadata alone
//!   (`metacopy`). Its layers are in the mount's options, as paths of the process that mounted it: relative
//!   ones, and those of another mount namespace, are not found.
//! - mergerfs: the file itself says so (extended attribute `user.mergerfs.fullpath`).
//!
//! What cannot be found out goes by the file system as a whole.

use std::ffi::{CStr, OsStr};
use std::fs;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::{Dev, Mount, Topology};

/// Marks a file of a layer that has no data of its own.
const METACOPY: &CStr = c"trusted.overlay.metacopy";
const METACOPY_USER: &CStr = c"user.overlay.metacopy";
const FULL_PATH: &CStr = c"user.mergerfs.fullpath";

/// Longest path (PATH_MAX).
const PATH_MAX: usize = 4096;

impl Topology {
    /// Whether files of this mount lie on several file systems.
    pub fn is_layered(&self, mount_id: Option<u64>) -> bool {
        let mount = mount_id.and_then(|id| self.mounts.by_id(id));
        mount.is_some_and(|m| matches!(m.fs_type.as_str(), "overlay" | "fuse.mergerfs"))
    }

    /// The user that a FUSE mount serves: the one that mounted it, by the kernel's word. `None` where it is no mount
    /// of FUSE that is seen here.
    pub fn fuse_user(&self, mount_id: u64) -> Option<u32> {
        let mount = self.mounts.by_id(mount_id)?;
        match mount.fs_type.as_str() {
            // Only root can mount it.
            "virtiofs" | "fuseblk" => Some(0),
            fuse if fuse == "fuse" || fuse.starts_with("fuse.") => {
                mount.options.split(',').find_map(|o| o.strip_prefix("user_id="))?.parse().ok()
            }
            _ => None,
        }
    }

    /// Number of the file system, and of its mount, that holds the data of an open file of a layered mount.
    pub fn layer_of(&self, mount_id: u64, file: BorrowedFd<'_>) -> Option<(Dev, u64)> {
        let mount = self.mounts.by_id(mount_id)?;
        let holding = match mount.fs_type.as_str() {
            "overlay" => {
                let path = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
                layer_with(mount, &path)?
            }
            "fuse.mergerfs" => full_path(file)?,
            _ => return None,
        };
        let below = self.mounts.by_path(&holding)?;
        (below.id != mount.id).then_some((below.dev, below.id))
    }
}

/// The layer's folder.
fn layer_with(mount: &Mount, path: &Path) -> Option<PathBuf> {
    let within = path.strip_prefix(&mount.target).ok()?;
    let root = mount.root.strip_prefix("/").unwrap_or(&mount.root);
    let name = root.join(within);
    let holds = |layer: &PathBuf| {
        let file = layer.join(&name);
        fs::symlink_metadata(&file).is_ok_and(|m| m.is_file())
            && [METACOPY, METACOPY_USER].iter().all(|attribute| !has_attribute(&file, attribute))
    };
    mount.overlay_layers().into_iter().find(holds)
}

fn has_attribute(file: &Path, name: &CStr) -> bool {
    rustix::fs::lgetxattr(file, name, &mut [0u8; 0]).is_ok()
}

fn full_path(file: BorrowedFd<'_>) -> Option<PathBuf> {
    let mut path = vec![0u8; PATH_MAX];
    let len = rustix::fs::fgetxattr(file, FULL_PATH, &mut path[..]).ok()?;
    let path = PathBuf::from(OsStr::from_bytes(path.get(..len)?));
    path.is_absolute().then_some(path)
}
