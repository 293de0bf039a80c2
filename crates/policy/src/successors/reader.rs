//! The state of a reader: how well its files can be predicted, and what wrong guesses have cost.

use crate::successors::disk_order::DiskOrder;
use crate::successors::folder::{BELIEVED, CERTAIN, ORDERS, moved};

/// Initial number of files ahead of a reader. At half, the first sweeps have almost nothing to order; at
/// double, a reader that stops after three files leaves twice as many unread.
pub const WINDOW_START: u32 = 8;

/// Maximum number of files ahead of all readers of a disk together. At half, a folder of a thousand files
/// takes two sweeps; at double, they would take all files that an engine keeps open.
pub const FILES_AHEAD_MAX: u32 = 1024;

/// Number of right guesses that one file read in vain cancels, so that waste stays below one file in this
/// many. At half, a tenth of what is read may be waste; at double, one wrong guess in a folder of forty files
/// ends reading ahead there.
pub const WASTE_PRICE: u32 = 20;

/// Maximum number of right guesses that are remembered; then these and the waste are halved, because what a
/// reader did an hour ago says little about now.
const REMEMBERED: u32 = 4096;

/// A reader.
#[derive(Clone, Debug)]
pub(crate) struct Reader {
    /// How often each order was right recently, out of [`CERTAIN`].
    pub(crate) score: [u32; ORDERS],
    /// How often a file was read to its end before the next was opened, out of [`CERTAIN`].
    whole: u32,
    window: u32,
    right: u32,
    wasted: u32,
    /// Number of files whose heads it has read, in known folders.
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

    /// A file that was read ahead was used.
    pub(crate) fn used(&mut self) {
        self.window = (self.window + 1).min(FILES_AHEAD_MAX);
    }

    /// A read that nothing predicted.
    pub(crate) fn surprised(&mut self) {
        self.window = (self.window / 2).max(WINDOW_START);
    }

    /// A file was read ahead in vain.
    pub(crate) fn wasted(&mut self) {
        self.wasted = self.wasted.saturating_add(1);
    }

    /// Whether the previous file was read to its end when the next was opened.
    pub(crate) fn finished(&mut self, whole: bool) {
        self.whole = moved(self.whole, whole.then_some(CERTAIN));
    }

    /// Whether an order was right so often that it is followed from the first file of a folder on.
    pub(crate) fn is_trusted(&self) -> bool {
        self.window() > 0 && self.score.iter().any(|&score| score >= BELIEVED)
    }

    /// Number of files that may be ahead of it now: none if it does not read files to their ends, if too much
    /// was read in vain for it, or if it already reads in disk order.
    pub(crate) fn window(&self) -> u32 {
        let earned = (WINDOW_START + self.right).saturating_sub(self.wasted.saturating_mul(WASTE_PRICE));
        match self.whole >= CERTAIN / 2 && !self.disk_order.is_likely() {
            true => self.window.min(earned),
            false => 0,
        }
    }
}
