//! What if: the recorded load under other settings, in another memory, on another drive.
//!
//! Requests (reads that missed) and accesses (reads that did not have to wait, or had waited) come when they came. Whether
//! they hit is decided anew: the page cache begins empty and holds `memory` bytes. A miss goes to the engine and waits for
//! its answer; one that is passed is read by the server itself, as much as it asked for. Files lie where the log says;
//! of a smaller drive, at the same share of its surface.

use std::collections::{BTreeMap, VecDeque};

use seekless_drive::{Command, Drive, DriveSpec, Op};
use seekless_policy::record::Entry;
use seekless_policy::{
    Access, Action, Config, Demand, DiskEngine, Event, FileId, MemoryLimit, Outcome, PAGE, ReadId, Request,
    RequestId, Taken, Verdict,
};
use seekless_units::{Bytes, Fault, Lba, Nanos, SECTOR_BYTES};

use super::Log;
use super::resident::Resident;

/// One command to the drive at most, as Linux' block layer cuts large reads.
const COMMAND_BYTES: u64 = 1 << 20;
/// Reads longer than this are cut: a record of more is a misread one.
const READ_BYTES_MAX: u64 = 1 << 30;
/// A read of the log: when, and of what.
#[derive(Clone, Copy, Debug)]
struct Asked {
    at: Nanos,
    read: Access,
    /// Told as an access, which the spindle follows streams by.
    access: bool,
    demand: Demand,
}

/// The load of one disk.
#[derive(Clone, Debug)]
pub struct Load {
    /// The disk's name.
    pub name: String,
    /// The settings it had.
    pub config: Config,
    asked: Vec<Asked>,
    /// Memory and bitrates it was told of.
    told: Vec<(Nanos, Event)>,
    /// What was measured then.
    pub then: Outcomes,
}

/// How it went.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcomes {
    /// Reads of servers.
    pub reads: u64,
    /// Of these, such as had to wait.
    pub waited: u64,
    /// Mean and 95th percentile of the wait of those that had to, milliseconds.
    pub wait_ms: (f64, f64),
    /// Reads of the disk.
    pub disk_reads: u64,
    /// Bytes read from it.
    pub disk_bytes: u64,
    /// Share of the time in which it had something to do; nothing where it was not measured.
    pub busy: Option<f64>,
    /// From the first to the last read, seconds.
    pub span_s: f64,
}

/// The other circumstances.
#[derive(Clone, Debug)]
pub struct Circumstances {
    /// Settings of the engine.
    pub config: Config,
    /// Page cache, bytes.
    pub memory: Bytes,
    /// Whether the memory is as recorded, instead of `memory` throughout.
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

/// Takes the load of every disk out of a log.
///
/// # Errors
/// The log cannot be read.
pub fn loads(log: &mut Log) -> Result<Vec<Load>, Fault> {
    struct Taking {
        load: Load,
        waiting: BTreeMap<RequestId, Nanos>,
        waits: Vec<f64>,
    }
    let mut disks: BTreeMap<u32, Taking> = BTreeMap::new();
    while let Some(line) = log.next_line()? {
        if let Entry::Disk { name, config } = line.entry {
            let load = Load { name, config: *config, asked: vec![], told: vec![], then: Outcomes::default() };
            disks.insert(line.disk, Taking { load, waiting: BTreeMap::new(), waits: vec![] });
            continue;
        }
        let Some(disk) = disks.get_mut(&line.disk) else { continue };
        let then = &mut disk.load.then;
        match line.entry {
            Entry::Event(Event::Request(r)) => {
                let Request { id, file, len, file_size, lba, demand, .. } = r;
                let offset = r.from.min(r.offset);
                let (found, whole) = (r.offset.saturating_sub(offset), file_size.saturating_sub(offset));
                let len =
                    if len == 0 { whole } else { len.saturating_add(found).min(whole) }.min(READ_BYTES_MAX);
                let lba = lba.map(|l| Lba(l.0.saturating_sub(found / SECTOR_BYTES)));
                disk.waiting.insert(id, line.at);
                let read = Access { file, offset, len, file_size, lba, taken: Taken::All };
                disk.load.asked.push(Asked { at: line.at, read, access: false, demand });
                then.reads += 1;
            }
            Entry::Event(Event::Access(a)) => {
                let read = Access { len: a.len.min(READ_BYTES_MAX), ..a };
                disk.load.asked.push(Asked { at: line.at, read, access: true, demand: Demand::default() });
                then.reads += 1;
            }
            Entry::Event(event @ (Event::MemoryLimit(_) | Event::Bitrate { .. } | Event::InFlight(_))) => {
                disk.load.told.push((line.at, event));
            }
            Entry::Action(Action::Read { len, .. }) => {
                then.disk_reads += 1;
                then.disk_bytes += len;
            }
            Entry::Action(Action::Answer { request, .. }) => {
                if let Some(from) = disk.waiting.remove(&request) {
                    disk.waits.push(line.at.since(from).as_millis_f64());
                }
            }
            Entry::Event(_) | Entry::Disk { .. } | Entry::Action(_) => {}
        }
        then.span_s = line.at.as_secs_f64();
    }
    let finish = |mut t: Taking| {
        t.load.then.waited = t.waits.len() as u64;
        t.load.then.wait_ms = mean_and_p95(&mut t.waits);
        t.load
    };
    Ok(disks.into_values().map(finish).collect())
}

fn mean_and_p95(waits: &mut [f64]) -> (f64, f64) {
    if waits.is_empty() {
        return (0.0, 0.0);
    }
    waits.sort_by(f64::total_cmp);
    (waits.iter().sum::<f64>() / waits.len() as f64, waits[(waits.len() - 1) * 95 / 100])
}

/// Who wants a read of the disk.
#[derive(Clone, Copy, Debug)]
enum For {
    Spindle(ReadId),
    /// The server itself, for this request.
    Server(RequestId),
}

/// A read under way, in commands.
#[derive(Clone, Debug)]
struct Reading {
    who: For,
    file: FileId,
    offset: u64,
    len: u64,
    /// Which of its commands are done.
    done: Vec<bool>,
}

/// A read of a server that waits.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    at: Nanos,
    read: Access,
    access: bool,
}

struct World {
    engine: DiskEngine,
    drive: Drive,
    next_done: Option<Nanos>,
    resident: Resident,
    /// Commands the drive has no room for yet.
    held: VecDeque<Command>,
    readings: BTreeMap<u64, Reading>,
    /// Reading and number within it, by command.
    commands: BTreeMap<u64, (u64, usize)>,
    next_id: u64,
    waiting: BTreeMap<RequestId, Waiting>,
    next_request: u64,
    waits: Vec<f64>,
    /// Sectors of the log's disk, at least.
    sectors_then: u64,
    outcomes: Outcomes,
    busy: Nanos,
    at: Nanos,
}

/// Runs a load under other circumstances.
pub fn run(load: &Load, circumstances: &Circumstances) -> Outcomes {
    let end_of = |a: &Asked| a.read.lba.map_or(0, |l| l.0 + a.read.len / SECTOR_BYTES);
    let mut world = World {
        engine: DiskEngine::new(circumstances.engine_config()),
        drive: Drive::new(&circumstances.drive),
        next_done: None,
        resident: Resident::new(circumstances.memory.0),
        held: VecDeque::new(),
        readings: BTreeMap::new(),
        commands: BTreeMap::new(),
        next_id: 0,
        waiting: BTreeMap::new(),
        next_request: 0,
        waits: vec![],
        sectors_then: load.asked.iter().map(end_of).max().unwrap_or(0).max(1),
        outcomes: Outcomes::default(),
        busy: Nanos::ZERO,
        at: Nanos::ZERO,
    };
    let mut asked = load.asked.iter().peekable();
    let mut told = load.told.iter().peekable();
    loop {
        let next_asked = asked.peek().map(|a| a.at);
        let next_told = told.peek().map(|t| t.0);
        // Deadlines go on for as long as streams are remembered; without readers nobody cares.
        let alive = next_asked.is_some() || !world.waiting.is_empty();
        let tick = world.engine.next_deadline().filter(|_| alive);
        let Some(now) = [next_asked, next_told, world.next_done, tick].into_iter().flatten().min() else {
            break;
        };
        let now = now.max(world.at);
        if !world.readings.is_empty() {
            world.busy += now.since(world.at);
        }
        world.at = now;
        if world.next_done.is_some_and(|t| t <= now) {
            world.disk_done(now);
        } else if next_told.is_some_and(|t| t <= now) {
            if let Some((_, event)) = told.next() {
                let event = match *event {
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
    outcomes.waited = world.waits.len() as u64;
    outcomes.wait_ms = mean_and_p95(&mut world.waits);
    outcomes.span_s = world.at.as_secs_f64();
    outcomes.busy = Some(world.busy.as_secs_f64() / outcomes.span_s.max(1e-9));
    outcomes
}

impl World {
    /// A server reads.
    fn ask(&mut self, now: Nanos, asked: &Asked) {
        let Asked { read, access, demand, .. } = *asked;
        self.outcomes.reads += 1;
        let Some(missing) = self.resident.first_missing(read.file, read.offset, read.len) else {
            self.resident.touch(read.file, read.offset, read.len);
            // The log has accesses only of files that were open.
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
                    self.read(now, For::Spindle(id), file, offset, len, lba);
                }
                Action::Drop { file, offset, len } => self.resident.drop_range(file, offset, len),
                Action::Pin { file, offset, len } | Action::Renew { file, offset, len } => {
                    self.resident.renew(file, offset, len);
                }
                Action::Probe { file, offset, len } => {
                    if let Some(hole) = self.resident.first_missing(file, offset, len) {
                        holes.push(Event::Missing { file, offset: hole, len: PAGE.min(offset + len - hole) });
                    }
                }
                // Every file is open here, none has a header, and the page cache ages what is unpinned.
                Action::Unpin { .. } | Action::Header { .. } | Action::Close { .. } => {}
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
            // Passed, or longer than the engine reads at once: the server reads what is not there itself.
            (_, Some(from)) => {
                let lba = lba.map(|l| l.plus_bytes(from - offset));
                self.read(now, For::Server(id), file, from, offset + len - from, lba);
            }
            (Verdict::Resident | Verdict::Pass(_), None) => self.served(now, id),
        }
    }

    /// A server's read is over.
    fn served(&mut self, now: Nanos, id: RequestId) {
        let Some(waiting) = self.waiting.remove(&id) else { return };
        self.waits.push(now.since(waiting.at).as_millis_f64());
        let Access { file, offset, len, .. } = waiting.read;
        self.resident.touch(file, offset, len);
        if waiting.access {
            self.engine.handle(now, Event::Access(waiting.read));
        }
    }

    /// Where a read lies on this drive, in sectors.
    fn place(&self, file: FileId, offset: u64, lba: Option<Lba>) -> u64 {
        let sectors = self.drive.sectors();
        let then = match lba {
            Some(lba) => lba.0,
            // Not known: each file somewhere, its bytes in a row.
            None => {
                let spread = (file.ino ^ file.dev.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                return (spread % sectors + offset / SECTOR_BYTES) % sectors;
            }
        };
        if self.sectors_then <= sectors {
            return then.min(sectors - 1);
        }
        (u128::from(then) * u128::from(sectors) / u128::from(self.sectors_then)) as u64
    }

    fn read(&mut self, now: Nanos, who: For, file: FileId, offset: u64, len: u64, lba: Option<Lba>) {
        let place = self.place(file, offset, lba);
        self.next_id += 1;
        let reading = self.next_id;
        let count = len.div_ceil(COMMAND_BYTES).max(1);
        for i in 0..count {
            let bytes = COMMAND_BYTES.min(len - (i * COMMAND_BYTES).min(len));
            self.next_id += 1;
            self.commands.insert(self.next_id, (reading, i as usize));
            let lba = (place + i * COMMAND_BYTES / SECTOR_BYTES) % self.drive.sectors();
            let sectors = bytes.div_ceil(SECTOR_BYTES).max(1) as u32;
            self.held.push_back(Command { id: self.next_id, op: Op::Read, lba: Lba(lba), sectors });
        }
        self.outcomes.disk_reads += 1;
        self.outcomes.disk_bytes += len;
        self.readings.insert(reading, Reading { who, file, offset, len, done: vec![false; count as usize] });
        self.submit(now);
    }

    fn submit(&mut self, now: Nanos) {
        while let Some(command) = self.held.front().copied() {
            if self.drive.submit(now, command).is_err() {
                break;
            }
            self.held.pop_front();
        }
        self.next_done = self.drive.next_completion();
    }

    fn disk_done(&mut self, now: Nanos) {
        while let Some(done) = self.drive.poll(now) {
            let Some((id, command)) = self.commands.remove(&done.id) else { continue };
            let Some(reading) = self.readings.get_mut(&id) else { continue };
            let before = reading.done.iter().take_while(|d| **d).count() as u64;
            reading.done[command] = true;
            let whole = reading.done.iter().take_while(|d| **d).count() as u64;
            let reading = reading.clone();
            let Reading { who, file, offset, len, .. } = reading;
            let (from, upto) = ((before * COMMAND_BYTES).min(len), (whole * COMMAND_BYTES).min(len));
            self.resident.touch(file, offset + from, upto - from);
            let complete = whole as usize == reading.done.len();
            if complete {
                self.readings.remove(&id);
            }
            match who {
                For::Spindle(read) if complete => {
                    self.engine.handle(now, Event::Done { read, outcome: Outcome::Ok });
                }
                For::Spindle(read) if upto > from => {
                    self.engine.handle(now, Event::Progress { read, upto: offset + upto });
                }
                For::Server(request) if complete => self.served(now, request),
                For::Spindle(_) | For::Server(_) => {}
            }
        }
        self.submit(now);
    }
}
