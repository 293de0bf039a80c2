//! The data of one scrape.

use std::time::Duration;

use seekless_engine::{DiskReport, Durations, ProgramCost};

use crate::metrics::defs::{self, Metric};

/// Maximum number of programs of a disk in a scrape, with three series each. At half, a server with a dozen
/// services misses some; at double, a machine with sixty disks has 3,600 series more.
const PROGRAMS_MAX: usize = 10;

/// A value of a metric.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A count.
    Count(u64),
    /// Anything else.
    Real(f64),
    /// A distribution: sum, count, upper edges with the counts between them.
    Distribution(f64, u64, Vec<(f64, u64)>),
}

/// A value with its labels.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Its metric.
    pub metric: &'static Metric,
    /// Values of its labels, in the order of [`Metric::labels`].
    pub labels: Vec<String>,
    /// The value.
    pub value: Value,
}

/// A door, its engine and its disks at one moment.
#[derive(Clone, Debug, Default)]
pub struct Observation {
    /// `daemon`, `watch`, `observe` or `serve`.
    pub door: &'static str,
    /// Version of the program.
    pub version: String,
    /// Since the process started.
    pub uptime: Duration,
    /// Whether every call is passed.
    pub passes_all: bool,
    /// The counts of each disk.
    pub disks: Vec<DiskReport>,
    /// The counts of the door itself.
    pub own: Vec<Sample>,
}

impl Observation {
    /// Adds a count of the door. Labels are in the order of [`Metric::labels`].
    pub fn count(&mut self, metric: &'static Metric, labels: &[&str], value: u64) {
        debug_assert_eq!(metric.labels.len(), labels.len(), "{}", metric.base);
        let labels = labels.iter().map(|l| l.to_string()).collect();
        self.own.push(Sample { metric, labels, value: Value::Count(value) });
    }

    /// As JSON, for the page: disks as in `status --json`, but without names of files, because every local
    /// user may ask; the door's own counts by the names of their metrics.
    pub fn json(&self) -> String {
        let unnamed = |disk: &DiskReport| DiskReport { files: Vec::new(), ..disk.clone() };
        let own = self.own.iter().map(|sample| {
            let value = match &sample.value {
                Value::Count(n) => serde_json::json!(n),
                Value::Real(x) => serde_json::json!(x),
                Value::Distribution(sum, count, _) => serde_json::json!({ "sum": sum, "count": count }),
            };
            let labels: serde_json::Map<String, serde_json::Value> = sample
                .metric
                .labels
                .iter()
                .zip(&sample.labels)
                .map(|(k, v)| (k.to_string(), v.clone().into()))
                .collect();
            serde_json::json!({ "name": sample.metric.name(), "labels": labels, "value": value })
        });
        serde_json::json!({
            "door": self.door,
            "version": self.version,
            "uptime_ms": self.uptime.as_secs_f64() * 1e3,
            "passes_all": self.passes_all,
            "disks": self.disks.iter().map(unnamed).collect::<Vec<_>>(),
            "own": own.collect::<Vec<_>>(),
        })
        .to_string()
    }

    /// Every sample, those of a metric together, in the order of [`defs::ALL`].
    pub fn samples(&self) -> Vec<Sample> {
        let mut samples = self.own.clone();
        let mut add = |metric: &'static Metric, labels: &[&str], value: Value| {
            let labels = labels.iter().map(|l| l.to_string()).collect();
            samples.push(Sample { metric, labels, value });
        };
        add(&defs::BUILD, &[&self.version, self.door], Value::Count(1));
        add(&defs::UPTIME, &[], Value::Real(self.uptime.as_secs_f64()));
        add(&defs::ENABLED, &[], Value::Count(u64::from(!self.passes_all)));
        for disk in &self.disks {
            of_disk(disk, &mut add);
        }
        let place = |sample: &Sample| defs::ALL.iter().position(|m| std::ptr::eq(*m, sample.metric));
        samples.sort_by_key(place);
        samples
    }
}

fn of_disk(d: &DiskReport, add: &mut impl FnMut(&'static Metric, &[&str], Value)) {
    let disk = d.name.as_str();
    for (metric, count) in [
        (&defs::REQUESTS, d.requests),
        (&defs::RESIDENT, d.resident),
        (&defs::ATTACHED, d.attached),
        (&defs::WANTED, d.bytes_wanted),
        (&defs::DELIVERED, d.ledger.requested),
        (&defs::CACHED, d.ledger.cached),
        (&defs::READS, d.reads),
        (&defs::READ, d.bytes_read),
        (&defs::READS_FAILED, d.reads_failed),
        (&defs::AHEAD, d.ahead),
        (&defs::DROPPED, d.dropped),
        (&defs::HELD_BACK, d.held_back),
        (&defs::EVICTED, d.bytes_evicted_unused),
        (&defs::RELEASED, d.bytes_dropped),
        (&defs::STREAMS, d.streams_now),
        (&defs::UNREAD, d.bytes_unread_now),
        (&defs::BUDGET, d.budget_bytes),
        (&defs::SIZE, d.size.size),
        (&defs::WAITING, d.waiting_now),
        (&defs::QUEUED, d.queued_now),
        (&defs::IN_FLIGHT, d.in_flight_now),
        (&defs::PAUSES, d.pauses),
        (&defs::SPIN_UPS, d.spin_ups_known()),
        (&defs::FILE_SET_TAKEN, d.file_sets.bytes_taken),
        (&defs::FILE_SET_LEFT, d.file_sets.bytes_left),
        (&defs::FILE_SET_UNTAKEN, d.file_sets.bytes_untaken_now),
        (&defs::WRITERS_WRITTEN, d.writers.bytes),
        (&defs::WRITERS_WAITING, d.writers.waiting_now),
        (&defs::WRITERS_HELD_BACK, d.writers.held_back),
    ] {
        add(metric, &[disk], Value::Count(count));
    }
    // Counts for each stream that ended: unlike the ledger's, it never falls.
    add(&defs::WASTED, &[disk], Value::Count(d.bytes_wasted));
    for (reason, count) in &d.passed {
        add(&defs::PASSED, &[disk, reason], Value::Count(*count));
    }
    add(&defs::BUSY, &[disk], Value::Real(d.disk_ms / 1e3));
    add(&defs::FILE_SET_BUSY, &[disk], Value::Real(d.file_sets.disk_ms / 1e3));
    add(&defs::WRITERS_BUSY, &[disk], Value::Real(d.writers.disk_ms / 1e3));
    if let Some(sleep) = &d.sleep {
        add(&defs::AWAKE, &[disk], Value::Real(sleep.awake_s));
    }
    for ProgramCost { program, cost } in programs(d) {
        let labels = [disk, program.name.as_str(), program.group.as_str()];
        add(&defs::PROGRAM_BUSY, &labels, Value::Real(cost.disk_ms / 1e3));
        add(&defs::PROGRAM_READ, &labels, Value::Count(cost.bytes));
        add(&defs::PROGRAM_SEEKS, &labels, Value::Count(cost.seeks));
    }
    if let Some(seconds) = d.transfer_seconds() {
        add(&defs::TRANSFER, &[disk], Value::Real(seconds));
    }
    add(&defs::STALLED, &[disk], Value::Real(d.gap.mean_ms * d.gap.count as f64 / 1e3));
    add(&defs::WAIT, &[disk], distribution(&d.wait));
    add(&defs::SERVICE, &[disk], distribution(&d.service));
}

/// The programs in a scrape. Programs of several users with one name and group are one, because the user is
/// not a label.
fn programs(d: &DiskReport) -> Vec<ProgramCost> {
    let mut shown: Vec<ProgramCost> = Vec::new();
    for of in &d.programs {
        let same = |s: &ProgramCost| s.program.name == of.program.name && s.program.group == of.program.group;
        match shown.iter().position(same) {
            Some(at) => {
                let cost = &mut shown[at].cost;
                cost.disk_ms += of.cost.disk_ms;
                cost.bytes += of.cost.bytes;
                cost.seeks += of.cost.seeks;
            }
            None if shown.len() < PROGRAMS_MAX => shown.push(of.clone()),
            None => {}
        }
    }
    shown
}

/// Edges of every histogram: powers of two from 128 microseconds to 134 seconds, as the engine counts.
const EDGES: std::ops::RangeInclusive<u32> = 7..=27;

/// With the same edges at every scrape. A report leaves out empty buckets, and cuts the last edge at the
/// longest value.
fn distribution(d: &Durations) -> Value {
    let mut buckets: Vec<(f64, u64)> = EDGES.map(|i| (f64::from(1u32 << i) / 1e6, 0)).collect();
    buckets.push((f64::INFINITY, 0));
    for &(edge_ms, n) in &d.buckets {
        // A nanosecond of slack: edges went through milliseconds.
        let fits = |(upper, _): &&mut (f64, u64)| edge_ms / 1e3 <= *upper + 1e-9;
        if let Some(bucket) = buckets.iter_mut().find(fits) {
            bucket.1 += n;
        }
    }
    Value::Distribution(d.mean_ms * d.count as f64 / 1e3, d.count, buckets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_keep_their_edges_whatever_the_longest_value_is() {
        let of = |buckets: Vec<(f64, u64)>| {
            let count = buckets.iter().map(|b| b.1).sum();
            distribution(&Durations { count, mean_ms: 2.0, buckets, ..Default::default() })
        };
        let Value::Distribution(sum, 6, first) = of(vec![(0.001, 1), (0.512, 2), (1.024, 3)]) else {
            panic!()
        };
        // The longest of another scrape was 700 us: the same bucket.
        let Value::Distribution(_, _, second) = of(vec![(0.001, 1), (0.512, 2), (0.7, 3)]) else { panic!() };
        assert_eq!(first, second);
        assert!((sum - 0.012).abs() < 1e-12);
        assert_eq!(first.iter().map(|b| b.1).sum::<u64>(), 6);
        assert_eq!(first[0], (0.000128, 1));
        let Value::Distribution(_, _, long) = of(vec![(1e6, 4)]) else { panic!() };
        assert_eq!(long.last(), Some(&(f64::INFINITY, 4)));
    }
}
