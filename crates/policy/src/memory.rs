//! How much memory one disk has, and what is kept in it: the bytes that are used again soonest.
//!
//! Memory holds bytes that were fetched ahead of a reader, and bytes that a reader has passed and another is
//! to come for. Both are worth what the disk would need to read them again. A byte behind a reader is kept
//! while its next use is nearer than the *horizon* (predictive buffer management: Świtakowski, Boncz and
//! Żukowski, VLDB 2012; interval caching: Dan and Sitaram 1996). The horizon is not computed. While memory is
//! short, what is used last leaves first, and the next use of what left last is the horizon.
//!
//! The length of a piece has the same price ([`Memory::worth`]). A disk transfers `m` bytes a second and a
//! switch takes as long as the transfer of `d` bytes. A byte that is kept for `h` seconds saves the time of
//! `1 + d/s` bytes. A piece that is longer by a byte lies there for `s/2r` on the mean and saves the time of
//! `d/s` bytes each `s/r` seconds. Both are worth the same where `s^2 + d s = 2 d r h`.
//!
//! How much there is, the driver says ([`MemoryLimit`]), and evictions correct it, because the servers may be
//! in a group of their own with less, or others may need it: of what was to be kept, none should be found
//! gone. When more than a piece of it is, memory holds no more than what was read since those bytes came, and
//! a tenth less than was counted on. It grows again as a congestion window does (Ha, Rhee and Xu 2008,
//! CUBIC): quickly to nine tenths of where that happened, slowly beyond.

use alloc::collections::VecDeque;

use seekless_units::{Bytes, Nanos};
use serde::{Deserialize, Serialize};

use crate::AheadConfig;
use crate::constants::Constants;

/// How often the driver reports the machine's memory ([`crate::Event::MemoryLimit`]).
pub const REPORT_EVERY: Nanos = Nanos::from_secs(2);

/// Smallest budget: a piece for each of a handful of streams.
pub const BUDGET_MIN: Bytes = Bytes::mib(8);

/// Smallest part of the limit that is counted on.
const PART_MIN: f64 = 0.05;

/// What is left of a period's counts in the next. Counts are judged over about ten seconds, because one piece
/// that is gone is several hundredths of what is read in one period.
const REMEMBERED: f64 = 0.8;

/// How full a stream's piece is on the mean, before it was seen: half read. None counts as fuller: what is
/// more was fetched early, and makes way.
const FILL_FIRST: f64 = 0.5;

/// No piece counts as emptier: clients that take whole pieces at once may stop doing so at once.
const FILL_MIN: f64 = 0.125;

/// What is freed at once when memory is full: this part of it, or of what was read lately if that is less. At
/// half of it everything is looked at twice as often; double keeps as much less.
pub(crate) const FREED_AT_ONCE: f64 = 1.0 / 32.0;

/// The machine's memory as the driver sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryLimit {
    /// Bytes of page cache that the servers of this disk and the engine can have together ([`crate::pool`]).
    pub bytes: Bytes,
    /// Whether tasks wait for memory now.
    pub tasks_wait: bool,
}

impl Default for MemoryLimit {
    fn default() -> MemoryLimit {
        MemoryLimit { bytes: Bytes::mib(1536), tasks_wait: false }
    }
}

/// What the engine has seen of its disk so far, in sums.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Seen {
    /// Reads submitted, and their bytes.
    pub(crate) reads: u64,
    pub(crate) bytes_read: u64,
    /// Time in which a client was blocked.
    pub(crate) blocked: Nanos,
}

/// The memory of one disk.
#[derive(Clone, Debug)]
pub(crate) struct Memory {
    constants: Constants,
    /// What a user fixed.
    fixed: Option<Bytes>,
    limit: MemoryLimit,
    /// The part of the limit that is counted on, and the one at which too much was last found gone.
    part: f64,
    wall: f64,
    /// How full a stream's piece is on the mean: fetched and unread bytes over streams and the length of
    /// their pieces.
    fill: f64,
    /// The next use of what left last, while memory is short.
    horizon: Option<Nanos>,
    /// Until when memory counts as short if nothing leaves before; as of then.
    short_until: Nanos,
    now: Nanos,
    /// Bytes in memory when nothing more could leave; 0: that was not so the last time.
    stuck_at: u64,
    /// Evictions have been answered up to then; bytes fetched before do not count again.
    answered: Nanos,
    /// Of what had been read it is not known when it came. For so long after an answer its evictions do not
    /// count.
    idle: Nanos,
    before: Seen,
    /// Of the last periods, the older the less. `dated` are the evicted bytes of which it is known when they
    /// came, and `turned_over` is the sum over them of what was read since.
    evicted: f64,
    dated: f64,
    turned_over: f64,
    read: f64,
    reads: f64,
    /// Part of the time in which a client is blocked.
    blocked: f64,
    /// When was how much read, the newest last.
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

    /// Bytes of memory that are counted on.
    pub(crate) fn capacity(&self) -> u64 {
        Bytes((self.limit.bytes.0 as f64 * self.part) as u64).max(BUDGET_MIN).0
    }

    /// Bytes that may lie fetched and unread.
    pub(crate) fn budget(&self) -> u64 {
        let share = Bytes((self.capacity() as f64 * self.constants.budget_share) as u64).max(BUDGET_MIN);
        self.fixed.unwrap_or(share).0.max(crate::PAGE)
    }

    /// Bytes that bound a stream's pieces: with one for each of so many streams, as full as they are on the
    /// mean, the budget is taken.
    pub(crate) fn share(&self, streams: usize) -> u64 {
        (self.budget() as f64 / (streams.max(1) as f64 * self.fill)) as u64
    }

    /// Longest piece that is worth its memory, for a reader of `rate` bytes a second on a disk of this depth.
    pub(crate) fn worth(&self, rate: f64, depth: Bytes) -> u64 {
        let Some(horizon) = self.horizon.filter(|_| rate > 0.0) else { return u64::MAX };
        let depth = depth.0 as f64;
        // Unread on the mean: `fill` of a piece, where half of it is that of a reader of an even pace.
        let bytes = rate * horizon.as_secs_f64() * FILL_FIRST / self.fill;
        // A shorter piece than the disk transfers in one switch costs more than it can save ([C] 2).
        ((libm::sqrt(depth * depth + 8.0 * depth * bytes) - depth) / 2.0).max(depth) as u64
    }

    /// Of bytes that blocked clients wait for, those that will lie unread: none of a client that takes its
    /// piece as it arrives, all of one that reads at its own pace.
    pub(crate) fn filled(&self, queued: u64) -> u64 {
        (queued as f64 * (self.fill / FILL_FIRST).min(1.0)) as u64
    }

    /// Whether there is memory for bytes that are not due yet.
    pub(crate) fn has_to_spare(&self, unread: u64) -> bool {
        unread < self.budget()
    }

    /// Whether something has left lately to make room.
    pub(crate) fn is_short(&self) -> bool {
        self.short_until > self.now
    }

    /// How many of the bytes in memory are to leave. None until it is full. Where nothing could leave the
    /// last time, none until as much more has come as is freed at once.
    pub(crate) fn excess(&self, occupied: u64) -> u64 {
        let capacity = self.capacity();
        let freed = ((capacity as f64).min(self.read) * FREED_AT_ONCE) as u64;
        match occupied > capacity.max(self.stuck_at.saturating_add(freed)) {
            true => occupied - capacity + freed,
            false => 0,
        }
    }

    /// Something left to make room; the last of it is used again after so long. `None`: that was not enough,
    /// and the `occupied` rest is unread, which says nothing about the horizon.
    pub(crate) fn left(&mut self, now: Nanos, next_use: Option<Nanos>, occupied: u64) {
        self.short_until = now + self.idle;
        self.horizon = next_use.or(self.horizon);
        self.stuck_at = if next_use.is_none() { occupied } else { 0 };
    }

    /// The next use beyond which nothing is kept now.
    pub(crate) fn horizon(&self) -> Option<Nanos> {
        self.horizon
    }

    /// Bytes were found gone that were to be kept: fetched then and not read, or read.
    pub(crate) fn evicted(&mut self, now: Nanos, bytes: u64, fetched: Option<Nanos>, unread: u64) {
        let over_budget = unread as f64 > self.budget() as f64 * self.constants.blocked_over_budget;
        // What blocked clients were served over the budget says nothing about the budget.
        let since = fetched.unwrap_or_else(|| now.since(self.idle));
        if since >= self.answered && !over_budget {
            self.evicted += bytes as f64;
            if let Some(since) = fetched.and_then(|fetched| self.read_since(fetched)) {
                self.dated += bytes as f64;
                self.turned_over += bytes as f64 * since as f64;
            }
        }
    }

    /// Bytes read since then, as far as is remembered: to within a period too many.
    fn read_since(&self, then: Nanos) -> Option<u64> {
        let (_, before) = self.history.iter().rev().find(|(at, _)| *at <= then)?;
        Some(self.before.bytes_read.saturating_sub(*before))
    }

    /// Whether more is gone than one piece, as long as they were lately: one may be gone by chance.
    fn too_many(&self) -> bool {
        self.evicted * self.reads > self.read
    }

    /// What was fetched until now says nothing about memory from now on.
    pub(crate) fn answer_for_all(&mut self, now: Nanos) {
        self.answered = now;
    }

    /// What the machine has. Nothing is learnt from it.
    pub(crate) fn machine(&mut self, limit: MemoryLimit) {
        self.limit = limit;
    }

    /// What the driver reports of the machine's memory, every [`REPORT_EVERY`].
    pub(crate) fn limit(&mut self, now: Nanos, limit: MemoryLimit, seen: Seen, unread: u64, streams: usize) {
        self.limit = limit;
        self.count(seen);
        if self.reads >= 1.0 && streams > 0 {
            let fill = unread as f64 / (streams as f64 * self.read / self.reads);
            self.fill += (1.0 - REMEMBERED) / 2.0 * (fill.clamp(FILL_MIN, FILL_FIRST) - self.fill);
        }
        let step = self.constants.budget_step;
        if self.too_many() || limit.tasks_wait {
            let held = if self.dated > 0.0 { self.turned_over / self.dated } else { f64::INFINITY };
            self.wall = self.part.min(held / limit.bytes.0.max(1) as f64);
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

    /// Seconds of blocked clients that a byte saves in a second which is used again after so long, on a disk
    /// of this rate and depth.
    pub(crate) fn price(&self, next_use: Nanos, rate: f64, depth: Bytes) -> f64 {
        let piece = if self.reads >= 1.0 { self.read / self.reads } else { depth.0 as f64 };
        let saved = (1.0 + depth.0 as f64 / piece.max(1.0)) / rate.max(1.0);
        self.blocked * saved / next_use.as_secs_f64().max(1e-3)
    }

    /// The state of now, for reports.
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
    /// The disk's part of the page cache.
    pub limit_bytes: u64,
    /// Bytes of it that are counted on.
    pub capacity_bytes: u64,
    /// Bytes in memory, or on their way there, as far as is known.
    pub occupied_bytes: u64,
    /// Most bytes that may lie fetched and unread.
    pub budget_bytes: u64,
    /// Whether a user fixed the budget.
    pub fixed: bool,
    /// `drop-behind` while memory is short and what is used last leaves, else `ample`.
    pub stage: alloc::string::String,
    /// While memory is short: bytes that are used again within this many seconds are kept.
    pub horizon_s: Option<f64>,
}
