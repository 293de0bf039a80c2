//! What serves the commands of a software disk: drives of the catalogue, or the second model.

use seekless_base::{Bytes, Lba, Nanos, SECTOR_BYTES};
use seekless_model::drive::set::{DriveSet, SetCompletion};
use seekless_model::drive::{Command, Completion, DriveSpec, Op, QueueFull, ServiceTime};
use seekless_model::platter::{DataSheet, Done, Platter};
use serde::{Deserialize, Serialize};

/// Which model of a hard disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Model {
    /// `seekless_model::drive`: every figure of the drive's file.
    #[default]
    Drive,
    /// `seekless_model::platter`: the drive's data sheet, and other rules for queue and buffer.
    Platter,
}

/// The model at work.
pub enum Mechanism {
    /// One drive, or a set of them.
    Set(Box<DriveSet>),
    /// One drive by the second model.
    Platter(Box<Platter>),
}

/// The figures of a drive that stand in a data sheet.
pub fn data_sheet(spec: &DriveSpec) -> DataSheet {
    let ms = |tracks: u32| spec.seek_time_over(tracks.max(1)).as_secs_f64() * 1e3;
    let rate = |lba: u64| spec.media_rate(Lba(lba)) / 1e6;
    let (outer, inner) = (rate(0), rate(spec.sectors() - 1));
    let (track_ms, stroke) = (ms(1), spec.cylinders() - 1);
    let average_ms = ms(stroke / 3).max(track_ms);
    let buffer = u64::from(spec.buffer.segments) * u64::from(spec.buffer.segment_sectors) * SECTOR_BYTES;
    DataSheet {
        rpm: 60.0 / spec.rotation_period().as_secs_f64(),
        sectors: spec.sectors(),
        outer_mb_per_s: outer,
        inner_mb_per_s: inner.min(outer),
        track_ms,
        average_ms,
        full_ms: ms(stroke).max(average_ms),
        buffer: Bytes(buffer),
        queue: spec.queue.depth,
        command_ms: spec.electronics.read_miss_ms,
        bus_mb_per_s: spec.electronics.bus_mb_per_s,
    }
}

fn completion(done: Done) -> SetCompletion {
    let Done { asked, arrived, started, finished, command, seek, rotation, transfer, distance, from_buffer } =
        done;
    let service = ServiceTime {
        overhead: command,
        seek,
        rotation,
        transfer,
        seek_distance: distance,
        from_buffer,
        joined_stream: false,
    };
    let op = if asked.write { Op::Write } else { Op::Read };
    let (id, lba, sectors) = (asked.id, asked.lba, asked.sectors);
    let done = Completion { id, op, lba, sectors, arrived, started, finished, service };
    SetCompletion { done, failed: false }
}

impl Mechanism {
    /// 512-byte sectors.
    pub fn sectors(&self) -> u64 {
        match self {
            Mechanism::Set(set) => set.sectors(),
            Mechanism::Platter(platter) => platter.sheet().sectors,
        }
    }

    /// Whether it acknowledges writes before they are on the medium, so that a flush has something to do.
    pub fn caches_writes(&self) -> bool {
        match self {
            Mechanism::Set(set) => set.spec().buffer.write_cache_sectors > 0,
            Mechanism::Platter(_) => false,
        }
    }

    /// Time in which the heads went to what was written, and wrote it. The second model does not tell it
    /// apart: zero.
    pub fn write_time(&self) -> Nanos {
        match self {
            Mechanism::Set(set) => set.write_time(),
            Mechanism::Platter(_) => Nanos::ZERO,
        }
    }

    /// Commands it takes at once.
    pub fn depth(&self) -> usize {
        match self {
            Mechanism::Set(set) => set.depth(),
            Mechanism::Platter(platter) => platter.sheet().queue as usize,
        }
    }

    /// Commands submitted whose end has not been polled.
    pub fn queue_len(&self) -> usize {
        match self {
            Mechanism::Set(set) => set.queue_len(),
            Mechanism::Platter(platter) => platter.queue_len(),
        }
    }

    /// A command arrives.
    ///
    /// # Errors
    /// [`QueueFull`]; nothing has changed then.
    pub fn submit(&mut self, now: Nanos, command: Command) -> Result<(), QueueFull> {
        match self {
            Mechanism::Set(set) => set.submit(now, command),
            Mechanism::Platter(platter) => {
                let Command { id, op, lba, sectors } = command;
                let command = seekless_model::platter::Command { id, write: op == Op::Write, lba, sectors };
                if platter.submit(now, command) { Ok(()) } else { Err(QueueFull) }
            }
        }
    }

    /// When to poll next.
    pub fn next_event(&mut self) -> Option<Nanos> {
        match self {
            Mechanism::Set(set) => set.next_event(),
            Mechanism::Platter(platter) => platter.next_event(),
        }
    }

    /// The next command that is done by `now`.
    pub fn poll(&mut self, now: Nanos) -> Option<SetCompletion> {
        match self {
            Mechanism::Set(set) => set.poll(now),
            Mechanism::Platter(platter) => platter.poll(now).map(completion),
        }
    }

    /// The drives, where there may be several.
    pub fn set(&self) -> Option<&DriveSet> {
        match self {
            Mechanism::Set(set) => Some(set),
            Mechanism::Platter(_) => None,
        }
    }

    /// The same, to change it.
    pub fn set_mut(&mut self) -> Option<&mut DriveSet> {
        match self {
            Mechanism::Set(set) => Some(set),
            Mechanism::Platter(_) => None,
        }
    }
}

impl From<DriveSet> for Mechanism {
    fn from(set: DriveSet) -> Mechanism {
        Mechanism::Set(Box::new(set))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seekless_model::drive::catalogue;

    #[test]
    fn every_drive_of_the_catalogue_has_a_data_sheet() {
        let drawn = (0..50).map(|i| format!("drawn:5:{i}"));
        for name in catalogue::names().map(String::from).chain(drawn) {
            let sheet = data_sheet(&catalogue::get(&name).unwrap());
            assert_eq!(sheet.check(), Ok(()), "{name}: {sheet:?}");
        }
    }
}
