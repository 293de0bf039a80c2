//! A folder's orders, and the walks through it.

use alloc::vec::Vec;

use seekless_base::Nanos;

use crate::successors::TURN_MAX;
use crate::successors::successors::IDLE;

/// The orders in which files may be taken: as the folder lists them, by name, by inode.
pub const ORDERS: usize = 3;

/// The score of an order that is always right.
pub(crate) const CERTAIN: u32 = 256;

/// Minimum score of an order that is followed: five of the last eight reads.
pub(crate) const BELIEVED: u32 = CERTAIN * 5 / 8;

/// Maximum number of files that a walk may leave out if the folder has 64 times as many. In smaller folders
/// fewer, so that chance stays below a sixteenth for each walk. Walks leave out empty files, files in memory,
/// and files that other programs of a group take. At half, a walk breaks at three empty files; at double,
/// random reads look like walks in folders of some hundred files.
pub const GAP_MAX: usize = 4;

/// Maximum number of walks through one folder if it has sixteen times as many files. In smaller folders
/// fewer; otherwise every read would be the next file of some walk. A folder of video segments has one walk
/// for each viewer. At half, 64 viewers evict one another's walks; at double, a read costs twice as much.
pub const WALKS_MAX: usize = 64;

/// Right guesses in a row before files are read ahead for a walk.
const CONFIRMED: u32 = 2;

/// Entries examined for the next file of a walk, in addition to those that are counted.
const SCAN_MAX: usize = 256;

/// A file of a folder, in the order in which the folder lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Inode number.
    pub ino: u64,
    /// Position in the order of names.
    pub by_name: u32,
}

/// The state of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Not read and not requested.
    Unread,
    /// Read ahead, or being read, for the walk with this number.
    Ahead { walk: u32, bytes: u64, there: bool },
    /// Read ahead, and not used in time.
    Left,
    /// The head of the file was read.
    Read,
    /// Never read ahead: it is empty, not a regular file, or its reader must not read it.
    Skip,
}

/// A place from which a reader goes on.
#[derive(Clone, Copy, Debug)]
struct Walk {
    number: u32,
    /// The file read last.
    at: u32,
    /// Right guesses in a row.
    streak: u32,
    /// The count of its reader's reads, this one included, when it last read.
    read: u64,
    last: Nanos,
}

/// How a read of a file's head relates to the walks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// It is the next file of this walk; with the file that the walk read before.
    Next { walk: u32, before: u32 },
    /// An order predicted it; that order goes on from there.
    Begins { walk: u32 },
    /// Nothing predicted it.
    Surprise,
    /// It was read a moment ago already.
    Again,
}

/// A folder that was listed.
#[derive(Clone, Debug)]
pub(crate) struct Folder {
    pub(crate) files: Vec<State>,
    /// Whether each file was read to its end.
    pub(crate) ended: Vec<bool>,
    pub(crate) inos: Vec<u64>,
    /// The files in each order, and the position of each file in it.
    sequence: [Vec<u32>; ORDERS],
    place: [Vec<u32>; ORDERS],
    score: [u32; ORDERS],
    walks: Vec<Walk>,
    next_walk: u32,
    gap: usize,
    walks_max: usize,
    /// Maximum number of walks of a single read: a random file is the next one of some of them in one of
    /// eight cases.
    fresh_max: usize,
}

/// A score after one more guess: an average over the last eight. A right guess counts for more, the less
/// likely it was by chance, out of [`CERTAIN`].
pub(crate) fn moved(score: u32, right: Option<u32>) -> u32 {
    match right {
        Some(worth) => score + ((CERTAIN - score).div_ceil(8) * worth).div_ceil(CERTAIN),
        None => score - score.div_ceil(8),
    }
}

/// A walk ends when its reader has read this many files since, in a folder with this many walks, and
/// [`TURN_MAX`] has passed. So it does not end while a program reads one large file, or while a program waits
/// for the disk and others find all their reads in memory.
fn stale(walks: usize) -> u64 {
    64 + 8 * walks as u64
}

impl Folder {
    /// A folder with these files, for a reader with these scores.
    pub(crate) fn new(entries: &[Entry], score: [u32; ORDERS]) -> Folder {
        let count = entries.len();
        let listed: Vec<u32> = (0..count as u32).collect();
        let sorted = |key: fn(&Entry) -> u64| {
            let mut order = listed.clone();
            order.sort_by_key(|&i| (key(&entries[i as usize]), i));
            order
        };
        let sequence = [listed.clone(), sorted(|e| e.by_name.into()), sorted(|e| e.ino)];
        let place = sequence.each_ref().map(|order| {
            let mut place = alloc::vec![0; count];
            order.iter().enumerate().for_each(|(at, &file)| place[file as usize] = at as u32);
            place
        });
        let gap = (count / 64).min(GAP_MAX);
        Folder {
            files: alloc::vec![State::Unread; count],
            ended: alloc::vec![false; count],
            inos: entries.iter().map(|e| e.ino).collect(),
            sequence,
            place,
            score,
            walks: Vec::new(),
            next_walk: 0,
            gap,
            walks_max: (count / 16 + 1).min(WALKS_MAX),
            fresh_max: (count / (8 * (2 * gap + 1))).clamp(1, WALKS_MAX),
        }
    }

    pub(crate) fn score(&self) -> [u32; ORDERS] {
        self.score
    }

    /// The order with the best score; of equal ones the first.
    fn best(&self) -> usize {
        (0..ORDERS).rev().max_by_key(|&order| self.score[order]).unwrap_or(0)
    }

    fn is_believed(&self) -> bool {
        self.score[self.best()] >= BELIEVED
    }

    /// Number of files that a walk at position `from - 1` of an order leaves out if `file` is its next;
    /// `None` if that is too many, or `file` lies before it.
    fn left_out(&self, order: usize, from: usize, file: u32) -> Option<usize> {
        let to = self.place[order][file as usize] as usize;
        if to < from || to - from > SCAN_MAX {
            return None;
        }
        let open = |&&i: &&u32| matches!(self.files[i as usize], State::Unread | State::Ahead { .. });
        let left_out = self.sequence[order][from..to].iter().filter(open).take(self.gap + 1).count();
        (left_out <= self.gap).then_some(left_out)
    }

    /// The walk whose next file, or nearly, this is by an order; and whether the walk moves on. Programs that
    /// divide files among them open them slightly out of order, which moves no walk back.
    fn walk_to(&self, order: usize, file: u32) -> Option<(usize, bool)> {
        let to = self.place[order][file as usize];
        let steps = |(index, walk): (usize, &Walk)| {
            let at = self.place[order][walk.at as usize];
            let behind = at.checked_sub(to).filter(|&by| by as usize <= self.gap);
            let ahead = self.left_out(order, at as usize + 1, file).map(|n| (n, true));
            ahead.or(behind.map(|by| (by as usize, false))).map(|(n, on)| (n, index, on))
        };
        self.walks.iter().enumerate().filter_map(steps).min().map(|(_, index, on)| (index, on))
    }

    /// The head of a file was read. Its state becomes [`State::Read`].
    pub(crate) fn read(&mut self, now: Nanos, reads: u64, file: u32) -> Seen {
        let before = self.files[file as usize];
        if before == State::Read {
            let near = |order| self.walk_to(order, file).is_some();
            if self.walks.iter().any(|walk| walk.at == file) || (0..ORDERS).any(near) {
                return Seen::Again;
            }
            // The reader goes through the folder a second time.
            for state in self.files.iter_mut().filter(|state| **state == State::Read) {
                *state = State::Unread;
            }
        }
        self.files[file as usize] = State::Read;
        let mut found = [None; ORDERS];
        for (order, found) in found.iter_mut().enumerate() {
            *found = self.walk_to(order, file);
        }
        if !self.walks.is_empty() {
            // The chance that a random file is the next of one of the walks is the share of files that they
            // cover.
            let covered = (self.walks.len() * (2 * self.gap + 1)).min(self.files.len()) as u32;
            let worth = CERTAIN - CERTAIN * covered / self.files.len() as u32;
            for (order, found) in found.iter().enumerate() {
                self.score[order] = moved(self.score[order], found.map(|_| worth));
            }
        }
        let best = self.best();
        if let Some((index, on)) = found[best].or_else(|| found.iter().flatten().copied().next()) {
            let walk = &mut self.walks[index];
            let before = walk.at;
            // If only another order predicted the file, the walk goes on from there, and nothing is
            // confirmed.
            walk.streak = if found[best].is_some() { walk.streak.saturating_add(1) } else { 0 };
            if on {
                walk.at = file;
            }
            (walk.read, walk.last) = (reads, now);
            return Seen::Next { walk: walk.number, before };
        }
        let known = matches!(before, State::Ahead { .. });
        let first = self.left_out(best, 0, file).is_some();
        let begins = self.is_believed() && (known || first);
        let number = self.next_walk;
        self.next_walk = self.next_walk.wrapping_add(1);
        let streak = if begins { CONFIRMED } else { 0 };
        self.walks.push(Walk { number, at: file, streak, read: reads, last: now });
        if begins { Seen::Begins { walk: number } } else { Seen::Surprise }
    }

    /// Removes walks that have ended and returns their numbers: those that their reader has left, those at
    /// the end of the folder, those without room, and those without progress for [`IDLE`].
    pub(crate) fn over(&mut self, now: Nanos, reads: u64) -> Vec<u32> {
        let best = self.best();
        let (sequence, place, files) = (&self.sequence[best], &self.place[best], &self.files);
        let open = |i: &u32| matches!(files[*i as usize], State::Unread | State::Ahead { .. });
        let behind = stale(self.walks.len());
        let mut over: Vec<u32> = Vec::new();
        self.walks.retain(|w| {
            let ends = !sequence[place[w.at as usize] as usize + 1..].iter().any(open);
            let still = now.0.saturating_sub(w.last.0);
            let left_behind = reads - w.read > behind && still > TURN_MAX.0;
            let stays = still <= IDLE.0 && !left_behind && !ends;
            if !stays {
                over.push(w.number);
            }
            stays
        });
        let (most, fresh_most) = (self.walks_max, self.fresh_max);
        while self.walks.len() > most || self.walks.iter().filter(|w| w.streak == 0).count() > fresh_most {
            let all = self.walks.len() > most;
            let candidates = (0..self.walks.len()).filter(|&i| all || self.walks[i].streak == 0);
            let Some(oldest) = candidates.min_by_key(|&i| self.walks[i].read) else { break };
            over.push(self.walks.remove(oldest).number);
        }
        over
    }

    /// The walks that may have files ahead, of a reader that has read this many files.
    pub(crate) fn confirmed(&self, reads: u64) -> usize {
        let behind = stale(self.walks.len());
        self.walks.iter().filter(|w| w.streak >= CONFIRMED && reads - w.read <= behind).count()
    }

    /// The next files of a walk to request, so that it has `share` of them ahead. They are requested once a
    /// quarter of them is used, so that there are several to put in order.
    pub(crate) fn next(&self, walk: u32, share: usize) -> Vec<u32> {
        let best = self.best();
        let Some(walk) = self.walks.iter().find(|w| w.number == walk) else { return Vec::new() };
        if walk.streak < CONFIRMED || !self.is_believed() {
            return Vec::new();
        }
        let (mut ahead, mut next) = (0, Vec::new());
        let from = self.place[best][walk.at as usize] as usize + 1;
        for &file in self.sequence[best][from..].iter().take(share + SCAN_MAX) {
            if ahead + next.len() >= share {
                break;
            }
            match self.files[file as usize] {
                State::Unread => next.push(file),
                State::Ahead { .. } => ahead += 1,
                State::Left | State::Read | State::Skip => {}
            }
        }
        if ahead > share - share / 4 {
            next.clear();
        }
        next
    }
}
