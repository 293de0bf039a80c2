//! The daemon's disk thread in virtual time: a [`DiskEngine`], what its reads bring, and which connections
//! wait for its answers.
//!
//! It translates and decides nothing. Requests go in with the part that is missing, a read is submitted as a
//! whole in the kernel's largest steps, its progress is told every 256 KiB, calls that shims report are taken
//! from their ring every 5 ms, and the machine's memory is told every [`REPORT_EVERY`]. It is driven by
//! [`super::machine`].

use std::collections::{BTreeMap, BTreeSet};

use seekless_base::Nanos;
use seekless_policy::ledger::Totals;
pub(crate) use seekless_policy::memory::REPORT_EVERY;
use seekless_policy::successors::Successors;
use seekless_policy::{Config, DiskEngine, MemoryLimit, ReadId, RequestId};

/// A read under way. Places are pages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    pub(crate) file: u32,
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// All before is there.
    pub(crate) at: u64,
    pub(crate) reported: u64,
    /// Everything before has been submitted.
    pub(crate) submitted: u64,
    pub(crate) second_try: bool,
}

/// One engine: of one disk, or of all.
pub(crate) struct Engine {
    pub(crate) policy: DiskEngine,
    pub(crate) reads: BTreeMap<ReadId, Reading>,
    /// Connection that waits for each request.
    pub(crate) pending: BTreeMap<RequestId, u32>,
    next_request: u64,
    /// The account when the warm-up was over.
    pub(crate) totals_before: Totals,
    /// Files that the engine has open, by their numbers. Only kept for the door that opens them itself.
    pub(crate) open: BTreeSet<u32>,
    /// What its readers are about to open, where that is predicted.
    pub(crate) next_files: Option<Successors>,
    /// Requests for that, and the file that each is for.
    pub(crate) predicted: BTreeMap<RequestId, u32>,
    /// Requests of a file set, with the disk whose set asked.
    pub(crate) of_file_sets: BTreeMap<RequestId, u32>,
    /// What the disk had been busy, and busy for file sets, when the warm-up was over.
    pub(crate) times_before: (Nanos, Nanos),
    /// Whether a look at what is ahead is planned.
    pub(crate) looks: bool,
    /// Number of the tick planned last.
    pub(crate) tick: u64,
}

impl Engine {
    pub(crate) fn new(config: Config, memory: MemoryLimit, next_files: bool) -> Engine {
        Engine {
            policy: DiskEngine::new(Config { memory, ..config }),
            reads: BTreeMap::new(),
            pending: BTreeMap::new(),
            next_request: 1,
            totals_before: Totals::default(),
            open: BTreeSet::new(),
            next_files: next_files.then(|| Successors::new(0)),
            predicted: BTreeMap::new(),
            of_file_sets: BTreeMap::new(),
            times_before: (Nanos::ZERO, Nanos::ZERO),
            looks: false,
            tick: 0,
        }
    }

    /// The name of a request that this connection waits for.
    pub(crate) fn request_id(&mut self, connection: u32) -> RequestId {
        let id = self.unheard_id();
        self.pending.insert(id, connection);
        id
    }

    /// The name of a request whose answer nobody hears.
    pub(crate) fn unheard_id(&mut self) -> RequestId {
        let id = RequestId(self.next_request);
        self.next_request += 1;
        id
    }
}
