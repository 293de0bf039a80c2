//! The engine's doors for unchanged servers. The paper's Reception (\[L\] 3.2.2).
//!
//! ```text
//!  shims --connect--> acceptor --> thread of that user --request--> disk thread (DiskQueue)
//!    ^                             (never touches a disk)              |        ^
//!    |--Working, every second-------------'                       piece|        | progress, done
//!    |                                                                 v        |
//!    `--Answer------------------------------- disk thread          worker: read-ahead, wait
//!                                                            (disk threads, workers: crate `engine`)
//! ```
//!
//! - The *acceptor* thread (`acceptor`) accepts connections and hands each to the thread of its user. What
//!   one user may take of shared resources is bounded (`accounts`, `shares`, `frame_limiter`). Reads are
//!   reported through a ring for each user (`rings`).
//! - The thread of a user (`user_thread`) takes requests, answers what is resident already, finds the disk of
//!   each file, sends keepalives to waiting shims, and notices those that disconnect. A descriptor that hangs
//!   blocks only its own user's thread. What these threads share is in `front`.
//! - One *disk thread* for each disk, with its workers, belongs to the engine ([`seekless_engine`]).
//! - The *file sets* thread (`file_sets`) serves programs that take files in any order, in disk order.
//! - The *statistics* thread (`statistics`) collects reports of tracked calls and answers status requests.
//!
//! `seekless watch` adds a second door to the same disk threads (`watch`): the kernel announces reads,
//! without a shim. `seekless observe` adds a third (`observe`): the kernel reports reads after the fact, and
//! no program waits.
//!
//! Every queue, connection count and wait is bounded. At a bound the answer is "pass", and the shim's caller
//! goes on as without Seekless.
//!
//! This crate must not know the other applications.

mod acceptor;
mod accounts;
mod activation;
mod blocked_calls;
mod callers;
pub mod cli;
mod client;
mod counts;
mod daemon;
mod deferred_closes;
mod deliveries;
mod engine_args;
mod file_sets;
mod frame_limiter;
mod front;
mod limits;
mod listener;
mod metrics;
mod observe;
mod parent;
mod passing;
mod reload;
mod rings;
pub mod run;
mod settings;
mod shares;
mod statistics;
mod take_over;
mod user_thread;
mod watch;

pub use daemon::Daemon;
pub use seekless_engine::{DiskReport, Durations};
pub use seekless_frontend::status::{
    CallReport, Counters, DeliveryReport, FileSetsReport, ObserveReport, StatusReport, WatchReport,
};
pub use settings::DaemonSettings;
