//! The event loop of the two-level study: requests go down through the levels, blocks come up.
//!
//! A request is looked up in the top level at its arrival. Missing blocks become *fetches*, runs of blocks
//! requested from the level below, where the same happens (after the decision of that level's coordinator),
//! down to the disk. Going down takes no time. A level answers a fetch when all its blocks have arrived, and
//! the answer takes alpha + beta x blocks on the network. A request completes when all its blocks have come.
//! Blocks that were fetched ahead in the same request come together with them, as in one read of a disk or of
//! a network file.
//!
//! Determinism: one heap ordered by time and then by order of creation, no threads, no hash map iterated
//! over, no clock, no randomness.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::study::cache::{BadCapacity, Cache, Hit, Near, Origin};
use crate::study::coordinate::Coordinator;
use crate::study::prefetch::{LevelAccess, PrefetchPlan, Prefetcher};
use hdrhistogram::Histogram;
use seekless_base::Nanos;
use seekless_levels::coordinate::pfc::PfcCounts;
use seekless_levels::coordinate::{LevelRequest, Split};

use super::disk::{DEVICE_SHIFT, DiskCounts, ScheduledDrive, Submitted};
use super::system::{BlockRequest, LevelSpec, Network, Pacing, ServiceRules, SystemSpec, Waiting};

const NIL: u32 = u32::MAX;
/// Number of a device's last block within it.
const DEVICE_LAST: u64 = (1 << DEVICE_SHIFT) - 1;
/// Maximum length of a request or prefetch in blocks (4 GiB of 4 KiB blocks); real ones are shorter.
pub const REQUEST_BLOCKS_MAX: u64 = 1 << 20;
/// Longest response time kept in the histogram, microseconds (about 11 days); longer ones count as this.
const RESPONSE_US_MAX: u64 = 1_000_000_000_000;

/// Counters of one level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LevelCounts {
    /// Requests that reached it.
    pub requests: u64,
    /// Blocks that they requested.
    pub blocks: u64,
    /// Of these, found by the native cache, in memory or being fetched.
    pub hits: u64,
    /// Hits that had to wait because the block was still being fetched (part of `hits`).
    pub late_hits: u64,
    /// Blocks that a coordinator bypassed and that were found all the same, without the native side noticing.
    pub silent_hits: u64,
    /// Blocks that the native cache did not have.
    pub misses: u64,
    /// Blocks that a coordinator bypassed, that were not cached and were read from below.
    pub bypassed: u64,
    /// Blocks fetched ahead by the native prefetcher.
    pub prefetched: u64,
    /// Blocks fetched ahead because a coordinator requested more.
    pub readmore: u64,
    /// Blocks fetched ahead that were evicted, or left at the end, without having been requested.
    pub unused: u64,
    /// Requests it sent to the level below.
    pub fetches: u64,
}

impl LevelCounts {
    /// Share of blocks found here, silently or not; 0 if none was requested.
    pub fn hit_ratio(&self) -> f64 {
        if self.blocks == 0 { 0.0 } else { (self.hits + self.silent_hits) as f64 / self.blocks as f64 }
    }
}

/// Result of a run.
#[derive(Clone, Debug)]
pub struct RunOutcome {
    /// From the application down.
    pub levels: Vec<LevelCounts>,
    /// Which branch of PFC's algorithm 2 requests took, at each level with PFC in front of it.
    pub pfc: Vec<Option<PfcCounts>>,
    /// The disk.
    pub disk: DiskCounts,
    /// Requests completed, without the writes of [`Simulation::write`].
    pub requests: u64,
    /// Mean response time of these, nanoseconds.
    pub response_mean_ns: f64,
    /// Their response times in microseconds.
    pub response_us: Histogram<u64>,
    /// Those writes.
    pub writes: WriteCounts,
    /// When the last request completed.
    pub end: Nanos,
    /// Memory of all caches and their data structures, bytes.
    pub memory_bytes: u64,
}

/// Counters of writes.
#[derive(Clone, Debug)]
pub struct WriteCounts {
    /// Writes completed.
    pub requests: u64,
    /// Their blocks.
    pub blocks: u64,
    /// Their response times in microseconds.
    pub response_us: Histogram<u64>,
}

#[derive(Debug)]
struct Level {
    cache: Cache,
    prefetcher: Prefetcher,
    coordinator: Coordinator,
    counts: LevelCounts,
    /// Runs of missing blocks of the current request; kept to save an allocation for each request.
    missing: Vec<(u64, u64)>,
}

impl Level {
    /// Reserves space for the blocks `from..=to` of a fetch, those behind `last` unrequested, and stores the
    /// plan on them.
    fn enter(&mut self, (from, to): (u64, u64), last: u64, plan: &PrefetchPlan, fetch: u32) {
        let asked = if plan.sequential { Origin::Sequential } else { Origin::Random };
        for block in from..=to {
            let origin = if block <= last { asked } else { Origin::Prefetch };
            let (_, evicted) = self.cache.insert(block, origin, fetch);
            self.counts.unused += u64::from(evicted.is_some_and(|evicted| evicted.unused));
        }
        self.prefetcher.replaced(&mut self.cache);
    }

    /// Blocks are written: the cache has them from now on.
    fn write(&mut self, first: u64, last: u64) {
        for block in first..=last {
            // Not `find_near`: what is inserted may evict the blocks near it.
            if let Some(slot) = self.cache.find(block) {
                self.cache.hit(slot);
                continue;
            }
            let (_, evicted) = self.cache.insert(block, Origin::Random, 0);
            self.counts.unused += u64::from(evicted.is_some_and(|evicted| evicted.unused));
        }
        self.prefetcher.replaced(&mut self.cache);
    }
}

/// A run of blocks that a level requested from the level below.
#[derive(Clone, Copy, Debug)]
struct Fetch {
    first: u64,
    last: u64,
    level: u32,
    /// Whether none of it enters the cache.
    bypass: bool,
    /// First waiter; the others are chained.
    waiters: u32,
    /// Next fetch merged into the same disk request.
    merged: u32,
    /// Whether no reader waits for it. Then it is not merged with fetches that a reader waits for, unless
    /// there is a backlog.
    apart: bool,
}

/// A waiter for one or more fetches.
#[derive(Clone, Copy, Debug)]
struct Wait {
    remaining: u32,
    level: u32,
    who: Who,
    first: u64,
    last: u64,
    demote: bool,
    since: Nanos,
}

#[derive(Clone, Copy, Debug)]
enum Who {
    /// The application, since this time.
    Application(Nanos),
    /// A fetch of the level above.
    Fetch(u32),
    /// A write, above the network.
    Written(u32),
    /// The application, which writes, since this time.
    Writer(Nanos),
}

#[derive(Clone, Copy, Debug)]
struct Waiter {
    wait: u32,
    next: u32,
}

/// Slots numbered from 0, reused after they were freed.
#[derive(Debug)]
struct Slab<T> {
    items: Vec<T>,
    free: Vec<u32>,
}

impl<T: Copy> Slab<T> {
    fn new() -> Slab<T> {
        Slab { items: Vec::new(), free: Vec::new() }
    }

    fn add(&mut self, item: T) -> u32 {
        match self.free.pop() {
            Some(at) => {
                self.items[at as usize] = item;
                at
            }
            None => {
                self.items.push(item);
                (self.items.len() - 1) as u32
            }
        }
    }

    fn take(&mut self, at: u32) -> T {
        self.free.push(at);
        self.items[at as usize]
    }
}

/// The running system.
#[derive(Debug)]
pub struct Simulation {
    levels: Vec<Level>,
    network: Network,
    disk: ScheduledDrive,
    timing: Pacing,
    rules: ServiceRules,
    /// Fetches of the current request that must still be sent; kept to save an allocation for each request.
    entering: Vec<u32>,
    now: Nanos,
    fetches: Slab<Fetch>,
    waits: Slab<Wait>,
    waiters: Slab<Waiter>,
    events: BinaryHeap<Reverse<(Nanos, u64, u32)>>,
    event_seq: u64,
    outstanding: u32,
    completed: u64,
    response_ns: u128,
    response_us: Histogram<u64>,
    zero_responses: u64,
    writes: WriteCounts,
    end: Nanos,
}

impl Simulation {
    /// An idle system with cold caches.
    ///
    /// # Errors
    /// A cache has no blocks or too many.
    pub fn new(spec: &SystemSpec) -> Result<Simulation, BadCapacity> {
        Simulation::with_rules(spec, ServiceRules::default())
    }

    /// The same with other choices where PFC leaves one.
    ///
    /// # Errors
    /// A cache has no blocks or too many.
    pub fn with_rules(spec: &SystemSpec, rules: ServiceRules) -> Result<Simulation, BadCapacity> {
        let level = |l: &LevelSpec| -> Result<Level, BadCapacity> {
            let mut cache = Cache::new(l.replacement, l.capacity_blocks)?;
            let prefetcher = Prefetcher::new(l.prefetch);
            cache.set_second_chance(prefetcher.second_chance());
            Ok(Level {
                coordinator: Coordinator::new(l.coordination, cache.capacity()),
                cache,
                prefetcher,
                counts: LevelCounts::default(),
                missing: Vec::new(),
            })
        };
        let levels: Vec<Level> = spec.levels.iter().map(level).collect::<Result<_, _>>()?;
        if levels.is_empty() {
            return Err(BadCapacity(0));
        }
        let histogram = || {
            Histogram::new_with_bounds(1, RESPONSE_US_MAX, 3)
                .unwrap_or_else(|_| unreachable!("constant bounds are valid"))
        };
        Ok(Simulation {
            levels,
            network: spec.network,
            disk: spec.drive.as_ref().map_or_else(ScheduledDrive::instant, |d| {
                ScheduledDrive::new(d, spec.block_bytes, spec.devices)
            }),
            timing: spec.timing,
            rules,
            entering: Vec::new(),
            now: Nanos::ZERO,
            fetches: Slab::new(),
            waits: Slab::new(),
            waiters: Slab::new(),
            events: BinaryHeap::new(),
            event_seq: 0,
            outstanding: 0,
            completed: 0,
            response_ns: 0,
            response_us: histogram(),
            zero_responses: 0,
            writes: WriteCounts { requests: 0, blocks: 0, response_us: histogram() },
            end: Nanos::ZERO,
        })
    }

    /// Processes the next request of the trace. With [`Pacing::Trace`], a time before that of the last one
    /// counts as that one (the readers refuse or report such traces).
    pub fn request(&mut self, request: &BlockRequest) {
        self.issue(request);
        let who = Who::Application(self.now);
        self.serve(0, request.context, request.first, request.last, request.limit, who);
    }

    /// Processes the next request of the trace, a write. Its blocks are in every level from now on, and go to
    /// the disk at once. The application waits until the drive has them, in its write cache if there is one.
    pub fn write(&mut self, request: &BlockRequest) {
        self.issue(request);
        let BlockRequest { first, last, .. } = *request;
        for level in &mut self.levels {
            level.write(first, last);
        }
        let since = self.now;
        let own = |who| Wait { remaining: 0, level: 0, who, first, last, demote: false, since };
        let fetch = Fetch { first, last, level: 0, bypass: true, waiters: NIL, merged: NIL, apart: false };
        let (above, below) = (self.fetches.add(fetch), self.fetches.add(fetch));
        self.wait_for(above, &own(Who::Writer(since)), &mut { NIL });
        self.wait_for(below, &own(Who::Written(above)), &mut { NIL });
        let submitted = self.disk.write(self.now, (first, last), below);
        self.sent(below, submitted);
    }

    /// The next request is issued now.
    fn issue(&mut self, request: &BlockRequest) {
        match self.timing {
            Pacing::Trace { stretch } => {
                let at =
                    if stretch == 1.0 { request.at } else { Nanos((request.at.0 as f64 * stretch) as u64) };
                self.run_until(at);
                self.now = self.now.max(at);
            }
            Pacing::Closed { clients } => while self.outstanding >= clients.max(1) && self.step() {},
        }
        self.outstanding += 1;
    }

    /// Completes everything in progress and returns the result.
    pub fn finish(mut self) -> RunOutcome {
        while self.step() {}
        let mut memory_bytes = 0;
        for level in &mut self.levels {
            level.counts.unused += level.cache.unused();
            memory_bytes += level.cache.memory_bytes() as u64;
        }
        // Requests served from the top level at once are counted separately, because recording a million
        // zeros one by one is slow.
        let _ = self.response_us.record_n(0, self.zero_responses);
        RunOutcome {
            levels: self.levels.iter().map(|l| l.counts).collect(),
            pfc: self.levels.iter().map(|l| l.coordinator.pfc_counts()).collect(),
            disk: self.disk.counts,
            requests: self.completed,
            response_mean_ns: if self.completed == 0 {
                0.0
            } else {
                self.response_ns as f64 / self.completed as f64
            },
            response_us: self.response_us,
            writes: self.writes,
            end: self.end,
            memory_bytes,
        }
    }

    fn run_until(&mut self, at: Nanos) {
        while self.next_event().is_some_and(|t| t <= at) {
            self.step();
        }
    }

    #[inline]
    fn next_event(&self) -> Option<Nanos> {
        match (self.disk.next_completion(), self.events.peek()) {
            (Some(disk), Some(Reverse((event, ..)))) => Some(disk.min(*event)),
            (Some(disk), None) => Some(disk),
            (None, Some(Reverse((event, ..)))) => Some(*event),
            (None, None) => None,
        }
    }

    /// Processes the next event; `false` if there is none.
    fn step(&mut self) -> bool {
        let disk = self.disk.next_completion();
        let event = self.events.peek().map(|Reverse((at, ..))| *at);
        match (disk, event) {
            (Some(disk), event) if event.is_none_or(|e| disk <= e) => {
                self.now = self.now.max(disk);
                let mut fetch = self.disk.complete().unwrap_or(NIL);
                while fetch != NIL {
                    let next = self.fetches.items[fetch as usize].merged;
                    self.arrived(fetch);
                    fetch = next;
                }
                true
            }
            (_, Some(_)) => {
                if let Some(Reverse((at, _, fetch))) = self.events.pop() {
                    self.now = self.now.max(at);
                    self.arrived(fetch);
                }
                true
            }
            _ => false,
        }
    }

    /// Blocks `first..=last` are requested from a level; `who` is notified when they have arrived.
    fn serve(&mut self, at: usize, context: u32, first: u64, last: u64, limit: u64, who: Who) {
        let level = &mut self.levels[at];
        level.counts.requests += 1;
        level.counts.blocks += last - first + 1;
        let split = match level.coordinator {
            Coordinator::None => Split::default(),
            ref mut coordinator => {
                let request = LevelRequest { context, first, last };
                coordinator.arrived(self.now.0, &request);
                coordinator.decide(&request, &level.cache)
            }
        };
        let mut wait = NIL;
        let own =
            Wait { remaining: 0, level: at as u32, who, first, last, demote: split.demote, since: self.now };

        let mut native = first;
        if split.bypass > 0 {
            native = first + split.bypass.min(last - first + 1);
            self.bypass(at, context, first, native - 1, limit, &own, &mut wait);
        }
        // Coordinators work on block addresses, so only the end of the device bounds what they add.
        let native_last = last.saturating_add(split.readmore).min(last | DEVICE_LAST);
        if native <= native_last {
            self.native(at, context, (native, last, native_last, limit), split.demand_first, &own, &mut wait);
        }
        if wait == NIL {
            self.answer(&own);
        }
    }

    /// Blocks that bypass the native side: read from the cache if they are there, else from below.
    #[allow(clippy::too_many_arguments)]
    fn bypass(
        &mut self,
        at: usize,
        context: u32,
        first: u64,
        last: u64,
        limit: u64,
        own: &Wait,
        wait: &mut u32,
    ) {
        let mut missing = std::mem::take(&mut self.levels[at].missing);
        missing.clear();
        let mut last_fetch = 0;
        let mut near = Near::default();
        for block in first..=last {
            let level = &mut self.levels[at];
            if let Some(slot) = level.cache.find_near(block, &mut near) {
                level.counts.silent_hits += 1;
                let (_, fetch) = level.cache.silent_use(slot);
                if fetch != 0 && fetch != last_fetch {
                    last_fetch = fetch;
                    self.wait_for(fetch - 1, own, wait);
                }
            } else {
                level.counts.bypassed += 1;
                extend(&mut missing, block);
            }
        }
        for (first, last) in missing.drain(..) {
            let fetch = self.fetch(at, first, last, true);
            self.wait_for(fetch, own, wait);
            self.send(at, fetch, context, limit);
        }
        self.levels[at].missing = missing;
    }

    /// Blocks for the native cache and prefetcher: `first..=last` are requested, then more up to `more_last`.
    fn native(
        &mut self,
        at: usize,
        context: u32,
        (first, last, more_last, limit): (u64, u64, u64, u64),
        demand_first: bool,
        own: &Wait,
        wait: &mut u32,
    ) {
        let mut access = LevelAccess::new(context, first, more_last);
        let mut missing = std::mem::take(&mut self.levels[at].missing);
        missing.clear();
        let mut last_fetch = 0;
        let mut near = Near::default();
        for block in first..=more_last {
            let level = &mut self.levels[at];
            let Some(slot) = level.cache.find_near(block, &mut near) else {
                access.note_miss(block);
                if block <= last {
                    level.counts.misses += 1;
                } else {
                    level.counts.readmore += 1;
                }
                extend(&mut missing, block);
                continue;
            };
            let hit = level.cache.hit(slot);
            access.note_hit(block, &hit);
            let wanted = block <= last;
            let seen = Hit { first_use: hit.first_use && wanted, ..hit };
            level.prefetcher.hit(block, &seen, more_last - first + 1, &mut level.cache);
            if !wanted {
                // The coordinator requested it and does not use it, so it stays unused.
                if hit.first_use {
                    level.cache.mark_unused(slot);
                }
                continue;
            }
            level.counts.hits += 1;
            if hit.fetch != 0 {
                level.counts.late_hits += 1;
                if hit.fetch != last_fetch {
                    last_fetch = hit.fetch;
                    self.wait_for(hit.fetch - 1, own, wait);
                }
            }
        }
        let level = &mut self.levels[at];
        let plan = level.prefetcher.access(&access, &mut level.cache);
        // The prefetch, without what is cached, joins the missing blocks that it directly continues.
        let mut ahead = 0;
        // Where the prefetcher stops: at the end of the file if it knows files, else at that of the device.
        let end = if level.prefetcher.knows_files() { limit } else { last | DEVICE_LAST };
        let run_last =
            plan.run.map(|run| run.last.min(end).min(run.first.saturating_add(REQUEST_BLOCKS_MAX)));
        if let (Some(run), Some(run_last)) = (plan.run, run_last) {
            for block in run.first..=run_last {
                if missing.last().is_some_and(|(_, end)| block <= *end) {
                    continue;
                }
                if level.cache.find_near(block, &mut near).is_none() {
                    extend(&mut missing, block);
                    ahead += 1;
                }
            }
        }
        if ahead > 0 {
            level.counts.prefetched += ahead;
            level.prefetcher.issued(ahead);
        }
        let apart = demand_first || self.rules.waiting == Waiting::DemandFirst;
        if (apart || self.rules.waiting == Waiting::Own)
            && let Some(at) = missing.iter().position(|(from, to)| *from <= last && *to > last)
        {
            let to = std::mem::replace(&mut missing[at].1, last);
            missing.insert(at + 1, (last + 1, to));
        }
        // All of them reserve their space before one is sent, because the plan concerns all of them.
        let mut entering = std::mem::take(&mut self.entering);
        for (from, to) in missing.drain(..) {
            let fetch = self.fetch(at, from, to, false);
            self.fetches.items[fetch as usize].apart = apart && from > last;
            self.levels[at].enter((from, to), last, &plan, fetch + 1);
            if from <= last {
                self.wait_for(fetch, own, wait);
            }
            entering.push(fetch);
        }
        let level = &mut self.levels[at];
        level.missing = missing;
        if let Some(trigger) = plan.run.and_then(|run| run.trigger) {
            level.cache.mark_trigger(trigger);
        }
        level.prefetcher.entered(&plan, run_last, &mut level.cache);
        for fetch in entering.iter().copied() {
            self.send(at, fetch, context, limit);
        }
        entering.clear();
        self.entering = entering;
    }

    fn fetch(&mut self, at: usize, first: u64, last: u64, bypass: bool) -> u32 {
        let level = at as u32;
        self.levels[at].counts.fetches += 1;
        self.fetches.add(Fetch { first, last, level, bypass, waiters: NIL, merged: NIL, apart: false })
    }

    /// Passes a fetch to the level below, or to the disk.
    fn send(&mut self, at: usize, fetch: u32, context: u32, limit: u64) {
        let Fetch { first, last, apart, .. } = self.fetches.items[fetch as usize];
        if at + 1 < self.levels.len() {
            self.serve(at + 1, context, first, last, limit, Who::Fetch(fetch));
            return;
        }
        let submitted = self.disk.submit(self.now, (first, last), fetch, apart);
        self.sent(fetch, submitted);
    }

    /// A fetch was submitted to the disk.
    fn sent(&mut self, fetch: u32, submitted: Submitted) {
        match submitted {
            Submitted::Done => self.schedule(self.now, fetch),
            Submitted::Alone => {}
            Submitted::Merged(with) => {
                let with = &mut self.fetches.items[with as usize];
                let next = std::mem::replace(&mut with.merged, fetch);
                self.fetches.items[fetch as usize].merged = next;
            }
        }
    }

    fn schedule(&mut self, at: Nanos, fetch: u32) {
        self.event_seq += 1;
        self.events.push(Reverse((at, self.event_seq, fetch)));
    }

    /// Records that `own` waits for a fetch; creates the wait at its first one.
    fn wait_for(&mut self, fetch: u32, own: &Wait, wait: &mut u32) {
        if *wait == NIL {
            *wait = self.waits.add(*own);
        }
        self.waits.items[*wait as usize].remaining += 1;
        let next = self.fetches.items[fetch as usize].waiters;
        self.fetches.items[fetch as usize].waiters = self.waiters.add(Waiter { wait: *wait, next });
    }

    /// The blocks of a fetch have arrived.
    fn arrived(&mut self, fetch: u32) {
        let Fetch { first, last, level, bypass, waiters, .. } = self.fetches.take(fetch);
        if !bypass {
            let cache = &mut self.levels[level as usize].cache;
            cache.ready(first..=last, fetch + 1);
        }
        let mut at = waiters;
        while at != NIL {
            let Waiter { wait, next } = self.waiters.take(at);
            at = next;
            let waiting = &mut self.waits.items[wait as usize];
            waiting.remaining -= 1;
            if waiting.remaining == 0 {
                let waiting = self.waits.take(wait);
                self.answer(&waiting);
            }
        }
    }

    /// All blocks of a request have arrived.
    fn answer(&mut self, wait: &Wait) {
        if let Who::Written(_) | Who::Writer(_) = wait.who {
            return self.written(wait);
        }
        if wait.demote {
            let cache = &mut self.levels[wait.level as usize].cache;
            let mut near = Near::default();
            for block in wait.first..=wait.last {
                if let Some(slot) = cache.find_near(block, &mut near)
                    && cache.fetch_of(slot) == 0
                {
                    cache.demote(slot);
                }
            }
        }
        self.levels[wait.level as usize].coordinator.answered(
            self.now.0,
            self.now.since(wait.since).0,
            wait.last,
        );
        match wait.who {
            Who::Fetch(fetch) => {
                let at = self.now + self.network.cost(wait.last - wait.first + 1);
                self.schedule(at, fetch);
            }
            Who::Application(since) => {
                self.outstanding -= 1;
                self.completed += 1;
                self.end = self.end.max(self.now);
                let response = self.now.since(since);
                if response == Nanos::ZERO {
                    self.zero_responses += 1;
                } else {
                    self.response_ns += u128::from(response.0);
                    self.response_us.saturating_record(response.0.div_ceil(1_000));
                }
            }
            Who::Written(_) | Who::Writer(_) => {}
        }
    }

    /// The drive has a write, or its answer has come up through the levels.
    fn written(&mut self, wait: &Wait) {
        let blocks = wait.last - wait.first + 1;
        match wait.who {
            Who::Written(above) => {
                let exchanges = self.levels.len() as u64 - 1;
                let cost = Nanos(self.network.cost(blocks).0.saturating_mul(exchanges));
                self.schedule(self.now + cost, above);
            }
            Who::Writer(since) => {
                self.outstanding -= 1;
                self.writes.requests += 1;
                self.writes.blocks += blocks;
                self.writes.response_us.saturating_record(self.now.since(since).0.div_ceil(1_000));
                self.end = self.end.max(self.now);
            }
            Who::Application(_) | Who::Fetch(_) => {}
        }
    }
}

/// Adds a block to the last run if it continues it, else starts a new one.
#[inline]
fn extend(runs: &mut Vec<(u64, u64)>, block: u64) {
    match runs.last_mut() {
        Some((_, last)) if *last + 1 == block => *last = block,
        _ => runs.push((block, block)),
    }
}
