//! All code that touches Linux: system calls, `/proc`, `/sys`.
//!
//! This crate must not know the policy.
#![allow(unsafe_code)]

pub mod bpf;
pub mod btf;
pub mod btrfs;
pub mod cacheevents;
pub mod call;
pub mod cgroup;
pub mod container;
pub mod deferred;
pub mod extents;
pub mod fanotify;
pub mod fdpass;
pub mod fstype;
pub mod handle;
pub mod identity;
pub mod ioprio;
pub mod loopdev;
pub mod lsm;
mod mapping;
pub mod memory;
pub mod peer;
mod perf;
pub mod power;
pub mod prefetch;
pub mod queue;
pub mod rawio;
pub mod residency;
pub mod ring;
pub mod sched;
pub mod service;
pub mod socketfile;
pub mod spawn;
pub mod state;
mod syscall;
pub mod sysfs;
pub mod topology;
pub mod tracepoint;
pub mod trust;
pub mod twinkey;
pub mod writes;
