use seekless_model::drive::catalogue;

use super::*;

fn setup(load: f64, size_mib: u64) -> Setup {
    let drive = catalogue::get("wd-red-1tb").expect("in the catalogue");
    let base = figures::base(&drive, 1, Nanos::from_secs(120));
    Setup { load, size: Bytes::mib(size_mib), ..base }
}

#[test]
fn the_same_seed_gives_the_same_report() {
    let s = setup(0.3, 64);
    assert_eq!(run(&s), run(&s));
    assert_ne!(run(&s), run(&Setup { seed: 2, ..s }));
}

/// Conservation: with little load every client gets the rate of its link, and what is delivered is what
/// arrives.
#[test]
fn undisturbed_clients_get_the_rate_of_their_link() {
    let s = Setup { time: Nanos::from_secs(2000), ..setup(0.02, 64) };
    for s in [s.clone(), s.sequential()] {
        let report = run(&s);
        let undisturbed = s.undisturbed(&s.classes[0]).as_secs_f64();
        assert!((report.download_s / undisturbed - 1.0).abs() < 0.05, "{report:?}");
        // Little's law: downloads under way = arrival rate x time.
        let expected = report.downloads as f64 / 2000.0 * report.download_s;
        assert!((report.concurrent / expected - 1.0).abs() < 0.05, "{} {expected}", report.concurrent);
    }
}

/// Files larger than memory, and more clients than the disk can serve each on its own.
#[test]
fn any_order_carries_what_is_offered_where_sequential_order_cannot() {
    let mut s = setup(0.4, 256);
    s.drive = catalogue::get("cheetah-18gb-10k").expect("in the catalogue");
    s.files = 4;
    s.memory = Bytes::mib(128);
    s.time = Nanos::from_secs(600);
    let (any, sequential) = (run(&s), run(&s.sequential()));
    assert!(any.network > 2.0 * sequential.network, "{} {}", any.network, sequential.network);
    // One frontrunner a file.
    assert!(any.disk < 1.5 * 4.0 * s.classes[0].rate, "{}", any.disk);
}

/// Nothing is carried that was not offered or that the link cannot carry.
#[test]
fn the_link_is_the_limit_of_everything() {
    let mut s = setup(3.0, 32);
    s.link_rate = 25e6;
    s.memory = Bytes::mib(64);
    let report = run(&s);
    assert!(report.network <= 25e6 * 1.001 && report.network > 24e6, "{}", report.network);
    assert!(report.disk_busy <= 1.0 && report.concurrent > 30.0);
}

#[test]
fn every_figure_has_points_that_can_be_run() {
    let base = figures::base(&catalogue::get("cheetah-18gb-10k").unwrap(), 1, Nanos::from_secs(1));
    for number in figures::NUMBERS {
        let figure = figures::figure(number, &base).expect("a figure");
        assert!(!figure.points.is_empty());
        for point in figure.points {
            let shares: f64 = point.setup.classes.iter().map(|c| c.share).sum();
            assert!((shares - 1.0).abs() < 1e-9 && point.setup.classes.iter().all(|c| c.rate > 0.0));
        }
    }
    assert!(figures::figure(7, &base).is_none());
}

#[test]
fn confidence_of_several_trials() {
    let report = |network| CircusReport { network, ..CircusReport::default() };
    let trials = Trials { reports: vec![report(9.0), report(10.0), report(11.0)] };
    assert_eq!(trials.mean(|r| r.network), 10.0);
    // s = 1, n = 3: 4.30 / sqrt(3).
    assert!((trials.half_length(|r| r.network).unwrap() - 2.4826).abs() < 1e-3);
    assert_eq!(Trials { reports: vec![report(1.0)] }.half_length(|r| r.network), None);
}

#[test]
fn every_figure_has_a_conclusion_that_can_fail() {
    let base = figures::base(&catalogue::get("cheetah-18gb-10k").unwrap(), 1, Nanos::from_secs(1));
    for number in figures::NUMBERS {
        let figure = figures::figure(number, &base).unwrap();
        // Nothing was delivered, or everything is alike: no figure of the paper says that.
        for network in [1.0, 1e6] {
            let of = |p: &figures::FigurePoint| {
                let class = ClassReport { mean_s: 1.0, ..ClassReport::default() };
                let classes = vec![class; p.setup.classes.len()];
                let disk = network * 2.0;
                Trials { reports: vec![CircusReport { network, disk, classes, ..CircusReport::default() }] }
            };
            let results: Vec<Trials> = figure.points.iter().map(of).collect();
            let checks = conclusions::conclusions(&figure, &results);
            assert!(!checks.is_empty() && !checks.iter().all(conclusions::Conclusion::holds), "{number}");
        }
    }
}

#[test]
fn trials_go_on_until_the_interval_is_narrow_or_there_are_enough() {
    let setup = setup(0.3, 16);
    assert_eq!(trials_until(&setup, f64::INFINITY, 5).reports.len(), 2);
    let all = trials_until(&setup, 1e-12, 3);
    assert_eq!(all.reports.len(), 3);
    assert_eq!(all.reports[2], run(&Setup { seed: setup.seed + 2, ..setup }));
}

#[test]
fn without_loss_delay_changes_nothing() {
    let near = setup(0.3, 16);
    let far = Setup { round_trip: Nanos::from_millis(75), ..near.clone() };
    assert!(near.gives_the_same(&far));
    assert_eq!(run(&near), run(&far));
    let lossy = |setup: &Setup| Setup { loss: 0.1, ..setup.clone() };
    assert!(!near.gives_the_same(&lossy(&near)) && !lossy(&near).gives_the_same(&lossy(&far)));
}

/// The order and the queue are all that a sequential server differs in: its memory, above all, is the same.
#[test]
fn both_orders_have_the_same_memory() {
    let base = figures::base(&catalogue::get("cheetah-18gb-10k").unwrap(), 1, Nanos::from_secs(1));
    for number in figures::NUMBERS {
        for FigurePair { any, sequential } in pairs(figures::figure(number, &base).unwrap()) {
            assert_eq!(any.block_memory(100), sequential.block_memory(100));
            let mut like = sequential.clone();
            like.server.selection = any.server.selection;
            like.server.queue = any.server.queue;
            assert_eq!(like, any, "figure {number}");
        }
    }
}

/// A point of a figure in both orders.
struct FigurePair {
    any: Setup,
    sequential: Setup,
}

fn pairs(figure: figures::Figure) -> Vec<FigurePair> {
    let of = |point: &figures::FigurePoint| {
        let same = |p: &&figures::FigurePoint| p.sequential && p.curve == point.curve && p.x == point.x;
        let sequential = figure.points.iter().find(same)?.setup.clone();
        Some(FigurePair { any: point.setup.clone(), sequential })
    };
    figure.points.iter().filter(|p| !p.sequential).filter_map(of).collect()
}
