//! Where streams inside a file begin and end, if they do so at equal distances.
//!
//! A peer of a torrent takes one piece of a file, a client with several connections one part after another.
//! All pieces of a torrent are equally long, so its peers begin at the places of a *grid*: at one place and
//! every so many bytes behind it. A file of a torrent of many files begins anywhere in a piece, so the first
//! place may be any byte. A file's grid is known as soon as a few streams have begun, long before the first
//! one ends, and a stream's *cell* reaches from its place to the next.
//!
//! That streams begin at a grid does not say that they end there: a viewer may seek to whole minutes. So the
//! ends are counted: at the end of the cell, before it, or not there because the stream read on. While
//! nothing is known no piece goes beyond the cell. If [`MOST`] end there, all of the cell is read at once. If
//! not, the grid says nothing.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use seekless_base::Nanos;
use seekless_base::wants::PIECE;

use super::runs::MOST;
use super::{BELIEVED_AFTER, FileId};
use crate::PAGE;
use crate::by_time::ByTime;
use crate::sizing::controller::RECENT;

/// The places at which streams of a file begin: `from`, and all at whole multiples of `step` from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Grid {
    step: u64,
    from: u64,
}

impl Grid {
    /// The grid of these begins: the widest whose places [`MOST`] of them lie on. n begins on a grid half as
    /// wide are mistaken for this one's in one of 2^(n-1) files. Unlike the ends of streams, begins are not a
    /// habit that changes, so half as many are enough. A step is longer than what the kernel reads ahead by
    /// itself.
    fn of(begins: &[u64]) -> Option<Grid> {
        if begins.len() < BELIEVED_AFTER as usize / 2 {
            return None;
        }
        let (part, whole) = MOST;
        let widest = begins.iter().max()?.max(&1).ilog2();
        (PIECE.ilog2() + 1..=widest).rev().map(|power| 1u64 << power).find_map(|step| {
            let on = |from: u64| begins.iter().filter(|&&begin| begin % step == from).count();
            let from = begins.iter().map(|begin| begin % step).max_by_key(|&from| (on(from), from))?;
            (whole as usize * on(from) >= part as usize * begins.len()).then_some(Grid { step, from })
        })
    }

    /// The first place behind `at`.
    fn next(self, at: u64) -> u64 {
        match at.checked_sub(self.from) {
            None => self.from,
            Some(past) => (past / self.step + 1).saturating_mul(self.step).saturating_add(self.from),
        }
    }
}

/// What became of streams that began at a place of a grid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ends {
    at_end: u32,
    before: u32,
    beyond: u32,
}

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It has read its cell to the end.
    Full,
    /// It has stopped before.
    Before,
    /// It has read on into the next cell.
    Beyond,
}

impl Ends {
    fn of(&mut self, end: End) -> &mut u32 {
        match end {
            End::Full => &mut self.at_end,
            End::Before => &mut self.before,
            End::Beyond => &mut self.beyond,
        }
    }

    fn count(&mut self, end: End) {
        *self.of(end) += 1;
        if self.all() >= 2 * RECENT {
            *self = Ends { at_end: self.at_end / 2, before: self.before / 2, beyond: self.beyond / 2 };
        }
    }

    fn take_back(&mut self, end: End) {
        let count = self.of(end);
        *count = count.saturating_sub(1);
    }

    fn all(&self) -> u32 {
        self.at_end + self.before + self.beyond
    }

    /// Whether [`MOST`] end at the end of their cells; `None` if not known.
    fn at_end(&self) -> Option<bool> {
        let (part, whole) = MOST;
        (self.all() >= BELIEVED_AFTER).then(|| whole * self.at_end >= part * self.all())
    }
}

/// What was seen of a file.
#[derive(Clone, Debug, Default)]
struct Seen {
    /// The last different places inside the file at which streams began, the oldest first.
    begins: Vec<u64>,
    grid: Option<Grid>,
    ends: Ends,
}

/// The grids of a disk's files.
#[derive(Debug, Default)]
pub(crate) struct Grids {
    files: BTreeMap<FileId, Seen>,
    ages: ByTime<FileId>,
    /// Of all files.
    ends: Ends,
}

impl Grids {
    /// A stream begins inside a file. At most `files_max` files are remembered; the one in which no stream
    /// began for longest makes room.
    pub(crate) fn begins(&mut self, now: Nanos, file: FileId, at: u64, files_max: usize) {
        self.ages.set(file, now);
        let seen = self.files.entry(file).or_default();
        if seen.begins.contains(&at) {
            return;
        }
        if seen.begins.len() >= BELIEVED_AFTER as usize {
            seen.begins.remove(0);
        }
        seen.begins.push(at);
        seen.grid = Grid::of(&seen.begins);
        if let Some((_, oldest)) = self.ages.first().filter(|_| self.ages.len() > files_max) {
            self.ages.remove(oldest);
            self.files.remove(&oldest);
        }
    }

    fn grid(&self, file: FileId) -> Option<Grid> {
        self.files.get(&file)?.grid
    }

    /// Whether a stream that began at `begin` began at a place of its file's grid.
    pub(crate) fn is_on(&self, file: FileId, begin: u64) -> bool {
        begin > 0 && self.grid(file).is_some_and(|grid| begin % grid.step == grid.from)
    }

    /// End of the cell with the byte `at`, and whether streams end there, `None` if that is not known.
    /// Nothing if the file has no grid, or its streams are known not to end there.
    pub(crate) fn cell(&self, file: FileId, at: u64) -> Option<(u64, Option<bool>)> {
        let end = self.grid(file)?.next(at);
        let own = self.files.get(&file).and_then(|seen| seen.ends.at_end());
        let ends = own.or_else(|| self.ends.at_end());
        (ends != Some(false)).then_some((end, ends))
    }

    /// Where an access `[offset, end)` leaves its stream: at the end of its cell, beyond it, or inside. The
    /// reads of some doors are known in whole pages.
    pub(crate) fn reaches(&self, file: FileId, offset: u64, end: u64) -> Option<End> {
        let cell = self.grid(file)?.next(offset);
        match end.checked_sub(cell) {
            None => None,
            Some(past) if past < PAGE => Some(End::Full),
            Some(_) => Some(End::Beyond),
        }
    }

    pub(crate) fn count(&mut self, file: FileId, end: End) {
        self.ends.count(end);
        if let Some(seen) = self.files.get_mut(&file) {
            seen.ends.count(end);
        }
    }

    pub(crate) fn take_back(&mut self, file: FileId, end: End) {
        self.ends.take_back(end);
        if let Some(seen) = self.files.get_mut(&file) {
            seen.ends.take_back(end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const M: u64 = 1 << 20;
    const FILE: FileId = FileId { dev: 1, ino: 7 };

    fn begun(places: impl IntoIterator<Item = u64>) -> Grids {
        let mut grids = Grids::default();
        places.into_iter().for_each(|at| grids.begins(Nanos::ZERO, FILE, at, 10));
        grids
    }

    #[test]
    fn begins_of_a_torrent_are_a_grid_wherever_its_file_begins() {
        for from in [0, 1_234_567] {
            let places = [3, 5, 11, 14, 2, 9, 40, 21].map(|piece| from + piece * 2 * M);
            assert_eq!(begun(places[..7].to_vec()).cell(FILE, 0), None, "seven are too few");
            let grids = begun(places);
            assert_eq!(grids.cell(FILE, places[0] + 5_000), Some((places[0] + 2 * M, None)));
            assert_eq!(grids.cell(FILE, places[0] + 2 * M - 1), Some((places[0] + 2 * M, None)));
            assert_eq!(grids.cell(FILE, places[0] + 2 * M), Some((places[0] + 4 * M, None)));
            assert!(grids.is_on(FILE, places[0] + 2 * M) && !grids.is_on(FILE, places[0] + M));
            assert!(!grids.is_on(FILE, 0), "every file begins at its head");
        }
    }

    #[test]
    fn begins_anywhere_and_blocks_of_a_database_are_none() {
        assert_eq!(begun((1..40).map(|i| i * 7_919 * 4_096)).cell(FILE, 0), None);
        assert_eq!(begun((1..40).map(|i| i * 104_729)).cell(FILE, 0), None);
        assert_eq!(begun([3 * M; 40]).cell(FILE, 0), None, "one place is none");
    }

    #[test]
    fn one_begin_in_four_may_be_elsewhere() {
        let place = |i: u64| if i % 4 == 3 { i * 4 * M + 12_345 * (i % 7 + 1) } else { (2 * i + 1) * 2 * M };
        assert_eq!(begun((0..16).map(place)).cell(FILE, 5 * M), Some((6 * M, None)));
    }

    #[test]
    fn the_grid_counts_if_most_streams_end_there() {
        let mut grids = begun((1..20).map(|i| (2 * i + 1) * M));
        assert_eq!(grids.cell(FILE, 7 * M), Some((9 * M, None)));
        (0..12).for_each(|_| grids.count(FILE, End::Full));
        (0..4).for_each(|_| grids.count(FILE, End::Before));
        assert_eq!(grids.cell(FILE, 7 * M), Some((9 * M, Some(true))));
        grids.count(FILE, End::Beyond);
        assert_eq!(grids.cell(FILE, 7 * M), None, "five in seventeen do not");
        grids.take_back(FILE, End::Beyond);
        assert_eq!(grids.cell(FILE, 7 * M), Some((9 * M, Some(true))));
        let other = FileId { dev: 1, ino: 8 };
        (1..20).for_each(|i| grids.begins(Nanos::ZERO, other, i * 4 * M, 10));
        assert_eq!(grids.cell(other, 5 * M), Some((8 * M, Some(true))), "what is known of other files");
        (0..16).for_each(|_| grids.count(other, End::Beyond));
        assert_eq!(grids.cell(other, 5 * M), None, "until it is known of its own");
    }

    #[test]
    fn an_access_ends_at_its_cell_within_a_page() {
        let grids = begun((1..20).map(|i| i * 2 * M + 5_000));
        let reaches = |offset, end| grids.reaches(FILE, 2 * M + offset, 2 * M + end);
        assert_eq!(reaches(5_000, M), None);
        assert_eq!(reaches(2 * M, 2 * M + 5_000), Some(End::Full));
        assert_eq!(reaches(2 * M, 2 * M + 8_192), Some(End::Full), "whole pages");
        assert_eq!(reaches(2 * M, 2 * M + 9_192), Some(End::Beyond));
    }

    #[test]
    fn files_and_begins_are_bounded_and_no_place_is_too_large() {
        let mut grids = Grids::default();
        for ino in 0..30 {
            for i in 0..20 {
                grids.begins(Nanos(ino), FileId { dev: 1, ino }, u64::MAX - i * 2 * M, 10);
            }
        }
        assert_eq!((grids.files.len(), grids.ages.len()), (10, 10));
        assert!(grids.files.values().all(|seen| seen.begins.len() == BELIEVED_AFTER as usize));
        let last = FileId { dev: 1, ino: 29 };
        assert_eq!(grids.cell(last, u64::MAX).map(|(end, _)| end), Some(u64::MAX));
    }
}
