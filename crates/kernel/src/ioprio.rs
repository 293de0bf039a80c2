//! The I/O priority of a process (`ionice`), as the kernel applies it: without one of its own, a process has
//! the one of its nice value and scheduling class (ioprio_get(2)).

/// I/O priority of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Real time: before all others.
    RealTime,
    /// Best effort, at a level of 0 (highest) to 7; 4 is the default.
    BestEffort(u32),
    /// Only when no other process reads.
    Idle,
}

const IOPRIO_WHO_PROCESS: libc::c_int = 1;
const IOPRIO_CLASS_SHIFT: u32 = 13;

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

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

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
        // As nice as can be, however nice the test is.
        let nice = with(&["nice", "-n", "39", "sleep", "60"]);
        assert_eq!(nice, Some(Class::BestEffort(7)));
    }

    #[test]
    fn a_process_that_is_not_there_has_none() {
        for pid in [0, -1, i32::MAX] {
            assert_eq!(of_process(pid), None, "{pid}");
        }
    }
}
