//! policy x drive: the same decisions in virtual time.
//!
//! Must not know: kernel, wire, or the other applications.

pub mod twolevel;
