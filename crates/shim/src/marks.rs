//! What the daemon reported as resident, for files whose residency the kernel hides from this process.
//!
//! For a worker that neither owns nor may write a file, `cachestat` fails and `mincore` returns a wrong
//! answer (see `seekless_kernel::residency`). Asking the daemon on every call would cost a round trip for
//! each cached read. Probing the file with a one-byte `RWF_NOWAIT` read starts a small read of its own on a
//! seeking disk whenever the byte is missing, and says nothing of the bytes between. So the daemon is asked
//! about a piece of a file, the piece is marked, and the mark is valid for [`TTL_MS`]. That costs one round
//! trip for several MiB twice a second, and evictions are noticed in time. If marks were valid for longer,
//! small reads of evicted pieces would take much of the disk's time.
//!
//! A process that can check residency itself never sets a mark. The table is not read before there is a mark:
//! each of its pages costs a page fault, which a process that reads few files would pay for every file. A
//! mark is a hint, so the table is small and lossy: 64 Ki fingerprints of pieces of 128 KiB cover 8 GiB a
//! process. If two pieces collide, the later one wins.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use seekless_base::wants::Want;

/// Validity of a mark in milliseconds. Long enough that reading cached data again costs a round trip at most
/// a few hundred times a second. Short enough that the kernel's own read-ahead, which continues by itself
/// once it has begun, is broken off after half a second of a stream.
pub(crate) const TTL_MS: u64 = 512;

/// Validity of a mark that only says that this process itself requested the bytes. It must outlast their wait
/// in the disk's queue. Otherwise each call on them meanwhile would enlarge the range again by a few KiB, and
/// each time cost a seek. Half of the clock's range.
pub(crate) const TTL_ASKED_MS: u64 = 8_192;

/// Unit of the clock in a mark, in milliseconds; the clock has one byte. It wraps after 16 s. A mark of that
/// age seems fresh once in thirty times, which costs what a missing mark would have saved.
const TICK_MS: u64 = 64;

const SLOTS: usize = 1 << 16;

/// Maximum number of pieces that one answer marks (128 MiB), so that no answer walks the whole table or
/// overwrites all of it.
const PIECES_MAX: usize = 1 << 10;

pub(crate) struct Marks {
    /// Whether there is any mark.
    any: AtomicBool,
    slots: [AtomicU32; SLOTS],
}

pub(crate) static MARKS: Marks = Marks::new();

/// Identifies a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileId {
    /// `st_dev`.
    pub(crate) device: u64,
    /// `st_ino`.
    pub(crate) inode: u64,
}

impl Marks {
    const fn new() -> Marks {
        Marks { any: AtomicBool::new(false), slots: [const { AtomicU32::new(0) }; SLOTS] }
    }

    fn place(&self, file: FileId, piece: u64) -> Option<(&AtomicU32, u32)> {
        let mut h = file.inode ^ file.device.rotate_left(32) ^ piece.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // The finalizer of splitmix64: every input bit affects every output bit.
        h = (h ^ h >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        h = (h ^ h >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        h ^= h >> 31;
        // The low byte of a slot holds the clock.
        Some((self.slots.get(h as usize % SLOTS)?, (h >> 32) as u32 & !0xff | 0x100))
    }

    /// Whether every piece that `want` touches was marked in the last `ttl_ms`.
    pub(crate) fn all(&self, file: FileId, want: Want, ttl_ms: u64, now_ms: u64) -> bool {
        let any = self.any.load(Ordering::Relaxed);
        any && want.pieces().all(|piece| {
            self.place(file, piece).is_some_and(|(slot, print)| {
                let mark = slot.load(Ordering::Relaxed);
                let age_ticks = clock(now_ms).wrapping_sub(mark as u8);
                mark & !0xff == print && u64::from(age_ticks) * TICK_MS < ttl_ms
            })
        })
    }

    /// Marks the pieces that are known to be resident if these bytes are.
    pub(crate) fn set(&self, file: FileId, resident: Want, now_ms: u64) {
        self.any.store(true, Ordering::Relaxed);
        for piece in resident.known_pieces().take(PIECES_MAX) {
            if let Some((slot, print)) = self.place(file, piece) {
                slot.store(print | u32::from(clock(now_ms)), Ordering::Relaxed);
            }
        }
    }
}

fn clock(now_ms: u64) -> u8 {
    (now_ms / TICK_MS) as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use seekless_base::wants::PIECE;

    const SIZE: u64 = 10 * PIECE + 5;

    fn all(file: FileId, offset: u64, length: u64, now_ms: u64) -> bool {
        MARKS.all(file, Want::of(offset, length, u64::MAX).unwrap(), TTL_MS, now_ms)
    }

    fn set(file: FileId, offset: u64, length: u64, file_bytes: u64, now_ms: u64) {
        MARKS.set(file, Want::of(offset, length, file_bytes).unwrap(), now_ms);
    }

    #[test]
    fn a_table_without_marks_is_not_looked_at() {
        let (marks, file) = (Marks::new(), FileId { device: 1, inode: 2 });
        let want = Want::of(0, 1, SIZE).unwrap();
        let (slot, print) = marks.place(file, 0).unwrap();
        slot.store(print | u32::from(clock(0)), Ordering::Relaxed);
        assert!(!marks.all(file, want, TTL_MS, 0), "its pages would be touched for every file");
        marks.set(FileId { device: 1, inode: 3 }, want, 0);
        assert!(marks.all(file, want, TTL_MS, 0));
    }

    #[test]
    fn pieces_are_marked_as_far_as_they_are_known() {
        let (p, file) = (PIECE, FileId { device: 1, inode: 2 });
        let now = 1_000_000;
        assert!(!all(file, 0, 1, now));
        set(file, 100, 2 * p, SIZE, now);
        assert!(all(file, 0, 2 * p, now), "the beginning of the first piece is taken on trust");
        assert!(!all(file, 0, 2 * p + 1, now), "the third piece is known in part only");
        assert!(!all(FileId { device: 1, inode: 3 }, 0, 1, now), "another file");
        set(file, 10 * p, 5, SIZE, now);
        assert!(all(file, 10 * p, 5, now), "the file's last piece is complete at its end");
        assert!(all(file, 0, p, now + TTL_MS - TICK_MS), "for as long as it is believed");
        assert!(!all(file, 0, p, now + TTL_MS + TICK_MS), "and no longer");
        set(file, 0, u64::MAX, u64::MAX, now);
        assert!(!all(file, PIECES_MAX as u64 * p, 1, now), "no answer may wipe the table");
    }
}
