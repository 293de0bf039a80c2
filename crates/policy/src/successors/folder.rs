//! A folder's orders, and the walks through it.

use alloc::vec::Vec;

use seekless_base::Nanos;

use crate::successors::TURN_MAX;
use crate::successors::successors::IDLE;

/// Orders in which files are taken: as the folder lists them, by name, by inode.
pub const ORDERS: usize = 3;

/// A score of always.
pub(crate) const CERTAIN: u32 = 256;

/// An order is believed from this score on: five of the last eight reads.
pub(crate) const BELIEVED: u32 = CERTAIN * 5 / 8;

/// Most files that a walk may leave out, where the folder has 64 times as many; in smaller folders fewer, so
/// that chance stays below a sixteenth for each walk. Empty files, files in memory and those that several
/// programs share out are left out. At half of it a walk breaks at three empty files; at double, reads at
/// random look like walks in folders of some hundred files.
pub const GAP_MAX: usize = 4;

/// Most walks through one folder, where it has sixteen times as many files; in smaller folders fewer, or
/// every read would be the next file of some walk. A folder of video segments has one for each viewer. At
/// half of it 64 viewers push each other out; at double, a read costs twice as much.
pub const WALKS_MAX: usize = 64;

/// Right guesses in succession before a walk has files ahead.
const CONFIRMED: u32 = 2;

/// Entries looked through for the next file of a walk, beside those that are counted.
const SCAN_MAX: usize = 256;

/// A file of a folder, in the place where the folder lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Inode number.
    pub ino: u64,
    /// Place in the order of names.
    pub by_name: u32,
}

/// What has become of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Not read, and not asked for.
    Unread,
    /// Read ahead, or on its way, for the walk of this number.
    Ahead { walk: u32, bytes: u64, there: bool },
    /// Read ahead and not read in time.
    Left,
    /// Its head was read.
    Read,
    /// It is not read ahead: empty, no regular file, not its reader's.
    Skip,
}

/// A place from which reading goes on.
#[derive(Clone, Copy, Debug)]
struct Walk {
    number: u32,
    /// The file read last.
    at: u32,
    /// Right guesses in succession.
    streak: u32,
    /// Its reader's reads, this one included, when it last read.
    read: u64,
    last: Nanos,
}

/// What a read of a file's head was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// The next file of this walk; the file that the walk read before.
    Next { walk: u32, before: u32 },
    /// Predicted, by an order that goes on from there.
    Begins { walk: u32 },
    /// Nothing predicted it.
    Surprise,
    /// It was read a moment ago.
    Again,
}

/// A folder that was listed.
#[derive(Clone, Debug)]
pub(crate) struct Folder {
    pub(crate) files: Vec<State>,
    /// Whether each was read to its end.
    pub(crate) ended: Vec<bool>,
    pub(crate) inos: Vec<u64>,
    /// Files in each order, and the place of each file in it.
    sequence: [Vec<u32>; ORDERS],
    place: [Vec<u32>; ORDERS],
    score: [u32; ORDERS],
    walks: Vec<Walk>,
    next_walk: u32,
    gap: usize,
    walks_max: usize,
    /// Most walks of a single read: a file at random is the next of one of them in one of eight cases.
    fresh_max: usize,
}

/// A score after one more guess: an average over the last eight. A right one counts for as much as it is no
/// chance, of [`CERTAIN`].
pub(crate) fn moved(score: u32, right: Option<u32>) -> u32 {
    match right {
        Some(worth) => score + ((CERTAIN - score).div_ceil(8) * worth).div_ceil(CERTAIN),
        None => score - score.div_ceil(8),
    }
}

/// A walk is left behind when its reader has read so many files since, in a folder with so many walks, and
/// [`TURN_MAX`] has passed. A program that reads one large file meanwhile is not, nor one that waits for the
/// disk while others find all they read in memory.
fn stale(walks: usize) -> u64 {
    64 + 8 * walks as u64
}

impl Folder {
    /// A folder with these files, of a reader with these scores.
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

    /// The order that was right most often; of equals the first.
    fn best(&self) -> usize {
        (0..ORDERS).rev().max_by_key(|&order| self.score[order]).unwrap_or(0)
    }

    fn is_believed(&self) -> bool {
        self.score[self.best()] >= BELIEVED
    }

    /// Files that a walk at the place `from - 1` of an order leaves out if `file` is its next; `None` if that
    /// is too many, or lies behind it.
    fn left_out(&self, order: usize, from: usize, file: u32) -> Option<usize> {
        let to = self.place[order][file as usize] as usize;
        if to < from || to - from > SCAN_MAX {
            return None;
        }
        let open = |&&i: &&u32| matches!(self.files[i as usize], State::Unread | State::Ahead { .. });
        let left_out = self.sequence[order][from..to].iter().filter(open).take(self.gap + 1).count();
        (left_out <= self.gap).then_some(left_out)
    }

    /// The walk whose next file, or nearly, this is by an order; whether it moves on. Programs that share
    /// files out among them open them a little out of order, which moves no walk back.
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
            // A second time through the folder.
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
            // A file at random is the next of one of the walks as often as they cover files.
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
            // What only another order predicted goes on from there, and confirms nothing.
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

    /// Takes out the walks that are over, and tells their numbers: those that their reader has left behind,
    /// those that have come to the end, those there is no room for, and those that have not gone on for
    /// [`IDLE`].
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

    /// Walks that may have files ahead, of a reader that has read so many files.
    pub(crate) fn confirmed(&self, reads: u64) -> usize {
        let behind = stale(self.walks.len());
        self.walks.iter().filter(|w| w.streak >= CONFIRMED && reads - w.read <= behind).count()
    }

    /// The next files of a walk that are to be asked for, so that it has `share` of them ahead. Asked for
    /// once a quarter of them is read, so that there is something to put in order.
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
