//! All code that touches Linux: system calls, `/proc`, `/sys`. The shim links only the modules that do not
//! need the feature `full`.
//!
//! This crate must not know the policy.
#![allow(unsafe_code)]

#[cfg(feature = "full")]
pub mod bpf;
#[cfg(feature = "full")]
pub mod btrfs;
#[cfg(feature = "full")]
pub mod cacheevents;
#[cfg(feature = "full")]
pub mod call;
#[cfg(feature = "full")]
pub mod cgroup;
#[cfg(feature = "full")]
pub mod deferred;
#[cfg(feature = "full")]
pub mod extents;
#[cfg(feature = "full")]
pub mod fanotify;
pub mod fdpass;
pub mod fstype;
#[cfg(feature = "full")]
pub mod handle;
#[cfg(feature = "full")]
pub mod hold;
#[cfg(feature = "full")]
pub mod identity;
#[cfg(feature = "full")]
pub mod loopdev;
#[cfg(feature = "full")]
pub mod lsm;
#[cfg(feature = "full")]
pub mod memory;
#[cfg(feature = "full")]
pub mod mounts;
#[cfg(feature = "full")]
pub mod peer;
#[cfg(feature = "full")]
pub mod perf;
#[cfg(feature = "full")]
pub mod prefetch;
#[cfg(feature = "full")]
pub mod queue;
#[cfg(feature = "full")]
pub mod rawio;
pub mod residency;
pub mod ring;
#[cfg(feature = "full")]
pub mod sched;
#[cfg(feature = "full")]
pub mod service;
#[cfg(feature = "full")]
pub mod socketfile;
#[cfg(feature = "full")]
pub mod spawn;
#[cfg(feature = "full")]
pub mod state;
#[cfg(feature = "full")]
pub mod topology;
#[cfg(feature = "full")]
pub mod tracepoint;
#[cfg(feature = "full")]
pub mod trust;
pub mod twinkey;
