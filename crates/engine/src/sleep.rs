//! Disks that may sleep (`--quiet`): which were used recently, how long they were awake, and how often they
//! woke up. It never wakes a disk.
//!
//! - `/sys/block/X/stat` says whether anything was read or written. A disk that was not used for a while may
//!   sleep, so this program's own work (metadata, probes) waits until another program uses
//!   the disk.
//! - The kernel's `runtime_status`, and CHECK POWER MODE where that is permitted, say whether a disk sleeps
//!   ([`seekless_kernel::power`]). A drive may count the command as use, so it is sent after [`ASK_AFTER`]
//!   without use, and then after twice as long each time: a standby timer expires between two of them. A disk
//!   that is known to sleep gets no further commands.
//!
//! A disk that does not report its state counts as awake.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::{Duration, Instant};

use seekless_kernel::power::{Power, check_power_mode, suspended};
use seekless_kernel::queue::Queue;
use seekless_kernel::sysfs::SYS_BLOCK;
use seekless_kernel::topology::{Backing, Dev, Topology};
use serde::{Deserialize, Serialize};

use crate::kind::is_block;
use crate::lock;

/// Interval at which the counters of all disks are read: a few microseconds each. At half, a processor wakes
/// up twice as often; at double, work that waits for a disk may wait twice as long.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// A disk used within this time turns: no standby timer is shorter than twice the interval. At half, a read
/// between two looks goes unnoticed; at double, the shortest timer (`hdparm -S 1`, 5 s) may have run out.
const USED_LATELY: Duration = Duration::from_secs(10);

/// Time without use after which a drive is first asked. Most timers are set to 10 or 15 minutes. At half,
/// such a timer restarts once; at double, a disk that sleeps counts as awake for as long.
const ASK_AFTER: Duration = Duration::from_secs(1_020);

/// Maximum number of disks. Beyond it a disk counts as not used.
const DISKS_MAX: usize = 1024;

/// Whether a disk was awake, since it was first served with `--quiet`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SleepReport {
    /// Whether it sleeps now; `None` if it does not report that.
    pub asleep: Option<bool>,
    /// Seconds awake; all seconds, if it does not report its state.
    pub awake_s: f64,
    /// Times that it was used after it was seen to sleep.
    pub spin_ups: u64,
    /// Seconds since it was last used.
    pub unused_s: f64,
}

/// What is known of a disk.
#[derive(Clone, Debug)]
struct Watched {
    power: Power,
    /// Commands that the kernel has counted.
    commands: Option<u64>,
    /// When the count last rose, or was first read; and whether it has risen at all.
    used: Instant,
    was_used: bool,
    /// Unused time after which the drive is asked next.
    ask_after: Duration,
    looked: Instant,
    awake: Duration,
    spin_ups: u64,
}

impl Watched {
    fn new(now: Instant) -> Watched {
        Watched {
            power: Power::Unknown,
            commands: None,
            used: now,
            was_used: false,
            ask_after: ASK_AFTER,
            looked: now,
            awake: Duration::ZERO,
            spin_ups: 0,
        }
    }

    /// Takes in what the kernel has counted, and whether the kernel has suspended the disk. Returns whether
    /// the drive is to be asked now.
    fn look(&mut self, now: Instant, commands: Option<u64>, suspended: Power) -> bool {
        let since = now.saturating_duration_since(std::mem::replace(&mut self.looked, now));
        if self.power != Power::Asleep {
            self.awake += since;
        }
        let before = std::mem::replace(&mut self.commands, commands);
        if before.is_some() && commands != before {
            self.spin_ups += u64::from(self.power == Power::Asleep);
            (self.used, self.was_used, self.ask_after) = (now, true, ASK_AFTER);
            self.power = Power::Awake;
        } else if suspended == Power::Asleep {
            self.power = Power::Asleep;
        }
        let due = self.unused(now) >= self.ask_after && self.power != Power::Asleep;
        if due {
            self.ask_after *= 2;
        }
        due
    }

    fn unused(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.used)
    }

    fn report(&self, now: Instant) -> SleepReport {
        SleepReport {
            asleep: match self.power {
                Power::Awake => Some(false),
                Power::Asleep => Some(true),
                Power::Unknown => None,
            },
            awake_s: self.awake.as_secs_f64(),
            spin_ups: self.spin_ups,
            unused_s: self.unused(now).as_secs_f64(),
        }
    }
}

/// The disks that may sleep.
#[derive(Debug, Default)]
pub(crate) struct Sleep {
    disks: Mutex<BTreeMap<String, Watched>>,
}

impl Sleep {
    /// Starts to watch. The thread ends when the returned value is dropped. Without a thread no disk counts
    /// as used, so that this program's own work waits for ever.
    pub(crate) fn start() -> Arc<Sleep> {
        let sleep = Arc::new(Sleep::default());
        let of = Arc::downgrade(&sleep);
        if let Err(error) = thread::Builder::new().name("sleep".into()).spawn(move || run(&of)) {
            tracing::warn!(%error, "no thread to watch disks that sleep");
        }
        sleep
    }

    /// Watches the disk with this kernel name, if it is a block device.
    pub(crate) fn watch(&self, name: &str) {
        if is_block(name) {
            let mut disks = lock(&self.disks);
            if disks.len() < DISKS_MAX {
                disks.entry(name.to_string()).or_insert_with(|| Watched::new(Instant::now()));
            }
        }
    }

    /// Whether somebody used this disk a moment ago, so that it is awake. What is no block device does not
    /// sleep. A disk that was not watched is, from now on.
    pub(crate) fn is_awake(&self, name: &str) -> bool {
        if !is_block(name) {
            return true;
        }
        self.watch(name);
        let now = Instant::now();
        lock(&self.disks).get(name).is_some_and(|disk| disk.was_used && disk.unused(now) <= USED_LATELY)
    }

    /// Whether every disk under a file system (`st_dev`) was used a moment ago.
    pub(crate) fn is_awake_under(&self, dev: u64) -> bool {
        match Topology::of_system().backing(Dev::from_raw(dev), None) {
            Backing::Disk { disk, members, .. } if members.is_empty() => self.is_awake(&disk.name),
            Backing::Disk { members, .. } => members.iter().all(|disk| self.is_awake(&disk.name)),
            _ => true,
        }
    }

    /// The state of a disk, if it is watched.
    pub(crate) fn report(&self, name: &str) -> Option<SleepReport> {
        lock(&self.disks).get(name).map(|disk| disk.report(Instant::now()))
    }
}

fn run(of: &Weak<Sleep>) {
    while let Some(sleep) = of.upgrade() {
        let names: Vec<String> = lock(&sleep.disks).keys().cloned().collect();
        for name in names {
            // No lock is held: sysfs and a drive may take their time.
            let usage = Queue::new(Path::new(SYS_BLOCK), &name).usage().and_then(|usage| usage.now());
            let asleep = suspended(Path::new(SYS_BLOCK), &name);
            let ask = lock(&sleep.disks)
                .get_mut(&name)
                .is_some_and(|disk| disk.look(Instant::now(), usage.ok().map(|u| u.commands), asleep));
            if ask
                && let Ok(power) = check_power_mode(&Path::new("/dev").join(name.replace('!', "/")))
                && let Some(disk) = lock(&sleep.disks).get_mut(&name)
            {
                disk.power = power;
            }
        }
        drop(sleep);
        thread::sleep(LOOK_EVERY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk, looked at every five seconds from now on.
    struct Looks {
        disk: Watched,
        now: Instant,
        asked: u32,
    }

    impl Looks {
        fn new() -> Looks {
            let now = Instant::now();
            Looks { disk: Watched::new(now), now, asked: 0 }
        }

        fn pass(&mut self, time: Duration, commands: u64) {
            for _ in 0..time.as_secs() / LOOK_EVERY.as_secs() {
                self.now += LOOK_EVERY;
                self.asked += u32::from(self.disk.look(self.now, Some(commands), Power::Unknown));
            }
        }
    }

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn a_disk_that_is_seen_to_sleep_stops_counting_and_wakes_up_once() {
        let mut looks = Looks::new();
        looks.pass(HOUR / 60, 7);
        assert_eq!(looks.disk.report(looks.now).asleep, None, "nobody knows yet");
        looks.pass(HOUR / 60, 8);
        let awake = looks.disk.report(looks.now);
        assert_eq!((awake.asleep, awake.awake_s, awake.spin_ups), (Some(false), 120.0, 0));
        looks.disk.power = Power::Asleep;
        looks.pass(HOUR, 8);
        let asleep = looks.disk.report(looks.now);
        assert_eq!((asleep.asleep, asleep.awake_s, asleep.spin_ups), (Some(true), 120.0, 0));
        looks.pass(LOOK_EVERY, 9);
        looks.pass(HOUR / 60, 10);
        let again = looks.disk.report(looks.now);
        assert_eq!((again.asleep, again.awake_s, again.spin_ups), (Some(false), 180.0, 1));
    }

    #[test]
    fn a_drive_is_asked_less_and_less_often() {
        let mut looks = Looks::new();
        looks.pass(24 * HOUR, 7);
        // After 17 min, 34 min, ... of 24 h.
        assert_eq!(looks.asked, 7);
        looks.pass(HOUR / 60, 8);
        looks.pass(HOUR / 2, 8);
        assert_eq!(looks.asked, 8, "use begins it anew");
        looks.disk.power = Power::Asleep;
        looks.pass(24 * HOUR, 8);
        assert_eq!(looks.asked, 8, "one that sleeps is left alone");
    }

    #[test]
    fn only_what_is_used_now_is_known_to_be_awake() {
        let sleep = Sleep::default();
        // No block device, so it cannot sleep.
        assert!(sleep.is_awake("common") && sleep.is_awake("0:47 on /srv"));
        assert!(sleep.report("common").is_none());
        let mut looks = Looks::new();
        looks.pass(HOUR, 7);
        assert!(!looks.disk.was_used, "a count that stays is no use");
    }
}
