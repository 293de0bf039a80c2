//! The reader of one disk: a [`Spindle`] in real time.
//!
//! It takes requests from the doors and reports from its workers, feeds both to the spindle, hands the reads the
//! spindle orders to the workers and the answers to whoever asked. It never waits for the disk itself, except for the file
//! system's block map of a file it has not met before.

use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded, never, select_biased};
use seekless_kernel::hold::Hold;
use seekless_kernel::prefetch::{Source, Steps, give_back};
use seekless_kernel::residency::{missing_prefix, page_bytes, resident_prefix};
use seekless_policy::profile::DiskProfile;
use seekless_policy::record::{Entry, Line};
use seekless_policy::{
    Access, Action, Event, FileId, Histogram, Outcome, ReadId, Request, RequestId, Sizing, Spindle, Stats,
    StreamId, Taken, Verdict, start_size,
};
use seekless_units::{Bytes, Nanos};

use crate::addresses::{Addresses, Edition};
use crate::budget::Budget;
use crate::decisions::DecisionLog;
use crate::disk::Disk;
use crate::door::{Answer, Ask, Found, Hit, Message, OnAnswer};
use crate::held::Held;
use crate::media::{self, Bitrates, Look, Told};
use crate::settings::Settings;
use crate::worker::{self, Job, Report, WORKERS_MAX, short_name};

/// What a reader knows about itself, for the statistics.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The spindle's own.
    pub spindle: Stats,
    /// From the end of a piece to the start of the next while one was queued and nothing else in flight: time the disk
    /// stood still on our account.
    pub gap: Histogram,
    /// Pages asked for twice.
    pub second_try_pages: u64,
    /// Pages evicted before their piece was complete.
    pub lost_pages: u64,
    /// Pieces held until they are read.
    pub pieces_held: usize,
    /// The last read error, if there was one.
    pub last_error: Option<String>,
}

/// The doors' end of a reader.
pub(crate) struct Reader {
    pub(crate) name: String,
    pub(crate) snapshot: Arc<Mutex<Snapshot>>,
    sender: Sender<Message>,
    thread: JoinHandle<()>,
}

impl Reader {
    /// Starts the reader of a disk and its workers.
    ///
    /// # Errors
    /// No thread can be had.
    pub(crate) fn start(
        name: &str,
        settings: Arc<Settings>,
        disks: Arc<AtomicUsize>,
        bitrates: Arc<Bitrates>,
    ) -> io::Result<Reader> {
        let mut config = settings.spindle.clone().normalised();
        config.reads_in_flight = config.reads_in_flight.min(WORKERS_MAX);
        let workers = config.reads_in_flight;
        // Twice the queue: requests the spindle will pass are refused quickly and may come in bursts.
        let (sender, messages) = bounded(config.queue_max.saturating_mul(2).min(1 << 16));
        let (jobs, todo) = bounded(workers);
        let (report, reports) = bounded(64);
        for _ in 0..workers {
            worker::spawn(name, todo.clone(), report.clone())?;
        }
        let disk = Disk::look_up(name, &settings.profiles);
        let started = Instant::now();
        let hold = settings.hold && settings.follows();
        let mut budget = Budget::new(settings.budget, hold, started);
        let first = budget.due(started, &Stats::default(), 1).unwrap_or(Bytes::gib(1));
        if let Some(ahead) = &mut config.ahead {
            ahead.budget = first;
        }
        if let Sizing::Auto(params) = &mut config.sizing {
            let profile = disk.profile.clone().unwrap_or_else(|| DiskProfile::assumed(1 << 31));
            let model = || start_size(&profile, first, params);
            params.start_size = settings.start_size.or(disk.size).unwrap_or_else(model);
            tracing::info!(disk = name, start_size = %params.start_size, "the prefetch size finds itself");
        }
        config.profile = disk.profile.clone();
        let config = config.normalised();
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
        let held = if hold { Held::start(name)? } else { Held::default() };
        let snapshot = Arc::new(Mutex::new(Snapshot::default()));
        let body = Body {
            spindle: Spindle::new(config),
            jobs,
            began: Instant::now(),
            pending: HashMap::new(),
            sources: HashMap::new(),
            kept: HashMap::new(),
            held,
            looks,
            met: HashMap::new(),
            purged: Instant::now(),
            budget,
            disk,
            log,
            sampled: None,
            remembered: started,
            disks,
            addresses: Addresses::default(),
            stood_still_since: None,
            published: snapshot.clone(),
            own: Snapshot::default(),
            settings,
        };
        let thread = thread::Builder::new()
            .name(short_name("disk", name))
            .spawn(move || body.run(messages, reports, told))?;
        Ok(Reader { name: name.to_string(), snapshot, sender, thread })
    }

    /// Hands a message over; gives it back if the reader cannot take it now.
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

/// A request the spindle holds.
struct Pending {
    on_answer: OnAnswer,
    file: FileId,
    /// Keeps the file open while anybody waits for it.
    source: Arc<Source>,
    need_offset: u64,
    need_len: u64,
    answer_is_read: bool,
}

/// A file held open between two reads of a stream. For a moment only: an open file keeps its file system from being
/// unmounted and its blocks from being freed.
struct Kept {
    source: Arc<Source>,
    edition: Edition,
    /// First sector of the file system on the disk.
    start: u64,
    used: Instant,
}

/// Most files held open for streams. A disk carries about as many readers of different files at once; the ones used
/// longest ago make room.
const KEPT_MAX: usize = 2048;

/// A file not read for so long is closed: a little longer than a stream is remembered.
const KEPT_FOR: Duration = Duration::from_secs(35);

/// How often kept files are looked through.
const PURGE_EVERY: Duration = Duration::from_secs(5);

/// Streams whose memory is looked at every two seconds: some 100 microseconds.
const SAMPLES: usize = 64;

/// No more of a hole is looked at in one go.
const SAMPLE_HOLE: u64 = 256 << 10;

/// At which reads of a file its header is looked for: at once, and again when more of it is in memory.
const LOOK_AT: [u32; 4] = [1, 4, 32, 256];

/// How often the prefetch size is kept for the next start.
const REMEMBER_EVERY: Duration = Duration::from_secs(60);

struct Body {
    settings: Arc<Settings>,
    spindle: Spindle,
    jobs: Sender<Job>,
    began: Instant,
    pending: HashMap<RequestId, Pending>,
    /// How to read a file: alive while a request for it is pending or a read of it in flight.
    sources: HashMap<FileId, (Weak<Source>, Steps)>,
    /// Files that streams read, held open so that they can be read ahead.
    kept: HashMap<FileId, Kept>,
    /// What was read ahead and waits for its reader.
    held: Held,
    /// Files whose headers are to be looked at.
    looks: Sender<Look>,
    /// How often a kept file was read, as far as that decides when its header is looked for.
    met: HashMap<FileId, u32>,
    /// When those were last looked through.
    purged: Instant,
    budget: Budget,
    /// How many disks share the memory.
    disks: Arc<AtomicUsize>,
    addresses: Addresses,
    stood_still_since: Option<Instant>,
    published: Arc<Mutex<Snapshot>>,
    own: Snapshot,
    disk: Disk,
    /// Our number in the decision log, and the log.
    log: Option<(u32, Arc<DecisionLog>)>,
    /// The stream whose memory was looked at last.
    sampled: Option<StreamId>,
    /// When the prefetch size was last kept.
    remembered: Instant,
}

impl Body {
    fn run(mut self, messages: Receiver<Message>, reports: Receiver<Report>, told: Receiver<Told>) {
        worker::run_first();
        let mut mapped = self.held.mapped();
        loop {
            self.act();
            self.publish();
            let deadline = self.spindle.next_deadline().map(|at| self.began + Duration::from_nanos(at.0));
            let chores = (!self.kept.is_empty()).then(|| self.budget.next());
            let timer = match deadline.into_iter().chain(chores).min() {
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
                recv(mapped) -> piece => match piece {
                    Ok((id, hold)) => self.mapped(id, hold),
                    Err(_) => mapped = never(),
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
            for (id, hold) in mapped.try_iter() {
                self.mapped(id, hold);
            }
            for (file, bytes_per_s) in told.try_iter() {
                self.event(Event::Bitrate { file, bytes_per_s });
            }
        }
        for (_, pending) in std::mem::take(&mut self.pending) {
            (pending.on_answer)(Answer::Closing);
        }
        self.own.spindle = self.spindle.stats();
        self.remember();
        if let Some((_, log)) = &self.log {
            log.flush();
        }
    }

    fn now(&self) -> Nanos {
        self.at(Instant::now())
    }

    /// A moment on the spindle's clock; what lies before its beginning counts as that.
    fn at(&self, moment: Instant) -> Nanos {
        Nanos(moment.saturating_duration_since(self.began).as_nanos() as u64)
    }

    fn event(&mut self, event: Event) {
        let now = self.now();
        if let Some((disk, log)) = &self.log {
            log.write(&Line { disk: *disk, at: now, entry: Entry::Event(event) });
        }
        self.spindle.handle(now, event);
    }

    fn next_action(&mut self) -> Option<Action> {
        let action = self.spindle.poll_action()?;
        if let Some((disk, log)) = &self.log {
            log.write(&Line { disk: *disk, at: self.now(), entry: Entry::Action(action) });
        }
        Some(action)
    }

    fn message(&mut self, message: Message) {
        match message {
            Message::Ask(ask) => self.ask(*ask),
            Message::Hit(hit) => self.hit(*hit),
            Message::Access { file, offset, len } => self.moved_on(file, offset, len, Taken::All),
            Message::Release { file, offset, len } => self.event(Event::Release { file, offset, len }),
            Message::Cancel(id) => self.event(Event::Cancel(id)),
        }
    }

    fn ask(&mut self, ask: Ask) {
        let known = self.sources.get(&ask.file).and_then(|(source, _)| source.upgrade());
        // Opened again here and not by the receptionist: opening may ask a file server that hangs.
        let source = known.unwrap_or_else(|| Arc::new(ask.passed.source()));
        self.sources.insert(ask.file, (Arc::downgrade(&source), ask.steps));
        if self.settings.hears_hits() {
            self.keep(
                ask.file,
                Kept { source: source.clone(), edition: ask.edition, start: ask.start, used: Instant::now() },
            );
        }
        let lba = self.addresses.lba(ask.file, ask.edition, &source, ask.offset, ask.start);
        self.pending.insert(
            ask.id,
            Pending {
                on_answer: ask.on_answer,
                file: ask.file,
                source,
                need_offset: ask.need_offset,
                need_len: ask.need_len,
                answer_is_read: ask.answer_is_read,
            },
        );
        self.event(Event::Request(Request {
            id: ask.id,
            file: ask.file,
            from: ask.need_offset,
            offset: ask.offset,
            len: ask.len,
            file_size: ask.edition.size,
            lba,
            demand: seekless_policy::Demand {
                deadline: ask.demand.deadline.map(|at| self.at(at)),
                bitrate: ask.demand.bitrate,
            },
        }));
    }

    /// A file was read, all from memory.
    fn hit(&mut self, hit: Hit) {
        let Hit { passed, file, edition, offset, len, taken, start, steps } = hit;
        let known = self.sources.get(&file).and_then(|(source, _)| source.upgrade());
        let source = known.unwrap_or_else(|| Arc::new(passed.source()));
        self.sources.insert(file, (Arc::downgrade(&source), steps));
        self.keep(file, Kept { source, edition, start, used: Instant::now() });
        self.moved_on(file, offset, len, taken);
    }

    /// A stream moved on. Of a file that is not held open nothing could be read ahead; its next miss opens it.
    fn moved_on(&mut self, file: FileId, offset: u64, len: u64, taken: Taken) {
        let Some(kept) = self.kept.get_mut(&file) else { return };
        kept.used = Instant::now();
        let (source, edition, start) = (kept.source.clone(), kept.edition, kept.start);
        let lba = self.addresses.lba(file, edition, &source, offset, start);
        // The door's word for the size would do; the block map's is the one the address belongs to.
        let file_size = edition.size;
        self.event(Event::Access(Access { file, offset, len, file_size, lba, taken }));
        self.held.read(file, offset, offset.saturating_add(len), &self.spindle);
        let met = self.met.entry(file).or_insert(0);
        *met = met.saturating_add(1);
        if LOOK_AT.contains(met) {
            // A thread that is behind misses it; the next time is another chance.
            let _ = self.looks.try_send(Look { file, size: file_size, source });
        }
    }

    fn keep(&mut self, file: FileId, kept: Kept) {
        if self.kept.len() >= KEPT_MAX && !self.kept.contains_key(&file) {
            let mut used: Vec<Instant> = self.kept.values().map(|k| k.used).collect();
            // The eighth used longest ago goes at once, so that the search is paid once in many files.
            let (_, &mut threshold, _) = used.select_nth_unstable(KEPT_MAX / 8);
            self.kept.retain(|_, k| k.used > threshold);
        }
        self.kept.insert(file, kept);
    }

    /// What is to be done once in a while.
    fn chores(&mut self) {
        if !self.settings.hears_hits() {
            return;
        }
        let now = Instant::now();
        let disks = self.disks.load(Ordering::Relaxed);
        if let Some(budget) = self.budget.due(now, &self.own.spindle, disks) {
            self.event(Event::Budget(budget));
            self.sample();
            if let Some((_, log)) = &self.log {
                log.flush();
            }
        }
        if now.saturating_duration_since(self.purged) >= PURGE_EVERY {
            self.purged = now;
            self.kept.retain(|_, k| now.saturating_duration_since(k.used) < KEPT_FOR);
            let kept = &self.kept;
            self.met.retain(|file, _| kept.contains_key(file));
            self.held.purge(|file| kept.contains_key(&file), &self.spindle);
        }
        if now.saturating_duration_since(self.remembered) >= REMEMBER_EVERY {
            self.remembered = now;
            self.remember();
        }
    }

    /// Looks whether what was fetched for some streams is still there, those looked at longest ago first.
    fn sample(&mut self) {
        for _ in 0..SAMPLES {
            let Some((id, file, start, end)) = self.spindle.next_unread(self.sampled) else {
                // All have been looked at: from the first again, next time.
                self.sampled = None;
                return;
            };
            self.sampled = Some(id);
            let source = self.sources.get(&file).and_then(|(source, _)| source.upgrade());
            let Some(source) = source.filter(|_| start < end) else { continue };
            let Ok(there) = resident_prefix(source.as_fd(), start, end - start) else { continue };
            if there < end - start {
                // The first hole. The rest is looked at, or missed, later.
                let (offset, most) = (start + there, SAMPLE_HOLE.min(end - start - there));
                // Its first page is missing, whatever is told of the others.
                let len = missing_prefix(source.as_fd(), offset, most).unwrap_or(0).max(page_bytes());
                self.event(Event::Missing { file, offset, len });
            }
        }
    }

    /// Keeps the size to start with next time.
    fn remember(&mut self) {
        let size = &self.own.spindle.size;
        if size.kind == "auto" && size.intervals > 0 {
            self.disk.remember(Bytes(size.target));
        }
    }

    fn report(&mut self, report: Report) {
        match report {
            Report::Started { at } => {
                if let Some(since) = self.stood_still_since.take() {
                    let gap = at.saturating_duration_since(since);
                    self.own.gap.record(Nanos(gap.as_nanos() as u64));
                }
            }
            Report::Found { id, from, upto } => self.event(Event::Found { read: id, from, upto }),
            Report::Progress { id, upto } => self.event(Event::Progress { read: id, upto }),
            Report::Done { id, at, result } => {
                let whole = result.as_ref().is_ok_and(|brought| brought.lost == 0);
                self.held.arrived(id, |file| {
                    let source = self.sources.get(&file).filter(|_| whole)?;
                    source.0.upgrade()
                });
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
                let before = self.spindle.stats();
                self.stood_still_since = (before.queued > 0 && before.in_flight == 1).then_some(at);
                self.event(Event::Done { read: id, outcome });
            }
        }
    }

    /// The thread that holds is done with a piece.
    fn mapped(&mut self, id: ReadId, hold: Option<Hold>) {
        self.held.keep(id, hold);
        self.held.renew(|file| self.sources.get(&file)?.0.upgrade());
    }

    fn act(&mut self) {
        while let Some(action) = self.next_action() {
            match action {
                Action::Answer { request, verdict } => self.answer(request, verdict),
                Action::Drop { file, offset, len } => {
                    self.held.given_back(file, offset, offset + len);
                    if let Some(source) = self.sources.get(&file).and_then(|(s, _)| s.upgrade()) {
                        give_back(&source, offset, len);
                    }
                }
                Action::Read { id, file, offset, len, .. } => {
                    let source = self.sources.get(&file).and_then(|(s, steps)| Some((s.upgrade()?, *steps)));
                    // A piece somebody waits for has a source, held by the waiter. One fetched ahead may have lost its file
                    // meanwhile; the spindle must hear of the end all the same.
                    self.held.ordered(id, file, offset, offset + len);
                    let sent = source.is_some_and(|(source, steps)| {
                        self.jobs.try_send(Job { id, source, offset, len, steps }).is_ok()
                    });
                    if !sent {
                        self.held.arrived(id, |_| None);
                        self.event(Event::Done { read: id, outcome: Outcome::Failed });
                    }
                }
            }
        }
        if self.sources.len() > 2 * self.pending.len() + 64 {
            self.sources.retain(|_, (source, _)| source.strong_count() > 0);
        }
    }

    fn answer(&mut self, id: RequestId, verdict: Verdict) {
        let Some(pending) = self.pending.remove(&id) else { return };
        let answer = match verdict {
            Verdict::Resident => Answer::Resident(Found {
                fd: pending.source.as_fd(),
                offset: pending.need_offset,
                len: pending.need_len,
            }),
            Verdict::Pass(reason) => Answer::Pass(reason),
        };
        (pending.on_answer)(answer);
        if pending.answer_is_read && verdict == Verdict::Resident {
            self.moved_on(pending.file, pending.need_offset, pending.need_len, Taken::Unknown);
        }
    }

    fn publish(&mut self) {
        self.own.spindle = self.spindle.stats();
        self.own.pieces_held = self.held.count();
        if let Ok(mut published) = self.published.lock() {
            published.clone_from(&self.own);
        }
    }
}
