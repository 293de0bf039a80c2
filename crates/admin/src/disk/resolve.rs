//! From what the user named to a whole disk.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use seekless_base::{Exit, Fault, escaped};
use seekless_kernel::identity::Identity;
use seekless_kernel::sysfs::{self, SYS_BLOCK, UDEV_DATA};
use seekless_kernel::topology::{Backing, Dev, Topology, is_device_name};

/// A whole disk.
#[derive(Clone, Debug)]
pub(crate) struct DiskTarget {
    /// Kernel name.
    pub(crate) name: String,
    /// Lasting name.
    pub(crate) identity: Identity,
}

impl DiskTarget {
    /// The disk of kernel name `name`.
    pub(crate) fn by_name(name: &str) -> DiskTarget {
        let identity = Identity::of(Path::new(SYS_BLOCK), Path::new(UDEV_DATA), name);
        DiskTarget { name: name.to_string(), identity }
    }

    /// Its device file.
    pub(crate) fn device(&self) -> PathBuf {
        // The kernel writes `!` where the device file's name has a slash.
        Path::new("/dev").join(self.name.replace('!', "/"))
    }

    /// What a person calls it.
    pub(crate) fn label(&self) -> String {
        let device = self.device();
        match sysfs::text(Path::new(SYS_BLOCK).join(&self.name).join("device/model")) {
            Some(model) => escaped(&format!("{} ({model})", device.display())).into_owned(),
            None => device.display().to_string(),
        }
    }
}

/// The disk under a device file, a directory or a file.
///
/// # Errors
/// `Missing` or `Usage`, with what is there instead.
pub(crate) fn resolve(path: &Path) -> Result<DiskTarget, Fault> {
    let meta = fs::metadata(path).map_err(|e| {
        let exit = if e.kind() == std::io::ErrorKind::NotFound { Exit::Missing } else { Exit::Failed };
        let what = format!("{}: {e}; name a disk of `seekless disk list`, or a folder", path.display());
        Fault::new(exit, what)
    })?;
    if meta.file_type().is_block_device() {
        let dev = Dev::from_raw(meta.rdev());
        return whole(&PathBuf::from(format!("/sys/dev/block/{dev}")))
            .map(|name| DiskTarget::by_name(&name))
            .ok_or_else(|| Fault::missing(format!("{}: the kernel does not list it", path.display())));
    }
    match Topology::of_system().backing(Dev::from_raw(meta.dev()), None) {
        Backing::Disk { disk, .. }
            if is_device_name(&disk.name) && Path::new(SYS_BLOCK).join(&disk.name).is_dir() =>
        {
            Ok(DiskTarget::by_name(&disk.name))
        }
        Backing::Disk { disk, .. } => Err(Fault::usage(format!(
            "{} lies on {}, which is no block device: name the device itself",
            path.display(),
            disk.name
        ))),
        Backing::Memory => Err(Fault::usage(format!(
            "{} lies in memory, not on a disk; name a disk of `seekless disk list`, or a folder on one",
            path.display()
        ))),
        Backing::Beyond(why) | Backing::Unresolved(why) => Err(Fault::missing(format!(
            "cannot tell on which disk {} lies ({why}): name the device itself",
            path.display()
        ))),
    }
}

/// The whole device of a sysfs entry, itself or, for a partition, the directory above.
fn whole(entry: &Path) -> Option<String> {
    let entry = fs::canonicalize(entry).ok()?;
    let whole = if entry.join("partition").exists() { entry.parent()?.to_path_buf() } else { entry };
    Some(whole.file_name()?.to_string_lossy().into_owned())
}
