//! Attacks on root's daemon by processes with users, mounts and user namespaces of their own. Each attacker
//! is this program again ([`attacker`]). Needs root.

mod common;
#[path = "common/gated.rs"]
#[allow(dead_code, reason = "another test file uses the rest")]
mod gated;

use std::fs::{File, Permissions};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use common::{Bench, Client, Reply, cold_file};
use gated::Gated;
use rustix::process::Uid;
use seekless_daemon::{Daemon, DaemonSettings};
use seekless_kernel::fdpass::{self, Address, TwinName};
use seekless_wire::{Call, Frame, Hello, Need, RefuseReason, TakeOverStep, Verdict};

const M: u64 = 1 << 20;

/// Two users without privileges.
const MALLORY: u32 = 65_533;
const ALICE: u32 = 65_532;

/// Environment variable that selects the attack.
const ATTACK: &str = "SEEKLESS_TEST_ATTACK";
const SOCKET: &str = "SEEKLESS_TEST_SOCKET";

/// Number of descriptors that hang, each with a connection of its own.
const HANGING: u64 = 64;

/// A running attacker. Dropping this ends it.
struct Attacker {
    child: Child,
    said: Vec<String>,
    _folder: tempfile::TempDir,
}

impl Attacker {
    /// Starts this program again through `wrapper`, as `user`, and waits until it has done its worst. `None`,
    /// with a message, if that is not possible here.
    fn start(attack: &str, socket: &Path, user: u32, wrapper: &[&str]) -> Option<Attacker> {
        if !rustix::process::geteuid().is_root() {
            seekless_testing::skip::skipped("only root can be another user");
            return None;
        }
        // In a place where every user may run it.
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).unwrap();
        let program = folder.path().join("attacker");
        std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
        std::fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
        let mut command = Command::new(wrapper.first().map_or(program.as_os_str(), |first| first.as_ref()));
        command.args(wrapper.iter().skip(1));
        if !wrapper.is_empty() {
            command.arg(&program);
        }
        command
            .args(["attacker", "--exact", "--ignored", "--nocapture"])
            .env(ATTACK, attack)
            .env(SOCKET, socket)
            .env("TMPDIR", folder.path())
            .uid(user)
            .gid(user)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut said = Vec::new();
        for line in BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok) {
            if line == "done" {
                return Some(Attacker { child, said, _folder: folder });
            }
            said.push(line);
        }
        let status = child.wait().unwrap();
        seekless_testing::skip::skipped(format!("no attacker could be made ({status}): {said:?}"));
        None
    }
}

impl Drop for Attacker {
    fn drop(&mut self) {
        // A FUSE server that is killed while it has some of its own files open never ends, so it is told to
        // end.
        drop(self.child.stdin.take());
        let until = Instant::now() + Duration::from_secs(10);
        while self.child.try_wait().is_ok_and(|ended| ended.is_none()) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One test at a time: a process started by another test would inherit a file that hangs when it is closed.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A daemon with a socket that every user can reach.
fn bench(change: impl FnOnce(&mut DaemonSettings)) -> Bench {
    let bench = Bench::start(change);
    let folder = bench.socket.parent().unwrap();
    std::fs::set_permissions(folder, Permissions::from_mode(0o755)).unwrap();
    bench
}

/// Connects as another user.
fn as_user<T: Send>(uid: u32, act: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // For this thread only.
            rustix::thread::set_thread_uid(Uid::from_raw(uid)).unwrap();
            act()
        });
        thread.join().unwrap()
    })
}

/// Alice's misses are served, and she gets the status.
fn alice_is_served(bench: &Bench) {
    for i in 0..20 {
        let Some(file) = cold_file(M as usize) else { return };
        let alice = as_user(ALICE, || bench.client());
        alice.need(&file, Call::Pread, 0, 64 << 10);
        assert_eq!(alice.answer().verdict, Verdict::Resident, "miss {i}");
    }
}

/// The attacks. Run only by [`Attacker::start`].
#[test]
#[ignore = "an attacker, started by the tests"]
fn attacker() {
    let (Ok(attack), Some(socket)) = (std::env::var(ATTACK), std::env::var_os(SOCKET)) else { return };
    let socket = PathBuf::from(socket);
    let path = std::ffi::CString::new(socket.as_os_str().as_encoded_bytes()).unwrap();
    let connect = || Client(fdpass::connect(Address::Path(&path)).unwrap());
    let twin = || fdpass::connect(Address::Twin(&TwinName::of(&path).unwrap())).map(Client);
    let kept: Box<dyn std::any::Any> = match attack.as_str() {
        "closes-hang" => {
            let Some(disk) = Gated::mount() else { return };
            disk.hang_closes();
            let files: Vec<File> = (2..2 + HANGING).map(|i| disk.open(i)).collect();
            let need = Need { call: Call::Pread, pid: 1, tid: 1, offset: 0, length: M };
            let packet = Frame::Need(need).encode().unwrap();
            // One each, then several, unread behind one that is answered. A connection may be shut already.
            for needs in [1, 4] {
                for file in &files {
                    let client = connect();
                    for _ in 0..needs {
                        let _ = fdpass::send(client.0.as_fd(), packet.as_bytes(), Some(file.as_fd()));
                    }
                }
            }
            Box::new((disk, files))
        }
        "container" => {
            for (at, client) in [("path", Ok(connect())), ("twin", twin())] {
                for frame in [
                    Frame::PassAll { lease_ms: 60_000 },
                    Frame::TakeOver { step: TakeOverStep::Ask, ring: 0 },
                ] {
                    let heard = client.as_ref().map(|_| {
                        let again = if at == "path" { connect() } else { twin().unwrap() };
                        again.send(frame, None);
                        again.hear()
                    });
                    println!("{at} {}: {heard:?}", frame.name());
                }
            }
            Box::new(())
        }
        "lingers" => {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let need = Need { call: Call::Pread, pid: 1, tid: 1, offset: 0, length: M };
            let packet = Frame::Need(need).encode().unwrap();
            // Its last holder is the packet.
            let lingers = |_| {
                let (ours, theirs) = lingering(&listener);
                let _ = fdpass::send(twin().unwrap().0.as_fd(), packet.as_bytes(), Some(ours.as_fd()));
                std::thread::spawn(move || drop(ours));
                theirs
            };
            Box::new((0..HANGING).map(lingers).collect::<Vec<_>>())
        }
        "twin" => {
            let refused = match twin() {
                Ok(client) => {
                    let hello = Frame::Hello(Hello { pid: 1, ring: false }).encode().unwrap();
                    let sent = fdpass::send(client.0.as_fd(), hello.as_bytes(), None);
                    sent.is_err() || client.hear() == Reply::Closed
                }
                Err(_) => true,
            };
            println!("twin refused: {refused}");
            Box::new(())
        }
        "daemon" => Box::new(Daemon::start(DaemonSettings::new(socket)).unwrap()),
        other => panic!("no such attack: {other}"),
    };
    println!("done");
    let _ = std::io::stdout().flush();
    let _ = std::io::stdin().read(&mut [0u8; 1]);
    drop(kept);
    std::process::exit(0);
}

/// A socket that blocks its last holder for an hour when it is closed, and the other end.
fn lingering(listener: &TcpListener) -> (OwnedFd, TcpStream) {
    let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let theirs = listener.accept().unwrap().0;
    ours.set_nonblocking(true).unwrap();
    while (&ours).write(&[0; 1 << 16]).is_ok() {}
    rustix::net::sockopt::set_socket_linger(&ours, Some(Duration::from_secs(3600))).unwrap();
    (OwnedFd::from(ours), theirs)
}

/// A user namespace is enough to have a file system whose files hang when they are closed.
#[test]
fn descriptors_that_hang_when_they_are_closed_hold_up_their_own_user_alone() {
    let _alone = alone();
    let bench = bench(|_| {});
    // On most machines every user may open /dev/fuse.
    let open_to_all = "mknod -m 666 $TMPDIR/fuse c 10 229 && mount --bind $TMPDIR/fuse /dev/fuse; exec setpriv \\
        --reuid 65533 --regid 65533 --clear-groups -- unshare --user --map-root-user --mount -- \"$@\"";
    let namespace = ["unshare", "--mount", "--", "sh", "-c", open_to_all, "sh"];
    let Some(_mallory) = Attacker::start("closes-hang", &bench.socket, 0, &namespace) else { return };
    alice_is_served(&bench);
    let status = bench.until("that it hangs is seen", |s| {
        as_user(MALLORY, || bench.client());
        s.counters.connections_muted > 0
    });
    assert_eq!(status.counters.queued, 20, "only her files are on a disk: {status:?}");
    alice_is_served(&bench);
}

/// A process with root's id in a user namespace of its own reaches the twin. Root's own thread must not close
/// the descriptors that it passes.
#[test]
fn sockets_of_a_containers_root_do_not_hold_up_root() {
    let _alone = alone();
    let bench = bench(|_| {});
    let container = [
        // Mapping root's id needs this capability; containers have it.
        &["setpriv", "--bounding-set=-all,+setfcap", "--inh-caps=-all", "--"][..],
        &["unshare", "--user", "--map-root-user", "--mount", "--"][..],
    ]
    .concat();
    let Some(_mallory) = Attacker::start("lingers", &bench.socket, 0, &container) else { return };
    let status = bench.until("that they come by the twin", |s| s.counters.connections >= HANGING);
    assert!(status.counters.connections_not_admitted > 0, "{status:?}");
    for i in 0..20 {
        let Some(file) = cold_file(M as usize) else { return };
        let root = bench.client();
        root.need(&file, Call::Pread, 0, 64 << 10);
        assert_eq!(root.answer().verdict, Verdict::Resident, "miss {i}");
    }
}

/// A lingering connection blocks its last holder for the time it sets.
#[test]
fn sockets_that_linger_hold_up_their_own_user_alone() {
    let _alone = alone();
    if !rustix::process::geteuid().is_root() {
        return seekless_testing::skip::skipped("only root can be another user");
    }
    let bench = bench(|_| {});
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let _other_ends: Vec<TcpStream> = (0..8)
        .map(|i| {
            let (ours, theirs) = lingering(&listener);
            as_user(MALLORY, || {
                let client = bench.client();
                client.need(&ours, Call::Pread, 0, M);
                if i % 2 == 1 {
                    client.need(&ours, Call::Pread, 0, M);
                    client.need(&ours, Call::Pread, 0, M);
                }
            });
            // The last holder to close it lingers: mostly the daemon, and not this thread.
            std::thread::spawn(move || drop(ours));
            theirs
        })
        .collect();
    alice_is_served(&bench);
}

/// A user whose thread hangs keeps connecting, with descriptors that are never taken.
#[test]
fn connections_beside_a_thread_that_hangs_use_up_nothing_of_others() {
    let _alone = alone();
    if !rustix::process::geteuid().is_root() {
        return seekless_testing::skip::skipped("only root can be another user");
    }
    let bench = bench(|s| s.connections_max = 64);
    let Some(disk) = Gated::mount() else { return };
    disk.hang_closes();
    let file = disk.open(2);
    as_user(MALLORY, || bench.client().need(&file, Call::Pread, 1 << 40, M));
    let until = Instant::now() + Duration::from_secs(20);
    while disk.closing() == 0 {
        assert!(Instant::now() < until, "nobody closes it");
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(Duration::from_millis(1100));
    let memfd = rustix::fs::memfd_create("x", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    for _ in 0..600 {
        // It may be shut already.
        let client = as_user(MALLORY, || bench.client());
        let need = Need { call: Call::Read, pid: 1, tid: 1, offset: 0, length: 1 };
        let frame = Frame::Need(need).encode().unwrap();
        let _ = fdpass::send(client.0.as_fd(), frame.as_bytes(), Some(memfd.as_fd()));
    }
    bench.until("all of them", |s| s.counters.connections >= 600);
    alice_is_served(&bench);
    // Before the file, whose close would wait for it.
    drop(disk);
}

/// With the network of the machine a container reaches the twin, and it may have been given the path.
#[test]
fn root_of_a_container_is_not_root() {
    let _alone = alone();
    let bench = bench(|s| s.hands_over = true);
    let container = ["unshare", "--mount", "--", "setpriv", "--bounding-set=-all", "--inh-caps=-all", "--"];
    let Some(mallory) = Attacker::start("container", &bench.socket, 0, &container) else { return };
    let refused = |line: &&String| line.contains(&format!("{:?}", RefuseReason::Permission));
    let refusals = mallory.said.iter().filter(refused).count();
    assert_eq!(refusals, 4, "{:?}", mallory.said);
    assert!(!bench.status().passes_all);
}

#[test]
fn a_user_namespace_of_its_own_has_no_twin() {
    let _alone = alone();
    let bench = bench(|_| {});
    let namespace = ["unshare", "--user", "--map-root-user", "--"];
    let Some(mallory) = Attacker::start("twin", &bench.socket, MALLORY, &namespace) else { return };
    assert!(mallory.said.iter().any(|line| line == "twin refused: true"), "{:?}", mallory.said);
}

/// A thread that waits for a file that hangs keeps a killed daemon's sockets open.
#[test]
fn a_daemon_that_was_killed_and_cannot_end_is_replaced() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let socket = folder.path().join("d.sock");
    let Some(disk) = Gated::mount() else { return };
    let Some(mut killed) = Attacker::start("daemon", &socket, 0, &[]) else { return };
    disk.hang_closes();
    let path = std::ffi::CString::new(socket.as_os_str().as_encoded_bytes()).unwrap();
    let connect = || Client(fdpass::connect(Address::Path(&path)).unwrap());
    let file = disk.open(2);
    as_user(MALLORY, || connect().need(&file, Call::Pread, 1 << 40, M));
    let until = Instant::now() + Duration::from_secs(20);
    while disk.closing() == 0 {
        assert!(Instant::now() < until, "nobody closes it");
        std::thread::sleep(Duration::from_millis(5));
    }
    killed.child.kill().unwrap();
    let next = loop {
        match Daemon::start(DaemonSettings::new(socket.clone())) {
            Ok(daemon) => break daemon,
            Err(error) => assert!(Instant::now() < until, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    assert!(killed.child.try_wait().unwrap().is_none(), "it has ended, so this shows nothing");
    assert!(next.status().is_some());
    let Reply::Other("Settings") = ({
        let client = connect();
        client.send(Frame::Hello(Hello { pid: 1, ring: false }), None);
        client.hear()
    }) else {
        panic!("it does not answer");
    };
    drop(disk);
}
