//! File systems that consist of others: which of them holds a file.
//!
//! - overlayfs: the uppermost layer that has a regular file of this name, except metadata-only copies
//!   (`metacopy`). Its layers are in the mount's options, as paths of the process that mounted it: relative
//!   ones, and those of another mount namespace, are not found.
//! - mergerfs: the file itself reports it (extended attribute `user.mergerfs.fullpath`). Any user may give a
//!   FUSE file system this name, so it counts only if root has mounted it, according to the kernel.
//!
//! If the layer cannot be found, the file system as a whole counts.
//!
//! Below its folder, a layer's names are chosen by its users: they are walked one by one, through no symlink
//! and into no other mount, with descriptors that open nothing (`O_PATH`). The path that mergerfs reports is
//! only compared with the mount table.

use std::ffi::{CStr, OsStr};
use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags};

use super::{Dev, Mount, Topology};

/// Marks a file of a layer that has no data of its own.
const METACOPY: &CStr = c"trusted.overlay.metacopy";
const METACOPY_USER: &CStr = c"user.overlay.metacopy";
const FULL_PATH: &CStr = c"user.mergerfs.fullpath";

/// Maximum length of a path (PATH_MAX).
const PATH_MAX: usize = 4096;

impl Topology {
    /// Whether files of this mount lie on several file systems.
    pub fn is_layered(&self, mount_id: Option<u64>) -> bool {
        let mount = mount_id.and_then(|id| self.mounts.by_id(id));
        mount.is_some_and(|m| m.fs_type == "overlay" || is_pool(m))
    }

    /// The user that made a FUSE mount, according to the kernel. `None` if it is not a FUSE mount that is
    /// visible here.
    pub fn fuse_user(&self, mount_id: u64) -> Option<u32> {
        fuse_user(self.mounts.by_id(mount_id)?)
    }

    /// Number of the file system, and of its mount, that holds the data of an open file of a layered mount.
    pub fn layer_of(&self, mount_id: u64, file: BorrowedFd<'_>) -> Option<(Dev, u64)> {
        let mount = self.mounts.by_id(mount_id)?;
        let holding = if mount.fs_type == "overlay" {
            let path = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
            layer_with(mount, &path)?
        } else if is_pool(mount) {
            full_path(file)?
        } else {
            return None;
        };
        let below = self.mounts.by_path(&holding)?;
        (below.id != mount.id).then_some((below.dev, below.id))
    }
}

/// The folder of the layer that has the file.
fn layer_with(mount: &Mount, path: &Path) -> Option<PathBuf> {
    let within = path.strip_prefix(&mount.target).ok()?;
    let root = mount.root.strip_prefix("/").unwrap_or(&mount.root);
    let name = root.join(within);
    mount.overlay_layers().into_iter().find(|layer| holds(layer, &name) == Some(true))
}

/// Whether a layer has the data of a file of this name.
fn holds(layer: &Path, name: &Path) -> Option<bool> {
    let folder = OFlags::PATH | OFlags::CLOEXEC | OFlags::DIRECTORY;
    let mut at = rustix::fs::open(layer, folder, Mode::empty()).ok()?;
    let mount = mount_id(at.as_fd())?;
    let mut names = name.components().peekable();
    while let Some(Component::Normal(name)) = names.next() {
        let flags = if names.peek().is_some() { folder } else { OFlags::PATH | OFlags::CLOEXEC };
        at = rustix::fs::openat(&at, name, flags | OFlags::NOFOLLOW, Mode::empty()).ok()?;
        if mount_id(at.as_fd())? != mount {
            return None;
        }
    }
    let about = rustix::fs::fstat(&at).ok()?;
    let is_file = FileType::from_raw_mode(about.st_mode) == FileType::RegularFile;
    Some(is_file && [METACOPY, METACOPY_USER].iter().all(|attribute| !has_attribute(&at, attribute)))
}

/// The mount through which a descriptor was opened. Does not ask its file system.
pub fn mount_id(fd: BorrowedFd<'_>) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd())).ok()?;
    text.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim().parse().ok()
}

/// Through the path of the open file in `/proc`, because an `O_PATH` descriptor cannot read attributes.
fn has_attribute(file: &OwnedFd, name: &CStr) -> bool {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::getxattr(path, name, &mut [0u8; 0]).is_ok()
}

/// Whether it is mergerfs, mounted by root: the kernel writes the options of a FUSE mount.
fn is_pool(mount: &Mount) -> bool {
    mount.fs_type == "fuse.mergerfs" && fuse_user(mount) == Some(0)
}

/// See [`Topology::fuse_user`].
fn fuse_user(mount: &Mount) -> Option<u32> {
    match mount.fs_type.as_str() {
        // Only root can mount it.
        "virtiofs" | "fuseblk" => Some(0),
        fuse if fuse == "fuse" || fuse.starts_with("fuse.") => {
            mount.options.split(',').find_map(|option| option.strip_prefix("user_id="))?.parse().ok()
        }
        _ => None,
    }
}

fn full_path(file: BorrowedFd<'_>) -> Option<PathBuf> {
    let mut path = vec![0u8; PATH_MAX];
    let len = rustix::fs::fgetxattr(file, FULL_PATH, &mut path[..]).ok()?;
    let path = PathBuf::from(OsStr::from_bytes(path.get(..len)?));
    path.is_absolute().then_some(path)
}
