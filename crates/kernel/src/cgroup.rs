//! Control groups: where their hierarchies are mounted, and which folders there are those of a process.
//! [`io`] reads what is set for disks.

pub mod io;

use std::fs::File;
use std::io::Read as _;
use std::path::{Component, Path, PathBuf};

use crate::topology::MountTable;

/// Maximum number of bytes read of a file: some thousand devices, or groups of a process.
const FILE_MAX: u64 = 64 << 10;

/// Maximum depth of cgroups that is looked at. Beyond it, only the 64 nearest ancestors count.
const DEPTH_MAX: usize = 64;

/// A mounted hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hierarchy {
    point: PathBuf,
    /// The cgroup that is visible there; in a container that of the container.
    root: PathBuf,
    /// Its controller in v1. Empty in v2, whose hierarchy has all that no other has.
    controller: &'static str,
}

impl Hierarchy {
    /// The hierarchies that may have a controller, v1 before v2. If one is mounted twice, its first mount.
    pub fn of(mounts: &MountTable, controller: &'static str) -> Vec<Hierarchy> {
        let mounted = |fs_type: &str, controller: &'static str| {
            let has = |options: &str| controller.is_empty() || options.split(',').any(|o| o == controller);
            let mount = mounts.iter().find(|m| m.fs_type == fs_type && has(&m.options))?;
            Some(Hierarchy { point: mount.target.clone(), root: mount.root.clone(), controller })
        };
        [mounted("cgroup", controller), mounted("cgroup2", "")].into_iter().flatten().collect()
    }

    /// Where it is mounted.
    pub fn point(&self) -> &Path {
        &self.point
    }

    /// Whether it is v2.
    pub fn is_unified(&self) -> bool {
        self.controller.is_empty()
    }

    /// The folder of a process's cgroup, then those of its ancestors, up to the mount point. Empty if the
    /// cgroup is outside of what is visible. `membership` is the process's `/proc/PID/cgroup`.
    pub fn groups(&self, membership: &str) -> Vec<PathBuf> {
        let path = self.path(membership);
        let Some(below) = path.and_then(|path| path.strip_prefix(&self.root).ok()) else {
            return Vec::new();
        };
        if !below.components().all(|part| matches!(part, Component::Normal(_))) {
            return Vec::new();
        }
        let groups = below.ancestors().map(|group| self.point.join(group));
        groups.take(DEPTH_MAX).collect()
    }

    /// The cgroup that `membership` names.
    pub(crate) fn path<'a>(&self, membership: &'a str) -> Option<&'a Path> {
        membership.lines().find_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            controllers.split(',').any(|c| c == self.controller).then_some(Path::new(path))
        })
    }
}

/// The cgroups of a process, from the kernel.
///
/// # Errors
/// There is no such process any more.
pub fn membership(pid: u32) -> std::io::Result<String> {
    let mut text = String::new();
    File::open(format!("/proc/{pid}/cgroup"))?.take(FILE_MAX).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(mounts: &str, membership: &str) -> Vec<Vec<PathBuf>> {
        let hierarchies = Hierarchy::of(&MountTable::parse(mounts.as_bytes()), "memory");
        hierarchies.iter().map(|h| h.groups(membership)).collect()
    }

    fn paths(paths: &[&str]) -> Vec<PathBuf> {
        paths.iter().map(PathBuf::from).collect()
    }

    #[test]
    fn the_groups_of_a_process_are_those_up_to_the_mount_point() {
        let mounts = "30 24 0:26 / /cpu rw - cgroup cgroup rw,cpu\n\
                      31 24 0:27 / /m rw - cgroup cgroup rw,memory\n\
                      32 24 0:28 / /u rw - cgroup2 cgroup2 rw\n\
                      33 24 0:28 / /again rw - cgroup2 cgroup2 rw\n";
        let of = |membership| groups(mounts, membership);
        assert_eq!(
            of("4:cpu,memory:/a/b\n0::/c\n"),
            [paths(&["/m/a/b", "/m/a", "/m"]), paths(&["/u/c", "/u"])]
        );
        assert_eq!(of("4:memory:/\n1:name=systemd:/x\n"), [paths(&["/m"]), vec![]]);
        let none: [Vec<PathBuf>; 2] = Default::default();
        assert_eq!(of("4:memory:/../a\n0::a\n"), none);
        assert_eq!(of("nonsense\n::\n"), none);
        assert!(groups("", "0::/a\n").is_empty());
    }

    #[test]
    fn a_container_sees_its_own_group_as_the_root() {
        let mounts = "32 24 0:28 /docker/abc /u rw - cgroup2 cgroup2 rw\n";
        let of = |membership| groups(mounts, membership).remove(0);
        assert_eq!(of("0::/docker/abc/web\n"), paths(&["/u/web", "/u"]));
        assert_eq!(of("0::/docker/abc\n"), paths(&["/u"]));
        for outside in ["0::/docker/abcd\n", "0::/docker\n", "0::/\n"] {
            assert!(of(outside).is_empty(), "{outside}");
        }
    }

    #[test]
    fn our_own_groups_are_told() {
        assert!(!membership(std::process::id()).unwrap().is_empty());
        assert!(membership(u32::MAX).is_err());
    }
}
