//! A daemon takes the place of another (`--take-over`, SIGUSR2): the sockets stay, waiting requests are
//! answered, the service manager is told which process counts, and nothing happens if the new one fails.

mod common;
#[path = "common/gated.rs"]
#[allow(dead_code, reason = "another test file uses the rest")]
mod gated;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use common::{Bench, Client, Reply};
use gated::Gated;
use rustix::process::{Pid, Signal, kill_process};
use seekless_frontend::control;
use seekless_kernel::fdpass::{self, Address};
use seekless_wire::{Call, Frame, Hello, RefuseReason, TakeOverStep, Verdict};

const NEVER: Duration = Duration::from_secs(60);

/// The program of `examples/`, which cargo builds beside the tests.
fn program() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.ancestors().nth(2).unwrap().join("examples/seekless-daemon")
}

fn until(what: &str, wish: impl Fn() -> bool) {
    let until = Instant::now() + NEVER;
    while !wish() {
        assert!(Instant::now() < until, "never came: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Daemons as processes, one after the other at one socket, below a service manager of the test's own.
struct Service {
    folder: tempfile::TempDir,
    told: UnixDatagram,
    /// The first one.
    child: Child,
    /// Output of the daemons.
    said: Receiver<String>,
}

impl Service {
    fn start(options: &[&str]) -> Service {
        let folder = tempfile::tempdir().unwrap();
        let told = UnixDatagram::bind(folder.path().join("notify")).unwrap();
        told.set_read_timeout(Some(NEVER)).unwrap();
        let mut child = Service::command(&folder).args(options).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let (say, said) = channel();
        // Until the last daemon that writes there has ended.
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(|line| drop(say.send(line))));
        let service = Service { folder, told, child, said };
        assert_eq!(service.hear(), "READY=1");
        service
    }

    fn command(folder: &tempfile::TempDir) -> Command {
        let mut command = Command::new(program());
        command
            .args(["daemon", "--include-ssd", "--socket"])
            .arg(folder.path().join("d.sock"))
            .env("SEEKLESS_PROFILES", folder.path())
            .env("NOTIFY_SOCKET", folder.path().join("notify"))
            .env_remove("WATCHDOG_USEC")
            .stdin(Stdio::null());
        command
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("d.sock")
    }

    /// The next message to the service manager.
    fn hear(&self) -> String {
        let mut words = [0; 256];
        let n = self.told.recv(&mut words).unwrap();
        String::from_utf8_lossy(&words[..n]).trim().to_string()
    }

    /// The address of its metrics.
    fn metrics(&self) -> String {
        loop {
            let line = self.said.recv_timeout(NEVER).unwrap();
            if let Some((_, at)) = line.split_once("metrics at http://") {
                return at.trim_end_matches("/metrics").to_string();
            }
        }
    }

    /// Whether no message arrived since.
    fn silent(&self) -> bool {
        self.told.set_nonblocking(true).unwrap();
        let silent = self.told.recv(&mut [0; 256]).is_err();
        self.told.set_nonblocking(false).unwrap();
        silent
    }

    /// The process that answers at the socket.
    fn pid(&self) -> u32 {
        control::status(&self.socket()).unwrap().1.pid
    }

    fn client(&self) -> Client {
        use std::os::unix::ffi::OsStrExt;
        let path = std::ffi::CString::new(self.socket().as_os_str().as_bytes()).unwrap();
        Client(fdpass::connect(Address::Path(&path)).unwrap())
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // The daemon that answers now may be a child of one that has ended.
        if let Ok((_, status)) = control::status(&self.socket())
            && let Some(pid) = Pid::from_raw(status.pid as i32)
        {
            let _ = kill_process(pid, Signal::TERM);
        }
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _ = self.child.wait();
    }
}

fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid as i32).unwrap(), signal).unwrap();
}

/// Whether a process is gone or a zombie.
fn ended(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    status.map_or(true, |s| s.rsplit(')').next().is_some_and(|rest| rest.trim().starts_with('Z')))
}

fn parent(pid: u32) -> u32 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok()).unwrap()
}

#[test]
fn at_sigusr2_another_process_serves_and_the_service_manager_hears_which() {
    let mut service = Service::start(&["--metrics", "127.0.0.1:0", "--json", "/dev/null"]);
    let inode = std::fs::metadata(service.socket()).unwrap().ino();
    let mut pid = service.child.id();
    for _ in 0..3 {
        signal(pid, Signal::USR2);
        let reloading = service.hear();
        let time = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").expect(&reloading);
        assert!(time.parse::<u64>().is_ok_and(|time| time > 0), "{reloading}");
        let said = service.hear();
        let next: u32 = said
            .strip_prefix("MAINPID=")
            .and_then(|s| s.strip_suffix("\nREADY=1"))
            .expect(&said)
            .parse()
            .unwrap();
        assert_ne!(next, pid);
        assert_ne!(parent(next), pid, "systemd would kill it at once where it should stop");
        assert_eq!(service.hear(), "READY=1", "the new one speaks after the old one has named it");
        until("the end of the old one", || ended(pid));
        assert_eq!(service.pid(), next);
        // Shims check the credentials of their peer.
        assert_eq!(fdpass::peer(std::os::fd::AsFd::as_fd(&service.client().0)).unwrap().pid as u32, next);
        pid = next;
    }
    assert!(service.child.wait().unwrap().success());
    assert!(service.silent(), "the old ones say no last word");
    assert_eq!(
        std::fs::metadata(service.socket()).unwrap().ino(),
        inode,
        "the socket was there all the time"
    );
    signal(pid, Signal::TERM);
    assert_eq!(service.hear(), "STOPPING=1");
    until("the end of the last one", || ended(pid));
    assert!(!service.socket().exists(), "the last one takes its socket away");
}

#[test]
fn a_scraper_finds_the_metrics_where_they_were() {
    let service = Service::start(&["--metrics", "127.0.0.1:0"]);
    let at = service.metrics();
    let scrape = || {
        let mut stream = TcpStream::connect(&at).unwrap();
        write!(stream, "GET /status.json HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    assert!(scrape().starts_with("HTTP/1.1 200 "));
    let first = service.child.id();
    signal(first, Signal::USR2);
    // Scraped all the while.
    let ended_since = Instant::now();
    while !ended(first) {
        assert!(scrape().starts_with("HTTP/1.1 200 "));
        assert!(ended_since.elapsed() < NEVER);
    }
    assert!(scrape().starts_with("HTTP/1.1 200 "));
    assert_ne!(service.pid(), first);
    assert_eq!(service.metrics(), at);
}

#[test]
fn a_call_that_waits_is_answered_by_the_daemon_it_asked() {
    let Some(disk) = Gated::mount() else { return };
    let service = Service::start(&[]);
    let old = service.child.id();
    disk.set_closed(true);
    let waiting = service.client();
    waiting.need(disk.open(2), Call::Read, 0, 64 << 10);
    until("the request", || control::status(&service.socket()).unwrap().1.counters.queued == 1);
    signal(old, Signal::USR2);
    until("the new one", || service.pid() != old);
    assert!(!ended(old), "it waits for the disk with its client");
    // Meanwhile the new one gets a request.
    let other = service.client();
    other.send(Frame::Hello(Hello { pid: 1, ring: false }), None);
    assert_eq!(other.hear(), Reply::Other("Settings"));
    disk.set_closed(false);
    assert_eq!(waiting.answer().verdict, Verdict::Resident);
    until("the end of the old one", || ended(old));
}

#[test]
fn a_new_daemon_that_fails_costs_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("gone/decisions.jsonl");
    std::fs::create_dir(log.parent().unwrap()).unwrap();
    let mut service = Service::start(&["--decisions", log.to_str().unwrap()]);
    std::fs::remove_dir_all(log.parent().unwrap()).unwrap();
    let pid = service.child.id();
    for _ in 0..2 {
        signal(pid, Signal::USR2);
        assert!(service.hear().starts_with("RELOADING=1\n"));
        assert_eq!(service.hear(), "READY=1");
        assert_eq!(service.pid(), pid);
    }
    assert!(service.child.try_wait().unwrap().is_none());
}

#[test]
fn a_decision_log_goes_on_beside_the_new_one() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("decisions.jsonl");
    let service = Service::start(&["--decisions", log.to_str().unwrap()]);
    let first = std::fs::metadata(&log).unwrap().ino();
    let old = service.child.id();
    signal(old, Signal::USR2);
    until("the end of the old one", || ended(old));
    assert_eq!(std::fs::metadata(folder.path().join("decisions.jsonl.old")).unwrap().ino(), first);
    assert_ne!(std::fs::metadata(&log).unwrap().ino(), first);
}

#[test]
fn without_a_daemon_the_first_one_starts() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("d.sock");
    let mut command = Service::command(&folder);
    let command = command.arg("--take-over").env_remove("NOTIFY_SOCKET").stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // It prints this once it handles signals, a moment after it answers.
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("listening at")), "it ended");
    assert!(control::settings(&socket).is_ok());
    signal(child.id(), Signal::TERM);
    assert!(child.wait().unwrap().success());
}

fn refused(client: &Client, step: TakeOverStep) -> Option<RefuseReason> {
    client.send(Frame::TakeOver { step, ring: 0 }, None);
    match client.hear() {
        Reply::Refuse(refuse) => Some(refuse.reason),
        Reply::Other("TakeOver") => None,
        other => panic!("{other:?}"),
    }
}

#[test]
fn only_its_own_user_takes_over_and_only_from_a_daemon_that_hands_over() {
    let closed = Bench::start(|_| {});
    assert_eq!(refused(&closed.client(), TakeOverStep::Ask), Some(RefuseReason::Kind));
    let fault = Service::command(&tempfile::tempdir().unwrap())
        .args(["--take-over", "--socket"])
        .arg(&closed.socket)
        .env_remove("NOTIFY_SOCKET")
        .output();
    // The socket is named twice: a usage error, and nothing is taken over.
    assert_eq!(fault.unwrap().status.code(), Some(2));
    let open = Bench::start(|s| s.hands_over = true);
    for step in [TakeOverStep::Offered, TakeOverStep::Released] {
        assert_eq!(refused(&open.client(), step), Some(RefuseReason::Kind), "{step}");
    }
    assert_eq!(refused(&open.client(), TakeOverStep::Ask), None);
    if !rustix::process::geteuid().is_root() {
        return seekless_testing::skip::skipped("only root can be another user");
    }
    let mallory = std::thread::scope(|scope| {
        let connect = scope.spawn(|| {
            rustix::thread::set_thread_uid(rustix::process::Uid::from_raw(65_533)).unwrap();
            open.client_of_twin()
        });
        connect.join().unwrap()
    });
    assert_eq!(refused(&mallory, TakeOverStep::Ask), Some(RefuseReason::Permission));
    assert!(open.daemon.status().is_some());
}

/// Two new daemons at once: one serves, the other ends.
#[test]
fn of_two_that_take_over_one_is_refused() {
    let bench = Bench::start(|s| s.hands_over = true);
    let (one, other) = (bench.client(), bench.client());
    assert_eq!(refused(&one, TakeOverStep::Ask), None);
    assert_eq!(refused(&other, TakeOverStep::Ask), None);
    one.send(Frame::TakeOver { step: TakeOverStep::Serving, ring: 0 }, None);
    other.send(Frame::TakeOver { step: TakeOverStep::Serving, ring: 0 }, None);
    // The sockets, and then the last frame.
    let last = |client: &Client| loop {
        match client.hear() {
            Reply::Other("TakeOver") => {}
            Reply::Refuse(refuse) => break Some(refuse.reason),
            Reply::Closed => break None,
            other => panic!("{other:?}"),
        }
    };
    let ends = [last(&one), last(&other)];
    assert!(ends.contains(&Some(RefuseReason::Kind)) && ends.contains(&None), "{ends:?}");
    assert!(bench.daemon.wait(NEVER), "it ends when nobody is left");
    assert!(bench.socket.exists(), "the socket is no longer its own");
}
