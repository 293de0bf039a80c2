//! The machine's memory as a [`MemoryLimit`]: what the engine's budget follows.
//!
//! The limit is that of the control group, less what this process itself holds. Where the kernel accounts for
//! pressure (PSI) and pages are read back from swap, tasks that wait for memory are told as well: others are
//! short before we are, and what we fetch is what their pages are evicted for. Pressure alone says nothing.
//! Clients that wait for a page of the library which was in memory before count as such tasks, and every
//! library that is larger than its memory has them.

use seekless_kernel::memory::{anonymous, page_cache_limit, pressure, swapped_in};
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

/// The machine's memory, looked at again and again.
#[derive(Debug, Default)]
pub(crate) struct Machine {
    /// Pages read back from swap, at the last look.
    swapped_in: Option<u64>,
}

impl Machine {
    /// The memory that so many disks share.
    pub(crate) fn limit(&mut self, disks: usize) -> MemoryLimit {
        let cache = page_cache_limit().unwrap_or(MemoryLimit::default().bytes.0);
        let before = std::mem::replace(&mut self.swapped_in, swapped_in());
        let swaps = before.zip(self.swapped_in).is_some_and(|(before, now)| now > before);
        MemoryLimit {
            bytes: Bytes(cache.saturating_sub(anonymous().unwrap_or(0))),
            disks: u32::try_from(disks.max(1)).unwrap_or(u32::MAX),
            tasks_wait: swaps && pressure().is_some_and(|part| part >= PRESSURE),
        }
    }
}
