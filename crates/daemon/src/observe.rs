//! The third door: the page cache reports every read after the fact, and no program waits.
//!
//! ```text
//!  any program: read, sendfile, mmap       (goes on at once)
//!        | a tracepoint or a function of the page cache
//!        v
//!  a ring a processor, written by the kernel; full: counted as lost
//!        v
//!  listener thread: events -> reads -> is the file known?
//!        |-- yes: thread of that disk
//!        |-- no, and the read went on: finder thread: number -> open file -> thread of that disk
//!        |-- no, and the head is missing: the same
//!        `-- no: remembered, no file is opened
//! ```
//!
//! - [`reads`]: combines the events of a call, and of consecutive calls, to reads.
//! - [`table`]: what is known of files.
//! - [`finder`]: opens a file by its number, by a handle, or after a walk ([`scan`]).
//! - [`hearing`]: the devices whose events the kernel is asked for.
//! - [`processes`]: processes whose reads are ignored.
//! - [`volume`]: the folders.
//!
//! There is no request here and no answer: the kernel serves a read that misses. Whatever this process does
//! or does not do, no program waits; its end, however it comes, closes the rings.

pub(crate) mod finder;
mod hearing;
mod processes;
mod reads;
mod scan;
mod table;
pub(crate) mod volume;

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};
use finder::{Finder, Search};
use hearing::Hearing;
use processes::{LOOKS_MAX, Processes};
use reads::{Inode, Reads, Seen};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use seekless_base::Fault;
use seekless_engine::{Devices, Engine, Reported, ends_within, lock};
use seekless_frontend::advice::unavailable;
use seekless_frontend::status::ObserveReport;
use seekless_kernel::cacheevents::{Attachment, CacheEvent, DEVICES_MAX};
use seekless_kernel::lsm;
use seekless_kernel::residency::page_bytes;
use seekless_kernel::state::made_folder;
use seekless_policy::{FileId, IoPriority};
use table::{Answer, Order, Table};
use volume::Volume;

use crate::counts::Counts;
use crate::daemon::Daemon;
use crate::limits::{Limited, Limits};
use crate::passing::Passing;
use crate::statistics::DoorReport;

/// Interval at which the rings are emptied while reads arrive. A miss takes the disk several times as long,
/// so what follows it is ordered while the kernel still reads it. Half of it costs twice the wake-ups.
const ROUND: Duration = Duration::from_millis(2);

/// Maximum interval while no reads arrive: ten wake-ups a second. A ring that fills ends the pause.
const ROUND_IDLE: Duration = Duration::from_millis(100);

/// Maximum number of queued searches. Beyond it a file waits for its next reads.
const SEARCHES_MAX: usize = 1024;

/// Maximum time for each thread to end.
const END_MAX: Duration = Duration::from_millis(300);

impl Counts<ObserveReport> {
    /// Hands a read to the engine.
    fn forward(&self, devices: &Devices, file: FileId, seen: &Seen) {
        match devices.read_taken(seen.pid, file, seen.start, seen.end - seen.start, seen.taken) {
            Reported::Taken => self.count(|c| c.accesses += 1),
            Reported::Dropped | Reported::Unknown => self.count(|c| c.dropped += 1),
        }
    }

    /// Reports to the engine that the kernel reads these bytes of a file, at least, because a program waits.
    fn missed(&self, devices: &Devices, pid: u32, file: FileId, bytes: Range<u64>, io: IoPriority) {
        self.count(|c| c.missed += 1);
        if devices.missed(pid, file, bytes, io) != Reported::Taken {
            self.count(|c| c.dropped += 1);
        }
    }
}

/// The open door. Dropping it closes it.
pub(crate) struct Door {
    /// The folders observed.
    pub(crate) volumes: Arc<[Volume]>,
    engine: Engine,
    counts: Arc<Counts<ObserveReport>>,
    /// Devices whose files must be forgotten.
    forget: Sender<(u32, u32)>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    /// Locks that allow one observer for each file system. They end with this process, however it ends.
    _claims: Vec<File>,
}

impl Door {
    /// Starts to listen, by this attachment, else the best.
    ///
    /// # Errors
    /// The kernel, the file system or our permissions do not allow it; a path is not a directory; another
    /// process observes its file system.
    pub(crate) fn open(dirs: &[PathBuf], by: Option<Attachment>, daemon: &Daemon) -> Result<Door, Fault> {
        let volumes: Arc<[Volume]> = Volume::find(dirs)?.into();
        let mut devices: Vec<(u32, u32)> = volumes.iter().map(|v| v.dev).collect();
        devices.sort_unstable();
        devices.dedup();
        if devices.len() > DEVICES_MAX {
            return Err(Fault::usage(format!(
                "the folders lie on {} file systems; name at most {DEVICES_MAX}",
                devices.len()
            )));
        }
        let claims = devices.iter().map(|&dev| claim(dev)).collect::<Result<_, Fault>>()?;
        let hearing = Hearing::open(devices, by).map_err(unavailable)?;
        let by = ObserveReport {
            attachment: hearing.attachment.name().into(),
            folders: volumes.iter().map(|v| v.path.display().to_string()).collect(),
            ..ObserveReport::default()
        };
        let (engine, counts) = (daemon.shared.engine.clone(), Arc::new(Counts::new(by)));
        let stop = Arc::new(AtomicBool::new(false));
        let (search, searches) = bounded(SEARCHES_MAX);
        let (answer, answers) = bounded(SEARCHES_MAX);
        let (forget, to_forget) = bounded(DEVICES_MAX);
        let finder = Finder::new(volumes.clone(), engine.clone(), counts.clone());
        let listener = Listener {
            hearing,
            reads: Reads::new(page_bytes()),
            processes: Processes::new(daemon.shared.callers.clone()),
            table: Table::default(),
            engine: engine.clone(),
            passing: daemon.shared.passing.clone(),
            limits: daemon.shared.limits.clone(),
            counts: counts.clone(),
            search,
            answers,
            to_forget,
            stop: stop.clone(),
        };
        let mut door = Door { volumes, engine, counts, forget, stop, threads: Vec::new(), _claims: claims };
        let no_thread = |e: io::Error| Fault::failed(format!("cannot start a thread: {e}; check ulimit -u"));
        let find = move || finder.run(&searches, &answer);
        door.threads.push(thread::Builder::new().name("finder".into()).spawn(find).map_err(no_thread)?);
        let listen = move || listener.run();
        door.threads.push(thread::Builder::new().name("listener".into()).spawn(listen).map_err(no_thread)?);
        let counts = door.counts.clone();
        daemon.show(Box::new(move || DoorReport::Observe(counts.report())));
        Ok(door)
    }

    /// Closes every file of these volumes, so that their file systems can be unmounted. Files that are still
    /// read are opened again.
    pub(crate) fn release(&self, wanted: impl Fn(&Volume) -> bool) {
        for volume in self.volumes.iter().filter(|v| wanted(v)) {
            // The listener handles it within a round; a full queue means that it has the same to do already.
            let _ = self.forget.try_send(volume.dev);
            self.engine.leave(volume.st_dev);
            self.counts.count(|c| c.released += 1);
        }
    }

    /// Stops all events, and closes all files.
    pub(crate) fn close(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.release(|_| true);
        for thread in self.threads.drain(..) {
            ends_within(&thread, END_MAX);
        }
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.close();
    }
}

/// Locks the file for observing this device. It is in the state folder, where no other user can create, open
/// or lock anything. The empty file stays, because a removed one could be locked twice.
fn claim(dev: (u32, u32)) -> Result<File, Fault> {
    let folder = made_folder().map_err(|e| Fault::permission(e.to_string()))?;
    let path = folder.join(format!("observe-{}:{}.lock", dev.0, dev.1));
    let fault = |e: io::Error| {
        let (dev, at) = (format!("{}:{}", dev.0, dev.1), path.display());
        Fault::failed(
            format!(
                "cannot claim the file system {dev}: {at}: {e}; set SEEKLESS_STATE to a folder of root's"
            ) + &lsm::hint(&e),
        )
    };
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR).map_err(|e| fault(e.into()))?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file.into()),
        Err(Errno::WOULDBLOCK) => Err(Fault::busy(format!(
            "another seekless observe has the file system {}:{}; end it first",
            dev.0, dev.1
        ))),
        Err(e) => Err(fault(e.into())),
    }
}

/// The thread that empties the rings. It touches no disk.
struct Listener {
    hearing: Hearing,
    reads: Reads,
    processes: Processes,
    table: Table,
    engine: Engine,
    passing: Arc<Passing>,
    limits: Arc<Limits>,
    counts: Arc<Counts<ObserveReport>>,
    search: Sender<Search>,
    answers: Receiver<(Inode, Answer)>,
    to_forget: Receiver<(u32, u32)>,
    stop: Arc<AtomicBool>,
}

impl Listener {
    fn run(mut self) {
        seekless_engine::run_first();
        let (mut events, mut seen, mut forward) = (Vec::new(), Vec::new(), Vec::new());
        let (mut missed, mut missing) = (Vec::new(), Vec::new());
        let mut pause = ROUND;
        let mut counted = Instant::now();
        while !self.stop.load(Ordering::Acquire) {
            self.wait(pause);
            let now = Instant::now();
            for dev in self.to_forget.try_iter() {
                self.table.forget(dev);
            }
            for (inode, answer) in self.answers.try_iter() {
                if answer == Answer::NotServed {
                    self.hearing.leave_out(inode.dev, now);
                }
                // Process the reads that arrived during the search.
                seen.extend(self.table.answered(inode, answer, now));
            }
            let searched = seen.len();
            self.hear(&mut events, now);
            let reads = self.reads.take(&events, &mut seen, &mut missed);
            let bytes: u64 = seen[searched..].iter().map(|seen| seen.end - seen.start).sum();
            self.counts.count(|c| {
                c.reads += reads;
                c.bytes += bytes;
            });
            if self.passing.now(now) {
                // The kernel reads the missing bytes.
                missed.clear();
            }
            // A client that misses waits: its earlier reads of the same round come first.
            for seen in seen.drain(..) {
                let order = self.table.read(seen, now);
                self.take(order, (seen.inode, seen.pid), |file| forward.push((file, seen)));
            }
            for miss in missed.drain(..) {
                let order = self.table.missed(miss.inode, miss.start, now);
                self.take(order, (miss.inode, miss.pid), |file| missing.push((file, miss)));
            }
            let io = |thread: u32| self.engine.priority_of(thread);
            let misses: Vec<_> = missing.drain(..).map(|(file, miss)| (file, miss, io(miss.tid))).collect();
            if !forward.is_empty() || !misses.is_empty() {
                let devices = lock(self.engine.devices());
                for (file, seen) in forward.drain(..) {
                    self.counts.forward(&devices, file, &seen);
                }
                for (file, miss, io) in misses {
                    self.counts.missed(&devices, miss.pid, file, miss.start..miss.end, io);
                }
            }
            pause = if events.is_empty() { (pause * 2).min(ROUND_IDLE) } else { ROUND };
            // Counting goes through the whole table.
            if now.saturating_duration_since(counted) >= ROUND_IDLE {
                counted = now;
                self.count();
                self.hearing.take_back(now);
            }
        }
    }

    /// Executes the table's order for a file.
    fn take(&mut self, order: Order, (inode, pid): (Inode, u32), forward: impl FnOnce(FileId)) {
        match order {
            Order::Nothing => {}
            Order::Drop => self.counts.count(|c| c.dropped += 1),
            Order::Forward(file) => forward(file),
            Order::Find(reads) => {
                if self.search.try_send(Search { inode, reads, pid }).is_err() {
                    self.table.not_sought(inode);
                    self.counts.count(|c| c.dropped += 1);
                }
            }
        }
    }

    /// Waits until the pause is over or a ring fills.
    fn wait(&self, pause: Duration) {
        let timeout = Timespec { tv_sec: 0, tv_nsec: pause.as_nanos() as _ };
        let mut ready: Vec<PollFd<'_>> =
            self.hearing.descriptors().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        let _ = poll(&mut ready, Some(&timeout));
    }

    /// Empties the rings into `events`, without events that are reported in another way.
    fn hear(&mut self, events: &mut Vec<CacheEvent>, now: Instant) {
        events.clear();
        let drained = self.hearing.drain(events);
        self.counts.count(|c| {
            c.own += drained.own;
            c.lost += drained.lost;
            c.events += events.len() as u64;
        });
        self.processes.round();
        let (mut last, before) = ((0, false), events.len());
        events.retain(|event| {
            if event.pid != last.0 {
                last = (event.pid, self.processes.is_told_otherwise(event.pid, now));
            }
            !last.1
        });
        self.counts.count(|c| c.told_otherwise += (before - events.len()) as u64);
        // Reads of processes that are limited, or may be, are not followed.
        let (mut last, before) = (None, events.len());
        let (mut limited, mut looks) = (false, 0);
        events.retain(|event| {
            if last.replace((event.pid, event.dev)) != Some((event.pid, event.dev)) {
                let device = rustix::fs::makedev(event.dev.0, event.dev.1);
                limited = match self.limits.known(event.pid, device, now) {
                    Limited::Unknown if looks < LOOKS_MAX => {
                        looks += 1;
                        self.limits.holds(event.pid, device, now)
                    }
                    known => known != Limited::No,
                };
            }
            !limited
        });
        self.counts.count(|c| c.limited += (before - events.len()) as u64);
    }

    /// Updates the counters of known files, for the statistics.
    fn count(&self) {
        let counts = self.table.counts();
        self.counts.count(|c| (c.files_known, c.files_waiting) = counts);
    }
}
