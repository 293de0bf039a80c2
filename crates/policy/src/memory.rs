//! How much of the page cache may hold bytes that were fetched and not yet read: the prefetch budget of one disk.
//!
//! The page cache has two uses. Bytes fetched ahead make pieces longer, so that the disk seeks less. Bytes that were read
//! before make hits, so that the disk reads less. Both uses are measured ([`Earnings`]), and the budget moves to where
//! a little more memory would gain as much by one as by the other.
//!
//! What the cache really holds is not known: the kernel has its own order of eviction, and other processes share
//! it. So evictions of bytes that a stream counts on correct the budget, in stages ([`Stage`]):
//!
//! 1. `Ample`: few such evictions. What was read stays in the page cache.
//! 2. `DropBehind`: what the last reader of a file has passed is given back, which makes room at once.
//! 3. `Shrunk`: evictions went on. The budget shrinks by a tenth for each period with too many of them. It
//!    comes back quickly to nine tenths of the size at which that happened and slowly beyond, as a congestion window
//!    does (Ha, Rhee and Xu 2008, CUBIC).
//!
//! An eviction is answered once: bytes fetched before the last answer do not count again.

use core::fmt;
use core::str::FromStr;

use seekless_units::{Bytes, Nanos};
use serde::{Deserialize, Serialize};

use crate::config::UnknownName;
use crate::constants::{Constants, time};

/// How often the driver reports the machine's memory ([`crate::Event::MemoryLimit`]).
pub const REPORT_EVERY: Nanos = Nanos::from_secs(2);

/// Smallest budget: a piece for each of a handful of streams.
pub const BUDGET_MIN: Bytes = Bytes::mib(8);

/// What is left of a period's counts in the next. Counts are judged over about ten seconds, because one piece that is gone is
/// several hundredths of what is read in one period.
const REMEMBERED: f64 = 0.8;

/// Time until what drop-behind gives back has left memory. Sockets hold pages until their clients have received them.
const SETTLES: Nanos = Nanos::from_secs(10);

/// How full a stream's piece is on the mean, before it was seen: half read.
const FILL_FIRST: f64 = 0.5;

/// No piece counts as emptier: clients that take whole pieces at once may stop doing so at once.
const FILL_MIN: f64 = 0.125;

/// Weight of the newest: settles within half a minute.
const FILL_NEWEST: f64 = 0.1;

/// When bytes behind a stream are given back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DropBehind {
    /// Never: the page cache ages them.
    Never,
    /// While memory is short ([`Stage::DropBehind`]).
    #[default]
    Pressure,
    /// As soon as the last reader has passed.
    Always,
}

impl FromStr for DropBehind {
    type Err = UnknownName;

    fn from_str(s: &str) -> Result<DropBehind, UnknownName> {
        match s {
            "never" => Ok(DropBehind::Never),
            "pressure" => Ok(DropBehind::Pressure),
            "always" => Ok(DropBehind::Always),
            _ => Err(UnknownName { known: "never, pressure, always" }),
        }
    }
}

impl fmt::Display for DropBehind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DropBehind::Never => "never",
            DropBehind::Pressure => "pressure",
            DropBehind::Always => "always",
        })
    }
}

/// The machine's memory as the driver sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryLimit {
    /// Bytes of page cache that the servers and the engine can have together.
    pub bytes: Bytes,
    /// Disks that share it; at least 1.
    pub disks: u32,
    /// Whether tasks wait for memory now.
    pub tasks_wait: bool,
}

impl Default for MemoryLimit {
    fn default() -> MemoryLimit {
        MemoryLimit { bytes: Bytes::mib(1536), disks: 1, tasks_wait: false }
    }
}

/// How short memory is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stage {
    /// What was read stays in the page cache.
    #[default]
    Ample,
    /// What was read is given back.
    DropBehind,
    /// That was not enough: the budget is smaller as well.
    Shrunk,
}

impl Stage {
    /// The word used in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Stage::Ample => "ample",
            Stage::DropBehind => "drop-behind",
            Stage::Shrunk => "shrunk",
        }
    }
}

/// What a little more memory gains, as elasticities: a gain of `e` means that one per cent more memory for this use raises what
/// is served by `e` per cent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Earnings {
    /// As read-ahead: with pieces of `s` bytes and a disk that transfers `d` bytes in the time of one switch, `d / (s + d)`.
    pub ahead: f64,
    /// As cache: with a hit ratio of `h`, `h / (1 - h)`, times how the hit ratio grows with the cache.
    pub cache: f64,
}

/// What the engine has seen of its disk so far, in sums.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Seen {
    /// Reads submitted, and their bytes.
    pub(crate) reads: u64,
    pub(crate) bytes_read: u64,
    /// Bytes that clients read, and those of them that hit in what had been read before.
    pub(crate) requested: u64,
    pub(crate) cached: u64,
}

/// The memory controller of one disk.
#[derive(Clone, Debug)]
pub(crate) struct Memory {
    constants: Constants,
    /// What a user fixed.
    fixed: Option<Bytes>,
    drop_behind: DropBehind,
    /// What the disk transfers in the time of one switch, as last told.
    depth: f64,
    /// How full a stream's piece is on the mean: fetched and unread bytes over streams and the length of their pieces.
    fill: f64,
    limit: MemoryLimit,
    stage: Stage,
    /// Since when, and until when at least.
    stage_since: Nanos,
    stage_until: Nanos,
    /// How long a stage lasts; grows when it comes back soon.
    lasts: Nanos,
    /// Bytes fetched before this have been answered for.
    answered: Nanos,
    /// The budget as a part of the page cache; the part at which too much was last evicted; the part where earnings meet.
    share: f64,
    wall: f64,
    aim: f64,
    before: Seen,
    /// Of the last periods, the older the less.
    evicted: f64,
    read: f64,
    reads: f64,
    requested: f64,
    cached: f64,
}

impl Memory {
    pub(crate) fn new(
        fixed: Option<Bytes>,
        drop_behind: DropBehind,
        limit: MemoryLimit,
        constants: Constants,
    ) -> Memory {
        Memory {
            fixed,
            drop_behind,
            depth: 1.0,
            fill: FILL_FIRST,
            limit,
            stage: Stage::Ample,
            stage_since: Nanos::ZERO,
            stage_until: Nanos::ZERO,
            lasts: Nanos::ZERO,
            answered: Nanos::ZERO,
            share: constants.budget_share_first,
            wall: 1.0,
            aim: constants.budget_share_max,
            before: Seen::default(),
            evicted: 0.0,
            read: 0.0,
            reads: 0.0,
            requested: 0.0,
            cached: 0.0,
            constants,
        }
    }

    /// Bytes that may lie fetched and unread.
    pub(crate) fn budget(&self) -> u64 {
        let share = Bytes((self.cache_bytes() * self.share) as u64).max(BUDGET_MIN);
        self.fixed.unwrap_or(share).0.max(crate::PAGE)
    }

    /// Bytes that bound a stream's pieces: with one for each of so many streams, as full as they are on the mean, the budget is
    /// taken.
    pub(crate) fn share(&self, streams: usize) -> u64 {
        (self.budget() as f64 / (streams.max(1) as f64 * self.fill)) as u64
    }

    /// The disk's part of the page cache.
    fn cache_bytes(&self) -> f64 {
        self.limit.bytes.0 as f64 / f64::from(self.limit.disks.max(1))
    }

    /// Whether what has been read is given back now.
    pub(crate) fn drops_behind(&self) -> bool {
        match self.drop_behind {
            DropBehind::Never => false,
            DropBehind::Pressure => self.stage != Stage::Ample,
            DropBehind::Always => true,
        }
    }

    /// Whether there is memory for bytes that are not due yet: a part of the budget is free.
    pub(crate) fn has_to_spare(&self, unread: u64) -> bool {
        unread as f64 <= self.budget() as f64 * self.constants.early_below
    }

    /// Bytes that a stream counted on were found gone; `unread` bytes of all streams lie fetched and unread.
    pub(crate) fn evicted(&mut self, now: Nanos, bytes: u64, fetched: Nanos, unread: u64) {
        let over_budget = unread as f64 > self.budget() as f64 * self.constants.blocked_over_budget;
        // What blocked clients were served over the budget says nothing about the budget.
        if fetched < self.answered || (over_budget && self.stage != Stage::Ample) {
            return;
        }
        self.evicted += bytes as f64;
        if self.stage == Stage::Ample && self.drop_behind == DropBehind::Pressure && self.too_many() {
            let soon = self.lasts > Nanos::ZERO && now.since(self.stage_until) <= self.lasts;
            let first = time(self.constants.drop_behind_s);
            self.lasts = if soon { Nanos((self.lasts.0 * 2).min(first.0 * 10)) } else { first };
            self.enter(Stage::DropBehind, now);
        }
    }

    fn enter(&mut self, stage: Stage, now: Nanos) {
        if self.stage == Stage::Ample {
            self.stage_since = now;
        }
        self.stage = stage;
        self.stage_until = self.stage_until.max(now + self.lasts);
        self.answered = if stage == Stage::DropBehind { now + SETTLES } else { now };
        self.evicted = 0.0;
    }

    /// Whether more than a small part of what was read lately is gone. So little is read on an idle disk that a few pages would
    /// be a large part: that counts as a piece of every other stream's.
    fn too_many(&self) -> bool {
        let read = self.read.max(self.cache_bytes() / 8.0);
        self.evicted > read * self.constants.evicted_share
    }

    /// What the driver reports of the machine's memory, every [`REPORT_EVERY`].
    pub(crate) fn limit(
        &mut self,
        now: Nanos,
        limit: MemoryLimit,
        seen: Seen,
        unread: u64,
        streams: usize,
        depth: Bytes,
    ) {
        (self.limit, self.depth) = (limit, depth.0.max(1) as f64);
        self.count(seen);
        if self.reads >= 1.0 && streams > 0 {
            let fill = unread as f64 / (streams as f64 * self.read / self.reads);
            self.fill += FILL_NEWEST * (fill.clamp(FILL_MIN, 1.0) - self.fill);
        }
        if self.too_many() || limit.tasks_wait {
            self.wall = self.share;
            self.share *= 1.0 - self.constants.budget_step;
            self.enter(Stage::Shrunk, now);
        } else {
            self.grow();
        }
        self.share = self.share.clamp(0.05, self.constants.budget_share_max);
        if self.stage != Stage::Ample {
            // A full budget makes every byte that was read and kept an eviction.
            if !self.has_to_spare(unread) {
                self.stage_until = self.stage_until.max(now + SETTLES);
            }
            if now >= self.stage_until {
                self.stage = Stage::Ample;
            }
        }
    }

    fn count(&mut self, seen: Seen) {
        let since = |now: u64, before: u64| now.saturating_sub(before) as f64;
        let before = core::mem::replace(&mut self.before, seen);
        for (sum, news) in [
            (&mut self.read, since(seen.bytes_read, before.bytes_read)),
            (&mut self.reads, since(seen.reads, before.reads)),
            (&mut self.requested, since(seen.requested, before.requested)),
            (&mut self.cached, since(seen.cached, before.cached)),
        ] {
            *sum = *sum * REMEMBERED + news;
        }
        self.evicted *= REMEMBERED;
        let Earnings { ahead, cache } = self.earnings();
        if ahead + cache > 0.0 {
            self.aim = (ahead / (ahead + cache)).min(self.constants.budget_share_max);
        }
    }

    /// What memory earns now, by either use.
    pub(crate) fn earnings(&self) -> Earnings {
        if self.reads < 1.0 || self.requested < 1.0 {
            return Earnings::default();
        }
        let piece = self.read / self.reads;
        let hits = (self.cached / self.requested).clamp(0.0, 0.99);
        Earnings {
            ahead: self.depth / (piece + self.depth),
            cache: self.constants.hit_elasticity * hits / (1.0 - hits),
        }
    }

    fn grow(&mut self) {
        let step = self.constants.budget_step / 5.0;
        let slow = step / 20.0;
        if self.share > self.aim + step {
            self.share -= step;
        } else if self.share < self.aim {
            self.share += if self.share < 0.9 * self.wall { step } else { slow };
        }
    }

    /// The state of now, for reports.
    pub(crate) fn report(&self) -> MemoryReport {
        let Earnings { ahead, cache } = self.earnings();
        MemoryReport {
            limit_bytes: self.limit.bytes.0 / u64::from(self.limit.disks.max(1)),
            budget_bytes: self.budget(),
            fixed: self.fixed.is_some(),
            stage: self.stage.name().into(),
            ahead_earns_percent: ahead * 10.0,
            cache_earns_percent: cache * 10.0,
        }
    }
}

/// The memory of a disk, for reports.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemoryReport {
    /// The disk's part of the page cache.
    pub limit_bytes: u64,
    /// Most bytes that may lie fetched and unread.
    pub budget_bytes: u64,
    /// Whether a user fixed the budget.
    pub fixed: bool,
    /// [`Stage::name`].
    pub stage: alloc::string::String,
    /// By how many per cent a tenth more memory for read-ahead would raise what is served.
    pub ahead_earns_percent: f64,
    /// The same for a tenth more cache.
    pub cache_earns_percent: f64,
}
