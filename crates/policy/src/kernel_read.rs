//! A read of the kernel's, for a client that no door blocks.

use core::ops::Range;

use seekless_base::Lba;
use seekless_base::wants::SERVE_LOOK_MAX;
use serde::{Deserialize, Serialize};

use crate::{FileId, IoPriority};

/// The kernel reads bytes of a file, because a client misses the first of them or is about to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelRead {
    /// The file.
    pub file: FileId,
    /// First byte.
    pub offset: u64,
    /// Bytes. They are in memory, or on their way there.
    pub len: u64,
    /// Size of the file in bytes.
    pub file_size: u64,
    /// Disk address of the first byte behind them, if the driver knows it.
    pub lba: Option<Lba>,
    /// What the kernel says about the client's priority.
    pub io: IoPriority,
}

impl KernelRead {
    /// How many bytes from `offset` on the driver looks at, to find out which are in memory or on their way.
    /// The windows of Linux before 6.17 are shorter.
    pub fn looked_at(offset: u64, file_size: u64) -> u64 {
        SERVE_LOOK_MAX.min(file_size.saturating_sub(offset))
    }

    /// The kernel said that it reads `bytes`; from the first on, `resident` bytes are in memory or on their
    /// way. Address and priority are not known.
    pub fn new(file: FileId, bytes: Range<u64>, resident: u64, file_size: u64) -> KernelRead {
        let offset = bytes.start;
        let len = resident.max(bytes.end.min(file_size).saturating_sub(offset));
        KernelRead { file, offset, len, file_size, lba: None, io: IoPriority::NORMAL }
    }

    /// The first byte behind it.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.len)
    }

    /// Whether its client will soon want what lies behind.
    pub(crate) fn is_short(&self) -> bool {
        self.len < KernelRead::looked_at(self.offset, self.file_size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const K: u64 = 1 << 10;
    const FILE: FileId = FileId { dev: 8, ino: 1 };

    #[test]
    fn it_has_what_was_said_and_what_is_there() {
        let len = |bytes, resident| KernelRead::new(FILE, bytes, resident, 1 << 20).len;
        assert_eq!(len(64 * K..128 * K, 0), 64 * K);
        assert_eq!(len(64 * K..128 * K, 96 * K), 96 * K, "the kernel had read on");
        assert_eq!(len(960 * K..2048 * K, 0), 64 * K, "to the end of the file");
    }

    #[test]
    fn it_is_short_where_something_near_is_missing() {
        let is_short = |offset, len, size| KernelRead::new(FILE, offset..offset, len, size).is_short();
        assert!(is_short(64 * K, 128 * K, 1 << 30));
        assert!(is_short(64 * K, 128 * K, 200 * K));
        assert!(!is_short(0, 512 * K, 1 << 30), "all that is looked at is there");
        assert!(!is_short(0, 100 * K, 100 * K), "the file ends");
        for (offset, size) in [(0, 0), (u64::MAX, 5), (u64::MAX, u64::MAX)] {
            assert!(!is_short(offset, 0, size));
        }
    }
}
