//! Finds the disk thread that serves the files of a device. It is called the device's reader here.
//!
//! A result is cached for a few seconds only: loop devices come and go under the same number, and users
//! change `read_ahead_kb` meanwhile.

use std::collections::HashMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use seekless_base::wants::PROGRESS_STEP;
use seekless_kernel::fstype::{self, Reads};
use seekless_kernel::prefetch::Steps;
use seekless_kernel::topology::{Backing, Dev, Disk, MountTable, Topology, mount_id};
use seekless_policy::FileId;
use seekless_policy::memory::REPORT_EVERY;

use crate::addresses::FILES_MAX;
use crate::door::Message;
use crate::kind::sequence;
use crate::lock;
use crate::settings::Settings;
use crate::sleep::Sleep;
use crate::snapshot::Snapshot;
use crate::start::{AllDisks, DiskThread, DiskTopology};
use crate::volume::Volume;

/// Maximum number of cached devices, and of disks with a thread of their own. Disks beyond it share the
/// common queue.
const DEVICES_MAX: usize = 256;

/// Cache time of a device's place and limits, and maximum wait for a file system that reports its own. It is
/// the interval of the memory reports.
fn believed() -> Duration {
    Duration::from_nanos(REPORT_EVERY.0)
}

/// Name of the queue for files without a disk of their own.
pub(crate) const COMMON: &str = "common";

/// Where the files of a device are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Reader {
        /// Index for [`Devices::send`].
        index: usize,
        /// First sector of the file system on the disk.
        start: u64,
        /// Sizes of read-ahead calls on this device.
        steps: Steps,
    },
    /// By no reader: no heads to move.
    NotADisk,
}

/// The cached result for a device.
#[derive(Clone, Copy, Debug)]
enum Found {
    /// All its files are read by one reader.
    At(Place),
    /// Each file lies on another file system; the number is the mount's.
    ByFile(u64),
}

/// The disk threads, shared by every door.
pub type SharedDevices = Arc<Mutex<Devices>>;

/// The disk threads, and which files each serves.
pub struct Devices {
    settings: Arc<Settings>,
    known: HashMap<u64, (Found, Instant)>,
    /// Places of single files, on file systems that consist of others.
    by_file: HashMap<FileId, (Place, Instant)>,
    readers: Vec<DiskThread>,
    /// Final counters of the disk threads that ended when this was closed.
    ended: Vec<(String, Arc<Mutex<Snapshot>>)>,
    /// The state that the readers share.
    pub(crate) all: AllDisks,
    /// The reader of each disk, and the disk's [`sequence`]; `None` is the common queue.
    by_disk: HashMap<Option<Dev>, (usize, u64)>,
    /// When the mount table was last searched for disks that are gone.
    swept: Option<Instant>,
    closed: bool,
}

impl Devices {
    /// No readers yet. `settings` must be [`Settings::normalised`].
    pub(crate) fn new(settings: Arc<Settings>) -> Devices {
        let quiet = settings.is_quiet();
        Devices {
            settings,
            all: AllDisks { sleep: quiet.then(Sleep::start), ..AllDisks::default() },
            known: HashMap::new(),
            by_file: HashMap::new(),
            readers: Vec::new(),
            ended: Vec::new(),
            by_disk: HashMap::new(),
            swept: None,
            closed: false,
        }
    }

    /// Name and counters of every disk thread, in the order they were started.
    pub fn views(&self) -> impl ExactSizeIterator<Item = (&str, &Arc<Mutex<Snapshot>>)> {
        self.readers.iter().map(|r| (r.name.as_str(), &r.snapshot))
    }

    /// Name and counters of every disk thread, including those that ended when this was closed.
    pub(crate) fn snapshots(&self) -> Vec<(String, Snapshot)> {
        let ended = self.ended.iter().map(|(name, snapshot)| (name.as_str(), snapshot));
        ended.chain(self.views()).map(|(name, snapshot)| (name.to_string(), lock(snapshot).clone())).collect()
    }

    /// Whether the engine has opened this file again by itself.
    pub(crate) fn has_open(&self, file: FileId) -> bool {
        lock(&self.all.open).contains(&file)
    }

    /// Sends a message to a reader.
    ///
    /// # Errors
    /// Returns the message if the reader cannot take it now or has ended.
    pub(crate) fn send(&self, index: usize, message: Message) -> Result<(), Message> {
        match self.readers.get(index) {
            Some(reader) => reader.send(message),
            None => Err(message),
        }
    }

    /// Prevents new readers. The returned function ends the existing ones; it may take a moment, so call it
    /// without the lock.
    pub(crate) fn close(&mut self) -> impl FnOnce() + use<> {
        self.closed = true;
        let readers = std::mem::take(&mut self.readers);
        // The final reports are written after the threads have ended.
        self.ended.extend(readers.iter().map(|reader| (reader.name.clone(), reader.snapshot.clone())));
        let log = self.settings.decisions.clone();
        move || {
            readers.into_iter().for_each(DiskThread::stop);
            // The log is ended here, because the last owner of the settings may be a thread that ends with
            // the process.
            if let Some(log) = log {
                log.end();
            }
        }
    }

    /// The disk thread that serves this file, as an index into [`Devices::views`]; `None` if neither the file
    /// nor its device was looked up before.
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

    /// Retires the threads of disks that are not block devices and are no longer mounted, at most once in a
    /// while. A retired thread makes room for another disk when all its threads have ended.
    pub(crate) fn sweep(&mut self, now: Instant) {
        let due = self.swept.is_none_or(|then| now.saturating_duration_since(then) >= believed());
        if !due {
            return;
        }
        self.swept = Some(now);
        let own = |key: &Option<Dev>| key.filter(|dev| dev.major == 0);
        if !self.by_disk.keys().any(|key| own(key).is_some()) {
            return;
        }
        let mounts = MountTable::of_system();
        // Without a mount table no disk is known to be gone.
        if mounts.iter().next().is_none() {
            return;
        }
        let gone: Vec<Dev> =
            self.by_disk.keys().filter_map(own).filter(|dev| mounts.by_dev(*dev).is_none()).collect();
        for dev in gone {
            let Some((index, _)) = self.by_disk.remove(&Some(dev)) else { continue };
            let there = |place: &Place| matches!(place, Place::Reader { index: at, .. } if *at == index);
            self.known.retain(|_, (found, _)| !matches!(found, Found::At(place) if there(place)));
            self.by_file.retain(|_, (place, _)| !there(place));
            if let Some(reader) = self.readers.get_mut(index) {
                tracing::info!(disk = reader.name, "a disk is gone");
                reader.retire();
            }
        }
    }

    /// Whether files of a device (`st_dev`) are not served, by its last lookup.
    pub fn serves_none_of(&self, dev: u64) -> bool {
        matches!(self.known.get(&dev), Some((Found::At(Place::NotADisk), _)))
    }

    /// Whether every hit on this file's disk must be reported now
    /// ([`seekless_policy::Stats::needs_every_hit`]).
    pub fn needs_every_hit(&self, file: FileId) -> bool {
        let reader = self.reader_of(file).and_then(|index| self.readers.get(index));
        reader.is_some_and(|reader| lock(&reader.snapshot).engine.needs_every_hit())
    }

    /// The place of a file that is open as `fd`. If it is not cached, the kernel and the file's file system
    /// are asked, without the lock, because either may take any time.
    ///
    /// # Errors
    /// A reader had to be started, and no thread could be started.
    pub(crate) fn place(
        devices: &SharedDevices,
        file: FileId,
        fd: BorrowedFd<'_>,
        now: Instant,
    ) -> io::Result<Place> {
        let known = lock(devices).known(file, now);
        let layered = match known {
            Known::At(place) => return Ok(place),
            Known::Layered(mount) => Some(mount),
            Known::Not => None,
        };
        let found = LookedUp::of(Dev::from_raw(file.dev), layered, fd);
        let mut devices = lock(devices);
        devices.sweep(now);
        devices.enter(file, found, fd, now)
    }

    /// The cached place of a file.
    fn known(&self, file: FileId, now: Instant) -> Known {
        let fresh = |since: Instant| now.saturating_duration_since(since) < believed();
        let of_device = self.known.get(&file.dev).filter(|k| fresh(k.1)).map(|k| k.0);
        match of_device {
            Some(Found::At(place)) => return Known::At(place),
            _ if self.closed => return Known::At(Place::NotADisk),
            _ => {}
        }
        match (self.by_file.get(&file), of_device) {
            (Some(&(place, since)), _) if fresh(since) => Known::At(place),
            (_, Some(Found::ByFile(mount))) => Known::Layered(mount),
            _ => Known::Not,
        }
    }

    /// Caches a result.
    fn enter(
        &mut self,
        file: FileId,
        found: LookedUp,
        fd: BorrowedFd<'_>,
        now: Instant,
    ) -> io::Result<Place> {
        if self.closed {
            return Ok(Place::NotADisk);
        }
        let place = match found.backing {
            Some(backing) => self.place_on(Dev::from_raw(file.dev), backing, found.steps, fd)?,
            None => Place::NotADisk,
        };
        let of_device = found.mount.map_or(Found::At(place), Found::ByFile);
        if self.known.len() >= DEVICES_MAX {
            self.known.clear();
        }
        self.known.insert(file.dev, (of_device, now));
        if found.mount.is_some() {
            if self.by_file.len() >= FILES_MAX {
                self.by_file.retain(|_, known| now.saturating_duration_since(known.1) < believed());
            }
            if self.by_file.len() >= FILES_MAX {
                self.by_file.clear();
            }
            self.by_file.insert(file, (place, now));
        }
        Ok(place)
    }

    /// The place of the files of a device that lies on these disks.
    fn place_on(
        &mut self,
        dev: Dev,
        backing: Backing,
        steps: Steps,
        fd: BorrowedFd<'_>,
    ) -> io::Result<Place> {
        let mut joined = Vec::new();
        let (disk, start) = match backing {
            Backing::Disk { disk, start, members, .. } if self.serves(&disk, &members, fd) => {
                joined = members.into_iter().map(|member| member.name).collect();
                (Some(disk), start)
            }
            Backing::Disk { .. } | Backing::Beyond(_) => return Ok(Place::NotADisk),
            Backing::Memory if !self.settings.include_ssd => return Ok(Place::NotADisk),
            Backing::Memory => (None, 0),
            Backing::Unresolved(why) => {
                tracing::debug!(%dev, why, "goes to the common queue");
                (None, 0)
            }
        };
        let disk = disk.filter(|_| !self.settings.single_queue);
        let (key, name) = match &disk {
            Some(disk) => (Some(disk.dev), disk.name.as_str()),
            None => (None, COMMON),
        };
        Ok(Place::Reader { index: self.reader(key, name, joined, fd)?, start, steps })
    }

    /// Whether a disk is served: it seeks, or disks without heads are served too.
    fn serves(&self, disk: &Disk, members: &[Disk], fd: BorrowedFd<'_>) -> bool {
        let settings = &self.settings;
        let asleep = |disk: &Disk| self.all.sleep.as_ref().is_some_and(|sleep| !sleep.is_awake(&disk.name));
        let seeks = |disk: &Disk, fd| match asleep(disk) {
            // A probe would wake it.
            true => settings.kinds.seeks_unprobed(disk),
            false => settings.kinds.seeks(disk, fd, &settings.profiles),
        };
        match members {
            _ if settings.include_ssd => true,
            [] => seeks(disk, Some(fd)),
            // A file of a set may lie on any member.
            members => members.iter().filter(|m| seeks(m, None)).count() > 0,
        }
    }

    /// The reader of a disk. `joined` has the names of the disks if it is a file system on several. `fd` is a
    /// file there.
    fn reader(
        &mut self,
        key: Option<Dev>,
        name: &str,
        joined: Vec<String>,
        fd: BorrowedFd<'_>,
    ) -> io::Result<usize> {
        let free = self.readers.iter().position(|r| r.retired && r.threads.are_over());
        let full = self.readers.len() >= DEVICES_MAX && free.is_none() && !self.by_disk.contains_key(&key);
        let (key, name, joined) = if full { (None, COMMON, Vec::new()) } else { (key, name, joined) };
        let known = self.by_disk.get(&key).copied();
        let sequence = sequence(name);
        // A number may be given to another disk, or to another mount. A file system on several disks may get
        // others, or a new layout on them.
        let same = |&(index, of): &(usize, u64)| {
            let reader: &DiskThread = &self.readers[index];
            let told_by_number = joined.is_empty() && sequence != 0;
            of == sequence && (told_by_number || reader.name == name) && !reader.is_replaced()
        };
        if let Some((index, _)) = known.filter(same) {
            return Ok(index);
        }
        let topology = match joined.is_empty() {
            true => DiskTopology::Name,
            false => {
                let own = rustix::io::fcntl_dupfd_cloexec(fd, 3)?;
                DiskTopology::Joined(joined, Volume::of(own, believed()).map(Box::new))
            }
        };
        let started = DiskThread::start(name, topology, &self.settings, self.all.clone())?;
        let index = match known.map(|known| known.0).or(free) {
            // The old thread passes its waiting requests and ends by itself.
            Some(index) => {
                self.readers[index] = started;
                index
            }
            None => {
                self.readers.push(started);
                self.readers.len() - 1
            }
        };
        self.by_disk.insert(key, (index, sequence));
        tracing::info!(disk = name, "a disk is served");
        Ok(index)
    }
}

/// The result of [`Devices::known`].
enum Known {
    At(Place),
    /// Its device consists of others; the mount's number.
    Layered(u64),
    Not,
}

/// The result of a lookup of a file's place.
struct LookedUp {
    /// The disks under its device; `None` if read-ahead cannot help there.
    backing: Option<Backing>,
    steps: Steps,
    /// The mount's number, if each file lies on another file system.
    mount: Option<u64>,
}

impl LookedUp {
    /// `layered` is the mount's number, if known.
    fn of(dev: Dev, layered: Option<u64>, fd: BorrowedFd<'_>) -> LookedUp {
        let topology = Topology::of_system();
        // Only file systems without a device of their own need the mount's number.
        let mount_id = layered.or_else(|| mount_id(fd).filter(|_| dev.major == 0));
        if layered.is_none() && !helps(&topology, dev, mount_id, fd) {
            let steps = Steps { submit: PROGRESS_STEP, report: PROGRESS_STEP };
            return LookedUp { backing: None, steps, mount: None };
        }
        let mount = mount_id.filter(|&id| topology.is_layered(Some(id)));
        // If the layer of the file is not known, use the disks of the whole file system.
        let backing = match mount.and_then(|id| topology.layer_of(id, fd)) {
            Some((below, id)) => topology.backing(below, Some(id)),
            None => topology.backing(dev, mount_id),
        };
        let queue_of = match &backing {
            Backing::Disk { queue_of, .. } => *queue_of,
            _ => None,
        };
        let limits = topology.queue_limits(queue_of.unwrap_or(dev));
        let steps = Steps { submit: limits.read_ahead_cut(), report: PROGRESS_STEP };
        LookedUp { backing: Some(backing), steps, mount }
    }
}

/// Whether read-ahead can help the files of this mount, and no user except root or this one can block its
/// calls.
fn helps(topology: &Topology, dev: Dev, mount_id: Option<u64>, fd: BorrowedFd<'_>) -> bool {
    let unseen = dev.major == 0 && !mount_id.is_some_and(|id| topology.has_mount(id));
    // A container's mount may be missing from our table; its kind can still be asked for.
    let kind = if unseen { fstype::of(fd).map(|t| t.reads) } else { topology.reads(mount_id) };
    match kind {
        Some(Reads::OwnCache | Reads::Network) => false,
        // Its server can block every call on its files for ever.
        Some(Reads::Fuse) => {
            mount_id.is_some_and(|id| is_trusted(topology, id)) && !fstype::reads_directly(fd)
        }
        _ => true,
    }
}

/// Whether a FUSE mount was made by root or by this user. A mount in a user's own namespace is missing from
/// our table.
fn is_trusted(topology: &Topology, mount_id: u64) -> bool {
    let Some(user) = topology.fuse_user(mount_id) else { return false };
    user == 0 || user == rustix::process::geteuid().as_raw()
}
