//! Everything that touches Linux.
#![allow(unsafe_code)]

#[cfg(feature = "full")]
pub mod cgroup;
#[cfg(feature = "full")]
pub mod extents;
pub mod fdpass;
#[cfg(feature = "full")]
pub mod loopdev;
#[cfg(feature = "full")]
pub mod mounts;
#[cfg(feature = "full")]
pub mod prefetch;
pub mod residency;
#[cfg(feature = "full")]
pub mod spawn;
#[cfg(feature = "full")]
pub mod topology;
