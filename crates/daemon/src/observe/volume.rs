//! The observed folders, and their file systems.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use seekless_base::Fault;
use seekless_kernel::topology::MountTable;

use super::finder::opens_by_number;

/// One folder.
#[derive(Clone, Debug)]
pub(crate) struct Volume {
    pub(crate) path: PathBuf,
    /// Major and minor number of its file system, as the kernel names it in events and in the mount table.
    pub(crate) dev: (u32, u32),
    /// `st_dev` of its files; another number on btrfs.
    pub(crate) st_dev: u64,
    /// Whether it is all of its file system.
    pub(crate) whole: bool,
    /// Whether files can be opened by their inode number.
    pub(crate) by_number: bool,
}

impl Volume {
    /// # Errors
    /// One of them does not exist, is not a directory, or lies on a file system that cannot be observed.
    pub(crate) fn find(dirs: &[PathBuf]) -> Result<Vec<Volume>, Fault> {
        let table = MountTable::read()
            .map_err(|e| Fault::missing(format!("cannot read /proc/self/mountinfo: {e}; mount /proc")))?;
        dirs.iter().map(|dir| Volume::of(dir, &table)).collect()
    }

    fn of(dir: &Path, table: &MountTable) -> Result<Volume, Fault> {
        let wrong = |e: &dyn std::fmt::Display| {
            Fault::missing(format!("cannot observe {}: {e}; name an existing folder", dir.display()))
        };
        let path = fs::canonicalize(dir).map_err(|e| wrong(&e))?;
        let about = fs::metadata(&path).map_err(|e| wrong(&e))?;
        if !about.is_dir() {
            return Err(wrong(&"it is not a folder"));
        }
        let mount = table.by_path(&path).ok_or_else(|| wrong(&"it lies on no mount"))?;
        let kind = mount.fs_type.as_str();
        let instead = match kind {
            "overlay" => "its files lie in the folders of its layers: name the one that holds them",
            "tmpfs" | "ramfs" => "it is memory, and reads of it wait for no disk",
            // Opening a file again may drop its cached pages.
            _ if kind.starts_with("fuse") => "use the shim there (seekless run -- CMD)",
            "nfs" | "nfs4" | "cifs" | "smb3" | "9p" | "virtiofs" => {
                "observe it on the machine that has the disk"
            }
            // File systems on several devices have a device number of their own.
            _ if mount.dev.major == 0 && !["btrfs", "bcachefs"].contains(&kind) => {
                "it has no disk of its own"
            }
            _ => "",
        };
        if !instead.is_empty() {
            return Err(Fault::missing(format!(
                "{} is on {kind}, which cannot be observed; {instead}",
                dir.display()
            )));
        }
        let whole = mount.target == path && mount.root == Path::new("/");
        let by_number = opens_by_number(&path);
        let dev = (mount.dev.major, mount.dev.minor);
        Ok(Volume { dev, st_dev: about.dev(), whole, by_number, path })
    }
}

#[cfg(test)]
mod tests {
    use seekless_base::Exit;

    use super::*;

    #[test]
    fn a_folder_that_cannot_be_observed_is_one_clear_line() {
        let fault = Volume::find(&["/nowhere/at all".into()]).unwrap_err();
        assert_eq!(fault.exit, Exit::Missing);
        assert!(fault.message.contains("/nowhere/at all"), "{fault}");
        let table = MountTable::parse(b"1 2 0:5 / / rw - fuse.sshfs x rw\n");
        let fault = Volume::of(Path::new("/"), &table).unwrap_err();
        assert_eq!(fault.exit, Exit::Missing);
        assert!(fault.message.contains("seekless run"), "{fault}");
        let table = MountTable::parse(b"1 2 0:9 / / rw - proc proc rw\n");
        assert!(Volume::of(Path::new("/"), &table).unwrap_err().message.contains("no disk of its own"));
        let table = MountTable::parse(b"1 2 8:1 / / rw - ext4 /dev/sda1 rw\n");
        let volume = Volume::of(Path::new("/"), &table).unwrap();
        assert!(volume.whole && volume.dev == (8, 1));
    }
}
