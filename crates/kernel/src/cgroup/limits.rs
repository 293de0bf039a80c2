//! Limits of reading set by cgroups, v1 (`blkio.throttle.read_bps_device`, `read_iops_device`) and v2
//! (`io.max`), and the devices they apply to.
//!
//! A limit also applies to all descendants of its cgroup. The kernel checks the cgroup of the thread that
//! reads, so a process that reads for another one bypasses the other's limit, unless it asks here.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::upwards;
use crate::topology::{Backing, Dev, Topology};

/// Maximum number of bytes read of a cgroup's file: some thousand devices.
const FILE_MAX: u64 = 64 << 10;

/// Maximum depth of cgroups that is checked. Beyond it, only the 64 nearest ancestors count.
const DEPTH_MAX: usize = 64;

/// Maximum number of devices under one file system, and of levels.
const DEVICES_MAX: usize = 64;

/// A mounted hierarchy with limits.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mounted {
    point: PathBuf,
    /// The cgroup that is visible there.
    root: String,
}

/// The hierarchies of this system that can limit reading.
#[derive(Clone, Debug, Default)]
pub struct IoLimits {
    v1: Option<Mounted>,
    v2: Option<Mounted>,
}

impl IoLimits {
    /// The visible hierarchies; none if `/proc` cannot be read.
    pub fn of_system() -> IoLimits {
        IoLimits::mounted(&fs::read_to_string("/proc/self/mountinfo").unwrap_or_default())
    }

    /// From a table of mounts (`/proc/self/mountinfo`).
    pub fn mounted(mountinfo: &str) -> IoLimits {
        let mut limits = IoLimits::default();
        for line in mountinfo.lines() {
            let Some((before, after)) = line.split_once(" - ") else { continue };
            let mut before = before.split(' ').skip(3);
            let (Some(root), Some(point)) = (before.next(), before.next()) else { continue };
            let mounted = || Some(Mounted { point: PathBuf::from(point), root: root.to_string() });
            let mut after = after.split(' ');
            match after.next() {
                Some("cgroup") if after.nth(1).is_some_and(|o| o.split(',').any(|o| o == "blkio")) => {
                    limits.v1 = limits.v1.or_else(mounted);
                }
                Some("cgroup2") => limits.v2 = limits.v2.or_else(mounted),
                _ => {}
            }
        }
        limits
    }

    /// The devices on which a process's reads are limited. `membership` is its `/proc/PID/cgroup`.
    pub fn devices(&self, membership: &str) -> BTreeSet<Dev> {
        let mut limited = BTreeSet::new();
        for line in membership.lines() {
            let mut parts = line.splitn(3, ':');
            let (Some(number), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next())
            else {
                continue;
            };
            let v1 = self.v1.as_ref().filter(|_| controllers.split(',').any(|c| c == "blkio"));
            let v2 = self.v2.as_ref().filter(|_| number == "0" && controllers.is_empty());
            for group in groups(v1, path) {
                for file in ["blkio.throttle.read_bps_device", "blkio.throttle.read_iops_device"] {
                    limited.extend(read(&group.join(file)).lines().filter_map(throttled));
                }
            }
            for group in groups(v2, path) {
                limited.extend(read(&group.join("io.max")).lines().filter_map(at_most));
            }
        }
        limited
    }

    /// Whether any cgroup can have a limit here.
    pub fn exist(&self) -> bool {
        self.v1.is_some() || self.v2.is_some()
    }
}

/// The cgroups of a process and their ancestors, as folders.
fn groups(mounted: Option<&Mounted>, path: &str) -> Vec<PathBuf> {
    let Some(Mounted { point, root }) = mounted else { return Vec::new() };
    let Some(point) = point.to_str() else { return Vec::new() };
    // A cgroup outside of what is visible.
    if path.split('/').any(|name| name == "..") {
        return Vec::new();
    }
    let mut groups = upwards(point, root, path);
    groups.truncate(DEPTH_MAX);
    groups
}

/// The content of a cgroup's file; empty if it does not exist, as in a root cgroup.
fn read(file: &Path) -> String {
    let mut text = String::new();
    let _ = File::open(file).and_then(|file| file.take(FILE_MAX).read_to_string(&mut text));
    text
}

/// The device in a line of v1: `8:0 2097152`.
fn throttled(line: &str) -> Option<Dev> {
    let (device, limit) = line.trim().split_once(' ')?;
    (limit.trim().parse::<u64>().ok()? > 0).then(|| Dev::parse(device)).flatten()
}

/// The device in a line of v2 that limits reading: `8:0 rbps=2097152 wbps=max riops=max wiops=max`.
fn at_most(line: &str) -> Option<Dev> {
    let (device, limits) = line.trim().split_once(' ')?;
    let mut of_reads = limits.split(' ').filter_map(|word| {
        let (what, limit) = word.split_once('=')?;
        matches!(what, "rbps" | "riops").then_some(limit)
    });
    of_reads.any(|limit| limit != "max").then(|| Dev::parse(device)).flatten()
}

/// The cgroups of a process, from the kernel.
///
/// # Errors
/// There is no such process any more.
pub fn membership(pid: u32) -> io::Result<String> {
    let mut text = String::new();
    File::open(format!("/proc/{pid}/cgroup"))?.take(FILE_MAX).read_to_string(&mut text)?;
    Ok(text)
}

/// The device of a file system and every device below it that may have a limit: the whole disk of a
/// partition, the members of a set or a volume. `sys` is `/sys`.
pub fn devices_under(sys: &Path, topology: &Topology, dev: Dev) -> BTreeSet<Dev> {
    let mut found = BTreeSet::new();
    let mut below = vec![dev];
    if let Backing::Disk { disk, queue_of, members, .. } = topology.backing(dev, None) {
        below.extend([disk.dev].into_iter().chain(queue_of).chain(members.iter().map(|member| member.dev)));
    }
    while let Some(dev) = below.pop() {
        if found.len() >= DEVICES_MAX || !found.insert(dev) {
            continue;
        }
        let Ok(node) = fs::canonicalize(sys.join("dev/block").join(dev.to_string())) else { continue };
        let number = |node: &Path| Dev::parse(&read(&node.join("dev")));
        if node.join("partition").exists() {
            below.extend(node.parent().and_then(number));
        }
        let slaves = fs::read_dir(node.join("slaves")).into_iter().flatten().flatten();
        below.extend(slaves.take(DEVICES_MAX).filter_map(|slave| number(&slave.path())));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::MountTable;

    fn dev(major: u32, minor: u32) -> Dev {
        Dev { major, minor }
    }

    fn put(path: PathBuf, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn limits_of_a_group_and_of_those_above_it_count() {
        let tree = tempfile::tempdir().unwrap();
        let (v1, v2) = (tree.path().join("blkio"), tree.path().join("unified"));
        let mounts = format!(
            "30 24 0:26 / {} rw - cgroup cgroup rw,blkio\n31 24 0:27 / {} rw - cgroup2 cgroup2 rw\n",
            v1.display(),
            v2.display()
        );
        put(v1.join("a/blkio.throttle.read_bps_device"), "8:0 2097152\n8:16 0\n");
        put(v1.join("a/b/blkio.throttle.read_iops_device"), "9:0 100\n");
        put(v1.join("other/blkio.throttle.read_bps_device"), "8:32 1\n");
        put(
            v2.join("s/io.max"),
            "8:48 rbps=max wbps=max riops=120 wiops=max\n8:64 rbps=max wbps=1 riops=max wiops=1\n",
        );
        put(v2.join("s/t/io.max"), "8:80 rbps=1048576 wbps=max riops=max wiops=max\n");
        let limits = IoLimits::mounted(&mounts);
        assert!(limits.exist());
        let of = |membership: &str| limits.devices(membership).into_iter().collect::<Vec<_>>();
        assert_eq!(of("4:memory:/a\n3:cpu,blkio:/a/b\n0::/nowhere\n"), [dev(8, 0), dev(9, 0)]);
        assert_eq!(of("3:blkio:/a\n0::/s/t\n"), [dev(8, 0), dev(8, 48), dev(8, 80)]);
        assert_eq!(of("3:blkio:/\n0::/\n"), []);
        assert_eq!(of("3:blkio:/gone/c\nnonsense\n::\n"), []);
        assert!(!IoLimits::mounted("").exist());
    }

    #[test]
    fn a_container_sees_its_own_groups_as_the_root() {
        let tree = tempfile::tempdir().unwrap();
        let mounts = format!("30 24 0:26 /docker/abc {} rw - cgroup2 cgroup2 rw\n", tree.path().display());
        put(tree.path().join("web/io.max"), "8:0 rbps=1 wbps=max riops=max wiops=max\n");
        let limits = IoLimits::mounted(&mounts);
        assert_eq!(limits.devices("0::/docker/abc/web\n").len(), 1);
    }

    #[test]
    fn a_limit_may_be_set_for_any_device_of_a_stack() {
        let tree = tempfile::tempdir().unwrap();
        let sys = tree.path();
        let disks = ["sda", "sdb"].map(|name| sys.join("devices").join(name));
        put(disks[0].join("dev"), "8:0\n");
        put(disks[1].join("dev"), "8:16\n");
        put(disks[0].join("sda1/dev"), "8:1\n");
        put(disks[0].join("sda1/partition"), "1\n");
        let volume = sys.join("devices/dm-0");
        put(volume.join("dev"), "253:0\n");
        fs::create_dir_all(volume.join("slaves")).unwrap();
        fs::create_dir_all(sys.join("dev/block")).unwrap();
        let link = |to: &Path, at: PathBuf| std::os::unix::fs::symlink(to, at).unwrap();
        link(&disks[0].join("sda1"), volume.join("slaves/sda1"));
        link(&disks[1], volume.join("slaves/sdb"));
        for (number, node) in [("8:0", &disks[0]), ("8:16", &disks[1]), ("253:0", &volume)] {
            link(node, sys.join("dev/block").join(number));
        }
        link(&disks[0].join("sda1"), sys.join("dev/block/8:1"));
        let topology = Topology::new(sys, MountTable::default());
        let under = |d| devices_under(sys, &topology, d).into_iter().collect::<Vec<_>>();
        assert_eq!(under(dev(253, 0)), [dev(8, 0), dev(8, 1), dev(8, 16), dev(253, 0)]);
        assert_eq!(under(dev(8, 1)), [dev(8, 0), dev(8, 1)]);
        assert_eq!(under(dev(7, 7)), [dev(7, 7)], "not known");
    }

    #[test]
    fn our_own_groups_are_told() {
        assert!(!membership(std::process::id()).unwrap().is_empty());
        assert!(membership(u32::MAX).is_err());
    }
}
