//! How much of the page cache may hold bytes that were fetched and not yet read: the prefetch budget of one
//! disk.
//!
//! The page cache has two uses. Bytes fetched ahead make pieces longer, so that the disk seeks less. Bytes
//! that were read before make hits, so that the disk reads less. Both uses are measured ([`Earnings`]), and
//! the budget moves to where a little more memory would gain as much by one as by the other.
//!
//! What the cache really holds is not known: the kernel has its own order of eviction, and other processes
//! share it. So evictions of bytes that a stream counts on correct the budget, in stages ([`Stage`]):
//!
//! 1. `Ample`: few such evictions. What was read stays in the page cache.
//! 2. `DropBehind`: what the last reader of a file has passed is given back, which makes room at once.
//! 3. `Shrunk`: evictions went on. The budget shrinks by a tenth for each period with too many of them. It
//!    comes back quickly to nine tenths of the size at which that happened and slowly beyond, as a congestion
//!    window does (Ha, Rhee and Xu 2008, CUBIC).
//!
//! An eviction is answered once: bytes fetched before the last answer do not count again.

use seekless_units::{Bytes, Nanos, words};
use serde::{Deserialize, Serialize};

use crate::AheadConfig;
use crate::constants::Constants;
use crate::drops::given_back_after;

/// How often the driver reports the machine's memory ([`crate::Event::MemoryLimit`]).
pub const REPORT_EVERY: Nanos = Nanos::from_secs(2);

/// Smallest budget: a piece for each of a handful of streams.
pub const BUDGET_MIN: Bytes = Bytes::mib(8);

/// Smallest part of the page cache that the budget shrinks to.
const SHARE_MIN: f64 = 0.05;

/// What is left of a period's counts in the next. Counts are judged over about ten seconds, because one piece
/// that is gone is several hundredths of what is read in one period.
const REMEMBERED: f64 = 0.8;

/// How full a stream's piece is on the mean, before it was seen: half read. None counts as fuller: what is
/// more was fetched early, and makes way.
const FILL_FIRST: f64 = 0.5;

/// No piece counts as emptier: clients that take whole pieces at once may stop doing so at once.
const FILL_MIN: f64 = 0.125;

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

words! { DropBehind: Never = "never", Pressure = "pressure", Always = "always" }

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

words! { Stage: Ample = "ample", DropBehind = "drop-behind", Shrunk = "shrunk" }

/// What a little more memory gains, as elasticities: a gain of `e` means that one per cent more memory for
/// this use raises what is served by `e` per cent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Earnings {
    /// As read-ahead: with pieces of `s` bytes and a disk that transfers `d` bytes in the time of one switch,
    /// `d / (s + d)`.
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
    /// How full a stream's piece is on the mean: fetched and unread bytes over streams and the length of
    /// their pieces.
    fill: f64,
    limit: MemoryLimit,
    stage: Stage,
    /// Until when at least.
    stage_until: Nanos,
    /// How long a stream may be silent ([`crate::StreamConfig::idle`]).
    idle: Nanos,
    /// How long a stage lasts: twice as long as that, so that its streams are over and others are judged by
    /// what memory is then; and twice as long as the last time when it comes back soon, up to ten times as
    /// long as the first.
    lasts: Nanos,
    /// Bytes fetched before this have been answered for.
    answered: Nanos,
    /// The budget as a part of the page cache; the part at which too much was last evicted; the part where
    /// earnings meet.
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
    pub(crate) fn new(ahead: &AheadConfig, limit: MemoryLimit, constants: Constants) -> Memory {
        Memory {
            fixed: ahead.budget,
            drop_behind: ahead.drop_behind,
            idle: ahead.streams.idle,
            depth: 1.0,
            fill: FILL_FIRST,
            limit,
            stage: Stage::Ample,
            stage_until: Nanos::ZERO,
            lasts: Nanos::ZERO,
            answered: Nanos::ZERO,
            share: constants.budget_share,
            wall: 1.0,
            aim: constants.budget_share,
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
        let share =
            Bytes((self.cache_bytes() * self.share.min(self.constants.budget_share)) as u64).max(BUDGET_MIN);
        self.fixed.unwrap_or(share).0.max(crate::PAGE)
    }

    /// Bytes that bound a stream's pieces: with one for each of so many streams, as full as they are on the
    /// mean, the budget is taken.
    pub(crate) fn share(&self, streams: usize) -> u64 {
        (self.budget() as f64 / (streams.max(1) as f64 * self.fill)) as u64
    }

    /// Of bytes that blocked clients wait for, those that will lie unread: none of a client that takes its
    /// piece as it arrives, all of one that reads at its own pace.
    pub(crate) fn filled(&self, queued: u64) -> u64 {
        (queued as f64 * (self.fill / FILL_FIRST).min(1.0)) as u64
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

    /// Whether there is memory for bytes that are not due yet.
    pub(crate) fn has_to_spare(&self, unread: u64) -> bool {
        unread < self.budget()
    }

    /// Bytes that a stream counted on were found gone; `unread` bytes of all streams lie fetched and unread.
    pub(crate) fn evicted(&mut self, now: Nanos, bytes: u64, fetched: Nanos, unread: u64) {
        let over_budget = unread as f64 > self.budget() as f64 * self.constants.blocked_over_budget;
        // What blocked clients were served over the budget says nothing about the budget.
        if fetched < self.answered || (over_budget && !self.may_drop_behind_first()) {
            return;
        }
        self.evicted += bytes as f64;
        if self.may_drop_behind_first() && self.too_many() {
            self.enter(Stage::DropBehind, now);
        }
    }

    /// Whether drop-behind is still to come: it costs less than a smaller budget.
    fn may_drop_behind_first(&self) -> bool {
        self.stage == Stage::Ample && self.drop_behind == DropBehind::Pressure
    }

    fn enter(&mut self, stage: Stage, now: Nanos) {
        if self.stage == Stage::Ample {
            let soon = self.lasts > Nanos::ZERO && now.since(self.stage_until) <= self.lasts;
            let before = if soon { self.lasts } else { self.idle };
            let most = self.idle.0.saturating_mul(20);
            self.lasts = Nanos(before.0.saturating_mul(2).min(most));
        }
        self.stage = stage;
        self.stage_until = self.stage_until.max(now + self.lasts);
        self.answered = if stage == Stage::DropBehind { now + given_back_after() } else { now };
        self.evicted = 0.0;
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
            self.fill += (1.0 - REMEMBERED) / 2.0 * (fill.clamp(FILL_MIN, FILL_FIRST) - self.fill);
        }
        if self.too_many() && self.may_drop_behind_first() && !limit.tasks_wait {
            self.enter(Stage::DropBehind, now);
        } else if self.too_many() || limit.tasks_wait {
            self.wall = self.share;
            self.share *= 1.0 - self.constants.budget_step;
            self.enter(Stage::Shrunk, now);
        } else {
            self.grow();
        }
        self.share = self.share.min(self.constants.budget_share).max(SHARE_MIN);
        if self.stage != Stage::Ample {
            // A full budget makes every byte that was read and kept an eviction.
            if !self.has_to_spare(unread) {
                self.stage_until = self.stage_until.max(now + given_back_after());
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
            self.aim = (ahead / (ahead + cache)).min(self.constants.budget_share);
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

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const G: u64 = 1 << 30;
    const M: u64 = 1 << 20;

    fn at(s: u64) -> Nanos {
        Nanos::from_secs(s)
    }

    /// A disk with 3 GiB of page cache that reads a quarter of a GiB in each period.
    struct Bench {
        memory: Memory,
        limit: MemoryLimit,
        seen: Seen,
        now: Nanos,
    }

    impl Bench {
        fn new(drop_behind: DropBehind) -> Bench {
            let limit = MemoryLimit { bytes: Bytes(3 * G), disks: 1, tasks_wait: false };
            let ahead = AheadConfig { drop_behind, ..AheadConfig::default() };
            let memory = Memory::new(&ahead, limit, Constants::default());
            Bench { memory, limit, seen: Seen::default(), now: at(100) }
        }

        /// A period passes; the budget after it.
        fn period(&mut self) -> u64 {
            self.now += REPORT_EVERY;
            self.seen.reads += 64;
            self.seen.bytes_read += G / 4;
            self.memory.limit(self.now, self.limit, self.seen, 0, 0, Bytes::mib(1));
            self.memory.budget()
        }

        /// Evictions of what was fetched just now.
        fn evicted(&mut self, bytes: u64) {
            self.memory.evicted(self.now, bytes, self.now, 0);
        }

        /// Until evictions are not those of before drop-behind began.
        fn settle(&mut self) {
            (0..6).for_each(|_| {
                self.period();
            });
        }

        fn stage(&self) -> Stage {
            self.memory.stage
        }
    }

    #[test]
    fn a_few_evictions_change_nothing() {
        let mut b = Bench::new(DropBehind::Pressure);
        let first = b.period();
        assert!((first as f64 / (3 * G) as f64 - Constants::default().budget_share).abs() < 1e-3);
        // Pieces have 4 MiB; five periods count, the older the less.
        (0..50).for_each(|_| {
            b.evicted(M / 2);
            assert_eq!((b.period(), b.stage()), (first, Stage::Ample));
        });
        b.evicted(4 * M);
        assert_eq!(b.stage(), Stage::DropBehind, "more than one piece");
    }

    #[test]
    fn drop_behind_comes_before_a_smaller_budget() {
        let mut b = Bench::new(DropBehind::Pressure);
        let first = b.period();
        assert!(!b.memory.drops_behind());
        b.evicted(64 * M);
        assert!(b.memory.drops_behind(), "at once");
        assert_eq!((b.period(), b.stage()), (first, Stage::DropBehind));
        b.settle();
        assert_eq!(b.memory.budget(), first);
        b.evicted(64 * M);
        let shrunk = b.period();
        assert_eq!(b.stage(), Stage::Shrunk);
        assert!((shrunk as f64 / first as f64 - 0.9).abs() < 1e-6, "by a tenth");
        assert!(b.period() >= shrunk, "once");
    }

    #[test]
    fn an_eviction_is_answered_once() {
        let mut b = Bench::new(DropBehind::Pressure);
        let first = b.period();
        let fetched = b.now;
        b.evicted(64 * M);
        for _ in 0..6 {
            // What was fetched before drop-behind could tell, found gone only now.
            b.memory.evicted(b.now, 64 * M, fetched, 0);
            b.memory.evicted(b.now, 64 * M, fetched + at(9), 0);
            assert_eq!((b.period(), b.stage()), (first, Stage::DropBehind));
        }
        b.evicted(64 * M);
        let shrunk = b.period();
        // The same of a smaller budget.
        b.memory.evicted(b.now, 64 * M, b.now.since(at(1)), 0);
        assert!(shrunk < first && b.period() >= shrunk);
    }

    #[test]
    fn without_drop_behind_to_begin_the_budget_shrinks() {
        for (drop_behind, gives_back) in [(DropBehind::Never, false), (DropBehind::Always, true)] {
            let mut b = Bench::new(drop_behind);
            let first = b.period();
            b.evicted(64 * M);
            assert_eq!(b.memory.drops_behind(), gives_back);
            assert!(b.period() < first && b.stage() == Stage::Shrunk);
            assert_eq!(b.memory.drops_behind(), gives_back, "{drop_behind} means {drop_behind}");
        }
    }

    #[test]
    fn what_blocked_clients_got_over_the_budget_is_no_reason_to_shrink_it() {
        for drop_behind in [DropBehind::Never, DropBehind::Always, DropBehind::Pressure] {
            let mut b = Bench::new(drop_behind);
            let first = b.period();
            if drop_behind == DropBehind::Pressure {
                b.evicted(64 * M);
                b.settle();
            }
            let unread = first / 10 * 13;
            b.memory.evicted(b.now, 64 * M, b.now, unread);
            assert_eq!(b.period(), first, "{drop_behind}");
        }
        // But what was read can make room.
        let mut b = Bench::new(DropBehind::Pressure);
        b.period();
        b.memory.evicted(b.now, 64 * M, b.now, 3 * G);
        assert!(b.memory.drops_behind());
    }

    #[test]
    fn a_smaller_machine_is_no_eviction() {
        let mut b = Bench::new(DropBehind::Pressure);
        b.period();
        b.evicted(M);
        assert_eq!(b.stage(), Stage::Ample, "less than a piece is nothing");
        b.seen.bytes_read += 1;
        b.limit.bytes = Bytes::mib(64);
        (0..3).for_each(|_| {
            b.period();
        });
        assert_ne!(b.stage(), Stage::Shrunk, "drop-behind comes first here as well");
    }

    #[test]
    fn pressure_that_comes_back_lasts_longer() {
        let mut b = Bench::new(DropBehind::Pressure);
        b.period();
        // How long drop-behind goes on; how long after that it begins again.
        let mut lasts = |wait_s: u64| {
            b.now += at(wait_s);
            b.evicted(64 * M);
            let since = b.now;
            while b.memory.drops_behind() {
                b.period();
            }
            b.now.since(since).0 / 1_000_000_000
        };
        assert_eq!(lasts(0), 60);
        assert_eq!([lasts(20), lasts(60), lasts(60), lasts(60), lasts(60)], [120, 240, 480, 600, 600]);
        assert_eq!(lasts(601), 60, "not for as long as it lasted");
    }

    #[test]
    fn memory_that_is_short_stays_so_while_the_budget_is_full() {
        let mut b = Bench::new(DropBehind::Pressure);
        let full = b.period();
        b.memory.limit(b.now, b.limit, b.seen, full, 0, Bytes::mib(1));
        assert_eq!(b.stage(), Stage::Ample, "a full budget is no sign by itself");
        b.evicted(64 * M);
        for _ in 0..100 {
            b.now += REPORT_EVERY;
            b.memory.limit(b.now, b.limit, b.seen, full, 0, Bytes::mib(1));
            assert_eq!(b.stage(), Stage::DropBehind);
        }
        (0..=given_back_after().0 / REPORT_EVERY.0).for_each(|_| {
            b.period();
        });
        assert_eq!(b.stage(), Stage::Ample);
    }

    #[test]
    fn the_budget_comes_back_to_the_wall_and_slowly_beyond() {
        let mut b = Bench::new(DropBehind::Never);
        let first = b.period();
        let walls: Vec<u64> = (0..5)
            .map(|_| {
                b.evicted(64 * M);
                b.period()
            })
            .collect();
        // The last wall is where the budget was before it shrank last.
        let wall = walls[3];
        let back = (0..3).fold(0, |_, _| b.period());
        assert!(back as f64 >= 0.9 * wall as f64, "{back} of {wall}");
        let beyond = (0..20).fold(0, |_, _| b.period());
        assert!((beyond as f64) < 1.05 * wall as f64, "{beyond} of {wall}");
        assert_eq!((0..400).fold(0, |_, _| b.period()), first);
    }

    #[test]
    fn endless_pressure_leaves_a_twentieth() {
        let mut b = Bench::new(DropBehind::Always);
        for _ in 0..100 {
            b.evicted(64 * M);
            b.period();
        }
        assert_eq!(b.memory.budget(), 3 * G / 20);
    }

    #[test]
    fn tasks_that_wait_for_memory_get_some_at_once() {
        let mut b = Bench::new(DropBehind::Pressure);
        let first = b.period();
        b.limit.tasks_wait = true;
        let shrunk = b.period();
        assert!(shrunk < first && b.stage() == Stage::Shrunk && b.memory.drops_behind());
        assert!(b.period() < shrunk, "for as long as they wait");
        b.limit.tasks_wait = false;
        b.period();
        assert!(b.memory.drops_behind(), "and what was read is given back for a while");
    }

    #[test]
    fn the_budget_moves_to_where_memory_earns_as_much_by_either_use() {
        let mut b = Bench::new(DropBehind::Pressure);
        let first = b.period();
        assert_eq!(b.memory.earnings(), Earnings::default(), "nothing is requested");
        let served = |b: &mut Bench, hits_percent: u64| {
            (0..200).fold(0, |_, _| {
                b.seen.requested += 100 * M;
                b.seen.cached += hits_percent * M;
                b.period()
            })
        };
        assert_eq!(served(&mut b, 0), first, "nobody hits: all for read-ahead");
        // Pieces of 4 MiB at 1 MiB a switch: a fifth. Half of what is read hits: the elasticity itself.
        let aimed = served(&mut b, 50) as f64 / (3 * G) as f64;
        let Earnings { ahead, cache } = b.memory.earnings();
        assert!((ahead - 0.2).abs() < 1e-6 && (cache - 0.5).abs() < 1e-3, "{ahead} {cache}");
        assert!((aimed - ahead / (ahead + cache)).abs() < 0.03, "{aimed}");
        let more = served(&mut b, 90) as f64 / (3 * G) as f64;
        assert!(more < aimed / 2.0, "{more} of {aimed}");
        assert_eq!(served(&mut b, 0), first, "and back");
    }

    #[test]
    fn a_fixed_budget_is_fixed() {
        let limit = MemoryLimit { bytes: Bytes(3 * G), disks: 1, tasks_wait: true };
        let ahead = AheadConfig { budget: Some(Bytes::mib(5)), ..AheadConfig::default() };
        let mut memory = Memory::new(&ahead, limit, Constants::default());
        for s in 0..20 {
            memory.evicted(at(2 * s), G, at(2 * s), 0);
            memory.limit(at(2 * s), limit, Seen::default(), 0, 0, Bytes::mib(1));
            assert_eq!(memory.budget(), 5 * M);
        }
        assert!(memory.drops_behind() && memory.report().fixed);
        assert!(memory.has_to_spare(5 * M - 1) && !memory.has_to_spare(5 * M));
    }

    #[test]
    fn disks_share_the_page_cache() {
        let mut b = Bench::new(DropBehind::Pressure);
        let alone = b.period();
        b.limit.disks = 3;
        assert!(b.period().abs_diff(alone / 3) <= 1);
        assert_eq!(b.memory.report().limit_bytes, G);
    }

    #[test]
    fn nonsense_leaves_the_smallest_budget() {
        for bytes in [0, 1, M, u64::MAX] {
            for disks in [0, 1, u32::MAX] {
                let limit = MemoryLimit { bytes: Bytes(bytes), disks, tasks_wait: false };
                let none = Constants { budget_share: 0.05, ..Constants::default() };
                for constants in [Constants::default(), none] {
                    let mut memory = Memory::new(&AheadConfig::default(), limit, constants);
                    let seen = Seen { reads: u64::MAX, bytes_read: 1, requested: 1, cached: u64::MAX };
                    for s in [0, u64::MAX / 2_000_000_000, 1] {
                        memory.evicted(at(s), u64::MAX, at(0), u64::MAX);
                        memory.limit(at(s), limit, seen, u64::MAX, 0, Bytes::mib(1));
                        memory.limit(at(s), limit, Seen::default(), 0, 0, Bytes::mib(1));
                        let most = (bytes / u64::from(disks.max(1))).max(BUDGET_MIN.0);
                        assert!((BUDGET_MIN.0..=most).contains(&memory.budget()), "{bytes} {disks}");
                        let Earnings { ahead, cache } = memory.earnings();
                        assert!((0.0..=1.0).contains(&ahead) && cache.is_finite());
                    }
                }
            }
        }
    }
}
