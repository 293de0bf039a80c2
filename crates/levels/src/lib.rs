//! Coordination of two cache levels. The caches, prefetchers and coordinators that only the study of the
//! paper needs are in the simulator.
//!
//! - [`coordinate`]: the PFC algorithm.
//! - [`recent`]: block numbers in order of use.
//!
//! Must not know: descriptors, paths, sockets, threads, clocks, logging; of `policy` it uses the list in
//! order of use. Where time matters, it is an argument.
#![no_std]
extern crate alloc;

pub mod coordinate;
pub mod recent;
