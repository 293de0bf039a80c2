//! The files that the engine of a disk may read, and where on the disk they lie.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use crossbeam_channel::Receiver;
use seekless_kernel::prefetch::{Source, Steps};
use seekless_policy::{Event, FileId, ReadId};
use seekless_units::{Lba, SECTOR_BYTES};

use crate::addresses::{Addresses, Edition};
use crate::door::Passed;
use crate::links::{IN_USE, Left, Links};
use crate::volume::Renewed;
use crate::worker::Job;

/// How a file is read.
pub(crate) struct OpenFile {
    pub(crate) source: Arc<Source>,
    pub(crate) edition: Edition,
    /// First sector of the file system on the disk.
    pub(crate) start: u64,
    pub(crate) steps: Steps,
    /// When it was last asked for or read.
    used: Instant,
}

/// Files, each open from its first request or announced read until the engine closes it.
pub(crate) struct OpenFiles {
    files: HashMap<FileId, OpenFile>,
    addresses: Addresses,
    /// Of a file system on several disks: where its addresses lie.
    volume: Option<Renewed>,
    links: Links,
}

impl OpenFiles {
    pub(crate) fn on(volume: Option<Renewed>, links: Links) -> OpenFiles {
        OpenFiles { files: HashMap::new(), addresses: Addresses::default(), volume, links }
    }

    /// Files that were deleted.
    pub(crate) fn deleted(&self) -> &Receiver<FileId> {
        &self.links.deleted
    }

    /// What was learnt of holes since, in order.
    pub(crate) fn learnt(&mut self) -> Vec<Event> {
        self.addresses.learnt()
    }

    /// Asks a file system on several disks where it lies, once in a while.
    pub(crate) fn renew_volume(&mut self, now: Instant) {
        let OpenFiles { files, volume: Some(volume), addresses, .. } = self else { return };
        let moved = volume.renew(now, || files.values().next().map(|open| open.source.clone()));
        if moved {
            addresses.forget();
        }
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
        let (now, links) = (Instant::now(), &self.links);
        let new = || {
            let source = Arc::new(passed.source());
            links.opened(file, &source);
            OpenFile { source, edition, start, steps, used: now }
        };
        let open = self.files.entry(file).or_insert_with(new);
        (open.edition, open.start, open.steps, open.used) = (edition, start, steps, now);
        open.source.clone()
    }

    pub(crate) fn get(&self, file: FileId) -> Option<&OpenFile> {
        self.files.get(&file)
    }

    /// The disk address of an open file's byte at `offset`, and the size of the file, which is the one that
    /// the address belongs to.
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

    /// How a piece of an open file is read.
    pub(crate) fn job(&mut self, id: ReadId, file: FileId, offset: u64, len: u64) -> Option<Job> {
        let OpenFile { source, edition, steps, .. } = self.files.get(&file)?;
        let address = self.volume.as_ref().and_then(|_| self.addresses.of(file, *edition, source, offset));
        let mirror = self.volume.as_ref().and_then(|renewed| renewed.volume.mirror(address?));
        Some(Job { id, source: source.clone(), offset, len, steps: *steps, mirror })
    }

    pub(crate) fn close(&mut self, file: FileId) {
        self.addresses.close(file);
        if let Some(open) = self.files.remove(&file) {
            self.links.close(file, open.source);
        }
    }

    /// Lets go of a file's source, as whoever reads it no more.
    pub(crate) fn let_go(&self, source: Arc<Source>) {
        self.links.drop(source);
    }

    /// Whether a file was used a moment ago.
    pub(crate) fn is_in_use(&self, file: FileId) -> bool {
        self.files.get(&file).is_some_and(|open| open.used.elapsed() < IN_USE)
    }

    /// The open files of a device; `left` is dropped once they are closed.
    pub(crate) fn leave(&self, dev: u64, left: Arc<Left>) -> Vec<FileId> {
        let of_device = || self.files.iter().filter(|(file, _)| file.dev == dev);
        self.links.wait(of_device().map(|(_, open)| Arc::downgrade(&open.source)).collect(), left);
        of_device().map(|(&file, _)| file).collect()
    }
}
