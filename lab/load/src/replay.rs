//! Replays httperf session files: bursts and pauses as written, sessions begun at a rate, in turn, over and
//! over.
//!
//! httperf sends the requests of a burst on one connection without waiting for answers if told to pipeline,
//! else one after the other; we do the latter. All are due when the burst begins.

use std::rc::Rc;
use std::sync::Arc;

use seekless_base::{Fault, Nanos};
use seekless_model::workload::draw::Draw;
use seekless_model::workload::httperf::{LogSession, Pause};
use seekless_model::workload::session::ClientClass;
use tokio::task::JoinSet;

use crate::connection::{ClientConnection, FetchRequest};
use crate::run::{Finished, RunSettings, Worker, run};
use crate::sessions::line;

/// A run of recorded sessions.
pub struct ReplayRun {
    /// The sessions of the file.
    pub log: Vec<LogSession>,
    /// Sessions to start; the file is used from its start again when it ends.
    pub sessions: u64,
    /// Sessions started a second (Poisson), above 0.
    pub rate_per_s: f64,
    /// Kinds of clients, taken in turn.
    pub classes: Vec<ClientClass>,
    /// For requests without `timeout=`.
    pub timeout: Nanos,
    /// Seed of the arrivals.
    pub seed: u64,
}

/// Runs it until every session has ended or the time is over.
///
/// # Errors
/// Threads could not be started.
pub fn replay(settings: &RunSettings, plan: ReplayRun) -> Result<Finished, Fault> {
    let plan = Arc::new(plan);
    run(settings, |_, _| true, move |worker| arrivals(worker, plan.clone()))
}

pub(crate) async fn arrivals(worker: Rc<Worker>, plan: Arc<ReplayRun>) {
    let (k, n) = (u64::from(worker.share.0), u64::from(worker.share.1));
    let mut draw = Draw::new(plan.seed, "replay arrivals");
    let mut at_s = 0.0;
    let mut tasks = JoinSet::new();
    for id in 0..plan.sessions {
        at_s += draw.exponential() / plan.rate_per_s;
        if id % n != k {
            continue;
        }
        let start = Nanos::from_secs_f64(at_s);
        worker.clock.sleep_until(start).await;
        while tasks.try_join_next().is_some() {}
        tasks.spawn_local(session(worker.clone(), plan.clone(), id, start));
    }
    while tasks.join_next().await.is_some() {}
}

async fn session(worker: Rc<Worker>, plan: Arc<ReplayRun>, id: u64, start: Nanos) {
    let _at_work = worker.client();
    let log = &plan.log[(id % plan.log.len() as u64) as usize];
    let class = (id % plan.classes.len() as u64) as usize;
    let mut client = ClientConnection::new(worker.clone(), line(class, &plan.classes[class]));
    let measured = worker.record(|r| {
        let measured = r.measures(start);
        r.sessions.started += 1;
        r.sessions.measured += u64::from(measured);
        measured
    });
    let mut due = start;
    for burst in &log.bursts {
        worker.clock.sleep_until(due).await;
        worker.woke(due);
        let mut done = due;
        for request in &burst.requests {
            let path = request.uri.trim_start_matches('/');
            let content = worker.content(path);
            let ask = FetchRequest {
                path,
                range: request.range,
                // `size=` is the length of the answer; only without a range is it the file's.
                file_size: request.size.filter(|_| request.range.is_none()),
                content: content.as_ref(),
                headers: &request.headers,
                due,
                timeout: request.timeout.unwrap_or(plan.timeout),
            };
            match client.fetch(&ask).await {
                Ok(answer) => done = answer.done,
                Err(_) => {
                    worker.record(|r| {
                        r.sessions.failed += 1;
                        r.sessions.failed_measured += u64::from(measured);
                    });
                    return;
                }
            }
        }
        due = match burst.pause {
            Pause::Think(pause) => done + pause,
            Pause::Pace(pause) => (due + pause).max(done),
        };
    }
    worker.record(|r| r.sessions.completed += 1);
}
