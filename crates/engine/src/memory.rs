//! The machine's memory as a [`MemoryLimit`]: what the engine's budget follows.
//!
//! The limit is that of the control group, less what this process itself holds. Where the kernel accounts for
//! pressure (PSI), tasks that wait for memory are told as well: others may be short before we are, and what
//! we fetch is what their pages are evicted for.

use seekless_kernel::memory::{anonymous, page_cache_limit, pressure};
use seekless_policy::MemoryLimit;
use seekless_units::Bytes;

/// Part of the last ten seconds that some task waited for memory, from which on memory is short. A page cache
/// that is full of files read once shows a per cent or two.
const PRESSURE: f64 = 0.1;

/// Bytes of memory that reads of this process may fill: the machine's, or its control group's if that is
/// less. `None` where /proc cannot be read.
pub fn page_cache() -> Option<Bytes> {
    page_cache_limit().map(Bytes)
}

/// The memory that so many disks share.
pub(crate) fn limit(disks: usize) -> MemoryLimit {
    let cache = page_cache_limit().unwrap_or(MemoryLimit::default().bytes.0);
    MemoryLimit {
        bytes: Bytes(cache.saturating_sub(anonymous().unwrap_or(0))),
        disks: u32::try_from(disks.max(1)).unwrap_or(u32::MAX),
        tasks_wait: pressure().is_some_and(|part| part >= PRESSURE),
    }
}
