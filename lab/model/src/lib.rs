//! The models of an experiment: how long a disk takes ([`drive`], [`platter`]), and which clients request
//! what ([`workload`]).
//!
//! All of it is pure: no I/O, no clock, no threads. `drive` and `platter` name nothing of `std`; a test says
//! so.

extern crate alloc;

pub mod drive;
pub mod load_options;
pub mod platter;
pub mod set_options;
pub mod with;
pub mod workload;
