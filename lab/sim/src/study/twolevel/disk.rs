//! The device below the lowest cache: a block scheduler and a drive, or a device that takes no time.

use seekless_base::{Lba, Nanos, SECTOR_BYTES};
use seekless_model::drive::{Command, Drive, DriveSpec, Op};

use super::scheduler::{Deadline, DiskRequest, Queued, Turns};

/// Maximum length of a merged request in bytes: `max_sectors_kb` of Linux 2.6.
const MERGED_BYTES_MAX: u64 = 512 << 10;
/// Number of waiting requests from which on everything merges: with this many, saving a request is worth more
/// than an answer a few milliseconds earlier.
const BACKLOG: u64 = 4;
/// Bits of a block key that number the block within its device; the device is above. 2^40 blocks of 4 KiB are
/// 4 PiB.
pub const DEVICE_SHIFT: u32 = 40;
/// Maximum number of devices in one trace: the rest of a 64-bit key, less one so that no key is the largest
/// number.
pub const DEVICES_MAX: u64 = (1 << (64 - DEVICE_SHIFT)) - 1;

/// Counters of the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskCounts {
    /// Reads the drive carried out, after merging.
    pub requests: u64,
    /// Blocks it read.
    pub blocks: u64,
    /// Writes it took, after merging.
    pub writes: u64,
    /// Blocks of these writes.
    pub written: u64,
    /// Time in which its heads moved to what was written, and wrote it, up to the last command.
    pub write_time: Nanos,
    /// Time with a command. The write cache is emptied outside of it too.
    pub busy: Nanos,
    /// Longest queue seen.
    pub queue_max: u64,
}

impl DiskCounts {
    fn add(&mut self, op: Op, blocks: u64) {
        let (requests, all) = match op {
            Op::Write => (&mut self.writes, &mut self.written),
            Op::Read | Op::Flush => (&mut self.requests, &mut self.blocks),
        };
        *requests += 1;
        *all += blocks;
    }
}

#[derive(Debug)]
enum Below {
    /// Everything arrives at once: for counts, if time does not matter.
    Instant,
    Drive(Box<Spinning>),
}

#[derive(Debug)]
struct Spinning {
    drive: Drive,
    reads: Deadline,
    writes: Deadline,
    turns: Turns,
    waiting: u64,
    current: Option<(DiskRequest, Nanos)>,
    sectors_per_block: u64,
    blocks: u64,
    /// Number of devices that divide the drive; 0: not known.
    devices: u64,
}

/// The disk and its scheduler.
#[derive(Debug)]
pub(super) struct ScheduledDrive {
    below: Below,
    pub(super) counts: DiskCounts,
}

/// The result of submitting a fetch.
pub(super) enum Submitted {
    /// It has arrived already.
    Done,
    /// It waits as a request of its own.
    Alone,
    /// It waits together with this fetch; the caller must chain it behind that.
    Merged(u32),
}

impl ScheduledDrive {
    pub(super) fn instant() -> ScheduledDrive {
        ScheduledDrive { below: Below::Instant, counts: DiskCounts::default() }
    }

    /// An idle drive; `block_bytes` is a multiple of 512, `devices` is that of [`super::SystemSpec`].
    pub(super) fn new(spec: &DriveSpec, block_bytes: u64, devices: u64) -> ScheduledDrive {
        let drive = Drive::new(spec);
        let sectors_per_block = (block_bytes / SECTOR_BYTES).max(1);
        let blocks = (drive.sectors() / sectors_per_block).max(1);
        let merge = (MERGED_BYTES_MAX / block_bytes).max(1);
        let spinning = Spinning {
            drive,
            reads: Deadline::new(merge),
            writes: Deadline::of_writes(merge),
            turns: Turns::default(),
            waiting: 0,
            current: None,
            sectors_per_block,
            blocks,
            devices,
        };
        ScheduledDrive { below: Below::Drive(Box::new(spinning)), counts: DiskCounts::default() }
    }

    /// A fetch of the blocks with keys `first..=last`. If `apart`, it merges only with fetches that are
    /// `apart` too, unless there is a backlog.
    pub(super) fn submit(&mut self, now: Nanos, run: (u64, u64), fetch: u32, apart: bool) -> Submitted {
        self.enter(now, run, fetch, apart, Op::Read)
    }

    /// The blocks with keys `first..=last` are written; `fetch` is notified when the drive has them.
    pub(super) fn write(&mut self, now: Nanos, run: (u64, u64), fetch: u32) -> Submitted {
        self.enter(now, run, fetch, false, Op::Write)
    }

    fn enter(&mut self, now: Nanos, (first, last): (u64, u64), fetch: u32, apart: bool, op: Op) -> Submitted {
        let s = match &mut self.below {
            Below::Instant => {
                self.counts.add(op, last - first + 1);
                return Submitted::Done;
            }
            Below::Drive(s) => s,
        };
        let at = s.address(first);
        let backlog = s.waiting >= BACKLOG;
        let queue = if op == Op::Write { &mut s.writes } else { &mut s.reads };
        let queued = queue.push(now, (at, at + (last - first)), fetch, apart, backlog);
        if queued == Queued::Alone {
            s.waiting += 1;
            self.counts.queue_max = self.counts.queue_max.max(s.waiting);
        }
        if s.current.is_none() {
            self.start_next(now);
        }
        match queued {
            Queued::Alone => Submitted::Alone,
            Queued::Merged(with) => Submitted::Merged(with),
        }
    }

    /// When the current request ends.
    #[inline]
    pub(super) fn next_completion(&self) -> Option<Nanos> {
        match &self.below {
            Below::Instant => None,
            Below::Drive(s) => s.current.map(|(_, at)| at),
        }
    }

    /// Ends the current request, at its time, and starts the next. Returns the first of its fetches.
    pub(super) fn complete(&mut self) -> Option<u32> {
        let Below::Drive(s) = &mut self.below else { return None };
        let (request, at) = s.current.take()?;
        self.start_next(at);
        Some(request.fetches)
    }

    fn start_next(&mut self, now: Nanos) {
        let Below::Drive(s) = &mut self.below else { return };
        let write = s.turns.next_is_write(&mut s.reads, &mut s.writes);
        let (queue, op) = if write { (&mut s.writes, Op::Write) } else { (&mut s.reads, Op::Read) };
        let Some(request) = queue.pop(now) else { return };
        s.waiting = s.waiting.saturating_sub(1);
        let blocks = request.last - request.first + 1;
        let end = (request.first + blocks).min(s.blocks);
        let sectors = ((end - request.first) * s.sectors_per_block).min(u64::from(u32::MAX)) as u32;
        let lba = Lba(request.first * s.sectors_per_block);
        let command = Command { id: 0, op, lba, sectors: sectors.max(1) };
        // One command at a time, so the drive's queue has room, and its end is known at once.
        let end = match s.drive.submit(now, command) {
            Ok(()) => s.drive.next_completion().unwrap_or(now).max(now),
            Err(_) => now,
        };
        // Takes the completion out of the drive, which returns its time again with the next command.
        while s.drive.poll(end).is_some() {}
        self.counts.add(op, blocks);
        self.counts.write_time = s.drive.write_time();
        self.counts.busy += end.since(now);
        s.current = Some((request, end));
    }
}

impl Spinning {
    /// Disk address, in blocks, of a block key. A known number of devices have equal parts of the drive, one
    /// behind the other; otherwise their starts are spread over it by the golden ratio. An address beyond the
    /// drive's end continues at its beginning: runs stay runs, distances stay distances, and a trace of a
    /// larger disk can be replayed. One block in a cache is always one block on the disk.
    fn address(&self, key: u64) -> u64 {
        const GOLDEN: f64 = 0.618_033_988_749_894_9;
        let device = key >> DEVICE_SHIFT;
        let block = key & ((1 << DEVICE_SHIFT) - 1);
        if let Some(part) = self.blocks.checked_div(self.devices) {
            return (device % self.devices * part + block) % self.blocks;
        }
        let share = (device as f64 * GOLDEN) % 1.0;
        ((share * self.blocks as f64) as u64 + block) % self.blocks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_of_a_known_number_divide_the_whole_drive() {
        let spec = seekless_model::drive::catalogue::get("cheetah-9lp").unwrap();
        let address = |devices, device: u64, block| {
            let Below::Drive(s) = ScheduledDrive::new(&spec, 4096, devices).below else {
                unreachable!("there is a drive")
            };
            (s.address((device << DEVICE_SHIFT) + block), s.blocks)
        };
        let (_, blocks) = address(24, 0, 0);
        let starts: Vec<u64> = (0..24).map(|device| address(24, device, 0).0).collect();
        assert_eq!((starts[0], starts[23]), (0, blocks / 24 * 23));
        assert!(starts.windows(2).all(|pair| pair[1] - pair[0] == blocks / 24));
        assert_eq!(address(24, 5, 77).0, starts[5] + 77, "runs stay runs");
        // The devices of a trace with an unknown number are spread by the golden ratio.
        assert_eq!(address(0, 1, 0).0, (0.618_033_988_749_894_9 * blocks as f64) as u64);
    }
}
