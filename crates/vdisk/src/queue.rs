//! The loop device's request queue, dressed as that of a hard disk.

use std::fs;
use std::io;
use std::path::PathBuf;

use seekless_units::{Exit, Fault};

/// Settings of `/sys/block/loopN/queue` and what they were before.
#[derive(Debug)]
pub struct Queue {
    dir: PathBuf,
    /// File name and value before, in the order of change.
    pub before: Vec<(String, String)>,
}

impl Queue {
    /// The queue of loop device `number`.
    pub fn of_loop(number: u32) -> Queue {
        Queue { dir: PathBuf::from(format!("/sys/block/loop{number}/queue")), before: Vec::new() }
    }

    fn read(&self, name: &str) -> io::Result<String> {
        let text = fs::read_to_string(self.dir.join(name))?;
        // A choice among several is in brackets: `none [mq-deadline] bfq`.
        let chosen = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
        Ok(chosen.map_or(text.trim(), |(chosen, _)| chosen).to_string())
    }

    fn set(&mut self, name: &str, value: &str) -> io::Result<()> {
        let before = self.read(name)?;
        if !self.before.iter().any(|(n, _)| n == name) {
            self.before.push((name.to_string(), before));
        }
        fs::write(self.dir.join(name), value)
    }

    /// A disk that turns, and dispatches `depth` commands at once.
    ///
    /// A loop device dispatches up to 128 requests at once; a disk's command queue holds 32 or fewer, and what does not
    /// fit stays with the scheduler, which can then still sort it. The number can be set only while no scheduler is
    /// chosen and stays when one is.
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
        let (rotational, requests) = ("rotational", "nr_requests");
        let chosen = self.read("scheduler").unwrap_or_else(|_| "none".into());
        let dir = self.dir.clone();
        let failed = |name: &str, e: io::Error| {
            Fault::new(Exit::Failed, format!("cannot set {}/{name}: {e}", dir.display()))
        };
        let mut steps =
            vec![(rotational, "1".to_string()), ("scheduler", "none".into()), (requests, depth.to_string())];
        steps.push(("scheduler", scheduler.unwrap_or(&chosen).to_string()));
        steps.extend(read_ahead_kb.map(|kb| ("read_ahead_kb", kb.to_string())));
        steps.extend(max_sectors_kb.map(|kb| ("max_sectors_kb", kb.to_string())));
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
            return Err(Fault::new(Exit::Usage, message));
        }
        Ok(())
    }

    /// Puts `before` back, as far as the kernel lets us.
    pub fn undress(number: u32, before: &[(String, String)]) {
        let dir = Queue::of_loop(number).dir;
        // The number of requests again only without a scheduler.
        let _ = fs::write(dir.join("scheduler"), "none");
        let scheduler_last = before.iter().filter(|(n, _)| n != "scheduler");
        for (name, value) in scheduler_last.chain(before.iter().filter(|(n, _)| n == "scheduler")) {
            let _ = fs::write(dir.join(name), value);
        }
    }
}
