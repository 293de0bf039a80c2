//! The daemon's disk thread in virtual time: a [`DiskEngine`], its reads, and the connections that wait for
//! its answers.
//!
//! It translates and decides nothing. Requests have the missing part of their range; a read is submitted as a
//! whole in the kernel's largest steps, with progress reported every 256 KiB; calls that shims report are
//! taken from their ring every 5 ms; the machine's memory is reported every [`REPORT_EVERY`].
//! [`super::machine`] drives it.

use std::collections::{BTreeMap, BTreeSet};

use seekless_base::Nanos;
use seekless_policy::ledger::Totals;
pub(crate) use seekless_policy::memory::REPORT_EVERY;
use seekless_policy::{Config, DiskEngine, MemoryLimit, ReadId, RequestId};

/// A read in progress. Offsets are pages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    pub(crate) file: u32,
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Everything before has been read.
    pub(crate) at: u64,
    pub(crate) reported: u64,
    /// Everything before has been submitted.
    pub(crate) submitted: u64,
}

/// One engine: of one disk, or of all.
pub(crate) struct Engine {
    pub(crate) policy: DiskEngine,
    pub(crate) reads: BTreeMap<ReadId, Reading>,
    /// The connection that waits for each request.
    pub(crate) pending: BTreeMap<RequestId, u32>,
    next_request: u64,
    /// The ledger at the end of the warm-up.
    pub(crate) totals_before: Totals,
    /// Files that the engine has open, by their numbers. Only for the door that opens them itself.
    pub(crate) open: BTreeSet<u32>,
    /// Requests of a file set, with the disk of the set.
    pub(crate) of_file_sets: BTreeMap<RequestId, u32>,
    /// Busy time of the disk, in all and for file sets, at the end of the warm-up.
    pub(crate) times_before: (Nanos, Nanos),
    /// Number of the last planned tick.
    pub(crate) tick: u64,
}

impl Engine {
    pub(crate) fn new(config: Config, memory: MemoryLimit) -> Engine {
        Engine {
            policy: DiskEngine::new(Config { memory, ..config }),
            reads: BTreeMap::new(),
            pending: BTreeMap::new(),
            next_request: 1,
            totals_before: Totals::default(),
            open: BTreeSet::new(),
            of_file_sets: BTreeMap::new(),
            times_before: (Nanos::ZERO, Nanos::ZERO),
            tick: 0,
        }
    }

    /// The name of a request for which this connection waits.
    pub(crate) fn request_id(&mut self, connection: u32) -> RequestId {
        let id = self.unheard_id();
        self.pending.insert(id, connection);
        id
    }

    /// The name of a request without a listener.
    pub(crate) fn unheard_id(&mut self) -> RequestId {
        let id = RequestId(self.next_request);
        self.next_request += 1;
        id
    }
}
