use seekless_units::Nanos;

use crate::{Order, Queued};

/// First come, first served, as in \[L\].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fifo;

impl Order for Fifo {
    fn pick(&mut self, _now: Nanos, _queue: &mut dyn ExactSizeIterator<Item = Queued>) -> usize {
        0
    }

    fn peek(&self, now: Nanos, queue: &mut dyn ExactSizeIterator<Item = Queued>) -> usize {
        Fifo::pick(&mut Fifo, now, queue)
    }
}
