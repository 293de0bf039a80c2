//! A run: worker threads, the way they end, and what is seen of them meanwhile.
//!
//! Each worker thread has a runtime of its own and counts alone. The main thread shows progress and waits for
//! the workers, the end of the time or a signal; a signal ends the run cleanly with what was counted until
//! then.

use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use seekless_base::{Fault, Nanos};
use seekless_model::workload::content::Content;
use tokio::runtime::Builder;
use tokio::sync::{mpsc, watch};
use tokio::task::LocalSet;

use crate::clock::Clock;
use crate::failure::Failure;
use crate::progress::ProgressLine;
use crate::record::{Live, Recorder, ResponseTimes};
use crate::target::TargetServer;

/// What is the same for every client of a run.
#[derive(Clone)]
pub struct RunSettings {
    /// The server.
    pub target: TargetServer,
    /// Whether bytes are compared.
    pub verify: bool,
    /// How much faster than real time.
    pub speedup: f64,
    /// Worker threads, at least 1.
    pub threads: u32,
    /// Requests due before this time are not measured.
    pub warmup: Nanos,
    /// When the run is over, the warm-up included; none: when the work is done.
    pub length: Option<Nanos>,
    /// Names of the clients' classes.
    pub classes: Vec<String>,
    /// Whether to show progress (never when standard error is not a terminal).
    pub progress: bool,
}

/// A worker thread's own state, shared by its clients.
pub struct Worker {
    /// The run's clock.
    pub clock: Clock,
    /// The server.
    pub target: TargetServer,
    /// Number of this thread and of all threads.
    pub share: (u32, u32),
    verify: bool,
    record: RefCell<Recorder>,
    live: Arc<Live>,
}

impl Worker {
    pub(crate) fn new(
        settings: &RunSettings,
        clock: Clock,
        live: Arc<Live>,
        share: (u32, u32),
    ) -> Rc<Worker> {
        Rc::new(Worker {
            clock,
            target: settings.target.clone(),
            share,
            verify: settings.verify,
            record: RefCell::new(Recorder::new(&settings.classes, settings.warmup)),
            live,
        })
    }

    /// See [`Recorder::measure_by_end`].
    pub(crate) fn measure_by_end(&self) {
        self.record.borrow_mut().measure_by_end();
    }

    /// What the bytes of a file must be, if they are compared.
    pub fn content(&self, path: &str) -> Option<Content> {
        self.verify.then(|| Content::of_path(path))
    }

    /// A client woke for a request it was to send at `planned`.
    pub fn woke(&self, planned: Nanos) {
        self.record.borrow_mut().woke(planned, self.clock.now());
    }

    /// A request became due.
    pub fn offered(&self, due: Nanos) {
        Live::count(&self.live.offered, 1);
        self.record.borrow_mut().offered(due);
    }

    /// Body bytes came.
    pub fn bytes(&self, class: usize, n: u64) {
        Live::count(&self.live.bytes, n);
        self.record.borrow_mut().bytes(self.clock.now(), class, n);
    }

    /// A request from `offset` on was answered.
    pub fn success(&self, class: usize, due: Nanos, offset: u64, answer: ResponseTimes) {
        Live::count(&self.live.requests, 1);
        self.record.borrow_mut().success(class, due, offset, answer);
    }

    /// A request failed.
    pub fn failure(&self, class: usize, due: Nanos, at: Nanos, failure: &Failure, path: &str, offset: u64) {
        Live::count(&self.live.failures, 1);
        self.record.borrow_mut().failure(class, due, at, failure, path, offset);
    }

    /// A client connected again.
    pub fn reconnected(&self) {
        self.record.borrow_mut().reconnects += 1;
    }

    /// Direct access to the counts, for what is not a request.
    pub fn record<T>(&self, change: impl FnOnce(&mut Recorder) -> T) -> T {
        change(&mut self.record.borrow_mut())
    }

    /// Counts a client as at work until the guard is dropped.
    pub fn client(&self) -> ClientGuard {
        Live::count(&self.live.clients, 1);
        ClientGuard(self.live.clone())
    }

    /// Clients at work in all threads.
    pub fn clients(&self) -> u64 {
        self.live.clients.load(Ordering::Relaxed)
    }
}

/// See [`Worker::client`].
pub struct ClientGuard(Arc<Live>);

impl Drop for ClientGuard {
    fn drop(&mut self) {
        self.0.client_left();
    }
}

/// What a run came to.
pub struct Finished {
    /// The counts of all threads.
    pub record: Recorder,
    /// Length of the run in the workload's time.
    pub length: Nanos,
    /// Length of the run in real time, seconds.
    pub wall_s: f64,
    /// Processor time of this process during the run, seconds.
    pub cpu_s: f64,
    /// Ended by a signal.
    pub partial: bool,
    /// Ended by the observer.
    pub stopped: bool,
}

/// Runs `work` in every worker thread until all are done, the time is over, `observe` says stop, or a signal
/// comes.
///
/// `observe` is called about four times a second with the time of the run and the live counts.
///
/// # Errors
/// A thread or runtime could not be started.
pub fn run<W, F>(
    settings: &RunSettings,
    mut observe: impl FnMut(Nanos, &Live) -> bool,
    work: W,
) -> Result<Finished, Fault>
where
    W: Fn(Rc<Worker>) -> F + Clone + Send + 'static,
    F: Future<Output = ()> + 'static,
{
    raise_descriptor_limit();
    let failed = |e: std::io::Error| Fault::failed(format!("cannot start the load's threads: {e}"));
    let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let _inside = runtime.enter();
    let clock = Clock::start(settings.speedup);
    let cpu_before = cpu_seconds();
    let live = Arc::new(Live::default());
    let (stop, stopped) = watch::channel(false);
    // One message a thread, ever.
    let (done, mut all_done) = mpsc::channel::<Recorder>(settings.threads as usize);
    for k in 0..settings.threads {
        let (settings, live, work) = (settings.clone(), live.clone(), work.clone());
        let (done, mut stopped) = (done.clone(), stopped.clone());
        std::thread::Builder::new()
            .name(format!("load-{k}"))
            .spawn(move || {
                let Ok(runtime) = Builder::new_current_thread().enable_all().build() else { return };
                let worker = Worker::new(&settings, clock, live, (k, settings.threads));
                let tasks = LocalSet::new();
                let end = settings.length.map(|l| clock.instant(l));
                tasks.block_on(&runtime, async {
                    tokio::select! {
                        () = work(worker.clone()) => {}
                        () = until(end) => {}
                        // An error means the main thread is gone: stop as well.
                        _ = stopped.wait_for(|&stop| stop) => {}
                    }
                });
                // Clients in the middle of a request end here with the tasks; their bytes are counted.
                drop(tasks);
                let record = worker.record.borrow().clone();
                let _ = done.blocking_send(record);
            })
            .map_err(failed)?;
    }
    drop(done);
    let mut bar = ProgressLine::new(settings.progress, settings.length);
    let mut merged: Option<Recorder> = None;
    let (mut partial, mut ended_early) = (false, false);
    runtime.block_on(async {
        let mut signals = Signals::new();
        let mut tick = tokio::time::interval(Duration::from_millis(250));
        loop {
            tokio::select! {
                record = all_done.recv() => match record {
                    Some(record) => match &mut merged {
                        Some(m) => m.merge(record),
                        None => merged = Some(record),
                    },
                    None => break,
                },
                _ = tick.tick() => {
                    bar.show(clock.now(), &live);
                    if !ended_early && !partial && !observe(clock.now(), &live) {
                        ended_early = true;
                        let _ = stop.send(true);
                    }
                }
                () = signals.any() => {
                    partial = true;
                    let _ = stop.send(true);
                }
            }
        }
    });
    bar.clear();
    let length = settings.length.map_or(clock.now(), |l| l.min(clock.now()));
    Ok(Finished {
        record: merged.ok_or_else(|| Fault::failed("every thread of the load failed"))?,
        length,
        wall_s: clock.now().as_secs_f64() / clock.speedup(),
        cpu_s: cpu_seconds() - cpu_before,
        partial,
        stopped: ended_early,
    })
}

async fn until(end: Option<tokio::time::Instant>) {
    match end {
        Some(end) => tokio::time::sleep_until(end).await,
        None => std::future::pending().await,
    }
}

/// SIGINT and SIGTERM, where they can be had.
struct Signals(Vec<tokio::signal::unix::Signal>);

impl Signals {
    fn new() -> Signals {
        use tokio::signal::unix::{SignalKind, signal};
        Signals([SignalKind::interrupt(), SignalKind::terminate()].into_iter().flat_map(signal).collect())
    }

    async fn any(&mut self) {
        std::future::poll_fn(|cx| {
            if self.0.iter_mut().any(|s| s.poll_recv(cx).is_ready()) {
                std::task::Poll::Ready(())
            } else {
                std::task::Poll::Pending
            }
        })
        .await;
    }
}

/// Thousands of clients are thousands of descriptors: takes as many as the system allows us.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // Without it the default (usually 1024) holds, and connections beyond it fail with a clear message.
    let _ = setrlimit(Resource::Nofile, limit);
}

/// Processor time of this process so far, seconds.
fn cpu_seconds() -> f64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    t.tv_sec as f64 + t.tv_nsec as f64 / 1e9
}

/// Bounds a backoff after failures: 10 ms, doubled each time, at most a second (real time), so that clients
/// of a dead server do not spin.
pub struct Backoff(u32);

impl Backoff {
    /// Nothing has failed yet.
    pub fn new() -> Backoff {
        Backoff(0)
    }

    /// The last request succeeded.
    pub fn reset(&mut self) {
        self.0 = 0;
    }

    /// Waits after a failure.
    pub async fn wait(&mut self) {
        let ms = (10_u64 << self.0.min(7)).min(1000);
        self.0 += 1;
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }
}

impl Default for Backoff {
    fn default() -> Backoff {
        Backoff::new()
    }
}
