//! Which files a reader of whole files takes next: pure, no I/O, no clock.
//!
//! Programs that read many files (a checksum of a tree, a backup, a mirror) open one, read it to its end, and
//! open the next: in the order in which its folder lists them, in the order of names, or in that of inodes.
//! [`Successors`] learns which of these orders foretells the files that a reader opens, and names the files
//! to be read next. Its driver reads them ahead together, in the order of the disk. Predicting a file by
//! those opened before it is as old as Kuenning (1994) and Lei and Duchamp (1997); here a folder's own orders
//! stand in for a learnt graph, so that a file that was never read is predicted as well.
//!
//! ```text
//!  Read (head, end) --> folder (orders, walks, scores) --> Open, Withdraw
//!  listed           -->        |
//!                       reader (window, waste)
//! ```
//!
//! - A *walk* is a place in a folder from which reading goes on. Reads belong to walks by place, not by
//!   process: four programs in one folder are four walks.
//! - An *order* is believed while most reads are the next file, by it, of some walk.
//! - The *window* is how many files a reader has ahead. Each file that was predicted and is read adds one; a
//!   read that was not predicted halves it; and what was read ahead for nothing is held against it
//!   ([`WASTE_PRICE`]).
//!
//! | file | idea |
//! | --- | --- |
//! | `folder.rs` | a folder's orders, and the walks through it |
//! | `disk_order.rs` | whether files are read in the order of the disk as it is |
//! | `reader.rs` | what is known of a reader: trust, window, waste |
//! | `successors.rs` | all of it, bounded |
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

/// Most bytes of one file that are read ahead before its reader opens it. Smaller files are read whole; of a
/// larger one this is what a reader has until the stream that it then is has a piece of its own. At half of
/// it a file of 1 MiB is two switches; at double, a wrong guess at a large file costs twice as much.
pub const HEAD_MAX: u64 = 1 << 20;

/// Longest that a client waits for a file that is on its way, because others of its set lie nearer to the
/// heads. At half of it a sweep over a thousand files is broken off; at double, a client that reads one file
/// of the set and no more waits twice as long.
pub const TURN_MAX: Nanos = Nanos::from_secs(4);

/// Bytes that may lie ahead, of a budget of so many: streams keep the other half.
pub fn room(budget: u64) -> u64 {
    budget / 2
}

/// Bytes of a file of this size that are read ahead.
pub fn head(size: u64) -> u64 {
    size.min(HEAD_MAX)
}
