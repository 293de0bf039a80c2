//! The closed loop: a fixed number of clients, each asking for the next range as soon as it has the last.

use std::rc::Rc;
use std::sync::Arc;

use seekless_units::{Fault, Nanos};
use seekless_workload::catalogue::Catalogue;
use seekless_workload::closed::{ClosedReader, ClosedSpec};

use crate::connection::{Ask, Client, Line};
use crate::run::{Backoff, Finished, Settings, Worker, run};

/// A closed-loop run.
pub struct ClosedRun {
    /// The library.
    pub catalogue: Arc<Catalogue>,
    /// What each client reads.
    pub spec: ClosedSpec,
    /// Number of clients.
    pub clients: u32,
    /// How each is connected.
    pub line: Line,
    /// How long a request may take.
    pub timeout: Nanos,
}

/// Runs it until the time is over.
///
/// # Errors
/// Threads could not be started.
pub fn closed(settings: &Settings, plan: ClosedRun) -> Result<Finished, Fault> {
    let plan = Arc::new(plan);
    run(settings, |_, _| true, move |worker| clients(worker, plan.clone()))
}

/// This thread's share of the clients; returns only if there is none.
pub(crate) async fn clients(worker: Rc<Worker>, plan: Arc<ClosedRun>) {
    let (k, n) = worker.share;
    let tasks: Vec<_> = (k..plan.clients)
        .step_by(n as usize)
        .map(|number| tokio::task::spawn_local(client(worker.clone(), plan.clone(), number)))
        .collect();
    for task in tasks {
        let _ = task.await;
    }
}

async fn client(worker: Rc<Worker>, plan: Arc<ClosedRun>, number: u32) {
    let _at_work = worker.client();
    let mut connection = Client::new(worker.clone(), plan.line.clone());
    let mut backoff = Backoff::new();
    let mut current = None;
    let mut due = worker.clock.now();
    for request in ClosedReader::new(&plan.catalogue, &plan.spec, number) {
        let video = plan.catalogue.video(request.video);
        if current.as_ref().is_none_or(|&(index, _)| index != request.video) {
            current = Some((request.video, worker.content(&video.path)));
        }
        let ask = Ask {
            path: &video.path,
            range: Some((request.offset, Some(request.offset + request.len - 1))),
            file_size: Some(video.size.0),
            content: current.as_ref().and_then(|(_, content)| content.as_ref()),
            headers: &[],
            due,
            timeout: plan.timeout,
        };
        match connection.fetch(&ask).await {
            Ok(answer) => {
                backoff.reset();
                // The next request is due when this answer is complete, on the client's side of its line.
                worker.clock.sleep_until(answer.done).await;
                due = answer.done.max(worker.clock.now());
            }
            Err(_) => {
                backoff.wait().await;
                due = worker.clock.now();
            }
        }
    }
}
