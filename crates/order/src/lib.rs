//! `seekless order`: a list of paths in, the same paths out in the order in which their disk reads them best.
//!
//! A program that takes files in any order (a hasher, a backup check, a media scanner) makes a disk seek
//! once a file if it takes them in the order of names. Sorted by the address of their first bytes, they are
//! one sweep. [`sequence`] has the order, pure; `entries` and `walk` read the list; `hints` and `look` ask
//! where files lie; `ahead` brings them into memory before the consumer gets their paths, within [`window`].
//!
//! Memory is bounded: the list is taken in batches ([`sequence::Limits`]), and each batch is sorted by
//! itself.
//!
//! Must not know: the other applications.

mod ahead;
pub mod cli;
mod entries;
mod hints;
mod look;
pub mod sequence;
mod summary;
mod walk;
pub mod window;
