//! Folders and readers of one disk, bounded.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use seekless_base::{FileId, Lba, Nanos, SECTOR_BYTES};
use serde::{Deserialize, Serialize};

use crate::successors::folder::{Entry, Folder, Seen, State};
use crate::successors::reader::{FILES_AHEAD_MAX, Reader};

/// Files of a folder that a reader must have read to their ends before the folder is listed, where nothing is
/// known of the reader. At half of it, two programs that happen to read one file each have it listed; at
/// double, a folder of a dozen files is half read.
pub const LISTED_AFTER: u32 = 3;

/// Most folders known, for all readers. At half of it, 128 programs in folders of their own forget them; at
/// double it is as much memory again, which [`ENTRIES_MAX`] bounds.
pub const FOLDERS_MAX: usize = 256;

/// Most files in the folders that are known, together; a folder of more is not looked at. 16 MB in the worst
/// case. At half of it a mail folder of 100,000 is left alone; at double that is 32 MB a disk.
pub const ENTRIES_MAX: usize = 131_072;

/// A walk that has not gone on for so long is over, as a stream is that does not read. At half of it a reader
/// that uploads what it reads is taken for gone; at double, memory waits a minute for one that is.
pub const IDLE: Nanos = Nanos::from_secs(30);

/// How often walks are looked through for those.
const LOOK_EVERY: Nanos = Nanos::from_secs(1);

/// Reads of a folder kept until it is listed.
const RECENT_MAX: usize = 16;

/// Bytes that a file is thought to have, before any was seen.
const FIRST_MEAN: u64 = 64 << 10;

/// A read of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// Whose: readers are told apart by what they may read.
    pub reader: u32,
    /// Which file.
    pub file: FileId,
    /// The folder it lies in, if the driver knows it. Files of a folder that was listed need none.
    pub folder: Option<FileId>,
    /// It begins at the first byte.
    pub head: bool,
    /// It reaches the last byte.
    pub end: bool,
    /// Where the file begins on the disk, and its bytes, if the driver knows.
    pub place: Option<(Lba, u64)>,
}

/// What the driver is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// List this folder, and tell: [`Successors::listed`] or [`Successors::closed`].
    List {
        /// The reader it is for.
        reader: u32,
        /// The folder.
        folder: FileId,
    },
    /// Bring the head ([`crate::successors::head`]) of this file into memory, and tell:
    /// [`Successors::opened`] or [`Successors::unusable`].
    Open {
        /// The reader it is for: a file that this reader could not read must not be opened.
        reader: u32,
        /// The folder.
        folder: FileId,
        /// Which of the entries that were listed.
        entry: u32,
        /// The file that the folder had there.
        file: FileId,
    },
    /// Nobody is thought to come for this file any more: what has not been read of it need not be.
    Withdraw {
        /// The reader it was for.
        reader: u32,
        /// The file.
        file: FileId,
    },
}

/// What is counted, since the start unless the name says "now".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    /// Folders listed.
    pub folders: u64,
    /// Files asked for.
    pub asked: u64,
    /// Of them, read afterwards.
    pub used: u64,
    /// Bytes of those.
    pub bytes_used: u64,
    /// Files brought in that nobody read in time.
    pub wasted: u64,
    /// Bytes of those.
    pub bytes_wasted: u64,
    /// Files asked for and withdrawn before they were read.
    pub withdrawn: u64,
    /// Reads in folders that were listed, and not predicted.
    pub surprises: u64,
    /// Files ahead now.
    pub files_now: u32,
    /// Bytes ahead now.
    pub bytes_now: u64,
}

/// Before and behind every file there is.
const FIRST_FILE: FileId = FileId { dev: 0, ino: 0 };
const LAST_FILE: FileId = FileId { dev: u64::MAX, ino: u64::MAX };

/// A folder by its reader.
type Key = (u32, FileId);

#[derive(Debug)]
enum Known {
    /// Reads seen: inode, and whether its end was.
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
    /// Most bytes that may be ahead.
    room: u64,
    mean: u64,
    next_look: Nanos,
    stats: Stats,
}

impl Successors {
    /// Nothing is known. `room` is as of [`Successors::room`].
    pub fn new(room: u64) -> Successors {
        Successors { room, mean: FIRST_MEAN, ..Successors::default() }
    }

    /// From now on so many bytes may lie ahead of all readers.
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

    /// Whether this folder is listed, and its entries are known.
    pub fn is_listed(&self, reader: u32, folder: FileId) -> bool {
        matches!(self.folders.get(&(reader, folder)), Some(Slot { known: Known::Listed(_), .. }))
    }

    /// The next thing to do. Drain after every call.
    pub fn poll(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// When [`Successors::tick`] has something to do; `None`: nothing is ahead.
    pub fn next_deadline(&self) -> Option<Nanos> {
        (self.stats.files_now > 0).then_some(self.next_look)
    }

    /// Time passed: walks that have not gone on are over.
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
                // To list a folder costs the disk a seek there and one back, which a reader in the order of
                // the disk would wait for, and nothing is read ahead of it.
                if !*asked && !in_disk_order && (trusted || *whole >= LISTED_AFTER) {
                    *asked = true;
                    self.actions.push_back(Action::List { reader, folder });
                }
            }
        }
    }

    /// A reader was told to read by itself, and is not heard of for a while: where it is heard of next says
    /// nothing about its order.
    pub fn passed_in_disk_order(&mut self, reader: u32) {
        if let Some(of) = self.readers.get_mut(&reader) {
            of.disk_order.passed_in_disk_order();
        }
    }

    /// The entries of a folder that may be files, in the order in which it lists them. Ignored if there are
    /// more than [`ENTRIES_MAX`], or nobody asked.
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

    /// A folder cannot be listed, or its reader may not: it is left alone.
    pub fn closed(&mut self, reader: u32, folder: FileId) {
        if let Some(slot) = self.folders.get_mut(&(reader, folder)) {
            slot.known = Known::Closed;
        }
    }

    /// So many bytes of a file that was asked for are on their way; 0 if all of them were in memory.
    pub fn opened(&mut self, reader: u32, file: FileId, len: u64) {
        let mut thought = len;
        self.change(reader, file, |state| {
            if let State::Ahead { bytes, .. } = state {
                thought = core::mem::replace(bytes, len);
            }
        });
        self.stats.bytes_now = self.stats.bytes_now + len - thought;
        // Of many files the last weigh most.
        self.mean = (self.mean * 15 + len.max(1)).div_ceil(16);
    }

    /// What was asked for is in memory.
    pub fn arrived(&mut self, reader: u32, file: FileId) {
        self.change(reader, file, |state| {
            if let State::Ahead { there, .. } = state {
                *there = true;
            }
        });
    }

    /// A file that was asked for is not to be read ahead: it is empty, no regular file, not there, not its
    /// reader's, or its read failed.
    pub fn unusable(&mut self, reader: u32, file: FileId) {
        let mut was = State::Skip;
        self.change(reader, file, |state| was = core::mem::replace(state, State::Skip));
        self.not_ahead(was);
    }

    /// Changes the state of a file of a folder that is known.
    fn change(&mut self, reader: u32, file: FileId, change: impl FnOnce(&mut State)) {
        let Some(&(folder, entry)) = self.files.get(&(reader, file)) else { return };
        if let Some(Slot { known: Known::Listed(folder), .. }) = self.folders.get_mut(&(reader, folder)) {
            change(&mut folder.files[entry as usize]);
        }
    }

    /// A file is not ahead any more; the bytes it had.
    fn not_ahead(&mut self, was: State) -> Option<u64> {
        let State::Ahead { bytes, .. } = was else { return None };
        self.stats.files_now -= 1;
        self.stats.bytes_now -= bytes;
        Some(bytes)
    }

    /// A file of a folder that was listed is read; the walk that goes on from it.
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

    /// Asks for the next files of a walk, within its share of the window and the room there is.
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
            // Until it is opened it counts as one like the others.
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

    /// Ends the walks of a folder that are over. What was read ahead for them is waste, or withdrawn.
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

    /// Nobody comes for these files.
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

    /// Forgets the folders unused longest until there is room for another one, with so many entries.
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
                // A file with two names may lie in a folder that stays.
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
