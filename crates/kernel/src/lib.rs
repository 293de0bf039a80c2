//! Everything that touches Linux. What stands here without the feature `full` is what the shim links.
//! Must not know: policy.
#![allow(unsafe_code)]

#[cfg(feature = "full")]
pub mod extents;
#[cfg(feature = "full")]
pub mod fanotify;
pub mod fdpass;
#[cfg(feature = "full")]
pub mod loopdev;
#[cfg(feature = "full")]
pub mod mounts;
#[cfg(feature = "full")]
pub mod prefetch;
pub mod residency;
pub mod ring;
#[cfg(feature = "full")]
pub mod sched;
#[cfg(feature = "full")]
pub mod topology;
