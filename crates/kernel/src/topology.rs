//! From a file to the physical disk that holds it.
//!
//! Reads are serialised per *disk*, but a file has only its file system's device number. In between are
//! partitions, loop devices, LVM and md. `/sys/dev/block/MAJ:MIN` shows them all:
//!
//! ```text
//! st_dev --> partition --> whole disk --> loop? --> the disk under its backing file
//!     |                        `-> slaves (md, dm)? --> the one disk under all of them, else the set itself
//!     `-> anonymous (btrfs, overlay, FUSE, network): by way of the mount table
//! ```
//!
//! - A loop device whose backing file lies on a FUSE file system is a disk of its own, because it is unknown
//!   what the FUSE server does with the reads (the software disk is made this way).
//! - A set (md, LVM) whose members share one disk is that disk. A set that spans several counts as one disk:
//!   a piece larger than a stripe moves the heads of all of them.
//! - Each FUSE mount counts as one disk, for the same reason as above. Its user chose its source and its
//!   subtype, so both are ignored.
//! - The source of a mount is trusted only for file systems that hide the number of a block device which the
//!   kernel has opened ([`fstype::hides_device`]). It is looked up in sysfs and in udev's records, never in
//!   `/dev`: no path that the mount table names is opened, examined or resolved.
//! - btrfs on several disks is a set of its own, named after them.
//! - Each file of an overlay, or of a mergerfs pool, lies on one of several file systems
//!   ([`Topology::layer_of`]).
//! - Memory file systems have no disk. ZFS has a cache of its own, and the disks of network file systems are
//!   not visible ([`Backing::Beyond`]). Everything else that cannot be resolved is [`Backing::Unresolved`].
//!
//! The directory tree is an argument, so that tests can build one.

mod layers;
mod mountinfo;
pub mod parts;

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use seekless_base::escaped;

use crate::fstype::{self, Reads};
use crate::sysfs::{self, UDEV_DATA};

pub use layers::mount_id;
pub use mountinfo::{Mount, MountTable};

/// Maximum depth of stacked devices (LVM on LUKS on md on partitions is 4). It also ends a cycle.
const DEPTH_MAX: u32 = 16;

/// Maximum number of members in the name of a set.
const NAMES_MAX: usize = 4;

/// A device number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dev {
    /// The driver; 0 for file systems without a device.
    pub major: u32,
    /// The device of that driver.
    pub minor: u32,
}

impl Dev {
    /// From `st_dev` or `st_rdev` as returned by `stat`.
    pub fn from_raw(raw: u64) -> Dev {
        Dev { major: rustix::fs::major(raw), minor: rustix::fs::minor(raw) }
    }

    /// Parses `8:17`.
    pub fn parse(text: &str) -> Option<Dev> {
        let (major, minor) = text.trim().split_once(':')?;
        Some(Dev { major: major.parse().ok()?, minor: minor.parse().ok()? })
    }
}

impl fmt::Display for Dev {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

/// A disk: the unit of serialisation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// Its number; disks with equal numbers are the same.
    pub dev: Dev,
    /// Its kernel name (`sda`, `loop0`, `md0`), or the mount point for a FUSE mount. Only if
    /// [`is_device_name`] holds may it become part of a path.
    pub name: String,
    /// Whether it has heads. Unknown counts as yes.
    pub rotational: bool,
}

/// Whether this can be the kernel's name of a block device. Anything else, like the mount point that names a
/// FUSE file system, must not become part of a path below `/sys/block`: an absolute path would replace it,
/// and then another user decides about the content.
pub fn is_device_name(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\0'])
}

/// The storage under a file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backing {
    /// A disk.
    Disk {
        /// Which one.
        disk: Disk,
        /// Address of the device's sector 0 on the disk, in 512-byte sectors: the partition's start. Zero if
        /// it is not known (through LVM, a loop on a file): then the order is right only within the device.
        start: u64,
        /// The whole device directly under the file system, whose queue limits apply to its reads.
        queue_of: Option<Dev>,
        /// The member disks, if it is a file system's own set of several.
        members: Vec<Disk>,
    },
    /// Memory: never read from a disk.
    Memory,
    /// A file system that read-ahead cannot help (a cache of its own, another machine); the text names it.
    Beyond(String),
    /// Unknown; the text says why.
    Unresolved(String),
}

/// The values that limit one read-ahead call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// `queue/max_sectors_kb`, the maximum length of a single command, if the device has a queue.
    pub max_sectors_kb: Option<u64>,
    /// `read_ahead_kb` of the device or file system.
    pub read_ahead_kb: Option<u64>,
}

impl QueueLimits {
    /// Bytes at which the kernel silently cuts `readahead()` and `POSIX_FADV_WILLNEED`: the larger of the two
    /// (`force_page_cache_ra` in mm/readahead.c). At least the kernel's default of 128 KiB, at most 16 MiB.
    pub fn read_ahead_cut(&self) -> u64 {
        let kib = self.max_sectors_kb.unwrap_or(0).max(self.read_ahead_kb.unwrap_or(0));
        kib.clamp(128, 16 << 10) * 1024
    }
}

/// The device tree.
#[derive(Clone, Debug)]
pub struct Topology {
    sys: PathBuf,
    udev: PathBuf,
    mounts: MountTable,
}

impl Topology {
    /// The running system's, with the current mount table.
    pub fn of_system() -> Topology {
        Topology::new("/sys", MountTable::of_system())
    }

    /// A tree under `sys` (like `/sys`), and a mount table.
    pub fn new(sys: impl Into<PathBuf>, mounts: MountTable) -> Topology {
        Topology { sys: sys.into(), udev: UDEV_DATA.into(), mounts }
    }

    /// Sets another folder of udev's records than `/run/udev/data`.
    pub fn with_udev(self, udev: impl Into<PathBuf>) -> Topology {
        Topology { udev: udev.into(), ..self }
    }

    /// The storage under the file system with number `dev`. `mount_id` (from `/proc/self/fdinfo`)
    /// distinguishes file systems that hide their device, such as btrfs.
    pub fn backing(&self, dev: Dev, mount_id: Option<u64>) -> Backing {
        self.backing_at(dev, mount_id, 0)
    }

    /// Whether the mount table has this mount.
    pub fn has_mount(&self, id: u64) -> bool {
        self.mounts.by_id(id).is_some()
    }

    /// How files of this mount are read; `None` if its type is unknown.
    pub fn reads(&self, mount_id: Option<u64>) -> Option<Reads> {
        let mount = self.mounts.by_id(mount_id?)?;
        fstype::by_name(&mount.fs_type).map(|t| t.reads)
    }

    fn backing_at(&self, dev: Dev, mount_id: Option<u64>, depth: u32) -> Backing {
        if depth > DEPTH_MAX {
            return Backing::Unresolved(format!("more than {DEPTH_MAX} devices on top of each other"));
        }
        if let Some(found) = self.block_device(dev, depth) {
            return found;
        }
        let by_id = mount_id.and_then(|id| self.mounts.by_id(id));
        match by_id.or_else(|| self.mounts.by_dev(dev)) {
            Some(mount) => self.mounted(mount, depth),
            None => Backing::Unresolved(format!(
                "device {dev} is neither a block device nor mounted where we see it"
            )),
        }
    }

    /// By the mount table, for file systems whose `st_dev` is not a block device.
    fn mounted(&self, mount: &Mount, depth: u32) -> Backing {
        let kind = mount.fs_type.as_str();
        let known = fstype::by_name(kind);
        match known.map(|t| t.reads) {
            Some(Reads::Memory) => return Backing::Memory,
            Some(Reads::OwnCache) => return Backing::Beyond(format!("{kind} has a cache of its own")),
            Some(Reads::Network) => return Backing::Beyond(format!("{kind} reads from another machine")),
            _ => {}
        }
        // Before its source is used.
        if fstype::is_fuse(kind) && !fstype::hides_device(kind) {
            let name = escaped(&mount.target.to_string_lossy()).into_owned();
            let disk = Disk { dev: mount.dev, name, rotational: true };
            return Backing::Disk { disk, start: 0, queue_of: None, members: Vec::new() };
        }
        if kind == "overlay"
            && let Some(below) = mount.overlay_layer().and_then(|path| self.mounts.by_path(&path))
            && below.id != mount.id
        {
            return self.backing_at(below.dev, Some(below.id), depth + 1);
        }
        if let Some(source) = self.source_of(mount)
            && let Some(found) = self.block_device(source, depth)
        {
            return if kind == "btrfs" { self.btrfs(mount, source, found, depth) } else { found };
        }
        Backing::Unresolved(format!("a {kind} file system on {}", mount.source))
    }

    /// btrfs joins devices itself, and the mount table names only one of them. On several disks it is a set
    /// of its own, whose addresses [`crate::btrfs`] maps; `named` is the storage under the device by which it
    /// was mounted.
    fn btrfs(&self, mount: &Mount, source: Dev, named: Backing, depth: u32) -> Backing {
        let Backing::Disk { disk: first, queue_of, .. } = &named else { return named };
        let Ok(all) = fs::read_dir(self.sys.join("fs/btrfs")) else { return named };
        // `/sys/fs/btrfs/UUID/devices/NAME` leads to the device; other entries without a device number are
        // skipped.
        let devices = |dir: PathBuf| -> Vec<Dev> {
            let entries = fs::read_dir(dir.join("devices")).into_iter().flatten().flatten();
            let number = |e: fs::DirEntry| Dev::parse(&fs::read_to_string(e.path().join("dev")).ok()?);
            entries.filter_map(number).collect()
        };
        let own = all.flatten().map(|e| devices(e.path())).find(|d| d.contains(&source));
        let mut members: Vec<Disk> = Vec::new();
        for dev in own.into_iter().flatten() {
            if let Some(Backing::Disk { disk, .. }) = self.block_device(dev, depth + 1)
                && !members.iter().any(|m| m.dev == disk.dev)
            {
                members.push(disk);
            }
        }
        members.sort_by(|a, b| a.name.cmp(&b.name));
        if members.len() < 2 {
            return named;
        }
        let names: Vec<&str> = members.iter().take(NAMES_MAX).map(|m| m.name.as_str()).collect();
        let more = members.len() - names.len();
        let more = if more > 0 { format!("+{more} more") } else { String::new() };
        let name = format!("btrfs:{}{more}", names.join("+"));
        let rotational = members.iter().any(|m| m.rotational);
        let queue_of = queue_of.or(Some(first.dev));
        Backing::Disk { disk: Disk { dev: mount.dev, name, rotational }, start: 0, queue_of, members }
    }

    /// The block device named by a mount's source, if the kernel guarantees it.
    fn source_of(&self, mount: &Mount) -> Option<Dev> {
        if !fstype::hides_device(&mount.fs_type) {
            return None;
        }
        // bcachefs names all of its devices.
        let first = mount.source.split(':').next()?;
        self.number_of(first.strip_prefix("/dev/")?)
    }

    /// The number of a device by its name below `/dev`: the kernel's, the device mapper's, or a link that
    /// udev has recorded.
    fn number_of(&self, name: &str) -> Option<Dev> {
        if name.split('/').any(|part| !is_device_name(part)) {
            return None;
        }
        let all = self.sys.join("class/block");
        let number = |device: &str| {
            if !is_device_name(device) {
                return None;
            }
            Dev::parse(&fs::read_to_string(all.join(device).join("dev")).ok()?)
        };
        // The kernel writes `!` for a slash in the name of a device file.
        number(&name.replace('/', "!")).or_else(|| {
            let mapped = match name.split_once('/') {
                Some(("mapper", mapped)) => Some(mapped.to_string()),
                // A logical volume: the device mapper's name doubles dashes.
                Some((group, volume)) if !volume.contains('/') => {
                    Some([group, volume].map(|part| part.replace('-', "--")).join("-"))
                }
                _ => None,
            };
            let link = format!("S:{name}");
            let devices = fs::read_dir(&all).ok()?.flatten();
            let mut numbers = devices.filter_map(|device| {
                let device = device.file_name().into_string().ok()?;
                Some((number(&device)?, all.join(device)))
            });
            numbers.find_map(|(dev, dir)| {
                let called = mapped.as_ref().is_some_and(|mapped| {
                    fs::read_to_string(dir.join("dm/name")).is_ok_and(|name| name.trim_end() == mapped)
                });
                let linked = || {
                    let record = fs::read_to_string(self.udev.join(format!("b{dev}")));
                    record.is_ok_and(|record| record.lines().any(|line| line == link))
                };
                (called || linked()).then_some(dev)
            })
        })
    }

    /// `None` if there is no block device with this number.
    fn block_device(&self, dev: Dev, depth: u32) -> Option<Backing> {
        let mut dir = fs::canonicalize(self.sys.join(format!("dev/block/{dev}"))).ok()?;
        let mut whole = dev;
        let mut start = 0;
        if dir.join("partition").exists() {
            start = sysfs::number(dir.join("start")).unwrap_or(0);
            dir = dir.parent()?.to_path_buf();
            whole = Dev::parse(&fs::read_to_string(dir.join("dev")).ok()?)?;
        }
        let name = dir.file_name()?.to_string_lossy().into_owned();
        let rotational = sysfs::number(dir.join("queue/rotational")) != Some(0u64);
        let itself = Disk { dev: whole, name, rotational };
        let queue_of = Some(whole);

        if let Ok(file) = fs::read_to_string(dir.join("loop/backing_file")) {
            let under = self.under_loop(Path::new(file.trim_end_matches('\n')), depth);
            // Addresses within the image say nothing about addresses on the disk below it.
            return Some(match under {
                Some(disk) => Backing::Disk { disk, start: 0, queue_of, members: Vec::new() },
                None => Backing::Disk { disk: itself, start, queue_of, members: Vec::new() },
            });
        }
        let members = self.members(&dir, depth);
        Some(match members.first() {
            Some(only) if members.len() == 1 => {
                Backing::Disk { disk: only.clone(), start: 0, queue_of, members: Vec::new() }
            }
            _ => Backing::Disk { disk: itself, start, queue_of, members: Vec::new() },
        })
    }

    /// The disk under a loop device's backing file; `None` if the loop device counts as a disk itself.
    fn under_loop(&self, file: &Path, depth: u32) -> Option<Disk> {
        // Only by the mount table, because examining the file could wait for a FUSE server.
        let mount = self.mounts.by_path(file)?;
        if fstype::is_fuse(&mount.fs_type) || depth >= DEPTH_MAX {
            return None;
        }
        match self.backing_at(mount.dev, Some(mount.id), depth + 1) {
            Backing::Disk { disk, .. } => Some(disk),
            Backing::Memory | Backing::Beyond(_) | Backing::Unresolved(_) => None,
        }
    }

    /// The distinct disks under an md or dm device; empty for anything else.
    fn members(&self, dir: &Path, depth: u32) -> Vec<Disk> {
        let Ok(slaves) = fs::read_dir(dir.join("slaves")) else { return Vec::new() };
        let mut seen = BTreeSet::new();
        let mut disks = Vec::new();
        for slave in slaves.flatten() {
            let dev = fs::read_to_string(slave.path().join("dev")).ok().and_then(|text| Dev::parse(&text));
            let Some(dev) = dev else { continue };
            let below = if depth < DEPTH_MAX { self.block_device(dev, depth + 1) } else { None };
            if let Some(Backing::Disk { disk, .. }) = below
                && seen.insert(disk.dev)
            {
                disks.push(disk);
            }
        }
        disks
    }

    /// The current limits of a whole device's queue, or of a file system without one.
    pub fn queue_limits(&self, dev: Dev) -> QueueLimits {
        let block = self.sys.join(format!("dev/block/{dev}"));
        QueueLimits {
            max_sectors_kb: sysfs::number(block.join("queue/max_sectors_kb")),
            read_ahead_kb: sysfs::number(block.join("queue/read_ahead_kb"))
                .or_else(|| sysfs::number(self.sys.join(format!("class/bdi/{dev}/read_ahead_kb")))),
        }
    }
}
