//! A hard disk made of software: the drive model under a real page cache, file system and block layer.
//!
//! ```text
//!   server  ->  ext4 or XFS  ->  block layer, scheduler  ->  /dev/loopN, direct I/O
//!                                                                |
//!            worker:  FUSE file `disk` (fuse_file)  <------------+
//!                         | request at arrival        ^ answer when the model says
//!                         v                           |
//!                     engine: clock + spread + mechanism (the model) + faults, stats, trace
//!                     store:  extents (content by seed and page) + backing file (the rest)
//! ```
//!
//! Without root the loop device and what is above it are left out: [`fuse_tree`] is a directory of files
//! straight from the engine. Three processes make a disk: `up` returns when it stands; the [`supervisor`]
//! builds and dismantles; the [`worker`] serves. Each of them may be killed at any time, see [`dismantle`].
//!
//! Must not know: the other applications (daemon, load, lab).

pub mod cli;
pub mod clock;
pub mod config;
pub mod control;
pub mod dismantle;
pub mod engine;
pub mod extents;
mod fault;
pub mod faults;
pub mod fuse_file;
pub mod fuse_tree;
pub mod manifest;
pub mod mechanism;
pub mod message;
pub mod mkfs;
pub mod populate;
mod process;
pub mod queue;
pub mod scratch;
pub mod state;
pub mod stats;
pub mod store;
pub mod supervisor;
pub mod trace;
pub mod worker;
