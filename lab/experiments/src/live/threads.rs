//! Whether the threads of a server that talk to clients ever wait for a disk.
//!
//! A thread that waits for a page from a disk is in uninterruptible sleep, state D of
//! `/proc/PID/task/TID/stat`. It is looked at every 20 ms, which a wait of 10 ms meets half of the time; over
//! a run of minutes a server that blocks is found out. Other causes of state D (memory reclaim, a file
//! system's lock) count too.

use crate::server::Server;

/// What was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sampled {
    looks: u64,
    blocked: u64,
}

impl Sampled {
    /// Looks once at every thread that talks to clients: those of event loops where a process has threads so
    /// named (`seekless serve`), else the first of each process (nginx's workers).
    pub(super) fn look(&mut self, server: &Server) {
        for pid in server.pids() {
            let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else { continue };
            let seen: Vec<(u32, Task)> = tasks
                .flatten()
                .filter_map(|task| {
                    let tid = task.file_name().to_str()?.parse().ok()?;
                    Some((tid, Task::parse(&std::fs::read_to_string(task.path().join("stat")).ok()?)?))
                })
                .collect();
            let loops = seen.iter().any(|(_, task)| task.is_loop());
            for (_, task) in
                seen.iter().filter(|(tid, task)| if loops { task.is_loop() } else { *tid == pid })
            {
                self.looks += 1;
                self.blocked += u64::from(task.state == 'D');
            }
        }
    }

    /// Share of the looks that met a waiting thread; none without a look.
    pub(super) fn share(&self) -> Option<f64> {
        (self.looks > 0).then(|| self.blocked as f64 / self.looks as f64)
    }
}

/// A line of `/proc/PID/task/TID/stat`.
#[derive(Debug, PartialEq, Eq)]
struct Task {
    name: String,
    state: char,
}

impl Task {
    fn parse(stat: &str) -> Option<Task> {
        // A name may hold spaces and brackets.
        let (before, after) = stat.rsplit_once(')')?;
        let name = before.split_once('(')?.1.to_string();
        Some(Task { name, state: after.trim_start().chars().next()? })
    }

    fn is_loop(&self) -> bool {
        self.name.strip_prefix("loop").is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_read_whatever_a_thread_is_called() {
        let task = |name: &str, state| Some(Task { name: name.into(), state });
        assert_eq!(Task::parse("12 (loop0) S 1 2 3"), task("loop0", 'S'));
        assert_eq!(Task::parse("12 (a) b (c)) D 1"), task("a) b (c)", 'D'));
        assert_eq!(Task::parse("nothing"), None);
        assert!(task("loop12", 'S').unwrap().is_loop() && !task("loopback", 'S').unwrap().is_loop());
        assert!(!task("loop", 'S').unwrap().is_loop());
    }
}
