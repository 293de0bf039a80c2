//! Disks that hang, fail, and seek: FUSE file systems controlled by the test.

mod common;
#[allow(dead_code, reason = "another test file uses the rest")]
#[path = "common/gated.rs"]
mod gated;

use common::{Bench, Reply, cached};
use gated::Gated;
use seekless_base::{Bytes, Nanos};
use seekless_policy::OrderKind;
use seekless_wire::{Call, PassReason, Verdict};

const M: u64 = 1 << 20;

/// The shim of a hanging disk gets keepalives; the other disk's shims notice nothing.
#[test]
fn a_hanging_disk_holds_up_nobody_else() {
    let bench = Bench::start(|_| {});
    let (Some(hanging), Some(healthy)) = (Gated::mount(), Gated::mount()) else { return };
    hanging.set_closed(true);
    let stuck: Vec<_> = (2..6)
        .map(|inode| {
            let client = bench.client();
            client.need(hanging.open(inode), Call::Read, 0, 64 << 10);
            client
        })
        .collect();
    bench.until("a read in flight", |s| s.disks.iter().any(|d| d.in_flight_now > 0));
    for inode in 2..10 {
        let client = bench.client();
        client.need(healthy.open(inode), Call::Sendfile, 0, M);
        assert_eq!(client.answer().verdict, Verdict::Resident);
    }
    let status = bench.until("keepalives", |s| s.counters.working_sent >= 2 * stuck.len() as u64);
    assert_eq!(status.disks.len(), 2, "a FUSE mount is a disk of its own");
    hanging.set_closed(false);
    for client in stuck {
        let (heard, working) = client.hear_counting();
        let Reply::Answer(answer) = heard else { panic!("{heard:?}") };
        assert_eq!(answer.verdict, Verdict::Resident);
        assert!(working >= 2, "heard from us {working} times while the disk hung");
    }
}

#[test]
fn nobody_waits_longer_than_the_bound_and_the_disk_is_used_again() {
    let bench = Bench::start(|s| s.engine.policy.wait_max = Nanos::from_millis(300));
    let Some(disk) = Gated::mount() else { return };
    disk.set_closed(true);
    let file = disk.open(2);
    let client = bench.client();
    client.need(&file, Call::Read, 0, 64 << 10);
    let answer = client.answer();
    assert_eq!((answer.verdict, answer.reason), (Verdict::Pass, PassReason::DiskError));
    disk.set_closed(false);
    bench.until("the hung read's end", |s| s.disks[0].in_flight_now == 0);
    client.need(disk.open(3), Call::Read, 0, 64 << 10);
    assert_eq!(client.answer().verdict, Verdict::Resident);
}

/// An error passes the requests it affects, whose clients then get it themselves, and no others.
#[test]
fn a_read_error_passes_only_those_it_concerns() {
    let bench = Bench::start(|s| s.engine.policy.prefetch = Bytes::mib(2));
    let Some(disk) = Gated::mount() else { return };
    disk.fail(M..M + 4096);
    let file = disk.open(2);
    let before = bench.client();
    before.need(&file, Call::Read, 0, 256 << 10);
    assert_eq!(before.answer().verdict, Verdict::Resident);
    let client = bench.client();
    bench.until("the piece's end", |s| s.disks[0].reads_failed == 1);
    client.need(disk.open(3), Call::Read, M - 4096, 64 << 10);
    let answer = client.answer();
    assert_eq!((answer.verdict, answer.reason), (Verdict::Pass, PassReason::DiskError));
    let status = bench.status();
    assert!(status.disks[0].last_error.as_deref().is_some_and(|e| e.contains("os error 5")), "{status:?}");
    client.need(&file, Call::Read, 4 * M, 64 << 10);
    assert_eq!(client.answer().verdict, Verdict::Resident);
}

/// The purpose of all this: with any number of requests, the disk gets one long read after the other, in
/// order.
#[test]
fn the_disk_sees_one_long_read_after_the_other() {
    let bench = Bench::start(|s| {
        s.engine.policy.reads_in_flight = 1;
        s.engine.policy.prefetch = Bytes::mib(2);
        s.engine.policy.order = OrderKind::Sweep;
    });
    let Some(disk) = Gated::mount() else { return };
    // The first request occupies the disk while the others queue up, in no order: they are one batch.
    disk.set_closed(true);
    let files: Vec<_> = [2, 9, 5, 12, 3, 8, 11, 4, 10, 6, 7].map(|inode| disk.open(inode)).into();
    let ask = |file| {
        let client = bench.client();
        client.need(file, Call::Sendfile, M, 128 << 10);
        client
    };
    let mut clients = vec![ask(&files[0])];
    bench.until("the first read", |_| !disk.seen().is_empty());
    clients.extend(files[1..].iter().map(ask));
    bench.until("all of them queued", |s| s.disks.iter().any(|d| d.requests == 11));
    disk.set_closed(false);
    for client in &clients {
        assert_eq!(client.answer().verdict, Verdict::Resident);
    }
    bench.until("all pieces", |s| s.disks[0].service.count == 11);
    assert_eq!(disk.files_at_once(), 1, "reads of two files were in the disk's queue together");
    let mut order: Vec<u64> = disk.seen().iter().map(|r| r.0).collect();
    order.dedup();
    assert_eq!(order, (2..=12).collect::<Vec<u64>>(), "the elevator goes up, each file once");
    for file in &files {
        assert_eq!(cached(file, M, 2 * M), 2 * M);
    }
    assert_eq!(bench.status().disks[0].bytes_read, 11 * 2 * M);
}
