//! The decision log of a daemon under pressure: from its events, a fresh engine makes the same decisions,
//! line for line.

mod common;
#[allow(dead_code, reason = "another test file uses the rest")]
#[path = "common/gated.rs"]
mod gated;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::fs::File;
use std::io::{BufRead, BufReader, Lines, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{Bench, Client};
use gated::Gated;
use rustix::event::{PollFd, PollFlags, poll};
use seekless_base::{Bytes, Nanos};
use seekless_engine::DecisionLog;
use seekless_kernel::fdpass::{self, Address};
use seekless_kernel::ring::{Producer, Record};
use seekless_policy::decisions::{Entry, FIRST_LINE, Line};
use seekless_policy::{Action, AheadConfig, DiskEngine, Event, Verdict as Given};
use seekless_wire::{Call, FRAME_BYTES_MAX, Frame, PassReason, Verdict};

const K: u64 = 1 << 10;
const M: u64 = 1 << 20;

/// Environment variable of the process that plays the server.
const SOCKET: &str = "TEST_SERVER_SOCKET";
const FILES: &str = "TEST_SERVER_FILES";

/// Number of calls that are blocked when the server is killed.
const BLOCKED: u64 = 4;

/// A server in a process of its own: it takes orders on its standard input and confirms each on its standard
/// output.
struct Server {
    process: Child,
    orders: ChildStdin,
    says: Lines<BufReader<ChildStdout>>,
}

impl Server {
    fn start(bench: &Bench, disk: &Gated) -> Server {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "the_server_process", "--ignored", "--nocapture", "--test-threads=1"])
            .env(SOCKET, &bench.socket)
            .env(FILES, disk.folder())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let orders = process.stdin.take().unwrap();
        let says = BufReader::new(process.stdout.take().unwrap()).lines();
        Server { process, orders, says }
    }

    /// Gives an order and waits until it is done.
    fn order(&mut self, order: &str) {
        writeln!(self.orders, "{order}").unwrap();
        let done = format!("done {order}");
        assert!(
            self.says.any(|line| line.unwrap().ends_with(&done)),
            "the server ends before `{order}` is done"
        );
    }

    /// SIGKILL: its calls do not return, and its connections are not closed in order.
    fn kill(self) {}
}

impl Drop for Server {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// Not a test: the body of [`Server`]'s process, which is this program again.
#[test]
#[ignore = "the server process of the test below"]
fn the_server_process() {
    let (Ok(socket), Ok(files)) = (std::env::var(SOCKET), std::env::var(FILES)) else { return };
    let connect = || {
        let path = CString::new(Path::new(&socket).as_os_str().as_bytes()).unwrap();
        Client(fdpass::connect(Address::Path(&path)).unwrap())
    };
    let open = |name: &str| File::open(Path::new(&files).join(name)).unwrap();
    let reports = Producer::open(ring(&connect())).unwrap();
    let mut blocked = Vec::new();
    for order in std::io::stdin().lines() {
        let order = order.unwrap();
        match order.split_once(' ').unwrap() {
            ("stream", name) => stream(&connect(), &open(name), &reports),
            ("block", name) => {
                let (client, file) = (connect(), open(name));
                client.need(&file, Call::Pread, 0, 64 * K);
                blocked.push((client, file));
            }
            other => panic!("{other:?}"),
        }
        println!("done {order}");
    }
}

/// The first reads of a client that reads a file from its beginning, as a server's shim makes and reports
/// them.
fn stream(client: &Client, file: &File, reports: &Producer) {
    let about = file.metadata().unwrap();
    let mut buffer = vec![0; 256 << 10];
    for offset in (0..6).map(|i| i * 256 * K) {
        client.need(file, Call::Pread, offset, 256 * K);
        assert_eq!(client.answer().verdict, Verdict::Resident);
        file.read_exact_at(&mut buffer, offset).unwrap();
        let (dev, ino, file_size) = (about.dev(), about.ino(), about.len());
        assert!(reports.push(&Record { dev, ino, offset, len: 256 * K, file_size }));
    }
}

fn ring(client: &Client) -> OwnedFd {
    client.send(Frame::RingAsk, None);
    let mut packet = [0u8; FRAME_BYTES_MAX];
    poll(&mut [PollFd::new(&client.0, PollFlags::IN)], None).unwrap();
    fdpass::receive(client.0.as_fd(), &mut packet).unwrap().descriptor.unwrap()
}

/// The result of a replay.
#[derive(Debug, Default)]
struct Replayed {
    /// Kinds of events and actions, with their outcome if there are several.
    kinds: BTreeSet<String>,
    /// Limits of the machine's memory.
    limits: BTreeSet<u64>,
    /// Budgets that were decided.
    budgets: BTreeSet<u64>,
    actions: u64,
}

/// What a line of a log says, in short.
fn kind(entry: &Entry) -> String {
    let word = |debug: String| debug.split(|c: char| !c.is_alphanumeric()).next().unwrap().to_string();
    match entry {
        Entry::Disk { .. } => "disk".into(),
        Entry::Event(Event::Done { outcome, .. }) => format!("Done {outcome:?}"),
        Entry::Event(event) => word(format!("{event:?}")),
        Entry::Action(Action::Answer { verdict: Given::Pass(reason), .. }) => format!("Answer {reason:?}"),
        Entry::Action(action) => word(format!("{action:?}")),
    }
}

/// Feeds the events of a log to fresh engines and compares their decisions with the log.
///
/// # Errors
/// The first line that differs, and the expected one.
fn replay(log: &str) -> Result<Replayed, String> {
    let mut engines = BTreeMap::new();
    let mut shown = Replayed::default();
    let mut lines = log.lines();
    assert_eq!(lines.next(), Some(FIRST_LINE));
    for text in lines.filter(|line| !line.starts_with('#')) {
        let line: Line = text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
        let (disk, at) = (line.disk, line.at);
        shown.kinds.insert(kind(&line.entry));
        let again = match line.entry {
            Entry::Disk { name, config } => {
                engines.insert(disk, DiskEngine::new((*config).clone()));
                Some(Entry::Disk { name, config })
            }
            Entry::Event(event) => {
                let engine = engines.get_mut(&disk).ok_or("an event before its disk")?;
                engine.handle(at, event);
                shown.budgets.insert(engine.stats().budget);
                if let Event::MemoryLimit(limit) = event {
                    shown.limits.insert(limit.bytes.0);
                }
                Some(Entry::Event(event))
            }
            Entry::Action(_) => {
                shown.actions += 1;
                engines.get_mut(&disk).ok_or("an action before its disk")?.poll_action().map(Entry::Action)
            }
        };
        let again = again.map(|entry| Line { disk, at, entry }.to_string());
        if again.as_deref() != Some(text) {
            return Err(format!("`{text}` was decided; a replay gives {again:?}"));
        }
    }
    Ok(shown)
}

#[test]
fn a_log_of_a_daemon_under_pressure_replays_line_for_line() {
    let Some(disk) = Gated::mount() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("decisions");
    let log = Arc::new(DecisionLog::create(&path, 64 << 20).unwrap());
    let bench = Bench::start(|settings| {
        let mut ahead = AheadConfig::default();
        // Bytes fetched for a client that is gone are given back during the test.
        ahead.streams.idle = Nanos::from_secs(5);
        settings.engine.policy.ahead = Some(ahead);
        settings.engine.policy.reads_in_flight = 1;
        settings.engine.policy.prefetch = Bytes::mib(1);
        settings.engine.decisions = Some(log);
    });
    let mut server = Server::start(&bench, &disk);

    // Evictions: the disk's file system evicts bytes that a stream will read.
    let until = Instant::now() + Duration::from_secs(60);
    for inode in 2.. {
        assert!(Instant::now() < until, "no eviction was noticed: {:?}", bench.status());
        server.order(&format!("stream {inode}"));
        bench.until("what is read ahead", |s| {
            s.disks.iter().any(|d| d.bytes_unread_now > 0 && d.in_flight_now + d.queued_now == 0)
        });
        disk.evict(inode);
        let noticed = || bench.status().disks[0].bytes_evicted_unused > 0;
        let patience = Instant::now() + Duration::from_secs(4);
        while !noticed() && Instant::now() < patience {
            std::thread::sleep(Duration::from_millis(20));
        }
        if noticed() {
            break;
        }
    }

    // Another memory limit: the machine's, minus what this process holds.
    let before = bench.status().disks[0].budget_bytes;
    let ballast = std::hint::black_box(vec![1u8; 256 << 20]);
    server.order("stream 100");
    bench.until("another budget", |s| s.disks[0].budget_bytes != before);
    drop(ballast);

    // A disk error.
    disk.fail(8 * M..9 * M);
    let client = bench.client();
    client.need(disk.open(101), Call::Pread, 8 * M, 64 * K);
    assert_eq!(client.answer().reason, PassReason::DiskError);
    disk.fail(0..0);

    // A server that is killed while its calls are blocked and bytes are read ahead for it.
    server.order("stream 102");
    let unread = |s: &seekless_daemon::StatusReport| s.disks[0].bytes_unread_now > 0;
    bench.until("bytes unread", |s| unread(s) && s.disks[0].in_flight_now + s.disks[0].queued_now == 0);
    disk.set_closed(true);
    for inode in 200..200 + BLOCKED {
        server.order(&format!("block {inode}"));
    }
    let status = bench.until("blocked calls", |s| s.disks[0].waiting_now == BLOCKED);
    assert!(unread(&status), "{status:?}");
    server.kill();
    bench.until("its hang-ups", |s| s.counters.hang_ups == BLOCKED);
    bench.until("their end", |s| s.disks[0].waiting_now == 0);
    disk.set_closed(false);
    bench.until("nothing is kept for it", |s| {
        s.disks[0].bytes_unread_now == 0 && s.disks[0].in_flight_now == 0
    });
    drop(bench);

    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text.lines().last(), Some("# end, 0 lines left out"));
    let shown = replay(&text).unwrap_or_else(|differs| panic!("{differs}"));
    let must = [
        "Request",
        "Access",
        "MemoryLimit",
        "Missing",
        "Cancel",
        "Done Ok",
        "Done Failed",
        "Read",
        "Probe",
        "Answer",
        "Answer Failed",
        "Answer Cancelled",
    ];
    for kind in must {
        assert!(shown.kinds.contains(kind), "no `{kind}` in the log: {:?}", shown.kinds);
    }
    assert!(shown.limits.len() > 1 && shown.budgets.len() > 1, "{shown:?}");
    assert!(shown.actions > 20, "{shown:?}");

    // A log without one of these events is a different log: the comparison must notice.
    for event in ["Missing", "Cancel", "Done"] {
        let is = |line: &str| line.parse::<Line>().is_ok_and(|line| kind(&line.entry).starts_with(event));
        let less: Vec<&str> = text.lines().filter(|line| !is(line)).collect();
        assert!(replay(&less.join("\n")).is_err(), "without `{event}` the log replays all the same");
    }
}
