//! Which files a reader of whole files takes next: pure, no I/O, no clock.
//!
//! Programs that read many files (a checksum of a tree, a backup, a mirror) open one, read it to its end, and
//! open the next: in the order in which its folder lists them, in the order of names, or by inode.
//! [`Successors`] learns which of these orders predicts the files that a reader opens, and names the files to
//! read next. Its driver reads them ahead together, in the order of the disk. Predicting a file by those
//! opened before it goes back to Kuenning (1994) and Lei and Duchamp (1997). Here a folder's own orders
//! replace a learnt graph, so that a file that was never read is predicted as well.
//!
//! ```text
//!  Read (head, end) --> folder (orders, walks, scores) --> Open, Withdraw
//!  listed           -->        |
//!                       reader (window, waste)
//! ```
//!
//! - A *walk* is a place in a folder from which a reader goes on. Reads are assigned to walks by place, not
//!   by process: four programs in one folder are four walks.
//! - An *order* is followed while most reads are, in that order, the next file of some walk.
//! - The *window* is how many files a reader has ahead. Each predicted file that is used adds one; a read
//!   that was not predicted halves it; files that were read ahead in vain reduce it ([`WASTE_PRICE`]).
//!
//! | file | idea |
//! | --- | --- |
//! | `folder.rs` | a folder's orders, and the walks through it |
//! | `disk_order.rs` | whether files are already read in the order of the disk |
//! | `reader.rs` | what is known of a reader: trust, window, waste |
//! | `successors.rs` | all of these, bounded |
//!
//! Must not know: descriptors, paths, names, threads, disks.

use seekless_base::Nanos;

mod disk_order;
mod folder;
mod reader;
#[allow(clippy::module_inception, reason = "it is named as the type it has")]
mod successors;

pub use disk_order::DiskOrder;
pub use folder::{Entry, GAP_MAX, ORDERS, WALKS_MAX};
pub use reader::{FILES_AHEAD_MAX, WASTE_PRICE, WINDOW_START};
pub use successors::{Action, ENTRIES_MAX, FOLDERS_MAX, IDLE, LISTED_AFTER, Read, Stats, Successors};

/// Maximum bytes of one file that are read ahead before its reader opens it. Smaller files are read whole. Of
/// a larger one, this is what its reader has until its stream has a piece of its own. At half, a file of 1
/// MiB costs two switches; at double, a wrong guess at a large file costs twice as much.
pub const HEAD_MAX: u64 = 1 << 20;

/// Maximum wait of a client for a file that is queued, because other files lie nearer to the heads. At half,
/// a sweep over a thousand files is broken off; at double, a client that reads only one of the files waits
/// twice as long.
pub const TURN_MAX: Nanos = Nanos::from_secs(4);

/// Bytes that may be ahead of readers, of a budget of this size: streams keep the other half.
pub fn room(budget: u64) -> u64 {
    budget / 2
}

/// Bytes that are read ahead of a file of this size.
pub fn head(size: u64) -> u64 {
    size.min(HEAD_MAX)
}
