//! The drive of a replay: long reads go to it in commands, and their progress is reported. It also writes; a
//! log does not say where, so the writes go to one file in the middle of the disk, from end to end.

use std::collections::{BTreeMap, VecDeque};

use seekless_base::{Lba, Nanos, SECTOR_BYTES};
use seekless_model::drive::{Command, Drive, DriveSpec, Op};
use seekless_policy::FileId;

/// Maximum length of a command to the drive, as Linux' block layer cuts large reads.
const COMMAND_BYTES: u64 = 1 << 20;

/// A read of a file, named by the caller.
#[derive(Clone, Copy, Debug)]
pub(super) struct Read<T> {
    pub(super) what_for: T,
    pub(super) file: FileId,
    pub(super) offset: u64,
    pub(super) len: u64,
}

/// The progress of a read.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadProgress<T> {
    pub(super) read: Read<T>,
    /// The new bytes, `[from, upto)` of the file.
    pub(super) from: u64,
    pub(super) upto: u64,
    /// Whether the read has ended.
    pub(super) complete: bool,
}

/// A read in progress.
#[derive(Debug)]
struct Reading<T> {
    read: Read<T>,
    /// Which of its commands are done.
    done: Vec<bool>,
}

/// A drive, and the reads in progress.
pub(super) struct Device<T> {
    drive: Drive,
    /// When the next command ends.
    next_done: Option<Nanos>,
    /// Commands for which the drive has no room yet.
    held: VecDeque<Command>,
    readings: BTreeMap<u64, Reading<T>>,
    /// For each command: the read, and its number in it.
    commands: BTreeMap<u64, (u64, usize)>,
    /// Bytes of the writes in progress, by command.
    writes: BTreeMap<u64, u64>,
    /// The place of the next write, in sectors behind the middle.
    write_at: u64,
    /// Bytes written.
    written: u64,
    next_id: u64,
    /// Minimum number of sectors of the log's disk.
    sectors_then: u64,
}

impl<T: Copy> Device<T> {
    /// An idle drive in place of a disk of `sectors_then`.
    pub(super) fn new(spec: &DriveSpec, sectors_then: u64) -> Device<T> {
        Device {
            drive: Drive::new(spec),
            next_done: None,
            held: VecDeque::new(),
            readings: BTreeMap::new(),
            commands: BTreeMap::new(),
            writes: BTreeMap::new(),
            write_at: 0,
            written: 0,
            next_id: 0,
            sectors_then: sectors_then.max(1),
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.readings.is_empty() && self.writes.is_empty()
    }

    /// Number of writes in progress.
    pub(super) fn writes(&self) -> u64 {
        self.writes.len() as u64
    }

    /// Bytes written so far.
    pub(super) fn written(&self) -> u64 {
        self.written
    }

    /// Starts to write this number of bytes.
    pub(super) fn write(&mut self, now: Nanos, mut bytes: u64) {
        let disk = self.drive.sectors();
        while bytes > 0 {
            let len = bytes.min(COMMAND_BYTES);
            let sectors = len.div_ceil(SECTOR_BYTES);
            if self.write_at + sectors > disk / 2 {
                self.write_at = 0;
            }
            self.next_id += 1;
            let lba = Lba(disk / 2 + self.write_at);
            self.held.push_back(Command { id: self.next_id, op: Op::Write, lba, sectors: sectors as u32 });
            self.writes.insert(self.next_id, len);
            (self.write_at, bytes) = (self.write_at + sectors, bytes - len);
        }
        self.submit(now);
    }

    /// When the next command ends.
    pub(super) fn next_done(&self) -> Option<Nanos> {
        self.next_done
    }

    /// The place of a read on this drive, in sectors.
    fn place(&self, file: FileId, offset: u64, lba: Option<Lba>) -> u64 {
        let sectors = self.drive.sectors();
        let then = match lba {
            Some(lba) => lba.0,
            // The place is not known: each file gets some place, with its bytes in a row.
            None => {
                let spread = (file.ino ^ file.dev.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                return (spread % sectors + offset / SECTOR_BYTES) % sectors;
            }
        };
        if self.sectors_then <= sectors {
            return then.min(sectors - 1);
        }
        (u128::from(then) * u128::from(sectors) / u128::from(self.sectors_then)) as u64
    }

    /// Starts a read whose first byte had this address on the log's disk.
    pub(super) fn read(&mut self, now: Nanos, read: Read<T>, lba: Option<Lba>) {
        let place = self.place(read.file, read.offset, lba);
        self.next_id += 1;
        let reading = self.next_id;
        let count = read.len.div_ceil(COMMAND_BYTES).max(1);
        for i in 0..count {
            let bytes = COMMAND_BYTES.min(read.len - (i * COMMAND_BYTES).min(read.len));
            self.next_id += 1;
            self.commands.insert(self.next_id, (reading, i as usize));
            let lba = (place + i * COMMAND_BYTES / SECTOR_BYTES) % self.drive.sectors();
            let sectors = bytes.div_ceil(SECTOR_BYTES).max(1) as u32;
            self.held.push_back(Command { id: self.next_id, op: Op::Read, lba: Lba(lba), sectors });
        }
        self.readings.insert(reading, Reading { read, done: vec![false; count as usize] });
        self.submit(now);
    }

    fn submit(&mut self, now: Nanos) {
        while let Some(command) = self.held.front().copied() {
            if self.drive.submit(now, command).is_err() {
                break;
            }
            self.held.pop_front();
        }
        self.next_done = self.drive.next_completion();
    }

    /// The progress by now.
    pub(super) fn poll(&mut self, now: Nanos) -> Vec<ReadProgress<T>> {
        let mut came = Vec::new();
        while let Some(done) = self.drive.poll(now) {
            if let Some(bytes) = self.writes.remove(&done.id) {
                self.written += bytes;
                continue;
            }
            let Some((id, command)) = self.commands.remove(&done.id) else { continue };
            let Some(reading) = self.readings.get_mut(&id) else { continue };
            let in_a_row = |done: &[bool]| done.iter().take_while(|d| **d).count() as u64;
            let before = in_a_row(&reading.done);
            reading.done[command] = true;
            let whole = in_a_row(&reading.done);
            let (read, complete) = (reading.read, whole as usize == reading.done.len());
            let offset = |commands: u64| read.offset + (commands * COMMAND_BYTES).min(read.len);
            came.push(ReadProgress { read, from: offset(before), upto: offset(whole), complete });
            if complete {
                self.readings.remove(&id);
            }
        }
        self.submit(now);
        came
    }
}
