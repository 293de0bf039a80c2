//! The statistics thread: durations of tracked calls, and answers to status requests.
//!
//! It is a thread of its own, because writing the status as text takes a millisecond. A tool that does not
//! read its answer blocks no other: what does not fit into its socket is queued, and given up after
//! [`SEND_MAX`] or when too many answers are queued.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use hdrhistogram::Histogram;
use rustix::io::Errno;
use seekless_engine::{Engine, lock};
use seekless_frontend::status::{
    CallReport, Counters, FileSetsReport, ObserveReport, StatusReport, WatchReport,
};
use seekless_policy::Sizing;
use seekless_wire::{StatusParts, Tracked};

use crate::callers::Callers;
use crate::client::Client;
use crate::deliveries::Deliveries;
use crate::limits::Limits;
use crate::passing::Passing;
use crate::settings::DaemonSettings;

/// Maximum number of queued reports: a quarter of a second at 20,000 calls a second.
const WAITING_MAX: usize = 4096;

/// Maximum time for a tool to read its answer.
const SEND_MAX: Duration = Duration::from_secs(2);

/// Maximum number of queued answers, at most a MiB each; the oldest one makes room.
const SENDINGS_MAX: usize = 32;

/// Interval at which a full socket is tried again. A whole answer fits into a socket's buffer except on
/// machines with hundreds of disks.
const SEND_AGAIN: Duration = Duration::from_millis(10);

/// From this many queued questions on, one text answers all of the next [`SAME_FOR`], because writing it
/// takes a hundred times as long as sending it.
const CROWDED: usize = 16;
const SAME_FOR: Duration = Duration::from_millis(100);

/// Longest call that is resolved, in nanoseconds (10 minutes).
const LONGEST_NS: u64 = 600_000_000_000;

/// The report of a door beside the socket.
pub(crate) enum DoorReport {
    /// `seekless watch`.
    Watch(WatchReport),
    /// `seekless observe`.
    Observe(ObserveReport),
}

/// Returns the report of a door beside the socket.
pub(crate) type ReportDoor = Box<dyn Fn() -> DoorReport + Send + Sync>;

/// What other threads share with the statistics.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) settings: Arc<DaemonSettings>,
    pub(crate) started: Instant,
    pub(crate) counters: Arc<Mutex<Counters>>,
    /// The disk threads.
    pub(crate) engine: Engine,
    /// The other door, once it is open.
    pub(crate) door: Arc<OnceLock<ReportDoor>>,
    /// Whether every call is passed.
    pub(crate) passing: Arc<Passing>,
    /// Processes that have called at the socket.
    pub(crate) callers: Arc<Callers>,
    /// Processes limited by their cgroup.
    pub(crate) limits: Arc<Limits>,
    /// What servers read.
    pub(crate) deliveries: Arc<Mutex<Deliveries>>,
    /// What programs got of file sets.
    pub(crate) file_sets: Arc<Mutex<FileSetsReport>>,
}

pub(crate) enum Ask {
    /// A call, reported afterwards.
    Tracked(Tracked),
    /// Send the status to this client.
    Status(Arc<Client>),
    /// Send the status to this channel.
    Report(Sender<StatusReport>),
}

/// The handle of the thread, which ends with it unless other askers exist.
pub(crate) struct Statistics {
    sender: Sender<Ask>,
}

impl Statistics {
    /// Starts the thread.
    ///
    /// # Errors
    /// No thread can be started.
    pub(crate) fn start(shared: Shared) -> io::Result<Statistics> {
        let (sender, asks) = bounded(WAITING_MAX);
        thread::Builder::new().name("statistics".into()).spawn(move || run(&shared, &asks))?;
        Ok(Statistics { sender })
    }

    /// Sends a request; `false` if the thread is behind. Reports of calls leave room for questions.
    pub(crate) fn send(&self, ask: Ask) -> bool {
        let crowded = matches!(ask, Ask::Tracked(_)) && self.sender.len() >= WAITING_MAX / 2;
        !crowded && self.sender.try_send(ask).is_ok()
    }

    /// A sender for other threads.
    pub(crate) fn asker(&self) -> Sender<Ask> {
        self.sender.clone()
    }
}

fn run(shared: &Shared, asks: &Receiver<Ask>) {
    let mut calls = Calls::default();
    let mut sendings: VecDeque<Sending> = VecDeque::new();
    let mut looked = Instant::now();
    let mut last: Option<(Arc<str>, Instant)> = None;
    loop {
        if looked.elapsed() >= SEND_AGAIN {
            sendings.retain_mut(|sending| !sending.go_on());
            looked = Instant::now();
        }
        let ask = if sendings.is_empty() {
            asks.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            asks.recv_timeout(SEND_AGAIN)
        };
        match ask {
            Ok(Ask::Tracked(tracked)) => calls.record(&tracked),
            Ok(Ask::Status(client)) => {
                let same = last.as_ref().filter(|(_, at)| asks.len() >= CROWDED && at.elapsed() < SAME_FOR);
                let text = same.map(|(text, _)| text.clone()).unwrap_or_else(|| {
                    serde_json::to_string(&report(shared, &calls)).unwrap_or_default().into()
                });
                if asks.len() >= CROWDED && same.is_none() {
                    last = Some((text.clone(), Instant::now()));
                }
                let mut sending = Sending { client, text, sent: 0, until: Instant::now() + SEND_MAX };
                if !sending.go_on() {
                    if sendings.len() >= SENDINGS_MAX {
                        sendings.pop_front();
                    }
                    sendings.push_back(sending);
                }
            }
            Ok(Ask::Report(to)) => {
                let _ = to.send(report(shared, &calls));
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// A status being sent.
struct Sending {
    client: Arc<Client>,
    text: Arc<str>,
    /// Number of parts sent.
    sent: usize,
    until: Instant,
}

impl Sending {
    /// Sends as much as there is room for. Returns whether that was the end.
    fn go_on(&mut self) -> bool {
        for part in StatusParts::new(&self.text).skip(self.sent) {
            match self.client.send(part) {
                Ok(()) => self.sent += 1,
                Err(Errno::AGAIN) => return Instant::now() >= self.until,
                Err(_) => return true,
            }
        }
        self.client.end_status();
        true
    }
}

fn report(shared: &Shared, calls: &Calls) -> StatusReport {
    let settings = &shared.settings;
    let disks = shared.engine.statistics();
    let policy = &settings.engine.policy;
    let (prefetch, prefetch_bytes) = match &policy.sizing {
        Sizing::Fixed => (policy.prefetch.to_string(), policy.prefetch.0),
        found => (found.name().to_string(), disks.iter().map(|d| d.size.size).max().unwrap_or(0)),
    };
    let (watch, observe) = match shared.door.get().map(|report| report()) {
        Some(DoorReport::Watch(report)) => (Some(report), None),
        Some(DoorReport::Observe(report)) => (None, Some(report)),
        None => (None, None),
    };
    StatusReport {
        version: env!("CARGO_PKG_VERSION").to_string(),
        pid: std::process::id(),
        uptime_ms: shared.started.elapsed().as_secs_f64() * 1e3,
        socket: settings.socket.display().to_string(),
        mode: settings.engine.policy.mode.name().to_string(),
        prefetch,
        prefetch_bytes,
        order: settings.engine.policy.order.name().to_string(),
        single_queue: settings.engine.single_queue,
        counters: shared.counters.lock().map(|c| c.clone()).unwrap_or_default(),
        disks,
        calls: calls.report(),
        watch,
        observe,
        passes_all: shared.passing.now(Instant::now()),
        delivered: lock(&shared.deliveries).report(),
        file_sets: *lock(&shared.file_sets),
        metadata: shared.engine.metadata(),
        bitrates: shared.engine.bitrates(),
    }
}

/// Durations of tracked calls, by call and residency.
#[derive(Default)]
struct Calls(BTreeMap<(&'static str, bool), Call>);

struct Call {
    bytes: u64,
    durations: Histogram<u64>,
}

impl Calls {
    fn record(&mut self, tracked: &Tracked) {
        let key = (tracked.call.name(), tracked.resident);
        let call = self.0.entry(key).or_insert_with(|| Call {
            bytes: 0,
            // From 1 ns; two digits; the constructor accepts these constant bounds.
            durations: Histogram::new_with_bounds(1, LONGEST_NS, 2).expect("constant bounds are valid"),
        });
        call.bytes = call.bytes.saturating_add(tracked.length);
        call.durations.saturating_record(tracked.duration_ns);
    }

    fn report(&self) -> Vec<CallReport> {
        let ms = |ns: u64| ns as f64 / 1e6;
        let one = |(&(name, resident), call): (&(&'static str, bool), &Call)| {
            let h = &call.durations;
            let mut seen = 0;
            let cdf = h.iter_recorded().map(|v| {
                seen += v.count_at_value();
                (ms(v.value_iterated_to()), seen as f64 / h.len() as f64)
            });
            CallReport {
                call: name.to_string(),
                resident,
                count: h.len(),
                bytes: call.bytes,
                mean_ms: h.mean() / 1e6,
                max_ms: ms(h.max()),
                cdf: cdf.collect(),
            }
        };
        self.0.iter().map(one).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seekless_wire::Call as WireCall;

    #[test]
    fn calls_become_a_rising_distribution() {
        let mut calls = Calls::default();
        for i in 1..=1000u64 {
            calls.record(&Tracked {
                call: WireCall::Sendfile,
                resident: i % 2 == 0,
                pid: 1,
                tid: 1,
                device: 1,
                inode: 1,
                offset: 0,
                length: 10,
                duration_ns: i * 100_000,
            });
        }
        let report = calls.report();
        assert_eq!(report.len(), 2);
        for call in &report {
            assert_eq!((call.call.as_str(), call.count, call.bytes), ("sendfile", 500, 5_000));
            assert!(call.cdf.windows(2).all(|w| w[0].0 < w[1].0 && w[0].1 < w[1].1));
            assert_eq!(call.cdf.last().unwrap().1, 1.0);
            let median = call.cdf.iter().find(|c| c.1 >= 0.5).unwrap().0;
            assert!((49.0..=51.5).contains(&median), "{median}");
        }
    }
}
