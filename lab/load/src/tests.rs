//! The clients against a server that can be wrong, mostly in memory on a clock that stands still.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use seekless_base::{Bytes, Exit, Nanos};
use seekless_model::workload::closed::ClosedSpec;
use seekless_model::workload::content::Content;
use seekless_model::workload::handler::Items;
use seekless_model::workload::httperf;
use seekless_model::workload::session::{Rate, SessionSpec, Sessions, paper_classes};
use tokio::net::TcpListener;
use tokio::task::LocalSet;
use tokio::time::Instant;

use crate::clock::Clock;
use crate::closed::{ClosedRun, clients, closed};
use crate::connection::{ClientConnection, ClientLink, FetchRequest};
use crate::failure::{Failure, KINDS};
use crate::record::{Live, Recorder, ResponseTimes};
use crate::replay::{self, ReplayRun};
use crate::report::RunReport;
use crate::run::{Finished, RunSettings, Worker};
use crate::sessions::{SessionRun, arrivals};
use crate::target::TargetServer;
use crate::test_server::{Fault, TestServer};

fn settings(target: TargetServer) -> RunSettings {
    RunSettings {
        target,
        verify: true,
        speedup: 1.0,
        threads: 1,
        warmup: Nanos::ZERO,
        length: None,
        classes: vec!["a".into(), "b".into()],
        progress: false,
    }
}

/// Runs `work` for at most `seconds` of a clock that stands still, and returns what was counted.
async fn on<F: Future<Output = ()>>(
    server: &Arc<TestServer>,
    seconds: u64,
    work: impl FnOnce(Rc<Worker>) -> F,
) -> Recorder {
    at(server.in_memory(), seconds, work).await
}

async fn at<F: Future<Output = ()>>(
    target: TargetServer,
    seconds: u64,
    work: impl FnOnce(Rc<Worker>) -> F,
) -> Recorder {
    let settings = settings(target);
    let worker = Worker::new(&settings, Clock::start(1.0), Arc::new(Live::default()), (0, 1));
    LocalSet::new()
        .run_until(async {
            tokio::select! {
                () = work(worker.clone()) => {}
                () = tokio::time::sleep(Duration::from_secs(seconds)) => {}
            }
        })
        .await;
    worker.record(|r| r.clone())
}

/// One request for `len` bytes from `first` of the first file, due now.
async fn ask(
    client: &mut ClientConnection,
    server: &TestServer,
    first: u64,
    len: u64,
    due: Nanos,
) -> Result<ResponseTimes, Failure> {
    let video = &server.catalogue.videos()[0];
    let content = Content::of_path(&video.path);
    let ask = FetchRequest {
        path: &video.path,
        range: Some((first, Some(first + len - 1))),
        file_size: Some(video.size.0),
        content: Some(&content),
        headers: &[],
        due,
        timeout: Nanos::from_secs(10),
    };
    client.fetch(&ask).await
}

/// The result of one such request against a server with `fault`.
async fn one(fault: Fault) -> (Result<ResponseTimes, Failure>, Recorder) {
    let server = TestServer::new(fault);
    let mut result = None;
    let record = on(&server, 100, async |worker| {
        let mut client = ClientConnection::new(worker, ClientLink::default());
        result = Some(ask(&mut client, &server, 1000, 50_000, Nanos::ZERO).await);
    })
    .await;
    (result.expect("the request ended"), record)
}

#[tokio::test(start_paused = true)]
async fn each_fault_of_the_server_is_named() {
    let (result, record) = one(Fault::None).await;
    assert!(result.is_ok() && record.total.bytes == 50_000 && record.total.failures == 0, "{result:?}");

    let (result, record) = one(Fault::Corrupt(33_333)).await;
    let Err(Failure::WrongByte { offset: 33_333, expected, got }) = result else { panic!("{result:?}") };
    assert_eq!(expected ^ got, 0x40);
    assert_eq!(record.corruption.as_ref().unwrap().path, "sd/000000.mp4");

    assert_eq!(one(Fault::Corrupt(999)).await.0.err(), None, "outside the range");
    let (result, _) = one(Fault::Short(7)).await;
    assert_eq!(result, Err(Failure::Short { got: 49_993, expected: 50_000 }));
    assert_eq!(one(Fault::Status(503)).await.0, Err(Failure::Status(503)));
    assert_eq!(one(Fault::NoRanges).await.0, Err(Failure::Status(200)));
    let (result, record) = one(Fault::WrongRange).await;
    let Err(Failure::Range(text)) = result else { panic!("{result:?}") };
    assert!(text.contains("bytes 1001-50999") && text.contains("1000-50999"), "{text}");
    assert!(record.corruption.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_request_that_takes_too_long_fails_at_its_deadline_counted_from_when_it_was_due() {
    let server = TestServer::new(Fault::Stall(0, Duration::from_secs(9)));
    let record = on(&server, 100, async |worker| {
        let mut client = ClientConnection::new(worker.clone(), ClientLink::default());
        tokio::time::sleep(Duration::from_secs(5)).await;
        // Due 2 s ago: 9 s from now are 11 s from then.
        let due = Nanos::from_secs(3);
        assert_eq!(ask(&mut client, &server, 0, 1000, due).await, Err(Failure::Timeout));
        assert_eq!(worker.clock.now(), Nanos::from_secs(13));
        // Due now, it is in time.
        let due = worker.clock.now();
        let answer = ask(&mut client, &server, 0, 1000, due).await.unwrap();
        assert_eq!(answer.done.since(due), Nanos::from_secs(9));
    })
    .await;
    assert_eq!(record.failures[KINDS.iter().position(|k| *k == "timeout").unwrap()], 1);
    let latency = record.all_classes(|class| &class.latency_us);
    assert_eq!(latency.len(), 2);
    assert!((latency.max() as f64 / 10e6 - 1.0).abs() < 0.001, "the one given up counts with 10 s");
}

#[tokio::test(start_paused = true)]
async fn an_answer_in_time_at_the_socket_but_late_at_the_client_is_late() {
    // 9.95 s at the server and 2 x 50 ms on the way are 10.05 s (and one round trip to connect).
    let server = TestServer::new(Fault::Stall(0, Duration::from_millis(9_950)));
    on(&server, 100, async |worker| {
        let line = ClientLink { delay: Nanos::from_millis(50), ..ClientLink::default() };
        let mut client = ClientConnection::new(worker, line);
        assert_eq!(ask(&mut client, &server, 0, 1000, Nanos::ZERO).await, Err(Failure::Timeout));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn delay_and_link_rate_make_the_latency() {
    let server = TestServer::new(Fault::None);
    on(&server, 100, async |worker| {
        let line = ClientLink { class: 1, link_bits_per_s: Some(3_500_000), delay: Nanos::from_millis(50) };
        let mut client = ClientConnection::new(worker.clone(), line);
        let on_link = 500_000.0 * 8.0 / 3.5e6;
        for (i, round_trips) in [(0, 2.0), (1, 1.0), (2, 1.0)] {
            let due = worker.clock.now();
            let answer = ask(&mut client, &server, i * 500_000, 500_000, due).await.unwrap();
            let took = answer.done.since(due).as_secs_f64();
            let expected = on_link + 0.1 * round_trips;
            // The head of the answer takes its time on the link as well; timers round up to a millisecond.
            assert!((0.0..0.01).contains(&(took - expected)), "{i}: {took} s, expected {expected}");
            worker.clock.sleep_until(answer.done).await;
            tokio::time::sleep(Duration::from_secs(3)).await;
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_closed_connection_is_made_again() {
    for (fault, reconnects) in [(Fault::CloseAfterEach, 9), (Fault::CloseOnSecond, 9)] {
        let server = TestServer::new(fault);
        let record = on(&server, 100, async |worker| {
            let mut client = ClientConnection::new(worker.clone(), ClientLink::default());
            for i in 0..10 {
                let due = worker.clock.now();
                ask(&mut client, &server, i * 1000, 1000, due).await.unwrap();
            }
        })
        .await;
        assert_eq!((record.total.requests, record.reconnects), (10, reconnects), "{fault:?}");
    }
}

#[tokio::test]
async fn a_connection_that_is_reset_instead_of_closed_is_made_again() {
    let server = TestServer::new(Fault::CloseOnSecond);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let serving = server.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            stream.set_zero_linger().unwrap();
            tokio::spawn(serving.clone().serve(stream));
        }
    });
    let record = at(TargetServer::parse(&url, None).unwrap(), 60, async |worker| {
        let mut client = ClientConnection::new(worker.clone(), ClientLink::default());
        for i in 0..3 {
            ask(&mut client, &server, i * 1000, 1000, worker.clock.now()).await.unwrap();
        }
    })
    .await;
    assert_eq!((record.total.requests, record.reconnects), (3, 2));
}

#[tokio::test(start_paused = true)]
async fn the_closed_loop_counts_what_the_server_sent() {
    let server = TestServer::new(Fault::None);
    let line = ClientLink { class: 0, link_bits_per_s: Some(8_000_000), delay: Nanos::from_millis(100) };
    let plan = ClosedRun {
        catalogue: server.catalogue.clone(),
        spec: ClosedSpec { range: Bytes(100_000), ..ClosedSpec::default() },
        handler: None,
        clients: 10,
        line,
        timeout: Nanos::from_secs(60),
    };
    let record = on(&server, 60, |worker| clients(worker, Arc::new(plan))).await;
    assert_eq!(record.total.failures, 0, "{:?}", record.examples);
    let sent = server.sent.load(Ordering::Relaxed);
    // What was sent and not received is in the buffers between: 64 KiB a client.
    assert!(record.total.bytes <= sent && sent - record.total.bytes <= 10 * (80 << 10));
    // A range takes 0.1 s on the link and 0.2 s of delay: 3.3 a second a client (the last of a file is
    // shorter).
    let per_s = record.total.bytes as f64 / 60.0 / 10.0;
    assert!((310_000.0..=334_000.0).contains(&per_s), "{per_s}");
    assert_eq!(record.seconds.iter().map(|s| s.tally.bytes).sum::<u64>(), record.total.bytes);
    assert_eq!(record.windows.iter().map(|w| w.answered).sum::<u64>(), record.total.requests);
}

#[tokio::test(start_paused = true)]
async fn handlers_ask_block_by_block_and_think() {
    let server = TestServer::new(Fault::None);
    let handler = "two-64kb-1000".parse().unwrap();
    let plan = ClosedRun {
        catalogue: server.catalogue.clone(),
        spec: ClosedSpec::default(),
        handler: Some((handler, Items::new(&server.catalogue, handler))),
        clients: 10,
        line: ClientLink::default(),
        timeout: Nanos::from_secs(60),
    };
    let record = on(&server, 60, |worker| clients(worker, Arc::new(plan))).await;
    assert_eq!(record.total.failures, 0, "{:?}", record.examples);
    // Two blocks, and four seconds of thinking: 15 requests of a handler in a minute, a few of their blocks
    // before the first pause.
    assert!((10 * 28..=10 * 32).contains(&record.total.requests), "{}", record.total.requests);
    assert_eq!(record.total.bytes, record.total.requests * 65_536);
}

fn session_plan(server: &TestServer, sessions: u32, delay: Nanos) -> SessionRun {
    let mut classes = paper_classes();
    for class in &mut classes {
        class.delay = delay;
    }
    SessionRun {
        catalogue: server.catalogue.clone(),
        spec: SessionSpec {
            rate: Rate::Constant { per_s: 20.0 },
            sessions,
            warm_start: false,
            classes,
            seed: 3,
        },
        max_clients: 1000,
        timeout: Nanos::from_secs(10),
    }
}

#[tokio::test(start_paused = true)]
async fn sessions_keep_their_schedule_to_the_millisecond() {
    let server = TestServer::new(Fault::None);
    let delay = Nanos::from_millis(50);
    let mut plan = session_plan(&server, 1, delay);
    // A session long enough to be paced.
    let session = loop {
        let session = Sessions::new(&plan.catalogue, &plan.spec).next().unwrap();
        if session.end > 8 {
            break session;
        }
        plan.spec.seed += 1;
    };
    let began = Instant::now();
    let record = on(&server, 2000, |worker| arrivals(worker, Arc::new(plan))).await;
    let seen = server.seen.lock().unwrap();
    assert_eq!(seen.len() as u32, session.end);
    let start = session.start.as_millis_f64();
    for (i, s) in seen.iter().enumerate().skip(3) {
        let at = s.at.duration_since(began).as_secs_f64() * 1e3;
        let due = start + 10_000.0 * (i as f64 - 2.0) + delay.as_millis_f64();
        assert!((0.0..3.0).contains(&(at - due)), "segment {i} asked for at {at} ms, due at {due}");
    }
    // Back to back: the second goes out when the first is complete, all three well within the first ten
    // seconds.
    let third = seen[2].at.duration_since(began).as_secs_f64() * 1e3;
    assert!(third > start + 600.0 && third < start + 10_000.0, "{third}");
    assert_eq!((record.sessions.started, record.sessions.completed, record.sessions.failed), (1, 1, 0));
    assert_eq!(record.reconnects, 0);
    assert!(record.lag_us.len() == u64::from(session.end) && record.lag_us.max() < 3_000);
    let asked: u64 = seen.iter().map(|s| s.len).sum();
    assert_eq!(record.total.bytes, asked);
}

#[tokio::test(start_paused = true)]
async fn a_session_ends_at_its_first_failure() {
    let server = TestServer::new(Fault::Stall(2_000_000, Duration::from_secs(11)));
    let plan = session_plan(&server, 30, Nanos::ZERO);
    let long = Sessions::new(&plan.catalogue, &plan.spec).filter(|s| s.end > 4).count() as u64;
    let record = on(&server, 5000, |worker| arrivals(worker, Arc::new(plan))).await;
    let s = record.sessions;
    // Segment 4 begins past 2 MB: every session that gets there asks for it and then for nothing more.
    assert!(long > 5);
    assert_eq!((s.started, s.failed, s.completed), (30, long, 30 - long));
    assert_eq!(record.total.failures, long);
    let late = server.seen.lock().unwrap().iter().filter(|s| s.first >= 2_000_000).count() as u64;
    assert_eq!(late, long);
}

#[tokio::test(start_paused = true)]
async fn too_many_clients_are_failures_not_memory() {
    let server = TestServer::new(Fault::None);
    let mut plan = session_plan(&server, 200, Nanos::ZERO);
    plan.max_clients = 10;
    let record = on(&server, 5000, |worker| arrivals(worker, Arc::new(plan))).await;
    let overload = record.failures[KINDS.iter().position(|k| *k == "overload").unwrap()];
    assert!(overload > 50 && record.sessions.completed + overload == 200, "{overload}");
}

#[tokio::test(start_paused = true)]
async fn a_session_file_is_replayed_with_its_pauses() {
    let server = TestServer::new(Fault::None);
    let text = "/sd/000000.mp4 headers='Range: bytes=0-99' pace_time=10\n\
        /sd/000001.mp4 headers='Range: bytes=5-' think=3\n\t/sd/000002.mp4\n/sd/000003.mp4 size=1\n";
    let plan = ReplayRun {
        log: httperf::parse(text.as_bytes()).unwrap(),
        sessions: 1,
        rate_per_s: 1.0,
        classes: paper_classes()
            .into_iter()
            .map(|mut c| {
                c.link_bits_per_s = None;
                c.delay = Nanos::ZERO;
                c
            })
            .collect(),
        timeout: Nanos::from_secs(10),
        seed: 1,
    };
    let record = on(&server, 100, |worker| replay::arrivals(worker, Arc::new(plan))).await;
    let seen = server.seen.lock().unwrap();
    let at: Vec<u64> = seen.iter().map(|s| s.at.duration_since(seen[0].at).as_secs()).collect();
    assert_eq!(at, [0, 10, 10, 13]);
    assert_eq!(seen[1].first, 5);
    // `size=1` of the last is not the file's length: that answer is refused.
    assert_eq!((record.total.requests, record.total.failures, record.sessions.failed), (3, 1, 1));
    assert!(record.corruption.is_some());
}

/// Over real sockets, through the public entry, with two worker threads.
#[test]
fn a_real_run_over_loopback_is_complete() {
    let server = TestServer::new(Fault::None);
    let (address, _stop) = listen(server.clone());
    let mut settings = settings(TargetServer::parse(&format!("http://{address}/"), None).unwrap());
    settings.threads = 2;
    settings.length = Some(Nanos::from_secs(4));
    settings.speedup = 4.0;
    settings.warmup = Nanos::from_secs(1);
    settings.classes.truncate(1);
    let plan = ClosedRun {
        catalogue: server.catalogue.clone(),
        spec: ClosedSpec::default(),
        handler: None,
        clients: 8,
        line: ClientLink::default(),
        timeout: Nanos::from_secs(60),
    };
    let finished = closed(&settings, plan).unwrap();
    assert!(!finished.partial);
    let report = RunReport::new("closed", serde_json::Value::Null, &settings, &finished);
    assert_eq!(report.totals.failures, 0, "{:?}", report.failures);
    assert!(report.totals.requests > 0 && report.measured.bytes < report.totals.bytes);
    assert_eq!(report.length_s, 4.0);
    assert_eq!(report.verdict(), Ok(Exit::Ok));
    assert_eq!(report.latency_ms.cdf.last().unwrap().1, 1.0);
    let json: RunReport = serde_json::from_str(&serde_json::to_string(&report).unwrap()).unwrap();
    assert_eq!(json.totals.bytes, report.totals.bytes);
}

#[test]
fn an_observer_ends_a_run_early() {
    let server = TestServer::new(Fault::None);
    let (address, _stop) = listen(server.clone());
    let settings = settings(TargetServer::parse(&format!("http://{address}/"), None).unwrap());
    let plan = Arc::new(session_plan(&server, 1000, Nanos::ZERO));
    let finished =
        crate::sessions::sessions(&settings, plan, |_, live| live.offered.load(Ordering::Relaxed) < 3)
            .unwrap();
    assert!(finished.stopped && finished.record.sessions.started >= 1);
}

#[test]
fn the_verdict_names_the_first_wrong_place() {
    let settings = settings(TargetServer::memory(|| tokio::io::duplex(1).0));
    let verdict = |failure: &Failure| {
        let mut record = Recorder::new(&settings.classes, Nanos::ZERO);
        record.failure(0, Nanos::ZERO, Nanos::ZERO, failure, "sd/000007.mp4", 4096);
        let finished = Finished {
            record,
            length: Nanos::from_secs(1),
            wall_s: 1.0,
            cpu_s: 0.1,
            partial: false,
            stopped: false,
        };
        RunReport::new("closed", serde_json::Value::Null, &settings, &finished).verdict().unwrap_err()
    };
    let fault = verdict(&Failure::WrongByte { offset: 5000, expected: 1, got: 2 });
    assert_eq!(fault.exit, Exit::Failed);
    for part in ["sd/000007.mp4", "5000", "0x01", "0x02", "1 such"] {
        assert!(fault.message.contains(part), "{part}: {fault}");
    }
    let fault = verdict(&Failure::Status(404));
    assert!(fault.message.contains("not one of 1 requests") && fault.message.contains("404"), "{fault}");
}

/// Serves on a loopback port until the returned guard is dropped.
fn listen(server: Arc<TestServer>) -> (std::net::SocketAddr, tokio::sync::oneshot::Sender<()>) {
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            tell.send(listener.local_addr().unwrap()).unwrap();
            let accept = async {
                while let Ok((stream, _)) = listener.accept().await {
                    tokio::spawn(server.clone().serve(stream));
                }
            };
            tokio::select! { () = accept => {}, _ = stopped => {} }
        });
    });
    (told.recv().unwrap(), stop)
}
