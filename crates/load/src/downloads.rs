//! Downloads of whole files, arriving at random (Circus \[X\] 4.2): in order as any client asks, or in any order.
//!
//! Arrivals are Poisson. The load is given as the number of clients that would be at work at once if every one got its
//! link's rate all the time: what a server that keeps up has on average.

use std::rc::Rc;
use std::sync::Arc;

use seekless_units::{Fault, Nanos};
use seekless_workload::catalogue::Catalogue;
use seekless_workload::draw::Draw;
use tokio::task::JoinSet;

use crate::connection::{Ask, Client, Line};
use crate::failure::Failure;
use crate::run::{Finished, Settings, Worker, run};

/// A run of downloads.
pub struct DownloadRun {
    /// The files, equally likely.
    pub catalogue: Arc<Catalogue>,
    /// Downloads begun a second.
    pub per_s: f64,
    /// How each client is connected.
    pub line: Line,
    /// Ask for any order.
    pub any_order: bool,
    /// How long a download may take.
    pub timeout: Nanos,
    /// Clients at once; one more fails at once.
    pub max_clients: u64,
    /// Of arrivals and choice of files.
    pub seed: u64,
}

/// Runs it until the time is over.
///
/// # Errors
/// Threads could not be started.
pub fn downloads(settings: &Settings, plan: DownloadRun) -> Result<Finished, Fault> {
    let plan = Arc::new(plan);
    run(settings, |_, _| true, move |worker| arrivals(worker, plan.clone()))
}

/// Every thread draws all arrivals and takes its share of them.
async fn arrivals(worker: Rc<Worker>, plan: Arc<DownloadRun>) {
    worker.measure_by_end();
    let (k, n) = worker.share;
    let mut draw = Draw::new(plan.seed, "downloads");
    let files = plan.catalogue.videos().len() as u64;
    let mut at = Nanos::ZERO;
    let mut tasks = JoinSet::new();
    for number in 0u32.. {
        at += Nanos((draw.exponential() / plan.per_s * 1e9) as u64);
        let file = draw.below(files) as u32;
        if number % n != k {
            continue;
        }
        worker.clock.sleep_until(at).await;
        while tasks.try_join_next().is_some() {}
        if worker.clients() >= plan.max_clients {
            let path = &plan.catalogue.video(file).path;
            worker.offered(at);
            worker.failure(plan.line.class, at, at, &Failure::Overload, path, 0);
        } else {
            tasks.spawn_local(download(worker.clone(), plan.clone(), file, at));
        }
    }
}

async fn download(worker: Rc<Worker>, plan: Arc<DownloadRun>, file: u32, due: Nanos) {
    let _at_work = worker.client();
    let video = plan.catalogue.video(file);
    let content = worker.content(&video.path);
    // Two ranges that together are the file: only of an answer to several may the parts come in any order.
    let headers = match plan.any_order {
        true => vec![("range".into(), "bytes=0-0,1-".into()), ("prefer".into(), "any-order".into())],
        false => Vec::new(),
    };
    let ask = Ask {
        path: &video.path,
        range: None,
        file_size: Some(video.size.0),
        content: content.as_ref(),
        headers: &headers,
        due,
        timeout: plan.timeout,
    };
    // A failure is counted already.
    let _ = Client::new(worker, plan.line.clone()).fetch(&ask).await;
}
