//! policy x kernel: real disks, real time. The paper's Reception ([L] 3.2.2).
//!
//! ```text
//!  shims --connect, Need + descriptor--> receptionist --request--> reader of that disk (Spindle)
//!    ^                                    (epoll, never               |        ^
//!    |                                     touches a disk)       piece|        | progress, done
//!    |                                        |                       v        |
//!    `--Working, every second-----------------'                   worker: read-ahead, wait
//!    `--Answer------------------------------------ reader
//! ```
//!
//! - The *receptionist* thread ([`receptionist`]) takes connections and requests, answers what is resident already, finds
//!   the disk of each file, keeps waiting shims informed, and notices those that hang up.
//! - One *reader* thread a disk ([`reader`]) runs the [`seekless_policy::Spindle`]; a few *workers* under it do the waiting, so
//!   that a disk that hangs stalls neither of the others.
//! - The *statistics* thread ([`statistics`]) collects reports of tracked calls and answers status questions.
//!
//! Every queue, connection count and wait is bounded; at a bound the answer is "pass", and the shim's caller goes on
//! as if we were not there.
//!
//! Must not know: the other applications.

mod addresses;
pub mod cli;
mod client;
pub mod control;
mod daemon;
mod devices;
pub mod doctor;
mod listener;
mod reader;
mod receptionist;
pub mod run;
mod settings;
pub mod state;
mod statistics;
mod status;
mod worker;

pub use daemon::{Daemon, StartError};
pub use settings::Settings;
pub use status::{CallReport, Counters, DiskReport, Durations, StatusReport};
