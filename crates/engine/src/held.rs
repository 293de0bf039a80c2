//! What is kept mapped from its arrival until its reader comes ([`seekless_kernel::hold`]).
//!
//! A thread beside each disk's reader maps: touching the pages of 4 MiB takes a third of a millisecond, which neither the disk nor
//! whoever waits for an answer should have to wait for; and a page that leaves memory in this very moment is read again, by the thread.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread;

use crossbeam_channel::{Receiver, Sender, bounded, never};
use seekless_kernel::hold::Hold;
use seekless_kernel::prefetch::Source;
use seekless_policy::{FileId, KEEP_BEHIND, ReadId, Spindle};

use crate::worker::short_name;

/// Pieces that wait to be mapped; one more is left to the kernel.
const WAITING_MAX: usize = 64;

/// Most pieces of a disk that are remembered; the process as a whole has a bound for its mappings ([`Hold::new`]).
const PIECES_MAX: usize = 8192;

/// Pages are let go in runs of so many bytes, and at the end of a piece.
const STEP: u64 = 128 << 10;

/// A piece, from the moment it is ordered.
struct Piece {
    /// `None` while it is on its way.
    hold: Option<Hold>,
    /// First byte nobody has read.
    unread: u64,
}

impl Piece {
    /// Lets go of what lies before `upto`; `for_good`: nobody else may come to it.
    fn let_go(&mut self, upto: u64, for_good: bool) {
        self.unread = upto;
        match &mut self.hold {
            Some(hold) if for_good => hold.cool_before(upto),
            Some(hold) => hold.release_before(upto),
            None => {}
        }
    }

    /// The same of what all readers have passed before `upto`.
    fn let_go_passed(&mut self, file: FileId, upto: u64, readers: &impl Readers) {
        let passed = readers.passed_by_all(file, self.unread, upto);
        if passed > self.unread {
            self.let_go(passed, !readers.is_expected(file, self.unread, passed));
        }
    }
}

/// A piece that has arrived.
struct Arrived {
    id: ReadId,
    source: Arc<Source>,
    offset: u64,
    len: u64,
}

/// The thread that maps. It ends when its disk's [`Held`] is gone.
struct Holder {
    arrived: Sender<Arrived>,
    holds: Receiver<(ReadId, Option<Hold>)>,
}

impl Holder {
    fn start(disk: &str) -> io::Result<Holder> {
        let (arrived, to_hold) = bounded::<Arrived>(WAITING_MAX);
        let (held, holds) = bounded(WAITING_MAX);
        let work = move || {
            for piece in to_hold {
                let hold = Hold::new(piece.source.as_fd(), piece.offset, piece.len);
                if held.send((piece.id, hold.ok())).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new().name(short_name("hold", disk)).spawn(work)?;
        Ok(Holder { arrived, holds })
    }
}

/// Who is still to come for what is held.
pub(crate) trait Readers {
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

/// The pieces of a disk, by file and by where they end.
#[derive(Default)]
pub(crate) struct Held {
    files: HashMap<FileId, BTreeMap<(u64, ReadId), Piece>>,
    pieces: usize,
    /// On their way, or to be mapped: file, offset and end.
    coming: HashMap<ReadId, (FileId, u64, u64)>,
    /// `None`: nothing is held.
    holder: Option<Holder>,
}

impl Held {
    /// With a thread that holds the pieces of a disk.
    ///
    /// # Errors
    /// No thread can be had.
    pub(crate) fn start(disk: &str) -> io::Result<Held> {
        Ok(Held { holder: Some(Holder::start(disk)?), ..Held::default() })
    }

    /// A piece was ordered.
    pub(crate) fn ordered(&mut self, id: ReadId, file: FileId, offset: u64, end: u64) {
        if self.holder.is_some() && self.pieces < PIECES_MAX {
            let piece = Piece { hold: None, unread: offset };
            self.files.entry(file).or_default().insert((end, id), piece);
            self.pieces += 1;
            self.coming.insert(id, (file, offset, end));
        }
    }

    /// It arrived; without a `source` it did not, or not whole.
    pub(crate) fn arrived(&mut self, id: ReadId, source: impl FnOnce(FileId) -> Option<Arc<Source>>) {
        let Some(&(file, offset, end)) = self.coming.get(&id) else { return };
        let sent = self.holder.as_ref().zip(source(file)).is_some_and(|(holder, source)| {
            holder.arrived.try_send(Arrived { id, source, offset, len: end - offset }).is_ok()
        });
        if !sent {
            self.keep(id, None);
        }
    }

    /// What has been mapped, for [`Held::keep`]. Never anything where nothing is held.
    pub(crate) fn mapped(&self) -> Receiver<(ReadId, Option<Hold>)> {
        self.holder.as_ref().map_or_else(never, |holder| holder.holds.clone())
    }

    /// How many pieces are held.
    pub(crate) fn count(&self) -> usize {
        self.pieces.saturating_sub(self.coming.len())
    }

    /// A piece is held from now on, or cannot be.
    pub(crate) fn keep(&mut self, id: ReadId, hold: Option<Hold>) {
        let Some((file, _, end)) = self.coming.remove(&id) else { return };
        let piece = self.files.get_mut(&file).and_then(|pieces| pieces.get_mut(&(end, id)));
        match (piece, hold) {
            (Some(piece), Some(mut hold)) if piece.unread < end => {
                hold.cool_before(piece.unread);
                piece.hold = Some(hold);
            }
            (_, hold) => {
                if let Some(mut hold) = hold {
                    hold.cool_before(end);
                }
                self.forget(file, &[(end, id)]);
            }
        }
    }

    /// These bytes were read.
    pub(crate) fn read(&mut self, file: FileId, offset: u64, upto: u64, readers: &impl Readers) {
        // What a reader keeps behind him goes with his next read, which may be in the next piece.
        self.pass(file, offset.saturating_sub(KEEP_BEHIND), upto, STEP, |piece, upto| {
            piece.let_go_passed(file, upto, readers)
        });
    }

    /// These bytes are to leave memory.
    pub(crate) fn given_back(&mut self, file: FileId, offset: u64, upto: u64) {
        self.pass(file, offset, upto, 0, |piece, upto| piece.let_go(upto, true));
    }

    /// Lets go of what lies in files closed meanwhile (`open`), and of what nobody is to come for: its reader has left, and a stream that
    /// stands still for half a minute ends. There is no bound by age: 8 MiB last a viewer of 400 kb/s nearly three minutes, and what
    /// was let go after 90 s a pager had taken before he came to it.
    pub(crate) fn purge(&mut self, open: impl Fn(FileId) -> bool, readers: &impl Readers) {
        self.files.retain(|&file, pieces| {
            pieces.retain(|&(end, _), piece| {
                if piece.hold.is_none() {
                    return open(file);
                }
                piece.let_go_passed(file, end, readers);
                piece.unread < end && open(file)
            });
            !pieces.is_empty()
        });
        self.pieces = self.files.values().map(BTreeMap::len).sum();
    }

    /// Has the pieces that `[offset, upto)` touches let go of what lies before `upto`, once it is a `step` long.
    fn pass(&mut self, file: FileId, offset: u64, upto: u64, step: u64, let_go: impl Fn(&mut Piece, u64)) {
        let Some(pieces) = self.files.get_mut(&file) else { return };
        let mut done = Vec::new();
        for (&(end, id), piece) in pieces.range_mut((offset.saturating_add(1), ReadId(0))..) {
            let upto = upto.min(end);
            if upto <= piece.unread || (upto - piece.unread < step && upto < end) {
                continue;
            }
            let_go(piece, upto);
            if piece.unread == end && piece.hold.is_some() {
                done.push((end, id));
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Write;
    use std::time::{Duration, Instant};

    const M: u64 = 1 << 20;
    const FILE: FileId = FileId { dev: 1, ino: 2 };
    const OTHER: FileId = FileId { dev: 1, ino: 3 };

    /// In memory, all of it.
    fn file() -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![1; 16 << 20]).unwrap();
        file
    }

    fn held() -> Held {
        Held::start("test").unwrap()
    }

    fn order(held: &mut Held, name: u64, file: FileId, offset: u64, end: u64) {
        held.ordered(ReadId(name), file, offset, end);
    }

    /// Lets a piece arrive, and waits until it is held.
    fn arrive(held: &mut Held, name: u64, data: &File) {
        let data = Arc::new(Source::own(data.try_clone().unwrap().into()));
        held.arrived(ReadId(name), |_| Some(data));
        let until = Instant::now() + Duration::from_secs(30);
        while held.coming.contains_key(&ReadId(name)) {
            assert!(Instant::now() < until, "never held");
            held.mapped().try_iter().for_each(|(id, hold)| held.keep(id, hold));
        }
    }

    fn piece(held: &mut Held, name: u64, file: FileId, data: &File, offset: u64, end: u64) {
        order(held, name, file, offset, end);
        arrive(held, name, data);
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

    fn all(held: &Held) -> Vec<(u64, u64)> {
        let pieces = held.files.values().flat_map(BTreeMap::values);
        let mut all: Vec<(u64, u64)> = pieces.flat_map(|p| &p.hold).map(|h| (h.offset(), h.end())).collect();
        all.sort_unstable();
        assert_eq!(held.pieces, held.files.values().map(BTreeMap::len).sum::<usize>());
        all
    }

    #[test]
    fn a_reader_lets_go_of_what_it_has_passed() {
        let (data, mut held) = (file(), held());
        piece(&mut held, 0, FILE, &data, 0, 4 * M);
        piece(&mut held, 1, FILE, &data, 4 * M, 8 * M);
        piece(&mut held, 2, OTHER, &data, 0, 4 * M);
        held.read(FILE, 0, STEP / 2, &ALONE);
        assert_eq!(all(&held)[0], (0, 4 * M), "a step at a time");
        held.read(FILE, STEP / 2, M, &ALONE);
        assert_eq!(all(&held), [(0, 4 * M), (M, 4 * M), (4 * M, 8 * M)]);
        held.read(FILE, 3 * M, 5 * M, &ALONE);
        assert_eq!(all(&held), [(0, 4 * M), (5 * M, 8 * M)]);
        held.given_back(OTHER, 0, 4096);
        assert_eq!(all(&held), [(4096, 4 * M), (5 * M, 8 * M)], "what is to leave goes to the page");
        held.read(FILE, 7 * M, 9 * M, &ALONE);
        held.given_back(OTHER, 0, 4 * M);
        assert!(all(&held).is_empty() && held.files.is_empty());
    }

    #[test]
    fn the_last_of_a_piece_goes_with_the_next_read() {
        let (data, mut held) = (file(), held());
        piece(&mut held, 0, FILE, &data, 0, 4 * M);
        piece(&mut held, 1, FILE, &data, 4 * M, 8 * M);
        held.read(FILE, 3 * M, 4 * M, &Upto(4 * M - STEP, u64::MAX));
        assert_eq!(all(&held), [(4 * M - STEP, 4 * M), (4 * M, 8 * M)], "he may read a little of it again");
        held.read(FILE, 4 * M, 5 * M, &Upto(5 * M - STEP, u64::MAX));
        assert_eq!(all(&held), [(5 * M - STEP, 8 * M)]);
    }

    #[test]
    fn what_another_is_to_come_for_stays() {
        let (data, mut held) = (file(), held());
        piece(&mut held, 0, FILE, &data, 0, 4 * M);
        held.read(FILE, 2 * M, 4 * M, &Upto(M, M));
        assert_eq!(all(&held), [(M, 4 * M)]);
        held.purge(|_| true, &Upto(2 * M, 0));
        assert_eq!(all(&held), [(2 * M, 4 * M)]);
        held.purge(|_| true, &ALONE);
        assert!(all(&held).is_empty(), "its reader has left");
    }

    #[test]
    fn what_was_read_on_its_way_is_not_held_and_what_failed_is_forgotten() {
        let (data, mut held) = (file(), held());
        order(&mut held, 0, FILE, 0, 4 * M);
        held.read(FILE, 0, 3 * M, &ALONE);
        arrive(&mut held, 0, &data);
        assert_eq!(all(&held), [(3 * M, 4 * M)]);
        order(&mut held, 1, FILE, 4 * M, 8 * M);
        held.arrived(ReadId(1), |_| None);
        order(&mut held, 2, FILE, 4 * M, 8 * M);
        held.read(FILE, 4 * M + STEP, 8 * M, &ALONE);
        arrive(&mut held, 2, &data);
        held.arrived(ReadId(7), |_| None);
        assert_eq!(all(&held), [(3 * M, 4 * M)]);
        assert!(held.coming.is_empty());
    }

    #[test]
    fn a_hole_that_is_read_again_ends_no_hold_around_it() {
        let (data, mut held) = (file(), held());
        piece(&mut held, 0, FILE, &data, 0, 4 * M);
        piece(&mut held, 1, FILE, &data, 2 * M, 3 * M);
        piece(&mut held, 2, FILE, &data, 3 * M, 4 * M);
        assert_eq!(all(&held), [(0, 4 * M), (2 * M, 3 * M), (3 * M, 4 * M)]);
        held.read(FILE, 0, M, &ALONE);
        assert_eq!(all(&held)[0], (M, 4 * M));
        held.given_back(FILE, M, 4 * M);
        assert!(all(&held).is_empty());
    }

    #[test]
    fn nothing_is_held_of_closed_files_or_without_bound() {
        let (data, mut held) = (file(), held());
        piece(&mut held, 0, FILE, &data, 0, M);
        piece(&mut held, 1, OTHER, &data, 0, M);
        held.purge(|file| file == FILE, &WAITING);
        assert_eq!(all(&held).len(), 1);
        held.purge(|_| true, &ALONE);
        assert!(all(&held).is_empty());
        (0..2 * PIECES_MAX as u64).for_each(|i| order(&mut held, 2 + i, FILE, i * 4096, (i + 1) * 4096));
        assert_eq!((held.pieces, held.coming.len()), (PIECES_MAX, PIECES_MAX));
        let mut none = Held::default();
        order(&mut none, 0, FILE, 0, M);
        assert!(none.pieces == 0 && none.coming.is_empty());
    }
}
