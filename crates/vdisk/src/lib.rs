//! A hard disk made of software: drive x FUSE (+ loop).

pub mod clock;
pub mod engine;
pub mod extents;
pub mod faults;
pub mod fuse_file;
pub mod scratch;
pub mod spread;
pub mod stats;
pub mod store;
pub mod trace;
