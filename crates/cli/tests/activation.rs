//! Socket activation: `daemon` and `serve` listen at sockets that systemd has made and goes on holding. Who
//! connects while they are started again waits and is answered, and what is systemd's is left as it was.

mod common;

use std::ffi::CString;
use std::fs::Metadata;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::activated::{packets, seekless};
use common::http::request;
use common::{Daemon, SEEKLESS, public_folder};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use seekless_kernel::fdpass::{self, Address};
use seekless_wire::{FRAME_BYTES_MAX, Frame, Hello};
use tempfile::TempDir;

/// The difference between slow and never.
const NEVER: Duration = Duration::from_secs(60);

/// A socket unit of the daemon, as far as the daemon is concerned.
struct Unit {
    dir: TempDir,
    socket: OwnedFd,
    made: Metadata,
}

impl Unit {
    fn new() -> Unit {
        let dir = public_folder();
        let path = dir.path().join("unit.sock");
        let socket = packets(&path, 0o640);
        Unit { made: path.symlink_metadata().unwrap(), dir, socket }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("unit.sock")
    }

    /// The daemon's command, which does not say where the socket is.
    fn command(&self) -> Command {
        let mut command = seekless(&[&self.socket]);
        command.args(["daemon", "--include-ssd"]);
        command.env("SEEKLESS_PROFILES", self.dir.path()).env_remove("SEEKLESS_SOCKET");
        command
    }

    fn start(&self) -> Daemon {
        Daemon::of(self.command(), self.path())
    }

    /// A client that has asked for the settings.
    fn client(&self) -> OwnedFd {
        let name = CString::new(self.path().as_os_str().as_bytes()).unwrap();
        let client = fdpass::connect(Address::Path(&name)).unwrap();
        let hello = Frame::Hello(Hello { pid: 1, ring: false }).encode().unwrap();
        fdpass::send(client.as_fd(), hello.as_bytes(), None).unwrap();
        client
    }

    /// The path is the one that was made, with its mode and owner.
    fn is_as_made(&self) -> bool {
        let [now, made] = [&self.path().symlink_metadata().unwrap(), &self.made]
            .map(|m| (m.ino(), m.mode(), m.uid(), m.gid()));
        now == made
    }
}

/// Whether the client is answered.
fn answered(client: &OwnedFd) -> bool {
    let timeout = Timespec { tv_sec: NEVER.as_secs() as _, tv_nsec: 0 };
    poll(&mut [PollFd::new(client, PollFlags::IN)], Some(&timeout)).unwrap();
    let mut packet = [0; FRAME_BYTES_MAX];
    let received = fdpass::receive(client.as_fd(), &mut packet).unwrap();
    matches!(Frame::decode(&packet[..received.length]), Ok(Frame::Settings(_)))
}

fn until(what: &str, wish: impl Fn() -> bool) {
    let until = Instant::now() + NEVER;
    while !wish() {
        assert!(Instant::now() < until, "never came: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_client_that_comes_before_the_daemon_or_between_two_is_answered() {
    let unit = Unit::new();
    let early = unit.client();
    let mut first = unit.start();
    assert!(answered(&early));
    // Who connects from now on sees whom it is answered by.
    let client = unit.client();
    assert_eq!(fdpass::peer(client.as_fd()).unwrap().pid as u32, first.pid());
    assert!(answered(&client));
    // Killed, and ended in good order.
    first.kill();
    let between = unit.client();
    let mut second = unit.start();
    assert!(answered(&between));
    until("the second one's status", || second.status().is_some_and(|s| s["pid"] == second.pid()));
    second.signal(Signal::TERM);
    assert!(second.ended());
    assert!(unit.is_as_made(), "the path is systemd's");
    let after = unit.client();
    let _third = unit.start();
    assert!(answered(&after));
    assert!(unit.is_as_made());
}

#[test]
fn a_daemon_that_takes_over_knows_whose_the_socket_is() {
    let unit = Unit::new();
    let mut daemon = unit.start();
    assert!(answered(&unit.client()));
    let pid = || daemon.status().and_then(|s| s["pid"].as_u64()).unwrap();
    let mut last = pid();
    for _ in 0..2 {
        kill_process(Pid::from_raw(last as i32).unwrap(), Signal::USR2).unwrap();
        until("the next one", || pid() != last);
        last = pid();
        let environment = std::fs::read(format!("/proc/{last}/environ")).unwrap();
        let environment = String::from_utf8_lossy(&environment);
        assert!(!environment.contains("LISTEN_"), "it would take descriptors of its own for sockets");
    }
    assert!(daemon.ended(), "the first one has handed over");
    assert!(unit.is_as_made());
    kill_process(Pid::from_raw(last as i32).unwrap(), Signal::TERM).unwrap();
    until("its end", || std::fs::metadata(format!("/proc/{last}")).is_err());
    assert!(unit.is_as_made(), "nor does the last one remove it");
    let waits = unit.client();
    let _next = unit.start();
    assert!(answered(&waits));
}

/// As after `systemctl restart` with `--take-over` among the options: there is nobody to take over from.
#[test]
fn with_a_socket_that_was_passed_nobody_is_asked_for_one() {
    let unit = Unit::new();
    let mut command = unit.command();
    command.arg("--take-over").arg("--socket").arg(unit.path());
    let _daemon = Daemon::of(command, unit.path());
    assert!(answered(&unit.client()));
    assert!(unit.is_as_made());
}

#[test]
fn the_service_manager_hears_as_much_as_without_a_socket_of_its_own() {
    let unit = Unit::new();
    let told = UnixDatagram::bind(unit.dir.path().join("notify")).unwrap();
    told.set_read_timeout(Some(NEVER)).unwrap();
    let mut command = unit.command();
    command.env("NOTIFY_SOCKET", unit.dir.path().join("notify")).env("WATCHDOG_USEC", "400000");
    let daemon = Daemon::of(command, unit.path());
    let hear = || {
        let mut words = [0; 256];
        let length = told.recv(&mut words).unwrap();
        String::from_utf8_lossy(&words[..length]).trim().to_string()
    };
    assert_eq!(hear(), "READY=1");
    assert_eq!((hear().as_str(), hear().as_str()), ("WATCHDOG=1", "WATCHDOG=1"));
    daemon.signal(Signal::TERM);
    while hear() != "STOPPING=1" {}
}

/// Status 2 and one line.
fn refused(mut command: Command, words: &[&str]) {
    let output = command.env_remove("SEEKLESS_LOG").stderr(Stdio::piped()).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{said}");
    assert!(words.iter().all(|word| said.contains(word)), "{said}: {words:?}");
}

#[test]
fn a_daemon_refuses_what_is_not_its_socket() {
    let unit = Unit::new();
    let other = unit.dir.path().join("other.sock");
    let with = |options: &[&str]| {
        let mut command = unit.command();
        command.args(options);
        command
    };
    let other_path = other.to_str().unwrap();
    refused(with(&["--socket", other_path]), &["one.socket listens at", other_path, "--socket"]);
    let mut by_variable = unit.command();
    by_variable.env("SEEKLESS_SOCKET", &other);
    refused(by_variable, &["SEEKLESS_SOCKET"]);
    refused(with(&["--socket-mode", "600"]), &["SocketMode="]);
    let daemon = |sockets: &[&dyn AsFd]| {
        let mut command = seekless(sockets);
        command.arg("daemon").env_remove("SEEKLESS_SOCKET");
        command
    };
    let second = packets(&other, 0o600);
    refused(daemon(&[&unit.socket, &second]), &["passes 2 sockets"]);
    let stream = UnixListener::bind(unit.dir.path().join("stream.sock")).unwrap();
    let datagram = UnixDatagram::bind(unit.dir.path().join("datagram.sock")).unwrap();
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let connected = unit.client();
    let file = std::fs::File::open("/dev/null").unwrap();
    let wrong: [&dyn AsFd; 5] = [&stream, &datagram, &tcp, &connected, &file];
    for wrong in wrong {
        refused(daemon(&[wrong]), &["one.socket", "ListenSequentialPacket="]);
    }
    assert!(unit.is_as_made());
}

/// Variables that lie end the daemon; those of another process are none of its business.
#[test]
fn only_the_process_that_is_meant_takes_sockets() {
    let dir = public_folder();
    let socket = dir.path().join("own.sock");
    let daemon = |variables: &str| {
        let mut command = Command::new("sh");
        let script = format!("export {variables}; exec \"$@\"");
        command.args(["-c", &script, "sh"]).arg(&*SEEKLESS);
        command.args(["daemon", "--include-ssd", "--socket"]).arg(&socket);
        command.env("SEEKLESS_PROFILES", dir.path());
        command
    };
    for lie in ["LISTEN_PID=$$ LISTEN_FDS=100", "LISTEN_PID=$$ LISTEN_FDS=one", "LISTEN_PID=one LISTEN_FDS=1"]
    {
        let output = daemon(lie).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{lie}: {said}");
        assert!(said.contains("LISTEN_FDS"), "{said}");
    }
    for others in ["LISTEN_PID=1 LISTEN_FDS=1", "LISTEN_PID=1 LISTEN_FDS=2 LISTEN_FDNAMES=one:two"] {
        let daemon = Daemon::of(daemon(others), socket.clone());
        until("its answer", || daemon.status().is_some());
    }
}

/// systemd's own program for trying this out: it waits for the first connection, and becomes the daemon then.
#[test]
fn by_systemds_own_program_the_first_connection_starts_the_daemon() {
    let dir = public_folder();
    let path = dir.path().join("s.sock");
    let mut command = Command::new("systemd-socket-activate");
    command.args(["--seqpacket", "--listen"]).arg(&path).args(["-E", "SEEKLESS_PROFILES"]);
    command.arg(&*SEEKLESS).args(["daemon", "--include-ssd"]).env("SEEKLESS_PROFILES", dir.path());
    let mut child = match command.stderr(Stdio::null()).spawn() {
        Ok(child) => child,
        Err(error) => return println!("skipped: systemd-socket-activate: {error}"),
    };
    let unit = || path.symlink_metadata().ok();
    until("the socket", || unit().is_some());
    let name = CString::new(path.as_os_str().as_bytes()).unwrap();
    until("somebody who listens", || fdpass::connect(Address::Path(&name)).is_ok());
    let made = unit().unwrap().ino();
    until("the daemon", || status(&path).is_some_and(|s| s["pid"] == child.id()));
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(unit().map(|m| m.ino()), Some(made), "it is left");
}

fn status(socket: &Path) -> Option<serde_json::Value> {
    let out = Command::new(&*SEEKLESS)
        .args(["daemon", "status", "--json", "--socket"])
        .arg(socket)
        .output()
        .unwrap();
    serde_json::from_slice(&out.stdout).ok()
}

/// `seekless serve`, ended on drop.
struct Origin(Child);

impl Origin {
    fn start(sockets: &[&dyn AsFd], root: &Path, options: &[&str]) -> Origin {
        let mut command = seekless(sockets);
        command.arg("serve").arg(root).args(options).stderr(Stdio::null());
        if sockets.len() == 1 {
            command.stdout(Stdio::null());
        }
        Origin(command.spawn().unwrap())
    }

    fn end(mut self) {
        kill_process(Pid::from_child(&self.0), Signal::TERM).unwrap();
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn listening(address: &str) -> (TcpListener, SocketAddr) {
    let socket = TcpListener::bind(address).unwrap();
    let at = socket.local_addr().unwrap();
    (socket, at)
}

#[test]
fn an_origin_listens_at_every_socket_that_was_passed() {
    let dir = public_folder();
    std::fs::write(dir.path().join("f"), "bytes").unwrap();
    let (one, first) = listening("127.0.0.1:0");
    let two = TcpListener::bind("[::1]:0").unwrap_or_else(|_| listening("127.0.0.1:0").0);
    let second = two.local_addr().unwrap();
    let get = |to| request(to, "GET", "/f", &[]).unwrap().body;
    std::thread::scope(|scope| {
        // Before it is there.
        let early = scope.spawn(|| get(first));
        let origin = Origin::start(&[&one, &two], dir.path(), &["--loops", "3"]);
        assert_eq!(early.join().unwrap(), b"bytes");
        for _ in 0..8 {
            assert_eq!((get(first), get(second)), (b"bytes".to_vec(), b"bytes".to_vec()));
        }
        origin.end();
    });
    let at = first.to_string();
    let origin = Origin::start(&[&one], dir.path(), &["--listen", &at]);
    assert_eq!(get(first), b"bytes");
    origin.end();
}

#[test]
fn an_origin_refuses_what_is_not_its_socket() {
    let dir = public_folder();
    let serve = |sockets: &[&dyn AsFd], options: &[&str]| {
        let mut command = seekless(sockets);
        command.arg("serve").arg(dir.path()).args(options);
        command
    };
    let (one, first) = listening("127.0.0.1:0");
    let (two, _) = listening("127.0.0.1:0");
    refused(
        serve(&[&one], &["--listen", "127.0.0.1:1"]),
        &["one.socket listens at", "--listen says 127.0.0.1:1"],
    );
    refused(serve(&[&one, &two], &["--listen", &first.to_string()]), &["--listen"]);
    let stream = UnixListener::bind(dir.path().join("stream.sock")).unwrap();
    let connected = std::net::TcpStream::connect(first).unwrap();
    let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let wrong: [&dyn AsFd; 3] = [&stream, &connected, &udp];
    for wrong in wrong {
        refused(serve(&[wrong], &[]), &["one.socket", "ListenStream="]);
    }
    refused(serve(&[&one, &udp], &[]), &["two.socket"]);
}

/// As at `systemctl restart seekless-serve`: every client opens a connection for each request.
#[test]
fn an_origin_is_started_again_under_load_and_no_request_is_lost() {
    const RESTARTS: usize = 5;
    let dir = public_folder();
    let body: Vec<u8> = (0..200_000u32).flat_map(u32::to_le_bytes).collect();
    std::fs::write(dir.path().join("f"), &body).unwrap();
    let (socket, at) = listening("127.0.0.1:0");
    let (stop, requests) = (AtomicBool::new(false), AtomicU64::new(0));
    let client = || {
        while !stop.load(Ordering::Relaxed) {
            let answer = request(at, "GET", "/f", &[]).unwrap();
            assert!(answer.status_line.contains(" 200 ") && answer.body == body, "{}", answer.status_line);
            requests.fetch_add(1, Ordering::Relaxed);
        }
    };
    let start = || Origin::start(&[&socket], dir.path(), &[]);
    let mut origin = Some(start());
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..8).map(|_| scope.spawn(client)).collect();
        for _ in 0..RESTARTS {
            let before = requests.load(Ordering::Relaxed);
            until("requests", || {
                requests.load(Ordering::Relaxed) >= before + 40 || clients.iter().any(|c| c.is_finished())
            });
            origin.take().unwrap().end();
            origin = Some(start());
        }
        stop.store(true, Ordering::Relaxed);
    });
}
