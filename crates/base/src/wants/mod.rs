//! Which bytes of a file a call wants, and in which steps its caller looks at them.
//!
//! A call names bytes: an offset, and a length that may reach far beyond what is there. What becomes of it is
//! decided in four cuts, each a method of [`Want`]:
//!
//! ```text
//! Want::of          what of it lies in the file
//! looked_at         what the shim looks at before the call: bounded, because looking costs a call
//! waited_for        what a door has brought in before the call goes on
//! enlarged          what is read for it: at least the prefetch size
//! ```
//!
//! The same rules hold for the shim, for the doors of the engine, for `seekless serve` and for the simulated
//! server. Sizes of looks and steps that more than one of them uses are constants of this module.
//!
//! All arithmetic is exact for every `u64`: an offset or a length may come from another process.
//!
//! Must not know: anything. No I/O, no clock, no descriptors.

mod args;
mod steps;

use core::ops::Range;

pub use args::{TO_END, advised, is_page_aligned, mapped};
pub use steps::{parts, passes, ready_prefix};

/// The smallest page of memory. Larger ones are a multiple of it.
pub const PAGE: u64 = 4096;

/// No Linux file is longer. Keeps what is rounded up to a page within 64 bits.
pub const FILE_BYTES_MAX: u64 = i64::MAX as u64;

/// Most bytes of a call that copies what it is asked for that are looked at, and most that a process reads
/// for itself in mode `prefetch`, whatever the daemon says. Copying them costs a hundred times more than
/// looking, so half of it would cut reads short for nothing; twice as much is longer than a server's reads
/// are.
pub const READ_LOOK_MAX: u64 = 16 << 20;

/// Most bytes of a call that sends that are looked at. It is asked for the rest of a file and sends what its
/// socket takes, some hundred KiB. Twice as much would be looked at for nothing; half of it is less than a
/// call of nginx sends (`sendfile_max_chunk`).
pub const SEND_LOOK_MAX: u64 = 2 << 20;

/// Most bytes of an answer that `seekless serve` looks at, asks for and sends at once. It looks again for
/// what comes next, so this is what a socket takes (a few hundred KiB), and how long other connections of its
/// loop wait.
pub const SERVE_LOOK_MAX: u64 = 512 << 10;

/// A piece of a file that is in memory as a whole or not at all, as far as a caller remembers: what the
/// kernel reads ahead by itself, and the smallest size at which it cuts a read-ahead call.
pub const PIECE: u64 = 128 << 10;

/// Bytes of a read between two reports of how far it has come: 2 ms of a disk's time. Half of it doubles the
/// wake-ups of the disk thread; twice as much answers a small read later than it could.
pub const PROGRESS_STEP: u64 = 256 << 10;

/// Numbers of the pages that hold the bytes `[from, upto)`.
pub const fn pages(from: u64, upto: u64) -> Range<u64> {
    from / PAGE..upto.div_ceil(PAGE)
}

/// How a call takes the bytes that it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallKind {
    /// All of them: the family of `read`.
    Read,
    /// As many as its socket or pipe has room for: `sendfile`, `splice`.
    Send,
    /// Any part of them, at any time: `copy_file_range`, a mapping, advice.
    Part,
}

impl CallKind {
    /// The kind of a call that cannot be told: one that names no more than the longest read may be one.
    pub const fn of_unknown(named: u64, limits: &DoorLimits) -> CallKind {
        if named <= limits.read_max { CallKind::Read } else { CallKind::Part }
    }

    /// Most bytes of such a call that its caller looks at.
    pub const fn look_max(self) -> u64 {
        match self {
            CallKind::Send => SEND_LOOK_MAX,
            CallKind::Read | CallKind::Part => READ_LOOK_MAX,
        }
    }
}

/// The bounds of a door, from the settings of its engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DoorLimits {
    /// Longest read, bytes.
    pub read_max: u64,
    /// Prefetch size, bytes; `None` where the mode reads no more than was asked for.
    pub prefetch: Option<u64>,
}

/// Bytes of a file: at least one, and none beyond its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Want {
    offset: u64,
    len: u64,
    size: u64,
}

impl Want {
    /// What a call that names `len` bytes from `offset` on finds in a file of `size` bytes; `None`: nothing.
    pub fn of(offset: u64, len: u64, size: u64) -> Option<Want> {
        let size = size.min(FILE_BYTES_MAX);
        let len = len.min(size.saturating_sub(offset));
        (len > 0).then_some(Want { offset, len, size })
    }

    /// First byte.
    pub const fn offset(self) -> u64 {
        self.offset
    }

    /// Bytes, at least 1.
    #[allow(clippy::len_without_is_empty, reason = "never empty")]
    pub const fn len(self) -> u64 {
        self.len
    }

    /// First byte behind it.
    pub const fn end(self) -> u64 {
        self.offset + self.len
    }

    /// Its beginning, at most `len` bytes (at least one).
    pub fn at_most(self, len: u64) -> Want {
        Want { len: self.len.min(len.max(1)), ..self }
    }

    /// What its caller looks at before the call.
    pub fn looked_at(self, kind: CallKind) -> Want {
        self.at_most(kind.look_max())
    }

    /// What is brought in before the call goes on. A call that may take less than it names is not worth more
    /// than a prefetch size: the rest would only fill memory.
    pub fn waited_for(self, kind: CallKind, limits: &DoorLimits) -> Want {
        let want = self.at_most(limits.read_max);
        match (kind, limits.prefetch) {
            (CallKind::Send | CallKind::Part, Some(prefetch)) => want.at_most(prefetch),
            _ => want,
        }
    }

    /// The same extended to `prefetch` bytes, as far as the file goes.
    pub fn enlarged(self, prefetch: u64) -> Want {
        Want { len: self.len.max(prefetch).min(self.size - self.offset), ..self }
    }

    /// What is left of it where the first `resident` bytes are in memory; `None`: all of it is.
    pub fn missing(self, resident: u64) -> Option<Want> {
        let len = self.len.checked_sub(resident).filter(|&len| len > 0)?;
        Some(Want { offset: self.offset + resident, len, ..self })
    }

    /// Size of its file.
    pub const fn file_bytes(self) -> u64 {
        self.size
    }

    /// First byte of its first page, and first byte behind its last.
    pub const fn in_pages(self) -> (u64, u64) {
        (self.offset / PAGE * PAGE, self.end().next_multiple_of(PAGE))
    }

    /// Numbers of its pages.
    pub const fn pages(self) -> Range<u64> {
        pages(self.offset, self.end())
    }

    /// First byte behind the last page of its file.
    pub const fn file_end_in_pages(self) -> u64 {
        self.size.next_multiple_of(PAGE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const M: u64 = 1 << 20;
    const BOTH: DoorLimits = DoorLimits { read_max: 8 * M, prefetch: Some(2 * M) };
    const SERIALISE: DoorLimits = DoorLimits { prefetch: None, ..BOTH };

    fn want(offset: u64, len: u64) -> Want {
        Want::of(offset, len, 100 * M).unwrap()
    }

    #[test]
    fn a_call_wants_no_byte_beyond_the_end_of_its_file() {
        assert_eq!(want(99 * M, u64::MAX).len(), M);
        assert_eq!(want(100 * M - 1, 1).end(), 100 * M);
        for (offset, len) in [(100 * M, 1), (u64::MAX, 1), (0, 0), (i64::MAX as u64, u64::MAX)] {
            assert_eq!(Want::of(offset, len, 100 * M), None, "{offset} {len}");
        }
        assert_eq!(Want::of(0, 1, 0), None, "an empty file");
        let longest = Want::of(FILE_BYTES_MAX - 1, u64::MAX, u64::MAX).unwrap();
        assert_eq!((longest.len(), longest.in_pages()), (1, (FILE_BYTES_MAX - 4095, FILE_BYTES_MAX + 1)));
    }

    #[test]
    fn sends_are_looked_at_as_far_as_a_socket_takes() {
        assert_eq!(want(0, 100 * M).looked_at(CallKind::Send).len(), SEND_LOOK_MAX);
        assert_eq!(want(0, 100 * M).looked_at(CallKind::Read).len(), READ_LOOK_MAX);
        assert_eq!(want(0, 100 * M).looked_at(CallKind::Part).len(), READ_LOOK_MAX);
        assert_eq!(want(5, 10).looked_at(CallKind::Send), want(5, 10));
    }

    #[test]
    fn a_read_waits_for_all_it_takes_and_others_for_a_prefetch_size() {
        let long = want(0, 100 * M);
        assert_eq!(long.waited_for(CallKind::Read, &BOTH).len(), 8 * M);
        for kind in [CallKind::Send, CallKind::Part] {
            assert_eq!(long.waited_for(kind, &BOTH).len(), 2 * M);
            assert_eq!(long.waited_for(kind, &SERIALISE).len(), 8 * M, "nothing is read ahead");
            assert_eq!(want(0, M).waited_for(kind, &BOTH).len(), M);
        }
        assert_eq!(CallKind::of_unknown(8 * M, &BOTH), CallKind::Read);
        assert_eq!(CallKind::of_unknown(8 * M + 1, &BOTH), CallKind::Part);
    }

    #[test]
    fn what_is_enlarged_ends_with_its_file() {
        assert_eq!(want(0, 10).enlarged(M).len(), M);
        assert_eq!(want(0, 2 * M).enlarged(M).len(), 2 * M);
        assert_eq!(want(99 * M + 1, 10).enlarged(2 * M).end(), 100 * M);
    }

    #[test]
    fn what_is_missing_begins_behind_what_is_there() {
        assert_eq!(want(5, 10).missing(0), Some(want(5, 10)));
        assert_eq!(want(5, 10).missing(9), Some(want(14, 1)));
        assert_eq!(want(5, 10).missing(10), None);
        assert_eq!(want(5, 10).missing(u64::MAX), None);
    }

    #[test]
    fn pages_are_whole() {
        assert_eq!(want(0, 1).in_pages(), (0, PAGE));
        assert_eq!(want(PAGE - 1, 2).in_pages(), (0, 2 * PAGE));
        assert_eq!(want(PAGE, PAGE).in_pages(), (PAGE, 2 * PAGE));
        assert_eq!(want(PAGE - 1, 2).pages(), 0..2);
        assert_eq!(Want::of(0, 1, 1).unwrap().file_end_in_pages(), PAGE);
    }

    proptest! {
        #[test]
        fn every_cut_keeps_the_beginning_and_the_bounds(
            offset: u64, len: u64, size: u64, read_max: u64, prefetch: u64, resident: u64,
        ) {
            let Some(want) = Want::of(offset, len, size) else {
                prop_assert!(len == 0 || offset >= size.min(FILE_BYTES_MAX));
                return Ok(());
            };
            for kind in [CallKind::Read, CallKind::Send, CallKind::Part] {
                for prefetch in [None, Some(prefetch)] {
                    let limits = DoorLimits { read_max, prefetch };
                    for cut in [want.looked_at(kind), want.waited_for(kind, &limits)] {
                        prop_assert!(cut.offset() == offset && (1..=want.len()).contains(&cut.len()));
                    }
                }
            }
            let more = want.enlarged(prefetch);
            prop_assert!(more.len() >= want.len() && more.end() <= size);
            prop_assert!(want.missing(resident).is_none_or(|rest| rest.end() == want.end()));
            let (start, end) = want.in_pages();
            prop_assert!(start <= offset && want.end() <= end && end <= want.file_end_in_pages());
        }
    }
}
