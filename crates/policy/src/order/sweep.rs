use seekless_units::Nanos;

use crate::{Order, Place};

/// Pieces served in address order between two jumps to an overdue one. With fewer, a queue in which everything is
/// overdue (a disk offered more than it can do) would fall back to first come, first served, just when order is worth
/// most; with more, an overdue piece could wait several hundred milliseconds longer.
const PIECES_BETWEEN_JUMPS: u32 = 8;

/// One-way elevator: by rising disk address, then from the lowest again (C-SCAN).
///
/// One-way rather than back and forth: every place on the disk then waits about one sweep at most, while the edges
/// of a two-way sweep wait for two; the one long seek a sweep is small beside the pieces it serves. A stream of pieces
/// just ahead of the head could keep the sweep from ever turning, so a piece older than `age_max` is jumped to and the
/// sweep goes on from there - at most once in [`PIECES_BETWEEN_JUMPS`] pieces.
#[derive(Clone, Copy, Debug)]
pub struct Sweep {
    age_max: Nanos,
    head: Option<Place>,
    since_jump: u32,
}

impl Sweep {
    /// A sweep that starts at the lowest address and jumps to pieces that have waited for `age_max`.
    pub fn new(age_max: Nanos) -> Sweep {
        Sweep { age_max, head: None, since_jump: PIECES_BETWEEN_JUMPS }
    }
}

impl Order for Sweep {
    fn pick(&mut self, now: Nanos, queue: &mut dyn ExactSizeIterator<Item = (Place, Nanos)>) -> usize {
        let may_jump = self.since_jump >= PIECES_BETWEEN_JUMPS;
        // Each: index, place. `ahead`: nearest at or past the head; `lowest`: where the next sweep starts.
        let mut ahead: Option<(usize, Place)> = None;
        let mut lowest: Option<(usize, Place)> = None;
        let mut oldest: Option<(usize, Place, Nanos)> = None;
        for (i, (place, since)) in queue.enumerate() {
            if self.head.is_none_or(|head| place >= head) && ahead.is_none_or(|(_, best)| place < best) {
                ahead = Some((i, place));
            }
            if lowest.is_none_or(|(_, best)| place < best) {
                lowest = Some((i, place));
            }
            if oldest.is_none_or(|(_, _, best)| since < best) {
                oldest = Some((i, place, since));
            }
        }
        let next = ahead.or(lowest);
        let overdue = oldest.filter(|&(_, _, since)| may_jump && now.since(since) > self.age_max);
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

    fn serve_all(sweep: &mut Sweep, now: Nanos, mut queue: Vec<(Place, Nanos)>) -> Vec<u64> {
        let mut served = Vec::new();
        while !queue.is_empty() {
            let i = sweep.pick(now, &mut queue.iter().copied());
            served.push(queue.remove(i).0.lba.unwrap().0);
        }
        served
    }

    #[test]
    fn rises_then_turns_to_the_lowest() {
        let mut sweep = Sweep::new(Nanos::from_secs(1));
        let young = |lba| (at(lba), Nanos::ZERO);
        assert_eq!(serve_all(&mut sweep, Nanos::ZERO, vec![young(50)]), [50]);
        let queue = vec![young(10), young(70), young(40), young(60)];
        assert_eq!(serve_all(&mut sweep, Nanos::ZERO, queue), [60, 70, 10, 40]);
    }

    #[test]
    fn an_overdue_piece_is_jumped_to_once_in_a_while() {
        let now = Nanos::from_secs(10);
        let mut sweep = Sweep::new(Nanos::from_secs(5));
        sweep.pick(Nanos::ZERO, &mut vec![(at(500), Nanos::ZERO)].into_iter());
        // Everything is overdue, the youngest lie ahead: one jump to the oldest, then address order from there.
        let queue = (0..10).map(|i| (at(1000 - 100 * i), Nanos(10 - i))).collect();
        let served = serve_all(&mut sweep, now, queue);
        assert_eq!(served, [100, 200, 300, 400, 500, 600, 700, 800, 900, 1000]);
    }

    #[test]
    fn a_stream_ahead_of_the_head_starves_nobody() {
        let mut sweep = Sweep::new(Nanos::from_millis(100));
        let mut queue = vec![(at(1_000), Nanos::ZERO)];
        sweep.pick(Nanos::ZERO, &mut queue.iter().copied());
        queue = vec![(at(1), Nanos::ZERO)];
        for step in 1..1_000u64 {
            let now = Nanos::from_millis(10 * step);
            queue.push((at(1_000 + 8 * step), now));
            let i = sweep.pick(now, &mut queue.iter().copied());
            if queue.remove(i).0 == at(1) {
                assert!(step <= 11 + u64::from(PIECES_BETWEEN_JUMPS), "served at step {step}");
                return;
            }
        }
        panic!("the piece behind the head was never served");
    }
}
