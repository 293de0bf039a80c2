//! Predicts when the next reader begins at the head of a file, from the arrivals before.
//!
//! A file that readers begin again and again has its own mean time between them. A program that reads the
//! files of a tree behind another program begins them in the same order, each about as long after it. So if
//! the last files that were begun again came in the order in which they were begun first, the *lag* of the
//! last of them is that of all files that were begun once, and a file that was begun twice is not expected to
//! be begun again.

use alloc::collections::BTreeMap;

use seekless_base::Nanos;

use super::BELIEVED_AFTER;
use crate::FileId;
use crate::by_time::ByTime;

/// Arrivals of readers at the heads of files.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    last: ByTime<FileId>,
    /// Files with one arrival.
    once: ByTime<FileId>,
    /// Moving average of the time between two arrivals, for files with at least two.
    between: BTreeMap<FileId, Nanos>,
    follower: Follower,
}

/// A reader that begins files in the order in which another reader began them.
#[derive(Clone, Copy, Debug, Default)]
struct Follower {
    /// The file that was begun again last, and when the other reader began it.
    at: Option<(Nanos, FileId)>,
    /// How long after that it was begun again.
    lag: Nanos,
    /// Number of files in a row that were next in the other reader's order.
    in_order: u32,
}

impl Arrivals {
    /// A reader begins at the head of a file. At most `files_max` files are remembered; the one with the
    /// oldest arrival makes room.
    pub(crate) fn arrived(&mut self, now: Nanos, file: FileId, files_max: usize) {
        match self.last.time(file) {
            None => self.once.set(file, now),
            Some(last) => self.again(now, file, last),
        }
        self.last.set(file, now);
        if let Some((_, oldest)) = self.last.first().filter(|_| self.last.len() > files_max) {
            self.last.remove(oldest);
            self.once.remove(oldest);
            self.between.remove(&oldest);
        }
    }

    /// A file is begun again.
    fn again(&mut self, now: Nanos, file: FileId, last: Nanos) {
        let (at, lag) = (Some((last, file)), now.since(last));
        let in_order = match self.follower.at.and_then(|before| self.once.next(before)) {
            next if next == at => self.follower.in_order.saturating_add(1),
            _ => 0,
        };
        self.follower = Follower { at, lag, in_order };
        self.once.remove(file);
        let between = self.between.entry(file).or_insert(lag);
        between.0 = between.0 / 2 + lag.0 / 2;
    }

    /// How long after a file was begun a reader that follows another begins it too, if there is one. A file
    /// is rarely the next in another reader's order by chance, so a few in a row are believed.
    fn lag(&self) -> Option<Nanos> {
        Some(self.follower.lag).filter(|_| self.follower.in_order >= BELIEVED_AFTER / 4)
    }

    /// Expected time until the next arrival: the mean time between arrivals, or where readers follow one
    /// another the rest of their lag, but at least the time since the last arrival. `None` if none is
    /// expected.
    pub(crate) fn next(&self, now: Nanos, file: FileId) -> Option<Nanos> {
        let since = now.since(self.last.time(file)?);
        match self.lag() {
            None => self.between.get(&file).map(|&between| between.max(since)),
            Some(lag) => {
                let rest = if since < lag { lag.since(since) } else { since };
                self.once.time(file).map(|_| rest)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn file(ino: u64) -> FileId {
        FileId { dev: 1, ino }
    }

    /// A reader begins a file each second; another comes to each this long after it.
    fn followed(lag: impl Fn(u64) -> u64) -> Arrivals {
        let mut arrivals = Arrivals::default();
        let mut all: Vec<(u64, u64)> = (0..40).flat_map(|i| [(i, i), (i + lag(i), i)]).collect();
        all.retain(|&(at, _)| at < 40);
        all.sort_unstable();
        all.iter().for_each(|&(at, ino)| arrivals.arrived(Nanos::from_secs(at), file(ino), 100));
        arrivals
    }

    #[test]
    fn a_file_begun_once_is_begun_again_when_its_follower_comes() {
        let arrivals = followed(|_| 10);
        let now = Nanos::from_secs(40);
        assert_eq!(arrivals.next(now, file(35)), Some(Nanos::from_secs(5)));
        assert_eq!(arrivals.next(now, file(39)), Some(Nanos::from_secs(9)));
        assert_eq!(arrivals.next(now, file(25)), None, "its follower has come");
        assert_eq!(arrivals.next(Nanos::from_secs(60), file(35)), Some(Nanos::from_secs(25)), "overdue");
        assert_eq!(arrivals.next(now, file(41)), None);
    }

    #[test]
    fn a_file_begun_again_and_again_has_no_follower() {
        let mut arrivals = Arrivals::default();
        (0..40).for_each(|at| arrivals.arrived(Nanos::from_secs(10 * at), file(at % 2), 100));
        arrivals.arrived(Nanos::from_secs(400), file(7), 100);
        assert_eq!(arrivals.next(Nanos::from_secs(400), file(1)), Some(Nanos::from_secs(20)));
        assert_eq!(arrivals.next(Nanos::from_secs(400), file(7)), None);
    }

    #[test]
    fn readers_that_come_by_chance_follow_nobody() {
        let arrivals = followed(|i| 1 + i * 7 % 19);
        assert_eq!(arrivals.next(Nanos::from_secs(40), file(39)), None);
        let few = |files| followed(move |i| if i < files { 10 } else { 100 });
        let next = |files| few(files).next(Nanos::from_secs(40), file(39));
        assert_eq!(next(4), None, "three behind the first are too few");
        // Begun at 39 s, and the last file that was begun again at 14 s, 10 s after the first time.
        assert_eq!(next(5), Some(Nanos::from_secs(9)));
    }
}
