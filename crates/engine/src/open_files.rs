//! The files that the engine of a disk may read, and where on the disk they lie.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use seekless_kernel::deferred::Closer;
use seekless_kernel::prefetch::{Source, Steps};
use seekless_policy::{FileId, ReadId};
use seekless_units::{Lba, SECTOR_BYTES};

use crate::addresses::{Addresses, Edition};
use crate::lock;
use crate::volume::Renewed;
use crate::worker::Job;

/// How a file is read.
pub(crate) struct OpenFile {
    pub(crate) source: Arc<Source>,
    /// A passed descriptor is kept, because the file cannot be opened again.
    kept: bool,
    pub(crate) edition: Edition,
    /// First sector of the file system on the disk.
    pub(crate) start: u64,
    pub(crate) steps: Steps,
}

impl OpenFile {
    /// Whether it is read through a descriptor of another process, which lives for one piece.
    fn is_passing(&self) -> bool {
        !self.source.is_own() && !self.kept
    }
}

/// Files, each open from its first request or announced read until the engine closes it. A file is read through
/// the descriptor that was passed with its first request until it is opened again ([`crate::opener`]), or that
/// request is answered.
pub(crate) struct OpenFiles {
    files: HashMap<FileId, OpenFile>,
    addresses: Addresses,
    /// Of a file system on several disks: where its addresses lie.
    volume: Option<Renewed>,
    /// Files of all disks that need not be opened again.
    open: Arc<Mutex<HashSet<FileId>>>,
    /// Closes them.
    closer: Closer,
}

impl OpenFiles {
    pub(crate) fn on(
        volume: Option<Renewed>,
        open: Arc<Mutex<HashSet<FileId>>>,
        closer: Closer,
    ) -> OpenFiles {
        OpenFiles { files: HashMap::new(), addresses: Addresses::default(), volume, open, closer }
    }

    /// Asks a file system on several disks where it lies, once in a while.
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

    /// A file to be read through `source`, if it is not open yet. `start` and `steps` are those of its file system.
    pub(crate) fn open(
        &mut self,
        file: FileId,
        edition: Edition,
        start: u64,
        steps: Steps,
        source: Arc<Source>,
    ) -> Arc<Source> {
        source.closed_by(&self.closer);
        let open = self.files.entry(file).or_insert_with(|| {
            if source.is_own() {
                lock(&self.open).insert(file);
            }
            OpenFile { source, kept: false, edition, start, steps }
        });
        (open.edition, open.start, open.steps) = (edition, start, steps);
        open.source.clone()
    }

    /// A file that was read through a passed descriptor has been opened again.
    pub(crate) fn opened(&mut self, file: FileId, source: Arc<Source>) {
        source.closed_by(&self.closer);
        let Some(open) = self.files.get_mut(&file).filter(|open| open.is_passing()) else { return };
        open.kept = !source.is_own();
        open.source = source;
        lock(&self.open).insert(file);
    }

    /// Lets go of a passed descriptor that nothing is read through any more. The engine has not closed the file:
    /// what it still orders there fails, as on a file that cannot be read, and the next miss passes another one.
    pub(crate) fn end_passing(&mut self, file: FileId) {
        let unused = |open: &OpenFile| open.is_passing() && Arc::strong_count(&open.source) == 1;
        if self.files.get(&file).is_some_and(unused) {
            self.files.remove(&file);
        }
    }

    /// The same of every file: a worker lets go of a source a moment after it has said that it is done.
    pub(crate) fn end_all_passing(&mut self) {
        self.files.retain(|_, open| !open.is_passing() || Arc::strong_count(&open.source) > 1);
    }

    pub(crate) fn get(&self, file: FileId) -> Option<&OpenFile> {
        self.files.get(&file)
    }

    /// The disk address of an open file's byte at `offset`, and the size of the file, which is the one that
    /// the address belongs to.
    pub(crate) fn locate(&mut self, file: FileId, offset: u64) -> Option<(Option<Lba>, u64)> {
        let OpenFile { source, edition, start, .. } = self.files.get(&file)?;
        let address = self.addresses.of(file, *edition, source, offset);
        let lba = address.and_then(|bytes| match &mut self.volume {
            Some(renewed) => renewed.volume.lba(bytes),
            None => Some(Lba((bytes / SECTOR_BYTES).saturating_add(*start))),
        });
        Some((lba, edition.size))
    }

    /// How a piece of an open file is read.
    pub(crate) fn job(&mut self, id: ReadId, file: FileId, offset: u64, len: u64) -> Option<Job> {
        let OpenFile { source, edition, steps, .. } = self.files.get(&file)?;
        let address = self.volume.as_ref().and_then(|_| self.addresses.of(file, *edition, source, offset));
        let mirror = self.volume.as_ref().and_then(|renewed| renewed.volume.mirror(address?));
        Some(Job { id, source: source.clone(), offset, len, steps: *steps, mirror })
    }

    pub(crate) fn close(&mut self, file: FileId) {
        if self.files.remove(&file).is_some() {
            lock(&self.open).remove(&file);
        }
    }

    /// Closes the files of a device, and returns them. The engine has not closed them: what it still orders
    /// there fails, as it does on a file that cannot be read, and the next report of a door opens the file
    /// anew.
    pub(crate) fn leave(&mut self, dev: u64) -> Vec<FileId> {
        let left = self.files.keys().copied().filter(|file| file.dev == dev).collect::<Vec<_>>();
        left.iter().for_each(|&file| self.close(file));
        left
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
