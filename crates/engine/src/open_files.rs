//! The files that the engine of a disk may read, and their places on the disk.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use crossbeam_channel::Receiver;
use seekless_base::{Lba, SECTOR_BYTES};
use seekless_kernel::prefetch::{Source, Steps};
use seekless_kernel::residency::resident_prefix;
use seekless_policy::{Event, FileId, KernelRead, ReadId};

use crate::addresses::{Addresses, Edition};
use crate::costs::Askers;
use crate::deleted_files::{FileThread, IN_USE, Left};
use crate::lock;
use crate::volume::Renewed;
use crate::worker::Job;

/// How to read a file.
pub(crate) struct OpenFile {
    pub(crate) source: Arc<Source>,
    /// Whether a passed descriptor is kept, because the file cannot be opened again.
    kept: bool,
    pub(crate) edition: Edition,
    /// First sector of the file system on the disk.
    pub(crate) start: u64,
    pub(crate) steps: Steps,
    /// When it was last requested or read.
    used: Instant,
    /// Which process reads where.
    askers: Askers,
}

impl OpenFile {
    /// Whether it is read through a descriptor of another process, which is kept for one piece only.
    fn is_passing(&self) -> bool {
        !self.source.is_own() && !self.kept
    }

    /// Whether that descriptor has served its piece.
    fn is_unused(&self) -> bool {
        self.is_passing() && Arc::strong_count(&self.source) == 1
    }
}

/// Open files, each from its first request or announced read until the engine closes it. A file is read
/// through the descriptor passed with its first request until it is opened again ([`crate::opener`]) or that
/// request is answered.
pub(crate) struct OpenFiles {
    files: HashMap<FileId, OpenFile>,
    addresses: Addresses,
    /// Where addresses lie, for a file system on several disks.
    volume: Option<Renewed>,
    /// Files of all disks that need not be opened again.
    open: Arc<Mutex<HashSet<FileId>>>,
    /// For calls that a file system can block.
    pub(crate) file_thread: FileThread,
}

impl OpenFiles {
    pub(crate) fn on(
        volume: Option<Renewed>,
        open: Arc<Mutex<HashSet<FileId>>>,
        file_thread: FileThread,
    ) -> OpenFiles {
        OpenFiles { files: HashMap::new(), addresses: Addresses::new(), volume, open, file_thread }
    }

    /// Receives the files that were deleted.
    pub(crate) fn deleted(&self) -> &Receiver<FileId> {
        &self.file_thread.deleted
    }

    /// The hole events since the last call, in order.
    pub(crate) fn learnt(&mut self) -> Vec<Event> {
        self.addresses.learnt()
    }

    /// Asks a file system on several disks for its layout, once in a while.
    pub(crate) fn renew_volume(&mut self, now: Instant) {
        let OpenFiles { files, volume: Some(volume), addresses, .. } = self else { return };
        let moved = volume.renew(now, || files.values().next().map(|open| open.source.clone()));
        if moved {
            addresses.forget();
        }
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = FileId> {
        self.files.keys().copied()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Adds a file to be read through `source`, if it is not open yet. `start` and `steps` belong to its file
    /// system.
    pub(crate) fn open(
        &mut self,
        file: FileId,
        edition: Edition,
        start: u64,
        steps: Steps,
        source: Arc<Source>,
    ) -> Arc<Source> {
        self.file_thread.closes(&source);
        let now = Instant::now();
        let open = self.files.entry(file).or_insert_with(|| {
            if source.is_own() {
                lock(&self.open).insert(file);
            }
            self.file_thread.opened(file, &source);
            OpenFile { source, kept: false, edition, start, steps, used: now, askers: Askers::default() }
        });
        (open.edition, open.start, open.steps, open.used) = (edition, start, steps, now);
        open.source.clone()
    }

    /// A file that was read through a passed descriptor has been opened again.
    pub(crate) fn opened(&mut self, file: FileId, source: Arc<Source>) {
        self.file_thread.closes(&source);
        let Some(open) = self.files.get_mut(&file).filter(|open| open.is_passing()) else { return };
        open.kept = !source.is_own();
        self.file_thread.opened(file, &source);
        open.source = source;
        lock(&self.open).insert(file);
    }

    /// Releases a passed descriptor that no read uses any more. The engine has not closed the file: further
    /// reads of it fail, as on a file that cannot be read, and the next miss passes another descriptor.
    pub(crate) fn end_passing(&mut self, file: FileId) {
        if self.files.get(&file).is_some_and(OpenFile::is_unused) {
            self.close(file);
        }
    }

    /// Releases all unused passed descriptors: a worker drops its source a moment after it has reported the
    /// end.
    pub(crate) fn end_all_passing(&mut self) {
        let all = self.files.iter().filter(|(_, open)| open.is_unused()).map(|(&file, _)| file);
        all.collect::<Vec<_>>().into_iter().for_each(|file| self.close(file));
    }

    pub(crate) fn get(&self, file: FileId) -> Option<&OpenFile> {
        self.files.get(&file)
    }

    /// A process has asked for bytes of a file.
    pub(crate) fn asked(&mut self, pid: u32, file: FileId, from: u64, upto: u64) {
        if let Some(open) = self.files.get_mut(&file) {
            open.askers.asked(pid, from, upto);
        }
    }

    /// The process for which bytes of a file are read; 0 if none is known.
    pub(crate) fn asker(&self, file: FileId, offset: u64) -> u32 {
        self.files.get(&file).map_or(0, |open| open.askers.of(offset))
    }

    /// Disk address of an open file's byte at `offset`, and the file size that belongs to the address.
    pub(crate) fn locate(&mut self, file: FileId, offset: u64) -> Option<(Option<Lba>, u64)> {
        let OpenFile { source, edition, start, used, .. } = self.files.get_mut(&file)?;
        *used = Instant::now();
        let address = self.addresses.of(file, *edition, source, offset);
        let lba = address.and_then(|bytes| match &mut self.volume {
            Some(renewed) => renewed.volume.lba(bytes),
            None => Some(Lba((bytes / SECTOR_BYTES).saturating_add(*start))),
        });
        Some((lba, edition.size))
    }

    /// What the kernel reads of an open file, if it said that it reads `bytes`.
    pub(crate) fn kernel_read(&mut self, file: FileId, bytes: Range<u64>) -> Option<KernelRead> {
        let open = self.files.get(&file)?;
        let size = open.edition.size;
        let looked_at = KernelRead::looked_at(bytes.start, size);
        // Bytes in flight count as resident.
        let resident = resident_prefix(open.source.as_fd(), bytes.start, looked_at).unwrap_or(looked_at);
        let read = KernelRead::new(file, bytes, resident, size);
        let (lba, _) = self.locate(file, read.end())?;
        Some(KernelRead { lba, ..read })
    }

    /// A job that reads a piece of an open file.
    pub(crate) fn job(&mut self, id: ReadId, file: FileId, offset: u64, len: u64) -> Option<Job> {
        let OpenFile { source, edition, steps, .. } = self.files.get(&file)?;
        let address = self.volume.as_ref().and_then(|_| self.addresses.of(file, *edition, source, offset));
        let mirror = self.volume.as_ref().and_then(|renewed| renewed.volume.mirror(address?));
        Some(Job { id, source: source.clone(), offset, len, steps: *steps, mirror })
    }

    pub(crate) fn close(&mut self, file: FileId) {
        self.addresses.close(file);
        if self.files.remove(&file).is_some() {
            lock(&self.open).remove(&file);
            self.file_thread.closed(file);
        }
    }

    /// Whether a file was used a moment ago.
    pub(crate) fn is_in_use(&self, file: FileId) -> bool {
        self.files.get(&file).is_some_and(|open| open.used.elapsed() < IN_USE)
    }

    /// The open files of a device. `left` is dropped once they are closed.
    pub(crate) fn leave(&self, dev: u64, left: Arc<Left>) -> Vec<FileId> {
        let of_device = || self.files.iter().filter(|(file, _)| file.dev == dev);
        self.file_thread.wait(of_device().map(|(_, open)| Arc::downgrade(&open.source)).collect(), left);
        of_device().map(|(&file, _)| file).collect()
    }
}

impl Drop for OpenFiles {
    fn drop(&mut self) {
        let mut open = lock(&self.open);
        for file in self.files.keys() {
            open.remove(file);
        }
    }
}
