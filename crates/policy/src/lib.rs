//! What to read next from a disk, how much, in which order, what to keep. Pure; time comes in as an argument.
//! Must not know: descriptors, paths, sockets, threads, logging.
#![no_std]
extern crate alloc;

pub mod bitrate;
pub mod competitive;
pub mod controller;
pub mod ledger;
pub mod profile;
