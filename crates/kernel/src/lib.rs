//! Everything that touches Linux.
#![allow(unsafe_code)]

#[cfg(feature = "full")]
pub mod extents;
#[cfg(feature = "full")]
pub mod prefetch;
#[cfg(feature = "full")]
pub mod topology;
