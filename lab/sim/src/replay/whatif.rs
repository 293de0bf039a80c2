//! Runs the recorded load with other settings, memory or drive.
//!
//! Reads come at their recorded times. Whether they hit is decided again: the page cache begins empty and
//! holds `memory` bytes. A miss goes to the engine and waits for its answer; if it is passed, the server
//! reads its range by itself. Files lie where the log says, or on a smaller drive at the same fraction of its
//! surface.
//!
//! Writes that the daemon saw are written again when it saw them, and the engine is told what waits on the
//! simulated drive. A log has no flushes.
//!
//! This is a driver of [`DiskEngine`]: it translates, and has no rules of its own.

use std::collections::BTreeMap;

use seekless_base::{Bytes, Lba, Nanos, SECTOR_BYTES};
use seekless_model::drive::DriveSpec;
use seekless_policy::{
    Access, Action, Config, DiskEngine, Event, FileId, MemoryLimit, Outcome, PAGE, ReadId, Request,
    RequestId, Verdict, Writes,
};

use super::device::{Device, Read, ReadProgress};
use super::load::{Asked, Load, Outcomes, mean_and_p95};
use super::resident::Resident;

/// The changed conditions.
#[derive(Clone, Debug)]
pub struct Circumstances {
    /// Settings of the engine.
    pub config: Config,
    /// Page cache, bytes.
    pub memory: Bytes,
    /// Whether the memory is as recorded, in place of a constant `memory`.
    pub recorded_memory: bool,
    /// The drive.
    pub drive: DriveSpec,
}

impl Circumstances {
    fn engine_config(&self) -> Config {
        let then = self.config.memory;
        let memory = if self.recorded_memory { then } else { MemoryLimit { bytes: self.memory, ..then } };
        Config { memory, ..self.config.clone() }
    }
}

/// Maximum bytes of one report that are written: no drive writes more between two reports.
const WRITTEN_MAX: u64 = 1 << 30;
/// Time between two reports of progress alone, as in the daemon.
const PROGRESS_EVERY: Nanos = Nanos::from_millis(20);

/// The purpose of a read of the disk.
#[derive(Clone, Copy, Debug)]
enum For {
    Engine(ReadId),
    /// The server's own read, for this request.
    Server(RequestId),
}

/// A waiting read of a server.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    at: Nanos,
    read: Access,
    access: bool,
}

struct World {
    engine: DiskEngine,
    device: Device<For>,
    resident: Resident,
    waiting: BTreeMap<RequestId, Waiting>,
    next_request: u64,
    waits: Vec<f64>,
    outcomes: Outcomes,
    busy: Nanos,
    at: Nanos,
    /// The last report of writes: its time, whether any waited, and bytes written by then.
    reported: (Nanos, bool, u64),
}

/// Runs a load under other conditions.
pub fn run(load: &Load, circumstances: &Circumstances) -> Outcomes {
    let end_of = |a: &Asked| a.read.lba.map_or(0, |l| l.0 + a.read.len / SECTOR_BYTES);
    let mut world = World {
        engine: DiskEngine::new(circumstances.engine_config()),
        device: Device::new(&circumstances.drive, load.asked.iter().map(end_of).max().unwrap_or(0)),
        resident: Resident::new(circumstances.memory.0),
        waiting: BTreeMap::new(),
        next_request: 0,
        waits: vec![],
        outcomes: Outcomes::default(),
        busy: Nanos::ZERO,
        at: Nanos::ZERO,
        reported: (Nanos::ZERO, false, 0),
    };
    let mut asked = load.asked.iter().peekable();
    let mut told = load.told.iter().peekable();
    loop {
        let next_asked = asked.peek().map(|a| a.at);
        let next_told = told.peek().map(|t| t.0);
        // Timers go on for as long as streams are remembered; without clients none of them matters.
        let alive = next_asked.is_some() || !world.waiting.is_empty();
        let tick = world.engine.next_deadline().filter(|_| alive);
        let Some(now) = [next_asked, next_told, world.device.next_done(), tick].into_iter().flatten().min()
        else {
            break;
        };
        let now = now.max(world.at);
        if !world.device.is_idle() {
            world.busy += now.since(world.at);
        }
        world.at = now;
        if world.device.next_done().is_some_and(|t| t <= now) {
            world.disk_done(now);
        } else if next_told.is_some_and(|t| t <= now) {
            if let Some((_, event)) = told.next() {
                let event = match *event {
                    Event::Writes(writes) => world.write(now, writes),
                    Event::MemoryLimit(limit) if !circumstances.recorded_memory => {
                        Event::MemoryLimit(MemoryLimit { bytes: circumstances.memory, ..limit })
                    }
                    event => event,
                };
                world.engine.handle(now, event);
            }
        } else if next_asked.is_some_and(|t| t <= now) {
            if let Some(a) = asked.next() {
                world.ask(now, a);
            }
        } else {
            world.engine.handle(now, Event::Tick);
        }
        world.act(now);
    }
    let mut outcomes = world.outcomes;
    outcomes.written_bytes = world.device.written();
    outcomes.waited = world.waits.len() as u64;
    outcomes.wait_ms = mean_and_p95(&mut world.waits);
    outcomes.span_s = world.at.as_secs_f64();
    outcomes.busy = Some(world.busy.as_secs_f64() / outcomes.span_s.max(1e-9));
    outcomes
}

impl World {
    /// Writes what was written at that time. Returns the report for the engine.
    fn write(&mut self, now: Nanos, writes: Writes) -> Event {
        self.device.write(now, writes.bytes.min(WRITTEN_MAX));
        self.report(now)
    }

    fn report(&mut self, now: Nanos) -> Event {
        let (waiting, written) = (self.device.writes(), self.device.written());
        let bytes = written - self.reported.2;
        self.reported = (now, waiting > 0, written);
        Event::Writes(Writes { waiting, bytes })
    }

    /// A server reads.
    fn ask(&mut self, now: Nanos, asked: &Asked) {
        let Asked { read, access, demand, .. } = *asked;
        self.outcomes.reads += 1;
        let Some(missing) = self.resident.first_missing(read.file, read.offset, read.len) else {
            self.resident.touch(read.file, read.offset, read.len);
            // The log has accesses only of open files.
            self.engine.handle(now, Event::Opened { file: read.file });
            self.engine.handle(now, Event::Access(read));
            return;
        };
        self.next_request += 1;
        let id = RequestId(self.next_request);
        self.waiting.insert(id, Waiting { at: now, read, access });
        let len = read.offset + read.len - missing;
        let lba = read.lba.map(|l| l.plus_bytes(missing - read.offset));
        let Access { file, file_size, .. } = read;
        let request = Request { id, file, from: read.offset, offset: missing, len, file_size, lba, demand };
        self.engine.handle(now, Event::Request(request));
    }

    fn act(&mut self, now: Nanos) {
        let mut holes = Vec::new();
        while let Some(action) = self.engine.poll_action() {
            match action {
                Action::Read { id, file, offset, len, lba } => {
                    self.read(now, For::Engine(id), file, offset, len, lba);
                }
                Action::Drop { file, offset, len } => self.resident.drop_range(file, offset, len),
                Action::Probe { file, offset, len } => {
                    if let Some(hole) = self.resident.first_missing(file, offset, len) {
                        holes.push(Event::Missing { file, offset: hole, len: PAGE.min(offset + len - hole) });
                    }
                }
                // Every file is open here.
                Action::Close { .. } => {}
                Action::Answer { request, verdict } => self.answered(now, request, verdict),
            }
        }
        for hole in holes {
            self.engine.handle(now, hole);
            self.act(now);
        }
    }

    fn answered(&mut self, now: Nanos, id: RequestId, verdict: Verdict) {
        let Some(waiting) = self.waiting.get(&id).copied() else { return };
        let Access { file, offset, len, lba, .. } = waiting.read;
        let missing = self.resident.first_missing(file, offset, len);
        match (verdict, missing) {
            // Passed, or longer than the engine reads at once: the server reads the missing bytes itself.
            (_, Some(from)) => {
                let lba = lba.map(|l| l.plus_bytes(from - offset));
                self.read(now, For::Server(id), file, from, offset + len - from, lba);
            }
            (Verdict::Resident | Verdict::Pass(_), None) => self.served(now, id),
        }
    }

    /// A server's read has ended.
    fn served(&mut self, now: Nanos, id: RequestId) {
        let Some(waiting) = self.waiting.remove(&id) else { return };
        self.waits.push(now.since(waiting.at).as_millis_f64());
        let Access { file, offset, len, .. } = waiting.read;
        self.resident.touch(file, offset, len);
        if waiting.access {
            self.engine.handle(now, Event::Access(waiting.read));
        }
    }

    fn read(&mut self, now: Nanos, what_for: For, file: FileId, offset: u64, len: u64, lba: Option<Lba>) {
        self.outcomes.disk_reads += 1;
        self.outcomes.disk_bytes += len;
        self.device.read(now, Read { what_for, file, offset, len }, lba);
    }

    fn disk_done(&mut self, now: Nanos) {
        for ReadProgress { read, from, upto, complete } in self.device.poll(now) {
            self.resident.touch(read.file, from, upto - from);
            match read.what_for {
                For::Engine(read) if complete => {
                    self.engine.handle(now, Event::Done { read, outcome: Outcome::Ok });
                }
                For::Engine(read) if upto > from => {
                    self.engine.handle(now, Event::Progress { read, upto });
                }
                For::Server(request) if complete => self.served(now, request),
                For::Engine(_) | For::Server(_) => {}
            }
        }
        let (at, waited, written) = self.reported;
        let more = self.device.written() > written && now >= at + PROGRESS_EVERY;
        if more || waited != (self.device.writes() > 0) {
            let report = self.report(now);
            self.engine.handle(now, report);
        }
    }
}
