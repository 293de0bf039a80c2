//! Downloads of whole files, arriving at random (Circus \[X\] 4.2): in order as any client asks, or in any
//! order.
//!
//! Arrivals are Poisson. The load is given as the number of clients that would be at work at once if every
//! one got its link's rate all the time: what a server that keeps up has on average.

use std::rc::Rc;
use std::sync::Arc;

use seekless_base::{Fault, Nanos};
use seekless_model::workload::catalogue::Catalogue;
use seekless_model::workload::draw::Draw;
use seekless_model::workload::session::{ClientClass, draw_class};
use tokio::task::JoinSet;

use crate::connection::{ClientConnection, FetchRequest};
use crate::failure::Failure;
use crate::run::{Finished, RunSettings, Worker, run};
use crate::sessions::line;

/// A run of downloads.
pub struct DownloadRun {
    /// The files, equally likely.
    pub catalogue: Arc<Catalogue>,
    /// Downloads begun a second.
    pub per_s: f64,
    /// How clients are connected.
    pub classes: Vec<ClientClass>,
    /// Ask for any order.
    pub any_order: bool,
    /// How long a download may take.
    pub timeout: Nanos,
    /// Most clients at once; a further one fails at once.
    pub max_clients: u64,
    /// Of arrivals and choice of files.
    pub seed: u64,
}

/// Downloads begun a second so that `clients` are at work on average, each class for as long as files of
/// `mean_bytes` take on its link; `None` if a class has no link rate.
pub fn arrivals_per_s(clients: f64, mean_bytes: f64, classes: &[ClientClass]) -> Option<f64> {
    let (mut shares, mut seconds) = (0.0, 0.0);
    for class in classes {
        shares += class.share;
        seconds += class.share * mean_bytes * 8.0 / class.link_bits_per_s? as f64;
    }
    Some(clients * shares / seconds)
}

/// Runs it until the time is over.
///
/// # Errors
/// Threads could not be started.
pub fn downloads(settings: &RunSettings, plan: DownloadRun) -> Result<Finished, Fault> {
    let plan = Arc::new(plan);
    run(settings, |_, _| true, move |worker| arrivals(worker, plan.clone()))
}

/// Every thread draws all arrivals and takes its share of them.
async fn arrivals(worker: Rc<Worker>, plan: Arc<DownloadRun>) {
    worker.measure_by_end();
    let (k, n) = worker.share;
    let (mut draw, mut links) = (Draw::new(plan.seed, "downloads"), Draw::new(plan.seed, "links"));
    let files = plan.catalogue.videos().len() as u64;
    let mut at = Nanos::ZERO;
    let mut tasks = JoinSet::new();
    for number in 0u32.. {
        at += Nanos((draw.exponential() / plan.per_s * 1e9) as u64);
        let file = draw.below(files) as u32;
        let class = draw_class(&plan.classes, &mut links);
        if number % n != k {
            continue;
        }
        worker.clock.sleep_until(at).await;
        while tasks.try_join_next().is_some() {}
        if worker.clients() >= plan.max_clients {
            let path = &plan.catalogue.video(file).path;
            worker.offered(at);
            worker.failure(class, at, at, &Failure::Overload, path, 0);
        } else {
            tasks.spawn_local(download(worker.clone(), plan.clone(), file, class, at));
        }
    }
}

async fn download(worker: Rc<Worker>, plan: Arc<DownloadRun>, file: u32, class: usize, due: Nanos) {
    let _at_work = worker.client();
    let video = plan.catalogue.video(file);
    let content = worker.content(&video.path);
    // Two ranges that together are the file: only of an answer to several may the parts come in any order.
    let headers = match plan.any_order {
        true => vec![("range".into(), "bytes=0-0,1-".into()), ("prefer".into(), "any-order".into())],
        false => Vec::new(),
    };
    let ask = FetchRequest {
        path: &video.path,
        range: None,
        file_size: Some(video.size.0),
        content: content.as_ref(),
        headers: &headers,
        due,
        timeout: plan.timeout,
    };
    // A failure is counted already.
    let _ = ClientConnection::new(worker, line(class, &plan.classes[class])).fetch(&ask).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::classes;

    #[test]
    fn arrivals_follow_from_the_clients_at_work() {
        let per_s = |links: &[&str]| {
            let links: Vec<String> = links.iter().map(ToString::to_string).collect();
            arrivals_per_s(100.0, 1e9, &classes(&links, Nanos::ZERO).unwrap())
        };
        assert_eq!(per_s(&["10Mb/s"]), Some(0.125), "800 s a download");
        // One of four takes 8000 s, three take 800 s: 2600 s on the mean.
        assert_eq!(per_s(&["1Mb/s", "10Mb/s", "10Mb/s", "10Mb/s"]), Some(100.0 / 2600.0));
        assert_eq!(per_s(&["10Mb/s", "none"]), None);
    }

    #[test]
    fn a_rate_named_thrice_is_drawn_three_times_as_often() {
        let links = ["1.5", "10", "10", "10", "45"].map(|rate| format!("{rate}Mb/s"));
        let classes = classes(&links, Nanos::ZERO).unwrap();
        let mut draw = Draw::new(1, "links");
        let mut counts = [0; 3];
        for _ in 0..10_000 {
            counts[draw_class(&classes, &mut draw)] += 1;
        }
        for (count, expected) in counts.into_iter().zip([2000, 6000, 2000_i32]) {
            assert!((count - expected).abs() < 150, "{counts:?}");
        }
    }
}
