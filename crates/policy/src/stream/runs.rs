//! How far readers go that do not begin at the head of a file, known within seconds.
//!
//! A stream is over when it has been silent for half a minute. A swarm of peers that each take one piece of a
//! file has begun a thousand streams by then, and every byte read ahead of them is wasted. So a stream that
//! stops counts as ended at once, on probation: when it has been silent for longer than ever before, by the
//! slack that a client's jitter is allowed. If it reads again it has not ended, and if that is the rule
//! nothing is believed of those that stop. Clients that begin at the head of a file are judged by true ends
//! only: a viewer's first burst is followed by the first of many silences.
//!
//! Readers that said they read at random (`POSIX_FADV_RANDOM`) are a kind of their own: what others do says
//! nothing about them.

use seekless_sizing::controller::RECENT;

use super::lengths::{Lengths, Part, rest_of};

/// The part of the streams that went no further than the end of a piece, for readers that said nothing of
/// themselves. With half, every other one would wait at the end of a piece; with all, one reader of a whole
/// file would have pieces read to the end for all.
const MOST: Part = (3, 4);

/// What a stream is like, as far as that says how far it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunKind {
    /// It began at the head of its file.
    Head,
    /// It began elsewhere.
    Elsewhere,
    /// Its reader said that it reads at random.
    Random,
}

/// What was seen of the streams of one kind.
#[derive(Clone, Debug, Default)]
struct Seen {
    /// Of those that ended.
    ended: Lengths,
    /// Of those that have stopped, and neither ended nor gone on.
    stopped: Lengths,
    /// Streams that have stopped, and of these those that went on. Old ones fade.
    stops: u32,
    resumed: u32,
}

impl Seen {
    /// Of those that stopped, [`MOST`] have not gone on. A viewer that stays for a while goes on at least
    /// once, so that of the silences of viewers about every other is an end.
    fn stops_are_ends(&self) -> bool {
        let (part, whole) = MOST;
        whole * self.stops.saturating_sub(self.resumed) >= part * self.stops
    }

    /// It is known that most go on.
    fn goes_on(&self) -> bool {
        self.stops >= super::BELIEVED_AFTER && !self.stops_are_ends()
    }

    /// `None` also where most go on after silences: how long pieces are worth for clients that come and go is
    /// the business of the sizing algorithm.
    fn rest(&self, run: u64, part: Part) -> Option<u64> {
        self.stops_are_ends().then(|| rest_of(&[&self.ended, &self.stopped], run, part)).flatten()
    }
}

/// What was seen of all.
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

    /// A stream has stopped after so many bytes.
    pub(crate) fn stopped(&mut self, kind: RunKind, run: u64) {
        let Some(seen) = self.of(kind) else { return };
        seen.stopped.ended(run);
        seen.stops += 1;
        if seen.stops >= 2 * RECENT {
            (seen.stops, seen.resumed) = (seen.stops / 2, seen.resumed / 2);
        }
    }

    /// One that had stopped after so many bytes goes on.
    pub(crate) fn resumed(&mut self, kind: RunKind, run: u64) {
        let Some(seen) = self.of(kind) else { return };
        seen.stopped.goes_on(run);
        seen.resumed = (seen.resumed + 1).min(seen.stops);
    }

    /// A run has ended after so many bytes; `stopped` says what its stream was known by when it stopped.
    pub(crate) fn ended(&mut self, kind: RunKind, run: u64, stopped: Option<(RunKind, u64)>) {
        if let Some((kind, run)) = stopped
            && let Some(seen) = self.of(kind)
        {
            seen.stopped.goes_on(run);
        }
        if let Some(seen) = self.of(kind) {
            seen.ended.ended(run);
        }
    }

    /// Whether nothing is known of how far one of this kind goes that has read so much: not even that most go
    /// on after a silence.
    pub(crate) fn is_unknown(&self, kind: RunKind, run: u64) -> bool {
        let goes_on = match kind {
            RunKind::Head => true,
            RunKind::Elsewhere => self.elsewhere.goes_on(),
            RunKind::Random => self.random.goes_on(),
        };
        !goes_on && self.rest(kind, run).is_none()
    }

    /// How much further one of this kind goes that has read so much: half of those that read at random went
    /// no further, and most of the others that began elsewhere. `None`: not known.
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

    #[test]
    fn streams_that_stop_count_at_once_and_not_when_they_go_on() {
        let mut runs = Runs::default();
        let elsewhere = RunKind::Elsewhere;
        (0..16).for_each(|_| runs.stopped(elsewhere, 2 * M));
        assert_eq!(runs.rest(elsewhere, M / 2), Some(3 * M / 2));
        assert_eq!(runs.rest(RunKind::Random, 0), None, "a kind says nothing about another");
        (0..16).for_each(|_| runs.resumed(elsewhere, 2 * M));
        assert_eq!(runs.rest(elsewhere, M / 2), None);
        // Where going on is the rule a silence says nothing.
        (0..15).for_each(|_| runs.stopped(elsewhere, 2 * M));
        assert_eq!(runs.rest(elsewhere, 0), None);
        assert!(!runs.is_unknown(elsewhere, 0), "they go on");
        (0..64).for_each(|_| runs.stopped(elsewhere, 2 * M));
        assert_eq!(runs.rest(elsewhere, 0), Some(2 * M), "until it is the rule no longer");
    }

    #[test]
    fn one_in_four_may_go_further_than_a_piece() {
        let mut runs = Runs::default();
        for i in 0..64 {
            runs.stopped(RunKind::Elsewhere, if i % 4 == 0 { 64 * M } else { 2 * M });
        }
        assert_eq!(runs.rest(RunKind::Elsewhere, 0), Some(2 * M));
        assert_eq!(runs.rest(RunKind::Elsewhere, 3 * M), Some(61 * M), "those that went further go on");
    }

    #[test]
    fn a_stream_that_stopped_and_ended_counts_once() {
        let mut runs = Runs::default();
        for _ in 0..15 {
            runs.stopped(RunKind::Random, 2 * M);
            runs.ended(RunKind::Random, 2 * M, Some((RunKind::Random, 2 * M)));
        }
        assert_eq!(runs.rest(RunKind::Random, 0), None, "fifteen are too few");
        runs.stopped(RunKind::Random, 2 * M);
        assert_eq!(runs.rest(RunKind::Random, 0), Some(2 * M));
    }
}
