//! More requests than there is room for, and clients that disconnect.

mod common;

use common::{Bench, Reply, cached, cold_file};
use seekless_base::{Bytes, Nanos};
use seekless_wire::{Call, PassReason, Verdict};

const M: u64 = 1 << 20;

/// Many requests at once against a queue of one: each is answered, those beyond the bound with "full".
#[test]
fn a_full_queue_passes_and_answers_everybody() {
    let bench = Bench::start(|s| {
        s.engine.policy.queue_max = 1;
        s.engine.policy.prefetch = Bytes::mib(1);
    });
    let files: Vec<_> = (0..4).map_while(|_| cold_file(8 << 20)).collect();
    let mut clients = Vec::new();
    for i in 0..8u64 {
        for file in &files {
            let client = bench.client();
            client.need(file, Call::Pread, i * M, M);
            clients.push(client);
        }
    }
    let answers: Vec<_> = clients.iter().map(|c| c.answer()).collect();
    let resident = answers.iter().filter(|a| a.verdict == Verdict::Resident).count();
    let full = answers.iter().filter(|a| a.reason == PassReason::Full).count();
    assert_eq!(resident + full, clients.len(), "{answers:?}");
    let status = bench.status();
    assert!(status.disks.iter().all(|d| d.waiting_max <= 1));
}

#[test]
fn more_connections_than_allowed_are_closed_at_once() {
    let bench = Bench::start(|s| s.connections_max = 3);
    let held: Vec<_> = (0..3).map(|_| bench.client()).collect();
    bench.until("three connections", |s| s.counters.connections_now == 3);
    assert_eq!(bench.client().hear(), Reply::Closed);
    drop(held);
    bench.until("room again", |s| s.counters.connections_now == 0);
    let Some(file) = cold_file(M as usize) else { return };
    let client = bench.client();
    client.need(&file, Call::Read, 0, M);
    assert_eq!(client.answer().verdict, Verdict::Resident);
}

#[test]
fn a_client_that_hangs_up_is_forgotten() {
    let bench = Bench::start(|s| {
        s.engine.policy.reads_in_flight = 1;
        s.engine.policy.prefetch = Bytes::mib(8);
    });
    let Some(file) = cold_file(64 << 20) else { return };
    for round in 0..20 {
        // Several pieces ahead of it, then one whose client disconnects.
        let clients: Vec<_> = (0..8)
            .map(|i| {
                let client = bench.client();
                client.need(&file, Call::Pread, i * 8 * M, 64 << 10);
                client
            })
            .collect();
        drop(clients);
        let status = bench.until("nothing waits", |s| {
            s.counters.connections_now == 0
                && s.disks.iter().all(|d| d.waiting_now == 0 && d.in_flight_now == 0)
        });
        let passed: u64 = status.disks.iter().map(|d| d.passed["cancelled"]).sum();
        if status.counters.hang_ups > 0 && passed > 0 {
            return;
        }
        println!("round {round}: the disk was faster than the hang-up; again");
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    }
    println!("skipped: the disk here always answers before a client can hang up");
}

/// The sender of an advice does not wait for it, and it is followed all the same.
#[test]
fn advice_is_followed_although_its_giver_hangs_up() {
    let bench = Bench::start(|_| {});
    let Some(file) = cold_file(4 << 20) else { return };
    let client = bench.client();
    client.need(&file, Call::Fadvise, 0, 2 * M);
    drop(client);
    bench.until("the read", |s| s.disks.iter().any(|d| d.service.count == 1));
    assert_eq!(cached(&file, 0, 2 * M), 2 * M);
    assert_eq!(bench.status().counters.hang_ups, 0);
}

/// A request that cannot be served in time is given up, so no client waits for ever. With a limit of zero,
/// every request is.
#[test]
fn requests_are_given_up_in_time() {
    let bench = Bench::start(|s| s.engine.policy.wait_max = Nanos::ZERO);
    let Some(file) = cold_file(4 << 20) else { return };
    let client = bench.client();
    client.need(&file, Call::Read, 0, M);
    let answer = client.answer();
    assert_eq!((answer.verdict, answer.reason), (Verdict::Pass, PassReason::DiskError));
}

#[test]
fn stopping_answers_or_closes_everybody() {
    let bench = Bench::start(|s| s.engine.policy.reads_in_flight = 1);
    let Some(file) = cold_file(64 << 20) else { return };
    let clients: Vec<_> = (0..32)
        .map(|i| {
            let client = bench.client();
            client.need(&file, Call::Pread, i * 2 * M, 64 << 10);
            client
        })
        .collect();
    let idle = bench.client();
    bench.until("all have arrived", |s| s.counters.needs == 32);
    drop(bench);
    for client in clients {
        match client.hear() {
            Reply::Answer(a) if a.verdict == Verdict::Resident || a.reason == PassReason::Closing => {}
            Reply::Closed => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(idle.hear(), Reply::Closed);
}

/// A silent connection is closed in the end. (Five seconds; the slowest test here.)
#[test]
fn silent_connections_are_closed() {
    let bench = Bench::start(|_| {});
    let client = bench.client();
    assert_eq!(client.hear(), Reply::Closed);
    drop(bench);
}
