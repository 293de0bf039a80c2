//! How far readers go that do not begin at the head of a file, known within seconds.
//!
//! A stream ends when it has been silent for half a minute. A swarm of peers that each take one piece of a
//! file has started a thousand streams by then, and every byte read ahead of them is wasted. So a stream that
//! stops counts as ended at once, on probation: when it has been silent for longer than ever before, plus the
//! slack allowed for a client's jitter. If it reads again it has not ended, and if most streams do, stops are
//! not believed. Clients that begin at the head of a file are judged by true ends only: a viewer's first
//! burst is followed by the first of many silences.
//!
//! Many of them read all they want in one call: a needle of a store, a block. Such a stream says nothing of
//! how far those go that read on, and those that read on begin with a buffer of their own length. So it is
//! counted by the length of the first read how many go on ([`FirstReads`]), and lengths are those of the
//! streams that went on.
//!
//! Readers that announced random reads (`POSIX_FADV_RANDOM`) are a kind of their own: what others do says
//! nothing about them.

use crate::sizing::controller::RECENT;

use super::lengths::{FirstReads, Lengths, Part, WentOn, rest_of};

/// For readers that announced nothing: a piece ends where this fraction of the streams went no further. With
/// half, every second stream would wait at the end of a piece; with all, one reader of a whole file would
/// make pieces reach to the end for all.
pub(super) const MOST: Part = (3, 4);

/// What is known of a stream's start and advice, as far as that predicts its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunKind {
    /// It began at the head of its file.
    Head,
    /// It began elsewhere.
    Elsewhere,
    /// Its reader announced random reads.
    Random,
}

/// What a stream has read without a jump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) kind: RunKind,
    /// Bytes; below, those of its first read.
    pub(crate) length: u64,
    pub(crate) first: u64,
}

impl Run {
    fn went_on(&self) -> bool {
        self.length > self.first
    }

    /// Whether it tells how far others go.
    fn tells(&self) -> bool {
        self.went_on() || self.kind == RunKind::Random
    }
}

/// What was observed of the streams of one kind.
#[derive(Clone, Debug, Default)]
struct Seen {
    /// First reads: streams that went on, as soon as they did, and those that ended.
    first_reads: FirstReads,
    /// First reads of streams that have stopped, and neither ended nor resumed.
    first_reads_stopped: FirstReads,
    /// Lengths of the streams that ended.
    ended: Lengths,
    /// Lengths of the streams that have stopped, and neither ended nor resumed.
    stopped: Lengths,
    /// Number of streams that have stopped; below, how many of them resumed. Both fade.
    stops: u32,
    resumed: u32,
}

impl Seen {
    fn stopped(&mut self, run: Run) {
        if !run.went_on() {
            self.first_reads_stopped.count(run.first, false);
        }
        if run.tells() {
            self.stopped.ended(run.length);
        }
    }

    /// Takes back that a stream has stopped.
    fn had_not_stopped(&mut self, run: Run) {
        if !run.went_on() {
            self.first_reads_stopped.take_back(run.first, false);
        }
        if run.tells() {
            self.stopped.resumed(run.length);
        }
    }

    fn ended(&mut self, run: Run) {
        if !run.went_on() {
            self.first_reads.count(run.first, false);
        }
        if run.tells() {
            self.ended.ended(run.length);
        }
    }

    /// Whether [`MOST`] of the stopped streams have not resumed. A viewer that stays for a while resumes at
    /// least once, so about every second silence of viewers is an end.
    fn stops_are_ends(&self) -> bool {
        let (part, whole) = MOST;
        whole * self.stops.saturating_sub(self.resumed) >= part * self.stops
    }

    /// Whether most stopped streams are known to resume.
    fn most_resume(&self) -> bool {
        self.stops >= super::BELIEVED_AFTER && !self.stops_are_ends()
    }

    /// How much further streams go. `None` also if most resume after silences: how long pieces should be for
    /// clients that pause is up to the sizing algorithm.
    fn rest(&self, run: u64, part: Part) -> Option<u64> {
        self.stops_are_ends().then(|| rest_of(&[&self.ended, &self.stopped], run, part)).flatten()
    }
}

/// What was observed of all streams.
#[derive(Clone, Debug, Default)]
pub(crate) struct Runs {
    elsewhere: Seen,
    random: Seen,
}

impl Runs {
    fn of(&mut self, kind: RunKind) -> Option<&mut Seen> {
        match kind {
            RunKind::Head => None,
            RunKind::Elsewhere => Some(&mut self.elsewhere),
            RunKind::Random => Some(&mut self.random),
        }
    }

    /// A stream has stopped.
    pub(crate) fn stopped(&mut self, run: Run) {
        let Some(seen) = self.of(run.kind) else { return };
        seen.stopped(run);
        seen.stops += 1;
        if seen.stops >= 2 * RECENT {
            (seen.stops, seen.resumed) = (seen.stops / 2, seen.resumed / 2);
        }
    }

    /// A stream that had stopped resumes.
    pub(crate) fn resumed(&mut self, run: Run) {
        let Some(seen) = self.of(run.kind) else { return };
        seen.had_not_stopped(run);
        seen.resumed = (seen.resumed + 1).min(seen.stops);
    }

    /// A run has ended. `stopped` is what was recorded when its stream stopped.
    pub(crate) fn ended(&mut self, run: Run, stopped: Option<Run>) {
        if let Some(stopped) = stopped
            && let Some(seen) = self.of(stopped.kind)
        {
            seen.had_not_stopped(stopped);
        }
        if let Some(seen) = self.of(run.kind) {
            seen.ended(run);
        }
    }

    /// A stream of this kind goes on after a first read of this length.
    pub(crate) fn goes_on(&mut self, kind: RunKind, first: u64) {
        if let Some(seen) = self.of(kind) {
            seen.first_reads.count(first, true);
        }
    }

    /// How many streams of this kind went on after a first read of this length; `None` if not known. Those
    /// that have stopped count as ended if stops are ends.
    pub(crate) fn went_on(&self, kind: RunKind, first: u64) -> Option<WentOn> {
        let Seen { first_reads, first_reads_stopped: stopped, .. } = &self.elsewhere;
        match kind {
            RunKind::Elsewhere if self.elsewhere.stops_are_ends() => {
                FirstReads::of(&[first_reads, stopped], first)
            }
            RunKind::Elsewhere => FirstReads::of(&[first_reads], first),
            RunKind::Head | RunKind::Random => None,
        }
    }

    /// Whether nothing is known of how far a stream of this kind goes that has read this much: not even that
    /// most resume after a silence.
    pub(crate) fn is_unknown(&self, kind: RunKind, run: u64) -> bool {
        let resumes = match kind {
            RunKind::Head => true,
            RunKind::Elsewhere => self.elsewhere.most_resume(),
            RunKind::Random => self.random.most_resume(),
        };
        !resumes && self.rest(kind, run).is_none()
    }

    /// How much further a stream of this kind goes that has read this much: the median of random readers; for
    /// others that began elsewhere, the distance that most of them do not exceed. `None` if not known.
    pub(crate) fn rest(&self, kind: RunKind, run: u64) -> Option<u64> {
        match kind {
            RunKind::Head => None,
            RunKind::Elsewhere => self.elsewhere.rest(run, MOST),
            RunKind::Random => self.random.rest(run, super::lengths::HALF),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const M: u64 = 1 << 20;

    fn run(kind: RunKind, length: u64) -> Run {
        Run { kind, length, first: length.min(M / 4) }
    }

    #[test]
    fn streams_that_stop_count_at_once_and_not_when_they_go_on() {
        let mut runs = Runs::default();
        let elsewhere = RunKind::Elsewhere;
        (0..16).for_each(|_| runs.stopped(run(elsewhere, 2 * M)));
        assert_eq!(runs.rest(elsewhere, M / 2), Some(3 * M / 2));
        assert_eq!(runs.rest(RunKind::Random, 0), None, "a kind says nothing about another");
        (0..16).for_each(|_| runs.resumed(run(elsewhere, 2 * M)));
        assert_eq!(runs.rest(elsewhere, M / 2), None);
        // If most streams resume, a silence says nothing.
        (0..15).for_each(|_| runs.stopped(run(elsewhere, 2 * M)));
        assert_eq!(runs.rest(elsewhere, 0), None);
        assert!(!runs.is_unknown(elsewhere, 0), "they go on");
        (0..64).for_each(|_| runs.stopped(run(elsewhere, 2 * M)));
        assert_eq!(runs.rest(elsewhere, 0), Some(2 * M), "until it is the rule no longer");
    }

    #[test]
    fn one_in_four_may_go_further_than_a_piece() {
        let mut runs = Runs::default();
        for i in 0..64 {
            runs.stopped(run(RunKind::Elsewhere, if i % 4 == 0 { 64 * M } else { 2 * M }));
        }
        assert_eq!(runs.rest(RunKind::Elsewhere, 0), Some(2 * M));
        assert_eq!(runs.rest(RunKind::Elsewhere, 3 * M), Some(61 * M), "those that went further go on");
    }

    #[test]
    fn a_stream_that_stopped_and_ended_counts_once() {
        let mut runs = Runs::default();
        for _ in 0..15 {
            runs.stopped(run(RunKind::Random, 2 * M));
            runs.ended(run(RunKind::Random, 2 * M), Some(run(RunKind::Random, 2 * M)));
        }
        assert_eq!(runs.rest(RunKind::Random, 0), None, "fifteen are too few");
        runs.stopped(run(RunKind::Random, 2 * M));
        assert_eq!(runs.rest(RunKind::Random, 0), Some(2 * M));
    }
}
