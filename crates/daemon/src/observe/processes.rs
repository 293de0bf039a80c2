//! Processes whose reads are ignored here: other Seekless processes, which read for others, and servers whose
//! shim reports each read to this process.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lru::LruCache;
use seekless_engine::recent;

use crate::callers::Callers;

/// How long a result about a process is cached, because ids are used again, and processes start other
/// programs.
const BELIEVED: Duration = Duration::from_secs(10);

/// Maximum number of cached processes. Beyond it, those that read longest ago are looked up again.
const PROCESSES_MAX: usize = 4096;

/// Maximum number of processes looked up in one round, some 50 us each. The reads of others are followed.
pub(super) const LOOKS_MAX: usize = 16;

/// Maximum number of lines of a process's mappings: libraries are mapped by the hundred, and the shim is
/// among the first.
const MAPPINGS_MAX: usize = 4096;

/// File name of the shim.
const SHIM: &str = "libseekless.so";

pub(crate) struct Processes {
    /// Device and inode of our own program.
    program: Option<(u64, u64)>,
    /// Processes whose shims report to this daemon; others report to another daemon or to none.
    callers: Arc<Callers>,
    known: LruCache<u32, (bool, Instant)>,
    looks: usize,
}

impl Processes {
    pub(crate) fn new(callers: Arc<Callers>) -> Processes {
        Processes {
            program: program(Path::new("/proc/self")),
            callers,
            known: recent(PROCESSES_MAX),
            looks: 0,
        }
    }

    /// A new round of events begins.
    pub(crate) fn round(&mut self) {
        self.looks = 0;
    }

    /// Whether the reads of this process are reported in another way, or belong to no program.
    pub(crate) fn is_told_otherwise(&mut self, pid: u32, now: Instant) -> bool {
        // Not in our process namespace, or a thread of the kernel.
        if pid == 0 {
            return false;
        }
        if let Some(&(told, since)) = self.known.get(&pid)
            && now.saturating_duration_since(since) < BELIEVED
        {
            return told;
        }
        if self.looks >= LOOKS_MAX {
            return false;
        }
        self.looks += 1;
        let folder = Path::new("/proc").join(pid.to_string());
        let ours = self.program.is_some() && program(&folder) == self.program;
        let told = ours || (self.callers.has_called(pid) && is_hooked(&folder));
        self.known.put(pid, (told, now));
        told
    }
}

fn program(process: &Path) -> Option<(u64, u64)> {
    fs::metadata(process.join("exe")).ok().map(|about| (about.dev(), about.ino()))
}

fn is_hooked(process: &Path) -> bool {
    let Ok(maps) = fs::File::open(process.join("maps")) else { return false };
    let lines = BufReader::new(maps).split(b'\n').take(MAPPINGS_MAX).map_while(Result::ok);
    lines.into_iter().any(|line| line.ends_with(SHIM.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn our_own_program_is_told_apart_from_others() {
        let mut processes = Processes::new(Arc::default());
        let now = Instant::now();
        assert!(processes.is_told_otherwise(std::process::id(), now));
        let mut other = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().unwrap();
        // Until the child runs the other program, it is this one.
        let until = Instant::now() + Duration::from_secs(20);
        let folder = Path::new("/proc").join(other.id().to_string());
        while program(&folder) == processes.program && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        let told = processes.is_told_otherwise(other.id(), now);
        other.kill().unwrap();
        other.wait().unwrap();
        assert!(!told && !processes.is_told_otherwise(0, now));
    }

    #[test]
    fn a_server_with_the_shim_is_heard_until_it_calls_here() {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let mut mapped = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
        let library = mapped.find(|path| path.contains("/libgcc_s")).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let shim = folder.path().join(SHIM);
        fs::copy(library, &shim).unwrap();
        let mut server = Command::new("sleep").arg("60").env("LD_PRELOAD", &shim).spawn().unwrap();
        let (pid, until) = (server.id(), Instant::now() + Duration::from_secs(20));
        while !is_hooked(&Path::new("/proc").join(pid.to_string())) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        let callers = Arc::<Callers>::default();
        let mut processes = Processes::new(callers.clone());
        let now = Instant::now();
        let silent = processes.is_told_otherwise(pid, now);
        callers.called(pid);
        let believed = processes.is_told_otherwise(pid, now);
        let called = processes.is_told_otherwise(pid, now + BELIEVED);
        server.kill().unwrap();
        server.wait().unwrap();
        assert_eq!((silent, believed, called), (false, false, true));
    }

    #[test]
    fn looks_of_one_round_are_bounded() {
        let mut processes = Processes::new(Arc::default());
        let now = Instant::now();
        for pid in 0x7000_0000..0x7000_0000 + 2 * LOOKS_MAX as u32 {
            processes.is_told_otherwise(pid, now);
        }
        assert_eq!(processes.known.len(), LOOKS_MAX);
        processes.round();
        assert!(processes.is_told_otherwise(std::process::id(), now));
    }
}
