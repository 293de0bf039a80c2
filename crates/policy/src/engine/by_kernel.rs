//! What the kernel reads for clients that no door blocks. The next piece is read directly behind it, without
//! a switch.

use seekless_base::wants::PROGRESS_STEP;
use seekless_base::{Bytes, Nanos};

use super::DiskEngine;
use super::follow::next_page;
use super::lengths::PieceLen;
use super::misses::{End, Missed};
use crate::piece::{Plan, Priority, Wanted};
use crate::{KernelRead, Mode, PAGE, ReadId, StreamId};

impl DiskEngine {
    /// The kernel reads. What it reads counts as fetched for the stream that goes on there.
    pub(super) fn read_by_kernel(&mut self, read: KernelRead) {
        self.opened(read.file);
        self.left_to_client(read.file, read.offset, read.end());
        let stream = self.following.table.of_file_before(read.file, read.end());
        let goes_on = stream.filter(|stream| read.offset <= next_page(stream.fetched));
        let goes_on = goes_on.map(|stream| (stream.id, stream.position < read.offset));
        if let Some((stream, ahead)) = goes_on {
            // No window of the kernel's is longer.
            let most = read.offset.saturating_add(Bytes::gib(1).0);
            self.fetched(Some(stream), read.end().min(most));
            let next = self.line_up(stream);
            if ahead {
                self.behind_a_window(stream, next, read);
            }
        }
        if read.is_short() {
            self.behind_a_miss(read);
        }
    }

    /// A client that is blocked now will soon want what lies behind. It is read at once, unless the client is
    /// not known to go on: nobody waits for it.
    fn behind_a_miss(&mut self, read: KernelRead) {
        let KernelRead { file, offset: from, file_size, lba, io, .. } = read;
        let read_max = self.config.read_max.0;
        let missed = Missed { file, from, offset: read.end(), file_size, lba };
        let Some(wanted) = Wanted::of(missed.offset, PROGRESS_STEP, file_size, read_max) else { return };
        if matches!(self.config.mode, Mode::Off | Mode::Track) {
            return;
        }
        let stream = self.follow_miss(missed, wanted.start);
        if let Some(stream) = stream {
            self.following.table.told_priority(stream, io);
            self.following.by_kernel.entry(stream).or_insert(self.now);
        }
        let due = self.now + self.waits_for_others(io);
        let priority = Priority { due, joins_kernel: true, io, ..Priority::AHEAD };
        let ends = stream.and_then(|id| self.following.table.get(id)).is_some_and(|stream| {
            wanted.end < wanted.file_end && self.expect_end(stream, wanted, from, 0) != End::Beyond
        });
        if ends && !self.queue.is_under_way(file, wanted.start, wanted.end) {
            return;
        }
        let len = self.miss_len(stream, missed, wanted);
        // No client has asked for more than the kernel reads.
        let wanted = Wanted {
            end: wanted.end.min(wanted.start.saturating_add(len).max(wanted.start + PAGE)),
            ..wanted
        };
        let plan = Plan::lay(wanted, self.queue.pieces_of(file), len, read_max);
        let Plan { attach, create } = plan.without_holes(|start, end| self.holes().data(file, start, end));
        let fetched = create.last().map(|&(_, end, _)| end);
        let anchor = lba.map(|lba| (missed.offset, lba));
        if !self.enqueue_ahead(file, create, anchor, priority, stream) {
            return;
        }
        for (piece, _) in attach {
            self.queue.raise(piece, priority);
        }
        if let Some(end) = fetched {
            self.fetched(stream, end);
        }
        if let Some(stream) = stream {
            self.line_up(stream);
        }
    }

    /// The kernel reads ahead of a client, and would go on window by window.
    fn behind_a_window(&mut self, stream: StreamId, next: Option<(Nanos, PieceLen)>, read: KernelRead) {
        let priority = Priority { joins_kernel: true, ..Priority::AHEAD };
        let there = |&(_, start, end): &(ReadId, u64, u64)| (start..end).contains(&read.end());
        if let Some((piece, ..)) = self.queue.pieces_of(read.file).into_iter().find(there) {
            return self.queue.raise(piece, priority);
        }
        if let Some(piece) = next.and_then(|(_, len)| self.next_piece(stream, len)) {
            self.queue_ahead(stream, piece, priority);
        }
    }
}
