//! The drive's buffer: whole blocks, least recently used out first.

use alloc::collections::BTreeMap;

/// Sectors of a block: 32 KiB. Smaller blocks keep more of the ends of runs and cost more to look up.
pub(crate) const BLOCK: u64 = 64;

#[derive(Clone, Debug, Default)]
pub(crate) struct Pool {
    most: usize,
    clock: u64,
    /// Block to when it was used last, and back.
    blocks: BTreeMap<u64, u64>,
    by_use: BTreeMap<u64, u64>,
}

impl Pool {
    pub(crate) fn new(bytes: u64) -> Pool {
        let most = (bytes / (BLOCK * seekless_base::SECTOR_BYTES)).clamp(1, 1 << 16) as usize;
        Pool { most, ..Pool::default() }
    }

    /// Maximum number of sectors in the pool.
    pub(crate) fn sectors(&self) -> u64 {
        self.most as u64 * BLOCK
    }

    /// The first sector from `from` on that is not in the pool, at most `end`.
    pub(crate) fn held_upto(&self, from: u64, end: u64) -> u64 {
        let mut at = from;
        while at < end && self.blocks.contains_key(&(at / BLOCK)) {
            at = (at / BLOCK + 1) * BLOCK;
        }
        at.min(end).max(from)
    }

    /// The host used these sectors, or the heads passed over them: the whole blocks among them are kept.
    pub(crate) fn take(&mut self, from: u64, end: u64) {
        for block in from.div_ceil(BLOCK)..end / BLOCK {
            self.clock += 1;
            if let Some(old) = self.blocks.insert(block, self.clock) {
                self.by_use.remove(&old);
            }
            self.by_use.insert(self.clock, block);
            while self.blocks.len() > self.most
                && let Some((_, oldest)) = self.by_use.pop_first()
            {
                self.blocks.remove(&oldest);
            }
        }
    }

    /// The host wrote these sectors.
    pub(crate) fn forget(&mut self, from: u64, end: u64) {
        for block in from / BLOCK..end.div_ceil(BLOCK) {
            if let Some(used) = self.blocks.remove(&block) {
                self.by_use.remove(&used);
            }
        }
    }
}
