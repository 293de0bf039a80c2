//! A camera of a recorder: which of its data have come, which are lost, and which segments were durable in
//! time. The simulator and the live program keep the same account.
//!
//! Data come at the camera's rate and wait in its buffer while the program is in `write` or `fsync`. What
//! does not fit is lost, the oldest first. When a segment's bytes have come the program syncs them. The
//! segment is late if they are durable later than the end of the next one.

use core::ops::{AddAssign, Range};

use seekless_base::Nanos;
use seekless_base::wants::PAGE;

/// Most bytes of one call of a program that writes. With half, twice the calls; with double, the same
/// writeback.
pub const CALL: u64 = 128 << 10;

/// Segments whose data a camera's buffer takes: while one is synced, those that come. With half, a sync that
/// takes as long as a segment loses data; with double, one of four.
pub const BUFFER_SEGMENTS: u64 = 2;

/// Segments whose time to be durable ended in the time that counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segments {
    /// All of them.
    pub all: u64,
    /// Those that were durable later than the end of the next one.
    pub late: u64,
    /// Those of which something was lost. They are not late besides.
    pub lost: u64,
}

impl Segments {
    /// Share of them that was late or lost; 0 of none.
    pub fn missed(&self) -> f64 {
        (self.late + self.lost) as f64 / self.all.max(1) as f64
    }
}

impl AddAssign for Segments {
    fn add_assign(&mut self, more: Segments) {
        self.all += more.all;
        self.late += more.late;
        self.lost += more.lost;
    }
}

/// Bytes of a segment of this length in seconds at this rate in bytes a second: whole pages, at least one.
pub fn segment_bytes(rate: f64, seconds: f64) -> u64 {
    let bytes = rate * seconds;
    let bytes = if bytes.is_finite() { bytes.max(1.0) as u64 } else { 1 };
    bytes.div_ceil(PAGE).max(1) * PAGE
}

/// The account of one camera.
#[derive(Clone, Debug)]
pub struct Camera {
    rate: f64,
    segment: u64,
    start: Nanos,
    counts: Range<Nanos>,
    /// Bytes since the start that were written, or lost.
    position: u64,
    /// Something of the segment at `position` was lost.
    lost: bool,
    /// Segments that have ended.
    ended: u64,
    counted: Segments,
}

impl Camera {
    /// A camera of `rate` bytes a second, above 0, with segments of so many bytes, whole pages. Its first
    /// data come at `start`. Segments count whose time ends in `counts`.
    pub fn new(rate: f64, segment: u64, start: Nanos, counts: Range<Nanos>) -> Camera {
        let segment = segment.div_ceil(PAGE).max(1) * PAGE;
        Camera {
            rate: rate.max(1.0),
            segment,
            start,
            counts,
            position: 0,
            lost: false,
            ended: 0,
            counted: Segments::default(),
        }
    }

    /// Cameras that share a rate, of which segments end one after the other, evenly.
    pub fn several(cameras: u32, rate: f64, segment: Nanos, counts: &Range<Nanos>) -> Vec<Camera> {
        let each = rate / f64::from(cameras.max(1));
        let bytes = segment_bytes(each, segment.as_secs_f64());
        let apart = Nanos(segment.0 / u64::from(cameras.max(1)));
        (0..u64::from(cameras))
            .map(|n| Camera::new(each, bytes, Nanos(apart.0 * n), counts.clone()))
            .collect()
    }

    fn when(&self, bytes: u64) -> Nanos {
        self.start + Nanos::from_secs_f64(bytes as f64 / self.rate)
    }

    /// Bytes of a segment.
    pub fn segment(&self) -> u64 {
        self.segment
    }

    /// Bytes of the stream before the next call: written, or lost.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Bytes of the next call, which ends with its segment at the latest.
    pub fn call(&self) -> u64 {
        CALL.min(self.segment - self.position % self.segment)
    }

    /// When these bytes have come.
    pub fn due(&self) -> Nanos {
        self.when(self.position + self.call())
    }

    /// Loses what has come by `now` and does not fit, up to the end of the segment. `true`: it has ended so.
    /// The program then syncs what it has of it, calls [`Camera::end_segment`] and asks again.
    pub fn lose(&mut self, now: Nanos) -> bool {
        let come = (now.since(self.start).as_secs_f64() * self.rate) as u64;
        let room = self.position + BUFFER_SEGMENTS * self.segment;
        let excess = come.saturating_sub(room) / PAGE * PAGE;
        if excess == 0 {
            return false;
        }
        self.lost = true;
        self.wrote(excess.min(self.segment - self.position % self.segment))
    }

    /// So many bytes were written. `true`: the segment has ended.
    pub fn wrote(&mut self, bytes: u64) -> bool {
        self.position += bytes;
        self.position.is_multiple_of(self.segment)
    }

    fn deadline(&self, segment: u64) -> Nanos {
        self.when((segment + 2) * self.segment)
    }

    /// The segment that has ended is durable as far as it was written.
    pub fn end_segment(&mut self, now: Nanos) {
        let deadline = self.deadline(self.ended);
        let lost = core::mem::take(&mut self.lost);
        self.ended += 1;
        if self.counts.contains(&deadline) {
            self.counted.all += 1;
            self.counted.lost += u64::from(lost);
            self.counted.late += u64::from(!lost && now > deadline);
        }
    }

    /// What was counted by `now`. Segments that should be durable and are not are late.
    pub fn segments(&self, now: Nanos) -> Segments {
        let due = (self.ended..).map(|segment| self.deadline(segment)).take_while(|&deadline| deadline < now);
        let due = due.filter(|deadline| self.counts.contains(deadline)).count() as u64;
        Segments { all: self.counted.all + due, late: self.counted.late + due, ..self.counted }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page a second, segments of four, all of which count.
    fn camera() -> Camera {
        Camera::new(PAGE as f64, 4 * PAGE, Nanos::ZERO, Nanos::ZERO..Nanos::from_secs(1_000))
    }

    #[test]
    fn a_segment_is_late_if_the_next_one_has_ended_before_it_is_durable() {
        for (durable_s, late) in [(4, 0), (8, 0), (9, 1)] {
            let mut camera = camera();
            assert_eq!((camera.call(), camera.due()), (4 * PAGE, Nanos::from_secs(4)));
            assert!(camera.wrote(4 * PAGE));
            // While it is not durable it is late as soon as its time is over.
            let so_far = camera.segments(Nanos::from_secs(durable_s));
            assert_eq!(so_far.late, late);
            camera.end_segment(Nanos::from_secs(durable_s));
            assert_eq!(camera.segments(Nanos::from_secs(durable_s)), Segments { all: 1, late, lost: 0 });
        }
    }

    #[test]
    fn what_does_not_fit_into_the_buffer_is_lost_and_counted_once_a_segment() {
        let mut camera = camera();
        assert!(!camera.lose(Nanos::from_secs(8)), "two segments fit");
        assert!(!camera.lose(Nanos::from_secs(10)), "two pages of the first are lost");
        assert_eq!(camera.position(), 2 * PAGE);
        assert!(camera.wrote(2 * PAGE));
        camera.end_segment(Nanos::from_secs(10));
        // After a stall of eleven segments: nine have passed.
        let now = Nanos::from_secs(44);
        while camera.lose(now) {
            camera.end_segment(now);
        }
        assert_eq!(camera.position(), 36 * PAGE);
        assert_eq!(camera.segments(now), Segments { all: 9, late: 0, lost: 9 });
        let counted = camera.segments(Nanos(now.0 + 1));
        assert_eq!(counted, Segments { all: 10, late: 1, lost: 9 }, "of the one at 36 nothing is durable");
        assert!((counted.missed() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn segments_count_whose_time_ends_in_the_time_that_counts() {
        let counts = Nanos::from_secs(8)..Nanos::from_secs(16);
        let mut camera = Camera::new(PAGE as f64, 4 * PAGE, Nanos::ZERO, counts);
        for segment in 1..=6 {
            camera.wrote(4 * PAGE);
            camera.end_segment(Nanos::from_secs(4 * segment));
        }
        assert_eq!(camera.segments(Nanos::from_secs(24)), Segments { all: 2, late: 0, lost: 0 });
    }

    #[test]
    fn segments_of_several_cameras_end_evenly() {
        let counts = Nanos::ZERO..Nanos::from_secs(1);
        let all = Camera::several(4, 4.0 * PAGE as f64, Nanos::from_secs(4), &counts);
        let ends: Vec<u64> = all.iter().map(|camera| camera.due().0 / 1_000_000_000).collect();
        assert_eq!(ends, [4, 5, 6, 7]);
    }
}
