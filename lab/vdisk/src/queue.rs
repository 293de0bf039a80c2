//! The loop device's request queue, dressed as that of a hard disk.

use std::fs;
use std::io;
use std::path::PathBuf;

use seekless_base::Fault;

/// What Linux reads ahead on a disk unless told otherwise (`VM_READAHEAD_PAGES`).
const READ_AHEAD_KB: u64 = 128;

/// Settings of `/sys/block/loopN/queue` and what they were before.
#[derive(Debug)]
pub struct LoopQueue {
    dir: PathBuf,
    /// File name and value before.
    pub before: Vec<(String, String)>,
}

impl LoopQueue {
    /// The queue of loop device `number`.
    pub fn of_loop(number: u32) -> LoopQueue {
        LoopQueue { dir: PathBuf::from(format!("/sys/block/loop{number}/queue")), before: Vec::new() }
    }

    fn read(&self, name: &str) -> io::Result<String> {
        let text = fs::read_to_string(self.dir.join(name))?;
        // A choice among several is in brackets: `none [mq-deadline] bfq`.
        let chosen = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
        Ok(chosen.map_or(text.trim(), |(chosen, _)| chosen).to_string())
    }

    fn set(&self, name: &str, value: &str) -> io::Result<()> {
        fs::write(self.dir.join(name), value)
    }

    /// A disk that turns, and dispatches `depth` commands at once.
    ///
    /// A loop device dispatches up to 128 requests at once; a disk's command queue holds 32 or fewer, and
    /// what does not fit stays with the scheduler, which can then still sort it. The number can be set only
    /// while no scheduler is chosen and stays when one is. A loop device's read-ahead follows its largest
    /// request; a disk's is 128 KiB.
    ///
    /// # Errors
    /// `Usage`: a scheduler or size the kernel refuses, with those it offers. `Failed`: the rest.
    pub fn dress(
        &mut self,
        depth: u32,
        scheduler: Option<&str>,
        read_ahead_kb: Option<u64>,
        max_sectors_kb: Option<u64>,
    ) -> Result<(), Fault> {
        // All of them before the first change, as one setting may drag others along.
        let names =
            ["rotational", "wbt_lat_usec", "scheduler", "nr_requests", "max_sectors_kb", "read_ahead_kb"];
        self.before = names.iter().filter_map(|n| Some((n.to_string(), self.read(n).ok()?))).collect();
        let chosen = self.read("scheduler").unwrap_or_else(|_| "none".into());
        let scheduler = scheduler.unwrap_or(&chosen).to_string();
        let dir = self.dir.clone();
        let failed =
            |name: &str, e: io::Error| Fault::failed(format!("cannot set {}/{name}: {e}", dir.display()));
        // What Linux gives a rotating disk; a kernel without write-back throttling has no such setting.
        let _ = self.set("wbt_lat_usec", "75000");
        let mut steps = vec![("rotational", "1".to_string())];
        if chosen != "none" {
            steps.push(("scheduler", "none".into()));
        }
        steps.push(("nr_requests", depth.to_string()));
        if scheduler != "none" {
            steps.push(("scheduler", scheduler));
        }
        steps.extend(max_sectors_kb.map(|kb| ("max_sectors_kb", kb.to_string())));
        // Last, as other settings drag it along.
        steps.push(("read_ahead_kb", read_ahead_kb.unwrap_or(READ_AHEAD_KB).to_string()));
        for (name, value) in steps {
            let Err(e) = self.set(name, &value) else { continue };
            if e.kind() != io::ErrorKind::InvalidInput {
                return Err(failed(name, e));
            }
            let message = match name {
                "scheduler" => {
                    let offered =
                        fs::read_to_string(dir.join(name)).unwrap_or_default().replace(['[', ']'], "");
                    format!("unknown scheduler `{value}`; this kernel offers: {}", offered.trim())
                }
                "max_sectors_kb" => {
                    let most = self.read("max_hw_sectors_kb").unwrap_or_default();
                    format!("--max-sectors-kb {value} is refused; the loop device takes at most {most}")
                }
                _ => format!("{name} {value} is refused by the kernel"),
            };
            return Err(Fault::usage(message));
        }
        Ok(())
    }

    /// Read-ahead once more, after the file system was made: wherever the loop driver changes its limits, as
    /// at the first request to zero a range that the file below refuses, the kernel derives read-ahead from
    /// them anew.
    pub fn set_read_ahead(&self, kb: Option<u64>) {
        let _ = self.set("read_ahead_kb", &kb.unwrap_or(READ_AHEAD_KB).to_string());
    }

    /// Puts `before` back, as far as the kernel lets us.
    pub fn undress(number: u32, before: &[(String, String)]) {
        let dir = LoopQueue::of_loop(number).dir;
        // The number of requests only without a scheduler, read-ahead after all it follows.
        let _ = fs::write(dir.join("scheduler"), "none");
        let rank =
            |name: &str| ["scheduler", "read_ahead_kb"].iter().position(|n| *n == name).map_or(0, |i| i + 1);
        let mut order: Vec<_> = before.iter().collect();
        order.sort_by_key(|(name, _)| rank(name));
        for (name, value) in order {
            let _ = fs::write(dir.join(name), value);
        }
    }
}
