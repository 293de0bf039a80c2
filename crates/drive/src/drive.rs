//! The drive in motion: queue, mechanism, buffer and bus, driven by time as an argument.
//!
//! The drive decides what to do next when its mechanism comes free, among the commands that had arrived by then, and
//! at the next arrival if there were none. These instants belong to the drive's own time: a host that polls late
//! gets its completions late, but the drive went on working meanwhile. After a read the heads go on along the track
//! (look-ahead) until something else is to be done, the segment is full, or the limit is reached; a read that finds
//! its sectors in the buffer is served at bus speed, and one that continues the stream joins it without waiting for
//! another turn of the platter.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use seekless_units::{Bytes, Lba, Nanos, SECTOR_BYTES};

use crate::buffer::Segments;
use crate::command::{Command, Completion, Op, QueueFull, ServiceTime};
use crate::geometry::{Geometry, Head, Track};
use crate::spec::{DriveSpec, Order};

/// A hard disk in motion.
#[derive(Clone, Debug)]
pub struct Drive {
    spec: DriveSpec,
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
    arrived: u64,
    order: u64,
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
            spec: spec.clone(),
            times,
            clock: 0,
            queue: Vec::new(),
            done: VecDeque::new(),
            free: 0,
            bus_free: 0,
            head: Head { track: Track { cylinder: 0, head: 0 }, at: 0 },
            ahead: None,
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

    /// Commands submitted whose completion has not been polled yet: each occupies a place in the queue, as a tag does
    /// until its completion has been seen.
    pub fn queue_len(&self) -> usize {
        self.queue.len() + self.done.len()
    }

    /// A command arrives at `now`. Time must not go backwards; a `now` before one already told counts as that one.
    ///
    /// # Errors
    /// [`QueueFull`] when [`DriveSpec::queue`]'s depth is reached; nothing has changed then.
    pub fn submit(&mut self, now: Nanos, command: Command) -> Result<(), QueueFull> {
        if self.queue_len() >= self.spec.queue.depth.max(1) as usize {
            return Err(QueueFull);
        }
        self.tell(now);
        self.arrivals += 1;
        self.queue.push(Queued { command, arrived: self.clock, order: self.arrivals });
        Ok(())
    }

    /// When [`Drive::poll`] will yield the next completion, given what is queued now; nothing if nothing is.
    pub fn next_completion(&mut self) -> Option<Nanos> {
        if let Some(front) = self.done.front() {
            return Some(front.finished);
        }
        let decision = self.next_decision()?;
        if decision <= self.clock {
            self.run_next();
            return self.done.front().map(|c| c.finished);
        }
        // The choice is still open: a command that arrives before then may be nearer. Look ahead on a copy.
        let mut copy = self.clone();
        copy.run_next();
        copy.done.front().map(|c| c.finished)
    }

    /// The next completion that has finished by `now`. Call it until it yields nothing.
    pub fn poll(&mut self, now: Nanos) -> Option<Completion> {
        self.tell(now);
        if self.done.is_empty() && self.next_decision().is_some_and(|d| d <= self.clock) {
            self.run_next();
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

    /// When the next command will be chosen.
    fn next_decision(&self) -> Option<u64> {
        let earliest = self.queue.iter().map(|q| q.arrived).min()?;
        Some(earliest.max(self.free))
    }

    /// Chooses the next command and carries it out.
    fn run_next(&mut self) {
        let Some(mut at) = self.next_decision() else { return };
        loop {
            self.read_ahead_until(at);
            let (index, hit) = self.choose(at);
            // A fetch that will not be broken off delays every jump, and with it the choice: what arrives meanwhile
            // may be nearer, or in the buffer.
            let bound = if hit { None } else { self.floor_time().filter(|&t| t > at) };
            let Some(bound) = bound else {
                let queued = self.queue.swap_remove(index);
                let completion = match queued.command.op {
                    Op::Read => self.read(at, &queued),
                    Op::Write => self.write(at, &queued),
                };
                self.done.push_back(completion);
                return;
            };
            let next_arrival = self.queue.iter().map(|q| q.arrived).filter(|&a| a > at).min();
            at = next_arrival.map_or(bound, |a| a.min(bound));
        }
    }

    /// Index of the command to take up at `at`, and whether the buffer or the stream under the heads has its start.
    fn choose(&self, at: u64) -> (usize, bool) {
        let arrived = || self.queue.iter().enumerate().filter(move |(_, q)| q.arrived <= at);
        let oldest = arrived().min_by_key(|(_, q)| q.order);
        let Some((first, q)) = oldest else { return (0, true) };
        let overdue = at.saturating_sub(q.arrived) >= self.times.age_max;
        if overdue || self.spec.queue.order == Order::Fifo || self.queue.len() == 1 {
            return (first, self.is_near(&q.command));
        }
        let best = arrived().map(|(i, q)| (self.positioning(at, q), q.order, i)).min();
        let Some((_, _, i)) = best else { return (first, true) };
        (i, self.is_near(&self.queue[i].command))
    }

    /// Whether a command can start without positioning: it reads what is in the buffer, or what comes next under the
    /// heads.
    fn is_near(&self, command: &Command) -> bool {
        if command.op == Op::Write {
            return false;
        }
        self.segments.find(command.lba.0).is_some_and(|i| {
            command.lba.0 < self.segments.get(i).end || self.ahead.is_some_and(|a| a.segment == i)
        })
    }

    /// Time from `at` until a command's first sector is under the heads or in the buffer.
    fn positioning(&self, at: u64, q: &Queued) -> u64 {
        if self.is_near(&q.command) {
            return 0;
        }
        let ready = self.ready(at, q, self.miss_overhead(q.command.op));
        let lba = q.command.lba.0.min(self.sectors() - 1);
        let place = self.geometry().place(lba);
        let arm = self.geometry().move_time(self.head.track, place.track) + self.settle(q.command.op);
        ready - at + arm + self.geometry().wait(ready + arm, &place)
    }

    fn miss_overhead(&self, op: Op) -> u64 {
        if op == Op::Read { self.times.read_miss } else { self.times.write }
    }

    fn settle(&self, op: Op) -> u64 {
        if op == Op::Write { self.spec.write_settle } else { 0 }
    }

    /// Command processing runs from arrival on, beside the mechanism's work on another command.
    fn ready(&self, at: u64, q: &Queued, overhead: u64) -> u64 {
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
    fn floor_time(&self) -> Option<u64> {
        let ahead = self.ahead.filter(|a| a.next < a.floor)?;
        let mut head = self.head;
        self.geometry().sweep(&mut head, ahead.next, ahead.floor.min(ahead.limit), u64::MAX);
        Some(head.at)
    }

    fn read(&mut self, at: u64, q: &Queued) -> Completion {
        let lba = q.command.lba.0.min(self.sectors());
        let end = (lba + u64::from(q.command.sectors.max(1))).min(self.sectors());
        let sectors = end - lba;
        let near = self.is_near(&q.command);
        let overhead = if near { self.times.read_hit } else { self.times.read_miss };
        let ready = self.ready(at, q, overhead);
        self.read_ahead_until(ready);
        let mut service = ServiceTime { overhead: Nanos(ready - at), ..ServiceTime::default() };
        let over_bus = ready.max(self.bus_free) + self.bus(sectors);
        let found = self.segments.find(lba).filter(|&i| lba < self.segments.get(i).end || self.reads_into(i));

        if let Some(segment) = found.filter(|&i| end <= self.segments.get(i).end) {
            self.segments.touch(segment);
            if self.reads_into(segment) || (self.ahead.is_none() && self.spec.buffer.resume_on_hit) {
                let next = self.segments.get(segment).end;
                let floor = self.ahead.map_or(next, |a| a.floor);
                self.look_ahead(segment, next, end, floor);
            }
            self.free = ready;
            service.from_buffer = true;
            return self.finish(at, q, over_bus, service);
        }

        // The rest comes from the medium: on from the stream, or after positioning.
        let (segment, from, floor) = match found {
            Some(segment) if self.reads_into(segment) => {
                service.joined_stream = true;
                let floor = self.ahead.map_or(0, |a| a.floor);
                (segment, self.segments.get(segment).end, floor)
            }
            _ => {
                // What the buffer has of it goes out while the arm moves to the rest.
                let from = found.map_or(lba, |i| self.segments.get(i).end);
                let segment = self.segments.find(from).unwrap_or_else(|| self.segments.start(from));
                self.position(ready, from, Op::Read, &mut service);
                (segment, from, from + u64::from(self.spec.buffer.minimum_fetch_sectors))
            }
        };
        self.segments.touch(segment);
        let mut head = self.head;
        self.geometry().sweep(&mut head, from, end, u64::MAX);
        self.head = head;
        self.segments.extend(segment, end);
        let media_end = head.at.max(ready);
        self.look_ahead(segment, end, end, floor);
        self.free = media_end;
        self.finish(at, q, over_bus.max(media_end + self.bus(1.min(sectors))), service)
    }

    fn write(&mut self, at: u64, q: &Queued) -> Completion {
        let lba = q.command.lba.0.min(self.sectors());
        let end = (lba + u64::from(q.command.sectors.max(1))).min(self.sectors());
        let ready = self.ready(at, q, self.times.write);
        self.read_ahead_until(ready);
        let mut service = ServiceTime { overhead: Nanos(ready - at), ..ServiceTime::default() };
        let over_bus = ready.max(self.bus_free) + self.bus(end - lba);
        self.segments.invalidate(lba, end);
        self.position(ready, lba, Op::Write, &mut service);
        let mut head = self.head;
        self.geometry().sweep(&mut head, lba, end, u64::MAX);
        self.head = head;
        let media_end = head.at.max(ready);
        self.free = media_end.max(over_bus);
        if self.spec.buffer.write_back {
            service.seek = Nanos::ZERO;
            service.rotation = Nanos::ZERO;
            return self.finish(at, q, over_bus, service);
        }
        self.finish(at, q, over_bus.max(media_end), service)
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
    fn position(&mut self, ready: u64, lba: u64, op: Op, service: &mut ServiceTime) {
        self.ahead = None;
        let place = self.geometry().place(lba.min(self.sectors() - 1));
        let start = ready.max(self.head.at);
        let arm = self.geometry().move_time(self.head.track, place.track) + self.settle(op);
        let rotation = self.geometry().wait(start + arm, &place);
        service.overhead += Nanos(start - ready);
        service.seek = Nanos(arm);
        service.rotation = Nanos(rotation);
        service.seek_distance = self.head.track.cylinder.abs_diff(place.track.cylinder);
        self.head = Head { track: place.track, at: start + arm + rotation };
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
