//! Trace-driven simulation of cache levels that prefetch, and of what coordinates them (PFC).

mod disk;
mod engine;
pub mod report;
mod scheduler;
pub mod study;
mod system;

pub use disk::{DEVICE_SHIFT, DEVICES_MAX, DiskCounts};
pub use engine::{LevelCounts, REQUEST_BLOCKS_MAX, RunOutcome, Simulation, WriteCounts};
pub use system::{BlockRequest, LevelSpec, Network, Pacing, ServiceRules, SystemSpec, Waiting};

#[cfg(test)]
mod tests;
