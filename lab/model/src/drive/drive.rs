//! The drive in motion: queue, mechanism, buffer and bus, driven by time as an argument.
//!
//! The drive decides what to do next when its mechanism comes free, among the commands that had arrived by
//! then, and at the next arrival if there were none. These instants belong to the drive's own time: a host
//! that polls late gets its completions late, but the drive went on working meanwhile. After a read the heads
//! go on along the track (look-ahead) until something else is to be done, the segment is full, or the limit
//! is reached; a read that finds its sectors in the buffer is served at bus speed, and one that continues the
//! stream joins it without waiting for another turn of the platter.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use seekless_base::{Bytes, Lba, Nanos, SECTOR_BYTES};

use crate::drive::buffer::Segments;
use crate::drive::command::{Command, Completion, Op, QueueFull, ServiceTime};
use crate::drive::geometry::{Geometry, Head, Place, Track};
use crate::drive::spec::{DriveSpec, Order};

/// A hard disk in motion.
#[derive(Clone, Debug)]
pub struct Drive {
    spec: Arc<DriveSpec>,
    times: Times,
    /// Latest time the host has told us.
    clock: u64,
    queue: Vec<Queued>,
    done: VecDeque<Completion>,
    /// From when on the mechanism can take up another command.
    free: u64,
    /// From when on the bus can carry another transfer.
    bus_free: u64,
    head: Head,
    segments: Segments,
    ahead: Option<LookAhead>,
    /// Until when the choice of the next command is put off, for a fetch that will not be broken off.
    put_off: Option<u64>,
    arrivals: u64,
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
    /// Where its first sector is.
    place: Place,
    arrived: u64,
    order: u64,
}

/// What the buffer has of a command.
#[derive(Clone, Copy, Debug)]
struct LookUp {
    /// The segment that holds its first sector or ends just before it.
    segment: Option<usize>,
    /// It needs no positioning: all of it is in the buffer, or it joins what comes next under the heads.
    near: bool,
    /// Its first sector is in the buffer or comes next under the heads.
    begun: bool,
    /// The first sector that must come from the medium.
    from: u64,
}

/// The heads reading on for the buffer's sake.
#[derive(Clone, Copy, Debug)]
struct LookAhead {
    segment: usize,
    /// First sector not read yet.
    next: u64,
    /// Where it stops of its own accord.
    limit: u64,
    /// Up to where it will not be broken off.
    floor: u64,
}

impl Drive {
    /// A drive at rest at time zero, its heads over the outermost track, its buffer empty.
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

    /// Commands submitted whose completion has not been polled yet: each occupies a place in the queue, as a
    /// tag does until its completion has been seen.
    pub fn queue_len(&self) -> usize {
        self.queue.len() + self.done.len()
    }

    /// A command arrives at `now`. Time must not go backwards; a `now` before one already told counts as that
    /// one.
    ///
    /// # Errors
    /// [`QueueFull`] when [`DriveSpec::queue`]'s depth is reached; nothing has changed then.
    pub fn submit(&mut self, now: Nanos, command: Command) -> Result<(), QueueFull> {
        if self.queue_len() >= self.spec.queue.depth.max(1) as usize {
            return Err(QueueFull);
        }
        self.tell(now);
        self.arrivals += 1;
        // What was put off is reconsidered: the newcomer may be in the buffer.
        self.put_off = self.put_off.map(|t| t.min(self.clock));
        let place = self.place(command.lba.0);
        self.queue.push(Queued { command, place, arrived: self.clock, order: self.arrivals });
        Ok(())
    }

    /// When [`Drive::poll`] will yield the next completion, given what is queued now; nothing if nothing is.
    pub fn next_completion(&mut self) -> Option<Nanos> {
        if let Some(front) = self.done.front() {
            return Some(front.finished);
        }
        if self.run_next(self.clock) {
            return self.done.front().map(|c| c.finished);
        }
        // Nothing is queued, or the choice is still open and a command that arrives before then may be
        // nearer: look forward on a copy.
        if self.queue.is_empty() {
            return None;
        }
        let mut copy = self.clone();
        copy.run_next(u64::MAX);
        copy.done.front().map(|c| c.finished)
    }

    /// The next completion that has finished by `now`. Call it until it yields nothing.
    pub fn poll(&mut self, now: Nanos) -> Option<Completion> {
        self.tell(now);
        if self.done.is_empty() {
            self.run_next(self.clock);
        }
        if self.done.front()?.finished.0 > self.clock {
            return None;
        }
        self.done.pop_front()
    }

    fn tell(&mut self, now: Nanos) {
        // A quarter of the range is 146 years: beyond it sums could overflow, so time stands still there.
        self.clock = self.clock.max(now.0.min(u64::MAX / 4));
    }

    fn geometry(&self) -> &Geometry {
        &self.spec.geometry
    }

    /// Chooses the next command and carries it out, if the time of the choice is not after `until`. Whether
    /// it did.
    fn run_next(&mut self, until: u64) -> bool {
        loop {
            let Some(earliest) = self.queue.iter().map(|q| q.arrived).min() else { return false };
            let at = earliest.max(self.free).max(self.put_off.unwrap_or(0));
            if at > until {
                return false;
            }
            self.read_ahead_until(at);
            let (index, near) = self.choose(at);
            // A fetch that will not be broken off delays every jump, and with it the choice: what arrives
            // meanwhile may be nearer, or in the buffer.
            if let Some(end) = self.fetch_end().filter(|&t| !near && t > at) {
                let next_arrival = self.queue.iter().map(|q| q.arrived).filter(|&a| a > at).min();
                self.put_off = Some(next_arrival.map_or(end, |a| a.min(end)));
                continue;
            }
            let queued = self.queue.swap_remove(index);
            let completion = match queued.command.op {
                Op::Read => self.read(at, &queued),
                Op::Write => self.write(at, &queued),
            };
            self.put_off = None;
            self.done.push_back(completion);
            return true;
        }
    }

    /// Index of the command to take up at `at`, and whether it needs no positioning.
    fn choose(&self, at: u64) -> (usize, bool) {
        let arrived = || self.queue.iter().enumerate().filter(move |(_, q)| q.arrived <= at);
        let Some((oldest, q)) = arrived().min_by_key(|(_, q)| q.order) else { return (0, true) };
        let overdue = at.saturating_sub(q.arrived) >= self.times.age_max;
        let near = self.look_up(&q.command).near;
        // Nothing costs less than a near command, and of equals the oldest goes first.
        if near || overdue || self.spec.queue.order == Order::Fifo || self.queue.len() == 1 {
            return (oldest, near);
        }
        let costs = arrived().map(|(i, q)| {
            let found = self.look_up(&q.command);
            let cost = if found.near { 0 } else { self.positioning(at, q, &found) };
            (cost, q.order, i, found.near)
        });
        costs.min().map_or((oldest, true), |(_, _, i, near)| (i, near))
    }

    /// What the buffer has of a command.
    fn look_up(&self, command: &Command) -> LookUp {
        let (lba, end) = self.span(command);
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

    /// Time from `at` until the first sector a command needs from the medium is under the heads.
    fn positioning(&self, at: u64, q: &Queued, found: &LookUp) -> u64 {
        let ready = self.ready(at, q, found);
        let place = self.place_for(q, found.from);
        let arm = self.geometry().move_time(self.head.track, place.track) + self.settle(q.command.op);
        ready - at + arm + self.geometry().wait(ready + arm, &place)
    }

    /// Where an address is that a command begins or goes on at.
    fn place_for(&self, q: &Queued, lba: u64) -> Place {
        if lba == q.command.lba.0 { q.place } else { self.place(lba) }
    }

    /// Where an address is, cut to the drive.
    fn place(&self, lba: u64) -> Place {
        self.geometry().place(lba.min(self.sectors() - 1))
    }

    fn settle(&self, op: Op) -> u64 {
        if op == Op::Write { self.spec.write_settle } else { 0 }
    }

    /// When the electronics are done with a command: their work runs from its arrival on, beside the
    /// mechanism's work on another command.
    fn ready(&self, at: u64, q: &Queued, found: &LookUp) -> u64 {
        let overhead = match q.command.op {
            Op::Write => self.times.write,
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

    /// When the look-ahead may be broken off, if it may not yet.
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
        if let Some(segment) = found.segment.filter(|_| end <= found.from) {
            self.hit(ready, segment, end);
            service.from_buffer = true;
            return self.finish(at, q, over_bus, service);
        }

        // What the buffer does not have comes from the medium: on from the stream, or after positioning (what
        // the buffer has goes out meanwhile).
        let (segment, floor) = match found.segment {
            Some(segment) if found.near => {
                service.joined_stream = true;
                (segment, self.ahead.map_or(0, |a| a.floor))
            }
            Some(segment) => {
                // It continues a run in the buffer: a sequential reader, worth fetching more for, but no more
                // than the run has been long.
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

    /// A read served from the buffer alone: the mechanism goes on reading ahead, or starts to.
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
        self.position(ready, self.place_for(q, lba), Op::Write, &mut service);
        let media_end = self.pass(lba, end);
        self.free = media_end.max(over_bus);
        if self.spec.buffer.write_back {
            service.seek = Nanos::ZERO;
            service.rotation = Nanos::ZERO;
            return self.finish(at, q, over_bus, service);
        }
        self.finish(at, q, over_bus.max(media_end), service)
    }

    /// Lets sectors pass under the heads; the time the last one has.
    fn pass(&mut self, from: u64, end: u64) -> u64 {
        let mut head = self.head;
        self.geometry().sweep(&mut head, from, end, u64::MAX);
        self.head = head;
        head.at
    }

    /// Whether the look-ahead is filling this segment.
    fn reads_into(&self, segment: usize) -> bool {
        self.ahead.is_some_and(|a| a.segment == segment)
    }

    /// From `next` on the heads read for the buffer, as far past `asked` as the drive does.
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

    /// Breaks off any look-ahead and brings the heads over a sector; they are there when it comes round.
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
