//! Counting: what one worker thread saw, and how the threads are added up.
//!
//! Latency counts from when a request was *due*, so a server that stalls cannot hide it by making the clients
//! late. A request given up after its timeout enters the histogram at that time: leaving it out would flatter
//! the tail. Everything is counted in the workload's time.

use std::sync::atomic::{AtomicU64, Ordering};

use hdrhistogram::Histogram;
use seekless_base::Nanos;

use crate::failure::{Failure, FailureExample, KINDS};

/// Failures kept with their details; the rest are only counted.
pub const EXAMPLES: usize = 20;
/// Longest latency a histogram tells apart, microseconds (an hour).
const LATENCY_MAX_US: u64 = 3_600_000_000;
/// Longest series, seconds (a day); what comes later is counted in the totals alone.
const SERIES_MAX_S: usize = 86_400;
/// Most windows (four hours): each has a histogram of 24 KB.
const WINDOWS_MAX: usize = 1440;
/// Length of a window of [`Window`]: the segment length, so every paced session is due once in each.
pub const WINDOW: Nanos = Nanos::from_secs(10);

/// Requests, bytes and failures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Requests answered completely and correctly.
    pub requests: u64,
    /// Body bytes received, those of requests that later failed included.
    pub bytes: u64,
    /// Requests that failed.
    pub failures: u64,
}

impl Tally {
    fn add(&mut self, other: Tally) {
        self.requests += other.requests;
        self.bytes += other.bytes;
        self.failures += other.failures;
    }
}

/// One second of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Second {
    /// Bytes that came in it, requests that ended in it.
    pub tally: Tally,
    /// Longest latency of a request that ended in it (one given up included), microseconds.
    pub latency_max_us: u64,
}

/// Latencies of one class of clients, measured requests only.
#[derive(Clone)]
pub struct ClassRecord {
    /// Name of the class.
    pub name: String,
    /// What was measured.
    pub tally: Tally,
    /// From due to complete, microseconds.
    pub latency_us: Histogram<u64>,
    /// From due to the head of the answer, microseconds.
    pub first_byte_us: Histogram<u64>,
    /// From due to complete, of requests for the head of a file, microseconds.
    pub startup_us: Histogram<u64>,
}

/// What happened to the requests that were due in one stretch of [`WINDOW`].
#[derive(Clone)]
pub struct Window {
    /// Requests due.
    pub offered: u64,
    /// Of these, answered.
    pub answered: u64,
    /// Of these, failed.
    pub failed: u64,
    /// Requests that were complete during the window, whenever they were due.
    pub completed: u64,
    /// Body bytes received during the window.
    pub bytes: u64,
    /// Latencies of the requests due in it, microseconds.
    pub latency_us: Histogram<u64>,
}

impl Window {
    fn new() -> Window {
        Window { offered: 0, answered: 0, failed: 0, completed: 0, bytes: 0, latency_us: histogram(2) }
    }
}

/// Sessions by what became of them. Those still running at the end are the rest of `started`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionTally {
    /// Begun.
    pub started: u64,
    /// All segments received.
    pub completed: u64,
    /// Ended by a failure.
    pub failed: u64,
    /// Of the failed, those whose failing request was due after the warm-up.
    pub failed_measured: u64,
    /// Begun or still running after the warm-up.
    pub measured: u64,
}

impl SessionTally {
    /// Failed sessions as a share of all, after the warm-up; 0 if there was none.
    pub fn failed_share(&self) -> f64 {
        if self.measured == 0 { 0.0 } else { self.failed_measured as f64 / self.measured as f64 }
    }
}

/// A complete and correct answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseTimes {
    /// When the client had its head.
    pub first_byte: Nanos,
    /// When the client had its last byte.
    pub done: Nanos,
}

/// Millions of bytes a second; 0 for no time at all.
pub(crate) fn mb_per_s(bytes: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { bytes as f64 / 1e6 / seconds } else { 0.0 }
}

/// What the progress bar and the ramp watch while threads count: written by all, exact enough for that.
#[derive(Default)]
pub struct Live {
    /// Body bytes received.
    pub bytes: AtomicU64,
    /// Requests answered.
    pub requests: AtomicU64,
    /// Requests failed.
    pub failures: AtomicU64,
    /// Requests that became due.
    pub offered: AtomicU64,
    /// Clients at work.
    pub clients: AtomicU64,
}

/// The counts of one thread, or of all once merged.
#[derive(Clone)]
pub struct Recorder {
    warmup: Nanos,
    /// A request is measured if it ended after the warm-up, not only if it was due after it.
    by_end: bool,
    /// Everything from the start.
    pub total: Tally,
    /// What fell after the warm-up: bytes by when they came, requests and failures by when they were due.
    pub measured: Tally,
    /// By class, after the warm-up.
    pub classes: Vec<ClassRecord>,
    /// By second from the start: bytes by when they came, requests by when they were complete.
    pub seconds: Vec<Second>,
    /// By [`WINDOW`] from the start.
    pub windows: Vec<Window>,
    /// Failures by kind, from the start.
    pub failures: [u64; KINDS.len()],
    /// The first failures with details.
    pub examples: Vec<FailureExample>,
    /// First answer that was not the file.
    pub corruption: Option<FailureExample>,
    /// Connections made again because the server had closed an idle one, or closed on a request without
    /// answering.
    pub reconnects: u64,
    /// How late clients woke for a request that was due (after the warm-up), microseconds: this machine's
    /// fault, not the server's.
    pub lag_us: Histogram<u64>,
    /// Sessions (none in a closed loop).
    pub sessions: SessionTally,
}

fn histogram(digits: u8) -> Histogram<u64> {
    Histogram::new_with_max(LATENCY_MAX_US, digits).expect("the bounds are constants that hold")
}

fn micros(t: Nanos) -> u64 {
    t.0 / 1000
}

impl Recorder {
    /// Counts for clients of these classes; what is due before `warmup` is not measured.
    pub fn new(classes: &[String], warmup: Nanos) -> Recorder {
        let class = |name: &String| ClassRecord {
            name: name.clone(),
            tally: Tally::default(),
            latency_us: histogram(3),
            first_byte_us: histogram(3),
            startup_us: histogram(3),
        };
        Recorder {
            warmup,
            by_end: false,
            total: Tally::default(),
            measured: Tally::default(),
            classes: classes.iter().map(class).collect(),
            seconds: Vec::new(),
            windows: Vec::new(),
            failures: [0; KINDS.len()],
            examples: Vec::new(),
            corruption: None,
            reconnects: 0,
            lag_us: histogram(2),
            sessions: SessionTally::default(),
        }
    }

    /// From now on requests that were under way when the warm-up ended are measured as well: where one takes
    /// as long as the measuring, hardly any is due after the warm-up and over before the end.
    pub fn measure_by_end(&mut self) {
        self.by_end = true;
    }

    /// Whether something at this time is measured.
    pub fn measures(&self, at: Nanos) -> bool {
        at >= self.warmup
    }

    fn second(&mut self, at: Nanos) -> Option<&mut Second> {
        let i = (at.0 / 1_000_000_000) as usize;
        if i >= SERIES_MAX_S {
            return None;
        }
        if self.seconds.len() <= i {
            self.seconds.resize(i + 1, Second::default());
        }
        self.seconds.get_mut(i)
    }

    fn window(&mut self, at: Nanos) -> Option<&mut Window> {
        let i = (at.0 / WINDOW.0) as usize;
        if i >= WINDOWS_MAX {
            return None;
        }
        while self.windows.len() <= i {
            self.windows.push(Window::new());
        }
        self.windows.get_mut(i)
    }

    /// A client woke at `now` for a request it was to send at `planned`.
    pub fn woke(&mut self, planned: Nanos, now: Nanos) {
        if self.measures(planned) {
            self.lag_us.saturating_record(micros(now.since(planned)));
        }
    }

    /// A request became due.
    pub fn offered(&mut self, due: Nanos) {
        if let Some(w) = self.window(due) {
            w.offered += 1;
        }
    }

    /// `n` body bytes came.
    pub fn bytes(&mut self, at: Nanos, class: usize, n: u64) {
        self.total.bytes += n;
        if self.measures(at) {
            self.measured.bytes += n;
            self.classes[class].tally.bytes += n;
        }
        if let Some(s) = self.second(at) {
            s.tally.bytes += n;
        }
        if let Some(w) = self.window(at) {
            w.bytes += n;
        }
    }

    /// A request from `offset` on that was due at `due` was answered.
    pub fn success(&mut self, class: usize, due: Nanos, offset: u64, answer: ResponseTimes) {
        let ResponseTimes { first_byte, done } = answer;
        self.total.requests += 1;
        let latency = micros(done.since(due));
        if self.measures(if self.by_end { done } else { due }) {
            self.measured.requests += 1;
            let class = &mut self.classes[class];
            class.tally.requests += 1;
            class.latency_us.saturating_record(latency);
            class.first_byte_us.saturating_record(micros(first_byte.since(due)));
            if offset == 0 {
                class.startup_us.saturating_record(latency);
            }
        }
        if let Some(s) = self.second(done) {
            s.tally.requests += 1;
            s.latency_max_us = s.latency_max_us.max(latency);
        }
        if let Some(w) = self.window(due) {
            w.answered += 1;
            w.latency_us.saturating_record(latency);
        }
        if let Some(w) = self.window(done) {
            w.completed += 1;
        }
    }

    /// A request that was due at `due` failed at `at`.
    pub fn failure(
        &mut self,
        class: usize,
        due: Nanos,
        at: Nanos,
        failure: &Failure,
        path: &str,
        offset: u64,
    ) {
        self.total.failures += 1;
        self.failures[failure.kind()] += 1;
        if self.measures(due) {
            self.measured.failures += 1;
            self.classes[class].tally.failures += 1;
            if *failure == Failure::Timeout {
                let class = &mut self.classes[class];
                class.latency_us.saturating_record(micros(at.since(due)));
                if offset == 0 {
                    class.startup_us.saturating_record(micros(at.since(due)));
                }
            }
        }
        if let Some(s) = self.second(at) {
            s.tally.failures += 1;
            s.latency_max_us = s.latency_max_us.max(micros(at.since(due)));
        }
        if let Some(w) = self.window(due) {
            w.failed += 1;
            if *failure == Failure::Timeout {
                w.latency_us.saturating_record(micros(at.since(due)));
            }
        }
        if self.examples.len() < EXAMPLES {
            self.examples.push(FailureExample::new(failure, due, path, offset));
        }
        if self.corruption.is_none() && failure.is_corruption() {
            self.corruption = Some(FailureExample::new(failure, due, path, offset));
        }
    }

    /// One histogram of all classes together, microseconds.
    pub fn all_classes(&self, of: impl Fn(&ClassRecord) -> &Histogram<u64>) -> Histogram<u64> {
        let mut all = histogram(3);
        for class in &self.classes {
            // Same bounds, so adding cannot fail.
            let _ = all.add(of(class));
        }
        all
    }

    /// Adds the counts of another thread of the same run.
    pub fn merge(&mut self, other: Recorder) {
        self.total.add(other.total);
        self.measured.add(other.measured);
        for (ours, theirs) in self.classes.iter_mut().zip(other.classes) {
            ours.tally.add(theirs.tally);
            let _ = ours.latency_us.add(&theirs.latency_us);
            let _ = ours.first_byte_us.add(&theirs.first_byte_us);
            let _ = ours.startup_us.add(&theirs.startup_us);
        }
        if self.seconds.len() < other.seconds.len() {
            self.seconds.resize(other.seconds.len(), Second::default());
        }
        for (ours, theirs) in self.seconds.iter_mut().zip(other.seconds) {
            ours.tally.add(theirs.tally);
            ours.latency_max_us = ours.latency_max_us.max(theirs.latency_max_us);
        }
        while self.windows.len() < other.windows.len() {
            self.windows.push(Window::new());
        }
        for (ours, theirs) in self.windows.iter_mut().zip(other.windows) {
            ours.offered += theirs.offered;
            ours.answered += theirs.answered;
            ours.failed += theirs.failed;
            ours.completed += theirs.completed;
            ours.bytes += theirs.bytes;
            let _ = ours.latency_us.add(&theirs.latency_us);
        }
        for (ours, theirs) in self.failures.iter_mut().zip(other.failures) {
            *ours += theirs;
        }
        self.examples.extend(other.examples);
        self.examples.sort_by(|a, b| a.due_s.total_cmp(&b.due_s));
        self.examples.truncate(EXAMPLES);
        self.corruption = self.corruption.take().or(other.corruption);
        self.reconnects += other.reconnects;
        let _ = self.lag_us.add(&other.lag_us);
        let (s, o) = (&mut self.sessions, other.sessions);
        s.started += o.started;
        s.completed += o.completed;
        s.failed += o.failed;
        s.failed_measured += o.failed_measured;
        s.measured += o.measured;
    }
}

impl Live {
    /// One more of something.
    pub fn count(counter: &AtomicU64, n: u64) {
        counter.fetch_add(n, Ordering::Relaxed);
    }

    /// One client less.
    pub fn client_left(&self) {
        self.clients.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(seconds: u64) -> Nanos {
        Nanos::from_secs(seconds)
    }

    #[test]
    fn the_warm_up_is_not_measured_and_threads_add_up() {
        let classes = ["a".to_string(), "b".to_string()];
        let mut one = Recorder::new(&classes, s(5));
        one.offered(s(1));
        one.bytes(s(1), 0, 100);
        one.success(0, s(1), 0, ResponseTimes { first_byte: s(2), done: s(3) });
        one.offered(s(6));
        one.bytes(s(7), 0, 50);
        one.success(0, s(6), 1 << 20, ResponseTimes { first_byte: s(7), done: s(9) });
        let mut two = Recorder::new(&classes, s(5));
        two.offered(s(12));
        two.failure(1, s(12), s(22), &Failure::Timeout, "p", 3);
        one.merge(two);
        assert_eq!(one.total, Tally { requests: 2, bytes: 150, failures: 1 });
        assert_eq!(one.measured, Tally { requests: 1, bytes: 50, failures: 1 });
        assert_eq!(one.seconds[3].tally.requests, 1);
        assert_eq!(one.seconds[22].tally.failures, 1);
        assert_eq!((one.seconds[9].latency_max_us, one.seconds[22].latency_max_us), (3_000_000, 10_000_000));
        assert_eq!(one.windows.len(), 2);
        assert_eq!((one.windows[0].offered, one.windows[0].answered, one.windows[0].bytes), (2, 2, 150));
        assert_eq!((one.windows[1].offered, one.windows[1].failed), (1, 1));
        let latency = one.all_classes(|c| &c.latency_us);
        assert_eq!(latency.len(), 2, "the request given up counts");
        assert_eq!(one.all_classes(|c| &c.startup_us).len(), 0, "neither began at the head of a file");
        assert!((latency.max() as f64 / 10e6 - 1.0).abs() < 0.001);
        assert_eq!(one.examples[0].kind, "timeout");
        let mut three = Recorder::new(&classes, s(5));
        three.measure_by_end();
        three.success(0, s(1), 0, ResponseTimes { first_byte: s(2), done: s(4) });
        three.success(0, s(1), 0, ResponseTimes { first_byte: s(2), done: s(9) });
        assert_eq!((three.total.requests, three.measured.requests), (2, 1));
        assert_eq!(three.all_classes(|c| &c.startup_us).len(), 1, "the measured one began at a head");
        assert_eq!(one.failures[0], 1);
    }
}
