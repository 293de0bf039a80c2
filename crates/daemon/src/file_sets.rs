//! File sets of programs: a thread that translates between connections, [`FileSets`] and the engine.
//!
//! ```text
//!  user threads -- Message: open, add, took, close --> FileSets (which range is next, across all sets)
//!                                                       |  Ask, Cancel, Took
//!       program <-- FileSetReady -- this thread         v
//!                                        ^------ the engine: one queue a disk, with streams and misses
//! ```
//!
//! This thread decides nothing and waits for no disk. [`seekless_policy::filesets`] decides which steps are
//! queued and how many bytes lie in memory untaken; the policy of the disk decides when a step is read. A
//! program that does not read its answers stops only its own set: answers that do not fit into its socket are
//! queued here.

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
    ClientDemand, Completion, Door, Engine, ForwardedCall, OnAnswer, Opener, Submitted, Ticket, lock,
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

/// Maximum number of queued messages from the user threads: all ranges of two sets, added and taken. At half,
/// programs that add at the same moment may be disconnected while this thread waits for a processor; double
/// costs memory.
const MESSAGES_MAX: usize = 4 * RANGES_MAX;

/// Maximum number of file sets of one user other than root: a quarter, so that other users always get one. At
/// half, two programs of a user get none; at double, two users could have all.
const OF_USER_MAX: usize = SETS_MAX / 4;

/// Maximum number of answers queued for a program: each of its ranges has one, plus answers to ranges beyond
/// its limit. At half, a program within its limit could lose its set; double costs memory.
const UNSENT_MAX: usize = 2 * RANGES_MAX;

/// Interval at which a full socket is tried again. At half, there are more wake-ups; at double, programs wait
/// longer.
const SEND_AGAIN: Duration = Duration::from_millis(10);

/// Interval at which the budgets of disks are read: the interval at which they change.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Maximum of bytes in memory for all sets of a disk if nothing is read ahead and there is no budget: one
/// window of a program that requests no other. At half, large files alternate with gaps; double costs memory.
const ROOM_WITHOUT_BUDGET: u64 = 64 << 20;

/// A range, and how to read it.
pub(crate) struct Added {
    /// The file as the program passed it.
    pub(crate) source: Arc<Source>,
    /// Opens the file for the engine.
    pub(crate) opener: Arc<Opener>,
    /// The call that would read the range.
    pub(crate) call: ForwardedCall,
    /// See [`seekless_wire::FileSetAdd::address`].
    pub(crate) address: u64,
    /// Index of its disk in the engine.
    pub(crate) disk: usize,
}

/// A message from the thread of a user. A set has the number of its connection.
pub(crate) enum Message {
    /// A program asks for a file set; `user` is the user that it counts for, if bounded.
    Open { set: u64, client: Arc<Client>, user: Option<u32>, window: u64 },
    /// The program adds a range.
    Add { set: u64, range: u32, added: Box<Added> },
    /// The program adds a range that cannot be served.
    Passed { set: u64, range: u32, reason: PassReason },
    /// The program has taken a range.
    Took { set: u64, range: u32, read: bool },
    /// The program is gone.
    Close { set: u64 },
}

/// The handle of the thread. Dropping it ends the thread.
pub(crate) struct FileSetThread {
    messages: Option<Sender<Message>>,
    thread: Option<JoinHandle<()>>,
}

impl FileSetThread {
    /// # Errors
    /// No thread can be started.
    pub(crate) fn start(engine: Engine, report: Arc<Mutex<FileSetsReport>>) -> io::Result<FileSetThread> {
        let (to, messages) = bounded(MESSAGES_MAX);
        // Bounded by the number of queued steps.
        let (answer, answers) = unbounded();
        let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let file_sets = FileSetLoop {
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
        let run = move || file_sets.run(&messages, &answers);
        let thread = thread::Builder::new().name("file-sets".into()).spawn(run)?;
        Ok(FileSetThread { messages: Some(to), thread: Some(thread) })
    }

    /// Sends a message. Returns `false` if the thread is far behind.
    pub(crate) fn tell(&self, message: Message) -> bool {
        self.messages.as_ref().is_some_and(|to| to.try_send(message).is_ok())
    }

    /// A connection is gone. This blocks only for a moment, because the thread never waits.
    pub(crate) fn close(&self, set: u64) {
        let _ = self.messages.as_ref().map(|to| to.send(Message::Close { set }));
    }
}

impl Drop for FileSetThread {
    fn drop(&mut self) {
        self.messages = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A program with a file set.
struct Program {
    client: Arc<Client>,
    user: Option<u32>,
    /// Answers that did not fit into its socket.
    unsent: VecDeque<FileSetReady>,
}

/// A completed step, and whether its bytes are in memory.
type Answer = (StepId, bool);

/// The state of the thread.
struct FileSetLoop {
    engine: Engine,
    sets: FileSets,
    programs: HashMap<SetId, Program>,
    ranges: HashMap<(SetId, RangeId), Added>,
    tickets: HashMap<StepId, Ticket>,
    /// The disks of the ranges, with the start addresses of their parts with own heads.
    disks: BTreeMap<usize, Vec<Lba>>,
    ranges_max: usize,
    /// When the budgets were last read.
    looked: Instant,
    answer: Sender<Answer>,
    report: FileSetsReport,
    shown: Arc<Mutex<FileSetsReport>>,
}

impl FileSetLoop {
    fn run(mut self, messages: &Receiver<Message>, answers: &Receiver<Answer>) {
        loop {
            let unsent = self.programs.values().any(|p| !p.unsent.is_empty());
            let timer = match (unsent, self.programs.is_empty()) {
                (true, _) => after(SEND_AGAIN),
                (false, false) => after(LOOK_EVERY),
                (false, true) => never(),
            };
            select! {
                recv(answers) -> answer => if let Ok(answer) = answer { self.answered(answer) },
                recv(messages) -> message => match message {
                    Ok(message) => self.handle(message),
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

    fn handle(&mut self, message: Message) {
        match message {
            Message::Open { set, client, user, window } => self.open(SetId(set), client, user, window),
            Message::Add { set, range, added } => self.add(SetId(set), RangeId(range), *added),
            Message::Passed { set, range, reason } => self.leave(SetId(set), RangeId(range), reason),
            Message::Took { set, range, read } => {
                let (set, range) = (SetId(set), RangeId(range));
                self.ranges.remove(&(set, range));
                self.sets.took(set, range, read);
            }
            Message::Close { set } => self.close(SetId(set)),
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
        // If sending fails, the program has disconnected, and the thread of its user notices.
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
            // An unknown set, or a range id in use: a mistake of the program.
            Err(_) => self.leave(set, id, PassReason::BadRequest),
        }
    }

    /// Tells the program to read a range for itself.
    fn leave(&mut self, set: SetId, id: RangeId, reason: PassReason) {
        self.report.ranges_left += 1;
        self.ready(set, id, reason);
    }

    fn ready(&mut self, set: SetId, id: RangeId, reason: PassReason) {
        let Some(program) = self.programs.get_mut(&set) else { return };
        program.unsent.push_back(FileSetReady { range: id.0, reason });
        program.send_again();
        // The program adds more than it may and reads no answers.
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
        self.sets.answered(step, if came { Outcome::Fetched } else { Outcome::Passed });
    }

    /// Execute pending actions.
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

    /// Requests a step from the engine. Returns its outcome if that is known at once.
    fn ask(&mut self, step: StepId, range: (SetId, RangeId), offset: u64, len: u64) -> Option<Outcome> {
        let Some(added) = self.ranges.get(&range) else { return Some(Outcome::Passed) };
        let Some(want) = Want::of(offset, len, added.call.edition.size) else { return Some(Outcome::Passed) };
        let demand = ClientDemand { file_set: true, ..added.call.demand };
        let call = ForwardedCall { want, demand, ..added.call };
        let answer = self.answer.clone();
        let mut door = StepDoor { added, step, answer: Some(answer) };
        match self.engine.submit(call, &mut door) {
            Ok(Submitted::Resident { .. }) => Some(Outcome::There),
            Ok(Submitted::Blocked(ticket)) => {
                self.tickets.insert(step, ticket);
                None
            }
            Err(_) => Some(Outcome::Passed),
        }
    }

    fn look_at_budgets(&mut self) {
        self.looked = Instant::now();
        for (&disk, parts) in &self.disks {
            let bytes = match self.engine.budget(disk) {
                0 => ROOM_WITHOUT_BUDGET,
                budget => room(budget),
            };
            // A set's bytes on all parts count against the room of each part.
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
    /// Sends queued answers as far as the sockets have room.
    fn send_again(&mut self) {
        while let Some(&ready) = self.unsent.front() {
            match self.client.send(Frame::FileSetReady(ready)) {
                Err(Errno::AGAIN | Errno::NOBUFS) => return,
                // The program has disconnected; the thread of its user notices.
                Ok(()) | Err(_) => self.unsent.pop_front(),
            };
        }
    }
}

fn lane_of(disk: usize, part: usize) -> u32 {
    (disk * IN_FLIGHT_MAX + part.min(IN_FLIGHT_MAX - 1)) as u32
}

/// A step being submitted to the engine. Its disk is known to be served.
struct StepDoor<'a> {
    added: &'a Added,
    step: StepId,
    answer: Option<Sender<Answer>>,
}

impl Door for StepDoor<'_> {
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
