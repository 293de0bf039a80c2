//! The threads that wait for a disk, so that its disk thread does not have to.
//!
//! There are as many as the engine may have reads in flight. A worker on a disk that hangs holds up no other
//! thread: the disk thread goes on taking requests and giving up those that waited too long.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, bounded};
use seekless_kernel::prefetch::{Brought, Source, Steps, bring_in};
use seekless_kernel::residency::resident_stretches;
use seekless_policy::{FOUND_MAX, IN_FLIGHT_MAX, ReadId};

/// One piece to bring in.
pub(crate) struct Job {
    pub(crate) id: ReadId,
    pub(crate) source: Arc<Source>,
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) steps: Steps,
}

/// What a worker tells its disk thread.
pub(crate) enum Report {
    /// The worker has taken the piece up; its first read-ahead call follows at once.
    Started {
        at: Instant,
    },
    /// What was in memory before, a stretch of it.
    Found {
        id: ReadId,
        from: u64,
        upto: u64,
    },
    Progress {
        id: ReadId,
        upto: u64,
    },
    Done {
        id: ReadId,
        at: Instant,
        result: Result<Brought, String>,
    },
}

/// The workers of a disk, and what more of them are started with.
pub(crate) struct Workers {
    disk: String,
    count: usize,
    jobs: Sender<Job>,
    todo: Receiver<Job>,
    report: Sender<Report>,
}

impl Workers {
    /// Starts workers for so many reads in flight. Their reports come out of the channel.
    ///
    /// # Errors
    /// No thread can be had.
    pub(crate) fn start(disk: &str, flights: usize) -> io::Result<(Workers, Receiver<Report>)> {
        let (jobs, todo) = bounded(IN_FLIGHT_MAX);
        let (report, reports) = bounded(IN_FLIGHT_MAX);
        let mut workers = Workers { disk: disk.to_string(), count: 0, jobs, todo, report };
        workers.enough_for(flights)?;
        Ok((workers, reports))
    }

    /// Starts what is missing for so many reads in flight; never more than [`IN_FLIGHT_MAX`] in all.
    ///
    /// # Errors
    /// No thread can be had. Those there are go on.
    fn enough_for(&mut self, flights: usize) -> io::Result<()> {
        while self.count < flights.min(IN_FLIGHT_MAX) {
            spawn(&self.disk, self.todo.clone(), self.report.clone())?;
            self.count += 1;
        }
        Ok(())
    }

    /// Hands a piece over, of so many reads in flight with it; `false` if it cannot be read. Where no further
    /// thread can be had, it waits for one of those there are.
    pub(crate) fn submit(&mut self, job: Job, flights: usize) -> bool {
        if let Err(error) = self.enough_for(flights) {
            tracing::warn!(disk = self.disk, %error, "no threads for more pieces at once");
        }
        self.jobs.try_send(job).is_ok()
    }
}

/// Starts a worker. It ends when the senders of `jobs` or the receivers of `reports` are gone.
fn spawn(disk: &str, jobs: Receiver<Job>, reports: Sender<Report>) -> io::Result<()> {
    let work = move || {
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
            let progress = |upto| {
                // The last report is Done itself.
                if upto < end {
                    let _ = reports.send(Report::Progress { id: job.id, upto });
                }
            };
            let result = bring_in(&job.source, job.offset, job.len, job.steps, progress);
            let done =
                Report::Done { id: job.id, at: Instant::now(), result: result.map_err(|e| e.to_string()) };
            if reports.send(done).is_err() {
                return;
            }
        }
    };
    thread::Builder::new().name(short_name("read", disk)).spawn(work).map(drop)
}

/// Nice value of the threads a disk waits for. They use next to no processor time, but on a busy machine
/// every one of their wake-ups is time the disk stands still: with 20 runnable threads a core, 3 ms a piece.
const NICE: i32 = -10;

/// Puts the calling thread before ordinary ones, where that is allowed (root, CAP_SYS_NICE); elsewhere it
/// changes nothing.
pub fn run_first() {
    // On Linux "process 0" is the calling thread alone.
    let _ = rustix::process::setpriority_process(None, NICE);
}

/// Linux shows 15 bytes of a thread's name.
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
        };
        assert!(workers.submit(job(0), 1));
        assert_eq!(workers.count, 1);
        // Twice as many pieces are tried, and then fewer again.
        assert!(workers.submit(job(1), 4) && workers.submit(job(2), 2));
        assert_eq!(workers.count, 4);
        let mut done = HashSet::new();
        while done.len() < 3 {
            if let Report::Done { id, result, .. } = reports.recv().unwrap() {
                result.unwrap();
                done.insert(id);
            }
        }
        assert!(workers.submit(job(3), usize::MAX));
        assert_eq!(workers.count, IN_FLIGHT_MAX);
    }
}
