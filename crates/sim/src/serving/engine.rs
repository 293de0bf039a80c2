//! The daemon's reader in virtual time: a [`Spindle`], what its reads bring, who waits for its answers.
//!
//! The loop is that of `seekless daemon`: requests go in with the part that is missing, a read is submitted as a whole in
//! the kernel's largest steps, its progress is told every 256 KiB, calls that shims report are taken from their ring every
//! 5 ms, what was read ahead is held until it is read, and the budget follows what is seen to be evicted. It is driven by [`super::machine`].

use std::collections::BTreeMap;

use seekless_policy::budget::{BudgetShare, EVERY_S, most};
use seekless_policy::hold::Holds;
use seekless_policy::ledger::Totals;
use seekless_policy::{ReadId, RequestId, Spindle, StreamId};
use seekless_units::{Bytes, Nanos};

use super::config::EngineConfig;

/// How long the daemon remembers how to open a file (its `KEPT_FOR`).
const KEPT_FOR: Nanos = Nanos::from_secs(35);
/// How often it looks which of them it has closed.
const PURGE_EVERY: Nanos = Nanos::from_secs(5);
/// How often the budget may change.
pub(crate) const BUDGET_EVERY: Nanos = Nanos::from_secs(EVERY_S);

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
    pub(crate) spindle: Spindle,
    pub(crate) reads: BTreeMap<ReadId, Reading>,
    /// Connection that waits for each request.
    pub(crate) pending: BTreeMap<RequestId, u32>,
    next_request: u64,
    /// When each file was last heard of; it can be read ahead only while it is held open.
    kept: BTreeMap<u32, Nanos>,
    /// What waits for its reader; `None` where streams are not followed.
    pub(crate) holds: Option<Holds>,
    /// Whether that is held, too.
    pub(crate) holding: bool,
    purged: Nanos,
    fixed: Option<u64>,
    share: BudgetShare,
    /// The stream whose memory was looked at last.
    pub(crate) sampled: Option<StreamId>,
    /// The ledger when the warm-up was over.
    pub(crate) ledger_before: Totals,
    /// Number of the tick planned last.
    pub(crate) tick: u64,
}

impl Engine {
    pub(crate) fn new(config: &EngineConfig) -> Engine {
        Engine {
            spindle: Spindle::new(config.spindle.clone()),
            reads: BTreeMap::new(),
            pending: BTreeMap::new(),
            next_request: 1,
            kept: BTreeMap::new(),
            holds: config.follows().then(Holds::default),
            holding: config.hold,
            purged: Nanos::ZERO,
            fixed: config.budget.map(|b| b.0),
            share: BudgetShare::default(),
            sampled: None,
            ledger_before: Totals::default(),
            tick: 0,
        }
    }

    pub(crate) fn request_id(&mut self, connection: u32) -> RequestId {
        let id = RequestId(self.next_request);
        self.next_request += 1;
        self.pending.insert(id, connection);
        id
    }

    /// A miss opens the file.
    pub(crate) fn keep(&mut self, now: Nanos, file: u32) {
        self.kept.insert(file, now);
    }

    /// A read of a file was reported: whether the daemon holds it open.
    pub(crate) fn heard(&mut self, now: Nanos, file: u32) -> bool {
        match self.kept.get_mut(&file) {
            Some(used) if now.since(*used) < KEPT_FOR => {
                *used = now;
                true
            }
            Some(_) => {
                self.kept.remove(&file);
                false
            }
            None => false,
        }
    }

    /// The budget from now on, by the daemon's rule.
    /// `lists`: whether the kernel has a list of active pages.
    pub(crate) fn budget(&mut self, limit: u64, engines: usize, lists: bool) -> u64 {
        if let Some(fixed) = self.fixed {
            return fixed;
        }
        let most = most(Bytes(limit), engines, self.holding && lists);
        self.share.within(most, &self.spindle.stats(), false).0
    }

    /// Forgets files it has closed, and holds nothing of them.
    pub(crate) fn purge(&mut self, now: Nanos) {
        if now.since(self.purged) < PURGE_EVERY {
            return;
        }
        self.purged = now;
        self.kept.retain(|_, used| now.since(*used) < KEPT_FOR);
        if let Some(holds) = &mut self.holds {
            holds.purge(|file| self.kept.contains_key(&(file.ino as u32)), &self.spindle);
        }
    }
}
