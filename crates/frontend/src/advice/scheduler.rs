//! Disks without a scheduler, where this door gains least.
//!
//! With this door, the kernel serves every read that misses. With the scheduler `none` these reads reach the
//! disk as they arrive, mixed with the engine's pieces, at a seek for each command.

use std::path::Path;

use seekless_engine::KindReport;
use seekless_kernel::queue::{Queue, Setting};

/// Advice for a server whose many threads wait for this disk.
pub fn advice(disk: &str) -> String {
    format!("`echo mq-deadline > /sys/block/{disk}/queue/scheduler` helps there, and so does `seekless run`")
}

/// The disks that seek and have no scheduler.
pub fn without<'a>(disks: &'a [KindReport], sys_block: &Path) -> Vec<&'a str> {
    let none = |disk: &str| {
        Queue::new(sys_block, disk).get(&Setting::Scheduler).is_some_and(|scheduler| scheduler == "none")
    };
    disks.iter().filter(|d| d.seeks).map(|d| d.disk.as_str()).filter(|disk| none(disk)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use seekless_engine::KnownBy;

    #[test]
    fn only_disks_that_seek_and_have_no_scheduler_are_named() {
        let sys = tempfile::tempdir().unwrap();
        let disk = |name: &str, seeks: bool, scheduler: Option<&str>| {
            let queue = sys.path().join(name).join("queue");
            std::fs::create_dir_all(&queue).unwrap();
            if let Some(scheduler) = scheduler {
                std::fs::write(queue.join("scheduler"), scheduler).unwrap();
            }
            let by = KnownBy::Flag;
            KindReport { disk: name.into(), seeks, rotational: seeks, by, kind: None, not_measured: None }
        };
        let disks = [
            disk("sda", true, Some("[none] mq-deadline bfq\n")),
            disk("sdb", true, Some("none [mq-deadline] bfq\n")),
            disk("nvme0n1", false, Some("[none] mq-deadline\n")),
            disk("sdc", true, Some("none\n")),
            disk("sdd", true, None),
        ];
        assert_eq!(without(&disks, sys.path()), ["sda", "sdc"]);
        assert_eq!(without(&disks, &sys.path().join("elsewhere")), [""; 0]);
    }
}
