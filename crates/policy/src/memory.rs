//! How much memory one disk has, and what it keeps there: the bytes that are used again soonest.
//!
//! Memory holds bytes that were fetched ahead of a reader, and bytes that one reader has passed and another
//! will need. The value of both is the time that the disk would take to read them again. A byte behind a
//! reader is kept while its next use is nearer than the *horizon* (predictive buffer management: Świtakowski,
//! Boncz and Żukowski, VLDB 2012; interval caching: Dan and Sitaram 1996). The horizon is not computed. While
//! memory is short, bytes that are used last leave first, and the next use of the bytes that left last is the
//! horizon.
//!
//! The length of a piece has the same price ([`Memory::worth`]). A disk transfers `m` bytes a second, and a
//! switch takes as long as the transfer of `d` bytes. A byte that is kept for `h` seconds saves the time of
//! `1 + d/s` bytes. A piece that is longer by a byte occupies memory for `s/2r` on average and saves the time
//! of `d/s` bytes each `s/r` seconds. Both are worth the same where `s^2 + d s = 2 d r h`.
//!
//! The driver reports how much memory there is ([`MemoryLimit`]). Evictions correct it, because the servers
//! may be in a cgroup of their own with less, or others may need it: none of the bytes that should have been
//! kept should be missing. If more than a piece of them is, memory holds no more than what was read since
//! those bytes came (all that was assumed, for bytes already read, which have no date), and a tenth less than
//! was assumed. The assumed memory grows again as a congestion window does (Ha, Rhee and Xu 2008, CUBIC):
//! quickly to nine tenths of where that happened, then slowly.

use alloc::collections::VecDeque;

use seekless_base::{Bytes, Nanos};
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use crate::AheadConfig;
use crate::constants::Constants;

/// How often the driver reports the machine's memory ([`crate::Event::MemoryLimit`]).
pub const REPORT_EVERY: Nanos = Nanos::from_secs(2);

/// Smallest budget: a piece for each of a handful of streams.
pub const BUDGET_MIN: Bytes = Bytes::mib(8);

/// Minimum share of the limit that is assumed to be available.
const PART_MIN: f64 = 0.05;

/// Weight of a period's counts in the next period. Counts are judged over about ten seconds, because one
/// missing piece is several hundredths of what is read in one period.
const REMEMBERED: f64 = 0.8;

/// Initial and maximum mean fill of a stream's piece: half of it unread. Anything above was fetched early and
/// gives way.
const FILL_FIRST: f64 = 0.5;

/// Minimum mean fill. Clients that take whole pieces at once may stop doing so at any time.
const FILL_MIN: f64 = 0.125;

/// Share of memory that is freed at once when it is full, or of the bytes read lately if that is less. At
/// half, all bytes are examined twice as often; at double, that much less is kept.
pub(crate) const FREED_AT_ONCE: f64 = 1.0 / 32.0;

/// The machine's memory as the driver sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields)]
pub struct MemoryLimit {
    /// Bytes of page cache available to the servers of this disk and the engine together ([`crate::pool`]).
    #[default(Bytes::mib(1536))]
    pub bytes: Bytes,
    /// Whether tasks wait for memory at present.
    pub tasks_wait: bool,
}

/// Sums of what the engine has seen of its disk so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Seen {
    /// Reads submitted; below, their bytes.
    pub(crate) reads: u64,
    pub(crate) bytes_read: u64,
    /// Total time with a client blocked.
    pub(crate) blocked: Nanos,
}

/// The memory of one disk.
#[derive(Clone, Debug)]
pub(crate) struct Memory {
    constants: Constants,
    /// A budget that a user fixed.
    fixed: Option<Bytes>,
    limit: MemoryLimit,
    /// Share of the limit that is assumed to be available; below, the share at which too many bytes were last
    /// found missing.
    part: f64,
    wall: f64,
    /// Mean fill of a stream's piece: fetched and unread bytes, divided by the number of streams and the
    /// length of their pieces.
    fill: f64,
    /// While memory is short: the next use of the bytes that left last.
    horizon: Option<Nanos>,
    /// Memory counts as short until then, if nothing leaves before; below, the time of the last report.
    short_until: Nanos,
    now: Nanos,
    /// Bytes in memory when nothing more could leave; 0 if the last attempt freed enough.
    stuck_at: u64,
    /// Evictions have been answered up to this time; bytes fetched before it do not count again.
    answered: Nanos,
    /// Bytes already read have no fetch time. Their evictions do not count for this long after an answer.
    idle: Nanos,
    before: Seen,
    /// Sums over recent periods, with decreasing weight. `dated` counts the evicted bytes with a known fetch
    /// time; `turned_over` sums over them the bytes read since.
    evicted: f64,
    dated: f64,
    turned_over: f64,
    read: f64,
    reads: f64,
    /// Share of the time with a client blocked.
    blocked: f64,
    /// Total bytes read at each report, the newest last.
    history: VecDeque<(Nanos, u64)>,
}

impl Memory {
    pub(crate) fn new(ahead: &AheadConfig, limit: MemoryLimit, constants: Constants) -> Memory {
        Memory {
            fixed: ahead.budget,
            idle: ahead.streams.idle,
            limit,
            part: 1.0,
            wall: 1.0,
            fill: FILL_FIRST,
            horizon: None,
            short_until: Nanos::ZERO,
            now: Nanos::ZERO,
            stuck_at: 0,
            answered: Nanos::ZERO,
            before: Seen::default(),
            evicted: 0.0,
            dated: 0.0,
            turned_over: 0.0,
            history: VecDeque::from([(Nanos::ZERO, 0)]),
            read: 0.0,
            reads: 0.0,
            blocked: 0.0,
            constants,
        }
    }

    /// Bytes of memory assumed to be available.
    pub(crate) fn capacity(&self) -> u64 {
        Bytes((self.limit.bytes.0 as f64 * self.part) as u64).max(BUDGET_MIN).0
    }

    /// Maximum of fetched and unread bytes.
    pub(crate) fn budget(&self) -> u64 {
        let share = Bytes((self.capacity() as f64 * self.constants.budget_share) as u64).max(BUDGET_MIN);
        self.fixed.unwrap_or(share).0.max(crate::PAGE)
    }

    /// Length of a piece at which one for each of this many streams, at the mean fill, takes the whole
    /// budget.
    pub(crate) fn share(&self, streams: usize) -> u64 {
        (self.budget() as f64 / (streams.max(1) as f64 * self.fill)) as u64
    }

    /// Longest piece that is worth its memory, for a reader of `rate` bytes a second on a disk of this depth.
    pub(crate) fn worth(&self, rate: f64, depth: Bytes) -> u64 {
        let Some(horizon) = self.horizon.filter(|_| rate > 0.0) else { return u64::MAX };
        let depth = depth.0 as f64;
        // Unread bytes on average: `fill` of a piece. A reader at an even pace has half a piece.
        let bytes = rate * horizon.as_secs_f64() * FILL_FIRST / self.fill;
        // A piece shorter than what the disk transfers in one switch costs more than it can save ([C] 2).
        ((libm::sqrt(depth * depth + 8.0 * depth * bytes) - depth) / 2.0).max(depth) as u64
    }

    /// The part of the bytes queued for blocked clients that is expected to lie unread: 0 for clients that
    /// take their pieces as they arrive, all for clients that read at their own pace.
    pub(crate) fn filled(&self, queued: u64) -> u64 {
        (queued as f64 * (self.fill / FILL_FIRST).min(1.0)) as u64
    }

    /// Whether there is memory for bytes that are not due yet.
    pub(crate) fn has_to_spare(&self, unread: u64) -> bool {
        unread < self.budget()
    }

    /// Whether bytes have left lately to make room.
    pub(crate) fn is_short(&self) -> bool {
        self.short_until > self.now
    }

    /// Number of bytes that must leave memory now; 0 until it is full. If nothing could leave the last time,
    /// 0 until as much more has arrived as is freed at once.
    pub(crate) fn excess(&self, occupied: u64) -> u64 {
        let capacity = self.capacity();
        let freed = ((capacity as f64).min(self.read) * FREED_AT_ONCE) as u64;
        match occupied > capacity.max(self.stuck_at.saturating_add(freed)) {
            true => occupied - capacity + freed,
            false => 0,
        }
    }

    /// Bytes were dropped to make room; `next_use` is the next use of the last of them. `None`: that was
    /// not enough, and the `occupied` rest is unread, which says nothing about the horizon.
    pub(crate) fn made_room(&mut self, now: Nanos, next_use: Option<Nanos>, occupied: u64) {
        self.short_until = now + self.idle;
        self.horizon = next_use.or(self.horizon);
        self.stuck_at = if next_use.is_none() { occupied } else { 0 };
    }

    /// Bytes whose next use lies beyond this are not kept now.
    pub(crate) fn horizon(&self) -> Option<Nanos> {
        self.horizon
    }

    /// Bytes that should have been kept were found missing: fetched at `fetched` and unread, or already read.
    pub(crate) fn evicted(&mut self, now: Nanos, bytes: u64, fetched: Option<Nanos>, unread: u64) {
        let over_budget = unread as f64 > self.budget() as f64 * self.constants.blocked_over_budget;
        // Pieces served to blocked clients over the budget say nothing about the budget.
        let since = fetched.unwrap_or_else(|| now.since(self.idle));
        if since >= self.answered && !over_budget {
            self.evicted += bytes as f64;
            if let Some(since) = fetched.and_then(|fetched| self.read_since(fetched)) {
                self.dated += bytes as f64;
                self.turned_over += bytes as f64 * since as f64;
            }
        }
    }

    /// Bytes read since `then`, as far as is remembered; up to one period too many.
    fn read_since(&self, then: Nanos) -> Option<u64> {
        let (_, before) = self.history.iter().rev().find(|(at, _)| *at <= then)?;
        Some(self.before.bytes_read.saturating_sub(*before))
    }

    /// Whether more than one piece of recent mean length is missing. One may be missing by chance.
    fn too_many(&self) -> bool {
        self.evicted * self.reads > self.read
    }

    /// Evictions of bytes fetched until now no longer count.
    pub(crate) fn answer_for_all(&mut self, now: Nanos) {
        self.answered = now;
    }

    /// Sets the machine's memory without learning from it.
    pub(crate) fn machine(&mut self, limit: MemoryLimit) {
        self.limit = limit;
    }

    /// The driver's report of the machine's memory, every [`REPORT_EVERY`].
    pub(crate) fn limit(&mut self, now: Nanos, limit: MemoryLimit, seen: Seen, unread: u64, streams: usize) {
        self.limit = limit;
        self.count(seen);
        if self.reads >= 1.0 && streams > 0 {
            let fill = unread as f64 / (streams as f64 * self.read / self.reads);
            self.fill += (1.0 - REMEMBERED) / 2.0 * (fill.clamp(FILL_MIN, FILL_FIRST) - self.fill);
        }
        let step = self.constants.budget_step;
        if self.too_many() || limit.tasks_wait {
            self.wall = self.part.min(self.held() / limit.bytes.0.max(1) as f64);
            self.part = self.wall * (1.0 - step);
            self.answered = now;
            (self.evicted, self.dated, self.turned_over) = (0.0, 0.0, 0.0);
        } else if self.part < 0.9 * self.wall {
            self.part *= 1.0 + step / 2.0;
        } else {
            self.part += step / 100.0;
        }
        self.part = self.part.clamp(PART_MIN, 1.0);
        self.history.push_back((now, seen.bytes_read));
        // Nothing lies unread for longer than that.
        while self.history.front().is_some_and(|(at, _)| now.since(*at) > self.idle + self.idle) {
            self.history.pop_front();
        }
        self.now = now;
        if !self.is_short() {
            self.horizon = None;
        }
    }

    /// Mean over the evicted bytes of what memory held when they left: the bytes read since they were
    /// fetched. Where that is not known, all that was assumed.
    fn held(&self) -> f64 {
        let undated = (self.evicted - self.dated).max(0.0) * self.capacity() as f64;
        if self.evicted > 0.0 { (self.turned_over + undated) / self.evicted } else { f64::INFINITY }
    }

    fn count(&mut self, seen: Seen) {
        let since = |now: u64, before: u64| now.saturating_sub(before) as f64;
        let before = core::mem::replace(&mut self.before, seen);
        let blocked = seen.blocked.since(before.blocked).as_secs_f64() / REPORT_EVERY.as_secs_f64();
        self.blocked += (1.0 - REMEMBERED) * (blocked.min(1.0) - self.blocked);
        self.read = self.read * REMEMBERED + since(seen.bytes_read, before.bytes_read);
        self.reads = self.reads * REMEMBERED + since(seen.reads, before.reads);
        for sum in [&mut self.evicted, &mut self.dated, &mut self.turned_over] {
            *sum *= REMEMBERED;
        }
    }

    /// Value of keeping a byte until `next_use`: seconds of blocked clients that it saves each second, on a
    /// disk of this rate and depth.
    pub(crate) fn price(&self, next_use: Nanos, rate: f64, depth: Bytes) -> f64 {
        let piece = if self.reads >= 1.0 { self.read / self.reads } else { depth.0 as f64 };
        let saved = (1.0 + depth.0 as f64 / piece.max(1.0)) / rate.max(1.0);
        self.blocked * saved / next_use.as_secs_f64().max(1e-3)
    }

    /// The current state, for reports.
    pub(crate) fn report(&self, occupied: u64) -> MemoryReport {
        MemoryReport {
            limit_bytes: self.limit.bytes.0,
            capacity_bytes: self.capacity(),
            occupied_bytes: occupied,
            budget_bytes: self.budget(),
            fixed: self.fixed.is_some(),
            stage: if self.is_short() { "drop-behind" } else { "ample" }.into(),
            horizon_s: self.horizon.map(Nanos::as_secs_f64),
        }
    }
}

/// The memory of a disk, for reports.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemoryReport {
    /// The disk's share of the page cache, in bytes.
    pub limit_bytes: u64,
    /// Bytes of it that are assumed to be available.
    pub capacity_bytes: u64,
    /// Bytes in memory or in flight, as far as is known.
    pub occupied_bytes: u64,
    /// Maximum of fetched and unread bytes.
    pub budget_bytes: u64,
    /// Whether a user fixed the budget.
    pub fixed: bool,
    /// `drop-behind` while memory is short and the bytes used last leave, else `ample`.
    pub stage: alloc::string::String,
    /// While memory is short: bytes that are used again within this many seconds are kept.
    pub horizon_s: Option<f64>,
}
