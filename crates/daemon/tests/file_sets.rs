//! File sets of a running daemon: a program adds ranges, and gets answers in disk order.

#[path = "common/gated.rs"]
#[allow(dead_code, reason = "other tests use the rest of it")]
mod gated;

mod common;

use std::fs::File;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use common::{Bench, Client, cached, cold_file};
use gated::Gated;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use seekless_kernel::fdpass;
use seekless_policy::{AheadConfig, Mode};
use seekless_wire::{ADDRESS_UNKNOWN, FRAME_BYTES_MAX, FileSet, FileSetAdd, FileSetReady, Frame, PassReason};

const M: u64 = 1 << 20;

/// Timeout of every wait: the difference between slow and never.
const NEVER: Duration = Duration::from_secs(30);

/// A frame received by a program.
#[derive(Debug, PartialEq)]
enum FileSetReply {
    Set(FileSet),
    Ready(FileSetReady),
    Refused,
    Closed,
}

/// The next frame, if one arrives within this time.
fn hear_within(client: &Client, within: Duration) -> Option<FileSetReply> {
    let until = Instant::now() + within;
    let mut packet = [0u8; FRAME_BYTES_MAX];
    loop {
        match fdpass::receive(client.0.as_fd(), &mut packet) {
            Ok(r) if r.length == 0 => return Some(FileSetReply::Closed),
            Ok(r) => match Frame::decode(&packet[..r.length]).unwrap() {
                Frame::FileSet(set) => return Some(FileSetReply::Set(set)),
                Frame::FileSetReady(ready) => return Some(FileSetReply::Ready(ready)),
                Frame::Refuse(_) => return Some(FileSetReply::Refused),
                other => panic!("{}", other.name()),
            },
            Err(Errno::AGAIN) => {
                let timeout = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
                poll(&mut [PollFd::new(&client.0, PollFlags::IN)], Some(&timeout)).unwrap();
            }
            Err(Errno::CONNRESET | Errno::PIPE) => return Some(FileSetReply::Closed),
            Err(error) => panic!("{error}"),
        }
        if Instant::now() >= until {
            return None;
        }
    }
}

fn hear(client: &Client) -> FileSetReply {
    hear_within(client, NEVER).expect("the daemon does not answer")
}

fn ready(client: &Client) -> (u32, PassReason) {
    match hear(client) {
        FileSetReply::Ready(ready) => (ready.range, ready.reason),
        other => panic!("{other:?}"),
    }
}

fn open_set(client: &Client, window_bytes: u64) -> FileSet {
    client.send(Frame::FileSetAsk { window_bytes }, None);
    match hear(client) {
        FileSetReply::Set(set) => set,
        other => panic!("{other:?}"),
    }
}

fn add(client: &Client, range: u32, file: &File, (offset, length): (u64, u64), address: u64) {
    let frame = Frame::FileSetAdd(FileSetAdd { range, offset, length, address }).encode().unwrap();
    let until = Instant::now() + NEVER;
    while let Err(error) = fdpass::send(client.0.as_fd(), frame.as_bytes(), Some(file.as_fd())) {
        assert!(matches!(error, Errno::AGAIN | Errno::NOBUFS | Errno::TOOMANYREFS), "{error}");
        assert!(Instant::now() < until, "the daemon does not read");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn took(client: &Client, range: u32) {
    client.send(Frame::FileSetTook { range, read: true }, None);
}

/// A daemon that reads ahead, as by default.
fn following() -> Bench {
    Bench::start(|s| s.engine.policy.ahead = Some(AheadConfig::default()))
}

#[test]
fn ranges_are_brought_in_and_counted_until_they_are_taken() {
    let bench = following();
    let Some(file) = cold_file(16 << 20) else { return };
    let client = bench.client();
    let set = open_set(&client, 8 * M);
    assert_eq!((set.reason, set.window_bytes), (PassReason::None, 8 * M));
    add(&client, 7, &file, (2 * M, M), ADDRESS_UNKNOWN);
    assert_eq!(ready(&client), (7, PassReason::None));
    assert_eq!(cached(&file, 2 * M, M), M);
    assert_eq!((cached(&file, 0, 2 * M), cached(&file, 4 * M, 12 * M)), (0, 0), "no more than that");
    let status = bench.until("a range in memory", |s| s.file_sets.ranges_read == 1);
    assert_eq!((status.file_sets.now, status.file_sets.ranges_now), (1, 1));
    // In memory by now, and requested again.
    add(&client, 8, &file, (2 * M, M), ADDRESS_UNKNOWN);
    assert_eq!(ready(&client), (8, PassReason::None));
    took(&client, 7);
    took(&client, 8);
    let status = bench.until("both are taken", |s| {
        s.file_sets.ranges_now == 0 && s.disks.iter().any(|d| d.file_sets.bytes_taken > 0)
    });
    assert_eq!((status.file_sets.ranges_in_memory, status.file_sets.ranges_left), (1, 0));
    let disk = &status.disks[0];
    assert_eq!((disk.file_sets.requests, disk.file_sets.bytes_taken), (1, M));
    assert_eq!(disk.file_sets.bytes_untaken_now, 0);
    assert!(disk.file_sets.disk_ms <= disk.disk_ms * 1.001, "{disk:?}");
    // The program disconnects, and its set ends.
    drop(client);
    let status = bench.until("no set is left", |s| s.file_sets.now == 0);
    assert_eq!((status.file_sets.begun, status.counters.hang_ups), (1, 0));
}

#[test]
fn ranges_come_in_the_order_of_their_addresses_across_programs() {
    let Some(disk) = Gated::mount() else { return };
    let bench = following();
    let files: Vec<File> = (2..12).map(|inode| disk.open(inode)).collect();
    let clients = [bench.client(), bench.client()];
    for client in &clients {
        assert_eq!(open_set(client, 256 * M).reason, PassReason::None);
    }
    disk.set_closed(true);
    // The first steps are queued at once; the rest is known when one of them ends.
    for (i, file) in files.iter().enumerate() {
        let address = (100 - i as u64) * M;
        add(&clients[i % 2], i as u32, file, (0, 8 * M), address);
        // Messages of two clients do not necessarily arrive in the order in which they were sent.
        bench.until("it is added", |s| s.file_sets.ranges_now == i as u64 + 1);
    }
    disk.set_closed(false);
    for (n, client) in clients.iter().enumerate() {
        let mut got: Vec<u32> = (0..5)
            .map(|_| {
                let (range, reason) = ready(client);
                assert_eq!(reason, PassReason::None);
                took(client, range);
                range
            })
            .collect();
        got.sort_unstable();
        assert_eq!(got, (0..5).map(|i| 2 * i + n as u32).collect::<Vec<_>>());
    }
    let mut order: Vec<u64> = Vec::new();
    for (inode, _) in disk.seen() {
        if !order.contains(&inode) {
            order.push(inode);
        }
    }
    assert_eq!(order.len(), 10);
    // The steps of two files were queued before all were known. Of the rest, the last has the lowest address.
    // The disk's own queue orders the queued steps, for which it knows no addresses.
    let rest = &order[2..];
    let mut expected = rest.to_vec();
    expected.sort_unstable_by(|a, b| b.cmp(a));
    for (n, inode) in rest.iter().enumerate() {
        let place = expected.iter().position(|other| other == inode).unwrap();
        assert!(n.abs_diff(place) <= 2, "{order:?}");
    }
}

#[test]
fn no_more_is_brought_in_than_the_window_until_something_is_taken() {
    let bench = following();
    let Some(file) = cold_file(16 << 20) else { return };
    let client = bench.client();
    open_set(&client, 2 * M);
    for range in 0..8 {
        add(&client, range, &file, (u64::from(range) * M, M), u64::from(range) * M);
    }
    let mut got = vec![ready(&client).0, ready(&client).0];
    bench.until("the window is full", |s| s.file_sets.bytes_now == 2 * M && s.file_sets.ranges_read == 2);
    assert_eq!(hear_within(&client, Duration::from_millis(100)), None);
    while got.len() < 8 {
        took(&client, got[got.len() - 2]);
        got.push(ready(&client).0);
    }
    assert_eq!(got, (0..8).collect::<Vec<_>>());
}

#[test]
fn what_cannot_be_read_is_left_to_its_reader() {
    let bench = Bench::start(|s| s.engine.include_ssd = false);
    let client = bench.client();
    assert_eq!(open_set(&client, M).reason, PassReason::None);
    let memory = rustix::fs::memfd_create("x", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let memory = File::from(memory);
    memory.set_len(M).unwrap();
    add(&client, 1, &memory, (0, M), ADDRESS_UNKNOWN);
    assert_eq!(ready(&client), (1, PassReason::NotADisk));
    let null = File::open("/dev/null").unwrap();
    add(&client, 2, &null, (0, M), ADDRESS_UNKNOWN);
    assert_eq!(ready(&client), (2, PassReason::BadRequest));
    // Beyond the end.
    add(&client, 3, &memory, (2 * M, M), ADDRESS_UNKNOWN);
    assert_eq!(ready(&client), (3, PassReason::BadRequest));
    let status = bench.until("all are counted", |s| s.file_sets.ranges_left == 3);
    assert_eq!((status.file_sets.ranges_now, status.file_sets.bytes_now), (0, 0));
}

#[test]
fn a_read_that_fails_is_told_and_the_rest_goes_on() {
    let Some(disk) = Gated::mount() else { return };
    let bench = following();
    disk.fail(M..2 * M);
    let client = bench.client();
    open_set(&client, 64 * M);
    let file = disk.open(2);
    add(&client, 1, &file, (M, M), ADDRESS_UNKNOWN);
    add(&client, 2, &file, (8 * M, M), ADDRESS_UNKNOWN);
    let mut said = [ready(&client), ready(&client)];
    said.sort_by_key(|said| said.0);
    assert_eq!(said, [(1, PassReason::DiskError), (2, PassReason::None)]);
}

#[test]
fn a_program_that_goes_away_leaves_nothing_waiting() {
    let Some(disk) = Gated::mount() else { return };
    let bench = following();
    disk.set_closed(true);
    let client = bench.client();
    open_set(&client, 256 * M);
    let files: Vec<File> = (2..10).map(|inode| disk.open(inode)).collect();
    for (i, file) in files.iter().enumerate() {
        add(&client, i as u32, file, (0, 4 * M), i as u64 * M);
    }
    bench.until("some are in line", |s| s.disks.iter().any(|d| d.waiting_now > 0));
    drop(client);
    let gone = |s: &seekless_daemon::StatusReport| {
        s.file_sets.now == 0 && s.disks.iter().all(|d| d.waiting_now == 0 && d.queued_now == 0)
    };
    bench.until("nobody waits", gone);
    disk.set_closed(false);
    bench.until("what was under way is left", |s| {
        s.disks.iter().all(|d| d.in_flight_now == 0 && d.file_sets.bytes_untaken_now == 0)
    });
}

#[test]
fn bounds_are_kept_whatever_a_program_says() {
    let bench = following();
    let Some(file) = cold_file(1 << 20) else { return };
    // Ranges without a set.
    let client = bench.client();
    add(&client, 1, &file, (0, M), ADDRESS_UNKNOWN);
    assert_eq!(hear(&client), FileSetReply::Refused);
    // A second set on one connection.
    let client = bench.client();
    open_set(&client, M);
    client.send(Frame::FileSetAsk { window_bytes: M }, None);
    assert_eq!(hear(&client), FileSetReply::Refused);
    // A number used twice, an unknown range, more ranges than allowed.
    let client = bench.client();
    let set = open_set(&client, 4096);
    took(&client, 99);
    add(&client, 1, &file, (0, 4096), ADDRESS_UNKNOWN);
    assert_eq!(ready(&client), (1, PassReason::None));
    add(&client, 1, &file, (0, 4096), ADDRESS_UNKNOWN);
    assert_eq!(ready(&client), (1, PassReason::BadRequest));
    for range in 0..set.ranges {
        add(&client, 1_000 + range, &file, (0, 4096), ADDRESS_UNKNOWN);
    }
    assert_eq!(ready(&client), (1_000 + set.ranges - 1, PassReason::Full));
    // The number of sets is bounded too; those of a program that disconnected are free again.
    let mut clients = Vec::new();
    let refused = loop {
        let client = bench.client();
        let set = open_set(&client, M);
        clients.push(client);
        if set.reason != PassReason::None {
            break set;
        }
        assert!(clients.len() <= seekless_policy::filesets::SETS_MAX);
    };
    assert_eq!((refused.reason, refused.ranges), (PassReason::Full, 0));
    drop(clients);
    bench.until("they are free again", |s| s.file_sets.now == 1 && s.file_sets.refused == 1);
    assert_eq!(open_set(&bench.client(), M).reason, PassReason::None);
}

#[test]
fn a_mode_that_serves_no_call_has_no_file_set() {
    for mode in [Mode::Off, Mode::Track, Mode::Prefetch] {
        let bench = Bench::start(|s| s.engine.policy.mode = mode);
        let set = open_set(&bench.client(), M);
        assert_eq!((set.reason, set.ranges), (PassReason::Mode, 0), "{mode:?}");
    }
}

#[test]
fn a_silent_program_keeps_its_set() {
    let bench = following();
    let client = bench.client();
    open_set(&client, M);
    // Longer than a silent connection may last.
    std::thread::sleep(Duration::from_secs(7));
    let Some(file) = cold_file(1 << 20) else { return };
    add(&client, 1, &file, (0, M), ADDRESS_UNKNOWN);
    assert_eq!(ready(&client), (1, PassReason::None));
}
