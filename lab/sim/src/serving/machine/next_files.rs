//! The daemon's side of files that are read before their readers open them: the very same decisions
//! ([`seekless_policy::successors`]) as in the daemon, which has a thread for what is a step here.
//!
//! All programs of the machine are one reader. Listing a folder and opening a file cost a message each, and
//! no disk time: no metadata is read here.

use seekless_policy::successors::{Action, Entry, Read, TURN_MAX, head, room};
use seekless_policy::{Demand, Event, FileId, Request, Verdict};

use super::{Ev, Machine};
use crate::serving::cache::PAGE;
use crate::serving::config::Load;

/// All programs run as one user.
const READER: u32 = 0;
/// Folders' numbers begin here; those of files are below.
const FOLDERS: u64 = 1 << 32;

impl Machine<'_> {
    /// The folder of a file, where the machine has folders.
    fn folder_of(&self, file: u32) -> Option<FileId> {
        let Load::Tree(tree) = &self.config.load else { return None };
        let (disk, local) = self.place(file);
        let folder = *tree.folders.folder_of.get(local)?;
        Some(FileId { dev: u64::from(disk), ino: FOLDERS + u64::from(folder) })
    }

    /// A program reads.
    pub(super) fn read_by(&mut self, e: u32, file: u32, offset: u64, len: u64) {
        let size = self.catalogue.video(self.place(file).1 as u32).size.0;
        let (id, folder) = (self.file_id(file), self.folder_of(file));
        let (disk, local) = self.place(file);
        let place = Some((self.disks[disk as usize].lba(local, 0), size));
        let engine = &mut self.engines[e as usize];
        let Some(next_files) = &mut engine.next_files else { return };
        let (head, end) = (offset == 0, offset + len >= size);
        if head || end {
            next_files.room(room(engine.policy.stats().budget));
            next_files.read(self.now, Read { reader: READER, file: id, folder, head, end, place });
            self.open_next_files(e);
        }
    }

    /// Does what is to be done about files ahead.
    fn open_next_files(&mut self, e: u32) {
        while let Some(action) = self.engines[e as usize].next_files.as_mut().and_then(|n| n.poll()) {
            match action {
                Action::List { folder, .. } => {
                    let at = self.now + self.config.costs.wake + self.config.costs.wake;
                    self.plan(at, Ev::Listed(e, (folder.ino - FOLDERS) as u32));
                }
                Action::Open { file, .. } => self.predict(e, file),
                Action::Withdraw { file, .. } => {
                    let mut predicted = self.engines[e as usize].predicted.iter();
                    let request = predicted.find(|of| u64::from(*of.1) == file.ino).map(|of| *of.0);
                    if let Some(request) = request {
                        self.engines[e as usize].predicted.remove(&request);
                        self.tell(e, Event::Cancel(request));
                    }
                }
            }
        }
        let engine = &mut self.engines[e as usize];
        if let Some(at) = engine.next_files.as_ref().and_then(|n| n.next_deadline())
            && !std::mem::replace(&mut engine.looks, true)
        {
            self.plan(at, Ev::NextFiles(e));
        }
    }

    pub(super) fn look_at_next_files(&mut self, e: u32) {
        self.engines[e as usize].looks = false;
        if let Some(next_files) = &mut self.engines[e as usize].next_files {
            next_files.tick(self.now);
        }
        self.open_next_files(e);
    }

    pub(super) fn listed(&mut self, e: u32, folder: u32) {
        let Load::Tree(tree) = &self.config.load else { return };
        let files = &tree.folders.listed[folder as usize];
        let entry =
            |&file: &u32| Entry { ino: u64::from(file), by_name: tree.folders.by_name[file as usize] };
        let entries: Vec<Entry> = files.iter().map(entry).collect();
        let id = FileId { dev: 0, ino: FOLDERS + u64::from(folder) };
        if let Some(next_files) = &mut self.engines[e as usize].next_files {
            next_files.listed(self.now, READER, id, &entries);
        }
        self.open_next_files(e);
    }

    /// Brings the head of a file into memory.
    fn predict(&mut self, e: u32, id: FileId) {
        let file = id.ino as u32;
        let (disk, local) = self.place(file);
        let file_size = self.catalogue.video(local as u32).size.0;
        let last = head(file_size).div_ceil(PAGE);
        let absent = self.cache.first_absent(file, 0, last);
        let len = if absent == last { 0 } else { head(file_size) - absent * PAGE };
        let engine = &mut self.engines[e as usize];
        if let Some(next_files) = &mut engine.next_files {
            next_files.opened(READER, id, len);
        }
        if len == 0 {
            return;
        }
        let request = Request {
            id: engine.unheard_id(),
            file: id,
            from: 0,
            offset: absent * PAGE,
            len,
            file_size,
            lba: Some(self.disks[disk as usize].lba(local, absent * PAGE)),
            demand: Demand { deadline: Some(self.now + TURN_MAX), predicted: true, ..Demand::default() },
        };
        engine.predicted.insert(request.id, file);
        self.tell(e, Event::Request(request));
    }

    /// The shim of a program in the order of the disk was told to leave it alone for a while.
    pub(super) fn passed_in_disk_order(&mut self, e: u32) {
        if let Some(next_files) = &mut self.engines[e as usize].next_files {
            next_files.passed_in_disk_order(READER);
        }
    }

    /// What was asked for is in memory, or is not to come.
    pub(super) fn came(&mut self, e: u32, file: u32, verdict: Verdict) {
        let id = self.file_id(file);
        if let Some(next_files) = &mut self.engines[e as usize].next_files {
            match verdict {
                Verdict::Resident => next_files.arrived(READER, id),
                Verdict::Pass(_) => next_files.unusable(READER, id),
            }
        }
    }
}
