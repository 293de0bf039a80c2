//! What this process does not share with the machine's first process.
//!
//! A container is a few namespaces, a root folder, a filter of system calls and a control group with limits,
//! each of which may be missing. So each is examined separately.

use std::env;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::memory;

/// The first namespaces: their numbers are fixed (`include/uapi/linux/nsfs.h`, before Linux 6.18
/// `include/linux/proc_ns.h`).
const FIRST_PROCESSES: &str = "pid:[4026531836]";
const FIRST_USERS: &str = "user:[4026531837]";

/// A container, as a process in it sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Container {
    /// It has a process namespace of its own, and sees no other processes.
    pub own_processes: bool,
    /// Its root is a user without rights outside.
    pub own_users: bool,
    /// Its root folder is not that of the machine.
    pub own_root: bool,
    /// A filter of system calls (seccomp) was there before this process.
    pub filter: bool,
    /// Bytes of memory that its control groups allow, if that is less than the machine has.
    pub memory_max: Option<u64>,
}

impl Container {
    /// `None` on the machine itself: processes, users and root folder are the first process's. A service with
    /// a filter or a limit is no container.
    pub fn here() -> Option<Container> {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let found = Container {
            own_processes: !sees_all_processes(),
            own_users: !is_namespace("/proc/self/ns/user", FIRST_USERS),
            own_root: is_marked() || own_root(Path::new("/"), Path::new("/proc/1/root/")),
            filter: has_filter(&status),
            memory_max: memory::group_limit(),
        };
        found.is_one().then_some(found)
    }

    fn is_one(&self) -> bool {
        self.own_processes || self.own_users || self.own_root
    }
}

/// Whether this process is in the first process namespace.
pub fn sees_all_processes() -> bool {
    is_namespace("/proc/self/ns/pid", FIRST_PROCESSES)
}

/// Whether this link names the namespace. One that cannot be read is taken for the first.
fn is_namespace(link: &str, name: &str) -> bool {
    fs::read_link(link).map_or(true, |named| named.as_os_str() == name)
}

/// The marks that runtimes leave: files (Docker, Podman), variables (Podman and systemd; Kubernetes).
fn is_marked() -> bool {
    ["/.dockerenv", "/run/.containerenv"].iter().any(|mark| Path::new(mark).exists())
        || ["container", "KUBERNETES_SERVICE_HOST"].iter().any(|mark| env::var_os(mark).is_some())
}

/// Whether two root folders differ. The first process's can be looked at only by a process with its rights.
fn own_root(ours: &Path, first: &Path) -> bool {
    let (Ok(ours), Ok(first)) = (fs::metadata(ours), fs::metadata(first)) else { return false };
    (ours.dev(), ours.ino()) != (first.dev(), first.ino())
}

fn has_filter(status: &str) -> bool {
    status.lines().filter_map(|line| line.strip_prefix("Seccomp:")).any(|mode| mode.trim() == "2")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_with_a_filter_and_a_limit_is_no_container() {
        let service = Container { filter: true, memory_max: Some(1 << 30), ..Container::default() };
        assert!(!service.is_one());
        assert!(Container { own_root: true, ..service.clone() }.is_one());
        assert!(Container { own_processes: true, ..service.clone() }.is_one());
        assert!(Container { own_users: true, ..service }.is_one());
    }

    #[test]
    fn two_folders_are_two_roots_and_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        assert!(own_root(folder.path(), Path::new("/")));
        assert!(!own_root(folder.path(), folder.path()));
        assert!(
            !own_root(folder.path(), &folder.path().join("missing")),
            "what cannot be seen decides nothing"
        );
    }

    #[test]
    fn a_filter_is_read_from_the_status() {
        assert!(has_filter("Name:\tx\nSeccomp:\t2\nSeccomp_filters:\t1\n"));
        assert!(!has_filter("Seccomp:\t0\nSeccomp_filters:\t0\n") && !has_filter(""));
    }
}
