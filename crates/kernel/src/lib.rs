//! Everything that touches Linux.
#![allow(unsafe_code)]

#[cfg(feature = "full")]
pub mod cgroup;
#[cfg(feature = "full")]
pub mod spawn;
