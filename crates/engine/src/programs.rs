//! Which program a process belongs to, for the account of costs ([`crate::costs`]).
//!
//! Processes come and go, and their numbers are used again. So costs are counted for programs: the name of
//! the process, its control group (the unit of a service, a container), and its user. The workers of a server
//! are one program, and so are all runs of a short command. A thread counts as its process.
//!
//! `/proc` may have to wait for a process that changes its control group. So a thread looks there, as soon as
//! a process first asks. The results are remembered for [`BELIEVED`].

use std::collections::HashMap;
use std::fs::File;
use std::io::Read as _;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};
use seekless_base::is_unsafe_to_print;
use seekless_kernel::cgroup::limits::membership;
use serde::{Deserialize, Serialize};

use crate::lock;

/// How long the program of a process is remembered before it is looked up again, while the process reads. A
/// number given to another process counts for the old one for this long. At half, twice as many looks, some
/// 30 us each.
const BELIEVED: Duration = Duration::from_secs(10);

/// Maximum number of remembered processes, and of queued looks. Beyond it the program of a process is not
/// known. At half, a server that starts a process for each file is not known under load.
const PROCESSES_MAX: usize = 4096;

/// Longest text of `/proc` that is read, and longest name of a group in bytes.
const TEXT_MAX: u64 = 4096;
const GROUP_MAX: usize = 64;

/// A program that reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Program {
    /// Name of its processes; empty if it is not known who asked.
    pub name: String,
    /// Last part of its control group; empty if it is in none.
    pub group: String,
    /// Its user.
    pub user: Option<u32>,
}

#[derive(Debug, Default)]
struct Known {
    /// `None` while it is looked up for the first time.
    program: Option<Arc<Program>>,
    /// When it was last looked up, or queued to be.
    since: Option<Instant>,
}

/// The programs of processes that read.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    known: Mutex<HashMap<u32, Known>>,
    looks: OnceLock<Option<Sender<u32>>>,
    unknown: Arc<Program>,
}

impl Programs {
    /// A process or thread has asked (0: not known). Queues a look at its program; never waits.
    pub(crate) fn asked(self: &Arc<Self>, pid: u32, now: Instant) {
        if pid == 0 {
            return;
        }
        let mut known = lock(&self.known);
        if known.len() >= PROCESSES_MAX && !known.contains_key(&pid) {
            let fresh = |k: &Known| k.since.is_some_and(|at| now.saturating_duration_since(at) < BELIEVED);
            known.retain(|_, k| fresh(k));
            if known.len() >= PROCESSES_MAX {
                return;
            }
        }
        let of = known.entry(pid).or_default();
        if of.since.is_none_or(|at| now.saturating_duration_since(at) >= BELIEVED) {
            let looks = self.looks.get_or_init(|| start(Arc::downgrade(self)));
            if looks.as_ref().is_some_and(|looks| looks.try_send(pid).is_ok()) {
                of.since = Some(now);
            }
        }
    }

    /// The program of a process, as far as is known.
    pub(crate) fn of(&self, pid: u32) -> Arc<Program> {
        let known = lock(&self.known).get(&pid).and_then(|known| known.program.clone());
        known.unwrap_or_else(|| self.unknown.clone())
    }
}

fn start(of: Weak<Programs>) -> Option<Sender<u32>> {
    let (looks, todo) = bounded(PROCESSES_MAX);
    let run = move || run(&of, &todo);
    match thread::Builder::new().name("programs".into()).spawn(run) {
        Ok(_) => Some(looks),
        Err(error) => {
            tracing::warn!(%error, "no thread to look up programs; costs are counted for files only");
            None
        }
    }
}

fn run(of: &Weak<Programs>, todo: &Receiver<u32>) {
    // The sender is in the upgraded value, and is dropped with it.
    while let Ok(pid) = todo.recv() {
        let program = look_up(pid).map(Arc::new);
        let Some(programs) = of.upgrade() else { return };
        if let (Some(known), Some(program)) = (lock(&programs.known).get_mut(&pid), program) {
            known.program = Some(program);
        }
    }
}

/// Text of a file below `/proc`.
fn text(path: &str) -> Option<String> {
    let mut text = Vec::new();
    File::open(path).ok()?.take(TEXT_MAX).read_to_end(&mut text).ok()?;
    Some(String::from_utf8_lossy(&text).into_owned())
}

/// The program of a process or thread; `None` if it is gone.
fn look_up(pid: u32) -> Option<Program> {
    let status = text(&format!("/proc/{pid}/status"))?;
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let process: u32 = field("Tgid:")?.parse().ok()?;
    let name = match process == pid {
        true => field("Name:").map(str::to_string),
        // The name of a thread is its own.
        false => text(&format!("/proc/{process}/comm")).map(|name| name.trim_end().to_string()),
    };
    let user = field("Uid:").and_then(|ids| ids.split_whitespace().next()?.parse().ok());
    let group = membership(process).map(|of| group(&of)).unwrap_or_default();
    Some(Program { name: shown(&name?), group, user })
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

    fn found(programs: &Arc<Programs>, pid: u32) -> Arc<Program> {
        let until = Instant::now() + Duration::from_secs(30);
        while programs.of(pid).name.is_empty() && Instant::now() < until {
            programs.asked(pid, Instant::now());
            thread::sleep(Duration::from_millis(1));
        }
        programs.of(pid)
    }

    #[test]
    fn a_thread_counts_as_its_process() {
        let programs = Arc::new(Programs::default());
        let own = found(&programs, std::process::id());
        assert_eq!(own.user, Some(rustix::process::getuid().as_raw()));
        let named = {
            let programs = programs.clone();
            thread::Builder::new().name("another".into()).spawn(move || {
                let tid = rustix::thread::gettid().as_raw_nonzero().get() as u32;
                found(&programs, tid)
            })
        };
        assert_eq!(named.unwrap().join().unwrap().name, own.name);
        assert_ne!(own.name, "another");
    }

    #[test]
    fn who_is_gone_or_unknown_has_no_name() {
        let programs = Arc::new(Programs::default());
        programs.asked(0, Instant::now());
        assert!(lock(&programs.known).is_empty());
        assert_eq!(*programs.of(0), Program::default());
        assert_eq!(look_up(u32::MAX), None);
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
        let programs = Arc::new(Programs::default());
        let now = Instant::now();
        for pid in 0x7000_0000..0x7000_0000 + 3 * PROCESSES_MAX as u32 {
            programs.asked(pid, now);
        }
        assert!(lock(&programs.known).len() <= PROCESSES_MAX);
    }
}
