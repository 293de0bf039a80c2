//! A block device's request queue: reads and sets `/sys/block/X/queue`, and reads the use of the device.
//!
//! The directory of all devices is a parameter, so that tests can build one.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::sysfs;
use crate::topology::is_device_name;

/// Settings of a queue that affect sequential reading. `None` if the device does not have one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueSettings {
    /// The kernel's maximum read-ahead, KiB.
    pub read_ahead_kb: Option<u64>,
    /// Maximum length of a single command, KiB.
    pub max_sectors_kb: Option<u64>,
    /// Maximum length that the driver accepts, KiB.
    pub max_hw_sectors_kb: Option<u64>,
    /// Number of requests in the scheduler.
    pub nr_requests: Option<u64>,
    /// The current scheduler.
    pub scheduler: Option<String>,
    /// The available schedulers.
    pub schedulers: Vec<String>,
    /// Number of commands that the device itself queues (NCQ, TCQ).
    pub queue_depth: Option<u64>,
    /// Whether the kernel considers it a rotating disk.
    pub rotational: bool,
}

/// One setting, as a path under the device and a value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Setting {
    /// `queue/scheduler`. Set first, because changing it resets `nr_requests`.
    Scheduler,
    /// `device/queue_depth`.
    QueueDepth,
    /// `queue/nr_requests`.
    Requests,
    /// `queue/max_sectors_kb`.
    MaxSectors,
    /// `queue/read_ahead_kb`.
    ReadAhead,
}

impl Setting {
    /// All settings, in the order they must be written.
    pub const ALL: [Setting; 5] =
        [Setting::Scheduler, Setting::QueueDepth, Setting::Requests, Setting::MaxSectors, Setting::ReadAhead];

    /// Path under `/sys/block/X`.
    pub const fn path(&self) -> &'static str {
        match self {
            Setting::Scheduler => "queue/scheduler",
            Setting::QueueDepth => "device/queue_depth",
            Setting::Requests => "queue/nr_requests",
            Setting::MaxSectors => "queue/max_sectors_kb",
            Setting::ReadAhead => "queue/read_ahead_kb",
        }
    }

    /// The file's name.
    pub fn name(&self) -> &'static str {
        self.path().rsplit('/').next().unwrap_or_default()
    }

    /// The setting of that name.
    pub fn by_name(name: &str) -> Option<Setting> {
        Setting::ALL.into_iter().find(|s| s.name() == name)
    }
}

/// A whole device's directory.
#[derive(Clone, Debug)]
pub struct Queue {
    dir: PathBuf,
}

impl Queue {
    /// The queue of `name` (`sda`, `loop0`) in `sys_block`, on a running system `/sys/block`. Without
    /// settings if it is not a valid device name.
    pub fn new(sys_block: &Path, name: &str) -> Queue {
        let name = if is_device_name(name) { name } else { "no-device" };
        Queue { dir: sys_block.join(name) }
    }

    /// The current settings.
    pub fn settings(&self) -> QueueSettings {
        let number = |path: &str| sysfs::number(self.dir.join(path));
        let choice = sysfs::text(self.dir.join("queue/scheduler")).unwrap_or_default();
        let strip = |word: &str| word.trim_matches(['[', ']']).to_string();
        QueueSettings {
            read_ahead_kb: number("queue/read_ahead_kb"),
            max_sectors_kb: number("queue/max_sectors_kb"),
            max_hw_sectors_kb: number("queue/max_hw_sectors_kb"),
            nr_requests: number("queue/nr_requests"),
            scheduler: self.get(&Setting::Scheduler),
            schedulers: choice.split_whitespace().map(strip).collect(),
            queue_depth: number("device/queue_depth"),
            rotational: number("queue/rotational") != Some(0),
        }
    }

    /// One setting's value; of a list, the chosen one in brackets.
    pub fn get(&self, setting: &Setting) -> Option<String> {
        let text = sysfs::text(self.dir.join(setting.path()))?;
        let chosen = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
        Some(chosen.map_or(text.clone(), |(chosen, _)| chosen.to_string()))
    }

    /// Sets one setting.
    ///
    /// # Errors
    /// Those of the kernel: no permission, an invalid value.
    pub fn set(&self, setting: &Setting, value: &str) -> io::Result<()> {
        let path = self.dir.join(setting.path());
        // Without creating the file, so that a missing setting does not become a file in a test's tree
        // either.
        let file = File::options().write(true).truncate(true).open(path)?;
        file.write_all_at(value.as_bytes(), 0)
    }

    /// The counters of use, kept open for cheap repeated reading.
    ///
    /// # Errors
    /// There is no such file.
    pub fn usage(&self) -> io::Result<Usage> {
        Ok(Usage { stat: File::open(self.dir.join("stat"))? })
    }

    /// Length of the smallest read in bytes.
    pub fn logical_block(&self) -> Option<u64> {
        sysfs::number(self.dir.join("queue/logical_block_size"))
    }
}

/// `/sys/block/X/stat` (Documentation/block/stat.rst).
#[derive(Debug)]
pub struct Usage {
    stat: File,
}

/// Use of a device since it appeared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// 512-byte sectors read.
    pub sectors_read: u64,
    /// 512-byte sectors written.
    pub sectors_written: u64,
    /// Requests issued and not completed.
    pub in_flight: u64,
    /// Reads and writes completed.
    pub commands: u64,
    /// Milliseconds with at least one request in flight.
    pub busy_ms: u64,
    /// Flushes of its cache completed; 0 before Linux 5.5.
    pub flushes: u64,
}

impl Usage {
    /// The current counts.
    ///
    /// # Errors
    /// The device is gone.
    pub fn now(&self) -> io::Result<Used> {
        let mut text = [0; 512];
        let n = self.stat.read_at(&mut text, 0)?;
        let text = String::from_utf8_lossy(&text[..n]);
        let field =
            |i: usize| -> u64 { text.split_whitespace().nth(i).and_then(|f| f.parse().ok()).unwrap_or(0) };
        Ok(Used {
            sectors_read: field(2),
            sectors_written: field(6),
            in_flight: field(8),
            commands: field(0).saturating_add(field(4)),
            busy_ms: field(9),
            flushes: field(15),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn tree() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = dir.path().join("sdx").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("queue/scheduler", "none [mq-deadline] bfq\n");
        write("queue/read_ahead_kb", "128\n");
        write("queue/rotational", "1\n");
        write("queue/logical_block_size", "4096\n");
        write("stat", "  10 0  80 5  3 0  24 1  2 9 9 0 0 0 0 6 1\n");
        dir
    }

    #[test]
    fn settings_are_read() {
        let dir = tree();
        let s = Queue::new(dir.path(), "sdx").settings();
        assert_eq!(s.scheduler.as_deref(), Some("mq-deadline"));
        assert_eq!(s.schedulers, ["none", "mq-deadline", "bfq"]);
        assert_eq!((s.read_ahead_kb, s.nr_requests, s.rotational), (Some(128), None, true));
        assert_eq!(Queue::new(dir.path(), "none-such").settings().read_ahead_kb, None);
    }

    #[test]
    fn what_is_not_there_cannot_be_set() {
        let dir = tree();
        let q = Queue::new(dir.path(), "sdx");
        q.set(&Setting::ReadAhead, "2048").unwrap();
        assert_eq!(q.get(&Setting::ReadAhead).as_deref(), Some("2048"));
        assert_eq!(q.set(&Setting::QueueDepth, "4").unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(Setting::by_name("nr_requests"), Some(Setting::Requests));
    }

    #[test]
    fn use_is_counted() {
        let dir = tree();
        let used = Queue::new(dir.path(), "sdx").usage().unwrap().now().unwrap();
        let expected = Used {
            sectors_read: 80,
            sectors_written: 24,
            in_flight: 2,
            commands: 13,
            busy_ms: 9,
            flushes: 6,
        };
        assert_eq!(used, expected);
    }
}
