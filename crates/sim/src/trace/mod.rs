//! Traces for the simulator: opening and unpacking files, turning records into block requests, describing a trace.

pub mod info;
pub mod input;
mod source;

pub use source::{Progress, Source, SourceSpec, Writes};
