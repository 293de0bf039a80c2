//! The load of a decision log: which reads were requested, when, and their results.

use std::collections::BTreeMap;

use seekless_base::{Fault, Lba, Nanos, SECTOR_BYTES};
use seekless_policy::decisions::Entry;
use seekless_policy::{Access, Action, Config, Demand, Event, Request, RequestId, Taken};

use super::Log;

/// Longer reads are cut, because a longer record is malformed.
const READ_BYTES_MAX: u64 = 1 << 30;

/// A read of the log: its time and range.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) at: Nanos,
    pub(super) read: Access,
    /// Reported as an access, by which the engine follows streams.
    pub(super) access: bool,
    pub(super) demand: Demand,
}

/// The load of one disk.
#[derive(Clone, Debug)]
pub struct Load {
    /// The disk's name.
    pub name: String,
    /// Its settings.
    pub config: Config,
    pub(super) asked: Vec<Asked>,
    /// Its reports of memory, bitrates and writes.
    pub(super) told: Vec<(Nanos, Event)>,
    /// The recorded measurements.
    pub then: Outcomes,
}

/// The results of a load.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcomes {
    /// Reads of servers.
    pub reads: u64,
    /// Of these, reads that had to wait.
    pub waited: u64,
    /// Mean and 95th percentile of their waits, milliseconds.
    pub wait_ms: (f64, f64),
    /// Reads of the disk.
    pub disk_reads: u64,
    /// Bytes read from it.
    pub disk_bytes: u64,
    /// Bytes written to it, as far as its daemon observed.
    pub written_bytes: u64,
    /// Share of the time in which it was busy; `None` if that was not measured.
    pub busy: Option<f64>,
    /// From the first to the last read, seconds.
    pub span_s: f64,
}

/// Reads the load of every disk from a log.
///
/// # Errors
/// The log cannot be read.
pub fn loads(log: &mut Log) -> Result<Vec<Load>, Fault> {
    struct DiskLoad {
        load: Load,
        waiting: BTreeMap<RequestId, Nanos>,
        waits: Vec<f64>,
    }
    let mut disks: BTreeMap<u32, DiskLoad> = BTreeMap::new();
    while let Some(line) = log.next_line()? {
        if let Entry::Disk { name, config } = line.entry {
            let load = Load { name, config: *config, asked: vec![], told: vec![], then: Outcomes::default() };
            disks.insert(line.disk, DiskLoad { load, waiting: BTreeMap::new(), waits: vec![] });
            continue;
        }
        let Some(disk) = disks.get_mut(&line.disk) else { continue };
        let then = &mut disk.load.then;
        match line.entry {
            Entry::Event(Event::Request(r)) => {
                let Request { id, file, len, file_size, lba, demand, .. } = r;
                let offset = r.from.min(r.offset);
                let (found, whole) = (r.offset.saturating_sub(offset), file_size.saturating_sub(offset));
                let len =
                    if len == 0 { whole } else { len.saturating_add(found).min(whole) }.min(READ_BYTES_MAX);
                let lba = lba.map(|l| Lba(l.0.saturating_sub(found / SECTOR_BYTES)));
                disk.waiting.insert(id, line.at);
                let read = Access { file, offset, len, file_size, lba, taken: Taken::All };
                disk.load.asked.push(Asked { at: line.at, read, access: false, demand });
                then.reads += 1;
            }
            Entry::Event(Event::Access(a)) => {
                let read = Access { len: a.len.min(READ_BYTES_MAX), ..a };
                disk.load.asked.push(Asked { at: line.at, read, access: true, demand: Demand::default() });
                then.reads += 1;
            }
            Entry::Event(
                event @ (Event::MemoryLimit(_)
                | Event::Bitrate { .. }
                | Event::Rest(_)
                | Event::InFlight(_)
                | Event::Writes(_)),
            ) => {
                if let Event::Writes(writes) = event {
                    then.written_bytes = then.written_bytes.saturating_add(writes.bytes);
                }
                disk.load.told.push((line.at, event));
            }
            Entry::Action(Action::Read { len, .. }) => {
                then.disk_reads += 1;
                then.disk_bytes += len;
            }
            Entry::Action(Action::Answer { request, .. }) => {
                if let Some(from) = disk.waiting.remove(&request) {
                    disk.waits.push(line.at.since(from).as_millis_f64());
                }
            }
            Entry::Event(_) | Entry::Disk { .. } | Entry::Action(_) => {}
        }
        then.span_s = line.at.as_secs_f64();
    }
    let finish = |mut t: DiskLoad| {
        t.load.then.waited = t.waits.len() as u64;
        t.load.then.wait_ms = mean_and_p95(&mut t.waits);
        t.load
    };
    Ok(disks.into_values().map(finish).collect())
}

/// Mean and 95th percentile.
pub(super) fn mean_and_p95(waits: &mut [f64]) -> (f64, f64) {
    if waits.is_empty() {
        return (0.0, 0.0);
    }
    waits.sort_by(f64::total_cmp);
    (waits.iter().sum::<f64>() / waits.len() as f64, waits[(waits.len() - 1) * 95 / 100])
}
