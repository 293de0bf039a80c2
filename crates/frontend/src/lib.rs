//! What the doors share, and what those who look at a daemon from outside need:
//!
//! - [`EngineOptions`]: the options of a real engine.
//! - [`metrics`]: its metrics.
//! - [`control`]: asks a running daemon; [`status`] is what it answers, [`socket`] says where it listens.
//! - [`own_daemon`]: a daemon of one's own, ended with its parent; [`shim_file`]: the shim that is preloaded.
//! - [`advice`]: what keeps Seekless from helping on this machine.
//!
//! Must not know: how a door works.

pub mod advice;
pub mod control;
mod engine_options;
pub mod metrics;
pub mod own_daemon;
pub mod shim_file;
pub mod socket;
pub mod status;

pub use engine_options::EngineOptions;
