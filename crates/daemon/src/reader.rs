//! The reader of one disk: a [`Spindle`] in real time.
//!
//! It takes requests from the receptionist and reports from its workers, feeds both to the spindle, hands the reads the
//! spindle orders to the workers and the answers to the shims. It never waits for the disk itself, except for the file
//! system's block map of a file it has not met before.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded, never, select_biased};
use seekless_kernel::prefetch::{Source, Steps, give_back};
use seekless_kernel::residency::resident_prefix;
use seekless_policy::{
    Action, Event, FileId, Histogram, Outcome, Reason, Request, RequestId, Spindle, Stats, Verdict,
};
use seekless_units::Nanos;
use seekless_wire::{Answer, Frame, PassReason};

use crate::addresses::{Addresses, Edition};
use crate::client::Client;
use crate::settings::Settings;
use crate::worker::{self, Job, Report, short_name};

/// A request on its way from the receptionist.
pub(crate) struct Ask {
    pub(crate) id: RequestId,
    pub(crate) client: Arc<Client>,
    /// As passed by the shim: open for reading, a regular file.
    pub(crate) fd: OwnedFd,
    pub(crate) file: FileId,
    pub(crate) edition: Edition,
    /// What the shim asked for.
    pub(crate) need_offset: u64,
    pub(crate) need_len: u64,
    /// What of it is missing.
    pub(crate) offset: u64,
    pub(crate) len: u64,
    /// First sector of the file system on the disk.
    pub(crate) start: u64,
    pub(crate) steps: Steps,
}

/// From the receptionist.
pub(crate) enum Message {
    Ask(Box<Ask>),
    Cancel(RequestId),
}

/// What a reader knows about itself, for the statistics.
#[derive(Clone, Default)]
pub(crate) struct Snapshot {
    pub(crate) spindle: Stats,
    /// From the end of a piece to the start of the next while one was queued and nothing else in flight: time the disk
    /// stood still on our account.
    pub(crate) gap: Histogram,
    pub(crate) second_try_pages: u64,
    pub(crate) lost_pages: u64,
    pub(crate) last_error: Option<String>,
}

/// The receptionist's end of a reader.
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
    pub(crate) fn start(name: &str, settings: Arc<Settings>) -> io::Result<Reader> {
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
        let snapshot = Arc::new(Mutex::new(Snapshot::default()));
        let body = Body {
            settings,
            spindle: Spindle::new(config),
            jobs,
            began: Instant::now(),
            pending: HashMap::new(),
            sources: HashMap::new(),
            addresses: Addresses::default(),
            stood_still_since: None,
            published: snapshot.clone(),
            own: Snapshot::default(),
        };
        let thread = thread::Builder::new()
            .name(short_name("disk", name))
            .spawn(move || body.run(messages, reports))?;
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

/// More workers than a disk has use for; also a bound for a mistyped option.
pub(crate) const WORKERS_MAX: usize = 64;

/// A request the spindle holds.
struct Pending {
    client: Arc<Client>,
    /// Keeps the file open while anybody waits for it.
    source: Arc<Source>,
    need_offset: u64,
    need_len: u64,
}

struct Body {
    settings: Arc<Settings>,
    spindle: Spindle,
    jobs: Sender<Job>,
    began: Instant,
    pending: HashMap<RequestId, Pending>,
    /// How to read a file: alive while a request for it is pending or a read of it in flight.
    sources: HashMap<FileId, (Weak<Source>, Steps)>,
    addresses: Addresses,
    stood_still_since: Option<Instant>,
    published: Arc<Mutex<Snapshot>>,
    own: Snapshot,
}

impl Body {
    fn run(mut self, messages: Receiver<Message>, reports: Receiver<Report>) {
        loop {
            self.act();
            self.publish();
            let timer = match self.spindle.next_deadline() {
                Some(at) => crossbeam_channel::at(self.began + Duration::from_nanos(at.0)),
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
            // The order of reads is the better the more of what has arrived is known before one is chosen.
            for report in reports.try_iter() {
                self.report(report);
            }
            for message in messages.try_iter() {
                self.message(message);
            }
        }
        for (id, pending) in std::mem::take(&mut self.pending) {
            pending.client.answer(id, Frame::Answer(Answer::pass(PassReason::Closing, self.settings.wire())));
        }
    }

    fn now(&self) -> Nanos {
        Nanos(self.began.elapsed().as_nanos() as u64)
    }

    fn event(&mut self, event: Event) {
        self.spindle.handle(self.now(), event);
    }

    fn message(&mut self, message: Message) {
        match message {
            Message::Ask(ask) => self.ask(*ask),
            Message::Cancel(id) => self.event(Event::Cancel(id)),
        }
    }

    fn ask(&mut self, ask: Ask) {
        let known = self.sources.get(&ask.file).and_then(|(source, _)| source.upgrade());
        // Opened again here and not by the receptionist: opening may ask a file server that hangs.
        let source = known.unwrap_or_else(|| Arc::new(Source::reopen(ask.fd)));
        self.sources.insert(ask.file, (Arc::downgrade(&source), ask.steps));
        let lba = self.addresses.lba(ask.file, ask.edition, &source, ask.offset, ask.start);
        self.pending.insert(
            ask.id,
            Pending { client: ask.client, source, need_offset: ask.need_offset, need_len: ask.need_len },
        );
        self.event(Event::Request(Request {
            id: ask.id,
            file: ask.file,
            offset: ask.offset,
            len: ask.len,
            file_size: ask.edition.size,
            lba,
        }));
    }

    fn report(&mut self, report: Report) {
        match report {
            Report::Started { at } => {
                if let Some(since) = self.stood_still_since.take() {
                    let gap = at.saturating_duration_since(since);
                    self.own.gap.record(Nanos(gap.as_nanos() as u64));
                }
            }
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
                let before = self.spindle.stats();
                self.stood_still_since = (before.queued > 0 && before.in_flight == 1).then_some(at);
                self.event(Event::Done { read: id, outcome });
            }
        }
    }

    fn act(&mut self) {
        while let Some(action) = self.spindle.poll_action() {
            match action {
                Action::Answer { request, verdict } => self.answer(request, verdict),
                Action::Drop { file, offset, len } => {
                    if let Some(source) = self.sources.get(&file).and_then(|(s, _)| s.upgrade()) {
                        give_back(&source, offset, len);
                    }
                }
                Action::Read { id, file, offset, len, .. } => {
                    let source = self.sources.get(&file).and_then(|(s, steps)| Some((s.upgrade()?, *steps)));
                    // A queued piece has a waiter, and a waiter holds the source; so there is one. Were there none, the
                    // spindle must still hear of the end.
                    let sent = source.is_some_and(|(source, steps)| {
                        self.jobs.try_send(Job { id, source, offset, len, steps }).is_ok()
                    });
                    if !sent {
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
        let wire = self.settings.wire();
        let answer = match verdict {
            Verdict::Resident => {
                let reach = pending.need_len.max(wire.prefetch_bytes);
                let prefix = resident_prefix(pending.source.as_fd(), pending.need_offset, reach);
                Answer::resident(prefix.unwrap_or(0), wire)
            }
            Verdict::Pass(reason) => Answer::pass(
                match reason {
                    Reason::QueueFull => PassReason::Full,
                    Reason::Failed | Reason::TooLate => PassReason::DiskError,
                    Reason::Mode => PassReason::Mode,
                    Reason::BeyondEnd | Reason::Duplicate => PassReason::BadRequest,
                    // Nobody is there to read it.
                    Reason::Cancelled => PassReason::Closing,
                },
                wire,
            ),
        };
        pending.client.answer(id, Frame::Answer(answer));
    }

    fn publish(&mut self) {
        self.own.spindle = self.spindle.stats();
        if let Ok(mut published) = self.published.lock() {
            published.clone_from(&self.own);
        }
    }
}
