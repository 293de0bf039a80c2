//! The algorithms of storage with several cache levels. Their prefetchers, which only the study of the paper
//! needs, are in the simulator.
//!
//! - [`cache`]: which block leaves when another comes in (LRU, SARC, ARC).
//! - [`coordinate`]: how two levels keep out of each other's way (DU, PFC, and ours).
//!
//! Must not know: the policy of one disk, descriptors, paths, sockets, threads, clocks, logging. Where time matters, it is an
//! argument.
#![no_std]
extern crate alloc;

pub mod cache;
pub mod coordinate;
