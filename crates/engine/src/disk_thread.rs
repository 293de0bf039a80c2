//! The thread of one disk: a [`DiskEngine`] in real time.
//!
//! It translates. Messages of the doors, reports of its workers and the machine's memory go into the engine as events; what
//! comes out goes to the workers, to the pinner and to those who asked. It decides nothing, and never waits for the
//! disk itself, except for the file system's block map of a file it has not met before.

use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded, never, select_biased};
use seekless_kernel::prefetch::{Source, Steps, give_back};
use seekless_kernel::residency::{missing_prefix, page_bytes, resident_prefix};
use seekless_policy::memory::REPORT_EVERY;
use seekless_policy::record::{Entry, Line};
use seekless_policy::{
    Access, Action, Demand, DiskEngine, Event, FileId, Histogram, Outcome, Request, RequestId, Sizing, Stats,
    Taken, Verdict,
};
use seekless_units::{Bytes, Nanos};

use crate::addresses::{Addresses, Edition};
use crate::decisions::DecisionLog;
use crate::disk::Disk;
use crate::door::{Ask, Completion, Hit, Message, OnAnswer, ResidentRange};
use crate::kind::Kinds;
use crate::layout::Layout;
use crate::media::{self, Bitrates, Look, Told};
use crate::memory;
use crate::pinner::{Pinner, Span};
use crate::settings::Settings;
use crate::worker::{self, Job, Report, WORKERS_MAX, short_name};

/// How often the prefetch size is kept for the next start.
const REMEMBER_EVERY: Duration = Duration::from_secs(60);

/// A backlog of the pinner is handed over after this at the latest.
const PINNER_AGAIN: Duration = Duration::from_millis(10);

/// No more of a hole is looked at in one go.
const HOLE_MAX: u64 = 256 << 10;

/// What a disk thread knows about itself, for the statistics.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The engine's own.
    pub engine: Stats,
    /// From the end of a piece to the start of the next while one was queued and nothing else in flight: time the disk
    /// stood still on our account.
    pub gap: Histogram,
    /// Pages asked for twice.
    pub second_try_pages: u64,
    /// Pages evicted before their piece was complete.
    pub lost_pages: u64,
    /// Stretches pinned now, as the pinner has them.
    pub pinned: Arc<AtomicUsize>,
    /// The last read error, if there was one.
    pub last_error: Option<String>,
    /// The measured media rate, bytes a second; 0 without a profile.
    pub media_rate: f64,
}

/// The doors' end of a disk thread.
pub(crate) struct DiskThread {
    pub(crate) name: String,
    pub(crate) snapshot: Arc<Mutex<Snapshot>>,
    sender: Sender<Message>,
    thread: JoinHandle<()>,
}

impl DiskThread {
    /// Starts the thread of a disk and its workers.
    ///
    /// # Errors
    /// No thread can be had.
    pub(crate) fn start(
        name: &str,
        settings: Arc<Settings>,
        disks: Arc<AtomicUsize>,
        bitrates: Arc<Bitrates>,
    ) -> io::Result<DiskThread> {
        let disk = Disk::look_up(name, &settings.profiles);
        let mut config = settings.spindle.clone();
        config.reads_in_flight = config.reads_in_flight.min(WORKERS_MAX);
        config.memory = memory::limit(disks.load(Ordering::Relaxed) + 1);
        config.profile = disk.profile.clone();
        config.start_size = config.start_size.or(disk.size);
        let measured = match Layout::read(Path::new("/sys/block"), name) {
            Ok(Some(layout)) => {
                layout.apply(&mut config);
                tracing::info!(disk = name, layout = layout.name, "a set of disks");
                false
            }
            Ok(None) => true,
            Err(why) => {
                tracing::warn!(disk = name, "this layout cannot be: {why}; it is served as one disk");
                false
            }
        };
        let engine = DiskEngine::new(config);
        let config = engine.config();
        if let Sizing::Auto(params) = &config.sizing {
            tracing::info!(disk = name, start_size = %params.start_size, "the prefetch size is automatic");
        }
        // Twice the queue: requests the engine will pass are refused quickly and may come in bursts.
        let (sender, messages) = bounded(config.queue_max.saturating_mul(2).min(1 << 16));
        let (jobs, todo) = bounded(WORKERS_MAX);
        let (report, reports) = bounded(64);
        let mut workers = Workers { name: name.to_string(), count: 0, todo, report };
        workers.enough_for(config.flights_max())?;
        let log = settings.decisions.clone().map(|log| (log.disk(), log));
        if let Some((number, log)) = &log {
            let entry = Entry::Disk { name: name.to_string(), config: Box::new(config.clone()) };
            log.write(&Line { disk: *number, at: Nanos::ZERO, entry });
        }
        let ((looks, to_look), (tell, told)) = media::channels();
        // Where the bitrate is given, or streams are not followed, no header is of use.
        if settings.follows() && config.bitrate.is_none() {
            media::spawn(name, to_look, tell, bitrates)?;
        }
        let pins = settings.follows() && config.ahead.as_ref().is_some_and(|ahead| ahead.hold);
        let pinner = pins.then(|| Pinner::start(name)).transpose()?;
        let own = Snapshot {
            pinned: pinner.as_ref().map_or_else(Arc::default, Pinner::count),
            media_rate: disk.profile.as_ref().map_or(0.0, |profile| profile.mean_rate()),
            ..Snapshot::default()
        };
        let snapshot = Arc::new(Mutex::new(own.clone()));
        let now = Instant::now();
        let body = Body {
            engine,
            jobs,
            workers,
            kinds: measured.then(|| settings.kinds.clone()),
            began: now,
            pending: HashMap::new(),
            files: HashMap::new(),
            pinner,
            looks,
            disk,
            log,
            memory_due: now + Duration::from_nanos(REPORT_EVERY.0),
            remembered: now,
            disks,
            addresses: Addresses::default(),
            idle_since: None,
            published: snapshot.clone(),
            own,
        };
        let thread = thread::Builder::new()
            .name(short_name("disk", name))
            .spawn(move || body.run(messages, reports, told))?;
        Ok(DiskThread { name: name.to_string(), snapshot, sender, thread })
    }

    /// Hands a message over; gives it back if the thread cannot take it now.
    pub(crate) fn send(&self, message: Message) -> Result<(), Message> {
        self.sender.try_send(message).map_err(|e| match e {
            TrySendError::Full(m) | TrySendError::Disconnected(m) => m,
        })
    }

    /// Lets the thread end, passing whatever waits; its workers end when their disk lets them. Waits for it, but not
    /// longer than a moment: a hanging disk must not keep the daemon from ending.
    pub(crate) fn stop(self) {
        drop(self.sender);
        for _ in 0..100 {
            if self.thread.is_finished() {
                return;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// The threads that read, and what more of them are started with.
struct Workers {
    /// Of the disk.
    name: String,
    count: usize,
    todo: Receiver<Job>,
    report: Sender<Report>,
}

impl Workers {
    /// Starts what is missing for so many reads in flight; never more than [`WORKERS_MAX`] in all.
    fn enough_for(&mut self, flights: usize) -> io::Result<()> {
        while self.count < flights.min(WORKERS_MAX) {
            worker::spawn(&self.name, self.todo.clone(), self.report.clone())?;
            self.count += 1;
        }
        Ok(())
    }
}

/// A request the engine has not answered.
struct Pending {
    on_answer: OnAnswer,
    file: FileId,
    source: Arc<Source>,
    need_offset: u64,
    need_len: u64,
    answer_is_read: bool,
}

/// A file the engine may read, open from its first request or announced read until [`Action::Close`].
struct OpenFile {
    source: Arc<Source>,
    edition: Edition,
    /// First sector of the file system on the disk.
    start: u64,
    steps: Steps,
}

struct Body {
    engine: DiskEngine,
    jobs: Sender<Job>,
    workers: Workers,
    /// What is measured of disks; `None` where this one's layout was read.
    kinds: Option<Arc<Kinds>>,
    began: Instant,
    pending: HashMap<RequestId, Pending>,
    files: HashMap<FileId, OpenFile>,
    /// `None`: nothing is pinned.
    pinner: Option<Pinner>,
    /// Files whose headers are to be looked at.
    looks: Sender<Look>,
    disk: Disk,
    /// Our number in the decision log, and the log.
    log: Option<(u32, Arc<DecisionLog>)>,
    /// When the machine's memory is next reported.
    memory_due: Instant,
    /// When the prefetch size was last kept.
    remembered: Instant,
    /// How many disks share the memory.
    disks: Arc<AtomicUsize>,
    addresses: Addresses,
    /// When the last read ended, if another was queued.
    idle_since: Option<Instant>,
    published: Arc<Mutex<Snapshot>>,
    own: Snapshot,
}

impl Body {
    fn run(mut self, messages: Receiver<Message>, reports: Receiver<Report>, told: Receiver<Told>) {
        worker::run_first();
        loop {
            self.act();
            self.publish();
            let again = self.pinner.as_mut().is_some_and(|pinner| !pinner.flush());
            let deadline = self.engine.next_deadline().map(|at| self.began + Duration::from_nanos(at.0));
            let memory = (!self.files.is_empty()).then_some(self.memory_due);
            let pinner = again.then(|| Instant::now() + PINNER_AGAIN);
            let timer = match deadline.into_iter().chain(memory).chain(pinner).min() {
                Some(at) => crossbeam_channel::at(at),
                None => never(),
            };
            // Reports first: they free the disk.
            select_biased! {
                recv(reports) -> report => if let Ok(report) = report { self.report(report) },
                recv(messages) -> message => match message {
                    Ok(message) => self.message(message),
                    Err(_) => break,
                },
                recv(timer) -> _ => self.event(Event::Tick),
            }
            self.chores();
            // The order of reads is the better the more of what has arrived is known before one is chosen.
            for report in reports.try_iter() {
                self.report(report);
            }
            for message in messages.try_iter() {
                self.message(message);
            }
            for (file, bytes_per_s) in told.try_iter() {
                self.event(Event::Bitrate { file, bytes_per_s });
            }
        }
        for (_, pending) in std::mem::take(&mut self.pending) {
            (pending.on_answer)(Completion::Closing);
        }
        self.own.engine = self.engine.stats();
        self.remember();
        if let Some((_, log)) = &self.log {
            log.flush();
        }
    }

    fn now(&self) -> Nanos {
        self.at(Instant::now())
    }

    /// A moment on the engine's clock; what lies before its beginning counts as that.
    fn at(&self, moment: Instant) -> Nanos {
        Nanos(moment.saturating_duration_since(self.began).as_nanos() as u64)
    }

    fn event(&mut self, event: Event) {
        let now = self.now();
        if let Some((disk, log)) = &self.log {
            log.write(&Line { disk: *disk, at: now, entry: Entry::Event(event) });
        }
        self.engine.handle(now, event);
    }

    fn next_action(&mut self) -> Option<Action> {
        let action = self.engine.poll_action()?;
        if let Some((disk, log)) = &self.log {
            log.write(&Line { disk: *disk, at: self.now(), entry: Entry::Action(action) });
        }
        Some(action)
    }

    fn message(&mut self, message: Message) {
        match message {
            Message::Ask(ask) => self.ask(*ask),
            Message::Hit(hit) => {
                let Hit { passed, file, edition, offset, len, taken, start, steps } = *hit;
                self.open(file, edition, start, steps, || Arc::new(passed.source()));
                self.event(Event::Opened { file });
                self.access(file, offset, len, taken);
            }
            Message::Access { file, offset, len } => self.access(file, offset, len, Taken::All),
            Message::Release { file, offset, len } => self.event(Event::Release { file, offset, len }),
            Message::Cancel(id) => self.event(Event::Cancel(id)),
        }
    }

    /// Opened here and not by a door: opening may ask a file server that hangs.
    fn open(
        &mut self,
        file: FileId,
        edition: Edition,
        start: u64,
        steps: Steps,
        source: impl FnOnce() -> Arc<Source>,
    ) -> Arc<Source> {
        let open =
            self.files.entry(file).or_insert_with(|| OpenFile { source: source(), edition, start, steps });
        (open.edition, open.start, open.steps) = (edition, start, steps);
        open.source.clone()
    }

    fn ask(&mut self, ask: Ask) {
        let Ask {
            id,
            on_answer,
            passed,
            file,
            edition,
            need_offset,
            need_len,
            offset,
            len,
            start,
            steps,
            ..
        } = ask;
        let source = self.open(file, edition, start, steps, || Arc::new(passed.source()));
        let lba = self.addresses.lba(file, edition, &source, offset, start);
        let answer_is_read = ask.answer_is_read;
        self.pending.insert(id, Pending { on_answer, file, source, need_offset, need_len, answer_is_read });
        let deadline = ask.demand.deadline.map(|at| self.at(at));
        self.event(Event::Request(Request {
            id,
            file,
            from: need_offset,
            offset,
            len,
            file_size: edition.size,
            lba,
            demand: Demand { deadline, bitrate: ask.demand.bitrate },
        }));
    }

    /// A client read. Where the file lies can be told only while it is open; of others the engine wants no access.
    fn access(&mut self, file: FileId, offset: u64, len: u64, taken: Taken) {
        let Some(open) = self.files.get(&file) else { return };
        let lba = self.addresses.lba(file, open.edition, &open.source, offset, open.start);
        // The door's word for the size would do; the block map's is the one the address belongs to.
        let file_size = open.edition.size;
        self.event(Event::Access(Access { file, offset, len, file_size, lba, taken }));
    }

    /// What is to be done once in a while.
    fn chores(&mut self) {
        let now = Instant::now();
        if now < self.memory_due {
            return;
        }
        self.memory_due = now + Duration::from_nanos(REPORT_EVERY.0);
        self.event(Event::MemoryLimit(memory::limit(self.disks.load(Ordering::Relaxed))));
        self.spindles();
        if let Some((_, log)) = &self.log {
            log.flush();
        }
        if now.saturating_duration_since(self.remembered) >= REMEMBER_EVERY {
            self.remembered = now;
            self.remember();
        }
    }

    /// Gives the disk as many pieces at once as it was found to bear meanwhile.
    fn spindles(&mut self) {
        let Some(kinds) = &self.kinds else { return };
        let at_once = kinds.at_once(&self.workers.name);
        let config = self.engine.config();
        if at_once == config.in_flight || !config.mode.serialises() {
            return;
        }
        let flights = at_once + config.reads_in_flight - 1;
        if let Err(error) = self.workers.enough_for(flights) {
            tracing::warn!(disk = self.workers.name, %error, "no threads for more pieces at once");
            self.kinds = None;
            return;
        }
        tracing::info!(disk = self.workers.name, pieces = at_once, "a set of disks, as measured");
        self.event(Event::InFlight(at_once));
    }

    /// Keeps the size to start with next time.
    fn remember(&mut self) {
        let size = &self.own.engine.size;
        if size.kind == "auto" && size.intervals > 0 {
            self.disk.remember(Bytes(size.target));
        }
    }

    fn report(&mut self, report: Report) {
        match report {
            Report::Started { at } => {
                if let Some(since) = self.idle_since.take() {
                    let gap = at.saturating_duration_since(since);
                    self.own.gap.record(Nanos(gap.as_nanos() as u64));
                }
            }
            Report::Found { id, from, upto } => self.event(Event::Found { read: id, from, upto }),
            Report::Progress { id, upto } => self.event(Event::Progress { read: id, upto }),
            Report::Done { id, at, result } => {
                let outcome = match result {
                    Ok(brought) => {
                        self.own.second_try_pages += brought.second_try;
                        self.own.lost_pages += brought.lost;
                        Outcome::Ok
                    }
                    Err(error) => {
                        tracing::debug!(%error, "a read failed; its callers will see for themselves");
                        self.own.last_error = Some(error);
                        Outcome::Failed
                    }
                };
                let before = self.engine.stats();
                self.idle_since = (before.queued > 0 && before.in_flight == 1).then_some(at);
                self.event(Event::Done { read: id, outcome });
            }
        }
    }

    fn act(&mut self) {
        while let Some(action) = self.next_action() {
            match action {
                Action::Answer { request, verdict } => self.answer(request, verdict),
                Action::Read { id, file, offset, len, .. } => {
                    let sent = self.files.get(&file).is_some_and(|open| {
                        let (source, steps) = (open.source.clone(), open.steps);
                        self.jobs.try_send(Job { id, source, offset, len, steps }).is_ok()
                    });
                    if !sent {
                        self.event(Event::Done { read: id, outcome: Outcome::Failed });
                    }
                }
                Action::Drop { file, offset, len } => {
                    if let Some(open) = self.files.get(&file) {
                        give_back(&open.source, offset, len);
                    }
                }
                Action::Probe { file, offset, len } => self.probe(file, offset, len),
                Action::Pin { file, offset, len } => self.pin(file, offset, len, Pinner::pin),
                Action::Renew { file, offset, len } => self.pin(file, offset, len, Pinner::renew),
                Action::Unpin { file, offset, len, cold } => {
                    if let Some(pinner) = &mut self.pinner {
                        pinner.unpin(Span { file, start: offset, end: offset.saturating_add(len) }, cold);
                    }
                }
                Action::Header { file } => {
                    if let Some(open) = self.files.get(&file) {
                        let (size, source) = (open.edition.size, open.source.clone());
                        // A thread that is behind misses it; the next time is another chance.
                        let _ = self.looks.try_send(Look { file, size, source });
                    }
                }
                Action::Close { file } => {
                    self.files.remove(&file);
                }
            }
        }
    }

    fn pin(&mut self, file: FileId, offset: u64, len: u64, order: fn(&mut Pinner, Span, &Arc<Source>)) {
        if let (Some(pinner), Some(open)) = (&mut self.pinner, self.files.get(&file)) {
            order(pinner, Span { file, start: offset, end: offset + len }, &open.source);
        }
    }

    /// Looks for the first hole. The rest is probed, or missed, later.
    fn probe(&mut self, file: FileId, offset: u64, len: u64) {
        let Some(open) = self.files.get(&file) else { return };
        let Ok(there) = resident_prefix(open.source.as_fd(), offset, len) else { return };
        if there < len {
            let (hole, most) = (offset + there, HOLE_MAX.min(len - there));
            // Its first page is missing, whatever is told of the others.
            let missing = missing_prefix(open.source.as_fd(), hole, most).unwrap_or(0).max(page_bytes());
            self.event(Event::Missing { file, offset: hole, len: missing });
        }
    }

    fn answer(&mut self, id: RequestId, verdict: Verdict) {
        let Some(pending) = self.pending.remove(&id) else { return };
        let answer = match verdict {
            Verdict::Resident => Completion::Resident(ResidentRange {
                fd: pending.source.as_fd(),
                offset: pending.need_offset,
                len: pending.need_len,
            }),
            Verdict::Pass(reason) => Completion::Pass(reason),
        };
        (pending.on_answer)(answer);
        if pending.answer_is_read && verdict == Verdict::Resident {
            self.access(pending.file, pending.need_offset, pending.need_len, Taken::Unknown);
        }
    }

    fn publish(&mut self) {
        self.own.engine = self.engine.stats();
        if let Ok(mut published) = self.published.lock() {
            published.clone_from(&self.own);
        }
    }
}
