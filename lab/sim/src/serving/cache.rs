//! The page cache: which pages of which file are in memory, and which are evicted.
//!
//! Pages are 4 KiB, as the kernel's. They are kept in *blocks* of 32 consecutive pages of a file (128 KiB),
//! with a bit for each page; lists and eviction work on blocks. Linux does the same with large folios. With a
//! memory of hundreds of megabytes the error is far below one per cent, and a block costs 44 bytes instead of
//! 32 times that.
//!
//! Replacements:
//! - [`Replacement::Lru`]: one list, moved to its head at every use.
//! - [`Replacement::TwoList`]: Linux without multi-generational LRU (`mm/swap.c`, `mm/vmscan.c`,
//!   `mm/workingset.c`). New pages enter the *inactive* list and are not moved by their first use; the second
//!   use moves them to the *active* list. When the active list outgrows the inactive one by more than
//!   `sqrt(10 * GiB)` its tail is moved back. Reclaim takes the inactive tail. A page that comes back while
//!   as many pages as are active have left since (its *refault distance*) enters the active list at once; and
//!   while such pages come, the active list gives way in proportion to what is reclaimed
//!   (`prepare_scan_control`).
//!
//!   What is used again is a page, or a whole folio where the kernel's own read-ahead allocated one: a
//!   segment that ends inside a page makes the next one use that page again. Measured on Linux 6.18 (200 MiB
//!   sent by `sendfile` in segments of 523,750 bytes): of what `WILLNEED` had brought, in single pages, 0.8 %
//!   became active, of what read-ahead had brought 20 %. So a block moves when half of its pages are used
//!   again, one of large folios when any is.
//! - [`Replacement::EvenLists`]: the same before Linux 3.15, which kept the lists even and had no refault
//!   distance. It leaves read-ahead half of the memory; the present rule leaves it a ninth of 8 GB once
//!   enough was used twice.
//! - [`Replacement::Fifo`]: the result of either if no page is marked as used.

use seekless_base::Bytes;

pub use super::config::Replacement;
use super::readahead::Mark;

/// Bytes of a page.
pub use seekless_base::wants::PAGE;

/// Pages of a block.
pub const BLOCK_PAGES: u64 = 32;

/// Maximum number of recorded uses: 256 MB of memory, 8 TB read.
const USES_MAX: usize = 1 << 26;

/// No block.
const NONE: u32 = u32::MAX;

/// The state of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageState {
    /// Not in memory and not requested.
    Absent,
    /// Being read.
    Coming,
    /// Its bytes are in memory.
    Ready,
}

/// Counts of pages since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Counts {
    /// Read from the disk.
    pub inserted: u64,
    /// Pages that a reader found in memory, or being read.
    pub hits: u64,
    /// Pages that a reader had to request.
    pub misses: u64,
    /// Evicted after use.
    pub evicted_used: u64,
    /// Evicted before use.
    pub evicted_unused: u64,
    /// Read again after they had been evicted before use.
    pub refetched: u64,
    /// Given back on advice.
    pub dropped: u64,
    /// Of these, unused.
    pub dropped_unused: u64,
}

impl Counts {
    /// Read, never used, and not read again.
    pub fn never_used(&self) -> u64 {
        (self.evicted_unused + self.dropped_unused).saturating_sub(self.refetched)
    }
}

#[derive(Clone, Copy, Debug)]
struct Block {
    /// Place in the table.
    key: u32,
    present: u32,
    ready: u32,
    /// Pages that start the next read-ahead when they are reached (PG_readahead).
    marked: u32,
    /// Pages used at least once since they were read.
    used: u32,
    /// Pages used since the block entered its list.
    seen: u32,
    /// Of these, pages used again since.
    again: u32,
    /// Read in folios, which are used as a whole.
    large: bool,
    active: bool,
    prev: u32,
    next: u32,
}

/// A list of blocks by their own links; the head is the newest.
#[derive(Clone, Copy, Debug)]
struct List {
    head: u32,
    tail: u32,
    pages: u64,
}

const EMPTY: List = List { head: NONE, tail: NONE, pages: 0 };

/// The page cache of the machine.
#[derive(Debug)]
pub struct PageCache {
    replacement: Replacement,
    limit: u64,
    /// Slot of each block of each file, or [`NONE`].
    table: Vec<u32>,
    /// First entry of each file in `table`.
    first: Vec<u32>,
    /// When each block was last evicted, as the number of pages evicted until then (two lists only); 0:
    /// never.
    evicted_at: Vec<u64>,
    /// Pages of each block that were evicted before use and not read again.
    lost: Vec<u32>,
    slab: Vec<Block>,
    free: Vec<u32>,
    inactive: List,
    active: List,
    evictions: u64,
    /// Number of blocks that were read again soon enough to be active at once, now and when memory was last
    /// reclaimed.
    refaults: (u64, u64),
    counts: Counts,
    unused_pages: u64,
    /// The block of each use, in order; consecutive uses of one block count once.
    uses: Vec<u32>,
}

/// Bits `from..to` of a block, both at most 32.
fn mask(from: u64, to: u64) -> u32 {
    let below = |n: u64| if n >= 32 { u32::MAX } else { (1u32 << n) - 1 };
    below(to) & !below(from)
}

/// The blocks of `[from, to)`: the first page of each, and the bits of its pages in the range.
fn blocks(from: u64, to: u64) -> impl Iterator<Item = (u64, u32)> {
    let last = if from < to { to.div_ceil(BLOCK_PAGES) } else { 0 };
    (from / BLOCK_PAGES..last).map(move |block| {
        let start = block * BLOCK_PAGES;
        (start, mask(from.max(start) - start, to.min(start + BLOCK_PAGES) - start))
    })
}

impl PageCache {
    /// An empty cache of `limit` bytes over files of these sizes in bytes.
    pub fn new(replacement: Replacement, limit: u64, file_sizes: impl Iterator<Item = u64>) -> PageCache {
        let mut first = Vec::new();
        let mut blocks = 0u64;
        for size in file_sizes {
            first.push(blocks as u32);
            blocks += size.div_ceil(PAGE * BLOCK_PAGES);
        }
        assert!(blocks < u64::from(NONE), "a library of {blocks} blocks is larger than the model can hold");
        first.push(blocks as u32);
        let shadows = if replacement == Replacement::TwoList { blocks as usize } else { 0 };
        PageCache {
            replacement,
            limit: (limit / PAGE).max(BLOCK_PAGES),
            table: vec![NONE; blocks as usize],
            first,
            evicted_at: vec![0; shadows],
            lost: vec![0; blocks as usize],
            slab: Vec::new(),
            free: Vec::new(),
            inactive: EMPTY,
            active: EMPTY,
            evictions: 0,
            refaults: (0, 0),
            counts: Counts::default(),
            unused_pages: 0,
            uses: Vec::new(),
        }
    }

    /// Pages in memory, those being read included.
    pub fn pages(&self) -> u64 {
        self.inactive.pages + self.active.pages
    }

    /// Maximum number of pages.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Sets the maximum; pages beyond it are evicted.
    pub fn resize(&mut self, limit: Bytes) {
        self.limit = (limit.0 / PAGE).max(BLOCK_PAGES);
        self.reclaim();
    }

    /// Counters since the start.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The blocks that readers used so far, in order. At most [`USES_MAX`].
    pub fn uses(&self) -> &[u32] {
        &self.uses
    }

    /// Takes them out.
    pub fn take_uses(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.uses)
    }

    /// Pages in memory that nobody has used yet.
    pub fn unused(&self) -> u64 {
        self.unused_pages
    }

    fn key(&self, file: u32, page: u64) -> Option<u32> {
        let key = u64::from(self.first[file as usize]) + page / BLOCK_PAGES;
        (key < u64::from(self.first[file as usize + 1])).then_some(key as u32)
    }

    /// The slab index of the block of a page, if any page of it is in memory.
    fn slot(&self, file: u32, page: u64) -> Option<u32> {
        Some(self.table[self.key(file, page)? as usize]).filter(|&slot| slot != NONE)
    }

    fn block(&self, file: u32, page: u64) -> Option<&Block> {
        self.slot(file, page).map(|slot| &self.slab[slot as usize])
    }

    /// State of one page.
    pub fn state(&self, file: u32, page: u64) -> PageState {
        let bit = 1u32 << (page % BLOCK_PAGES);
        match self.block(file, page) {
            Some(b) if b.ready & bit != 0 => PageState::Ready,
            Some(b) if b.present & bit != 0 => PageState::Coming,
            _ => PageState::Absent,
        }
    }

    /// First page of `[from, to)` with its bit in `bits`. For a block that is not in memory, `nothing` has
    /// the bits.
    fn find(&self, file: u32, from: u64, to: u64, nothing: u32, bits: impl Fn(&Block) -> u32) -> Option<u64> {
        blocks(from, to).find_map(|(start, meant)| {
            let found = meant & self.block(file, start).map_or(nothing, &bits);
            (found != 0).then(|| start + u64::from(found.trailing_zeros()))
        })
    }

    /// First page of `[from, to)` that is absent; `to` if there is none.
    pub fn first_absent(&self, file: u32, from: u64, to: u64) -> u64 {
        self.find(file, from, to, u32::MAX, |b| !b.present).unwrap_or(to)
    }

    /// First page of `[from, to)` whose bytes have not been read; `to` if there is none.
    pub fn first_not_ready(&self, file: u32, from: u64, to: u64) -> u64 {
        self.find(file, from, to, u32::MAX, |b| !b.ready).unwrap_or(to)
    }

    /// First page of `[from, to)` that is present; `to` if there is none.
    pub fn first_present(&self, file: u32, from: u64, to: u64) -> u64 {
        self.find(file, from, to, 0, |b| b.present).unwrap_or(to)
    }

    /// How many pages of `[from, to)` are present.
    pub fn present_pages(&self, file: u32, from: u64, to: u64) -> u64 {
        let here = |(start, meant): (u64, u32)| meant & self.block(file, start).map_or(0, |b| b.present);
        blocks(from, to).map(|part| u64::from(here(part).count_ones())).sum()
    }

    /// The nearest absent page at or before `page`, looking back over at most `most` pages; `None` if all of
    /// them, or all down to the start of the file, are present (`page_cache_prev_miss`).
    pub fn absent_before(&self, file: u32, page: u64, most: u64) -> Option<u64> {
        let lowest = (page + 1).saturating_sub(most);
        let mut at = page + 1;
        while at > lowest {
            let start = (at - 1) / BLOCK_PAGES * BLOCK_PAGES;
            let low = start.max(lowest);
            let missing = mask(low - start, at - start) & !self.block(file, start).map_or(0, |b| b.present);
            if missing != 0 {
                return Some(start + 31 - u64::from(missing.leading_zeros()));
            }
            at = low;
        }
        None
    }

    /// First page of `[from, to)` that starts a read-ahead; `None` if there is none.
    pub fn first_marked(&self, file: u32, from: u64, to: u64) -> Option<u64> {
        self.find(file, from, to, 0, |b| b.marked & b.present)
    }

    /// Sets or clears a page's mark. A page that is not in memory cannot have one.
    pub fn set_mark(&mut self, file: u32, page: u64, on: bool) {
        let Some(slot) = self.slot(file, page) else { return };
        let bit = 1u32 << (page % BLOCK_PAGES);
        let block = &mut self.slab[slot as usize];
        block.marked = if on { block.marked | (bit & block.present) } else { block.marked & !bit };
    }

    /// Marks the pages of a folio.
    pub fn mark(&mut self, file: u32, mark: Mark) {
        for page in mark.start..mark.start + mark.pages {
            self.set_mark(file, page, true);
        }
    }

    /// Clears the mark of the folio that contains a marked page, and returns the folio: the largest aligned
    /// power of two around the page that is marked throughout. (Marks of crossing readers may touch.)
    pub fn take_mark(&mut self, file: u32, page: u64) -> Mark {
        let marked = |from: u64, to: u64| (from..to).all(|at| self.first_marked(file, at, at + 1).is_some());
        let mut mark = Mark { start: page, pages: 1 };
        loop {
            let pages = 2 * mark.pages;
            let start = page - page % pages;
            // The half that was not checked yet.
            let other = if start == mark.start { start + mark.pages } else { start };
            if !marked(other, other + mark.pages) {
                break;
            }
            mark = Mark { start, pages };
        }
        for page in mark.start..mark.start + mark.pages {
            self.set_mark(file, page, false);
        }
        mark
    }

    /// Makes room for pages that will be read, in `large` folios or one by one; pages that are present stay.
    /// Others may be evicted.
    pub fn insert(&mut self, file: u32, from: u64, to: u64, large: bool) {
        for (start, meant) in blocks(from, to) {
            let Some(key) = self.key(file, start) else { break };
            let mut slot = self.table[key as usize];
            if slot == NONE {
                slot = self.allocate(key, large);
                self.enter(slot);
            }
            let block = &mut self.slab[slot as usize];
            let new = meant & !block.present;
            block.present |= new;
            block.ready &= !new;
            block.used &= !new;
            block.seen &= !new;
            block.again &= !new;
            block.marked &= !new;
            let pages = u64::from(new.count_ones());
            let lost = &mut self.lost[key as usize];
            self.counts.refetched += u64::from((*lost & new).count_ones());
            *lost &= !new;
            self.list_of(slot).pages += pages;
            self.unused_pages += pages;
            self.counts.inserted += pages;
        }
        self.reclaim();
    }

    /// The bytes of these pages have been read.
    pub fn ready(&mut self, file: u32, from: u64, to: u64) {
        for (start, meant) in blocks(from, to) {
            if let Some(slot) = self.slot(file, start) {
                let block = &mut self.slab[slot as usize];
                block.ready |= meant & block.present;
            }
        }
    }

    /// Counts a lookup: pages found, and pages not found.
    pub fn looked_up(&mut self, hits: u64, misses: u64) {
        self.counts.hits += hits;
        self.counts.misses += misses;
    }

    /// A reader uses these pages (those that are present).
    pub fn touch(&mut self, file: u32, from: u64, to: u64) {
        for (start, _) in blocks(from, to) {
            let used = self.key(file, start).filter(|key| self.uses.last() != Some(key));
            self.uses.extend(used.filter(|_| self.uses.len() < USES_MAX));
        }
        self.mark_used(file, from, to);
    }

    /// Marks pages as used (those that are present).
    fn mark_used(&mut self, file: u32, from: u64, to: u64) {
        for (start, meant) in blocks(from, to) {
            if let Some(slot) = self.slot(file, start) {
                let block = &mut self.slab[slot as usize];
                let bits = meant & block.present;
                block.again |= bits & block.seen;
                block.seen |= bits;
                let again = match block.large {
                    true => block.again != 0,
                    false => block.again.count_ones() * 2 >= block.present.count_ones(),
                };
                let first_use = bits & !block.used;
                block.used |= bits;
                self.unused_pages -= u64::from(first_use.count_ones());
                self.moved_by_use(slot, again);
            }
        }
    }

    fn moved_by_use(&mut self, slot: u32, again: bool) {
        match self.replacement {
            Replacement::Lru => {
                self.unlink(slot);
                self.link(slot, false);
            }
            Replacement::TwoList | Replacement::EvenLists if again && !self.slab[slot as usize].active => {
                self.unlink(slot);
                self.link(slot, true);
            }
            Replacement::TwoList | Replacement::EvenLists | Replacement::Fifo => {}
        }
    }

    /// Gives these pages back, except those being read.
    pub fn drop_range(&mut self, file: u32, from: u64, to: u64) {
        for (start, meant) in blocks(from, to) {
            if let Some(slot) = self.slot(file, start) {
                let block = &mut self.slab[slot as usize];
                let bits = meant & block.ready;
                let unused = bits & !block.used;
                block.present &= !bits;
                block.ready &= !bits;
                block.marked &= !bits;
                let pages = u64::from(bits.count_ones());
                let gone = block.present == 0;
                self.unused_pages -= u64::from(unused.count_ones());
                self.counts.dropped += pages;
                self.counts.dropped_unused += u64::from(unused.count_ones());
                self.list_of(slot).pages -= pages;
                if gone {
                    self.forget(slot);
                }
            }
        }
    }

    fn allocate(&mut self, key: u32, large: bool) -> u32 {
        let block = Block {
            key,
            present: 0,
            ready: 0,
            marked: 0,
            used: 0,
            seen: 0,
            again: 0,
            large,
            active: false,
            prev: NONE,
            next: NONE,
        };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slab[slot as usize] = block;
                slot
            }
            None => {
                self.slab.push(block);
                (self.slab.len() - 1) as u32
            }
        };
        self.table[key as usize] = slot;
        slot
    }

    /// Puts a new block on its list.
    fn enter(&mut self, slot: u32) {
        let key = self.slab[slot as usize].key as usize;
        let active = match self.replacement {
            Replacement::Lru | Replacement::EvenLists | Replacement::Fifo => false,
            Replacement::TwoList => {
                let evicted = self.evicted_at[key];
                evicted != 0 && self.evictions + 1 - evicted <= self.active.pages
            }
        };
        self.refaults.0 += u64::from(active);
        self.link(slot, active);
    }

    fn list_of(&mut self, slot: u32) -> &mut List {
        if self.slab[slot as usize].active { &mut self.active } else { &mut self.inactive }
    }

    fn link(&mut self, slot: u32, active: bool) {
        self.slab[slot as usize].active = active;
        let pages = u64::from(self.slab[slot as usize].present.count_ones());
        let list = self.list_of(slot);
        list.pages += pages;
        let head = list.head;
        list.head = slot;
        if list.tail == NONE {
            list.tail = slot;
        }
        self.slab[slot as usize].prev = NONE;
        self.slab[slot as usize].next = head;
        if head != NONE {
            self.slab[head as usize].prev = slot;
        }
    }

    fn unlink(&mut self, slot: u32) {
        let Block { prev, next, present, .. } = self.slab[slot as usize];
        let list = self.list_of(slot);
        list.pages -= u64::from(present.count_ones());
        if list.head == slot {
            list.head = next;
        }
        if list.tail == slot {
            list.tail = prev;
        }
        if prev != NONE {
            self.slab[prev as usize].next = next;
        }
        if next != NONE {
            self.slab[next as usize].prev = prev;
        }
    }

    fn forget(&mut self, slot: u32) {
        self.unlink(slot);
        self.table[self.slab[slot as usize].key as usize] = NONE;
        self.free.push(slot);
    }

    /// `inactive_is_low` of `mm/vmscan.c`: the active list may be this many times the inactive one.
    fn inactive_ratio(&self) -> u64 {
        if self.replacement == Replacement::EvenLists {
            return 1;
        }
        let gib = (self.pages() * PAGE) >> 30;
        if gib == 0 { 1 } else { ((10 * gib) as f64).sqrt() as u64 }
    }

    /// Moves the tail of the active list back, if there is such a list.
    fn deactivate_last(&mut self) {
        let slot = self.active.tail;
        if slot == NONE {
            return;
        }
        self.unlink(slot);
        // Its next use counts as the first on this list.
        let block = &mut self.slab[slot as usize];
        (block.seen, block.again) = (0, 0);
        self.link(slot, false);
    }

    fn reclaim(&mut self) {
        // Each block is checked at most once: if all of them are being read, memory is exceeded for a moment,
        // as in the kernel while pages are under I/O.
        let mut looks = self.slab.len() as u64 - self.free.len() as u64;
        if self.pages() <= self.limit {
            return;
        }
        // Refaults since memory was last reclaimed: a new working set is forming.
        let forming = self.refaults.0 != self.refaults.1;
        self.refaults.1 = self.refaults.0;
        while self.pages() > self.limit && looks > 0 {
            let low = |c: &PageCache| c.inactive.pages * c.inactive_ratio() < c.active.pages;
            while self.replacement != Replacement::Lru && self.active.tail != NONE && low(self) {
                self.deactivate_last();
            }
            let slot = self.inactive.tail;
            if slot == NONE {
                return;
            }
            looks -= 1;
            let block = self.slab[slot as usize];
            if block.present != block.ready {
                self.unlink(slot);
                self.link(slot, false);
                continue;
            }
            if forming && self.inactive.pages > 0 {
                // Both lists are scanned in proportion to their lengths.
                for _ in 0..self.active.pages.div_ceil(self.inactive.pages) {
                    self.deactivate_last();
                }
            }
            let pages = u64::from(block.present.count_ones());
            let used = u64::from((block.present & block.used).count_ones());
            self.counts.evicted_used += used;
            self.counts.evicted_unused += pages - used;
            self.unused_pages -= pages - used;
            self.evictions += pages;
            self.lost[block.key as usize] |= block.present & !block.used;
            if let Some(at) = self.evicted_at.get_mut(block.key as usize) {
                *at = self.evictions.max(1);
            }
            self.forget(slot);
        }
    }
}

#[cfg(test)]
mod tests;
