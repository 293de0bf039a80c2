//! Viewing sessions over HTTP: each is a task that follows its schedule and ends at its first failure.

use std::rc::Rc;
use std::sync::Arc;

use seekless_base::{Fault, Nanos};
use seekless_model::workload::catalogue::Catalogue;
use seekless_model::workload::session::{ClientClass, Due, Session, SessionSpec, Sessions};
use tokio::task::JoinSet;

use crate::connection::{ClientConnection, ClientLink, FetchRequest};
use crate::failure::Failure;
use crate::record::Live;
use crate::run::{Finished, RunSettings, Worker, run};

/// A run of sessions.
pub struct SessionRun {
    /// The library.
    pub catalogue: Arc<Catalogue>,
    /// Which viewer arrives when.
    pub spec: SessionSpec,
    /// Sessions at once, beyond which a new one fails at once (it would only measure this machine).
    pub max_clients: u64,
    /// How long a segment may take from when it was due (the papers: 10 s).
    pub timeout: Nanos,
}

/// Runs it until every session has ended, the time is over, or `observe` says stop.
///
/// # Errors
/// Threads could not be started.
pub fn sessions(
    settings: &RunSettings,
    plan: Arc<SessionRun>,
    observe: impl FnMut(Nanos, &Live) -> bool,
) -> Result<Finished, Fault> {
    run(settings, observe, move |worker| arrivals(worker, plan.clone()))
}

/// A client of a class.
pub fn line(class: usize, c: &ClientClass) -> ClientLink {
    ClientLink { class, link_bits_per_s: c.link_bits_per_s, delay: c.delay }
}

/// Starts this thread's share of the sessions, each when it is due, and waits for them.
pub(crate) async fn arrivals(worker: Rc<Worker>, plan: Arc<SessionRun>) {
    let (k, n) = worker.share;
    let mut tasks = JoinSet::new();
    for session in Sessions::new(&plan.catalogue, &plan.spec).filter(|s| s.id % n == k) {
        worker.clock.sleep_until(session.start).await;
        while tasks.try_join_next().is_some() {}
        if worker.clients() >= plan.max_clients {
            refuse(&worker, &plan, &session);
        } else {
            tasks.spawn_local(watch(worker.clone(), plan.clone(), session));
        }
    }
    while tasks.join_next().await.is_some() {}
}

fn refuse(worker: &Worker, plan: &SessionRun, session: &Session) {
    let range = session.range(session.first, &plan.catalogue);
    let path = &plan.catalogue.video(session.video).path;
    worker.offered(session.start);
    worker.failure(
        usize::from(session.class),
        session.start,
        session.start,
        &Failure::Overload,
        path,
        range.offset,
    );
    worker.record(|r| {
        let measured = u64::from(r.measures(session.start));
        r.sessions.started += 1;
        r.sessions.failed += 1;
        r.sessions.measured += measured;
        r.sessions.failed_measured += measured;
    });
}

async fn watch(worker: Rc<Worker>, plan: Arc<SessionRun>, session: Session) {
    let _at_work = worker.client();
    worker.record(|r| r.sessions.started += 1);
    let video = plan.catalogue.video(session.video);
    let content = worker.content(&video.path);
    let class = usize::from(session.class);
    let mut client = ClientConnection::new(worker.clone(), line(class, &plan.spec.classes[class]));
    let mut previous_done = session.start;
    let mut measured = false;
    for i in session.first..session.end {
        let due = match session.due(i) {
            Due::At(at) => at,
            Due::AfterPrevious => previous_done,
        };
        worker.clock.sleep_until(due).await;
        // A segment that is due while the one before still comes waits for it; that is not our lateness.
        worker.woke(due.max(previous_done));
        if !measured && worker.record(|r| r.measures(due)) {
            measured = true;
            worker.record(|r| r.sessions.measured += 1);
        }
        let range = session.range(i, &plan.catalogue);
        let ask = FetchRequest {
            path: &video.path,
            range: Some((range.offset, Some(range.offset + range.len - 1))),
            file_size: Some(video.size.0),
            content: content.as_ref(),
            headers: &[],
            due,
            timeout: plan.timeout,
        };
        match client.fetch(&ask).await {
            Ok(answer) => previous_done = answer.done,
            Err(_) => {
                worker.record(|r| {
                    r.sessions.failed += 1;
                    r.sessions.failed_measured += u64::from(measured);
                });
                return;
            }
        }
    }
    worker.record(|r| r.sessions.completed += 1);
}
