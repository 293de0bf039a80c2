//! What an operator looks with and sets up with.
//!
//! - [`doctor`]: is a process hooked, and what would help on this machine?
//! - [`top`]: what a daemon does with its disks.
//! - [`prove`]: what Seekless gains, on a running server (`prove`) or for programs that read (`try`).
//! - [`enable`]: the shim in a server that systemd starts.
//! - [`release`]: has a daemon give up a file system.
//! - [`disk`]: disks measured and tuned.
//!
//! Must not know: the doors, other than as processes and by their status.

pub mod disk;
pub mod doctor;
pub mod enable;
pub mod prove;
pub mod release;
pub mod top;
mod unit_filter;
