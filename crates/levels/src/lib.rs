//! The algorithms of storage with several cache levels, each of which prefetches.
//!
//! - [`cache`]: which block leaves when another comes in (LRU, SARC, ARC).
//! - [`prefetch`]: what to fetch ahead of a request (RA, Linux, SARC, AMP).
//! - [`coordinate`]: how two levels keep out of each other's way (DU, PFC, and ours).
//!
//! Must not know: the policy of one disk, descriptors, paths, sockets, threads, clocks, logging. Where time matters, it is an
//! argument.
#![no_std]
extern crate alloc;

pub mod cache;
pub mod coordinate;
pub mod prefetch;
