//! The daemon's state as JSON: what `seekless daemon status --json` prints and experiments read.
//!
//! Times are in milliseconds, sizes in bytes, counts since the daemon started unless the name says "now" or "max".

use std::collections::BTreeMap;
use std::fmt;

use seekless_policy::{Histogram, Reason, Stats};
use seekless_units::Bytes;
use serde::{Deserialize, Serialize};

/// Everything.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct StatusReport {
    /// Version of the program.
    pub version: String,
    /// The daemon's process.
    pub pid: u32,
    /// Since it started.
    pub uptime_ms: f64,
    /// Where it listens.
    pub socket: String,
    /// `off`, `track`, `serialise`, `prefetch` or `both`.
    pub mode: String,
    /// How far reads are extended.
    pub prefetch_bytes: u64,
    /// `fifo` or `sweep`.
    pub order: String,
    /// One queue for all disks.
    pub single_queue: bool,
    /// What the receptionist saw.
    pub counters: Counters,
    /// One a queue, in the order they were first used.
    pub disks: Vec<DiskReport>,
    /// Calls reported by shims in mode `track`.
    pub calls: Vec<CallReport>,
}

/// What the receptionist counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Connections accepted.
    pub connections: u64,
    /// Connections open now.
    pub connections_now: u64,
    /// Connections closed at once because a bound was reached.
    pub connections_over_bound: u64,
    /// Connections of users who may not connect.
    pub connections_not_admitted: u64,
    /// Requests for bytes.
    pub needs: u64,
    /// Of them answered at once because everything was in memory (or on its way) when they arrived.
    pub hits_on_arrival: u64,
    /// Passed because the mode reads nothing here.
    pub passed_mode: u64,
    /// Passed because the file is on no disk with heads.
    pub passed_not_a_disk: u64,
    /// Passed because the descriptor or the range was no good.
    pub passed_bad_request: u64,
    /// Passed because a reader could not take more.
    pub passed_full: u64,
    /// Handed to a reader.
    pub queued: u64,
    /// Shims that hung up while they waited.
    pub hang_ups: u64,
    /// Frames not understood.
    pub frames_refused: u64,
    /// Keepalive frames sent.
    pub working_sent: u64,
    /// Reports of tracked calls that could not be taken in.
    pub tracked_dropped: u64,
}

/// One queue.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct DiskReport {
    /// Kernel name of the disk, or `common`.
    pub name: String,
    /// Requests that reached the queue.
    pub requests: u64,
    /// Of them covered by a read queued or in flight for another.
    pub attached: u64,
    /// Answered "resident".
    pub resident: u64,
    /// Answered "pass", by reason.
    pub passed: BTreeMap<String, u64>,
    /// Bytes asked for.
    pub bytes_wanted: u64,
    /// Pieces read.
    pub reads: u64,
    /// Their bytes.
    pub bytes_read: u64,
    /// Pieces that failed.
    pub reads_failed: u64,
    /// Pieces dropped unread because nobody waited any more.
    pub dropped: u64,
    /// Requests waiting now.
    pub waiting_now: u64,
    /// Most that ever waited at once.
    pub waiting_max: u64,
    /// Pieces queued now.
    pub queued_now: u64,
    /// Pieces in flight now.
    pub in_flight_now: u64,
    /// Most ever in flight together.
    pub in_flight_max: u64,
    /// From a request's arrival to its answer, of those answered "resident".
    pub wait: Durations,
    /// From a piece's submission to its end.
    pub service: Durations,
    /// The disk standing still between two pieces although one was queued.
    pub gap: Durations,
    /// Pages asked for twice.
    pub second_try_pages: u64,
    /// Pages evicted before their piece was complete.
    pub lost_pages: u64,
    /// The last read error, if there was one.
    pub last_error: Option<String>,
}

impl DiskReport {
    pub(crate) fn new(name: &str, s: &Stats) -> DiskReport {
        DiskReport {
            name: name.to_string(),
            requests: s.requests,
            attached: s.attached,
            resident: s.resident,
            passed: Reason::ALL.iter().map(|r| (r.name().to_string(), s.passed[r.index()])).collect(),
            bytes_wanted: s.bytes_wanted,
            reads: s.reads,
            bytes_read: s.bytes_read,
            reads_failed: s.reads_failed,
            dropped: s.dropped,
            waiting_now: s.waiting as u64,
            waiting_max: s.waiting_max as u64,
            queued_now: s.queued as u64,
            in_flight_now: s.in_flight as u64,
            in_flight_max: s.in_flight_max as u64,
            wait: Durations::of(&s.wait),
            service: Durations::of(&s.service),
            ..DiskReport::default()
        }
    }
}

/// A distribution of durations. Quantiles are upper bounds with a resolution of a factor of two.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Durations {
    /// How many.
    pub count: u64,
    /// Arithmetic mean.
    pub mean_ms: f64,
    /// Median.
    pub p50_ms: f64,
    /// 95 of 100 are not longer.
    pub p95_ms: f64,
    /// 99 of 100 are not longer.
    pub p99_ms: f64,
    /// The longest.
    pub max_ms: f64,
    /// Upper edge in milliseconds and count of every bucket that holds anything.
    pub buckets: Vec<(f64, u64)>,
}

impl Durations {
    pub(crate) fn of(h: &Histogram) -> Durations {
        let edge = |at: seekless_units::Nanos| at.min(h.max()).as_millis_f64();
        Durations {
            count: h.count(),
            mean_ms: h.mean().as_millis_f64(),
            p50_ms: h.quantile(0.5).as_millis_f64(),
            p95_ms: h.quantile(0.95).as_millis_f64(),
            p99_ms: h.quantile(0.99).as_millis_f64(),
            max_ms: h.max().as_millis_f64(),
            buckets: h.buckets().filter(|&(_, n)| n > 0).map(|(at, n)| (edge(at), n)).collect(),
        }
    }
}

/// Tracked calls of one kind.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct CallReport {
    /// `read`, `sendfile`, ...
    pub call: String,
    /// Whether the bytes were in memory before the call.
    pub resident: bool,
    /// How many calls.
    pub count: u64,
    /// Bytes they asked for.
    pub bytes: u64,
    /// Arithmetic mean of their duration.
    pub mean_ms: f64,
    /// The longest.
    pub max_ms: f64,
    /// The distribution: duration in milliseconds and the share of calls that took no longer, rising. Two significant
    /// digits.
    pub cdf: Vec<(f64, f64)>,
}

/// For people.
impl fmt::Display for StatusReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let c = &self.counters;
        let prefetch = Bytes(self.prefetch_bytes);
        writeln!(
            f,
            "daemon {} at {}: mode {}, prefetch {prefetch}, order {}, up {:.0} s",
            self.pid,
            self.socket,
            self.mode,
            self.order,
            self.uptime_ms / 1e3
        )?;
        writeln!(
            f,
            "requests {}: {} already in memory, {} queued, {} not on a disk, {} passed by mode, {} refused; {} connected",
            c.needs,
            c.hits_on_arrival,
            c.queued,
            c.passed_not_a_disk,
            c.passed_mode,
            c.passed_full + c.passed_bad_request,
            c.connections_now
        )?;
        for d in &self.disks {
            writeln!(
                f,
                "{}: {} reads, {:.1} MB, {} failed; waiting {} (most {}), wait mean {:.1} ms p99 {:.1} ms; a read \
                 {:.1} ms; idle between reads {:.2} ms",
                d.name,
                d.reads,
                Bytes(d.bytes_read).as_mb(),
                d.reads_failed,
                d.waiting_now,
                d.waiting_max,
                d.wait.mean_ms,
                d.wait.p99_ms,
                d.service.mean_ms,
                d.gap.mean_ms
            )?;
        }
        for call in &self.calls {
            let memory = if call.resident { "in memory" } else { "not in memory" };
            writeln!(f, "{} {memory}: {} calls, mean {:.3} ms", call.call, call.count, call.mean_ms)?;
        }
        Ok(())
    }
}
