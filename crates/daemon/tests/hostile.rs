//! What a user can do to a daemon that all users share, and what it costs the others: nothing of theirs is
//! visible, and no user takes all of a shared resource. Most of it needs root, which alone can become another
//! user.

mod common;
#[path = "common/gated.rs"]
#[allow(dead_code, reason = "another test file uses the rest")]
mod gated;

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::{Duration, Instant};

use common::{Bench, Client, Reply, cold_file};
use gated::Gated;
use rustix::fs::{MemfdFlags, Mode, OFlags};
use rustix::process::Uid;
use seekless_base::Bytes;
use seekless_frontend::control;
use seekless_kernel::fdpass;
use seekless_kernel::ring::{Producer, Record};
use seekless_wire::{Call, FRAME_BYTES_MAX, Frame, Hello, PassReason, Settings, Verdict};

const M: u64 = 1 << 20;

/// Two users without privileges.
const MALLORY: u32 = 65_533;
const ALICE: u32 = 65_532;

/// A connection of another user that may not enter the test's folder: through the twin.
fn client_of(bench: &Bench, uid: u32) -> Option<Client> {
    if !rustix::process::geteuid().is_root() {
        seekless_testing::skip::skipped("only root can be another user");
        return None;
    }
    std::thread::scope(|scope| {
        let connect = scope.spawn(|| {
            // For this thread only.
            rustix::thread::set_thread_uid(Uid::from_raw(uid)).unwrap();
            bench.client_of_twin()
        });
        Some(connect.join().unwrap())
    })
}

/// The daemon's next packet, and its descriptor.
fn receive(client: &Client) -> (Vec<u8>, Option<OwnedFd>) {
    let mut packet = [0; FRAME_BYTES_MAX];
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        match fdpass::receive(client.0.as_fd(), &mut packet) {
            Ok(got) => return (packet[..got.length].to_vec(), got.descriptor),
            Err(rustix::io::Errno::AGAIN) => std::thread::sleep(Duration::from_millis(1)),
            Err(e) => panic!("{e}"),
        }
        assert!(Instant::now() < until, "no answer");
    }
}

fn settings(client: &Client) -> Settings {
    client.send(Frame::Hello(Hello { pid: 1, ring: false }), None);
    match Frame::decode(&receive(client).0).unwrap() {
        Frame::Settings(settings) => settings,
        other => panic!("{}", other.name()),
    }
}

fn ring(client: &Client) -> OwnedFd {
    client.send(Frame::RingAsk, None);
    let (bytes, ring) = receive(client);
    assert_eq!(Frame::decode(&bytes).unwrap(), Frame::Ring);
    ring.unwrap()
}

fn record(file: &File, offset: u64, len: u64) -> Record {
    let about = file.metadata().unwrap();
    Record { dev: about.dev(), ino: about.ino(), offset, len, file_size: about.len() }
}

/// A daemon that follows streams, as the program does by default.
fn following() -> Bench {
    Bench::start(|s| s.engine.policy.ahead = Some(Default::default()))
}

#[test]
fn no_user_sees_or_forges_the_reports_of_another() {
    let bench = following();
    let (Some(alice), Some(mallory)) = (client_of(&bench, ALICE), client_of(&bench, MALLORY)) else { return };
    let numbers = [settings(&alice).ring, settings(&mallory).ring];
    assert!(numbers[0] != numbers[1] && !numbers.contains(&0), "{numbers:?}");
    let (of_alice, of_mallory) = (ring(&alice), ring(&mallory));
    let inode = |fd: &OwnedFd| rustix::fs::fstat(fd).unwrap().st_ino;
    assert_ne!(inode(&of_alice), inode(&of_mallory), "one memory for two users");
    // A second process of Alice's gets the same.
    assert_eq!(inode(&ring(&client_of(&bench, ALICE).unwrap())), inode(&of_alice));
    // It comes with the settings if requested, once a connection.
    let third = client_of(&bench, ALICE).unwrap();
    third.send(Frame::Hello(Hello { pid: 1, ring: true }), None);
    assert_eq!(inode(&receive(&third).1.unwrap()), inode(&of_alice));
    third.send(Frame::Hello(Hello { pid: 1, ring: true }), None);
    assert!(receive(&third).1.is_none(), "a client that reads nothing has many descriptors on their way");
    // Alice reads a file; Mallory claims to have read it.
    let Some(file) = cold_file(8 << 20) else { return };
    alice.need(&file, Call::Pread, 0, 64 << 10);
    assert_eq!(alice.answer().verdict, Verdict::Resident);
    assert!(Producer::open(&of_mallory).unwrap().push(&record(&file, 0, M)));
    let status = bench.until("the forged report", |s| s.counters.reports_unknown == 1);
    assert_eq!(status.counters.reports, 0);
    assert!(Producer::open(&of_alice).unwrap().push(&record(&file, 0, 64 << 10)));
    let status = bench.until("the true one", |s| s.counters.reports == 1);
    assert_eq!(status.counters.reports_unknown, 1);
}

#[test]
fn a_ring_made_impossible_stops_nobodys_reports() {
    let bench = following();
    let (Some(alice), Some(mallory)) = (client_of(&bench, ALICE), client_of(&bench, MALLORY)) else { return };
    let Some(file) = cold_file(8 << 20) else { return };
    alice.need(&file, Call::Pread, 0, 64 << 10);
    assert_eq!(alice.answer().verdict, Verdict::Resident);
    let of_alice = Producer::open(ring(&alice)).unwrap();
    let first = settings(&mallory).ring;
    // The tail is in the second cache line, where no producer would write such a value.
    let attack = File::from(ring(&mallory));
    attack.write_all_at(&u64::MAX.to_ne_bytes(), 64).unwrap();
    bench.until("its end", |s| s.counters.rings_replaced == 1);
    assert!(of_alice.push(&record(&file, 0, 64 << 10)));
    bench.until("her report", |s| s.counters.reports == 1);
    // After a second she gets another one, and its number tells her shims to ask for it.
    std::thread::sleep(Duration::from_millis(1100));
    let next = settings(&client_of(&bench, MALLORY).unwrap()).ring;
    assert!(next != 0 && next != first, "{first} {next}");
    assert!(Producer::open(ring(&client_of(&bench, MALLORY).unwrap())).is_ok());
}

#[test]
fn one_user_does_not_fill_the_queue_of_a_disk() {
    let bench = Bench::start(|s| {
        s.engine.policy.queue_max = 8;
        s.engine.policy.prefetch = Bytes::kib(64);
    });
    let Some(disk) = Gated::mount() else { return };
    disk.set_closed(true);
    // Advice: its sender disconnects at once, and it keeps its place.
    for i in 0..32 {
        let Some(mallory) = client_of(&bench, MALLORY) else { return };
        mallory.need(disk.open(2 + i), Call::Fadvise, 0, 64 << 10);
    }
    bench.until("all of it", |s| s.counters.needs == 32);
    let status = bench.status();
    assert_eq!((status.counters.queued, status.counters.passed_share), (6, 26), "{status:?}");
    // A request that was given up keeps its place for a while, too.
    let Some(alice) = client_of(&bench, ALICE) else { return };
    alice.need(disk.open(50), Call::Read, 0, 64 << 10);
    bench.until("hers", |s| s.counters.queued == 7);
    disk.set_closed(false);
    assert_eq!(alice.answer().verdict, Verdict::Resident);
    bench.until("room again", |s| s.disks.iter().all(|d| d.waiting_now == 0 && d.in_flight_now == 0));
    let mallory = client_of(&bench, MALLORY).unwrap();
    mallory.need(disk.open(60), Call::Read, 0, 64 << 10);
    assert_eq!(mallory.answer().verdict, Verdict::Resident);
}

#[test]
fn asking_and_hanging_up_is_bounded() {
    let bench = Bench::start(|s| s.engine.policy.queue_max = 8);
    let Some(disk) = Gated::mount() else { return };
    disk.set_closed(true);
    let start = Instant::now();
    for i in 0..64 {
        let Some(mallory) = client_of(&bench, MALLORY) else { return };
        mallory.need(disk.open(2 + i), Call::Read, 0, 64 << 10);
        bench.until("it", |s| s.counters.needs == i + 1);
        drop(mallory);
        bench.until("its end", |s| s.counters.connections_now == 0);
    }
    // Six places, each given back after five seconds.
    let most = 6 * (1 + start.elapsed().as_secs() / 5);
    let status = bench.status();
    assert!(status.counters.queued <= most, "{} went through a queue of 8", status.counters.queued);
    assert!(status.counters.queued + status.counters.passed_share == 64, "{status:?}");
    disk.set_closed(false);
}

/// Descriptors of every kind: only files on a disk are read, and none stays open.
#[test]
fn descriptors_of_every_kind_are_passed_and_closed() {
    let bench = Bench::start(|s| s.engine.include_ssd = false);
    let open = |path: &str, flags| rustix::fs::open(path, flags, Mode::empty()).ok();
    let memfd = rustix::fs::memfd_create("x", MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&memfd, 1 << 40).unwrap();
    let (pipe, other_end) = rustix::pipe::pipe().unwrap();
    let files: Vec<OwnedFd> = [
        Some(memfd),
        Some(pipe),
        Some(other_end),
        open("/", OFlags::RDONLY | OFlags::DIRECTORY),
        open("/proc/self/maps", OFlags::RDONLY),
        open("/proc/self/status", OFlags::RDONLY),
        open("/proc/self/mem", OFlags::RDONLY),
        open("/proc/self/exe", OFlags::PATH),
        open("/sys/kernel/mm/transparent_hugepage/enabled", OFlags::RDONLY),
        open("/dev/null", OFlags::RDONLY),
        open("/dev/zero", OFlags::RDONLY),
        Some(rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC).unwrap()),
        rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).ok(),
    ]
    .into_iter()
    .flatten()
    .collect();
    let count = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let before = count();
    for _ in 0..200 {
        for file in &files {
            let client = bench.client();
            client.need(file, Call::Pread, 0, M);
            let answer = client.answer();
            assert_eq!(answer.verdict, Verdict::Pass);
            assert!(matches!(answer.reason, PassReason::BadRequest | PassReason::NotADisk), "{answer:?}");
        }
    }
    let status = bench.until("all gone", |s| s.counters.connections_now == 0);
    assert_eq!(status.counters.queued, 0, "{status:?}");
    assert!(status.disks.is_empty(), "no disk was made of them: {status:?}");
    // Other tests of this process open and close descriptors meanwhile.
    let until = Instant::now() + Duration::from_secs(20);
    while count() > before + 64 {
        assert!(Instant::now() < until, "{before} descriptors before, {} after", count());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Clients that ask for the status and never read it do not block others.
#[test]
fn answers_that_are_never_read_hold_up_nobody() {
    let bench = Bench::start(|_| {});
    let hello = Frame::Hello(Hello { pid: 1, ring: false }).encode().unwrap();
    let stuck: Vec<Client> = (0..40)
        .map(|_| {
            let client = bench.client();
            // Send answers until no more fit into the socket.
            for _ in 0..2000 {
                if fdpass::send(client.0.as_fd(), hello.as_bytes(), None).is_err() {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            client
        })
        .collect();
    bench.until("they are in", |s| s.counters.connections_now == 40);
    for client in &stuck {
        while fdpass::send(client.0.as_fd(), Frame::StatusAsk.encode().unwrap().as_bytes(), None).is_err() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let start = Instant::now();
    for _ in 0..5 {
        control::status(&bench.socket).unwrap();
    }
    println!("five status answers beside 40 clients that take nothing: {:?}", start.elapsed());
    // A client that asks again before it has its answer is not answered twice.
    let twice = bench.client();
    for _ in 0..2 {
        twice.send(Frame::StatusAsk, None);
    }
    loop {
        match twice.hear() {
            Reply::Other("StatusPart") => {}
            Reply::Refuse(_) | Reply::Closed => break,
            other => panic!("{other:?}"),
        }
        twice.send(Frame::StatusAsk, None);
    }
    drop(stuck);
}

/// Reports of calls are accepted in one mode only; in the others no client can flood the statistics with
/// them.
#[test]
fn reports_of_calls_are_refused_where_nobody_wants_them() {
    let bench = Bench::start(|_| {});
    let client = bench.client();
    let tracked = seekless_wire::Tracked {
        call: Call::Read,
        resident: false,
        pid: 1,
        tid: 1,
        device: 1,
        inode: 1,
        offset: 0,
        length: 1,
        duration_ns: 1,
    };
    client.send(Frame::Tracked(tracked), None);
    assert!(matches!(client.hear(), Reply::Refuse(_)));
    assert!(bench.status().calls.is_empty());
}

/// A file that is cut short repeatedly while it is read: the daemon does not fault.
#[test]
fn files_cut_short_under_way_harm_nobody() {
    let bench = Bench::start(|_| {});
    let Some(mut file) = cold_file(4 << 20) else { return };
    for _ in 0..30 {
        let client = bench.client();
        client.need(&file, Call::Pread, 0, 4 * M);
        file.set_len(0).unwrap();
        client.answer();
        file.set_len(0).unwrap();
        rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(0)).unwrap();
        file.write_all(&vec![1; 4 << 20]).unwrap();
        file.sync_all().unwrap();
        let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
    }
    assert!(control::settings(&bench.socket).is_ok());
}

/// A user that sends invalid frames is muted for a while; others are not, and later that user is served
/// again.
#[test]
fn a_user_that_sends_nonsense_is_not_read_for_a_while_and_others_are() {
    let bench = Bench::start(|_| {});
    let Some(first) = client_of(&bench, MALLORY) else { return };
    settings(&first);
    // All at once, so that this does not take many seconds on a loaded machine.
    let nonsense = || {
        let clients: Vec<Client> = (0..200).map(|_| client_of(&bench, MALLORY).unwrap()).collect();
        for client in &clients {
            // It may be closed already.
            let _ = fdpass::send(client.0.as_fd(), b"nonsense", None);
        }
    };
    let until = Instant::now() + Duration::from_secs(60);
    while bench.status().counters.users_muted == 0 {
        nonsense();
        assert!(Instant::now() < until, "{:?}", bench.status().counters);
    }
    let refused = bench.status().counters.frames_refused;
    nonsense();
    let status = bench.until("unread", |s| s.counters.connections_muted > 0);
    assert!(status.counters.frames_refused < refused + 200, "{status:?}");
    drop(first);
    // Others are served.
    settings(&client_of(&bench, ALICE).unwrap());
    let Some(file) = cold_file(4 << 20) else { return };
    let alice = client_of(&bench, ALICE).unwrap();
    alice.need(&file, Call::Pread, 0, 64 << 10);
    assert_eq!(alice.answer().verdict, Verdict::Resident);
    // And so is that user, once it has been quiet.
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        let client = client_of(&bench, MALLORY).unwrap();
        let hello = Frame::Hello(Hello { pid: 1, ring: false }).encode().unwrap();
        if fdpass::send(client.0.as_fd(), hello.as_bytes(), None).is_ok()
            && client.hear() == Reply::Other("Settings")
        {
            break;
        }
        assert!(Instant::now() < until, "never read again");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The daemon's own user is never muted: it could end the daemon anyway.
#[test]
fn its_own_user_is_always_read() {
    let bench = Bench::start(|_| {});
    for _ in 0..300 {
        bench.client().send_bytes(b"nonsense", None);
    }
    let status = bench.until("all of it", |s| s.counters.frames_refused == 300);
    assert_eq!(status.counters.users_muted, 0);
}
