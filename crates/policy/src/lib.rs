//! What to read next from a disk, how much, in which order: the decisions, without the doing.
//!
//! A disk that serves many sequential readers with small reads spends its time seeking. [`Spindle`] is the cure as a
//! state machine, one per disk: callers that need bytes hand it a [`Request`]; it turns requests into *pieces* that
//! are larger than asked (prefetch), submits few at a time (serialisation), in a chosen [`Order`], and answers every
//! request exactly once. Libception \[L\] 3.2.2 calls this part Reception's DiskIODaemon.
//!
//! Whoever drives it - the daemon in real time, a simulator in virtual time - runs one loop: `handle(now, event)`,
//! then `poll_action()` until it is empty, then sleep until the next event or `next_deadline()`.
//!
//! Must not know: descriptors, paths, sockets, threads, clocks, logging. Time comes in as an argument.
#![no_std]
extern crate alloc;

pub mod bitrate;
pub mod competitive;
pub mod constants;
pub mod controller;
pub mod extents;
pub mod memory;
pub mod recency;
pub mod record;
pub mod totals;

mod account;
mod config;
mod drops;
mod engine;
mod event;
mod files;
mod histogram;
mod order;
mod piece;
mod pins;
mod service;
mod size;
mod spindle;
mod stats;
mod stream;

pub use config::{AheadConfig, Config, DEFAULT_PREFETCH, Mode, OrderKind, PAGE};
pub use constants::Constants;
pub use engine::DiskEngine;
pub use event::{
    Access, Action, Demand, Event, FileId, Outcome, ReadId, Reason, Request, RequestId, Taken, Verdict,
};
pub use histogram::Histogram;
pub use memory::{DropBehind, MemoryLimit};
pub use order::{Fifo, Order, Place, Queued, Sweep};
pub use piece::FOUND_MAX;
pub use size::{
    AsAsked, Auto, Depth, EndEvidence, Fixed, Prefetch, PrefetchSize, Scaled, SizeReport, Sizing,
    UnknownPrefetch, start_size,
};
pub use stats::Stats;
pub use stream::{Continuation, Persistence, Rate, Stream, StreamConfig, StreamId, Streams};
