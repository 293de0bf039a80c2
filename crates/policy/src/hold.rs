//! What is held in memory from its arrival until its reader has passed it.
//!
//! The kernel takes first what nobody has touched twice, which is what was read ahead and waits for its reader. So a driver holds a
//! piece when it has arrived (it makes its pages active; how is the driver's affair), and lets go of what all have passed it was
//! fetched for. Where nobody is to come for it at all, it lets go *for good*: memory is to be found there first.
//!
//! Active pages do not stay so: the kernel takes off that list what came to it longest ago, whatever was done with it since, and
//! while pages come back that it has just evicted (popular films in a full memory) it takes off as much in proportion as it evicts. So what is held is
//! *renewed* in turn, a byte for each that arrives: once, on the mean, while a piece waits for its reader. On simulated sessions
//! (20 TB, SD, 8 GiB, 390 requests/s, four seeds) 0.6 to 1.0 % of what is requested was evicted unread without that, and 0.00 to 0.10 %
//! with it; and since memory does not count as short then, viewers found 24 to 26 % of it in memory instead of 17 to 19 %. Two or four
//! bytes for each do no more.
//!
//! Hardly a byte is held twice: when a piece arrives, what others of the file begin with is let go of where it lies in that piece. (A reader leaves the end of a piece behind that somebody else may
//! come to, and the next one's piece lies over it: on a popular file one page was mapped 433 times within a quarter of an hour, and the
//! kernel leaves pages alone that are mapped more than once, when they are renewed, cooled or given back.)

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use crate::{FileId, KEEP_BEHIND, ReadId, Spindle};

/// Most pieces of a disk that are remembered.
const PIECES_MAX: usize = 8192;

/// Most bytes to renew that a driver which falls behind makes up for.
const CREDIT_MAX: u64 = 256 << 20;

/// Pages are let go in runs of so many bytes, and at the end of a piece.
const STEP: u64 = 128 << 10;

/// Who is still to come for what is held.
pub trait Readers {
    /// [`Spindle::passed_by_all`].
    fn passed_by_all(&self, file: FileId, start: u64, end: u64) -> u64;
    /// Whether anybody may come to these bytes at all.
    fn is_expected(&self, file: FileId, start: u64, end: u64) -> bool;
}

impl Readers for Spindle {
    fn passed_by_all(&self, file: FileId, start: u64, end: u64) -> u64 {
        Spindle::passed_by_all(self, file, start, end)
    }

    fn is_expected(&self, file: FileId, start: u64, end: u64) -> bool {
        Spindle::is_expected(self, file, start, end)
    }
}

/// Bytes of a piece to let go of: those of its file in `[from, upto)`, the first that it still holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LetGo {
    /// The read that brought the piece.
    pub read: ReadId,
    /// Its file.
    pub file: FileId,
    /// First byte.
    pub from: u64,
    /// Behind the last.
    pub upto: u64,
    /// Nobody else may come to it.
    pub for_good: bool,
    /// Nothing of the piece is held any longer.
    pub last: bool,
}

/// Bytes of a piece to renew: those of its file in `[from, end)`. The driver says when it has ([`Holds::renewed`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Renew {
    /// The read that brought the piece.
    pub read: ReadId,
    /// Its file.
    pub file: FileId,
    /// First byte that is still held.
    pub from: u64,
    /// Behind the last.
    pub end: u64,
}

#[derive(Debug)]
struct Piece {
    /// Not on its way any longer.
    held: bool,
    /// First byte of it, until it is held; then the first that is.
    from: u64,
    /// First byte nobody has read.
    unread: u64,
}

/// The pieces of a disk, by file and by where they end.
#[derive(Debug, Default)]
pub struct Holds {
    files: BTreeMap<FileId, BTreeMap<(u64, ReadId), Piece>>,
    pieces: usize,
    /// On their way: file, offset and end.
    coming: BTreeMap<ReadId, (FileId, u64, u64)>,
    /// To be let go, for [`Holds::poll`].
    due: Vec<LetGo>,
    /// File, end and read of those held, the one that was made active longest ago first. Some are not held any longer.
    round: VecDeque<(FileId, u64, ReadId)>,
    /// Bytes that arrived, less those renewed.
    credit: u64,
    /// Being renewed, and whether all that was let go of meanwhile was for good.
    renewing: BTreeMap<ReadId, (Renew, bool)>,
}

impl Holds {
    /// A piece was ordered.
    pub fn ordered(&mut self, read: ReadId, file: FileId, offset: u64, end: u64) {
        if self.pieces < PIECES_MAX {
            let piece = Piece { held: false, from: offset, unread: offset };
            self.files.entry(file).or_default().insert((end, read), piece);
            self.pieces += 1;
            self.coming.insert(read, (file, offset, end));
        }
    }

    /// Whether a piece is to be held when it has arrived: file, offset and end.
    pub fn wants(&self, read: ReadId) -> Option<(FileId, u64, u64)> {
        let &(file, _, end) = self.coming.get(&read)?;
        Some((file, self.piece(file, end, read)?.from, end))
    }

    /// A piece that was ordered is held from now on, or (`held` is `false`) cannot be. `false` for one that was not ordered: it is the
    /// driver's to let go.
    pub fn held(&mut self, read: ReadId, held: bool) -> bool {
        let Some((file, from, end)) = self.coming.remove(&read) else { return false };
        let Some(piece) = self.files.get_mut(&file).and_then(|pieces| pieces.get_mut(&(end, read))) else {
            // Its file was closed meanwhile.
            if held {
                self.due.push(LetGo { read, file, from, upto: end, for_good: true, last: true });
            }
            return true;
        };
        piece.held = held;
        let unread = piece.unread;
        if held {
            let let_go = piece.let_go((file, end, read), unread, true);
            self.due.extend(let_go);
            // Others that begin in this one let go of what it holds from now on.
            self.pass(file, unread, end, 0, |piece, name, upto| {
                let elsewhere = name.2 != read && piece.held && piece.from >= unread;
                elsewhere.then(|| piece.let_go(name, upto, false))?
            });
        }
        if !held || unread == end {
            self.forget(file, &[(end, read)]);
        } else {
            // What arrives alone has nobody to renew.
            if !self.round.is_empty() {
                self.credit = CREDIT_MAX.min(self.credit + (end - from));
            }
            self.round.push_back((file, end, read));
        }
        true
    }

    /// The next piece to renew, when as much has arrived as it is long.
    pub fn next_renewal(&mut self) -> Option<Renew> {
        while let Some(&(file, end, read)) = self.round.front() {
            let renew = self.piece(file, end, read).map(|piece| Renew { read, file, from: piece.from, end });
            let long = renew.map_or(0, |renew| CREDIT_MAX.min(end - renew.from));
            if long > self.credit {
                return None;
            }
            self.round.pop_front();
            self.credit -= long;
            if let Some(renew) = renew {
                self.renewing.insert(read, (renew, true));
                return Some(renew);
            }
        }
        self.credit = 0;
        None
    }

    /// A piece was renewed, or could not be; what was let go of in the meantime is to be let go of again. `false` for one that was not to be.
    pub fn renewed(&mut self, read: ReadId) -> bool {
        let Some((Renew { file, from, end, .. }, for_good)) = self.renewing.remove(&read) else {
            return false;
        };
        let upto = self.piece(file, end, read).map_or(end, |piece| piece.from);
        if from < upto {
            self.due.push(LetGo { read, file, from, upto, for_good, last: upto == end });
        }
        if upto < end {
            self.round.push_back((file, end, read));
        }
        true
    }

    fn piece(&self, file: FileId, end: u64, read: ReadId) -> Option<&Piece> {
        self.files.get(&file)?.get(&(end, read))
    }

    /// How many pieces are held.
    pub fn count(&self) -> usize {
        self.files.values().flat_map(BTreeMap::values).filter(|piece| piece.held).count()
    }

    /// These bytes were read.
    pub fn read(&mut self, file: FileId, offset: u64, upto: u64, readers: &impl Readers) {
        // What a reader keeps behind him goes with his next read, which may be in the next piece.
        let offset = offset.saturating_sub(KEEP_BEHIND);
        self.pass(file, offset, upto, STEP, |piece, name, upto| piece.let_go_passed(name, upto, readers));
    }

    /// These bytes are to leave memory.
    pub fn given_back(&mut self, file: FileId, offset: u64, upto: u64) {
        self.pass(file, offset, upto, 0, |piece, name, upto| piece.let_go(name, upto, true));
    }

    /// Lets go of what lies in files closed meanwhile (`open`), and of what nobody is to come for: its reader has left, and a stream that
    /// stands still for half a minute ends. There is no bound by age: 8 MiB last a viewer of 400 kb/s nearly three minutes, and what
    /// was let go after 90 s a pager had taken before he came to it.
    pub fn purge(&mut self, open: impl Fn(FileId) -> bool, readers: &impl Readers) {
        let due = &mut self.due;
        self.files.retain(|&file, pieces| {
            pieces.retain(|&(end, read), piece| {
                if !piece.held {
                    return open(file);
                }
                due.extend(piece.let_go_passed((file, end, read), end, readers));
                if piece.unread < end && !open(file) {
                    due.extend(piece.let_go((file, end, read), end, false));
                }
                piece.unread < end
            });
            !pieces.is_empty()
        });
        self.pieces = self.files.values().map(BTreeMap::len).sum();
        let files = &self.files;
        self.round
            .retain(|&(file, end, read)| files.get(&file).is_some_and(|f| f.contains_key(&(end, read))));
    }

    /// The next bytes to let go of, in the order in which that was decided. To be asked for after every other call.
    pub fn poll(&mut self) -> impl Iterator<Item = LetGo> + '_ {
        let renewing = &mut self.renewing;
        self.due.drain(..).inspect(|let_go| {
            if let Some((_, for_good)) = renewing.get_mut(&let_go.read) {
                *for_good &= let_go.for_good;
            }
        })
    }

    /// Has the pieces that `[offset, upto)` touches let go of what lies before `upto`, once it is a `step` long.
    fn pass(
        &mut self,
        file: FileId,
        offset: u64,
        upto: u64,
        step: u64,
        let_go: impl Fn(&mut Piece, (FileId, u64, ReadId), u64) -> Option<LetGo>,
    ) {
        let Some(pieces) = self.files.get_mut(&file) else { return };
        let mut done = Vec::new();
        for (&(end, read), piece) in pieces.range_mut((offset.saturating_add(1), ReadId(0))..) {
            let upto = upto.min(end);
            if upto <= piece.unread || (upto - piece.unread < step && upto < end) {
                continue;
            }
            self.due.extend(let_go(piece, (file, end, read), upto));
            if piece.unread == end && piece.held {
                done.push((end, read));
            }
        }
        self.forget(file, &done);
    }

    fn forget(&mut self, file: FileId, names: &[(u64, ReadId)]) {
        let Some(pieces) = self.files.get_mut(&file) else { return };
        for name in names {
            self.pieces -= usize::from(pieces.remove(name).is_some());
        }
        if pieces.is_empty() {
            self.files.remove(&file);
        }
    }
}

impl Piece {
    /// Lets go of what lies before `upto`. `name`: file, end and read.
    fn let_go(
        &mut self,
        (file, end, read): (FileId, u64, ReadId),
        upto: u64,
        for_good: bool,
    ) -> Option<LetGo> {
        self.unread = upto;
        let from = self.from;
        if !self.held || upto <= from {
            return None;
        }
        self.from = upto;
        Some(LetGo { read, file, from, upto, for_good, last: upto == end })
    }

    /// The same of what all readers have passed before `upto`.
    fn let_go_passed(
        &mut self,
        name: (FileId, u64, ReadId),
        upto: u64,
        readers: &impl Readers,
    ) -> Option<LetGo> {
        let passed = readers.passed_by_all(name.0, self.unread, upto);
        if passed <= self.unread {
            return None;
        }
        let for_good = !readers.is_expected(name.0, self.unread, passed);
        self.let_go(name, passed, for_good)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const M: u64 = 1 << 20;
    const FILE: FileId = FileId { dev: 1, ino: 2 };
    const OTHER: FileId = FileId { dev: 1, ino: 3 };

    fn order(holds: &mut Holds, name: u64, file: FileId, offset: u64, end: u64) {
        holds.ordered(ReadId(name), file, offset, end);
    }

    fn piece(holds: &mut Holds, name: u64, file: FileId, offset: u64, end: u64) {
        order(holds, name, file, offset, end);
        assert_eq!(holds.wants(ReadId(name)), Some((file, offset, end)));
        holds.held(ReadId(name), true);
    }

    /// Readers who have all passed an offset, and come to nothing before another.
    struct Upto(u64, u64);

    impl Readers for Upto {
        fn passed_by_all(&self, _: FileId, start: u64, end: u64) -> u64 {
            self.0.clamp(start, end)
        }
        fn is_expected(&self, _: FileId, _: u64, end: u64) -> bool {
            end > self.1
        }
    }

    /// Nobody else is to come.
    const ALONE: Upto = Upto(u64::MAX, u64::MAX);
    /// Nobody has come.
    const WAITING: Upto = Upto(0, 0);

    impl Holds {
        /// Whether anything is left of a piece that is being renewed.
        fn renewing_still(&self, read: ReadId) -> bool {
            self.renewing.get(&read).is_some_and(|(r, _)| self.piece(r.file, r.end, read).is_some())
        }
    }

    /// What is still held, as a driver would have it that starts with these and follows every word.
    struct Driver(BTreeMap<ReadId, (u64, u64)>);

    impl Driver {
        fn new(pieces: &[(u64, u64, u64)]) -> Driver {
            Driver(pieces.iter().map(|&(name, offset, end)| (ReadId(name), (offset, end))).collect())
        }

        fn all(&mut self, holds: &mut Holds) -> Vec<(u64, u64)> {
            for LetGo { read, from, upto, last, .. } in holds.poll() {
                let hold = self.0.get_mut(&read).expect("only what is held is let go");
                assert!(hold.0 == from && from < upto && (upto == hold.1) == last);
                hold.0 = upto;
                if last {
                    self.0.remove(&read);
                }
            }
            assert_eq!(holds.pieces, holds.files.values().map(BTreeMap::len).sum::<usize>());
            assert_eq!(holds.count(), self.0.len());
            let mut all: Vec<(u64, u64)> = self.0.values().copied().collect();
            all.sort_unstable();
            all
        }
    }

    #[test]
    fn a_reader_lets_go_of_what_it_has_passed() {
        let mut holds = Holds::default();
        piece(&mut holds, 0, FILE, 0, 4 * M);
        piece(&mut holds, 1, FILE, 4 * M, 8 * M);
        piece(&mut holds, 2, OTHER, 0, 4 * M);
        let mut driver = Driver::new(&[(0, 0, 4 * M), (1, 4 * M, 8 * M), (2, 0, 4 * M)]);
        holds.read(FILE, 0, STEP / 2, &ALONE);
        assert_eq!(driver.all(&mut holds)[0], (0, 4 * M), "a step at a time");
        holds.read(FILE, STEP / 2, M, &ALONE);
        assert_eq!(driver.all(&mut holds), [(0, 4 * M), (M, 4 * M), (4 * M, 8 * M)]);
        holds.read(FILE, 3 * M, 5 * M, &ALONE);
        assert_eq!(driver.all(&mut holds), [(0, 4 * M), (5 * M, 8 * M)]);
        holds.given_back(OTHER, 0, 4096);
        assert_eq!(
            driver.all(&mut holds),
            [(4096, 4 * M), (5 * M, 8 * M)],
            "what is to leave goes to the page"
        );
        holds.read(FILE, 7 * M, 9 * M, &ALONE);
        holds.given_back(OTHER, 0, 4 * M);
        assert!(driver.all(&mut holds).is_empty() && holds.files.is_empty());
    }

    #[test]
    fn the_last_of_a_piece_goes_with_the_next_read() {
        let mut holds = Holds::default();
        piece(&mut holds, 0, FILE, 0, 4 * M);
        piece(&mut holds, 1, FILE, 4 * M, 8 * M);
        let mut driver = Driver::new(&[(0, 0, 4 * M), (1, 4 * M, 8 * M)]);
        holds.read(FILE, 3 * M, 4 * M, &Upto(4 * M - STEP, u64::MAX));
        let last = (4 * M - STEP, 4 * M);
        assert_eq!(driver.all(&mut holds), [last, (4 * M, 8 * M)], "he may read a little of it again");
        holds.read(FILE, 4 * M, 5 * M, &Upto(5 * M - STEP, u64::MAX));
        assert_eq!(driver.all(&mut holds), [(5 * M - STEP, 8 * M)]);
    }

    #[test]
    fn what_another_is_to_come_for_stays() {
        let mut holds = Holds::default();
        piece(&mut holds, 0, FILE, 0, 4 * M);
        let mut driver = Driver::new(&[(0, 0, 4 * M)]);
        holds.read(FILE, 2 * M, 4 * M, &Upto(M, M));
        assert_eq!(holds.due.last().map(|l| l.for_good), Some(true));
        assert_eq!(driver.all(&mut holds), [(M, 4 * M)]);
        holds.purge(|_| true, &Upto(2 * M, 0));
        assert_eq!(holds.due.last().map(|l| l.for_good), Some(false), "somebody may come to it");
        assert_eq!(driver.all(&mut holds), [(2 * M, 4 * M)]);
        holds.purge(|_| true, &ALONE);
        assert!(driver.all(&mut holds).is_empty(), "its reader has left");
    }

    #[test]
    fn what_was_read_on_its_way_is_not_held_and_what_failed_is_forgotten() {
        let mut holds = Holds::default();
        let mut driver = Driver::new(&[(0, 0, 4 * M)]);
        order(&mut holds, 0, FILE, 0, 4 * M);
        holds.read(FILE, 0, 3 * M, &ALONE);
        holds.held(ReadId(0), true);
        assert_eq!(driver.all(&mut holds), [(3 * M, 4 * M)]);
        order(&mut holds, 1, FILE, 4 * M, 8 * M);
        holds.held(ReadId(1), false);
        order(&mut holds, 2, FILE, 4 * M, 8 * M);
        holds.read(FILE, 4 * M + STEP, 8 * M, &ALONE);
        driver.0.insert(ReadId(2), (4 * M, 8 * M));
        holds.held(ReadId(2), true);
        assert!(!holds.held(ReadId(7), true), "nobody ordered it");
        assert_eq!(holds.wants(ReadId(7)), None);
        assert_eq!(driver.all(&mut holds), [(3 * M, 4 * M)]);
        assert!(holds.coming.is_empty());
    }

    #[test]
    fn what_is_held_longest_is_renewed_by_as_much_as_arrives() {
        let mut holds = Holds::default();
        for name in 0..3 {
            piece(&mut holds, name, FILE, 4 * M * name, 4 * M * (name + 1));
        }
        let renewal = |holds: &mut Holds| {
            let renew = holds.next_renewal()?;
            assert!(holds.renewed(renew.read));
            Some((renew.read.0, renew.from, renew.end))
        };
        for name in [0, 1] {
            assert_eq!(renewal(&mut holds), Some((name, 4 * M * name, 4 * M * (name + 1))));
        }
        assert_eq!(renewal(&mut holds), None, "each byte that arrives renews one, and the first had none to");
        piece(&mut holds, 3, FILE, 12 * M, 15 * M);
        assert_eq!(renewal(&mut holds), None, "4 MiB are not renewed for three");
        piece(&mut holds, 4, FILE, 15 * M, 16 * M);
        assert_eq!(renewal(&mut holds), Some((2, 8 * M, 12 * M)));
        piece(&mut holds, 5, FILE, 16 * M, 18 * M);
        holds.read(FILE, 4 * M, 6 * M, &ALONE);
        holds.given_back(FILE, 0, 4 * M);
        assert_eq!(
            renewal(&mut holds),
            Some((1, 6 * M, 8 * M)),
            "what is left of one, not what is let go of"
        );
        assert_eq!(renewal(&mut holds), None);
        holds.purge(|_| false, &ALONE);
        assert!(holds.round.is_empty() && holds.renewing.is_empty());
        assert_eq!((renewal(&mut holds), holds.credit), (None, 0));
        (10..300).for_each(|name| piece(&mut holds, name, OTHER, 4 * M * name, 4 * M * (name + 1)));
        assert_eq!(core::iter::from_fn(|| renewal(&mut holds)).count(), 64, "not all that it fell behind");
        assert!(!holds.renewed(ReadId(0)), "nobody is to renew it");
    }

    #[test]
    fn what_is_passed_while_it_is_renewed_is_let_go_of_again() {
        let mut holds = Holds::default();
        piece(&mut holds, 0, FILE, 0, 4 * M);
        piece(&mut holds, 1, FILE, 4 * M, 8 * M);
        piece(&mut holds, 2, OTHER, 0, 4 * M);
        let renew = [holds.next_renewal(), holds.next_renewal()].map(|r| r.expect("8 MiB arrived").read);
        assert_eq!(renew, [ReadId(0), ReadId(1)]);
        holds.read(FILE, 0, 5 * M, &ALONE);
        holds.poll().for_each(drop);
        assert!(renew.into_iter().all(|read| holds.renewed(read)));
        let let_go = |name, from, upto, last| LetGo {
            read: ReadId(name),
            file: FILE,
            from,
            upto,
            for_good: true,
            last,
        };
        assert_eq!(holds.due, [let_go(0, 0, 4 * M, true), let_go(1, 4 * M, 5 * M, false)]);
        assert_eq!((holds.count(), holds.round.len()), (2, 2));
    }

    #[test]
    fn what_somebody_may_still_come_to_is_no_colder_for_being_renewed() {
        let mut holds = Holds::default();
        piece(&mut holds, 0, FILE, 0, 4 * M);
        piece(&mut holds, 1, OTHER, 0, 4 * M);
        let renew = holds.next_renewal().expect("4 MiB arrived").read;
        holds.read(FILE, 0, M, &ALONE);
        holds.read(FILE, M, 4 * M, &Upto(u64::MAX, 0));
        holds.poll().for_each(drop);
        assert!(holds.renewed(renew));
        let late = holds.poll().next().expect("all of it was passed");
        assert!(!late.for_good && (late.from, late.upto, late.last) == (0, 4 * M, true));
    }

    #[test]
    fn viewers_who_come_and_leave_hold_nothing_twice() {
        let mut holds = Holds::default();
        let mut driver = Driver::new(&[]);
        for name in 0..1_000 {
            // Each reads all of his piece but the end, which the next may come to.
            piece(&mut holds, name, FILE, M, 2 * M);
            driver.0.insert(ReadId(name), (M, 2 * M));
            assert_eq!(driver.all(&mut holds), [(M, 2 * M)]);
            holds.read(FILE, M, 2 * M - 4096, &ALONE);
            assert_eq!(driver.all(&mut holds), [(2 * M - 4096, 2 * M)]);
        }
        assert_eq!((holds.count(), holds.pieces), (1, 1));
        // One that reaches further keeps what lies behind the new one.
        piece(&mut holds, 1_000, FILE, M, 3 * M);
        piece(&mut holds, 1_001, FILE, 0, 2 * M);
        driver.0.extend([(ReadId(1_000), (M, 3 * M)), (ReadId(1_001), (0, 2 * M))]);
        assert_eq!(driver.all(&mut holds), [(0, 2 * M), (2 * M, 3 * M)]);
        assert!(holds.due.is_empty());
    }

    #[test]
    fn a_hole_that_is_read_again_ends_no_hold_around_it() {
        let mut holds = Holds::default();
        let pieces = [(0, 0, 4 * M), (1, 2 * M, 3 * M), (2, 3 * M, 4 * M)];
        for (name, offset, end) in pieces {
            piece(&mut holds, name, FILE, offset, end);
        }
        let mut driver = Driver::new(&pieces);
        assert_eq!(driver.all(&mut holds), [(0, 4 * M), (2 * M, 3 * M), (3 * M, 4 * M)]);
        holds.read(FILE, 0, M, &ALONE);
        assert_eq!(driver.all(&mut holds)[0], (M, 4 * M));
        holds.given_back(FILE, M, 4 * M);
        assert!(driver.all(&mut holds).is_empty());
    }

    proptest! {
        /// Whatever comes in whatever order: a driver hears of each byte of a piece it has once, in order, and never of one somebody is to come
        /// for, unless it leaves memory.
        #[test]
        fn each_byte_is_let_go_once(
            ops in proptest::collection::vec((0u8..8, 0u64..12, 0u64..40, 1u64..12), 1..80),
        ) {
            const UNIT: u64 = 96 << 10;
            let (mut holds, mut driver) = (Holds::default(), Driver::new(&[]));
            let (mut names, mut passed, mut gone) = (BTreeMap::new(), 0, 0);
            // With whoever renews them.
            let mut away = BTreeMap::new();
            for (op, name, start, len) in ops {
                let (read, start, end) = (ReadId(name), start * UNIT, (start + len) * UNIT);
                let waiting = Upto(passed, passed);
                match op {
                    0 if !names.contains_key(&read) => {
                        holds.ordered(read, FILE, start, end);
                        names.insert(read, (start, end));
                    }
                    1 => {
                        if let Some((_, start, end)) = holds.wants(read) {
                            driver.0.insert(read, (start, end));
                            holds.held(read, true);
                        }
                    }
                    2 => {
                        holds.held(read, false);
                    }
                    3 => {
                        passed = passed.max(end);
                        holds.read(FILE, start, end, &Upto(passed, passed));
                    }
                    4 => holds.purge(|_| true, &waiting),
                    5 => {
                        gone = gone.max(end);
                        holds.given_back(FILE, start, end);
                    }
                    6 => {
                        if let Some(renew) = holds.next_renewal() {
                            prop_assert_eq!(driver.0.remove(&renew.read), Some((renew.from, renew.end)));
                            away.insert(renew.read, (renew.from, renew.end));
                        }
                    }
                    7 => {
                        if let Some((read, hold)) = away.pop_first() {
                            driver.0.insert(read, hold);
                            prop_assert!(holds.renewed(read));
                        }
                    }
                    _ => {}
                }
                for let_go in holds.poll() {
                    if away.contains_key(&let_go.read) {
                        continue;
                    }
                    // Held by another piece; by the time a renewed one is back that may be gone.
                    let elsewhere = |(&read, &(from, end)): (&ReadId, &(u64, u64))| {
                        read != let_go.read && from <= let_go.from && let_go.upto <= end
                    };
                    let twice = !let_go.for_good && (op == 7 || driver.0.iter().any(elsewhere));
                    prop_assert!(let_go.upto <= passed.max(gone) || twice, "{let_go:?}");
                    let hold = driver.0.get_mut(&let_go.read).expect("only what is held is let go");
                    prop_assert!(hold.0 == let_go.from && hold.0 < let_go.upto);
                    prop_assert_eq!(let_go.upto == hold.1, let_go.last);
                    hold.0 = let_go.upto;
                    if let_go.last {
                        driver.0.remove(&let_go.read);
                    }
                }
                let still = away.keys().filter(|&&read| holds.renewing_still(read)).count();
                prop_assert_eq!(holds.count(), driver.0.len() + still);
                prop_assert!(holds.round.len() <= names.len());
            }
        }
    }

    #[test]
    fn nothing_is_held_of_closed_files_or_without_bound() {
        let mut holds = Holds::default();
        piece(&mut holds, 0, FILE, 0, M);
        piece(&mut holds, 1, OTHER, 0, M);
        let mut driver = Driver::new(&[(0, 0, M), (1, 0, M)]);
        order(&mut holds, 2, OTHER, M, 2 * M);
        holds.purge(|file| file == FILE, &WAITING);
        assert_eq!(
            holds.due,
            [LetGo { read: ReadId(1), file: OTHER, from: 0, upto: M, for_good: false, last: true }]
        );
        holds.poll().for_each(drop);
        holds.held(ReadId(2), true);
        let late = holds.poll().next().expect("it has arrived in a closed file");
        assert!(late.read == ReadId(2) && late.from == M && late.last && late.for_good);
        driver.0.remove(&ReadId(1));
        assert_eq!(driver.all(&mut holds).len(), 1);
        holds.purge(|_| true, &ALONE);
        assert!(driver.all(&mut holds).is_empty());
        (0..2 * PIECES_MAX as u64).for_each(|i| order(&mut holds, 3 + i, FILE, i * 4096, (i + 1) * 4096));
        assert_eq!((holds.pieces, holds.coming.len()), (PIECES_MAX, PIECES_MAX));
    }
}
