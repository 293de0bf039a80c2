//! A server whose settings let few of its reads wait for the disk, so that there is little to choose from.

use std::fs;
use std::path::{Path, PathBuf};

use super::Finding;

/// The children of a process; none if the kernel does not list them (CONFIG_PROC_CHILDREN).
pub fn children(dir: &Path) -> Vec<u32> {
    let threads = fs::read_dir(dir.join("task")).into_iter().flatten().flatten();
    let listed = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    listed
        .flat_map(|text| text.split_whitespace().filter_map(|n| n.parse().ok()).collect::<Vec<u32>>())
        .collect()
}

/// The folder of a process in /proc.
pub fn folder(pid: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}"))
}

/// Maximum number of processes of a server that are examined.
pub const WORKERS_MAX: usize = 256;

/// Maximum number of a server's reads that wait at the same time; 0 if it has threads for them. nginx has a
/// pool of threads in each worker if `aio threads` is set, else one thread; lighttpd always has one. A master
/// does not read.
pub fn reads_at_once(pid: u32, name: &str) -> usize {
    if !matches!(name, "nginx" | "lighttpd") {
        return 0;
    }
    let same =
        |pid: &u32| fs::read_to_string(folder(*pid).join("comm")).is_ok_and(|comm| comm.trim() == name);
    let mut workers: Vec<u32> = children(&folder(pid)).into_iter().filter(same).take(WORKERS_MAX).collect();
    if workers.is_empty() {
        workers.push(pid);
    }
    let alone = |pid: &u32| fs::read_dir(folder(*pid).join("task")).is_ok_and(|tasks| tasks.count() == 1);
    if workers.iter().all(alone) { workers.len() } else { 0 }
}

/// A setting of the server that limits the number of reads the disk can choose from; for a server with the
/// shim.
pub fn few_blocked(name: &str, reads_at_once: usize) -> Option<Finding> {
    if reads_at_once == 0 {
        return None;
    }
    let what = match reads_at_once {
        1 => "its one process reads all files in one thread: only one read at a time waits for the disks, however many clients do".into(),
        n => format!(
            "its {n} workers read all files, each in one thread: {n} reads at most wait for the disks, however many clients do"
        ),
    };
    let advice = match name {
        "nginx" => {
            "write `aio threads;` beside `sendfile on;` in nginx.conf (nginx built --with-threads): a worker then has up to 32 reads waiting, \
             from which the next in disk order is taken, and serves from memory meanwhile; single answers may take longer at the \
             99th percentile"
        }
        _ => {
            "write `server.max-worker = 16` in lighttpd.conf: as many reads wait then, from which the next in disk order is taken, and the others \
             serve from memory meanwhile; single answers may take longer at the 99th percentile"
        }
    };
    Some(Finding { kind: "few_blocked", blocks: false, what, advice: advice.into() })
}

/// As [`few_blocked`], for a running process.
pub fn few_blocked_of(pid: u32) -> Option<(String, Finding)> {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?.trim().to_string();
    let finding = few_blocked(&name, reads_at_once(pid, &name))?;
    Some((name, finding))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_of_another_name_is_left_alone() {
        // The test program has another name.
        assert_eq!(few_blocked_of(std::process::id()), None);
    }

    #[test]
    fn workers_are_counted_by_their_threads() {
        // A process of that name with one thread: `sleep` under another name.
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("nginx");
        std::os::unix::fs::symlink("/bin/sleep", &program).unwrap();
        let mut child = std::process::Command::new(&program).arg("60").spawn().unwrap();
        let named = |pid| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        while named(child.id()).trim() != "nginx" {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let found = few_blocked_of(child.id());
        let _ = child.kill();
        let _ = child.wait();
        assert_eq!(found.map(|(name, f)| (name, f.kind)), Some(("nginx".into(), "few_blocked")));
    }
}
