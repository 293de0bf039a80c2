use seekless_base::Nanos;

use crate::{Place, Queued, ReadId};

/// One-way elevator in batches: by rising disk address from where the head is, then from the lowest again
/// (C-SCAN).
///
/// Pieces that are due, because a request waits for them, are served before the others, and these before
/// pieces that only readers of the idle class want, unless such a piece is due. Each of the three kinds is
/// served in batches: a sweep serves the pieces that were queued when it began, and later pieces wait for
/// the next sweep (FSCAN: Coffman, Klimko and Ryan 1972). So a client waits for two sweeps at most, whatever
/// else arrives. Without batches a stream whose next piece always lies just ahead of the head could keep all
/// others waiting.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sweep {
    head: Option<Place>,
    /// The youngest piece of the current sweep: among the pieces that are due, the others, and the idle ones.
    youngest: [Option<ReadId>; 3],
}

impl Sweep {
    /// Index of the piece to read next.
    pub(crate) fn pick(&mut self, now: Nanos, queue: impl Iterator<Item = Queued>) -> usize {
        // For each kind, the best piece so far: whether it belongs to a later batch, whether it lies behind
        // the head, its place, its index.
        let mut next: [Option<(bool, bool, Place, usize)>; 3] = [None; 3];
        let mut youngest = [None; 3];
        for (index, Queued { id, place, due, idle }) in queue.enumerate() {
            let kind = if now < due { 1 + usize::from(idle) } else { 0 };
            let later = self.youngest[kind].is_none_or(|youngest| id > youngest);
            let behind = self.head.is_some_and(|head| place < head);
            let found = (later, behind, place, index);
            if next[kind].is_none_or(|best| found < best) {
                next[kind] = Some(found);
            }
            youngest[kind] = youngest[kind].max(Some(id));
        }
        let first = (0..).zip(next).find_map(|(kind, next)| Some((kind, next?)));
        let Some((kind, (later, _, place, index))) = first else { return 0 };
        if later {
            self.youngest[kind] = youngest[kind];
        }
        self.head = Some(place);
        index
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FileId;
    use alloc::vec;
    use alloc::vec::Vec;
    use seekless_base::Lba;

    fn at(lba: u64) -> Place {
        Place { lba: Some(Lba(lba)), file: FileId { dev: 1, ino: 1 }, offset: 0 }
    }

    fn piece(id: u64, lba: u64) -> Queued {
        Queued { id: ReadId(id), place: at(lba), due: Nanos::ZERO, idle: false }
    }

    fn serve_all(sweep: &mut Sweep, mut queue: Vec<Queued>) -> Vec<u64> {
        let mut served = Vec::new();
        while !queue.is_empty() {
            let i = sweep.pick(Nanos::ZERO, queue.iter().copied());
            served.push(queue.remove(i).place.lba.unwrap().0);
        }
        served
    }

    #[test]
    fn rises_from_the_head_then_turns_to_the_lowest() {
        let mut sweep = Sweep::default();
        assert_eq!(serve_all(&mut sweep, vec![piece(0, 50)]), [50]);
        let queue = vec![piece(1, 10), piece(2, 70), piece(3, 40), piece(4, 60)];
        assert_eq!(serve_all(&mut sweep, queue), [60, 70, 10, 40]);
    }

    #[test]
    fn what_comes_during_a_sweep_waits_for_the_next() {
        let mut sweep = Sweep::default();
        let mut queue = vec![piece(0, 10), piece(1, 90)];
        assert_eq!(sweep.pick(Nanos::ZERO, queue.iter().copied()), 0);
        queue.remove(0);
        queue.extend([piece(2, 20), piece(3, 5)]);
        assert_eq!(serve_all(&mut sweep, queue), [90, 5, 20]);
    }

    #[test]
    fn a_stream_ahead_of_the_head_keeps_no_other_waiting() {
        let mut sweep = Sweep::default();
        sweep.pick(Nanos::ZERO, [piece(0, 1_000)].into_iter());
        let mut queue = vec![piece(1, 1)];
        for step in 2..10 {
            queue.push(piece(step, 1_000 + 8 * step));
            let i = sweep.pick(Nanos::ZERO, queue.iter().copied());
            if queue.remove(i).place == at(1) {
                return assert!(step <= 4, "served at step {step}");
            }
        }
        panic!("the piece behind the head was never served");
    }

    #[test]
    fn pieces_that_are_due_come_first() {
        let mut sweep = Sweep::default();
        let ahead = |id, lba| Queued { due: Nanos::MAX, ..piece(id, lba) };
        let queue = vec![ahead(0, 10), piece(1, 90), ahead(2, 30), piece(3, 40)];
        assert_eq!(serve_all(&mut sweep, queue), [40, 90, 10, 30]);
    }

    #[test]
    fn idle_pieces_come_last_until_they_are_due() {
        let mut sweep = Sweep::default();
        let ahead = |id, lba| Queued { due: Nanos::MAX, ..piece(id, lba) };
        let idle = |id, lba, due| Queued { due: Nanos(due), idle: true, ..piece(id, lba) };
        let queue = vec![idle(0, 10, 5), idle(1, 20, 0), ahead(2, 30), piece(3, 40)];
        assert_eq!(serve_all(&mut sweep, queue), [20, 40, 30, 10]);
    }
}
