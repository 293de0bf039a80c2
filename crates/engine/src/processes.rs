//! The processes that read: their programs, for the costs ([`crate::costs`]), and their I/O priorities.
//!
//! Processes come and go, and their numbers are used again. So costs are counted for programs: the name of
//! the process, its control group (the unit of a service, a container), and its user. The workers of a server
//! are one program, and so are all runs of a short command. A thread counts as its process, except for its
//! own priority.
//!
//! Reading `/proc` may wait for a process that changes its control group. So a thread reads it, as soon as a
//! process first requests bytes. Until then the process has no name and the default priority. The results are
//! remembered for [`BELIEVED`].

use std::collections::HashMap;
use std::fs::File;
use std::io::Read as _;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};
use seekless_base::is_unsafe_to_print;
use seekless_kernel::cgroup::io::IoGroups;
use seekless_kernel::cgroup::membership;
use seekless_kernel::ioprio::{self, Class};
use seekless_policy::IoPriority;
use serde::{Deserialize, Serialize};

use crate::lock;

/// How long the data of a process is used before it is looked up again. For this long, a number given to
/// another process counts for the old one, and a change by `ionice` has no effect. At half, there are twice
/// as many lookups of some 80 us each.
const BELIEVED: Duration = Duration::from_secs(5);

/// Maximum number of remembered processes, and of queued lookups. Beyond it a process is not known. At half,
/// a server that starts a process for each file is not known under load.
const PROCESSES_MAX: usize = 4096;

/// Maximum length of a text of `/proc` that is read, and of the name of a group, in bytes.
const TEXT_MAX: u64 = 4096;
const GROUP_MAX: usize = 64;

/// A program that reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Program {
    /// Name of its processes; empty if it is not known.
    pub name: String,
    /// Last part of its control group; empty if it is in none.
    pub group: String,
    /// Its user.
    pub user: Option<u32>,
}

/// The result of a lookup.
#[derive(Clone, Debug, Default)]
struct Process {
    program: Arc<Program>,
    io: IoPriority,
}

#[derive(Debug, Default)]
struct Known {
    /// `None` while it is looked up for the first time.
    process: Option<Process>,
    /// When it was last looked up, or queued to be.
    since: Option<Instant>,
}

/// The processes that read. Shared by every door and disk.
#[derive(Debug, Default)]
pub(crate) struct Processes {
    known: Mutex<HashMap<u32, Known>>,
    looks: OnceLock<Option<Sender<u32>>>,
    unknown: Arc<Program>,
}

impl Processes {
    /// A process or thread has requested bytes (0: not known). Queues a lookup; never waits.
    pub(crate) fn asked(self: &Arc<Self>, id: u32, now: Instant) {
        self.priority_of(id, now);
    }

    /// The I/O priority of a process or thread that requests bytes (0: not known), if known. Queues a lookup;
    /// never waits.
    pub(crate) fn priority_of(self: &Arc<Self>, id: u32, now: Instant) -> IoPriority {
        if id == 0 {
            return IoPriority::NORMAL;
        }
        let mut known = lock(&self.known);
        if known.len() >= PROCESSES_MAX && !known.contains_key(&id) {
            let fresh = |k: &Known| k.since.is_some_and(|at| now.saturating_duration_since(at) < BELIEVED);
            known.retain(|_, k| fresh(k));
            if known.len() >= PROCESSES_MAX {
                return IoPriority::NORMAL;
            }
        }
        let of = known.entry(id).or_default();
        if of.since.is_none_or(|at| now.saturating_duration_since(at) >= BELIEVED) {
            let looks = self.looks.get_or_init(|| start(Arc::downgrade(self)));
            if looks.as_ref().is_some_and(|looks| looks.try_send(id).is_ok()) {
                of.since = Some(now);
            }
        }
        of.process.as_ref().map_or(IoPriority::NORMAL, |process| process.io)
    }

    /// The program of a process, as far as is known.
    pub(crate) fn program_of(&self, id: u32) -> Arc<Program> {
        let known = lock(&self.known);
        let process = known.get(&id).and_then(|known| known.process.as_ref());
        process.map_or(&self.unknown, |process| &process.program).clone()
    }
}

fn start(of: Weak<Processes>) -> Option<Sender<u32>> {
    let (looks, todo) = bounded(PROCESSES_MAX);
    let run = move || run(&of, &todo);
    match thread::Builder::new().name("processes".into()).spawn(run) {
        Ok(_) => Some(looks),
        Err(error) => {
            tracing::warn!(%error, "no thread to look up processes; costs are counted for files only");
            None
        }
    }
}

fn run(of: &Weak<Processes>, todo: &Receiver<u32>) {
    let groups = IoGroups::of_system();
    // The sender is in the upgraded value, and is dropped with it.
    while let Ok(id) = todo.recv() {
        let process = look_up(id, &groups);
        let Some(processes) = of.upgrade() else { return };
        if let (Some(known), Some(process)) = (lock(&processes.known).get_mut(&id), process) {
            known.process = Some(process);
        }
    }
}

/// Text of a file below `/proc`.
fn text(path: &str) -> Option<String> {
    let mut text = Vec::new();
    File::open(path).ok()?.take(TEXT_MAX).read_to_end(&mut text).ok()?;
    Some(String::from_utf8_lossy(&text).into_owned())
}

/// The program and the priority of a process or thread; `None` if it is gone.
fn look_up(id: u32, groups: &IoGroups) -> Option<Process> {
    let status = text(&format!("/proc/{id}/status"))?;
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let process: u32 = field("Tgid:")?.parse().ok()?;
    let name = match process == id {
        true => field("Name:").map(str::to_string),
        // The name of a thread is its own.
        false => text(&format!("/proc/{process}/comm")).map(|name| name.trim_end().to_string()),
    };
    let user = field("Uid:").and_then(|ids| ids.split_whitespace().next()?.parse().ok());
    let of = membership(process).unwrap_or_default();
    let program = Program { name: shown(&name?), group: group(&of), user };
    let io = ioprio::of_process(i32::try_from(id).ok()?).map_or(IoPriority::NORMAL, of_class);
    Some(Process { program: Arc::new(program), io: io.in_group(groups.weight(&of)) })
}

/// Real time counts as the highest level of best effort: no piece is interrupted for it anyway.
fn of_class(class: Class) -> IoPriority {
    match class {
        Class::RealTime => IoPriority::best_effort(0),
        Class::BestEffort(level) => IoPriority::best_effort(level),
        Class::Idle => IoPriority::IDLE,
    }
}

/// Last part of the control group in the text of `/proc/PID/cgroup`: of the unified hierarchy, else of the
/// service manager's.
fn group(membership: &str) -> String {
    let path = |wanted: &str| {
        membership.lines().find_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            (controllers == wanted).then_some(path)
        })
    };
    let last = |path: &str| path.rsplit('/').next().unwrap_or_default().to_string();
    let found =
        [path(""), path("name=systemd")].into_iter().flatten().map(last).find(|last| !last.is_empty());
    let mut group = shown(&found.unwrap_or_default());
    while group.len() > GROUP_MAX {
        group.pop();
    }
    group
}

/// A name without characters that do something else than being shown.
pub(crate) fn shown(name: &str) -> String {
    name.chars().map(|c| if is_unsafe_to_print(c) { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(processes: &Arc<Processes>, pid: u32) -> Arc<Program> {
        let until = Instant::now() + Duration::from_secs(30);
        while processes.program_of(pid).name.is_empty() && Instant::now() < until {
            processes.asked(pid, Instant::now());
            thread::sleep(Duration::from_millis(1));
        }
        processes.program_of(pid)
    }

    #[test]
    fn a_thread_counts_as_its_process() {
        let processes = Arc::new(Processes::default());
        let own = found(&processes, std::process::id());
        assert_eq!(own.user, Some(rustix::process::getuid().as_raw()));
        let named = {
            let processes = processes.clone();
            thread::Builder::new().name("another".into()).spawn(move || {
                let tid = rustix::thread::gettid().as_raw_nonzero().get() as u32;
                found(&processes, tid)
            })
        };
        assert_eq!(named.unwrap().join().unwrap().name, own.name);
        assert_ne!(own.name, "another");
    }

    #[test]
    fn who_is_gone_or_unknown_has_no_name() {
        let processes = Arc::new(Processes::default());
        processes.asked(0, Instant::now());
        assert!(lock(&processes.known).is_empty());
        assert_eq!(*processes.program_of(0), Program::default());
        assert_eq!(processes.priority_of(0, Instant::now()), IoPriority::NORMAL);
        assert!(look_up(u32::MAX, &IoGroups::default()).is_none());
    }

    #[test]
    fn the_group_is_the_last_part_of_its_path() {
        for (text, expected) in [
            ("0::/system.slice/nginx.service\n", "nginx.service"),
            ("0::/\n", ""),
            ("5:cpu:/x\n1:name=systemd:/user.slice/a.scope\n0::/\n", "a.scope"),
            ("3:blkio:/y\n", ""),
            ("", ""),
            ("0::/a\u{1b}[2J\n", "a?[2J"),
        ] {
            assert_eq!(group(text), expected, "{text:?}");
        }
        assert_eq!(group(&format!("0::/{}", "x".repeat(1000))).len(), GROUP_MAX);
    }

    #[test]
    fn processes_remembered_are_bounded() {
        let processes = Arc::new(Processes::default());
        let now = Instant::now();
        for pid in 0x7000_0000..0x7000_0000 + 3 * PROCESSES_MAX as u32 {
            processes.asked(pid, now);
        }
        assert!(lock(&processes.known).len() <= PROCESSES_MAX);
    }

    #[test]
    fn a_change_of_priority_is_noticed_after_a_while() {
        let processes = Arc::new(Processes::default());
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let (id, now) = (child.id(), Instant::now());
        assert_eq!(processes.priority_of(id, now), IoPriority::NORMAL, "nothing is known yet");
        found(&processes, id);
        let before = processes.priority_of(id, now);
        let ionice = std::process::Command::new("ionice").args(["-c3", "-p", &id.to_string()]).status();
        if ionice.is_ok_and(|status| status.success()) {
            assert_eq!(processes.priority_of(id, now + BELIEVED / 2), before);
            let (until, mut later) = (now + Duration::from_secs(30), now);
            while !processes.priority_of(id, later).idle && Instant::now() < until {
                later += BELIEVED;
                thread::sleep(Duration::from_millis(1));
            }
            assert!(processes.priority_of(id, later).idle);
        } else {
            println!("skipped: there is no ionice here");
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
