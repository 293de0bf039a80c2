//! What cgroups set for disks: limits of reading, v1 (`blkio.throttle.read_bps_device`, `read_iops_device`)
//! and v2 (`io.max`), the devices they apply to, and weights.
//!
//! A limit also applies to all descendants of its cgroup. The kernel checks the cgroup of the thread that
//! reads, so a process that reads for another one bypasses the other's limit, unless it asks here. Weights
//! are those for all devices; settings for single devices are not read.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use super::{FILE_MAX, Hierarchy};
use crate::topology::{Backing, Dev, MountTable, Topology};

/// Maximum number of devices under one file system, and of levels.
const DEVICES_MAX: usize = 64;

/// The default weight, and the file's name, in the order of preference: io (v2), BFQ (v2, v1), CFQ (v1).
const WEIGHTS: [(&str, f64); 4] =
    [("io.weight", 100.0), ("io.bfq.weight", 100.0), ("blkio.bfq.weight", 100.0), ("blkio.weight", 500.0)];

/// The hierarchies that have settings for disks.
#[derive(Clone, Debug, Default)]
pub struct IoGroups {
    hierarchies: Vec<Hierarchy>,
}

impl IoGroups {
    /// The visible hierarchies; none if `/proc` cannot be read.
    pub fn of_system() -> IoGroups {
        IoGroups::mounted(&MountTable::of_system())
    }

    /// From a table of mounts.
    pub fn mounted(mounts: &MountTable) -> IoGroups {
        IoGroups { hierarchies: Hierarchy::of(mounts, "blkio") }
    }

    /// The devices on which a process's reads are limited. `membership` is its `/proc/PID/cgroup`.
    pub fn limited(&self, membership: &str) -> BTreeSet<Dev> {
        let mut limited = BTreeSet::new();
        for group in self.hierarchies.iter().flat_map(|h| h.groups(membership)) {
            for file in ["blkio.throttle.read_bps_device", "blkio.throttle.read_iops_device"] {
                limited.extend(read(&group.join(file)).lines().filter_map(throttled));
            }
            limited.extend(read(&group.join("io.max")).lines().filter_map(at_most));
        }
        limited
    }

    /// The weight of a process's cgroup in parts of the default: the product of those from its cgroup to the
    /// topmost, since each counts among the cgroups beside it. The one at the mount point does not count: it
    /// is the root, which has none, or a container, which has none beside it here. 1 if there are no weights.
    pub fn weight(&self, membership: &str) -> f64 {
        let weights = self.hierarchies.iter().flat_map(|h| {
            let below = h.groups(membership).into_iter().filter(move |group| group != h.point());
            below.filter_map(|group| weight_in(&group))
        });
        // At most one hierarchy has the controller.
        weights.product()
    }

    /// Whether any cgroup can have a limit here.
    pub fn exist(&self) -> bool {
        !self.hierarchies.is_empty()
    }
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

/// The weight of one group in parts of the default.
fn weight_in(dir: &Path) -> Option<f64> {
    WEIGHTS.iter().find_map(|(file, default)| {
        let text = read(&dir.join(file));
        // v2: `default 100`, then a line for each device that has another.
        let first = text.lines().next()?;
        let number: f64 = first.strip_prefix("default ").unwrap_or(first).trim().parse().ok()?;
        (number > 0.0).then_some(number / default)
    })
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
    use std::path::PathBuf;

    fn dev(major: u32, minor: u32) -> Dev {
        Dev { major, minor }
    }

    fn of_mounts(mounts: &str) -> IoGroups {
        IoGroups::mounted(&MountTable::parse(mounts.as_bytes()))
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
        let groups = of_mounts(&mounts);
        assert!(groups.exist());
        let of = |membership: &str| groups.limited(membership).into_iter().collect::<Vec<_>>();
        assert_eq!(of("4:memory:/a\n3:cpu,blkio:/a/b\n0::/nowhere\n"), [dev(8, 0), dev(9, 0)]);
        assert_eq!(of("3:blkio:/a\n0::/s/t\n"), [dev(8, 0), dev(8, 48), dev(8, 80)]);
        assert_eq!(of("3:blkio:/\n0::/\n"), []);
        assert_eq!(of("3:blkio:/gone/c\nnonsense\n::\n"), []);
        assert!(!of_mounts("").exist());
    }

    #[test]
    fn a_container_sees_its_own_groups_as_the_root() {
        let tree = tempfile::tempdir().unwrap();
        let mounts = format!("30 24 0:26 /docker/abc {} rw - cgroup2 cgroup2 rw\n", tree.path().display());
        put(tree.path().join("web/io.max"), "8:0 rbps=1 wbps=max riops=max wiops=max\n");
        put(tree.path().join("io.max"), "8:16 rbps=1 wbps=max riops=max wiops=max\n");
        put(tree.path().join("web/io.weight"), "default 50\n");
        put(tree.path().join("io.weight"), "default 10\n");
        let groups = of_mounts(&mounts);
        let web = "0::/docker/abc/web\n";
        assert_eq!(groups.limited(web).into_iter().collect::<Vec<_>>(), [dev(8, 0), dev(8, 16)]);
        assert_eq!(groups.weight(web), 0.5, "the container's own weight is not one among those seen here");
        let outside = "0::/docker/abcd/web\n";
        assert!(groups.limited(outside).is_empty());
        assert_eq!(groups.weight(outside), 1.0);
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
    fn weights_multiply_up_to_the_root() {
        let tree = tempfile::tempdir().unwrap();
        let point = tree.path();
        put(point.join("io.weight"), "default 1\n");
        put(point.join("a/io.weight"), "default 200\n8:0 10\n");
        put(point.join("a/b/io.weight"), "default 50\n");
        put(point.join("c/io.weight"), "default 300\n");
        let groups = |kind: &str| of_mounts(&format!("31 24 0:27 / {} rw - {kind}\n", point.display()));
        let v2 = groups("cgroup2 cgroup2 rw");
        assert_eq!(v2.weight("4:memory:/x\n0::/a/b\n"), 1.0);
        assert_eq!(v2.weight("0::/a\n"), 2.0);
        assert_eq!(v2.weight("0::/c/none/below\n"), 3.0);
        assert_eq!(v2.weight("0::/\n"), 1.0, "the root weighs nothing");
        assert_eq!(v2.weight("0::/../a\n"), 1.0, "a group above what is seen here");
        assert_eq!(v2.weight(""), 1.0);
        put(point.join("a/blkio.weight"), "1000\n");
        fs::remove_file(point.join("a/io.weight")).unwrap();
        let v1 = "7:blkio,x:/a\n0::/\n";
        assert_eq!(groups("cgroup cgroup rw,blkio").weight(v1), 2.0);
        assert_eq!(groups("cgroup cgroup rw,memory").weight(v1), 1.0);
        assert_eq!(groups("ext4 /dev/sda rw").weight(v1), 1.0);
    }
}
