//! What came of a run, in the words `seekless-lab load` and the live disks use, so that one reader reads
//! both.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use seekless_base::Nanos;
use seekless_policy::Stats;
use seekless_policy::sizing::controller::Params;
use serde::Serialize;
use serde_json::{Value, json};

use crate::study::cache::Replacement;

use super::cache::{BLOCK_PAGES, Counts, PAGE, PageCache};
use super::disk::DiskStats;
use super::node::Look;
use crate::study::oracle;

/// Longest latency told apart, microseconds: an hour.
const LATENCY_MAX_US: u64 = 3_600_000_000;
/// Points of the distribution of latencies.
const CDF_POINTS: u32 = 200;

/// Counting while it runs.
pub(crate) struct Recorder {
    warmup: Nanos,
    pub(crate) latency_us: Histogram<u64>,
    /// The same of requests that begin at the head of a file.
    pub(crate) startup_us: Histogram<u64>,
    pub(crate) calls_us: Histogram<u64>,
    pub(crate) requests: u64,
    pub(crate) bytes: u64,
    pub(crate) failures: u64,
    pub(crate) offered: u64,
    pub(crate) sessions: Sessions,
    /// Of complete requests.
    least: Known,
    /// Bytes handed over in each second.
    pub(crate) seconds: Vec<u64>,
    /// Prefetch size of the first engine when it was last looked at.
    size_seen: u64,
    /// Prefetch size to which it was first cut.
    size_cut: Option<u64>,
}

/// What is known of a request when it comes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Known {
    pub(crate) bytes: u64,
    /// Disk time that it needs at least.
    pub(crate) least: Nanos,
    /// The same if nothing of it were in memory.
    pub(crate) uncached: Nanos,
}

/// Sessions by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sessions {
    /// Begun.
    pub started: u64,
    /// All segments received.
    pub completed: u64,
    /// Ended by a segment that took too long.
    pub failed: u64,
    /// Sessions that asked for something after the warm-up.
    pub measured: u64,
    /// Of these, failed.
    pub failed_measured: u64,
    /// Most at once.
    pub at_once_max: u64,
}

impl Recorder {
    pub(crate) fn new(warmup: Nanos) -> Recorder {
        let histogram = || Histogram::new_with_max(LATENCY_MAX_US, 3).expect("constant bounds are valid");
        Recorder {
            warmup,
            latency_us: histogram(),
            startup_us: histogram(),
            calls_us: histogram(),
            requests: 0,
            bytes: 0,
            failures: 0,
            offered: 0,
            sessions: Sessions::default(),
            least: Known::default(),
            seconds: Vec::new(),
            size_seen: 0,
            size_cut: None,
        }
    }

    /// Looks at the prefetch size until it is cut: until it falls by more than a step at once. The gradient
    /// moves by a step at a time, so only evictions cut it.
    pub(crate) fn see_size(&mut self, size: impl FnOnce() -> u64) {
        if self.size_cut.is_none() {
            let (before, now) = (self.size_seen, size());
            self.size_seen = now;
            self.size_cut = (before > now + Params::default().step_size.0).then_some(now);
        }
    }

    pub(crate) fn measures(&self, at: Nanos) -> bool {
        at >= self.warmup
    }

    pub(crate) fn handed_over(&mut self, now: Nanos, bytes: u64) {
        let second = (now.0 / 1_000_000_000) as usize;
        if self.seconds.len() <= second {
            self.seconds.resize(second + 1, 0);
        }
        self.seconds[second] += bytes;
        if self.measures(now) {
            self.bytes += bytes;
        }
    }

    /// `at_head`: the request began at the head of a file.
    pub(crate) fn answered(&mut self, due: Nanos, done: Nanos, at_head: bool) {
        if self.measures(due) {
            self.requests += 1;
            let us = (done.since(due).0 / 1000).max(1);
            self.latency_us.saturating_record(us);
            if at_head {
                self.startup_us.saturating_record(us);
            }
        }
    }

    /// A request is complete that read so many bytes, for which the disk needs this time at least.
    pub(crate) fn known(&mut self, request: Known, now: Nanos) {
        if self.measures(now) {
            self.least.bytes += request.bytes;
            self.least.least += request.least;
            self.least.uncached += request.uncached;
        }
    }

    pub(crate) fn call(&mut self, began: Nanos, now: Nanos) {
        if self.measures(began) {
            self.calls_us.saturating_record((now.since(began).0 / 1000).max(1));
        }
    }
}

/// What file sets had beside the load, after the warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct FileSetReport {
    /// Megabytes (10^6) a second that their readers took, of all disks.
    pub mb_per_s: f64,
    /// Part of the time in which the disks read that was spent on them.
    pub share: f64,
}

/// What the writers beside the load had after the warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct WriterReport {
    /// Megabytes (10^6) a second that they wrote into the page cache, of all disks.
    pub mb_per_s: f64,
    /// The same that they would have if nothing held them up.
    pub asked_mb_per_s: f64,
    /// The one over the other; above 1 where they made up for the time before.
    pub of_asked: f64,
    /// Calls of `fsync`, with one that was under way at the end.
    pub fsyncs: u64,
    /// Median of their time, milliseconds.
    pub fsync_p50_ms: f64,
    /// 99th percentile.
    pub fsync_p99_ms: f64,
    /// The longest.
    pub fsync_max_ms: f64,
    /// Part of the time in which the heads went to what was written, and wrote it.
    pub disk_share: f64,
    /// What a recorder had; its cameras are the writers above.
    #[serde(flatten)]
    pub recorder: Option<RecorderReport>,
}

/// What a recorder had after the warm-up. A segment counts if the one after it ends in that time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RecorderReport {
    /// Segments of all cameras.
    pub segments: u64,
    /// Of these, those that were durable later than the end of the next one.
    pub late: u64,
    /// Those of which something did not fit into their camera's buffer; they are not late besides.
    pub lost: u64,
    /// The share of either.
    pub missed: f64,
    /// Calls of `fdatasync` for its journal, with one that was under way at the end.
    pub fdatasyncs: u64,
    /// Median of their time, milliseconds.
    pub fdatasync_p50_ms: f64,
    /// 99th percentile.
    pub fdatasync_p99_ms: f64,
}

/// What reuse saves: bytes that come from the disk for what readers use after the warm-up. Both caches take
/// the readers' own string of uses, have all the memory, and read nothing ahead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Reuse {
    /// Bytes handed to clients.
    pub used: u64,
    /// Bytes that were read, without those that nobody used.
    pub read: u64,
    /// Bytes that a cache reads that evicts what was used least recently.
    pub lru: u64,
    /// Bytes that no cache can avoid to read (Belady 1966): it knows the whole future.
    pub min: u64,
}

/// What readers used, from which [`Reuse`] is reckoned where somebody asks for it: of the runs of a search
/// that is one, and it takes longer than all else at the end of a run.
#[derive(Clone, Debug)]
pub struct Uses {
    blocks: Vec<u32>,
    /// Index of the first after the warm-up.
    from: usize,
    /// Of the cache, blocks.
    capacity: usize,
    used: u64,
    read: u64,
}

impl Uses {
    pub(crate) fn of(cache: &mut PageCache, from: usize, used: u64, counts: &Counts) -> Uses {
        Uses {
            blocks: cache.take_uses(),
            from,
            capacity: (cache.limit() / BLOCK_PAGES) as usize,
            used,
            read: counts.inserted.saturating_sub(counts.never_used()) * PAGE,
        }
    }

    fn reuse(&self) -> Reuse {
        let block = BLOCK_PAGES * PAGE;
        let blocks: Vec<u64> = self.blocks.iter().map(|&block| u64::from(block)).collect();
        let lru = oracle::misses(Replacement::Lru, &blocks, self.capacity, self.from).unwrap_or(0);
        Reuse {
            used: self.used,
            read: self.read,
            lru: lru * block,
            min: oracle::optimal_misses(&blocks, self.capacity, self.from) * block,
        }
    }
}

impl Reuse {
    /// Part of the gap between the two that is closed: 0 as the one that evicts by past use, 1 as the one
    /// that knows the future. `None` where there is no gap of a hundredth of the bytes used.
    pub fn closed(&self) -> Option<f64> {
        let gap = self.lru.saturating_sub(self.min) as f64;
        let closed = (self.lru as f64 - self.read as f64) / gap;
        (gap * 100.0 >= self.used.max(1) as f64).then_some(closed)
    }
}

/// The result of one run.
#[derive(Clone, Debug)]
pub struct Report {
    /// Seconds simulated, warm-up included.
    pub length_s: f64,
    /// Seconds of warm-up.
    pub warmup_s: f64,
    /// Megabytes (10^6) a second handed to clients after the warm-up.
    pub mb_per_s: f64,
    /// What somebody would serve who knew all of each request beforehand and kept the disks busy: for every
    /// stretch of a file one switch between independent places and its transfer, nothing for what was in
    /// memory when the request came (the optimal offline strategy of \[C\], section 2 and the assessment in
    /// section 3.2). 0 if nothing was read, and for sessions, whose viewers set the pace.
    pub optimum_mb_per_s: f64,
    /// Part of the disks' time that this would have taken.
    pub of_optimum: f64,
    /// [`Report::optimum_mb_per_s`] as \[C\] estimates it (section 3.2): as if nothing were in memory.
    pub estimate_mb_per_s: f64,
    /// Requests due after the warm-up and answered.
    pub requests: u64,
    /// Requests that became due after the warm-up, a second.
    pub offered_per_s: f64,
    /// Requests that failed after the warm-up.
    pub failures: u64,
    /// Sessions.
    pub sessions: Option<Sessions>,
    /// From due to complete: quantile in milliseconds by name, mean among them.
    pub latency_ms: BTreeMap<&'static str, f64>,
    /// The same of requests that begin at the head of a file: how long a viewer waits for a film to start.
    pub startup_ms: BTreeMap<&'static str, f64>,
    /// (milliseconds, share of requests at or below).
    pub latency_cdf: Vec<(f64, f64)>,
    /// The same of the server's read calls.
    pub calls_cdf: Vec<(f64, f64)>,
    /// Shares and quantile of the server's read calls: under 1 ms, under 0.1 ms, 99th percentile in ms.
    pub calls: (f64, f64, f64),
    /// Each disk's counters.
    pub disks: Vec<DiskStats>,
    /// Each engine's counters at the end; the ledger's are those after the warm-up.
    pub engines: Vec<Stats>,
    /// The page cache's counters after the warm-up.
    pub cache: Counts,
    /// What readers used; nothing where a program writes, whose pages are used too and are no reader's.
    pub uses: Option<Uses>,
    /// Megabytes handed over in each second.
    pub series: Vec<f64>,
    /// Events handled.
    pub events: u64,
    /// Prefetch size to which the first engine's was first cut by evictions.
    pub size_cut: Option<u64>,
    /// What a file set had beside the load.
    pub file_set: Option<FileSetReport>,
    /// What a writer had beside the load.
    pub writer: Option<WriterReport>,
    /// What was seen of a node every so often; nothing of other loads.
    pub looks: Vec<Look>,
}

/// Mean and quantiles of a histogram of microseconds, milliseconds by name.
fn quantiles_ms(h: &Histogram<u64>) -> BTreeMap<&'static str, f64> {
    let at = |q: f64| h.value_at_quantile(q) as f64 / 1e3;
    let mean_and_max = [("mean", h.mean() / 1e3), ("max", h.max() as f64 / 1e3)];
    let quantiles = [("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99), ("p99_9", 0.999)];
    quantiles.into_iter().map(|(name, q)| (name, at(q))).chain(mean_and_max).collect()
}

fn cdf(h: &Histogram<u64>) -> Vec<(f64, f64)> {
    let mut points: Vec<(f64, f64)> = Vec::new();
    if h.is_empty() {
        return points;
    }
    for i in 1..=CDF_POINTS {
        let share = f64::from(i) / f64::from(CDF_POINTS);
        let ms = h.value_at_quantile(share) as f64 / 1e3;
        match points.last_mut() {
            Some(last) if last.0 == ms => last.1 = share,
            _ => points.push((ms, share)),
        }
    }
    points
}

impl Report {
    pub(crate) fn of(
        r: &Recorder,
        length: Nanos,
        disks: Vec<DiskStats>,
        engines: Vec<Stats>,
        cache: Counts,
        events: u64,
        sessions: bool,
    ) -> Report {
        let measured_s = length.since(r.warmup).as_secs_f64().max(1e-9);
        let (known, least_s) = (r.least.bytes, r.least.least.as_secs_f64());
        let uncached_s = r.least.uncached.as_secs_f64();
        let calls = r.calls_us.len().max(1) as f64;
        let under = |us: u64| r.calls_us.count_between(0, us) as f64 / calls;
        Report {
            length_s: length.as_secs_f64(),
            warmup_s: r.warmup.as_secs_f64(),
            mb_per_s: r.bytes as f64 / 1e6 / measured_s,
            optimum_mb_per_s: if least_s > 0.0 {
                known as f64 / 1e6 / least_s * disks.len() as f64
            } else {
                0.0
            },
            of_optimum: least_s / measured_s / disks.len() as f64,
            estimate_mb_per_s: if uncached_s > 0.0 {
                known as f64 / 1e6 / uncached_s * disks.len() as f64
            } else {
                0.0
            },
            requests: r.requests,
            offered_per_s: r.offered as f64 / measured_s,
            failures: r.failures,
            sessions: sessions.then_some(r.sessions),
            latency_ms: quantiles_ms(&r.latency_us),
            startup_ms: quantiles_ms(&r.startup_us),
            latency_cdf: cdf(&r.latency_us),
            calls_cdf: cdf(&r.calls_us),
            calls: (under(999), under(99), r.calls_us.value_at_quantile(0.99) as f64 / 1e3),
            disks,
            engines,
            cache,
            uses: None,
            series: r.seconds.iter().map(|b| *b as f64 / 1e6).collect(),
            events,
            size_cut: r.size_cut,
            file_set: None,
            writer: None,
            looks: Vec::new(),
        }
    }

    /// What reuse saves.
    pub fn reuse(&self) -> Reuse {
        self.uses.as_ref().map_or_else(Reuse::default, Uses::reuse)
    }

    /// What a recorder had, if there is one.
    pub fn recorder(&self) -> Option<RecorderReport> {
        self.writer?.recorder
    }

    /// Sessions that failed, as a share of those measured.
    pub fn failed_share(&self) -> f64 {
        self.sessions.map_or(0.0, |s| s.failed_measured as f64 / s.measured.max(1) as f64)
    }

    /// The report of `seekless-lab load`, as far as a simulation has one: same names, same units.
    pub fn load_json(&self) -> Value {
        let measured_s = (self.length_s - self.warmup_s).max(1e-9);
        let mut latency = json!({ "count": self.requests, "cdf": self.latency_cdf });
        for (name, ms) in &self.latency_ms {
            latency[*name] = json!(ms);
        }
        json!({
            "kind": if self.sessions.is_some() { "sessions" } else { "closed" },
            "partial": false,
            "length_s": self.length_s,
            "measured": {
                "from_s": self.warmup_s, "to_s": self.length_s, "mb_per_s": self.mb_per_s,
                "bytes": (self.mb_per_s * 1e6 * measured_s) as u64,
                "optimum_mb_s": self.optimum_mb_per_s, "of_optimum": self.of_optimum,
                "estimate_mb_s": self.estimate_mb_per_s,
                "requests": self.requests, "requests_per_s": self.requests as f64 / measured_s,
                "failures": self.failures,
            },
            "totals": { "failures": self.failures },
            "sessions": self.sessions.map(|s| {
                let mut value = json!(s);
                value["failed_share"] = json!(self.failed_share());
                value
            }),
            "offered_per_s": self.offered_per_s,
            "latency_ms": latency,
            "startup_ms": self.startup_ms,
            "failures": { "by_kind": { "timeout": self.failures } },
            "series_mb_per_s": self.series,
            "size_cut": self.size_cut,
            "file_set": self.file_set,
            "writer": self.writer,
        })
    }

    /// Each disk as `seekless-lab vdisk list` tells it.
    pub fn disks_json(&self) -> Value {
        self.disks.iter().map(|d| json!({ "stats": d })).collect()
    }

    /// What the engines say of themselves.
    pub fn engines_json(&self) -> Value {
        let one = |s: &Stats| {
            json!({
                "requests": s.requests, "attached": s.attached, "resident": s.resident,
                "passed": s.passed, "bytes_wanted": s.bytes_wanted, "reads": s.reads, "bytes_read": s.bytes_read,
                "accesses": s.accesses, "ahead": s.ahead, "held_back": s.held_back,
                "bytes_evicted_unused": s.bytes_evicted_unused, "bytes_wasted": s.bytes_wasted,
                "bytes_dropped": s.bytes_dropped, "streams": s.streams, "bytes_unread": s.bytes_unread,
                "budget": s.budget, "waiting_max": s.waiting_max,
                "size": s.size, "table1": s.ledger.ratios(),
                "read_kib": if s.reads == 0 { 0.0 } else { s.bytes_read as f64 / s.reads as f64 / 1024.0 },
            })
        };
        self.engines.iter().map(one).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_cut_where_it_falls_by_more_than_a_step_at_once() {
        let step = Params::default().step_size.0;
        let mut recorder = Recorder::new(Nanos::ZERO);
        for steps in [16, 17, 16, 15] {
            recorder.see_size(|| steps * step);
            assert_eq!(recorder.size_cut, None, "the gradient");
        }
        recorder.see_size(|| 6 * step);
        recorder.see_size(|| 2 * step);
        assert_eq!(recorder.size_cut, Some(6 * step), "the first time");
    }
}
