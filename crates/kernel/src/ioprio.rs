//! Who goes first at the disk: the I/O priority of a process (`ionice`), and the weight of its control group.
//!
//! Both are the kernel's own settings, read as it would apply them to the process: without an I/O priority of
//! its own, a process has the one of its nice value and scheduling class (ioprio_get(2)). Weights are those
//! for all devices; the kernel's settings for single devices are not read.

use std::fs;
use std::path::{Path, PathBuf};

/// I/O priority of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Real time: before all others.
    RealTime,
    /// Best effort, at a level of 0 (highest) to 7; 4 is the default.
    BestEffort(u32),
    /// Only when nobody else reads.
    Idle,
}

const IOPRIO_WHO_PROCESS: libc::c_int = 1;
const IOPRIO_CLASS_SHIFT: u32 = 13;

/// Maximum number of groups above one that are read.
const DEPTH_MAX: usize = 16;

/// The default weight, and the file's name, in the order of preference: io (v2), BFQ (v2, v1), CFQ (v1).
const WEIGHTS: [(&str, f64); 4] =
    [("io.weight", 100.0), ("io.bfq.weight", 100.0), ("blkio.bfq.weight", 100.0), ("blkio.weight", 500.0)];

/// The I/O priority of a process (of its first thread). `None` if it has ended or may not be queried.
pub fn of_process(pid: i32) -> Option<Class> {
    if pid <= 0 {
        return None;
    }
    // SAFETY: this call takes two numbers and touches no memory of this process.
    let found = unsafe { libc::syscall(libc::SYS_ioprio_get, IOPRIO_WHO_PROCESS, pid) };
    let found = u32::try_from(found).ok()?;
    Some(match (found >> IOPRIO_CLASS_SHIFT, found & 7) {
        (1, _) => Class::RealTime,
        (2, level) => Class::BestEffort(level),
        (3, _) => Class::Idle,
        _ => by_scheduling(pid),
    })
}

/// The priority of a process that has none of its own (`get_task_ioprio` in block/ioprio.c).
fn by_scheduling(pid: i32) -> Class {
    // SAFETY: as above.
    match unsafe { libc::sched_getscheduler(pid) } & !libc::SCHED_RESET_ON_FORK {
        libc::SCHED_IDLE => Class::Idle,
        libc::SCHED_FIFO | libc::SCHED_RR => Class::RealTime,
        _ => {
            let pid = rustix::process::Pid::from_raw(pid);
            let nice = rustix::process::getpriority_process(pid).unwrap_or(0);
            Class::BestEffort((nice + 20).clamp(0, 39) as u32 / 5)
        }
    }
}

/// Control groups with weights for disks.
#[derive(Clone, Debug)]
pub struct Groups {
    /// Where the hierarchy is mounted, and the controller by which `/proc/PID/cgroup` names it; empty for v2.
    mounts: Vec<(PathBuf, &'static str)>,
    proc: PathBuf,
}

impl Groups {
    /// Those of the running system. Empty if none are mounted.
    pub fn of_system() -> Groups {
        Groups::of(&fs::read_to_string("/proc/self/mountinfo").unwrap_or_default(), Path::new("/proc"))
    }

    /// Those of a mount table, with processes in this folder.
    fn of(mountinfo: &str, proc: &Path) -> Groups {
        let mounts = mountinfo.lines().filter_map(|line| {
            let (before, after) = line.split_once(" - ")?;
            let point = before.split(' ').nth(4)?;
            let mut after = after.split(' ');
            match after.next()? {
                "cgroup2" => Some((PathBuf::from(point), "")),
                "cgroup" if after.nth(1)?.split(',').any(|option| option == "blkio") => {
                    Some((PathBuf::from(point), "blkio"))
                }
                _ => None,
            }
        });
        Groups { mounts: mounts.collect(), proc: proc.to_path_buf() }
    }

    /// The weight of a process's group in parts of the default: the product of those from its group to the
    /// topmost, since each counts among the groups beside it. 1 if there are no weights, or they cannot be
    /// read.
    pub fn weight_of(&self, pid: i32) -> f64 {
        let Ok(text) = fs::read_to_string(self.proc.join(pid.to_string()).join("cgroup")) else { return 1.0 };
        let weights = self.mounts.iter().filter_map(|(point, controller)| {
            let path = text.lines().find_map(|line| {
                let mut parts = line.splitn(3, ':');
                let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
                controllers.split(',').any(|c| c == *controller).then_some(path)
            })?;
            Some(weight_along(point, path))
        });
        // At most one hierarchy has the controller.
        weights.product()
    }
}

/// The product of the weights from this group up to the one below the root, which has none.
fn weight_along(point: &Path, path: &str) -> f64 {
    let path = Path::new(path.trim_start_matches('/'));
    let plain = path.components().all(|part| matches!(part, std::path::Component::Normal(_)));
    let groups = path.ancestors().filter(|group| plain && !group.as_os_str().is_empty());
    groups.take(DEPTH_MAX).map(|group| weight_in(&point.join(group)).unwrap_or(1.0)).product()
}

/// The weight of one group in parts of the default.
fn weight_in(dir: &Path) -> Option<f64> {
    WEIGHTS.iter().find_map(|(file, default)| {
        let text = fs::read_to_string(dir.join(file)).ok()?;
        // v2: `default 100`, then a line for each device that has another.
        let first = text.lines().next()?;
        let number: f64 = first.strip_prefix("default ").unwrap_or(first).trim().parse().ok()?;
        (number > 0.0).then_some(number / default)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `sleep` after `prepare`, and returns its priority.
    fn with(command: &[&str]) -> Option<Class> {
        let mut child = std::process::Command::new(command[0]).args(&command[1..]).spawn().ok()?;
        // The prefix program replaces itself by `sleep`, which then has what it was given.
        let until = std::time::Instant::now() + std::time::Duration::from_secs(5);
        let comm = format!("/proc/{}/comm", child.id());
        while fs::read_to_string(&comm).is_ok_and(|name| name.trim() != "sleep")
            && std::time::Instant::now() < until
        {
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        let found = of_process(child.id() as i32);
        child.kill().unwrap();
        child.wait().unwrap();
        found
    }

    #[test]
    fn a_priority_is_as_ionice_has_set_it() {
        let Some(idle) = with(&["ionice", "-c3", "sleep", "60"]) else {
            return println!("skipped: there is no ionice here");
        };
        assert_eq!(idle, Class::Idle);
        assert_eq!(with(&["ionice", "-c2", "-n7", "sleep", "60"]), Some(Class::BestEffort(7)));
    }

    #[test]
    fn without_one_it_follows_from_the_nice_value() {
        let usual = with(&["sleep", "60"]);
        let nice = with(&["nice", "-n", "19", "sleep", "60"]);
        assert_eq!(nice, Some(Class::BestEffort(7)), "beside {usual:?}");
    }

    #[test]
    fn a_process_that_is_not_there_has_none() {
        for pid in [0, -1, i32::MAX] {
            assert_eq!(of_process(pid), None, "{pid}");
        }
    }

    #[test]
    fn weights_multiply_up_to_the_root() {
        let dir = tempfile::tempdir().unwrap();
        let (point, proc) = (dir.path().join("cg"), dir.path().join("proc"));
        fs::create_dir_all(point.join("a/b")).unwrap();
        fs::create_dir_all(proc.join("7")).unwrap();
        fs::write(point.join("io.weight"), "default 1\n").unwrap();
        fs::write(point.join("a/io.weight"), "default 200\n8:0 10\n").unwrap();
        fs::write(point.join("a/b/io.weight"), "default 50\n").unwrap();
        let groups = |kind: &str| {
            let mounts = format!("31 24 0:27 / {} rw - {kind}\n", point.display());
            Groups::of(&mounts, &proc)
        };
        let v2 = groups("cgroup2 cgroup2 rw");
        let of = |text: &str| {
            fs::write(proc.join("7/cgroup"), text).unwrap();
            v2.weight_of(7)
        };
        assert_eq!(of("4:memory:/x\n0::/a/b\n"), 1.0);
        assert_eq!(of("0::/a\n"), 2.0);
        assert_eq!(of("0::/\n"), 1.0, "the root weighs nothing");
        assert_eq!(of("0::/../a\n"), 1.0, "a group above what is seen here");
        assert_eq!(of(""), 1.0);
        assert_eq!(v2.weight_of(8), 1.0);
        fs::write(point.join("a/blkio.weight"), "1000\n").unwrap();
        fs::remove_file(point.join("a/io.weight")).unwrap();
        fs::write(proc.join("7/cgroup"), "7:blkio,x:/a\n0::/\n").unwrap();
        assert_eq!(groups("cgroup cgroup rw,blkio").weight_of(7), 2.0);
        assert_eq!(groups("cgroup cgroup rw,memory").weight_of(7), 1.0);
        assert_eq!(groups("ext4 /dev/sda rw").weight_of(7), 1.0);
    }
}
