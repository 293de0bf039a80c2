//! The files that the engine of a disk may read, and where on the disk they lie.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use seekless_kernel::prefetch::{Source, Steps};
use seekless_policy::{FileId, ReadId};
use seekless_units::{Lba, SECTOR_BYTES};

use crate::addresses::{Addresses, Edition};
use crate::door::Passed;
use crate::volume::Renewed;
use crate::worker::Job;

/// How a file is read.
pub(crate) struct OpenFile {
    pub(crate) source: Arc<Source>,
    pub(crate) edition: Edition,
    /// First sector of the file system on the disk.
    pub(crate) start: u64,
    pub(crate) steps: Steps,
}

/// Files, each open from its first request or announced read until the engine closes it.
#[derive(Default)]
pub(crate) struct OpenFiles {
    files: HashMap<FileId, OpenFile>,
    addresses: Addresses,
    /// Of a file system on several disks: where its addresses lie.
    volume: Option<Renewed>,
}

impl OpenFiles {
    pub(crate) fn on(volume: Option<Renewed>) -> OpenFiles {
        OpenFiles { volume, ..OpenFiles::default() }
    }

    /// Asks a file system on several disks where it lies, once in a while.
    pub(crate) fn renew_volume(&mut self, now: Instant) {
        let OpenFiles { files, volume: Some(volume), addresses } = self else { return };
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

    /// Opens a file, if it is not open yet. This is done here and not by a door, because opening may ask a
    /// file server that hangs. `start` and `steps` are those of its file system.
    pub(crate) fn open(
        &mut self,
        file: FileId,
        edition: Edition,
        start: u64,
        steps: Steps,
        passed: Passed,
    ) -> Arc<Source> {
        let new = || OpenFile { source: Arc::new(passed.source()), edition, start, steps };
        let open = self.files.entry(file).or_insert_with(new);
        (open.edition, open.start, open.steps) = (edition, start, steps);
        open.source.clone()
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
        self.files.remove(&file);
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
