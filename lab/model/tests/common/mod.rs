//! What the tests of the drive model share: a host that keeps one or more commands outstanding.
#![allow(dead_code, reason = "every test binary uses a part of it")]

use seekless_base::{Lba, Nanos};
use seekless_model::drive::{Command, Completion, Drive, DriveSpec, Op, catalogue};

/// A drive of the catalogue.
pub(crate) fn spec(name: &str) -> DriveSpec {
    catalogue::get(name).unwrap_or_else(|| panic!("{name} is not in the catalogue"))
}

/// A read command.
pub(crate) fn read(id: u64, lba: u64, sectors: u32) -> Command {
    Command { id, op: Op::Read, lba: Lba(lba), sectors }
}

/// Submits one command at `now` and waits for its completion.
pub(crate) fn one(drive: &mut Drive, now: Nanos, command: Command) -> Completion {
    drive.submit(now, command).expect("the queue has room");
    let when = drive.next_completion().expect("a command is queued");
    drive.poll(when).expect("its time has come")
}

/// Reads one after another, each submitted the moment the one before is done.
pub(crate) fn serial(
    drive: &mut Drive,
    mut now: Nanos,
    reads: impl IntoIterator<Item = (u64, u32)>,
) -> Nanos {
    for (lba, sectors) in reads {
        now = one(drive, now, read(0, lba, sectors)).finished;
    }
    now
}

/// Mean, median and 95th percentile.
pub(crate) fn summary(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    let n = values.len();
    [values.iter().sum::<f64>() / n as f64, values[n / 2], values[n * 95 / 100]]
}

/// Fails unless `got` is within `percent` of `want`.
pub(crate) fn within(what: &str, got: f64, want: f64, percent: f64) {
    let off = (got - want) / want * 100.0;
    println!("{what}: {got:.3}, published {want:.3} ({off:+.2} %)");
    assert!(off.abs() <= percent, "{what}: {got:.3} is {off:+.2} % off {want:.3}, {percent} % are allowed");
}
