//! The size found by its gradient without reading ahead, as in \[A\]: it learns from hits too.

use seekless_base::{Bytes, Lba, Nanos};
use seekless_policy::sizing::controller::{AdjustBy, Params};
use seekless_policy::{
    Access, Action, Config, Demand, DiskEngine, Event, FileId, OrderKind, Outcome, Request, RequestId,
    Sizing, Taken,
};

const M: u64 = 1 << 20;
const RANGE: u64 = M / 2;
const FILE: u64 = 4096 * M;

fn asap(params: Params) -> DiskEngine {
    let sizing = Sizing::Auto(Params { adjust_by: AdjustBy::Gradient, ..params });
    DiskEngine::new(Config {
        sizing,
        start_size: Some(params.start_size),
        order: OrderKind::Fifo,
        ahead: None,
        ..Config::default()
    })
}

/// One reader reads range after range. It requests those that miss, and reports each when it is done. A read
/// costs a switch of 15 ms and 10 ms a MiB, and the reader requests the next at once. Returns at `until`.
fn reads_on(engine: &mut DiskEngine, until: Nanos) {
    let file = FileId { dev: 8, ino: 1 };
    let (mut now, mut there, mut id) = (Nanos(1), 0, 0);
    for offset in (0..FILE).step_by(RANGE as usize) {
        if now >= until {
            return;
        }
        if offset + RANGE > there {
            id += 1;
            engine.handle(
                now,
                Event::Request(Request {
                    id: RequestId(id),
                    file,
                    from: offset,
                    offset,
                    len: RANGE,
                    file_size: FILE,
                    lba: Some(Lba(offset / 512)),
                    demand: Demand::default(),
                }),
            );
            while let Some(action) = engine.poll_action() {
                if let Action::Read { id, offset, len, .. } = action {
                    now = now + Nanos::from_millis(15) + Nanos::from_millis(10 * len / M);
                    there = offset + len;
                    engine.handle(now, Event::Progress { read: id, upto: there });
                    engine.handle(now, Event::Done { read: id, outcome: Outcome::Ok });
                }
            }
        }
        let access = Access { file, offset, len: RANGE, file_size: FILE, lba: None, taken: Taken::All };
        engine.handle(now, Event::Access(access));
    }
    panic!("the file ended");
}

#[test]
fn every_byte_read_is_requested_once_whether_it_hit_or_missed() {
    let mut engine = asap(Params::default());
    reads_on(&mut engine, Nanos::from_secs(1));
    let stats = engine.stats();
    assert!(stats.accesses > 0 && stats.ledger.requested == stats.accesses * RANGE, "{:?}", stats.ledger);
    // Only misses are read: a piece of 3 MiB brings six ranges.
    assert_eq!(stats.ahead, 0);
    assert!(stats.ledger.disk.abs_diff(stats.ledger.requested) <= 3 * M, "{:?}", stats.ledger);
}

#[test]
fn the_gradient_finds_that_one_sequential_reader_wants_larger_pieces() {
    let adjust_interval = Nanos::from_secs(2);
    let mut engine = asap(Params { adjust_interval, start_size: Bytes::mib(1), ..Params::default() });
    let first = engine.stats().size.size;
    reads_on(&mut engine, Nanos::from_secs(30));
    let size = engine.stats().size;
    assert!(size.intervals >= 10 && size.size > first, "{} -> {}: {}", first, size.size, size.decision);
}
