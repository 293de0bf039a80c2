//! The thread that looks at what waits to be written to a disk, while the disk is read.
//!
//! It reads two files of `/sys/block` ([`WriteWatch`]) some hundred times a second, and tells the disk's
//! thread when writes begin or cease to wait. While nothing is read it sleeps and costs nothing. Without it
//! (no such device, no thread) the engine reads as if nothing were written.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use seekless_kernel::sysfs::SYS_BLOCK;
use seekless_kernel::writes::{Seen, WriteWatch};
use seekless_policy::{WRITES_BELIEVED, Writes};

use crate::worker::short_name;

/// Time between two looks while pieces are read, and while they wait for writes. Until the look after the
/// last write the disk is idle, so that the second one is shorter. At half the thread needs twice as much of
/// a processor, about a hundredth; at double, the disk is idle for twice as long after each turn of writers.
/// What readers and writers get hardly changes in either case.
const LOOK_EVERY: Duration = Duration::from_millis(5);
const LOOK_EVERY_IN_TURN: Duration = Duration::from_millis(1);

/// How long after the last read the thread goes on looking, so that it need not be woken for every piece.
const LINGER: Duration = Duration::from_millis(200);

/// Time between two reports of progress alone: several in the time of a piece. Half and double change nothing
/// that a reader or a writer gets.
const PROGRESS_EVERY: Duration = Duration::from_millis(20);

/// What the disk's thread is at.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    /// Nothing is read.
    Rest = 0,
    /// Pieces are read.
    Reads = 1,
    /// Pieces wait, and none is read.
    Waits = 2,
    /// Its end.
    Over = 3,
}

/// The disk thread's end.
pub(crate) struct WritesSeen {
    /// What waits to be written, when it has changed.
    pub(crate) reports: Receiver<Writes>,
    at: Arc<AtomicU8>,
    watcher: Thread,
}

impl WritesSeen {
    /// Starts the thread for a disk that consists of these whole devices. `None` if their writes cannot be
    /// seen.
    pub(crate) fn start(disk: &str, devices: &[String]) -> Option<WritesSeen> {
        let watch = WriteWatch::open(Path::new(SYS_BLOCK), devices)?;
        let (sender, reports) = bounded(1);
        let at = Arc::new(AtomicU8::new(At::Rest as u8));
        let watcher = Watcher { watch, news: News::default(), sender, at: at.clone() };
        let thread = thread::Builder::new().name(short_name("writes", disk)).spawn(move || watcher.run());
        match thread {
            Ok(thread) => Some(WritesSeen { reports, at, watcher: thread.thread().clone() }),
            Err(error) => {
                tracing::warn!(disk, %error, "cannot look at writes: no thread");
                None
            }
        }
    }

    /// Says what the disk's thread is at.
    pub(crate) fn is_at(&self, at: At) {
        let before = self.at.swap(at as u8, Ordering::Relaxed);
        if before == At::Rest as u8 && at != At::Rest {
            self.watcher.unpark();
        }
    }
}

impl Drop for WritesSeen {
    fn drop(&mut self) {
        self.at.store(At::Over as u8, Ordering::Relaxed);
        self.watcher.unpark();
    }
}

struct Watcher {
    watch: WriteWatch,
    news: News,
    sender: Sender<Writes>,
    at: Arc<AtomicU8>,
}

impl Watcher {
    /// Looks until the disk's thread or the device is gone.
    fn run(mut self) {
        let mut active = Instant::now();
        loop {
            let (now, at) = (Instant::now(), self.at.load(Ordering::Relaxed));
            if at == At::Over as u8 {
                return;
            }
            if at != At::Rest as u8 {
                active = now;
            }
            if now.saturating_duration_since(active) > LINGER {
                // Whatever is written meanwhile does not count.
                self.news = News::default();
                thread::park();
                if self.watch.look().is_err() {
                    return;
                }
                continue;
            }
            let Ok(seen) = self.watch.look() else { return };
            if let Some(writes) = self.news.of(now, seen) {
                match self.sender.try_send(writes) {
                    Ok(()) => self.news.told(now, writes),
                    // The disk's thread has not taken the last one; the next look tells both.
                    Err(TrySendError::Full(_)) => {}
                    Err(TrySendError::Disconnected(_)) => return,
                }
            }
            let waits = at == At::Waits as u8;
            thread::park_timeout(if waits { LOOK_EVERY_IN_TURN } else { LOOK_EVERY });
        }
    }
}

/// What is worth a report.
#[derive(Debug, Default)]
struct News {
    /// Bytes not reported yet.
    bytes: u64,
    told: Writes,
    told_at: Option<Instant>,
}

impl News {
    /// A report of what was seen, if it is due.
    fn of(&mut self, now: Instant, seen: Seen) -> Option<Writes> {
        self.bytes = self.bytes.saturating_add(seen.bytes);
        let since = |then: Option<Instant>| then.map(|then| now.saturating_duration_since(then));
        let writes = Writes { waiting: seen.in_flight, bytes: self.bytes };
        let changed = (writes.waiting > 0) != (self.told.waiting > 0);
        let half = Duration::from_nanos(WRITES_BELIEVED.0 / 2);
        let due = since(self.told_at).is_none_or(|ago| {
            (writes.bytes > 0 && ago >= PROGRESS_EVERY) || (writes.waiting > 0 && ago >= half)
        });
        let news = changed || (due && (writes.waiting > 0 || writes.bytes > 0));
        news.then_some(writes)
    }

    fn told(&mut self, now: Instant, writes: Writes) {
        (self.bytes, self.told, self.told_at) = (0, writes, Some(now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_told_at_once_and_progress_now_and_then() {
        let (mut news, start) = (News::default(), Instant::now());
        let mut of = |ms: u64, in_flight: u64, bytes: u64| {
            let now = start + Duration::from_millis(ms);
            let told = news.of(now, Seen { in_flight, bytes });
            told.inspect(|&writes| news.told(now, writes))
        };
        assert_eq!(of(0, 0, 0), None);
        assert_eq!(of(5, 2, 0), Some(Writes { waiting: 2, bytes: 0 }));
        assert_eq!(of(10, 3, 4096), None);
        assert_eq!(of(30, 3, 4096), Some(Writes { waiting: 3, bytes: 8192 }));
        assert_eq!(of(500, 3, 0), None);
        assert_eq!(of(535, 3, 0), Some(Writes { waiting: 3, bytes: 0 }), "repeated");
        assert_eq!(of(540, 0, 512), Some(Writes { waiting: 0, bytes: 512 }));
        assert_eq!(of(2_036, 0, 0), None);
    }

    #[test]
    fn the_thread_ends_with_its_disk() {
        let Some(device) = std::fs::read_dir(SYS_BLOCK).ok().and_then(|mut all| all.next()?.ok()) else {
            return println!("skipped: there is no block device here");
        };
        let name = device.file_name().to_string_lossy().into_owned();
        let seen = WritesSeen::start("test", std::slice::from_ref(&name)).unwrap();
        seen.is_at(At::Reads);
        let reports = seen.reports.clone();
        thread::sleep(4 * LOOK_EVERY);
        drop(seen);
        drop(reports);
        let until = Instant::now() + Duration::from_secs(5);
        let alive = || {
            let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
            threads.into_iter().any(|task| {
                std::fs::read_to_string(task.path().join("comm"))
                    .is_ok_and(|comm| comm.starts_with("writes-"))
            })
        };
        while alive() {
            assert!(Instant::now() < until, "it lives on");
            thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn what_has_no_device_is_not_watched() {
        assert!(WritesSeen::start("fuse", &["/mnt/fuse".to_string()]).is_none());
    }
}
