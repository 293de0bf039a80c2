//! The size from a model of the disk, with the gradient as its correction.
//!
//! \[A\]'s search goes one step an interval: from a size four times too small it needs an hour, and near the minimum the score
//! differs by a hundredth a step, less than it fluctuates, so it wanders. What the size should be is known beforehand,
//! though, up to what the model leaves out:
//!
//! - A piece of `s` bytes costs the disk `switch + s / rate`, so a byte costs `1 / rate + switch / s`.
//! - A viewer who leaves has some part of a piece unread. When one leaves `left` bytes for every `used` bytes that are read, at
//!   a size `s0`, then `left / used * s / s0` of what is used is wasted. The product of the two is least at
//!   `sqrt(switch * rate * used * s0 / left)`.
//!   Beyond six times what the disk transfers in a switch it gains less than a seventh; readers wait for one another, and what lies
//!   unread takes the place of what is read again (5400 rpm, HD, 8 GiB, simulated: 40.0 requests/s with six, 38.6 with eight). Where that is
//!   no more than a third of the room, up to eight times (10k rpm, SD, 8 GiB, three seeds: 150.5 requests/s with six, 154.9).
//! - A piece lasts its reader a minute and no longer, unless that is less than twice what the disk transfers in a switch. What is
//!   read for minutes lies so long unread that the kernel evicts it first, and the pieces of all who came together run out
//!   together: a disk that was idle has too much to do for minutes.
//! - Memory bears no more than twice the budget divided by the streams, divided by the mean part they get by the
//!   bitrate rule; and beyond four times what the disk transfers in a switch no more than four fifths of that are taken, or readers are
//!   held back for want of room.
//!
//! The least of these is the model's size. The first time it is gone to at once, later when the size in use is off by more
//! than a quarter, sliding for at most half a minute. Until some streams have ended the first is six times what the
//! disk transfers in a switch. Where memory is the bound the size is left at that: larger has no effect, and whether smaller
//! is better the budget finds out by what is evicted. Else the gradient looks a quarter of an octave up and down, one interval each, between two
//! intervals at the size in use, and goes there only if the difference is more than twice its own standard error (from the
//! spans an interval is scored in) and half a hundredth; where it is flat it comes back and rests. Corrections stay within a
//! factor of two.

use seekless_profile::DiskProfile;
use seekless_units::{Bytes, Nanos};

use super::{Decision, Observation, Params, TRANSACTION};

/// The size in use is off when it differs from the model's by this factor.
const OFF: f64 = 1.25;

/// Longest slide to another size.
const SLIDE_MAX: Nanos = Nanos::from_secs(30);

/// At `n` depths `n / (n + 1)` of the disk's time is transfer.
const DEPTHS: f64 = 6.0;

/// Where memory has room for three times such a size it may be this many.
const DEPTHS_SPARE: f64 = 8.0;
const ROOM_SPARE: f64 = 1.0 / 3.0;

/// Seconds a piece lasts the mean reader at the most.
const LASTS: f64 = 60.0;

/// And in depths at the least: shorter pieces cost a fast disk more than a third of its time in switches.
const LEAST_DEPTHS: f64 = 2.0;

/// A size of as many depths may use up the room; a larger one leaves some of it, since readers who are held back for want of room cost more
/// than the few hundredths of the disk's time that it would gain (20 TB, HD, 8 GiB, simulated at 97 requests/s, three seeds: 15.2 MiB
/// failed 36 sessions, 12 MiB none).
const ENOUGH_DEPTHS: f64 = 4.0;
const ROOM_LEFT: f64 = 0.8;

/// Streams that must have ended, at the size in use, before what they left is believed.
const ENDED: u32 = 256;

/// Steps of a slide.
const SLIDE_STEPS: u64 = 16;

/// Steps of the correction in an octave, and how many either way.
const STEPS_AN_OCTAVE: f64 = 4.0;
const STEPS_MAX: i32 = 4;

/// Spans in which the second half of an interval is scored, each on its own, so that the spread is known.
const SPANS: u32 = 8;

/// A score counts as lower when it is by this part, and by this many standard errors.
const LOWER_BY: f64 = 0.005;
const ERRORS: f64 = 2.0;

/// Intervals without another look where it was flat.
const REST: u32 = 8;

/// What is known about memory and readers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Situation {
    /// Size for the highest bitrate at which the mean piece is as long as memory bears; 0 while there are no streams.
    pub room: u64,
    /// Mean part of the full size that streams get by the bitrate rule, more than 0 and at most 1.
    pub part: f64,
    /// Streams that have ended so far.
    pub ended: u32,
    /// Mean bytes read, by whichever stream, for each that ended; 0 until some have.
    pub used: f64,
    /// Mean bytes they left unread.
    pub left: f64,
    /// Bytes a second a mean stream reads; 0 while that is not known.
    pub pace: f64,
    /// What the disk transfers in the time of one switch; 0 for what the profile says.
    pub depth: u64,
}

/// The mean of an interval's spans, and the square of its standard error.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Score {
    mean: f64,
    error2: f64,
}

impl Score {
    /// Whether it is lower than another beyond doubt.
    fn below(&self, other: Score) -> bool {
        let by = other.mean - self.mean;
        by > LOWER_BY * other.mean && by * by > ERRORS * ERRORS * (self.error2 + other.error2)
    }

    fn mean_of(a: Score, b: Score) -> Score {
        // The spread between the two counts as well: the load may have changed meanwhile.
        let apart = (a.mean - b.mean) / 2.0;
        Score { mean: (a.mean + b.mean) / 2.0, error2: (a.error2 + b.error2) / 4.0 + apart * apart }
    }
}

/// Where the search for a correction stands.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Search {
    /// At the size in use for so many more intervals.
    Resting(u32),
    /// At a neighbour; what the size in use scored before.
    Trying { up: bool, before: Score },
    /// Back; what the neighbour scored.
    Comparing { up: bool, before: Score, tried: Score },
}

#[derive(Clone, Copy, Debug, Default)]
struct Span {
    disk_time: f64,
    disk_bytes: f64,
    requested: f64,
}

/// The controller of one disk's prefetch size, from a model.
#[derive(Clone, Debug)]
pub struct Guided {
    params: Params,
    /// Switch (seconds) times rate (bytes a second): what the disk transfers in a switch.
    depth: f64,
    /// The model's size; 0 before the first.
    model: f64,
    /// Its bound by what leavers leave, infinite until some have, and how many streams must have ended before it is reckoned anew.
    best: f64,
    /// [`DEPTHS`] to [`DEPTHS_SPARE`], of which the mean stream gets its part: nothing larger is tried.
    most: f64,
    known_after: u32,
    /// Whether memory is what bounds it.
    full: bool,
    correction: i32,
    search: Search,
    from: u64,
    to: u64,
    slide_start: Nanos,
    told: u64,
    interval_start: Nanos,
    interval_end: Nanos,
    /// Scored so far, and the span under way with its end.
    spans: (u32, f64, f64),
    span: Span,
    span_end: Nanos,
    busy: f64,
    requested: f64,
    evicted: f64,
    eviction_time: f64,
    bitrate: f64,
    /// No size above what a stream reads in the time its data stays, since too much was evicted.
    ceiling: f64,
    last: Option<(Decision, Option<f64>)>,
}

impl Guided {
    /// Starts at `now` with the start size.
    pub fn new(params: Params, profile: &DiskProfile, now: Nanos) -> Guided {
        let params = params.normalised();
        let start = params.start_size.clamp(params.step_size.min(params.start_size), params.size_max).0;
        let depth = profile.mean_depth().0 as f64;
        let mut guided = Guided {
            depth,
            model: 0.0,
            best: f64::INFINITY,
            most: DEPTHS * depth,
            known_after: ENDED,
            full: false,
            correction: 0,
            search: Search::Resting(0),
            from: start,
            to: start,
            slide_start: now,
            told: start,
            interval_start: now,
            interval_end: now,
            spans: (0, 0.0, 0.0),
            span: Span::default(),
            span_end: now,
            busy: 0.0,
            requested: 0.0,
            evicted: 0.0,
            eviction_time: 0.0,
            bitrate: 0.0,
            ceiling: f64::INFINITY,
            last: None,
            params,
        };
        guided.begin_interval(now);
        guided
    }

    /// The size now in use.
    pub fn size(&self) -> Bytes {
        Bytes(self.told)
    }

    /// The size it is on the way to, without what is only being tried: the one to start with next time.
    pub fn target(&self) -> Bytes {
        if self.model > 0.0 { self.at(self.correction) } else { Bytes(self.to) }
    }

    /// What was made of the last interval, and its score if there was one.
    pub fn last_decision(&self) -> Option<(Decision, Option<f64>)> {
        self.last
    }

    /// When the interval of now is over.
    pub fn interval_end(&self) -> Nanos {
        self.interval_end
    }

    /// What is known of memory and readers now. Goes to the model's size if the one in use is off.
    pub fn situation(&mut self, now: Nanos, seen: Situation) {
        if seen.room == 0 {
            return;
        }
        if seen.depth > 0 {
            self.depth = seen.depth as f64;
        }
        // The bounds are those of a mean stream.
        let part = if seen.part > 0.0 { seen.part.min(1.0) } else { 1.0 };
        let depth = self.depth / part;
        let spare = if seen.ended < ENDED { 0.0 } else { ROOM_SPARE * seen.room as f64 };
        self.most = spare.clamp(DEPTHS * depth, DEPTHS_SPARE * depth);
        if seen.ended >= self.known_after {
            // What is left was left at the sizes of before: the next time when as many have ended at this one.
            self.known_after = seen.ended.saturating_add(ENDED);
            self.best = match seen {
                Situation { left, .. } if left < 1.0 => f64::INFINITY,
                Situation { used, left, .. } => {
                    let at = self.told.max(1) as f64 * part;
                    libm::sqrt(self.depth * used.max(0.0) * at / left) / part
                }
            };
        }
        let known = |rate: f64| if rate > 0.0 { rate } else { f64::INFINITY };
        // Of a film nobody reads more for long than it plays: whoever comes to an empty server begins by filling his buffer.
        let pace = known(seen.pace / part).min(known(self.bitrate));
        let lasts = (LASTS * pace).max(LEAST_DEPTHS * depth);
        let best = self.best.min(self.most).min(lasts);
        let room = seen.room as f64;
        let ample = (ROOM_LEFT * room).max(ENOUGH_DEPTHS * depth);
        let model = best.min(ample).min(room).min(self.ceiling).max(4096.0);
        self.full = room <= best * libm::exp2(1.0 / STEPS_AN_OCTAVE);
        if self.model > 0.0 && (model / self.model).max(self.model / model) < OFF {
            return;
        }
        let first = self.model == 0.0;
        self.model = model;
        self.search = Search::Resting(0);
        self.last = Some((Decision::Model, None));
        self.slide_to(self.at(self.correction).0, now);
        if first {
            (self.from, self.told) = (self.to, self.to);
        }
        self.begin_interval(now);
    }

    /// Counts what happened up to `now`.
    pub fn observe(&mut self, now: Nanos, seen: Observation) {
        self.evicted += seen.evicted.0 as f64;
        self.eviction_time += seen.evicted.0 as f64 * seen.eviction_time.as_secs_f64();
        self.busy += seen.busy.as_secs_f64();
        self.requested += seen.requested.0 as f64;
        if seen.bitrate.is_finite() && seen.bitrate > 0.0 {
            self.bitrate = seen.bitrate;
        }
        if now < self.scored_from() || self.sliding(now) {
            self.span = Span::default();
            self.span_end = now + self.span_len();
            return;
        }
        self.span.disk_time += seen.disk_time.as_secs_f64();
        self.span.disk_bytes += seen.disk_bytes.0 as f64;
        self.span.requested += seen.requested.0 as f64;
        if now >= self.span_end {
            let span = core::mem::take(&mut self.span);
            self.span_end = now + self.span_len();
            if span.requested > 0.0 && span.disk_bytes >= TRANSACTION.0 as f64 {
                // Milliseconds per transaction times miss ratio.
                let score = span.disk_time * 1e3 * TRANSACTION.0 as f64 / span.requested;
                let (n, sum, squares) = self.spans;
                self.spans = (n + 1, sum + score, squares + score * score);
            }
        }
    }

    /// When [`Guided::tick`] has something to do.
    pub fn next_deadline(&self) -> Nanos {
        if self.told == self.to {
            return self.interval_end;
        }
        let step = Nanos((self.slide().0 / SLIDE_STEPS).max(1));
        let next = self.slide_start + Nanos(step.0.saturating_mul(self.steps_told() + 1));
        next.min(self.interval_end)
    }

    /// Time passed.
    pub fn tick(&mut self, now: Nanos) {
        if now >= self.interval_end {
            self.decide(now);
            self.begin_interval(now);
        }
        self.told = self.size_after(self.steps(now));
    }

    fn begin_interval(&mut self, now: Nanos) {
        self.interval_start = now;
        self.interval_end = now + self.params.adjust_interval;
        self.spans = (0, 0.0, 0.0);
        self.span = Span::default();
        self.span_end = self.scored_from() + self.span_len();
        (self.busy, self.requested, self.evicted, self.eviction_time) = (0.0, 0.0, 0.0, 0.0);
    }

    /// Scores count from the middle of an interval: by then every stream has had a piece of the new size.
    fn scored_from(&self) -> Nanos {
        self.interval_start + Nanos(self.params.adjust_interval.0 / 2)
    }

    fn span_len(&self) -> Nanos {
        Nanos((self.params.adjust_interval.0 / 2 / u64::from(SPANS)).max(1))
    }

    /// The model's size, corrected by so many steps.
    fn at(&self, correction: i32) -> Bytes {
        let size = (self.model * libm::exp2(f64::from(correction) / STEPS_AN_OCTAVE)).min(self.most);
        let least = self.params.step_size.0.min(self.params.size_max.0);
        Bytes((size as u64 / 4096 * 4096).clamp(least, self.params.size_max.0))
    }

    fn slide(&self) -> Nanos {
        SLIDE_MAX.min(Nanos(self.params.adjust_interval.0 / 4))
    }

    fn steps(&self, now: Nanos) -> u64 {
        let slide = self.slide().0.max(1);
        let passed = now.since(self.slide_start).0.min(slide);
        (u128::from(passed) * u128::from(SLIDE_STEPS) / u128::from(slide)) as u64
    }

    fn steps_told(&self) -> u64 {
        (0..=SLIDE_STEPS).rev().find(|&s| self.size_after(s) == self.told).unwrap_or(0)
    }

    fn size_after(&self, steps: u64) -> u64 {
        if steps >= SLIDE_STEPS {
            return self.to;
        }
        let (from, to) = (i128::from(self.from), i128::from(self.to));
        let size = from + (to - from) * i128::from(steps) / i128::from(SLIDE_STEPS);
        (size as u64 / 4096 * 4096).max(4096)
    }

    fn sliding(&self, now: Nanos) -> bool {
        self.from != self.to && self.steps(now) < SLIDE_STEPS
    }

    fn slide_to(&mut self, size: u64, now: Nanos) {
        self.from = self.told;
        self.to = size;
        self.slide_start = now;
    }

    fn decide(&mut self, now: Nanos) {
        let measured = now.since(self.interval_start).as_secs_f64();
        self.ceiling *= OFF;
        if measured <= 0.0 || self.busy < self.params.adjust_busy * measured || self.model <= 0.0 {
            self.last = Some((Decision::Idle, None));
            return self.back_to_rest(now);
        }
        let evicted = if self.requested > 0.0 { self.evicted / self.requested } else { 0.0 };
        if evicted > self.params.adjust_evict && self.bitrate > 0.0 {
            let ceiling = self.eviction_time / self.evicted * self.bitrate;
            if ceiling < self.told as f64 {
                self.ceiling = ceiling.max(self.params.step_size.0 as f64);
                self.model = self.model.min(self.ceiling);
                self.correction = self.correction.min(0);
                self.search = Search::Resting(0);
                self.slide_to(self.at(self.correction).0, now);
                // At once, as the paper does.
                self.from = self.to;
                self.last = Some((Decision::Evicting { evicted }, None));
                return;
            }
        }
        let Some(score) = self.score() else {
            self.last = Some((Decision::Unscored, None));
            return self.back_to_rest(now);
        };
        let decision = self.search_on(score, now);
        self.last = Some((decision, Some(score.mean)));
    }

    fn back_to_rest(&mut self, now: Nanos) {
        self.search = Search::Resting(0);
        if self.model > 0.0 && self.to != self.at(self.correction).0 {
            self.slide_to(self.at(self.correction).0, now);
        }
    }

    fn score(&self) -> Option<Score> {
        let (n, sum, squares) = self.spans;
        if n < SPANS / 2 {
            return None;
        }
        let n = f64::from(n);
        let mean = sum / n;
        let variance = ((squares - sum * mean) / (n - 1.0)).max(0.0);
        Some(Score { mean, error2: variance / n })
    }

    fn search_on(&mut self, score: Score, now: Nanos) -> Decision {
        match self.search {
            Search::Resting(0) => self.try_next(true, score, now),
            Search::Resting(n) => {
                self.search = Search::Resting(n - 1);
                Decision::Minimum
            }
            Search::Trying { up, before } => {
                self.search = Search::Comparing { up, before, tried: score };
                self.slide_to(self.at(self.correction).0, now);
                Decision::Back
            }
            Search::Comparing { up, before, tried } => {
                if tried.below(Score::mean_of(before, score)) {
                    self.correction =
                        (self.correction + if up { 1 } else { -1 }).clamp(-STEPS_MAX, STEPS_MAX);
                    self.search = Search::Resting(0);
                    self.slide_to(self.at(self.correction).0, now);
                    return if up { Decision::Larger } else { Decision::Smaller };
                }
                if up {
                    return self.try_next(false, score, now);
                }
                self.search = Search::Resting(REST);
                Decision::Minimum
            }
        }
    }

    /// Goes to a neighbour, or past the one there is not.
    fn try_next(&mut self, up: bool, before: Score, now: Nanos) -> Decision {
        if self.full {
            self.search = Search::Resting(0);
            return Decision::Minimum;
        }
        let here = self.at(self.correction);
        for up in if up { [true, false] } else { [false, false] } {
            let next = self.correction + if up { 1 } else { -1 };
            let size = self.at(next);
            if next.abs() <= STEPS_MAX && size != here {
                self.search = Search::Trying { up, before };
                self.slide_to(size.0, now);
                return Decision::Trying { up };
            }
        }
        self.search = Search::Resting(REST);
        Decision::Minimum
    }
}

#[cfg(test)]
mod tests;
