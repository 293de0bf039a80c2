//! What the thread of a disk reports to its engine about the machine: its memory, the concurrency limit of
//! the disk, whether the disk is left to its readers, and bitrates known beforehand.
//!
//! Memory is a [`MemoryLimit`], which the engine's budget follows: what pages of files can take of the
//! machine and of the cgroup, because programs hold the rest. Where the kernel accounts for pressure (PSI)
//! and pages are read back from swap, waiting tasks are reported as well: other tasks are short of memory
//! before this process is, and their pages are evicted for what it fetches. Pressure alone says nothing.
//! Clients that wait for a page of the library that was in memory before count as such tasks, and every
//! library larger than memory has them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use seekless_base::{Bytes, Nanos};
use seekless_kernel::memory::{page_cache_limit, page_cache_room, pressure, swapped_in};
use seekless_policy::memory::REPORT_EVERY;
use seekless_policy::pool::{MemoryUse, Pool};
use seekless_policy::{Event, FileId, MemoryLimit};
use smart_default::SmartDefault;

use crate::disk_thread::DiskLoop;

/// Fraction of the last ten seconds in which some task waited for memory, from which on memory is short. A
/// page cache full of files read once shows one or two per cent.
const PRESSURE: f64 = 0.1;

/// Bytes of memory that reads of this process may fill: the machine's, or its cgroup's if that is less.
/// `None` if /proc cannot be read.
pub fn page_cache() -> Option<Bytes> {
    page_cache_limit().map(Bytes)
}

/// The memory that all disks share.
#[derive(Debug, SmartDefault)]
pub(crate) struct SharedMemory {
    pool: Mutex<Pool<u64>>,
    #[default(Instant::now())]
    began: Instant,
    disks: AtomicU64,
}

impl SharedMemory {
    /// Adds a disk and returns its key.
    pub(crate) fn join(&self) -> u64 {
        self.disks.fetch_add(1, Ordering::Relaxed)
    }

    /// The part of `limit` for a disk whose memory use is this.
    fn report(&self, disk: u64, limit: Bytes, memory_use: MemoryUse) -> Bytes {
        let now = Nanos::from_secs_f64(self.began.elapsed().as_secs_f64());
        self.pool.lock().unwrap_or_else(PoisonError::into_inner).report(now, disk, limit, memory_use)
    }
}

/// Observes the machine's memory.
#[derive(Debug, Default)]
pub(crate) struct Machine {
    /// Number of pages read back from swap, at the last report.
    swapped_in: Option<u64>,
}

impl Machine {
    /// The memory of a disk whose memory use is this.
    pub(crate) fn limit(&mut self, shared: &SharedMemory, disk: u64, memory_use: MemoryUse) -> MemoryLimit {
        let room = page_cache_room().map_or(MemoryLimit::default().bytes, Bytes);
        let before = std::mem::replace(&mut self.swapped_in, swapped_in());
        let swaps = before.zip(self.swapped_in).is_some_and(|(before, now)| now > before);
        MemoryLimit {
            bytes: shared.report(disk, room, memory_use),
            tasks_wait: swaps && pressure().is_some_and(|part| part >= PRESSURE),
        }
    }
}

impl DiskLoop {
    /// Reports to the engine whether the disk is left to its readers, if that has changed.
    pub(crate) fn report_rest(&mut self) {
        let rests = self.rests.load(Ordering::Relaxed);
        if std::mem::replace(&mut self.resting, rests) != rests {
            self.event(Event::Rest(rests));
        }
    }

    /// Reports the machine's memory every [`REPORT_EVERY`], along with other periodic work.
    pub(crate) fn report_memory(&mut self) {
        let now = Instant::now();
        if now < self.memory_due {
            return;
        }
        self.memory_due = now + Duration::from_nanos(REPORT_EVERY.0);
        let limit = self.machine.limit(&self.memory, self.number, self.engine.memory_use());
        self.event(Event::MemoryLimit(limit));
        self.report_concurrency();
        self.report_bitrates();
        if self.is_awake() {
            self.files.renew_volume(now);
        }
        self.files.end_all_passing();
        if self.sleep.is_none() {
            // It may lie on a disk that sleeps. It is kept at the end in any case.
            self.disk.remember(&self.engine.stats().size);
        }
        self.log.flush();
    }

    /// Whether this program's own work may touch the disk: always, without `--quiet`.
    pub(crate) fn is_awake(&self) -> bool {
        self.sleep.as_ref().is_none_or(|sleep| sleep.is_awake(&self.disk.name))
    }

    /// Reports the bitrates of all open files, if the table has been read since the last report.
    fn report_bitrates(&mut self) {
        let read = self.bitrates.read();
        if std::mem::replace(&mut self.bitrates_told, read) != read {
            let open: Vec<FileId> = self.files.all().collect();
            open.into_iter().for_each(|file| self.tell_bitrate(file));
        }
    }

    /// Reports the bitrate of an open file.
    pub(crate) fn tell_bitrate(&mut self, file: FileId) {
        if let Some(bytes_per_s) = self.bitrates.of(file) {
            self.event(Event::Bitrate { file, bytes_per_s });
        }
    }

    /// Reports the concurrency limit of the disk, once it is measured.
    fn report_concurrency(&mut self) {
        let measured = self.kinds.as_ref().and_then(|kinds| kinds.at_once(&self.disk.name));
        if let Some(at_once) = measured.filter(|_| measured != self.disk.measured_at_once) {
            self.disk.measured_at_once = measured;
            self.event(Event::InFlight(at_once));
        }
        self.disk.bears(self.engine.stats().at_once);
    }
}
