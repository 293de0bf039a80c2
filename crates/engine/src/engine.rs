//! The handle of the engine, for every door.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use seekless_policy::{IoPriority, RequestId};

use crate::bitrates::{BitratesReport, Table};
use crate::devices::{Devices, SharedDevices};
use crate::lock;
use crate::metadata::{Keeper, MetadataReport};
use crate::opener::Opener;
use crate::processes::Processes;
use crate::report::DiskReport;
use crate::settings::Settings;
use crate::snapshot::Snapshot;

/// The threads of all disks. Clones share one engine; it ends with the last.
#[derive(Clone)]
pub struct Engine {
    shared: Arc<Shared>,
}

struct Shared {
    settings: Arc<Settings>,
    devices: SharedDevices,
    /// Whether the disks are left to their readers. Set often, so it needs no lock.
    rests: Arc<AtomicBool>,
    /// Keeps the metadata of trees in memory, if configured.
    keeper: Option<Keeper>,
    /// Opens files for callers in this process.
    opener: Opener,
    /// Reads the table of bitrates, if there is one.
    table: Option<Table>,
    /// The processes that read.
    processes: Arc<Processes>,
    /// Id of the next request.
    ids: AtomicU64,
}

impl Drop for Shared {
    fn drop(&mut self) {
        let stop = lock(&self.devices).close();
        stop();
    }
}

impl Engine {
    /// An engine without disk threads. Each one is started at the first request for a file on its disk.
    pub fn start(settings: Settings) -> Engine {
        let settings = Arc::new(settings.normalised());
        let devices = Devices::new(settings.clone());
        let (rests, sleep) = (devices.all.rests.clone(), devices.all.sleep.clone());
        let processes = devices.all.processes.clone();
        let table = Table::of(&settings, &devices.all.bitrates);
        let devices = Arc::new(Mutex::new(devices));
        let keeper = Keeper::of(&settings, sleep);
        let (opener, ids) = (Opener::new(devices.clone()), AtomicU64::new(1));
        Engine {
            shared: Arc::new(Shared { settings, devices, rests, keeper, opener, table, processes, ids }),
        }
    }

    /// The settings in use.
    pub fn settings(&self) -> &Settings {
        &self.shared.settings
    }

    /// The disk threads, for a door that finds them itself.
    pub fn devices(&self) -> &SharedDevices {
        &self.shared.devices
    }

    /// Opens files for callers in this process.
    pub(crate) fn opener(&self) -> &Opener {
        &self.shared.opener
    }

    /// A thread that opens files for the calls of one user of a door ([`crate::Door::opener`]).
    pub fn new_opener(&self) -> Opener {
        Opener::new(self.shared.devices.clone())
    }

    /// A new request id.
    pub(crate) fn next_id(&self) -> RequestId {
        RequestId(self.shared.ids.fetch_add(1, Ordering::Relaxed))
    }

    /// Leaves the disks to their readers from now on, or no longer ([`seekless_policy::Event::Rest`]). May be
    /// repeated at any time.
    pub fn rest(&self, rests: bool) {
        self.shared.rests.store(rests, Ordering::Relaxed);
    }

    /// Ends the engine: no disk thread is started from now on, and the existing ones pass their waiting
    /// requests. Waits up to half a second for each.
    pub fn close(&self) {
        let stop = lock(&self.shared.devices).close();
        stop();
    }

    /// The I/O priority of a process or thread (0: not known), as a client's demand has it. Never waits: a
    /// thread looks in `/proc` once in a few seconds for each, and the first read has the default.
    pub fn priority_of(&self, id: u32) -> IoPriority {
        self.shared.processes.priority_of(id, Instant::now())
    }

    /// The state of the table of bitrates; `None` if there is none.
    pub fn bitrates(&self) -> Option<BitratesReport> {
        self.shared.table.as_ref().map(Table::report)
    }

    /// The state of the metadata keeper; `None` if there is none.
    pub fn metadata(&self) -> Option<MetadataReport> {
        self.shared.keeper.as_ref().map(Keeper::report)
    }

    /// The counters of each disk thread, in the order they were started.
    pub fn statistics(&self) -> Vec<DiskReport> {
        let (snapshots, sleep) = {
            let devices = lock(&self.shared.devices);
            (devices.snapshots(), devices.all.sleep.clone())
        };
        // Names of files are looked up without the lock.
        let report = |(name, snapshot): (String, Snapshot)| DiskReport {
            sleep: sleep.as_ref().and_then(|sleep| sleep.report(&name)),
            ..DiskReport::of(&name, &snapshot)
        };
        snapshots.into_iter().map(report).collect()
    }
}
