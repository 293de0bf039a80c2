//! The tools of operators: metrics, `top`, and the switch that passes every call.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::{Bench, Reply, cached, cold_file};
use rustix::process::{Pid, Signal, kill_process};
use seekless_frontend::control;
use seekless_wire::{Call, Frame, PASS_ALL_UNTIL_TOLD, PassReason, Verdict};

const M: u64 = 1 << 20;

#[test]
fn while_every_call_is_passed_nothing_is_read_and_afterwards_it_is() {
    let bench = Bench::start(|_| {});
    let Some(file) = cold_file(16 << 20) else { return };
    control::pass_all(&bench.socket, PASS_ALL_UNTIL_TOLD).unwrap();
    let client = bench.client();
    client.need(&file, Call::Pread, 2 * M, 512 << 10);
    let answer = client.answer();
    assert_eq!((answer.verdict, answer.reason), (Verdict::Pass, PassReason::Mode));
    assert_eq!(cached(&file, 0, 16 * M), 0);
    let status = bench.until("the count", |s| s.counters.passed_all == 1);
    assert!(status.passes_all && status.to_string().contains("every call is passed"), "{status}");
    control::pass_all(&bench.socket, 0).unwrap();
    client.need(&file, Call::Pread, 2 * M, 512 << 10);
    assert_eq!(client.answer().verdict, Verdict::Resident);
    assert!(cached(&file, 2 * M, M) >= 512 << 10);
    assert!(!bench.status().passes_all);
}

#[test]
fn a_prover_that_dies_leaves_the_server_served() {
    let bench = Bench::start(|_| {});
    let client = bench.client();
    client.send(Frame::PassAll { lease_ms: 2_000 }, None);
    assert_eq!(client.hear(), Reply::Other("PassAll"));
    assert!(bench.status().passes_all);
    // Its connection ends, so the lease is not renewed.
    drop(client);
    bench.until("served again", |s| !s.passes_all);
}

/// The program of `examples/`, which cargo builds beside the tests.
fn program() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.ancestors().nth(2).unwrap().join("examples/seekless-daemon")
}

fn run(args: &[&str], socket: &Path) -> Output {
    Command::new(program()).args(args).arg("--socket").arg(socket).stdin(Stdio::null()).output().unwrap()
}

/// A daemon with a metrics address, as a process.
struct Running {
    child: Child,
    folder: tempfile::TempDir,
    metrics: String,
}

impl Running {
    fn start() -> Running {
        let folder = tempfile::tempdir().unwrap();
        let mut child = Command::new(program())
            .args(["daemon", "--include-ssd", "--metrics", "127.0.0.1:0", "--socket"])
            .arg(folder.path().join("d.sock"))
            .env("SEEKLESS_PROFILES", folder.path())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (mut metrics, mut listening) = (String::new(), false);
        for line in BufReader::new(child.stderr.take().unwrap()).lines() {
            let line = line.unwrap();
            if let Some((_, at)) = line.split_once("metrics at http://") {
                metrics = at.trim_end_matches("/metrics").to_string();
            }
            if line.contains("listening at") {
                listening = true;
                break;
            }
        }
        assert!(listening && !metrics.is_empty());
        Running { child, folder, metrics }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("d.sock")
    }

    fn scrape(&self) -> String {
        let mut stream = TcpStream::connect(&self.metrics).unwrap();
        write!(stream, "GET /metrics HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.metrics)
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _ = self.child.wait();
    }
}

#[test]
fn a_daemon_is_scraped_and_written_for_a_textfile_collector() {
    let running = Running::start();
    let answer = running.scrape();
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("\nseekless_enabled 1\n"), "{answer}");
    let to = running.folder.path().join("seekless.prom");
    let out = Command::new(program())
        .args(["daemon", "status", "--prometheus"])
        .arg(&to)
        .arg("--socket")
        .arg(running.socket())
        .output()
        .unwrap();
    assert!(out.status.success(), "{out:?}");
    let text = std::fs::read_to_string(&to).unwrap();
    assert!(text.contains("# TYPE seekless_build_info gauge") && !text.contains("# EOF"), "{text}");
    control::pass_all(&running.socket(), PASS_ALL_UNTIL_TOLD).unwrap();
    assert!(running.scrape().contains("\nseekless_enabled 0\n"));
}

#[test]
fn top_needs_no_terminal_for_scripts_and_says_so_without() {
    let running = Running::start();
    let once = run(&["top", "--once", "--interval", "0.1"], &running.socket());
    let text = String::from_utf8(once.stdout).unwrap();
    assert!(text.starts_with("daemon ") && text.contains("no disk has been read yet"), "{text}");
    let json = run(&["top", "--json", "--interval", "0.1"], &running.socket());
    let view: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert!(
        view["seconds"].as_f64().unwrap() >= 0.1 && view["disks"].as_array().unwrap().is_empty(),
        "{view}"
    );
    let none = run(&["top"], &running.socket());
    let said = String::from_utf8(none.stderr).unwrap();
    assert_eq!((none.status.code(), said.lines().count()), (Some(5), 1), "{said}");
    assert!(said.contains("--once"), "{said}");
    let nobody = run(&["top", "--once"], &running.folder.path().join("other.sock"));
    let said = String::from_utf8(nobody.stderr).unwrap();
    assert_eq!((nobody.status.code(), said.lines().count()), (Some(5), 1), "{said}");
}

#[test]
fn a_metrics_port_in_use_ends_the_daemon_with_status_4_and_one_line() {
    let running = Running::start();
    let second = Command::new(program())
        .args(["daemon", "--include-ssd", "--metrics", &running.metrics, "--socket"])
        .arg(running.folder.path().join("second.sock"))
        .env("SEEKLESS_PROFILES", running.folder.path())
        .output()
        .unwrap();
    let said = String::from_utf8(second.stderr).unwrap();
    assert_eq!(second.status.code(), Some(4), "{said}");
    assert!(said.lines().last().unwrap().contains("--metrics") && said.contains(&running.metrics), "{said}");
}

/// Receives messages like a service manager, as at systemd's `NOTIFY_SOCKET`.
#[test]
fn a_service_manager_hears_that_it_is_ready_alive_and_stopping() {
    let folder = tempfile::tempdir().unwrap();
    let told = std::os::unix::net::UnixDatagram::bind(folder.path().join("notify")).unwrap();
    told.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut child = Command::new(program())
        .args(["daemon", "--include-ssd", "--socket"])
        .arg(folder.path().join("d.sock"))
        .env("SEEKLESS_PROFILES", folder.path())
        .env("NOTIFY_SOCKET", folder.path().join("notify"))
        .env("WATCHDOG_USEC", "400000")
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let hear = || {
        let mut words = [0; 256];
        let n = told.recv(&mut words).unwrap();
        String::from_utf8_lossy(&words[..n]).trim().to_string()
    };
    assert_eq!(hear(), "READY=1");
    let began = Instant::now();
    assert_eq!(
        (hear().as_str(), hear().as_str(), hear().as_str()),
        ("WATCHDOG=1", "WATCHDOG=1", "WATCHDOG=1")
    );
    assert!(began.elapsed() >= Duration::from_millis(300), "half of the time each, not at once");
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    while hear() != "STOPPING=1" {}
    assert!(child.wait().unwrap().success());
}

/// A terminal of its own, ended with the test.
struct Tmux(PathBuf);

impl Tmux {
    fn tmux(&self, words: &[&str]) -> Option<Output> {
        Command::new("tmux").arg("-S").arg(&self.0).args(["-f", "/dev/null"]).args(words).output().ok()
    }

    fn screen(&self) -> String {
        let out = self.tmux(&["capture-pane", "-p"]).unwrap();
        String::from_utf8_lossy(&out.stdout).into_owned()
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

#[test]
fn top_fills_a_real_terminal_of_80_and_of_40_columns_and_ends_with_q() {
    let running = Running::start();
    for (columns, title) in
        [("80", "DISK     SECOND                  READ"), ("40", "DISK     SECOND       READ STREAMS")]
    {
        let tmux = Tmux(running.folder.path().join(format!("tmux-{columns}")));
        let top =
            format!("{} top --interval 0.2 --socket {}", program().display(), running.socket().display());
        match tmux.tmux(&["new-session", "-d", "-x", columns, "-y", "20", &top]) {
            Some(out) if out.status.success() => {}
            other => return println!("skipped: tmux gives no terminal ({other:?})"),
        }
        let until = Instant::now() + Duration::from_secs(30);
        loop {
            let screen = tmux.screen();
            if screen.contains(title) && screen.contains("no disk has been read yet") {
                break;
            }
            assert!(Instant::now() < until, "{columns} columns: {screen}");
            std::thread::sleep(Duration::from_millis(50));
        }
        tmux.tmux(&["send-keys", "q"]);
        while tmux.tmux(&["has-session"]).is_some_and(|out| out.status.success()) {
            assert!(Instant::now() < until, "q does not end it");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}
