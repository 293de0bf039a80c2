//! A machine that serves files from hard disks, in virtual time.
//!
//! ```text
//! clients (workload)      closed loop, requests to handlers, viewing sessions, or one node's part of a site
//!    |  requests
//! server (server)         workers or threads; each call reads through the page cache and blocks on it
//!    |  misses                          |  calls, when a mode is on
//! kernel read-ahead (readahead)      policy::DiskEngine (engine): the daemon's own policy code
//!    |                                  |
//! page cache (cache)      bounded; plain LRU or Linux's two lists
//!    |  requests
//! block layer (scheduler) merging, fifo / deadline / fair queueing / anticipatory
//!    |  commands
//! drive::Drive(Set)       NCQ, seek, rotation, zones, track buffer with look-ahead
//! ```
//!
//! One event queue ordered by time and then by when an event was planned, one thread, integers for time: one
//! seed gives the same bytes of output on every machine. What is *not* modelled: processor contention (each
//! call has a cost, but cores are never short), TCP's slow start and loss, file system metadata. One
//! program a disk, or a recorder, may write beside the load (`machine::writer`).

pub mod balancer;
pub mod cache;
mod client;
pub mod config;
mod disk;
mod engine;
pub mod layout;
mod machine;
mod node;
pub mod profile;
pub mod readahead;
mod record;
pub mod scheduler;
pub mod search;
mod server;

pub use config::{
    Config, DiffLoad, KernelConfig, Load, ProgramWork, RecorderLoad, Replacement, SecondProgram, Standby,
    TreeLoad, WriterLoad,
};
pub use disk::DiskStats;
pub use machine::run;
pub use node::{Look, back, hit_ratio};
pub(crate) use profile::profile_of;
pub use record::{RecorderReport, Report, Reuse, WriterReport};
pub use search::{Found, Step, search, search_missed};
