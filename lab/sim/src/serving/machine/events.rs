//! What is planned, in order of time, and of planning where times are equal.
//!
//! Most events follow the one that plans them before anything else happens: a thread copies some pages, a
//! waiter wakes up. Such an event waits in front of the heap, which has something for each of thousands of
//! clients and does not fit the processor's first cache.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use seekless_base::Nanos;

/// An event that is planned. The one to come next is the greatest, as a heap has it.
struct Planned<E> {
    at: Nanos,
    /// Counted from the first that was planned; no two are alike.
    number: u64,
    what: E,
}

impl<E> Planned<E> {
    /// Time, then order of planning, as one number.
    fn key(&self) -> u128 {
        u128::from(self.at.0) << 64 | u128::from(self.number)
    }
}

impl<E> PartialEq for Planned<E> {
    fn eq(&self, other: &Planned<E>) -> bool {
        self.key() == other.key()
    }
}

impl<E> Eq for Planned<E> {}

impl<E> PartialOrd for Planned<E> {
    fn partial_cmp(&self, other: &Planned<E>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Planned<E> {
    fn cmp(&self, other: &Planned<E>) -> Ordering {
        other.key().cmp(&self.key())
    }
}

/// Events in the order they come.
pub(super) struct EventQueue<E> {
    /// Comes before all of the heap.
    front: Option<Planned<E>>,
    heap: BinaryHeap<Planned<E>>,
    planned: u64,
}

impl<E> EventQueue<E> {
    pub(super) fn new() -> EventQueue<E> {
        EventQueue { front: None, heap: BinaryHeap::new(), planned: 0 }
    }

    pub(super) fn plan(&mut self, at: Nanos, what: E) {
        self.planned += 1;
        let planned = Planned { at, number: self.planned, what };
        if self.next_at().is_some_and(|next| next <= at) {
            self.heap.push(planned);
        } else if let Some(second) = self.front.replace(planned) {
            self.heap.push(second);
        }
    }

    /// When the next event is due.
    pub(super) fn next_at(&self) -> Option<Nanos> {
        self.front.as_ref().or_else(|| self.heap.peek()).map(|next| next.at)
    }

    /// The next event, and when it is due.
    pub(super) fn pop(&mut self) -> Option<(Nanos, E)> {
        let Planned { at, what, .. } = self.front.take().or_else(|| self.heap.pop())?;
        Some((at, what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// A list sorted by time, events of one time in the order they were planned, is the same.
        #[test]
        fn behaves_like_a_sorted_list(ops in prop::collection::vec((any::<bool>(), 0u64..12), 1..300)) {
            let mut events = EventQueue::new();
            let mut model: Vec<(Nanos, usize)> = Vec::new();
            for (number, (pop, at)) in ops.into_iter().enumerate() {
                if pop {
                    model.sort();
                    let first = (!model.is_empty()).then(|| model.remove(0));
                    prop_assert_eq!(events.pop(), first);
                } else {
                    events.plan(Nanos(at), number);
                    model.push((Nanos(at), number));
                }
                prop_assert_eq!(events.next_at(), model.iter().map(|(at, _)| *at).min());
            }
        }
    }
}
