//! Counters of the event threads.

use std::sync::atomic::{AtomicU64, Ordering};

use seekless_frontend::status::WatchReport;

/// One counter.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self) {
        self.add_many(1);
    }

    pub(crate) fn add_many(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counters of the door; see [`WatchReport`] for their meaning.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    restarts: u64,
    pub(crate) events: Count,
    pub(crate) own: Count,
    pub(crate) outside: Count,
    pub(crate) nothing_to_do: Count,
    pub(crate) hits: Count,
    pub(crate) not_a_disk: Count,
    pub(crate) full: Count,
    pub(crate) limited: Count,
    pub(crate) held: Count,
    pub(crate) cut: Count,
    pub(crate) writes: Count,
    pub(crate) ignored: Count,
    pub(crate) noticed: Count,
    pub(crate) pauses: Count,
}

impl Counts {
    pub(crate) fn new(restarts: u64) -> Counts {
        Counts { restarts, ..Counts::default() }
    }

    pub(crate) fn report(&self) -> WatchReport {
        WatchReport {
            restarts: self.restarts,
            events: self.events.get(),
            own: self.own.get(),
            outside: self.outside.get(),
            nothing_to_do: self.nothing_to_do.get(),
            hits: self.hits.get(),
            not_a_disk: self.not_a_disk.get(),
            passed_full: self.full.get(),
            limited: self.limited.get(),
            held: self.held.get(),
            cut: self.cut.get(),
            writes: self.writes.get(),
            ignored: self.ignored.get(),
            noticed: self.noticed.get(),
            pauses: self.pauses.get(),
            ..WatchReport::default()
        }
    }
}
