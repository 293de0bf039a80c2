//! Processes whose reading is limited by their cgroup, and on which devices.
//!
//! The kernel limits the cgroup of the thread that reads. This process reads for a caller in its own cgroup,
//! at full speed. So if a caller's cgroup, or one above it, has a limit on a disk, the caller reads for
//! itself there: its calls pass, its reads are not followed, and nothing is read ahead for it. The kernel
//! then limits it as without Seekless.
//!
//! The cgroups of a process are read from `/proc`, which may have to wait for other processes that change
//! cgroups. So a thread does that. Its results are cached for [`BELIEVED`].

use std::collections::{BTreeSet, HashSet};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};
use lru::LruCache;
use seekless_engine::{lock, recent};
use seekless_kernel::cgroup::io::{IoGroups, devices_under};
use seekless_kernel::cgroup::membership;
use seekless_kernel::topology::{Dev, Topology};

/// How long the cgroups of a process and their limits are cached. A process that becomes limited reads
/// without a limit for at most this long. At half, a server with thousands of processes costs twice as much,
/// some 20 us for each process and lookup.
const BELIEVED: Duration = Duration::from_millis(500);

/// Cache time of the disks under a file system; these change more rarely.
const STACK_BELIEVED: Duration = Duration::from_secs(5);

/// Maximum number of cached processes, cgroups and devices. Beyond it, those not used for longest are looked
/// up again.
const KNOWN_MAX: usize = 4096;

/// Maximum number of queued lookups. Beyond it a process stays unknown, and reads for itself.
const LOOKS_MAX: usize = 1024;

/// What is known of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limited {
    /// No limit on the disk.
    No,
    /// Its cgroups have a limit on the disk.
    Yes,
    /// It is being looked up.
    Unknown,
}

type Devices = Arc<BTreeSet<Dev>>;

/// A lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Look {
    Process(u32),
    Stack(Dev),
}

#[derive(Debug)]
struct Known {
    /// Devices on which each process is limited.
    processes: LruCache<u32, (Devices, Instant)>,
    /// Devices under each file system.
    stacks: LruCache<Dev, (Devices, Instant)>,
    asked: HashSet<Look>,
}

/// The cached limits, for all doors.
#[derive(Debug)]
pub(crate) struct Limits {
    /// Whether no hierarchy here can limit reading.
    none: bool,
    known: Mutex<Known>,
    looks: Sender<Look>,
    looker: Arc<Mutex<Looker>>,
}

impl Limits {
    /// Starts the thread, which ends when the returned value is dropped.
    ///
    /// # Errors
    /// No thread can be started.
    pub(crate) fn start() -> io::Result<Arc<Limits>> {
        Limits::of(IoGroups::of_system())
    }

    fn of(groups: IoGroups) -> io::Result<Arc<Limits>> {
        let (looks, todo) = bounded(LOOKS_MAX);
        let none = !groups.exist();
        let looker = Arc::new(Mutex::new(Looker { groups, found: recent(KNOWN_MAX) }));
        let known = Known { processes: recent(KNOWN_MAX), stacks: recent(KNOWN_MAX), asked: HashSet::new() };
        let limits = Arc::new(Limits { none, known: Mutex::new(known), looks, looker });
        if !none {
            let of = Arc::downgrade(&limits);
            let run = move || run(&of, &todo);
            thread::Builder::new().name("limits".into()).spawn(run)?;
        }
        Ok(limits)
    }

    /// Whether a process's reads of files of this device (`st_dev`) are limited, as far as is known. Never
    /// waits. `pid` 0 is a process outside our process namespace, whose cgroups are not known.
    pub(crate) fn known(&self, pid: u32, device: u64, now: Instant) -> Limited {
        if self.none || pid == 0 {
            return Limited::No;
        }
        let mut known = lock(&self.known);
        match known.process(&self.looks, pid, now) {
            None => Limited::Unknown,
            Some((limited, _)) if limited.is_empty() => Limited::No,
            Some((limited, _)) => match known.stack(&self.looks, Dev::from_raw(device), now) {
                None => Limited::Unknown,
                Some((stack, _)) if limited.is_disjoint(&stack) => Limited::No,
                Some(_) => Limited::Yes,
            },
        }
    }

    /// Whether the cgroups of a process are not known, or were looked up long ago, for a process that calls
    /// for the first time or again: its id may have belonged to another. Starts a lookup if so.
    pub(crate) fn is_unknown(&self, pid: u32, now: Instant) -> bool {
        let known = || lock(&self.known).process(&self.looks, pid, now);
        !self.none && pid != 0 && known().is_none_or(|(_, age)| age >= 2 * BELIEVED)
    }

    /// As [`Limits::holds`], for a process that has just connected: its id may have belonged to another a
    /// moment ago.
    pub(crate) fn holds_afresh(&self, pid: u32, device: u64, now: Instant) -> bool {
        if self.is_unknown(pid, now) {
            self.look(Look::Process(pid));
        }
        self.holds(pid, device, now)
    }

    /// As [`Limits::known`], with a lookup in `/proc` if necessary, for a thread that may wait for it.
    pub(crate) fn holds(&self, pid: u32, device: u64, now: Instant) -> bool {
        for look in [Look::Process(pid), Look::Stack(Dev::from_raw(device))] {
            match self.known(pid, device, now) {
                Limited::No => return false,
                Limited::Yes => return true,
                Limited::Unknown => self.look(look),
            }
        }
        self.known(pid, device, now) != Limited::No
    }

    fn look(&self, look: Look) {
        let found = lock(&self.looker).look(look);
        let mut known = lock(&self.known);
        known.asked.remove(&look);
        let now = Instant::now();
        match look {
            Look::Process(pid) => known.processes.put(pid, (found, now)),
            Look::Stack(dev) => known.stacks.put(dev, (found, now)),
        };
    }
}

impl Known {
    fn process(&mut self, looks: &Sender<Look>, pid: u32, now: Instant) -> Option<(Devices, Duration)> {
        let found = self.processes.get(&pid).cloned();
        self.believed(looks, Look::Process(pid), found, BELIEVED, now)
    }

    fn stack(&mut self, looks: &Sender<Look>, dev: Dev, now: Instant) -> Option<(Devices, Duration)> {
        let found = self.stacks.get(&dev).cloned();
        self.believed(looks, Look::Stack(dev), found, STACK_BELIEVED, now)
    }

    /// The cached result and its age. An old result counts until the lookup has been repeated.
    fn believed(
        &mut self,
        looks: &Sender<Look>,
        look: Look,
        found: Option<(Devices, Instant)>,
        believed: Duration,
        now: Instant,
    ) -> Option<(Devices, Duration)> {
        let found = found.map(|(devices, since)| (devices, now.saturating_duration_since(since)));
        if found.as_ref().is_none_or(|(_, age)| *age >= believed)
            && !self.asked.contains(&look)
            && looks.try_send(look).is_ok()
        {
            self.asked.insert(look);
        }
        found
    }
}

fn run(limits: &std::sync::Weak<Limits>, looks: &Receiver<Look>) {
    // The sender is in the upgraded value, and is dropped with it.
    while let Ok(look) = looks.recv() {
        let Some(limits) = limits.upgrade() else { return };
        limits.look(look);
    }
}

/// Looks up `/proc`, `/sys` and the files of cgroups.
#[derive(Debug)]
struct Looker {
    groups: IoGroups,
    /// Results by the text that names a process's cgroups, because many processes have the same.
    found: LruCache<String, (Devices, Instant)>,
}

impl Looker {
    fn look(&mut self, look: Look) -> Devices {
        match look {
            Look::Stack(dev) => Arc::new(devices_under(Path::new("/sys"), &Topology::of_system(), dev)),
            // A process that is gone reads nothing.
            Look::Process(pid) => {
                membership(pid).map_or_else(|_| Devices::default(), |of| self.of_groups(of))
            }
        }
    }

    fn of_groups(&mut self, membership: String) -> Devices {
        let now = Instant::now();
        if let Some((found, since)) = self.found.get(&membership)
            && now.saturating_duration_since(*since) < BELIEVED / 2
        {
            return found.clone();
        }
        let found = Devices::new(self.groups.limited(&membership));
        self.found.put(membership, (found.clone(), now));
        found
    }
}

#[cfg(test)]
mod tests {
    use seekless_kernel::topology::MountTable;

    use super::*;

    /// A hierarchy in which every process of the test is in a cgroup with a limit on 8:0, or with none.
    fn limits(limit: &str) -> (tempfile::TempDir, Arc<Limits>) {
        let tree = tempfile::tempdir().unwrap();
        let own = membership(std::process::id()).unwrap();
        let path = own.lines().find_map(|line| {
            let (number, rest) = line.split_once(':')?;
            let (controllers, path) = rest.split_once(':')?;
            let v1 = controllers.split(',').any(|c| c == "blkio");
            (v1 || (number == "0" && controllers.is_empty())).then(|| (v1, path.to_string()))
        });
        let (v1, path) = path.unwrap_or((false, "/".into()));
        let group = tree.path().join(path.trim_start_matches('/'));
        std::fs::create_dir_all(&group).unwrap();
        let (kind, file, line) = match v1 {
            true => ("cgroup cgroup rw,blkio", "blkio.throttle.read_bps_device", format!("8:0 {limit}\n")),
            false => ("cgroup2 cgroup2 rw", "io.max", format!("8:0 rbps={limit} riops=max\n")),
        };
        std::fs::write(group.join(file), if limit == "0" { String::new() } else { line }).unwrap();
        let mounts = format!("30 24 0:26 / {} rw - {kind}\n", tree.path().display());
        (tree, Limits::of(IoGroups::mounted(&MountTable::parse(mounts.as_bytes()))).unwrap())
    }

    fn raw(major: u32, minor: u32) -> u64 {
        rustix::fs::makedev(major, minor)
    }

    #[test]
    fn a_process_is_limited_on_the_disk_that_its_group_names_alone() {
        let (_tree, limits) = limits("2097152");
        let (own, now) = (std::process::id(), Instant::now());
        assert_eq!(limits.known(own, raw(8, 0), now), Limited::Unknown, "it is not waited for");
        // The process first, then the disk.
        let until = now + Duration::from_secs(30);
        while limits.known(own, raw(8, 0), Instant::now()) != Limited::Yes {
            assert!(Instant::now() < until);
            thread::sleep(Duration::from_millis(1));
        }
        assert!(limits.holds(own, raw(8, 0), Instant::now()));
        assert!(!limits.holds(own, raw(9, 9), Instant::now()), "another disk");
        assert!(!limits.holds(0, raw(8, 0), Instant::now()), "not in our namespace");
    }

    #[test]
    fn a_limit_that_is_set_or_lifted_counts_soon() {
        let (tree, limits) = limits("0");
        let own = std::process::id();
        assert!(!limits.holds(own, raw(8, 0), Instant::now()));
        let long = Instant::now() + Duration::from_secs(100);
        assert!(limits.is_unknown(own, long), "its number may be another's by then");
        assert_eq!(limits.known(own, raw(8, 0), long), Limited::No, "until it is looked at");
        set_all(tree.path(), "8:0 1\n", "8:0 rbps=1 riops=max\n");
        let until = Instant::now() + Duration::from_secs(30);
        while !limits.holds(own, raw(8, 0), Instant::now()) {
            assert!(Instant::now() < until);
            thread::sleep(Duration::from_millis(20));
        }
        set_all(tree.path(), "", "");
        while limits.holds(own, raw(8, 0), Instant::now()) {
            assert!(Instant::now() < until);
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn set_all(folder: &Path, v1: &str, v2: &str) {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            match path.file_name().and_then(|name| name.to_str()) {
                Some("io.max") => std::fs::write(&path, v2).unwrap(),
                Some("blkio.throttle.read_bps_device") => std::fs::write(&path, v1).unwrap(),
                _ if path.is_dir() => set_all(&path, v1, v2),
                _ => {}
            }
        }
    }

    #[test]
    fn where_no_hierarchy_has_limits_nobody_is_looked_at() {
        let limits = Limits::of(IoGroups::default()).unwrap();
        assert_eq!(limits.known(std::process::id(), raw(8, 0), Instant::now()), Limited::No);
        assert!(lock(&limits.known).asked.is_empty());
    }

    #[test]
    fn processes_remembered_are_bounded() {
        let (_tree, limits) = limits("0");
        let now = Instant::now();
        for pid in 0x7000_0000..0x7000_0000 + 3 * KNOWN_MAX as u32 {
            limits.known(pid, raw(8, 0), now);
            let known = lock(&limits.known);
            assert!(known.processes.len() <= KNOWN_MAX && known.asked.len() <= LOOKS_MAX + 1);
        }
    }
}
