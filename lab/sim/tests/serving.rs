//! The serving simulator as a whole: determinism, golden small runs, what must hold of any run.

use seekless_base::{Bytes, Nanos};
use seekless_model::drive::catalogue as drives;
use seekless_model::drive::set::SetSpec;
use seekless_model::workload::catalogue::{Catalogue, CatalogueSpec};
use seekless_model::workload::closed::ClosedSpec;
use seekless_model::workload::session::paper_classes;
use seekless_policy::sizing::controller::{AdjustBy, Params};
use seekless_policy::{AheadConfig, Config as PolicyConfig, Mode, OrderKind, Sizing};
use seekless_sim::serving::config::{Costs, DiskConfig, Door, EngineConfig, FileSetLoad, Rise, ServerModel};
use seekless_sim::serving::profile::profile_of;
use seekless_sim::serving::search::Search;
use seekless_sim::serving::{self, Config, KernelConfig, Load, Report, readahead, scheduler};

fn catalogue() -> Catalogue {
    Catalogue::new(&CatalogueSpec { size: Some(Bytes::gib(2)), ..CatalogueSpec::default() }).unwrap()
}

fn closed(clients: u32) -> Config {
    Config {
        disks: vec![DiskConfig {
            set: SetSpec::SINGLE,
            drive: drives::get("wd-red-1tb").unwrap(),
            size: Bytes::gib(3),
            speedup: 1.0,
        }],
        memory: Bytes::mib(256),
        kernel: KernelConfig::default(),
        server: ServerModel::nginx(2),
        socket: Bytes::mib(1),
        engine: None,
        costs: Costs::default(),
        load: Load::closed(clients, ClosedSpec::default()),
        file_set: None,
        writer: None,
        warmup: Nanos::from_secs(2),
        length: Nanos::from_secs(10),
    }
}

fn engine(mode: Mode, ahead: bool) -> Option<EngineConfig> {
    let policy = PolicyConfig { mode, ahead: ahead.then(AheadConfig::default), ..PolicyConfig::default() };
    Some(EngineConfig::of_shim(policy))
}

fn sessions(per_s: f64) -> Config {
    let load = Load::Sessions {
        per_s,
        rise: None,
        sessions: u32::MAX,
        classes: paper_classes(),
        warm_start: true,
        timeout: Nanos::from_secs(10),
        seed: 1,
    };
    Config { load, warmup: Nanos::from_secs(20), length: Nanos::from_secs(60), ..closed(1) }
}

fn told(report: &Report) -> String {
    format!("{}\n{}\n{}", report.load_json(), report.disks_json(), report.engines_json())
}

#[test]
fn the_same_run_twice_and_in_another_thread_gives_the_same_bytes() {
    let catalogue = catalogue();
    for config in [
        closed(40),
        Config { engine: engine(Mode::Both, true), server: ServerModel::nginx_threads(2), ..closed(40) },
        Config { engine: engine(Mode::Both, true), ..sessions(60.0) },
    ] {
        let once = told(&serving::run(&config, &catalogue).unwrap());
        let twice = std::thread::scope(|scope| {
            let run = || told(&serving::run(&config, &catalogue).unwrap());
            let (a, b) = (scope.spawn(run), scope.spawn(run));
            [a.join().unwrap(), b.join().unwrap()]
        });
        assert_eq!(twice, [once.clone(), once]);
    }
}

/// Bytes, reads and seeks of a few seconds: they change only when the model or, for the third, the policy
/// does.
#[test]
fn golden_runs() {
    let catalogue = catalogue();
    let figures = |config: &Config| {
        let r = serving::run(config, &catalogue).unwrap();
        (r.requests, r.disks[0].reads, r.disks[0].read_bytes >> 10)
    };
    let got = [
        figures(&closed(20)),
        figures(&Config { engine: engine(Mode::Both, false), ..closed(20) }),
        figures(&Config { engine: engine(Mode::Both, true), server: ServerModel::threads(), ..closed(20) }),
        figures(&sessions(40.0)),
        figures(&Config { engine: engine(Mode::Prefetch, false), ..closed(20) }),
    ];
    assert_eq!(got, GOLDEN);
}

const GOLDEN: [(u64, u64, u64); 5] =
    [(366, 1421, 180440), (857, 788, 390392), (998, 899, 446280), (936, 4511, 565680), (825, 943, 380076)];

/// A shim that reads the longer range by a call of its own goes by the kernel's windows; one that tells the
/// kernel to read ahead goes by its largest requests.
#[test]
fn a_shim_that_reads_for_itself_prefetches_by_the_kernels_windows() {
    let catalogue = catalogue();
    let run = |preads| {
        let mut prefetch = engine(Mode::Prefetch, false).unwrap();
        prefetch.policy.prefetch = Bytes::mib(2);
        let engine = Some(EngineConfig { preads, ..prefetch });
        let kernel = KernelConfig {
            algorithm: readahead::Kind::OnDemand3,
            scheduler: scheduler::Kind::Cfq,
            ..KernelConfig::default()
        };
        let report = serving::run(&Config { kernel, engine, ..sessions(20.0) }, &catalogue).unwrap();
        let disk = &report.disks[0];
        assert!(report.requests > 0 && report.failures == 0);
        disk.read_bytes / disk.reads
    };
    let (whole, windows) = (run(false), run(true));
    assert!(windows * 2 < whole, "{windows} bytes a read by windows, {whole} else");
}

/// A scrub beside clients that never rest has its share of the disk, the rest is theirs, and one seed is one
/// run.
#[test]
fn a_file_set_beside_clients_that_never_rest_has_its_share() {
    let catalogue = catalogue();
    let with = |share: f64, file_set: Option<FileSetLoad>| {
        let mut engine = engine(Mode::Both, true).unwrap();
        engine.policy.share = share;
        let server = ServerModel::nginx_threads(2);
        let length = Nanos::from_secs(90);
        Config { engine: Some(engine), server, file_set, length, ..closed(60) }
    };
    let load = FileSetLoad { window: Bytes::mib(32), range: Bytes::mib(2), rate: 500e6 };
    let without = serving::run(&with(0.1, None), &catalogue).unwrap();
    assert_eq!(without.file_set, None);
    let mut before = 0.0;
    for share in [0.1, 0.3] {
        let config = with(share, Some(load));
        let report = serving::run(&config, &catalogue).unwrap();
        let set = report.file_set.unwrap();
        assert!((set.share / share - 1.0).abs() < 0.1, "{set:?} of {share}");
        assert!(set.mb_per_s > before, "{set:?}");
        before = set.mb_per_s;
        assert!(report.mb_per_s > without.mb_per_s * (1.0 - share) * 0.8, "{}", report.mb_per_s);
        assert_eq!(told(&report), told(&serving::run(&config, &catalogue).unwrap()));
    }
}

/// A server that comes back under load, its memory empty and all viewers in the middle of their films: it is
/// behind for a while, and then it is not. (Those who were left to themselves or let go had the disk seek for
/// good.)
#[test]
fn viewers_who_come_back_all_at_once_are_served_again() {
    let size = Some(Bytes::gib(100));
    let catalogue = Catalogue::new(&CatalogueSpec { size, ..CatalogueSpec::default() }).unwrap();
    for automatic in [false, true] {
        let mut engine = engine(Mode::Both, true).unwrap();
        engine.policy.prefetch = Bytes::mib(2);
        if automatic {
            engine.policy.sizing = Sizing::Auto(Params::default());
            engine.policy.profile = Some(profile_of(&drives::get("wd-red-1tb").unwrap(), &SetSpec::SINGLE));
        }
        let Config { mut disks, .. } = closed(1);
        disks[0].size = Bytes::gib(110);
        let config = Config {
            disks,
            memory: Bytes::gib(4),
            engine: Some(engine),
            server: ServerModel::threads(),
            warmup: Nanos::from_secs(180),
            length: Nanos::from_secs(240),
            ..sessions(160.0)
        };
        let report = serving::run(&config, &catalogue).unwrap();
        let failed = report.failed_share();
        assert!(report.requests > 5000 && failed < 0.01, "{automatic}: {} {failed}", report.requests);
    }
}

/// \[A\] 4.1: pieces of 8 MiB for SD viewers are evicted before use. By the bitrate, which the server knows,
/// the size falls at once to what is used within the eviction time; the gradient alone does not find it.
#[test]
fn evictions_set_the_size_of_the_papers_controller_by_the_bitrate() {
    let size = Some(Bytes::gib(20));
    let catalogue = Catalogue::new(&CatalogueSpec { size, ..CatalogueSpec::default() }).unwrap();
    let size_with = |tells_bitrates| {
        let mut engine = engine(Mode::Both, false).unwrap();
        engine.tells_bitrates = tells_bitrates;
        engine.policy.start_size = Some(Bytes::mib(8));
        engine.policy.sizing = Sizing::Auto(Params {
            adjust_by: AdjustBy::Gradient,
            adjust_interval: Nanos::from_secs(20),
            ..Params::default()
        });
        let Config { mut disks, .. } = closed(1);
        disks[0].size = Bytes::gib(22);
        let config = Config {
            disks,
            memory: Bytes::mib(512),
            engine: Some(engine),
            server: ServerModel::threads(),
            warmup: Nanos::from_secs(60),
            length: Nanos::from_secs(120),
            ..sessions(60.0)
        };
        let report = serving::run(&config, &catalogue).unwrap();
        report.engines_json()[0]["size"]["target"].as_u64().unwrap()
    };
    let (told, untold) = (size_with(true), size_with(false));
    assert!(told <= 4 << 20 && untold >= 7 << 20, "{told} {untold}");
}

/// Every mode, server and scheduler: time passes, clients are served, nothing is counted that cannot be.
#[test]
fn whatever_is_combined_the_books_balance() {
    let catalogue = catalogue();
    let servers = [
        ServerModel::nginx(2),
        ServerModel::nginx_threads(2),
        ServerModel::nginx_reads(2),
        ServerModel::apache(),
        ServerModel::apache_send(),
        ServerModel::lighttpd(),
        ServerModel::threads(),
    ];
    let kinds = [scheduler::Kind::None, scheduler::Kind::Deadline, scheduler::Kind::Fair];
    for (i, server) in servers.into_iter().enumerate() {
        for (j, mode) in Mode::ALL.into_iter().enumerate() {
            let mut config = closed(30);
            config.server = server;
            config.kernel.scheduler = kinds[(i + j) % 3];
            config.engine = engine(mode, j % 2 == 0);
            if let Some(e) = &mut config.engine {
                e.policy.order = OrderKind::ALL[(i + j) % 2];
                e.window = (i % 2 == 1).then_some(Bytes::mib(1));
            }
            let r = serving::run(&config, &catalogue).unwrap();
            let what = format!("{server:?} {mode:?}");
            assert!(r.requests > 30, "{what}: {} requests", r.requests);
            let d = &r.disks[0];
            assert!(d.busy_ns <= d.elapsed_ns && d.elapsed_ns == 8_000_000_000, "{what}: {d:?}");
            // The drive cannot give more than its outer rate, and clients get no byte that was never read.
            assert!(d.read_bytes as f64 / 8.0 < 134e6, "{what}: {}", d.read_bytes);
            assert!(r.latency_ms["p50"] <= r.latency_ms["p99"], "{what}");
        }
    }
}

#[test]
fn what_is_in_memory_costs_no_disk() {
    let spec = CatalogueSpec { size: Some(Bytes::mib(64)), ..CatalogueSpec::default() };
    let catalogue = Catalogue::new(&spec).unwrap();
    let config = Config { warmup: Nanos::from_secs(8), ..closed(20) };
    let r = serving::run(&config, &catalogue).unwrap();
    assert_eq!(r.disks[0].reads, 0);
    assert!(r.mb_per_s > 500.0, "{}", r.mb_per_s);
}

#[test]
fn viewers_fail_when_the_disk_cannot_keep_up_and_only_then() {
    let catalogue = catalogue();
    let light = serving::run(&sessions(10.0), &catalogue).unwrap();
    assert_eq!(light.sessions.unwrap().failed, 0);
    let heavy = serving::run(&sessions(400.0), &catalogue).unwrap();
    assert!(heavy.failed_share() > 0.05, "{}", heavy.failed_share());
    let search =
        Search { first: 20.0, highest: 500.0, max_failed: 0.003, precision: 0.1, runs: 10, expected: None };
    let found = serving::search(&sessions(1.0), &catalogue, &search, |_| {}).unwrap();
    let (rate, report) = found.best.unwrap();
    assert!((10.0..400.0).contains(&rate) && report.failed_share() < 0.003);
}

#[test]
fn a_search_that_ends_bad_runs_early_finds_what_whole_runs_say() {
    let catalogue = catalogue();
    let search =
        Search { first: 100.0, highest: 500.0, max_failed: 0.01, precision: 0.1, runs: 10, expected: None };
    let found = serving::search(&sessions(1.0), &catalogue, &search, |_| {}).unwrap();
    assert!(found.steps.iter().any(|s| !s.good && s.until_s < 60.0), "{:?}", found.steps);
    for step in &found.steps {
        let whole = serving::run(&sessions(step.rate_per_s), &catalogue).unwrap();
        let all = whole.sessions.unwrap();
        let share = whole.failed_share().max(all.failed as f64 / all.started as f64);
        assert_eq!(share < 0.01, step.good, "{step:?} {all:?}");
    }
}

#[test]
fn a_search_that_knows_its_result_makes_two_runs_for_it() {
    let catalogue = catalogue();
    let search =
        Search { first: 100.0, highest: 500.0, max_failed: 0.01, precision: 0.1, runs: 10, expected: None };
    let find = |expected| serving::search(&sessions(1.0), &catalogue, &Search { expected, ..search }, |_| {});
    let whole = find(None).unwrap();
    let (rate, report) = whole.best.unwrap();
    for expected in [rate, rate * 1.3] {
        let found = find(Some(expected)).unwrap();
        let (same, again) = found.best.unwrap();
        assert_eq!((same, again.load_json(), again.events), (rate, report.load_json(), report.events));
        assert!(found.steps.len() < whole.steps.len(), "{:?}", found.steps);
    }
    assert_eq!(find(Some(rate)).unwrap().steps.len(), 2);
}

#[test]
fn several_disks_have_their_own_clients_and_queues() {
    let catalogue = catalogue();
    let mut config = closed(20);
    config.server = ServerModel::threads();
    config.engine = engine(Mode::Both, true);
    let one = serving::run(&config, &catalogue).unwrap();
    config.disks.push(config.disks[0].clone());
    let two = serving::run(&config, &catalogue).unwrap();
    assert!(two.mb_per_s > 1.7 * one.mb_per_s, "{} {}", two.mb_per_s, one.mb_per_s);
    assert_eq!((two.disks.len(), two.engines.len()), (2, 2));
}

#[test]
fn a_library_that_does_not_fit_is_refused() {
    let mut config = closed(1);
    config.disks[0].size = Bytes::gib(1);
    assert!(serving::run(&config, &catalogue()).unwrap_err().contains("--size"));
}

/// One client of a microbenchmark of the competitive prefetching paper, from a cold memory: requests,
/// commands and KiB read.
fn micro(handler: &str, algorithm: readahead::Kind, competitive: bool) -> (u64, u64, u64) {
    let spec =
        CatalogueSpec { videos: Some(6000), file_size: Some(Bytes::mib(4)), ..CatalogueSpec::default() };
    let catalogue = Catalogue::new(&spec).unwrap();
    let kernel = KernelConfig { algorithm, competitive, ..KernelConfig::default() };
    let config = Config {
        disks: vec![DiskConfig {
            set: SetSpec::SINGLE,
            drive: drives::get("ibm-36gb-10k").unwrap(),
            size: Bytes(30_000_000_000),
            speedup: 1.0,
        }],
        memory: Bytes::gib(1),
        kernel,
        server: ServerModel::handlers(),
        load: Load::Handlers { clients: 1, handler: handler.parse().unwrap(), seed: 1 },
        warmup: Nanos::ZERO,
        // Too short for a file to be chosen twice.
        length: Nanos::from_millis(1500),
        ..closed(1)
    };
    let r = serving::run(&config, &catalogue).unwrap();
    assert!(r.requests > 10, "{handler}: {}", r.requests);
    (r.requests, r.disks[0].reads, r.disks[0].read_bytes >> 10)
}

/// Counted by hand from the windows of `TwoWindows`' own tests, up to one request that is under way at the
/// end.
#[test]
fn microbenchmarks_read_what_they_say() {
    use readahead::Kind::{Linux26, OnDemand};
    // 16 pages, 31 windows of 32, and the last 16 pages.
    let (requests, reads, kib) = micro("one-whole-0", Linux26, false);
    assert!((requests * 33..=(requests + 1) * 33).contains(&reads), "{requests} {reads}");
    assert!((requests * 4096..=(requests + 1) * 4096).contains(&kib), "{requests} {kib}");
    // A block of 16 pages, and behind its last page the next window of 32, less of both at the end of a file.
    let (requests, reads, kib) = micro("four-64kb-0", Linux26, false);
    assert!(reads <= (requests + 1) * 8 && reads > requests * 8 - requests / 5, "{requests} {reads}");
    assert!(kib <= (requests + 1) * 768 && kib > requests * 768 - requests * 20, "{requests} {kib}");
    // Today's kernel takes a block inside a file as it is, and reads on only from the head: a block in 64.
    let (requests, reads, kib) = micro("four-64kb-0", OnDemand, false);
    assert!((requests * 4..=requests * 9 / 2).contains(&reads), "{requests} {reads}");
    assert!((requests * 256..=requests * 280).contains(&kib), "{requests} {kib}");
}

/// \[C\] section 2: 132 pages where the unchanged kernel reads 32, after windows of 16, 32, 64 and 128.
#[test]
fn a_competitive_kernel_makes_less_than_half_the_commands() {
    use readahead::Kind::{Linux26, Linux26Doubling};
    let (requests, reads, kib) = micro("one-whole-0", Linux26Doubling, true);
    let (plain, commands, _) = micro("one-whole-0", Linux26, false);
    let (per_file, before) = (reads as f64 / requests as f64, commands as f64 / plain as f64);
    assert!(per_file < before / 2.0, "{per_file} {before}");
    assert!(kib >= requests * 4096);
}

#[test]
fn one_reader_who_never_waits_is_near_the_optimum_and_who_thinks_is_not() {
    let spec =
        CatalogueSpec { videos: Some(6000), file_size: Some(Bytes::mib(4)), ..CatalogueSpec::default() };
    let catalogue = Catalogue::new(&spec).unwrap();
    let run = |handler: &str| {
        let config = Config {
            disks: vec![DiskConfig {
                set: SetSpec::SINGLE,
                drive: drives::get("ibm-36gb-10k").unwrap(),
                size: Bytes(30_000_000_000),
                speedup: 1.0,
            }],
            server: ServerModel::handlers(),
            load: Load::Handlers { clients: 1, handler: handler.parse().unwrap(), seed: 1 },
            length: Nanos::from_secs(30),
            ..closed(1)
        };
        serving::run(&config, &catalogue).unwrap()
    };
    let whole = run("one-whole-0");
    // [C] section 3.2 estimates 45.3 MB/s for whole files, 40.5 for random portions.
    assert!((whole.optimum_mb_per_s / 45.3 - 1.0).abs() < 0.04, "{}", whole.optimum_mb_per_s);
    assert!((0.9..1.1).contains(&whole.of_optimum), "{}", whole.of_optimum);
    let rand = run("one-rand-10");
    assert!((rand.optimum_mb_per_s / 40.5 - 1.0).abs() < 0.06, "{}", rand.optimum_mb_per_s);
    assert!(rand.of_optimum < 0.75, "{}", rand.of_optimum);
}

#[test]
fn through_the_door_on_which_no_call_waits_streams_are_read_ahead_all_the_same() {
    let catalogue = catalogue();
    let run = |engine: Option<EngineConfig>, server| {
        serving::run(&Config { engine, server, ..closed(40) }, &catalogue).unwrap()
    };
    let behind = |door, server| run(engine(Mode::Both, true).map(|e| EngineConfig { door, ..e }), server);
    let without = run(None, ServerModel::nginx(2));
    let [shim, watch, observe] =
        [Door::Shim, Door::Watch, Door::Observe].map(|door| behind(door, ServerModel::nginx(2)));
    // Observed, the first reads of streams are the kernel's. The engine reads the rest.
    let rate = |report: &Report| report.mb_per_s;
    let rates = [&without, &shim, &watch, &observe].map(rate);
    assert!(rates[3] > 1.2 * rates[0] && rates[3] < 1.05 * rates[1], "{rates:?}");
    // No call waits for the engine, so it answers none.
    let asked = |report: &Report| report.engines.iter().map(|e| e.requests).sum::<u64>();
    assert_eq!([&shim, &watch, &observe].map(|report| asked(report) > 0), [true, true, false]);
    // A map has no calls. Observed, it is read ahead of.
    let read = |door| behind(door, ServerModel::apache()).engines.iter().map(|e| e.reads).sum::<u64>();
    assert_eq!(read(Door::Shim), 0);
    assert!(read(Door::Observe) > 0);
}

#[test]
fn the_shim_divides_long_sends_so_that_the_engine_hears_of_all_of_them() {
    let catalogue = catalogue();
    let closed = closed(20);
    let kernel = KernelConfig { read_ahead: Bytes::kib(2560), ..closed.kernel.clone() };
    let load = Load::closed(20, ClosedSpec { range: Bytes::mib(4), ..ClosedSpec::default() });
    let share = |door| {
        let engine = engine(Mode::Both, true).map(|e| EngineConfig { door, ..e });
        let config = Config { engine, kernel: kernel.clone(), load: load.clone(), ..closed.clone() };
        let report = serving::run(&Config { server: ServerModel::threads(), ..config }, &catalogue).unwrap();
        report.engines[0].bytes_read as f64 / report.disks[0].read_bytes as f64
    };
    // Announced whole, a part of a send is the kernel's own read-ahead.
    let [shim, watch] = [Door::Shim, Door::Watch].map(share);
    assert!(shim > 0.9 && watch < 0.9, "{shim} {watch}");
}

#[test]
fn a_run_of_so_many_sessions_ends_with_the_last() {
    let catalogue = catalogue();
    let bounded = |sessions: u32| {
        let load = Load::Sessions {
            per_s: 20.0,
            rise: None,
            sessions,
            classes: paper_classes(),
            warm_start: false,
            timeout: Nanos::from_secs(10),
            seed: 1,
        };
        let config =
            Config { load, warmup: Nanos::from_secs(1), length: Nanos::from_secs(9000), ..closed(1) };
        serving::run(&config, &catalogue).unwrap()
    };
    let (few, more) = (bounded(20), bounded(60));
    for (report, sessions) in [(&few, 20), (&more, 60)] {
        let counted = report.sessions.as_ref().unwrap();
        assert_eq!((counted.started, counted.completed + counted.failed), (sessions, sessions));
    }
    // The longest film of the library lasts no longer than an hour.
    assert!(few.length_s <= more.length_s && more.length_s < 3600.0, "{} {}", few.length_s, more.length_s);
}

#[test]
fn a_rate_that_rises_offers_its_first_share_at_first() {
    let catalogue = catalogue();
    let offered = |rising: Option<Rise>| {
        let mut config = Config { length: Nanos::from_secs(320), ..sessions(20.0) };
        if let Load::Sessions { rise, .. } = &mut config.load {
            *rise = rising;
        }
        serving::run(&config, &catalogue).unwrap().offered_per_s
    };
    let half = offered(Some(Rise { from: 0.5, over: Nanos::from_secs(100_000) }));
    let share = half / offered(None);
    assert!((0.35..0.65).contains(&share), "{share}");
}

/// The estimate of the competitive prefetching paper has no memory, so what is read from memory is not in it.
#[test]
fn the_estimate_is_below_the_optimum_where_memory_helps() {
    let catalogue = catalogue();
    let small = serving::run(&closed(4), &catalogue).unwrap();
    let large = serving::run(
        &Config { memory: Bytes::gib(3), length: Nanos::from_secs(200), ..closed(4) },
        &catalogue,
    )
    .unwrap();
    for report in [&small, &large] {
        assert!(
            report.estimate_mb_per_s > 0.0 && report.estimate_mb_per_s <= report.optimum_mb_per_s * 1.000_001
        );
    }
    assert!(large.optimum_mb_per_s > 1.2 * large.estimate_mb_per_s, "{}", large.optimum_mb_per_s);
}

#[test]
fn a_call_of_the_userver_reads_what_the_socket_takes() {
    let catalogue = catalogue();
    let run = |server, socket| {
        let kernel = KernelConfig {
            algorithm: readahead::Kind::Cluster,
            max_request: Bytes::kib(128),
            max_command: Bytes::kib(128),
            ..KernelConfig::default()
        };
        let policy = PolicyConfig { order: OrderKind::Fifo, ..PolicyConfig::default() };
        let engine = EngineConfig {
            window: Some(Bytes::kib(128)),
            ..EngineConfig::of_shim(PolicyConfig { mode: Mode::Serialise, ..policy })
        };
        let config = Config { kernel, server, socket, engine: Some(engine), ..sessions(20.0) };
        let report = serving::run(&config, &catalogue).unwrap();
        report.engines[0].bytes_read as f64 / report.engines[0].reads as f64
    };
    let (small, large) = (Bytes::kib(128), Bytes::mib(2));
    assert!(run(ServerModel::userver(4), small) <= 128.0 * 1024.0 + 8192.0);
    assert!(run(ServerModel::userver(4), large) > 300.0 * 1024.0);
    // nginx names all that is left of the request, whatever the socket takes.
    assert!(run(ServerModel::nginx(4), small) > 300.0 * 1024.0);
}
