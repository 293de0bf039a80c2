//! What is kept mapped from its arrival until its reader has passed it: [`Holds`] says what, [`seekless_kernel::hold`] does it.
//!
//! A thread beside each disk's reader maps: touching the pages of 4 MiB takes a third of a millisecond, which neither the disk nor
//! whoever waits for an answer should have to wait for; and a page that leaves memory in this very moment is read again, by the thread.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread;

use crossbeam_channel::{Receiver, Sender, bounded, never};
use seekless_kernel::hold::Hold;
use seekless_kernel::prefetch::Source;
use seekless_policy::hold::{Holds, Readers, Renew};
use seekless_policy::{FileId, ReadId};

use crate::worker::short_name;

/// Pieces that wait to be mapped; one more is left to the kernel. Half of the places are for what arrives alone. (The process as a whole has a
/// bound for its mappings, [`Hold::new`].)
const WAITING_MAX: usize = 64;

/// A piece that has arrived, or is held and to be renewed.
struct Work {
    id: ReadId,
    source: Arc<Source>,
    offset: u64,
    len: u64,
    hold: Option<Hold>,
}

/// The thread that maps. It ends when its disk's [`Held`] is gone.
struct Holder {
    work: Sender<Work>,
    holds: Receiver<(ReadId, Option<Hold>)>,
}

impl Holder {
    fn start(disk: &str) -> io::Result<Holder> {
        let (work, pieces) = bounded::<Work>(WAITING_MAX);
        let (held, holds) = bounded(WAITING_MAX);
        let run = move || {
            for Work { id, source, offset, len, hold } in pieces {
                let hold = match hold {
                    None => Hold::new(source.as_fd(), offset, len).ok(),
                    Some(hold) => {
                        // What cannot be renewed stays mapped.
                        let _ = hold.renew(source.as_fd());
                        Some(hold)
                    }
                };
                if held.send((id, hold)).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new().name(short_name("hold", disk)).spawn(run)?;
        Ok(Holder { work, holds })
    }
}

/// What is held of a disk's files.
#[derive(Default)]
pub(crate) struct Held {
    pieces: Holds,
    mapped: BTreeMap<ReadId, Hold>,
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
        if self.holder.is_some() {
            self.pieces.ordered(id, file, offset, end);
        }
    }

    /// It arrived; without a `source` it did not, or not whole.
    pub(crate) fn arrived(&mut self, id: ReadId, source: impl FnOnce(FileId) -> Option<Arc<Source>>) {
        let Some((file, offset, end)) = self.pieces.wants(id) else { return self.keep(id, None) };
        let sent = self.holder.as_ref().zip(source(file)).is_some_and(|(holder, source)| {
            holder.work.try_send(Work { id, source, offset, len: end - offset, hold: None }).is_ok()
        });
        if !sent {
            self.keep(id, None);
        }
    }

    /// Has the thread renew what it is time for, of files that have a source.
    pub(crate) fn renew(&mut self, source: impl Fn(FileId) -> Option<Arc<Source>>) {
        let Some(holder) = &self.holder else { return };
        while holder.work.len() < WAITING_MAX / 2
            && let Some(Renew { read: id, file, from: offset, end }) = self.pieces.next_renewal()
        {
            let hold = self.mapped.remove(&id);
            let hold = match source(file) {
                None => hold,
                Some(source) => {
                    match holder.work.try_send(Work { id, source, offset, len: end - offset, hold }) {
                        Ok(()) => continue,
                        Err(refused) => refused.into_inner().hold,
                    }
                }
            };
            self.mapped.extend(hold.map(|hold| (id, hold)));
            self.pieces.renewed(id);
        }
    }

    /// What has been mapped or renewed, for [`Held::keep`]. Never anything where nothing is held.
    pub(crate) fn mapped(&self) -> Receiver<(ReadId, Option<Hold>)> {
        self.holder.as_ref().map_or_else(never, |holder| holder.holds.clone())
    }

    /// How many pieces are held.
    pub(crate) fn count(&self) -> usize {
        self.mapped.len()
    }

    /// A piece is held from now on, or anew, or cannot be.
    pub(crate) fn keep(&mut self, id: ReadId, hold: Option<Hold>) {
        if self.pieces.held(id, hold.is_some()) || self.pieces.renewed(id) {
            self.mapped.extend(hold.map(|hold| (id, hold)));
        }
        self.let_go();
    }

    /// These bytes were read.
    pub(crate) fn read(&mut self, file: FileId, offset: u64, upto: u64, readers: &impl Readers) {
        self.pieces.read(file, offset, upto, readers);
        self.let_go();
    }

    /// These bytes are to leave memory.
    pub(crate) fn given_back(&mut self, file: FileId, offset: u64, upto: u64) {
        self.pieces.given_back(file, offset, upto);
        self.let_go();
    }

    /// [`Holds::purge`].
    pub(crate) fn purge(&mut self, open: impl Fn(FileId) -> bool, readers: &impl Readers) {
        self.pieces.purge(open, readers);
        self.let_go();
    }

    fn let_go(&mut self) {
        for part in self.pieces.poll() {
            let Some(hold) = self.mapped.get_mut(&part.read) else { continue };
            match part.for_good {
                true => hold.cool_before(part.upto),
                false => hold.release_before(part.upto),
            }
            if part.last {
                self.mapped.remove(&part.read);
            }
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

    /// Nobody else is to come.
    struct Alone;

    impl Readers for Alone {
        fn passed_by_all(&self, _: FileId, _: u64, end: u64) -> u64 {
            end
        }
        fn is_expected(&self, _: FileId, _: u64, _: u64) -> bool {
            false
        }
    }

    /// In memory, all of it.
    fn file() -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![1; 16 << 20]).unwrap();
        file
    }

    /// Lets a piece arrive; the thread's answer.
    fn arrive(held: &mut Held, id: ReadId, data: &File) -> (ReadId, Option<Hold>) {
        let data = Arc::new(Source::own(data.try_clone().unwrap().into()));
        held.arrived(id, |_| Some(data));
        let until = Instant::now() + Duration::from_secs(30);
        held.mapped().recv_deadline(until).expect("never held")
    }

    fn all(held: &Held) -> Vec<(u64, u64)> {
        let mut all: Vec<(u64, u64)> = held.mapped.values().map(|h| (h.offset(), h.end())).collect();
        all.sort_unstable();
        assert_eq!(held.pieces.count(), all.len());
        all
    }

    #[test]
    fn what_is_said_is_done_to_the_mappings() {
        let (data, mut held) = (file(), Held::start("test").unwrap());
        for name in 0..3 {
            let id = ReadId(name);
            held.ordered(id, FILE, name * 4 * M, (name + 1) * 4 * M);
            let (named, hold) = arrive(&mut held, id, &data);
            assert!(named == id && hold.is_some());
            held.keep(named, hold);
        }
        held.read(FILE, 0, M, &Alone);
        held.given_back(FILE, 4 * M, 5 * M);
        assert_eq!(all(&held), [(M, 4 * M), (5 * M, 8 * M), (8 * M, 12 * M)]);
        held.read(FILE, M, 5 * M, &Alone);
        assert_eq!(all(&held), [(5 * M, 8 * M), (8 * M, 12 * M)]);
        held.purge(|_| true, &Alone);
        assert!(all(&held).is_empty());
    }

    #[test]
    fn what_was_read_on_its_way_what_failed_and_what_lies_in_a_closed_file() {
        let (data, mut held) = (file(), Held::start("test").unwrap());
        let order = |held: &mut Held, name| held.ordered(ReadId(name), FILE, 0, 4 * M);
        order(&mut held, 0);
        held.read(FILE, 0, 3 * M, &Alone);
        let (id, hold) = arrive(&mut held, ReadId(0), &data);
        held.keep(id, hold);
        assert_eq!(all(&held), [(3 * M, 4 * M)]);
        order(&mut held, 1);
        held.arrived(ReadId(1), |_| None);
        held.arrived(ReadId(7), |_| panic!("nobody ordered it"));
        assert_eq!(all(&held), [(3 * M, 4 * M)]);
        order(&mut held, 2);
        let (id, hold) = arrive(&mut held, ReadId(2), &data);
        held.purge(|_| false, &Alone);
        held.keep(id, hold);
        assert!(all(&held).is_empty());
    }

    #[test]
    fn what_is_renewed_comes_back_without_what_was_passed() {
        let (data, mut held) = (file(), Held::start("test").unwrap());
        let come = |held: &mut Held, name: u64| {
            held.ordered(ReadId(name), FILE, name * 4 * M, (name + 1) * 4 * M);
            let (id, hold) = arrive(held, ReadId(name), &data);
            held.keep(id, hold);
        };
        (0..2).for_each(|name| come(&mut held, name));
        held.renew(|_| None);
        assert_eq!(all(&held), [(0, 4 * M), (4 * M, 8 * M)], "without a source it is held as it was");
        come(&mut held, 2);
        held.renew(|_| Some(Arc::new(Source::own(data.try_clone().unwrap().into()))));
        assert!(!held.mapped.contains_key(&ReadId(1)), "it is with the thread");
        held.read(FILE, 4 * M, 5 * M, &Alone);
        let (id, hold) = held.mapped().recv_timeout(Duration::from_secs(30)).expect("never renewed");
        assert_eq!(hold.as_ref().map(Hold::offset), Some(4 * M));
        held.keep(id, hold);
        assert_eq!(all(&held), [(5 * M, 8 * M), (8 * M, 12 * M)]);
    }

    #[test]
    fn without_a_thread_nothing_is_remembered() {
        let mut none = Held::default();
        none.ordered(ReadId(0), FILE, 0, M);
        assert_eq!(none.pieces.wants(ReadId(0)), None);
    }
}
