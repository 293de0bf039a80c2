//! The running disk. Commands go in with the time of their arrival, completions come out with theirs.
//!
//! The next command is chosen when the mechanism becomes free, among those that have arrived. An idle disk
//! reads on behind its last read until a command needs the heads elsewhere.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use seekless_base::{Lba, Nanos, SECTOR_BYTES};

use crate::platter::DataSheet;
use crate::platter::buffer::{BLOCK, Pool};
use crate::platter::spiral::Spiral;

/// How much sooner a waiting command is chosen: ms of positioning for each second of its wait (the weight of
/// aged shortest-positioning-time-first; Worthington, Ganger and Patt, "Scheduling algorithms for modern disk
/// drives", 1994).
const AGED_MS_PER_S: f64 = 6.0;

/// Share of the buffer that look-ahead behind one read may fill.
const AHEAD_SHARE: u64 = 16;

/// A command of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// The host's number for it.
    pub id: u64,
    /// Whether it writes.
    pub write: bool,
    /// First sector.
    pub lba: Lba,
    /// 512-byte sectors, at least 1.
    pub sectors: u32,
}

/// The completion of a command. `command + seek + rotation + transfer` is `finished - started`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// The command.
    pub asked: Command,
    /// When it arrived.
    pub arrived: Nanos,
    /// When it was chosen.
    pub started: Nanos,
    /// When the host had it.
    pub finished: Nanos,
    /// The electronics' part.
    pub command: Nanos,
    /// Moving the heads.
    pub seek: Nanos,
    /// Waiting for the sector.
    pub rotation: Nanos,
    /// The rest.
    pub transfer: Nanos,
    /// Tracks crossed.
    pub distance: u32,
    /// Whether nothing of it came from the medium.
    pub from_buffer: bool,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    command: Command,
    arrived: u64,
}

/// The look-ahead: `from` passed under the heads at `since`, `limit` is its end.
#[derive(Clone, Copy, Debug)]
struct Ahead {
    /// The start of this run of sectors, so that completed blocks are kept whole.
    run: u64,
    from: u64,
    since: u64,
    limit: u64,
}

/// A disk made from a data sheet.
#[derive(Clone, Debug)]
pub struct Platter {
    sheet: DataSheet,
    spiral: Spiral,
    pool: Pool,
    clock: u64,
    waiting: Vec<Waiting>,
    done: VecDeque<Done>,
    /// When the mechanism becomes free.
    free: u64,
    bus_free: u64,
    /// The track under the heads.
    track: f64,
    ahead: Option<Ahead>,
}

impl Platter {
    /// An idle disk at time zero.
    ///
    /// # Errors
    /// [`DataSheet::check`]'s.
    pub fn new(sheet: &DataSheet) -> Result<Platter, alloc::string::String> {
        sheet.check()?;
        Ok(Platter {
            spiral: Spiral::new(sheet),
            pool: Pool::new(sheet.buffer.0),
            sheet: sheet.clone(),
            clock: 0,
            waiting: Vec::new(),
            done: VecDeque::new(),
            free: 0,
            bus_free: 0,
            track: 0.0,
            ahead: None,
        })
    }

    /// Its data sheet.
    pub fn sheet(&self) -> &DataSheet {
        &self.sheet
    }

    /// Number of commands whose completion was not polled.
    pub fn queue_len(&self) -> usize {
        self.waiting.len() + self.done.len()
    }

    /// A command arrives. `false`: the queue is full, and nothing changed.
    #[must_use]
    pub fn submit(&mut self, now: Nanos, command: Command) -> bool {
        if self.queue_len() >= self.sheet.queue as usize {
            return false;
        }
        self.tell(now);
        self.waiting.push(Waiting { command, arrived: self.clock });
        true
    }

    /// When [`Platter::poll`] will return the next completion, given the present queue.
    pub fn next_event(&mut self) -> Option<Nanos> {
        if self.done.is_empty() {
            self.run(self.clock);
        }
        if let Some(done) = self.done.front() {
            return Some(done.finished);
        }
        let first = self.waiting.iter().map(|w| w.arrived).min()?;
        // The choice is still open: the host must ask again when it is made.
        Some(Nanos(first.max(self.free)))
    }

    /// The next completion by `now`.
    pub fn poll(&mut self, now: Nanos) -> Option<Done> {
        self.tell(now);
        if self.done.is_empty() {
            self.run(self.clock);
        }
        self.done.front().filter(|d| d.finished.0 <= self.clock)?;
        self.done.pop_front()
    }

    fn tell(&mut self, now: Nanos) {
        self.clock = self.clock.max(now.0.min(u64::MAX / 4));
    }

    /// Carries out the next command, if it is chosen by `until`.
    fn run(&mut self, until: u64) {
        let Some(first) = self.waiting.iter().map(|w| w.arrived).min() else { return };
        let at = first.max(self.free);
        if at > until {
            return;
        }
        self.read_on(at);
        let arrived = self.waiting.iter().enumerate().filter(|(_, w)| w.arrived <= at);
        let next = arrived.map(|(i, w)| (i, self.price(at, w))).min_by(|a, b| a.1.total_cmp(&b.1));
        let Some((i, _)) = next else { return };
        let waiting = self.waiting.remove(i);
        let done = if waiting.command.write { self.write(at, waiting) } else { self.read(at, waiting) };
        self.bus_free = done.finished.0;
        self.done.push_back(done);
    }

    fn span(&self, command: &Command) -> (u64, u64) {
        let from = command.lba.0.min(self.sheet.sectors - 1);
        (from, (from + u64::from(command.sectors.max(1))).min(self.sheet.sectors))
    }

    /// What a command costs before its first sector, less what its wait is worth.
    fn price(&self, at: u64, waiting: &Waiting) -> f64 {
        let (from, end) = self.span(&waiting.command);
        let age = (at - waiting.arrived) as f64 * AGED_MS_PER_S / 1e3;
        let held = if waiting.command.write { from } else { self.pool.held_upto(from, end) };
        let coming = self.ahead.filter(|_| !waiting.command.write && self.joins(held));
        let cost = match coming {
            _ if held == end => 0.0,
            Some(ahead) => self.spiral.pass(ahead.from, held.max(ahead.from)),
            None => {
                let seek = self.spiral.seek((self.spiral.track(held) - self.track).abs());
                seek + self.spiral.wait(at as f64 + seek, held)
            }
        };
        cost - age
    }

    /// Whether the look-ahead is on the way to `sector`, or within the block that contains it, so that
    /// reading on gets there sooner than a turn would.
    fn joins(&self, sector: u64) -> bool {
        self.ahead.is_some_and(|a| a.from < sector + BLOCK && sector < a.limit)
    }

    /// Continues the look-ahead up to a time.
    fn read_on(&mut self, upto: u64) {
        let Some(ahead) = &mut self.ahead else { return };
        let reached = self.spiral.after(ahead.from, upto.saturating_sub(ahead.since) as f64).min(ahead.limit);
        self.pool.take(ahead.run, reached);
        // Blocks before that are kept; the last one may not be whole yet.
        ahead.run = ahead.run.max(reached / BLOCK * BLOCK);
        self.track = libm::floor(self.spiral.track(reached));
        (ahead.since, ahead.from) = (upto, reached);
        if reached == ahead.limit {
            self.ahead = None;
        }
    }

    fn begin(&self, at: u64, waiting: Waiting) -> (u64, Done) {
        let ready = at.max(waiting.arrived + (self.sheet.command_ms * 1e6) as u64);
        let done = Done {
            asked: waiting.command,
            arrived: Nanos(waiting.arrived),
            started: Nanos(at),
            finished: Nanos(ready),
            command: Nanos(ready - at),
            seek: Nanos::ZERO,
            rotation: Nanos::ZERO,
            transfer: Nanos::ZERO,
            distance: 0,
            from_buffer: false,
        };
        (ready, done)
    }

    /// The heads move to `sector`. Returns when it comes round.
    fn position(&mut self, ready: u64, sector: u64, done: &mut Done) -> u64 {
        self.ahead = None;
        let target = libm::floor(self.spiral.track(sector));
        let distance = (target - self.track).abs();
        let seek = self.spiral.seek(distance) as u64;
        let rotation = self.spiral.wait((ready + seek) as f64, sector) as u64;
        self.track = target;
        (done.seek, done.rotation, done.distance) = (Nanos(seek), Nanos(rotation), distance as u32);
        ready + seek + rotation
    }

    fn over_bus(&self, ready: u64, sectors: u64) -> u64 {
        let ns = sectors as f64 * SECTOR_BYTES as f64 * 1e3 / self.sheet.bus_mb_per_s;
        ready.max(self.bus_free) + ns as u64
    }

    fn finish(ready_at: u64, mut done: Done) -> Done {
        done.finished = Nanos(ready_at.max(done.started.0 + done.command.0 + done.seek.0 + done.rotation.0));
        done.transfer = done.finished - done.started - done.command - done.seek - done.rotation;
        done
    }

    fn read(&mut self, at: u64, waiting: Waiting) -> Done {
        let (from, end) = self.span(&waiting.command);
        let (ready, mut done) = self.begin(at, waiting);
        self.read_on(ready);
        let bus = self.over_bus(ready, end - from);
        let held = self.pool.held_upto(from, end);
        if held == end {
            self.pool.take(from, end);
            done.from_buffer = true;
            self.free = self.free.max(ready);
            return Self::finish(bus, done);
        }
        let joined = self.joins(held);
        let (run, media) = if let Some(ahead) = self.ahead.filter(|_| joined) {
            // It needs what comes next under the heads.
            (ahead.run, ready + self.spiral.pass(ahead.from, end.max(ahead.from)) as u64)
        } else {
            let begins = self.position(ready, held, &mut done);
            let pass = self.spiral.pass(held, end) as u64;
            let same_track = libm::floor(self.spiral.track(held)) == libm::floor(self.spiral.track(end - 1));
            let turn = self.spiral.turn as u64;
            // The heads land inside the range: the rest of it is read first, and its beginning a turn later.
            // For a range of a whole track the pass may take a turn and a rounding.
            let saved = (done.rotation.0 + pass).saturating_sub(turn).min(done.rotation.0);
            if same_track && saved > 0 {
                done.rotation = Nanos(done.rotation.0 - saved);
                (held, begins + pass - saved)
            } else {
                (held, begins + pass)
            }
        };
        self.pool.take(run, end);
        self.track = libm::floor(self.spiral.track(end.min(self.sheet.sectors - 1)));
        // A continued run gets a share of the buffer, a first read the rest of its track.
        let share = (self.pool.sectors() / AHEAD_SHARE).max(BLOCK);
        let limit = match joined || held > from {
            true => end + share,
            false => self.spiral.after(end, self.spiral.turn).min(end + share),
        };
        let run = run.max(end / BLOCK * BLOCK);
        let limit = limit.min(self.sheet.sectors);
        self.ahead = (end < limit).then_some(Ahead { run, from: end, since: media, limit });
        self.free = media;
        Self::finish(bus.max(media), done)
    }

    fn write(&mut self, at: u64, waiting: Waiting) -> Done {
        let (from, end) = self.span(&waiting.command);
        let (ready, mut done) = self.begin(at, waiting);
        self.read_on(ready);
        self.pool.forget(from, end);
        let begins = self.position(ready, from, &mut done);
        let media = begins + self.spiral.pass(from, end) as u64;
        self.track = libm::floor(self.spiral.track(end.min(self.sheet.sectors - 1)));
        self.free = media;
        Self::finish(media.max(self.over_bus(ready, end - from)), done)
    }
}
