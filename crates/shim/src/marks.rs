//! What the daemon said is resident, for files whose residency the kernel hides from this process.
//!
//! A worker that neither owns nor may write a file is told nothing by `cachestat` and a lie by `mincore` (see
//! `seekless_kernel::residency`). Asking the daemon on every call would cost a round trip a cached read; probing the file
//! with a one-byte `RWF_NOWAIT` read would start small reads of its own on a disk that seeks. Both together are cheap:
//! the daemon is asked once about each piece of a file, the piece is marked, and a marked piece is probed. A probe that
//! fails (the piece was evicted since) does that small read once, unmarks the piece and asks again.
//!
//! A mark is a hint, so the table is small and lossy: 64 Ki fingerprints for pieces of 128 KiB cover 8 GiB a process;
//! where two pieces meet, the later wins. It is never touched by processes that may look for themselves.

use std::sync::atomic::{AtomicU32, Ordering};

/// A piece of a file: as large as what the kernel reads ahead by itself, small enough to be evicted as one.
pub(crate) const PIECE_BYTES: u64 = 128 << 10;

const SLOTS: usize = 1 << 16;

/// Most pieces one answer marks (128 MiB): no answer is worth walking the table for, and none may wipe it.
const PIECES_MAX: u64 = 1 << 10;

pub(crate) struct Marks {
    slots: [AtomicU32; SLOTS],
}

pub(crate) static MARKS: Marks = Marks { slots: [const { AtomicU32::new(0) }; SLOTS] };

/// A file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileId {
    /// `st_dev`.
    pub(crate) device: u64,
    /// `st_ino`.
    pub(crate) inode: u64,
}

impl Marks {
    fn place(&self, file: FileId, piece: u64) -> Option<(&AtomicU32, u32)> {
        let mut h = file.inode ^ file.device.rotate_left(32) ^ piece.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // The finish of splitmix64: every bit in depends on every bit out.
        h = (h ^ h >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        h = (h ^ h >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        h ^= h >> 31;
        Some((self.slots.get(h as usize % SLOTS)?, (h >> 32) as u32 | 1))
    }

    /// Whether every piece that `length` bytes (not 0) from `offset` touch is marked.
    pub(crate) fn all(&self, file: FileId, offset: u64, length: u64) -> bool {
        pieces(offset, length).all(|piece| {
            self.place(file, piece).is_some_and(|(slot, print)| slot.load(Ordering::Relaxed) == print)
        })
    }

    /// Marks what is resident: the pieces that end within `length` bytes from `offset`, or with the file. The piece that
    /// `offset` is in counts although its beginning is not known.
    pub(crate) fn set(&self, file: FileId, offset: u64, length: u64, file_bytes: u64) {
        let end = offset.saturating_add(length);
        let end_piece = if end >= file_bytes { end.div_ceil(PIECE_BYTES) } else { end / PIECE_BYTES };
        let first = offset / PIECE_BYTES;
        for piece in first..end_piece.min(first.saturating_add(PIECES_MAX)) {
            if let Some((slot, print)) = self.place(file, piece) {
                slot.store(print, Ordering::Relaxed);
            }
        }
    }

    /// Takes the marks off every piece the range touches.
    pub(crate) fn clear(&self, file: FileId, offset: u64, length: u64) {
        for piece in pieces(offset, length) {
            if let Some((slot, print)) = self.place(file, piece) {
                let _ = slot.compare_exchange(print, 0, Ordering::Relaxed, Ordering::Relaxed);
            }
        }
    }
}

/// The pieces a range (its length not 0) touches.
fn pieces(offset: u64, length: u64) -> impl Iterator<Item = u64> {
    let last = offset.saturating_add(length.max(1) - 1) / PIECE_BYTES;
    offset / PIECE_BYTES..last.saturating_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_marked_as_far_as_they_are_known() {
        let (p, file) = (PIECE_BYTES, FileId { device: 1, inode: 2 });
        let size = 10 * p + 5;
        assert!(!MARKS.all(file, 0, 1));
        MARKS.set(file, 100, 2 * p, size);
        assert!(MARKS.all(file, 0, 2 * p), "the beginning of the first piece is taken on trust");
        assert!(!MARKS.all(file, 0, 2 * p + 1), "the third piece is known in part only");
        assert!(!MARKS.all(FileId { device: 1, inode: 3 }, 0, 1), "another file");
        MARKS.set(file, 10 * p, 5, size);
        assert!(MARKS.all(file, 10 * p, 5), "the file's last piece is complete at its end");
        MARKS.clear(file, p, 1);
        assert!(MARKS.all(file, 0, p) && !MARKS.all(file, p, 1));
        MARKS.set(file, 0, u64::MAX, u64::MAX);
        assert!(!MARKS.all(file, PIECES_MAX * p, 1), "no answer may wipe the table");
    }
}
