//! Folders and readers of one disk, bounded.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use seekless_base::{FileId, Lba, Nanos, SECTOR_BYTES};
use serde::{Deserialize, Serialize};

use crate::successors::folder::{Entry, Folder, Seen, State};
use crate::successors::reader::{FILES_AHEAD_MAX, Reader};

/// Number of files of a folder that a reader must have read to their ends before the folder is listed, if
/// nothing is known of the reader. At half, two programs that happen to read one file each have it listed; at
/// double, a folder of a dozen files is half read by then.
pub const LISTED_AFTER: u32 = 3;

/// Maximum number of known folders, for all readers. At half, 128 programs in folders of their own evict one
/// another's; at double, they take twice as much memory, which [`ENTRIES_MAX`] bounds.
pub const FOLDERS_MAX: usize = 256;

/// Maximum number of files in all known folders together; a folder with more is ignored. 16 MB in the worst
/// case. At half, a mail folder of 100,000 files is ignored; at double, that is 32 MB a disk.
pub const ENTRIES_MAX: usize = 131_072;

/// A walk without progress for this long has ended, as a stream without reads has. At half, a reader that
/// uploads what it reads counts as gone; at double, memory is held for a minute for a reader that is gone.
pub const IDLE: Nanos = Nanos::from_secs(30);

/// Interval at which walks are checked for that.
const LOOK_EVERY: Nanos = Nanos::from_secs(1);

/// Reads of a folder that are kept until it is listed.
const RECENT_MAX: usize = 16;

/// Assumed size of a file in bytes, before any was seen.
const FIRST_MEAN: u64 = 64 << 10;

/// A read of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// Its reader; readers are distinguished by what they may read.
    pub reader: u32,
    /// Which file.
    pub file: FileId,
    /// Its folder, if the driver knows it. Not needed for files of a folder that was listed.
    pub folder: Option<FileId>,
    /// It begins at the first byte.
    pub head: bool,
    /// It reaches the last byte.
    pub end: bool,
    /// Where the file begins on the disk, and its size, if the driver knows them.
    pub place: Option<(Lba, u64)>,
}

/// An order to the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// List this folder, then call [`Successors::listed`] or [`Successors::closed`].
    List {
        /// The reader it is for.
        reader: u32,
        /// The folder.
        folder: FileId,
    },
    /// Bring the head ([`crate::successors::head`]) of this file into memory, then call
    /// [`Successors::opened`] or [`Successors::unusable`].
    Open {
        /// The reader it is for. A file that this reader may not read must not be opened.
        reader: u32,
        /// The folder.
        folder: FileId,
        /// Index among the entries that were listed.
        entry: u32,
        /// The file at that entry.
        file: FileId,
    },
    /// The reader is not expected to use this file any more: the rest of it need not be read.
    Withdraw {
        /// The reader it was for.
        reader: u32,
        /// The file.
        file: FileId,
    },
}

/// Counters since the start, unless the name says "now".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    /// Folders listed.
    pub folders: u64,
    /// Files requested.
    pub asked: u64,
    /// Of these, used afterwards.
    pub used: u64,
    /// Bytes of those.
    pub bytes_used: u64,
    /// Files brought in and not used in time.
    pub wasted: u64,
    /// Bytes of those.
    pub bytes_wasted: u64,
    /// Files requested and withdrawn before they were read.
    pub withdrawn: u64,
    /// Reads in listed folders that were not predicted.
    pub surprises: u64,
    /// Files ahead now.
    pub files_now: u32,
    /// Bytes ahead now.
    pub bytes_now: u64,
}

/// Before and after every file.
const FIRST_FILE: FileId = FileId { dev: 0, ino: 0 };
const LAST_FILE: FileId = FileId { dev: u64::MAX, ino: u64::MAX };

/// A folder by its reader.
type Key = (u32, FileId);

#[derive(Debug)]
enum Known {
    /// Reads seen: inode, and whether the end was read.
    Seen {
        recent: VecDeque<(u64, bool)>,
        whole: u32,
        asked: bool,
    },
    Listed(Box<Folder>),
    /// It cannot be listed, or is too large.
    Closed,
}

#[derive(Debug)]
struct Slot {
    known: Known,
    last: Nanos,
}

/// The files that readers of one disk are about to read.
#[derive(Debug, Default)]
pub struct Successors {
    folders: BTreeMap<Key, Slot>,
    /// Entries of the folders that were listed.
    files: BTreeMap<(u32, FileId), (FileId, u32)>,
    readers: BTreeMap<u32, Reader>,
    actions: VecDeque<Action>,
    /// Maximum bytes that may be ahead.
    room: u64,
    mean: u64,
    next_look: Nanos,
    stats: Stats,
}

impl Successors {
    /// Knows nothing yet. `room` is that of [`Successors::room`].
    pub fn new(room: u64) -> Successors {
        Successors { room, mean: FIRST_MEAN, ..Successors::default() }
    }

    /// Sets the bytes that may be ahead of all readers from now on.
    pub fn room(&mut self, bytes: u64) {
        self.room = bytes;
    }

    /// Counters.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Folders known now, at most [`FOLDERS_MAX`].
    pub fn folders_known(&self) -> usize {
        self.folders.len()
    }

    /// Whether this folder was listed.
    pub fn is_listed(&self, reader: u32, folder: FileId) -> bool {
        matches!(self.folders.get(&(reader, folder)), Some(Slot { known: Known::Listed(_), .. }))
    }

    /// The next order. Drain after every call.
    pub fn poll(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// When [`Successors::tick`] must be called; `None`: nothing is ahead.
    pub fn next_deadline(&self) -> Option<Nanos> {
        (self.stats.files_now > 0).then_some(self.next_look)
    }

    /// Time has passed: walks without progress end.
    pub fn tick(&mut self, now: Nanos) {
        if now < self.next_look {
            return;
        }
        self.next_look = now + LOOK_EVERY;
        let keys: Vec<Key> = self.folders.keys().copied().collect();
        for key in keys {
            self.end_walks(now, key);
        }
    }

    /// A read was done, or is about to be.
    pub fn read(&mut self, now: Nanos, read: Read) {
        let Read { reader, file, .. } = read;
        let Some(folder) = self.files.get(&(reader, file)).map(|at| at.0).or(read.folder) else { return };
        let key = (reader, folder);
        if !self.folders.contains_key(&key) {
            self.make_room(0);
            let known = Known::Seen { recent: VecDeque::new(), whole: 0, asked: false };
            self.folders.insert(key, Slot { known, last: now });
            self.readers.entry(reader).or_default();
        }
        if let (Some(of), Some((Lba(from), bytes)), true) =
            (self.readers.get_mut(&reader), read.place, read.head)
        {
            of.disk_order.at(from, from.saturating_add(bytes.div_ceil(SECTOR_BYTES)));
        }
        let (trusted, in_disk_order) = match self.readers.get(&reader) {
            Some(of) => (of.is_trusted(), of.disk_order.is_likely()),
            None => (false, false),
        };
        let Some(slot) = self.folders.get_mut(&key) else { return };
        slot.last = now;
        match &mut slot.known {
            Known::Closed => {}
            Known::Listed(_) => {
                if let Some(&(_, entry)) = self.files.get(&(reader, file))
                    && let Some(walk) = self.go_on(now, key, entry, read.head, read.end)
                {
                    self.ask(now, key, walk);
                }
            }
            Known::Seen { recent, whole, asked } => {
                match recent.iter_mut().find(|(ino, _)| *ino == file.ino) {
                    Some((_, ended)) => {
                        *whole += u32::from(read.end && !*ended);
                        *ended |= read.end;
                    }
                    None if read.head => {
                        recent.push_back((file.ino, read.end));
                        *whole += u32::from(read.end);
                    }
                    None => {}
                }
                if recent.len() > RECENT_MAX {
                    recent.pop_front();
                }
                // Listing a folder costs the disk two seeks, for which a reader in disk order would wait, and
                // nothing is read ahead of it.
                if !*asked && !in_disk_order && (trusted || *whole >= LISTED_AFTER) {
                    *asked = true;
                    self.actions.push_back(Action::List { reader, folder });
                }
            }
        }
    }

    /// A reader was told to read for itself, so its reads are not reported for a while; the next reported one
    /// shows nothing about its order.
    pub fn passed_in_disk_order(&mut self, reader: u32) {
        if let Some(of) = self.readers.get_mut(&reader) {
            of.disk_order.passed_in_disk_order();
        }
    }

    /// The entries of a folder that may be files, in the order in which it lists them. Ignored if there are
    /// more than [`ENTRIES_MAX`], or the folder was not requested.
    pub fn listed(&mut self, now: Nanos, reader: u32, folder: FileId, entries: &[Entry]) {
        let key = (reader, folder);
        if entries.len() > ENTRIES_MAX {
            return self.closed(reader, folder);
        }
        let Some(Slot { known: Known::Seen { .. }, .. }) = self.folders.get(&key) else { return };
        self.make_room(entries.len());
        let Some(slot) = self.folders.get_mut(&key) else { return };
        let score = self.readers.get(&reader).map(|r| r.score).unwrap_or_default();
        let known = core::mem::replace(&mut slot.known, Known::Listed(Box::new(Folder::new(entries, score))));
        slot.last = now;
        self.stats.folders += 1;
        for (entry, &Entry { ino, .. }) in entries.iter().enumerate() {
            let file = FileId { dev: folder.dev, ino };
            self.files.insert((reader, file), (folder, entry as u32));
        }
        if let Known::Seen { recent, .. } = known {
            let mut walk = None;
            for (ino, ended) in recent {
                let file = FileId { dev: folder.dev, ino };
                if let Some(&(_, entry)) = self.files.get(&(reader, file)) {
                    walk = self.go_on(now, key, entry, true, ended);
                }
            }
            if let Some(walk) = walk {
                self.ask(now, key, walk);
            }
        }
    }

    /// A folder cannot be listed, or its reader may not list it: it is ignored from now on.
    pub fn closed(&mut self, reader: u32, folder: FileId) {
        if let Some(slot) = self.folders.get_mut(&(reader, folder)) {
            slot.known = Known::Closed;
        }
    }

    /// This many bytes of a requested file are being read; 0 if all were in memory.
    pub fn opened(&mut self, reader: u32, file: FileId, len: u64) {
        let mut thought = len;
        self.change(reader, file, |state| {
            if let State::Ahead { bytes, .. } = state {
                thought = core::mem::replace(bytes, len);
            }
        });
        self.stats.bytes_now = self.stats.bytes_now + len - thought;
        // If there are many files, the latest weigh most.
        self.mean = (self.mean * 15 + len.max(1)).div_ceil(16);
    }

    /// The requested bytes are in memory.
    pub fn arrived(&mut self, reader: u32, file: FileId) {
        self.change(reader, file, |state| {
            if let State::Ahead { there, .. } = state {
                *there = true;
            }
        });
    }

    /// A requested file must not be read ahead: it is empty, not a regular file, missing, its reader may not
    /// read it, or its read failed.
    pub fn unusable(&mut self, reader: u32, file: FileId) {
        let mut was = State::Skip;
        self.change(reader, file, |state| was = core::mem::replace(state, State::Skip));
        self.not_ahead(was);
    }

    /// Changes the state of a file of a known folder.
    fn change(&mut self, reader: u32, file: FileId, change: impl FnOnce(&mut State)) {
        let Some(&(folder, entry)) = self.files.get(&(reader, file)) else { return };
        if let Some(Slot { known: Known::Listed(folder), .. }) = self.folders.get_mut(&(reader, folder)) {
            change(&mut folder.files[entry as usize]);
        }
    }

    /// A file is not ahead any more. Returns its bytes.
    fn not_ahead(&mut self, was: State) -> Option<u64> {
        let State::Ahead { bytes, .. } = was else { return None };
        self.stats.files_now -= 1;
        self.stats.bytes_now -= bytes;
        Some(bytes)
    }

    /// A file of a listed folder is read. Returns the walk that goes on from it.
    fn go_on(&mut self, now: Nanos, key: Key, entry: u32, head: bool, end: bool) -> Option<u32> {
        let (id, _) = key;
        let Some(Slot { known: Known::Listed(folder), .. }) = self.folders.get_mut(&key) else { return None };
        let reader = self.readers.get_mut(&id)?;
        if !head {
            folder.ended[entry as usize] |= end;
            return None;
        }
        reader.reads += 1;
        let was = folder.files[entry as usize];
        let seen = folder.read(now, reader.reads, entry);
        if let Seen::Next { before, .. } = seen
            && before != entry
        {
            reader.finished(folder.ended[before as usize]);
        }
        folder.ended[entry as usize] = end;
        reader.score = folder.score();
        let walk = match seen {
            Seen::Next { walk, .. } | Seen::Begins { walk } => {
                reader.right();
                Some(walk)
            }
            Seen::Surprise => {
                reader.surprised();
                self.stats.surprises += 1;
                None
            }
            Seen::Again => None,
        };
        if let Some(bytes) = self.not_ahead(was) {
            self.stats.used += 1;
            self.stats.bytes_used += bytes;
            if let Some(reader) = self.readers.get_mut(&id) {
                reader.used();
            }
        }
        self.end_walks(now, key);
        walk
    }

    /// Requests the next files of a walk, within its share of the window and the available room.
    fn ask(&mut self, now: Nanos, key: Key, walk: u32) {
        let (id, folder_id) = key;
        let Some(reader) = self.readers.get(&id) else { return };
        let (window, reads) = (reader.window() as usize, reader.reads);
        let folders = self.folders.range((id, FIRST_FILE)..=(id, LAST_FILE));
        let walks = folders.map(|(_, slot)| match &slot.known {
            Known::Listed(folder) => folder.confirmed(reads),
            Known::Seen { .. } | Known::Closed => 0,
        });
        let share = window.div_ceil(walks.sum::<usize>().max(1));
        let Some(Slot { known: Known::Listed(folder), .. }) = self.folders.get_mut(&key) else { return };
        let next = folder.next(walk, share);
        for entry in next {
            // Until it is opened, it counts as a file of mean size.
            let bytes = self.mean;
            if self.stats.bytes_now + bytes > self.room || self.stats.files_now >= FILES_AHEAD_MAX {
                return;
            }
            let file = FileId { dev: folder_id.dev, ino: folder.inos[entry as usize] };
            folder.files[entry as usize] = State::Ahead { walk, bytes, there: false };
            self.stats.bytes_now += bytes;
            self.stats.files_now += 1;
            self.stats.asked += 1;
            self.next_look = self.next_look.max(now);
            self.actions.push_back(Action::Open { reader: id, folder: folder_id, entry, file });
        }
    }

    /// Ends the walks of a folder that are over. Files read ahead for them are waste, or withdrawn.
    fn end_walks(&mut self, now: Nanos, key: Key) {
        let (id, folder_id) = key;
        let Some(reads) = self.readers.get(&id).map(|reader| reader.reads) else { return };
        let Some(Slot { known: Known::Listed(folder), .. }) = self.folders.get_mut(&key) else { return };
        let over = folder.over(now, reads);
        if over.is_empty() {
            return;
        }
        let mut left = Vec::new();
        for (entry, state) in folder.files.iter_mut().enumerate() {
            if let State::Ahead { walk, .. } = *state
                && over.contains(&walk)
            {
                let file = FileId { dev: folder_id.dev, ino: folder.inos[entry] };
                left.push((file, core::mem::replace(state, State::Left)));
            }
        }
        self.leave(id, left);
    }

    /// These files will not be used.
    fn leave(&mut self, id: u32, left: Vec<(FileId, State)>) {
        for (file, state) in left {
            let Some(bytes) = self.not_ahead(state) else { continue };
            if matches!(state, State::Ahead { there: true, .. }) {
                self.stats.wasted += 1;
                self.stats.bytes_wasted += bytes;
                if let Some(reader) = self.readers.get_mut(&id) {
                    reader.wasted();
                }
            } else {
                self.stats.withdrawn += 1;
            }
            self.actions.push_back(Action::Withdraw { reader: id, file });
        }
    }

    /// Forgets the folders used longest ago until there is room for another one with this many entries.
    fn make_room(&mut self, entries: usize) {
        while self.folders.len() >= FOLDERS_MAX + usize::from(entries > 0)
            || self.files.len() + entries > ENTRIES_MAX
        {
            let listed = |slot: &Slot| entries == 0 || matches!(slot.known, Known::Listed(_));
            let oldest =
                self.folders.iter().filter(|(_, slot)| listed(slot)).min_by_key(|(_, slot)| slot.last);
            let Some((&key, _)) = oldest else { return };
            self.forget(key);
        }
    }

    fn forget(&mut self, key: Key) {
        let (id, folder_id) = key;
        let Some(slot) = self.folders.remove(&key) else { return };
        if let Known::Listed(folder) = slot.known {
            let file = |ino| FileId { dev: folder_id.dev, ino };
            for &ino in &folder.inos {
                // A file with two names may also be in a folder that stays.
                if self.files.get(&(id, file(ino))).is_some_and(|at| at.0 == folder_id) {
                    self.files.remove(&(id, file(ino)));
                }
            }
            let left = folder.inos.iter().zip(&folder.files).map(|(&ino, &state)| (file(ino), state));
            self.leave(id, left.collect());
        }
        if self.folders.range((id, FIRST_FILE)..=(id, LAST_FILE)).next().is_none() {
            self.readers.remove(&id);
        }
    }
}
