//! One set of heads of a set of drives: a drive, the commands waiting for its queue, and its speed.

use alloc::collections::VecDeque;

use seekless_base::{Nanos, SECTOR_BYTES};
use serde::{Deserialize, Serialize};

use crate::drive::{Command, Completion, Drive, DriveSpec, Op};

/// Counters of one spindle of a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpindleStats {
    /// Read commands completed.
    pub reads: u64,
    /// Bytes of them.
    pub read_bytes: u64,
    /// Write commands completed.
    pub writes: u64,
    /// Bytes of them.
    pub write_bytes: u64,
    /// Bytes read or written for a rebuild, of both.
    pub rebuild_bytes: u64,
    /// Time with at least one command present.
    pub busy_ns: u64,
    /// Time the heads moved.
    pub seek_ns: u64,
    /// Time the heads waited for a sector.
    pub rotation_ns: u64,
}

/// A spindle of a set.
#[derive(Clone, Debug)]
pub(super) struct Spindle {
    drive: Drive,
    pace: Pace,
    /// Commands for which the drive's queue has no room, oldest first.
    waiting: VecDeque<Command>,
    /// Commands that have not ended, waiting ones included.
    pub(super) pending: usize,
    /// Where the last submitted read ends, in sectors of the member: md's criterion in the choice between
    /// mirrors.
    pub(super) read_end: u64,
    pub(super) stats: SpindleStats,
    busy_since: Option<Nanos>,
    /// When the drive's next completion is due, on the set's clock, if known.
    next: Option<Option<Nanos>>,
}

impl Spindle {
    pub(super) fn new(spec: &DriveSpec) -> Spindle {
        Spindle {
            drive: Drive::new(spec),
            pace: Pace { ours: 0, its: 0, factor: 1.0 },
            waiting: VecDeque::new(),
            pending: 0,
            read_end: 0,
            stats: SpindleStats::default(),
            busy_since: None,
            next: None,
        }
    }

    pub(super) fn submit(&mut self, now: Nanos, command: Command) {
        self.pending += 1;
        self.busy_since.get_or_insert(now);
        self.next = None;
        if !self.waiting.is_empty() || self.drive.submit(self.pace.its(now), command).is_err() {
            self.waiting.push_back(command);
        }
    }

    /// When [`Spindle::complete`] will return something.
    pub(super) fn next(&mut self) -> Option<Nanos> {
        if self.next.is_none() {
            self.next = Some(self.drive.next_completion().map(|at| self.pace.ours(at)));
        }
        self.next.flatten()
    }

    /// The completion that is due at `now`, with times on the set's clock.
    pub(super) fn complete(&mut self, now: Nanos) -> Option<Completion> {
        self.next = None;
        let mut done = self.drive.poll(self.pace.its(now))?;
        while let Some(&command) = self.waiting.front()
            && self.drive.submit(self.pace.its(now), command).is_ok()
        {
            self.waiting.pop_front();
        }
        (done.arrived, done.started) = (self.pace.ours(done.arrived), self.pace.ours(done.started));
        done.finished = now;
        self.pending -= 1;
        let bytes = u64::from(done.sectors) * SECTOR_BYTES;
        let s = &mut self.stats;
        match done.op {
            Op::Read => (s.reads, s.read_bytes) = (s.reads + 1, s.read_bytes + bytes),
            Op::Write => (s.writes, s.write_bytes) = (s.writes + 1, s.write_bytes + bytes),
            Op::Flush => {}
        }
        s.seek_ns += done.service.seek.0;
        s.rotation_ns += done.service.rotation.0;
        if self.pending == 0
            && let Some(since) = self.busy_since.take()
        {
            s.busy_ns += now.since(since).0;
        }
        Some(done)
    }

    pub(super) fn write_time(&self) -> Nanos {
        self.drive.write_time()
    }

    /// Takes back the commands that the drive does not have yet.
    pub(super) fn withdraw(&mut self) -> impl Iterator<Item = Command> + use<> {
        self.pending -= self.waiting.len();
        core::mem::take(&mut self.waiting).into_iter()
    }

    /// From `now` on everything takes `factor` times as long.
    pub(super) fn slow(&mut self, now: Nanos, factor: f64) {
        self.pace = Pace { ours: now.0, its: self.pace.its(now).0, factor };
        self.next = None;
    }

    pub(super) fn factor(&self) -> f64 {
        self.pace.factor
    }

    /// The counters at `now`.
    pub(super) fn stats(&self, now: Nanos) -> SpindleStats {
        let busy = self.busy_since.map_or(0, |since| now.since(since).0);
        SpindleStats { busy_ns: self.stats.busy_ns + busy, ..self.stats }
    }

    pub(super) fn reset(&mut self, now: Nanos) {
        self.stats = SpindleStats::default();
        self.busy_since = self.busy_since.map(|_| now);
    }
}

/// The drive's clock relative to the set's: the same, or slower by a factor since some time.
#[derive(Clone, Copy, Debug)]
struct Pace {
    ours: u64,
    its: u64,
    factor: f64,
}

impl Pace {
    fn its(&self, ours: Nanos) -> Nanos {
        let passed = ours.0.saturating_sub(self.ours);
        let passed = if self.factor == 1.0 { passed } else { (passed as f64 / self.factor) as u64 };
        Nanos(self.its + passed)
    }

    /// The inverse, and not too early.
    fn ours(&self, its: Nanos) -> Nanos {
        // A command that began before the speed changed is no longer known to the nanosecond.
        let passed = its.0.saturating_sub(self.its);
        if self.factor == 1.0 {
            return Nanos(self.ours.saturating_add(passed));
        }
        Nanos(self.ours.saturating_add((passed as f64 * self.factor) as u64).saturating_add(2))
    }
}
