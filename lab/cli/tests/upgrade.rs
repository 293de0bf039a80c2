//! An upgrade under load: a daemon takes over from the one that runs, as at `systemctl reload` and when a
//! package is upgraded; or the daemon is stopped and another started on its socket, as at `systemctl
//! restart`, also on a socket that systemd holds all the while. No request fails, every byte is right, and
//! the new daemon serves servers that were started with the old one.

mod common;

use std::cell::OnceCell;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::disk::Disk;
use common::http::request;
use common::{Daemon, activated, public_folder, shim};
use rustix::process::Signal;
use seekless_base::Exit;
use seekless_experiments::scenario::{ServerKind, ServerVariant};
use seekless_experiments::server::{Server, Site};
use seekless_model::workload::content::Content;

const FILES: usize = 12;
const FILE_BYTES: u64 = 24 << 20;
/// What a client asks for at a time.
const RANGE: u64 = 256 << 10;
const UPGRADES: usize = 3;
const TAKE_OVERS: usize = 8;
/// A range is answered in milliseconds; a server that waits out a patience of seconds has lost its daemon
/// badly.
const LONGEST: Duration = Duration::from_secs(10);

/// nginx, or what else is here; `None`, with a word, where nothing is.
fn server(dir: &Path, root: &Path, socket: &Path) -> Option<Server> {
    let env = [
        ("LD_PRELOAD".to_string(), shim().display().to_string()),
        ("SEEKLESS_SOCKET".to_string(), socket.display().to_string()),
    ];
    for kind in [ServerKind::Nginx, ServerKind::Lighttpd] {
        let dir = dir.join(kind.name());
        let site = Site { dir: &dir, root, env: &env, options: &[], group: None, tls: false };
        match Server::start(kind, ServerVariant::Threads, &site) {
            Err(fault) if fault.exit == Exit::Missing => println!("skipped: {fault}"),
            started => return Some(started.unwrap()),
        }
    }
    None
}

/// Reads a file range by range, for ever; counts what came, and tells of what did not.
fn client(to: SocketAddr, root: &Path, name: &str, stop: &AtomicBool, answered: &AtomicU64) {
    let content = Content::of_path(name);
    let mut expected = vec![0; RANGE as usize];
    let mut round = 0;
    while !stop.load(Ordering::Relaxed) {
        if round > 0 {
            common::forget(&root.join(name));
        }
        round += 1;
        for offset in (0..FILE_BYTES).step_by(RANGE as usize) {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            let range = format!("bytes={offset}-{}", offset + RANGE - 1);
            let since = Instant::now();
            let answer = request(to, "GET", &format!("/{name}"), &[("Range", &range)]).unwrap();
            assert!(answer.status_line.contains(" 206 "), "{name} {range}: {}", answer.status_line);
            content.fill(offset, &mut expected);
            assert!(answer.body == expected, "{name} {range}: other bytes, or {} of them", answer.body.len());
            assert!(since.elapsed() < LONGEST, "{name} {range} took {:?}", since.elapsed());
            answered.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Calls that this daemon was asked about.
fn needs(daemon: &Daemon) -> u64 {
    daemon.status().and_then(|s| s["counters"]["needs"].as_u64()).unwrap_or(0)
}

/// Waits until `done`; false after a while.
fn soon(done: impl Fn() -> bool) -> bool {
    let until = Instant::now() + Duration::from_secs(20);
    while Instant::now() < until {
        if done() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}

/// A server with clients, and its daemon replaced `times` times by `replace`, which is told of a way to see
/// another answer. A daemon is replaced once it has been asked something.
fn under_load(
    times: usize,
    start: impl Fn(&Path) -> Daemon,
    replace: impl Fn(&mut Daemon, &Path, &dyn Fn()),
) {
    let names: Vec<String> = (0..FILES).map(|i| format!("f{i:02}")).collect();
    let files: Vec<(&str, u64)> = names.iter().map(|name| (name.as_str(), FILE_BYTES)).collect();
    let Some(disk) = Disk::up(&files) else { return };
    let root = disk.mount();
    names.iter().for_each(|name| common::forget(&root.join(name)));
    let dir = public_folder();
    let mut daemon = start(dir.path());
    let Some(server) = server(dir.path(), &root, &daemon.socket) else { return };
    let to: SocketAddr = server.url().trim_start_matches("http://").trim_end_matches('/').parse().unwrap();
    let (stop, answered) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let clients: Vec<_> =
            names.iter().map(|name| scope.spawn(|| client(to, &root, name, &stop, &answered))).collect();
        // A client that has failed ends the test at the end of the scope, whatever follows.
        let well = || clients.iter().all(|client| !client.is_finished());
        for upgrade in 0..times {
            if !soon(|| !well() || needs(&daemon) > 0) || !well() {
                stop.store(true, Ordering::Relaxed);
                assert!(!well(), "upgrade {upgrade}: this daemon is asked nothing");
                return;
            }
            replace(&mut daemon, dir.path(), &|| {
                let before = answered.load(Ordering::Relaxed);
                soon(|| !well() || answered.load(Ordering::Relaxed) >= before + FILES as u64);
            });
        }
        let asked = soon(|| !well() || needs(&daemon) > 0);
        stop.store(true, Ordering::Relaxed);
        assert!(asked, "the last daemon is asked nothing");
    });
    assert!(answered.into_inner() > 0);
}

fn start(dir: &Path) -> Daemon {
    Daemon::start(dir, &[])
}

#[test]
fn a_daemon_is_replaced_under_load_and_no_request_is_lost() {
    under_load(UPGRADES, start, |daemon, dir, answers| {
        daemon.signal(Signal::TERM);
        assert!(daemon.ended(), "a daemon that was told to end does");
        // Between the two the server reads for itself.
        answers();
        *daemon = start(dir);
    });
}

#[test]
fn a_daemon_takes_over_under_load_and_no_request_is_lost() {
    under_load(TAKE_OVERS, start, |daemon, dir, _| daemon.replace(dir));
}

/// Killed as by the watchdog, and started by systemd at the socket that is there all the time.
#[test]
fn a_daemon_is_started_again_at_a_socket_that_stays_and_no_request_is_lost() {
    let held = OnceCell::new();
    let start = |dir: &Path| {
        let path = dir.join("daemon.sock");
        let mut command = activated::seekless(&[held.get_or_init(|| activated::packets(&path, 0o666))]);
        command.args(["daemon", "--include-ssd", "--socket"]).arg(&path);
        Daemon::of(command, path)
    };
    under_load(UPGRADES, start, |daemon, dir, answers| {
        daemon.kill();
        // Nobody accepts: the server waits a moment, and reads for itself.
        answers();
        *daemon = start(dir);
    });
}
