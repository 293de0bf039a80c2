//! Files in the order in which their disk reads them best, read ahead of their consumer.
//!
//! A program that takes files in any order (a hasher, a backup, a media scanner, a loader of training data)
//! makes a hard disk seek once a file if it takes them in the order of names. In the order of the addresses
//! of their first bytes they are one sweep.
//!
//! [`order()`] is for programs: an iterator of paths in, an iterator of [`Item`]s out, whose bytes are in
//! memory when they come. [`Set`] is the same without an iterator. Neither needs a daemon or a privilege; if
//! a daemon answers, it reads (`daemon`), and each item says so ([`Item::read_by`]). Each item also says how
//! it was ordered ([`Item::how`]): by address if the file system reports one (FIEMAP), otherwise by inode
//! number.
//!
//! The commands `seekless order` (`cli`) and `seekless cat-set` (`cat`) use the same parts. [`sequence`] has
//! the order, pure; `entries` and `walk` read a list; `hints` and `look` find where files lie; `batch` orders
//! them; `ahead` reads them into memory before their consumer gets them, within [`window`]. The consumer is
//! the reader of a `pipe`, or the program that holds a `set`.
//!
//! Memory is bounded: paths are taken in batches ([`sequence::Limits`]), and each batch is sorted by itself.
//!
//! Must not know: the other applications.

mod ahead;
mod batch;
#[cfg(feature = "cli")]
pub mod cat;
#[cfg(feature = "cli")]
pub mod cli;
mod daemon;
#[cfg(feature = "cli")]
mod entries;
mod hints;
mod holes;
mod look;
#[cfg(feature = "cli")]
mod pipe;
pub mod sequence;
mod set;
#[cfg(feature = "cli")]
mod sparse_map;
#[cfg(feature = "cli")]
mod summary;
mod walk;
pub mod window;

pub use ahead::ReadBy;
pub use batch::BATCH_PATHS;
pub use look::{By, How};
pub use set::{Counts, Failure, Item, Options, Ordered, Set, WINDOW, order};
