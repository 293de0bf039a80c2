//! A piece is one read, queued or in flight, and knows which requests wait for which part of it.
//!
//! Pieces of one file never overlap, so no byte is read twice because two callers want it at the same time. A
//! request is laid over the existing pieces: it waits for those it touches, and the gaps between them become
//! new pieces.

use alloc::vec::Vec;

use seekless_base::wants::{TO_END, Want};
use seekless_base::{Lba, Nanos, SECTOR_BYTES};

use crate::service::FirstBytes;
use crate::{FileId, IoPriority, PAGE, ReadId, RequestId, StreamId};

/// A request waits until the bytes of the piece before `upto` (a file offset) are in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waiter {
    pub(crate) request: RequestId,
    pub(crate) upto: u64,
}

/// What decides when a piece is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Priority {
    /// When the piece is due ([`crate::Queued::due`]).
    pub(crate) due: Nanos,
    /// It lies behind a read of the kernel's, so it may join that instead of waiting in line
    /// ([`crate::Event::ReadByKernel`]).
    pub(crate) joins_kernel: bool,
    /// Only file sets ask for it ([`crate::Demand::file_set`]).
    pub(crate) file_set: bool,
    /// A file set waits for it, perhaps among others.
    pub(crate) for_file_set: bool,
    /// Only readers of these priorities ask for it: the least idle, the heaviest.
    pub(crate) io: IoPriority,
}

impl Priority {
    /// Read-ahead: not due until a request waits for it.
    pub(crate) const AHEAD: Priority = Priority {
        due: Nanos::MAX,
        joins_kernel: false,
        file_set: false,
        for_file_set: false,
        io: IoPriority::NORMAL,
    };

    /// The priority of a piece that two requests want.
    pub(crate) fn or(self, other: Priority) -> Priority {
        let for_file_set = self.for_file_set || other.for_file_set;
        let file_set = self.file_set && other.file_set;
        let (idle, weight) = (self.io.idle && other.io.idle, self.io.weight.max(other.io.weight));
        Priority {
            due: self.due.min(other.due),
            joins_kernel: self.joins_kernel || other.joins_kernel,
            file_set,
            for_file_set,
            io: IoPriority { idle, weight },
        }
    }
}

/// One read: the bytes `[start, end)` of a file, both on page boundaries.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    pub(crate) id: ReadId,
    pub(crate) file: FileId,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) lba: Option<Lba>,
    pub(crate) priority: Priority,
    /// The stream it was fetched ahead for. A piece without a stream is withdrawn when no request waits for
    /// it any more.
    pub(crate) ahead_for: Option<StreamId>,
    pub(crate) waiters: Vec<Waiter>,
}

impl Piece {
    /// Length in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.end - self.start
    }

    /// Whether a request waits for it, or a client for which the kernel reads will want it soon.
    pub(crate) fn is_awaited(&self) -> bool {
        !self.waiters.is_empty() || self.priority.due < Nanos::MAX
    }

    /// Whether others than file sets await it.
    pub(crate) fn blocks_client(&self) -> bool {
        self.is_awaited() && !self.priority.file_set
    }
}

/// A piece being read.
#[derive(Clone, Debug)]
pub(crate) struct Flight {
    pub(crate) piece: Piece,
    pub(crate) submitted: Nanos,
    /// It joined a read of the kernel's and does not count as a read in line.
    pub(crate) joined: bool,
    /// Bytes before this file offset are in memory.
    pub(crate) resident: u64,
    /// When its first bytes came; `None` before the first report of progress.
    pub(crate) first_bytes: Option<FirstBytes>,
    /// Bytes that had been written by the first report of writes after its submission, which tells of writes
    /// before it too.
    pub(crate) written_before: Option<u64>,
}

/// Maximum number of ranges that the driver reports as found in memory for one read
/// ([`crate::Event::Found`]). Further ranges count as delivered by the disk.
pub const FOUND_MAX: usize = 64;

impl Flight {
    /// A read that starts now.
    pub(crate) fn new(piece: Piece, now: Nanos, joined: bool) -> Flight {
        let resident = piece.start;
        Flight { submitted: now, joined, resident, piece, first_bytes: None, written_before: None }
    }

    /// Bytes not yet in memory.
    pub(crate) fn missing(&self) -> u64 {
        self.piece.end - self.resident
    }
}

/// The part of a request that is served: `[start, end)` in whole pages, not empty, at most `read_max` long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// End of the file, rounded up to whole pages.
    pub(crate) file_end: u64,
}

impl Wanted {
    /// The part of `len` bytes from `offset` on; `len` 0 means to the end of the file. `None` if the range
    /// lies beyond the end.
    pub(crate) fn of(offset: u64, len: u64, file_size: u64, read_max: u64) -> Option<Wanted> {
        let want = Want::of(offset, if len == 0 { TO_END } else { len }, file_size)?;
        let (start, end) = want.in_pages();
        let end = end.min(start.saturating_add(read_max));
        Some(Wanted { start, end, file_end: want.file_end_in_pages() })
    }
}

/// A request laid over the existing pieces.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// Existing pieces to wait for: id, and the file offset up to which.
    pub(crate) attach: Vec<(ReadId, u64)>,
    /// New pieces: start, end, and the file offset up to which the request waits.
    pub(crate) create: Vec<(u64, u64, u64)>,
}

impl Plan {
    /// Lays `wanted` over the pieces of its file. `existing` has id, start and end of every piece that is
    /// queued or in flight, in any order. `len` is the length of a new piece. The piece is longer if more was
    /// asked for, and shorter if another piece follows.
    pub(crate) fn lay(
        wanted: Wanted,
        mut existing: Vec<(ReadId, u64, u64)>,
        len: u64,
        read_max: u64,
    ) -> Plan {
        existing.sort_unstable_by_key(|&(_, start, _)| start);
        let mut plan = Plan::default();
        let mut cursor = wanted.start;
        let mut pieces = existing.into_iter().filter(|&(_, _, end)| end > wanted.start).peekable();
        while cursor < wanted.end {
            match pieces.peek().copied() {
                Some((id, start, end)) if start <= cursor => {
                    plan.attach.push((id, wanted.end.min(end)));
                    cursor = end;
                    pieces.next();
                }
                next => {
                    let limit = next.map_or(wanted.file_end, |(_, start, _)| start.min(wanted.file_end));
                    let upto = wanted.end.min(limit);
                    let asked = upto - cursor;
                    let len = len.clamp(asked, read_max.max(asked));
                    let end = cursor.saturating_add(len.next_multiple_of(PAGE)).min(limit);
                    plan.create.push((cursor, end, upto));
                    cursor = end;
                }
            }
        }
        plan
    }

    /// The same plan without holes. `data` returns the parts of `[start, end)` that are not holes. A piece
    /// behind a hole is created only if the request waits for it.
    pub(crate) fn without_holes(self, data: impl Fn(u64, u64) -> Vec<(u64, u64)>) -> Plan {
        let Plan { attach, create } = self;
        let parts = |(start, end, upto): (u64, u64, u64)| {
            let data = data(start, end).into_iter().filter(move |&(from, _)| from < upto);
            data.map(move |(from, to)| (from, to, upto.min(to)))
        };
        Plan { attach, create: create.into_iter().flat_map(parts).collect() }
    }
}

/// Disk address of a file offset, computed from the known address of another offset, as if the file had one
/// extent. Beyond the end of an extent it is wrong, which costs only a seek.
pub(crate) fn address((known_offset, known): (u64, Lba), offset: u64) -> Lba {
    match offset.checked_sub(known_offset) {
        Some(ahead) => known.plus_bytes(ahead),
        None => Lba(known.0.saturating_sub((known_offset - offset) / SECTOR_BYTES)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const K: u64 = 1024;

    #[test]
    fn wanted_is_cut_to_file_and_bound() {
        let of = |offset, len, size| Wanted::of(offset, len, size, 64 * K).map(|w| (w.start, w.end));
        assert_eq!(of(0, 0, 10_000), Some((0, 12_288)), "zero means to the end of the file");
        assert_eq!(of(5_000, 1, 10_000), Some((4_096, 8_192)));
        assert_eq!(of(0, u64::MAX, 1 << 40), Some((0, 64 * K)));
        assert_eq!(of(10_000, 1, 10_000), None);
        assert_eq!(of(0, 0, 0), None);
        assert!(of(u64::MAX - 1, 0, u64::MAX).is_none(), "beyond what a file can hold");
        assert!(of(i64::MAX as u64 - 1, u64::MAX, u64::MAX).is_some());
    }

    #[test]
    fn gaps_become_pieces_and_extension_stops_at_the_next() {
        let wanted = Wanted::of(0, 300 * K, 10_000 * K, 8_192 * K).unwrap();
        let existing = alloc::vec![(ReadId(8), 200 * K, 250 * K), (ReadId(7), 52 * K, 100 * K)];
        let plan = Plan::lay(wanted, existing, 1024 * K, 8_192 * K);
        assert_eq!(plan.attach, [(ReadId(7), 100 * K), (ReadId(8), 250 * K)]);
        assert_eq!(plan.create[0], (0, 52 * K, 52 * K), "cut where the first piece begins");
        assert_eq!(plan.create[1].0, 100 * K);
        assert_eq!(plan.create[1].1, 200 * K, "extended no further than the piece that follows");
        assert_eq!(plan.create.last().unwrap(), &(250 * K, 250 * K + 1024 * K, 300 * K));
    }

    #[test]
    fn a_request_inside_a_piece_only_attaches() {
        let wanted = Wanted::of(64 * K, 64 * K, 10_000 * K, 8_192 * K).unwrap();
        let plan = Plan::lay(wanted, alloc::vec![(ReadId(3), 0, 512 * K)], 0, 8_192 * K);
        assert_eq!(plan.attach, [(ReadId(3), 128 * K)]);
        assert!(plan.create.is_empty());
    }

    #[test]
    fn addresses_follow_offsets() {
        let known = (100 * K, Lba(1_000));
        assert_eq!(address(known, 101 * K), Lba(1_002));
        assert_eq!(address(known, 99 * K), Lba(998));
        assert_eq!(address(known, 0), Lba(800));
    }
}
