//! What is looked at once a second while a long run goes on: memory and descriptors of daemon and server, and
//! how long a reader of a little waits.

use std::collections::BTreeMap;
use std::path::PathBuf;
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

#[derive(Default)]
struct Taken {
    /// By what and process id: a process started anew begins a series of its own.
    of: BTreeMap<(&'static str, u32), Vec<Sample>>,
    waits: Vec<Wait>,
}

/// Sampling; the reader is a thread of its own, because what it asks for may wait.
pub(super) struct Series {
    began: Instant,
    next: Instant,
    taken: Arc<Mutex<Taken>>,
    stop: Arc<AtomicBool>,
    reader: Option<JoinHandle<()>>,
    /// Spans in which readers must wait, or fail: the disk hangs or is broken. Seconds since the start.
    excused: Vec<(f64, f64)>,
    kills: u32,
}

fn locked(taken: &Mutex<Taken>) -> MutexGuard<'_, Taken> {
    taken.lock().unwrap_or_else(|e| e.into_inner())
}

impl Series {
    /// Starts the reader, which asks the server at `port` for the files of `manifest` in turn.
    pub(super) fn start(port: u16, manifest: PathBuf) -> Series {
        let began = Instant::now();
        let (taken, stop) = (Arc::new(Mutex::new(Taken::default())), Arc::new(AtomicBool::new(false)));
        let (told, ended) = (taken.clone(), stop.clone());
        let reader = thread::spawn(move || {
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
        });
        Series { began, next: began, taken, stop, reader: Some(reader), excused: Vec::new(), kills: 0 }
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
        }
    }

    /// From now on for so many seconds readers may wait and fail.
    pub(super) fn excuse(&mut self, seconds: f64) {
        let now = self.began.elapsed().as_secs_f64();
        self.excused.push((now, now + seconds));
    }

    /// A daemon was killed.
    pub(super) fn killed(&mut self) {
        self.kills += 1;
    }

    /// Ends the reader and fills the row.
    pub(super) fn account(mut self, row: &mut Row) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
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
        put("kills", Some(f64::from(self.kills)));
        let of = taken.of.iter().map(|((what, pid), samples)| {
            let points: Vec<Value> = samples.iter().map(|s| json!([s.at_s, s.rss_kib, s.fds])).collect();
            json!({ "what": what, "pid": pid, "columns": ["s", "rss_kib", "fds"], "samples": points })
        });
        let waits: Vec<Value> = taken.waits.iter().map(|w| json!([w.at_s, w.ms, w.failed])).collect();
        let series =
            json!({ "processes": of.collect::<Vec<_>>(), "excused_s": self.excused, "waits": waits });
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

/// Resident memory that is no file's, in KiB, and open descriptors of a process. What an engine has mapped of
/// the files it reads ahead is page cache, and goes by the budget.
fn usage(pid: u32) -> Option<(u64, u64)> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let kib = |name: &str| -> Option<u64> {
        let line = status.lines().find_map(|l| l.strip_prefix(name))?;
        line.trim().trim_end_matches("kB").trim().parse().ok()
    };
    let rss = kib("RssAnon:")? + kib("RssShmem:")?;
    let fds = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count() as u64;
    Some((rss, fds))
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
}
