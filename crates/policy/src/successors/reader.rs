//! What is known of a reader: how far its files can be predicted, and what that has cost.

use crate::successors::disk_order::DiskOrder;
use crate::successors::folder::{BELIEVED, CERTAIN, ORDERS, moved};

/// Files that a reader has ahead at first. At half of it the first sweeps have next to nothing to order; at
/// double, a reader that stops after three files leaves twice as many unread.
pub const WINDOW_START: u32 = 8;

/// Most files that are ahead of all readers of a disk together. At half of it a sweep over one folder of a
/// thousand files is two; at double they would take all the files that an engine keeps open.
pub const FILES_AHEAD_MAX: u32 = 1024;

/// One file that was read ahead for nothing takes back what so many right guesses have earned: waste stays
/// below one file in so many. At half of it a tenth of what is read may be waste; at double, one wrong guess
/// in a folder of forty files ends reading ahead there.
pub const WASTE_PRICE: u32 = 20;

/// Right guesses remembered; then half of them, and of the waste, is forgotten. What a reader did an hour ago
/// says little about it now.
const REMEMBERED: u32 = 4096;

/// A reader.
#[derive(Clone, Debug)]
pub(crate) struct Reader {
    /// How often each order was right lately, of [`CERTAIN`].
    pub(crate) score: [u32; ORDERS],
    /// How often a file was read to its end before the next was opened, of [`CERTAIN`].
    whole: u32,
    window: u32,
    right: u32,
    wasted: u32,
    /// Files whose heads it has read, in folders that are known.
    pub(crate) reads: u64,
    pub(crate) disk_order: DiskOrder,
}

impl Default for Reader {
    fn default() -> Reader {
        Reader {
            score: [0; ORDERS],
            whole: CERTAIN / 2,
            window: WINDOW_START,
            right: 0,
            wasted: 0,
            reads: 0,
            disk_order: DiskOrder::default(),
        }
    }
}

impl Reader {
    /// A read was the next file of a walk, whether it was read ahead or not.
    pub(crate) fn right(&mut self) {
        self.right += 1;
        if self.right > REMEMBERED {
            (self.right, self.wasted) = (self.right / 2, self.wasted / 2);
        }
    }

    /// A file that was read ahead is read.
    pub(crate) fn used(&mut self) {
        self.window = (self.window + 1).min(FILES_AHEAD_MAX);
    }

    /// A read that nothing predicted.
    pub(crate) fn surprised(&mut self) {
        self.window = (self.window / 2).max(WINDOW_START);
    }

    /// A file was read ahead for nothing.
    pub(crate) fn wasted(&mut self) {
        self.wasted = self.wasted.saturating_add(1);
    }

    /// Whether the file before was read to its end when the next was opened.
    pub(crate) fn finished(&mut self, whole: bool) {
        self.whole = moved(self.whole, whole.then_some(CERTAIN));
    }

    /// Whether an order was right so often that it is believed from the first file of a folder on.
    pub(crate) fn is_trusted(&self) -> bool {
        self.window() > 0 && self.score.iter().any(|&score| score >= BELIEVED)
    }

    /// Files that may be ahead of it now: none of one that does not read files to their ends, for which too
    /// much was read in vain, or that reads in the order of the disk already, which nothing can better.
    pub(crate) fn window(&self) -> u32 {
        let earned = (WINDOW_START + self.right).saturating_sub(self.wasted.saturating_mul(WASTE_PRICE));
        match self.whole >= CERTAIN / 2 && !self.disk_order.is_likely() {
            true => self.window.min(earned),
            false => 0,
        }
    }
}
