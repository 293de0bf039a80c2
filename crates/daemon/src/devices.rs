//! Which reader serves the files of a device.
//!
//! What is found is believed for a few seconds only: loop devices come and go under the same number, and people change
//! `read_ahead_kb` while we run.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use seekless_kernel::prefetch::Steps;
use seekless_kernel::topology::{Backing, Dev, Topology};

use crate::reader::Reader;
use crate::settings::Settings;

/// How long a device's place and limits are believed.
const BELIEVED: Duration = Duration::from_secs(2);

/// Most devices remembered at once.
const DEVICES_MAX: usize = 1024;

/// Most readers. Disks beyond share the common queue.
const READERS_MAX: usize = 256;

/// Bytes between two reports of progress of a piece: about 2 ms of a disk's time, so that answers are early and the
/// wake-ups still few.
const REPORT_STEP: u64 = 256 << 10;

/// Name of the queue for everything that has no disk of its own.
pub(crate) const COMMON: &str = "common";

/// Where the files of a device are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// By this reader.
    Reader {
        index: usize,
        /// First sector of the file system on the disk.
        start: u64,
        steps: Steps,
    },
    /// Not at all: no heads to move.
    NotADisk,
}

/// The readers and the way to them.
pub(crate) struct Devices {
    settings: Arc<Settings>,
    known: HashMap<u64, (Place, Instant)>,
    readers: Vec<Reader>,
    /// Which reader serves a disk; `None` stands for the common queue.
    by_disk: HashMap<Option<Dev>, usize>,
}

impl Devices {
    pub(crate) fn new(settings: Arc<Settings>) -> Devices {
        Devices { settings, known: HashMap::new(), readers: Vec::new(), by_disk: HashMap::new() }
    }

    pub(crate) fn readers(&self) -> &[Reader] {
        &self.readers
    }

    pub(crate) fn into_readers(self) -> Vec<Reader> {
        self.readers
    }

    /// The place for a file with this `st_dev`, held open as `fd`.
    ///
    /// # Errors
    /// A reader had to be started and no thread could be had.
    pub(crate) fn place(&mut self, st_dev: u64, fd: BorrowedFd<'_>, now: Instant) -> io::Result<Place> {
        if let Some(&(place, since)) = self.known.get(&st_dev)
            && now.duration_since(since) < BELIEVED
        {
            return Ok(place);
        }
        let place = self.look_up(Dev::from_raw(st_dev), fd)?;
        if self.known.len() >= DEVICES_MAX {
            self.known.clear();
        }
        self.known.insert(st_dev, (place, now));
        Ok(place)
    }

    fn look_up(&mut self, dev: Dev, fd: BorrowedFd<'_>) -> io::Result<Place> {
        let topology = Topology::of_system();
        // Only file systems without a device of their own need the mount's number.
        let mount_id = if dev.major == 0 { mount_id(fd) } else { None };
        let (disk, start, queue_of) = match topology.backing(dev, mount_id) {
            Backing::Disk { disk, start, queue_of } if disk.rotational || self.settings.include_ssd => {
                (Some(disk), start, queue_of)
            }
            Backing::Disk { .. } => return Ok(Place::NotADisk),
            Backing::Memory if !self.settings.include_ssd => return Ok(Place::NotADisk),
            Backing::Memory => (None, 0, None),
            Backing::Unresolved(why) => {
                tracing::debug!(%dev, why, "goes to the common queue");
                (None, 0, None)
            }
        };
        let limits = topology.queue_limits(queue_of.unwrap_or(dev));
        let steps = Steps { submit: limits.read_ahead_cut(), report: REPORT_STEP };
        let disk = disk.filter(|_| !self.settings.single_queue);
        let (key, name) = match &disk {
            Some(disk) => (Some(disk.dev), disk.name.as_str()),
            None => (None, COMMON),
        };
        Ok(Place::Reader { index: self.reader(key, name)?, start, steps })
    }

    fn reader(&mut self, key: Option<Dev>, name: &str) -> io::Result<usize> {
        let full = self.readers.len() >= READERS_MAX && !self.by_disk.contains_key(&key);
        let (key, name) = if full { (None, COMMON) } else { (key, name) };
        if let Some(&index) = self.by_disk.get(&key) {
            return Ok(index);
        }
        self.readers.push(Reader::start(name, self.settings.clone())?);
        let index = self.readers.len() - 1;
        self.by_disk.insert(key, index);
        tracing::info!(disk = name, "a disk is served");
        Ok(index)
    }
}

/// The mount a descriptor was opened through.
fn mount_id(fd: BorrowedFd<'_>) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd())).ok()?;
    text.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim().parse().ok()
}
