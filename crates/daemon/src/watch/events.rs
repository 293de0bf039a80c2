//! The event threads: every read under the folders passes here, and most are let go at once.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};
use seekless_engine::{
    Ask, Demand, Edition, Hit, Message, Passed, Place, SharedDevices, lock, readable_file, run_first,
};
use seekless_kernel::call::{Access, access_of, is_own_thread};
use seekless_kernel::fanotify::{Event, Group};
use seekless_kernel::prefetch::Source;
use seekless_kernel::residency::resident_prefix;
use seekless_policy::{FileId, Mode, RequestId, Taken};

use super::beats::{Beats, ROUND};
use super::counts::Counts;
use super::files::Files;
use super::scope::Folders;
use crate::held::Registry;
use crate::settings::DaemonSettings;
use crate::status::WatchReport;

/// Names of requests of this door; the receptionist counts up from one.
const FIRST_ID: u64 = 1 << 63;

/// Events one thread takes at once when there are several: what it takes the others cannot.
const FEW: usize = 4;

/// Everything the event threads share.
pub(crate) struct Announcer {
    pub(crate) group: Group,
    pub(crate) settings: Arc<DaemonSettings>,
    pub(crate) devices: SharedDevices,
    pub(crate) registry: Arc<Registry>,
    pub(crate) files: Files,
    pub(crate) folders: Arc<Folders>,
    pub(crate) counts: Arc<Counts>,
    pub(crate) ids: AtomicU64,
}

impl Announcer {
    /// What the statistics show of this door.
    pub(crate) fn report(&self) -> WatchReport {
        WatchReport {
            folders: self.folders.paths().map(|p| p.display().to_string()).collect(),
            held_now: self.registry.held_now(),
            overdue: self.registry.overdue(),
            ignored_now: self.files.ignored_now(),
            ..self.counts.report()
        }
    }

    /// Answers events until `stop` is set.
    pub(crate) fn run(&self, beats: &Beats, index: usize, stop: &AtomicBool, few: bool) {
        let Ok(epoll) = self.wake_one() else {
            // Without a beat the supervisor ends the process.
            tracing::error!("no event queue for an event thread");
            return;
        };
        run_first();
        let most = if few { FEW } else { usize::MAX };
        let round = Timespec { tv_sec: 0, tv_nsec: ROUND.as_nanos() as _ };
        let mut events = Vec::new();
        while !stop.load(Ordering::Acquire) {
            beats.beat(index, Instant::now());
            if self.group.read(&mut events, most).is_err() {
                // The kernel could not open a descriptor for an event. Not a loop to run hot.
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

    /// An event queue that wakes one thread an event, not all of them.
    fn wake_one(&self) -> rustix::io::Result<OwnedFd> {
        let queue = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let interest = epoll::EventFlags::IN | epoll::EventFlags::EXCLUSIVE;
        epoll::add(&queue, self.group.as_fd(), epoll::EventData::new_u64(0), interest)?;
        Ok(queue)
    }

    /// Lets a reader go, or hands it to its disk. Dropping the event on any path lets it go.
    fn event(&self, event: Event) {
        let counts = &self.counts;
        counts.events.add();
        let Some(fd) = event.file() else { return counts.nothing_to_do.add() };
        let (offset, count) = event.range().unwrap_or((0, u64::MAX));
        let Some((file, edition)) = readable_file(fd).filter(|(_, e)| offset < e.size && count > 0) else {
            return counts.nothing_to_do.add();
        };
        let now = Instant::now();
        if !self.files.inside(file, fd, &self.folders, now) {
            let _ = self.group.ignore(fd);
            return counts.outside.add();
        }
        // The most that may be waited for. Where the kernel does not tell, nothing is taken for resident.
        let config = &self.settings.engine.spindle;
        let reach = count.min(edition.size - offset).min(config.read_max.0);
        let resident = resident_prefix(fd, offset, reach).unwrap_or(0);
        if resident >= reach {
            counts.hits.add();
            return self.hit(event, file, edition, offset, reach, now);
        }
        if matches!(config.mode, Mode::Off | Mode::Track) {
            return counts.nothing_to_do.add();
        }
        if is_own_thread(event.tid()) {
            // A reader of the socket door reads a file under our folders. It must not wait for itself.
            return counts.own.add();
        }
        let access = access_of(event.tid());
        if access == Access::Write {
            return counts.writes.add();
        }
        let wanted = self.wanted(access, count, reach);
        if resident >= wanted {
            counts.hits.add();
            return self.hit(event, file, edition, offset, wanted, now);
        }
        let place = lock(&self.devices).place(file, fd, now);
        let (index, start, steps) = match place {
            Ok(Place::Reader { index, start, steps }) => (index, start, steps),
            Ok(Place::NotADisk) => {
                let _ = self.group.ignore(fd);
                return counts.not_a_disk.add();
            }
            Err(_) => return counts.full.add(),
        };
        // The event keeps its descriptor until it is answered; the read gets another one of the same struct file, which
        // raises no events either.
        let Ok(own) = rustix::io::fcntl_dupfd_cloexec(fd, 3) else { return counts.full.add() };
        let Some(held) = self.registry.hold(event, now) else { return counts.full.add() };
        let ask = Ask {
            id: RequestId(FIRST_ID | self.ids.fetch_add(1, Ordering::Relaxed)),
            // Whatever the verdict, the reader goes on.
            on_answer: Box::new(move |_| held.release()),
            passed: Passed::Own(Source::own(own)),
            file,
            edition,
            need_offset: offset,
            need_len: wanted,
            offset: offset + resident,
            len: wanted - resident,
            start,
            steps,
            demand: Demand::default(),
            // Nobody reports it: it is this very read.
            answer_is_read: true,
        };
        // On failure the message comes back and is dropped, and with it the event.
        match lock(&self.devices).send(index, Message::Ask(Box::new(ask))) {
            Ok(()) => counts.held.add(),
            Err(_) => counts.full.add(),
        }
    }

    /// Everything is in memory: the reader goes on first, then comes the book-keeping.
    fn hit(&self, event: Event, file: FileId, edition: Edition, offset: u64, len: u64, now: Instant) {
        let tid = event.tid();
        let Some(fd) = event.allow() else { return };
        if self.files.is_count_due(file, now) && !lock(&self.devices).needs_every_hit(file) {
            self.files.ignore_if_resident(file, edition.size, &fd, &self.group, &self.counts);
        }
        if !self.settings.engine.hears_hits() {
            return;
        }
        if is_own_thread(tid) {
            // The socket door's engine maps what it has brought in: that is nobody's reading. Asked when the reader has gone on.
            return self.counts.own.add();
        }
        let place = lock(&self.devices).place(file, fd.as_fd(), now);
        let Ok(Place::Reader { index, start, steps }) = place else { return };
        // What it is to be, and of how much, can no longer be asked: its thread has gone on.
        let taken = Taken::Unknown;
        let hit =
            Hit { passed: Passed::Own(Source::own(fd)), file, edition, offset, len, taken, start, steps };
        // A reader that is behind misses a hit; the stream's next one tells it more.
        let _ = lock(&self.devices).send(index, Message::Hit(Box::new(hit)));
    }

    /// How much of an access is waited for, of what it may reach. A sendfile takes what fits its socket, and of a mapping
    /// nobody knows what will be touched: for them a prefetch size is brought in, and for what is longer than any read.
    fn wanted(&self, access: Access, count: u64, reach: u64) -> u64 {
        let config = &self.settings.engine.spindle;
        let exact = match access {
            Access::Read => true,
            Access::Unknown => count <= config.read_max.0,
            Access::Partial | Access::Map | Access::Write => false,
        };
        if exact || !config.mode.prefetches() || reach <= config.prefetch.0 {
            return reach;
        }
        self.counts.cut.add();
        config.prefetch.0
    }
}
