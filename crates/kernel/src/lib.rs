//! Everything that touches Linux.
#![allow(unsafe_code)]

#[cfg(feature = "full")]
pub mod extents;
pub mod fdpass;
#[cfg(feature = "full")]
pub mod prefetch;
pub mod residency;
#[cfg(feature = "full")]
pub mod topology;
