//! The thread of one disk: a [`DiskEngine`] in real time.
//!
//! It translates and decides nothing. Messages of the doors, reports of the workers and the machine's memory
//! become events of the engine. The engine's actions go to the workers and to the callers. The thread itself
//! opens, closes and looks up no file ([`crate::opener`], [`crate::deleted_files`]). It never waits for the
//! disk, except for the file system's block map of a new file.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, never, select_biased};
use seekless_base::Nanos;
use seekless_kernel::prefetch::{Source, drop_range};
use seekless_policy::costs::Begun;
use seekless_policy::{
    Access, Action, Demand, DiskEngine, Event, FileId, KernelRead, Outcome, ReadId, Request, RequestId,
    Taken, Verdict,
};

use crate::bitrates::Bitrates;
use crate::costs::{CostMeter, path_of};
use crate::decisions::DiskLog;
use crate::deleted_files::Left;
use crate::disk::Disk;
use crate::door::{Ask, ClientDemand, Completion, Hit, Message, OnAnswer, ResidentRange};
use crate::kind::Kinds;
use crate::machine::{Machine, SharedMemory};
use crate::open_files::OpenFiles;
use crate::sleep::Sleep;
use crate::snapshot::Statistics;
use crate::worker::{self, Report, Workers};
use crate::writes::{At, WritesSeen};

/// A request that the engine has not answered yet.
pub(crate) struct Pending {
    pub(crate) on_answer: OnAnswer,
    pub(crate) file: FileId,
    pub(crate) source: Arc<Source>,
    pub(crate) need_offset: u64,
    pub(crate) need_len: u64,
    pub(crate) answer_is_read: bool,
}

/// The state of the thread of a disk.
pub(crate) struct DiskLoop {
    pub(crate) engine: DiskEngine,
    pub(crate) log: DiskLog,
    /// Time 0 of the engine.
    pub(crate) began: Instant,
    pub(crate) workers: Workers,
    pub(crate) files: OpenFiles,
    pub(crate) costs: CostMeter,
    pub(crate) pending: HashMap<RequestId, Pending>,
    /// The bitrates known beforehand, and the reading of them that the engine has.
    pub(crate) bitrates: Arc<Bitrates>,
    pub(crate) bitrates_told: u64,
    /// Disks that may sleep; `None` without `--quiet`.
    pub(crate) sleep: Option<Arc<Sleep>>,
    /// Looks at what waits to be written; `None` if that cannot be seen or does not matter.
    pub(crate) writes: Option<WritesSeen>,
    /// Measures the concurrency limit of the disk.
    pub(crate) kinds: Option<Arc<Kinds>>,
    pub(crate) disk: Disk,
    /// The memory that all disks share, and this disk's key in it.
    pub(crate) memory: Arc<SharedMemory>,
    pub(crate) number: u64,
    /// Whether the disks are left to their readers, and the value that the engine has.
    pub(crate) rests: Arc<AtomicBool>,
    pub(crate) resting: bool,
    pub(crate) machine: Machine,
    pub(crate) memory_due: Instant,
    pub(crate) statistics: Statistics,
}

impl DiskLoop {
    /// Runs until all senders of `messages` are dropped.
    pub(crate) fn run(mut self, messages: &Receiver<Message>, reports: &Receiver<Report>) {
        worker::run_first();
        loop {
            // Fetched in each round, because the channel of a thread that has ended would always be ready.
            let writes = self.writes.as_ref().map_or_else(never, |writes| writes.reports.clone());
            let deleted = self.files.deleted().clone();
            // Before any queued message is handled.
            self.report_rest();
            self.act();
            self.statistics.publish(self.engine.stats());
            // Reports first, because they free the disk.
            select_biased! {
                recv(reports) -> report => if let Ok(report) = report { self.report(report) },
                recv(writes) -> report => match report {
                    Ok(report) => self.event(Event::Writes(report)),
                    Err(_) => self.writes = None,
                },
                recv(messages) -> message => match message {
                    Ok(message) => self.message(message),
                    Err(_) => break,
                },
                recv(deleted) -> file => if let Ok(file) = file { self.deleted(file) },
                recv(self.timer()) -> _ => self.event(Event::Tick),
            }
            self.report_memory();
            // The more messages are handled before a read is chosen, the better the order of reads. But
            // messages that arrive meanwhile wait for the next round, because there may be no end of them,
            // and all of them wait while the disk has a report.
            reports.try_iter().for_each(|report| self.report(report));
            let arrived = (0..messages.len()).take_while(|_| reports.is_empty());
            arrived.map_while(|_| messages.try_recv().ok()).for_each(|message| self.message(message));
        }
        for (_, pending) in self.pending.drain() {
            (pending.on_answer)(Completion::Closing);
        }
        self.disk.keep(&self.engine.stats().size);
        self.log.flush();
    }

    /// A receiver that fires when the engine must be called without an event.
    fn timer(&mut self) -> Receiver<Instant> {
        let deadline = self.engine.next_deadline().map(|at| self.began + Duration::from_nanos(at.0));
        let memory = (!self.files.is_empty()).then_some(self.memory_due);
        let next = [deadline, memory].into_iter().flatten().min();
        next.map_or_else(never, crossbeam_channel::at)
    }

    /// A moment on the engine's clock; earlier moments count as time 0.
    pub(crate) fn at(&self, moment: Instant) -> Nanos {
        Nanos(moment.saturating_duration_since(self.began).as_nanos() as u64)
    }

    pub(crate) fn event(&mut self, event: Event) {
        let now = self.at(Instant::now());
        for event in self.files.learnt().into_iter().chain([event]) {
            self.log.event(now, event);
            self.engine.handle(now, event);
        }
    }

    /// A file has no link left: it is closed unless it is in use. Its readers have it open themselves.
    fn deleted(&mut self, file: FileId) {
        if !self.files.is_in_use(file) {
            self.event(Event::Leave { file });
        }
    }

    fn message(&mut self, message: Message) {
        match message {
            Message::Ask(ask) => self.ask(*ask),
            Message::Hit(hit) => {
                let Hit { source, pid, file, edition, offset, len, taken, start, steps } = *hit;
                self.files.open(file, edition, start, steps, source);
                self.asked(pid, file, offset, len);
                self.event(Event::Opened { file });
                self.tell_bitrate(file);
                self.access(file, offset, len, taken);
            }
            Message::Access { pid, file, offset, len, taken } => {
                self.asked(pid, file, offset, len);
                self.access(file, offset, len, taken);
            }
            Message::Opened { file, source } => self.files.opened(file, source),
            Message::Leave { dev, left } => self.leave(dev, left),
            Message::Missed { pid, file, bytes, io } => {
                if let Some(read) = self.files.kernel_read(file, bytes) {
                    self.read_by_kernel(pid, &read);
                    self.event(Event::ReadByKernel(KernelRead { io, ..read }));
                }
            }
            Message::Cancel(id) => self.event(Event::Cancel(id)),
            Message::Took { id, read } => self.event(Event::Took { request: id, read }),
        }
    }

    fn leave(&mut self, dev: u64, left: Arc<Left>) {
        for file in self.files.leave(dev, left) {
            self.event(Event::Leave { file });
        }
    }

    fn ask(&mut self, ask: Ask) {
        let Ask { id, file, edition, need_offset, need_len, offset, len, .. } = ask;
        let source = self.files.open(file, edition, ask.start, ask.steps, ask.source);
        self.asked(ask.pid, file, need_offset, need_len);
        let lba = self.files.locate(file, offset).and_then(|(lba, _)| lba);
        let Ask { on_answer, answer_is_read, .. } = ask;
        let pending = Pending { on_answer, file, source, need_offset, need_len, answer_is_read };
        self.pending.insert(id, pending);
        let ClientDemand { file_set, random, io } = ask.demand;
        let demand = Demand { bitrate: self.bitrates.of(file), file_set, random, io };
        let (from, file_size) = (need_offset, edition.size);
        self.event(Event::Request(Request { id, file, from, offset, len, file_size, lba, demand }));
    }

    /// A client read. The place of a file is known only while it is open; the engine ignores reads of other
    /// files.
    fn access(&mut self, file: FileId, offset: u64, len: u64, taken: Taken) {
        let Some((lba, file_size)) = self.files.locate(file, offset) else { return };
        self.event(Event::Access(Access { file, offset, len, file_size, lba, taken }));
    }

    fn report(&mut self, report: Report) {
        match report {
            Report::Started { at } => self.statistics.read_began(at),
            Report::Found { id, from, upto } => {
                self.costs.found(id, upto.saturating_sub(from));
                self.event(Event::Found { read: id, from, upto });
            }
            Report::Progress { id, upto } => self.event(Event::Progress { read: id, upto }),
            Report::Missing { file, offset, len } => self.event(Event::Missing { file, offset, len }),
            Report::Done { id, at, result } => {
                let outcome = self.statistics.read_ended(at, &self.engine.stats(), result);
                self.cost_ended(id);
                self.event(Event::Done { read: id, outcome });
            }
        }
    }

    fn act(&mut self) {
        while let Some(action) = self.engine.poll_action() {
            self.log.action(self.at(Instant::now()), action);
            self.carry_out(action);
        }
        if let Some(writes) = &self.writes {
            writes.is_at(match self.engine.load() {
                (0, 0) => At::Rest,
                (_, 0) => At::Waits,
                _ => At::Reads,
            });
        }
    }

    fn carry_out(&mut self, action: Action) {
        match action {
            Action::Answer { request, verdict } => self.answer(request, verdict),
            Action::Read { id, file, offset, len, lba } => {
                let job = self.files.job(id, file, offset, len);
                let flights = self.engine.in_flight();
                let asker = self.files.asker(file, offset);
                let now = self.at(Instant::now());
                self.costs.begin(now, Begun { read: id, file, asker, offset, len, lba });
                if !job.is_some_and(|job| self.workers.submit(job, flights)) {
                    self.cost_ended(id);
                    self.event(Event::Done { read: id, outcome: Outcome::Failed });
                }
            }
            Action::Drop { file, offset, len } => {
                if let Some(open) = self.files.get(file) {
                    drop_range(&open.source, offset, len);
                }
            }
            Action::Probe { file, offset, len } => {
                if let Some(open) = self.files.get(file) {
                    self.files.file_thread.look(file, open.source.clone(), offset, len);
                }
            }
            Action::Close { file } => self.close(file),
        }
    }

    /// Closes a file. If it is among those that cost most, its name is looked up first, by the thread that
    /// closes it.
    fn close(&mut self, file: FileId) {
        if self.costs.wants_name(file)
            && let Some(open) = self.files.get(file)
        {
            let (source, costs) = (open.source.clone(), self.costs.shared());
            self.files.file_thread.name(source, move |source| {
                if let Some(path) = path_of(source) {
                    crate::lock(&costs).named(file, path);
                }
            });
        }
        self.files.close(file);
    }

    /// A process (0: not known) has asked for bytes of a file.
    fn asked(&mut self, pid: u32, file: FileId, offset: u64, len: u64) {
        self.costs.asked(pid);
        self.files.asked(pid, file, offset, offset.saturating_add(len));
    }

    /// The kernel reads for a process: the cost is its.
    fn read_by_kernel(&mut self, pid: u32, read: &KernelRead) {
        let KernelRead { file, offset, len, .. } = *read;
        self.asked(pid, file, offset, len);
        let now = self.at(Instant::now());
        if let Some(open) = self.files.get(file) {
            self.costs.by_kernel(now, file, pid, len, &open.source);
        }
    }

    /// A read is over: its cost is counted.
    fn cost_ended(&mut self, read: ReadId) {
        let (now, files) = (self.at(Instant::now()), &self.files);
        self.costs.end(now, read, |file| files.get(file).map(|open| open.source.clone()));
    }

    fn answer(&mut self, id: RequestId, verdict: Verdict) {
        let Some(pending) = self.pending.remove(&id) else { return };
        let Pending { on_answer, file, source, need_offset: offset, need_len: len, .. } = pending;
        on_answer(match verdict {
            Verdict::Resident => Completion::Resident(ResidentRange { fd: source.as_fd(), offset, len }),
            Verdict::Pass(reason) => Completion::Pass(reason),
        });
        drop(source);
        self.files.end_passing(file);
        if pending.answer_is_read && verdict == Verdict::Resident {
            self.access(file, offset, len, Taken::Unknown);
        }
    }
}
