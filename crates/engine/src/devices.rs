//! Which disk thread serves the files of a device. It is called its reader here.
//!
//! What is found is believed for a few seconds only: loop devices come and go under the same number, and
//! people change `read_ahead_kb` while we run.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use seekless_kernel::fstype::{self, Reads};
use seekless_kernel::prefetch::Steps;
use seekless_kernel::topology::{Backing, Dev, Disk, Topology};
use seekless_policy::FileId;
use seekless_policy::memory::REPORT_EVERY;
use seekless_wants::PROGRESS_STEP;

use crate::addresses::FILES_MAX;
use crate::door::Message;
use crate::kind::sequence;
use crate::lock;
use crate::report::DiskReport;
use crate::settings::Settings;
use crate::snapshot::Snapshot;
use crate::start::{AllDisks, DiskThread, Told};
use crate::volume::Volume;

/// Most devices remembered at once, and most disks with a thread of their own. Disks beyond share the common
/// queue.
const DEVICES_MAX: usize = 256;

/// How long a device's place and limits are believed, and the longest wait for a file system to tell its own:
/// as often as memory is looked at.
fn believed() -> Duration {
    Duration::from_nanos(REPORT_EVERY.0)
}

/// Name of the queue for everything that has no disk of its own.
pub(crate) const COMMON: &str = "common";

/// Where the files of a device are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// By this reader.
    Reader {
        /// Which, for [`Devices::send`].
        index: usize,
        /// First sector of the file system on the disk.
        start: u64,
        /// Sizes of read-ahead calls there.
        steps: Steps,
    },
    /// Not at all: no heads to move.
    NotADisk,
}

/// What is remembered of a device.
#[derive(Clone, Copy, Debug)]
enum Found {
    /// All its files are read at one place.
    At(Place),
    /// Each lies on another file system; the number is its mount's.
    ByFile(u64),
}

/// The disk threads and the way to them, for every door.
pub type SharedDevices = Arc<Mutex<Devices>>;

/// The disk threads and the way to them.
pub struct Devices {
    settings: Arc<Settings>,
    known: HashMap<u64, (Found, Instant)>,
    /// Of file systems made of others.
    by_file: HashMap<FileId, (Place, Instant)>,
    readers: Vec<DiskThread>,
    /// What the disk threads had counted that ended when this was closed.
    ended: Vec<(String, Arc<Mutex<Snapshot>>)>,
    all: AllDisks,
    /// Which reader serves a disk, and the disk's [`sequence`]; `None` stands for the common queue.
    by_disk: HashMap<Option<Dev>, (usize, u64)>,
    closed: bool,
}

impl Devices {
    /// No readers yet. `settings` must be [`Settings::normalised`].
    pub(crate) fn new(settings: Arc<Settings>) -> Devices {
        Devices {
            settings,
            all: AllDisks::default(),
            known: HashMap::new(),
            by_file: HashMap::new(),
            readers: Vec::new(),
            ended: Vec::new(),
            by_disk: HashMap::new(),
            closed: false,
        }
    }

    /// Name and numbers of every disk thread, in the order they were started.
    pub fn views(&self) -> impl ExactSizeIterator<Item = (&str, &Arc<Mutex<Snapshot>>)> {
        self.readers.iter().map(|r| (r.name.as_str(), &r.snapshot))
    }

    /// What every disk thread counts, or has counted if it ended when this was closed.
    pub fn reports(&self) -> Vec<DiskReport> {
        let ended = self.ended.iter().map(|(name, snapshot)| (name.as_str(), snapshot));
        ended.chain(self.views()).map(|(name, snapshot)| DiskReport::of(name, &lock(snapshot))).collect()
    }

    /// What the readers have in common.
    pub(crate) fn all(&self) -> &AllDisks {
        &self.all
    }

    /// Hands a message to a reader.
    ///
    /// # Errors
    /// The message, if the reader cannot take it now or has ended.
    pub(crate) fn send(&self, index: usize, message: Message) -> Result<(), Message> {
        match self.readers.get(index) {
            Some(reader) => reader.send(message),
            None => Err(message),
        }
    }

    /// Ends: no reader is started from now on. What is returned ends the readers when it is called; it may
    /// take a moment, so call it without the lock.
    pub(crate) fn close(&mut self) -> impl FnOnce() + use<> {
        self.closed = true;
        let readers = std::mem::take(&mut self.readers);
        // Last reports are written after the end.
        self.ended.extend(readers.iter().map(|reader| (reader.name.clone(), reader.snapshot.clone())));
        let log = self.settings.decisions.clone();
        move || {
            readers.into_iter().for_each(DiskThread::stop);
            // Not left to the last holder of the settings: that may be a thread that ends with the process.
            if let Some(log) = log {
                log.end();
            }
        }
    }

    /// The disk thread that serves this file, if it or one of its device was asked for before: its place in
    /// [`Devices::views`].
    pub fn reader_of(&self, file: FileId) -> Option<usize> {
        let place = match self.known.get(&file.dev)? {
            (Found::At(place), _) => place,
            (Found::ByFile(_), _) => &self.by_file.get(&file)?.0,
        };
        match *place {
            Place::Reader { index, .. } => Some(index),
            Place::NotADisk => None,
        }
    }

    /// Whether no file of a device (`st_dev`) is served, as was found when one was asked for last.
    pub fn serves_none_of(&self, dev: u64) -> bool {
        matches!(self.known.get(&dev), Some((Found::At(Place::NotADisk), _)))
    }

    /// Whether every hit on this file's disk needs to be reported now
    /// ([`seekless_policy::Stats::needs_every_hit`]).
    pub fn needs_every_hit(&self, file: FileId) -> bool {
        let reader = self.reader_of(file).and_then(|index| self.readers.get(index));
        reader.is_some_and(|reader| lock(&reader.snapshot).engine.needs_every_hit())
    }

    /// The place for a file, held open as `fd`.
    ///
    /// # Errors
    /// A reader had to be started and no thread could be had.
    pub(crate) fn place(&mut self, file: FileId, fd: BorrowedFd<'_>, now: Instant) -> io::Result<Place> {
        let fresh = |since: Instant| now.saturating_duration_since(since) < believed();
        let known = self.known.get(&file.dev).filter(|k| fresh(k.1)).map(|k| k.0);
        if let Some(Found::At(place)) = known {
            return Ok(place);
        }
        if let Some(&(place, since)) = self.by_file.get(&file)
            && fresh(since)
        {
            return Ok(place);
        }
        if self.closed {
            return Ok(Place::NotADisk);
        }
        let topology = Topology::of_system();
        let dev = Dev::from_raw(file.dev);
        let found = match known {
            Some(found) => found,
            None => self.look_up(&topology, dev, fd)?,
        };
        if self.known.len() >= DEVICES_MAX {
            self.known.clear();
        }
        self.known.insert(file.dev, (found, now));
        let mount = match found {
            Found::At(place) => return Ok(place),
            Found::ByFile(mount) => mount,
        };
        // Where the layer cannot be told, what the file system as a whole lies on has to do.
        let backing = match topology.layer_of(mount, fd) {
            Some((below, id)) => topology.backing(below, Some(id)),
            None => topology.backing(dev, Some(mount)),
        };
        let place = self.place_on(&topology, dev, backing, fd)?;
        if self.by_file.len() >= FILES_MAX {
            self.by_file.retain(|_, known| fresh(known.1));
        }
        if self.by_file.len() >= FILES_MAX {
            self.by_file.clear();
        }
        self.by_file.insert(file, (place, now));
        Ok(place)
    }

    fn look_up(&mut self, topology: &Topology, dev: Dev, fd: BorrowedFd<'_>) -> io::Result<Found> {
        // Only file systems without a device of their own need the mount's number.
        let mount_id = if dev.major == 0 { mount_id(fd) } else { None };
        let unseen = dev.major == 0 && !mount_id.is_some_and(|id| topology.has_mount(id));
        // A container's mount is in no table of ours; its kind can still be asked for.
        let kind = if unseen { fstype::of(fd).map(|t| t.reads) } else { topology.reads(mount_id) };
        let beyond = matches!(kind, Some(Reads::OwnCache | Reads::Network));
        if beyond || (kind == Some(Reads::Fuse) && fstype::reads_directly(fd)) {
            return Ok(Found::At(Place::NotADisk));
        }
        if let Some(id) = mount_id.filter(|&id| topology.is_layered(Some(id))) {
            return Ok(Found::ByFile(id));
        }
        let backing = topology.backing(dev, mount_id);
        self.place_on(topology, dev, backing, fd).map(Found::At)
    }

    /// Where the files of a device with this under it are read.
    fn place_on(
        &mut self,
        topology: &Topology,
        dev: Dev,
        backing: Backing,
        fd: BorrowedFd<'_>,
    ) -> io::Result<Place> {
        let mut joined = 0;
        let (disk, start, queue_of) = match backing {
            Backing::Disk { disk, start, queue_of, members } if self.serves(&disk, &members, fd) => {
                joined = members.len();
                (Some(disk), start, queue_of)
            }
            Backing::Disk { .. } | Backing::Beyond(_) => return Ok(Place::NotADisk),
            Backing::Memory if !self.settings.include_ssd => return Ok(Place::NotADisk),
            Backing::Memory => (None, 0, None),
            Backing::Unresolved(why) => {
                tracing::debug!(%dev, why, "goes to the common queue");
                (None, 0, None)
            }
        };
        let limits = topology.queue_limits(queue_of.unwrap_or(dev));
        let steps = Steps { submit: limits.read_ahead_cut(), report: PROGRESS_STEP };
        let disk = disk.filter(|_| !self.settings.single_queue);
        let (key, name) = match &disk {
            Some(disk) => (Some(disk.dev), disk.name.as_str()),
            None => (None, COMMON),
        };
        Ok(Place::Reader { index: self.reader(key, name, joined, fd)?, start, steps })
    }

    /// Whether it seeks, or is to be served all the same.
    fn serves(&self, disk: &Disk, members: &[Disk], fd: BorrowedFd<'_>) -> bool {
        let settings = &self.settings;
        let seeks = |disk: &Disk, fd| settings.kinds.seeks(disk, fd, &settings.profiles);
        match members {
            _ if settings.include_ssd => true,
            [] => seeks(disk, Some(fd)),
            // A file of a set may lie on any of them.
            members => members.iter().filter(|m| seeks(m, None)).count() > 0,
        }
    }

    /// The reader of a disk, which is a file system on `joined` disks if that is not 0. `fd` is a file there.
    fn reader(
        &mut self,
        key: Option<Dev>,
        name: &str,
        joined: usize,
        fd: BorrowedFd<'_>,
    ) -> io::Result<usize> {
        let full = self.readers.len() >= DEVICES_MAX && !self.by_disk.contains_key(&key);
        let (key, name, joined) = if full { (None, COMMON, 0) } else { (key, name, joined) };
        let known = self.by_disk.get(&key).copied();
        let sequence = sequence(name);
        // A number may be given to another disk. A file system on several disks may be given others, or lie
        // on them in another way.
        let same = |&(index, of): &(usize, u64)| {
            let reader: &DiskThread = &self.readers[index];
            of == sequence && (joined == 0 || reader.name == name) && !reader.is_replaced()
        };
        if let Some((index, _)) = known.filter(same) {
            return Ok(index);
        }
        let told = match joined {
            0 => Told::Name,
            _ => {
                let own = rustix::io::fcntl_dupfd_cloexec(fd, 3)?;
                Told::Joined(joined, Volume::of(own, believed()).map(Box::new))
            }
        };
        let started = DiskThread::start(name, told, &self.settings, self.all.clone())?;
        let index = match known {
            // Its thread passes what waits and ends by itself.
            Some((index, _)) => {
                self.readers[index] = started;
                index
            }
            None => {
                self.readers.push(started);
                self.readers.len() - 1
            }
        };
        self.all.disks.store(self.readers.len(), Ordering::Relaxed);
        self.by_disk.insert(key, (index, sequence));
        tracing::info!(disk = name, "a disk is served");
        Ok(index)
    }
}

/// The mount a descriptor was opened through.
fn mount_id(fd: BorrowedFd<'_>) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd())).ok()?;
    text.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim().parse().ok()
}
