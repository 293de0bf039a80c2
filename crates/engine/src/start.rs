//! Starts the thread of a disk, with what is known of the disk before it is first read.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{Sender, TrySendError, bounded};
use seekless_policy::memory::REPORT_EVERY;
use seekless_policy::pool::Held;
use seekless_policy::{Config, DiskEngine, FileId, IN_FLIGHT_MAX, MemoryLimit, OrderKind, Sizing};

use crate::aside::Aside;
use crate::bitrates::Bitrates;
use crate::decisions::DiskLog;
use crate::disk::Disk;
use crate::disk_thread::DiskLoop;
use crate::door::Message;
use crate::kind::{Kinds, is_block};
use crate::layout::Layout;
use crate::machine::{Machine, SharedMemory};
use crate::missed::Missed;
use crate::next_files::{Foretold, NextFiles};
use crate::open_files::OpenFiles;
use crate::pinner::Pinner;
use crate::settings::Settings;
use crate::snapshot::{Snapshot, Statistics};
use crate::volume::{Renewed, Volume};
use crate::worker::{DiskThreads, Workers, short_name};

/// The doors' end of a disk thread.
pub(crate) struct DiskThread {
    pub(crate) name: String,
    pub(crate) snapshot: Arc<Mutex<Snapshot>>,
    sender: Sender<Message>,
    thread: JoinHandle<()>,
    /// Whether its disks are queued otherwise than it knows.
    replaced: Arc<AtomicBool>,
    threads: DiskThreads,
    retired: bool,
}

/// What the threads of all disks share.
#[derive(Clone, Default)]
pub(crate) struct AllDisks {
    /// The memory that they share.
    pub(crate) memory: Arc<SharedMemory>,
    /// Whether the disks are left to their readers ([`seekless_policy::Event::Rest`]).
    pub(crate) rests: Arc<AtomicBool>,
    /// What the table of bitrates says.
    pub(crate) bitrates: Arc<Bitrates>,
    /// What was brought in for users that have not shown it.
    pub(crate) foretold: Arc<Foretold>,
    /// Files that disk threads have open by themselves.
    pub(crate) open: Arc<Mutex<HashSet<FileId>>>,
}

/// What is told of the disk of a thread by its topology.
pub(crate) enum Told {
    /// Nothing more than its name.
    Name,
    /// It is a file system on so many disks, and where it lies on them; or why that is not known.
    Joined(usize, Result<Box<Volume>, String>),
}

impl DiskThread {
    /// Starts the thread of a disk and its workers. It is not counted in `all` yet.
    ///
    /// # Errors
    /// No thread can be had.
    pub(crate) fn start(
        name: &str,
        told: Told,
        settings: &Settings,
        all: AllDisks,
    ) -> io::Result<DiskThread> {
        let AllDisks { memory, rests, bitrates, foretold, open } = all;
        let number = memory.join();
        let limit = Machine::default().limit(&memory, number, Held::default());
        let Setup { disk, config, kinds, volume } = Setup::of(name, told, settings, limit);
        let engine = DiskEngine::new(config);
        let config = engine.config();
        let log = DiskLog::begin(settings.decisions.clone(), name, config);
        // Twice the queue: requests the engine will pass are refused quickly and may come in bursts.
        let (sender, messages) = bounded(config.queue_max.saturating_mul(2).min(1 << 16));
        let (workers, reports) = Workers::start(name, config.in_flight)?;
        let aside = Aside::start(name, workers.reporter())?;
        let threads = workers.threads();
        let pinner = config.pins().then(|| Pinner::start(name)).transpose()?;
        let media_rate = disk.profile.as_ref().map_or(0.0, |profile| profile.mean_rate());
        // Addresses that clients tell of a file system on several disks are its own.
        let parts = if volume.is_some() { Vec::new() } else { config.parts.clone() };
        let pinned = pinner.as_ref().map_or_else(Arc::default, Pinner::count);
        let statistics = Statistics::new(pinned, media_rate, parts);
        let (snapshot, began) = (statistics.published(), Instant::now());
        let next_files = settings
            .foretells()
            .then(|| NextFiles::start(name, began, snapshot.clone(), foretold))
            .transpose()?;
        let replaced = Arc::<AtomicBool>::default();
        let volume = volume.map(|volume| Renewed::new(volume, replaced.clone()));
        let files = OpenFiles::on(volume, open, aside);
        let body = DiskLoop {
            engine,
            log,
            began,
            workers,
            files,
            missed: Missed::default(),
            pending: HashMap::new(),
            pinner,
            bitrates,
            bitrates_told: 0,
            next_files,
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

    /// Whether another thread is to take its place.
    pub(crate) fn is_replaced(&self) -> bool {
        self.replaced.load(Ordering::Relaxed)
    }

    /// Its own, and those that wait for its disk.
    pub(crate) fn threads(&self) -> &DiskThreads {
        &self.threads
    }

    /// Its disk is gone: it passes what waits and ends, when its disk lets it. It takes nothing any more.
    pub(crate) fn retire(&mut self) {
        (self.sender, _) = bounded(0);
        self.retired = true;
    }

    /// Whether it was retired.
    pub(crate) fn is_retired(&self) -> bool {
        self.retired
    }

    /// Hands a message over; gives it back if the thread cannot take it now. Reports leave half of the room
    /// to calls.
    pub(crate) fn send(&self, message: Message) -> Result<(), Message> {
        let room = self.sender.capacity().unwrap_or(usize::MAX);
        if message.is_report() && self.sender.len() >= room / 2 {
            return Err(message);
        }
        self.sender.try_send(message).map_err(|e| match e {
            TrySendError::Full(m) | TrySendError::Disconnected(m) => m,
        })
    }

    /// Ends the thread, which passes what waits; its workers end when their disk lets them. Waits for it, but
    /// no longer than a moment: a disk that hangs must not keep the program from ending.
    pub(crate) fn stop(self) {
        drop(self.sender);
        for _ in 0..100 {
            if self.thread.is_finished() {
                return;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// What is known of a disk before it is first read.
struct Setup {
    disk: Disk,
    config: Config,
    /// Where it is measured how many pieces the disk bears at once; `None` if its layout says so.
    kinds: Option<Arc<Kinds>>,
    volume: Option<Volume>,
}

impl Setup {
    /// For the disk of this kernel name, which has so much memory at first.
    fn of(name: &str, told: Told, settings: &Settings, memory: MemoryLimit) -> Setup {
        let disk = Disk::look_up(name, &settings.profiles);
        let mut config = settings.spindle.clone();
        config.reads_in_flight = config.reads_in_flight.min(IN_FLIGHT_MAX);
        config.memory = memory;
        config.profile = disk.profile.clone();
        config.start_size = config.start_size.or(disk.size);
        let measured = match Layout::read(Path::new("/sys/block"), name) {
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
        match told {
            Told::Joined(_, Ok(told)) => {
                told.apply(&mut config);
                tracing::info!(disk = name, layout = told.name(), "a set of disks");
                volume = Some(*told);
            }
            Told::Joined(members, Err(why)) => {
                tracing::warn!(
                    disk = name,
                    "the disk addresses of its files are unknown: {why}; its {members} disks share one queue"
                );
                several = true;
            }
            Told::Name => {}
        }
        // The common queue of several disks, and the papers' queue, have one piece at once by intent.
        let own = (is_block(name) || several) && config.order == OrderKind::Sweep;
        config.find_in_flight = measured && own;
        let kinds = (measured && config.mode.serialises()).then(|| settings.kinds.clone());
        Setup { disk, config, kinds, volume }
    }
}
