//! Viewing sessions, as in both video papers (\[L\] section 4, \[A\] section 6.2).
//!
//! A session is one viewer: a video chosen by popularity, watched from its beginning for a drawn fraction of
//! its length, asked for in segments of 10 s. The first three segments are asked for back to back (the player
//! fills its buffer), every later one on a fixed schedule, 10 s apart from the session's start. The schedule
//! is absolute: a slow answer does not push back what follows, and a request's latency counts from the moment
//! it was due. A segment that is not complete 10 s after it was due is a rebuffering viewer: the session has
//! failed and ends.
//!
//! Sessions arrive by a Poisson process. The rate is given as requests a second, the axis of the papers'
//! figures; the rate of arrivals is that divided by the mean number of requests in a session of this
//! catalogue.
//!
//! **Warm start.** A session lasts 160 s on average, up to 1,000 s, so a run that starts empty takes many
//! minutes to reach the rate it is meant to offer. With `warm_start` the arrivals begin long before time zero
//! and whatever would have been asked for before zero is left out: the run starts with the viewers of a
//! long-running server, most of them in the middle of a film, and offers its full rate from the first second
//! on.

use seekless_base::{Bytes, Nanos};
use serde::{Deserialize, Serialize};

use crate::workload::catalogue::Catalogue;
use crate::workload::closed::RangeRequest;
use crate::workload::distribution::VIEWED_FRACTION;
use crate::workload::draw::Draw;

/// Segments asked for back to back at the start of a session.
pub const UNPACED_SEGMENTS: u32 = 3;
/// Length of a segment, and time between paced requests.
pub const SEGMENT: Nanos = Nanos::from_secs(10);
/// A segment that is not complete this long after it was due has failed.
pub const TIMEOUT: Nanos = Nanos::from_secs(10);

/// A kind of client: its link to the server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientClass {
    /// Name in reports.
    pub name: String,
    /// Rate of the client's link, bits a second. None: as fast as the bytes come.
    pub link_bits_per_s: Option<u64>,
    /// Delay each way.
    pub delay: Nanos,
    /// Share of sessions relative to the other classes.
    pub share: f64,
}

/// The papers' mix: half the sessions at 3.5 Mb/s (DSL), half at 10 Mb/s (cable), 50 ms each way.
pub fn paper_classes() -> Vec<ClientClass> {
    [("3.5Mb/s", 3_500_000), ("10Mb/s", 10_000_000)]
        .map(|(name, bits)| ClientClass {
            name: name.into(),
            link_bits_per_s: Some(bits),
            delay: Nanos::from_millis(50),
            share: 0.5,
        })
        .to_vec()
}

/// Index of a class, each as likely as its share says.
pub fn draw_class(classes: &[ClientClass], draw: &mut Draw) -> usize {
    let total: f64 = classes.iter().map(|c| c.share.max(0.0)).sum();
    let mut at = draw.unit() * total;
    let found = classes.iter().position(|class| {
        at -= class.share.max(0.0);
        at < 0.0
    });
    found.unwrap_or(classes.len().saturating_sub(1))
}

/// How the offered rate goes over time, in requests a second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "shape", deny_unknown_fields)]
pub enum Rate {
    /// The same all the time.
    Constant {
        /// Requests a second.
        per_s: f64,
    },
    /// From one rate to another by the same factor each second, then constant.
    ///
    /// A server driven over its limit answers late only once a backlog has built up, and meanwhile the rate
    /// goes on rising. On a geometric ramp that overshoot is the same *factor* whatever the limit, so servers
    /// compare fairly; on a straight one the slower server's figure is flattered more.
    Geometric {
        /// Requests a second at time zero, above 0.
        from_per_s: f64,
        /// Requests a second from `over` on, above 0.
        to_per_s: f64,
        /// Length of the slope.
        over: Nanos,
    },
    /// From a share of the rate to all of it in equal steps, then constant. \[A\] section 4.3: "starting at
    /// 80% of the maximum load and increasing in 5% steps over 2700 seconds".
    Steps {
        /// Requests a second from `over` on, above 0.
        per_s: f64,
        /// Share of it at time zero, above 0, at most 1.
        from: f64,
        /// Share of it that each step adds, above 0.
        step: f64,
        /// Time of all steps; each is as long as the others.
        over: Nanos,
    },
}

/// Steps from a share of a rate to all of it.
fn steps(from: f64, step: f64) -> u32 {
    (libm::ceil((1.0 - from) / step - 1e-9).max(0.0) as u32).min(1000)
}

impl Rate {
    /// Requests a second at time `at`.
    pub fn at(&self, at: Nanos) -> f64 {
        match *self {
            Rate::Constant { per_s } => per_s,
            Rate::Geometric { from_per_s, to_per_s, over } => {
                let along = (at.as_secs_f64() / over.as_secs_f64()).min(1.0);
                from_per_s * libm::pow(to_per_s / from_per_s, along)
            }
            Rate::Steps { per_s, from, step, over } => {
                let steps = f64::from(steps(from, step));
                let taken = libm::floor(at.as_secs_f64() / over.as_secs_f64() * steps);
                if taken < steps { per_s * (from + step * taken) } else { per_s }
            }
        }
    }

    /// The time, in seconds, until which `amount` requests are offered: the inverse of the rate's integral.
    fn when(&self, amount: f64) -> f64 {
        match *self {
            Rate::Constant { per_s } => amount / per_s,
            Rate::Geometric { from_per_s, to_per_s, over } => {
                let over = over.as_secs_f64();
                let growth = libm::log(to_per_s / from_per_s) / over;
                if growth == 0.0 {
                    return amount / from_per_s;
                }
                let on_slope = (to_per_s - from_per_s) / growth;
                if amount >= on_slope {
                    return over + (amount - on_slope) / to_per_s;
                }
                // from (e^(growth t) - 1) / growth = amount
                libm::log1p(amount * growth / from_per_s) / growth
            }
            Rate::Steps { per_s, from, step, over } => {
                let steps = steps(from, step);
                let each = over.as_secs_f64() / f64::from(steps.max(1));
                let mut left = amount;
                for taken in 0..steps {
                    let rate = per_s * (from + step * f64::from(taken));
                    if left < rate * each {
                        return each * f64::from(taken) + left / rate;
                    }
                    left -= rate * each;
                }
                each * f64::from(steps) + left / per_s
            }
        }
    }
}

/// What the sessions of a run are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionSpec {
    /// Offered rate, requests a second, above 0.
    pub rate: Rate,
    /// Sessions in all; those running at a warm start included. The papers: 14,400 and 12,000 (SD), 4,000
    /// (HD).
    pub sessions: u32,
    /// Start with the viewers of a long-running server instead of none.
    pub warm_start: bool,
    /// Kinds of clients, at least one with a share above 0.
    pub classes: Vec<ClientClass>,
    /// Seed of arrivals, choices, fractions and classes (each has draws of its own).
    pub seed: u64,
}

/// One viewer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    /// Number in the order of arrival, from 0.
    pub id: u32,
    /// Index of the video in the catalogue.
    pub video: u32,
    /// Index in [`SessionSpec::classes`].
    pub class: u16,
    /// First segment to ask for: 0, or where a viewer is at a warm start.
    pub first: u32,
    /// One past the last segment to ask for.
    pub end: u32,
    /// When `first` is due.
    pub start: Nanos,
}

/// When a segment is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// At this time after the start of the run.
    At(Nanos),
    /// As soon as the segment before is complete.
    AfterPrevious,
}

impl Session {
    /// When segment `i` (`first..end`) is due.
    pub fn due(&self, i: u32) -> Due {
        if i == self.first {
            return Due::At(self.start);
        }
        if i < UNPACED_SEGMENTS {
            return Due::AfterPrevious;
        }
        Due::At(self.start + Nanos(SEGMENT.0 * u64::from(pace(i) - pace(self.first))))
    }

    /// The bytes of segment `i`; the last of a video may be shorter.
    pub fn range(&self, i: u32, catalogue: &Catalogue) -> RangeRequest {
        let video = catalogue.video(self.video);
        let segment = segment_bytes(video.bits_per_s);
        let offset = segment.0 * u64::from(i);
        RangeRequest { video: self.video, offset, len: segment.0.min(video.size.0.saturating_sub(offset)) }
    }
}

/// Ticks of 10 s from the session's start to when segment `i` is due.
fn pace(i: u32) -> u32 {
    (i + 1).saturating_sub(UNPACED_SEGMENTS)
}

/// Bytes in one segment of a video of this bitrate: 523,750 (SD), 2,618,750 (HD).
pub fn segment_bytes(bits_per_s: u64) -> Bytes {
    Bytes((bits_per_s * SEGMENT.0 / 8 / 1_000_000_000).max(1))
}

/// Mean number of segments a session of this catalogue asks for.
pub fn mean_segments(catalogue: &Catalogue) -> f64 {
    catalogue
        .shares()
        .map(|(index, share)| {
            let video = catalogue.video(index);
            let segments = video.size.0 as f64 / segment_bytes(video.bits_per_s).0 as f64;
            // E[ceil(x)] is the sum over k of P(x > k), with at least one segment.
            let mut mean = 1.0;
            let mut k = 1.0;
            while k < segments {
                mean += 1.0 - share_below(k / segments);
                k += 1.0;
            }
            share * mean
        })
        .sum()
}

/// P(viewed fraction <= f) for f < 1.
fn share_below(f: f64) -> f64 {
    VIEWED_FRACTION.share_at_most(f)
}

/// The sessions of a run in the order of their `start`.
#[derive(Clone)]
pub struct Sessions<'a> {
    catalogue: &'a Catalogue,
    spec: &'a SessionSpec,
    /// Requests in a mean session.
    mean_segments: f64,
    /// Requests offered since time zero (sum of the exponentials, times the mean).
    offered: f64,
    /// Arrival time of the next session to look at while it is before zero, seconds.
    before_zero_s: f64,
    next_id: u32,
    arrivals: Draw,
    videos: Draw,
    fractions: Draw,
    classes: Draw,
    /// Viewers found at time zero, in the order in which they are due.
    warm: std::iter::Peekable<std::vec::IntoIter<Session>>,
    /// The next new arrival, drawn and not yet handed out.
    arrival: Option<Session>,
}

impl<'a> Sessions<'a> {
    /// The sessions of `spec` over `catalogue`.
    pub fn new(catalogue: &'a Catalogue, spec: &'a SessionSpec) -> Sessions<'a> {
        let longest = catalogue
            .videos()
            .iter()
            .map(|v| v.size.0.div_ceil(segment_bytes(v.bits_per_s).0))
            .max()
            .unwrap_or(0);
        let mut sessions = Sessions {
            catalogue,
            spec,
            mean_segments: mean_segments(catalogue),
            offered: 0.0,
            before_zero_s: -(longest as f64) * SEGMENT.as_secs_f64(),
            next_id: 0,
            arrivals: Draw::new(spec.seed, "session arrivals"),
            videos: Draw::new(spec.seed, "session videos"),
            fractions: Draw::new(spec.seed, "session fractions"),
            classes: Draw::new(spec.seed, "session classes"),
            warm: Vec::new().into_iter().peekable(),
            arrival: None,
        };
        if spec.warm_start {
            sessions.warm = sessions.viewers_at_zero().into_iter().peekable();
        }
        sessions
    }

    /// Requests in a mean session: the offered request rate divided by it is the arrival rate.
    pub fn mean_segments(&self) -> f64 {
        self.mean_segments
    }

    /// Plays the arrivals before time zero and keeps the sessions that have something left to ask for.
    fn viewers_at_zero(&mut self) -> Vec<Session> {
        let mut viewers = Vec::new();
        let per_s = self.spec.rate.at(Nanos::ZERO) / self.mean_segments;
        if per_s <= 0.0 {
            return viewers;
        }
        loop {
            self.before_zero_s += self.arrivals.exponential() / per_s;
            let arrived_ago = -self.before_zero_s;
            if arrived_ago <= 0.0 {
                break;
            }
            let mut session = self.draw_session(Nanos::ZERO);
            // The first segment due at or after zero; those asked for back to back were due on arrival.
            let tick = libm::ceil(arrived_ago / SEGMENT.as_secs_f64()).max(1.0);
            let first = tick as u64 + u64::from(UNPACED_SEGMENTS) - 1;
            if first < u64::from(session.end) {
                session.first = first as u32;
                session.start = Nanos::from_secs_f64(tick * SEGMENT.as_secs_f64() - arrived_ago);
                viewers.push(session);
            }
        }
        viewers.sort_by_key(|s| s.start);
        viewers
    }

    fn draw_session(&mut self, start: Nanos) -> Session {
        let video = self.catalogue.pick_popular(&mut self.videos);
        let fraction = VIEWED_FRACTION.quantile(self.fractions.unit());
        let v = self.catalogue.video(video);
        let segment = segment_bytes(v.bits_per_s).0 as f64;
        let end = libm::ceil(v.size.0 as f64 * fraction / segment).max(1.0) as u32;
        Session {
            id: 0,
            video,
            class: draw_class(&self.spec.classes, &mut self.classes) as u16,
            first: 0,
            end,
            start,
        }
    }
}

impl Iterator for Sessions<'_> {
    type Item = Session;

    fn next(&mut self) -> Option<Session> {
        if self.next_id >= self.spec.sessions {
            return None;
        }
        if self.arrival.is_none() {
            self.offered += self.arrivals.exponential() * self.mean_segments;
            let at = self.spec.rate.when(self.offered);
            self.arrival = at.is_finite().then(|| self.draw_session(Nanos::from_secs_f64(at)));
        }
        let arrival_due = self.arrival.map_or(Nanos::MAX, |s| s.start);
        let mut session =
            self.warm.next_if(|viewer| viewer.start <= arrival_due).or_else(|| self.arrival.take())?;
        session.id = self.next_id;
        self.next_id += 1;
        Some(session)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::catalogue::CatalogueSpec;

    fn catalogue(hd_share: f64) -> Catalogue {
        Catalogue::new(&CatalogueSpec { hd_share, ..CatalogueSpec::default() }).unwrap()
    }

    fn spec(rate: Rate, sessions: u32, warm_start: bool) -> SessionSpec {
        SessionSpec { rate, sessions, warm_start, classes: paper_classes(), seed: 1 }
    }

    const CONSTANT: Rate = Rate::Constant { per_s: 60.0 };

    /// \[A\] section 4.3: four steps from 80 %, each of 675 s.
    #[test]
    fn a_rate_in_steps_is_the_papers() {
        let over = Nanos::from_secs(2700);
        let rate = Rate::Steps { per_s: 100.0, from: 0.8, step: 0.05, over };
        for (at_s, expected) in
            [(0, 80.0), (674, 80.0), (676, 85.0), (1400, 90.0), (2699, 95.0), (2700, 100.0)]
        {
            let got = rate.at(Nanos::from_secs(at_s));
            assert!((got - expected).abs() < 1e-9, "{at_s} s: {got}");
        }
        // The inverse of the integral: 675 s of each, then full.
        for (amount, expected) in [(0.0, 0.0), (27_000.0, 337.5), (54_000.0, 675.0), (62_500.0, 775.0)] {
            assert!((rate.when(amount) - expected).abs() < 1e-9, "{amount}: {}", rate.when(amount));
        }
        let all = 675.0 * (80.0 + 85.0 + 90.0 + 95.0);
        assert!((rate.when(all + 1000.0) - 2710.0).abs() < 1e-9);
        let level = Rate::Steps { per_s: 100.0, from: 1.0, step: 0.05, over };
        assert_eq!((level.at(Nanos::ZERO), level.when(50.0)), (100.0, 0.5));
    }

    #[test]
    fn first_sessions_never_change() {
        let c = catalogue(0.0);
        let spec = spec(CONSTANT, 3, false);
        let got: Vec<(u32, u16, u32, u64)> =
            Sessions::new(&c, &spec).map(|s| (s.video, s.class, s.end, s.start.0)).collect();
        assert_eq!(got, GOLDEN);
    }

    const GOLDEN: [(u32, u16, u32, u64); 3] =
        [(1323, 1, 5, 477_125_527), (6164, 0, 16, 662_958_240), (6457, 1, 2, 858_101_626)];

    #[test]
    fn the_schedule_is_three_at_once_then_every_ten_seconds() {
        let s = Session { id: 0, video: 0, class: 0, first: 0, end: 7, start: Nanos::from_millis(1500) };
        assert_eq!(s.due(0), Due::At(Nanos::from_millis(1500)));
        assert_eq!(s.due(1), Due::AfterPrevious);
        assert_eq!(s.due(2), Due::AfterPrevious);
        assert_eq!(s.due(3), Due::At(Nanos::from_millis(11_500)));
        assert_eq!(s.due(6), Due::At(Nanos::from_millis(41_500)));
        let warm = Session { first: 5, ..s };
        assert_eq!(warm.due(5), Due::At(Nanos::from_millis(1500)));
        assert_eq!(warm.due(6), Due::At(Nanos::from_millis(11_500)));
    }

    #[test]
    fn segments_are_consecutive_and_end_with_the_file() {
        let c = catalogue(0.5);
        let spec = spec(CONSTANT, 2000, true);
        for s in Sessions::new(&c, &spec) {
            assert!(s.first < s.end);
            let size = c.video(s.video).size.0;
            let mut next = s.range(s.first, &c).offset;
            for i in s.first..s.end {
                let r = s.range(i, &c);
                assert_eq!(r.offset, next);
                assert!(r.len > 0 && r.offset + r.len <= size, "{s:?} {i}");
                next += r.len;
            }
        }
    }

    /// \[L\] section 4: mean session 160 s, 14,400 sessions ask for 118 GB (GiB fits best), about 650 at
    /// once.
    #[test]
    fn session_totals_are_the_papers() {
        let c = catalogue(0.0);
        let spec = spec(CONSTANT, 14_400, false);
        let sessions: Vec<Session> = Sessions::new(&c, &spec).collect();
        let n = sessions.len() as f64;
        let segments: f64 = sessions.iter().map(|s| f64::from(s.end)).sum();
        assert!((segments / n * 10.0 - 160.0).abs() < 3.0, "{}", segments / n * 10.0);
        assert!(
            (mean_segments(&c) / (segments / n) - 1.0).abs() < 0.02,
            "{} {}",
            mean_segments(&c),
            segments / n
        );
        let bytes: u64 = sessions.iter().flat_map(|s| (0..s.end).map(|i| s.range(i, &c).len)).sum();
        assert!((bytes as f64 / 118e9 - 1.0).abs() < 0.03, "{bytes}");
        // Offered rate: requests over the time of all arrivals.
        let rate = segments / sessions.last().unwrap().start.as_secs_f64();
        assert!((rate / 60.0 - 1.0).abs() < 0.03, "{rate}");
        let half = sessions.iter().filter(|s| s.class == 0).count() as f64 / n;
        assert!((half - 0.5).abs() < 0.02, "{half}");
    }

    /// Requests due in each 10 s of a warm start: the full rate from the first on. A cold start offers far
    /// less.
    #[test]
    fn a_warm_start_offers_its_rate_at_once() {
        let c = catalogue(0.0);
        let per_10s = |warm: bool| {
            let spec = spec(CONSTANT, 4000, warm);
            let mut counts = [0_u32; 12];
            for s in Sessions::new(&c, &spec) {
                for i in s.first..s.end {
                    // Back-to-back segments count as due at the start.
                    let at = match s.due(i) {
                        Due::At(t) => t,
                        Due::AfterPrevious => s.start,
                    };
                    if let Some(n) = counts.get_mut((at.0 / SEGMENT.0) as usize) {
                        *n += 1;
                    }
                }
            }
            counts
        };
        let warm = spec(CONSTANT, 4000, true);
        assert!(Sessions::new(&c, &warm).is_sorted_by_key(|s| s.start));
        for (i, n) in per_10s(true).into_iter().enumerate() {
            assert!((500..700).contains(&n), "window {i}: {n} of 600");
        }
        assert!(per_10s(false)[1] < 350);
    }

    #[test]
    fn a_geometric_ramp_rises_by_the_same_factor() {
        let over = Nanos::from_secs(100);
        let ramp = Rate::Geometric { from_per_s: 10.0, to_per_s: 160.0, over };
        assert!((ramp.at(Nanos::from_secs(25)) - 20.0).abs() < 1e-9);
        assert!((ramp.at(Nanos::from_secs(50)) - 40.0).abs() < 1e-9);
        assert_eq!(ramp.at(Nanos::from_secs(1000)), 160.0);
        // The inverse of the integral, against a sum of small steps.
        let mut offered = 0.0;
        for ms in 0..150_000_u64 {
            offered += ramp.at(Nanos::from_micros(ms * 1000 + 500)) / 1e3;
            if ms % 10_000 == 0 {
                let t = (ms + 1) as f64 / 1e3;
                assert!((ramp.when(offered) - t).abs() < 1e-3, "{t}: {}", ramp.when(offered));
            }
        }
        let level = Rate::Geometric { from_per_s: 10.0, to_per_s: 10.0, over };
        assert!((level.when(123.0) - 12.3).abs() < 1e-9);
    }

    #[test]
    fn no_rate_means_no_sessions() {
        let c = catalogue(0.0);
        let spec = spec(Rate::Constant { per_s: 0.0 }, 10, true);
        assert_eq!(Sessions::new(&c, &spec).count(), 0);
    }
}
