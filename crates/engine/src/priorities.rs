//! The I/O priorities of the processes that read, each looked up once in a while.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use seekless_kernel::ioprio::{self, Class, Groups};
use seekless_policy::IoPriority;

use crate::lock;

/// How long a result is used: `ionice` and `systemctl set-property` change it, and ids are used again.
const BELIEVED: Duration = Duration::from_secs(5);

/// Maximum number of cached processes. Beyond it all are looked up again, some 50 us each.
const PROCESSES_MAX: usize = 4096;

/// The I/O priorities of processes. Shared by every door.
#[derive(Debug)]
pub(crate) struct Priorities {
    groups: Groups,
    known: Mutex<HashMap<i32, (IoPriority, Instant)>>,
}

impl Priorities {
    pub(crate) fn new() -> Priorities {
        Priorities { groups: Groups::of_system(), known: Mutex::default() }
    }

    /// That of a process or thread; the default if it cannot be looked up, as for 0.
    pub(crate) fn of(&self, id: i32, now: Instant) -> IoPriority {
        let fresh = |since: Instant| now.saturating_duration_since(since) < BELIEVED;
        if let Some(&(io, since)) = lock(&self.known).get(&id)
            && fresh(since)
        {
            return io;
        }
        // Without the lock: another thread may look up the same meanwhile.
        let io = match ioprio::of_process(id) {
            None => IoPriority::NORMAL,
            Some(class) => of_class(class).in_group(self.groups.weight_of(id)),
        };
        let mut known = lock(&self.known);
        if known.len() >= PROCESSES_MAX {
            known.clear();
        }
        known.insert(id, (io, now));
        io
    }
}

/// Real time counts as the highest level of best effort: no piece is interrupted for it anyway.
fn of_class(class: Class) -> IoPriority {
    match class {
        Class::RealTime => IoPriority::best_effort(0),
        Class::BestEffort(level) => IoPriority::best_effort(level),
        Class::Idle => IoPriority::IDLE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_is_not_there_is_like_any_other_and_the_cache_is_bounded() {
        let (priorities, now) = (Priorities::new(), Instant::now());
        for id in 0..2 * PROCESSES_MAX as i32 {
            priorities.of(i32::MAX - id, now);
        }
        assert_eq!(priorities.of(0, now), IoPriority::NORMAL);
        assert!(lock(&priorities.known).len() <= PROCESSES_MAX);
    }

    #[test]
    fn a_change_is_noticed_after_a_while() {
        let (priorities, now) = (Priorities::new(), Instant::now());
        let idle = |id: i32| {
            let done = std::process::Command::new("ionice").args(["-c3", "-p", &id.to_string()]).status();
            done.is_ok_and(|status| status.success())
        };
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let id = child.id() as i32;
        let before = priorities.of(id, now);
        if idle(id) {
            assert_eq!(priorities.of(id, now + BELIEVED / 2), before);
            assert!(priorities.of(id, now + BELIEVED).idle);
        } else {
            println!("skipped: there is no ionice here");
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
