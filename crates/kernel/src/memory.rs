//! How much page cache this process may fill: the minimum of the machine's memory and the limits of its
//! cgroups.
//!
//! The page cache is charged to the cgroup whose process touches a page first. So a daemon's read-ahead
//! counts against the daemon's own limit, and against every limit further up. Both versions of cgroups are
//! read; a process may be in both.

use std::fs;
use std::path::{Path, PathBuf};

use crate::cgroup::{Hierarchy, membership};
use crate::topology::MountTable;

/// Returns unused pages of the heap to the system. After many small objects were freed at once, the allocator
/// otherwise keeps them. Takes milliseconds for hundreds of megabytes; does nothing if the allocator is not
/// glibc's.
pub fn trim_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes no pointer; glibc locks each arena itself while it scans it.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Bytes of memory that this process's reads may fill. `None` if /proc cannot be read.
pub fn page_cache_limit() -> Option<u64> {
    let total = mem_total(&fs::read_to_string("/proc/meminfo").ok()?)?;
    Some(own_limit_files().iter().filter_map(|file| limit_in(file)).fold(total, u64::min))
}

/// The least limit of this process's cgroups, in bytes, if it is less than the machine's memory.
pub fn group_limit() -> Option<u64> {
    let total = mem_total(&fs::read_to_string("/proc/meminfo").ok()?)?;
    page_cache_limit().filter(|limit| *limit < total)
}

/// Bytes of memory that pages of files take or can take: what this process's reads may fill, less what
/// programs hold otherwise, on the machine and in each of its cgroups with a limit. `None` if /proc cannot be
/// read.
pub fn page_cache_room() -> Option<u64> {
    let meminfo = fs::read_to_string("/proc/meminfo").ok()?;
    let total = mem_total(&meminfo)?;
    let limited = own_limit_files().into_iter().filter_map(|file| Some((limit_in(&file)?, file)));
    let rooms = limited.filter(|(limit, _)| *limit < total).filter_map(|(limit, file)| room_in(limit, &file));
    Some(rooms.fold(machine_room(&meminfo)?, u64::min))
}

/// The room of the machine: free memory and pages of files.
fn machine_room(meminfo: &str) -> Option<u64> {
    let names = ["MemFree:", "Active(file):", "Inactive(file):"];
    names.iter().map(|name| kibibytes(meminfo, name)).sum()
}

/// The room of the cgroup with this limit file. `None` if its use cannot be read.
fn room_in(limit: u64, file: &Path) -> Option<u64> {
    let unified = file.extension()? != "limit_in_bytes";
    let (used, prefix) = if unified { ("memory.current", "") } else { ("memory.usage_in_bytes", "total_") };
    let used = limit_in(&file.with_file_name(used))?;
    let stat = fs::read_to_string(file.with_file_name("memory.stat")).ok()?;
    let pages = ["active_file", "inactive_file"];
    let pages: u64 =
        pages.iter().map(|name| counted(&stat, &format!("{prefix}{name}"))).sum::<Option<u64>>()?;
    Some(limit.saturating_sub(used.saturating_sub(pages)))
}

/// Whether a pager of idle memory runs on this machine and is visible (only root may read its settings). It
/// evicts pages that no process has used for some seconds, even if memory is free. DAMON with the action
/// `pageout`, or its preset form `damon_reclaim`.
pub fn idle_pager() -> bool {
    idle_pager_of(Path::new("/sys"))
}

fn idle_pager_of(sys: &Path) -> bool {
    let is = |path: PathBuf, word: &str| fs::read_to_string(path).is_ok_and(|text| text.trim() == word);
    let kdamonds = folders(&sys.join("kernel/mm/damon/admin/kdamonds")).into_iter();
    let pages_out = kdamonds.filter(|kdamond| is(kdamond.join("state"), "on")).any(|kdamond| {
        // A pager that watches processes' virtual addresses sees no page cache.
        let mut contexts = folders(&kdamond.join("contexts"));
        contexts.retain(|context| is(context.join("operations"), "paddr"));
        let schemes = contexts.iter().flat_map(|context| folders(&context.join("schemes")));
        schemes.into_iter().any(|scheme| is(scheme.join("action"), "pageout"))
    });
    pages_out || is(sys.join("module/damon_reclaim/parameters/enabled"), "Y")
}

/// The folders in a folder; none if it cannot be read.
fn folders(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
}

/// Memory pressure: the fraction of the last ten seconds, 0 to 1, in which some task of this process's cgroup
/// (or of the machine, if cgroups have no such figure) waited for memory, mostly for pages that were just
/// evicted. `None` if the kernel does not account for it (before 4.20, or without CONFIG_PSI).
pub fn pressure() -> Option<f64> {
    let own = own_limit_files().into_iter().find(|f| f.ends_with("memory.max"));
    let own = own.map(|f| f.with_file_name("memory.pressure"));
    let text = own.and_then(|f| fs::read_to_string(f).ok());
    some_avg10(&text.or_else(|| fs::read_to_string("/proc/pressure/memory").ok())?)
}

/// Parses `some avg10=1.23 ...`, which is in per cent.
fn some_avg10(text: &str) -> Option<f64> {
    let line = text.lines().find_map(|l| l.strip_prefix("some "))?;
    let value = line.split(' ').find_map(|f| f.strip_prefix("avg10="))?;
    value.parse::<f64>().ok().filter(|p| (0.0..=100.0).contains(p)).map(|p| p / 100.0)
}

/// The kernel's count of file pages that were evicted and read again soon after, for the innermost cgroup of
/// this process with a memory limit.
#[derive(Debug)]
pub struct Refaults(PathBuf);

impl Refaults {
    /// Finds the cgroup. `None` if no cgroup has a limit, because the count of the whole machine says little
    /// about one program.
    pub fn of_group() -> Option<Refaults> {
        let total = mem_total(&fs::read_to_string("/proc/meminfo").ok()?)?;
        let limited = own_limit_files().into_iter().find(|file| limit_in(file).is_some_and(|l| l < total))?;
        Some(Refaults(limited.with_file_name("memory.stat")))
    }

    /// Bytes read again since the cgroup was made. `None` if the kernel does not report it (before Linux
    /// 5.9).
    pub fn bytes(&self) -> Option<u64> {
        let pages = counted(&fs::read_to_string(&self.0).ok()?, "workingset_refault_file")?;
        Some(pages.saturating_mul(rustix::param::page_size() as u64))
    }
}

/// Number of pages read back from swap since boot. `None` if /proc cannot be read.
pub fn swapped_in() -> Option<u64> {
    counted(&fs::read_to_string("/proc/vmstat").ok()?, "pswpin")
}

/// A counter of /proc/vmstat, or of a cgroup's memory.stat.
fn counted(vmstat: &str, name: &str) -> Option<u64> {
    vmstat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}

fn mem_total(meminfo: &str) -> Option<u64> {
    kibibytes(meminfo, "MemTotal:")
}

/// A line of /proc/meminfo in bytes, such as `MemTotal:       24543012 kB`.
fn kibibytes(meminfo: &str, name: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|l| l.strip_prefix(name))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// The limit files of this process's cgroups, innermost first.
fn own_limit_files() -> Vec<PathBuf> {
    let membership = membership(std::process::id()).unwrap_or_default();
    limit_files(&membership, &MountTable::of_system())
}

fn limit_in(file: &Path) -> Option<u64> {
    limit(&fs::read_to_string(file).ok()?)
}

/// The content of a limit file: a number, or `max`.
fn limit(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

/// The limit files of the process's cgroups and of all their ancestors.
fn limit_files(membership: &str, mounts: &MountTable) -> Vec<PathBuf> {
    // Above `memory.high` (systemd: MemoryHigh=) the kernel evicts pages and slows the cgroup down.
    let files = |hierarchy: Hierarchy| {
        let names: &[&str] =
            if hierarchy.is_unified() { &["memory.max", "memory.high"] } else { &["memory.limit_in_bytes"] };
        let mut groups = hierarchy.groups(membership);
        // A namespace may call our group by another name than the mount does: what is visible there counts.
        if groups.is_empty() && hierarchy.path(membership).is_some() {
            groups.push(hierarchy.point().to_path_buf());
        }
        groups.into_iter().flat_map(|group| names.iter().map(move |name| group.join(name)))
    };
    Hierarchy::of(mounts, "memory").into_iter().flat_map(files).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
25 24 0:22 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
26 25 0:23 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
27 25 0:24 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory
28 25 0:25 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw";

    fn table(mounts: &str) -> MountTable {
        MountTable::parse(mounts.as_bytes())
    }

    #[test]
    fn a_pager_of_idle_memory_is_seen() {
        let sys = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = sys.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let seen = || idle_pager_of(sys.path());
        assert!(!seen());
        let scheme = "kernel/mm/damon/admin/kdamonds/0/contexts/0/schemes/0";
        write("kernel/mm/damon/admin/kdamonds/0/state", "off\n");
        write(&format!("{scheme}/action"), "pageout\n");
        write(&format!("{scheme}/../../operations"), "vaddr\n");
        assert!(!seen(), "it does not run");
        write("kernel/mm/damon/admin/kdamonds/0/state", "on\n");
        assert!(!seen(), "it looks at some processes");
        write(&format!("{scheme}/../../operations"), "paddr\n");
        assert!(seen());
        write(&format!("{scheme}/action"), "stat\n");
        assert!(!seen(), "it only counts");
        write("module/damon_reclaim/parameters/enabled", "N\n");
        assert!(!seen());
        write("module/damon_reclaim/parameters/enabled", "Y\n");
        assert!(seen());
    }

    #[test]
    fn room_is_what_programs_do_not_hold_otherwise() {
        let meminfo = "MemFree: 5 kB\nActive: 90 kB\nActive(file): 3 kB\nInactive(file): 2 kB\n";
        assert_eq!((machine_room(meminfo), machine_room("MemFree: 5 kB\n")), (Some(10 << 10), None));
        let group = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(group.path().join(name), text).unwrap();
        let stat = "active_file 1\ninactive_file 2\ntotal_active_file 10\ntotal_inactive_file 20\n";
        let (old, new) = (group.path().join("memory.limit_in_bytes"), group.path().join("memory.high"));
        assert_eq!((room_in(100, &old), room_in(100, &new)), (None, None), "its use is not known");
        write("memory.stat", stat);
        write("memory.usage_in_bytes", "70\n");
        write("memory.current", "90\n");
        assert_eq!((room_in(100, &old), room_in(100, &new)), (Some(100 - (70 - 30)), Some(100 - (90 - 3))));
        write("memory.current", "900\n");
        assert_eq!(room_in(100, &new), Some(0), "over its limit for a moment");
        assert!(page_cache_room().is_some_and(|room| room > 1 << 20 && room <= page_cache_limit().unwrap()));
    }

    #[test]
    fn every_group_from_ours_to_the_root_counts() {
        let files = limit_files("8:cpu:/x\n7:memory:/a/b\n0::/c\n", &table(MOUNTS));
        let expected = [
            "/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes",
            "/sys/fs/cgroup/memory/a/memory.limit_in_bytes",
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            "/sys/fs/cgroup/unified/c/memory.max",
            "/sys/fs/cgroup/unified/c/memory.high",
            "/sys/fs/cgroup/unified/memory.max",
            "/sys/fs/cgroup/unified/memory.high",
        ];
        assert_eq!(files, expected.map(PathBuf::from));
        assert!(limit_files("garbage\n", &table(MOUNTS)).is_empty());
        assert!(limit_files("7:memory:/a", &table("")).is_empty());
    }

    #[test]
    fn a_container_sees_its_group_as_the_root() {
        let mounts = "27 25 0:24 /docker/1 /sys/fs/cgroup rw - cgroup2 cgroup2 rw";
        let files = limit_files("0::/docker/1/srv\n", &table(mounts));
        assert_eq!(files[0], Path::new("/sys/fs/cgroup/srv/memory.max"));
        assert_eq!(files.len(), 4);
        let files = limit_files("0::/\n", &table(mounts));
        assert_eq!(files, ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.high"].map(PathBuf::from));
    }

    #[test]
    fn a_counter_is_found_by_its_whole_name() {
        let vmstat = "pswpin_zero 3\npswpin 41\npswpout 7\n";
        assert_eq!(counted(vmstat, "pswpin"), Some(41));
        assert_eq!((counted(vmstat, "pswp"), counted("", "pswpin")), (None, None));
        assert!(swapped_in().is_some());
    }

    #[test]
    fn pressure_is_a_part_of_the_time() {
        let text =
            "some avg10=12.50 avg60=0.00 avg300=0.00 total=1\nfull avg10=1.00 avg60=0.00 avg300=0.00 total=1";
        assert_eq!(some_avg10(text), Some(0.125));
        assert_eq!(
            (some_avg10(""), some_avg10("some avg10=NaN"), some_avg10("some avg60=1")),
            (None, None, None)
        );
    }

    #[test]
    fn limits_are_numbers_or_none() {
        assert_eq!((limit("1048576\n"), limit("max\n"), limit("")), (Some(1 << 20), None, None));
        assert_eq!(mem_total("MemFree: 3 kB\nMemTotal:       24 kB\n"), Some(24 << 10));
        assert!(page_cache_limit().is_some_and(|bytes| bytes > 1 << 20));
    }
}
