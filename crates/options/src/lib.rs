//! Options of every command that has an engine: how far it reads, in which order, how early, in how much
//! memory. Meaning, range, default and error message of an option are the same for every door and for the
//! simulator.
//!
//! [`PolicyOptions`] builds the configuration of the policy and does not know a running engine;
//! `EngineOptions` of the crate `frontend` adds the settings of a real one.
//!
//! Must not know: the doors, and the other options of a command.

mod given;
mod named;
mod parameters;
mod policy;
mod preset;
mod queue;
mod values;

pub use given::Given;
pub use named::{named, parsed};
pub use parameters::{MOVED, Parameters};
pub use policy::PolicyOptions;
pub use preset::Preset;
pub use queue::QueueOptions;
pub use values::{Writers, longest, on_off, seconds, week_at_most};

/// Heading of the options for comparisons with the papers.
pub const PAPERS: &str = "Papers' parameters";

/// Heading of the options that bound or log what the engine does.
pub const BOUNDS: &str = "Bounds and logs";
