use seekless_units::Nanos;

use crate::{Order, Place, Queued};

/// Pieces served in address order between two jumps to an overdue one. With fewer, a queue in which everything is
/// overdue (a disk offered more than it can do) would fall back to first come, first served, just when order is worth
/// most; with more, an overdue piece could wait several hundred milliseconds longer.
const PIECES_BETWEEN_JUMPS: u32 = 8;

/// One-way elevator: by rising disk address, then from the lowest again (C-SCAN).
///
/// One-way rather than back and forth: every place on the disk then waits about one sweep at most, while the edges
/// of a two-way sweep wait for two; the one long seek a sweep is small beside the pieces it serves. A stream of pieces
/// just ahead of the head could keep the sweep from ever turning, so a piece that is due is jumped to and the sweep goes
/// on from there - at most once in [`PIECES_BETWEEN_JUMPS`] pieces.
#[derive(Clone, Copy, Debug)]
pub struct Sweep {
    head: Option<Place>,
    since_jump: u32,
}

impl Sweep {
    /// A sweep that starts at the lowest address.
    pub fn new() -> Sweep {
        Sweep { head: None, since_jump: PIECES_BETWEEN_JUMPS }
    }
}

impl Default for Sweep {
    fn default() -> Sweep {
        Sweep::new()
    }
}

impl Order for Sweep {
    fn pick(&mut self, now: Nanos, queue: &mut dyn ExactSizeIterator<Item = Queued>) -> usize {
        let may_jump = self.since_jump >= PIECES_BETWEEN_JUMPS;
        // Each: index, place. `ahead`: nearest at or past the head; `lowest`: where the next sweep starts.
        let mut ahead: Option<(usize, Place)> = None;
        let mut lowest: Option<(usize, Place)> = None;
        let mut earliest: Option<(usize, Place, Nanos)> = None;
        for (i, Queued { place, due }) in queue.enumerate() {
            if self.head.is_none_or(|head| place >= head) && ahead.is_none_or(|(_, best)| place < best) {
                ahead = Some((i, place));
            }
            if lowest.is_none_or(|(_, best)| place < best) {
                lowest = Some((i, place));
            }
            if earliest.is_none_or(|(_, _, best)| due < best) {
                earliest = Some((i, place, due));
            }
        }
        let next = ahead.or(lowest);
        let overdue = earliest.filter(|&(_, _, due)| may_jump && now > due);
        let (index, place) = match (overdue, next) {
            (Some((index, place, _)), Some((swept, _))) => {
                // An overdue piece whose turn it is anyway costs no jump.
                self.since_jump = if index == swept { self.since_jump } else { 0 };
                (index, place)
            }
            (_, Some(swept)) => {
                self.since_jump = self.since_jump.saturating_add(1);
                swept
            }
            (_, None) => return 0,
        };
        self.head = Some(place);
        index
    }

    fn name(&self) -> &'static str {
        "sweep"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FileId;
    use alloc::vec;
    use alloc::vec::Vec;
    use seekless_units::Lba;

    fn at(lba: u64) -> Place {
        Place { lba: Some(Lba(lba)), file: FileId { dev: 1, ino: 1 }, offset: 0 }
    }

    fn piece(lba: u64, due: Nanos) -> Queued {
        Queued { place: at(lba), due }
    }

    fn serve_all(sweep: &mut Sweep, now: Nanos, mut queue: Vec<Queued>) -> Vec<u64> {
        let mut served = Vec::new();
        while !queue.is_empty() {
            let i = sweep.pick(now, &mut queue.iter().copied());
            served.push(queue.remove(i).place.lba.unwrap().0);
        }
        served
    }

    #[test]
    fn rises_then_turns_to_the_lowest() {
        let mut sweep = Sweep::new();
        let young = |lba| piece(lba, Nanos::from_secs(1));
        assert_eq!(serve_all(&mut sweep, Nanos::ZERO, vec![young(50)]), [50]);
        let queue = vec![young(10), young(70), young(40), young(60)];
        assert_eq!(serve_all(&mut sweep, Nanos::ZERO, queue), [60, 70, 10, 40]);
    }

    #[test]
    fn an_overdue_piece_is_jumped_to_once_in_a_while() {
        let now = Nanos::from_secs(10);
        let mut sweep = Sweep::new();
        sweep.pick(Nanos::ZERO, &mut vec![piece(500, Nanos::MAX)].into_iter());
        // Everything is overdue, the youngest lie ahead: one jump to the oldest, then address order from there.
        let queue = (0..10).map(|i| piece(1000 - 100 * i, Nanos(10 - i))).collect();
        let served = serve_all(&mut sweep, now, queue);
        assert_eq!(served, [100, 200, 300, 400, 500, 600, 700, 800, 900, 1000]);
    }

    #[test]
    fn a_stream_ahead_of_the_head_starves_nobody() {
        let mut sweep = Sweep::new();
        let age = Nanos::from_millis(100);
        let mut queue = vec![piece(1_000, age)];
        sweep.pick(Nanos::ZERO, &mut queue.iter().copied());
        queue = vec![piece(1, age)];
        for step in 1..1_000u64 {
            let now = Nanos::from_millis(10 * step);
            queue.push(piece(1_000 + 8 * step, now + age));
            let i = sweep.pick(now, &mut queue.iter().copied());
            if queue.remove(i).place == at(1) {
                assert!(step <= 11 + u64::from(PIECES_BETWEEN_JUMPS), "served at step {step}");
                return;
            }
        }
        panic!("the piece behind the head was never served");
    }
}
