//! What is known of the files that are read. Pure: time is an argument.
//!
//! A file is looked for, and opened, when a read continues another, or when its head is missing from memory:
//! at the head a reader counts as sequential, as in Linux. Files with only unconnected reads are remembered
//! for a while and never opened, because there is nothing to read ahead.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use seekless_policy::FileId;

use super::reads::{Inode, Seen};

/// Maximum number of files; about 150 bytes each.
const FILES_MAX: usize = 32768;

/// Maximum number of queued reads of a file that is being looked for; more are dropped. A stream needs three
/// to be recognised.
const WAITING_MAX: usize = 16;

/// Number of places in a file where reads ended, to which the next read is compared. If a file has more
/// streams than this, one is recognised when it makes two consecutive reads.
const PLACES: usize = 4;

/// A found file is looked for again after this long. Then it is opened again if the engine has closed it
/// meanwhile, and its size is read again. At half, that costs twice as much, some 5 us each time; at double,
/// a file closed by the engine gets no read-ahead for longer.
const BELIEVED: Duration = Duration::from_secs(5);

/// How long a file outside the folders, or not on a disk with heads, is ignored; it may be moved.
pub(super) const REFUSED_FOR: Duration = Duration::from_secs(60);

/// A file that was not found is looked for again after this long.
const UNKNOWN_FOR: Duration = Duration::from_secs(5);

/// Files not read for this long are forgotten when room is needed.
const IDLE: Duration = Duration::from_secs(10);

/// The result of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Found(FileId),
    /// Not under the folders, or not on a disk that is served.
    Refused,
    /// As `Refused`, and no other file of its device is served either.
    NotServed,
    /// Gone, or not found yet.
    Unknown,
    /// More reads must continue it first, because only a walk can find it, or its head was brought into
    /// memory to be written.
    Later,
}

/// What to do with a read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Nothing,
    /// Hand the read to the engine.
    Forward(FileId),
    /// Look for the file, and hand it these reads.
    Find(Vec<Seen>),
    /// A bound was reached.
    Drop,
}

#[derive(Debug)]
enum State {
    /// The last reads, none of which continued another.
    Waiting {
        places: [Option<Seen>; PLACES],
        next: usize,
    },
    /// The file is being looked for; reads since then.
    Sought {
        reads: Vec<Seen>,
    },
    Known {
        file: FileId,
        since: Instant,
    },
    Refused {
        until: Instant,
    },
}

impl State {
    fn waiting() -> State {
        State::Waiting { places: [None; PLACES], next: 0 }
    }
}

struct Entry {
    state: State,
    used: Instant,
}

#[derive(Default)]
pub(crate) struct Table {
    files: HashMap<Inode, Entry>,
}

impl Table {
    /// Takes in a read.
    pub(crate) fn read(&mut self, seen: Seen, now: Instant) -> Order {
        if !self.files.contains_key(&seen.inode) && !self.make_room(now) {
            return Order::Drop;
        }
        let entry =
            self.files.entry(seen.inode).or_insert_with(|| Entry { state: State::waiting(), used: now });
        entry.used = now;
        if matches!(entry.state, State::Refused { until } if until <= now) {
            entry.state = State::waiting();
        }
        match &mut entry.state {
            State::Refused { .. } => Order::Nothing,
            State::Sought { reads } if reads.len() < WAITING_MAX => {
                reads.push(seen);
                Order::Nothing
            }
            State::Sought { .. } => Order::Drop,
            State::Known { since, .. } if now.saturating_duration_since(*since) >= BELIEVED => {
                entry.state = State::Sought { reads: Vec::new() };
                Order::Find(vec![seen])
            }
            State::Known { file, .. } => Order::Forward(*file),
            State::Waiting { places, next } => {
                let before = places.iter().flatten().find(|place| continues(place, &seen)).copied();
                match before {
                    Some(before) => {
                        entry.state = State::Sought { reads: Vec::new() };
                        Order::Find(vec![before, seen])
                    }
                    None => {
                        places[*next % PLACES] = Some(seen);
                        *next = (*next + 1) % PLACES;
                        Order::Nothing
                    }
                }
            }
        }
    }

    /// The pages of a file are missing from here on. An unknown file is looked for if its head is missing.
    pub(crate) fn missed(&mut self, inode: Inode, at: u64, now: Instant) -> Order {
        let before = match self.files.get(&inode).map(|entry| &entry.state) {
            Some(State::Known { file, .. }) => return Order::Forward(*file),
            Some(State::Sought { .. } | State::Refused { .. }) => return Order::Nothing,
            _ if at > 0 => return Order::Nothing,
            Some(State::Waiting { places, .. }) => Some(*places),
            None => None,
        };
        if before.is_none() && !self.make_room(now) {
            return Order::Drop;
        }
        let reads = before.into_iter().flatten().flatten().collect();
        self.files.insert(inode, Entry { state: State::Sought { reads }, used: now });
        Order::Find(Vec::new())
    }

    /// A search ended. Returns the reads that arrived meanwhile, which must be processed now.
    pub(crate) fn answered(&mut self, inode: Inode, answer: Answer, now: Instant) -> Vec<Seen> {
        let Some(entry) = self.files.get_mut(&inode) else { return Vec::new() };
        let state = match answer {
            Answer::Found(file) => State::Known { file, since: now },
            Answer::Refused | Answer::NotServed => State::Refused { until: now + REFUSED_FOR },
            Answer::Unknown => State::Refused { until: now + UNKNOWN_FOR },
            Answer::Later => State::waiting(),
        };
        match std::mem::replace(&mut entry.state, state) {
            State::Sought { reads } => reads,
            _ => Vec::new(),
        }
    }

    /// A search could not be queued: the file waits for its next reads.
    pub(crate) fn not_sought(&mut self, inode: Inode) {
        if let Some(entry) = self.files.get_mut(&inode) {
            entry.state = State::waiting();
        }
    }

    /// Forgets every file of a device.
    pub(crate) fn forget(&mut self, dev: (u32, u32)) {
        self.files.retain(|inode, _| inode.dev != dev);
    }

    /// Number of known files, and of files that wait for a second read.
    pub(crate) fn counts(&self) -> (u64, u64) {
        self.files.values().fold((0, 0), |(known, waiting), entry| match entry.state {
            State::Known { .. } => (known + 1, waiting),
            State::Waiting { .. } => (known, waiting + 1),
            _ => (known, waiting),
        })
    }

    /// Makes room for one more file. Returns whether there is room.
    fn make_room(&mut self, now: Instant) -> bool {
        if self.files.len() < FILES_MAX {
            return true;
        }
        self.files.retain(|_, e| now.saturating_duration_since(e.used) < IDLE);
        if self.files.len() >= FILES_MAX / 4 * 3 {
            // A scan over many files: none of them has been read twice.
            self.files.retain(|_, e| !matches!(e.state, State::Waiting { .. }));
        }
        self.files.len() < FILES_MAX
    }
}

/// Whether a read continues another. It may begin in the page in which the other ended, or at bytes that the
/// other had not taken.
fn continues(before: &Seen, seen: &Seen) -> bool {
    before.start < seen.start && seen.start <= before.end && seen.end > before.end
}

#[cfg(test)]
mod tests {
    use super::*;
    use seekless_policy::Taken;

    const K: u64 = 1024;

    fn seen(ino: u64, start: u64, len: u64) -> Seen {
        let inode = Inode { dev: (8, 1), ino };
        Seen { inode, start: start * K, end: (start + len) * K, taken: Taken::Unknown, pid: 1 }
    }

    #[test]
    fn a_file_is_looked_for_when_a_read_goes_on() {
        let (mut table, now) = (Table::default(), Instant::now());
        let file = FileId { dev: 1, ino: 5 };
        for start in [0, 900, 500] {
            assert_eq!(table.read(seen(5, start, 64), now), Order::Nothing);
        }
        assert_eq!(table.counts(), (0, 1));
        let found = table.read(seen(5, 960, 64), now);
        assert_eq!(found, Order::Find(vec![seen(5, 900, 64), seen(5, 960, 64)]));
        for i in 0..WAITING_MAX as u64 {
            assert_eq!(table.read(seen(5, 1024 + 64 * i, 64), now), Order::Nothing);
        }
        assert_eq!(table.read(seen(5, 9000, 64), now), Order::Drop);
        let kept = table.answered(seen(5, 0, 1).inode, Answer::Found(file), now);
        assert_eq!(kept.len(), WAITING_MAX);
        assert_eq!(table.read(seen(5, 9064, 64), now), Order::Forward(file));
        // After a while it is looked for again, by the read that finds it expired.
        let later = now + BELIEVED;
        assert_eq!(table.read(seen(5, 0, 64), later), Order::Find(vec![seen(5, 0, 64)]));
    }

    #[test]
    fn a_file_is_looked_for_when_its_head_is_missing() {
        let (mut table, now) = (Table::default(), Instant::now());
        let (file, inode) = (FileId { dev: 1, ino: 5 }, seen(5, 0, 1).inode);
        assert_eq!(table.missed(inode, 4096, now), Order::Nothing);
        assert_eq!(table.missed(inode, 0, now), Order::Find(Vec::new()));
        assert_eq!(table.missed(inode, 0, now), Order::Nothing, "it is looked for");
        assert_eq!(table.read(seen(5, 0, 64), now), Order::Nothing);
        assert_eq!(table.answered(inode, Answer::Later, now), [seen(5, 0, 64)], "no read is lost");
        assert_eq!(table.read(seen(5, 0, 64), now), Order::Nothing);
        assert_eq!(table.missed(inode, 0, now), Order::Find(Vec::new()));
        assert_eq!(table.read(seen(5, 64, 64), now), Order::Nothing);
        let kept = table.answered(inode, Answer::Found(file), now);
        assert_eq!(kept, [seen(5, 0, 64), seen(5, 64, 64)]);
        assert_eq!(table.read(kept[1], now), Order::Forward(file));
        assert_eq!(table.missed(inode, 9 << 20, now), Order::Forward(file));
    }

    #[test]
    fn reads_during_a_search_without_an_answer_may_go_on() {
        let (mut table, now) = (Table::default(), Instant::now());
        let inode = seen(5, 0, 1).inode;
        table.missed(inode, 0, now);
        for start in [0, 64] {
            assert_eq!(table.read(seen(5, start, 64), now), Order::Nothing);
        }
        let kept = table.answered(inode, Answer::Later, now);
        assert_eq!(table.read(kept[0], now), Order::Nothing);
        assert_eq!(table.read(kept[1], now), Order::Find(kept));
    }

    #[test]
    fn a_refused_file_is_left_alone_for_a_while() {
        let (mut table, now) = (Table::default(), Instant::now());
        let inode = seen(1, 0, 1).inode;
        table.read(seen(1, 0, 64), now);
        assert!(matches!(table.read(seen(1, 64, 64), now), Order::Find(_)));
        assert!(table.answered(inode, Answer::Unknown, now).is_empty());
        assert_eq!(table.read(seen(1, 128, 64), now), Order::Nothing);
        let later = now + UNKNOWN_FOR;
        assert_eq!(table.read(seen(1, 192, 64), later), Order::Nothing);
        assert!(matches!(table.read(seen(1, 256, 64), later), Order::Find(_)));
        table.not_sought(inode);
        assert_eq!(table.counts(), (0, 1));
        table.forget(inode.dev);
        assert_eq!(table.counts(), (0, 0));
    }

    #[test]
    fn files_remembered_are_bounded_and_known_ones_stay() {
        let (mut table, now) = (Table::default(), Instant::now());
        table.read(seen(0, 0, 64), now);
        table.read(seen(0, 64, 64), now);
        table.answered(seen(0, 0, 1).inode, Answer::Found(FileId { dev: 1, ino: 0 }), now);
        for ino in 1..2 * FILES_MAX as u64 {
            table.read(seen(ino, 0, 64), now);
            assert!(table.files.len() <= FILES_MAX);
        }
        assert_eq!(table.counts().0, 1);
    }
}
