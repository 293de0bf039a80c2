//! The drive in motion: queue, mechanism, buffer and bus, driven by time as an argument.
//!
//! When its mechanism becomes free, the drive decides what to do next among the commands that have arrived by
//! then, or at the next arrival if there are none. These moments are on the drive's own time line: a host
//! that polls late gets its completions late, but the drive has gone on working. After a read the heads go on
//! along the track (look-ahead) until there is other work, the segment is full, or the limit is reached. A
//! read whose sectors are in the buffer is served at bus speed, and one that continues the stream joins it
//! without waiting for another turn of the platter.
//!
//! A write that fits the write cache is acknowledged when the cache has it. The mechanism writes the content
//! of the cache to the medium (the destage) while no command waits. It does so among commands, nearest first,
//! while a write waits for room or the oldest has waited as long as a command may. It goes on from track to
//! track, so that a read waits for one track at most. A flush ends when all earlier writes are on the medium.
//! ATA has no queued flush (ACS-4, FLUSH CACHE EXT): the host lets the commands before it end, and sends none
//! until it is done.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use seekless_base::{Bytes, Lba, Nanos, SECTOR_BYTES};

use crate::drive::buffer::Segments;
use crate::drive::command::{Command, Completion, Op, QueueFull, ServiceTime};
use crate::drive::geometry::{Geometry, Head, Place, Track};
use crate::drive::shingles::Shingles;
use crate::drive::spec::{DriveSpec, Order};
use crate::drive::write_cache::WriteCache;

/// A running hard disk.
#[derive(Clone, Debug)]
pub struct Drive {
    spec: Arc<DriveSpec>,
    times: Times,
    /// Latest time that the host has given.
    clock: u64,
    queue: Vec<Queued>,
    done: VecDeque<Completion>,
    /// When the mechanism can start another command.
    free: u64,
    /// When the bus can start another transfer.
    bus_free: u64,
    head: Head,
    segments: Segments,
    ahead: Option<LookAhead>,
    /// Until when the choice of the next command is postponed, because of a fetch that is not broken off.
    put_off: Option<u64>,
    arrivals: u64,
    cache: WriteCache,
    shingles: Option<Shingles>,
    /// Whether a write has come that the cache takes: then commands may end in another order than they were
    /// started.
    caches: bool,
    /// When the bus has transferred the last write into the cache.
    cached_at: u64,
    /// The sector behind the last one that the mechanism read or wrote.
    passed: u64,
    write_time: u64,
}

/// The next work of the mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// The command of this index, and whether it needs no positioning.
    Command(usize, bool),
    /// A range of the write cache; the oldest, if that is overdue.
    Destage { oldest: bool },
}

/// The electronics' times, in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Times {
    read_miss: u64,
    read_hit: u64,
    write: u64,
    age_max: u64,
    /// Picoseconds a sector on the bus.
    bus_sector_ps: u64,
}

#[derive(Clone, Copy, Debug)]
struct Queued {
    command: Command,
    /// The place of its first sector.
    place: Place,
    arrived: u64,
    order: u64,
}

/// The part of a command that is in the buffer.
#[derive(Clone, Copy, Debug)]
struct LookUp {
    /// The segment that holds its first sector or ends just before it.
    segment: Option<usize>,
    /// Whether it needs no positioning: all of it is in the buffer, or it joins what comes next under the
    /// heads.
    near: bool,
    /// Whether its first sector is in the buffer or comes next under the heads.
    begun: bool,
    /// The first sector that must come from the medium.
    from: u64,
}

/// The look-ahead.
#[derive(Clone, Copy, Debug)]
struct LookAhead {
    segment: usize,
    /// First sector not read yet.
    next: u64,
    /// Where it stops by itself.
    limit: u64,
    /// Up to here it is not broken off.
    floor: u64,
}

impl Drive {
    /// An idle drive at time zero, its heads over the outermost track, its buffer empty.
    pub fn new(spec: &DriveSpec) -> Drive {
        let ns = |ms: f64| Nanos::from_millis_f64(ms.min(60_000.0)).0;
        let e = &spec.electronics;
        let times = Times {
            read_miss: ns(e.read_miss_ms),
            read_hit: ns(e.read_hit_ms),
            write: ns(e.write_ms),
            age_max: ns(spec.queue.age_ms_max),
            bus_sector_ps: (SECTOR_BYTES as f64 * 1e6 / e.bus_mb_per_s.max(0.1) + 0.5) as u64,
        };
        Drive {
            segments: Segments::new(spec.buffer.segments, spec.buffer.segment_sectors),
            spec: Arc::new(spec.clone()),
            times,
            clock: 0,
            queue: Vec::new(),
            done: VecDeque::new(),
            free: 0,
            bus_free: 0,
            head: Head { track: Track { cylinder: 0, head: 0 }, at: 0 },
            ahead: None,
            put_off: None,
            arrivals: 0,
            cache: WriteCache::new(spec.buffer.write_cache_sectors),
            shingles: spec.shingled.as_ref().map(|s| Shingles::new(s.band_sectors)),
            caches: false,
            cached_at: 0,
            passed: 0,
            write_time: 0,
        }
    }

    /// What this drive was built from.
    pub fn spec(&self) -> &DriveSpec {
        &self.spec
    }

    /// Bytes the drive holds.
    pub fn capacity(&self) -> Bytes {
        self.spec.capacity()
    }

    /// 512-byte sectors the drive holds.
    pub fn sectors(&self) -> u64 {
        self.spec.sectors()
    }

    /// See [`DriveSpec::media_rate`].
    pub fn media_rate(&self, lba: Lba) -> f64 {
        self.spec.media_rate(lba)
    }

    /// See [`DriveSpec::seek_time`].
    pub fn seek_time(&self, from: Lba, to: Lba) -> Nanos {
        self.spec.seek_time(from, to)
    }

    /// See [`DriveSpec::rotation_period`].
    pub fn rotation_period(&self) -> Nanos {
        self.spec.rotation_period()
    }

    /// Commands that were submitted and whose completion was not polled: each occupies a place in the queue,
    /// as a tag does until its completion has been seen.
    pub fn queue_len(&self) -> usize {
        self.queue.len() + self.done.len()
    }

    /// A command arrives at `now`. Time must not go backwards; an earlier `now` counts as the latest one.
    ///
    /// # Errors
    /// [`QueueFull`] when [`DriveSpec::queue`]'s depth is reached; nothing has changed then.
    pub fn submit(&mut self, now: Nanos, command: Command) -> Result<(), QueueFull> {
        if self.queue_len() >= self.spec.queue.depth.max(1) as usize {
            return Err(QueueFull);
        }
        self.tell(now);
        if command.op != Op::Read || !self.cache.is_empty() {
            // Whether it has room depends on what was destaged before.
            while self.run_next(self.clock.saturating_sub(1)) {}
            self.admit(self.clock);
        }
        self.arrivals += 1;
        self.caches |= self.waits_for_room(&command);
        if command.op == Op::Write && self.absorbs(&command) {
            self.absorb(command);
            return Ok(());
        }
        // A postponed choice is made again: the new command may be in the buffer.
        self.put_off = self.put_off.map(|t| t.min(self.clock));
        let place = self.place(command.lba.0);
        self.queue.push(Queued { command, place, arrived: self.clock, order: self.arrivals });
        Ok(())
    }

    /// When [`Drive::poll`] will return the next completion, given the present queue; `None` if the queue is
    /// empty.
    pub fn next_completion(&mut self) -> Option<Nanos> {
        if self.caches {
            while self.run_next(self.clock) {}
            let mut copy = self.clone();
            while copy.run_next(copy.done.front().map_or(u64::MAX, |c| c.finished.0.saturating_sub(1))) {}
            return copy.done.front().map(|c| c.finished);
        }
        if let Some(front) = self.done.front() {
            return Some(front.finished);
        }
        if self.run_next(self.clock) {
            return self.done.front().map(|c| c.finished);
        }
        // The queue is empty, or the choice is still open and a command that arrives before then may be
        // nearer: look ahead on a copy.
        if self.queue.is_empty() {
            return None;
        }
        let mut copy = self.clone();
        copy.run_next(u64::MAX);
        copy.done.front().map(|c| c.finished)
    }

    /// The next completion by `now`. Call it until it returns `None`.
    pub fn poll(&mut self, now: Nanos) -> Option<Completion> {
        self.tell(now);
        if self.done.is_empty() {
            self.run_next(self.clock);
        }
        while self.caches && self.run_next(self.clock) {}
        if self.done.front()?.finished.0 > self.clock {
            return None;
        }
        self.done.pop_front()
    }

    fn tell(&mut self, now: Nanos) {
        // A quarter of the range is 146 years; beyond it sums could overflow, so time stops there.
        self.clock = self.clock.max(now.0.min(u64::MAX / 4));
    }

    fn geometry(&self) -> &Geometry {
        &self.spec.geometry
    }

    /// Chooses the next command and carries it out, if the choice is not after `until`. Returns whether it
    /// did.
    fn run_next(&mut self, until: u64) -> bool {
        loop {
            let earliest = self.queue.iter().map(|q| q.arrived).min();
            // While no command waits, the cache is emptied.
            if let Some(at) = self.idle_from().filter(|&at| earliest.is_none_or(|e| at < e)) {
                if at > until {
                    return false;
                }
                self.destage(at, false);
                continue;
            }
            let Some(earliest) = earliest else { return false };
            let at = earliest.max(self.free).max(self.put_off.unwrap_or(0));
            if at > until {
                return false;
            }
            if self.admit(at) {
                return true;
            }
            self.read_ahead_until(at);
            let (index, near) = match self.choose(at) {
                Next::Command(index, near) => (index, near),
                Next::Destage { oldest } => {
                    self.destage(at, oldest);
                    self.put_off = None;
                    continue;
                }
            };
            // A fetch that is not broken off delays every jump, and with it the choice: a command that
            // arrives meanwhile may be nearer, or in the buffer.
            if let Some(end) = self.fetch_end().filter(|&t| !near && t > at) {
                let next_arrival = self.queue.iter().map(|q| q.arrived).filter(|&a| a > at).min();
                self.put_off = Some(next_arrival.map_or(end, |a| a.min(end)));
                continue;
            }
            let queued = self.queue.swap_remove(index);
            let completion = match queued.command.op {
                Op::Read => self.read(at, &queued),
                Op::Write => self.write(at, &queued),
                Op::Flush => self.flushed(at, &queued),
            };
            self.put_off = None;
            self.push(completion);
            return true;
        }
    }

    /// The work to start at `at`.
    fn choose(&self, at: u64) -> Next {
        let flush = self.flush(at);
        let before = flush.map_or(u64::MAX, |i| self.queue[i].order);
        let present =
            || self.queue.iter().enumerate().filter(move |(_, q)| q.arrived <= at && q.order < before);
        let arrived = || present().filter(|(_, q)| !self.waits_for_room(&q.command));
        let room = present().filter(|(_, q)| self.waits_for_room(&q.command)).map(|(_, q)| q.arrived).min();
        let Some((oldest, q)) = arrived().min_by_key(|(_, q)| q.order) else {
            // The writes that wait for room, then those before the flush, then the flush.
            return match flush {
                Some(i) if room.is_none() && self.cache.is_empty() => Next::Command(i, true),
                _ => Next::Destage { oldest: false },
            };
        };
        let age = |since: u64| at.saturating_sub(since) >= self.times.age_max;
        let stale = self.cache.oldest().filter(|&since| age(since) && since < q.arrived);
        if stale.is_some() {
            return Next::Destage { oldest: true };
        }
        if room.is_some_and(|since| age(since) && since < q.arrived) {
            return Next::Destage { oldest: false };
        }
        let overdue = age(q.arrived);
        let near = self.look_up(&q.command).near;
        let fifo = self.spec.queue.order == Order::Fifo;
        if fifo && room.is_some_and(|since| since < q.arrived) {
            return Next::Destage { oldest: false };
        }
        // A near command costs least, and of equal ones the oldest goes first.
        if near || overdue || fifo || (self.queue.len() == 1 && room.is_none()) {
            return Next::Command(oldest, near);
        }
        let costs = arrived().map(|(i, q)| {
            let found = self.look_up(&q.command);
            let cost = if found.near { 0 } else { self.positioning(at, q, &found) };
            (cost, q.order, i, found.near)
        });
        let Some((cost, _, i, near)) = costs.min() else { return Next::Command(oldest, true) };
        let due = room.is_some() || self.cache.oldest().is_some_and(age);
        match due.then(|| self.cache.next(self.passed, false)).flatten() {
            Some((start, _)) if self.destage_positioning(at, start) < cost => Next::Destage { oldest: false },
            _ => Next::Command(i, near),
        }
    }

    /// Index of the oldest flush that has arrived by `at`.
    fn flush(&self, at: u64) -> Option<usize> {
        let flushes = self.queue.iter().enumerate();
        let arrived = flushes.filter(|(_, q)| q.command.op == Op::Flush && q.arrived <= at);
        arrived.min_by_key(|(_, q)| q.order).map(|(i, _)| i)
    }

    /// Sectors in the write cache at the latest given time; never more than its capacity
    /// ([`crate::drive::Buffer::write_cache_sectors`]).
    pub fn cached_writes(&self) -> u64 {
        self.cache.held(self.clock)
    }

    /// Time in which the mechanism moved to written data, and wrote it: besides the commands' own times, the
    /// time in which the write cache was emptied.
    pub fn write_time(&self) -> Nanos {
        Nanos(self.write_time)
    }

    /// Whether this is a write that the cache takes once it has room.
    fn waits_for_room(&self, command: &Command) -> bool {
        let (lba, end) = self.span(command);
        command.op == Op::Write && self.cache.takes(end - lba)
    }

    /// Whether the cache takes this write as it arrives: it has room, and no earlier write waits.
    fn absorbs(&self, command: &Command) -> bool {
        let (lba, end) = self.span(command);
        self.waits_for_room(command)
            && self.queue.iter().all(|q| q.command.op == Op::Read)
            && self.cache.has_room(self.clock, lba, end)
    }

    /// The cache takes a write that has just arrived.
    fn absorb(&mut self, command: Command) {
        let (now, order) = (self.clock, self.arrivals);
        let q = Queued { command, place: self.place(command.lba.0), arrived: now, order };
        let ready = (now + self.times.write).max(self.cached_at);
        self.take_in(now, &q, ready);
    }

    /// Moves writes that waited for room into the cache at `at`, in order, up to the first without room.
    /// Returns whether any was moved.
    fn admit(&mut self, at: u64) -> bool {
        let mut any = false;
        loop {
            let waiting = self.queue.iter().enumerate().filter(|(_, q)| q.command.op != Op::Read);
            let Some((i, q)) = waiting.min_by_key(|(_, q)| q.order) else { return any };
            let (lba, end) = self.span(&q.command);
            if q.arrived > at || !self.waits_for_room(&q.command) || !self.cache.has_room(at, lba, end) {
                return any;
            }
            let q = self.queue.swap_remove(i);
            let ready = at.max(q.arrived + self.times.write).max(self.cached_at).max(self.bus_free);
            self.take_in(at, &q, ready);
            any = true;
        }
    }

    /// Puts a write into the cache; its transfer begins at `ready`.
    fn take_in(&mut self, at: u64, q: &Queued, ready: u64) {
        let (lba, end) = self.span(&q.command);
        self.cached_at = ready + self.bus(end - lba);
        self.segments.invalidate(lba, end);
        if self.ahead.is_some_and(|a| self.segments.get(a.segment).end == 0) {
            self.ahead = None;
        }
        if lba < end {
            self.cache.insert(self.cached_at, lba, end);
        }
        let service = ServiceTime {
            overhead: Nanos(ready - at),
            transfer: Nanos(self.cached_at - ready),
            from_buffer: true,
            ..ServiceTime::default()
        };
        let completion = self.completion(at, q, self.cached_at, service);
        self.push(completion);
    }

    /// When the mechanism has no work but to empty the cache, if the cache is not empty.
    fn idle_from(&self) -> Option<u64> {
        let at = self.cache.oldest()?.max(self.free);
        Some(self.fetch_end().map_or(at, |end| at.max(end)))
    }

    /// Time from `at` until the first sector of a range of the cache is under the heads.
    fn destage_positioning(&self, at: u64, start: u64) -> u64 {
        if self.goes_on(at, start) {
            return 0;
        }
        let place = self.place(start);
        let arm = self.geometry().move_time(self.head.track, place.track) + self.settle(Op::Write);
        arm + self.geometry().wait(at + arm, &place)
    }

    /// Whether the heads have just written the sector before it.
    fn goes_on(&self, at: u64, start: u64) -> bool {
        self.ahead.is_none() && self.passed == start && self.head.at == at
    }

    /// Writes a range of the cache to the medium, from `at` on: the next by address or the oldest, up to the
    /// end of its track.
    fn destage(&mut self, at: u64, oldest: bool) {
        self.read_ahead_until(at);
        let Some((start, end)) = self.cache.next(self.passed, oldest) else { return };
        let end = if self.shingles.is_some() { end } else { end.min(self.geometry().track_end(start)) };
        let end = self.write_medium(at, start, end, &mut ServiceTime::default());
        self.free = self.head.at;
        self.write_time += self.free - at;
        self.cache.remove(start, end, self.free);
    }

    /// The mechanism writes `start..end`, from `at` on. Returns the end, or where it stops for now. On
    /// shingled tracks, which overlap, it reads and writes the whole band, unless the range is all of it or
    /// continues where the band was written last.
    fn write_medium(&mut self, at: u64, start: u64, end: u64, service: &mut ServiceTime) -> u64 {
        let (mut from, mut upto, mut stop) = (start, end, end);
        if let Some(shingles) = &mut self.shingles {
            let band = shingles.band(start, self.spec.geometry.sectors);
            stop = end.min(band.end);
            if shingles.write(start, stop) {
                upto = stop;
            } else {
                (from, upto) = (band.start, band.end);
                self.position(at, self.place(from), Op::Read, service);
                self.pass(from, upto);
            }
        }
        let at = if from == start { at } else { self.head.at };
        if !self.goes_on(at, from) {
            self.position(at, self.place(from), Op::Write, service);
        }
        self.pass(from, upto);
        stop
    }

    /// A flush ends: the cache is empty, and the medium has it.
    fn flushed(&mut self, at: u64, q: &Queued) -> Completion {
        let ready = at.max(q.arrived + self.times.write);
        let service = ServiceTime { overhead: Nanos(ready - at), ..ServiceTime::default() };
        self.finish(at, q, ready.max(self.bus_free), service)
    }

    /// Returns completions in the order of their times.
    fn push(&mut self, completion: Completion) {
        let at = self.done.partition_point(|c| c.finished <= completion.finished);
        self.done.insert(at, completion);
    }

    /// The part of a command that is in the buffer.
    fn look_up(&self, command: &Command) -> LookUp {
        let (lba, end) = self.span(command);
        if command.op == Op::Read && self.cache.covers(lba, end) {
            return LookUp { segment: None, near: true, begun: true, from: end };
        }
        let segment = if command.op == Op::Read { self.segments.find(lba) } else { None };
        let Some(i) = segment else { return LookUp { segment, near: false, begun: false, from: lba } };
        let (from, live) = (self.segments.get(i).end, self.reads_into(i));
        LookUp { segment, near: end <= from || live, begun: lba < from || live, from }
    }

    /// First address of a command and the one after its last, cut to the drive.
    fn span(&self, command: &Command) -> (u64, u64) {
        let lba = command.lba.0.min(self.sectors());
        (lba, lba.saturating_add(u64::from(command.sectors.max(1))).min(self.sectors()))
    }

    /// Time from `at` until the first sector that a command needs from the medium is under the heads.
    fn positioning(&self, at: u64, q: &Queued, found: &LookUp) -> u64 {
        let ready = self.ready(at, q, found);
        let place = self.place_for(q, found.from);
        let arm = self.geometry().move_time(self.head.track, place.track) + self.settle(q.command.op);
        ready - at + arm + self.geometry().wait(ready + arm, &place)
    }

    /// The place of an address at which a command begins or continues.
    fn place_for(&self, q: &Queued, lba: u64) -> Place {
        if lba == q.command.lba.0 { q.place } else { self.place(lba) }
    }

    /// The place of an address, cut to the drive.
    fn place(&self, lba: u64) -> Place {
        self.geometry().place(lba.min(self.sectors() - 1))
    }

    fn settle(&self, op: Op) -> u64 {
        if op == Op::Write { self.spec.write_settle } else { 0 }
    }

    /// When the electronics have processed a command: their work begins at its arrival, beside the
    /// mechanism's work on another command.
    fn ready(&self, at: u64, q: &Queued, found: &LookUp) -> u64 {
        let overhead = match q.command.op {
            Op::Write | Op::Flush => self.times.write,
            Op::Read if found.begun => self.times.read_hit,
            Op::Read => self.times.read_miss,
        };
        at.max(q.arrived + overhead)
    }

    fn bus(&self, sectors: u64) -> u64 {
        sectors * self.times.bus_sector_ps / 1000
    }

    /// Lets the look-ahead run up to a time.
    fn read_ahead_until(&mut self, until: u64) {
        let Some(mut ahead) = self.ahead else { return };
        let mut head = self.head;
        ahead.next = self.geometry().sweep(&mut head, ahead.next, ahead.limit, until);
        self.head = head;
        self.segments.extend(ahead.segment, ahead.next);
        self.ahead = if ahead.next < ahead.limit { Some(ahead) } else { None };
    }

    /// When the look-ahead may be broken off, if not yet.
    fn fetch_end(&self) -> Option<u64> {
        let ahead = self.ahead.filter(|a| a.next < a.floor)?;
        let mut head = self.head;
        self.geometry().sweep(&mut head, ahead.next, ahead.floor.min(ahead.limit), u64::MAX);
        Some(head.at)
    }

    fn read(&mut self, at: u64, q: &Queued) -> Completion {
        let (lba, end) = self.span(&q.command);
        let ready = self.ready(at, q, &self.look_up(&q.command));
        self.read_ahead_until(ready);
        let found = self.look_up(&q.command);
        let mut service = ServiceTime { overhead: Nanos(ready - at), ..ServiceTime::default() };
        let over_bus = ready.max(self.bus_free) + self.bus(end - lba);
        if found.segment.is_none() && found.near {
            // All of it is in the write cache.
            self.free = ready;
            service.from_buffer = true;
            return self.finish(at, q, over_bus, service);
        }
        if let Some(segment) = found.segment.filter(|_| end <= found.from) {
            self.hit(ready, segment, end);
            service.from_buffer = true;
            return self.finish(at, q, over_bus, service);
        }

        // Sectors that are not in the buffer come from the medium: from the continuing stream, or after
        // positioning (what the buffer has is transferred meanwhile).
        let (segment, floor) = match found.segment {
            Some(segment) if found.near => {
                service.joined_stream = true;
                (segment, self.ahead.map_or(0, |a| a.floor))
            }
            Some(segment) => {
                // It continues a run in the buffer: a sequential reader, for which fetching more pays, but no
                // more than the length of the run.
                self.position(ready, self.place_for(q, found.from), Op::Read, &mut service);
                let run = end - self.segments.get(segment).start;
                (segment, found.from + u64::from(self.spec.buffer.minimum_fetch_sectors).min(run))
            }
            None => {
                self.position(ready, self.place_for(q, lba), Op::Read, &mut service);
                (self.segments.start(lba), 0)
            }
        };
        self.segments.touch(segment);
        let media_end = self.pass(found.from, end);
        self.segments.extend(segment, end);
        self.look_ahead(segment, end, end, floor);
        self.free = media_end;
        self.finish(at, q, over_bus.max(media_end + self.bus(1)), service)
    }

    /// A read served from the buffer alone: the look-ahead goes on, or starts.
    fn hit(&mut self, ready: u64, segment: usize, end: u64) {
        self.segments.touch(segment);
        let next = self.segments.get(segment).end;
        if self.reads_into(segment) {
            let floor = self.ahead.map_or(next, |a| a.floor);
            self.look_ahead(segment, next, end, floor);
        } else if self.ahead.is_none() && self.spec.buffer.resume_on_hit {
            self.head.at = self.head.at.max(ready);
            self.look_ahead(segment, next, end, next);
        }
        self.free = ready;
    }

    fn write(&mut self, at: u64, q: &Queued) -> Completion {
        let (lba, end) = self.span(&q.command);
        let ready = self.ready(at, q, &self.look_up(&q.command));
        self.read_ahead_until(ready);
        let mut service = ServiceTime { overhead: Nanos(ready - at), ..ServiceTime::default() };
        let over_bus = ready.max(self.bus_free) + self.bus(end - lba);
        self.segments.invalidate(lba, end);
        if self.shingles.is_some() {
            let mut from = lba;
            while from < end {
                let start = if from == lba { ready } else { self.head.at };
                from = self.write_medium(start, from, end, &mut service);
            }
        } else {
            self.position(ready, self.place_for(q, lba), Op::Write, &mut service);
            self.pass(lba, end);
        }
        let media_end = self.head.at;
        self.write_time += media_end - ready;
        self.free = media_end.max(over_bus);
        if !self.cache.is_empty() {
            self.cache.remove(lba, end, 0);
        }
        self.finish(at, q, over_bus.max(media_end), service)
    }

    /// Lets sectors pass under the heads. Returns when the last one has passed.
    fn pass(&mut self, from: u64, end: u64) -> u64 {
        let mut head = self.head;
        self.geometry().sweep(&mut head, from, end, u64::MAX);
        self.head = head;
        self.passed = end;
        head.at
    }

    /// Whether the look-ahead is filling this segment.
    fn reads_into(&self, segment: usize) -> bool {
        self.ahead.is_some_and(|a| a.segment == segment)
    }

    /// From `next` on the heads read ahead, as far past `asked` as the drive does.
    fn look_ahead(&mut self, segment: usize, next: u64, asked: u64, floor: u64) {
        let reach = u64::from(self.spec.buffer.look_ahead_sectors);
        let mut limit = asked + reach;
        if let Some(tracks) = self.spec.buffer.look_ahead_tracks {
            let mut end = asked.saturating_sub(1);
            for _ in 0..=tracks {
                end = if end < self.sectors() { self.geometry().track_end(end) } else { end };
            }
            limit = limit.min(end);
        }
        let limit = limit.max(floor).min(self.sectors());
        self.ahead = (next < limit).then_some(LookAhead { segment, next, limit, floor });
    }

    /// Breaks off any look-ahead and moves the heads over a sector. Returns when it comes round.
    fn position(&mut self, ready: u64, place: Place, op: Op, service: &mut ServiceTime) {
        self.ahead = None;
        debug_assert!(self.head.at <= ready, "the heads are where they were when the command was taken up");
        let arm = self.geometry().move_time(self.head.track, place.track) + self.settle(op);
        let rotation = self.geometry().wait(ready + arm, &place);
        service.seek = Nanos(arm);
        service.rotation = Nanos(rotation);
        service.seek_distance = self.head.track.cylinder.abs_diff(place.track.cylinder);
        self.head = Head { track: place.track, at: ready + arm + rotation };
    }

    fn finish(&mut self, at: u64, q: &Queued, finished: u64, mut service: ServiceTime) -> Completion {
        self.bus_free = finished;
        let so_far = service.overhead + service.seek + service.rotation;
        service.transfer = Nanos(finished - at) - so_far;
        self.completion(at, q, finished, service)
    }

    fn completion(&self, at: u64, q: &Queued, finished: u64, service: ServiceTime) -> Completion {
        let Command { id, op, lba, sectors } = q.command;
        Completion {
            id,
            op,
            lba,
            sectors,
            arrived: Nanos(q.arrived),
            started: Nanos(at),
            finished: Nanos(finished),
            service,
        }
    }
}
