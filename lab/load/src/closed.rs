//! The closed loop: a fixed number of clients, each asking for the next range as soon as it has the last.
//!
//! Or they ask as a request handler reads ([`Handler`]): parts of several files in turn, with think times.
//! Each block is then a request over HTTP, for which the server opens the file anew, so the kernel's
//! read-ahead sees less than of a handler in the server.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use futures_util::future::join_all;
use seekless_base::{Fault, Nanos};
use seekless_model::workload::catalogue::Catalogue;
use seekless_model::workload::closed::{ClosedReader, ClosedSpec};
use seekless_model::workload::handler::{Handler, Items, Requests, Step};

use crate::connection::{ClientConnection, ClientLink, FetchRequest};
use crate::run::{Backoff, Finished, RunSettings, Worker, run};

/// A closed-loop run.
pub struct ClosedRun {
    /// The library.
    pub catalogue: Arc<Catalogue>,
    /// What each client reads.
    pub spec: ClosedSpec,
    /// Instead: each asks for what this handler reads, block by block, and its items in the library.
    pub handler: Option<(Handler, Arc<Items>)>,
    /// Number of clients.
    pub clients: u32,
    /// How each is connected.
    pub line: ClientLink,
    /// How long a request may take.
    pub timeout: Nanos,
}

/// Runs it until the time is over.
///
/// # Errors
/// Threads could not be started.
pub fn closed(settings: &RunSettings, plan: ClosedRun) -> Result<Finished, Fault> {
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

/// One client: connections that share its steps.
async fn client(worker: Rc<Worker>, plan: Arc<ClosedRun>, number: u32) {
    let _at_work = worker.client();
    let steps = RefCell::new(steps(&plan, number));
    let connections = (0..plan.spec.connections.max(1)).map(|_| connection(&worker, &plan, &steps));
    join_all(connections).await;
}

type Steps<'a> = Box<dyn Iterator<Item = Step> + 'a>;

fn steps(plan: &ClosedRun, number: u32) -> Steps<'_> {
    match &plan.handler {
        Some((handler, items)) => {
            let seed = plan.spec.seed;
            Box::new(Requests::new(&plan.catalogue, *handler, items.clone(), seed, number).flatten())
        }
        None => {
            let ranges = ClosedReader::new(&plan.catalogue, &plan.spec, number);
            Box::new(ranges.map(|range| Step::Read { open: 0, range }))
        }
    }
}

async fn connection(worker: &Rc<Worker>, plan: &ClosedRun, steps: &RefCell<Steps<'_>>) {
    let mut connection = ClientConnection::new(worker.clone(), plan.line.clone());
    let mut backoff = Backoff::new();
    let mut current = None;
    let mut due = worker.clock.now();
    loop {
        let Some(step) = steps.borrow_mut().next() else { return };
        let request = match step {
            Step::Read { range, .. } => range,
            Step::Think(time) => {
                due += time;
                worker.clock.sleep_until(due).await;
                continue;
            }
        };
        let video = plan.catalogue.video(request.video);
        if current.as_ref().is_none_or(|&(index, _)| index != request.video) {
            current = Some((request.video, worker.content(&video.path)));
        }
        let ask = FetchRequest {
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
