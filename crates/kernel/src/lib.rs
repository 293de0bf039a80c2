//! Everything that touches Linux.
#![allow(unsafe_code)]

#[cfg(feature = "full")]
pub mod cgroup;
#[cfg(feature = "full")]
pub mod loopdev;
#[cfg(feature = "full")]
pub mod mounts;
#[cfg(feature = "full")]
pub mod spawn;
