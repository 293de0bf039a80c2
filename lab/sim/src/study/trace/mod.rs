//! Traces for the simulator: turning records into block requests, describing a trace.

pub mod info;
mod source;

pub use source::{SourceSpec, TraceSource, Writes};
