//! The threads that wait for a disk, so that its disk thread does not have to.
//!
//! There is one for each read that the engine may have in flight. A worker on a disk that hangs blocks no
//! other thread: the disk thread goes on taking requests and giving up those that have waited too long.
//!
//! If a file system selects the copy by the number of the reading thread ([`Mirror`]), each copy has workers
//! with suitable numbers. Numbers are assigned in turn, so a thread with a wrong one starts the next.

use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use seekless_kernel::prefetch::{Brought, Source, Steps, bring_in};
use seekless_kernel::residency::resident_stretches;
use seekless_policy::{FOUND_MAX, FileId, IN_FLIGHT_MAX, ReadId};

/// A piece to bring in.
pub(crate) struct Job {
    pub(crate) id: ReadId,
    pub(crate) source: Arc<Source>,
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) steps: Steps,
    /// The copy to read; `None` if there is no choice.
    pub(crate) mirror: Option<Mirror>,
}

/// One of the copies of a piece: it is read by threads whose number modulo `of` is `number`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mirror {
    pub(crate) number: usize,
    pub(crate) of: usize,
}

impl Mirror {
    /// Whether the calling thread reads this copy.
    fn is_read_here(self) -> bool {
        let thread = rustix::thread::gettid().as_raw_nonzero().get() as usize;
        thread % self.of.max(1) == self.number
    }
}

/// What a worker reports to its disk thread.
pub(crate) enum Report {
    /// The worker has started on the piece; its first read-ahead call follows at once.
    Started {
        at: Instant,
    },
    /// A range that was in memory before.
    Found {
        id: ReadId,
        from: u64,
        upto: u64,
    },
    Progress {
        id: ReadId,
        upto: u64,
    },
    /// Bytes that were read ahead and are not in memory any more ([`crate::deleted_files`]).
    Missing {
        file: FileId,
        offset: u64,
        len: u64,
    },
    Done {
        id: ReadId,
        at: Instant,
        result: Result<Brought, String>,
    },
}

/// Tracks whether any thread of a disk is left. A thread that waits for a file system that hangs stays as
/// long.
#[derive(Clone, Debug)]
pub(crate) struct DiskThreads(Weak<str>);

impl DiskThreads {
    /// Whether no thread is left.
    pub(crate) fn are_over(&self) -> bool {
        self.0.strong_count() == 0
    }
}

/// The workers of a disk, and what is needed to start more.
pub(crate) struct Workers {
    /// The disk's name. Its workers and its disk thread hold it as long as they live.
    disk: Arc<str>,
    /// One lane for each copy that was read, and one for pieces without a choice.
    lanes: Vec<Lane>,
    report: Sender<Report>,
}

/// Interchangeable workers.
struct Lane {
    mirror: Option<Mirror>,
    count: usize,
    jobs: Sender<Job>,
    todo: Receiver<Job>,
}

impl Workers {
    /// Starts workers for this many reads in flight. Their reports come out of the channel.
    ///
    /// # Errors
    /// No thread can be started.
    pub(crate) fn start(disk: &str, flights: usize) -> io::Result<(Workers, Receiver<Report>)> {
        let (report, reports) = bounded(IN_FLIGHT_MAX);
        let mut workers = Workers { disk: disk.into(), lanes: Vec::new(), report };
        let lane = workers.lane(None);
        workers.enough_for(lane, flights)?;
        Ok((workers, reports))
    }

    /// A sender of reports to the disk thread.
    pub(crate) fn reporter(&self) -> Sender<Report> {
        self.report.clone()
    }

    /// A weak handle on the workers, and on every other thread that holds the disk's name.
    pub(crate) fn threads(&self) -> DiskThreads {
        DiskThreads(Arc::downgrade(&self.disk))
    }

    /// The lane of the workers that read this copy.
    fn lane(&mut self, mirror: Option<Mirror>) -> usize {
        let known = self.lanes.iter().position(|lane| lane.mirror == mirror);
        known.unwrap_or_else(|| {
            // Never more jobs than the engine has reads in flight ([`seekless_policy::Config::flights_max`]).
            let (jobs, todo) = unbounded();
            self.lanes.push(Lane { mirror, count: 0, jobs, todo });
            self.lanes.len() - 1
        })
    }

    /// Spawn workers up to `flights`, and never more than [`IN_FLIGHT_MAX`] in a lane.
    ///
    /// # Errors
    /// No thread can be started. The existing ones go on.
    fn enough_for(&mut self, lane: usize, flights: usize) -> io::Result<()> {
        let lane = &mut self.lanes[lane];
        while lane.count < flights.clamp(1, IN_FLIGHT_MAX) {
            spawn(self.disk.clone(), lane.mirror, lane.todo.clone(), self.report.clone(), IN_FLIGHT_MAX)?;
            lane.count += 1;
        }
        Ok(())
    }

    /// Hands a piece over; `flights` counts the reads in flight including it. Returns `false` if it cannot be
    /// read. If there are [`IN_FLIGHT_MAX`] threads, or no further one can be started, the piece waits for
    /// one of them.
    pub(crate) fn submit(&mut self, job: Job, flights: usize) -> bool {
        let mut lane = self.lane(job.mirror);
        if let Err(error) = self.enough_for(lane, flights) {
            tracing::warn!(disk = &*self.disk, %error, "cannot start threads for more pieces at once");
            // Reading another copy only costs a seek.
            lane = if self.lanes[lane].count > 0 { lane } else { self.lane(None) };
        }
        self.lanes[lane].jobs.send(job).is_ok()
    }
}

/// Starts a worker. It ends when the senders of `jobs` or the receivers of `reports` are dropped. At most
/// `turns` threads end at once because of their number.
fn spawn(
    disk: Arc<str>,
    mirror: Option<Mirror>,
    jobs: Receiver<Job>,
    reports: Sender<Report>,
    turns: usize,
) -> io::Result<()> {
    let name = short_name("read", &disk);
    let work = move || {
        if turns > 0
            && mirror.is_some_and(|mirror| !mirror.is_read_here())
            && spawn(disk.clone(), mirror, jobs.clone(), reports.clone(), turns - 1).is_ok()
        {
            return;
        }
        // Held until the thread ends.
        let _disk = disk;
        run_first();
        for job in jobs {
            if reports.send(Report::Started { at: Instant::now() }).is_err() {
                return;
            }
            let end = job.offset + job.len;
            let there = resident_stretches(job.source.as_fd(), job.offset, job.len, FOUND_MAX);
            for (from, upto) in there.unwrap_or_default() {
                let _ = reports.send(Report::Found { id: job.id, from, upto });
            }
            let tell = |upto| {
                // The last report is Done itself.
                if upto < end {
                    let _ = reports.send(Report::Progress { id: job.id, upto });
                }
            };
            let result = bring_in(&job.source, job.offset, job.len, job.steps, tell);
            let done =
                Report::Done { id: job.id, at: Instant::now(), result: result.map_err(|e| e.to_string()) };
            if reports.send(done).is_err() {
                return;
            }
        }
    };
    thread::Builder::new().name(name).spawn(work).map(drop)
}

/// Nice value of the threads that a disk waits for. They use next to no processor time, but on a busy machine
/// the disk is idle until they wake up: with 20 runnable threads a core, 3 ms a piece.
const NICE: i32 = -10;

/// Raises the priority of the calling thread over ordinary ones, where that is allowed (root, CAP_SYS_NICE).
pub fn run_first() {
    // On Linux "process 0" means the calling thread alone.
    let _ = rustix::process::setpriority_process(None, NICE);
}

/// Linux shows only 15 bytes of a thread's name.
pub(crate) fn short_name(what: &str, disk: &str) -> String {
    let tail: String =
        disk.rsplit('/').next().unwrap_or(disk).chars().filter(|c| c.is_ascii_graphic()).collect();
    let mut name = format!("{what}-{tail}");
    name.truncate(15);
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn more_reads_in_flight_have_more_workers() {
        let (mut workers, reports) = Workers::start("test", 1).unwrap();
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 20).unwrap();
        let source = Arc::new(Source::own(file.into()));
        let job = |id| Job {
            id: ReadId(id),
            source: source.clone(),
            offset: 0,
            len: 4096,
            steps: Steps { submit: 128 << 10, report: 128 << 10 },
            mirror: None,
        };
        assert!(workers.submit(job(0), 1));
        assert_eq!(workers.lanes[0].count, 1);
        // Twice as many pieces are tried, and then fewer again.
        assert!(workers.submit(job(1), 4) && workers.submit(job(2), 2));
        assert_eq!(workers.lanes[0].count, 4);
        let mut done = HashSet::new();
        while done.len() < 3 {
            if let Report::Done { id, result, .. } = reports.recv().unwrap() {
                result.unwrap();
                done.insert(id);
            }
        }
        assert!(workers.submit(job(3), usize::MAX));
        assert_eq!(workers.lanes[0].count, IN_FLIGHT_MAX);
    }

    /// Each part of a device may have as many small reads in flight as one disk.
    #[test]
    fn more_reads_than_workers_wait_for_one() {
        let (mut workers, reports) = Workers::start("test", 1).unwrap();
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 20).unwrap();
        let source = Arc::new(Source::own(file.into()));
        let most = 4 * IN_FLIGHT_MAX as u64;
        // The reports are not received yet, so no worker gets to its second read.
        for id in 0..most {
            let steps = Steps { submit: 128 << 10, report: 128 << 10 };
            let job =
                Job { id: ReadId(id), source: source.clone(), offset: 0, len: 4096, steps, mirror: None };
            assert!(workers.submit(job, id as usize + 1), "{id}");
        }
        let ends = reports.iter().filter(|report| matches!(report, Report::Done { .. }));
        assert_eq!(ends.take(most as usize).count() as u64, most);
    }

    #[test]
    fn each_copy_has_workers_of_its_own() {
        let (mut workers, reports) = Workers::start("test", 1).unwrap();
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 20).unwrap();
        let source = Arc::new(Source::own(file.into()));
        for number in 0..6 {
            let mirror = (number < 5).then_some(Mirror { number: number % 3, of: 3 });
            let steps = Steps { submit: 128 << 10, report: 128 << 10 };
            let id = ReadId(number as u64);
            let job = Job { id, source: source.clone(), offset: 0, len: 4096, steps, mirror };
            assert!(workers.submit(job, 2));
        }
        let lanes: Vec<_> =
            workers.lanes.iter().map(|lane| (lane.mirror.map(|m| m.number), lane.count)).collect();
        assert_eq!(lanes, [(None, 2), (Some(0), 2), (Some(1), 2), (Some(2), 2)]);
        let mut done = 0;
        while done < 6 {
            if let Report::Done { result, .. } = reports.recv().unwrap() {
                result.unwrap();
                done += 1;
            }
        }
    }

    #[test]
    fn a_copy_is_read_by_the_thread_with_its_number() {
        // One of two consecutive threads is suitable, whatever other threads start meanwhile.
        let one = Mirror { number: 1, of: 2 };
        let (zero, alone) = (Mirror { number: 0, of: 2 }, Mirror { number: 0, of: 1 });
        assert!(one.is_read_here() != zero.is_read_here());
        assert!(alone.is_read_here());
    }
}
