//! Starts the thread of a disk with what is known of the disk before it is first read.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{Sender, TrySendError, bounded};
use seekless_kernel::sysfs::SYS_BLOCK;
use seekless_policy::memory::REPORT_EVERY;
use seekless_policy::pool::MemoryUse;
use seekless_policy::{Config, DiskEngine, FileId, IN_FLIGHT_MAX, MemoryLimit, OrderKind, Sizing};

use crate::bitrates::Bitrates;
use crate::costs::CostMeter;
use crate::decisions::DiskLog;
use crate::deleted_files::FileThread;
use crate::disk::Disk;
use crate::disk_thread::DiskLoop;
use crate::door::Message;
use crate::ends_within;
use crate::kind::{Kinds, is_block};
use crate::layout::Layout;
use crate::machine::{Machine, SharedMemory};
use crate::open_files::OpenFiles;
use crate::processes::Processes;
use crate::settings::Settings;
use crate::sleep::Sleep;
use crate::snapshot::{Snapshot, Statistics};
use crate::volume::{Renewed, Volume};
use crate::worker::{DiskThreads, Workers, short_name};
use crate::writes::WritesSeen;

/// The doors' handle of a disk thread.
pub(crate) struct DiskThread {
    pub(crate) name: String,
    pub(crate) snapshot: Arc<Mutex<Snapshot>>,
    sender: Sender<Message>,
    thread: JoinHandle<()>,
    /// Set once the layout of its file system has changed, so that its queues no longer match.
    replaced: Arc<AtomicBool>,
    /// Its own thread, and those that wait for its disk.
    pub(crate) threads: DiskThreads,
    pub(crate) retired: bool,
}

/// What the threads of all disks share.
#[derive(Clone, Default)]
pub(crate) struct AllDisks {
    /// The memory of the machine.
    pub(crate) memory: Arc<SharedMemory>,
    /// Whether the disks are left to their readers ([`seekless_policy::Event::Rest`]).
    pub(crate) rests: Arc<AtomicBool>,
    /// Bitrates from the table.
    pub(crate) bitrates: Arc<Bitrates>,
    /// Files that disk threads have opened again.
    pub(crate) open: Arc<Mutex<HashSet<FileId>>>,
    /// The processes that read.
    pub(crate) processes: Arc<Processes>,
    /// Disks that may sleep; `None` without `--quiet`.
    pub(crate) sleep: Option<Arc<Sleep>>,
}

/// What the topology says about the disk of a thread.
pub(crate) enum DiskTopology {
    /// Only its name.
    Name,
    /// Names of the member disks; their layout, or why it is unknown.
    Joined(Vec<String>, Result<Box<Volume>, String>),
}

impl DiskThread {
    /// Starts the thread of a disk and its workers. It is not yet counted in `all`.
    ///
    /// # Errors
    /// No thread can be started.
    pub(crate) fn start(
        name: &str,
        topology: DiskTopology,
        settings: &Settings,
        all: AllDisks,
    ) -> io::Result<DiskThread> {
        let AllDisks { memory, rests, bitrates, open, processes, sleep } = all;
        if let Some(sleep) = &sleep {
            sleep.watch(name);
        }
        let number = memory.join();
        let devices = match &topology {
            DiskTopology::Name => vec![name.to_string()],
            DiskTopology::Joined(members, _) => members.clone(),
        };
        let limit = Machine::default().limit(&memory, number, MemoryUse::default());
        let Setup { disk, config, kinds, volume } = Setup::of(name, topology, settings, limit);
        let engine = DiskEngine::new(config);
        let config = engine.config();
        let log = DiskLog::begin(settings.decisions.clone(), name, config);
        // Twice the queue: requests that the engine will pass are answered quickly and may come in bursts.
        let (sender, messages) = bounded(config.queue_max.saturating_mul(2).min(1 << 16));
        let (workers, reports) = Workers::start(name, config.in_flight)?;
        let file_thread = FileThread::start(name, workers.reporter())?;
        let threads = workers.threads();
        let media_rate = disk.profile.as_ref().map_or(0.0, |profile| profile.mean_rate());
        // For a file system on several disks, clients give addresses of the file system.
        let parts = if volume.is_some() { Vec::new() } else { config.parts.clone() };
        let costs = CostMeter::on(config.parts.clone(), processes);
        let statistics = Statistics::new(media_rate, parts, costs.shared());
        let (snapshot, began) = (statistics.published(), Instant::now());
        let sees_writes = config.writers.is_some() && config.mode.serialises();
        let writes = sees_writes.then(|| WritesSeen::start(name, &devices)).flatten();
        let replaced = Arc::<AtomicBool>::default();
        let volume = volume.map(|volume| Renewed::new(volume, replaced.clone()));
        let files = OpenFiles::on(volume, open, file_thread);
        let body = DiskLoop {
            engine,
            log,
            began,
            workers,
            files,
            costs,
            pending: HashMap::new(),
            bitrates,
            bitrates_told: 0,
            sleep,
            writes,
            kinds,
            disk,
            memory,
            number,
            rests,
            resting: false,
            machine: Machine::default(),
            memory_due: began + Duration::from_nanos(REPORT_EVERY.0),
            statistics,
        };
        let run = move || body.run(&messages, &reports);
        let thread = thread::Builder::new().name(short_name("disk", name)).spawn(run)?;
        Ok(DiskThread { name: name.to_string(), snapshot, sender, thread, replaced, threads, retired: false })
    }

    /// Whether another thread must take its place.
    pub(crate) fn is_replaced(&self) -> bool {
        self.replaced.load(Ordering::Relaxed)
    }

    /// The disk is gone: the thread accepts nothing more, passes what waits, and ends when its disk lets it.
    pub(crate) fn retire(&mut self) {
        (self.sender, _) = bounded(0);
        self.retired = true;
    }

    /// Sends a message. Returns it if the thread cannot take it now. Reports leave half of the room to calls.
    pub(crate) fn send(&self, message: Message) -> Result<(), Message> {
        let room = self.sender.capacity().unwrap_or(usize::MAX);
        if message.is_report() && self.sender.len() >= room / 2 {
            return Err(message);
        }
        self.sender.try_send(message).map_err(|e| match e {
            TrySendError::Full(m) | TrySendError::Disconnected(m) => m,
        })
    }

    /// Ends the thread, which passes what waits; its workers end when their disk lets them. Waits only for a
    /// moment, because a disk that hangs must not keep the program from ending.
    pub(crate) fn stop(self) {
        drop(self.sender);
        ends_within(&self.thread, Duration::from_millis(500));
    }
}

/// What is known of a disk before it is first read.
struct Setup {
    disk: Disk,
    config: Config,
    /// Measures the concurrency limit; `None` if the layout gives it.
    kinds: Option<Arc<Kinds>>,
    volume: Option<Volume>,
}

impl Setup {
    /// For the disk with this kernel name, with this memory at first.
    fn of(name: &str, topology: DiskTopology, settings: &Settings, memory: MemoryLimit) -> Setup {
        let disk = Disk::look_up(name, &settings.profiles);
        let mut config = settings.policy.clone();
        config.reads_in_flight = config.reads_in_flight.min(IN_FLIGHT_MAX);
        config.memory = memory;
        config.profile = disk.profile.clone();
        config.start_size = config.start_size.or(disk.size);
        let measured = match Layout::read(Path::new(SYS_BLOCK), name) {
            Ok(Some(layout)) => {
                layout.apply(&mut config);
                tracing::info!(disk = name, layout = layout.name, "a set of disks");
                false
            }
            Ok(None) => true,
            Err(why) => {
                tracing::warn!(disk = name, "this layout is not used: {why}; it is served as one disk");
                false
            }
        };
        if matches!(config.sizing, Sizing::Auto(_)) {
            tracing::info!(disk = name, "the prefetch size is automatic");
        }
        let (mut several, mut volume) = (false, None);
        match topology {
            DiskTopology::Joined(_, Ok(topology)) => {
                topology.apply(&mut config);
                tracing::info!(disk = name, layout = topology.name(), "a set of disks");
                volume = Some(*topology);
            }
            DiskTopology::Joined(members, Err(why)) => {
                tracing::warn!(
                    disk = name,
                    "the disk addresses of its files are unknown: {why}; its {} disks share one queue",
                    members.len()
                );
                several = true;
            }
            DiskTopology::Name => {}
        }
        // The common queue of several disks, and the papers' queue, have one piece in flight by design.
        let own = (is_block(name) || several) && config.order == OrderKind::Sweep;
        config.find_in_flight = measured && own;
        let kinds = (measured && config.mode.serialises()).then(|| settings.kinds.clone());
        Setup { disk, config, kinds, volume }
    }
}
