//! File sets of programs: a thread that translates between connections, [`FileSets`] and the engine.
//!
//! ```text
//!  user threads -- Said: open, add, took, close --> FileSets (which range is next, across all sets)
//!                                                       |  Ask, Cancel, Took
//!       program <-- FileSetReady -- this thread         v
//!                                        ^------ the engine: one queue a disk, with streams and misses
//! ```
//!
//! It has no rules of its own, and waits for no disk. Which steps are in line, and how much lies in memory
//! and is not taken, is decided in [`seekless_policy::filesets`]; when a step is read, in the policy of its
//! disk. A program that does not read its answers stops its own set alone: what its socket has no room for
//! waits here.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, after, bounded, never, select, unbounded};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use seekless_base::wants::{CallKind, DoorLimits, Want};
use seekless_base::{Lba, SECTOR_BYTES, part_of};
use seekless_engine::{
    ClientDemand, Completion, Engine, ForwardedCall, OnAnswer, Opener, Submitted, Ticket, Transport, lock,
};
use seekless_frontend::status::FileSetsReport;
use seekless_kernel::prefetch::Source;
use seekless_policy::IN_FLIGHT_MAX;
use seekless_policy::filesets::{
    Action, FileSets, Outcome, RANGES_MAX, Range, RangeId, SETS_MAX, SetId, StepId, room,
};
use seekless_wire::{ADDRESS_UNKNOWN, FileSet, FileSetReady, Frame, PassReason};

use crate::client::Client;
use crate::daemon::file_set_ranges;

/// Messages of the user threads in line: all ranges of two sets, added and taken. At half of it programs that
/// add at the same moment may be hung up on while this thread waits for a processor; at double memory.
const SAID_MAX: usize = 4 * RANGES_MAX;

/// File sets that one user other than root may have: a quarter, so that others always get one. At half of it
/// two programs of a user, at double two users could have all.
const OF_USER_MAX: usize = SETS_MAX / 4;

/// Answers that wait for a program to read them: each of its ranges has one, and those beyond what it may
/// add. At half of it a program that keeps within its bounds could lose its set; at double memory.
const UNSENT_MAX: usize = 2 * RANGES_MAX;

/// How often it is looked whether a program has made room in its socket. At half of it more wake-ups, at
/// double programs wait longer.
const SEND_AGAIN: Duration = Duration::from_millis(10);

/// How often the budgets of disks are looked at: as often as they change.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Bytes that all sets of a disk may have in memory where nothing is read ahead, and no budget is kept: one
/// window of a program that asks for no other. At half of it large files alternate with gaps, at double
/// memory.
const ROOM_WITHOUT_BUDGET: u64 = 64 << 20;

/// A range, and how it is read.
pub(crate) struct Added {
    /// As the program passed it.
    pub(crate) source: Arc<Source>,
    /// Opens it for the engine.
    pub(crate) opener: Arc<Opener>,
    /// See [`ForwardedCall::reader`].
    pub(crate) reader: u32,
    /// The call that would read it.
    pub(crate) call: ForwardedCall,
    /// See [`seekless_wire::FileSetAdd::address`].
    pub(crate) address: u64,
    /// Which of the engine's disks.
    pub(crate) disk: usize,
}

/// What the thread of a user says. A set has the number of its connection.
pub(crate) enum Said {
    /// A program asks for a file set; `user`: one whose sets are counted.
    Open { set: u64, client: Arc<Client>, user: Option<u32>, window: u64 },
    /// It adds a range.
    Add { set: u64, range: u32, added: Box<Added> },
    /// A range that cannot be served.
    Left { set: u64, range: u32, reason: PassReason },
    /// It has taken a range.
    Took { set: u64, range: u32, read: bool },
    /// It is gone.
    Close { set: u64 },
}

/// The way to the thread. Dropping it ends the thread.
pub(crate) struct FileSetThread {
    said: Option<Sender<Said>>,
    thread: Option<JoinHandle<()>>,
}

impl FileSetThread {
    /// # Errors
    /// No thread can be had.
    pub(crate) fn start(engine: Engine, report: Arc<Mutex<FileSetsReport>>) -> io::Result<FileSetThread> {
        let (to, said) = bounded(SAID_MAX);
        // As many as there are steps in line.
        let (answer, answers) = unbounded();
        let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let desk = Desk {
            engine,
            sets: FileSets::new(),
            programs: HashMap::new(),
            ranges: HashMap::new(),
            tickets: HashMap::new(),
            disks: BTreeMap::new(),
            ranges_max: file_set_ranges(descriptors),
            looked: Instant::now(),
            answer,
            report: FileSetsReport::default(),
            shown: report,
        };
        let run = move || desk.run(&said, &answers);
        let thread = thread::Builder::new().name("file-sets".into()).spawn(run)?;
        Ok(FileSetThread { said: Some(to), thread: Some(thread) })
    }

    /// Whether the thread has taken it: one that is far behind has not.
    pub(crate) fn tell(&self, said: Said) -> bool {
        self.said.as_ref().is_some_and(|to| to.try_send(said).is_ok())
    }

    /// A connection is gone. The thread waits for nobody, so this waits for a moment at most.
    pub(crate) fn close(&self, set: u64) {
        let _ = self.said.as_ref().map(|to| to.send(Said::Close { set }));
    }
}

impl Drop for FileSetThread {
    fn drop(&mut self) {
        self.said = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A program with a file set.
struct Program {
    client: Arc<Client>,
    user: Option<u32>,
    /// What its socket had no room for.
    unsent: VecDeque<FileSetReady>,
}

/// A step that has ended, and whether its bytes are in memory.
type Answer = (StepId, bool);

/// What the thread runs.
struct Desk {
    engine: Engine,
    sets: FileSets,
    programs: HashMap<SetId, Program>,
    ranges: HashMap<(SetId, RangeId), Added>,
    tickets: HashMap<StepId, Ticket>,
    /// Those that ranges lie on, and where their parts begin that have heads of their own.
    disks: BTreeMap<usize, Vec<Lba>>,
    ranges_max: usize,
    /// When budgets were looked at.
    looked: Instant,
    answer: Sender<Answer>,
    report: FileSetsReport,
    shown: Arc<Mutex<FileSetsReport>>,
}

impl Desk {
    fn run(mut self, said: &Receiver<Said>, answers: &Receiver<Answer>) {
        loop {
            let unsent = self.programs.values().any(|p| !p.unsent.is_empty());
            let timer = match (unsent, self.programs.is_empty()) {
                (true, _) => after(SEND_AGAIN),
                (false, false) => after(LOOK_EVERY),
                (false, true) => never(),
            };
            select! {
                recv(answers) -> answer => if let Ok(answer) = answer { self.answered(answer) },
                recv(said) -> word => match word {
                    Ok(word) => self.said(word),
                    Err(_) => break,
                },
                recv(timer) -> _ => {}
            }
            answers.try_iter().for_each(|answer| self.answered(answer));
            self.programs.values_mut().filter(|p| !p.unsent.is_empty()).for_each(Program::send_again);
            if self.looked.elapsed() >= LOOK_EVERY {
                self.look_at_budgets();
            }
            self.act();
            self.publish();
        }
    }

    fn said(&mut self, said: Said) {
        match said {
            Said::Open { set, client, user, window } => self.open(SetId(set), client, user, window),
            Said::Add { set, range, added } => self.add(SetId(set), RangeId(range), *added),
            Said::Left { set, range, reason } => self.leave(SetId(set), RangeId(range), reason),
            Said::Took { set, range, read } => {
                let (set, range) = (SetId(set), RangeId(range));
                self.ranges.remove(&(set, range));
                self.sets.took(set, range, read);
            }
            Said::Close { set } => self.close(SetId(set)),
        }
    }

    fn open(&mut self, set: SetId, client: Arc<Client>, user: Option<u32>, window: u64) {
        let of_user = self.programs.values().filter(|p| user.is_some() && p.user == user).count();
        let opened = match of_user < OF_USER_MAX {
            true => self.sets.open(set, window).ok(),
            false => None,
        };
        let frame = match opened {
            Some(window_bytes) => {
                FileSet { reason: PassReason::None, ranges: self.ranges_max as u32, window_bytes }
            }
            None => FileSet { reason: PassReason::Full, ranges: 0, window_bytes: 0 },
        };
        // A program that cannot be told has hung up, and the thread of its user notices.
        let _ = client.send(Frame::FileSet(frame));
        if opened.is_some() {
            self.report.begun += 1;
            self.programs.insert(set, Program { client, user, unsent: VecDeque::new() });
        } else {
            self.report.refused += 1;
        }
    }

    fn add(&mut self, set: SetId, id: RangeId, added: Added) {
        let held = self.ranges.keys().filter(|key| key.0 == set).count();
        if held >= self.ranges_max {
            return self.leave(set, id, PassReason::Full);
        }
        if !self.disks.contains_key(&added.disk) {
            self.disks.insert(added.disk, self.engine.parts(added.disk));
            self.look_at_budgets();
        }
        let known = (added.address != ADDRESS_UNKNOWN).then_some(Lba(added.address / SECTOR_BYTES));
        let parts = self.disks.get(&added.disk).map_or(&[][..], |parts| parts);
        let part = known.map_or(0, |lba| part_of(parts, lba));
        let want = added.call.want;
        let range = Range {
            file: added.call.file,
            offset: want.offset(),
            len: want.len(),
            place: known,
            lane: lane_of(added.disk, part),
        };
        match self.sets.add(set, id, range) {
            Ok(()) => {
                self.ranges.insert((set, id), added);
            }
            // A set of this name or a range of that: it asks for what it cannot have.
            Err(_) => self.leave(set, id, PassReason::BadRequest),
        }
    }

    /// A range is left to its reader.
    fn leave(&mut self, set: SetId, id: RangeId, reason: PassReason) {
        self.report.ranges_left += 1;
        self.ready(set, id, reason);
    }

    fn ready(&mut self, set: SetId, id: RangeId, reason: PassReason) {
        let Some(program) = self.programs.get_mut(&set) else { return };
        program.unsent.push_back(FileSetReady { range: id.0, reason });
        program.send_again();
        // It adds more than it may and reads no answer.
        if program.unsent.len() > UNSENT_MAX {
            self.close(set);
        }
    }

    fn close(&mut self, set: SetId) {
        self.programs.remove(&set);
        self.ranges.retain(|&(of, _), _| of != set);
        self.sets.close(set);
    }

    fn answered(&mut self, (step, came): Answer) {
        if !came && let Some(ticket) = self.tickets.remove(&step) {
            self.engine.took(ticket, false);
        }
        self.sets.answered(step, if came { Outcome::Came } else { Outcome::Left });
    }

    /// Does what is to be done.
    fn act(&mut self) {
        while let Some(action) = self.sets.poll() {
            match action {
                Action::Ask { step, set, range, offset, len, .. } => {
                    if let Some(outcome) = self.ask(step, (set, range), offset, len) {
                        self.sets.answered(step, outcome);
                    }
                }
                Action::Cancel { step } => {
                    if let Some(&ticket) = self.tickets.get(&step) {
                        self.engine.cancel(ticket);
                    }
                }
                Action::Took { step, read } => {
                    if let Some(ticket) = self.tickets.remove(&step) {
                        self.engine.took(ticket, read);
                    }
                }
                Action::Ready { set, range, came: true, from_disk } => {
                    let count = match from_disk {
                        true => &mut self.report.ranges_read,
                        false => &mut self.report.ranges_in_memory,
                    };
                    *count += 1;
                    self.ready(set, range, PassReason::None);
                }
                Action::Ready { set, range, came: false, .. } => {
                    self.leave(set, range, PassReason::DiskError)
                }
            }
        }
    }

    /// Asks the engine for a step; how it ended, if that is known.
    fn ask(&mut self, step: StepId, range: (SetId, RangeId), offset: u64, len: u64) -> Option<Outcome> {
        let Some(added) = self.ranges.get(&range) else { return Some(Outcome::Left) };
        let Some(want) = Want::of(offset, len, added.call.edition.size) else { return Some(Outcome::Left) };
        let demand = ClientDemand { file_set: true, ..ClientDemand::default() };
        let call = ForwardedCall { reader: added.reader, want, demand, ..added.call };
        let answer = self.answer.clone();
        let mut door = StepDoor { added, step, answer: Some(answer) };
        match self.engine.submit(call, &mut door) {
            Ok(Submitted::Resident { .. }) => Some(Outcome::There),
            Ok(Submitted::Blocked(ticket)) => {
                self.tickets.insert(step, ticket);
                None
            }
            Err(_) => Some(Outcome::Left),
        }
    }

    fn look_at_budgets(&mut self) {
        self.looked = Instant::now();
        for (&disk, parts) in &self.disks {
            let bytes = match self.engine.budget(disk) {
                0 => ROOM_WITHOUT_BUDGET,
                budget => room(budget),
            };
            // A set's bytes on all parts count in the room of each.
            (0..=parts.len()).for_each(|part| self.sets.room(lane_of(disk, part), bytes));
        }
    }

    fn publish(&mut self) {
        let counts = self.sets.counts();
        self.report.now = counts.sets as u64;
        self.report.ranges_now = counts.ranges as u64;
        self.report.bytes_now = counts.bytes;
        *lock(&self.shown) = self.report;
    }
}

impl Program {
    /// Sends what its socket has room for.
    fn send_again(&mut self) {
        while let Some(&ready) = self.unsent.front() {
            match self.client.send(Frame::FileSetReady(ready)) {
                Err(Errno::AGAIN | Errno::NOBUFS) => return,
                // It has hung up; the thread of its user notices.
                Ok(()) | Err(_) => self.unsent.pop_front(),
            };
        }
    }
}

/// The lane of a part of a disk.
fn lane_of(disk: usize, part: usize) -> u32 {
    (disk * IN_FLIGHT_MAX + part.min(IN_FLIGHT_MAX - 1)) as u32
}

/// A step on its way to the engine. Its disk is served already.
struct StepDoor<'a> {
    added: &'a Added,
    step: StepId,
    answer: Option<Sender<Answer>>,
}

impl Transport for StepDoor<'_> {
    fn fd(&self) -> BorrowedFd<'_> {
        self.added.source.as_fd()
    }

    fn kind(&mut self, _: &DoorLimits) -> Result<CallKind, seekless_engine::Refused> {
        Ok(CallKind::Read)
    }

    fn block(&mut self, _: Ticket) -> Option<(OnAnswer, Arc<Source>)> {
        let (step, answer) = (self.step, self.answer.take()?);
        let on_answer = move |completion: Completion<'_>| {
            let _ = answer.send((step, matches!(completion, Completion::Resident(_))));
        };
        Some((Box::new(on_answer), self.added.source.clone()))
    }

    fn opener(&self) -> Option<&Opener> {
        Some(&self.added.opener)
    }
}
