//! Front doors of the engine for unchanged servers. The paper's Reception (\[L\] 3.2.2).
//!
//! ```text
//!  shims --connect, Need + descriptor--> receptionist --request--> reader of that disk (Spindle)
//!    ^                                    (epoll, never               |        ^
//!    |                                     touches a disk)       piece|        | progress, done
//!    |                                        |                       v        |
//!    `--Working, every second-----------------'                   worker: read-ahead, wait
//!    `--Answer------------------------------------ reader           (readers, workers: crate `engine`)
//! ```
//!
//! - The *receptionist* thread (`receptionist`) takes connections and requests, answers what is resident already, finds
//!   the disk of each file, keeps waiting shims informed, and notices those that hang up. What one user may take of what
//!   all share is bounded (`shares`); reads are reported through a ring a user (`rings`).
//! - One *reader* thread a disk, with its workers, is the engine's ([`seekless_engine`]).
//! - The *file sets* thread (`file_sets`) has what programs take in any order read in the order of the disk.
//! - The *statistics* thread (`statistics`) collects reports of tracked calls and answers status questions.
//!
//! `seekless watch` opens a second door to the same readers (`watch`): the kernel announces reads, no shim
//! needed. `seekless observe` opens a third (`observe`): the kernel tells of reads after the fact, and no
//! program waits.
//!
//! Every queue, connection count and wait is bounded; at a bound the answer is "pass", and the shim's caller goes on
//! as if we were not there.
//!
//! Must not know: the other applications.

mod activation;
mod callers;
pub mod cli;
mod client;
pub mod control;
mod daemon;
mod deliveries;
pub mod doctor;
mod enable;
mod engine_args;
mod file_sets;
mod held;
mod listener;
mod metrics;
mod observe;
mod own_daemon;
mod parent;
mod passing;
mod prove;
mod receptionist;
mod reload;
mod rings;
pub mod run;
mod settings;
mod shares;
mod start_error;
pub mod state;
mod statistics;
mod status;
mod strikes;
mod take_over;
mod top;
mod unit_filter;
mod watch;

pub use daemon::Daemon;
pub use seekless_engine::{DiskReport, Durations};
pub use settings::DaemonSettings;
pub use start_error::StartError;
pub use status::{
    CallReport, Counters, DeliveryReport, FileSetsReport, ObserveReport, StatusReport, WatchReport,
};
