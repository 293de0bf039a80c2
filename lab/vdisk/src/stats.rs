//! Where the drive's time went.
//!
//! All times are drive time, so that figures do not depend on the speed a disk is run at. `elapsed = busy +
//! idle`, where busy is as iostat's %util: a command is present. Of that, `service` is the time in which one
//! is being carried out; in the rest the drive finishes a look-ahead that its firmware will not break off.
//! `seek`, `rotation`, `transfer` and `overhead` are sums over commands (they can add up to more than
//! `service` where a command served from the track buffer runs beside the mechanism).

use seekless_base::{Lba, Nanos};
use seekless_model::drive::set::SpindleStats;
use seekless_model::drive::{Completion, Op};
use serde::{Deserialize, Serialize};

use crate::faults::MemberState;

/// Counters since the disk came up, or since they were last set to zero.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stats {
    /// Bytes of reads completed.
    pub read_bytes: u64,
    /// Bytes of writes completed.
    pub write_bytes: u64,
    /// Read commands completed.
    pub reads: u64,
    /// Write commands completed.
    pub writes: u64,
    /// Flushes completed.
    #[serde(default)]
    pub flushes: u64,
    /// Sum over flushes of completion minus arrival.
    #[serde(default)]
    pub flush_ns: u64,
    /// Time in which the heads went to what was written, and wrote it.
    #[serde(default)]
    pub write_ns: u64,
    /// Commands that failed with EIO by order.
    pub errors: u64,
    /// Commands that did not begin where the one served before them ended.
    pub seeks: u64,
    /// Commands for which the heads moved to another cylinder.
    pub head_moves: u64,
    /// Commands served from the track buffer.
    pub buffer_hits: u64,
    /// Time with at least one command present.
    pub busy_ns: u64,
    /// Time with at least one command being carried out.
    pub service_ns: u64,
    /// Time without.
    pub idle_ns: u64,
    /// Time since the counters were zero, unthrottled times left out.
    pub elapsed_ns: u64,
    /// Sums of the parts of service time.
    pub overhead_ns: u64,
    /// Time moving the heads.
    pub seek_ns: u64,
    /// Time waiting for the sector to come round.
    pub rotation_ns: u64,
    /// Time transferring.
    pub transfer_ns: u64,
    /// Sum over commands of completion minus arrival.
    pub response_ns: u64,
    /// Longest completion minus arrival.
    pub response_max_ns: u64,
    /// Most commands present at once, as an arriving one found it (itself counted).
    pub queue_max: u64,
    /// Bytes moved at no time at all, in the unthrottled mode of population.
    pub unthrottled_bytes: u64,
}

/// A member of a set: how it fares, and what each of its spindles did (drive time).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemberReport {
    /// How it fares.
    #[serde(flatten)]
    pub state: MemberState,
    /// One, or two of a drive with two actuators.
    pub spindles: Vec<SpindleStats>,
}

/// What follows from the counters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Derived {
    /// MB/s (1,000,000 bytes) of drive time, reads and writes together.
    pub mb_per_s: f64,
    /// Share of time busy, 0 to 1.
    pub utilisation: f64,
    /// Mean number of commands in the drive (Little's law).
    pub queue_mean: f64,
    /// Mean bytes a command.
    pub command_bytes: f64,
    /// Mean bytes between two seeks.
    pub bytes_per_seek: f64,
    /// Means over commands, in milliseconds.
    pub service_ms: f64,
    /// Mean seek time.
    pub seek_ms: f64,
    /// Mean rotational delay.
    pub rotation_ms: f64,
    /// Mean transfer time.
    pub transfer_ms: f64,
    /// Mean overhead.
    pub overhead_ms: f64,
    /// Mean response time, waiting in the queue included.
    pub response_ms: f64,
}

/// Keeps [`Stats`] up to date.
#[derive(Debug, Default)]
pub struct Counter {
    stats: Stats,
    /// Drive time at which the counters were zero; moved on by unthrottled times.
    since: Nanos,
    /// Drive time up to which `busy_ns` and `service_ns` are accounted.
    accounted: Nanos,
    /// Where the last command served ended.
    head: Option<Lba>,
}

impl Counter {
    /// A command arrived and makes `queue` present.
    pub fn arrived(&mut self, queue: usize) {
        self.stats.queue_max = self.stats.queue_max.max(queue as u64);
    }

    /// A command is done; `oldest` is the earliest arrival among the commands present until then, this one
    /// included.
    pub fn completed(&mut self, done: &Completion, oldest: Nanos, failed: bool) {
        let bytes = u64::from(done.sectors) * seekless_base::SECTOR_BYTES;
        let s = &mut self.stats;
        match done.op {
            Op::Read => (s.reads, s.read_bytes) = (s.reads + 1, s.read_bytes + bytes),
            Op::Write => (s.writes, s.write_bytes) = (s.writes + 1, s.write_bytes + bytes),
            Op::Flush => {
                s.flushes += 1;
                s.flush_ns += done.finished.since(done.arrived).0;
            }
        }
        s.errors += u64::from(failed);
        if done.op != Op::Flush {
            s.seeks += u64::from(self.head != Some(done.lba));
            self.head = Some(done.lba.plus_bytes(bytes));
        }
        s.head_moves += u64::from(done.service.seek > Nanos::ZERO);
        s.buffer_hits += u64::from(done.service.from_buffer);
        s.overhead_ns += done.service.overhead.0;
        s.seek_ns += done.service.seek.0;
        s.rotation_ns += done.service.rotation.0;
        s.transfer_ns += done.service.transfer.0;
        let response = done.finished.since(done.arrived).0;
        s.response_ns += response;
        s.response_max_ns = s.response_max_ns.max(response);
        let from = self.accounted.max(self.since);
        s.busy_ns += done.finished.since(oldest.max(from)).0;
        s.service_ns += done.finished.since(done.started.max(from)).0;
        self.accounted = self.accounted.max(done.finished);
    }

    /// Bytes moved outside time.
    pub fn unthrottled(&mut self, bytes: u64) {
        self.stats.unthrottled_bytes += bytes;
    }

    /// `span` of drive time passed unthrottled and does not count.
    pub fn leave_out(&mut self, span: Nanos) {
        self.since += span;
    }

    /// The counters at drive time `now`.
    pub fn read(&self, now: Nanos) -> Stats {
        let elapsed_ns = now.since(self.since).0;
        let idle_ns = elapsed_ns.saturating_sub(self.stats.busy_ns);
        Stats { elapsed_ns, idle_ns, ..self.stats.clone() }
    }

    /// Zero from drive time `now` on.
    pub fn reset(&mut self, now: Nanos) {
        *self = Counter { since: now, accounted: self.accounted, head: self.head, stats: Stats::default() };
    }
}

impl Stats {
    /// Rates and means; zero where nothing happened.
    pub fn derive(&self) -> Derived {
        let over = |a: u64, b: u64| if b == 0 { 0.0 } else { a as f64 / b as f64 };
        let commands = self.reads + self.writes;
        let bytes = self.read_bytes + self.write_bytes;
        let mean_ms = |ns: u64| over(ns, commands) / 1e6;
        Derived {
            mb_per_s: over(bytes, self.elapsed_ns) * 1e3,
            utilisation: over(self.busy_ns, self.elapsed_ns).min(1.0),
            queue_mean: over(self.response_ns, self.elapsed_ns),
            command_bytes: over(bytes, commands),
            bytes_per_seek: over(bytes, self.seeks),
            service_ms: mean_ms(self.service_ns),
            seek_ms: mean_ms(self.seek_ns),
            rotation_ms: mean_ms(self.rotation_ns),
            transfer_ms: mean_ms(self.transfer_ns),
            overhead_ms: mean_ms(self.overhead_ns),
            response_ms: mean_ms(self.response_ns),
        }
    }
}
