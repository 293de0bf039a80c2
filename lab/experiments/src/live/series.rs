//! What is looked at once a second while a long run goes on: memory and descriptors of daemon and server, how
//! long a reader of a little waits, and what it costs the daemon to be scraped, where it has an address for
//! that.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::probe;
use crate::results::Row;

/// Between two samples.
const EVERY: Duration = Duration::from_secs(1);
/// Bytes the reader asks for.
const READ_BYTES: u64 = 64 << 10;
/// Fewer samples of one process than this are its warming up and say nothing about growth.
const SAMPLES_MIN: usize = 60;
/// Threads of the daemon that have to do with a scrape. The statistics of calls are made by one of them as
/// well, so what they use is what a scrape costs at most.
const SCRAPED_BY: [&str; 3] = ["metrics", "statistics", "tokio-rt-worker"];
/// How long after a kill no scrape is answered: two seconds until the daemon is started again, and its start.
const AWAY_S: f64 = 7.0;

/// One look.
#[derive(Clone, Copy, Debug)]
struct Sample {
    at_s: f64,
    rss_kib: u64,
    fds: u64,
}

/// One reader's request.
#[derive(Clone, Copy, Debug)]
struct Wait {
    at_s: f64,
    ms: f64,
    failed: bool,
}

/// One scrape of the daemon.
#[derive(Clone, Copy, Debug)]
struct Scrape {
    at_s: f64,
    ms: f64,
    failed: bool,
}

#[derive(Default)]
struct Taken {
    /// By what and process id: a process started anew begins a series of its own.
    of: BTreeMap<(&'static str, u32), Vec<Sample>>,
    waits: Vec<Wait>,
    scrapes: Vec<Scrape>,
    /// Nanoseconds of processor time that the threads behind a scrape have used, by process id.
    scraped_ns: BTreeMap<u32, u64>,
}

/// Sampling; reader and scraper are threads of their own, because what they ask for may wait.
pub(super) struct Series {
    began: Instant,
    next: Instant,
    taken: Arc<Mutex<Taken>>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    /// Spans in which readers must wait, or fail: the disk hangs or is broken. Seconds since the start.
    excused: Vec<(f64, f64)>,
    /// When the daemon was killed, in seconds since the start.
    kills: Vec<f64>,
}

fn locked(taken: &Mutex<Taken>) -> MutexGuard<'_, Taken> {
    taken.lock().unwrap_or_else(|e| e.into_inner())
}

impl Series {
    /// Starts the reader, which asks the server at a port for the files of a manifest in turn, if there is
    /// one, and the scraper of a daemon that tells its address in `log`, if there is one.
    pub(super) fn start(served: Option<(u16, PathBuf)>, log: Option<PathBuf>) -> Series {
        let began = Instant::now();
        let (taken, stop) = (Arc::new(Mutex::new(Taken::default())), Arc::new(AtomicBool::new(false)));
        let mut threads = Vec::new();
        if let Some((port, manifest)) = served {
            let (told, ended) = (taken.clone(), stop.clone());
            threads.push(thread::spawn(move || {
                let files = probe::files(&manifest, READ_BYTES);
                let mut n = 0usize;
                while !ended.load(Ordering::Relaxed) && !files.is_empty() {
                    n += 1;
                    // A golden-ratio walk: another file and another place each time, the same in every run.
                    let turn = n as f64 * 0.618_033_988_749_894_9;
                    let (size, path) = &files[(turn.fract() * files.len() as f64) as usize];
                    let first = ((size - READ_BYTES) as f64 * (turn * 7.0).fract()) as u64;
                    let start = Instant::now();
                    let failed = probe::get(port, &format!("/{path}"), Some((first, READ_BYTES))).is_err();
                    let at_s = start.duration_since(began).as_secs_f64();
                    let ms = start.elapsed().as_secs_f64() * 1e3;
                    locked(&told).waits.push(Wait { at_s, ms, failed });
                    thread::sleep(EVERY.saturating_sub(start.elapsed()));
                }
            }));
        }
        if let Some(log) = log {
            let (told, ended) = (taken.clone(), stop.clone());
            threads.push(thread::spawn(move || {
                // Its first line may come a moment later than its socket.
                thread::sleep(EVERY);
                while !ended.load(Ordering::Relaxed) {
                    let start = Instant::now();
                    // A daemon that was started anew has another port.
                    let text = metrics_port(&log).map(|port| probe::get(port, "/metrics", None));
                    let failed = !matches!(text, Some(Ok(text)) if text.starts_with(b"#"));
                    let at_s = start.duration_since(began).as_secs_f64();
                    let ms = start.elapsed().as_secs_f64() * 1e3;
                    locked(&told).scrapes.push(Scrape { at_s, ms, failed });
                    thread::sleep(EVERY.saturating_sub(start.elapsed()));
                }
            }));
        }
        Series { began, next: began, taken, stop, threads, excused: Vec::new(), kills: Vec::new() }
    }

    /// Looks at the processes, when it is time.
    pub(super) fn look(&mut self, processes: impl Iterator<Item = (&'static str, u32)>) {
        if Instant::now() < self.next {
            return;
        }
        self.next = Instant::now() + EVERY;
        let at_s = self.began.elapsed().as_secs_f64();
        let mut taken = locked(&self.taken);
        for (what, pid) in processes {
            if let Some((rss_kib, fds)) = usage(pid) {
                taken.of.entry((what, pid)).or_default().push(Sample { at_s, rss_kib, fds });
            }
            if what == "daemon"
                && let Some(ns) = used_ns(pid, &SCRAPED_BY)
            {
                taken.scraped_ns.insert(pid, ns);
            }
        }
    }

    /// For this many seconds from now on, readers may wait and fail.
    pub(super) fn excuse(&mut self, seconds: f64) {
        let now = self.began.elapsed().as_secs_f64();
        self.excused.push((now, now + seconds));
    }

    /// A daemon was killed.
    pub(super) fn killed(&mut self) {
        self.kills.push(self.began.elapsed().as_secs_f64());
    }

    /// Ends reader and scraper and fills the row.
    pub(super) fn account(mut self, row: &mut Row) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        let lasted_s = self.began.elapsed().as_secs_f64();
        let taken = std::mem::take(&mut *locked(&self.taken));
        let (mut rss, mut fds): (Option<f64>, Option<f64>) = (None, None);
        for samples in taken.of.values().filter(|s| s.len() >= SAMPLES_MIN) {
            let (memory, open) = growth(samples);
            rss = Some(rss.map_or(memory, |r| r.max(memory)));
            fds = Some(fds.map_or(open, |f| f.max(open)));
        }
        let mut put = |name: &str, value: Option<f64>| {
            if let Some(value) = value {
                row.metrics.insert(name.into(), value);
            }
        };
        put("rss_growth", rss);
        put("fds_growth", fds);
        let excused = |w: &Wait| {
            let end = w.at_s + w.ms / 1e3;
            self.excused.iter().any(|(from, to)| w.at_s < *to && end > *from)
        };
        let counted: Vec<&Wait> = taken.waits.iter().filter(|w| !excused(w)).collect();
        put("longest_wait_ms", counted.iter().map(|w| w.ms).reduce(f64::max));
        put("unanswered", Some(counted.iter().filter(|w| w.failed).count() as f64));
        put("kills", Some(self.kills.len() as f64));
        if !taken.scrapes.is_empty() {
            let away = |s: &Scrape| self.kills.iter().any(|at| s.at_s > at - 1.0 && s.at_s < at + AWAY_S);
            let failed = taken.scrapes.iter().filter(|s| s.failed && !away(s)).count();
            put("scrapes_failed", Some(failed as f64));
            let used_s = taken.scraped_ns.values().sum::<u64>() as f64 / 1e9;
            put("scrape_core_share", Some(used_s / lasted_s.max(1.0)));
        }
        let of = taken.of.iter().map(|((what, pid), samples)| {
            let points: Vec<Value> = samples.iter().map(|s| json!([s.at_s, s.rss_kib, s.fds])).collect();
            json!({ "what": what, "pid": pid, "columns": ["s", "rss_kib", "fds"], "samples": points })
        });
        let waits: Vec<Value> = taken.waits.iter().map(|w| json!([w.at_s, w.ms, w.failed])).collect();
        let scrapes: Vec<Value> = taken.scrapes.iter().map(|s| json!([s.at_s, s.ms, s.failed])).collect();
        let series = json!({
            "processes": of.collect::<Vec<_>>(),
            "excused_s": self.excused,
            "waits": waits,
            "scrapes": scrapes,
        });
        row.raw.insert("series".into(), series);
    }
}

/// Growth from the second quarter of a series to the last: memory as a factor of the means, descriptors as a
/// difference of the maxima. The first quarter is warming up.
fn growth(samples: &[Sample]) -> (f64, f64) {
    let quarter = |i: usize| &samples[samples.len() * i / 4..samples.len() * (i + 1) / 4];
    let mean =
        |part: &[Sample]| part.iter().map(|s| s.rss_kib as f64).sum::<f64>() / part.len().max(1) as f64;
    let most = |part: &[Sample]| part.iter().map(|s| s.fds).max().unwrap_or(0) as f64;
    let (before, after) = (quarter(1), quarter(3));
    (mean(after) / mean(before).max(1.0), most(after) - most(before))
}

/// Anonymous resident memory of a process in KiB, and its open descriptors. What an engine has mapped of the
/// files it reads ahead is page cache, which the budget bounds.
pub(super) fn usage(pid: u32) -> Option<(u64, u64)> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let kib = |name: &str| -> Option<u64> {
        let line = status.lines().find_map(|l| l.strip_prefix(name))?;
        line.trim().trim_end_matches("kB").trim().parse().ok()
    };
    let rss = kib("RssAnon:")? + kib("RssShmem:")?;
    let fds = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count() as u64;
    Some((rss, fds))
}

/// The port of the metrics address that a daemon told last in its log, on the loopback address.
fn metrics_port(log: &Path) -> Option<u16> {
    let log = std::fs::read_to_string(log).ok()?;
    let (_, address) = log.rsplit_once("metrics at http://127.0.0.1:")?;
    address.split('/').next()?.parse().ok()
}

/// Nanoseconds of processor time of a process' threads of these names.
fn used_ns(pid: u32, names: &[&str]) -> Option<u64> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?.filter_map(Result::ok);
    let of = |task: PathBuf| -> Option<u64> {
        let name = std::fs::read_to_string(task.join("comm")).ok()?;
        let used = std::fs::read_to_string(task.join("schedstat")).ok()?;
        names.contains(&name.trim()).then_some(used.split_whitespace().next()?.parse().ok()?)
    };
    Some(tasks.filter_map(|task| of(task.path())).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(of: impl Fn(usize) -> (u64, u64)) -> Vec<Sample> {
        (0..80).map(|i| Sample { at_s: i as f64, rss_kib: of(i).0, fds: of(i).1 }).collect()
    }

    #[test]
    fn growth_is_seen_and_warming_up_is_not() {
        let flat = series(|i| if i < 20 { (100, 5) } else { (1000 + (i as u64 % 7), 20 + i as u64 % 3) });
        let (memory, open) = growth(&flat);
        assert!((memory - 1.0).abs() < 0.01 && open == 0.0, "{memory} {open}");
        let leaking = series(|i| (1000 + 10 * i as u64, 20 + i as u64));
        let (memory, open) = growth(&leaking);
        assert!(memory > 1.25 && open == 40.0, "{memory} {open}");
    }

    #[test]
    fn our_own_process_can_be_looked_at() {
        let (rss, fds) = usage(std::process::id()).unwrap();
        assert!(rss > 100 && fds >= 3);
        assert!(usage(u32::MAX).is_none());
    }

    #[test]
    fn only_threads_of_these_names_count() {
        let pid = std::process::id();
        let seen = Arc::new(AtomicBool::new(false));
        let ended = seen.clone();
        let busy = move || while !ended.load(Ordering::Relaxed) {};
        let busy = thread::Builder::new().name("series-busy".into()).spawn(busy).unwrap();
        // The kernel accounts for a thread at its ticks.
        let until = Instant::now() + Duration::from_secs(30);
        while used_ns(pid, &["other", "series-busy"]) == Some(0) && Instant::now() < until {
            thread::sleep(Duration::from_millis(5));
        }
        let used = used_ns(pid, &["series-busy"]);
        seen.store(true, Ordering::Relaxed);
        busy.join().unwrap();
        assert!(used.unwrap() > 0);
        assert_eq!(used_ns(pid, &["other"]), Some(0));
        assert!(used_ns(u32::MAX, &[]).is_none());
    }

    #[test]
    fn the_address_told_last_is_scraped() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("daemon.log");
        assert_eq!(metrics_port(&log), None);
        let line = |port: u16| {
            format!(
                "seekless daemon: metrics at http://127.0.0.1:{port}/metrics\nseekless daemon: listening\n"
            )
        };
        std::fs::write(&log, line(4001)).unwrap();
        assert_eq!(metrics_port(&log), Some(4001));
        std::fs::write(&log, line(4001) + &line(4002)).unwrap();
        assert_eq!(metrics_port(&log), Some(4002));
        std::fs::write(&log, "seekless daemon: listening at /run/x\n").unwrap();
        assert_eq!(metrics_port(&log), None);
    }
}
