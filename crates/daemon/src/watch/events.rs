//! The event threads: every read under the folders passes here, and most are released at once.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};
use seekless_base::wants::{CallKind, DoorLimits, TO_END, Want};
use seekless_engine::{
    ClientDemand, Door, Engine, FilesUsed, ForwardedCall, OnAnswer, Refused, Submitted, Ticket, lock,
    run_first,
};
use seekless_frontend::status::WatchReport;
use seekless_kernel::call::{BlockedCall, blocked_call, is_own_thread};
use seekless_kernel::fanotify::{Event, Group};
use seekless_kernel::prefetch::Source;
use seekless_policy::{FileId, Taken};

use super::beats::{Beats, ROUND};
use super::files::Files;
use super::pauses::Pauses;
use super::scope::Folders;
use crate::blocked_calls::Registry;
use crate::counts::Counts;
use crate::limits::Limits;
use crate::settings::DaemonSettings;

/// Maximum number of events that one thread takes at once if there are several threads, so that the others
/// get some.
const FEW: usize = 4;

/// What the event threads share.
pub(crate) struct Announcer {
    pub(crate) group: Group,
    pub(crate) settings: Arc<DaemonSettings>,
    pub(crate) engine: Engine,
    pub(crate) registry: Arc<Registry>,
    pub(crate) files: Files,
    /// Files that were missed lately.
    pub(crate) followed: Mutex<FilesUsed>,
    pub(crate) folders: Arc<Folders>,
    pub(crate) pauses: Pauses,
    pub(crate) limits: Arc<Limits>,
    pub(crate) counts: Counts<WatchReport>,
}

impl Announcer {
    /// The report of this door for the statistics.
    pub(crate) fn report(&self) -> WatchReport {
        WatchReport {
            folders: self.folders.paths().map(|p| p.display().to_string()).collect(),
            held_now: self.registry.blocked_now(),
            overdue: self.registry.overdue(),
            ignored_now: self.files.ignored_now(),
            ..self.counts.report()
        }
    }

    /// Answers events until `stop` is set.
    pub(crate) fn run(&self, beats: &Beats, index: usize, stop: &AtomicBool, few: bool) {
        let Ok(epoll) = self.wake_one() else {
            // Without a beat the supervisor ends the process.
            tracing::error!("cannot open an event queue for an event thread");
            return;
        };
        run_first();
        let most = if few { FEW } else { usize::MAX };
        let round = Timespec { tv_sec: 0, tv_nsec: ROUND.as_nanos() as _ };
        let mut events = Vec::new();
        while !stop.load(Ordering::Acquire) {
            beats.beat(index, Instant::now());
            if self.group.read(&mut events, most).is_err() {
                // The kernel could not open a descriptor for an event. Avoid a busy loop.
                std::thread::sleep(Duration::from_millis(1));
            }
            if events.is_empty() {
                let mut woken = [std::mem::MaybeUninit::<epoll::Event>::uninit(); 1];
                let _ = epoll::wait(&epoll, &mut woken, Some(&round));
            }
            for event in events.drain(..) {
                self.event(event);
            }
        }
    }

    /// An event queue that wakes one thread for an event, not all of them.
    fn wake_one(&self) -> rustix::io::Result<OwnedFd> {
        let queue = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let interest = epoll::EventFlags::IN | epoll::EventFlags::EXCLUSIVE;
        epoll::add(&queue, self.group.as_fd(), epoll::EventData::new_u64(0), interest)?;
        Ok(queue)
    }

    /// Releases a reader, or hands its read to the engine. Dropping the event on any path releases it.
    fn event(&self, event: Event) {
        let counts = &self.counts;
        counts.count(|c| c.events += 1);
        let Some(fd) = event.file() else { return counts.count(|c| c.nothing_to_do += 1) };
        let (offset, count) = event.range().unwrap_or((0, TO_END));
        let Ok(call) = ForwardedCall::of(fd, offset, count) else {
            return counts.count(|c| c.nothing_to_do += 1);
        };
        let now = Instant::now();
        if !self.files.inside(call.file, fd, &self.folders, now) {
            let _ = self.group.ignore(fd);
            self.for_nothing(call.file, now);
            return counts.count(|c| c.outside += 1);
        }
        // A blocked read is not reported: it is the read that its answer releases.
        let pid = u32::try_from(event.tid()).unwrap_or(0);
        let call = call.looked(fd, &self.settings.engine.policy.limits());
        let demand = ClientDemand {
            io: self.engine.priority_of(u32::try_from(event.tid()).unwrap_or(0)),
            ..call.demand
        };
        let call = ForwardedCall { answer_is_read: true, pid, demand, ..call };
        let mut door = EventDoor {
            announcer: self,
            want: call.want,
            file_id: call.file,
            count,
            event: Some(event),
            now,
        };
        let submitted = self.engine.submit(call, &mut door);
        match submitted {
            Ok(Submitted::Resident { want, .. }) => {
                counts.count(|c| c.hits += 1);
                if let Some(event) = door.event {
                    self.hit(event, &ForwardedCall { want, ..call }, now);
                }
            }
            Ok(Submitted::Blocked(_)) => {
                lock(&self.followed).asked(call.file, now);
                self.heard(call.file, now);
                counts.count(|c| c.held += 1);
            }
            Err(Refused::Mode | Refused::BadRequest) => counts.count(|c| c.nothing_to_do += 1),
            Err(Refused::NotADisk) => {
                let _ = self.group.ignore(door.fd());
                self.folders.leave_alone(call.file.dev, &self.group);
                counts.count(|c| c.not_a_disk += 1);
            }
            Err(Refused::Full) => {
                self.heard(call.file, now);
                counts.count(|c| c.passed_full += 1);
            }
            // Counted where its reason was found.
            Err(Refused::Door) => {}
        }
    }

    /// Everything is in memory: the reader is released first, then the read is recorded.
    fn hit(&self, event: Event, call: &ForwardedCall, now: Instant) {
        let tid = event.tid();
        let size = call.edition.size;
        let is_in_memory = |file: BorrowedFd<'_>| {
            let needs_every_hit = || lock(self.engine.devices()).needs_every_hit(call.file);
            self.files.is_in_memory(call.file, size, file, now, (&self.group, &self.counts), needs_every_hit)
        };
        // For a read that covers the whole file, the file is ignored before the reader is released, so that
        // its next read, which finds the end, raises no event. Counting the pages of a large file would delay
        // its reader, so those are counted afterwards.
        let covers_file = call.want.offset() == 0 && call.want.len() >= size;
        let counted_before = covers_file && event.file().is_some_and(is_in_memory);
        let Some(fd) = event.allow() else { return };
        if is_own_thread(tid) {
            // The engine itself opens files and maps what it has brought in, which no program reads. Checked
            // after the reader is released.
            return self.counts.count(|c| c.own += 1);
        }
        if self.is_limited(tid, call.file, now) {
            return self.counts.count(|c| c.limited += 1);
        }
        let in_memory = counted_before || (!covers_file && is_in_memory(fd.as_fd()));
        if in_memory && !self.is_followed(call.file, now) {
            return self.for_nothing(call.file, now);
        }
        self.heard(call.file, now);
        if !self.settings.engine.hears_hits() {
            return;
        }
        // The kind and size of its read can no longer be queried: its thread has gone on.
        self.engine.hit(call, Taken::Unknown, Source::own(fd));
    }

    /// Whether the cgroup of a thread limits its reads on a file's disk.
    fn is_limited(&self, tid: i32, file: FileId, now: Instant) -> bool {
        self.limits.holds(u32::try_from(tid).unwrap_or(0), file.dev, now)
    }

    /// An announced read was not needed.
    fn for_nothing(&self, file: FileId, now: Instant) {
        self.pauses.hit(file.dev, now, || {
            let pauses = self.folders.pause(file.dev, &self.group);
            self.counts.count(|c| c.pauses += u64::from(pauses));
            pauses
        });
    }

    /// An announced read is useful to the engine.
    fn heard(&self, file: FileId, now: Instant) {
        self.pauses.heard(file.dev, now, || self.folders.resume(file.dev, &self.group));
    }

    /// Whether the engine may have read ahead in this file, so that it needs reports of its readers.
    fn is_followed(&self, file: FileId, now: Instant) -> bool {
        lock(&self.followed).read(file, now)
    }
}

/// The kernel's side of a submitted call: an event whose thread is blocked.
struct EventDoor<'a> {
    announcer: &'a Announcer,
    want: Want,
    file_id: FileId,
    /// Bytes named by the event.
    count: u64,
    /// `None` once its thread is blocked.
    event: Option<Event>,
    now: Instant,
}

impl EventDoor<'_> {
    fn file(&self) -> Option<BorrowedFd<'_>> {
        self.event.as_ref().and_then(Event::file)
    }
}

impl Door for EventDoor<'_> {
    fn fd(&self) -> BorrowedFd<'_> {
        self.file().unwrap_or(rustix::fs::CWD)
    }

    /// A sendfile sends what fits into its socket; which pages of a mapping will be touched is unknown.
    fn kind(&mut self, limits: &DoorLimits) -> Result<CallKind, Refused> {
        let tid = self.event.as_ref().map_or(0, Event::tid);
        let counts = &self.announcer.counts;
        if is_own_thread(tid) {
            // A thread of the socket door's engine reads a file under our folders. It must not wait for
            // itself.
            counts.count(|c| c.own += 1);
            return Err(Refused::Door);
        }
        if self.announcer.is_limited(tid, self.file_id, self.now) {
            counts.count(|c| c.limited += 1);
            return Err(Refused::Door);
        }
        let kind = match blocked_call(tid) {
            BlockedCall::Write => {
                counts.count(|c| c.writes += 1);
                return Err(Refused::Door);
            }
            BlockedCall::Read => CallKind::Read,
            BlockedCall::Partial | BlockedCall::Map => CallKind::Part,
            BlockedCall::Unknown => CallKind::of_unknown(self.count, limits),
        };
        if self.want.waited_for(kind, limits) != self.want.waited_for(CallKind::Read, limits) {
            counts.count(|c| c.cut += 1);
        }
        Ok(kind)
    }

    fn block(&mut self, _: Ticket) -> Option<(OnAnswer, Arc<Source>)> {
        // The event keeps its descriptor until it is answered; the read gets a duplicate of the same struct
        // file, which raises no events either.
        let own = self.file().and_then(|fd| rustix::io::fcntl_dupfd_cloexec(fd, 3).ok());
        let held =
            own.zip(self.event.take().and_then(|event| self.announcer.registry.block(event, self.now)));
        let Some((own, held)) = held else {
            self.announcer.counts.count(|c| c.passed_full += 1);
            return None;
        };
        // Whatever the verdict, the reader is released.
        Some((Box::new(move |_| held.release()), Arc::new(Source::own(own))))
    }
}
