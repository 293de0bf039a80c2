//! What the threads of all users share: the engine, the rings of reports, and the shares of users.
//!
//! Every lock here is held only for a moment, and never across a call that a user can block.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use crossbeam_channel::Sender;
use seekless_engine::{Devices, Engine, Reported, lock};
use seekless_frontend::status::Counters;
use seekless_kernel::ring::Record;
use seekless_kernel::twinkey::Key;
use seekless_policy::FileId;
use seekless_wire::Settings as Settled;

use crate::acceptor::TakeOverWish;
use crate::deliveries::Deliveries;
use crate::file_sets::FileSetThread;
use crate::frame_limiter::{FrameLimiter, Weight};
use crate::rings::Rings;
use crate::settings::DaemonSettings;
use crate::shares::Shares;
use crate::statistics::{Shared, Statistics};
use crate::take_over::HandOver;

/// The shared state.
pub(crate) struct Front {
    pub(crate) settings: Arc<DaemonSettings>,
    pub(crate) engine: Engine,
    pub(crate) shared: Shared,
    pub(crate) statistics: Statistics,
    /// The rings of reports; `None` in modes that need no reports.
    pub(crate) rings: Option<Mutex<Rings>>,
    pub(crate) shares: Mutex<Shares>,
    pub(crate) frame_limiter: Mutex<FrameLimiter>,
    pub(crate) file_sets: FileSetThread,
    pub(crate) hand_over: HandOver,
    /// The key with which the daemon proves its identity at the twin.
    pub(crate) key: Option<Key>,
    /// Takeover steps for the acceptor, which owns the sockets.
    pub(crate) wishes: Sender<TakeOverWish>,
    /// Wakes the acceptor.
    pub(crate) wake: OwnedFd,
    /// Number of open connections.
    pub(crate) connections: AtomicUsize,
    /// The last connection number.
    pub(crate) last_mark: AtomicU64,
}

impl Front {
    /// Milliseconds since the daemon's start.
    pub(crate) fn now_ms(&self) -> u64 {
        self.shared.started.elapsed().as_millis() as u64
    }

    /// A new connection number, from 1; unique.
    pub(crate) fn next_mark(&self) -> u64 {
        self.last_mark.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Changes a counter.
    pub(crate) fn count(&self, add: impl FnOnce(&mut Counters)) {
        add(&mut lock(&self.shared.counters));
    }

    /// Counts an invalid frame of this user.
    pub(crate) fn count_invalid(&self, uid: u32, weight: Weight) {
        if lock(&self.shares).trusts(uid) {
            return;
        }
        let mut limiter = lock(&self.frame_limiter);
        if limiter.count(uid, weight, Instant::now()) && limiter.muted == 1 {
            tracing::warn!(
                "user {uid} sends too many invalid frames; it is not read for a while. Further cases are only counted (users_muted)"
            );
        }
    }

    /// Sends a takeover step to the acceptor.
    pub(crate) fn wish(&self, wish: TakeOverWish) {
        // If the queue is full, the client gets no answer and times out.
        let _ = self.wishes.try_send(wish);
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    /// The settings for a process of this user.
    pub(crate) fn told(&self, uid: u32) -> Settled {
        let ring = self.rings.as_ref().map_or(0, |rings| lock(rings).number(uid, Instant::now()));
        self.settings.wire(ring)
    }

    /// The ring of this user. `None`: the user gets none.
    ///
    /// # Errors
    /// No memory or no descriptor for another ring.
    pub(crate) fn ring(&self, uid: u32) -> io::Result<Option<OwnedFd>> {
        let Some(rings) = &self.rings else { return Ok(None) };
        let mut rings = lock(rings);
        let ring = rings.ring(uid, Instant::now())?;
        ring.map(|ring| Ok(rustix::io::fcntl_dupfd_cloexec(ring.as_fd(), 3)?)).transpose()
    }

    /// Lets the engine rest while every call is passed. The lease expires by itself.
    pub(crate) fn rest(&self) {
        self.engine.rest(self.shared.passing.now(Instant::now()));
    }

    /// Takes the reports of one user's shims and hands them to the disk threads. The user has shown that it
    /// can read this file.
    pub(crate) fn take_reports_of(&self, uid: u32, file: FileId) {
        let Some(rings) = &self.rings else { return };
        let (mut rings, now) = (lock(rings), Instant::now());
        self.hand_on(now, |report| rings.take_of(uid, now, report));
        rings.shown(uid, file, now);
    }

    /// Takes the reports of all users' shims and hands them to the disk threads.
    pub(crate) fn take_reports(&self) {
        let Some(rings) = &self.rings else { return };
        let (mut rings, now) = (lock(rings), Instant::now());
        self.hand_on(now, |report| rings.take_all(now, report));
    }

    fn hand_on(&self, now: Instant, take: impl FnOnce(&mut dyn FnMut(&Record))) {
        let devices = lock(self.engine.devices());
        let mut deliveries = lock(&self.shared.deliveries);
        let (mut reports, mut dropped) = (0, 0);
        take(&mut |record| {
            reports += 1;
            dropped += u64::from(hand_on(record, &devices, &mut deliveries, now) == Reported::Dropped);
        });
        drop((devices, deliveries));
        if reports > 0 {
            self.count(|c| {
                (c.reports, c.reports_dropped) = (c.reports + reports, c.reports_dropped + dropped)
            });
        }
    }

    /// Publishes counters that are kept elsewhere.
    pub(crate) fn publish(&self) {
        let muted = lock(&self.frame_limiter).muted;
        let rings = self.rings.as_ref().map(|rings| {
            let rings = lock(rings);
            (rings.now() as u64, rings.counts, rings.dropped())
        });
        self.count(|c| {
            c.connections_now = self.connections.load(Ordering::Acquire) as u64;
            c.users_muted = muted;
            if let Some((now, counts, dropped)) = rings {
                c.rings_now = now;
                c.rings_replaced = counts.replaced;
                c.rings_refused = counts.refused;
                c.reports_unknown = counts.unknown;
                c.ring_dropped = dropped;
            }
        });
    }
}

/// Counts a shim's report, and hands it to the thread of its disk.
fn hand_on(record: &Record, devices: &Devices, deliveries: &mut Deliveries, now: Instant) -> Reported {
    let file = FileId { dev: record.dev, ino: record.ino };
    deliveries.read(file, record.offset, record.len, now);
    devices.read(file, record.offset, record.len)
}
