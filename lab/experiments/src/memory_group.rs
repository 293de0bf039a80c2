//! Memory-limited cgroups, v1 and v2.
//!
//! The page cache is charged to the cgroup whose process touches a page first. So an experiment that wants a
//! server with 1 GB of cache runs server *and* prefetching daemon in one cgroup with that limit; the clients
//! and the software disk stay outside.
//!
//! Version: v1 if a hierarchy with the `memory` controller is mounted, else v2. The new cgroup is made below
//! our own or, if that is not allowed (v2 does not enable controllers in a cgroup that contains processes
//! itself), in the nearest ancestor that allows it. Dropping a cgroup kills what is still inside and removes
//! it. Cgroups of runs that were killed before they could do so are found by the process id in their name and
//! removed by [`MemoryGroup::sweep_stale`].

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use seekless_kernel::cgroup::{Hierarchy, membership};
use seekless_kernel::topology::MountTable;

/// The interface files of a cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// `memory.limit_in_bytes` and friends.
    V1,
    /// `memory.max` and friends.
    V2,
}

/// A cgroup with a memory limit; emptied and removed on drop.
#[derive(Debug)]
pub struct MemoryGroup {
    dir: PathBuf,
    version: Version,
}

/// Memory use of a cgroup in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// Everything charged.
    pub total: u64,
    /// Page cache.
    pub cache: u64,
    /// Number of times that the limit was hit (v1 `failcnt`, v2 `max` events).
    pub limit_hits: u64,
}

/// Prefix of the names of our cgroups; the maker's process id follows.
const PREFIX: &str = "seekless-";
/// Maximum wait for an emptied cgroup to lose its last process.
const REMOVE_PATIENCE: Duration = Duration::from_secs(5);

impl MemoryGroup {
    /// Makes a cgroup limited to `limit` bytes (rounded down to a page by the kernel).
    ///
    /// # Errors
    /// `NotFound`: no memory controller is mounted. `PermissionDenied` and others: the kernel refused at the
    /// place that the message names.
    pub fn create(name: &str, limit: u64) -> io::Result<MemoryGroup> {
        let mut last = io::Error::new(
            io::ErrorKind::NotFound,
            "no cgroup hierarchy with a memory controller is mounted",
        );
        let (version, candidates) = places()?;
        for parent in candidates {
            match MemoryGroup::create_in(&parent, version, name, limit) {
                Ok(group) => return Ok(group),
                Err(error) => last = io::Error::new(error.kind(), format!("{}: {error}", parent.display())),
            }
        }
        Err(last)
    }

    fn create_in(parent: &Path, version: Version, name: &str, limit: u64) -> io::Result<MemoryGroup> {
        if version == Version::V2 && !lists(&parent.join("cgroup.subtree_control"), "memory") {
            fs::write(parent.join("cgroup.subtree_control"), "+memory")?;
        }
        let dir = parent.join(format!("{PREFIX}{}-{name}", std::process::id()));
        fs::create_dir(&dir)?;
        let group = MemoryGroup { dir, version };
        // From here on an early return drops the cgroup, which removes it.
        group.set_limit(limit)?;
        Ok(group)
    }

    /// Changes the limit.
    ///
    /// # Errors
    /// Those of writing the interface file.
    pub fn set_limit(&self, limit: u64) -> io::Result<()> {
        match self.version {
            Version::V1 => fs::write(self.dir.join("memory.limit_in_bytes"), limit.to_string()),
            Version::V2 => {
                // Without this, a v2 cgroup under pressure swaps its server out instead of dropping page
                // cache.
                let _ = fs::write(self.dir.join("memory.swap.max"), "0");
                fs::write(self.dir.join("memory.max"), limit.to_string())
            }
        }
    }

    /// The cgroup's directory, for [`seekless_kernel::spawn::join_cgroup`].
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// v1 or v2.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Processes in it now.
    ///
    /// # Errors
    /// Those of reading `cgroup.procs`.
    pub fn pids(&self) -> io::Result<Vec<u32>> {
        pids_of(&self.dir)
    }

    /// Memory charged now.
    ///
    /// # Errors
    /// Those of reading the interface files.
    pub fn usage(&self) -> io::Result<MemoryUse> {
        let stat = fs::read_to_string(self.dir.join("memory.stat"))?;
        let (total, cache_field) = match self.version {
            Version::V1 => ("memory.usage_in_bytes", "cache"),
            Version::V2 => ("memory.current", "file"),
        };
        let limit_hits = match self.version {
            Version::V1 => number(&self.dir.join("memory.failcnt"))?,
            Version::V2 => field(&fs::read_to_string(self.dir.join("memory.events"))?, "max"),
        };
        Ok(MemoryUse { total: number(&self.dir.join(total))?, cache: field(&stat, cache_field), limit_hits })
    }

    /// Drops as much of the cgroup's page cache as the kernel gives up. Best effort: v1 `force_empty`, v2
    /// `reclaim` (Linux 5.19+).
    pub fn drop_cache(&self) {
        let _ = match self.version {
            Version::V1 => fs::write(self.dir.join("memory.force_empty"), "0"),
            Version::V2 => match self.usage() {
                Ok(used) => fs::write(self.dir.join("memory.reclaim"), used.cache.to_string()),
                Err(error) => Err(error),
            },
        };
    }

    /// Removes cgroups whose maker is gone (it was killed before it could), with the processes left in them.
    pub fn sweep_stale() {
        let Ok((_, parents)) = places() else { return };
        for parent in parents {
            for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
                let name = entry.file_name();
                let pid =
                    name.to_str().and_then(|n| n.strip_prefix(PREFIX)).and_then(|n| n.split('-').next());
                let Some(pid) = pid.and_then(|p| p.parse::<u32>().ok()) else { continue };
                if !Path::new("/proc").join(pid.to_string()).exists() {
                    empty_and_remove(&entry.path());
                }
            }
        }
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        self.drop_cache();
        empty_and_remove(&self.dir);
    }
}

fn empty_and_remove(dir: &Path) {
    let give_up = Instant::now() + REMOVE_PATIENCE;
    loop {
        // A cgroup contains only processes that were put into it on purpose: kill what is left.
        for pid in pids_of(dir).unwrap_or_default() {
            if let Some(pid) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
        match fs::remove_dir(dir) {
            Err(error) if error.kind() != io::ErrorKind::NotFound && Instant::now() < give_up => {
                std::thread::sleep(Duration::from_millis(10));
            }
            _ => return,
        }
    }
}

/// The version, and the directories in which a cgroup may be made, best first.
fn places() -> io::Result<(Version, Vec<PathBuf>)> {
    places_from(&MountTable::of_system(), &membership(std::process::id())?)
}

fn places_from(mounts: &MountTable, own: &str) -> io::Result<(Version, Vec<PathBuf>)> {
    let Some(hierarchy) = Hierarchy::of(mounts, "memory").into_iter().next() else {
        return Err(io::Error::new(
            io::ErrorKind::NotFound,
            "no cgroup hierarchy with a memory controller is mounted",
        ));
    };
    let version = if hierarchy.is_unified() { Version::V2 } else { Version::V1 };
    let mut places = hierarchy.groups(own);
    if places.is_empty() {
        places.push(hierarchy.point().to_path_buf());
    }
    places.retain(|place| place.exists());
    Ok((version, places))
}

fn lists(file: &Path, word: &str) -> bool {
    fs::read_to_string(file).is_ok_and(|text| text.split_whitespace().any(|w| w == word))
}

fn pids_of(dir: &Path) -> io::Result<Vec<u32>> {
    Ok(fs::read_to_string(dir.join("cgroup.procs"))?.lines().filter_map(|l| l.parse().ok()).collect())
}

fn number(file: &Path) -> io::Result<u64> {
    fs::read_to_string(file)?
        .trim()
        .parse()
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "not a number"))
}

fn field(text: &str, name: &str) -> u64 {
    text.lines()
        .find_map(|l| l.strip_prefix(name)?.strip_prefix(' '))
        .and_then(|v| v.trim().parse().ok())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn v1_is_preferred_where_it_has_the_controller() {
        let mounts = "30 24 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                      31 24 0:27 / /sys rw - cgroup cgroup rw,memory\n\
                      32 24 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let (version, at) =
            places_from(&MountTable::parse(mounts.as_bytes()), "4:memory:/kernel\n0::/\n").unwrap();
        assert_eq!(version, Version::V1);
        assert_eq!(at, [PathBuf::from("/sys/kernel"), "/sys".into()]);
    }

    #[test]
    fn without_v1_the_unified_hierarchy_is_used_from_where_we_are_upwards() {
        let mounts = "32 24 0:28 / /sys rw - cgroup2 cgroup2 rw\n";
        let (version, at) =
            places_from(&MountTable::parse(mounts.as_bytes()), "0::/kernel/nowhere\n").unwrap();
        assert_eq!(version, Version::V2);
        assert_eq!(at, [PathBuf::from("/sys/kernel"), "/sys".into()]);
    }

    #[test]
    fn no_controller_is_an_error_that_says_so() {
        assert_eq!(places_from(&MountTable::default(), "").unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_dropped_group_kills_what_is_inside_and_is_gone() {
        let group = match MemoryGroup::create("test", 64 << 20) {
            Ok(group) => group,
            Err(error) => {
                println!("skipped: no memory control group can be made here ({error})");
                return;
            }
        };
        let dir = group.dir().to_path_buf();
        let mut command = Command::new("sleep");
        command.arg("60");
        seekless_kernel::spawn::join_cgroup(&mut command, &dir).unwrap();
        seekless_kernel::spawn::die_with_parent(&mut command, rustix::process::Signal::TERM);
        let mut child = command.spawn().unwrap();
        assert_eq!(group.pids().unwrap(), [child.id()]);
        assert!(group.usage().unwrap().total > 0);
        let waiter = std::thread::spawn(move || child.wait().unwrap());
        drop(group);
        assert!(!dir.exists());
        assert!(!waiter.join().unwrap().success());
    }
}
