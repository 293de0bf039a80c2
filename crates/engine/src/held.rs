//! What is kept mapped from its arrival until its reader comes ([`seekless_kernel::hold`]).

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::time::{Duration, Instant};

use seekless_kernel::hold::Hold;
use seekless_policy::{FileId, ReadId};

/// Most pieces held of a disk: an eighth of the mappings a process may have, for letting go of a part makes two of one for a
/// moment.
const PIECES_MAX: usize = 8192;

/// A piece is let go after so long, read or not: its reader has left, or stands still. No automatic piece lasts its reader
/// longer than a minute.
const HELD_FOR: Duration = Duration::from_secs(90);

/// Pages are let go in runs of so many bytes, and at the end of a piece.
const STEP: u64 = 128 << 10;

/// A piece, from the moment it is ordered.
struct Piece {
    /// `None` while it is on its way.
    hold: Option<Hold>,
    /// First byte nobody has read.
    unread: u64,
    since: Instant,
}

/// The pieces of a disk, by file and by where they end.
#[derive(Default)]
pub(crate) struct Held {
    files: HashMap<FileId, BTreeMap<u64, Piece>>,
    pieces: usize,
    /// On their way: file and end.
    coming: HashMap<ReadId, (FileId, u64)>,
}

impl Held {
    /// A piece was ordered. Whether it is to be held when it has arrived.
    pub(crate) fn ordered(&mut self, id: ReadId, file: FileId, offset: u64, end: u64, now: Instant) -> bool {
        if self.pieces >= PIECES_MAX {
            return false;
        }
        let piece = Piece { hold: None, unread: offset, since: now };
        let before = self.files.entry(file).or_default().insert(end, piece);
        self.pieces += usize::from(before.is_none());
        self.coming.insert(id, (file, end));
        true
    }

    /// It arrived; without a hold there is nothing to keep.
    pub(crate) fn arrived(&mut self, id: ReadId, hold: Option<Hold>) {
        let Some((file, end)) = self.coming.remove(&id) else { return };
        let piece = self.files.get_mut(&file).and_then(|pieces| pieces.get_mut(&end));
        match (piece, hold) {
            (Some(piece), Some(mut hold)) if piece.unread < end => {
                hold.release_before(piece.unread);
                piece.hold = Some(hold);
            }
            _ => self.forget(file, &[end]),
        }
    }

    /// These bytes were read. `passed` says up to where in a range nobody is still to come for it.
    pub(crate) fn read(&mut self, file: FileId, offset: u64, upto: u64, passed: impl Fn(u64, u64) -> u64) {
        self.pass(file, offset, upto, STEP, passed);
    }

    /// These bytes are to leave memory.
    pub(crate) fn given_back(&mut self, file: FileId, offset: u64, upto: u64) {
        self.pass(file, offset, upto, 0, |_, upto| upto);
    }

    /// Lets go of what lies in files closed meanwhile (`open`), what nobody is to come for (`passed`), and what came long ago.
    pub(crate) fn purge(
        &mut self,
        now: Instant,
        open: impl Fn(FileId) -> bool,
        passed: impl Fn(FileId, u64, u64) -> u64,
    ) {
        self.files.retain(|&file, pieces| {
            pieces.retain(|&end, piece| {
                let Some(hold) = &mut piece.hold else { return open(file) };
                piece.unread = passed(file, piece.unread, end);
                hold.release_before(piece.unread);
                piece.unread < end && open(file) && now.saturating_duration_since(piece.since) < HELD_FOR
            });
            !pieces.is_empty()
        });
        self.pieces = self.files.values().map(BTreeMap::len).sum();
    }

    /// Lets go of what was passed before `upto` of the pieces that `[offset, upto)` touches, once it is a `step` long.
    fn pass(&mut self, file: FileId, offset: u64, upto: u64, step: u64, passed: impl Fn(u64, u64) -> u64) {
        let Some(pieces) = self.files.get_mut(&file) else { return };
        let mut done = Vec::new();
        for (&end, piece) in pieces.range_mut((Bound::Excluded(offset), Bound::Unbounded)) {
            let upto = upto.min(end);
            if upto <= piece.unread {
                // Those behind begin later, but for what was read a second time, which is let go in time.
                break;
            }
            if upto - piece.unread < step && upto < end {
                continue;
            }
            piece.unread = passed(piece.unread, upto);
            match &mut piece.hold {
                Some(_) if piece.unread == end => done.push(end),
                Some(hold) => hold.release_before(piece.unread),
                None => {}
            }
        }
        self.forget(file, &done);
    }

    fn forget(&mut self, file: FileId, ends: &[u64]) {
        let Some(pieces) = self.files.get_mut(&file) else { return };
        for end in ends {
            self.pieces -= usize::from(pieces.remove(end).is_some());
        }
        if pieces.is_empty() {
            self.files.remove(&file);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsFd;

    const M: u64 = 1 << 20;
    const FILE: FileId = FileId { dev: 1, ino: 2 };
    const OTHER: FileId = FileId { dev: 1, ino: 3 };

    fn file() -> File {
        let file = tempfile::tempfile().unwrap();
        file.set_len(16 * M).unwrap();
        file
    }

    /// Orders a piece, and lets it arrive.
    fn piece(held: &mut Held, name: u64, file: FileId, data: &File, offset: u64, end: u64) {
        assert!(held.ordered(ReadId(name), file, offset, end, Instant::now()));
        held.arrived(ReadId(name), Some(Hold::new(data.as_fd(), offset, end - offset).unwrap()));
    }

    fn all(held: &Held) -> Vec<(u64, u64)> {
        let pieces = held.files.values().flat_map(BTreeMap::values);
        let mut all: Vec<(u64, u64)> = pieces.flat_map(|p| &p.hold).map(|h| (h.offset(), h.end())).collect();
        all.sort_unstable();
        assert_eq!(held.pieces, held.files.values().map(BTreeMap::len).sum::<usize>());
        all
    }

    /// Nobody else is to come.
    fn alone(_: u64, upto: u64) -> u64 {
        upto
    }

    #[test]
    fn a_reader_lets_go_of_what_it_has_passed() {
        let (data, mut held) = (file(), Held::default());
        piece(&mut held, 0, FILE, &data, 0, 4 * M);
        piece(&mut held, 1, FILE, &data, 4 * M, 8 * M);
        piece(&mut held, 2, OTHER, &data, 0, 4 * M);
        held.read(FILE, 0, STEP / 2, alone);
        assert_eq!(all(&held)[0], (0, 4 * M), "a step at a time");
        held.read(FILE, STEP / 2, M, alone);
        assert_eq!(all(&held), [(0, 4 * M), (M, 4 * M), (4 * M, 8 * M)]);
        held.read(FILE, 3 * M, 5 * M, alone);
        assert_eq!(all(&held), [(0, 4 * M), (5 * M, 8 * M)]);
        held.given_back(OTHER, 0, 4096);
        assert_eq!(all(&held), [(4096, 4 * M), (5 * M, 8 * M)], "what is to leave goes to the page");
        held.read(FILE, 7 * M, 9 * M, alone);
        held.given_back(OTHER, 0, 4 * M);
        assert!(all(&held).is_empty() && held.files.is_empty());
    }

    #[test]
    fn what_another_is_to_come_for_stays() {
        let (data, mut held) = (file(), Held::default());
        piece(&mut held, 0, FILE, &data, 0, 4 * M);
        held.read(FILE, 2 * M, 4 * M, |from, upto| M.clamp(from, upto));
        assert_eq!(all(&held), [(M, 4 * M)]);
        let now = Instant::now();
        held.purge(now, |_| true, |_, _, _| 2 * M);
        assert_eq!(all(&held), [(2 * M, 4 * M)]);
        held.purge(now, |_| true, |_, _, upto| upto);
        assert!(all(&held).is_empty(), "its reader has left");
    }

    #[test]
    fn what_was_read_on_its_way_is_not_held_and_what_failed_is_forgotten() {
        let (data, mut held) = (file(), Held::default());
        assert!(held.ordered(ReadId(0), FILE, 0, 4 * M, Instant::now()));
        held.read(FILE, 0, 3 * M, alone);
        held.arrived(ReadId(0), Some(Hold::new(data.as_fd(), 0, 4 * M).unwrap()));
        assert_eq!(all(&held), [(3 * M, 4 * M)]);
        assert!(held.ordered(ReadId(1), FILE, 4 * M, 8 * M, Instant::now()));
        held.arrived(ReadId(1), None);
        assert!(held.ordered(ReadId(2), FILE, 4 * M, 8 * M, Instant::now()));
        held.read(FILE, 4 * M, 8 * M, alone);
        held.arrived(ReadId(2), Some(Hold::new(data.as_fd(), 4 * M, 4 * M).unwrap()));
        held.arrived(ReadId(7), None);
        assert_eq!(all(&held), [(3 * M, 4 * M)]);
    }

    #[test]
    fn nothing_is_held_for_ever_or_of_closed_files_or_without_bound() {
        let (data, mut held) = (file(), Held::default());
        let waits = |_, from, _| from;
        piece(&mut held, 0, FILE, &data, 0, M);
        piece(&mut held, 1, OTHER, &data, 0, M);
        held.purge(Instant::now(), |file| file == FILE, waits);
        assert_eq!(all(&held).len(), 1);
        held.purge(Instant::now() + HELD_FOR, |_| true, waits);
        assert!(all(&held).is_empty());
        let many = |i: u64| (ReadId(i), FILE, i * 4096, (i + 1) * 4096);
        for i in 0..PIECES_MAX as u64 {
            let (id, file, offset, end) = many(i);
            assert!(held.ordered(id, file, offset, end, Instant::now()));
        }
        let (id, file, offset, end) = many(PIECES_MAX as u64);
        assert!(!held.ordered(id, file, offset, end, Instant::now()));
    }
}
