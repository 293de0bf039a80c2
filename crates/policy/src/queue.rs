//! The pieces that wait to be read, in order of arrival.
//!
//! The counts that are needed after every event are kept up to date as pieces come and go, because hundreds
//! of pieces may wait.

use alloc::vec::Vec;
use core::ops::Deref;

use crate::IoPriority;
use crate::piece::Piece;

/// Number of queued pieces of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Pieces that nobody awaits yet.
    pub(crate) ahead: usize,
    /// Bytes of the others.
    pub(crate) blocking_bytes: u64,
    /// Pieces that block a client.
    pub(crate) for_clients: usize,
    /// Pieces that a file set waits for.
    pub(crate) for_file_sets: usize,
    /// Pieces that may join a read of the kernel's.
    pub(crate) joins_kernel: usize,
    /// Pieces for readers whose priority is not the default.
    pub(crate) weighed: usize,
}

impl Counts {
    fn add(&mut self, piece: &Piece) {
        let blocks = piece.is_awaited();
        self.ahead += usize::from(!blocks);
        self.blocking_bytes += if blocks { piece.len() } else { 0 };
        self.for_clients += usize::from(piece.blocks_client());
        self.for_file_sets += usize::from(piece.priority.for_file_set);
        self.joins_kernel += usize::from(piece.priority.joins_kernel);
        self.weighed += usize::from(piece.priority.io != IoPriority::NORMAL);
    }

    fn remove(&mut self, piece: &Piece) {
        let blocks = piece.is_awaited();
        self.ahead -= usize::from(!blocks);
        self.blocking_bytes -= if blocks { piece.len() } else { 0 };
        self.for_clients -= usize::from(piece.blocks_client());
        self.for_file_sets -= usize::from(piece.priority.for_file_set);
        self.joins_kernel -= usize::from(piece.priority.joins_kernel);
        self.weighed -= usize::from(piece.priority.io != IoPriority::NORMAL);
    }
}

/// Queued pieces, with the counts of each kind.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    pieces: Vec<Piece>,
    pub(crate) counts: Counts,
}

impl Deref for Queue {
    type Target = [Piece];

    fn deref(&self) -> &[Piece] {
        &self.pieces
    }
}

impl Queue {
    pub(crate) fn push(&mut self, piece: Piece) {
        self.counts.add(&piece);
        self.pieces.push(piece);
    }

    pub(crate) fn remove(&mut self, at: usize) -> Piece {
        let piece = self.pieces.remove(at);
        self.counts.remove(&piece);
        piece
    }

    /// Changes one piece and its counts.
    pub(crate) fn change(&mut self, at: usize, change: impl FnOnce(&mut Piece)) {
        let piece = &mut self.pieces[at];
        self.counts.remove(piece);
        change(piece);
        self.counts.add(piece);
    }

    /// Removes the pieces that `which` selects. `which` may change the pieces that stay.
    pub(crate) fn extract(
        &mut self,
        mut which: impl FnMut(&mut Piece) -> bool,
    ) -> impl Iterator<Item = Piece> {
        let counts = &mut self.counts;
        self.pieces.extract_if(.., move |piece| {
            counts.remove(piece);
            let out = which(piece);
            if !out {
                counts.add(piece);
            }
            out
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::piece::{Priority, Waiter};
    use crate::{FileId, ReadId, RequestId};
    use alloc::vec;
    use proptest::prelude::*;
    use seekless_base::Nanos;

    fn piece(id: u64, kind: u32) -> Piece {
        let bit = |n: u32| kind >> n & 1 == 1;
        let priority = Priority {
            due: Nanos::ZERO,
            joins_kernel: bit(1),
            file_set: bit(2),
            for_file_set: bit(3),
            io: if bit(4) { IoPriority::IDLE } else { IoPriority::NORMAL },
        };
        let waiter = Waiter { request: RequestId(id), upto: 1 };
        let waiters = if bit(0) { vec![waiter] } else { vec![] };
        let file = FileId { dev: 0, ino: 0 };
        Piece { id: ReadId(id), file, start: 0, end: id + 1, lba: None, priority, ahead_for: None, waiters }
    }

    proptest! {
        /// The running counts equal a fresh count.
        #[test]
        fn counts_are_those_of_the_pieces(ops in proptest::collection::vec((0u8..6, 0u32..32, 0usize..99), 0..99)) {
            let mut queue = Queue::default();
            for (id, (op, kind, at)) in (0u64..).zip(ops) {
                match (op, at.checked_rem(queue.len())) {
                    (0..=2, _) | (_, None) => queue.push(piece(id, kind)),
                    (3, Some(at)) => {
                        let id = queue[at].id;
                        assert_eq!(queue.remove(at).id, id);
                    }
                    (4, Some(at)) => queue.change(at, |p| *p = piece(id, kind)),
                    (_, Some(_)) => {
                        let out = queue.extract(|p| {
                            p.waiters.clear();
                            p.id.0 % 3 == 0
                        });
                        prop_assert!(out.take(2).all(|p| p.id.0 % 3 == 0));
                    }
                }
                let mut anew = Counts::default();
                queue.iter().for_each(|p| anew.add(p));
                prop_assert_eq!(queue.counts, anew);
            }
        }
    }
}
