//! What is in memory: bytes that reads bring in, bytes evicted and dropped. What leaves when memory is full
//! is decided in [`super::foresight`].

use alloc::vec::Vec;

use super::DiskEngine;
use super::follow::next_page;
use crate::extents::Evicted;
use crate::{Action, FileId, Outcome, PAGE, ReadId, Stream, StreamId};

/// Streams whose memory is probed at each report of the machine's memory; that takes some hundred
/// microseconds.
const PROBES: usize = 64;

/// The whole pages of a range.
fn whole_pages((start, end): (u64, u64)) -> (u64, u64) {
    let end = end.min(i64::MAX as u64) / PAGE * PAGE;
    (next_page(start).min(end), end)
}

impl DiskEngine {
    pub(super) fn found(&mut self, read: ReadId, from: u64, upto: u64) {
        let Some(piece) = self.queue.flight(read).map(|f| &f.piece) else { return };
        let (file, from, upto) = (piece.file, from.max(piece.start), upto.min(piece.end));
        self.extents.found(file, from, upto);
    }

    pub(super) fn progress(&mut self, read: ReadId, upto: u64) {
        let Some((file, from, upto, submitted)) = self.queue.progress(self.now, read, upto) else { return };
        self.extents.arrived(self.now, submitted, file, from, upto);
        self.queue.answer_satisfied(&self.config, self.now, read);
    }

    pub(super) fn done(&mut self, read: ReadId, outcome: Outcome) {
        let Some(flight) = self.queue.flight(read) else { return };
        let (file, start, end) = (flight.piece.file, flight.piece.start, flight.piece.end);
        let (resident, submitted, first) = (flight.resident, flight.submitted, flight.first_bytes);
        let beside_writes = self.queue.was_written_beside(read);
        match outcome {
            Outcome::Ok => {
                let took = self.now - submitted;
                self.stats.service.record(took);
                let delivered = self.extents.totals().disk;
                self.extents.arrived(self.now, submitted, file, resident, end);
                let delivered = self.extents.totals().disk - delivered + (resident - start);
                // Beside reads of the kernel's own the time is not the disk's alone.
                let alone = self.queue.load().1 <= self.spindles() && self.following.by_kernel.is_empty();
                let shows = alone && !beside_writes && delivered == end - start;
                self.service.observe(end - start, took, first, shows);
            }
            Outcome::Failed => {
                self.stats.reads_failed += 1;
                self.extents.read_failed(file, resident, end);
                for id in self.cancel_expected(file, resident, resident + 1) {
                    self.following.table.failed(id, resident);
                    self.line_up(id);
                }
            }
        }
        self.queue.done(self.now, read, outcome);
        self.quiet.ended(self.now, read);
        if let Some(trial) = self.trial.as_mut().filter(|_| !beside_writes) {
            trial.ended(self.now, end - start, self.queue.load().0);
            let pieces = trial.pieces();
            self.bears(pieces);
        }
        self.files.released(self.now, file);
        if self.config.follows() {
            // Its stream may have ended during the read. Bytes of it that are found missing later do not
            // count as evicted.
            let counting = self.counted_on(file);
            self.extents.abandon_uncounted(file, start, end, &counting);
        }
    }

    /// The bytes `[start, end)` were found not to be in memory. They are fetched again for the streams that
    /// expect them.
    pub(super) fn found_missing(&mut self, file: FileId, start: u64, end: u64) {
        // Residency is per page.
        let (start, end) = (start / PAGE * PAGE, next_page(end));
        let is_hole = self.holes().data_from(file, start) > start;
        if start >= end || is_hole || self.queue.is_under_way(file, start, end) {
            return;
        }
        self.extents.missing(self.now, file, start, end);
        for id in self.cancel_expected(file, start, end) {
            self.line_up(id);
        }
    }

    /// Reports evictions found since the last call to the memory controller.
    pub(super) fn note_evictions(&mut self) {
        let unread = self.budgeted();
        for Evicted { bytes, fetched } in self.extents.take_evicted() {
            self.stats.bytes_evicted_unused += if fetched.is_some() { bytes } else { 0 };
            if !self.rests {
                self.memory.evicted(self.now, bytes, fetched, unread);
            }
        }
    }

    /// Asks the driver whether the bytes fetched for some streams are still in memory, the streams probed
    /// longest ago first.
    pub(super) fn probe(&mut self) {
        for _ in 0..PROBES {
            let Some((id, file, start, end)) = self.next_unread() else {
                // All have been probed: start over next time.
                self.probed = None;
                return;
            };
            self.probed = Some(id);
            if start < end && self.files.is_open(file) {
                self.hint(Action::Probe { file, offset: start, len: end - start });
            }
        }
    }

    /// The fetched and unread bytes of the next stream after the one probed last that has any.
    fn next_unread(&self) -> Option<(StreamId, FileId, u64, u64)> {
        let (id, stream) = self.following.table.next_unread(self.probed)?;
        let pieces = self.queue.pieces_of(stream.file);
        // Bytes still in flight are no evidence.
        let coming = pieces.iter().filter(|&&(_, from, to)| from < stream.fetched && stream.position < to);
        let end = coming.map(|&(_, from, _)| from).min().unwrap_or(stream.fetched).min(stream.fetched);
        Some((id, stream.file, stream.position, end.max(stream.position)))
    }

    /// Whether a stream is expected to read these bytes. `true` if streams are not followed, because then it
    /// is not known.
    pub(super) fn is_expected(&self, file: FileId, start: u64, end: u64) -> bool {
        !self.config.follows()
            || self.following.table.of_file(file).any(|(_, stream)| stream.passed < end)
            || self.awaited.of_file(file).any(|(from, upto)| from < end && start < upto)
            || self.queue.is_under_way(file, start, end)
    }

    /// The ranges that streams and file sets expect in memory: fetched for them and not read. By rising
    /// offset.
    pub(super) fn counted_on(&self, file: FileId) -> Vec<(u64, u64)> {
        let streams = self.following.table.of_file(file);
        let mut ranges: Vec<(u64, u64)> = streams.map(|(_, s)| (s.position, s.fetched)).collect();
        ranges.extend(self.awaited.of_file(file));
        ranges.sort_unstable();
        ranges
    }

    /// A stream has ended: the bytes fetched for it alone are abandoned.
    pub(super) fn stream_ended(&mut self, over: &Stream) {
        let counting = self.counted_on(over.file);
        self.extents.stream_ended(over.file, over.position, &counting);
    }

    /// Drops bytes of an open file, for the `attempt`th time.
    pub(super) fn drop_range(&mut self, file: FileId, start: u64, end: u64, attempt: usize) {
        let (start, end) = whole_pages((start, end));
        if start >= end || !self.files.is_open(file) {
            return;
        }
        if self.hint(Action::Drop { file, offset: start, len: end - start }) {
            if attempt == 1 {
                self.stats.bytes_dropped = self.stats.bytes_dropped.saturating_add(end - start);
            }
            self.extents.dropped(file, start, end);
            self.drops.dropped(self.now, file, start, end, attempt);
        }
    }

    /// Drops again what may have stayed in memory after the last attempt.
    pub(super) fn drop_again(&mut self) {
        while let Some(ripe) = self.drops.ripe(self.now) {
            if !ripe.again() || !self.files.is_open(ripe.file) {
                self.extents.left(ripe.file, ripe.start, ripe.end);
                continue;
            }
            for (from, to) in self.extents.leaving(ripe.file, ripe.start, ripe.end) {
                if !self.is_expected(ripe.file, from, to) || !self.is_kept(ripe.file, from) {
                    self.drop_range(ripe.file, from, to, ripe.attempts + 1);
                }
            }
        }
    }
}
